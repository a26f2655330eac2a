"""The line, the set of lines, and how a source is found out."""

import io
import pickle
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from fada.data.domains import DomainRule
from fada.data.line import Line, LineSet, Log, split_of
from fada.data.read import unique_ids
from fada.data.source import read_lines
from fada.errors import FadaError
from tests.support import xml_pages
from tests.support.drawn import png

# --- the line --------------------------------------------------------------------------------------------------------


def test_an_image_is_loaded_from_bytes_a_file_or_an_open_image(tmp_path: Path) -> None:
    path = tmp_path / "line.png"
    path.write_bytes(png())
    for image in (png(), path, str(path), Image.new("RGB", (60, 20), "white")):
        loaded = Line("1", image=image).load_image()
        assert (loaded.mode, loaded.size) == ("L", (60, 20))


@pytest.mark.parametrize(
    "image",
    [b"", b"not an image", png()[:30], Path("missing.png"), None],
    ids=["empty", "garbage", "cut off", "missing", "none"],
)
def test_a_broken_image_is_told_with_its_place(image: Path | bytes | None) -> None:
    with pytest.raises(FadaError, match=r"lines\.csv:3"):
        Line("1", image=image, source="lines.csv:3").load_image()


def test_a_pixel_bomb_is_refused_before_it_is_decoded(tmp_path: Path) -> None:
    xml_pages.pixel_bomb(tmp_path / "bomb.png")
    with pytest.raises(FadaError, match=r"pixels|too large"):
        Line("1", image=tmp_path / "bomb.png").load_image()


def test_a_cut_off_jpeg_is_refused() -> None:
    buffer = io.BytesIO()
    Image.fromarray(np.random.default_rng(0).integers(0, 255, (64, 400), dtype=np.uint8)).save(buffer, "JPEG")
    with pytest.raises(FadaError):
        Line("1", image=buffer.getvalue()[:4000]).load_image()


def test_a_line_without_sound_says_so() -> None:
    with pytest.raises(FadaError, match="no sound"):
        Line("1").load_audio()


def test_a_line_can_be_sent_to_another_process(tmp_path: Path) -> None:
    line = next(iter(read_lines(xml_pages.write_example(tmp_path, "alto4"))))
    again = pickle.loads(pickle.dumps(line))
    assert again == line
    assert again.load_image().size == line.load_image().size


# --- the set ---------------------------------------------------------------------------------------------------------


def test_a_set_can_be_gone_through_again_and_knows_its_length_afterwards() -> None:
    lines = LineSet(lambda log, media: (Line(str(place), "x") for place in range(3)))
    with pytest.raises(TypeError, match=r"count\(\)"):
        len(lines)
    assert [line.id for line in lines] == [line.id for line in lines] == ["0", "1", "2"]
    assert len(lines) == lines.count() == 3
    assert lines


def test_skipped_lines_are_those_of_the_last_pass() -> None:
    def read(log: Any, media: Any) -> Iterator[Any]:
        log.skip("a", "because")
        yield Line("1")

    lines = LineSet(read)
    for _ in range(2):
        list(lines)
    assert [(one.source, one.reason) for one in lines.skipped] == [("a", "because")]
    assert lines.reasons == {"because": 1}


def test_lines_with_broken_images_are_listed_and_the_others_given() -> None:
    lines = LineSet.of([Line("1", image=png()), Line("2", image=b"x", source="here"), Line("3", image=png())])
    assert [line.id for line, _ in lines.with_images()] == ["1", "3"]
    assert [one.source for one in lines.skipped] == ["here"]


def test_a_million_skipped_rows_are_counted_but_not_all_listed() -> None:
    log = Log()
    for place in range(20_000):
        log.skip(str(place), "bad")
    assert log.skipped_count == log.reasons["bad"] == 20_000
    assert len(log.skipped) == 10_000


def test_filter_and_only_keep_licence_and_citation() -> None:
    lines = LineSet.of(
        [Line("1", extra={"split": "train"}), Line("2", extra={"split": "test"})], licence="L", citation="C"
    )
    chosen = lines.only("test")
    assert [line.id for line in chosen] == ["2"]
    assert (chosen.licence, chosen.citation) == ("L", "C")


@given(st.lists(st.sampled_from(["a", "a~2", "b", "", "é", "\ud800"])))
@settings(max_examples=60, deadline=None)
def test_ids_become_unique_and_no_line_is_lost(ids: list[str]) -> None:
    log = Log()
    found = [line.id for line in unique_ids((Line(one) for one in ids), log)]
    assert len(found) == len(set(found)) == len(ids)
    assert len(log.notes) == sum(old != new for old, new in zip(ids, found, strict=True))


# --- finding out what a source is ------------------------------------------------------------------------------------


def test_a_missing_source_tells_how_to_name_the_hub(tmp_path: Path) -> None:
    with pytest.raises(FadaError, match="hub:owner/name"):
        read_lines(tmp_path / "data" / "hgpt")


def test_a_folder_with_nothing_to_read_says_what_was_expected(tmp_path: Path) -> None:
    (tmp_path / "notes.docx").write_bytes(b"x")
    with pytest.raises(FadaError, match="nothing to read"):
        read_lines(tmp_path)


def test_an_unknown_format_names_those_there_are(tmp_path: Path) -> None:
    with pytest.raises(FadaError, match="parquet"):
        read_lines(tmp_path, format="excel")


def test_no_source_at_all_is_a_mistake() -> None:
    with pytest.raises(FadaError, match="no source"):
        read_lines([])


def test_files_of_other_kinds_beside_the_chosen_one_are_noted(tmp_path: Path) -> None:
    xml_pages.write_example(tmp_path, "alto4")
    (tmp_path / "lines.csv").write_text("text\nx\n", encoding="utf-8")
    lines = read_lines(tmp_path)
    assert len(list(lines)) == 3
    assert "lines.csv" in lines.notes[0]
    assert [line.text for line in read_lines(tmp_path, format="manifest")] == ["x"]


def test_several_sources_follow_each_other_with_unique_ids(tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / f"{name}.csv").write_text(f"id,text\n1,{name}\n", encoding="utf-8")
    lines = read_lines([tmp_path / "a.csv", tmp_path / "b.csv"])
    assert [(line.id, line.text) for line in lines] == [("1", "a"), ("1~2", "b")]


@pytest.mark.parametrize(
    ("path", "split"),
    [
        ("train.parquet", "train"),
        ("dev-00000-of-00001.parquet", "validation"),
        ("test/0.parquet", "test"),
        ("val/a/x.png", "validation"),
        ("testament.parquet", None),
        ("trainee/x.parquet", None),
    ],
)
def test_splits_are_recognised_by_name(path: str, split: str | None) -> None:
    assert split_of(path) == split


# --- domains ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("rule", "path", "domain"),
    [
        ("folder", "13th/page/0001.xml", "13th"),
        ("folder", "0001.xml", None),
        (r"Barocci-(\d+)", "x/Barocci-31_5.xml", "31"),
        (r"regex:c(?P<domain>\d\d)_(\w)", "c14_a.png", "14"),
        (r"\d{4}", "a/1650/b.png", "1650"),
        ({"Barocci 31": "13", "Barocci 316": "99"}, "MS-Barocci-31_00311.xml", "13"),
        ({"Barocci 31": "13", "Barocci 316": "99"}, "MS-Barocci-316_00311.xml", "99"),
        ({"Barocci 31": "13"}, "MS-Barocci-310.xml", None),
    ],
)
def test_the_domain_comes_from_the_path(rule: dict[str, str] | str, path: str, domain: str | None) -> None:
    assert DomainRule(rule=rule).domain(None, path, {}, "/") == domain


def test_a_table_looks_at_the_manuscript_column_first() -> None:
    rule = DomainRule(rule={"A 1": "13"})
    assert rule.domain(None, "elsewhere.parquet", {"manuscript": "a-1"}, "") == "13"


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("t.csv", "manuscript,century\nA 1,13\nB 2,14\n"),
        ("t.tsv", "A 1\t13\nB 2\t14\n"),
        ("t.csv", "\ufeffA 1;13\nB 2;14"),
        ("t.json", '{"A 1": 13, "B 2": "14"}'),
    ],
)
def test_a_table_can_be_a_file(tmp_path: Path, name: str, content: str) -> None:
    (tmp_path / name).write_text(content, encoding="utf-8")
    rule = DomainRule(rule=tmp_path / name)
    assert [rule.domain(None, path, {}, "") for path in ("x/A_1/p.png", "B 2.xml", "manuscript.xml")] == [
        "13",
        "14",
        None,
    ]


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [("t.csv", "only one\n", "line 1"), ("t.json", "[1]", "object"), ("t.json", "{", "be read"), (None, "", "be read")],
)
def test_a_bad_table_is_told(tmp_path: Path, name: str | None, content: str, message: str) -> None:
    if name:
        (tmp_path / name).write_text(content, encoding="utf-8")
    with pytest.raises(FadaError, match=message):
        DomainRule(rule=tmp_path / (name or "missing.csv"))


def test_a_bad_regular_expression_is_told() -> None:
    with pytest.raises(FadaError, match="regular expression"):
        DomainRule(rule="(unclosed")


def test_domain_for_all_overrides_and_a_rule_without_result_is_noted(tmp_path: Path) -> None:
    xml_pages.write_example(tmp_path / "13", "alto4")
    assert {line.domain for line in read_lines(tmp_path, domain_from="folder")} == {"13"}
    assert {line.domain for line in read_lines(tmp_path, domain_from="folder", domain="x")} == {"x"}
    lines = read_lines(tmp_path, domain_from="nothing(here)")
    assert {line.domain for line in lines} == {None}
    assert len(lines.notes) == 3
