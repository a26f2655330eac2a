"""``fada report``: run folders to one HTML file, and to the paper's tables."""

import shlex
import sys
from pathlib import Path
from typing import Any

import typer

from fada.cli.options import EQUIVALENCES, ReadingOptions, with_reading
from fada.cli.output import echo, print_json
from fada.errors import FadaError


@with_reading("domain", "domain_column", "domain_from", "encoding", "id_column", "read_as", "split")
def report(
    reading: ReadingOptions,
    runs: list[Path] = typer.Argument(
        ..., metavar="RUN", help="Run folders; seeds of one setting are averaged. With --reference: outputs."
    ),
    reference: Path | None = typer.Option(
        None,
        "--reference",
        help="Ground truth that any outputs are compared with (text files, tables, ALTO, PAGE, hOCR); no run "
        "folder is needed.",
    ),
    pages: bool = typer.Option(
        False, "--pages", help="With --reference: compare whole pages, however they are divided into lines."
    ),
    out: Path | None = typer.Option(
        None, "--out", "-o", help="HTML file. Default: report.html in the run folder, or here for several runs."
    ),
    data: str | None = typer.Option(None, help="Where the line images are. Default: the data the run was made with."),
    title: str | None = typer.Option(None, help="Heading of the page."),
    baseline: str | None = typer.Option(None, help="System that others are compared with. Default: plain beam search."),
    compare: str | None = typer.Option(None, help="System put beside the baseline. Default: guided decoding."),
    images: bool = typer.Option(True, "--line-images/--no-line-images", help="Embed line images."),
    max_size: float = typer.Option(5.0, min=0.2, help="Size of the file in megabytes: images are fitted to it."),
    tables: Path | None = typer.Option(None, help="Also write the paper's tables to this folder (HTML, MD, TeX, CSV)."),
    normalization: str | None = typer.Option(
        None, help="Compare after normalisation: some of nfc, case, diacritics, punctuation, uv, ij, spaces."
    ),
    equivalences: Path | None = EQUIVALENCES,
    units: str = typer.Option("codepoints", help="Count codepoints or graphemes."),
    average: str = typer.Option("micro", help="micro (all edits over all characters) or macro (mean of lines)."),
    resamples: int = typer.Option(2000, min=0, help="For intervals and tests."),
    as_json: bool = typer.Option(False, "--json", help="Print what was written as JSON."),
) -> None:
    """One self-contained HTML file about one or more runs: tables, charts and every line, readable offline.

    Examples:

        fada report runs/hpgt

        fada report runs/standard-* runs/fada-* --out comparison.html --tables tables/

        fada report --reference ground_truth/ kraken.tsv tesseract.hocr --out comparison.html
    """
    from fada.evaluation.edits import parse_normalization
    from fada.report.page import write_comparison, write_report

    settings: dict[str, Any] = {
        "data": data,
        "title": title,
        "baseline": baseline,
        "compared": compare,
        "with_images": images,
        "max_bytes": int(max_size * 1_000_000),
        "resamples": resamples,
        "tables": tables,
        "normalization": parse_normalization(normalization, equivalences),
        "units": units,
        "average": average,
        "command": shlex.join(["fada", *sys.argv[1:]]),
    }
    given = reading.given() | ({"pages": True} if pages else {})
    if reference is not None:
        written = write_comparison(reference, runs, out or Path("report.html"), reading=given, **settings)
    elif given:
        options = ", ".join(f"--{name.replace('_', '-')}" for name in given)
        raise FadaError(
            f"{options}: how outputs are read that --reference is given for; a run has its own. Leave it out."
        )
    else:
        written = write_report(runs, out, **settings)
    if as_json:
        print_json(written.to_dict())
        return
    echo(f"{written.path}: {written.size / 1e6:.1f} MB, {written.lines:,} lines, {written.images:,} images")
    for path in written.tables:
        echo(str(path))
    for note in written.notes:
        echo(note, err=True)
