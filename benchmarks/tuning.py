"""Time of tuning over stored emissions: most settings rescored, and every setting decoded, in turns.

    python -m benchmarks.tuning [--run FOLDER | --emissions FILE --text SOURCE] [--lines N] [--rivals] [--out FOLDER]
    python -m benchmarks.tuning --emissions FILE --text SOURCE --base COMMIT    # against an earlier commit

With a run folder (such as one trained on HPGT) its validation emissions and targets are used, and with ``--rivals``
every decoding is compared on its test emissions. Emissions of ``fada emit`` need the text that is known, by domain.
Without either, emissions are made up: lines of about 53 characters, 100 classes, best path error about 15 %. The
decoder is compiled before the clock starts, and one thread works.
"""

import argparse
import itertools
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.reading import REPOSITORY, checked_out, told_by
from benchmarks.searching import made_up
from fada.common.files import write_json
from fada.decoding.emissions import Emissions
from fada.decoding.knowledge import Knowledge, load_knowledge
from fada.decoding.search import BeamSearch
from fada.decoding.weights import Weights
from fada.runs.run import Run
from fada.tuning.choose import Tuning, tune

ONCE = """
import json, sys, time
from fada.decoding.emissions import Emissions
from fada.decoding.knowledge import load_knowledge
from fada.decoding.search import BeamSearch
from fada.decoding.weights import Weights
from fada.tuning.choose import Tuning, tune

file, column, *text = sys.argv[1:]
search = BeamSearch(Emissions.load(file), load_knowledge(None, text, domain_column=column or None), threads=1)
for lm in ("none", "global"):
    for lam in (1.0, 0.5):
        for prior_weight in (0.0, 0.5):
            search.hypotheses(Weights().change(lm=lm, lm_weight=0.1, lam=lam, prior_weight=prior_weight))
started = time.process_time()
tuned = tune(search, Tuning())
seconds, evidence = time.process_time() - started, tuned.evidence
weights = tuned.weights.model_dump(exclude_defaults=True)
print(json.dumps({"cpu_seconds": seconds, "settings": len(evidence.curve), "lines": evidence.lines,
                  "recommended": weights, "held_out_cer": round(evidence.held_out, 3)}))
"""
"""A tuning by whatever commit of the program is found; the search is compiled before."""


def against(commit: str, emissions: Path, text: list[str], column: str | None, rounds: int) -> None:
    """Print what tuning takes and recommends here and at an earlier commit, in turns."""
    with tempfile.TemporaryDirectory() as folder:
        sources = {"now": REPOSITORY / "src", commit: checked_out(commit, Path(folder) / "earlier") / "src"}
        found: dict[str, list[dict[str, Any]]] = {name: [] for name in sources}
        for _ in range(rounds):
            for name, source in sources.items():
                found[name].append(told_by(source, ONCE, str(emissions), column or "", *text))
                print(name, found[name][-1], flush=True)
    seconds = [[tuned["cpu_seconds"] for tuned in found[name]] for name in sources]
    print(", ".join(f"{before / now:.1f}" for now, before in zip(*seconds, strict=True)), "times quicker")


def timed_tuning(search: BeamSearch, settings: Tuning) -> dict[str, Any]:
    """Seconds and result of one tuning."""
    started, cpu = time.perf_counter(), time.process_time()
    tuned = tune(search, settings)
    seconds, cpu_seconds = time.perf_counter() - started, time.process_time() - cpu
    evidence = tuned.evidence
    if evidence is None:
        raise RuntimeError("tuning gives evidence")
    return {
        "settings": len(evidence.curve),
        "decoded": sum(not point.rescored for point in evidence.curve),
        "lines": evidence.lines,
        "seconds": round(seconds, 2),
        "cpu_seconds": round(cpu_seconds, 2),
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
    parser.add_argument("--emissions", type=Path, help="emissions with references and domains, of fada emit")
    parser.add_argument("--text", action="append", default=[], help="training lines for targets and language models")
    parser.add_argument("--domain-column", help="of --text")
    parser.add_argument("--rivals", action="store_true", help="compare all rivals on the test emissions of the run")
    parser.add_argument("--lines", type=int, default=150, help="at most so many, drawn at random")
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--base", help="commit to compare with, instead of every setting decoded")
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    if options.base:
        if not options.emissions:
            parser.error("--base needs --emissions")
        against(options.base, options.emissions, options.text, options.domain_column, options.rounds)
        return
    if options.run or options.emissions:
        data = Run(options.run).emissions("validation") if options.run else Emissions.load(options.emissions)
        targets = options.run / "targets.json" if options.run else None
        knowledge = load_knowledge(targets, options.text, domain_column=options.domain_column)
        rows = np.sort(np.random.default_rng(1).permutation(len(data))[: options.lines])
        data = data.ordered([data.ids[row] for row in rows])
    else:
        data, known = made_up(options.lines)
        knowledge = Knowledge(known.targets, known.prior)
    search = BeamSearch(data, knowledge, threads=1)
    lms: tuple[Any, ...] = ("none", *(["global"] if knowledge.global_lm else []))
    for lm, lam, prior_weight in itertools.product(lms, (1.0, 0.5), (0.0, 0.5)):
        search.nbest(Weights().change(lm=lm, lm_weight=0.1, lam=lam, prior_weight=prior_weight))
    result: dict[str, Any] = {}
    for _ in range(options.rounds):
        for name, exact in (("rescored", False), ("exact", True)):
            result.setdefault(name, []).append(timed_tuning(search, Tuning(exact=exact)))
            print(name, result[name][-1], flush=True)
    ratios = [b["cpu_seconds"] / a["cpu_seconds"] for a, b in zip(result["rescored"], result["exact"], strict=True)]
    print(", ".join(f"{ratio:.1f}" for ratio in ratios), "times quicker")
    for name in ("recommended", "held_out_cer"):
        same = all(a[name] == b[name] for a, b in zip(result["rescored"], result["exact"], strict=True))
        print(f"{name}: {'the same' if same else 'another'}")
    if options.rivals:
        from fada.tuning.rivals import compare_rivals

        table = compare_rivals(search, BeamSearch(Run(options.run).emissions("test"), knowledge))
        result["rivals"] = {"seconds": table.seconds, "rows": table.rows()}
        for row in table.rows():
            print({name: round(value, 3) if isinstance(value, float) else value for name, value in row.items()})
    if options.out:
        write_json(options.out / "tuning.json", result)


if __name__ == "__main__":
    main()
