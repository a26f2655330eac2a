"""The classes of a frame: whether their probabilities sum to one, and which of them can matter; compiled."""

import math
from typing import Any

import numpy as np
from numba import njit

from fada.decoding.kernels.best import make_heap, sift_down
from fada.decoding.kernels.memory import INLINED, PART, Beam, shifted
from fada.decoding.kernels.records import Terms
from fada.decoding.kernels.vectors import BLOCK, exponential_sum, reaching, trailing_zeros

FEW = 32
"""Up to this number, classes are sorted; more of them are taken from a heap as they are needed."""


@njit(**PART)
def _row_sum(frame: Any, V: int) -> np.floating:
    """Σ exp of a frame, at most 6 % too high; not about 1 if NaN or +inf is in it."""
    if V >= BLOCK:
        return exponential_sum(frame, V)
    total = np.float32(0.0)
    for c in range(V):
        total += np.float32(math.exp(min(frame[c], 88.0)))
    return total


@njit(**INLINED)
def is_normalized(terms: Terms, line: Any, T: int) -> bool:
    """Whether the probabilities of every frame seem to sum to about 1."""
    for t in range(T):
        total = _row_sum(shifted(line, t * terms.V), terms.V)
        if not 0.985 <= total <= 1.075:
            return False
    return True


@njit(**PART)
def contributions(frame: Any, V: int, lam: float, ceiling: Any, gain: Any) -> None:
    """The most each class can add to a score in a frame. Runs in vectors."""
    for c in range(V):
        gain[c] = lam * frame[c] + ceiling[c]


@njit(**PART)
def mark(beam: Beam, V: int, threshold: float) -> bool:
    """Mark the classes whose gain reaches `threshold`; returns whether there are any."""
    some: Any = np.int64(0)
    for i in range((V + BLOCK - 1) // BLOCK):
        beam.marks[i] = reaching(shifted(beam.gain, BLOCK * i), threshold)
        some |= beam.marks[i]
    return some != 0


@njit(**INLINED)
def most_promising(beam: Beam, V: int) -> int:
    """Of the marked classes, of which there must be one, that with the highest gain."""
    best = -1
    highest = -math.inf
    for i in range((V + BLOCK - 1) // BLOCK):
        rest = beam.marks[i]
        while rest != 0:
            c = BLOCK * i + trailing_zeros(rest)
            rest &= rest - 1
            if beam.gain[c] > highest:
                highest = beam.gain[c]
                best = c
    return best


@njit(**INLINED)
def gather(beam: Beam, V: int, best: int, threshold: float) -> int:
    """The classes but the `best` that reach `threshold`, in falling order of their gain; returns how many. More than a
    few wait in a heap, for most will never be reached.
    """
    gain, candidates, best_gain, best_class = beam.gain, beam.candidates, beam.best_gain, beam.best_class
    gain[best] = -math.inf
    mark(beam, V, threshold)
    many: Any = np.int64(0)
    for i in range((V + BLOCK - 1) // BLOCK):
        rest = beam.marks[i]
        while rest != 0:
            candidates[many] = BLOCK * i + trailing_zeros(rest)
            rest &= rest - 1
            many += 1
    if many <= FEW:
        for j in range(many):
            c = candidates[j]
            x = gain[c]
            i = j
            while i > 0 and best_gain[i - 1] < x:
                best_gain[i] = best_gain[i - 1]
                best_class[i] = best_class[i - 1]
                i -= 1
            best_gain[i] = x
            best_class[i] = c
    else:
        for j in range(many):
            beam.waiting_score[j] = -gain[candidates[j]]
            beam.waiting_class[j] = candidates[j]
        make_heap(beam.waiting_score, beam.waiting_class, many)
    return many


@njit(**INLINED)
def next_waiting(beam: Beam, ready: int, found: int) -> None:
    """Take the class with the highest gain from the heap."""
    waiting_score, waiting_class = beam.waiting_score, beam.waiting_class
    beam.best_gain[ready] = -waiting_score[0]
    beam.best_class[ready] = waiting_class[0]
    left = found - ready - 1
    waiting_score[0] = waiting_score[left]
    waiting_class[0] = waiting_class[left]
    sift_down(waiting_score, waiting_class, np.int64(0), left)
