"""What a set holds, on the command line too."""

import json
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from typer.testing import CliRunner, Result

from fada.cli import app
from fada.data.formats.parquet import write_parquet
from fada.data.inspect import contact_sheet, inspect
from fada.data.line import Line, LineSet
from fada.data.source import read_lines
from fada.errors import FadaError
from tests.support import xml_pages
from tests.support.commands import run_fada
from tests.support.types import some


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """Five lines of two domains in two splits, one of them with a broken image."""
    image = xml_pages.draw_page(tmp_path / "line.png", (320, 32)).read_bytes()
    lines = [
        Line("1", "αβ α", "13", image, extra={"split": "train"}),
        Line("2", "e\u0301\ue5d0", "13", image, extra={"split": "test"}),
        Line("3", "", "14", image, extra={"split": "train"}),
        Line("4", None, "14", image, extra={"split": "train"}),
        Line("5", "lost", "14", b"not an image", extra={"split": "train"}),
    ]
    write_parquet(LineSet.of(lines, licence="CC0", citation="Nobody"), tmp_path / "set")
    return tmp_path / "set"


def test_counts_characters_and_widths(source: Path) -> None:
    found = inspect(read_lines(source))
    assert found.lines == 4
    assert found.count_rows() == [
        {"split": "train", "13": 1, "14": 2, "all": 3},
        {"split": "test", "13": 1, "14": 0, "all": 1},
        {"split": "all", "13": 2, "14": 2, "all": 4},
    ]
    assert (found.without_text, found.empty_texts, found.skipped) == (1, 1, 1)
    first = found.inventory_rows()[0]
    assert (first["character"], first["code"], first["count"], first["domains"]) == ("α", "U+03B1", 2, "13")
    assert found.width_rows()[-1] == {
        "domain": "all",
        "min": 640,
        "5 %": 640,
        "median": 640,
        "95 %": 640,
        "99 %": 640,
        "max": 640,
    }
    assert (found.licence, found.citation) == ("CC0", "Nobody")


def test_check_finds_images_that_are_cut_off(tmp_path: Path) -> None:
    whole = xml_pages.draw_page(tmp_path / "line.png", (320, 32)).read_bytes()
    lines = LineSet.of([Line("1", image=whole), Line("2", image=whole[:-40])])
    assert inspect(lines).lines == 2
    assert inspect(lines, check=True).lines == 1
    assert str(lines.skipped[0]).count("2: ") == 1, "names are not doubled"


def test_the_contact_sheet_shows_lines_of_every_domain(source: Path, tmp_path: Path) -> None:
    found = inspect(read_lines(source), samples=2)
    assert {domain: len(lines) for domain, lines in found.samples.items()} == {"13": 2, "14": 2}
    with Image.open(contact_sheet(found.samples, tmp_path / "sheet.png")) as sheet:
        assert sheet.width > 1400
        assert np.asarray(sheet.convert("L")).min() < 60


def test_a_contact_sheet_without_images_is_refused(tmp_path: Path) -> None:
    with pytest.raises(FadaError, match="no contact sheet"):
        contact_sheet({"13": [Line("1", "x")]}, tmp_path / "x.png")


def test_pages_can_be_inspected(tmp_path: Path) -> None:
    xml_pages.write_example(tmp_path, "page2013")
    found = inspect(read_lines(tmp_path, domain="13"))
    assert found.width_rows()[0]["median"] == round(361 * 64 / 41)


# --- the command line ------------------------------------------------------------------------------------------------


def run(*arguments: object) -> Result:
    return CliRunner().invoke(app, ["data", *map(str, arguments)])


def test_inspect_prints_tables_and_draws_a_contact_sheet(source: Path, tmp_path: Path) -> None:
    done = run("inspect", source, "--sheet", tmp_path / "sheet.png")
    assert done.exit_code == 0, done.output
    for expected in (
        "validation" not in done.stdout,
        "median" in done.stdout,
        "U+03B1" in done.stdout,
        "CC0" in done.stdout,
    ):
        assert expected
    assert "skipped: 1" in done.stderr
    assert (tmp_path / "sheet.png").stat().st_size > 1000


def test_inspect_prints_json(source: Path, tmp_path: Path) -> None:
    done = run("inspect", source, "--json", "--no-sheet")
    found = json.loads(done.stdout)
    assert found["lines"] == 4
    assert found["contact_sheet"] is None
    assert found["reasons"]


def test_convert_goes_from_xml_to_parquet_and_to_pairs(tmp_path: Path) -> None:
    xml_pages.write_example(tmp_path / "13", "alto4")
    done = run("convert", tmp_path / "13", "--to", tmp_path / "x.parquet", "--domain", "13")
    assert done.exit_code == 0, done.output
    assert [line.domain for line in read_lines(tmp_path / "x.parquet")] == ["13"] * 3
    done = run("convert", tmp_path / "x.parquet", "--to", tmp_path / "pairs", "--format", "pairs")
    assert done.exit_code == 0, done.output
    pairs = read_lines(tmp_path / "pairs")
    assert sorted(some(line.text) for line in pairs) == ["a saint denis", "en france"]
    assert pairs.skipped_count == 1  # the line without a text has an image only


@pytest.mark.parametrize("content", ["%PDF-1.7", "no PDF"])
def test_convert_of_a_pdf_into_a_table_says_that_it_holds_no_lines(content: str, tmp_path: Path) -> None:
    (tmp_path / "a.pdf").write_text(content, encoding="utf-8")
    done = run("convert", tmp_path / "a.pdf", "--out", tmp_path / "a.tsv")
    assert isinstance(done.exception, FadaError)
    assert "a.pdf: a PDF: `fada transcribe` reads its pages" in str(done.exception)
    assert not (tmp_path / "a.tsv").exists()


@pytest.mark.parametrize(
    ("name", "format"), [("x.parquet", None), ("splits", None), ("pairs", "pairs"), ("new", "alto")]
)
def test_convert_of_nothing_that_can_be_read_writes_nothing_and_says_why(
    tmp_path: Path, name: str, format: str | None
) -> None:
    xml_pages.write_example(tmp_path / "in", "alto4").with_suffix(".png").unlink()
    out = tmp_path / name
    if out.suffix:
        out.write_text("from before", encoding="utf-8")
    command = ["convert", tmp_path / "in", "--to", out, *(["--format", format] if format else [])]
    done = run(*command)
    assert isinstance(done.exception, FadaError)
    assert "no line to write (3 skipped" in str(done.exception)
    assert "skipped: 3" in done.stderr
    assert out.read_text(encoding="utf-8") == "from before" if out.suffix else not out.exists()
    done = run("convert", *command[1:], "--split", "test")
    assert "no line to write (none is there)" in str(done.exception)


def test_published_lists_the_sets_and_asks_for_a_destination() -> None:
    rows = json.loads(run("published", "--json").stdout)
    assert [row["name"] for row in rows] == ["hpgt", "catmus", "edacc"]
    assert isinstance(run("published", "hpgt").exception, FadaError)


def test_published_writes_splits_with_their_licence(tmp_path: Path, source: Path) -> None:
    done = run("published", "hpgt", "--from", source, "--to", tmp_path / "out")
    assert done.exit_code == 0, done.output
    assert "CC BY-NC-SA" in some(read_lines(tmp_path / "out").licence)


def test_a_source_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(FadaError, match="none: no such file or folder"):
        run_fada("data", "inspect", tmp_path / "none")


def test_the_source_is_never_overwritten(tmp_path: Path) -> None:
    (tmp_path / "lines.csv").write_text("id,text\n1,abc\n", encoding="utf-8")
    done = run("convert", tmp_path / "lines.csv", "--to", tmp_path / "lines.csv")
    assert "the source itself, which is never overwritten" in str(done.exception)
    assert (tmp_path / "lines.csv").read_text(encoding="utf-8") == "id,text\n1,abc\n"


def test_what_fada_did_not_write_is_not_overwritten(tmp_path: Path) -> None:
    xml_pages.draw_page(tmp_path / "in" / "1.png", (60, 20))
    (tmp_path / "in" / "1.gt.txt").write_text("new", encoding="utf-8")
    assert run("convert", tmp_path / "in", "--to", tmp_path / "lines.parquet").exit_code == 0
    for format, name in (("pairs", "1.gt.txt"), ("txt", "1.txt"), ("page", "1.xml"), ("parquet", "train.parquet")):
        folder = tmp_path / f"gold_{format}"
        folder.mkdir()
        (folder / name).write_text("gold", encoding="utf-8")
        command = ["convert", tmp_path / "lines.parquet", "--to", folder, "--format", format]
        done = run(*command)
        assert isinstance(done.exception, FadaError), format
        assert name in str(done.exception)
        assert [(file.name, file.read_text(encoding="utf-8")) for file in folder.iterdir()] == [(name, "gold")]
        (folder / name).unlink()
        for _ in range(2):
            assert run(*command).exit_code == 0
        assert (folder / name).exists()


def test_an_output_does_not_become_a_part_of_its_source(tmp_path: Path) -> None:
    xml_pages.write_example(tmp_path / "in", "alto4")
    for name, format in (("lines.parquet", "parquet"), ("out.csv", "csv"), ("out", "page")):
        done = run("convert", tmp_path / "in", "--to", tmp_path / "in" / name, "--format", format)
        assert "lies in the source" in str(done.exception)
    assert run("convert", tmp_path / "in", "--to", tmp_path / "in" / "out.txt").exit_code == 0


@pytest.mark.parametrize("folder", ["13th", "13th/page", "13th/../13th/page/."])
def test_lines_directly_in_the_source_have_its_folder_as_domain(tmp_path: Path, folder: str) -> None:
    xml_pages.write_example(tmp_path / "13th" / "page", "alto4")
    out = tmp_path / "out.csv"
    for source in (tmp_path / folder, tmp_path / "13th" / "page" / "page.xml"):
        assert run("convert", source, "--domain-from", "folder", "--to", out).exit_code == 0
        assert {line.domain for line in read_lines(out)} == {"13th"}
