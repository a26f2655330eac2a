"""Which of the known domains is a document of? Judged by its emissions: by what each language model makes of them.

A document is a page or a manuscript, never a line. Each candidate's language model decodes some of its lines, all with
the same weights; the totals of these scores are compared.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from fada.decoding.ctc import CTCBeamDecoder
from fada.decoding.knowledge import Knowledge

LINES = 16
"""Lines of a document that are looked at."""
BEAM = 6
_WEIGHT, _BONUS = 0.4, 0.7
_TEMPERATURE = 4.0
"""The difference of scores that makes one domain e times as probable as another: lines of a document are alike."""
_SLACK = 1.3
"""A language model fits if it needs at most so many times the bits for a character as for other text of its kind."""
_NEGLIGIBLE = 0.05
"""Share of a mixture below which a domain is left out of it."""


class HasAlphabet(Protocol):
    """A CTC recogniser, emissions or an alphabet."""

    @property
    def symbols(self) -> Sequence[str]: ...
    @property
    def blank(self) -> int: ...


@dataclass(frozen=True)
class Posterior:
    """How probable each domain is for a document.

    Attributes:
        names, probabilities: of the candidates, the most probable first.
        bits: per character of the decoded text under the language model of the most probable one.
        fits: whether that model reads the text like one of its kind; otherwise none of the candidates is used.
        knowledge: of the most probable one, a mixture if several are probable, None if none fits.
    """

    names: tuple[str, ...]
    probabilities: tuple[float, ...]
    bits: float
    fits: bool
    knowledge: Knowledge | None

    @property
    def certainty(self) -> float:
        """The probability of the most probable domain."""
        return self.probabilities[0] if self.probabilities else 0.0

    @property
    def best(self) -> str | None:
        """The most probable domain, if it fits."""
        return self.names[0] if self.fits else None

    def __str__(self) -> str:
        if not self.fits:
            return "none of the known domains fits"
        others = [f"{n} {p:.0%}" for n, p in zip(self.names[1:], self.probabilities[1:], strict=True) if p >= 0.01]
        return f"{self.names[0]} (certainty {self.certainty:.0%}{'; ' if others else ''}{', '.join(others)})"


def infer(
    recognizer: HasAlphabet,
    log_probs: Sequence[np.ndarray],
    candidates: Mapping[str, Knowledge],
    *,
    lines: int = LINES,
) -> Posterior:
    """Which of the `candidates` a document is of.

    Args:
        recognizer: what gives the symbols of the classes and the blank: a CTC recogniser, its emissions, an alphabet.
        log_probs: (frames, classes) of each line of the document.
        candidates: knowledge by name; those without a language model are left out.
        lines: so many of them are looked at, spread over the document.
    """
    models = {name: known.global_lm for name, known in candidates.items() if known.global_lm is not None}
    chosen = [log_probs[i] for i in np.unique(np.linspace(0, len(log_probs) - 1, lines).round().astype(int))]
    if not models or not len(log_probs):
        return Posterior((), (), math.nan, False, None)
    plain = CTCBeamDecoder(recognizer.symbols, recognizer.blank, BEAM, lm_weight=_WEIGHT, length_bonus=_BONUS)
    found = {
        name: [nbest[0] for nbest in plain.replace(lm=model).decode_batch(chosen)] for name, model in models.items()
    }
    scores = np.array([sum(best.score for best in each) for each in found.values()])
    odds = np.exp((scores - np.max(scores)) / _TEMPERATURE)
    probabilities = odds / odds.sum()
    order = np.argsort(-probabilities, kind="stable")
    names = tuple([*models][i] for i in order)
    best = found[names[0]]
    characters = sum(len(each.text) for each in best)
    bits = -sum(each.lm_log_prob or 0.0 for each in best) / math.log(2) / characters if characters else math.inf
    usual = candidates[names[0]].about.bits
    fits = characters > 0 and (usual is None or bits <= _SLACK * usual)
    ordered = tuple(float(probabilities[i]) for i in order)
    return Posterior(names, ordered, bits, fits, _mixed(candidates, names, ordered) if fits else None)


def _mixed(candidates: Mapping[str, Knowledge], names: Sequence[str], probabilities: Sequence[float]) -> Knowledge:
    """The knowledge of the most probable domains, each with its probability."""
    parts = [(candidates[n], p) for n, p in zip(names, probabilities, strict=True) if p >= _NEGLIGIBLE]
    if len(parts) == 1:
        return parts[0][0]
    name = " and ".join(part.name for part, _ in parts)
    return Knowledge.mixture(parts, name).with_prior(parts[0][0].prior)
