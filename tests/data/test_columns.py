"""Columns of lines: equal lengths, unique ids, chosen, ordered, joined."""

from typing import Any

import pytest

from fada.data.columns import LineColumns
from fada.errors import FadaError

LINES = LineColumns(["a", "b", "c"], ["x", "y", "z"], ["13", None, "14"], {"page": [1, 2, 3]})


def test_lines_are_taken_and_ordered_with_all_their_columns() -> None:
    assert LINES.ordered(["c", "a"]) == LINES.take([2, 0])
    assert LINES.take([2, 0]) == LineColumns(["c", "a"], ["z", "x"], ["14", "13"], {"page": [3, 1]})
    with pytest.raises(FadaError, match=r"1 of 2 lines are not here, such as 'd'"):
        LINES.ordered(["a", "d"])


def test_parts_are_joined_and_a_column_that_one_lacks_is_dropped() -> None:
    other = LineColumns(["d"], None, ["15"], {"page": [4], "hand": [1]})
    joined = LineColumns.concatenate([LINES, other])
    assert joined == LineColumns(["a", "b", "c", "d"], None, ["13", None, "14", "15"], {"page": [1, 2, 3, 4]})
    assert LineColumns.concatenate([]) == LineColumns([])
    with pytest.raises(FadaError, match="'a' stands twice"):
        LineColumns.concatenate([LINES, LINES])


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"references": ["x"]}, "2 lines but 1 references"),
        ({"domains": []}, "2 lines but 0 domains"),
        ({"extra": {"page": [1]}}, "2 lines but 1 page"),
    ],
)
def test_columns_of_different_lengths_are_refused(columns: dict[str, Any], message: str) -> None:
    with pytest.raises(FadaError, match=message):
        LineColumns(["a", "b"], **columns)
