"""Reading order, margins, numbers, strips of the neighbouring page."""

import numpy as np

from fada.data.segment.layout import Block, arrange
from fada.data.segment.rows import Row, _join

DISTANCE = 25.0


def row(left: int, right: int, level: float, slope: float = 0.0) -> Row:
    """A row of eight pixels' height."""
    width = right - left
    return Row(left, level + slope * np.arange(left, right, dtype=np.float64), np.full(width, 8.0), 0.9)


def column(left: int, right: int, count: int = 8, top: float = 100.0) -> list[Row]:
    """A column of rows."""
    return [row(left, right, top + DISTANCE * i) for i in range(count)]


def arranged(rows: list[Row], *, right_to_left: bool = False) -> tuple[list[Block], int]:
    """The rows on a page with ink where they are, but for the gaps where pieces were joined and where they are thin."""
    ink = np.zeros((1500, 1000), np.float32)
    for part in (part for r in rows for part in r.parted(r.joints)):
        for x in range(part.left, part.right):
            level, half = part.centres[x - part.left], part.heights[x - part.left] / 2
            ink[int(level - half) : int(level + half) + 1, x] = 0.6 if half > 1 else 0.0
    return arrange(rows, 1000, DISTANCE, ink, right_to_left=right_to_left)


def order_of(rows: list[Row], *expected: Row, right_to_left: bool = False) -> bool:
    """Whether the rows are read in this order."""
    shuffled = [rows[i] for i in np.random.default_rng(0).permutation(len(rows))]
    blocks, _ = arranged(shuffled, right_to_left=right_to_left)
    return [id(r) for block in blocks for r in block.rows] == [id(r) for r in expected]


def test_columns_are_read_one_after_the_other_and_right_to_left_if_asked() -> None:
    left, right = column(100, 400), column(430, 730)
    assert order_of([*left, *right], *left, *right)
    assert order_of([*left, *right], *right, *left, right_to_left=True)


def test_a_heading_over_two_columns_is_read_where_it_stands() -> None:
    upper = [column(100, 400, 8, 100), column(430, 730, 8, 100)]
    heading = row(150, 680, 330.0)
    lower = [column(100, 400, 12, 380), column(430, 730, 12, 380)]
    rows = [*upper[0], *upper[1], heading, *lower[0], *lower[1]]
    assert order_of(rows, *rows)


def test_columns_of_a_page_that_hangs_askew_are_still_columns() -> None:
    slope = 0.08
    levels = [100 + DISTANCE * i for i in range(20)]
    turned = [[row(int(x - slope * y), int(x + 250 - slope * y), y, slope) for y in levels] for x in (200, 480)]
    assert order_of([*turned[0], *turned[1]], *turned[0], *turned[1])


def test_small_notes_beside_the_text_are_margin_and_a_short_row_above_is_a_number() -> None:
    text = column(200, 700, 14)
    note, number = row(760, 830, 205.0), row(420, 450, 40.0)
    blocks, _ = arranged([*text, note, number])
    zones = {id(r): block.zone for block in blocks for r in block.rows}
    assert zones[id(note)] == "margin"
    assert zones[id(number)] == "numbering"
    assert {zones[id(r)] for r in text} == {"main"}


def test_the_strip_of_a_neighbouring_page_is_left_out_and_counted() -> None:
    text = column(100, 700, 14)
    strip = column(900, 1000, 14)
    blocks, lost = arranged([*text, *strip])
    assert [r for block in blocks for r in block.rows] == text
    assert lost == 14


def test_nothing_is_nothing() -> None:
    assert arranged([]) == ([], 0)


def joined(*rows: Row) -> Row:
    """Pieces put together."""
    found = rows[0]
    for other in rows[1:]:
        found = _join(found, other)
    return found


def test_a_row_joined_across_a_gutter_by_a_number_in_it_is_taken_apart() -> None:
    left, right = column(100, 400, 30), column(440, 740, 30)
    number = row(410, 432, left[7].middle)
    rows = [*left[:7], *left[8:], *right[:7], *right[8:], joined(left[7], number, right[7])]
    blocks, _ = arranged(rows)
    found = [(r.left, r.right) for block in blocks for r in block.rows]
    assert found == [(100, 400)] * 30 + [(440, 740)] * 30 + [(410, 432)]
    assert blocks[-1].zone == "margin"
    blocks, _ = arranged(rows, right_to_left=True)
    found = [(r.left, r.right) for block in blocks for r in block.rows]
    assert found[:30] == [(440, 740)] * 30
    assert sorted(found[30:]) == [(100, 400)] * 30 + [(410, 432)]


def test_a_mark_in_the_margin_is_no_beginning_of_its_row_and_an_initial_is_one() -> None:
    text = column(200, 700, 14)
    marked = joined(row(120, 160, text[4].middle), text[4])
    initial = joined(row(170, 195, text[8].middle), text[8])
    rows = [*text[:4], marked, *text[5:8], initial, *text[9:]]
    blocks, _ = arranged(rows)
    assert [(block.zone, len(block.rows)) for block in blocks] == [("main", 14), ("margin", 1)]
    assert blocks[0].rows[4].left == 200
    assert blocks[0].rows[8] is initial


def test_a_row_that_begins_in_the_gutter_belongs_to_the_column_after_it() -> None:
    left, right = column(100, 400, 30), column(440, 740, 30)
    right[9] = row(405, 740, right[9].middle)
    assert order_of([*left, *right], *left, *right)


def zones(rows: list[Row]) -> dict[int, str]:
    """The zone of each row, by its identity."""
    return {id(r): block.zone for block in arranged(rows)[0] for r in block.rows}


def test_notes_beside_a_column_that_hangs_askew_are_margin() -> None:
    """Its beginning moves as far as the gap between note and text is wide: no gutter runs down the page."""
    text = [row(200 + 4 * i, 700, 100 + DISTANCE * i) for i in range(20)]
    notes = [row(130, 190, text[2].middle), row(150, 210, text[12].middle), row(150, 205, text[13].middle)]
    found = zones([*text, *notes])
    assert {found[id(r)] for r in notes} == {"margin"}
    assert {found[id(r)] for r in text} == {"main"}


def test_a_catchword_and_a_note_in_small_letters_below_the_column_are_margin() -> None:
    text = column(200, 700, 14)
    catchword = row(600, 660, text[-1].middle + DISTANCE)
    small = Row(200, np.full(400, text[-1].middle + DISTANCE), np.full(400, 0.5 * text[0].core), 0.9)
    last = row(200, 260, text[-1].middle + DISTANCE)
    for below, zone in ((catchword, "margin"), (small, "margin"), (last, "main")):
        found = zones([*text, below])
        assert found[id(below)] == zone
        assert {found[id(r)] for r in text} == {"main"}


def test_a_number_above_and_beside_the_first_row_is_one() -> None:
    text = column(200, 700, 14)
    first = row(200, 500, text[0].middle - DISTANCE)
    number = row(640, 690, first.middle - 0.8 * DISTANCE)
    assert zones([number, first, *text])[id(number)] == "numbering"


def test_a_mark_that_touches_its_row_or_stands_higher_is_parted_and_an_initial_is_not() -> None:
    text = column(200, 700, 14)
    level = text[1].middle
    heights = np.full(560, 8.0)
    heights[50:54] = 2.0
    touching = Row(140, np.full(560, level), heights, 0.9)
    higher = joined(row(170, 190, text[8].middle - 6), text[8])
    initial = joined(row(165, 192, text[11].middle), text[11])
    rows = [text[0], touching, *text[2:8], higher, *text[9:11], initial, *text[12:]]
    blocks, _ = arranged(rows)
    assert [(block.zone, len(block.rows)) for block in blocks] == [("main", 14), ("margin", 1), ("margin", 1)]
    assert [r.left for r in blocks[0].rows] == [200, 194, *[200] * 6, 200, 200, 200, 165, 200, 200]
    assert [(r.left, r.right) for block in blocks[1:] for r in block.rows] == [(140, 190), (170, 190)]
