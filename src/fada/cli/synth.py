"""`fada synth`: a synthetic set with a controlled shift."""

from pathlib import Path

import typer

from fada.cli.output import Format, chosen_format, echo, print_json, print_rows


def synth(
    out: Path = typer.Argument(help="Folder for the set: train, validation and test as parquet, and synthetic.json."),
    lines: int = typer.Option(1690, "--count", help="Lines in all domains together."),
    domains: int = typer.Option(4, "--domain-count", help="Number of domains; they are called A, B, C, ..."),
    language: str = typer.Option("el", help="Language of the words, a two-letter code."),
    pearson: str | None = typer.Option(
        None,
        help="Correlations of the letter frequencies: lowest:highest pair, or one number for all pairs.",
        show_default="0.89:0.97",
    ),
    noise: float = typer.Option(1.0, help="How hard to read: 0 a copy-book, 1 ordinary, 2 hard; up to 3."),
    height: int = typer.Option(64, help="Height of the images in pixels."),
    writers: int = typer.Option(8, help="Hands; each writes in every domain."),
    fonts: Path | None = typer.Option(None, help="Folder with fonts (default: those that come with matplotlib)."),
    pages: int = typer.Option(
        0, "--page-count", min=0, help="Also lay lines out on so many whole pages, with ALTO, in the folder pages/."
    ),
    seed: int = typer.Option(0, help="Everything follows from it."),
    processes: int | None = typer.Option(
        None, min=1, help="Processes that draw; the result does not depend on it.", show_default="one per core"
    ),
    as_json: bool = typer.Option(False, "--json", help="Print the metadata as JSON."),
    as_csv: bool = typer.Option(False, "--csv", help="Print the correlations as CSV."),
) -> None:
    """Make handwritten-looking lines whose domains differ in their letter frequencies by a known amount."""
    from fada.common.say import waiting
    from fada.data.synthetic.set import make_synthetic, parse_pearson

    made = make_synthetic(
        lines,
        domains,
        language,
        None if pearson is None else parse_pearson(pearson),
        noise,
        height,
        seed,
        writers=writers,
        fonts=fonts,
        processes=processes,
    )
    with waiting(f"writing {lines:,} lines"):
        made.save(out)
    if pages:
        from fada.data.synthetic.pages import write_pages

        write_pages(made.lines, out / "pages", pages, seed)
    output = chosen_format(as_json, as_csv)
    if output is Format.JSON:
        print_json(made.metadata)
        return
    rows = [
        {"domain": domain, **{other: round(float(r), 4) for other, r in zip(made.domains, row, strict=True)}}
        for domain, row in zip(made.domains, made.pearson, strict=True)
    ]
    print_rows(rows, "Pearson correlation of letter frequencies", output, digits=3)
    if output is Format.TABLE:
        parts = ", ".join(f"{split} {number:,}" for split, number in made.metadata["lines"].items())
        echo(f"{out}: {lines:,} lines ({parts})\nlicence: {made.metadata['licence']}")
