"""Sources as they come: damaged, packed, endless, of one rule for domains, of other people's formats."""

import json
import os
import sys
import zipfile
from pathlib import Path
from typing import Any, cast

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image

from fada.data.formats import registry
from fada.data.read import _unpacked
from fada.data.source import Source, read_lines
from fada.data.write import convert
from fada.errors import FadaError
from fada.jobs.journal import stamp_of
from tests.support import xml_pages
from tests.support.commands import run_fada
from tests.support.damage import damaged_groups


def write(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    return path


@pytest.mark.parametrize(
    ("rule", "domains"),
    [("folder", {"13", "14"}), ("folder:-1", {"volA", "14"}), ("folder:2", {"volA", None}), ("file", {"a", "b"})],
)
def test_lines_and_texts_have_the_same_domains(tmp_path: Path, rule: str, domains: Any) -> None:
    for name in ("13/volA/a", "14/b"):
        write(tmp_path / f"set/{name}.csv", "text\nx\n")
    source = Source(paths=(str(tmp_path / "set"),), domain_from=rule)
    assert {line.domain for line in source.read()} == domains
    assert {domain for domain, _ in source.texts()} == domains


def test_a_named_column_comes_before_the_rule_and_the_rule_before_a_usual_one(tmp_path: Path) -> None:
    path = write(tmp_path / "set/13/t.csv", "text,century,hand\na,15,h\nb,None,\n").parent.parent
    for options, expected in [
        ({}, ["15", None]),
        ({"domain_from": "folder"}, ["13", "13"]),
        ({"domain_from": "folder", "domain_column": "hand"}, ["h", "13"]),
        ({"domain": "x", "domain_column": "hand"}, ["x", "x"]),
    ]:
        source = Source(paths=(str(path),), **cast(dict[str, Any], options))
        assert [line.domain for line in source.read()] == expected, options
        assert [domain for domain, _ in source.texts()] == expected, options


def test_a_string_in_the_place_of_bytes_is_not_read_as_a_path(tmp_path: Path) -> None:
    write(tmp_path / "secret.txt", "secret")
    (tmp_path / "set").mkdir()
    image = pa.StructArray.from_arrays(
        [pa.array([str(tmp_path / "secret.txt")]), pa.array([None], pa.string())], names=["bytes", "path"]
    )
    pq.write_table(pa.table({"image": image, "text": ["a"]}), tmp_path / "set" / "t.parquet")
    lines = read_lines(tmp_path / "set")
    assert list(lines) == []
    assert lines.skipped[0].reason == "the image is empty"


def test_what_is_lost_is_counted_and_the_rest_is_converted(tmp_path: Path) -> None:
    path = damaged_groups(tmp_path / "t.parquet", 6, [2])
    assert "10 x rows cannot be read" in run_fada("data", "convert", path, "-o", tmp_path / "out.tsv", code=1).output
    assert len(list(read_lines(tmp_path / "out.tsv"))) == 50
    write(tmp_path / "broken.parquet", "nothing")
    run_fada("data", "inspect", tmp_path / "broken.parquet", "--no-sheet", "--check", code=1)


@pytest.mark.parametrize("asked", [(), ("--json",)])
def test_looking_at_nothing_but_broken_images_ends_with_exit_code_1(asked: tuple[str, ...], tmp_path: Path) -> None:
    for name in ("a", "b"):
        write(tmp_path / f"{name}.png", "no image")
        write(tmp_path / f"{name}.gt.txt", "text")
    run_fada("data", "inspect", tmp_path, "--no-sheet", "--check", *asked, code=1)
    Image.new("L", (30, 10), 200).save(tmp_path / "a.png")
    run_fada("data", "inspect", tmp_path, "--no-sheet", "--check", *asked)


def test_damaged_arrow_files_are_told_and_crash_nothing(tmp_path: Path) -> None:
    table = pa.Table.from_pylist([{"text": f"line {n}", "tags": ["a", "b"]} for n in range(50)])
    with pa.OSFile(str(tmp_path / "t.arrow"), "wb") as sink, pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    whole = (tmp_path / "t.arrow").read_bytes()
    assert len(list(read_lines(tmp_path / "t.arrow"))) == 50
    for place in range(0, len(whole), 61):
        (tmp_path / "t.arrow").write_bytes(whole[:place] + bytes([whole[place] ^ 0xFF]) + whole[place + 1 :])
        list(read_lines(tmp_path / "t.arrow"))


def test_a_pipe_in_a_folder_is_passed_over_and_one_that_is_named_is_refused(tmp_path: Path) -> None:
    write(tmp_path / "t.csv", "text\na\n")
    os.mkfifo(tmp_path / "pipe.csv")
    assert [line.text for line in read_lines(tmp_path)] == ["a"]
    with pytest.raises(FadaError, match="neither a file nor a folder"):
        read_lines(tmp_path / "pipe.csv")
    with pytest.raises(FadaError, match="neither a file nor a folder"):
        list(Source(paths=(str(tmp_path / "pipe.csv"),)).texts())


def test_a_small_file_with_billions_of_rows_is_refused(tmp_path: Path) -> None:
    table = pa.table({"text": pa.nulls(50_000_000, pa.string())})
    pq.write_table(table, tmp_path / "t.parquet", compression="zstd", row_group_size=2**26)
    lines = read_lines(tmp_path / "t.parquet")
    assert list(lines) == []
    assert "50,000,000 rows" in lines.skipped[0].reason


def test_outlines_grow_within_limits(tmp_path: Path) -> None:
    with pytest.raises(FadaError, match="grow"):
        read_lines(tmp_path, grow=10_000)


def test_a_zip_of_pages_is_read_like_its_folder(tmp_path: Path) -> None:
    xml_pages.write_example(tmp_path / "export/page", "page2013")
    with zipfile.ZipFile(tmp_path / "export.zip", "w") as archive:
        for file in (tmp_path / "export").rglob("*.*"):
            archive.write(file, file.relative_to(tmp_path / "export"))
    found = [(line.id, line.text) for line in read_lines(tmp_path / "export.zip")]
    assert found == [(line.id, line.text) for line in read_lines(tmp_path / "export")]
    again = read_lines(tmp_path / "export.zip")
    assert again.name == str(tmp_path / "export.zip")
    stamps = [stamp_of(line) for line in again]
    _unpacked.cache_clear()  # as in the next process, which continues a job that was interrupted
    assert [stamp_of(line) for line in read_lines(tmp_path / "export.zip")] == stamps
    (tmp_path / "bad.zip").write_bytes(b"PK nothing")
    with pytest.raises(FadaError, match="cannot be unpacked"):
        read_lines(tmp_path / "bad.zip")


def test_files_that_are_not_read_get_advice(tmp_path: Path) -> None:
    write(tmp_path / "a.djvu", "AT&TFORM")
    with pytest.raises(FadaError, match=r"For .djvu: export its pages as images"):
        read_lines(tmp_path)
    Image.new("L", (40, 20)).save(tmp_path / "b.png")
    lines = read_lines(tmp_path, untranscribed=True)
    assert [line.id for line in lines] == ["b"]
    assert [note.partition(" (")[0] for note in lines.notes] == [
        "not read: a.djvu. For .djvu: export its pages as images"
    ]
    (tmp_path / "b.png").unlink()
    (tmp_path / "a.djvu").unlink()
    write(tmp_path / "a.pdf", "%PDF")
    lines = read_lines(tmp_path)
    assert list(lines) == []
    assert str(lines.skipped[0]).startswith("a.pdf: a PDF: `fada transcribe` reads its pages")


def test_every_image_of_a_tiff_file_is_a_line_and_of_an_animation_the_first(tmp_path: Path) -> None:
    frames = [Image.new("L", (40, 20), grey) for grey in (10, 120, 240)]
    frames[0].save(tmp_path / "a.tif", save_all=True, append_images=frames[1:])
    frames[0].save(tmp_path / "b.gif", save_all=True, append_images=frames[1:])
    lines = read_lines(tmp_path)
    assert [(line.id, line.load_image().getpixel((0, 0))) for line in lines][:3] == [
        ("a#1", 10),
        ("a#2", 120),
        ("a#3", 240),
    ]
    assert lines.notes == ["b.gif: holds 3 images, of which the first is read."]


def test_page_images_that_are_missing_are_told_in_one_line(tmp_path: Path) -> None:
    for name in ("a", "b", "c"):
        (xml_pages.write_example(tmp_path / name, "page2013").parent / "page.png").unlink()
    lines = read_lines(tmp_path)
    assert list(lines) == []
    assert lines.skipped_count == 9
    (told,) = lines.skipped
    assert "images of 3 pages" in told.reason
    assert "--images" in told.reason
    with pytest.raises(FadaError, match=r"nowhere: no such folder; images \(--images\)"):
        read_lines(tmp_path, images="nowhere")


@pytest.mark.parametrize("first", ["parquet", "jsonl", "csv", "tsv", "alto", "page", "pairs"])
def test_ids_and_texts_survive_every_conversion(tmp_path: Path, first: str) -> None:
    for number in range(3):
        Image.new("L", (60, 20), 200).save(write(tmp_path / f"in/{number}.png", "").with_suffix(".png"))
    rows = [{"image": f"{n}.png", "text": f"text {n}", "id": f"ms {n}/p#l{n}"} for n in range(3)]
    write(tmp_path / "in/m.jsonl", "\n".join(map(json.dumps, rows)))
    convert(read_lines(tmp_path / "in/m.jsonl"), tmp_path / "with.parquet")
    expected = {(row["id"], row["text"]) for row in rows}
    suffix = f".{first}" if first in ("parquet", "jsonl", "csv", "tsv") else ""
    convert(read_lines(tmp_path / "with.parquet"), tmp_path / f"one{suffix}", first)
    assert {(line.id, line.text) for line in read_lines(tmp_path / f"one{suffix}").texts()} == expected
    if first in ("parquet", "alto", "page", "pairs"):
        for second in ("parquet", "jsonl", "alto", "page", "pairs"):
            out = tmp_path / f"two-{second}{f'.{second}' if second in ('parquet', 'jsonl') else ''}"
            convert(read_lines(tmp_path / f"one{suffix}"), out, second)
            assert {(line.id, line.text) for line in read_lines(out).texts()} == expected, second


def test_nothing_is_written_beside_a_device(tmp_path: Path) -> None:
    write(tmp_path / "t.csv", "text\na\n")
    os.symlink("/dev/null", tmp_path / "out.tsv")
    convert(read_lines(tmp_path / "t.csv"), tmp_path / "out.tsv")
    assert sorted(file.name for file in tmp_path.iterdir()) == ["out.tsv", "t.csv"]


def test_another_package_adds_a_format(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(
        tmp_path / "site/their_format.py",
        "from fada.data.line import Line, LineSet\n"
        "SUFFIXES = ('.lines',)\n"
        "def open(source, files, reading):\n"
        "    return LineSet.of([Line(f'{n}', t) for f in files for n, t in enumerate(f.read_text().split())])\n"
        "def write(results, destination, *, format, provenance):\n"
        "    destination.write_text(' '.join(r.text or '' for r in results))\n"
        "    return [destination]\n",
    )
    info = tmp_path / "site/theirs-1.dist-info"
    write(info / "METADATA", "Metadata-Version: 2.1\nName: theirs\nVersion: 1\n")
    write(info / "entry_points.txt", "[fada.formats]\nlines = their_format\n")
    monkeypatch.syspath_prepend(str(tmp_path / "site"))
    registry.formats.cache_clear()
    try:
        write(tmp_path / "t.lines", "one two")
        assert [line.text for line in read_lines(tmp_path / "t.lines")] == ["one", "two"]
        convert(read_lines(tmp_path / "t.lines"), tmp_path / "out.lines", "lines")
        assert (tmp_path / "out.lines").read_text() == "one two"
    finally:
        registry.formats.cache_clear()
        sys.modules.pop("their_format", None)
