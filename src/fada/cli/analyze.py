"""`fada analyze`: the figures of a target file."""

from pathlib import Path

import typer

from fada.cli.output import Format, chosen_format, echo, print_json, print_rows


def analyze(
    targets: Path = typer.Argument(help="A target file (fada targets build)."),
    out: Path = typer.Option(Path("figures"), "--out", "-o", help="Folder for the figures."),
    threshold: float = typer.Option(0.01, min=0, max=1, help="Heat map: leave out what is rarer in every domain."),
    before: str | None = typer.Option(
        None, "--from", help="Shift: the first domain (default: the pair furthest apart)."
    ),
    after: str | None = typer.Option(None, "--to", help="Shift: the second domain."),
    top: int = typer.Option(30, min=1, help="Shift: how many characters."),
    level: float = typer.Option(0.95, help="Shift: level of the confidence intervals."),
    fraction: float = typer.Option(0.15, help="Trends: share of the characters each point of the curve looks at."),
    formats: str = typer.Option("png,svg", "--format", help="png, svg, pdf, with commas."),
    as_json: bool = typer.Option(False, "--json", help="Print the files and the shift as JSON."),
    as_csv: bool = typer.Option(False, "--csv", help="Print the shift as CSV."),
) -> None:
    """Draw frequency heat map, Pearson correlations, LOWESS trends, and what drives the shift between two domains."""
    from fada.targets.figures import analyze as draw
    from fada.targets.figures import shift_pair, shift_rows
    from fada.targets.target_set import TargetSet

    loaded = TargetSet.load(targets)
    pair = shift_pair(loaded, before, after)
    files = draw(
        loaded,
        out,
        threshold=threshold,
        pair=pair,
        top=top,
        level=level,
        fraction=fraction,
        formats=[name.strip() for name in formats.split(",")],
    )
    rows = shift_rows(loaded, pair, level) if pair else []
    output = chosen_format(as_json, as_csv)
    if output is Format.JSON:
        print_json({"files": [str(file) for file in files], "pair": pair, "shift": rows})
    elif output is Format.CSV:
        print_rows(rows, output=output)
    else:
        print_rows([{"figure": str(file)} for file in files])
        if pair is None:
            echo(f"{targets}: one domain; its correlations and shift need another to compare with.", err=True)
