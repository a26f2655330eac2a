"""The published sets from local copies, and the splits made of them."""

import hashlib
import zipfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

from fada.cli import app
from fada.data import published
from fada.data.chosen import Choice
from fada.data.formats.parquet import write_parquet
from fada.data.line import Line
from fada.data.published import EDACC_ACCENTS, HPGT_CENTURIES, load
from fada.data.source import read_lines
from fada.data.splits import assign_splits
from fada.errors import FadaError
from tests.support import xml_pages
from tests.support.drawn import png
from tests.support.types import some


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """The layout of the authors' repository: images with a running number before their names, XML in an archive."""
    with zipfile.ZipFile(tmp_path / "alto.zip", "w") as archive:
        place = 0
        for manuscript in HPGT_CENTURIES:
            for page in range(4):
                name = f"Bodleian-Library-MS-{manuscript.replace(' ', '-')}_{page:05}_fol-{page}r"
                if manuscript != "Barocci 37":  # one manuscript has no images, as in the real one
                    xml_pages.draw_page(tmp_path / f"{place:04}_{place} {name}.jpg")
                text = xml_pages.PAGE_2013.replace("page.png", f"{name}.jpg")
                archive.writestr(f"alto/{place:04}_{place} {name}.xml", text)
                place += 1
        archive.writestr("alto/broken.xml", "<PcGts>")
        archive.writestr("__MACOSX/alto/._x.xml", "junk")
        archive.writestr("alto/readme.txt", "junk")
    return tmp_path


def test_hpgt_is_read_from_the_authors_repository(repository: Path) -> None:
    lines = load("hpgt", repository, quiet=True)
    found = list(lines)
    assert len(found) == 6 * 4 * 3
    assert {line.domain for line in found} == {"10", "11", "12", "13", "14", "15"}
    assert {line.extra["manuscript"] for line in found if line.domain == "13"} == {"Barocci 31"}
    assert all(line.load_image().width > 300 for line in found[:3])
    assert lines.skipped_count == 4 * 3 + 1
    assert lines.reasons["page image not found"] == 12
    texts = list(lines.texts())
    assert {line.domain for line in texts} == set(HPGT_CENTURIES.values())


def test_hpgt_splits_every_century_by_page(repository: Path) -> None:
    pages: dict[str, set[str | None]] = {}
    for line in load("hpgt", repository, quiet=True):
        pages.setdefault(line.extra["page"], set()).add(line.split)
    assert all(len(splits) == 1 for splits in pages.values())
    for century in ("10", "13"):
        chosen = [line for line in load("hpgt", repository, quiet=True) if line.domain == century]
        assert {line.split for line in chosen} == {"train", "validation", "test"}
    assert {line.split for line in load("hpgt", repository, split="test", quiet=True)} == {"test"}


def test_what_is_made_of_it_keeps_licence_citation_and_split(repository: Path, tmp_path: Path) -> None:
    lines = load("hpgt", repository, quiet=True)
    write_parquet(lines, tmp_path / "out")
    again = read_lines(tmp_path / "out")
    assert "CC BY-NC-SA 3.0" in some(again.licence)
    assert "Platanou" in some(again.citation)
    assert {line.id: line.split for line in again} == {line.id: line.split for line in lines}
    loaded = load("hpgt", tmp_path / "out", quiet=True)
    assert {line.id: line.split for line in loaded} == {line.id: line.split for line in lines}
    assert {line.id: line.split for line in read_lines(f"hpgt:{tmp_path / 'out'}")} == {
        line.id: line.split for line in lines
    }


def test_licence_and_citation_are_shown(repository: Path, caplog: pytest.LogCaptureFixture) -> None:
    published._show.cache_clear()
    with caplog.at_level("INFO", logger="fada"):
        load("hpgt", repository)
    shown = " ".join(caplog.text.split())
    assert "CC BY-NC-SA 3.0" in shown
    assert "Platanou" in shown


def test_a_broken_archive_is_told(tmp_path: Path) -> None:
    (tmp_path / "alto.zip").write_bytes(b"no archive")
    with pytest.raises(FadaError, match="not a zip archive"):
        list(load("hpgt", tmp_path, quiet=True))


def test_hpgt_without_a_copy_tells_where_to_get_it() -> None:
    with pytest.raises(FadaError, match="clone"):
        load("hpgt", quiet=True)


def test_an_unknown_set_is_told() -> None:
    with pytest.raises(FadaError, match="hpgt, catmus, edacc"):
        load("iam", quiet=True)


def test_catmus_is_filtered_by_language_and_century(tmp_path: Path) -> None:
    rows = [("French", 13), ("French", 16), ("French", 12), ("Latin", 13), ("French", 14)]
    lines = [
        Line(str(place), "x", image=png(), extra={"language": language, "century": century, "gen_split": "train"})
        for place, (language, century) in enumerate(rows)
    ]
    write_parquet(lines, tmp_path / "c.parquet")
    default = load("catmus", tmp_path / "c.parquet", quiet=True)
    assert [(line.id, line.domain) for line in default] == [("0", "13"), ("1", "16"), ("4", "14")]
    assert "2 lines left out" in default.notes[0]
    latin = load("catmus", tmp_path / "c.parquet", languages=["Latin"], centuries=[], quiet=True)
    assert [line.id for line in latin] == ["3"]
    everything = load("catmus", tmp_path / "c.parquet", languages=[], centuries=[], quiet=True)
    assert len(list(everything)) == 5
    with pytest.raises(FadaError, match="French / Latin"):
        list(load("catmus", tmp_path / "c.parquet", languages=["Greek"], quiet=True))


def test_edacc_gets_its_four_accents_and_a_training_part_by_speaker(tmp_path: Path) -> None:
    accents = [*EDACC_ACCENTS, "Scottish English"]
    lines = [
        Line(
            f"{accent}{speaker}{utterance}",
            "text",
            audio=b"RIFF",
            extra={
                "accent": accent,
                "speaker": f"{accent}-{speaker}",
                "split": "validation" if speaker < 3 else "test",
            },
        )
        for accent in accents
        for speaker in range(6)
        for utterance in range(2)
    ]
    write_parquet(lines, tmp_path / "edacc")
    found = list(load("edacc", tmp_path / "edacc", quiet=True))
    assert {line.domain for line in found} == {
        "US English",
        "Southern British English",
        "Irish English",
        "Indian English",
    }
    speakers: dict[str, set[str | None]] = {}
    for line in found:
        speakers.setdefault(line.extra["speaker"], set()).add(line.split)
    assert all(len(splits) == 1 for splits in speakers.values())
    assert {line.split for line in found} == {"train", "validation", "test"}
    assert "Scottish English" in {line.domain for line in load("edacc", tmp_path / "edacc", accents=[], quiet=True)}


def test_pages_are_divided_by_the_order_of_their_hashes() -> None:
    pages = [(f"page {place}", "13") for place in range(10)]
    splits = assign_splits(pages)
    assert [sum(split == name for split in splits.values()) for name in ("train", "validation", "test")] == [8, 1, 1]
    assert splits == assign_splits(reversed(pages))
    by_hash = sorted(splits, key=lambda page: hashlib.sha1(page.encode()).hexdigest())
    assert [splits[page] for page in by_hash] == ["test", "validation", *["train"] * 8]


@settings(max_examples=100, deadline=None)
@given(st.lists(st.tuples(st.text(max_size=4), st.sampled_from([None, "13", "14"])), max_size=60))
def test_every_page_is_in_one_split_and_every_domain_is_represented(groups: Any) -> None:
    splits = assign_splits(groups)
    assert set(splits) == {page for page, _ in groups}
    own: dict[str, str | None] = {}
    for page, domain in groups:
        own.setdefault(page, domain)
    for domain in set(own.values()):
        pages = [page for page in own if own[page] == domain]
        expected = {1: {"train"}, 2: {"train", "test"}}.get(len(pages), {"train", "validation", "test"})
        assert {splits[page] for page in pages} == expected


def test_shares_must_sum_to_one() -> None:
    with pytest.raises(FadaError, match="sum to 1"):
        assign_splits([("a", "b")], shares=(0.5, 0.1, 0.1))


def test_every_set_has_licence_and_citation() -> None:
    assert all(one.licence and one.citation and one.home.startswith("https://") for one in published.SETS.values())


def test_a_list_names_lines_splits_and_domains(repository: Path, tmp_path: Path) -> None:
    chosen = tmp_path / "list.csv"
    rows = ["fol-0r,train,11,r1l1", "Barocci-31_00001_fol-1r,dev,13,", "fol-9r,test,11,r1l1"]
    chosen.write_text("\n".join(["page,split,domain,line_id", *rows]), encoding="utf-8")
    done = CliRunner().invoke(
        app, ["data", "build", str(chosen), f"hpgt:{repository}", "--out", str(tmp_path / "built")]
    )
    assert done.exit_code == 0, done.output
    assert "fol-9r#r1l1: named in the list, but not in the source" in " ".join(done.output.split())
    built = list(read_lines(tmp_path / "built"))
    assert {(line.domain, line.extra["line_id"]) for line in built if line.split == "train"} == {("11", "r1l1")}
    told = {line.extra["page"] for line in built if line.split == "validation"}
    assert told == {"Barocci-31_00001_fol-1r"}
    assert sum(line.split == "validation" for line in built) == 3
    chosen.write_text("\n".join(["page,split", "a,train", "a,test"]), encoding="utf-8")
    with pytest.raises(FadaError, match="page a is there twice"):
        Choice.load(chosen)


@pytest.mark.parametrize("name", ["hpgt", "catmus_fr"])
def test_the_lists_of_the_recipes_can_be_read(name: str) -> None:
    rows = Choice.load(Path(__file__).parents[2] / "recipes" / "lines" / f"{name}.csv").rows
    assert {row["split"] for row in rows.values()} == {"train", "validation", "test"}
    pages: dict[str, set[str]] = {}
    for (page, _), row in rows.items():
        pages.setdefault(page, set()).add(row["split"])
    assert all(len(splits) == 1 for splits in pages.values())  # no page is in two splits
