"""Counting characters: `fada` against `collections.Counter`, one core, alternating, as a ratio in one run.

Run with: python -m benchmarks.counting
"""

import json
import random
import time
from collections import Counter
from collections.abc import Callable
from statistics import median

import typer

from fada.text.counting import count_characters
from fada.text.normalizer import TextNormalizer

LETTERS = {
    "Greek": ("αεηιουωςστνρκπλμγδθφχβξζψ", "άέήίόύώἀἐἠἰὀὐὠᾶῆῖῦῶὰὲὴὶὸὺὼ"),
    "French": ("esaitnrulodcpmvqfbghjxyzkw", "éèàêçùîôâëïûœ"),
}


def lines_of(language: str, count: int, seed: int = 0) -> list[str]:
    """Made-up lines of about fifty characters with the falling frequencies, capitals and accents of a language."""
    common, accented = LETTERS[language]
    letters = common + accented
    weights = [1 / (rank + 2) for rank in range(len(letters))]
    rng = random.Random(seed)
    words = ["".join(rng.choices(letters, weights, k=rng.randint(1, 10))) for _ in range(3000)]
    words += [word.capitalize() for word in words[:300]]
    return [" ".join(rng.choices(words, k=8)) + rng.choice(".,·;") for _ in range(count)]


def counter_counts(lines: list[str]) -> dict[str, int]:
    """The peer: a Counter updated with each line."""
    counts: Counter[str] = Counter()
    for line in lines:
        counts.update(line)
    return counts


def median_seconds(runs: int, *actions: Callable[[], object]) -> list[float]:
    """Median CPU seconds of each action, the actions taking turns so that a busy machine slows all alike."""
    seconds: list[list[float]] = [[] for _ in actions]
    for _ in range(runs):
        for action, times in zip(actions, seconds, strict=True):
            start = time.process_time()
            action()
            times.append(time.process_time() - start)
    return [median(times) for times in seconds]


def measure(language: str, lines: int, runs: int) -> dict[str, object]:
    """Counting normalised lines, and normalising and counting raw ones."""
    raw = lines_of(language, lines)
    normalizer = TextNormalizer()
    plain = TextNormalizer(form="none", case="keep")
    normal = [normalizer(line) for line in raw]
    if count_characters(normal, plain) != counter_counts(normal) or count_characters(raw, normalizer) != counter_counts(
        normal
    ):
        raise SystemExit("the counts differ: the benchmark compares nothing")
    ours, peer, ours_raw, peer_raw = median_seconds(
        runs,
        lambda: count_characters(normal, plain),
        lambda: counter_counts(normal),
        lambda: count_characters(raw, normalizer),
        lambda: counter_counts([normalizer(line) for line in raw]),
    )
    characters = sum(map(len, normal))
    return {
        "text": language,
        "characters": characters,
        "fada, million characters per second": round(characters / ours / 1e6, 1),
        "Counter, million characters per second": round(characters / peer / 1e6, 1),
        "ratio": round(peer / ours, 1),
        "ratio with normalisation": round(peer_raw / ours_raw, 1),
    }


def main(lines: int = 40_000, runs: int = 7, floor: float = 4.0) -> None:
    """Print the ratios; exit with 1 if one falls below the floor."""
    results = [measure(language, lines, runs) for language in LETTERS]
    print(json.dumps(results, indent=2, ensure_ascii=False))
    if any(float(str(result["ratio"])) < floor for result in results):
        raise SystemExit(1)


if __name__ == "__main__":
    typer.run(main)
