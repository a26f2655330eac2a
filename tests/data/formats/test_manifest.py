"""CSV, TSV and JSONL manifests."""

import csv
import io
import json
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from PIL import Image

from fada.common.tables import delimited_rows
from fada.data.line import Transcription
from fada.data.source import read_lines
from fada.data.write import write_transcriptions
from fada.errors import FadaError


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder `set` with an image and a sound, and an image beside it that is out of bounds."""
    (tmp_path / "set" / "img").mkdir(parents=True)
    Image.new("L", (60, 20), 200).save(tmp_path / "set" / "img" / "1.png")
    Image.new("L", (60, 20), 200).save(tmp_path / "secret.png")
    (tmp_path / "set" / "1.wav").write_bytes(b"RIFF")
    return tmp_path / "set"


def write(folder: Path, name: str, content: str | bytes, encoding: str = "utf-8") -> Any:
    (folder / name).write_bytes(content.encode(encoding) if isinstance(content, str) else content)
    return folder / name


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("m.csv", "image,text,century,hand\nimg/1.png,αβγ,13,A\n"),
        ("m.csv", "\ufeffimage;text;century;hand\r\nimg/1.png;αβγ;13;A\r\n"),
        ("m.csv", '"image","text","century","hand"\n"img/1.png","αβγ","13","A"\n'),
        ("m.tsv", "image\ttext\tcentury\thand\nimg/1.png\tαβγ\t13\tA\n"),
        ("m.jsonl", '{"image": "img/1.png", "text": "αβγ", "century": 13, "hand": "A"}\n\n'),
        ("m.csv", "file_name,transcription,domain,hand\nimg/1.png,αβγ,13,A\n"),
        ("m.csv", "image,text,century,hand\nimg\\1.png,αβγ,13,A\n"),
    ],
)
def test_rows_become_lines_with_paths_relative_to_the_manifest(folder: Path, name: str, content: str) -> None:
    line = next(iter(read_lines(write(folder, name, content))))
    assert (line.text, line.domain, line.extra["hand"]) == ("αβγ", "13", "A")
    assert line.load_image().size == (60, 20)
    assert line.source.startswith(f"{name}:")


def test_utf16_with_a_mark_is_recognised(folder: Path) -> None:
    path = write(folder, "m.csv", "image,text\nimg/1.png,αβγ\n", "utf-16")
    assert [line.text for line in read_lines(path)] == ["αβγ"]


def test_a_table_without_header_is_file_text_domain(folder: Path) -> None:
    lines = list(read_lines(write(folder, "m.tsv", "img/1.png\tαβγ\t13\n1.wav\thello\tus\n")))
    assert [(line.text, line.domain) for line in lines] == [("αβγ", "13"), ("hello", "us")]
    assert lines[0].image is not None
    assert lines[1].audio is not None


def test_columns_can_be_named(folder: Path) -> None:
    path = write(folder, "m.csv", "scan,reading,when,no\nimg/1.png,αβγ,1650,7\n")
    options = {"image_column": "scan", "text_column": "reading", "domain_column": "when", "id_column": "no"}
    line = next(iter(read_lines(path, **options)))
    assert (line.id, line.text, line.domain) == ("7", "αβγ", "1650")
    with pytest.raises(FadaError, match=r"no column 'txt'.*scan, reading"):
        list(read_lines(path, text_column="txt"))


def test_splits_in_a_column_can_be_chosen(folder: Path) -> None:
    path = write(folder, "m.csv", "text,split\na,train\nb,dev\nc,test\n")
    assert [(line.text, line.split) for line in read_lines(path)] == [
        ("a", "train"),
        ("b", "validation"),
        ("c", "test"),
    ]
    assert [line.text for line in read_lines(path, split="validation")] == ["b"]


def test_a_missing_image_skips_its_row_only(folder: Path) -> None:
    lines = read_lines(write(folder, "m.csv", "image,text\nimg/0.png,a\nimg/1.png,b\n"))
    assert [line.text for line in lines] == ["b"]
    assert str(lines.skipped[0]) == "m.csv:2: the file img/0.png does not exist"
    assert [line.text for line in lines.texts()] == ["a", "b"]


@pytest.mark.parametrize("path", ["../secret.png", "img/../../secret.png", "{parent}/secret.png"])
def test_a_path_out_of_the_folder_is_refused_unless_allowed(folder: Path, path: str) -> None:
    manifest = write(folder, "m.csv", f"image,text\n{path.format(parent=folder.parent)},a\nimg/1.png,b\n")
    lines = read_lines(manifest)
    assert [line.text for line in lines] == ["b"]
    assert "outside" in lines.skipped[0].reason
    assert len(list(read_lines(manifest, allow_outside=True))) == 2
    assert len(list(read_lines(manifest, base=folder.parent))) == 2


def test_a_path_through_a_link_is_taken_as_the_file_system_takes_it(folder: Path) -> None:
    (folder.parent / "other" / "deep").mkdir(parents=True)
    (folder / "away").symlink_to(folder.parent / "other")
    (folder / "sub" / "deep").mkdir(parents=True)
    (folder / "near").symlink_to(folder / "sub" / "deep")
    (folder / "sub" / "2.png").write_bytes((folder / "img" / "1.png").read_bytes())
    rows = ["away/../secret.png,a", "away/../img/1.png,b", "near/../2.png,c", "img/../img/1.png,d"]
    lines = read_lines(write(folder, "m.csv", "\n".join(["image,text", *rows])))
    found = {line.text: line.image for line in lines}
    assert found == {"c": str(folder / "sub" / "2.png"), "d": str(folder / "img" / "1.png")}
    assert ["outside" in one.reason for one in lines.skipped] == [True, True]


def test_a_manifest_that_is_a_link_out_of_the_folder_is_read_only_if_it_is_named(folder: Path) -> None:
    (folder.parent / "outside.csv").write_text("text\nsecret\n", encoding="utf-8")
    (folder / "m.csv").symlink_to(folder.parent / "outside.csv")
    lines = read_lines(folder)
    assert list(lines) == []
    assert "link" in lines.skipped[0].reason
    assert len(list(read_lines(folder, allow_outside=True))) == 1
    assert len(list(read_lines(folder / "m.csv"))) == 1


def test_a_row_in_another_encoding_is_skipped_and_the_encoding_can_be_named(folder: Path) -> None:
    content = "text\nplain\ncafé\nend\n".encode("latin-1")
    path = write(folder, "m.csv", content)
    lines = read_lines(path)
    assert [line.text for line in lines] == ["plain", "end"]
    assert "not UTF-8" in lines.skipped[0].reason
    assert [line.text for line in read_lines(path, encoding="latin-1")] == ["plain", "café", "end"]
    with pytest.raises(FadaError, match="klingon"):
        list(read_lines(path, encoding="klingon"))


def test_broken_json_is_skipped_with_its_line(folder: Path) -> None:
    lines = read_lines(write(folder, "m.jsonl", '{"text": "a"}\n{broken\n[1]\n{"text": "b", "id": "x"}\n'))
    assert [line.text for line in lines] == ["a", "b"]
    assert [one.source for one in lines.skipped] == ["m.jsonl:2", "m.jsonl:3"]


def test_too_many_cells_are_told_and_too_few_are_none(folder: Path) -> None:
    lines = read_lines(write(folder, "m.csv", "text,domain\na,b,c\nd\n"))
    assert [(line.text, line.domain) for line in lines] == [("d", None)]
    assert "3 cells, expected 2" in lines.skipped[0].reason


def test_an_empty_manifest_is_told(folder: Path) -> None:
    for content in ("", "image,text\n"):
        lines = read_lines(write(folder, "m.csv", content))
        assert list(lines) == []
        assert lines.skipped_count == 1


def test_an_empty_transcription_is_kept_as_empty_and_a_missing_one_as_none(folder: Path) -> None:
    path = write(folder, "m.jsonl", '{"image": "img/1.png", "text": ""}\n{"image": "img/1.png"}\n')
    assert [line.text for line in read_lines(path)] == ["", None]


@pytest.mark.parametrize(
    "text",
    ["שלום עולם", "e\u0301\u0323", "\ue5d0\uf1ac", "x" * 5000, ' lead and "trail" ', "\u2028\u0085\x0b line ends"],
)
@pytest.mark.parametrize("ending", ["csv", "tsv", "jsonl"])
def test_text_is_kept_as_it_is(folder: Path, text: str, ending: str) -> None:
    if ending == "jsonl":
        content = json.dumps({"text": text, "n": 1})
    elif ending == "csv":
        quoted = text.replace('"', '""')
        content = f'text,n\n"{quoted}",1\n'
    else:
        content = f"text\tn\n{text}\t1\n"
    assert [line.text for line in read_lines(write(folder, f"m.{ending}", content))] == [text]


def test_a_lone_quotation_mark_in_tsv_swallows_nothing(folder: Path) -> None:
    path = write(folder, "m.tsv", 'text\tn\n"open\t1\nnext\t2\n"quoted ""word"""\t3\n')
    assert [line.text for line in read_lines(path)] == ['"open', "next", 'quoted "word"']


@pytest.mark.parametrize("bad", ['"open', '"open ""twice', '"closed" too early'])
def test_a_wrong_quotation_mark_in_csv_costs_its_row_only(folder: Path, bad: str) -> None:
    rows = [f"row {place}" for place in range(4000)]
    lines = read_lines(
        write(folder, "m.csv", "\n".join(["text,n", "good,1", f"{bad},2", *rows, '"two\nlines",3', "end"]))
    )
    assert [line.text for line in lines] == ["good", *rows, "two\nlines", "end"]
    assert [one.source for one in lines.skipped] == ["m.csv:3"]
    assert "quotation mark" in lines.skipped[0].reason


def test_a_quotation_mark_that_is_never_closed_is_found_at_the_end(folder: Path) -> None:
    lines = read_lines(write(folder, "m.csv", 'text,n\na,"Oh what\nb,"Ah yes\nc,three\n'))
    assert [(line.source, line.text) for line in lines] == [("m.csv:4", "c")]
    assert [one.source for one in lines.skipped] == ["m.csv:2", "m.csv:3"]


def test_the_delimiter_is_not_looked_for_inside_quotation_marks(folder: Path) -> None:
    path = write(folder, "m.csv", 'img/1.png,"x; y; z; w"\nimg/1.png,ok\n')
    assert [line.text for line in read_lines(path)] == ["x; y; z; w", "ok"]


@settings(max_examples=60, deadline=None)
@given(st.lists(st.lists(st.text('ab",;\n é', max_size=6), min_size=2, max_size=3), min_size=1, max_size=6))
def test_any_proper_csv_is_read_as_the_standard_library_reads_it(rows: Any) -> None:
    stream = io.StringIO(newline="")
    csv.writer(stream, lineterminator="\n", quoting=csv.QUOTE_ALL).writerows([["x", "y"], *rows])
    text = stream.getvalue()
    assert [cells for _, cells in delimited_rows(io.StringIO(text, newline=""), ".csv")] == [["x", "y"], *rows]


LINES = st.lists(st.tuples(st.text("abα\"',; é\u0301\ue000ש", max_size=12), st.sampled_from(["13", "14"])), min_size=1)


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(rows=LINES, ending=st.sampled_from(["tsv", "csv", "jsonl"]))
def test_what_is_written_is_read_back(tmp_path: Path, rows: Any, ending: str) -> None:
    results = [
        Transcription(f"id{place}", text, extra={"century": century}) for place, (text, century) in enumerate(rows)
    ]
    path = write_transcriptions(results, tmp_path / f"m.{ending}")[0]
    lines = read_lines(path, domain_column="century")
    assert [(line.text, line.domain) for line in lines] == rows
    assert not lines.skipped


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(content=st.binary(max_size=200), ending=st.sampled_from(["csv", "tsv", "jsonl"]))
def test_any_bytes_are_read_or_skipped(tmp_path: Path, content: bytes, ending: str) -> None:
    path = tmp_path / f"any.{ending}"
    path.write_bytes(content)
    for line in read_lines(path):
        assert line.id


def test_a_million_rows_are_read_in_constant_memory(folder: Path) -> None:
    program = """
        import resource
        from fada.data.source import read_lines

        def rows():
            yield "text,century,id\\n"
            for place in range(1_000_000):
                yield f"line number {place},{13 + place % 4},id{place}\\n"

        with open("big.csv", "w", encoding="utf-8") as file:
            file.writelines(rows())
        lines = read_lines("big.csv")
        next(iter(lines))
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        number = sum(1 for _ in lines)
        after = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        print(number, lines.skipped_count, (after - before) // 1024)
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program)], cwd=folder, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    number, skipped, megabytes = map(int, done.stdout.split())
    assert (number, skipped) == (1_000_000, 0)
    assert megabytes < 20
