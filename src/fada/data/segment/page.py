"""The lines of one page image: found, put in order, outlined."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from fada.data.segment.detector import text_map, version
from fada.data.segment.layout import Zone, arrange
from fada.data.segment.outline import baseline_of, ink_of, outline_of
from fada.data.segment.rows import find_rows

if TYPE_CHECKING:
    from PIL import Image

Point = tuple[float, float]

SIDE = 1280
"""The longer side of the map at first, in pixels."""
LARGEST_SIDE = 2560
CORE = 8.0
"""Core heights below this many pixels of the map are too small to tell lines apart: the map is made larger."""
_FAINT = 0.5


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
    """What was found on a page, in reading order; `cut_off`: rows of a neighbouring page that were left out."""

    size: tuple[int, int]
    lines: tuple[FoundLine, ...]
    cut_off: int = 0
    segmenter: str = ""


def find_lines(page: "Image.Image", *, right_to_left: bool = False) -> PageLines:
    """The lines of a page image, in reading order."""
    text = text_map(page, SIDE)
    rows, height, distance = find_rows(text)
    if 0 < height < CORE - 1:
        text = text_map(page, min(LARGEST_SIDE, round(SIDE * CORE / height)))
        rows, height, distance = find_rows(text)
    rows = [row for row in rows if row.width > height and row.score > _FAINT]
    map_height, map_width = text.shape
    blocks, cut_off = arrange(rows, map_width, distance, right_to_left=right_to_left)
    grey = np.asarray(page.convert("L").resize((map_width, map_height), reducing_gap=2.0))
    ink = ink_of(grey, height) if rows else np.zeros_like(text)
    scale = np.array([page.width / map_width, page.height / map_height])

    def points(on_map: np.ndarray) -> tuple[Point, ...]:
        return tuple((float(x), float(y)) for x, y in (on_map * scale).round(1))

    found = tuple(
        FoundLine(
            points(outline_of(row, rows, ink, height)), points(baseline_of(row, height)), number, block.zone, row.score
        )
        for number, block in enumerate(blocks)
        for row in block.rows
    )
    return PageLines(page.size, found, cut_off, version())
