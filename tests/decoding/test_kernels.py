"""What is compiled and stored on disk."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import fada
from fada.decoding.kernels.best import keep_best
from fada.decoding.kernels.memory import ROOM, pointer
from fada.decoding.kernels.parts import entry

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


@entry
def _kept(scores: np.ndarray, keys: np.ndarray, start: int, key_start: int, size: int, most: int) -> float:
    return keep_best(pointer(start, scores), pointer(key_start, keys), size, most)


@pytest.mark.parametrize("seed", range(200))
def test_the_best_of_a_few_are_kept_in_their_order_and_of_equal_ones_the_lowest_keys(seed: int) -> None:
    rng = np.random.default_rng(seed)
    size = int(rng.integers(2, ROOM + 1))
    most = int(rng.integers(1, size))
    scores, keys = np.full(ROOM, np.nan), np.zeros(ROOM, np.int64)
    scores[:size] = rng.integers(0, rng.choice([2, 8, 10**6]), size)
    scores[rng.random(ROOM) < 0.05] = rng.choice([np.inf, -np.inf])
    keys[:size] = rng.permutation(size)
    best = sorted(sorted(range(size), key=lambda i: (-scores[i], keys[i]))[:most])
    expected = scores[best].copy(), keys[best].copy()
    lowest = _kept(scores, keys, scores.ctypes.data, keys.ctypes.data, size, most)
    assert scores[:most].tolist() == expected[0].tolist()
    assert keys[:most].tolist() == expected[1].tolist()
    assert lowest == expected[0].min()
