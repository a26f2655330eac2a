"""Words that are known to stand somewhere in a line, as a constraint of the search.

A word stands in the frames from `start` up to `end` if a path writes exactly the word there: a reading is then what the
path writes before, the word, and what it writes after, each collapsed for itself. In the emissions these frames are
replaced by certain ones that spell the word between blanks, and the probability of the word, summed over all paths
through its own frames, is a factor of every reading. So the search is exact, and none of its parts need know.
"""

from collections.abc import Sequence
from itertools import pairwise, product
from typing import NamedTuple

import numpy as np

from fada.decoding.hypothesis import Alignment, Hypothesis
from fada.decoding.kernels.align import align_labels, forward_of
from fada.errors import FadaError
from fada.text.alphabet import Alphabet

_MOST_SPELLINGS = 64

Word = tuple[str, int, int]
"""A text, its first frame, and the one after its last."""


class Forced(NamedTuple):
    """Emissions in which words are certain."""

    log_probs: np.ndarray
    """(frames, V)."""
    log_prob: float
    """Of the words, which every reading has as a factor; -inf if they cannot stand there."""
    frames: np.ndarray
    """(frames, 2) for each frame, where it comes from: the first and the one after the last."""

    def restored(self, hypothesis: Hypothesis, lam: float) -> Hypothesis:
        """A reading of these emissions as one of the line: with the probability of the words, in the line's frames."""
        alignment = hypothesis.alignment
        if alignment is not None:
            spans = tuple((int(self.frames[a, 0]), int(self.frames[b - 1, 1])) for a, b in alignment.frames)
            alignment = Alignment(spans, alignment.confidences, alignment.widths, int(self.frames[-1, 1]))
        return hypothesis._replace(
            log_prob=hypothesis.log_prob + self.log_prob,
            score=hypothesis.score + lam * self.log_prob,
            alignment=alignment,
        )


def checked(words: Sequence[Word], frames: int) -> list[Word]:
    """The words in the order of their frames; refuses those that overlap or leave the line."""
    ordered = sorted(words, key=lambda word: word[1:])
    for text, start, end in ordered:
        if not text or not 0 <= start < end <= frames:
            raise FadaError(
                f"the word {text!r} in the frames {start} to {end} of {frames}, expected a text and frames of the line."
            )
    for (one, _, end), (other, start, _) in pairwise(ordered):
        if start < end:
            raise FadaError(f"the words {one!r} and {other!r} stand in the same frames, expected one after the other.")
    return ordered


def spellings(alphabet: Alphabet, text: str) -> list[tuple[int, ...]]:
    """The label sequences that write exactly `text`, without labels that write nothing."""
    written = [(c, symbol) for c, symbol in enumerate(alphabet.texts) if symbol]
    found: list[tuple[int, ...]] = []
    open_: list[tuple[tuple[int, ...], str]] = [((), text)]
    while open_:
        labels, rest = open_.pop()
        if not rest:
            found.append(labels)
        open_ += [((*labels, c), rest[len(symbol) :]) for c, symbol in written if rest.startswith(symbol)]
        if len(found) + len(open_) > _MOST_SPELLINGS:
            raise FadaError(f"the word {text!r} can be written in more than {_MOST_SPELLINGS} ways with these symbols.")
    return found


def forced(log_probs: np.ndarray, words: Sequence[Word], alphabet: Alphabet) -> list[Forced]:
    """Emissions in which `words` (see :func:`checked`) are certain: one for each way to write them all.

    Args:
        log_probs: (T, V) normalised.
    """
    ways = list(product(*(spellings(alphabet, text) for text, _, _ in words)))
    if len(ways) > _MOST_SPELLINGS:
        raise FadaError(f"the words can be written in more than {_MOST_SPELLINGS} ways with the symbols of this model.")
    return [_forced(log_probs, words, labels, alphabet.blank) for labels in ways]


def _forced(log_probs: np.ndarray, words: Sequence[Word], ways: Sequence[tuple[int, ...]], blank: int) -> Forced:
    parts: list[np.ndarray] = []
    frames: list[np.ndarray] = []
    total, at = 0.0, 0
    for (_, start, end), labels in zip(words, ways, strict=True):
        inside = np.asarray(log_probs[start:end], np.float64)
        total += float(np.logaddexp(*forward_of(inside, np.array(labels, np.int64), blank)[-1]))
        spans = align_labels(inside, labels, blank) + start
        classes, places = [blank], [(start, start + 1)]
        for before, label, (first, last) in zip((-1, *labels), labels, spans.tolist(), strict=False):
            if before == label:
                classes.append(blank)
                places.append((first, first + 1))
            classes.append(label)
            places.append((first, last + 1))
        classes.append(blank)
        places.append((end - 1, end))
        certain = np.full((len(classes), log_probs.shape[1]), -np.inf, log_probs.dtype)
        certain[np.arange(len(classes)), classes] = 0.0
        parts += [log_probs[at:start], certain]
        frames += [_own(at, start), np.array(places)]
        at = end
    parts.append(log_probs[at:])
    frames.append(_own(at, len(log_probs)))
    return Forced(np.ascontiguousarray(np.concatenate(parts)), total, np.concatenate(frames))


def _own(start: int, end: int) -> np.ndarray:
    return np.stack([np.arange(start, end), np.arange(start, end) + 1], axis=1)
