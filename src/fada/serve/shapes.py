"""Outlines and baselines: cut, joined, kept inside their page."""

from collections.abc import Sequence
from typing import Any

from fada.data.crop import area, corners, half
from fada.errors import FadaError

Points = list[list[float]]


def box(width: float, height: float) -> Points:
    """A rectangle from the origin."""
    return [[x, y] for x, y in corners(0.0, 0.0, width, height)]


def middle(outline: Sequence[Sequence[float]]) -> float:
    """The height of an outline's middle."""
    ys = [y for _, y in outline]
    return (min(ys) + max(ys)) / 2


def checked(outline: Any, baseline: Any, width: int, height: int) -> tuple[Points, Points]:
    """Points moved inside the page; an outline without an area is refused."""

    def inside(points: Any) -> Points:
        return [[min(max(float(x), 0.0), width), min(max(float(y), 0.0), height)] for x, y in points]

    outline = inside(outline)
    if area([(x, y) for x, y in outline]) < 4.0:
        raise FadaError("the outline encloses nothing of the page. Draw it around a line of text.")
    return outline, inside(baseline)


def split(
    outline: Sequence[Sequence[float]], baseline: Sequence[Sequence[float]], at: float
) -> tuple[tuple[Points, Points], tuple[Points, Points]]:
    """The parts left and right of an upright cut, at a fraction of the width."""
    xs = [x for x, _ in outline]
    cut = min(xs) + at * (max(xs) - min(xs))
    outlines, baselines = (
        [[[x, round(y, 2)] for x, y in half(points, cut, side, closed=points is outline)] for side in (-1, 1)]
        for points in (outline, baseline)
    )
    if any(len(part) < 3 or area([(x, y) for x, y in part]) < 4.0 for part in outlines):
        raise FadaError("one part of the line would be empty. Cut it further inside.")
    return (outlines[0], baselines[0]), (outlines[1], baselines[1])


def join(outlines: Sequence[Points], baselines: Sequence[Points]) -> tuple[Points, Points]:
    """The outline around several: what encloses them all without dents, and their baselines one after the other."""
    points = sorted({(x, y) for outline in outlines for x, y in outline})

    def chain(ordered: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
        hull: list[tuple[float, float]] = []
        for p in ordered:
            while len(hull) > 1 and _turn(hull[-2], hull[-1], p) <= 0:
                hull.pop()
            hull.append(p)
        return hull[:-1]

    hull = chain(points) + chain(points[::-1])
    baseline = sorted([x, y] for points in baselines for x, y in points)
    return [[x, y] for x, y in hull], baseline


def _turn(a: tuple[float, float], b: tuple[float, float], c: tuple[float, float]) -> float:
    return (b[0] - a[0]) * (c[1] - a[1]) - (b[1] - a[1]) * (c[0] - a[0])
