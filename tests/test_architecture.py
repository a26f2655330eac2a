"""The plan of the house is the house: rooms, layers and the files that docs/architecture.md names."""

import re
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[1]
PLAN = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
ROOMS = {p.name for p in (ROOT / "src" / "fada").iterdir() if p.is_dir() and p.name != "__pycache__"} | {
    p.name for p in (ROOT / "src" / "fada").glob("*.py") if p.name != "__init__.py"
}


def test_every_room_is_described_once() -> None:
    rows = re.findall(r"^\| (`.*?) \|", PLAN, re.MULTILINE)
    described = [name.rstrip("/") for row in rows for name in re.findall(r"`(.+?)`", row)]
    assert sorted(described) == sorted(ROOMS)


def test_the_layers_are_those_of_the_contract() -> None:
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    contract = settings["tool"]["importlinter"]["contracts"][0]
    layers = [re.sub(r"[()]", "", layer) for layer in contract["layers"]]
    block = PLAN.split("## Layers")[1].split("\n    __main__\n")[1].split("\n\n")[0]
    assert layers == ["__main__", *(re.sub(r" \(.*\)", "", line).strip() for line in block.splitlines())]


def test_every_file_that_is_named_exists() -> None:
    named = re.findall(r"`((?:src|tests|docs)/[\w/.]+?)`", PLAN)
    assert len(named) > 15
    assert [name for name in named if not (ROOT / name).exists()] == []


def test_no_test_is_a_library_of_another() -> None:
    imported = re.compile(r"^\s*(?:from|import) tests\.[\w.]*test_\w+|^\s*from tests[\w.]* import test_", re.MULTILINE)
    assert [str(p) for p in (ROOT / "tests").rglob("*.py") if imported.search(p.read_text(encoding="utf-8"))] == []


def test_every_page_is_linked_from_the_readme() -> None:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    assert [p.name for p in (ROOT / "docs").glob("*.md") if f"docs/{p.name}" not in readme] == []


def test_every_promise_names_tests_that_exist() -> None:
    promises = (ROOT / "docs" / "reliability.md").read_text(encoding="utf-8")
    named = set(re.findall(r"`(test_\w+)`", promises))
    tests = "\n".join(p.read_text(encoding="utf-8") for p in (ROOT / "tests").rglob("test_*.py"))
    assert len(named) > 15
    assert [name for name in sorted(named) if f"def {name}(" not in tests] == []
