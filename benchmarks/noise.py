"""How hard the synthetic lines are to read: test CER of the demo's C-RNN at several values of ``--noise``.

Run with: python -m benchmarks.noise (about two minutes of one core for each value; finished values are kept)
"""

import argparse
from pathlib import Path
from typing import Any

from fada.common.files import write_json, write_text
from fada.data.synthetic.set import SyntheticSettings, make_synthetic
from fada.evaluation.significance import mean_sem
from fada.experiments.paper_demo import DEMO_LINES, DEMO_SETTINGS
from fada.training.settings import TrainSettings
from fada.training.train import train_all


def measure(noise: float, seeds: list[int], runs: Path, epochs: int) -> dict[str, Any]:
    """Draw the lines of the demo with this noise, train on them with every seed, read the test lines."""
    lines = runs / f"{noise:g}" / "lines"
    if not (lines / "test.parquet").exists():
        drawn: SyntheticSettings = {**DEMO_LINES, "noise": noise}
        make_synthetic(**drawn).save(lines)
    settings = {**DEMO_SETTINGS, "data": [str(lines)], "lam": 1.0, "epochs": epochs, "threads": 1}
    planned = {
        str(seed): TrainSettings.of({**settings, "seed": seed, "out": runs / f"{noise:g}" / str(seed)})
        for seed in seeds
    }
    trained = train_all(planned, 1)
    tests = [run.metrics["test"] for run in trained.values()]
    return {"noise": noise, "seeds": seeds, "epochs": epochs, "cer": [test["beam5"]["cer"] for test in tests]}


def main() -> None:
    """Measure every value; write the figures and the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--noise", type=float, nargs="+", default=[0.0, 0.5, 1.0, 1.5, 2.0, 2.5])
    parser.add_argument("--seeds", type=int, nargs="+", default=[0])
    parser.add_argument("--epochs", type=int, default=DEMO_SETTINGS["epochs"])
    parser.add_argument("--runs", type=Path, default=Path("runs/noise"))
    parser.add_argument("--out", type=Path, default=Path("results/noise"))
    options = parser.parse_args()
    rows = [measure(noise, options.seeds, options.runs, options.epochs) for noise in options.noise]
    write_json(options.out / "noise.json", {"lines": DEMO_LINES, "settings": DEMO_SETTINGS, "rows": rows})
    table = [
        "| `--noise` | test CER % |",
        "|---|---|",
        *(f"| {row['noise']:g} | {mean_sem(row['cer'])} |" for row in rows),
    ]
    write_text(options.out / "table.md", "\n".join(table) + "\n")
    print("\n".join(table))


if __name__ == "__main__":
    main()
