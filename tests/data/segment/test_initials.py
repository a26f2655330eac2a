"""Letters before a row that the detector did not find."""

import numpy as np
import pytest

from fada.data.segment.initials import with_initials
from fada.data.segment.layout import Block
from fada.data.segment.rows import Row

HEIGHT = 10.0


def row(left: int, right: int, level: float) -> Row:
    """The core of a level line."""
    width = right - left
    return Row(left, np.full(width, level), np.full(width, HEIGHT), 0.9)


def begins(*letters: tuple[int, int, int, int], rows: tuple[Row, ...] = ()) -> int:
    """Where the first of a few rows begins, with letters (left, top, right, bottom) on the page."""
    ink = np.zeros((300, 400), np.float32)
    column = tuple(row(100, 380, 60.0 + 40 * place) for place in range(5))
    for core in column:
        ink[int(core.middle) - 5 : int(core.middle) + 5, core.left : core.right] = 0.8
    for left, top, right, bottom in letters:
        ink[top:bottom, left:right] = 0.8
    blocks = with_initials([Block(column), *(Block((other,), "margin") for other in rows)], ink, HEIGHT)
    assert [one.left for one in blocks[0].rows[1:]] == [100] * 4
    first = blocks[0].rows[0]
    assert len(first.centres) == len(first.heights) == first.right - first.left
    assert first.right == 380
    return first.left


def test_a_letter_just_before_a_row_is_its_beginning_and_so_is_the_one_before_that() -> None:
    assert begins((82, 45, 95, 68)) == 82
    assert begins((88, 52, 96, 66), (77, 52, 84, 66)) == 77


@pytest.mark.parametrize(
    "letter",
    [(60, 50, 80, 68), (40, 55, 96, 65), (82, 50, 95, 110), (92, 58, 94, 60), (82, 10, 95, 62)],
    ids=["far", "long", "initial-of-two-lines", "speck", "of-the-row-above"],
)
def test_what_is_no_letter_of_the_row_is_left(letter: tuple[int, int, int, int]) -> None:
    assert begins(letter) == 100


def test_a_note_beside_the_row_is_left() -> None:
    assert begins((82, 52, 95, 68), rows=(row(60, 96, 60.0),)) == 100
