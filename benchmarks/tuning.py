"""Time of tuning over stored emissions: the paper's grid of 19 λ, then the full grid, without running the model.

    python -m benchmarks.tuning [--run FOLDER] [--lm-text SOURCE] [--rivals] [--out FOLDER]

With a run folder (such as one trained on HPGT) its validation emissions and targets are used, and with ``--rivals``
every decoding is compared on its test emissions. Without one, emissions are made up: 150 lines of about 53 characters,
100 classes, best path error about 15 %. The decoder is compiled before the clock starts.
"""

import argparse
import time
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.ctc import SYMBOLS, corpus_lines, emissions
from fada.common.files import write_json
from fada.decoding.emissions import Emissions
from fada.decoding.knowledge import Knowledge, load_knowledge
from fada.decoding.search import BeamSearch
from fada.decoding.weights import Weights
from fada.runs.run import Run
from fada.targets.target_set import TargetSet
from fada.tuning.choose import Tuning, tune
from fada.tuning.grid import PAPER, Grid


def made_up(lines: int) -> tuple[Emissions, Knowledge]:
    """Emissions of made-up lines in two domains, with targets from other lines."""
    texts, log_probs = emissions(lines)
    domains = ["1" if i % 2 else "2" for i in range(lines)]
    data = Emissions([str(i) for i in range(lines)], log_probs, tuple(SYMBOLS), 0, domains, texts)
    other = corpus_lines(2000, np.random.default_rng(99))
    targets = TargetSet.from_texts({"1": other[::2], "2": other[1::2]})
    return data, Knowledge(targets, targets.overall)


def timed_tuning(search: BeamSearch, settings: Tuning) -> dict[str, Any]:
    """Seconds and result of one tuning."""
    started, cpu = time.perf_counter(), time.process_time()
    tuned = tune(search, settings)
    seconds, cpu_seconds = time.perf_counter() - started, time.process_time() - cpu
    evidence = tuned.evidence
    if evidence is None:
        raise RuntimeError("tuning gives evidence")
    settings = len(evidence.curve)
    return {
        "settings": settings,
        "lines": evidence.lines,
        "seconds": round(seconds, 2),
        "cpu_seconds": round(cpu_seconds, 2),
        "decodings_per_cpu_second": round(settings * evidence.lines / cpu_seconds),
        "plain_cer": round(evidence.plain, 3),
        "best": evidence.best.model_dump(),
        "held_out_cer": round(evidence.held_out, 3),
        "gain": evidence.gain.model_dump(),
        "recommended": tuned.weights.model_dump(exclude_defaults=True),
        "warning": evidence.warning,
    }


def main() -> None:
    """Print the figures, and write them if asked."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--run", type=Path, help="run folder with emissions/validation.npz and targets.json")
    parser.add_argument("--lm-text", action="append", default=[], help="training lines for the language models")
    parser.add_argument("--rivals", action="store_true", help="compare all rivals on the test emissions of the run")
    parser.add_argument("--lines", type=int, default=150, help="made-up lines")
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    if options.run:
        data = Run(options.run).emissions("validation")
        knowledge = load_knowledge(options.run / "targets.json", options.lm_text)
    else:
        data, knowledge = made_up(options.lines)
    search = BeamSearch(data, knowledge)
    for weights in (Weights(), Weights(lam=0.5), Weights(prior_weight=0.5)):
        search.choose(weights)
    result: dict[str, Any] = {
        "paper": timed_tuning(search, Tuning(PAPER, lms=(), prior=False)),
        "full": timed_tuning(search, Tuning(Grid())),
    }
    if options.rivals:
        from fada.tuning.rivals import compare_rivals

        table = compare_rivals(search, BeamSearch(Run(options.run).emissions("test"), knowledge))
        result["rivals"] = {"seconds": table.seconds, "rows": table.rows()}
        for row in table.rows():
            print({name: round(value, 3) if isinstance(value, float) else value for name, value in row.items()})
    for name in ("paper", "full"):
        print(name, result[name])
    if options.out:
        write_json(options.out / "tuning.json", result)


if __name__ == "__main__":
    main()
