"""Small or pale notes beside the columns, which the detector did not see at its first look.

It is shown the margins once more: larger, the paper evened out, the ink against that of the text, and without the text
itself, its initials and whatever else is too tall for a small letter. The factors were chosen on photographed pages.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from fada.data.segment.detector import STRIDE, probabilities
from fada.data.segment.layout import Block
from fada.data.segment.outline import ink_of
from fada.data.segment.rows import Mask, Row, find_rows

if TYPE_CHECKING:
    from PIL import Image

_SCALE, _LEAST_SCALE = 2.0, 1.25
"""How much larger than the first the second look is, and where it is not worth its time."""
_PIXELS = 2_000_000
"""Of the margins at the second look: where they are larger than that, they are enlarged less."""
_REACH = 12.0
"""How far from a column its notes are looked for, in distances of rows."""
_DARKEST = 0.5
"""Darker ink of the text is taken for so dark: notes need not be as dark as that."""
_DARK = 0.25
"""Ink, as a share of the text's, that counts."""
_TALL = 2.0
"""Connected ink taller than so many cores of the text is no small letter."""
_THIN = 0.12
"""Cores of notes are at least so thick, in cores of the text."""
_SHORT = 1.3
"""Notes are longer than so many cores of the text."""
_SPARSE, _SOLID = 0.1, 0.8
"""The share of a note's core that is ink."""
_DIM = 0.6
"""Paper below this share of the text's brightness is not of the page."""
_GAP = 1.3
"""The widest gap between a note and its next letter, in cores of the text."""
_OUT = 2.5
"""A note is so many times as dark as the paper above or below it: a stain is not."""
_FAINT = 0.6
_MANY = 150
"""More pieces in a margin are no notes, but the grain of paper, or of a scan in black and white."""

Span = tuple[int, int]


def find_notes(
    page: "Image.Image",
    blocks: Sequence[Block],
    rows: Sequence[Row],
    grey: NDArray[np.uint8],
    ink: NDArray[np.float32],
    height: float,
    distance: float,
) -> list[Row]:
    """Rows in the margins, in pixels of the first map, that are not among those of the first look, or longer there.

    Args:
        page: the image.
        blocks: of the first look, with their zones.
        rows: of the first look, also those that are in no block, because they belong to another page.
        grey: the page at the size of the first map.
        ink: of it.
        height: of a core.
        distance: of rows.
    """
    columns = [block for block in blocks if block.zone == "main" and len(block.rows) > 2]
    if not columns:
        return []
    notes = {id(row) for block in blocks if block.zone == "margin" for row in block.rows}
    others = [row for row in rows if id(row) not in notes]
    cores, body = _covered(others, columns, grey.shape, distance)
    letters = ink[cores & (ink > 0.1)]
    if not letters.size:
        return []
    text_ink, paper = min(_DARKEST, float(np.median(letters))), float(np.percentile(grey[cores], 80))
    levels = [row.middle for column in columns for row in column.rows]
    down = max(0, int(min(levels) - 2 * distance)), min(len(grey), int(max(levels) + 2 * distance))
    strips = _strips(columns, grey.shape[1], height, distance)
    area = sum(right - left for left, right in strips) * (down[1] - down[0])
    scale = min(_SCALE, float(np.sqrt(_PIXELS / max(area, 1))))
    found: list[Row] = []
    for across in strips if scale >= _LEAST_SCALE else ():
        part = _evened(page, grey.shape, (across, down), scale, height) / text_ink
        part = _without_text(part, _enlarged(cores, (across, down), part.shape), height * scale)
        part[_enlarged(body, (across, down), part.shape)] = 0.0
        for row in _rows_on(part, height * scale):
            note = row.scaled(1 / scale).moved(across[0], down[0])
            bright = grey[int(note.middle) - 2 : int(note.middle) + 3, note.left : note.right]
            on_page = note.left > 0 and note.right < grey.shape[1] and np.percentile(bright, 80) > _DIM * paper
            if on_page and not any(_is_same(note, other) for other in rows):
                found.append(note)
    return found


def _strips(columns: Sequence[Block], width: int, height: float, distance: float) -> list[Span]:
    """From where to where the page is margin, or a gutter."""
    wanted = np.zeros(width, bool)
    edges = [column.edges for column in columns]
    for left, right in edges:
        wanted[max(0, int(left - _REACH * distance)) : int(right + _REACH * distance)] = True
    for left, right in edges:
        wanted[max(0, int(left)) : int(right)] = False
    steps = np.flatnonzero(np.diff(np.concatenate([[False], wanted, [False]]).astype(int))).reshape(-1, 2)
    return [(int(begin), int(end)) for begin, end in steps if end - begin > 2 * height]


def _covered(
    rows: Sequence[Row], columns: Sequence[Block], shape: tuple[int, ...], distance: float
) -> tuple[Mask, Mask]:
    """Where the cores of rows are, and where the rows of columns are between the column's edges."""
    cores, body = np.zeros(shape, bool), np.zeros(shape, bool)
    for row in rows:
        _cover(cores, row, row.left, row.right, 0.5 * row.core)
    for column in columns:
        left, right = (int(edge) for edge in column.edges)
        for row in column.rows:
            _cover(body, row, max(left, row.left), min(right, row.right), 0.55 * distance)
    return cores, body


def _cover(mask: Mask, row: Row, left: int, right: int, reach: float) -> None:
    """Mark what is within `reach` of a row's centre, from `left` to `right`."""
    if left < right:
        centres = row.at(np.arange(left, right, dtype=float))
        levels = slice(max(0, int(centres.min() - reach)), int(centres.max() + reach) + 1)
        mask[levels, left:right] |= np.abs(np.arange(len(mask))[levels, None] - centres) < reach


def _evened(
    page: "Image.Image", shape: tuple[int, ...], box: tuple[Span, Span], scale: float, height: float
) -> NDArray[np.float32]:
    """The ink of a part of the page, enlarged."""
    from PIL import Image

    size = tuple(round((end - begin) * scale) for begin, end in box)
    (left, right), (top, bottom) = box
    x, y = page.width / shape[1], page.height / shape[0]
    part = page.resize(
        (size[0], size[1]), Image.Resampling.BILINEAR, (left * x, top * y, right * x, bottom * y), reducing_gap=2.0
    )
    return ink_of(np.asarray(part.convert("L")), height * scale)


def _enlarged(mask: Mask, box: tuple[Span, Span], shape: tuple[int, ...]) -> Mask:
    """A part of a mask at the size of the second look."""
    (left, right), (top, bottom) = box
    y = top + np.arange(shape[0]) * (bottom - top) // shape[0]
    x = left + np.arange(shape[1]) * (right - left) // shape[1]
    return mask[np.ix_(y, x)]


def _without_text(ink: NDArray[np.float32], cores: Mask, height: float) -> NDArray[np.float32]:
    """Ink without all that is connected with the cores of rows, or tall."""
    from scipy import ndimage

    labels, count = ndimage.label(ink > _DARK, structure=np.ones((3, 3), int))
    gone = np.zeros(count + 1, bool)
    gone[1:] = [y.stop - y.start > _TALL * height for y, _ in ndimage.find_objects(labels)]
    gone[labels[cores]] = True
    gone[0] = False
    return np.where(ndimage.binary_dilation(gone[labels], iterations=2), 0.0, np.clip(ink, 0.0, 1.0)).astype(np.float32)


def _rows_on(ink: NDArray[np.float32], height: float) -> list[Row]:
    """Rows that the detector finds and that look like notes; `height`: of a core of the text."""
    rows, columns = ink.shape
    padded = np.pad(ink, ((0, -rows % STRIDE), (0, -columns % STRIDE)))
    text = probabilities(np.repeat(1.0 - 2.0 * padded[..., None], 3, 2))[:rows, :columns]
    found = []
    for row in find_rows(text, _MANY)[0]:
        is_large_enough = row.core > _THIN * height and row.width > _SHORT * height
        if is_large_enough and row.score > _FAINT and _stands_out(row, ink, max(row.core, 0.35 * height)):
            found.append(_whole(row, ink, height))
    return found


def _whole(row: Row, ink: NDArray[np.float32], height: float) -> Row:
    """A note with the letters before and behind it that the detector passed over: numbers are written wide apart."""
    from scipy import ndimage

    letter = max(row.core, 0.35 * height)
    top = max(0, int(min(row.centres) - 2 * letter))
    labels, _ = ndimage.label(ink[top : int(max(row.centres) + 2 * letter)] > 0.2, structure=np.ones((3, 3), int))
    left, right = row.left, row.right
    letters = [
        (x.start, x.stop)
        for y, x in ndimage.find_objects(labels)
        if 0.4 * letter < y.stop - y.start < 3 * letter
        and abs((y.start + y.stop) / 2 + top - float(row.at((x.start + x.stop) / 2))) < 0.7 * letter
    ]
    for begin, end in sorted(letters):
        if right < end and begin - right < _GAP * height:
            right = end
    for begin, end in sorted(letters, reverse=True):
        if begin < left and left - end < _GAP * height:
            left = begin
    return row.widened(left, right)


def _stands_out(row: Row, ink: NDArray[np.float32], height: float) -> bool:
    """Whether a row is letters of this height: ink here and there, and less of it above or below."""

    def band(begin: float, end: float) -> NDArray[np.float32]:
        rows = slice(max(0, int(row.middle + begin * height)), max(1, int(row.middle + end * height) + 1))
        return ink[rows, row.left : row.right]

    inside = band(-0.5, 0.5)
    around = [float(other.mean()) for other in (band(-2.0, -1.0), band(1.0, 2.0)) if other.size]
    return _SPARSE < float(np.mean(inside > 0.2)) < _SOLID and float(inside.mean()) > _OUT * min(around, default=0.0)


def _is_same(note: Row, row: Row) -> bool:
    """Whether a row of the first look is what was found again, and no shorter."""
    overlap = min(note.right, row.right) - max(note.left, row.left)
    x = (max(note.left, row.left) + min(note.right, row.right)) / 2
    near = abs(float(note.at(x) - row.at(x))) < 0.5 * max(note.core, row.core)
    return near and overlap > 0.5 * min(note.width, row.width) and row.width >= 0.8 * note.width
