"""`fada data`: look at lines, convert them, get the published sets."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal, TypeAlias

import typer

from fada.cli.options import ReadingOptions, with_reading
from fada.cli.output import chosen_format, echo, echo_first, print_json, print_rows
from fada.errors import FadaError, first_few

if TYPE_CHECKING:
    from fada.data.line import LineSet

group = typer.Typer(no_args_is_help=True, help="Look at lines of text, convert them, get the published sets.")


OutputFormat: TypeAlias = Literal[
    "parquet", "pairs", "alto", "page", "hocr", "tei", "pdf", "txt", "tsv", "csv", "jsonl"
]
"""What lines can be written as."""

Source = Annotated[
    list[str],
    typer.Argument(
        help="Parquet, a folder of it, CSV/TSV/JSONL, ALTO or PAGE, image + .gt.txt, images; hub:owner/name; "
        "hpgt:FOLDER, catmus, edacc.",
        show_default=False,
    ),
]


@group.command("inspect")
@with_reading()
def inspect_command(
    reading: ReadingOptions,
    source: Source,
    characters: Annotated[int, typer.Option(help="Show so many characters; 0 shows all.", min=0)] = 40,
    sheet: Annotated[Path, typer.Option(help="Where to draw the contact sheet (PNG).")] = Path("contact-sheet.png"),
    no_sheet: Annotated[bool, typer.Option("--no-sheet", help="Draw no contact sheet.")] = False,
    samples: Annotated[int, typer.Option(help="Lines of every domain on the contact sheet.", min=1)] = 6,
    check: Annotated[bool, typer.Option("--check", help="Decode every image, to find broken ones.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Count lines by split and domain, list characters and widths, tell what was skipped, draw a contact sheet."""
    from fada.data.inspect import contact_sheet, inspect
    from fada.data.source import read_lines

    lines = read_lines(source, **reading.given())
    found = inspect(lines, samples=samples, check=check)
    drawn = None if no_sheet or not found.with_image else contact_sheet(found.samples, sheet)
    failed = lines.lost or not found.lines
    if as_json:
        print_json({**found.to_dict(), "contact_sheet": None if drawn is None else str(drawn)})
        raise typer.Exit(1 if failed else 0)
    print_rows(found.count_rows(), title=f"lines of {found.name}")
    print_rows(found.domain_rows(), title="text by domain")
    inventory = found.inventory_rows()
    shown = inventory[:characters] if characters else inventory
    print_rows(shown, title=f"characters ({len(shown)} of {len(inventory)} distinct)")
    if found.with_image:
        print_rows(found.width_rows(), title="widths in pixels at a height of 64")
    facts = {"without transcription": found.without_text, "empty transcription": found.empty_texts}
    echo("; ".join([f"longest text: {found.longest_text} characters", *(f"{k}: {v}" for k, v in facts.items())]))
    _tell(lines)
    for name, value in (("licence", found.licence), ("citation", found.citation), ("contact sheet", drawn)):
        if value:
            echo(f"{name}: {value}")
    if failed:
        raise typer.Exit(1)


@group.command("convert")
@with_reading()
def convert_command(
    reading: ReadingOptions,
    source: Source,
    destination: Annotated[
        Path,
        typer.Option(
            "--out", "-o", help="A .parquet, .tsv, .csv, .jsonl, .txt, .hocr, .tei.xml, .pdf file, or a folder."
        ),
    ],
    format: Annotated[OutputFormat | None, typer.Option("--format", "-f", help="What to write.")] = None,
) -> None:
    """Read lines in any format and write them in another; a folder without --format gets one parquet file per split."""
    from fada.data.source import read_lines
    from fada.data.write import refuse_source

    refuse_source(source, destination)
    lines = read_lines(source, **reading.given())
    _convert(lines, destination, format)


@group.command("build")
@with_reading()
def build_command(
    reading: ReadingOptions,
    chosen: Annotated[Path, typer.Argument(help="List of lines: page, line_id, split, domain; see recipes/lines.")],
    source: Source,
    destination: Annotated[Path, typer.Option("--out", "-o", help="Folder for one parquet file per split.")],
) -> None:
    """Take the lines that a list names from their source, with the list's splits and domains, as parquet."""
    from fada.data.chosen import Choice
    from fada.data.source import read_lines
    from fada.data.write import refuse_source

    refuse_source(source, destination)
    _convert(Choice.load(chosen).taken(read_lines(source, **reading.given())), destination)


@group.command("published")
def published_command(
    name: Annotated[str | None, typer.Argument(help="hpgt, catmus or edacc; without it, all are listed.")] = None,
    source: Annotated[
        str | None, typer.Option("--source", help="Local copy; without it, the Hugging Face hub.")
    ] = None,
    destination: Annotated[
        Path | None, typer.Option("--out", "-o", help="Folder for one parquet file per split, or a .parquet file.")
    ] = None,
    split: Annotated[str | None, typer.Option("--split", help="Only this split.")] = None,
    language: Annotated[list[str] | None, typer.Option(help="catmus: languages; 'all' for all of them.")] = None,
    century: Annotated[list[str] | None, typer.Option(help="catmus: centuries; 'all' for all of them.")] = None,
    accent: Annotated[list[str] | None, typer.Option(help="edacc: accents; 'all' for all of them.")] = None,
    resplit: Annotated[bool, typer.Option("--resplit", help="Make splits anew although the source has them.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the list as JSON.")] = False,
    as_csv: Annotated[bool, typer.Option("--csv", help="Print the list as CSV.")] = False,
) -> None:
    """List the published sets with licence and citation, or load one and write it as parquet with its splits."""
    from fada.data import published

    if name is None:
        rows = [
            {"name": one.name, "title": one.title, "licence": one.licence, "home": one.home, "citation": one.citation}
            for one in published.SETS.values()
        ]
        if as_json or as_csv:
            print_rows(rows, output=chosen_format(as_json, as_csv))
            return
        for row in rows:
            echo("\n  ".join([f"{row['name']}: {row['title']}", row["licence"], row["home"], row["citation"]]))
        return
    if destination is None:
        raise FadaError(f"{name}: say where to write it, with --out FOLDER.")
    lines = published.load(
        name,
        source,
        split=split,
        languages=_choice(language),
        centuries=_choice(century),
        accents=_choice(accent),
        resplit=resplit,
    )
    _convert(lines, destination)


def _choice(values: list[str] | None) -> list[str] | None:
    return [] if values == ["all"] else values or None


def _convert(lines: "LineSet", destination: Path, format: str | None = None) -> None:
    from fada.data.write import convert

    try:
        files = convert(lines, destination, format)
    finally:
        _tell(lines)
    echo(f"written: {first_few(files, 5)}")
    if lines.lost:
        raise typer.Exit(1)


def _tell(lines: "LineSet") -> None:
    """What was skipped or changed, on standard error."""
    echo_first(lines.notes, "note: ")
    if not lines.skipped_count:
        return
    echo(f"skipped: {lines.skipped_count}", err=True)
    for reason, number in lines.reasons.most_common():
        echo(f"  {number} x {reason}", err=True)
    echo_first(lines.skipped, "  ", count=lines.skipped_count)
