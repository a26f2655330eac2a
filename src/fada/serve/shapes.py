"""Outlines and baselines: cut, joined, kept inside their page."""

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

from fada.data.crop import area
from fada.errors import FadaError

Points = list[list[float]]


def box(width: float, height: float) -> Points:
    """A rectangle from the origin."""
    return [[0.0, 0.0], [width, 0.0], [width, height], [0.0, height]]


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
    parts = tuple(
        (_half(outline, cut, side, closed=True), _half(baseline, cut, side, closed=False)) for side in (-1, 1)
    )
    if any(len(part) < 3 or area([(x, y) for x, y in part]) < 4.0 for part, _ in parts):
        raise FadaError("one part of the line would be empty. Cut it further inside.")
    return parts[0], parts[1]


def _half(points: Sequence[Sequence[float]], cut: float, side: int, closed: bool) -> Points:
    """What lies on one side of an upright line (Sutherland and Hodgman)."""
    half: Points = []
    pairs = pairwise([*points, points[0]] if closed else points)
    if not closed and points and side * (points[0][0] - cut) >= 0:
        half.append([*points[0]])
    for (x0, y0), (x1, y1) in pairs:
        inside, next_inside = side * (x0 - cut) >= 0, side * (x1 - cut) >= 0
        if inside != next_inside:
            half.append([cut, round(y0 + (y1 - y0) * (cut - x0) / (x1 - x0), 2)])
        if next_inside:
            half.append([x1, y1])
    return half


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
