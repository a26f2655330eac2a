"""What a setting reads, told from what the decodings of other settings found: quick, and nearly exact.

Every term of the score is known of a text, whoever found it, and settings differ in the weights of these terms only. So
a setting can choose from all that was found. A beam may miss what it would choose; but where two settings would choose
the same, they are taken to read the same: what the one read that was decoded.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from fada.decoding.nbest import NBest, Rescorer
from fada.decoding.search import Search
from fada.decoding.weights import Weights

WIDE = 5
"""A plain beam so many times as wide as that of the settings begins."""
_LEAST = -1e30
"""Stands for the logarithm of 0."""

Lists = Sequence[Sequence[tuple[str, float]]]
"""Of every line its hypotheses, each a text with its log-probability by the recogniser."""


class Counts(NamedTuple):
    """What a setting's texts differ by from the references, each (lines,); `longer` is the longer text's length."""

    edits: NDArray[np.int64]
    word_edits: NDArray[np.int64]
    longer: NDArray[np.int64]


class Drafts:
    """The hypotheses that were found so far, and which of them a setting would choose.

    Args:
        search: of the lines.
        count: the counts of texts of the lines with these numbers.
    """

    def __init__(self, search: Search, count: Callable[[Sequence[str], Sequence[int]], Counts]) -> None:
        self._search, self._count = search, count
        self._log_probs: list[dict[str, float]] = [{} for _ in search.ids]
        self._wrong: list[dict[str, tuple[int, ...]]] = [{} for _ in search.ids]
        self._read: dict[Weights, Counts] = {}
        self._rescorer: Rescorer | None = None
        self._known: _Known | None = None

    def add(self, weights: Weights, counts: Counts, lists: Lists) -> None:
        """A setting that was decoded: its counts, and what it found, to be chosen from now on."""
        self._read[weights] = counts
        self._find(lists)

    def _find(self, lists: Lists) -> None:
        found = [
            (row, text, max(log_prob, _LEAST))
            for row, (known, line) in enumerate(zip(self._log_probs, lists, strict=True))
            for text, log_prob in line
            if known.get(text, -np.inf) < log_prob
        ]
        counted = [(row, text) for row, text, _ in found if text not in self._wrong[row]]
        counts = self._count([text for _, text in counted], [row for row, _ in counted])
        for (row, text), values in zip(counted, zip(*(part.tolist() for part in counts), strict=True), strict=True):
            self._wrong[row][text] = values
        for row, text, log_prob in found:
            self._log_probs[row][text] = log_prob
        self._known = None

    def counts(self, weights: Weights) -> Counts:
        """What `weights` would get: by line, that of the most similar decoded setting with the same choice, if any."""
        if self._rescorer is None:
            wide = self._search.nbest(Weights(beam=WIDE * weights.beam))
            self._find([[(hypothesis.text, float(hypothesis.log_prob)) for hypothesis in line] for line in wide])
        if self._rescorer is None or self._known is None:
            texts = [list(known) for known in self._log_probs]
            log_probs = [list(known.values()) for known in self._log_probs]
            lists = NBest(self._search.ids, texts, log_probs, None, self._search.domains)
            self._rescorer = Rescorer(lists, self._search.knowledge, before=self._rescorer)
            found = np.array([known[text] for known, line in zip(self._wrong, texts, strict=True) for text in line]).T
            read = np.array(list(self._read.values()))
            places = np.array([self._rescorer.places(setting) for setting in self._read])
            self._known = _Known(found, read, places)
        known, chosen = self._known, self._rescorer.places(weights)
        same = known.places == chosen
        nearest = np.argsort(-same.sum(1), kind="stable")
        first = nearest[same[nearest].argmax(0)]
        lines = np.arange(len(chosen))
        return Counts(*np.where(same.any(0), known.read[first, :, lines].T, known.found[:, chosen]))


class _Known(NamedTuple):
    """The counts of all that was found, (3, hypotheses); of what decoded settings read, and what each would choose."""

    found: NDArray[np.int64]
    read: NDArray[np.int64]
    """(settings, 3, lines)."""
    places: NDArray[np.int64]
    """(settings, lines): numbers of hypotheses."""
