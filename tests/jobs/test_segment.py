"""`fada segment`: pages in, ALTO and PAGE out; bad pages told, the others done, nothing overwritten."""

from pathlib import Path

import pytest
from PIL import Image
from typer.testing import CliRunner

from fada import read_lines
from fada.cli import app
from fada.data.synthetic.pages import Layout, make_page
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
