"""Marks and notes in the margin that were found as rows of a column or as the beginning or the end of one.

What makes a note is where it stands: outside of the block of the text, behind a gap in the ink that goes on above and
below, past the rows near it. Where these rows begin or end at the gap, as at the edge of a column, a narrow one will
do; where they do not, as at the end of verses, it has to be the widest of its row by far. An initial stands outside
too, but is one letter, and the letters that verses begin with stand before most rows. The factors were chosen on
photographed and drawn pages.
"""

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fada.data.segment.rows import Curve, Row

_FEW = 3
"""Fewer rows beside it do not tell how far a column reaches."""
_NEAR = 7
"""So many rows about each tell where their column begins and ends."""
_GAP, _WIDE_GAP, _WIDEST = 0.6, 1.2, 1.3
"""The gap beside a note at an edge and elsewhere, in core heights; there in widths of the next widest as well."""
_STRIP = 0.3
"""How much of the gap goes on past the rows near it, in core heights."""
_EDGE = 2.0
"""Rows begin or end at one place, within so many core heights."""
_MOST, _FEWER, _RARE = 0.5, 0.45, 0.25
"""Share of the rows that begin at the edge of their column, at least, and that have something beyond it, at most."""
_LEAN = 0.2
"""How far an edge moves aside at most, on the way from row to row, as a share of it."""
_FAR = 1.8
"""What begins so far before its column, in distances of rows, is a mark, whatever the gap behind it."""
_AT = 1.2
"""What stands before a row ends so near the edge of the column, in distances of rows."""
_WORD, _LETTER = 4.0, 0.5
"""What is narrower, in core heights, and for the most part of its width one piece of ink, may be an initial."""
_SPECK = 1.2
"""As is whatever is narrower than this."""
_TALL = 2.0
"""As is what is taller than this, in core heights, however wide."""
_OFF = 0.5
"""An initial is no further above or below its line than this, in core heights, unless it is tall."""
_CLOSE = 3.0
"""An initial is no further from its line than this, in core heights."""
_REACH = 2.5
"""What begins so far above a row, in core heights, is an initial of the one above it."""
_INSIDE = 0.3
"""What reaches no further into its column than this, in distances of rows, stands beside it."""
_DARK = 0.2
"""Ink, 0 to 1, that counts."""
_SPECKS = 0.1
"""The share of ink in a column of pixels that is still a gap."""

Ink = NDArray[np.float32]
Span = tuple[int, int]


def gaps_of(row: Row, ink: Ink) -> list[Span]:
    """Where there is no ink along the core of a row: columns where each gap begins and ends.

    At an end of the row, which the detector took for text and whose ink is too pale to count, it is where pieces were
    put together.
    """
    half = max(1, round(0.5 * row.core))
    lines = np.clip(row.centres.round().astype(int)[None] + np.arange(-half, half + 1)[:, None], 0, len(ink) - 1)
    dark = ink[lines, np.arange(row.left, row.right)[None]] > _DARK
    inked = np.concatenate([[True], dark.mean(0) > _SPECKS, [True]])
    edges = np.flatnonzero(np.diff(inked.astype(int))).reshape(-1, 2) + row.left
    found: list[Span] = []
    for begin, end in edges.tolist():
        if begin > row.left and end < row.right:
            found.append((begin, end))
        else:
            joints = ((max(begin, first), min(end, last)) for first, last in row.joints)
            found += [(first, last) for first, last in joints if row.left < first < last < row.right]
    return found


def widest_gap(row: Row, ink: Ink) -> Span | None:
    """The gap of a row that is wider by far than all others; None where there is none."""
    gaps = sorted(gaps_of(row, ink), key=lambda gap: gap[0] - gap[1])
    widths = [end - begin for begin, end in gaps] + [0, 0]
    return gaps[0] if gaps and widths[0] >= max(_WIDE_GAP * row.core, _WIDEST * widths[1]) else None


def without_marks(rows: Sequence[Row], ink: Ink, distance: float) -> tuple[list[Row], list[Row]]:
    """The rows of a column, and what stands in the margins beside them; `distance`: of rows."""
    if len(rows) <= _FEW:
        return [*rows], []
    column = _Column(rows, ink, distance)
    text: list[Row] = []
    marks: list[Row] = []
    for place, row in enumerate(rows):
        before, behind = column.gap_behind_note(place), column.gap_before_note(place)
        parts = row.parted([gap for gap in (before, behind) if gap is not None])
        marks += parts[:1] if before else []
        marks += parts[-1:] if behind else []
        text.append(parts[1 if before else 0])
    beside = _Column(text, ink, distance).beside()
    if 2 * sum(beside) > len(text):
        return [*rows], []
    marks += [row for row, is_beside in zip(text, beside, strict=True) if is_beside]
    return [row for row, is_beside in zip(text, beside, strict=True) if not is_beside], marks


class _Column:
    """Rows of a column and the gaps in their ink, with the column set upright: its left edge does not lean."""

    def __init__(self, rows: Sequence[Row], ink: Ink, distance: float) -> None:
        self.rows, self.ink, self.distance = rows, ink, distance
        self.core = float(np.median([row.core for row in rows]))
        self.levels = np.array([row.middle for row in rows])
        self.gaps = [[gap for gap in gaps_of(row, ink) if gap[1] - gap[0] >= _STRIP * self.core] for row in rows]
        begins = [[row.left, *(end for _, end in gaps)] for row, gaps in zip(rows, self.gaps, strict=True)]
        ends = [[*(begin for begin, _ in gaps), row.right] for row, gaps in zip(rows, self.gaps, strict=True)]
        self.edge, self.aside = self._left_edge([np.array(row, float) for row in begins])
        self.begins = [np.array(row) - aside for row, aside in zip(begins, self.aside, strict=True)]
        self.ends = [np.array(row) - aside for row, aside in zip(ends, self.aside, strict=True)]

    def _left_edge(self, begins: Sequence[Curve]) -> tuple[float | None, Curve]:
        """Where the column begins, if it has an edge, and how far aside it does at each row.

        The edge is the line through the beginnings of two rows at which most rows begin, or go on behind a gap.
        """
        lefts, count = np.array([row[0] for row in begins]), len(begins)
        above, below = np.triu_indices(count, max(1, count // 3))
        leans = (lefts[below] - lefts[above]) / np.maximum(self.levels[below] - self.levels[above], 1.0)
        above, leans = above[np.abs(leans) < _LEAN], leans[np.abs(leans) < _LEAN]
        at = lefts[above, None] + leans[:, None] * (self.levels - self.levels[above, None])
        off = np.stack([row[np.abs(row - at[:, [i]]).argmin(1)] - at[:, i] for i, row in enumerate(begins)], 1)
        held = np.abs(off) < self.core
        best = int(held.sum(1).argmax()) if len(at) else -1
        if best < 0 or held[best].mean() < _MOST:
            return None, np.zeros(count)
        places = np.flatnonzero(held[best])
        moved = [np.median(off[best, places[self._nearest(level, places)]]) for level in self.levels]
        return float(at[best, 0]), at[best] - at[best, 0] + np.array(moved)

    def _near(self, place: int) -> list[int]:
        return [i for i in self._nearest(self.levels[place], count=_NEAR + 1) if i != place]

    def _nearest(self, level: float, places: "NDArray[np.int64] | slice" = slice(None), count: int = _NEAR) -> Any:
        """Those of some rows that are nearest to a level."""
        return np.argsort(np.abs(self.levels[places] - level), kind="stable")[:count]

    def gap_behind_note(self, place: int) -> Span | None:
        """Behind what stands before a row; None: nothing does."""
        aside, left = self.aside[place], self.begins[place][0]
        is_far = self.edge is not None and left < self.edge - _FAR * self.distance
        is_at_edge = False
        for gap in reversed(self.gaps[place]):
            begin, end = gap[0] - aside, gap[1] - aside
            if self.edge is not None and abs(end - self.edge) > _AT * self.distance:
                continue
            beyond = _share(begins[0] < begin for begins in self.begins)
            if beyond > _FEWER:
                continue
            first = np.array([_after(begins, begin) for begins in self.begins])
            is_near = self._are_near(place, first, end)
            is_edge = is_near or is_at_edge or self._is_wide(place, gap)
            if not (is_far and is_near and beyond < _RARE) and not (is_edge and self._goes_on(place, gap)):
                continue
            if gap[1] - gap[0] > _CLOSE * self.core or not self._is_initial(place, gap, is_far):
                return gap
            is_at_edge = True  # the row begins with the initial
        return None

    def gap_before_note(self, place: int) -> Span | None:
        """Before what stands behind a row; None: nothing does."""
        for gap in self.gaps[place]:
            end = gap[1] - self.aside[place]
            beyond = _share(ends[-1] > end for ends in self.ends)
            if beyond <= _FEWER and self._is_wide(place, gap) and self._goes_on(place, gap):
                return gap
        return None

    def _is_wide(self, place: int, gap: Span) -> bool:
        """Whether a gap is the widest of a row by far."""
        others = [end - begin for begin, end in self.gaps[place] if (begin, end) != gap]
        return gap[1] - gap[0] >= max(_WIDE_GAP * self.core, _WIDEST * max(others, default=0))

    def _are_near(self, place: int, begins: Curve, edge: float) -> bool:
        """Whether most rows near one begin at an edge."""
        return _share(np.abs(begins[self._near(place)] - edge) < _EDGE * self.core) >= _MOST

    def _goes_on(self, place: int, gap: Span) -> bool:
        """Whether a gap in a row is wide enough, and goes on past the rows near it."""
        begin, end = gap[0] - self.aside[place], gap[1] - self.aside[place]
        is_free = self._free(begin, end, self._near(place)) >= _STRIP * self.core
        return is_free and end - begin >= _GAP * self.core

    def _free(self, begin: float, end: float, near: Sequence[int]) -> int:
        """Width of the widest strip of a gap that has no ink of other rows in it."""
        free = np.ones(int(end - begin) + 2, int)
        free[[0, -1]] = 0
        for i in near:
            for first, last in zip(self.begins[i] - begin, self.ends[i] - begin, strict=True):
                free[max(0, int(first) + 1) : max(0, int(np.ceil(last)) + 1)] = 0
        steps = np.flatnonzero(np.diff(free)).reshape(-1, 2)
        return int(np.max(steps[:, 1] - steps[:, 0], initial=0))

    def _is_initial(self, place: int, gap: Span, is_far: bool) -> bool:
        """Whether what stands before a gap in a row may be one letter; far before, above or below it, a tall one."""
        from scipy import ndimage

        row, core = self.rows[place], self.core
        width, (end, begin) = gap[0] - row.left, gap
        mark, text = row.centres[:width], row.centres[begin - row.left :][: int(_WORD * core)]
        is_off = is_far or abs(np.median(mark) - np.median(text)) > _OFF * core
        if width <= _SPECK * core and not is_off:
            return True
        level, reach = float(row.centres[0]), _REACH * core
        top = max(0, int(level - reach))
        labels, _ = ndimage.label(
            self.ink[top : int(level + reach), max(0, int(row.left - core)) : end] > _DARK,
            structure=np.ones((3, 3), int),
        )
        letters = [
            (x.stop - x.start, y.stop - y.start)
            for y, x in ndimage.find_objects(labels)
            if 0 < y.start < level - top < y.stop
        ]
        is_one = width <= _WORD * core and not is_off and any(across >= _LETTER * width for across, _ in letters)
        return is_one or sum(across for across, tall in letters if tall > _TALL * core) > _LETTER * width

    def beside(self) -> list[bool]:
        """Which rows stand wholly beside the column."""
        inside = _INSIDE * self.distance
        lefts, rights = np.array([row[0] for row in self.begins]), np.array([row[-1] for row in self.ends])
        usual = float(np.median(rights - lefts))
        if self.edge is None:
            is_text = rights - lefts >= 0.5 * usual
        else:
            is_text = (lefts <= self.edge + 0.5 * usual) & (rights >= self.edge + 0.5 * usual)
            is_text |= np.abs(lefts - self.edge) < _EDGE * self.core
        places = np.flatnonzero(is_text)
        found = []
        for left, right, level in zip(lefts, rights, self.levels, strict=True):
            near = places[self._nearest(level, places)]
            begin = self.edge if self.edge is not None else float(np.sort(lefts[near])[len(near) // 3])
            found.append(bool(right <= begin + inside or left >= rights[near].max() - inside))
        return found


def _share(places: Iterable[bool]) -> float:
    return float(np.mean([*places]))


def _after(places: Curve, x: float) -> float:
    """The first of some places, in order, that is not before another one."""
    return float(min(places[places >= x], default=np.inf))
