import subprocess
import sys

import pytest

import fada


def test_every_public_name_resolves() -> None:
    for name in fada.__all__:
        assert getattr(fada, name) is not None


def test_importing_fada_loads_nothing_heavy() -> None:
    heavy = "torch", "transformers", "numpy", "numba", "pyarrow", "matplotlib", "PIL"
    code = f"import sys, fada; print([m for m in {heavy!r} if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no_such_thing"):
        fada.no_such_thing  # noqa: B018
