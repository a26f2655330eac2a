"""Parquet and Arrow in the convention of Hugging Face datasets."""

import json
from decimal import Decimal
from pathlib import Path
from typing import Any

import datasets
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fada.data.formats.parquet import write_parquet
from fada.data.line import Line, LineSet
from fada.data.source import read_lines
from fada.errors import FadaError
from tests.support import xml_pages
from tests.support.drawn import png


def example(number: int = 3, **columns: Any) -> list[Line]:
    return [Line(f"l{place}", f"γραμμή {place}", "13", image=png(50 + place), extra=columns) for place in range(number)]


def test_lines_come_back_as_they_were_written(tmp_path: Path) -> None:
    lines = example(300, hand="A", year=1280, score=0.5, tags=["x", "y"])
    assert write_parquet(lines, tmp_path / "x.parquet") == 300
    again = read_lines(tmp_path / "x.parquet")
    assert again.expected == 300
    found = list(again)
    assert [(line.id, line.text, line.domain, dict(line.extra)) for line in found] == [
        (line.id, line.text, line.domain, dict(line.extra)) for line in lines
    ]
    assert [line.load_image().size for line in found[:3]] == [(50, 20), (51, 20), (52, 20)]


def test_datasets_reads_what_is_written_with_its_features(tmp_path: Path) -> None:
    write_parquet(example(year=1280, tags=["x"], score=0.5), tmp_path / "train.parquet")
    loaded = datasets.Dataset.from_parquet(str(tmp_path / "train.parquet"), cache_dir=str(tmp_path / "cache"))
    assert isinstance(loaded.features["image"], datasets.Image)
    assert loaded[1]["image"].size == (51, 20)
    assert loaded[1]["text"] == "γραμμή 1"
    assert loaded[1]["tags"] == ["x"]


def test_what_datasets_saves_is_read(tmp_path: Path) -> None:
    table = datasets.Dataset.from_dict(
        {"im": [{"bytes": png(), "path": None}] * 3, "text": ["a", "b", "c"], "century": [0, 1, 0]},
        features=datasets.Features(
            {
                "im": datasets.Image(),
                "text": datasets.Value("string"),
                "century": datasets.ClassLabel(names=["13", "14"]),
            }
        ),
    )
    datasets.DatasetDict({"train": table, "test": table.select([1])}).save_to_disk(tmp_path / "saved")
    lines = list(read_lines(tmp_path / "saved"))
    assert [(line.text, line.domain, line.split) for line in lines] == [
        ("a", "13", "train"),
        ("b", "14", "train"),
        ("c", "13", "train"),
        ("b", "14", "test"),
    ]
    assert lines[0].load_image().size == (60, 20)
    table.to_parquet(tmp_path / "plain.parquet")
    assert [line.domain for line in read_lines(tmp_path / "plain.parquet")] == ["13", "14", "13"]


def test_a_hub_name_is_loaded_through_datasets_and_a_wrong_one_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "cache")
    folder = tmp_path / "owner"
    write_parquet([Line("1", "a", "13", image=png())], folder / "train.parquet")
    lines = list(read_lines(f"hub:{folder}"))
    assert [(line.text, line.domain, line.split, line.load_image().size) for line in lines] == [
        ("a", "13", "train", (60, 20))
    ]
    monkeypatch.setattr(datasets.config, "HF_HUB_OFFLINE", True)
    with pytest.raises(FadaError, match=r"hub:nobody/nothing.*HF_HUB_OFFLINE"):
        read_lines("hub:nobody/nothing")


def test_a_folder_of_splits_is_read_in_order_and_other_files_are_noted(tmp_path: Path) -> None:
    for name in ("test", "train", "validation", "text_only"):
        write_parquet([Line(name, name)], tmp_path / f"{name}.parquet")
    lines = read_lines(tmp_path)
    assert [(line.text, line.split) for line in lines] == [(name, name) for name in ("train", "validation", "test")]
    assert "text_only.parquet" in lines.notes[0]
    assert [line.text for line in read_lines(tmp_path, split="dev")] == ["validation"]
    with pytest.raises(FadaError, match="no split 'extra'; there are: test, train, validation"):
        read_lines(tmp_path, split="extra")


def test_a_folder_gets_one_file_for_each_split(tmp_path: Path) -> None:
    lines = [Line(str(place), "x", extra={"split": split}) for place, split in enumerate(["train", "test", "train"])]
    write_parquet(lines, tmp_path / "out")
    assert sorted(file.name for file in (tmp_path / "out").iterdir()) == ["test.parquet", "train.parquet"]
    assert [line.id for line in read_lines(tmp_path / "out")] == ["0", "2", "1"]


def test_licence_and_citation_stay_with_the_data(tmp_path: Path) -> None:
    write_parquet(LineSet.of(example(), licence="CC BY 4.0", citation="Somebody 2024"), tmp_path / "a.parquet")
    lines = read_lines(tmp_path / "a.parquet")
    assert (lines.licence, lines.citation) == ("CC BY 4.0", "Somebody 2024")
    write_parquet(lines, tmp_path / "b.parquet")
    metadata = pq.read_schema(tmp_path / "b.parquet").metadata
    assert json.loads(metadata[b"fada"])["licence"] == "CC BY 4.0"
    assert json.loads(metadata[b"huggingface"])["info"]["citation"] == "Somebody 2024"


@pytest.mark.parametrize(
    ("columns", "expected"),
    [
        ({"im": [png()], "transcription": ["a"], "century": [13]}, ("a", "13")),
        ({"image": [{"bytes": png(), "path": "x.png"}], "text": ["a"], "accent": ["us"]}, ("a", "us")),
        ({"IMAGE": [png()], "Text": ["a"], "domain": [13.0]}, ("a", "13")),
    ],
)
def test_the_usual_columns_are_recognised(tmp_path: Path, columns: dict[str, Any], expected: tuple[str, str]) -> None:
    pq.write_table(pa.table(columns), tmp_path / "x.parquet")
    line = next(iter(read_lines(tmp_path / "x.parquet")))
    assert (line.text, line.domain) == expected
    assert line.load_image().size == (60, 20)


def test_images_may_be_paths_beside_the_table_but_not_elsewhere(tmp_path: Path) -> None:
    (tmp_path / "set").mkdir()
    for place in (tmp_path / "set" / "in.png", tmp_path / "out.png"):
        place.write_bytes(png())
    table = pa.table({"image": ["in.png", "../out.png", "none.png"], "text": ["a", "b", "c"]})
    pq.write_table(table, tmp_path / "set" / "x.parquet")
    lines = read_lines(tmp_path / "set" / "x.parquet")
    assert [line.text for line in lines] == ["a"]
    assert ["outside" in one.reason or "not exist" in one.reason for one in lines.skipped] == [True, True]


def test_an_empty_image_or_an_empty_row_is_skipped_with_its_number(tmp_path: Path) -> None:
    pq.write_table(pa.table({"image": [png(), None], "text": ["a", "b"]}), tmp_path / "x.parquet")
    lines = read_lines(tmp_path / "x.parquet")
    assert [line.text for line in lines] == ["a"]
    assert str(lines.skipped[0]) == "x.parquet:2: the image is empty"
    pq.write_table(pa.table({"text": ["a", None]}), tmp_path / "y.parquet")
    lines = read_lines(tmp_path / "y.parquet")
    assert [line.text for line in lines] == ["a"]
    assert lines.skipped_count == 1


def test_a_broken_table_does_not_hinder_the_others(tmp_path: Path) -> None:
    write_parquet(example(), tmp_path / "a.parquet")
    (tmp_path / "b.parquet").write_bytes(b"PAR1 broken")
    (tmp_path / "c.parquet").write_bytes(b"")
    lines = read_lines(tmp_path)
    assert len(list(lines)) == 3
    assert [one.source for one in lines.skipped] == ["b.parquet", "c.parquet"]


def test_text_can_be_read_without_touching_images(tmp_path: Path) -> None:
    write_parquet(example(), tmp_path / "a.parquet")
    lines = list(read_lines(tmp_path / "a.parquet").texts())
    assert [line.text for line in lines] == ["γραμμή 0", "γραμμή 1", "γραμμή 2"]
    assert all(line.image is None for line in lines)


def test_lines_cut_from_pages_are_stored_as_images_and_broken_ones_listed(tmp_path: Path) -> None:
    xml_pages.write_example(tmp_path / "in", "page2013")
    lines = read_lines(tmp_path / "in")
    assert write_parquet(lines, tmp_path / "x.parquet") == 3
    assert [line.load_image().size for line in read_lines(tmp_path / "x.parquet")] == [(361, 41)] * 3
    broken = LineSet.of([*example(1), Line("no", "x", image=tmp_path / "missing.png", source="here")])
    assert write_parquet(broken, tmp_path / "y.parquet") == 1
    assert [one.source for one in broken.skipped] == ["here"]


def test_further_columns_of_different_types_are_kept_as_text(tmp_path: Path) -> None:
    lines = [Line("1", "a", extra={"x": 1, "y": None}), Line("2", "b", extra={"x": "two", "z": 0.5})]
    write_parquet(lines, tmp_path / "x.parquet")
    assert [dict(line.extra) for line in read_lines(tmp_path / "x.parquet")] == [
        {"x": "1", "y": None, "z": None},
        {"x": "two", "y": None, "z": 0.5},
    ]


@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.lists(
        st.tuples(
            st.none() | st.text(st.characters(exclude_categories=["Cs"]), max_size=20),
            st.none() | st.text("abc", min_size=1, max_size=3),
            st.dictionaries(st.sampled_from(["a", "b"]), st.integers(-5, 5) | st.floats(0, 1) | st.text(max_size=3)),
        ),
        min_size=1,
        max_size=8,
    )
)
def test_any_text_and_columns_survive(tmp_path: Path, rows: Any) -> None:
    lines = [Line(str(place), text, domain, png(), extra=extra) for place, (text, domain, extra) in enumerate(rows)]
    write_parquet(lines, tmp_path / "any.parquet")
    again = list(read_lines(tmp_path / "any.parquet"))
    assert [(line.text, line.domain) for line in again] == [(line.text, line.domain) for line in lines]
    for line, old in zip(again, lines, strict=True):
        assert set(old.extra) <= set(line.extra)


def test_further_columns_of_any_type_keep_it(tmp_path: Path) -> None:
    columns = {
        "text": ["a", "b", "c"],
        "tags": [["x"], [], ["y", "z"]],
        "meta": [{"k": 1}, {"k": None}, {"k": 2}],
        "price": [Decimal("1.50"), Decimal("10.25"), None],
    }
    pq.write_table(pa.table(columns), tmp_path / "a.parquet")
    write_parquet(read_lines(tmp_path / "a.parquet"), tmp_path / "b.parquet")
    assert pq.read_table(tmp_path / "b.parquet").select(list(columns)).to_pydict() == columns


def test_values_that_share_no_type_become_json(tmp_path: Path) -> None:
    lines = [Line(str(place), "a", extra={"x": value}) for place, value in enumerate([[1], {"é": "b"}, {}, "s", 2**70])]
    write_parquet(lines, tmp_path / "a.parquet")
    found = [line.extra["x"] for line in read_lines(tmp_path / "a.parquet")]
    assert found == ["[1]", '{"é": "b"}', "{}", "s", str(2**70)]


def test_a_split_from_before_is_not_left_beside_the_new_ones(tmp_path: Path) -> None:
    write_parquet([Line("1", "a", extra={"split": "test"})], tmp_path / "out")
    with pytest.raises(FadaError, match=r"test\.parquet.*remove it"):
        write_parquet([Line("2", "b")], tmp_path / "out")
    write_parquet([Line("3", "c", extra={"split": "test"})], tmp_path / "out")
    assert [line.id for line in read_lines(tmp_path / "out")] == ["3"]


def test_a_value_that_cannot_be_read_costs_its_row_only(tmp_path: Path) -> None:
    texts = pa.array([b"ok", b"caf\xe9", b"far", b"end"], pa.binary()).view(pa.string())
    days = pa.array([0, 0, -800_000 * 365, 0], pa.int32()).cast(pa.date32())
    pq.write_table(pa.table({"text": texts, "day": days}), tmp_path / "x.parquet")
    lines = read_lines(tmp_path / "x.parquet")
    assert [line.text for line in lines] == ["ok", "end"]
    assert [one.source for one in lines.skipped] == ["x.parquet:2", "x.parquet:3"]


@pytest.mark.parametrize("said", ["[1]", '{"info": [1]}', '{"info": {"features": [1]}}', "1", "{", '{"info": 3}'])
def test_strange_metadata_hinder_nothing(tmp_path: Path, said: str) -> None:
    pq.write_table(pa.table({"text": ["a"]}).replace_schema_metadata({"huggingface": said}), tmp_path / "x.parquet")
    assert [line.text for line in read_lines(tmp_path / "x.parquet")] == ["a"]


def test_a_line_that_cannot_be_written_is_listed_and_the_others_are_written(tmp_path: Path) -> None:
    lines = LineSet.of([Line("1", "a"), Line("2", "x\ud800"), Line("3", "b", extra={"n": ["\ud800"]}), Line("4", "c")])
    assert write_parquet(lines, tmp_path / "x.parquet") == 2
    assert [one.source for one in lines.skipped] == ["2", "3"]
    assert [line.id for line in read_lines(tmp_path / "x.parquet")] == ["1", "4"]
