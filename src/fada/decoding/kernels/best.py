"""The best of many (score, key) in two arrays (or pointers): a few in order, some counted at once,
many in a heap; compiled.
"""

import math
from typing import Any

import numpy as np
from numba import njit

from fada.decoding.kernels.memory import PART, ROOM, shifted
from fada.decoding.kernels.vectors import BLOCK, ones, reaching, trailing_zeros


@njit(**PART)
def insert(scores: Any, keys: Any, size: int, most: int, score: float, key: int) -> int:
    """Add to those in falling order of their scores, of which at most `most` stay; returns how many there are. Of equal
    scores the lower key is the better.
    """
    at = size
    while at > 0 and (score > scores[at - 1] or (score == scores[at - 1] and key < keys[at - 1])):
        scores[at] = scores[at - 1]
        keys[at] = keys[at - 1]
        at -= 1
    scores[at] = score
    keys[at] = key
    return min(size + 1, most)


@njit(**PART)
def keep_best(scores: Any, keys: Any, size: int, most: int) -> float:
    """Keep so many of more, at most ROOM, in their order; returns the lowest score of those. Of equal scores the lower
    key is the better.

    How many are as good as each is counted for blocks of them, without a branch, and several times as quickly as one
    could be put in its place after the other.
    """
    inside: Any = np.int64(-1)
    if size < ROOM:
        inside = (np.int64(1) << size) - 1
    stays: Any = np.int64(0)
    lowest = math.inf
    for i in range(size):
        as_good: Any = np.int64(0)
        for j in range((size + BLOCK - 1) // BLOCK):
            as_good |= reaching(shifted(scores, BLOCK * j), scores[i]) << (BLOCK * j)
        among_best = ones(as_good & inside) <= most
        stays |= np.int64(among_best) << i
        lowest = min(lowest, scores[i] if among_best else math.inf)
    while ones(stays) < most:  # several have the same score, and not all of them stay
        best = -1
        for i in range(size):
            if (stays >> i) & 1 == 0 and (
                best < 0 or scores[i] > scores[best] or (scores[i] == scores[best] and keys[i] < keys[best])
            ):
                best = i
        stays |= np.int64(1) << best
        lowest = scores[best]
    for i in range(most):
        at = trailing_zeros(stays)
        stays &= stays - 1
        scores[i] = scores[at]
        keys[i] = keys[at]
    return lowest


@njit(**PART)
def sift_down(scores: Any, keys: Any, at: int, size: int) -> None:
    """Let what stands at `at` sink to its place in a heap whose lowest score is in front; of equal ones, the highest
    key.
    """
    score = scores[at]
    key = keys[at]
    while True:
        child = 2 * at + 1
        if child >= size:
            break
        other = child + 1
        if other < size and (
            scores[other] < scores[child] or (scores[other] == scores[child] and keys[other] > keys[child])
        ):
            child = other
        if scores[child] > score or (scores[child] == score and keys[child] < key):
            break
        scores[at] = scores[child]
        keys[at] = keys[child]
        at = child
    scores[at] = score
    keys[at] = key


@njit(**PART)
def make_heap(scores: Any, keys: Any, size: int) -> None:
    """Put the lowest score in front of all, and that of every half, and so on."""
    for at in range((size >> 1) - 1, -1, -1):
        sift_down(scores, keys, at, size)
