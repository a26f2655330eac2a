"""Writing transcriptions: into the same XML file (nothing else may change), into new ones, as text and tables."""

import csv
import json
import re
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from lxml import etree

import fada
from fada.data.line import Line, LineSet, Provenance, Transcription, column_names
from fada.data.places import FileNames
from fada.data.source import read_lines
from fada.data.write import convert, write_transcriptions
from fada.errors import FadaError
from tests.support import xml_pages
from tests.support.types import crop_of, some

MADE_BY = Provenance(model="crnn-greek", target="targets.json: 13", lam=0.35, created="2025-01-01T00:00:00+00:00")
CONFIDENCES = ("WC", "CC", "GC", "conf")


def remove(element: etree._Element) -> None:
    """Take an element out as if it had never been put in."""
    before = element.getprevious()
    if before is not None:
        before.tail = element.tail
    else:
        element.getparent().text = element.tail
    element.getparent().remove(element)


def without_text(root: etree._Element) -> set[str]:
    """The ids of lines, words and glyphs that hold no element for their text: one is put in."""
    holders = root.iter("{*}TextLine", "{*}Word", "{*}Glyph")
    return {one.get("ID") or one.get("id") for one in holders if one.find("{*}TextEquiv") is one.find("{*}String")}


def all_but_text(data: bytes, lacking: Collection[str] = ()) -> bytes:
    """The file in canonical form without texts, confidences, the record of what made them, and what was `lacking`."""
    tree = etree.fromstring(data).getroottree()
    for element in list(tree.iter("{*}*")):
        name = etree.QName(element).localname
        parent = element.getparent()
        made_by_us = (element.get("ID") or "").startswith("fada_") or (element.get("value") or "").startswith("fada ")
        added = name in ("TextEquiv", "String") and (parent.get("ID") or parent.get("id")) in lacking
        if made_by_us or added or (name == "Comments" and (element.text or "").startswith("fada ")):
            remove(element)
        elif name in ("Unicode", "PlainText"):
            element.text = None
        for attribute in (*CONFIDENCES, "SUBS_CONTENT", "CONTENT"):
            element.attrib.pop(attribute, None)
    return etree.tostring(tree, method="c14n", with_comments=True) + (tree.docinfo.doctype or "").encode()


def assert_only_text_differs(copy: Path, original: Path) -> None:
    lacking = without_text(etree.parse(original).getroot())
    assert all_but_text(copy.read_bytes(), lacking) == all_but_text(original.read_bytes())


def transcribed(path: Path, tmp_path: Path, texts: dict[str, str] | None = None, **details: Any) -> Any:
    lines = list(read_lines(path))
    results = [
        Transcription.of(line, (texts or {}).get(line.extra["line_id"], f"νέα λέξη {place}"), **details)
        for place, line in enumerate(lines)
    ]
    return write_transcriptions(results, tmp_path / "out", "same", provenance=MADE_BY)[0], results


@pytest.mark.parametrize("name", xml_pages.EXAMPLES)
def test_the_same_file_gets_new_text_and_nothing_else_changes(tmp_path: Path, name: str) -> None:
    path = xml_pages.write_example(tmp_path / "in", name)
    before = path.read_bytes()
    copy, results = transcribed(path, tmp_path, confidence=0.8)
    assert path.read_bytes() == before
    assert_only_text_differs(copy, path)
    again = read_lines(copy, images=tmp_path / "in")
    assert [line.text for line in again] == [result.text for result in results]


@pytest.mark.parametrize("name", xml_pages.EXAMPLES)
def test_declaration_doctype_comments_and_instructions_survive(tmp_path: Path, name: str) -> None:
    path = xml_pages.write_example(tmp_path / "in", name)
    copy, _ = transcribed(path, tmp_path)
    before, after = (etree.parse(file) for file in (path, copy))
    for pattern in (rb"<!--.*?-->", rb"<\?xml.*?\?>", rb"<!DOCTYPE.*?>", rb">\s*$"):
        assert re.findall(pattern, copy.read_bytes(), re.S) == re.findall(pattern, path.read_bytes(), re.S)
    assert after.getroot().nsmap == before.getroot().nsmap


@pytest.mark.parametrize("name", xml_pages.EXAMPLES)
def test_tool_version_model_target_and_lambda_are_recorded(tmp_path: Path, name: str) -> None:
    copy, _ = transcribed(xml_pages.write_example(tmp_path / "in", name), tmp_path)
    root = etree.parse(copy).getroot()
    where = {
        "alto2": "{*}Description/{*}OCRProcessing[@ID='fada_1']/{*}ocrProcessingStep",
        "alto3": "{*}Description/{*}OCRProcessing[@ID='fada_1']/{*}ocrProcessingStep",
        "alto4": "{*}Description/{*}Processing[@ID='fada_1']",
        "page2013": "{*}Metadata/{*}Comments",
        "page2019": "{*}Metadata/{*}MetadataItem[@value='fada " + fada.__version__ + "']",
    }[name]
    record = etree.tostring(root.find(where), encoding="unicode")
    for value in ("fada", fada.__version__, "crnn-greek", "targets.json: 13", "0.35", "2025-01-01"):
        assert value in record
    order = [etree.QName(child).localname for child in root[0] if isinstance(child.tag, str)]
    assert (
        order
        == {
            "alto2": ["MeasurementUnit", "sourceImageInformation", "OCRProcessing", "OCRProcessing"],
            "alto3": ["MeasurementUnit", "sourceImageInformation", "OCRProcessing"],
            "alto4": ["MeasurementUnit", "sourceImageInformation", "Processing"],
            "page2013": ["Creator", "Created", "LastChange", "Comments", "TranskribusMetadata"],
            "page2019": ["Creator", "Created", "LastChange", "MetadataItem", "MetadataItem"],
        }[name]
    )


def test_writing_twice_records_both_runs(tmp_path: Path) -> None:
    path = xml_pages.write_example(tmp_path / "in", "alto4")
    first, _ = transcribed(path, tmp_path / "1")
    lines = list(read_lines(first, images=tmp_path / "in"))
    results = [Transcription.of(line) for line in lines]
    second = write_transcriptions(results, tmp_path / "2", "same", provenance=MADE_BY)[0]
    assert [one.get("ID") for one in etree.parse(second).iter("{*}Processing")] == ["fada_1", "fada_2"]


def test_words_and_their_confidences_go_into_the_strings_of_alto(tmp_path: Path) -> None:
    path = xml_pages.write_example(tmp_path / "in", "alto4")
    text = "em francia"
    copy, _ = transcribed(
        path, tmp_path, {"eSc_2": text}, char_confidences=[1.0, 0.5, *[0.25] * 8], word_confidences=[0.75, 0.2]
    )
    line = etree.parse(copy).find(".//{*}TextLine[@ID='eSc_2']")
    strings = line.findall("{*}String")
    assert [(one.get("CONTENT"), one.get("WC")) for one in strings] == [("em", "0.7500"), ("francia", "0.2000")]
    assert strings[0].get("CC") == "0 4"
    assert [(one.get("CONTENT"), one.get("GC")) for one in strings[0]] == [("e", "1.0000"), ("m", "0.5000")]


def test_words_and_glyphs_of_page_follow_the_line(tmp_path: Path) -> None:
    path = xml_pages.write_example(tmp_path / "in", "page2013")
    copy, _ = transcribed(path, tmp_path, {"r1l1": "the first line"}, confidence=0.5)
    root = etree.parse(copy).getroot()
    assert [word.findtext("{*}TextEquiv/{*}Unicode") for word in root.iter("{*}Word")] == ["the first", "line"]
    region = root.find(".//{*}TextRegion[@id='r1']")
    assert region.findtext("{*}TextEquiv/{*}Unicode").split("\n")[0] == "the first line"
    line = root.find(".//{*}TextLine[@id='r1l1']")
    assert line.find("{*}TextEquiv").get("conf") == "0.5000"
    assert [etree.QName(child).localname for child in line][-2:] == ["TextEquiv", "TextStyle"]


def test_a_confidence_of_the_text_before_does_not_stay_with_the_new_text(tmp_path: Path) -> None:
    for name in ("alto2", "alto4", "page2013"):
        copy, _ = transcribed(xml_pages.write_example(tmp_path / name, name), tmp_path / f"{name}_out")
        assert not [one for one in etree.parse(copy).iter("{*}*") if set(CONFIDENCES) & set(one.attrib)]


def test_hyphens_stay_in_their_element_and_the_whole_word_is_renewed(tmp_path: Path) -> None:
    path = xml_pages.write_example(tmp_path / "in", "alto2")
    copy, _ = transcribed(path, tmp_path, {"L1": "πρώτα γραμ-", "L2": "μαί"})
    root = etree.parse(copy).getroot()
    assert [one.get("CONTENT") for one in root.iter("{*}String")][:3] == ["πρώτα", "γραμ", "μαί"]
    assert root.find(".//{*}HYP").get("CONTENT") == "-"
    assert {one.get("SUBS_CONTENT") for one in root.iter("{*}String")} - {None} == {"γραμμαί"}
    copy, _ = transcribed(path, tmp_path, {"L1": "χωρίς παύλα"})
    assert next(iter(read_lines(copy, images=tmp_path / "in"))).text == "χωρίς παύλα"


@pytest.mark.parametrize("encoding", ["utf-16", "utf-8-sig"])
def test_a_file_in_another_unicode_form_keeps_it(tmp_path: Path, encoding: str) -> None:
    path = xml_pages.write_example(tmp_path / "in", "page2013")
    declared = "UTF-16" if encoding == "utf-16" else "UTF-8"
    path.write_bytes(path.read_text(encoding="utf-8").replace("UTF-8", declared).encode(encoding))
    copy, results = transcribed(path, tmp_path)
    assert_only_text_differs(copy, path)
    assert copy.read_bytes()[:2] == path.read_bytes()[:2]
    assert [line.text for line in read_lines(copy, images=tmp_path / "in")] == [result.text for result in results]


def test_a_file_without_declaration_gets_none(tmp_path: Path) -> None:
    path = xml_pages.write_example(tmp_path / "in", "page2013")
    path.write_text(path.read_text(encoding="utf-8").partition("?>")[2].lstrip(), encoding="utf-8")
    copy, _ = transcribed(path, tmp_path)
    assert copy.read_bytes().startswith(b"<PcGts")
    assert_only_text_differs(copy, path)


def test_a_file_in_latin_1_can_hold_greek(tmp_path: Path) -> None:
    path = xml_pages.write_example(tmp_path / "in", "alto3")
    text = path.read_text(encoding="utf-8").replace("UTF-8", "ISO-8859-1").replace("three", "été")
    path.write_bytes(text.encode("latin-1"))
    assert [line.text for line in read_lines(path)][1] == "été four"
    copy, results = transcribed(path, tmp_path)
    assert_only_text_differs(copy, path)
    assert b"ISO-8859-1" in copy.read_bytes()
    assert [line.text for line in read_lines(copy, images=tmp_path / "in")] == [result.text for result in results]


def test_alternatives_stay_as_they_are(tmp_path: Path) -> None:
    copy, _ = transcribed(xml_pages.write_example(tmp_path / "in", "page2019"), tmp_path, {"l1": "new"})
    equivalents = etree.parse(copy).findall(".//{*}TextLine[@id='l1']/{*}TextEquiv")
    assert [one.findtext("{*}Unicode") for one in equivalents] == ["worse", "new"]
    assert equivalents[0].get("conf") == "0.1"


def test_a_comment_inside_a_text_survives(tmp_path: Path) -> None:
    path = xml_pages.write_example(tmp_path / "in", "page2013")
    path.write_text(
        path.read_text(encoding="utf-8").replace("second line<", "sec<!-- sic -->ond line<"), encoding="utf-8"
    )
    assert [line.text for line in read_lines(path)][2] == "second line"
    copy, results = transcribed(path, tmp_path)
    assert b"<!-- sic -->" in copy.read_bytes()
    assert [line.text for line in read_lines(copy, images=tmp_path / "in")][2] == results[2].text


def test_only_the_lines_given_change(tmp_path: Path) -> None:
    path = xml_pages.write_example(tmp_path / "in", "alto3")
    lines = list(read_lines(path))
    write_transcriptions([Transcription.of(lines[1], "new text")], tmp_path / "out")
    again = read_lines(tmp_path / "out" / "page.xml", images=tmp_path / "in")
    assert [line.text for line in again] == ["one two", "new text", ""]


def test_folders_are_kept_and_the_original_is_never_overwritten(tmp_path: Path) -> None:
    for folder in ("a", "b"):
        xml_pages.write_example(tmp_path / "in" / folder, "alto4")
    results = [Transcription.of(line, "x") for line in read_lines(tmp_path / "in")]
    written = write_transcriptions(results, tmp_path / "out")
    assert written[:-1] == [tmp_path / "out" / folder / "page.xml" for folder in ("a", "b")]
    several = [Transcription.of(line, "x") for line in read_lines([tmp_path / "in" / "a", tmp_path / "in" / "b"])]
    assert write_transcriptions(several, tmp_path / "several")[:-1] == [
        tmp_path / "several" / folder / "page.xml" for folder in ("a", "b")
    ]
    with pytest.raises(FadaError, match="never overwritten"):
        write_transcriptions(results, tmp_path / "in")
    with pytest.raises(FadaError, match="give a folder"):
        write_transcriptions(results, tmp_path / "out.xml")


@pytest.mark.parametrize("format", ["same", "page", "pairs", "txt"])
def test_an_output_that_was_interrupted_is_written_again(tmp_path: Path, format: str) -> None:
    lines = [line for line in read_lines(xml_pages.write_example(tmp_path / "in", "alto3")) if line.text]

    def interrupted() -> Iterator[Any]:
        yield Transcription.of(lines[0])
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write_transcriptions(interrupted(), tmp_path / "out", format)
    for _ in range(2):
        written = write_transcriptions(map(Transcription.of, lines), tmp_path / "out", format)
    assert json.loads(written[-1].read_text(encoding="utf-8"))["tool"] == "fada"
    assert b"unfinished" not in written[-1].read_bytes()


def test_lines_that_come_from_no_xml_file_cannot_go_back_into_one(tmp_path: Path) -> None:
    with pytest.raises(FadaError, match="alto or page"):
        write_transcriptions([Transcription("1", "x")], tmp_path / "out", "same")


NOT_XML = re.compile("[^\t\n\r -\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=30)


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(name=st.sampled_from(list(xml_pages.EXAMPLES)), texts=st.lists(TEXTS, min_size=3, max_size=3))
def test_any_text_can_be_written_and_the_rest_survives(tmp_path: Path, name: str, texts: list[str]) -> None:
    path = xml_pages.write_example(tmp_path / "in", name)
    lines = list(read_lines(path))
    results = [Transcription.of(line, text) for line, text in zip(lines, texts, strict=True)]
    copy = write_transcriptions(results, tmp_path / "out", "same", provenance=MADE_BY)[0]
    assert_only_text_differs(copy, path)
    again = [line.text for line in read_lines(copy, images=tmp_path / "in")]
    assert again == [NOT_XML.sub("\ufffd", text) for text in texts]


# --- new files -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("format", ["alto", "page"])
@pytest.mark.parametrize("name", xml_pages.EXAMPLES)
def test_a_page_goes_into_a_new_file_of_either_kind(tmp_path: Path, name: str, format: str) -> None:
    lines = read_lines(xml_pages.write_example(tmp_path / "in", name))
    convert(lines, tmp_path / "out", format)
    again = read_lines(tmp_path / "out", images=tmp_path / "in")
    assert sorted(line.text or "" for line in again) == sorted(line.text or "" for line in lines)
    by_text = {line.text: crop_of(line).box for line in again if line.text}
    assert {line.text: crop_of(line).box for line in lines if line.text} == by_text
    assert not again.skipped


@pytest.mark.parametrize("format", ["alto", "page"])
def test_line_images_get_a_file_each(tmp_path: Path, format: str) -> None:
    image = xml_pages.draw_page(tmp_path / "in" / "line.png", (300, 40))
    result = Transcription.of(Line("set/1", "αβγ", image=image), confidence=0.5)
    write_transcriptions([result], tmp_path / "out", format, provenance=MADE_BY)
    line = next(iter(read_lines(tmp_path / "out")))
    assert line.text == "αβγ"
    assert line.load_image().size == (300, 40)
    assert b"crnn-greek" in (tmp_path / "out" / "set" / "1.xml").read_bytes()


# --- text and tables -------------------------------------------------------------------------------------------------

RESULTS = [
    Transcription("a#1", 'tab\there "quoted"', 0.5, [0.1, 0.2], line=Line("a#1", domain="13", source="a.xml#1")),
    Transcription("a#2", "שלום, e\u0301 \ue5d0", None),
    Transcription("b#1", "", 1.0),
]
PLAIN = ['tab here "quoted"', "שלום, e\u0301 \ue5d0", ""]


def test_text_file_has_a_line_for_each_result(tmp_path: Path) -> None:
    written = write_transcriptions(RESULTS, tmp_path / "out.txt", provenance=MADE_BY)
    assert written[0].read_text(encoding="utf-8").split("\n") == [*PLAIN, ""]
    assert json.loads(written[1].read_text(encoding="utf-8"))["model"] == "crnn-greek"


PAGE_TEXTS = ["", "first line", "second line"]


def two_pages(tmp_path: Path) -> LineSet:
    """The lines of two pages of the same name in two folders."""
    return read_lines([xml_pages.write_example(tmp_path / folder, "page2013") for folder in ("a", "b")])


def test_text_folder_has_a_file_for_each_page_or_image(tmp_path: Path) -> None:
    lines = [*two_pages(tmp_path), Line("c#1", "one"), Line("c#2", "two")]
    written = write_transcriptions(map(Transcription.of, lines), tmp_path / "out", "txt", provenance=MADE_BY)
    assert [file.name for file in written] == ["page.txt", "page~2.txt", "c#1.txt", "c#2.txt", "provenance.json"]
    texts = [file.read_text(encoding="utf-8").splitlines() for file in written]
    assert texts[:4] == [PAGE_TEXTS, PAGE_TEXTS, ["one"], ["two"]]
    assert json.loads(written[-1].read_text(encoding="utf-8"))["model"] == "crnn-greek"


@pytest.mark.parametrize("format", ["alto", "page"])
def test_no_page_is_written_over_another(tmp_path: Path, format: str) -> None:
    lines = two_pages(tmp_path)
    convert(lines, tmp_path / "new", format)
    texts = sorted(PAGE_TEXTS * 2)
    assert sorted(line.text or "" for line in read_lines(tmp_path / "new", images=tmp_path / "a")) == texts
    convert(lines, tmp_path / "lines.parquet")
    convert(read_lines(tmp_path / "lines.parquet"), tmp_path / "single", format)
    assert sorted(line.text or "" for line in read_lines(tmp_path / "single")) == texts


@pytest.mark.parametrize("ending", ["tsv", "csv", "jsonl"])
def test_tables_can_be_read_back(tmp_path: Path, ending: str) -> None:
    path = write_transcriptions(RESULTS, tmp_path / f"out.{ending}", provenance=MADE_BY)[0]
    lines = list(read_lines(path))
    assert [line.id for line in lines] == ["a#1", "a#2", "b#1"]
    texts = [line.text for line in lines]
    assert texts == ([result.text for result in RESULTS] if ending == "jsonl" else PLAIN)
    assert lines[0].domain == "13"


def test_tsv_has_a_header_even_without_results(tmp_path: Path) -> None:
    path = write_transcriptions([], tmp_path / "out.tsv")[0]
    assert next(csv.reader(path.open(encoding="utf-8"), dialect="excel-tab"))[:3] == ["id", "text", "confidence"]


def test_jsonl_keeps_word_confidences(tmp_path: Path) -> None:
    path = write_transcriptions(RESULTS, tmp_path / "out.jsonl")[0]
    assert json.loads(path.read_text(encoding="utf-8").splitlines()[0])["word_confidences"] == [0.1, 0.2]


def test_parquet_records_what_made_it(tmp_path: Path) -> None:
    path = write_transcriptions(RESULTS, tmp_path / "out.parquet", provenance=MADE_BY)[0]
    table = pq.read_table(path)
    assert table["text"].to_pylist() == [result.text for result in RESULTS]
    assert json.loads(table.schema.metadata[b"fada"])["lambda"] == "0.35"


def test_an_unknown_format_is_named_with_those_there_are(tmp_path: Path) -> None:
    with pytest.raises(FadaError, match=r"docx.*same, alto, page"):
        write_transcriptions(RESULTS, tmp_path / "out.docx")


def test_pairs_keep_text_and_image_and_cannot_leave_their_folder(tmp_path: Path) -> None:
    image = xml_pages.draw_page(tmp_path / "in.png", (200, 40))
    lines = LineSet.of([Line("../../evil", "γραμμή", image=image), Line("a/b:c", "δύο", image=image.read_bytes())])
    written = convert(lines, tmp_path / "out", "pairs")
    assert all((tmp_path / "out") in path.resolve().parents for path in written)
    again = list(read_lines(tmp_path / "out"))
    assert {line.text for line in again} == {"γραμμή", "δύο"}
    assert all(line.load_image().size == (200, 40) for line in again)


def test_every_pair_has_files_of_its_own_and_is_read_back(tmp_path: Path) -> None:
    image = xml_pages.draw_page(tmp_path / "in.png", (60, 20))
    ids = ["a:b", "a?b", "A_B", "x" * 150 + "1", "x" * 150 + "2", "α" * 140 + "1", "α" * 140 + "2", "caf\udce9"]
    ids += [f"foo{ending}" for ending in ("", ".raw", ".bin", ".nrm", ".dew", ".png")]
    lines = LineSet.of([Line(one, f"text {place}", image=image) for place, one in enumerate(ids)])
    written = convert(lines, tmp_path / "out", "pairs")
    again = read_lines(tmp_path / "out")
    assert sorted(some(line.text) for line in again) == sorted(some(line.text) for line in lines)
    assert not again.skipped
    assert written[-1] == tmp_path / "out" / "provenance.json"


@given(st.lists(st.text(st.characters() | st.sampled_from("aA:?/é~2")), max_size=6))
def test_file_names_stay_inside_and_are_given_once(names: list[str]) -> None:
    given_out = FileNames()
    found = [given_out.take(name) for name in names]
    assert len({name.casefold() for name in found}) == len(names)
    for part in (part for name in found for part in name.split("/")):
        assert part not in ("", ".", "..")
        assert not set(part) & set("\\\0:")
        assert len(part.encode()) < 220


@pytest.mark.parametrize("ending", ["tsv", "csv", "jsonl", "parquet"])
def test_the_lines_own_fields_win_over_further_columns_of_their_name(tmp_path: Path, ending: str) -> None:
    (tmp_path / "m.csv").write_text("text,transcription,domain,century\nNORM,diplomatic,wrong,13\n", encoding="utf-8")
    lines = read_lines(tmp_path / "m.csv", text_column="transcription", domain_column="century")
    convert(lines, tmp_path / f"out.{ending}")
    line = next(iter(read_lines(tmp_path / f"out.{ending}")))
    assert (line.text, line.domain) == ("diplomatic", "13")
    assert (line.extra["text~source"], line.extra["domain~source"], line.extra["century"]) == ("NORM", "wrong", "13")


@given(st.lists(st.sampled_from(["text", "text~source", "text~source~source", "x"]), unique=True))
def test_no_two_columns_get_one_name(further: list[str]) -> None:
    names = column_names(("text",), further)
    assert list(names) == further
    assert len({"text", *names.values()}) == len(further) + 1
    assert names.get("x", "x") == "x"


def test_a_text_that_is_not_known_stays_unknown(tmp_path: Path) -> None:
    image = xml_pages.draw_page(tmp_path / "in.png", (60, 20))
    lines = LineSet.of([Line("1", image=image), Line("2", "", image=image)])
    convert(lines, tmp_path / "out.jsonl")
    rows = (tmp_path / "out.jsonl").read_text(encoding="utf-8").splitlines()
    assert [json.loads(row)["text"] for row in rows] == [None, ""]
    for format in ("alto", "page"):
        convert(lines, tmp_path / format, format)
        assert [line.text for line in read_lines(tmp_path / format)] == [None, ""]
    convert(lines, tmp_path / "pairs", "pairs")
    assert sorted(file.name for file in (tmp_path / "pairs").glob("*.txt")) == ["2.gt.txt"]


@pytest.mark.parametrize("ending", ["tsv", "csv", "jsonl", "parquet"])
def test_columns_that_only_later_rows_have_are_kept(tmp_path: Path, ending: str) -> None:
    extras: list[dict[str, Any]] = [{}, {"hand": "B", "tags": ["x", "y"]}, {"hand": "C"}]
    results = [Transcription(str(place), "a", extra=extra) for place, extra in enumerate(extras)]
    path = write_transcriptions(results, tmp_path / f"out.{ending}")[0]
    lines = list(read_lines(path))
    assert [line.extra.get("hand") or None for line in lines] == [None, "B", "C"]
    assert lines[1].extra["tags"] == (["x", "y"] if ending in ("jsonl", "parquet") else '["x", "y"]')


def test_a_column_of_bytes_is_left_out_of_tables_with_a_note(tmp_path: Path) -> None:
    lines = LineSet.of([Line("1", "a", extra={"scan": {"bytes": b"x", "path": None}, "n": 1})])
    convert(lines, tmp_path / "out.csv")
    assert "scan" not in (tmp_path / "out.csv").read_text(encoding="utf-8")
    assert ["scan" in note for note in lines.notes] == [True]


@pytest.mark.parametrize("name", ["o.tsv", "o.csv", "o.jsonl", "o.txt", "o.parquet", "pairs", "page"])
def test_names_and_texts_that_are_not_unicode_stop_nothing(tmp_path: Path, name: str) -> None:
    folder = tmp_path / "in"
    for file in ("ok.png", "caf\udce9.png"):
        xml_pages.draw_page(folder / file, (60, 20))
    rows = [{"image": "ok.png", "text": text, "hand": hand} for text, hand in (("a", "\ud800"), ("x\ud800", ""))]
    (folder / "m.jsonl").write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")
    format = None if "." in name else name
    images = read_lines(folder, format="images")
    convert(images, tmp_path / name, format)
    assert [line.id for line in images] == ["caf\\udce9", "ok"]
    assert "backslashes" in images.notes[-1]
    table = read_lines(folder / "m.jsonl")
    convert(table, tmp_path / f"m_{name}", format)
    assert [(line.text, line.extra["hand"]) for line in table] == [("a", "\\ud800")]
    assert [one.source for one in table.skipped] == ["m.jsonl:2"]


def alto_line(folder: Path, inner: str) -> Path:
    """An ALTO file with one line."""
    xml_pages.draw_page(folder / "p.png", (400, 200))
    (folder / "p.xml").write_text(
        '<alto xmlns="http://www.loc.gov/standards/alto/ns-v4#"><Description><MeasurementUnit>pixel</MeasurementUnit>'
        "<sourceImageInformation><fileName>p.png</fileName></sourceImageInformation></Description><Layout>"
        '<Page ID="p" WIDTH="400" HEIGHT="200"><PrintSpace><TextBlock ID="b">'
        f'<TextLine ID="l1" HPOS="0" VPOS="0" WIDTH="300" HEIGHT="40">{inner}</TextLine>'
        "</TextBlock></PrintSpace></Page></Layout></alto>",
        encoding="utf-8",
    )
    return folder / "p.xml"


def alto_strings(*contents: str) -> str:
    """Strings, and spaces where there is a space."""
    return "".join("<SP/>" if one == " " else f'<String CONTENT="{one}"/>' for one in contents)


@pytest.mark.parametrize(
    ("contents", "text"),
    [
        (("foo", "bar", " ", "baz"), "foobar baz"),
        (("l'", "amour", " ", "fou", "."), "l'amour fou."),
        (("foo", "bar"), "foo bar"),
        (("a b", " ", "c", " ", ""), "a b c"),
        (("a", " ", "", " ") * 40 + ("foo-",), "a " * 40 + "foo-"),
        (("a\u00a0b", " ", "c"), "a\u00a0b c"),
        (("a", " ", " ", "b"), "a  b"),
        (("a  b", " ", "c"), "a  b c"),
        (("a ", " ", " b"), "a   b"),
        ((" ", "a", " ", " ", "", " "), "a"),
    ],
)
def test_strings_are_one_word_up_to_the_next_space_and_stay_if_the_text_does(
    tmp_path: Path, contents: tuple[Any, ...], text: str
) -> None:
    path = alto_line(tmp_path / "in", alto_strings(*contents))
    line = next(iter(read_lines(path)))
    assert line.text == text
    copy = write_transcriptions([Transcription.of(line)], tmp_path / "out", "same")[0]
    strings = [one.get("CONTENT") for one in etree.parse(copy).iter("{*}String")]
    assert strings == [one for one in contents if one != " "]


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    contents=st.lists(st.sampled_from(["foo", "a b", "", " ", "é", "bar"]), min_size=1, max_size=6),
    hyphen=st.sampled_from(["", '<HYP CONTENT="-"/>', "<HYP/>"]),
    text=st.text("aé\u00a0- ", max_size=12),
)
def test_whatever_the_strings_a_text_is_read_back_as_it_was_put_in(
    tmp_path: Path, contents: Any, hyphen: Any, text: str
) -> None:
    path = alto_line(tmp_path / "in", alto_strings(*contents) + hyphen)
    line = next(iter(read_lines(path)))
    copy = write_transcriptions([Transcription.of(line, text, confidence=0.5)], tmp_path / "out", "same")[0]
    again = next(iter(read_lines(copy, images=tmp_path / "in")))
    assert again.text == text
    convert(LineSet.of([again]), tmp_path / "new", "alto")
    assert next(iter(read_lines(tmp_path / "new", images=tmp_path / "in"))).text == text


def page_with(folder: Path, lines: str) -> Path:
    """A PAGE file with one region, which has the text of its lines in their own order."""
    xml_pages.draw_page(folder / "p.png", (400, 200))
    text = "<TextEquiv><Unicode>first\nsecond</Unicode></TextEquiv>"
    (folder / "p.xml").write_text(
        '<PcGts xmlns="http://schema.primaresearch.org/PAGE/gts/pagecontent/2013-07-15"><Page imageFilename="p.png" '
        'imageWidth="400" imageHeight="200"><TextRegion id="r"><Coords points="0,0 400,0 400,200 0,200"/>'
        f"{lines}{text}</TextRegion></Page></PcGts>",
        encoding="utf-8",
    )
    return folder / "p.xml"


def test_the_text_of_a_region_follows_the_order_of_its_lines(tmp_path: Path) -> None:
    lines = "".join(
        f'<TextLine id="{text}" custom="readingOrder {{index:{place};}}"><Coords points="0,0 300,0 300,40 0,40"/>'
        f"<TextEquiv><Unicode>{text}</Unicode></TextEquiv></TextLine>"
        for place, text in ((1, "second"), (0, "first"))
    )
    found = read_lines(page_with(tmp_path / "in", lines))
    copy = write_transcriptions(map(Transcription.of, found), tmp_path / "out", "same")[0]
    assert etree.parse(copy).findtext(".//{*}TextRegion/{*}TextEquiv/{*}Unicode") == "first\nsecond"


def test_an_empty_text_of_a_line_does_not_hide_its_words(tmp_path: Path) -> None:
    shape = '<Coords points="0,0 300,0 300,40 0,40"/>'
    empty = "<TextEquiv><Unicode></Unicode></TextEquiv>"
    words = "".join(
        f'<Word id="{word}">{shape}<TextEquiv><Unicode>{word}</Unicode></TextEquiv></Word>' for word in ("foo", "bar")
    )
    lines = f'<TextLine id="1">{shape}{words}{empty}</TextLine><TextLine id="2">{shape}{empty}</TextLine>'
    assert [line.text for line in read_lines(page_with(tmp_path / "in", lines))] == ["foo bar", ""]
