"""Small pale notes beside a column: found at the second look, as margin; stains and what shines through are not."""

import numpy as np
import pytest
from PIL import Image, ImageDraw, ImageFilter, ImageFont

from fada.data.segment.layout import Block, with_notes
from fada.data.segment.notes import _rows_on
from fada.data.segment.page import PageLines, find_lines
from fada.data.segment.rows import Row

PAPER, INK, PALE = 225, 50, 190
LINES = (
    "quem uoluissent dimisit",
    "habebat autem tunc",
    "uinctum insignem qui",
    "dicebatur barabbas et",
    "congregatis ergo illis",
    "dixit pilatus quem uultis",
    "dimittam uobis barabbam",
    "an iesum qui dicitur",
)


def page_with(*notes: tuple[str, int, int], stain: bool = False, grey: int = PALE) -> PageLines:
    """A column of eight lines, and notes: text, x, y."""
    page = Image.new("L", (1200, 1400), PAPER)
    pen = ImageDraw.Draw(page)
    for number, line in enumerate(LINES):
        pen.text((330, 200 + 120 * number), line, INK, ImageFont.load_default(60))
    for text, x, y in notes:
        pen.text((x, y), text, grey, ImageFont.load_default(18))
    if stain:
        pen.ellipse((100, 500, 260, 540), PAPER - 40)
        page = page.filter(ImageFilter.GaussianBlur(2))
    grain = np.random.default_rng(0).normal(0, 3, (1400, 1200))
    return find_lines(Image.fromarray(np.clip(np.asarray(page) + grain, 0, 255).astype(np.uint8)).convert("RGB"))


@pytest.mark.parametrize("grey", [60, 120, 150, 165, 175, 180, 184, 187, 190, 193, 196])
def test_small_and_pale_notes_are_found_beside_their_line_and_do_not_change_the_text(grey: int) -> None:
    notes = ("mr cc iiii", 130, 350), ("lo clxxx", 130, 380), ("io xxvi", 140, 700)
    plain, found = page_with(), page_with(*notes, grey=grey)
    text = [line for line in found.lines if line.zone == "main"]
    assert len(text) == len(plain.lines) == len(LINES)
    for before, after in zip(plain.lines, text, strict=True):
        assert np.abs(np.subtract(before.baseline[0], after.baseline[0])).max() < 5
    margin = sorted(
        (line for line in found.lines if line.zone == "margin"), key=lambda line: line.baseline[0][1]
    )  # those of the second look are read first
    assert len(margin) == len(notes)
    for line, (_, x, y) in zip(margin, notes, strict=True):
        assert abs(line.baseline[0][0] - x) < 20
        assert y < line.baseline[0][1] < y + 24
        ys = [point[1] for point in line.outline]
        assert max(ys) - min(ys) < 60  # as tall as its own letters, not as those of the text


@pytest.mark.parametrize("size", [24, 36, 48])
def test_at_the_second_look_notes_may_be_as_large_as_the_text(size: int) -> None:
    page = Image.new("L", (480, 160))
    ImageDraw.Draw(page).text((60, 50), "lo clxxx iii", 90, ImageFont.load_default(size))
    (row,) = _rows_on((np.asarray(page) / 255).astype(np.float32), 16.0)
    assert abs(row.left - 60) < 20
    assert 50 < row.middle < 50 + 1.3 * size


def test_a_stain_is_no_note() -> None:
    assert len(page_with(stain=True).lines) == len(LINES)


def row(left: int, right: int, level: float, core: float = 16.0) -> Row:
    """A level row."""
    return Row(left, np.full(right - left, level), np.full(right - left, core), 0.9)


def test_a_note_stands_behind_its_column_and_takes_the_place_of_what_was_found_of_it() -> None:
    columns = [Block(tuple(row(x, x + 300, 100 + 50 * i) for i in range(6))) for x in (200, 640)]
    part = Block((row(560, 600, 150, 6.0),), "margin")
    whole, other = row(555, 625, 152, 6.0), row(100, 180, 250, 6.0)
    found = with_notes([columns[0], part, columns[1]], [whole, other], 50.0)
    assert [block.zone for block in found] == ["main", "margin", "main", "margin"]
    assert found[1].rows == (other,)
    assert found[3].rows == (whole,)


@pytest.mark.parametrize("scale", [0.5, 0.8])
def test_a_row_on_a_smaller_map_is_where_it_was(scale: float) -> None:
    slope = Row(100, 50 + 0.1 * np.arange(80.0), np.full(80, 8.0), 0.9, ((120, 130),))
    small = slope.scaled(scale).moved(7, 3.0)
    x = np.arange(small.left, small.right)
    assert abs(small.width - scale * slope.width) <= 1
    assert np.abs(small.at(x.astype(float)) - 3 - scale * slope.at((x - 7) / scale)).max() < 0.2
    assert small.core == pytest.approx(scale * slope.core)
    assert small.joints == ((int(120 * scale) + 7, int(130 * scale) + 7),)
