"""`fada segment`: pages in, ALTO and PAGE out; bad pages told, the others done, nothing overwritten."""

import errno
import json
import os
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image, ImageDraw
from typer.testing import CliRunner

from fada import FadaError, read_lines
from fada.cli import app
from fada.data.line import Line
from fada.data.segment.page import find_lines
from fada.data.segment.upright import Look, find_upright
from fada.data.synthetic.pages import Layout, make_page
from fada.jobs.journal import Row
from fada.jobs.reader import Reader
from fada.jobs.segment import segment_pages
from tests.support.disks import files_up_to
from tests.support.drawn import drawn_lines
from tests.support.telephones import heic


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


def test_a_full_disk_is_told_by_what_was_written_and_the_page_is_done_again(
    page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "link", _other_disk)
    with files_up_to(20_000), pytest.raises(OSError, match=rf"No space left on device: '{tmp_path}/out/folio.png'"):
        segment_pages([page], tmp_path / "out", draw=True)
    assert list((tmp_path / "out").iterdir()) == []
    assert len(segment_pages([page], tmp_path / "out", draw=True).files) == 2
    assert (tmp_path / "out" / "folio.png").read_bytes() == page.read_bytes()


def _other_disk(*_: object) -> None:
    raise OSError(errno.EXDEV, os.strerror(errno.EXDEV))


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
@pytest.mark.parametrize("asked", [True, False], ids=["asked", "found out"])
def test_a_turned_page_is_turned_back(page: Path, tmp_path: Path, lies: int, rotate: int, asked: bool) -> None:
    scans = tmp_path / "scans"
    scans.mkdir()
    Image.open(page).rotate(-lies, expand=True).save(scans / "folio.png")
    code, told = run(scans, "--out", tmp_path / "out", *(["--rotate", rotate] if asked else []))
    assert code == 0, told
    if not asked:
        how = "stood on its head" if lies == 180 else "lay on its side"
        assert f"folio.png: {how}, turned by {rotate} degrees" in told
    lines = list(read_lines(tmp_path / "out", format="xml"))
    assert len(lines) == 6
    assert all(line.load_image().width > 200 for line in lines)
    turned_back = Image.open(tmp_path / "out" / f"folio-{rotate}.png")
    assert turned_back.tobytes() == Image.open(page).convert("L").tobytes()
    assert f"rotated={rotate}" in (tmp_path / "out" / "folio.xml").read_text("utf-8")


def test_a_page_on_its_side_whose_head_cannot_be_told_is_left_out_with_a_sentence(page: Path) -> None:
    lying = Image.open(page).convert("L").rotate(90, expand=True)
    with pytest.raises(FadaError, match=r"folio: lies on its side. Turn it with --rotate 90, or 270"):
        find_upright(lying, find_lines, lambda image, found: Look(None), "folio")
    as_it_stands = find_upright(Image.open(page).convert("L"), find_lines, lambda image, found: Look(None), "folio")
    assert as_it_stands.turn == 0
    assert len(as_it_stands.found.lines) == 6


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


# --- pages that are transcribed without being segmented first --------------------------------------------------------


def transcribed(*arguments: object) -> tuple[int, str, str]:
    """Exit code, text and notes."""
    result = CliRunner().invoke(app, ["transcribe", *map(str, arguments)])
    return result.exit_code, result.stdout, result.stderr


def test_a_book_is_transcribed_page_by_page_and_goes_on_where_it_stopped(
    page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = make_page(drawn_lines(6)[3:], Layout(1, 3)).image
    book, out = tmp_path / "book.pdf", tmp_path / "out"
    Image.open(page).save(book, save_all=True, append_images=[Image.new("L", (400, 600), 230), other.rotate(180)])

    reading, read = Reader.rows, list[int]()

    def cut_short(reader: Reader, batch: Sequence[Line]) -> list[Row]:
        read.append(len(batch))
        if len(read) == 2:
            raise KeyboardInterrupt
        return reading(reader, batch)

    with monkeypatch.context() as patched:
        patched.setattr(Reader, "rows", cut_short)
        assert transcribed(book, "--out", out)[0] != 0
    kept = tmp_path / ".out.pages"
    drawn = {file: file.stat().st_mtime_ns for file in kept.rglob("*") if file.is_file()}
    assert len([file for file in drawn if file.suffix == ".png"]) == 4  # three pages, and the last one turned
    code, told, notes = transcribed(book, "--out", out)
    assert code == 0, notes
    assert "6 lines were already done" in notes
    assert "book.pdf, page 2: no text found on this page" in notes
    assert "book.pdf, page 3: stood on its head, turned by 180 degrees" in notes
    assert "9 lines transcribed" in told
    assert not kept.exists()
    assert sorted(file.name for file in out.iterdir()) == [
        *("book-0001.png", "book-0001.xml", "book-0003.png", "book-0003.xml", "provenance.json")
    ]
    lines = list(read_lines(out, format="xml"))
    assert [line.id.rpartition("#")[0] for line in lines] == ["book-0001"] * 6 + ["book-0003"] * 3
    assert all(line.load_image().width > 200 for line in lines)
    whole = transcribed(book, "--out", tmp_path / "again.txt")
    assert whole[0] == 0
    assert (tmp_path / "again.txt").read_text("utf-8").splitlines() == [line.text for line in lines]
    assert not list(tmp_path.glob(".again*"))


def test_every_page_of_a_tiff_is_transcribed_and_a_bad_one_is_told(page: Path, tmp_path: Path) -> None:
    many = tmp_path / "many.tif"
    first = Image.open(page).convert("L")
    first.save(many, save_all=True, append_images=[Image.new("L", (400, 700), 230), first.rotate(180)])
    code, text, notes = transcribed(many)
    assert code == 0, notes
    lines = text.splitlines()
    assert len(lines) == 12
    assert lines[:6] == lines[6:]
    assert "many.tif, page 2: no text found" in notes
    assert "many.tif, page 3: stood on its head" in notes


@pytest.mark.parametrize(
    ("name", "mode"),
    [
        *(("a.jpg", "CMYK"), ("a.jp2", "L"), ("a.webp", "RGB"), ("a.png", "I;16")),
        *(("a.tif", "1"), ("a.jpg", "exif"), ("a.HEIC", "RGB")),
    ],
)
def test_pages_in_every_way_that_people_store_them(page: Path, tmp_path: Path, name: str, mode: str) -> None:
    image = Image.open(page).convert("L")
    options: dict[str, Any] = {}
    if mode == "I;16":
        image = Image.fromarray(np.asarray(image).astype(np.uint16) * 256)
    elif mode == "exif":
        exif = Image.Exif()
        exif[0x0112] = 6  # to be turned by 90 degrees
        image, options = image.rotate(90, expand=True), {"exif": exif}
    else:
        image = image.convert(mode)
    if name.endswith("HEIC"):
        (tmp_path / name).write_bytes(heic(image))
    else:
        image.save(tmp_path / name, **options)
    code, told = run(tmp_path / name, "--out", tmp_path / "out")
    assert code == 0, told
    assert told.startswith("6 lines (6 main)")
    assert len(list(read_lines(tmp_path / "out", format="xml"))) == 6


def test_pages_without_text_and_too_large_ones_get_a_sentence_and_the_others_go_on(page: Path, tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    scans = tmp_path / "scans"
    scans.mkdir()
    blobs = Image.fromarray(rng.integers(0, 255, (9, 7), np.uint8)).resize((700, 900), Image.Resampling.BICUBIC)
    blobs.save(scans / "a_cat.jpg")
    Image.new("L", (800, 1000), 235).save(scans / "b_blank.png")
    Image.new("1", (20_000, 20_000)).save(scans / "c_huge.png")
    (scans / "d_folio.png").write_bytes(page.read_bytes())
    (scans / "e_broken.pdf").write_bytes(b"%PDF-1.4 broken")
    staves = Image.new("L", (800, 1000), 235)
    for top in range(100, 900, 160):
        for line in range(4):
            ImageDraw.Draw(staves).line((60, top + 20 * line, 740, top + 20 * line), fill=60, width=2)
        for x in range(90, 720, 45):
            y = top + 10 * int(rng.integers(0, 6))
            ImageDraw.Draw(staves).rectangle((x, y, x + 14, y + 14), fill=30)
    staves.save(scans / "f_music.png")
    for command in (["segment"], ["transcribe"]):
        result = CliRunner().invoke(app, [*command, str(scans), "--out", str(tmp_path / command[0])])
        told = result.output
        assert re.search(r"a_cat.jpg(, b_blank.png)?: no text found on this page", told)
        assert "b_blank.png: no text found on this page" in told
        assert re.search("c_huge.png: .*too large", told)
        assert "e_broken.pdf: not a PDF that can be opened" in told
        assert "f_music.png: hardly any letters can be read in what was found. Is it music" in told
        assert (tmp_path / command[0] / "d_folio.xml").is_file()
    assert re.search(r"nothing was read in \d+ lines: .*f_music#line_", told)
