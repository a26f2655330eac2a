"""Marks and notes in the margin that were found as the beginning or the end of a row of the text, and where they part.

A mark stands outside of its column, behind a gap in the ink; an initial stands there too, but is one letter just before
its line. A mark as large as the text is told from the first or last word by the gap, the widest of the row, and by the
rows near it, none of which reaches so far. The factors were chosen on photographed and drawn pages.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from fada.data.segment.rows import Row

MARK = 1.8
"""What begins so far to the left of its column, in distances of rows, is a mark in the margin, no initial."""
_BESIDE = 0.6
"""As is what begins so far to the left and above or below its row."""
_BEFORE, _GAP_BEFORE = 1.5, 0.6
"""As is what begins so far to the left, in core heights, is no single letter, and ends so far before what follows."""
_LETTER = 1.2
"""What is wider, in core heights, is no single letter."""
_GAP, _WIDEST = 1.2, 1.3
"""The gap between a row and a mark, in core heights, and in widths of the row's next widest gap."""
_WORD = 4.0
"""What is narrower, in core heights, and as large as the text may be an initial, set apart from its line."""
_EDGE = 1.5
"""Rows of a note, or of a column, begin at one place, within so many core heights."""
_FEW = 3
"""Fewer rows do not tell how far a column reaches."""
_TALL = 2.0
"""Connected ink taller than that, in core heights, is an initial."""
_DARK = 0.2
"""Ink, 0 to 1, that counts."""
_SPECKS = 0.1
"""The share of ink in a column of pixels that is still a gap."""

Gap = tuple[int, int]


def gaps_of(row: Row, ink: NDArray[np.float32]) -> list[Gap]:
    """Where there is no ink along the core of a row: columns where each gap begins and ends."""
    half = max(1, round(0.5 * row.core))
    lines = np.clip(row.centres.round().astype(int)[None] + np.arange(-half, half + 1)[:, None], 0, len(ink) - 1)
    dark = ink[lines, np.arange(row.left, row.right)[None]] > _DARK
    inked = np.concatenate([[True], dark.mean(0) > _SPECKS, [True]])
    edges = np.flatnonzero(np.diff(inked.astype(int))).reshape(-1, 2) + row.left
    return [(int(begin), int(end)) for begin, end in edges if begin > row.left and end < row.right]


def behind_mark(row: Row, left: float, distance: float, ink: NDArray[np.float32] | None) -> Gap | None:
    """Where a mark in the margin ends and the row behind it begins; None: there is none. `left`: of the column.

    A mark begins far before the column, or near it and not at the height of the row; an initial does neither.
    """
    if ink is not None and row.left < left - _BEFORE * row.core:
        near = [
            gap
            for gap in gaps_of(row, ink)
            if gap[1] - gap[0] >= _GAP_BEFORE * row.core
            and gap[0] - row.left > _LETTER * row.core
            and gap[0] <= left + 0.3 * row.core
            and not _is_initial(row, gap[0], ink)
        ]
        if near:
            return max(near, key=lambda gap: gap[1] - gap[0])
    far = row.left < left - MARK * distance
    joints = [joint for joint in row.joints if abs(joint[1] - left) < 1.2 * distance]
    if joints:
        end, begin = min(joints, key=lambda joint: abs(joint[1] - left))
        mark, text = row.centres[: end - row.left], row.centres[begin - row.left :][: int(4 * row.core)]
        off = row.left < left - _BESIDE * distance and abs(np.median(mark) - np.median(text)) > 0.5 * row.core
        return (end, begin) if far or off else None
    if not far:
        return None
    first = int(left - 0.8 * distance)
    lowest = first + int(np.argmin(row.heights[first - row.left :][: int(distance)]))
    return lowest, lowest


def _is_initial(row: Row, end: int, ink: NDArray[np.float32]) -> bool:
    """Whether a tall letter stands at the height of a row before a column."""
    from scipy import ndimage

    level, reach = float(row.centres[0]), 3.0 * row.core
    top = max(0, int(level - reach))
    labels, _ = ndimage.label(
        ink[top : int(level + reach), max(0, int(row.left - row.core)) : end] > _DARK, structure=np.ones((3, 3), int)
    )
    letters = [lines for lines, _ in ndimage.find_objects(labels) if lines.start < level - top < lines.stop]
    return any(lines.stop - lines.start > _TALL * row.core for lines in letters)


def marks_beside(rows: Sequence[Row], ink: NDArray[np.float32], near: int) -> dict[int, tuple[Gap, bool]]:
    """The places of rows of a column that begin or end with a mark: the gap beside it, and whether it stands before it.

    `near`: so many rows about each tell how far the column reaches.
    """
    gaps = [_widest(row, ink) for row in rows]
    levels = np.array([row.middle for row in rows])
    found = {}
    for place, (row, gap) in enumerate(zip(rows, gaps, strict=True)):
        if gap is None or len(rows) <= _FEW:
            continue
        about = np.argsort(np.abs(levels - row.middle), kind="stable")[: near + 1]
        others = [(rows[i], _aligned(gaps[i], gap, row.core)) for i in about if i != place]
        is_before = gap[0] - row.left > _WORD * row.core and all(
            (other.left if its is None else its[1]) > gap[0] for other, its in others
        )
        is_behind = all((other.right if its is None else its[0]) < gap[1] for other, its in others)
        if is_before or is_behind:
            found[place] = gap, is_before
    return found


def _aligned(gap: Gap | None, other: Gap, core: float) -> Gap | None:
    """A gap if what is behind it begins where it does behind another one: the rows of a note, or of its column, do."""
    return gap if gap is not None and abs(gap[1] - other[1]) < _EDGE * core else None


def _widest(row: Row, ink: NDArray[np.float32]) -> Gap | None:
    """The gap of a row that is wider by far than all others; None where there is none."""
    gaps = sorted(gaps_of(row, ink), key=lambda gap: gap[0] - gap[1])
    widths = [end - begin for begin, end in gaps] + [0, 0]
    return gaps[0] if gaps and widths[0] >= max(_GAP * row.core, _WIDEST * widths[1]) else None
