"""From a map of text probabilities to rows: connected pieces, split where two lines touch, joined where one is broken.

All lengths are in pixels of the map. A row knows for every column the centre of its core.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

Mask = NDArray[np.bool_]
Map = NDArray[np.float32]
Curve = NDArray[np.float64]

THRESHOLD = 0.3
SMALLEST = 12
"""Pixels of the map below which a piece is noise."""
MOST = 4000
"""Pieces that are put together on a page: a table of newspaper size has fewer."""
_STEP = 0.15
_HIGHEST = 0.9
_LEAST_ALIKE = 0.4
"""Rows of unlike heights must go on from each other the more exactly: a note beside a line is no part of it."""
_CONNECTED = np.ones((3, 3), int)


@dataclass(frozen=True)
class Row:
    """The core of a line of text, or of a piece of one.

    Attributes:
        left: first column.
        centres: (columns,) the height on the map of the core's middle.
        heights: (columns,) of the core.
        score: mean probability.
        joints: where pieces were put together: the columns where one ends and the next begins.
    """

    left: int
    centres: Curve
    heights: Curve
    score: float
    joints: tuple[tuple[int, int], ...] = ()

    @property
    def right(self) -> int:
        """The column behind the last."""
        return self.left + len(self.centres)

    @property
    def width(self) -> int:
        """Columns."""
        return len(self.centres)

    @cached_property
    def middle(self) -> float:
        """The height on the map of the row as a whole."""
        return float(np.median(self.centres))

    @cached_property
    def reach(self) -> tuple[float, float]:
        """The highest and the lowest of its centres."""
        return float(self.centres.min()), float(self.centres.max())

    @cached_property
    def core(self) -> float:
        """Usual height of the core."""
        return float(np.median(self.heights))

    def at(self, x: float | Curve) -> Curve:
        """The centre at columns `x`; beyond its ends a row goes on level."""
        return np.asarray(np.interp(x, np.arange(self.left, self.right), self.centres))

    def end(self, reach: float, *, right: bool) -> tuple[float, float]:
        """Where the row ends or begins, and the slope of its last or first `reach` columns."""
        count = min(self.width, int(reach))
        part = self.centres[-count:] if right else self.centres[:count]
        slope = float(np.polyfit(np.arange(count), part, 1)[0]) if count > reach / 4 and count > 2 else 0.0
        return float(part[-1 if right else 0]), slope

    def widened(self, left: int, right: int | None = None) -> "Row":
        """The row from a column before its first one on, or to one behind its last, level there."""
        more = self.left - left, (right or self.right) - self.right
        return replace(
            self, left=left, centres=np.pad(self.centres, more, "edge"), heights=np.pad(self.heights, more, "edge")
        )

    def moved(self, right: int, down: float) -> "Row":
        """The row at another place."""
        joints = tuple((first + right, last + right) for first, last in self.joints)
        return replace(self, left=self.left + right, centres=self.centres + down, joints=joints)

    def scaled(self, scale: float) -> "Row":
        """The row on a map of another size."""
        left, right = int(self.left * scale), max(int(self.right * scale), int(self.left * scale) + 1)
        x = np.arange(left, right) / scale
        heights = np.interp(x, np.arange(self.left, self.right), self.heights)
        joints = tuple((int(first * scale), int(last * scale)) for first, last in self.joints)
        return Row(left, self.at(x) * scale, heights * scale, self.score, joints)

    def parted(self, joints: Sequence[tuple[int, int]]) -> "list[Row]":
        """The pieces of a row that is taken apart again at some of its joints."""
        if not joints:
            return [self]
        edges = [self.left, *(edge for joint in sorted(joints) for edge in joint), self.right]
        return [
            replace(
                self,
                left=left,
                centres=self.centres[left - self.left : right - self.left],
                heights=self.heights[left - self.left : right - self.left],
                joints=tuple(joint for joint in self.joints if left < joint[0] and joint[1] < right),
            )
            for left, right in zip(edges[::2], edges[1::2], strict=True)
        ]


def stands_upright(text: Map) -> bool:
    """Whether most of the text on a map runs across and not from top to bottom, as on a page that lies on its side."""
    from scipy import ndimage

    labels, count = ndimage.label(text > THRESHOLD, structure=_CONNECTED)
    sizes = np.bincount(labels.ravel(), minlength=count + 1)[1:]
    shapes = np.array([labels[box].shape for box in ndimage.find_objects(labels)]).reshape(-1, 2)
    heights, widths = shapes.T
    return bool(sizes[heights > 2 * widths].sum() <= sizes[widths > 2 * heights].sum())


def find_rows(text: Map, most: int = MOST) -> tuple[list[Row], float, float]:
    """The rows of a map, their usual core height, and the usual distance from one to the next.

    More than `most` pieces are no rows: to join them takes the square of their number. Then the height alone is told.
    """
    pieces, height = _pieces(text)
    if not pieces:
        return [], 0.0, 0.0
    if len(pieces) > most:
        return [], height, 0.0
    distance = line_distance(pieces, height)
    return _joined(pieces, height, distance), height, distance


def _pieces(text: Map) -> tuple[list[Row], float]:
    from scipy import ndimage

    labels, _ = ndimage.label(text > THRESHOLD, structure=_CONNECTED)
    found = [(labels[box] == number, box) for number, box in enumerate(ndimage.find_objects(labels), 1)]
    found = [(mask, box) for mask, box in found if mask.sum() >= SMALLEST]
    if not found:
        return [], 0.0
    long = [mask for mask, _ in found if mask.shape[1] > 3 * mask.shape[0]] or [mask for mask, _ in found]
    height = float(np.median(np.concatenate([mask.sum(0) for mask in long])))
    return [row for mask, (y, x) in found for row in _split(mask, text[y, x], y.start, x.start, height)], height


def _split(mask: Mask, text: Map, top: int, left: int, height: float, threshold: float = THRESHOLD) -> list[Row]:
    """The row that a piece is; where it reaches over two lines, the rows that remain at a higher threshold."""
    from scipy import ndimage

    rows = mask.shape[0]
    extent = rows - np.argmax(mask[::-1], 0) - np.argmax(mask, 0)
    if np.mean(extent > 1.9 * height) > 0.12 and mask.shape[1] > 2 * height and threshold < _HIGHEST:
        threshold += _STEP
        labels, _ = ndimage.label(mask & (text > threshold), structure=_CONNECTED)
        parts: list[Row] = []
        for number, (y, x) in enumerate(ndimage.find_objects(labels), 1):
            part = labels[y, x] == number
            if part.sum() >= SMALLEST:
                parts += _split(part, text[y, x], top + y.start, left + x.start, height, threshold)
        return parts
    heights = mask.sum(0).astype(float)
    centres = (mask * np.arange(rows)[:, None]).sum(0) / heights + top
    return [Row(left, _smooth(centres, 3 * height), heights, float(text[mask].mean()))]


def _smooth(values: Curve, width: float) -> Curve:
    from scipy import ndimage

    return ndimage.uniform_filter1d(values, max(1, min(int(width), len(values))), mode="nearest")


def line_distance(rows: Sequence[Row], height: float) -> float:
    """The usual distance from a row to the one below it; three times the core height where there is none."""
    found = []
    side = SideBySide(rows)
    widths = side.right - side.left
    for row in rows:
        if row.width < 4 * height:
            continue
        begin = np.maximum(side.left, row.left)
        overlap = np.minimum(side.right, row.right) - begin
        over = np.flatnonzero(overlap >= 0.5 * np.minimum(widths, row.width))
        middle = begin[over] + overlap[over] / 2
        below = side.at(middle, over) - row.at(middle)
        found += [below.min()] if (below := below[below > 1.2 * height]).size else []
    return float(np.median(found)) if found else 3 * height


def _joined(rows: list[Row], height: float, distance: float) -> list[Row]:
    """Pieces of one line put together, nearest first, but not across a gutter between columns."""
    while True:
        pieces = _Pieces(rows, height, distance)
        taken = np.zeros(len(rows), bool)
        new: list[Row] = []
        for i, j in pieces.pairs():
            if not taken[i] and not taken[j] and not pieces.is_gutter(i, j):
                taken[[i, j]] = True
                new.append(_join(rows[i], rows[j]))
        if not new:
            return rows
        rows = [row for i, row in enumerate(rows) if not taken[i]] + new


class SideBySide:
    """Rows as columns of numbers, so that each is compared with all others at once."""

    def __init__(self, rows: Sequence[Row]) -> None:
        self.left = np.array([row.left for row in rows], int)
        self.right = np.array([row.right for row in rows], int)
        self.centres = np.concatenate([row.centres for row in rows])
        self.first = np.cumsum([0, *(row.width for row in rows)])[:-1]

    def at(self, x: float | Curve, which: "NDArray[np.int64] | slice" = slice(None)) -> Curve:
        """The centre at `x` of each row, or of those chosen; beyond its ends a row goes on level."""
        left, first = self.left[which], self.first[which]
        last = self.right[which] - left - 1
        along = np.clip(x - left, 0, last)
        below = along.astype(int)
        one, other = (self.centres[first + np.minimum(below + k, last)] for k in (0, 1))
        return one + (other - one) * (along - below)


class _Pieces(SideBySide):
    """Pieces of rows, and how well one goes on from another."""

    def __init__(self, rows: Sequence[Row], height: float, distance: float) -> None:
        super().__init__(rows)
        self.height, self.distance = height, distance
        self.core = np.array([row.core for row in rows])
        self.behind = np.array([row.end(12 * height, right=True) for row in rows])
        self.before = np.array([row.end(12 * height, right=False) for row in rows])

    def pairs(self) -> list[tuple[int, int]]:
        """Rows and those that may go on from them, the best fit first."""
        found = []
        order = np.argsort(self.left, kind="stable")
        lefts = self.left[order]
        for i, (left, right) in enumerate(zip(self.left.tolist(), self.right.tolist(), strict=True)):
            begin = np.searchsorted(lefts, max(left, right - 0.8 * self.height))
            seconds = order[begin : np.searchsorted(lefts, right + 2.2 * self.distance, "right")]
            misfits = self.misfits(i, seconds)
            found += [(cost, i, j) for cost, j in zip(misfits.tolist(), seconds.tolist(), strict=True) if cost < np.inf]
        return [(i, j) for _, i, j in sorted(found)]

    def misfits(self, i: int, seconds: NDArray[np.int64]) -> Curve:
        """How badly each goes on from row `i`, behind which it begins; infinite: it does not."""
        gap = np.maximum(self.left[seconds] - self.right[i], 0)
        (level, slope), (levels, slopes) = self.behind[i], self.before[seconds].T
        apart = np.abs((level + slope * (gap / 2)) - (levels - slopes * (gap / 2)))
        cores = self.core[seconds]
        alike = np.maximum(_LEAST_ALIKE, np.minimum(cores, self.core[i]) / np.maximum(cores, self.core[i]))
        far = apart > 0.45 * self.distance * alike * np.where(gap > self.distance, 0.6, 1.0)
        return np.where(far | (seconds == i), np.inf, gap + 3 * apart)

    def is_gutter(self, i: int, j: int) -> bool:
        """Whether the rows above and below mostly have a gap just before row `j`: columns begin at one place."""
        if self.left[j] - self.right[i] <= 0.55 * self.distance:
            return False
        x = float(self.left[j] - 0.25 * self.distance)
        y = (self.centres[self.first[i] + self.right[i] - self.left[i] - 1] + self.centres[self.first[j]]) / 2
        levels = y + self.distance * np.array([-4, -3, -2, -1, 1, 2, 3, 4])
        near = np.abs(self.at(x) - levels[:, None]) < 0.5 * self.distance
        before, behind = self.right <= x, self.left > x
        closed = (near & ~before & ~behind).any(1)
        is_open = ~closed & (near & before).any(1) & (near & behind).any(1)
        return bool(is_open.sum() > closed.sum())


def _join(first: Row, second: Row) -> Row:
    gap = max(0, second.left - first.right)
    over = max(0, first.right - second.left)
    between = np.linspace(first.centres[-1], second.centres[0], gap + 2)[1:-1]
    low = np.full(gap, min(np.median(first.heights), np.median(second.heights)))
    score = (first.score * first.width + second.score * second.width) / (first.width + second.width)
    return Row(
        first.left,
        np.concatenate([first.centres, between, second.centres[over:]]),
        np.concatenate([first.heights, low, second.heights[over:]]),
        score,
        (*first.joints, (first.right, first.right + gap), *second.joints),
    )
