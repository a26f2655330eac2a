"""What is recorded of every epoch, and when it says that a training has learnt what it can."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NotRequired, TypedDict

READS = 80.0
"""Validation CER in percent from which on a model counts as reading; above it, an epoch without progress is no sign."""
FEWEST_STEPS = 200
"""Optimiser steps that patience spans at least: a set of a few lines has short epochs."""


class Rates(TypedDict):
    """Error rates in percent (micro), and the mean distance of a line's text from its target."""

    cer: float
    wer: float
    distance: float


class Scores(Rates):
    """Rates of all lines, and of the lines of each domain."""

    per_domain: dict[str, Rates]


class Epoch(TypedDict):
    """One entry of `history` in ``metrics.json``: means over the steps of the epoch, and its validation."""

    epoch: int
    loss: float
    task_loss: float
    alignment_loss: float
    lam: float
    learning_rate: float
    pull: NotRequired[dict[str, float]]
    validation: Scores


@dataclass(frozen=True)
class Patience:
    """Stop after so many epochs without a better validation CER, counted once the model reads."""

    epochs: int

    @classmethod
    def over(cls, asked: int, steps_per_epoch: int) -> "Patience | None":
        """The patience asked for, lengthened where epochs are short; None for 0, never."""
        return cls(max(asked, -(-FEWEST_STEPS // max(steps_per_epoch, 1)))) if asked else None

    def is_over(self, history: Sequence[Epoch]) -> bool:
        """Whether the epochs recorded so far say to stop."""
        rates = [epoch["validation"]["cer"] for epoch in history]
        best = min(rates, default=READS)
        return best < READS and len(rates) - 1 - rates.index(best) >= self.epochs

    def __str__(self) -> str:
        return (
            f"early stopping: after {self.epochs} epochs without a better validation CER, counted once it is below "
            f"{READS:.0f} % (--patience 0 for none)"
        )
