"""Processor time of starts: `python -m benchmarks.start`.

`fada --help` (at most 0.3 s are wanted: what makes it slow is an import, and `tests/cli/test_cli.py`
says which ones it must not do), and `fada transcribe line.png` with a line of the demo: the first time, when the search
is compiled (8 s), and later (1.5 s).
"""

import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path

import pyarrow.parquet as pq

from fada.experiments.demo import SAMPLE

STARTS = 7
FIRST_STARTS = 3
ENVIRONMENT = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
"""As users have it, whose modules are compiled once."""


def seconds(*arguments: str, environment: Mapping[str, str] = ENVIRONMENT) -> float:
    """Processor time of one start of `fada`, user and system."""
    before = os.times()
    subprocess.run([sys.executable, "-m", "fada", *arguments], capture_output=True, check=True, env=environment)
    after = os.times()
    return after.children_user + after.children_system - before.children_user - before.children_system


def transcribe(folder: Path) -> tuple[list[float], list[float]]:
    """Starts of `fada transcribe line.png` in which the search is compiled, and in which it is stored."""
    line = folder / "line.png"
    line.write_bytes(pq.read_table(SAMPLE / "lines.parquet", columns=["image"]).column("image")[0]["bytes"].as_py())
    caches = [{**ENVIRONMENT, "NUMBA_CACHE_DIR": str(folder / str(number))} for number in range(FIRST_STARTS)]
    first = [seconds("transcribe", str(line), environment=cache) for cache in caches]
    return first, [seconds("transcribe", str(line), environment=caches[0]) for _ in range(STARTS)]


def told(name: str, found: list[float]) -> str:
    """Least and most of some starts."""
    return f"{name}: {min(found):.2f} to {max(found):.2f} s of CPU, {len(found)} starts"


if __name__ == "__main__":
    print(told("fada --help", [seconds("--help") for _ in range(STARTS)]))
    with tempfile.TemporaryDirectory() as name:
        first, later = transcribe(Path(name))
    print(told("fada transcribe line.png, the first time", first))
    print(told("fada transcribe line.png, later", later))
