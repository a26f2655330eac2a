"""The ladder on unseen manuscripts: nothing leaks, every rung is read once, what is read is kept."""

import re
from dataclasses import replace
from pathlib import Path

import pytest
import yaml
from typer.testing import CliRunner

from fada import FadaError
from fada.cli import app
from fada.decoding.knowledge import FOLDER, Knowledge, built_in_knowledge, read_knowledge, write_knowledge
from fada.experiments.arena import Arena, Read, listed
from fada.experiments.division import divided, drawn, page_of
from fada.experiments.ladder import RUNGS
from tests.support.arenas import on_pages, small_arena
from tests.support.training_lines import image_lines

RECIPE = Path(__file__).parents[2] / "recipes" / "unseen.yaml"
LISTED = yaml.safe_load(RECIPE.read_text(encoding="utf-8"))


@pytest.mark.parametrize("name", built_in_knowledge())
def test_no_built_in_text_is_of_an_unseen_manuscript(name: str) -> None:
    sources = " ".join(read_knowledge(name).about.sources)
    assert sources
    for one in (*LISTED["arena"], *LISTED["demo"]):
        assert one["manuscript"] not in sources
        for file in one["texts"]:
            assert file not in sources
            assert not any(part == file.removesuffix(".txt") for part in sources.replace("/", " ").split())


def test_no_line_to_remember_by_is_of_an_unseen_manuscript() -> None:
    from fada.data.source import read_lines
    from fada.models.folders import DEFAULT_MODEL, resolve
    from fada.training.adapt import REPLAY

    unseen = {one["manuscript"] for one in (*LISTED["arena"], *LISTED["demo"])}
    stored = list(read_lines(Path(resolve(DEFAULT_MODEL)) / REPLAY).without_media())
    assert stored
    assert unseen.isdisjoint(line.extra["manuscript"] for line in stored)


def test_no_page_is_corrected_and_tested() -> None:
    lines = on_pages(image_lines(40), "a", 5)
    pool, test = divided(lines, 12)
    assert len(pool) == 16
    assert {page_of(line) for line in pool}.isdisjoint(page_of(line) for line in test)
    assert sorted(line.id for line in [*pool, *test]) == sorted(line.id for line in lines)
    assert drawn(pool, 5, 1) == drawn(pool, 12, 1)[:5]
    assert drawn(pool, 12, 1) != drawn(pool, 12, 2)
    with pytest.raises(FadaError, match="none is left to test on"):
        divided(lines, 40)


@pytest.fixture
def arena(tmp_path: Path) -> Arena:
    return small_arena(tmp_path)


@pytest.mark.slow
def test_every_rung_is_read_once_and_kept(arena: Arena, tmp_path: Path) -> None:
    folder = replace(arena, only=("a",)).run()
    files = sorted(folder.glob("a/*.json"))
    assert len(files) == len(RUNGS)
    plain = Read.model_validate_json((folder / "a" / "plain.json").read_text("utf-8"))
    assert plain.references
    as_read = Read.model_validate_json((folder / "a" / "inferred-again.json").read_text("utf-8"))
    assert as_read.about.predicted is not None
    assert len(plain.texts) == len(plain.ids) == len(set(plain.ids))
    text = (folder / "table.md").read_text("utf-8")
    assert re.search(r"The language is right [01] of 1 times\.", text)
    assert re.search(r"[01] of 1 are inside the interval", text)
    for rung in RUNGS:
        assert rung.title in text
        assert rung.short in text
    made = {path: path.stat().st_mtime_ns for path in files}
    arena.run()
    assert made == {path: path.stat().st_mtime_ns for path in files}
    assert len(list(folder.glob("b/*.json"))) == len(RUNGS)
    models = {path: path.stat().st_mtime_ns for path in (tmp_path / "runs").rglob("*.safetensors")}
    assert len(models) == 2 * len({rung.corrected for rung in RUNGS if rung.corrected})
    write_knowledge(Knowledge.from_texts(["abcd"] * 9, name="fr"), tmp_path / "model" / FOLDER / "fr.fada")
    again = Arena(**{name: getattr(arena, name) for name in arena.__dataclass_fields__})
    again.run()
    assert all(path.stat().st_mtime_ns > made[path] for path in files)
    assert models == {path: path.stat().st_mtime_ns for path in (tmp_path / "runs").rglob("*.safetensors")}


def test_what_is_missing_is_told(arena: Arena, tmp_path: Path) -> None:
    with pytest.raises(FadaError, match="no manuscript 'x' in the arena"):
        replace(arena, only=("x",)).run()
    with pytest.raises(FadaError, match="expected the lines of latin_script"):
        replace(arena, data=tmp_path / "nowhere").run()
    assert len(listed(RECIPE)) == 12
    assert "give the folder latin_script" in str(CliRunner().invoke(app, ["reproduce", "unseen"]).exception)
