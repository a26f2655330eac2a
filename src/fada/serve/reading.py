"""From stored emissions to what the desk shows of a line: readings, where each character stands, how sure it is."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np

from fada.decoding.hypothesis import Hypothesis

if TYPE_CHECKING:
    from fada.decoding.ctc import CTCBeamDecoder

NBEST = 5
WORD_ERROR = (0.37, 0.69)
"""The curve from doubt to errors of words, see :func:`corrected_doubt`."""
Cell = tuple[str, float, float, float]
"""A code point, its confidence, where it starts and ends in fractions of the width."""


@dataclass(frozen=True)
class Reading:
    """What was read in a line."""

    text: str = ""
    plain: str = ""
    confidence: float | None = None
    characters: list[Cell] = field(default_factory=list)
    alternatives: list[tuple[str, float]] = field(default_factory=list)
    expected_word_error: float | None = None


class Reader:
    """Two searches over the same emissions: with what is known of the document, and without.

    Args:
        guided: the decoder with the document's knowledge.
        plain: the decoder without.
    """

    def __init__(self, guided: "CTCBeamDecoder", plain: "CTCBeamDecoder") -> None:
        self.guided, self.plain = guided, plain
        self._classes = {
            symbol: c for c, symbol in reversed([*enumerate(guided.symbols)]) if c != guided.blank and symbol
        }
        self._longest = max(map(len, self._classes), default=1)

    def read(self, emissions: Sequence[np.ndarray]) -> list[Reading]:
        """The readings of lines, (frames, classes) each."""
        best = self.guided.decode_batch(emissions, nbest=NBEST)
        plain = self.plain.decode_batch(emissions)
        return [
            self._reading(found, without[0].text, log_probs)
            for found, without, log_probs in zip(best, plain, emissions, strict=True)
        ]

    def _reading(self, found: list[Hypothesis], plain: str, log_probs: np.ndarray) -> Reading:
        first = found[0]
        if first.alignment is not None:
            cells = _cells(first.text, first.char_frames, first.char_confidences, len(log_probs))
        else:
            cells = self.align(log_probs, first.text)
        confidences = [confidence for _, confidence, _, _ in cells]
        return Reading(
            text=first.text,
            plain=plain,
            confidence=round(float(np.mean(confidences)), 4) if cells else None,
            characters=cells,
            alternatives=_alternatives(found),
            expected_word_error=expected_word_error(first.text, confidences),
        )

    def complete(self, log_probs: np.ndarray, prefix: str, words: Sequence[tuple[str, float, float]] = ()) -> Reading:
        """The best reading that begins with `prefix` and has `words` where they stand (fractions of the width).

        What the model cannot write is taken as it is: the rest is that of the reading which begins with all else. Words
        that cannot stand where they are said to are left out.
        """
        spans = _spans(words, len(log_probs))
        found = self.guided.decode(log_probs, nbest=NBEST, alignment=bool(spans), prefix=prefix, words=spans)
        if found[0].log_prob > -np.inf:
            return self._reading(found, "", log_probs)
        if spans:
            return self.complete(log_probs, prefix)
        labels, _ = self._labels(prefix)
        written = "".join(self.guided.symbols[label] for label in labels)
        rest = self.guided.decode(log_probs, nbest=NBEST, prefix=written) if written != prefix else found
        if rest[0].log_prob == -np.inf:
            return Reading(text=prefix, characters=self.align(log_probs, prefix), alternatives=[(prefix, 0.0)])
        alternatives = [(prefix + text[len(written) :], score) for text, score in _alternatives(rest)]
        text = alternatives[0][0]
        return Reading(text=text, characters=self.align(log_probs, text), alternatives=alternatives)

    def align(self, log_probs: np.ndarray, text: str) -> list[Cell]:
        """Where the characters of any text stand, on the most probable path; what the model cannot write is put between
        its neighbours.
        """
        from fada.decoding.kernels.align import align_labels

        frames = len(log_probs)
        labels, owners = self._labels(text)
        needed = len(labels) + sum(a == b for a, b in pairwise(labels))
        if not text or not frames:
            return []
        if not labels or needed > frames:
            step = 1 / len(text)
            return [(c, 0.0, round(i * step, 4), round((i + 1) * step, 4)) for i, c in enumerate(text)]
        spans = align_labels(log_probs, labels, self.guided.blank)
        where: list[tuple[int, int] | None] = [None] * len(text)
        sure = [0.0] * len(text)
        for label, (first, last), owned in zip(labels, spans.tolist(), owners, strict=True):
            for at in owned:
                where[at] = (first, last + 1)
                sure[at] = min(1.0, float(np.exp(log_probs[first : last + 1, label].max())))
        return _cells(text, _filled(where, frames), sure, frames)

    def _labels(self, text: str) -> tuple[list[int], list[range]]:
        """The classes that write a text, the longest first, and which code points each writes."""
        labels: list[int] = []
        owners: list[range] = []
        at = 0
        while at < len(text):
            for length in range(min(self._longest, len(text) - at), 0, -1):
                if (label := self._classes.get(text[at : at + length])) is not None:
                    labels.append(label)
                    owners.append(range(at, at + length))
                    at += length
                    break
            else:
                at += 1
        return labels, owners


def _filled(where: Sequence[tuple[int, int] | None], frames: int) -> list[tuple[float, float]]:
    """Places for all: those without one share what lies between their neighbours."""
    filled: list[tuple[float, float]] = []
    at = 0
    while at < len(where):
        if (found := where[at]) is not None:
            filled.append(found)
            at += 1
            continue
        end = next((i for i in range(at, len(where)) if where[i] is not None), len(where))
        left = filled[-1][1] if filled else 0.0
        after = where[end] if end < len(where) else None
        right = max(left, after[0] if after else frames)
        step = (right - left) / (end - at)
        filled += [(left + i * step, left + (i + 1) * step) for i in range(end - at)]
        at = end
    return filled


def _cells(text: str, spans: Sequence[tuple[float, float]], sure: Sequence[float], frames: int) -> list[Cell]:
    """Code points with their places, each reaching half way to its neighbours; those of one label share its place."""
    cells: list[Cell] = []
    for at, character in enumerate(text):
        first, last = spans[at]
        before = next((spans[i] for i in range(at - 1, -1, -1) if spans[i] != spans[at]), None)
        after = next((spans[i] for i in range(at + 1, len(text)) if spans[i] != spans[at]), None)
        reach = max(1.0, last - first)
        start = (before[1] + first) / 2 if before else max(0.0, first - reach)
        end = (last + after[0]) / 2 if after else min(float(frames), last + reach)
        start, end = min(start, first), max(end, last)
        cells.append((character, round(float(sure[at]), 4), round(start / frames, 4), round(end / frames, 4)))
    return cells


def _spans(words: Sequence[tuple[str, float, float]], frames: int) -> list[tuple[str, int, int]]:
    """Words with whole frames; two that share one after rounding are divided, one without any left is left out."""
    spans: list[tuple[str, int, int]] = []
    for text, start, end in sorted(words, key=lambda word: word[1:]):
        first = max(round(start * frames), spans[-1][2] if spans else 0)
        last = min(max(round(end * frames), first + 1), frames)
        if first < last:
            spans.append((text, first, last))
    return spans


def _alternatives(found: Sequence[Hypothesis]) -> list[tuple[str, float]]:
    best = found[0].score
    texts: dict[str, float] = {}
    for one in found:
        if np.isfinite(one.score):
            texts.setdefault(one.text, round(one.score - best, 4))
    return list(texts.items())


def expected_word_error(text: str, confidences: Sequence[float]) -> float | None:
    """The share of words to expect wrong; None without words.

    Recognisers are too sure of themselves: what :func:`word_doubt` says is corrected by a curve that was fitted on
    validation lines of `medieval` outside the arena (`python -m benchmarks.effort DATA --fit`).
    """
    doubt = word_doubt(text, confidences)
    return None if doubt is None else round(corrected_doubt(doubt), 4)


def corrected_doubt(doubt: float) -> float:
    """sigmoid(a + b · logit(doubt)), which leaves certainty certain."""
    shift, slope = WORD_ERROR
    doubt = min(max(doubt, 1e-9), 1 - 1e-9)
    return float(1 / (1 + np.exp(-shift - slope * np.log(doubt / (1 - doubt)))))


def word_doubt(text: str, confidences: Sequence[float]) -> float | None:
    """The share of words that hold a wrong character if each is right with its confidence; None without words."""
    right: list[float] = []
    in_word = False
    for character, confidence in zip(text, confidences, strict=True):
        if character.isspace():
            in_word = False
        elif in_word:
            right[-1] *= confidence
        else:
            right.append(confidence)
            in_word = True
    return 1 - float(np.mean(right)) if right else None


def completed_draft(draft: str, prefix: str) -> str:
    """For models without emissions: `prefix`, then what follows in the draft after the part that resembles it most."""
    if not prefix:
        return draft
    row = list(range(len(draft) + 1))
    for i, c in enumerate(prefix, 1):
        last, row[0] = row[0], i
        for j, d in enumerate(draft, 1):
            last, row[j] = row[j], min(row[j] + 1, row[j - 1] + 1, last + (c != d))
    ends = [j for j, cost in enumerate(row) if cost == min(row)]
    return prefix + draft[min(ends, key=lambda j: abs(j - len(prefix))) :]


def warm_up() -> None:
    """Load the compiled search, which the first keystroke shall not wait for."""
    from fada.decoding.ctc import CTCBeamDecoder

    decoder = CTCBeamDecoder(["", "a"], beam_size=2)
    log_probs = np.log(np.full((3, 2), 0.5, np.float32))
    Reader(decoder, decoder).complete(log_probs, "a")
