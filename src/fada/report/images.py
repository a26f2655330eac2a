"""Line images small enough to travel inside the report: scaled down, WebP, as sharp as a byte budget allows."""

import base64
import io
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from PIL import Image

from fada.common.say import track
from fada.data.crop import PageCrop
from fada.data.images import load_upright
from fada.data.segment.drawing import draw_lines
from fada.data.source import read_lines
from fada.errors import FadaError

MEDIA_TYPE = "image/webp"
LEVELS = ((40, 55), (36, 45), (36, 30), (32, 22), (28, 15), (28, 6), (24, 4))
"""(height in pixels, WebP quality), from the best down."""

_WIDEST = 30  # times the height: longer strips are scaled to this, so that one odd line cannot eat the budget
_SAMPLE = 48
PAGES = 6
"""So many pages are drawn with their lines, at most."""
_PAGE = 1400, 40
"""Their longer side in pixels, and WebP quality."""
_PAGE_SHARE = 0.3
"""Of the bytes, at most, for them."""


@dataclass(frozen=True)
class Thumbnail:
    """An encoded image: its size in pixels and the base64 text of its bytes."""

    width: int
    height: int
    data: str


@dataclass(frozen=True)
class Thumbnails:
    """The images found, by line id; `note` says what was left out and why, or is empty.

    `pages`: by their names, those that lines were cut out of, with the lines drawn.
    """

    images: Mapping[str, Thumbnail] = field(default_factory=dict)
    note: str = ""
    licence: str | None = None
    citation: str | None = None
    pages: Mapping[str, Thumbnail] = field(default_factory=dict)


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
    crops: dict[str, list[PageCrop]] = {}
    seen = 0
    for line in track(lines.filter(lambda line: line.id in ids), "Line images", total=len(ids)):
        seen += 1
        if line.image is None:
            continue
        try:
            small[line.id] = _scaled(line.load_image(), LEVELS[0][0])
        except FadaError:
            continue  # counted below with the other lines that have no image
        if isinstance(line.image, PageCrop) and (line.image.page.name in crops or len(crops) < PAGES):
            crops.setdefault(line.image.page.name, []).append(line.image)
    if not small:
        where = source if isinstance(source, str | os.PathLike) else ", ".join(source)
        missing = f"The lines of {where} have none." if seen else f"No line id of the predictions occurs in {where}."
        return Thumbnails({}, f"Images are left out. {missing}", lines.licence, lines.citation)
    pages = _drawn(crops, int(_PAGE_SHARE * budget))
    budget -= sum(len(page.data) for page in pages.values())
    order = [line_id for line_id in wanted if line_id in small]
    level = _level(list(small.values()), budget)
    images = _fitting(((line_id, encode(small[line_id], *level)) for line_id in order), budget)
    note = ""
    if len(images) < len(ids):
        reasons = []
        if len(order) > len(images):
            reasons.append(f"{len(order) - len(images):,} to keep the file small")
        if len(ids) > len(order):
            reasons.append(f"{len(ids) - len(order):,} because the data have no readable image of the line")
        note = f"Images are left out of {len(ids) - len(images):,} lines: " + ", ".join(reasons) + "."
    return Thumbnails(images, note, lines.licence, lines.citation, pages)


def _drawn(crops: Mapping[str, Sequence[PageCrop]], budget: int) -> dict[str, Thumbnail]:
    """Pages with the lines that were cut out of them, as many as fit."""
    side, quality = _PAGE

    def page(lines: Sequence[PageCrop]) -> Thumbnail:
        return _webp(draw_lines(load_upright(lines[0].page, upright=lines[0].upright)[0], lines, side), quality)

    return _fitting(((name, page(lines)) for name, lines in crops.items()), budget)


def _fitting(made: Iterable[tuple[str, Thumbnail]], budget: int) -> dict[str, Thumbnail]:
    """The first images, as long as their bytes fit; no further one is made."""
    found: dict[str, Thumbnail] = {}
    for name, image in made:
        budget -= len(image.data)
        if budget < 0:
            break
        found[name] = image
    return found


def encode(image: Image.Image, height: int, quality: int) -> Thumbnail:
    """A grey image, scaled to `height` pixels, as WebP."""
    return _webp(_scaled(image, height), quality)


def _webp(image: Image.Image, quality: int) -> Thumbnail:
    buffer = io.BytesIO()
    image.save(buffer, "WEBP", quality=quality, method=4)
    return Thumbnail(image.width, image.height, base64.b64encode(buffer.getvalue()).decode("ascii"))


def _scaled(image: Image.Image, height: int) -> Image.Image:
    image = image.convert("L")
    height = min(height, image.height)
    width = max(1, min(round(image.width * height / image.height), _WIDEST * height))
    return image if image.size == (width, height) else image.resize((width, height), Image.Resampling.LANCZOS)


def _level(images: Sequence[Image.Image], budget: int) -> tuple[int, int]:
    """The best level at which all images are likely to fit, judged by an even sample of them."""
    sample = images[:: max(1, len(images) // _SAMPLE)]
    for level in LEVELS:
        size = sum(len(encode(image, *level).data) for image in sample) / len(sample)
        if size * len(images) * 1.03 <= budget:
            return level
    return LEVELS[-1]
