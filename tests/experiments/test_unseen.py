"""Which manuscripts stay unseen: the rule, and the file that it printed."""

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest
import yaml

RECIPES = Path(__file__).parents[2] / "recipes"


@pytest.fixture(scope="module")
def unseen() -> ModuleType:
    """The script that holds the rule."""
    spec = importlib.util.spec_from_file_location("unseen", RECIPES / "unseen.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)

    sys.modules["unseen"] = module
    spec.loader.exec_module(module)
    return module


def test_the_rule_leaves_every_domain_a_manuscript_and_takes_those_without_text_first(unseen: ModuleType) -> None:
    def one(name: str, century: int, lines: int = 90, texts: tuple[str, ...] = ()) -> object:
        return unseen.Manuscript(name, "la", century, lines, 3, texts)

    known = [one("a", 9), one("b", 9, texts=("la-9.txt",)), one("c", 10), one("d", 11, 40), one("e", 11), one("f", 12)]
    known += [one("g", 12, 500), one("h", 13, 95), one("i", 13)]
    taken = unseen._round_robin(known, "la", [])
    assert [m.name for m in taken if m.century == 9] == ["a"]
    assert [m.name for m in taken if m.century == 10] == []
    assert [m.name for m in taken if m.century == 11] == ["e"]
    assert [m.name for m in taken if m.century == 12] == ["f"]
    assert len([m for m in taken if m.century == 13]) == 1


def test_the_file_has_the_numbers_that_the_rule_asks_for(unseen: ModuleType) -> None:
    listed = yaml.safe_load((RECIPES / "unseen.yaml").read_text(encoding="utf-8"))
    languages = [one["language"] for one in listed["arena"]]
    assert {language: languages.count(language) for language in set(languages)} == unseen.QUOTA
    assert all(unseen.LEAST <= one["lines"] <= unseen.MOST for one in listed["arena"])
    assert listed["demo"][0]["lines"] >= unseen.LEAST_OF_DEMO
    names = [one["manuscript"] for one in (*listed["arena"], *listed["demo"])]
    assert len(set(names)) == len(names) == 13
