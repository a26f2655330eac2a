"""The order of rows on a page: columns by their gutters, pages of an opening one after the other, margins told apart.

The page is cut at its widest gutter, the two sides likewise, and so on (a recursive XY cut); a row that spans a gutter,
such as a heading over two columns, is read where it stands. A row that was put together across a gutter, because a
number stands in it, is taken apart again.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from fada.data.segment.marks import Ink, widest_gap, without_marks
from fada.data.segment.rows import Row

Zone = Literal["main", "margin", "numbering"]

_CROSSING = 0.06
"""Share of the rows that may cross a gutter."""
_GUTTER = 0.4
"""Width of the narrowest gutter, in distances of rows."""
_IN_GUTTER = 0.6
"""How far beyond a gutter a row that was joined across it may be taken apart, in distances of rows."""
_INSIDE = 0.3
"""What reaches no further into its column than this, in distances of rows, stands beside it."""
_ABOVE = 0.4
"""What stands so far above all columns, in distances of rows, may be a number; else it is beside the first row."""
_NEAR = 7
"""So many rows tell where their column begins."""
_SMALL = 0.65
"""Rows at the foot of a column with a core below this share of the usual one are a note."""
_SPARSE = 1.4
"""The mean distance of rows of several notes, in usual ones."""
_EDGE = 0.012
"""How near the edge of the image a row is cut off, as a share of its width."""


@dataclass(frozen=True)
class Block:
    """Rows that belong together, from top to bottom: a column, a note in the margin, a page number."""

    rows: tuple[Row, ...]
    zone: Zone = "main"

    @property
    def left(self) -> float:
        """Where its rows usually begin."""
        return float(np.median([row.left for row in self.rows]))

    @property
    def right(self) -> float:
        """Where its rows usually end."""
        return float(np.median([row.right for row in self.rows]))

    @property
    def edges(self) -> tuple[float, float]:
        """Where nearly all of its rows have begun and not yet ended."""
        left, right = [row.left for row in self.rows], [row.right for row in self.rows]
        return float(np.percentile(left, 20)), float(np.percentile(right, 80))

    @property
    def span(self) -> float:
        """How wide it is, however short some of its rows are."""
        left, right = self.edges
        return right - left

    @property
    def length(self) -> int:
        """Columns of text in all rows."""
        return sum(row.width for row in self.rows)

    @property
    def width(self) -> float:
        """Of the usual row."""
        return float(np.median([row.width for row in self.rows]))


@dataclass(frozen=True)
class _Placed:
    """A row on the page turned upright."""

    row: Row
    left: float
    right: float
    level: float


def arrange(
    rows: Sequence[Row],
    page_width: int,
    distance: float,
    ink: Ink,
    *,
    right_to_left: bool = False,
) -> tuple[list[Block], int]:
    """Blocks in reading order, and how many rows were left out because the edge of the image cuts them off.

    Args:
        rows: of the page, in any order.
        page_width: columns of the map.
        distance: the usual distance of rows.
        right_to_left: columns and pages are read from the right.
        ink: of the page at the size of the map: it shows the gap between a row and a note that touches it on the map.
    """
    parts = _cut(_upright(rows), distance, ink, right_to_left)
    blocks = [Block(tuple(placed.row for placed in part)) for part in parts]
    whole = [block for block in blocks if not _is_cut_off(block, page_width)]
    lost = sum(len(block.rows) for block in blocks) - sum(len(block.rows) for block in whole)
    return _zoned(whole, distance, ink), lost


def _upright(rows: Sequence[Row]) -> list[_Placed]:
    """Rows on the page turned by the slope of most of its text; its columns lean as much as its rows fall."""
    if not rows:
        return []
    falls = [(row.centres[-1] - row.centres[0]) / row.width for row in rows]
    slope = float(np.average(falls, weights=[row.width**2 for row in rows]))
    return [
        _Placed(
            row,
            row.left + slope * row.middle,
            row.right + slope * row.middle,
            row.middle - slope * (row.left + row.right) / 2,
        )
        for row in rows
    ]


def _cut(rows: Sequence[_Placed], distance: float, ink: Ink, right_to_left: bool) -> list[list[_Placed]]:
    """Parts of the page in reading order."""
    strip = _widest_gutter(rows, distance)
    if strip is None:
        return [_from_the_top(rows, distance)] if rows else []
    rows = [part for row in rows for part in _taken_apart(row, strip, distance, ink, right_to_left)]
    gutter = sum(strip) / 2
    spanning = sorted((row for row in rows if row.left < gutter < row.right), key=lambda row: row.level)
    beside = [row for row in rows if not row.left < gutter < row.right]
    parts: list[list[_Placed]] = []
    above = -np.inf
    for span in [*spanning, None]:
        below = np.inf if span is None else span.level
        between = [row for row in beside if above <= row.level < below]
        sides = [row for row in between if row.right <= gutter], [row for row in between if row.left >= gutter]
        for side in reversed(sides) if right_to_left else sides:
            parts += _cut(side, distance, ink, right_to_left)
        if span is not None:
            parts.append([span])
        above = below
    return parts


def _taken_apart(
    row: _Placed, strip: tuple[float, float], distance: float, ink: Ink, right_to_left: bool
) -> list[_Placed]:
    """The pieces of a row that was joined across a gutter; what begins in the gutter belongs to the column after it."""
    gutter, reach = sum(strip) / 2, _IN_GUTTER * distance
    if not row.left < gutter < row.right:
        return [row]
    shift = row.left - row.row.left
    gap = widest_gap(row.row, ink)
    joints = row.row.joints if gap is None else [gap]
    inside = [j for j in joints if strip[0] - reach <= sum(j) / 2 + shift <= strip[1] + reach]
    parts: list[_Placed] = []
    for part in row.row.parted(inside):
        left, right = part.left + shift, part.right + shift
        begins, ends = strip[0] - reach <= left, right <= strip[1] + reach
        if left < gutter < right and begins and not (ends and right_to_left):
            left = gutter
        elif left < gutter < right and ends:
            right = gutter
        parts.append(_Placed(part, left, right, row.level))
    return parts


def _widest_gutter(rows: Sequence[_Placed], distance: float) -> tuple[float, float] | None:
    """Edges of the widest strip that (nearly) no row crosses; None where there is one column."""
    if len(rows) < 2:
        return None
    start = min(row.left for row in rows)
    crossed = np.zeros(int(max(row.right for row in rows) - start) + 2)
    for row in rows:
        crossed[int(row.left - start)] += 1
        crossed[int(row.right - start)] -= 1
    crossed = np.cumsum(crossed)[:-2]
    free = np.concatenate([[False], crossed <= _CROSSING * crossed.max(), [False]])
    begins, ends = np.flatnonzero(np.diff(free.astype(int))).reshape(-1, 2).T
    inside = (begins > 0) & (ends < len(crossed)) & (ends - begins >= _GUTTER * distance)
    if not inside.any():
        return None
    widest = int(np.argmax((ends - begins) * inside))
    return start + float(begins[widest]), start + float(ends[widest])


def _from_the_top(rows: Sequence[_Placed], distance: float) -> list[_Placed]:
    """Top to bottom; rows at the same height from left to right."""
    levels: list[list[_Placed]] = []
    for row in sorted(rows, key=lambda row: row.level):
        if levels and row.level - levels[-1][-1].level < 0.35 * distance:
            levels[-1].append(row)
        else:
            levels.append([row])
    return [row for level in levels for row in sorted(level, key=lambda row: row.left)]


def _is_cut_off(block: Block, page_width: int) -> bool:
    """Whether a block is what the photograph shows of the neighbouring page: a strip that ends at the image's edge."""
    margin = _EDGE * page_width
    at_edge = [row.left <= margin or row.right >= page_width - margin for row in block.rows]
    return float(np.mean(at_edge)) >= 0.6 and block.width < 0.25 * page_width


def _zoned(blocks: list[Block], distance: float, ink: Ink) -> list[Block]:
    """Blocks with their zones: what is small beside the columns is a note in the margin, above them a number."""
    if not blocks:
        return []
    longest = max(block.length for block in blocks)
    widest = max(block.span for block in blocks if block.length >= 0.3 * longest)
    columns = {
        place: without_marks(block.rows, ink, distance)
        for place, block in enumerate(blocks)
        if block.length >= 0.12 * longest
        and block.span >= 0.5 * widest
        and not (block.length < 0.5 * longest and _is_sparse(block))
    }
    main = [Block(tuple(rows)) for rows, _ in columns.values()]
    found: list[Block] = []
    for place, block in enumerate(blocks):
        rows, marks = columns.get(place, ([], []))
        beside = _notes(marks, distance) if rows else [block]
        zoned = [Block(other.rows, _zone_of(other, main, distance)) for other in beside]
        found += [other for other in zoned if rows and other.zone == "numbering"]
        found += _without_ends(Block(tuple(rows)), distance) if rows else []
        found += [other for other in zoned if not rows or other.zone != "numbering"]
    return found


def _is_sparse(block: Block) -> bool:
    """Whether there is much more room between some rows than between most: several notes below each other."""
    steps = np.diff([row.middle for row in block.rows])
    return len(steps) > 0 and float(np.mean(steps)) > _SPARSE * float(np.median(steps))


def _zone_of(block: Block, main: Sequence[Block], distance: float) -> Zone:
    """The zone of a block that is not a column itself."""
    level = block.rows[0].middle
    above = all(level < other.rows[0].middle - _ABOVE * distance for other in main)
    if len(block.rows) == 1 and block.width < 5 * distance and above:
        return "numbering"
    columns = [c for c in main if min(c.right, block.right) - max(c.left, block.left) > 0.5 * block.width]
    is_between_rows = any(column.rows[0].middle < level < column.rows[-1].middle for column in columns)
    return "margin" if is_between_rows or not columns else "main"


def _notes(marks: Sequence[Row], distance: float) -> list[Block]:
    """Notes in the margin: rows below each other are one."""
    found: list[list[Row]] = []
    for mark in sorted(marks, key=lambda row: row.middle):
        for note in found:
            last = note[-1]
            if 0 < mark.middle - last.middle < 1.5 * distance and mark.left < last.right and last.left < mark.right:
                note.append(mark)
                break
        else:
            found.append([mark])
    return [Block(tuple(note)) for note in found]


def with_notes(blocks: Sequence[Block], notes: Sequence[Row], distance: float) -> list[Block]:
    """Blocks and further notes, each behind the column that it stands beside; what was found of one before is gone."""
    found = [kept for block in blocks if (kept := _without_parts(block, notes)).rows]
    for note in reversed(_notes(notes, distance)):
        columns = [place for place, block in enumerate(found) if block.zone == "main"]
        place = min(columns, key=lambda place: _gap(note, found[place]))
        found.insert(place + 1, replace(note, zone="margin"))
    return found


def _gap(note: Block, column: Block) -> float:
    """How far from a column a note stands."""
    (left, right), level = column.edges, note.rows[0].middle
    levels = [row.middle for row in column.rows]
    aside = max(left - note.right, note.left - right, 0.0)
    return aside + max(min(levels) - level, level - max(levels), 0.0)


def _without_parts(block: Block, notes: Sequence[Row]) -> Block:
    """A block without the rows that were found again as parts of longer notes."""
    if block.zone != "margin":
        return block
    return replace(block, rows=tuple(row for row in block.rows if not any(_is_part(row, note) for note in notes)))


def _is_part(row: Row, note: Row) -> bool:
    overlap = min(row.right, note.right) - max(row.left, note.left)
    return overlap > 0.5 * row.width and abs(row.middle - note.middle) < max(row.core, note.core)


def _without_ends(block: Block, distance: float) -> list[Block]:
    """A column and, as blocks of their own, a number above it, and a note in small letters or a catchword below it."""
    first, *rows = block.rows
    number: list[Block] = []
    apart = bool(rows) and (rows[0].middle - first.middle > 1.8 * distance or first.left > rows[0].right)
    if apart and first.width < 4 * distance and first.width < 0.5 * block.width:
        number = [Block((first,), "numbering")]
    else:
        rows = [first, *rows]
    core = float(np.median([row.core for row in rows]))
    end = len(rows)
    while end > 2 and (rows[end - 1].core < _SMALL * core or _is_catchword(rows[end - 1], rows[end - 2], distance)):
        end -= 1
    if end < 0.75 * len(rows):
        end = len(rows)
    below = [Block(tuple(rows[end:]), "margin")] if end < len(rows) else []
    return [*number, Block(tuple(rows[:end])), *below]


def _is_catchword(row: Row, above: Row, distance: float) -> bool:
    """Whether the last row of a column is the word that the next page begins with: short, below the line's end."""
    return row.width < 4 * distance and row.left > (above.left + above.right) / 2
