"""Marks and notes in the margin that were found as the beginning or the end of a row of the text, and where they part.

A mark stands outside of its column, behind a gap in the ink; an initial stands there too, but is one letter just before
its line. What is an end of the row is told from its last word by the gap, the widest of the row, and by the rows near
it, none of which reaches so far. The factors were chosen on photographed and drawn pages.
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
_GAP_BEHIND, _WIDEST = 1.2, 1.3
"""The gap before a mark at the end of a row, in core heights, and in widths of the row's next widest gap."""
_EDGE = 1.5
"""Rows of a note begin at one place, within so many core heights."""
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


def before_marks(rows: Sequence[Row], ink: NDArray[np.float32], near: int) -> list[Gap | None]:
    """For each row of a column where it ends and a mark behind it begins; None: there is none.

    `near`: so many rows about it tell how far the column reaches.
    """
    gaps = [_widest(row, ink) for row in rows]
    levels = np.array([row.middle for row in rows])
    found: list[Gap | None] = []
    for row, gap in zip(rows, gaps, strict=True):
        about = np.argsort(np.abs(levels - row.middle), kind="stable")[: near + 1]
        others = [(rows[i], gaps[i]) for i in about if rows[i] is not row]
        is_mark = (
            gap is not None
            and len(others) >= _FEW
            and all(_ends(*other, gap[1], row.core) < gap[1] for other in others)
        )
        found.append(gap if is_mark else None)
    return found


def _ends(row: Row, gap: Gap | None, begins: int, core: float) -> int:
    """Where a row ends, without the mark behind it if that begins where another one `begins`: notes have an edge."""
    return gap[0] if gap is not None and abs(gap[1] - begins) < _EDGE * core else row.right


def _widest(row: Row, ink: NDArray[np.float32]) -> Gap | None:
    """The gap of a row that is wider by far than all others; None where there is none."""
    gaps = sorted(gaps_of(row, ink), key=lambda gap: gap[0] - gap[1])
    widths = [end - begin for begin, end in gaps] + [0, 0]
    return gaps[0] if gaps and widths[0] >= max(_GAP_BEHIND * row.core, _WIDEST * widths[1]) else None
