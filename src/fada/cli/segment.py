"""`fada segment`: the lines of a page, as ALTO or PAGE."""

from pathlib import Path
from typing import Literal

import typer

from fada.cli.options import SHARD
from fada.cli.output import echo


def segment(
    pages: list[Path] = typer.Argument(help="Page images, TIFFs of many pages, PDFs, folders, IIIF manifests."),
    out: Path = typer.Option(..., "--out", "-o", help="Folder for the ALTO or PAGE files and the images they are of."),
    format: Literal["alto", "page"] = typer.Option("alto", "--format", help="What to write."),
    draw: bool = typer.Option(False, "--draw", help="Also write a picture of each page with its lines numbered."),
    right_to_left: bool = typer.Option(False, "--right-to-left", help="Lines and columns run from right to left."),
    segmenter: str = typer.Option(
        "detector", help="Who finds the lines: detector, kraken (if it is on the PATH), a JSON file of outlines."
    ),
    rotate: int | None = typer.Option(
        None,
        help="Turn pages clockwise first: 90, 180 or 270 degrees; 0: take them as they are. "
        "[pages that lie on their side or stand on their head are turned]",
    ),
    shard: str | None = SHARD,
) -> None:
    """Find the lines of photographed or scanned pages: outlines, baselines, columns in reading order, margins."""
    from fada.jobs.segment import segment_pages
    from fada.jobs.shards import Shard

    part = Shard.parse(shard) if shard else None
    done = segment_pages(
        pages,
        out,
        format=format,
        draw=draw,
        right_to_left=right_to_left,
        segmenter=segmenter,
        rotate=rotate,
        shard=part,
    )
    for note in done.notes:
        echo(note, err=True)
    for reason in done.failed:
        echo(f"failed: {reason}", err=True)
    zones = ", ".join(f"{count} {zone}" for zone, count in sorted(done.zones.items()))
    out = part.part(out) if part else out
    echo(f"{sum(done.zones.values())} lines ({zones or 'none'}) in {out}; {len(done.failed)} pages failed")
    if done.failed:
        raise typer.Exit(1)
