"""Evaluating a million line pairs: `fada.evaluate` with domains and intervals, and jiwer on a part of them.

    python -m benchmarks.evaluation [--lines 1000000] [--out FOLDER]

The lines are made up: about fifty characters of Greek and French, a tenth of them wrong, in seven domains.
"""

import random
import time
from pathlib import Path
from typing import Any

import typer

from benchmarks.counting import lines_of
from fada.common.files import write_json
from fada.evaluation.scores import evaluate

DISTINCT = 20_000


def make_pairs(count: int, seed: int = 0) -> tuple[list[str], list[str], list[str]]:
    """References, hypotheses with 10 % of the characters lost, doubled or replaced, and domains."""
    rng = random.Random(seed)
    distinct = min(DISTINCT, count)
    lines = [line for language in ("Greek", "French") for line in lines_of(language, -(-distinct // 2), seed)][
        :distinct
    ]

    def spoil(text: str) -> str:
        return "".join(
            c if rng.random() > 0.1 else rng.choice(["", c + c, rng.choice(text), rng.choice(text)]) for c in text
        )

    spoilt = [spoil(line) for line in lines]
    order = [rng.randrange(distinct) for _ in range(count)]
    return [lines[i] for i in order], [spoilt[i] for i in order], [str(10 + i % 7) for i in range(count)]


def run(count: int) -> dict[str, Any]:
    """Seconds of `fada.evaluate` for all pairs, and the processor time of jiwer's CER and WER as a ratio."""
    references, hypotheses, domains = make_pairs(count)
    result: dict[str, Any] = {"pairs": count}
    for units in ("codepoints", "graphemes"):
        started, cpu = time.perf_counter(), time.process_time()
        evaluation = evaluate(references, hypotheses, domains, units=units)
        result[f"seconds_{units}"] = round(time.perf_counter() - started, 2)
        result[f"cpu_seconds_{units}"] = round(time.process_time() - cpu, 2)
    result["cer"] = round(evaluation.cer, 3)
    try:
        import jiwer
    except ImportError:
        return result
    part = min(count, 50_000)
    cpu = time.process_time()
    jiwer.cer(references[:part], hypotheses[:part])
    jiwer.wer(references[:part], hypotheses[:part])
    per_pair = (time.process_time() - cpu) / part
    result["cpu_seconds_jiwer_extrapolated"] = round(per_pair * count, 1)
    result["jiwer_over_fada_cpu"] = round(per_pair * count / result["cpu_seconds_codepoints"], 1)
    return result


def main(lines: int = 1_000_000, out: Path | None = None) -> None:
    """Print the figures, and write them if asked."""
    result = run(lines)
    for name, value in result.items():
        print(f"{name}: {value}")
    if out:
        write_json(out / "evaluation.json", result)


if __name__ == "__main__":
    typer.run(main)
