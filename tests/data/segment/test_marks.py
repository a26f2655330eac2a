"""Notes that were found as a part of their row are parted from it; initials and last words are not."""

from dataclasses import replace

import numpy as np
import pytest

from fada.data.segment.layout import arrange
from fada.data.segment.page import find_lines
from fada.data.segment.rows import Row
from fada.data.synthetic.pages import Layout, make_page
from tests.support.drawn import drawn_lines

DISTANCE, CORE = 25.0, 8


def column(*inked: tuple[tuple[int, int], ...]) -> tuple[list[Row], np.ndarray]:
    """Rows whose ink stands in some spans of columns, and the ink of the page."""
    ink = np.zeros((60 + 25 * len(inked), 1000), np.float32)
    rows = []
    for number, spans in enumerate(inked):
        level = 40 + 25 * number
        for left, right in spans:
            ink[level - CORE // 2 : level + CORE // 2 + 1, left:right] = 0.6
        width = spans[-1][1] - spans[0][0]
        rows.append(Row(spans[0][0], np.full(width, float(level)), np.full(width, float(CORE)), 0.9))
    return rows, ink


PLAIN = ((200, 440), (446, 700))


@pytest.mark.parametrize(
    ("row", "margins"),
    [
        (((200, 440), (446, 700), (730, 800)), [(730, 800)]),  # a note behind its line
        (((100, 170), (190, 440), (446, 700)), [(100, 170)]),  # and one before it
        (((200, 440), (446, 600), (640, 700)), []),  # a last word, set apart
        (((172, 180), (190, 440), (446, 700)), []),  # an initial
    ],
)
def test_a_note_that_touches_its_row_on_the_map_is_parted_by_the_gap_in_the_ink(
    row: tuple[tuple[int, int], ...], margins: list[tuple[int, int]]
) -> None:
    rows, ink = column(*[PLAIN] * 6, row, *[PLAIN] * 6)
    blocks, _ = arrange(rows, 1000, DISTANCE, ink)
    assert sum(len(block.rows) for block in blocks if block.zone == "main") == 13
    assert [(r.left, r.right) for block in blocks if block.zone == "margin" for r in block.rows] == margins


def test_a_note_too_pale_for_ink_is_parted_where_the_pieces_of_its_row_were_joined() -> None:
    rows, ink = column(*[PLAIN] * 13)
    rows[6] = replace(rows[6].widened(100), joints=((150, 196),))
    blocks, _ = arrange(rows, 1000, DISTANCE, ink)
    assert [(r.left, r.right) for block in blocks if block.zone == "margin" for r in block.rows] == [(100, 150)]
    assert sorted(r.left for block in blocks if block.zone == "main" for r in block.rows) == [196] + [200] * 12


def test_without_a_joint_a_pale_beginning_stays_with_its_row() -> None:
    rows, ink = column(*[PLAIN] * 13)
    rows[6] = rows[6].widened(100)
    blocks, _ = arrange(rows, 1000, DISTANCE, ink)
    assert [block.zone for block in blocks] == ["main"]


def test_notes_as_large_as_the_text_just_before_their_lines_are_margin() -> None:
    layout = Layout(1, 9, notes=3, note_side="left")
    found = find_lines(make_page(drawn_lines(layout.lines), layout).image)
    zones = [line.zone for line in found.lines]
    assert zones == ["main"] * 9 + ["margin"] * 3
