"""How many times quicker: one table of ratios of CPU time, each pair measured alternately, with the spread.

Every module in `PARTS` has a function ``rows(options)`` that yields :class:`Row`. Run with:
python -m benchmarks.table [PART...] [--rounds N] [--lines SOURCE] (about five minutes)
"""

import argparse
import os
import resource
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from importlib import import_module
from statistics import median
from typing import Any

from fada.evaluation.table import markdown_table

PARTS = ("reading", "searching")


@dataclass(frozen=True)
class Options:
    """How the parts measure.

    Attributes:
        rounds: pairs of measurements.
        lines: real lines to read (see ``fada data inspect``); synthetic ones if None.
        base: commit that the program is compared with.
    """

    rounds: int = 5
    lines: str | None = None
    base: str = "4206da9"


@dataclass(frozen=True)
class Row:
    """One comparison.

    Attributes:
        what: is done.
        against: what it is compared with.
        ratios: of each round, CPU time of the other by ours: above 1, ours is quicker.
        seconds: our CPU time in each round.
        goal: the ratio (or the seconds, as ``"1.5 s"``) that is aimed at.
    """

    what: str
    against: str
    ratios: Sequence[float]
    seconds: Sequence[float]
    goal: str = ""

    def cells(self) -> list[str]:
        """Those of the table."""
        low, middle, high = min(self.ratios), median(self.ratios), max(self.ratios)
        return [
            self.what,
            self.against,
            f"{median(self.seconds):.3g}",
            f"{middle:.2f}",
            f"{low:.2f} to {high:.2f}",
            self.goal,
        ]


def alternating(
    ours: Callable[[], Any], other: Callable[[], Any], rounds: int, repeat: int = 1
) -> tuple[list[float], list[float]]:
    """Ratios (other by ours) and our seconds of CPU time, measured in turns; each is called once before.

    Args:
        repeat: calls in one measurement, for what takes less than some milliseconds.
    """

    def seconds(call: Callable[[], Any]) -> float:
        started = time.process_time()
        for _ in range(repeat):
            call()
        return (time.process_time() - started) / repeat

    return _in_turns(lambda: seconds(ours), lambda: seconds(other), rounds)


def alternating_commands(
    ours: Sequence[str], other: Sequence[str], rounds: int, environments: tuple[dict[str, str], dict[str, str]]
) -> tuple[list[float], list[float]]:
    """As :func:`alternating`, of two commands, each with variables of its own."""

    def seconds(command: Sequence[str], variables: dict[str, str]) -> float:
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run(command, check=True, capture_output=True, env={**os.environ, **variables})
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        return after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime

    return _in_turns(lambda: seconds(ours, environments[0]), lambda: seconds(other, environments[1]), rounds)


def _in_turns(ours: Callable[[], float], other: Callable[[], float], rounds: int) -> tuple[list[float], list[float]]:
    ours(), other()
    pairs = [(ours(), other()) if number % 2 else (other(), ours())[::-1] for number in range(rounds)]
    return [theirs / max(mine, 1e-9) for mine, theirs in pairs], [mine for mine, _ in pairs]


def table(rows: Sequence[Row]) -> str:
    """Markdown."""
    columns = ["what", "compared with", "CPU seconds", "times quicker", "from to", "goal"]
    return markdown_table(columns, [row.cells() for row in rows], labels=2)


def main() -> None:
    """Measure and print; rows appear on standard error as they are found."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("parts", nargs="*", default=PARTS)
    parser.add_argument("--rounds", type=int, default=Options.rounds)
    parser.add_argument("--lines", default=None)
    parser.add_argument("--base", default=Options.base)
    given = parser.parse_args()
    rows: list[Row] = []
    for part in given.parts:
        found: Iterator[Row] = import_module(f"benchmarks.{part}").rows(Options(given.rounds, given.lines, given.base))
        for row in found:
            print(" · ".join(row.cells()), file=sys.stderr, flush=True)
            rows.append(row)
    print(table(rows))


if __name__ == "__main__":
    main()
