"""What interactive reading saves, by simulation on manuscripts that no training has seen, and whether the desk knows
beforehand which lines it reads badly.

Three users read the same lines: one types everything; one corrects the finished reading with as few edits as there can
be (its edit distance, so this is a bound that no hand reaches); one reads on until the first wrong character, types the
right one, and lets the rest of the line be read again with all that is confirmed. Counted are keystrokes: an edit or a
typed character each, and one to cut a tail off. Moving the cursor counts for nobody. Lines are those of the test pages
of the arena (`recipes/unseen.yaml`), every so many, so that each manuscript has `--count`; knowledge is what the desk
finds by itself.

    python -m benchmarks.effort DATA --count 24
    python -m benchmarks.effort DATA --fit        # the curve of `fada.serve.reading.WORD_ERROR`, on other manuscripts
"""

import argparse
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from rapidfuzz.distance import Levenshtein

from fada import load_recognizer, read_lines
from fada.data.line import Line
from fada.evaluation.table import markdown_table
from fada.experiments.arena import MOST, lines_of, listed
from fada.experiments.division import divided
from fada.serve.chosen import Chosen
from fada.serve.knowledge import Known, looked_at
from fada.serve.reading import Reader, word_doubt

BEAM = 30
DOUBTFUL = 0.3
"""Expected word error from which the desk shows no draft."""
SEEN = 16
"""Lines by which the desk finds the domain."""


@dataclass(frozen=True)
class Effort:
    """Of one line: its length, keystrokes, and how many of its words were, and were expected to be, wrong."""

    characters: int
    edits: int
    interactive: int
    words: int
    wrong: int
    expected: float


def interactive(reader: Reader, log_probs: np.ndarray, text: str, times: list[float]) -> int:
    """Keystrokes until the proposal is `text`; the milliseconds of each proposal go to `times`."""
    strokes, prefix = 0, ""
    while True:
        started = time.perf_counter()
        proposal = reader.complete(log_probs, prefix).text
        times.append((time.perf_counter() - started) * 1000)
        if proposal == text:
            return strokes
        same = next((i for i, (a, b) in enumerate(zip(proposal, text, strict=False)) if a != b), None)
        if same is None and len(proposal) > len(text):
            return strokes + 1  # the rest is cut off
        strokes += 1
        prefix = text[: (len(proposal) if same is None else same) + 1]


def evenly(lines: Sequence[Line], count: int) -> list[Line]:
    """As many lines, at equal distances."""
    chosen = sorted({round(i) for i in np.linspace(0, len(lines) - 1, min(count, len(lines)))})
    return [lines[i] for i in chosen]


def of_manuscript(
    lines: Sequence[Line], emissions: Sequence[np.ndarray], reader: Reader, times: list[float]
) -> list[Effort]:
    """The effort of each line."""
    found = []
    for line, log_probs, reading in zip(lines, emissions, reader.read(emissions), strict=True):
        text = " ".join((line.text or "").split())
        words = text.split()
        found.append(
            Effort(
                len(text),
                Levenshtein.distance(reading.text, text),
                interactive(reader, log_probs, text, times),
                len(words),
                Levenshtein.distance(reading.text.split(), words),
                reading.expected_word_error or 0.0,
            )
        )
    return found


def _keystrokes(found: Sequence[Effort], which: str) -> float:
    return 100 * sum(getattr(one, which) for one in found) / max(sum(one.characters for one in found), 1)


def _mean(values: Sequence[float]) -> str:
    """Mean and standard error over manuscripts."""
    return f"{np.mean(values):.1f} ({np.std(values, ddof=1) / len(values) ** 0.5:.1f})"


def show(rows: dict[str, dict[str, list[Effort]]], times: Sequence[float]) -> None:
    """The tables."""
    kinds = list(next(iter(rows.values())))
    head = ["manuscript", "lines", *(f"{kind}: {what}" for kind in kinds for what in ("fewest edits", "interactive"))]
    table = []
    for name, found in rows.items():
        cells = [f"{_keystrokes(found[kind], which):.1f}" for kind in kinds for which in ("edits", "interactive")]
        table.append([name, str(len(found[kinds[0]])), *cells])
    means = [
        _mean([_keystrokes(found[kind], which) for found in rows.values()])
        for kind in kinds
        for which in ("edits", "interactive")
    ]
    table.append(["mean of manuscripts (standard error)", str(sum(int(row[1]) for row in table)), *means])
    print("Keystrokes for 100 characters (typing everything: 100)\n")
    print(markdown_table(head, table))
    for kind in kinds:
        gains = [
            100 * (_keystrokes(found[kind], "interactive") / max(_keystrokes(found[kind], "edits"), 1e-9) - 1)
            for found in rows.values()
        ]
        print(f"\n{kind}: interactive against fewest edits, change in percent, mean of manuscripts {_mean(gains)}")
    print("\nWords that are wrong, in percent: expected from the recogniser's own confidence, and found\n")
    table = []
    for kind in kinds:
        lines = [one for found in rows.values() for one in found[kind] if one.words]
        for name, chosen in (
            (f"expected up to {DOUBTFUL:.0%}", [one for one in lines if one.expected <= DOUBTFUL]),
            (f"expected above {DOUBTFUL:.0%}", [one for one in lines if one.expected > DOUBTFUL]),
        ):
            if not chosen:
                continue
            words = sum(one.words for one in chosen)
            expected = 100 * sum(one.expected * one.words for one in chosen) / words
            wrong = 100 * sum(one.wrong for one in chosen) / words
            strokes = [f"{_keystrokes(chosen, which):.1f}" for which in ("edits", "interactive")]
            table.append([f"{kind}, {name}", str(len(chosen)), f"{expected:.0f}", f"{wrong:.0f}", *strokes])
    print(markdown_table(["lines", "number", "expected", "found", "fewest edits", "interactive"], table))
    half, most, worst = np.percentile(times, [50, 95, 100])
    print(
        f"\nA proposal at beam {BEAM}: median {half:.1f} ms, 95 % {most:.1f} ms, longest {worst:.1f} ms ({len(times)})"
    )


def fit(recognizer: Any, model: str, data: Path, least: int = 8) -> None:
    """From how doubtful the words of a line seem to how many are wrong, on validation lines outside the arena."""
    folder = data / "latin_script" if (data / "latin_script").is_dir() else data
    arena = {one.manuscript for one in listed()}
    by_manuscript: dict[str, list[Line]] = {}
    for line in read_lines(folder / "validation.parquet"):
        if (name := str(line.extra.get("manuscript"))) not in arena and (line.text or "").strip():
            by_manuscript.setdefault(name, []).append(line)
    cells: list[tuple[float, int, int]] = []
    for lines in by_manuscript.values():
        if len(lines) < least:
            continue
        chosen = evenly(lines, 24)
        emissions = recognizer.emit(chosen)
        known = looked_at(Chosen(), model, emissions.symbols, emissions.blank, emissions.log_probs[:SEEN])
        reader = Known(model, {}, known, list, BEAM).reader(emissions.symbols, emissions.blank)
        for line, reading in zip(chosen, reader.read(emissions.log_probs), strict=True):
            expected = (line.text or "").split()
            doubt = word_doubt(reading.text, [confidence for _, confidence, _, _ in reading.characters])
            edits = min(Levenshtein.distance(reading.text.split(), expected), len(expected))
            cells.append((1.0 if doubt is None else doubt, edits, len(expected)))
    doubts, wrong, words = np.array(cells).T
    doubts = np.clip(doubts, 1e-4, 1 - 1e-4)
    inputs = np.stack([np.ones_like(doubts), np.log(doubts / (1 - doubts))], axis=1)
    weights = np.zeros(2)
    for _ in range(50):  # Newton's method of a binomial regression
        rates = 1 / (1 + np.exp(-inputs @ weights))
        gradient = inputs.T @ (wrong - words * rates)
        weights += np.linalg.solve((inputs * (words * rates * (1 - rates))[:, None]).T @ inputs, gradient)
    rates = 1 / (1 + np.exp(-inputs @ weights))
    total = words.sum()
    many = sum(len(one) >= least for one in by_manuscript.values())
    print(f"{len(cells)} lines of {many} manuscripts, {total:.0f} words")
    print(f"wrong {wrong.sum() / total:.1%}, as doubted {(doubts * words).sum() / total:.1%}", end=", ")
    print(f"as fitted {(rates * words).sum() / total:.1%}")
    print(f"shift {weights[0]:.2f}, slope {weights[1]:.2f}")


def main(arguments: Sequence[str] | None = None) -> None:
    """Simulate."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path, help="the folder of latin_script, or the one it is in")
    parser.add_argument("--model", default="medieval")
    parser.add_argument("--count", type=int, default=24, help="lines of each manuscript")
    parser.add_argument("--fit", action="store_true", help="fit the curve of expected word errors instead")
    given = parser.parse_args(arguments)
    recognizer = load_recognizer(given.model)
    if given.fit:
        fit(recognizer, given.model, given.data)
        return
    manuscripts = listed()
    rows: dict[str, dict[str, list[Effort]]] = {}
    times: list[float] = []
    for one, lines in zip(manuscripts, lines_of(manuscripts, given.data).values(), strict=True):
        test = evenly(divided(lines, MOST)[1], given.count)
        emissions = recognizer.emit(test)  # type: ignore[attr-defined]
        chosen = looked_at(Chosen(), given.model, emissions.symbols, emissions.blank, emissions.log_probs[:SEEN])
        rows[one.manuscript] = {}
        for kind, choice in (("without knowledge", Chosen(domain=None)), ("as found", chosen)):
            reader = Known(given.model, {}, choice, list, BEAM).reader(emissions.symbols, emissions.blank)
            reader.complete(emissions.log_probs[0], "a")  # what is compiled is loaded
            rows[one.manuscript][kind] = of_manuscript(test, emissions.log_probs, reader, times)
    show(rows, times)


if __name__ == "__main__":
    main()
