"""Bodies of text as (domain, text) pairs: real files in every format."""

import io
import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fada.data.formats import text as corpus
from fada.data.source import read_lines
from fada.errors import FadaError
from fada.targets.counts import Corpus
from fada.targets.target_set import TargetSet
from tests.support import xml_pages
from tests.support.commands import run_fada


def write(path: Path, content: str | bytes) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content if isinstance(content, bytes) else content.encode("utf-8"))
    return path


def pairs(*sources: str | Path, **options: Any) -> list[tuple[str, str]]:
    return list(Corpus(sources, **options))


@pytest.fixture
def letters(tmp_path: Path) -> Path:
    write(tmp_path / "letters/13/a.txt", "one\r\ntwo\n")
    write(tmp_path / "letters/13/deep/b.txt", "three")
    write(tmp_path / "letters/14/c.gt.txt", "\ufefffour\rfive")
    write(tmp_path / "letters/README.md", "not text of the corpus")
    write(tmp_path / "letters/14/page.png", b"\x89PNG")
    return tmp_path / "letters"


def test_the_domain_is_the_folder_below_the_one_named(letters: Path) -> None:
    expected = [("13", "one"), ("13", "two"), ("13", "three"), ("14", "four"), ("14", "five")]
    assert pairs(letters) == expected
    assert pairs(letters / "13", letters / "14")[0] == ("13", "one")


def test_the_domain_of_a_file_or_pattern_is_its_folder(letters: Path) -> None:
    assert pairs(letters / "13/a.txt") == [("13", "one"), ("13", "two")]
    assert {domain for domain, _ in pairs(letters / "*/*.txt")} == {"13", "14"}
    assert ("deep", "three") in pairs(letters / "**/*.txt")


def test_the_domain_can_be_the_file_name_or_a_pattern_in_the_path(letters: Path) -> None:
    assert {domain for domain, _ in pairs(letters, domain_from="file")} == {"a", "b", "c"}
    assert pairs(letters / "13/a.txt", domain_from=r"/letters/1(\d)/")[0][0] == "3"
    assert pairs(letters / "13/a.txt", domain="all")[0][0] == "all"
    with pytest.raises(FadaError, match="gives no domain"):
        pairs(letters, domain_from=r"/letters/(15)/")
    with pytest.raises(FadaError, match="regular expression"):
        pairs(letters, domain_from="(")


def test_pages_are_read_once_and_what_is_left_out_is_told(tmp_path: Path) -> None:
    xml_pages.write_example(tmp_path / "ms/page", "page2013")
    xml_pages.write_example(tmp_path / "ms/alto", "alto4")
    write(tmp_path / "ms/mets.xml", "<mets/>")
    (tmp_path / "ms/page/page.png").rename(tmp_path / "ms/page.png")
    (tmp_path / "ms/alto/page.png").unlink()
    body = Corpus([tmp_path / "ms"])
    assert list(body) == [("ms", "en france"), ("ms", "a saint denis")]
    assert ["same page" in note or "neither ALTO nor PAGE" in note for note in body.notes] == [True, True]
    (tmp_path / "ms/page.png").unlink()
    assert len(pairs(tmp_path / "ms")) == 2, "also without its image"
    write(tmp_path / "ms/text.txt", "text")
    body = Corpus([tmp_path / "ms"])
    assert list(body) == [("ms", "text")], "text files win"
    assert "3 XML files beside text files" in body.notes[0]


def test_a_file_named_twice_is_read_once(letters: Path) -> None:
    assert len(pairs(letters / "13/a.txt", letters / "13/*.txt")) == 2


@pytest.mark.parametrize("suffix", ["csv", "tsv", "jsonl", "parquet"])
def test_tables_give_their_text_and_domain_columns(tmp_path: Path, suffix: str) -> None:
    rows = [{"line": 'one, "two"', "century": 13}, {"line": "vier; fünf", "century": 14}]
    if suffix != "tsv":  # which has a row a line
        rows += [{"line": "sechs\nsieben\tacht", "century": 14}]
    path = tmp_path / f"table.{suffix}"
    if suffix == "parquet":
        pq.write_table(pa.Table.from_pylist([{**row, "image": b"x"} for row in rows]), path)
    elif suffix == "jsonl":
        write(path, "\n".join(json.dumps(row) for row in rows) + "\n\n")
    else:
        import csv

        with path.open("w", encoding="utf-8", newline="") as file:
            writer = csv.DictWriter(file, ["line", "century"], delimiter="\t" if suffix == "tsv" else ",")
            writer.writeheader()
            writer.writerows(rows)
    found = pairs(path, text_column="line", domain_column="century")
    assert found == [(str(row["century"]), row["line"]) for row in rows]
    assert {domain for domain, _ in pairs(path, text_column="line", domain="x")} == {"x"}
    assert pairs(path, text_column="line") == found
    with pytest.raises(FadaError, match=r"no column 'text', found: line, century.*--text-column"):
        pairs(path)
    with pytest.raises(FadaError, match=r"no column 'region'.*--domain-column"):
        pairs(path, text_column="line", domain_column="region")


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("t.tsv", 'domain\ttext\n13\t"open\n'),
        ("t.csv", 'domain;text\n13;"""open"\n'),
        ("t.csv", '"domain";"text, or not"\n13;"""open"\n'),
    ],
)
def test_tables_are_read_like_manifests(tmp_path: Path, name: str, content: str) -> None:
    column = "text, or not" if "or not" in content else "text"
    assert pairs(write(tmp_path / name, content), text_column=column) == [("13", '"open')]


def test_a_column_called_domain_is_used_by_itself(tmp_path: Path) -> None:
    assert pairs(write(tmp_path / "t.csv", "domain,text\n13,a\n")) == [("13", "a")]


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("t.csv", "domain,text\n13,a\n14\n", "line 3: 1 cells, expected 2"),
        ("t.csv", 'domain,text\n13,"open\n14,b\n', "quotation mark"),
        ("t.csv", "", "empty, expected a header line"),
        ("t.csv", "domain,text\n,a\n", "text 1 has no domain, as its column is empty"),
        ("t.jsonl", '{"text": "a", "domain": "x"}\n{"text": \n', "line 2: not JSON"),
        ("t.jsonl", "[1]\n", "line 1: expected a JSON object"),
        ("t.jsonl", '{"text": null, "domain": "x"}\n', "line 1: column 'text' is missing its value"),
        ("t.jsonl", '{"text": 3, "domain": "x"}\n', "line 1: column 'text' holds 3"),
        ("t.parquet", "no parquet", "not a parquet file"),
        ("t.html", "<a/>", "more than text"),
        ("t.xml", "<a/>", "neither ALTO nor PAGE"),
    ],
)
def test_a_broken_table_is_refused_with_its_line(tmp_path: Path, name: str, content: str, message: str) -> None:
    with pytest.raises(FadaError, match=message) as caught:
        pairs(write(tmp_path / name, content))
    assert name in str(caught.value)


@pytest.mark.parametrize("before", [0, 7, 3000])
def test_invalid_utf8_is_reported_with_file_and_offset(
    tmp_path: Path, before: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(corpus, "BLOCK", 64)
    path = write(tmp_path / "t.txt", b"x" * before + "é".encode() + b"\xe9 b\n")
    with pytest.raises(FadaError, match=rf"t.txt, byte {before + 2}: invalid UTF-8 \(byte 0xE9.*--encoding latin-1"):
        pairs(path)
    assert pairs(path, encoding="latin-1", domain="x") == [("x", "x" * before + "Ã©é b")]


@pytest.mark.parametrize(
    ("name", "row"), [("t.csv", "domain,text\n13,caf\xe9\n"), ("t.jsonl", '\n{"text": "caf\xe9"}\n')]
)
def test_a_row_in_another_encoding_is_reported_with_its_line(tmp_path: Path, name: str, row: str) -> None:
    path = write(tmp_path / name, row.encode("latin-1"))
    with pytest.raises(FadaError, match=rf"{name}, line 2: not UTF-8.*--encoding latin-1"):
        pairs(path)
    assert pairs(path, encoding="latin-1", domain="x") == [("x", "café")]


def test_a_file_that_ends_within_a_character_is_reported(tmp_path: Path) -> None:
    with pytest.raises(FadaError, match="byte 1: invalid UTF-8"):
        pairs(write(tmp_path / "t.txt", b"a\xc3"))
    assert pairs(write(tmp_path / "u.txt", "abc".encode("utf-16")), domain="x") == [("x", "abc")]


@given(st.text(st.sampled_from("aé漢🙂\n\r"), max_size=60), st.integers(1, 9))
@settings(max_examples=150, deadline=None)
def test_blocks_do_not_change_the_lines(text: str, block: int) -> None:
    before, corpus.BLOCK = corpus.BLOCK, block
    try:
        found = list(corpus.stream_lines(io.BytesIO(text.encode("utf-8")), "t"))
    finally:
        corpus.BLOCK = before
    expected = text.replace("\r\n", "\n").replace("\r", "\n").split("\n")
    assert found == (expected[:-1] if expected[-1] == "" else expected)


def test_a_file_without_line_ends_comes_in_pieces_and_loses_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(corpus, "BLOCK", 50)
    text = "word " * 100
    pieces = [piece for _, piece in pairs(write(tmp_path / "t.txt", text))]
    assert "".join(pieces) == text
    assert max(map(len, pieces)) < 150


def test_standard_input_needs_a_domain(monkeypatch: pytest.MonkeyPatch) -> None:
    def give(content: bytes) -> None:
        monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(content)))

    give("één\ntwee\n".encode())
    assert pairs("-", domain="nl") == [("nl", "één"), ("nl", "twee")]
    give(b"a\n")
    with pytest.raises(FadaError, match="--domain"):
        pairs("-")
    give(b"a\xff")
    with pytest.raises(FadaError, match="standard input, byte 1"):
        pairs("-", domain="x")


def test_missing_sources_are_refused(tmp_path: Path) -> None:
    with pytest.raises(FadaError, match="no such file or folder"):
        pairs(tmp_path / "nothing")
    with pytest.raises(FadaError, match="no file matches"):
        pairs(tmp_path / "*.txt")
    with pytest.raises(FadaError, match="without text files or tables"):
        pairs(tmp_path)


def test_progress_reaches_the_size_of_the_files(letters: Path) -> None:
    seen: list[int] = []
    body = Corpus([letters], on_bytes=seen.append)
    list(body)
    assert sum(seen) == sum(file.size for file in body.files())


@pytest.mark.parametrize("suffix", ["csv", "jsonl", "parquet"])
@pytest.mark.parametrize("column", ["domain", "Century", "hand"])
@pytest.mark.parametrize("values", [[13, 14], [13.0, 14.5], ["13", " 14th "]])
def test_domains_are_called_as_in_lines(tmp_path: Path, suffix: str, column: str, values: list[object]) -> None:
    rows = [{"text": "a", column: value} for value in values]
    path = tmp_path / f"table.{suffix}"
    if suffix == "parquet":
        pq.write_table(pa.Table.from_pylist(rows), path)
    elif suffix == "jsonl":
        write(path, "\n".join(map(json.dumps, rows)))
    else:
        write(path, "\n".join([f"text,{column}", *(f"a,{value}" for value in values)]))
    options = {"domain_column": column} if column == "hand" else {}
    targets = tmp_path / "targets.json"
    command = ["targets", "build", str(path), "-o", str(targets)]
    command += ["--domain-column", column] if options else []
    run_fada(*command)
    names = sorted({str(line.domain) for line in read_lines(path, **options)})
    assert sorted(TargetSet.load(targets).domains) == names
    if suffix != "csv":
        assert names[0] == "13"


def test_labels_are_called_as_in_lines(tmp_path: Path) -> None:
    features = {"domain": {"names": ["old", "new"], "_type": "ClassLabel"}}
    schema = pa.schema(
        [("text", pa.string()), ("domain", pa.int64())],
        metadata={"huggingface": json.dumps({"info": {"features": features}})},
    )
    pq.write_table(pa.Table.from_pylist([{"text": "a", "domain": 1}], schema=schema), tmp_path / "t.parquet")
    assert pairs(tmp_path / "t.parquet") == [("new", "a")]
    assert [line.domain for line in read_lines(tmp_path / "t.parquet")] == ["new"]


def test_a_link_out_of_the_folder_has_the_domain_of_its_place(tmp_path: Path) -> None:
    (tmp_path / "elsewhere.txt").write_text("text", encoding="utf-8")
    (tmp_path / "texts" / "13").mkdir(parents=True)
    (tmp_path / "texts" / "13" / "linked.txt").symlink_to(tmp_path / "elsewhere.txt")
    assert pairs(tmp_path / "texts") == [("13", "text")]


def counts(path: Path) -> dict[str, float]:
    p = TargetSet.load(path).overall
    return {symbol: count for symbol, count in zip(p.symbols, p.counts.tolist(), strict=True) if count}


def test_targets_of_divided_lines_are_counted_on_those_to_train_on_and_it_is_said(tmp_path: Path) -> None:
    data = tmp_path / "data"
    data.mkdir()
    for split, text in (("train", "a"), ("validation", "b"), ("test", "c")):
        (data / f"{split}.csv").write_text(f"text,domain\n{text},13\n", encoding="utf-8")
    out = tmp_path / "targets.json"
    done = run_fada("targets", "build", data, "-o", out)
    assert counts(out) == {"a": 1}
    assert "texts of validation and test; --split all" in done.output
    run_fada("targets", "build", data, "-o", out, "--split", "all")
    assert counts(out) == {"a": 1, "b": 1, "c": 1}
    run_fada("targets", "build", data, "-o", out, "--split", "test")
    assert counts(out) == {"c": 1}
    run_fada("targets", "build", data / "test.csv", "-o", out)  # a file that is named is counted
    assert counts(out) == {"c": 1}


def test_a_column_of_splits_is_followed_as_well(tmp_path: Path) -> None:
    table, out = tmp_path / "lines.csv", tmp_path / "targets.json"
    table.write_text("text,domain,split\na,13,train\nb,13,dev\nc,13,test\nd,13,\n", encoding="utf-8")
    run_fada("targets", "build", table, "-o", out)
    assert counts(out) == {"a": 1, "d": 1}
    run_fada("targets", "build", table, "-o", out, "--split", "validation")
    assert counts(out) == {"b": 1}


@pytest.mark.parametrize("how", ["command", "hand", "broken"])
def test_an_edited_target_file_is_not_replaced_without_being_asked(how: str, tmp_path: Path) -> None:
    (tmp_path / "text.txt").write_text("aabb", encoding="utf-8")
    out = tmp_path / "targets.json"
    run_fada("targets", "build", tmp_path / "text.txt", "-o", out)
    run_fada("targets", "build", tmp_path / "text.txt", "-o", out)  # as it was counted, it may be counted anew
    if how == "command":
        run_fada("targets", "edit", out, "--set", "a=0")
    else:
        new = '"a": 0' if how == "hand" else '"a": '
        out.write_text(out.read_text(encoding="utf-8").replace('"a": 2', new), encoding="utf-8")
    before = out.read_bytes()
    with pytest.raises(FadaError, match="--overwrite"):
        run_fada("targets", "build", tmp_path / "text.txt", "-o", out)
    assert out.read_bytes() == before
    run_fada("targets", "build", tmp_path / "text.txt", "-o", out, "--overwrite")
    assert counts(out) == {"a": 2, "b": 2}
