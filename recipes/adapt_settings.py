"""How `fada adapt` trains: its settings, chosen once, on manuscripts that no result is reported on.

    python recipes/adapt_settings.py DATA [-o settings.json]

The French model, which never saw them, is adapted to one manuscript each of four languages of `latin_script` (train
split; at least 64 lines on at least two pages; not in `recipes/unseen.yaml`; the lowest SHA-256 of the name): 24
corrected lines of two of them and 8 of the others, at most 36 lines of other pages as test. One setting after the
other is changed, and kept if the mean of log(CER after / CER before) falls. French validation lines tell what is
forgotten. Finished trials stay in the file.
"""

import hashlib
import json
import math
import time
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import torch
import typer
from medieval import unseen

from fada import read_lines
from fada.common.files import write_json
from fada.data.line import Line
from fada.evaluation.edits import score_lines
from fada.experiments.division import divided, drawn, page_of
from fada.models import registry
from fada.models.network import Network
from fada.training import adapt
from fada.training.folds import AdaptSettings, fine_tune
from fada.training.lines import LineDataset
from fada.training.reading import read_texts

MODEL = "french"
CORRECTED = {"la": 24, "es": 24, "it": 8, "ca": 8}
"""Lines that are corrected, by language."""
SIZES = (24, 8)
LEAST, TESTED = 64, 36
TRIALS: tuple[tuple[dict[str, Any], ...], ...] = (
    ({}, {"learning_rate": 1e-3}),
    ({"epochs": 24, "fewest_steps": 120},),
    ({"plain": 0.0},),
    ({"replay": 0.0},),
)
"""Settings to try, one round after the other, each round from the best so far."""
FOLDS: tuple[dict[str, Any], ...] = ({}, {"learning_rate": 5e-4})
"""Settings to try with the mean of three folds instead of one training on all lines, each from the best so far."""


def manuscripts(data: Path) -> dict[str, list[Line]]:
    """The chosen manuscripts with their lines."""
    left_out = unseen()
    of: dict[tuple[str, str], list[Line]] = defaultdict(list)
    for line in read_lines(data / "latin_script" / "train.parquet"):
        of[str(line.extra["language"]), str(line.extra["manuscript"])].append(line)
    chosen = {}
    for language in CORRECTED:
        able = [
            name
            for (spoken, name), lines in of.items()
            if spoken == language and name not in left_out and len(lines) >= LEAST and len(set(map(page_of, lines))) > 1
        ]
        name = min(able, key=lambda name: hashlib.sha256(name.encode()).hexdigest())
        chosen[name] = of[language, name]
    return chosen


def cer(recognizer: Network, lines: Sequence[Line]) -> float:
    """Of best path, in percent."""
    texts = read_texts(recognizer, LineDataset(recognizer, lines, ()))
    return score_lines([str(line.text) for line in lines], texts).rates()["cer"]


def adapted(lines: Sequence[Line], replay: Sequence[Line], settings: AdaptSettings, way: str) -> Network:
    """The model after training on all lines, or merged of folds."""
    texts = [str(line.text) for line in lines]
    recognizer = registry.build(MODEL, texts)
    if way == "one":
        fine_tune(recognizer, lines, replay, settings, settings.seed)
        return recognizer
    folds = np.array_split(np.random.default_rng(settings.seed).permutation(len(lines)), settings.folds)
    mean = adapt.Mean()
    for number, held_out in enumerate(folds):
        part = registry.build(MODEL, texts)
        chosen = [line for i, line in enumerate(lines) if i not in held_out]
        fine_tune(part, chosen, replay, settings, settings.seed + number)
        mean.add(part.model.state_dict())
    mean.load_into(recognizer.model)
    return recognizer


def trial(
    lines: dict[str, list[Line]], replay: Sequence[Line], known: Sequence[Line], settings: AdaptSettings, way: str
) -> dict[str, Any]:
    """Rates of one setting on every manuscript, and what it costs."""
    rates: dict[str, list[float]] = {}
    forgotten = []
    started = time.process_time()
    for name, own in lines.items():
        pool, test = divided(own, max(SIZES))
        size = CORRECTED[str(own[0].extra["language"])]
        recognizer = adapted(drawn(pool, size, 0), replay, settings, way)
        rates[f"{name} {size}"] = [before(name, test[:TESTED]), cer(recognizer, test[:TESTED])]
        forgotten.append(cer(recognizer, known))
    change = {
        size: np.mean([math.log(b / a) for n, (a, b) in rates.items() if n.endswith(f" {size}")]) for size in SIZES
    }
    return {
        "change": {str(size): 100 * (math.exp(value) - 1) for size, value in change.items()},
        "mean": float(np.mean(list(change.values()))),
        "french": float(np.mean(forgotten)),
        "seconds": round(time.process_time() - started, 1),
        "rates": rates,
    }


_BEFORE: dict[str, float] = {}


def before(name: str, test: Sequence[Line]) -> float:
    """The rate of the model as it is."""
    if name not in _BEFORE:
        _BEFORE[name] = cer(registry.load_network(MODEL), test)
    return _BEFORE[name]


def main(data: Path, out: Annotated[Path, typer.Option("--out", "-o")] = Path("adapt_settings.json")) -> None:
    """Try, print the table."""
    torch.set_num_threads(1)
    lines = manuscripts(data)
    of_training = list(read_lines(data / "catmus_fr" / "train.parquet"))
    replay = drawn(of_training, 80, 0)
    known = drawn(list(read_lines(data / "catmus_fr" / "validation.parquet")), 24, 0)
    found: dict[str, Any] = json.loads(out.read_text(encoding="utf-8")) if out.exists() else {}

    def tried(settings: AdaptSettings, way: str = "one") -> dict[str, Any]:
        changed = {n: v for n, v in settings.model_dump().items() if n not in ("seed", "folds")}
        name = json.dumps(changed) + f" {way}"
        if name not in found:
            found[name] = trial(lines, replay, known, settings, way)
            write_json(out, found)
        row = found[name]
        cells = [*(f"{row['change'][str(size)]:+.1f} %" for size in SIZES), f"{row['french']:.2f}"]
        print(
            f"| {', '.join(f'{n} {v:g}' for n, v in changed.items())}; {way} | {' | '.join(cells)} | {row['seconds']} |"
        )
        return row

    print(f"French lines before: {cer(registry.load_network(MODEL), known):.2f}; manuscripts: {', '.join(lines)}\n")
    sizes = " | ".join(f"{size} lines" for size in SIZES)
    print(f"| settings | {sizes} | French lines | seconds |\n|---|---|---|---|---|")
    best = AdaptSettings(
        epochs=12, fewest_steps=60, learning_rate=5e-4, plain=0.25, replay=0.25, augment=1.0, batch_size=4
    )
    for rounds in TRIALS:
        results = {
            s: tried(s)["mean"] for s in (best, *(best.model_copy(update=change) for change in rounds if change))
        }
        best = min(results, key=lambda settings: results[settings])
    for change in FOLDS:
        tried(best.model_copy(update=change), "folds")


if __name__ == "__main__":
    typer.run(main)
