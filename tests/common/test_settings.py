"""Settings, tables and texts from anywhere: what would unpack to gigabytes, or be lost in silence, is told."""

from itertools import pairwise
from pathlib import Path

import pytest
from PIL import Image
from typer.testing import CliRunner

from fada.cli import app
from fada.common.settings import read_recipe
from fada.data.domains import _read_table
from fada.data.source import read_lines
from fada.decoding.knowledge import read_texts
from fada.errors import FadaError


def test_a_recipe_whose_aliases_would_multiply_is_refused_at_the_first_one(tmp_path: Path) -> None:
    names = [f"a{number}" for number in range(30)]
    rows = [f"{new}: &{new} [*{old}, *{old}, *{old}]" for old, new in pairwise(names)]
    (tmp_path / "recipe.yaml").write_text("\n".join(["a0: &a0 [x, x]", *rows]), encoding="utf-8")
    with pytest.raises(FadaError, match=r"recipe\.yaml, line 2: not valid YAML \(the alias \*a0 is not taken\)"):
        read_recipe(tmp_path / "recipe.yaml")


def test_an_outline_is_not_widened_beyond_any_measure(tmp_path: Path) -> None:
    done = CliRunner().invoke(app, ["transcribe", "medieval", str(tmp_path), "--grow", "10000"])
    assert done.exit_code == 2
    assert "--grow" in done.output


BOXES = {
    "not a number": ('{"a.png": [{"outline": [[NaN, 1], [29, 1], [29, 5]]}]}', "finite number"),
    "baseline": ('{"a.png": [{"outline": [[1, 1], [29, 1], [29, 5]], "baseline": [[Infinity, 1]]}]}', "finite number"),
    "twice": ('{"a.png": [], "a.png": []}', "'a.png' stands twice"),
}


@pytest.mark.parametrize("case", BOXES)
def test_outlines_that_are_no_places_and_pages_that_stand_twice_are_refused(case: str, tmp_path: Path) -> None:
    content, told = BOXES[case]
    (tmp_path / "boxes.json").write_text(content, encoding="utf-8")
    Image.new("L", (30, 10), 200).save(tmp_path / "a.png")
    command = ["segment", str(tmp_path / "a.png"), "--segmenter", str(tmp_path / "boxes.json")]
    done = CliRunner().invoke(app, [*command, "--out", str(tmp_path / "out")])
    assert isinstance(done.exception, FadaError)
    assert told in str(done.exception)
    assert "boxes.json" in str(done.exception)


def test_a_key_that_stands_twice_in_what_is_written_by_hand_is_told(tmp_path: Path) -> None:
    (tmp_path / "recipe.yaml").write_text("lam: 0.5\nepochs: 3\nlam: 0.9\n", encoding="utf-8")
    with pytest.raises(FadaError, match=r"recipe.yaml, line 3: not valid YAML \(the key lam stands twice\)"):
        read_recipe(tmp_path / "recipe.yaml")
    (tmp_path / "domains.json").write_text('{"MS 1": "13", "MS 1": "14"}', encoding="utf-8")
    with pytest.raises(FadaError, match="'MS 1' stands twice"):
        _read_table(tmp_path / "domains.json")


def test_neither_a_pointer_of_git_lfs_nor_knowledge_is_taken_for_a_text(tmp_path: Path) -> None:
    pointer = "version https://git-lfs.github.com/spec/v1\noid sha256:aa\nsize 9\n"
    for name in ("letters.txt", "latin.fada", "lines/a.gt.txt"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(pointer, encoding="utf-8")
    Image.new("L", (30, 10), 200).save(tmp_path / "lines" / "a.png")
    with pytest.raises(FadaError, match="git lfs pull"):
        read_texts([tmp_path / "letters.txt"])
    with pytest.raises(FadaError, match="--knowledge"):
        read_texts([tmp_path / "latin.fada"])
    lines = read_lines(tmp_path / "lines")
    assert list(lines) == []
    assert "git lfs pull" in str(lines.skipped)
