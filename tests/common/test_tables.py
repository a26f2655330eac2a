"""The one reader of tables: what is damaged is told in its place, and the rest is read."""

import json
from pathlib import Path
from typing import Any, cast

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from fada.common import parquet
from fada.common.tables import Damage, open_table, read_columns, read_rows, whole
from fada.errors import FadaError
from tests.support.damage import damaged_groups


def write(path: Path, content: str | bytes) -> Path:
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


def rows_of(path: Path, **options: Any) -> Any:
    return [(number, row.kind if isinstance(row, Damage) else row) for number, row in read_rows(path, **options)]


@pytest.mark.parametrize("suffix", ["csv", "tsv", "jsonl", "parquet"])
def test_a_table_has_the_same_rows_in_every_format(tmp_path: Path, suffix: str) -> None:
    rows = [{"text": "été", "n": "1"}, {"text": 'a "b"', "n": "2"}]
    path = tmp_path / f"t.{suffix}"
    if suffix == "parquet":
        pq.write_table(pa.Table.from_pylist([{**row, "image": b"x"} for row in rows]), path)
    elif suffix == "jsonl":
        write(path, "\n".join(map(json.dumps, rows)))
    else:
        mark = "," if suffix == "csv" else "\t"
        write(path, f'text{mark}n\nété{mark}1\n"a ""b"""{mark}2\n')
    assert read_columns(path) == {"text": ["été", 'a "b"'], "n": ["1", "2"]}
    assert [cast(dict[str, Any], row)["text"] for _, row in read_rows(path, ["text"])] == ["été", 'a "b"']


def test_a_damaged_row_of_text_costs_itself_only(tmp_path: Path) -> None:
    content = b'text,n\na,1\ncaf\xe9,2\n"open,3\nb\nc,d,e\nf,6\n'
    assert rows_of(write(tmp_path / "t.csv", content)) == [
        (2, {"text": "a", "n": "1"}),
        (3, "not UTF-8"),
        (4, "not CSV"),
        (5, "wrong number of cells"),
        (6, "wrong number of cells"),
        (7, {"text": "f", "n": "6"}),
    ]
    assert rows_of(tmp_path / "t.csv", encoding="latin-1")[1] == (3, {"text": "café", "n": "2"})
    assert rows_of(tmp_path / "t.csv", ragged=True)[3] == (5, {"text": "b"})
    content = b'{"a": 1}\n{"a": 1, "a": 2}\n[1]\n{\n"caf\xe9"\n{"b": {"c": 1, "c": 2}}\n{"b": 3}\n'
    assert rows_of(write(tmp_path / "t.jsonl", content)) == [
        (1, {"a": 1}),
        (2, "key stands twice"),
        (3, "not a JSON object"),
        (4, "not JSON"),
        (5, "not UTF-8"),
        (6, "key stands twice"),
        (7, {"b": 3}),
    ]
    with pytest.raises(FadaError, match=r"t.jsonl, line 2: the key 'a' stands twice"):
        read_columns(tmp_path / "t.jsonl")


def test_a_column_that_stands_twice_is_refused(tmp_path: Path) -> None:
    with pytest.raises(FadaError, match="the column 'text' stands twice"):
        read_columns(write(tmp_path / "t.csv", "text,n,text\na,1,b\n"))
    table = pa.table([pa.array(["a"]), pa.array(["b"])], names=["text", "text"])
    pq.write_table(table, tmp_path / "t.parquet")
    with pytest.raises(FadaError, match="the column 'text' stands twice"):
        read_columns(tmp_path / "t.parquet")


def test_a_first_row_that_is_no_header_gets_names(tmp_path: Path) -> None:
    path = write(tmp_path / "t.csv", "a,1\nb,2\n")
    assert read_columns(path, headerless=lambda cells: ["x", "y"]) == {"x": ["a", "b"], "y": ["1", "2"]}


def test_utf_16_is_read_and_a_cut_off_end_is_told(tmp_path: Path) -> None:
    data = "text,n\naé,1\nb,2\n".encode("utf-16")
    assert read_columns(write(tmp_path / "t.csv", data)) == {"text": ["aé", "b"], "n": ["1", "2"]}
    assert rows_of(write(tmp_path / "t.csv", data[:-1]))[-1][1] == "not decodable"


@pytest.mark.parametrize("bad", [[0], [3], [5], [1, 2], [0, 5]])
def test_a_damaged_row_group_costs_its_own_rows_only(tmp_path: Path, bad: list[int]) -> None:
    path = damaged_groups(tmp_path / "t.parquet", 6, bad)
    found = list(read_rows(path))
    read = {row["n"]: number for number, row in found if isinstance(row, dict)}
    assert read == {n: n + 1 for n in range(60) if n // 10 not in bad}
    assert [(number, row.rows) for number, row in found if isinstance(row, Damage)] == [
        (10 * group + 1, 10) for group in bad
    ]
    with pytest.raises(FadaError, match=rf"t.parquet, row {10 * bad[0] + 1}: 10 rows"):
        list(whole(path, read_rows(path)))


def test_a_table_of_the_wrong_kind_is_refused_with_its_name(tmp_path: Path) -> None:
    for name in ("t.parquet", "t.arrow"):
        with pytest.raises(FadaError, match=f"{name}: not a readable"), open_table(write(tmp_path / name, b"nothing")):
            pass
    with pytest.raises(FadaError, match=r"no.csv: cannot be read"), open_table(tmp_path / "no.csv"):
        pass
    with pytest.raises(FadaError, match="klingon"):
        read_columns(write(tmp_path / "t.csv", "a\n"), encoding="klingon")


def bomb(path: Path, values: Any, indices: Any = (0,), **options: Any) -> Path:
    column = pa.DictionaryArray.from_arrays(pa.array(indices, pa.int32()), values)
    options = {"dictionary_pagesize_limit": 2**30, **options}
    pq.write_table(pa.table({"text": column}), path, compression="brotli", write_statistics=False, **options)
    return path


def test_a_parquet_file_of_some_hundred_bytes_that_unpacks_to_gigabytes_is_refused(tmp_path: Path) -> None:
    repeated = bomb(tmp_path / "t.parquet", ["a" * 24_000_000], [0] * 3000)
    assert repeated.stat().st_size < 1000
    with pytest.raises(FadaError, match=r"bytes that unpack to 3,072,000,\d+ in one column; not read"):
        list(read_rows(repeated))
    [(_, row)] = read_rows(bomb(tmp_path / "one.parquet", ["a" * 24_000_000]))
    assert len(cast(dict[str, Any], row)["text"]) == 24_000_000


def test_a_parquet_file_that_goes_on_unpacking_is_read_in_small_batches_and_not_to_its_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(parquet, "BOMB_BYTES", 2**22)
    monkeypatch.setattr(parquet, "BATCH_BYTES", 2**19)
    path = bomb(tmp_path / "t.parquet", ["a" * 30_000], [0] * 2000)  # 60 million characters
    assert parquet.refuse_bomb(path, 128, [False]) == 2**19 // 30_004
    rows = list(read_rows(path))
    lost = cast(Damage, rows[-1][1])
    assert 2**22 < 30_000 * (len(rows) - 1) < 2**22 + 2**19
    assert lost.rows == 2000 - (len(rows) - 1)
    assert "rows from here on are not read" in lost.reason


def test_every_page_of_a_long_column_is_looked_at(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The bomb is the last page of a column of two megabytes whose metadata claim less than it unpacks to."""
    monkeypatch.setattr(parquet, "BOMB_BYTES", 2**22)
    monkeypatch.setattr(parquet, "BOMB_RATIO", 1)
    noise = np.random.default_rng(0).integers(33, 127, (200, 10_000)).astype("u1")
    texts = [row.tobytes().decode() for row in noise] + ["a" * 20_000_000]
    path = tmp_path / "t.parquet"
    options = {"use_dictionary": False, "write_statistics": False, "data_page_size": 2**16, "write_batch_size": 8}
    pq.write_table(pa.table({"text": texts}), path, compression="zstd", **options)
    column = pq.read_metadata(path).row_group(0).column(0)
    assert column.total_compressed_size > 2**20
    with path.open("rb") as file:
        pages = list(parquet._pages(file, {7: column.total_compressed_size, 9: column.data_page_offset}))
    assert sum(page[5][1] for page in pages) == len(texts)
    assert len(pages) > 20
    with pytest.raises(FadaError, match=r"bytes that unpack to 2\d,\d+,\d+ in one column; not read"):
        list(read_rows(path))
    monkeypatch.setattr(parquet, "PAGES", 10)
    with pytest.raises(FadaError, match="a column of more than 10 pages in one row group; not read"):
        list(read_rows(path))


def test_what_a_parquet_file_was_written_with_is_read_without_arrow(tmp_path: Path) -> None:
    table = pa.table({"a": ["x"]}).replace_schema_metadata({"fada": "é", "empty": ""})
    pq.write_table(table, tmp_path / "t.parquet")
    stored = parquet.stored_metadata(tmp_path / "t.parquet")
    assert {key: stored[key] for key in stored if key != b"ARROW:schema"} == pq.read_schema(
        tmp_path / "t.parquet"
    ).metadata
    data = (tmp_path / "t.parquet").read_bytes()
    for damaged in (b"", b"PAR1", data[:-1], data[:-8] + b"\xff\xff\xff\x7fPAR1", data[:40] + data[-8:]):
        (tmp_path / "bad.parquet").write_bytes(damaged)
        with pytest.raises(FadaError, match="footer is damaged"):
            parquet.stored_metadata(tmp_path / "bad.parquet")


def test_parquet_values_that_begin_alike_are_refused_by_what_they_unpack_to(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(parquet, "BATCH_BYTES", 2**17)
    path = tmp_path / "t.parquet"
    options = {"column_encoding": {"text": "DELTA_BYTE_ARRAY"}, "use_dictionary": False, "write_statistics": False}
    pq.write_table(pa.table({"text": ["a" * 200_000] * 60}), path, compression="brotli", **options)
    with pytest.raises(FadaError, match=r"bytes that unpack to 12,\d+,\d+ in one column; not read"):
        list(read_rows(path))


def test_a_parquet_file_of_few_bytes_may_not_hold_millions_of_values_in_a_row(tmp_path: Path) -> None:
    path = tmp_path / "t.parquet"
    values = pa.ListArray.from_arrays([0, 5_000_000], pa.repeat(1, 5_000_000))
    pq.write_table(pa.table({"a": values}), path, compression="brotli", data_page_size=2**30)
    with pytest.raises(FadaError, match="bytes that claim 5,000,000 values in one column; not read"):
        list(read_rows(path))


def test_damaged_statistics_in_a_parquet_footer_end_in_a_sentence(tmp_path: Path) -> None:
    """Arrow ends the process when it is asked for such a column's metadata."""
    pq.write_table(pa.table({"a": ["x"], "b": ["y"]}), tmp_path / "t.parquet")
    sound = (tmp_path / "t.parquet").read_bytes()
    optional = b"\x15\x0c\x25\x02\x18\x01b"  # the type, repetition and name of column b in the schema
    assert sound.count(optional) == 1
    path = write(tmp_path / "required.parquet", sound.replace(optional, b"\x15\x0c\x25\x00\x18\x01b"))
    assert rows_of(path) == [(1, "rows cannot be read")]


@pytest.mark.parametrize("version", ["1.0", "2.6"])
@pytest.mark.parametrize("page", ["1.0", "2.0"])
@pytest.mark.parametrize("compression", ["none", "snappy", "zstd"])
def test_sound_parquet_files_of_every_kind_are_read(tmp_path: Path, version: str, page: str, compression: str) -> None:
    rows = [
        {"text": f"été {n % 7}", "n": n, "x": n / 3, "b": bool(n % 2), "l": [str(n)] * (n % 4), "s": {"k": b"\0" * n}}
        for n in range(700)
    ]
    options = {"version": version, "data_page_version": page, "compression": compression, "data_page_size": 512}
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "t.parquet", row_group_size=300, **options)
    assert [row for _, row in read_rows(tmp_path / "t.parquet")] == rows


def arrow_bomb(path: Path, codec: str, column: Any, *, as_file: bool = False, batches: int = 1) -> Path:
    batch = pa.record_batch({"text": column})
    options = pa.ipc.IpcWriteOptions(compression=codec)
    new = pa.ipc.new_file if as_file else pa.ipc.new_stream
    with new(str(path), batch.schema, options=options) as writer:
        for _ in range(batches):
            writer.write_batch(batch)
    return path


@pytest.mark.parametrize("codec", ["zstd", "lz4"])
@pytest.mark.parametrize("as_file", [False, True])
def test_a_small_arrow_file_that_unpacks_to_gigabytes_is_refused_before_it_is_unpacked(
    tmp_path: Path, codec: str, as_file: bool
) -> None:
    long = pa.array(["a" * 24_000_000])
    [(_, row)] = read_rows(arrow_bomb(tmp_path / "one.arrow", codec, long, as_file=as_file))
    assert len(cast(dict[str, Any], row)["text"]) == 24_000_000
    many = arrow_bomb(tmp_path / "many.arrow", codec, long, as_file=as_file, batches=5)
    before = pa.total_allocated_bytes()
    with pytest.raises(FadaError, match=r"many\.arrow: [\d,]+ bytes that unpack to [789]\d,\d+,\d+; not read"):
        list(read_rows(many))
    assert pa.total_allocated_bytes() - before < 2**20
    claimed = many.read_bytes().replace((24_000_000).to_bytes(8, "little"), (2**40).to_bytes(8, "little"))
    with pytest.raises(FadaError, match=r"bytes that unpack to 1,\d+,\d+,\d+,\d+; not read"):
        list(read_rows(write(tmp_path / "claims.arrow", claimed)))


def test_values_of_an_arrow_file_that_repeat_are_read_few_at_a_time_and_not_to_its_end(tmp_path: Path) -> None:
    repeated = pa.DictionaryArray.from_arrays(pa.array([0] * 3000, pa.int32()), ["a" * 24_000_000])
    rows = list(read_rows(arrow_bomb(tmp_path / "t.arrow", "zstd", repeated)))
    assert len(rows) < 10
    assert "rows from here on are not read" in cast(Damage, rows[-1][1]).reason


LONG = "a" * 1_000_000
SHARED = pa.DictionaryArray.from_arrays(pa.array([0, *[1] * 4000], pa.int32()), ["b", LONG])
BOMBS_IN_A_ROW = {
    "dictionary": pa.ListArray.from_arrays(pa.array([0, 1, 4001], pa.int32()), SHARED),
    "dictionary in a struct": pa.StructArray.from_arrays(
        [pa.LargeListArray.from_arrays(pa.array([0, 1, 4001], pa.int64()), SHARED)], ["deep"]
    ),
    "map": pa.MapArray.from_arrays(pa.array([0, 1, 4001], pa.int32()), pa.array(range(4001)), SHARED),
    "views": pa.ListViewArray.from_arrays(
        pa.array([0, 1], pa.int32()),
        pa.array([1, 2000], pa.int32()),
        pa.ListViewArray.from_arrays(
            pa.array([0] * 2001, pa.int32()), pa.array([1, *[99_999] * 2000], pa.int32()), pa.nulls(99_999)
        ),
    ),
    "runs": pa.ListArray.from_arrays(
        pa.array([0, 1, 4001], pa.int32()), pa.RunEndEncodedArray.from_arrays([1, 4001], ["b", LONG])
    ),
    "nothing": pa.ListArray.from_arrays(pa.array([0, 1, 200_000_000], pa.int32()), pa.nulls(200_000_000)),
}


@pytest.mark.parametrize("kind", BOMBS_IN_A_ROW)
def test_a_row_in_which_few_bytes_stand_for_gigabytes_is_left_out_and_counted(tmp_path: Path, kind: str) -> None:
    sound, bomb = read_rows(arrow_bomb(tmp_path / "t.arrow", "zstd", BOMBS_IN_A_ROW[kind]))
    assert isinstance(sound[1], dict)
    assert "the row unpacks to" in cast(Damage, bomb[1]).reason


def test_a_list_in_a_parquet_file_that_names_one_long_value_often_is_left_out_and_counted(tmp_path: Path) -> None:
    many = [str(number) for number in range(20_000)]  # so that the values of its dictionary are short, on the average
    indices = pa.array([*range(20_000), *[20_000] * 300], pa.int32())
    values = pa.DictionaryArray.from_arrays(indices, [*many, "a" * 4_000_000])
    table = pa.table({"text": pa.ListArray.from_arrays(pa.array([0, 20_000, 20_300], pa.int32()), values)})
    pq.write_table(
        table, tmp_path / "t.parquet", compression="zstd", dictionary_pagesize_limit=2**30, store_schema=False
    )
    (_, sound), (_, bomb) = read_rows(tmp_path / "t.parquet")
    assert sound == {"text": many}
    assert "the row unpacks to 1,200," in cast(Damage, bomb).reason
