"""Lines on pages whose lines are known: found, in order, outlined; files of many pages."""

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from fada import FadaError, read_lines
from fada.data.segment.drawing import LARGEST, draw_lines
from fada.data.segment.outline import ink_of, outline_of
from fada.data.segment.page import find_lines
from fada.data.segment.photographs import find_files, photographs
from fada.data.segment.rows import Row
from fada.data.synthetic.pages import LAYOUTS, Layout, make_page, write_pages
from tests.support.drawn import drawn_lines


@pytest.mark.parametrize(
    "layout",
    [Layout(1, 8), Layout(2, 8, notes=2), Layout(1, 8, slope=3.0, curvature=0.3), Layout(2, 7, bleed=0.12)],
    ids=["column", "columns-notes", "askew", "bleed"],
)
def test_every_line_of_a_known_page_is_found_in_its_order(layout: Layout) -> None:
    page = make_page(drawn_lines(layout.lines), layout, back=drawn_lines(layout.lines))
    found = find_lines(page.image)
    assert len(found.lines) == layout.lines
    assert sum(line.zone == "margin" for line in found.lines) == layout.notes
    for known, line in zip(page.lines, found.lines, strict=True):
        x, y = np.array(known.image.baseline).T  # type: ignore[union-attr]
        near = np.array(line.baseline)
        assert np.abs(np.interp(near[:, 0], x, y) - near[:, 1]).max() < 20  # a third of the line's height
    assert "rapidocr" in found.segmenter
    assert max(draw_lines(page.image, found.crops(Path("page.png"))).size) == min(max(page.image.size), LARGEST)


def test_written_pages_are_alto_with_every_line_where_it_is(tmp_path: Path) -> None:
    lines = drawn_lines(20)  # too few: they are begun again
    write_pages(lines, tmp_path, 3, seed=5)
    assert sorted(file.suffix for file in tmp_path.iterdir()) == [".png"] * 3 + [".xml"] * 3
    texts = {line.text for line in lines}
    for number, layout in enumerate(LAYOUTS[:3], 1):
        read = list(read_lines(tmp_path / f"page-{number:04d}.xml"))
        assert len(read) == layout.lines
        assert all(line.text in texts for line in read[: layout.lines - layout.notes])
        for line in read:
            inside = np.asarray(line.load_image())
            assert inside.min() < 100  # there is ink
    written = (tmp_path / "page-0002.xml").read_text("utf-8")
    assert 'LABEL="MarginTextZone"' in written
    before = (tmp_path / "page-0003.png").read_bytes()
    write_pages(lines, tmp_path, 3, seed=5)
    assert (tmp_path / "page-0003.png").read_bytes() == before
    with pytest.raises(FadaError, match="no lines to lay out"):
        write_pages([], tmp_path, 1)


def test_a_blank_page_has_no_lines() -> None:
    assert find_lines(Image.new("L", (600, 800), 230)).lines == ()


def test_an_outline_goes_round_the_ascender_of_its_own_line_and_the_descender_of_the_other() -> None:
    page = np.full((100, 120), 230, np.uint8)
    page[25:33, 10:110] = page[65:73, 10:110] = 60  # two rows
    page[33:52, 30:33] = 60  # a descender of the upper one
    page[46:65, 80:83] = 60  # an ascender of the lower one
    rows = [Row(10, np.full(100, y), np.full(100, 16.0), 0.9) for y in (28.5, 68.5)]
    outline = outline_of(rows[1], rows, ink_of(page, 16), 16)
    top = outline[: int(np.argmax(outline[:, 0])) + 1]
    assert np.interp(81, *top.T) < 47
    assert np.interp(31, *top.T) > 51


def test_pages_of_a_tiff_and_a_pdf_become_files(tmp_path: Path) -> None:
    pages = [Image.new("L", (300, 400), grey) for grey in (200, 220, 240)]
    pages[0].save(tmp_path / "many.tif", save_all=True, append_images=pages[1:])
    pages[0].save(tmp_path / "book.pdf", save_all=True, append_images=pages[1:2])
    pages[0].save(tmp_path / "one.png")
    assert [file.name for file in find_files(tmp_path)] == ["book.pdf", "many.tif", "one.png"]
    out = tmp_path / "out"
    out.mkdir()
    found = [page for file in find_files(tmp_path) for page in photographs(file, out)]
    assert [page.name for page in found] == ["book-0001", "book-0002", "many-0001", "many-0002", "many-0003", "one"]
    greys = [int(np.median(np.asarray(page.load()))) for page in found]
    assert greys[2:] == [200, 220, 240, 200]
    assert abs(greys[0] - 200) < 3
    assert found[-1].file == tmp_path / "one.png"


def test_a_broken_pdf_and_an_empty_folder_get_a_sentence(tmp_path: Path) -> None:
    (tmp_path / "broken.pdf").write_bytes(b"%PDF-1.4 broken")
    with pytest.raises(FadaError, match="not a PDF that can be opened"):
        list(photographs(tmp_path / "broken.pdf", tmp_path))
    (tmp_path / "empty").mkdir()
    with pytest.raises(FadaError, match="no page images here"):
        find_files(tmp_path / "empty")
