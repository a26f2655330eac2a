"""What is compiled and stored on disk."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import fada

_CALL = """
import numpy as np
from fada.decoding.kernels.memory import address_of
row = np.zeros((2, 3))
assert address_of(row) == row.ctypes.data
print(len(address_of.stats.cache_hits), len(address_of.stats.cache_misses))
"""


def test_stored_code_is_loaded_until_a_file_of_its_parts_is_another(tmp_path: Path) -> None:
    package = tmp_path / "fada"
    shutil.copytree(Path(fada.__file__).parent, package, ignore=shutil.ignore_patterns("pretrained", "__pycache__"))
    variables = {**os.environ, "PYTHONPATH": str(tmp_path), "NUMBA_CACHE_DIR": str(tmp_path / "stored")}

    def hits_and_misses() -> str:
        call = [sys.executable, "-c", _CALL]
        return subprocess.run(call, env=variables, check=True, capture_output=True, text=True).stdout.strip()

    assert [hits_and_misses(), hits_and_misses()] == ["0 1", "1 0"]
    with open(package / "decoding" / "kernels" / "vectors.py", "a", encoding="utf-8") as file:
        file.write("\n")
    assert [hits_and_misses(), hits_and_misses()] == ["0 1", "1 0"]
