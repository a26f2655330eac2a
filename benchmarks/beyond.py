"""What the paper names as its future, tried small: pairs of characters, adaptive λ, targets that keep the case.

    python -m benchmarks.beyond FOLDER/catmus_fr:century [--lines 160] [--no-training] [--out results/beyond]

Decoding: the model `french` reads validation lines of the given set, every setting chooses from the same 20-best lists,
targets are counted on the training text of each domain. Training: a C-RNN learns synthetic lines, and goes on for two
epochs in several ways; validation lines judge. All figures are of validation lines, the best of a few values each.
"""

import argparse
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

import fada
from fada import read_lines
from fada.common.files import write_text
from fada.data.synthetic.set import make_synthetic
from fada.decoding.knowledge import Knowledge
from fada.decoding.nbest import NBest, Rescorer
from fada.decoding.weights import Weights
from fada.distances import aligned_w2
from fada.evaluation.edits import score_lines
from fada.evaluation.table import markdown_table
from fada.targets.target_set import TargetSet
from fada.text.normalizer import TextNormalizer
from fada.training.settings import TrainSettings
from fada.training.train import train_all

NBEST = 20
LAMBDAS = (0.95, 0.9, 0.8, 0.7, 0.5, 0.3, 0.1)
SCALES = (1.0, 10.0, 50.0, 200.0)
SYNTHETIC: dict[str, Any] = {"lines": 480, "height": 48, "noise": 0.5, "seed": 0}
SHARED: dict[str, Any] = {
    "domain_column": "domain",
    "batch_size": 8,
    "augment": 0.5,
    "patience": 0,
    "threads": 1,
    "seed": 0,
    "beam_size": 1,
}
FIRST: dict[str, Any] = {**SHARED, "model": "crnn:tiny", "epochs": 14, "learning_rate": 4e-3, "lam": 1.0}
FURTHER: dict[str, Any] = {**SHARED, "epochs": 2, "learning_rate": 1e-3}
ARMS: dict[str, dict[str, Any]] = {
    "task alone": {"lam": 1.0},
    "characters, Eq. 1": {"lam": 0.5},
    "characters, adaptive λ": {"lam": 0.9, "distance": "aligned_w2", "lam_schedule": "adaptive"},
    "pairs, scale 1": {"lam": 0.5, "distance": "aligned_w2", "ngram": 2},
    "pairs, adaptive λ": {"lam": 0.9, "distance": "aligned_w2", "ngram": 2, "lam_schedule": "adaptive"},
}
Texts = Mapping[str, Sequence[str]]


def lists_of(folder: str, column: str, number: int) -> tuple[NBest, Texts]:
    """The 20-best lists of validation lines by the model `french`, and the training text of each domain."""
    texts: dict[str, list[str]] = {}
    for line in read_lines(folder, split="train", domain_column=column):
        texts.setdefault(str(line.domain), []).append(str(line.text))
    lines = list(read_lines(folder, split="validation", domain_column=column))
    chosen = [lines[i] for i in np.linspace(0, len(lines) - 1, min(number, len(lines))).astype(int)]
    emissions = fada.load_recognizer("french").emit(chosen)
    decoder = fada.CTCBeamDecoder(emissions.symbols, emissions.blank, beam_size=NBEST)
    found = decoder.decode_batch(emissions.log_probs, nbest=NBEST)
    hypotheses, log_probs = [[h.text for h in nbest] for nbest in found], [[h.log_prob for h in n] for n in found]
    domains = [str(line.domain) for line in chosen]
    return NBest(emissions.ids, hypotheses, log_probs, emissions.references, [*domains]), texts


def pair_term(lists: NBest, texts: Texts) -> list[np.ndarray]:
    """For every line the distance (`aligned_w2`) of the pairs of each hypothesis from those of the line's domain."""
    normal = TextNormalizer()
    counted = {
        domain: Counter(pair for text in some for pair in pairwise(normal(text))) for domain, some in texts.items()
    }
    place = {pair: i for i, pair in enumerate(sorted(set().union(*counted.values())))}

    def vector(pairs: Counter[tuple[str, str]]) -> np.ndarray:
        found = np.zeros(len(place) + 1)
        for pair, number in pairs.items():
            found[place.get(pair, len(place))] += number
        return found / max(found.sum(), 1)

    targets = {domain: vector(pairs) for domain, pairs in counted.items()}
    return [
        np.array([aligned_w2(vector(Counter(pairwise(normal(text)))), targets[str(domain)]) for text in hypotheses])
        for hypotheses, domain in zip(lists.hypotheses, lists.domains or [], strict=True)
    ]


def decoding(lists: NBest, texts: Texts) -> list[list[str]]:
    """A row for every way to choose from the lists: the best setting of a few, its CER, hypotheses changed."""
    lower = TargetSet.from_texts(texts)
    cased = TargetSet.from_texts(texts, normalizer=TextNormalizer(case="keep"))
    references = lists.references or []
    plain = [texts[int(np.argmax(values))] for texts, values in zip(lists.hypotheses, lists.log_probs, strict=True)]

    def cer(found: Sequence[str]) -> float:
        return score_lines(references, found).rates()["cer"]

    def row(name: str, settings: Mapping[str, Callable[[], list[str]]]) -> list[str]:
        found = {setting: choose() for setting, choose in settings.items()}
        best = min(found, key=lambda setting: cer(found[setting]))
        changed = sum(a != b for a, b in zip(found[best], plain, strict=True))
        return [name, best, f"{cer(found[best]):.2f}", str(changed)]

    def guided(targets: TargetSet, distance: str, adaptive: bool = False) -> dict[str, Callable[[], list[str]]]:
        search = Rescorer(lists, Knowledge(targets, targets.overall), adaptive)
        weights = [Weights(lam=lam, distance=distance) for lam in LAMBDAS]
        return {f"λ = {one.lam:g}": lambda one=one: search.choose(one) for one in weights}  # type: ignore[misc]

    def prior(targets: TargetSet) -> dict[str, Callable[[], list[str]]]:
        search = Rescorer(lists, Knowledge(targets, targets.overall))
        weights = [Weights(prior_weight=weight) for weight in (0.1, 0.3, 0.5, 1.0)]
        return {f"weight {one.prior_weight:g}": lambda one=one: search.choose(one) for one in weights}  # type: ignore[misc]

    pairs = pair_term(lists, texts)

    def by_pairs(scale: float) -> list[str]:
        scored = zip(lists.hypotheses, lists.log_probs, pairs, strict=True)
        return [found[int(np.argmax(np.array(values) - scale * far))] for found, values, far in scored]

    return [
        ["plain", "", f"{cer(plain):.2f}", "0"],
        ["the best of every list (oracle)", "", f"{cer(lists.oracle()):.2f}", ""],
        row("characters, Eq. 2", guided(lower, "sorted_w2")),
        row("characters, Eq. 2, adaptive λ", guided(lower, "sorted_w2", adaptive=True)),
        row("characters, `aligned_w2`", guided(lower, "aligned_w2")),
        row("characters, `aligned_w2`, adaptive λ", guided(lower, "aligned_w2", adaptive=True)),
        row("pairs, `aligned_w2`", {f"scale {scale:g}": lambda scale=scale: by_pairs(scale) for scale in SCALES}),  # type: ignore[misc]
        row("case kept, Eq. 2", guided(cased, "sorted_w2")),
        row("case kept, `aligned_w2`", guided(cased, "aligned_w2")),
        row("prior correction, lower case", prior(lower)),
        row("prior correction, case kept", prior(cased)),
    ]


def training(runs: Path) -> list[list[str]]:
    """A row for every way to go on: validation CER and the λ that was used last."""
    lines = runs / "lines"
    if not (lines / "test.parquet").exists():
        make_synthetic(**SYNTHETIC).save(lines)
    data = {"data": [str(lines)]}
    first = train_all({"first": TrainSettings.of({**FIRST, **data, "out": runs / "first"})}, 1)["first"]
    further = {**FURTHER, **data, "model": str(first.folder)}
    planned = {
        name: TrainSettings.of({**further, **changes, "out": runs / str(number)})
        for number, (name, changes) in enumerate(ARMS.items())
    }
    rows = [["before", f"{first.metrics['history'][-1]['validation']['cer']:.2f}", ""]]
    for name, run in train_all(planned, 1).items():
        last = run.metrics["history"][-1]
        rows.append([name, f"{last['validation']['cer']:.2f}", f"{last.get('lam', ARMS[name]['lam']):.4g}"])
    return rows


def main() -> None:
    """Measure what is asked for; write the tables, each when it is there."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("data", nargs="?", help="FOLDER:COLUMN of the lines to decode; without it, training alone")
    parser.add_argument("--lines", type=int, default=160)
    parser.add_argument("--runs", type=Path, default=Path("runs/beyond"))
    parser.add_argument("--out", type=Path, default=Path("results/beyond"))
    parser.add_argument("--no-training", action="store_true", help="decoding alone")
    options = parser.parse_args()
    if options.data:
        folder, _, column = options.data.rpartition(":")
        lists, texts = lists_of(folder, column, options.lines)
        head = ["choice by", "best setting", "validation CER %", "hypotheses changed"]
        written(
            options.out / "decoding.md",
            f"Decoding: {len(lists.ids)} validation lines of `{Path(folder).name}`, read by the model `french`, chosen "
            f"from {NBEST}-best lists; the best of the values tried, on the same lines, "
            "so an upper bound of what each is worth.",
            markdown_table(head, decoding(lists, texts)),
        )
    if not options.no_training:
        written(
            options.out / "training.md",
            f"Training: `{FIRST['model']}` on {SYNTHETIC['lines']} synthetic lines, {FIRST['epochs']} epochs, "
            f"then {FURTHER['epochs']} more; one seed.",
            markdown_table(["further training", "validation CER %", "λ"], training(options.runs)),
        )


def written(path: Path, told: str, table: str) -> None:
    """Write a table with what it is about, and print it."""
    write_text(path, f"{told}\n\n{table.rstrip()}\n")
    print(f"{told}\n\n{table}")


if __name__ == "__main__":
    main()
