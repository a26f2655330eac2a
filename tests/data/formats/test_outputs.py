"""What is written anew with the place of every word: ALTO, PAGE, hOCR, TEI, searchable PDF."""

import io
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path

import pytest
from lxml import etree
from PIL import Image

from fada.data.crop import PageCrop, area, part_of
from fada.data.formats import pdf
from fada.data.formats.registry import formats, writable
from fada.data.line import Line, LineSet, Provenance, Transcription
from fada.data.source import read_lines
from fada.data.write import convert, write_transcriptions
from fada.errors import FadaError
from tests.support import xml_pages
from tests.support.disks import files_up_to

TEXTS = ["q̃ dixeſſe  ꝑ λόγος", "⁊ \U0001f600 Guillelmus", "\uf1acallatio"]
"""Combining marks, two spaces, letters of the medievalists, Greek, a character beyond the first plane."""
MADE_BY = Provenance(model="crnn", details={"domains": "13"}, created="2025-01-01T00:00:00+00:00")


def results(folder: Path, texts: Sequence[str] = TEXTS) -> list[Transcription]:
    """Three lines of a page, with characters that stand at even distances from a tenth to nine tenths of the line."""
    page = xml_pages.draw_page(folder / "page.png")
    found = []
    for place, text in enumerate(texts):
        left, top, right, bottom = xml_pages.BOXES[place]
        polygon = ((left, top), (right, top), (right, bottom), (left, bottom))
        baseline = ((left, bottom - 10.0), (right, bottom - 10.0))
        crop = PageCrop(page, xml_pages.SIZE, polygon, baseline, region="r1" if place < 2 else "r2")
        edges = [0.1 + 0.8 * i / len(text) for i in range(len(text) + 1)]
        sure = [0.5] * len(text)
        found.append(Transcription.of(Line(f"page#{place + 1}", image=crop), text, edges=edges, char_confidences=sure))
    return found


def crop_of(line: Line | None) -> PageCrop:
    assert line is not None
    assert isinstance(line.image, PageCrop)
    return line.image


def words(text: str) -> list[str]:
    return text.split()


def expected_boxes(place: int, text: str) -> list[tuple[float, float]]:
    """Left and right of every word of a line."""
    left, _, right, _ = xml_pages.BOXES[place]
    starts = [i for i, c in enumerate(text) if c != " " and (i == 0 or text[i - 1] == " ")]
    spans = [(start, start + len(word)) for start, word in zip(starts, words(text), strict=True)]

    def at(place: int) -> float:
        return left + (right - left) * (0.1 + 0.8 * place / len(text))

    return [(at(start), at(end)) for start, end in spans]


def test_alto_has_a_string_with_its_place_for_every_word(tmp_path: Path) -> None:
    (file,) = write_transcriptions(results(tmp_path), tmp_path / "out.alto.xml", provenance=MADE_BY)
    for place, line in enumerate(etree.parse(file).iter("{*}TextLine")):
        strings = line.findall("{*}String")
        assert [one.get("CONTENT") for one in strings] == words(TEXTS[place])
        assert [one.get("WC") for one in strings] == ["0.5000"] * len(strings)
        for string, (left, right) in zip(strings, expected_boxes(place, TEXTS[place]), strict=True):
            assert abs(float(string.get("HPOS")) - left) <= 1
            assert abs(float(string.get("WIDTH")) - (right - left)) <= 1
            assert string.get("VPOS") == str(xml_pages.BOXES[place][1])
    assert [line.text for line in read_lines(file)] == TEXTS


def test_page_has_a_word_with_its_outline_for_every_word(tmp_path: Path) -> None:
    (file,) = write_transcriptions(results(tmp_path), tmp_path / "out.page.xml", provenance=MADE_BY)
    for place, line in enumerate(etree.parse(file).iter("{*}TextLine")):
        order = [etree.QName(child).localname for child in line]
        assert order == ["Coords", "Baseline", *["Word"] * len(words(TEXTS[place])), "TextEquiv"]
        for word, text, ends in zip(
            line.iter("{*}Word"), words(TEXTS[place]), expected_boxes(place, TEXTS[place]), strict=True
        ):
            assert word.findtext("{*}TextEquiv/{*}Unicode") == text
            xs = [float(point.split(",")[0]) for point in word.find("{*}Coords").get("points").split()]
            assert (min(xs), max(xs)) == pytest.approx(ends, abs=1)
    assert [line.text for line in read_lines(file)] == TEXTS


@pytest.mark.parametrize("name", ["alto4", "page2019"])
def test_lines_of_a_copy_that_held_no_text_get_words_and_the_others_keep_theirs(tmp_path: Path, name: str) -> None:
    path = xml_pages.write_example(tmp_path / "in", name)
    lines = list(etree.parse(path).iter("{*}TextLine"))
    had = {one.get("ID") or one.get("id"): next(one.iter("{*}String", "{*}TextEquiv"), None) for one in lines}
    given = [Transcription.of(line, "a bc", edges=[0.0, 0.25, 0.5, 0.75, 1.0]) for line in read_lines(path)]
    (copy, *_) = write_transcriptions(given, tmp_path / "out", "same")
    assert [line.text for line in read_lines(copy, images=tmp_path / "in")] == ["a bc"] * len(given)
    for line in etree.parse(copy).iter("{*}TextLine"):
        outlined = line.get("HPOS") or line.find("{*}Shape") is not None or line.find("{*}Coords") is not None
        if outlined and had[line.get("ID") or line.get("id")] is None:
            assert len(line.findall("{*}String") + line.findall("{*}Word")) == 2


def test_hocr_has_boxes_confidences_and_text_and_is_read_back(tmp_path: Path) -> None:
    given = results(tmp_path)
    (file,) = write_transcriptions(given, tmp_path / "out.hocr", provenance=MADE_BY)
    root = etree.parse(file).getroot()
    first = root.find(".//{*}span[@class='ocrx_word']")
    left, right = expected_boxes(0, TEXTS[0])[0]
    assert first.get("title") == f"bbox {left:.0f} 30 {right:.0f} 70; x_wconf 50"
    assert "crnn" in root.find(".//{*}meta[@name='fada-settings']").get("content")
    again = list(read_lines(file))
    assert [line.text for line in again] == [" ".join(words(text)) for text in TEXTS]
    assert [line.id for line in again] == [one.id for one in given]
    assert [crop_of(line).box for line in again] == [crop_of(one.line).box for one in given]
    assert [crop_of(line).baseline for line in again] == [crop_of(one.line).baseline for one in given]
    assert len({crop_of(line).region for line in again}) == 2


def test_hocr_of_tesseract_is_read(tmp_path: Path) -> None:
    xml_pages.draw_page(tmp_path / "scan.png")
    (tmp_path / "scan.hocr").write_text(
        """<?xml version="1.0" encoding="UTF-8"?>
<!DOCTYPE html PUBLIC "-//W3C//DTD XHTML 1.0 Transitional//EN" "http://www.w3.org/TR/xhtml1/DTD/xhtml1-transitional.dtd">
<html xmlns="http://www.w3.org/1999/xhtml" xml:lang="en" lang="en"><body>
<div class='ocr_page' id='page_1' title='image "scan.png"; bbox 0 0 400 300; ppageno 0; scan_res 70 70'>
 <div class='ocr_carea' id='block_1_1' title="bbox 20 30 380 150"><p class='ocr_par' id='par_1_1'>
  <span class='ocr_line' id='line_1_1' title="bbox 20 30 380 70; baseline 0.01 -8; x_size 30">
   <span class='ocrx_word' id='word_1_1' title='bbox 20 30 90 70; x_wconf 91'>The</span>
   <span class='ocrx_word' id='word_1_2' title='bbox 100 30 380 70; x_wconf 89'><strong>beginning</strong></span>
  </span>
  <span class='ocr_line' id='line_1_2' title="bbox 20 110 380 150">of a page</span></p></div></div>
</body></html>""",
        encoding="utf-8",
    )
    lines = list(read_lines(tmp_path / "scan.hocr"))
    assert [(line.id, line.text) for line in lines] == [
        ("scan#line_1_1", "The beginning"),
        ("scan#line_1_2", "of a page"),
    ]
    assert crop_of(lines[0]).baseline == ((20.0, 62.0), (380.0, pytest.approx(65.6)))
    assert lines[0].load_image().size[1] == 41


def test_tei_links_every_line_break_to_a_zone_of_the_facsimile(tmp_path: Path) -> None:
    (file,) = write_transcriptions(results(tmp_path), tmp_path / "out.tei.xml", provenance=MADE_BY)
    root = etree.parse(file).getroot()
    assert root.tag == "{http://www.tei-c.org/ns/1.0}TEI"
    assert [etree.QName(child).localname for child in root] == ["teiHeader", "facsimile", "text"]
    names = [one.get("{http://www.w3.org/XML/1998/namespace}id") for one in root.iter("{*}surface", "{*}zone")]
    assert len(names) == len(set(names)) == 1 + 2 + 3
    breaks = list(root.iter("{*}lb"))
    assert [one.tail.removesuffix("\n") for one in breaks] == TEXTS
    for one in root.iter("{*}lb", "{*}pb", "{*}ab"):
        assert one.get("facs").removeprefix("#") in names
    assert root.find(".//{*}graphic").get("url") == "page.png"
    application = root.find(".//{*}application")
    assert "domains=13" in application.findtext("{*}p")


def pdf_text(file: Path) -> str:
    pypdfium2 = pytest.importorskip("pypdfium2")
    document = pypdfium2.PdfDocument(file)
    text = "\n".join(page.get_textpage().get_text_range() for page in document)
    document.close()
    return text


def test_pdf_shows_the_page_and_holds_the_text_in_reading_order(tmp_path: Path) -> None:
    pypdfium2 = pytest.importorskip("pypdfium2")
    file, record = write_transcriptions(results(tmp_path), tmp_path / "out.pdf", provenance=MADE_BY)
    assert record.name == "out.pdf.provenance.json"
    assert [words(line) for line in pdf_text(file).splitlines() if line.strip()] == [words(text) for text in TEXTS]
    document = pypdfium2.PdfDocument(file)
    shown = document[0].render(scale=300 / 72).to_pil().convert("L")
    page = Image.open(tmp_path / "page.png")
    assert shown.size == page.size
    difference = [abs(a - b) for a, b in zip(shown.tobytes(), page.tobytes(), strict=True)]
    assert sum(difference) / len(difference) < 3  # the text is not seen; JPEG is not exact
    found = document[0].get_textpage()
    start = len(found.get_text_range().partition("Guillelmus")[0].encode("utf-16-le")) // 2  # as PDFium counts
    left, _, right, _ = found.get_charbox(start)
    scale = 72 / 300
    box = expected_boxes(1, TEXTS[1])[2]
    assert left == pytest.approx(box[0] * scale, abs=0.5)
    assert right == pytest.approx((box[0] + (box[1] - box[0]) / 10) * scale, abs=0.5)
    document.close()


def test_pdf_keeps_the_bytes_of_a_jpeg_and_a_page_for_every_image(tmp_path: Path) -> None:
    pypdfium2 = pytest.importorskip("pypdfium2")
    stored = io.BytesIO()
    Image.effect_noise((120, 40), 60).save(stored, "JPEG", dpi=(150, 150))
    lines = [Line("a", "first", image=stored.getvalue()), Line("b", "second", image=Image.new("L", (80, 30), 255))]
    convert(LineSet.of(lines), tmp_path / "out.pdf")
    data = (tmp_path / "out.pdf").read_bytes()
    assert stored.getvalue() in data
    with pypdfium2.PdfDocument(tmp_path / "out.pdf") as pdf:
        assert pdf[0].get_size() == pytest.approx((57.6, 19.2))
    assert pdf_text(tmp_path / "out.pdf").split() == ["first", "second"]


def test_a_pdf_that_the_full_disk_cut_short_is_not_taken_for_a_whole_one(tmp_path: Path) -> None:
    pytest.importorskip("pypdfium2")
    found = results(tmp_path)
    with files_up_to(5000), pytest.raises(OSError, match=r"No space left on device: '.*out\.pdf'"):
        write_transcriptions(found, tmp_path / "out.pdf", provenance=MADE_BY)
    assert [file.name for file in tmp_path.iterdir()] == ["page.png"]


def test_the_font_of_the_pdf_is_sound() -> None:
    font_tools = pytest.importorskip("fontTools.ttLib")
    font = font_tools.TTFont(io.BytesIO(pdf._FONT))
    assert [font["hmtx"][name] for name in font.getGlyphOrder()] == [(500, 0)] * 2
    assert font["head"].unitsPerEm * pdf._ADVANCE == 500


def test_more_pages_than_a_file_holds_are_refused_with_what_to_do(tmp_path: Path) -> None:
    image = xml_pages.draw_page(tmp_path / "in.png", (60, 20))
    given = [Transcription.of(Line(name, name, image=image)) for name in "ab"]
    with pytest.raises(FadaError, match="one file for 2 pages"):
        write_transcriptions(given, tmp_path / "out.alto.xml")
    for name in ("out.hocr", "out.tei.xml"):
        assert write_transcriptions(given, tmp_path / name) == [tmp_path / name]


def test_a_part_of_an_outline_has_its_share_of_the_width_and_the_parts_are_the_whole() -> None:
    outline = ((0.0, 10.0), (60.0, 0.0), (100.0, 20.0), (100.0, 50.0), (40.0, 40.0), (0.0, 60.0))
    edges = [0.0, 0.13, 0.5, 0.51, 1.0]
    parts = [part_of(outline, start, end) for start, end in pairwise(edges)]
    assert sum(map(area, parts)) == pytest.approx(area(outline))
    for part, (start, end) in zip(parts, pairwise(edges), strict=True):
        xs = [x for x, _ in part]
        assert (min(xs), max(xs)) == pytest.approx((100 * start, 100 * end))


# --- every format to every other -----------------------------------------------------------------------------------

ODD = ["a/b c", "p 1#l:2", 'say "x"?', "ünï–cødé", "tab~2", "100%", "x<y>&z", "a\\b", "..", "CON", "a//b", " spaced "]
KEPT = {name for name in writable() if name not in ("same", "txt", "tei", "pdf")}
"""Formats that are written and read."""


def suffix_of(name: str) -> str:
    return "" if formats()[name].folder is not False else f".{name}"


def written(lines: LineSet, folder: Path, name: str) -> LineSet:
    """The lines written in a format and read again."""
    destination = folder / f"{name}-{len(list(folder.iterdir()))}{suffix_of(name)}"
    convert(lines, destination, name)
    return read_lines(destination)


@pytest.mark.parametrize("second", sorted(KEPT))
@pytest.mark.parametrize("first", sorted(name for name in KEPT if formats()[name].needs_image or name == "parquet"))
def test_ids_and_texts_survive_from_every_format_to_every_other(tmp_path: Path, first: str, second: str) -> None:
    image = xml_pages.draw_page(tmp_path / "in.png", (60, 20))
    lines = LineSet.of([Line(name, f"text of {place}", image=image) for place, name in enumerate(ODD)])
    (tmp_path / "out").mkdir()
    again = written(written(lines, tmp_path / "out", first), tmp_path / "out", second)
    assert {line.id: line.text for line in again.without_media()} == {line.id: line.text for line in lines}
    assert not again.skipped


@pytest.mark.parametrize("second", sorted(KEPT))
@pytest.mark.parametrize("name", ["alto4", "page2019"])
def test_the_ids_of_a_page_survive(tmp_path: Path, name: str, second: str) -> None:
    page = read_lines(xml_pages.write_example(tmp_path / "in", name))
    (tmp_path / "out").mkdir()
    destination = tmp_path / "out" / f"it{suffix_of(second)}"
    convert(page, destination, second)
    again = read_lines(destination, images=tmp_path / "in")
    known = [{line.id: line.text for line in lines.texts() if line.text} for lines in (again, page)]
    assert known[0] == known[1]


@pytest.mark.parametrize("first", ["tsv", "csv", "jsonl"])
@pytest.mark.parametrize("second", ["tsv", "csv", "jsonl"])
def test_ids_and_texts_survive_from_every_table_to_every_other(tmp_path: Path, first: str, second: str) -> None:
    lines = LineSet.of([Line(name, f"text of {place}") for place, name in enumerate(ODD)])
    convert(lines, tmp_path / f"a.{first}")
    convert(read_lines(tmp_path / f"a.{first}"), tmp_path / f"b.{second}")
    assert [(line.id, line.text) for line in read_lines(tmp_path / f"b.{second}")] == [
        (line.id, line.text) for line in lines
    ]
