"""Does the same training come out the same with another number of threads? Weights, emissions, texts and error rates.

    python -m benchmarks.threads [--out results/threads]

A C-RNN learns synthetic lines three times, with the same seed and commit: on one thread, on one thread again, on two.
"""

from pathlib import Path
from typing import Any

import numpy as np
import typer
from safetensors.numpy import load_file

from fada.common.files import write_json, write_text
from fada.data.synthetic.set import make_synthetic
from fada.decoding.emissions import Emissions
from fada.decoding.search import BeamSearch
from fada.decoding.weights import Weights
from fada.evaluation.table import markdown_table
from fada.experiments.record import Made
from fada.experiments.scoring import rates
from fada.runs.run import Run
from fada.training.settings import TrainSettings
from fada.training.train import train_all

LINES: dict[str, Any] = {"lines": 480, "height": 48, "noise": 0.5, "seed": 0}
SETTINGS: dict[str, Any] = {
    "domain_column": "domain",
    "model": "crnn:tiny",
    "epochs": 10,
    "patience": 0,
    "batch_size": 8,
    "learning_rate": 4e-3,
    "augment": 0.5,
    "lam": 1.0,
    "beam_size": 1,
    "seed": 0,
}
THREADS = {"one thread": 1, "one thread, again": 1, "two threads": 2}


def read(run: Run) -> tuple[dict[str, np.ndarray], Emissions, list[str]]:
    """The weights of a run, what it says of the test lines, and the texts that a beam search finds."""
    emissions = run.emissions("test")
    return load_file(run.folder / "model" / "model.safetensors"), emissions, BeamSearch(emissions).choose(Weights())


def main(runs: Path = Path("runs/threads"), out: Path = Path("results/threads")) -> None:
    """Train, compare with the first, write figures and table."""
    lines = runs / "lines"
    if not (lines / "test.parquet").exists():
        make_synthetic(**LINES).save(lines)
    rows, first = [], None
    for number, (name, threads) in enumerate(THREADS.items()):
        changes = {"data": [str(lines)], "threads": threads, "out": runs / str(number)}
        planned = TrainSettings.of({**SETTINGS, **changes})
        weights, emissions, texts = read(train_all({name: planned}, 1)[name])
        first = first or (weights, emissions, texts)
        moved = max(float(np.abs(weights[key] - first[0][key]).max()) for key in weights)
        pairs = zip(emissions.log_probs, first[1].log_probs, strict=True)
        apart = max(float(np.abs(np.exp(a) - np.exp(b)).max()) for a, b in pairs)
        others = sum(a != b for a, b in zip(texts, first[2], strict=True))
        cer = rates(emissions.references or [], texts).cer
        rows.append([name, f"{moved:.2g}", f"{apart:.2g}", f"{others} of {len(texts)}", f"{cer:.2f}"])
    head = ["training", "largest difference of a weight", "of a probability", "test lines read otherwise", "test CER %"]
    made = Made.now()
    write_json(out / "threads.json", {"rows": rows, "head": head, "libraries": made.libraries})
    table = markdown_table(head, rows)
    write_text(out / "table.md", table)
    print(table)


if __name__ == "__main__":
    typer.run(main)
