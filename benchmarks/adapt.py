"""How long `fada adapt` takes: the built-in model on 8 and 24 corrected lines of the demo's manuscript.

python -m benchmarks.adapt [PROCESSES]
"""

import os
import sys
import tempfile
import time
from pathlib import Path

from fada.common.threads import cores
from fada.data.source import read_lines
from fada.experiments.demo import FEW, MOST, SAMPLE
from fada.experiments.division import drawn
from fada.models.folders import DEFAULT_MODEL
from fada.training.adapt import Adapting
from fada.training.folds import train_folds


def _cpu() -> float:
    """Seconds of this process and of those that it waited for."""
    used = os.times()
    return used.user + used.system + used.children_user + used.children_system


def main(processes: int) -> None:
    """Print a row for each."""
    pool = [line for line in read_lines(SAMPLE / "lines.parquet") if line.split == "train"]
    print(f"{processes} processes")
    for count in (FEW, MOST):
        with tempfile.TemporaryDirectory() as folder:
            started, used = time.perf_counter(), _cpu()
            begun = Adapting(DEFAULT_MODEL, drawn(pool, count, 0), Path(folder) / "mine")
            train_folds(begun.folds, processes)
            done = begun.finish()
            seconds, cpu = time.perf_counter() - started, _cpu() - used
        print(f"{count} lines: {seconds:.0f} s, {cpu:.0f} s of CPU; CER {done.before:.1f} → {done.after:.1f} %")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else cores())
