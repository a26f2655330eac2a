"""The lines of one page image: found, put in order, outlined."""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from fada.data.crop import PageCrop, Point
from fada.data.images import image_size
from fada.data.segment.detector import text_map, version
from fada.data.segment.initials import with_initials
from fada.data.segment.layout import Zone, arrange, with_notes
from fada.data.segment.notes import find_notes
from fada.data.segment.outline import baseline_of, ink_of, outline_of
from fada.data.segment.rows import find_rows, stands_upright

if TYPE_CHECKING:
    from PIL import Image

SIDE = 1280
"""The longer side of the map at first, in pixels."""
LARGEST_SIDE = 2560
CORE = 8.0
"""Core heights below this many pixels of the map are too small to tell lines apart: the map is made larger."""
_FAINT = 0.5
_SMALLEST_NOTE = 0.4
"""Letters of a note are at least so tall, in core heights of the text, however thin its core was found."""
LINE_HEIGHT = 300
"""An image of more rows than this that is not at least twice as wide as high is hardly a line of text."""


@dataclass(frozen=True)
class FoundLine:
    """A line of text on a page, in pixels of the page image."""

    outline: tuple[Point, ...]
    baseline: tuple[Point, ...]
    block: int
    zone: Zone
    score: float


@dataclass(frozen=True)
class PageLines:
    """What was found on a page, in reading order.

    Attributes:
        size: width and height of the page.
        cut_off: rows of a neighbouring page that were left out.
        segmenter: who found the lines: name, version, settings.
        sideways: whether the lines run from top to bottom: then none are given.
        crowded: whether there are more pieces of text than lines are made of: then none are given.
    """

    size: tuple[int, int]
    lines: tuple[FoundLine, ...]
    cut_off: int = 0
    segmenter: str = ""
    sideways: bool = False
    crowded: bool = False

    def crops(self, file: Path, *, made: bool = False) -> list[PageCrop]:
        """The lines as cuts out of the page's image file, which may have been made for it."""
        return [
            PageCrop(
                file,
                self.size,
                line.outline,
                line.baseline,
                region=f"block_{line.block + 1}",
                zone=line.zone,
                made=made,
            )
            for line in self.lines
        ]


def find_lines(page: "Image.Image", *, right_to_left: bool = False) -> PageLines:
    """The lines of a page image, in reading order."""
    text = text_map(page, SIDE)
    if not stands_upright(text):
        return PageLines(page.size, (), 0, version(), sideways=True)
    rows, height, distance = find_rows(text)
    if 0 < height < CORE - 1:
        text = text_map(page, min(LARGEST_SIDE, round(SIDE * CORE / height)))
        rows, height, distance = find_rows(text)
    if height and not rows:
        return PageLines(page.size, (), 0, version(), crowded=True)
    rows = [row for row in rows if row.width > height and row.score > _FAINT]
    map_height, map_width = text.shape
    grey = np.asarray(page.resize((map_width, map_height), reducing_gap=2.0).convert("L"))
    ink = ink_of(grey, height) if rows else np.zeros_like(text)
    blocks, cut_off = arrange(rows, map_width, distance, ink, right_to_left=right_to_left)
    blocks = with_notes(blocks, find_notes(page, blocks, rows, grey, ink, height, distance), distance)
    blocks = blocks if right_to_left else with_initials(blocks, ink, height)
    rows = [row for block in blocks for row in block.rows]
    scale = np.array([page.width / map_width, page.height / map_height])

    def points(on_map: np.ndarray) -> tuple[Point, ...]:
        return tuple((float(x), float(y)) for x, y in (on_map * scale).round(1))

    found = tuple(
        FoundLine(
            points(outline_of(row, rows, ink, tall)), points(baseline_of(row, tall)), number, block.zone, row.score
        )
        for number, block in enumerate(blocks)
        for row in block.rows
        for tall in [min(height, max(row.core, _SMALLEST_NOTE * height)) if block.zone == "margin" else height]
    )
    return PageLines(page.size, found, cut_off, version())


def is_page(file: Path) -> bool:
    """Whether an image file is shaped like a page rather than like a line; from its header alone."""
    width, height, _, sideways = image_size(file)
    width, height = (height, width) if sideways else (width, height)
    return height > LINE_HEIGHT and width < 2 * height
