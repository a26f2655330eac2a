"""Line images small enough to travel inside the report: scaled down, WebP, as sharp as a byte budget allows."""

import base64
import io
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from fada.common.say import track
from fada.data.source import read_lines
from fada.errors import FadaError

if TYPE_CHECKING:
    from PIL import Image

MEDIA_TYPE = "image/webp"
LEVELS = ((40, 55), (36, 45), (36, 30), (32, 22), (28, 15), (28, 6), (24, 4))
"""(height in pixels, WebP quality), from the best down."""

_WIDEST = 30  # times the height: longer strips are scaled to this, so that one odd line cannot eat the budget
_SAMPLE = 48


@dataclass(frozen=True)
class Thumbnail:
    """An encoded image: its size in pixels and the base64 text of its bytes."""

    width: int
    height: int
    data: str


@dataclass(frozen=True)
class Thumbnails:
    """The images found, by line id; `note` says what was left out and why, or is empty."""

    images: Mapping[str, Thumbnail] = field(default_factory=dict)
    note: str = ""
    licence: str | None = None
    citation: str | None = None


def collect(
    source: str | os.PathLike[str] | Sequence[str], wanted: Sequence[str], budget: int, **columns: str
) -> Thumbnails:
    """The images of the lines `wanted` (the most important first), together at most `budget` bytes of base64.

    Args:
        source: what :func:`fada.read_lines` reads.
        columns: its names of columns.
    """
    lines = read_lines(source, **columns)
    ids = set(wanted)
    small: dict[str, Image.Image] = {}
    seen = 0
    for line in track(lines.filter(lambda line: line.id in ids), "Line images", total=len(ids)):
        seen += 1
        if line.image is None:
            continue
        try:
            small[line.id] = _scaled(line.load_image(), LEVELS[0][0])
        except FadaError:
            continue  # counted below with the other lines that have no image
    if not small:
        where = source if isinstance(source, str | os.PathLike) else ", ".join(source)
        missing = f"The lines of {where} have none." if seen else f"No line id of the predictions occurs in {where}."
        return Thumbnails({}, f"Images are left out. {missing}", lines.licence, lines.citation)
    order = [line_id for line_id in wanted if line_id in small]
    level = _level(list(small.values()), budget)
    images: dict[str, Thumbnail] = {}
    for line_id in order:
        thumbnail = encode(small[line_id], *level)
        budget -= len(thumbnail.data)
        if budget < 0:
            break
        images[line_id] = thumbnail
    note = ""
    if len(images) < len(ids):
        reasons = []
        if len(order) > len(images):
            reasons.append(f"{len(order) - len(images):,} to keep the file small")
        if len(ids) > len(order):
            reasons.append(f"{len(ids) - len(order):,} because the data have no readable image of the line")
        note = f"Images are left out of {len(ids) - len(images):,} lines: " + ", ".join(reasons) + "."
    return Thumbnails(images, note, lines.licence, lines.citation)


def encode(image: "Image.Image", height: int, quality: int) -> Thumbnail:
    """A grey image, scaled to `height` pixels, as WebP."""
    image = _scaled(image, height)
    buffer = io.BytesIO()
    image.save(buffer, "WEBP", quality=quality, method=4)
    return Thumbnail(image.width, image.height, base64.b64encode(buffer.getvalue()).decode("ascii"))


def _scaled(image: "Image.Image", height: int) -> "Image.Image":
    from PIL import Image

    image = image.convert("L")
    height = min(height, image.height)
    width = max(1, min(round(image.width * height / image.height), _WIDEST * height))
    return image if image.size == (width, height) else image.resize((width, height), Image.Resampling.LANCZOS)


def _level(images: Sequence["Image.Image"], budget: int) -> tuple[int, int]:
    """The best level at which all images are likely to fit, judged by an even sample of them."""
    sample = images[:: max(1, len(images) // _SAMPLE)]
    for level in LEVELS:
        size = sum(len(encode(image, *level).data) for image in sample) / len(sample)
        if size * len(images) * 1.03 <= budget:
            return level
    return LEVELS[-1]
