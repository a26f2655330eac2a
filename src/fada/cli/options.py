"""The options that say how lines are read: the same for every command that reads them."""

from collections.abc import Mapping
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer


class InputFormat(StrEnum):
    """How to read a source, if it is not to be found out."""

    PARQUET = "parquet"
    ARROW = "arrow"
    XML = "xml"
    PAIRS = "pairs"
    MANIFEST = "manifest"
    IMAGES = "images"
    AUDIO = "audio"


Split = Annotated[str | None, typer.Option("--split", help="Only this split.")]
TextColumn = Annotated[str | None, typer.Option("--text-column", help="Column of the transcription.")]
ImageColumn = Annotated[str | None, typer.Option("--image-column", help="Column of the image.")]
AudioColumn = Annotated[str | None, typer.Option("--audio-column", help="Column of the sound.")]
DomainColumn = Annotated[
    str | None, typer.Option("--domain-column", help="Column of the domain: century, region, accent.")
]
Domain = Annotated[str | None, typer.Option("--domain", help="The domain of all lines.")]
DomainFrom = Annotated[
    str | None,
    typer.Option(
        "--domain-from",
        help="Without a column: 'folder', a table manuscript,domain (.csv, .json), or a regular expression over the "
        "path.",
    ),
]
ReadAs = Annotated[InputFormat | None, typer.Option("--read-as", help="The source's format, if it is mistaken.")]
Images = Annotated[
    Path | None, typer.Option("--images", help="Folder of the page images, if not where ALTO or PAGE say.")
]
Encoding = Annotated[str | None, typer.Option("--encoding", help="Of manifests and .gt.txt, if not UTF-8.")]
Grow = Annotated[
    float, typer.Option("--grow", help="Widen outlines by this share of the height, where they cut accents off.", min=0)
]
Outside = Annotated[bool, typer.Option("--allow-outside", help="Follow paths that leave the source's folder.")]

_ARGUMENTS = {
    "read_as": "format",
    **{name: name for name in ("split", "text_column", "image_column", "audio_column", "domain_column", "domain")},
    **{name: name for name in ("domain_from", "images", "encoding", "allow_outside", "grow")},
}


def reading(values: Mapping[str, Any]) -> dict[str, Any]:
    """Of a command's `locals()`, the options above, as :func:`fada.read_lines` takes them."""
    return {argument: values[name] for name, argument in _ARGUMENTS.items() if name in values}
