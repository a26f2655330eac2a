"""How long `fada adapt` takes: the built-in model on 8 and 24 corrected lines of the demo's manuscript.

python -m benchmarks.adapt [THREADS]
"""

import sys
import tempfile
import time
from pathlib import Path

import torch

from fada.data.source import read_lines
from fada.experiments.demo import FEW, MOST, SAMPLE
from fada.experiments.division import drawn
from fada.models.folders import DEFAULT_MODEL
from fada.training.adapt import adapt


def main(threads: int) -> None:
    """Print a row for each."""
    torch.set_num_threads(threads)
    pool = [line for line in read_lines(SAMPLE / "lines.parquet") if line.split == "train"]
    print(f"{threads} threads")
    for count in (FEW, MOST):
        with tempfile.TemporaryDirectory() as folder:
            started, used = time.perf_counter(), time.process_time()
            done = adapt(DEFAULT_MODEL, drawn(pool, count, 0), Path(folder) / "mine")
            seconds, cpu = time.perf_counter() - started, time.process_time() - used
        print(f"{count} lines: {seconds:.0f} s, {cpu:.0f} s of CPU; CER {done.before:.1f} → {done.after:.1f} %")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else torch.get_num_threads())
