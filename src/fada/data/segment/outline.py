"""Outlines and baselines: a seam above and a seam below each row, through the least ink.

Ascenders and accents of a line lie inside its outline and those of its neighbours outside, as far as a line from left
to right can part them. Everything is in pixels of the map; the factors come from outlines that people drew.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from fada.data.segment.rows import Curve, Row

UP, DOWN = 2.0, 1.8
"""How far a seam may be from the centre of the row, in core heights."""
_USUALLY_UP, _USUALLY_DOWN = 1.3, 1.2
"""How far it is where there is no ink."""
_DEVIATION = 0.55
"""What is far from that, in core heights."""
_CORE = 0.45
"""How far from the centre of a row its core is its own, in core heights."""
LEFT, RIGHT = 1.1, 0.9
"""How far an outline goes beyond the row's ends, in core heights."""
BASELINE = 0.45
"""How far the baseline lies below the centre, in core heights."""
_COARSE = 4
"""The paper changes slowly: it is looked for on every so many-th pixel at least, four to a core where that is more."""


def ink_of(page: NDArray[np.uint8], height: float) -> NDArray[np.float32]:
    """How much darker than its surroundings each pixel of a grey page is, 0 to 1; `height`: of a core."""
    from scipy import ndimage

    grey = page.astype(np.float32)
    step = max(_COARSE, int(height / 4))
    coarse = ndimage.percentile_filter(grey[::step, ::step], 80, size=max(3, int(4 * height / step)))
    paper = np.repeat(np.repeat(coarse, step, 0), step, 1)[: grey.shape[0], : grey.shape[1]]
    return np.clip((paper - grey) / np.maximum(paper, 1.0), 0.0, 1.0)


def baseline_of(row: Row, height: float) -> NDArray[np.float64]:
    """(points, 2): x, y along the feet of the letters."""
    x = np.unique(np.linspace(row.left, row.right - 1, max(2, int(row.width / (4 * height)) + 1)).round())
    return np.stack([x, row.at(x) + BASELINE * height], 1)


def outline_of(row: Row, rows: Sequence[Row], ink: NDArray[np.float32], height: float) -> NDArray[np.float64]:
    """(points, 2): the outline, clockwise from the upper left."""
    left = max(0, int(row.left - LEFT * height))
    right = min(ink.shape[1] - 1, int(row.right + RIGHT * height))
    x = np.arange(left, right + 1)
    centre = row.at(x.astype(float))
    above, below = _neighbours(row, rows, x, centre, height)
    reach = _DEVIATION * height
    highest, lowest = np.maximum(centre - UP * height, above), np.minimum(centre + DOWN * height, below)
    top = _seam(ink, x, highest, centre - 0.5 * height, centre - _USUALLY_UP * height, reach)
    bottom = _seam(ink, x, centre + 0.5 * height, lowest, centre + _USUALLY_DOWN * height, reach)
    upper = _simplified(np.stack([x, top], 1), 0.05 * height)
    lower = _simplified(np.stack([x, bottom], 1), 0.05 * height)
    return np.concatenate([upper, lower[::-1]])


def _neighbours(
    row: Row, rows: Sequence[Row], x: NDArray[np.int64], centre: Curve, height: float
) -> tuple[Curve, Curve]:
    """How far up and down the outline may go at each column: to the cores of the nearest other rows."""
    above = np.full(len(x), -np.inf)
    below = np.full(len(x), np.inf)
    highest, lowest = float(centre.min()) - (UP + _CORE) * height, float(centre.max()) + (DOWN + _CORE) * height
    for other in rows:
        if other is row or other.right <= x[0] or other.left > x[-1]:
            continue
        if other.reach[1] < highest or other.reach[0] > lowest:
            continue  # further away than the outline may go at all
        at = other.at(x.astype(float))
        there = (x >= other.left - height) & (x < other.right + height)
        higher = there & (at < centre - 0.3 * height)
        lower = there & (at > centre + 0.3 * height)
        above[higher] = np.maximum(above[higher], at[higher] + _CORE * height)
        below[lower] = np.minimum(below[lower], at[lower] - _CORE * height)
    return above, below


def _seam(ink: NDArray[np.float32], x: NDArray[np.int64], low: Curve, high: Curve, usual: Curve, reach: float) -> Curve:
    """The path from left to right between `low` and `high`, one pixel up or down a column at most, with least ink.

    Where there is no ink it keeps to `usual`; what is `reach` away from it costs as much as faint ink.
    """
    first = int(np.floor(max(0.0, low.min())))
    last = int(np.ceil(min(ink.shape[0] - 1.0, max(high.max(), first + 1.0))))
    y = np.arange(first, last + 1)[:, None]
    low, high = np.minimum(low, high - 1), np.maximum(high, low + 1)
    usual = np.clip(usual, low, high)
    cost = ink[first : last + 1, x] + 0.02 * ((y - usual) / reach) ** 2 + 10.0 * ((y < low - 1) | (y > high + 1))
    total = cost[:, 0].copy()
    came = np.zeros(cost.shape, np.int8)
    padded = np.full(len(total) + 2, np.inf)
    for column in range(1, cost.shape[1]):
        padded[1:-1] = total
        steps = np.stack([padded[1:-1], padded[:-2] + 0.01, padded[2:] + 0.01])
        best = steps.argmin(0)
        came[:, column] = np.array([0, -1, 1], np.int8)[best]
        total = steps[best, np.arange(len(total))] + cost[:, column]
    path = np.empty(cost.shape[1], np.int64)
    path[-1] = total.argmin()
    for column in range(cost.shape[1] - 1, 0, -1):
        path[column - 1] = path[column] + came[path[column], column]
    return (path + first).astype(float)


def _simplified(points: NDArray[np.float64], tolerance: float) -> NDArray[np.float64]:
    """Fewer points, none of the others further away than `tolerance` (Douglas and Peucker)."""
    keep = np.zeros(len(points), bool)
    keep[[0, -1]] = True
    spans = [(0, len(points) - 1)]
    while spans:
        start, end = spans.pop()
        if end - start < 2:
            continue
        inner = points[start + 1 : end]
        share = (inner[:, 0] - points[start, 0]) / max(points[end, 0] - points[start, 0], 1e-9)
        off = np.abs(inner[:, 1] - points[start, 1] - share * (points[end, 1] - points[start, 1]))
        furthest = int(off.argmax())
        if off[furthest] > tolerance:
            middle = start + 1 + furthest
            keep[middle] = True
            spans += [(start, middle), (middle, end)]
    return points[keep]
