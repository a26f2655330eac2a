"""Benchmarks and the scripts of recipes can be imported, and what is made with them is made of what it may be."""

import importlib
import importlib.util
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

ROOT = Path(__file__).parents[1]


@pytest.mark.parametrize("script", sorted((ROOT / "benchmarks").glob("[!_]*.py")), ids=lambda path: path.stem)
def test_a_benchmark_imports_what_is_there(script: Path) -> None:
    assert importlib.import_module(f"benchmarks.{script.stem}").__doc__


@pytest.mark.skipif(shutil.which("make") is None, reason="make is not installed")
def test_make_takes_the_pytorch_that_the_readme_names(tmp_path: Path) -> None:
    (command,) = re.findall(r"`(make \w+ TORCH='[^`]+')`", (ROOT / "README.md").read_text(encoding="utf-8"))
    words = shlex.split(command)
    torch = next(word.removeprefix("TORCH=") for word in words if word.startswith("TORCH="))
    asked = [*words, "--dry-run", f"VENV={tmp_path / 'venv'}"]
    done = subprocess.run(asked, cwd=ROOT, capture_output=True, text=True, check=True)
    (install,) = (line for line in done.stdout.splitlines() if "pip install" in line and "torch==" in line)
    assert install.endswith(torch)
    assert "--index-url" in torch


def script_of_a_recipe(script: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The script as a module."""
    spec = importlib.util.spec_from_file_location(script.stem, script)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    monkeypatch.syspath_prepend(script.parent)  # as for a script that is run
    monkeypatch.setitem(sys.modules, script.stem, module)  # dataclasses look their module up
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("script", sorted((ROOT / "recipes").glob("*.py")), ids=lambda path: path.stem)
def test_a_script_of_a_recipe_imports_what_is_there(script: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert script_of_a_recipe(script, monkeypatch).__doc__


def test_text_of_knowledge_is_of_seen_manuscripts_and_never_of_test_lines(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    knowledge = script_of_a_recipe(ROOT / "recipes" / "knowledge.py", monkeypatch)
    unseen = min(knowledge.unseen())
    for split, text in (("train", "learnt"), ("validation", "chosen by"), ("test", "tested")):
        columns = {"text": [text], "manuscript": ["a"], "domain": ["ca-14"]}
        pq.write_table(pa.table(columns), tmp_path / f"{split}.parquet")
    for name, manuscripts in (("catmus_fr", ["c"]), ("latin_script", ["a", unseen])):
        (tmp_path / name).mkdir()
        for split in ("validation", "test"):
            columns = {"text": [f"{split} of {m}" for m in manuscripts], "manuscript": manuscripts}
            columns |= {"image": ["none"] * len(manuscripts), "century": ["14"] * len(manuscripts)}
            columns |= {"language": ["ca"] * len(manuscripts)} if name == "latin_script" else {}
            pq.write_table(pa.table(columns), tmp_path / name / f"{split}.parquet")
    table = f"| `ca-16.txt` | 1 | 4 | 1 | 0 | x: `b` |\n| `ca-15.txt` | 1 | 4 | 1 | 0 | x: `a`, `{unseen}` |\n"
    (tmp_path / "texts").mkdir()
    for name, text in (("README.md", table), ("ca-16.txt", "text\n"), ("ca-15.txt", "not to be used\n")):
        (tmp_path / "texts" / name).write_text(text, encoding="utf-8")
    found = {(body.domain, *body.manuscripts): body for body in knowledge.bodies(tmp_path, tmp_path)}
    assert {key: body.lines for key, body in found.items()} == {
        ("ca-14", "a"): ["learnt", "validation of a"],
        ("ca-16", "b"): ["text"],
        ("fr-14", "c"): ["validation of c"],
    }
    assert {key: body.learnt for key, body in found.items() if body.learnt} == {("ca-14", "a"): ["learnt"]}
