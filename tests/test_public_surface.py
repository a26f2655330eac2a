import ast
import subprocess
import sys
from pathlib import Path

import pytest

import fada


def test_every_public_name_resolves() -> None:
    for name in fada.__all__:
        assert getattr(fada, name) is not None


def test_type_checkers_find_every_name_where_it_is_loaded_from() -> None:
    tree = ast.parse(Path(str(fada.__file__)).read_text(encoding="utf-8"))
    (block,) = [node for node in tree.body if isinstance(node, ast.If)]
    told = {a.name: str(one.module) for one in block.body if isinstance(one, ast.ImportFrom) for a in one.names}
    homes = {name: f"fada.{module}" for name, module in fada._HOMES.items()} | dict.fromkeys(fada._MODULES, "fada")
    assert told == homes


def test_importing_fada_loads_nothing_heavy() -> None:
    heavy = "torch", "transformers", "numpy", "numba", "pyarrow", "matplotlib", "PIL"
    code = f"import sys, fada; print([m for m in {heavy!r} if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no_such_thing"):
        fada.no_such_thing  # noqa: B018
