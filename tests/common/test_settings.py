"""Recipes from anywhere: what would unpack to gigabytes is refused before it does."""

from itertools import pairwise
from pathlib import Path

import pytest
from typer.testing import CliRunner

from fada.cli import app
from fada.common.settings import read_recipe
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
