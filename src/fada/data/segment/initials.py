"""Letters that stand before a row and that the detector did not take for its beginning: drawn or indented initials.

Connected ink just before a row belongs to it if it stands at the row's height and reaches over no other row. All
lengths are in core heights; they were chosen on photographed pages.
"""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from fada.data.segment.layout import Block
from fada.data.segment.rows import Row, SideBySide

_DARK = 0.2
"""Ink, 0 to 1, that counts."""
_BEFORE, _INDENTED = 2.5, 4.0
"""How far before its column, or before a row that is indented, a letter may begin."""
_GAP = 1.0
"""The widest gap between a letter and what follows it."""
_TALL = 3.0
"""What is taller is an initial of several lines, a frame or the edge of the page."""
_UP, _DOWN = 2.4, 2.0
"""How far from the centre of the row a letter may reach."""
_SMALLEST = 0.075
"""Of the square of a core height: less ink is a speck."""


def with_initials(blocks: Sequence[Block], ink: NDArray[np.float32], height: float) -> list[Block]:
    """The blocks, each row from its first letter on; `height`: of a core."""
    from scipy import ndimage

    if not blocks:
        return []
    labels, _ = ndimage.label(ink > _DARK, structure=np.ones((3, 3), int))
    sizes = np.bincount(labels.ravel())
    boxes = [
        (y, x) if sizes[number] >= _SMALLEST * height**2 and y.stop - y.start <= _TALL * height else None
        for number, (y, x) in enumerate(ndimage.find_objects(labels), 1)
    ]
    rows = SideBySide([row for block in blocks for row in block.rows])
    found = []
    for block in blocks:
        margin = float(np.percentile([row.left for row in block.rows], 25))
        found.append(replace(block, rows=tuple(_begun(row, rows, labels, boxes, margin, height) for row in block.rows)))
    return found


def _begun(
    row: Row,
    rows: SideBySide,
    labels: NDArray[np.int32],
    boxes: "Sequence[tuple[slice, slice] | None]",
    margin: float,
    height: float,
) -> Row:
    """A row from its first letter on; `margin`: where its column begins."""
    centre = float(row.centres[0])
    indented = row.left > margin + height
    first = max(0.0, margin - _BEFORE * height, row.left - (_INDENTED if indented else _BEFORE) * height)
    beside = (rows.right <= row.left + height) & (np.abs(rows.at(row.left) - centre) < 1.5 * height)
    beside &= (rows.left != row.left) | (rows.right != row.right)
    first = max(first, float(np.max(rows.right[beside] + 0.5 * height, initial=0.0)))
    level = slice(max(0, int(centre - 0.6 * height)), int(centre + 0.6 * height) + 1)
    left = row.left
    while True:
        near = np.unique(labels[level, max(0, int(left - _GAP * height)) : left])
        begins = left
        for box in (boxes[number - 1] for number in near if number):
            if box is None or box[0].start < centre - _UP * height or box[0].stop > centre + _DOWN * height:
                continue
            if box[1].start >= first:
                begins = min(begins, box[1].start)
        if begins == left:
            return row.widened(left)
        left = begins
