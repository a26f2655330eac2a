"""Benchmarks and the scripts of recipes can be imported: what they take from the package is there."""

import importlib
import importlib.util
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


@pytest.mark.parametrize("script", sorted((ROOT / "benchmarks").glob("[!_]*.py")), ids=lambda path: path.stem)
def test_a_benchmark_imports_what_is_there(script: Path) -> None:
    assert importlib.import_module(f"benchmarks.{script.stem}").__doc__


@pytest.mark.parametrize("script", sorted((ROOT / "recipes").glob("*.py")), ids=lambda path: path.stem)
def test_a_script_of_a_recipe_imports_what_is_there(script: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    spec = importlib.util.spec_from_file_location(script.stem, script)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    monkeypatch.syspath_prepend(script.parent)  # as for a script that is run
    monkeypatch.setitem(sys.modules, script.stem, module)  # dataclasses look their module up
    spec.loader.exec_module(module)
    assert module.__doc__
