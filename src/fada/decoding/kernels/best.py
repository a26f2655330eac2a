"""The best of many (score, key) in two arrays (or pointers): a few in order, or many in a heap; compiled."""

from typing import Any

from numba import njit

from fada.decoding.kernels.memory import PART


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
