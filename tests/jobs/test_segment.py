"""`fada segment`: pages in, ALTO and PAGE out; bad pages told, the others done, nothing overwritten."""

import json
from pathlib import Path

import pytest
from PIL import Image
from typer.testing import CliRunner

from fada import FadaError, read_lines
from fada.cli import app
from fada.data.synthetic.pages import Layout, make_page
from fada.jobs.segment import segment_pages
from tests.data.segment.test_page import drawn_lines


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A page of six lines."""
    file = tmp_path_factory.mktemp("scans") / "folio.png"
    make_page(drawn_lines(6), Layout(1, 6)).image.save(file)
    return file


def run(*arguments: object) -> tuple[int, str]:
    """Exit code and everything printed."""
    result = CliRunner().invoke(app, ["segment", *map(str, arguments)])
    return result.exit_code, result.output


@pytest.mark.parametrize("format", ["alto", "page"])
def test_the_lines_of_a_page_can_be_read_back_with_outline_and_baseline(
    page: Path, tmp_path: Path, format: str
) -> None:
    code, told = run(page, "--out", tmp_path, "--format", format, "--draw")
    assert code == 0, told
    assert told.startswith("6 lines (6 main)")
    lines = list(read_lines(tmp_path, format="xml"))
    assert len(lines) == 6
    tops = [line.image.box[1] for line in lines]  # type: ignore[union-attr]
    assert tops == sorted(tops)
    assert all(line.image.baseline and line.load_image().width > 200 for line in lines)  # type: ignore[union-attr]
    assert Image.open(tmp_path / "folio.lines.png").size == Image.open(page).size
    assert "PP-OCRv6" in (tmp_path / "folio.xml").read_text("utf-8")


def test_a_bad_page_is_told_and_the_others_are_done(page: Path, tmp_path: Path) -> None:
    scans = tmp_path / "scans"
    scans.mkdir()
    (scans / "a_broken.png").write_bytes(page.read_bytes()[:900])
    Image.new("L", (500, 700), 230).save(scans / "b_blank.png")
    (scans / "c_folio.png").write_bytes(page.read_bytes())
    code, told = run(scans, "--out", tmp_path / "out")
    assert code == 1
    assert "a_broken.png: the image is broken or cut off" in told
    assert "b_blank.png: no text found on this page" in told
    assert "6 lines" in told
    assert len(list(read_lines(tmp_path / "out", format="xml"))) == 6


@pytest.mark.parametrize(("lies", "rotate"), [(90, 270), (180, 180), (270, 90)])
def test_a_turned_page_is_turned_back(page: Path, tmp_path: Path, lies: int, rotate: int) -> None:
    scans = tmp_path / "scans"
    scans.mkdir()
    Image.open(page).rotate(-lies, expand=True).save(scans / "folio.png")
    if lies != 180:
        code, told = run(scans, "--out", tmp_path / "out")
        assert code == 1
        assert "folio.png: lies on its side. Turn it with --rotate 90, or 270" in told
    code, told = run(scans, "--out", tmp_path / "out", "--rotate", rotate)
    assert code == 0, told
    lines = list(read_lines(tmp_path / "out", format="xml"))
    assert len(lines) == 6
    assert all(line.load_image().width > 200 for line in lines)
    turned_back = Image.open(tmp_path / "out" / f"folio-{rotate}.png")
    assert turned_back.tobytes() == Image.open(page).convert("L").tobytes()
    assert f"rotated={rotate}" in (tmp_path / "out" / "folio.xml").read_text("utf-8")


def test_pages_are_turned_by_right_angles_only(page: Path, tmp_path: Path) -> None:
    with pytest.raises(FadaError, match="0, 90, 180 or 270 degrees, not by 45"):
        segment_pages([page], tmp_path, rotate=45)


def test_outlines_of_another_tool_become_alto_and_pages_it_does_not_know_are_told(page: Path, tmp_path: Path) -> None:
    boxes = tmp_path / "boxes.json"
    outline = [[100, 100], [400, 100], [400, 160], [100, 160]]
    boxes.write_text(json.dumps({"folio.png": [{"outline": outline, "baseline": [[100, 140], [400, 140]]}]}))
    other = tmp_path / "other.png"
    other.write_bytes(page.read_bytes())
    code, told = run(other, page, "--out", tmp_path / "out", "--segmenter", boxes)
    assert code == 1
    assert "other.png: neither 'other.png' nor 'other' is a page of" in told
    (line,) = read_lines(tmp_path / "out", format="xml")
    assert line.image.box == (100, 100, 401, 161)  # type: ignore[union-attr]
    assert "segmenter=outlines of boxes.json" in (tmp_path / "out" / "folio.xml").read_text("utf-8")


def test_a_book_goes_on_where_it_stopped_page_by_page(page: Path, tmp_path: Path) -> None:
    blank = Image.new("L", (400, 600), 230)
    book = tmp_path / "book.pdf"
    blank.save(book, save_all=True, append_images=[Image.open(page)])
    code, told = run(book, "--out", tmp_path / "out")
    assert code == 1  # the first page is blank; the second is done all the same
    assert "book-0001.png: no text found" in told
    assert [file.name for file in (tmp_path / "out").glob("*.xml")] == ["book-0002.xml"]
    drawn = {file.name: file.stat().st_mtime_ns for file in (tmp_path / "out").iterdir()}
    code, told = run(book, "--out", tmp_path / "out")
    assert "book-0002.xml: there already, left as it is" in told
    assert {file.name: file.stat().st_mtime_ns for file in (tmp_path / "out").iterdir()} == drawn


def test_what_is_there_is_left_as_it_is(page: Path, tmp_path: Path) -> None:
    assert run(page, "--out", tmp_path)[0] == 0
    corrected = (tmp_path / "folio.xml").read_text("utf-8").replace("line_1", "mine")
    (tmp_path / "folio.xml").write_text(corrected, "utf-8")
    code, told = run(page, "--out", tmp_path)
    assert code == 0
    assert "there already, left as it is" in told
    assert (tmp_path / "folio.xml").read_text("utf-8") == corrected


def test_a_photographed_page_is_transcribed_line_by_line_and_becomes_alto(page: Path, tmp_path: Path) -> None:
    result = CliRunner().invoke(app, ["transcribe", str(page)])
    assert result.exit_code == 0, result.output
    assert len(result.stdout.splitlines()) == 6
    result = CliRunner().invoke(app, ["transcribe", str(page), "--out", str(tmp_path / "out")])
    assert result.exit_code == 0, result.output
    written = (tmp_path / "out" / "folio.xml").read_text("utf-8")
    assert written.count("<TextLine") == 6
    assert 'LABEL="MainZone"' in written
    read = [line.text for line in read_lines(tmp_path / "out", images=page.parent)]
    assert read == CliRunner().invoke(app, ["transcribe", str(page)]).stdout.splitlines()
