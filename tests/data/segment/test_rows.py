"""Rows from a map of probabilities: pieces joined, touching lines parted, gutters kept."""

import numpy as np

from fada.data.segment.rows import find_rows


def drawn(*bars: tuple[int, int, int, int], shape: tuple[int, int] = (200, 400)) -> np.ndarray:
    """A map with bars of text: left, right, top, bottom."""
    text = np.zeros(shape, np.float32)
    for left, right, top, bottom in bars:
        text[top:bottom, left:right] = 0.9
    return text


def test_every_bar_is_a_row_with_its_centre_and_the_distance_is_theirs() -> None:
    rows, height, distance = find_rows(drawn(*[(50, 350, 20 + 25 * i, 28 + 25 * i) for i in range(6)]))
    assert len(rows) == 6
    assert (height, distance) == (8, 25)
    assert sorted(row.middle for row in rows) == [23.5 + 25 * i for i in range(6)]


def test_a_line_broken_by_word_spaces_is_one_row() -> None:
    bars = [(50, 350, 20 + 25 * i, 28 + 25 * i) for i in range(5)]
    rows, _, _ = find_rows(drawn(*bars, (50, 150, 145, 153), (165, 260, 145, 153), (275, 350, 145, 153)))
    assert len(rows) == 6
    assert max(rows, key=lambda row: row.middle).width == 300


def test_columns_are_not_joined_across_their_gutter() -> None:
    left = [(30, 180, 20 + 25 * i, 28 + 25 * i) for i in range(6)]
    right = [(205, 370, 20 + 25 * i, 28 + 25 * i) for i in range(6)]
    rows, _, _ = find_rows(drawn(*left, *right))
    assert len(rows) == 12


def test_two_lines_that_touch_in_a_few_places_are_parted() -> None:
    text = drawn(*[(50, 350, 20 + 25 * i, 28 + 25 * i) for i in range(4)])
    text[28:45, 100:110] = 0.4  # a long descender
    text[28:45, 200:235] = 0.4
    rows, _, _ = find_rows(text)
    assert len(rows) == 4


def test_a_blank_map_has_no_rows() -> None:
    assert find_rows(np.zeros((64, 64), np.float32)) == ([], 0.0, 0.0)


def test_more_pieces_than_are_put_together_are_no_rows() -> None:
    text = drawn(*[(x, x + 12, 20 + 25 * i, 28 + 25 * i) for i in range(6) for x in range(50, 350, 60)])
    assert find_rows(text, most=29) == ([], 8.0, 0.0)
    assert len(find_rows(text, most=30)[0]) > 0
