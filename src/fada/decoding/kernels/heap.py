"""Binary heaps of (score, key) in two arrays (or pointers), the worst in front; compiled."""

from typing import Any

from numba import njit

from fada.decoding.kernels.memory import INLINED, PART


@njit(**INLINED)
def worse(score: float, key: int, other_score: float, other_key: int) -> bool:
    """Whether the first is to leave before the second: a lower score, or an equal one and a higher key."""
    return score < other_score or (score == other_score and key > other_key)


@njit(**PART)
def sift_down(scores: Any, keys: Any, at: int, size: int) -> None:
    """Let what stands at `at` sink to its place."""
    score = scores[at]
    key = keys[at]
    while True:
        child = 2 * at + 1
        if child >= size:
            break
        if child + 1 < size and worse(scores[child + 1], keys[child + 1], scores[child], keys[child]):
            child += 1
        if not worse(scores[child], keys[child], score, key):
            break
        scores[at] = scores[child]
        keys[at] = keys[child]
        at = child
    scores[at] = score
    keys[at] = key


@njit(**PART)
def push(scores: Any, keys: Any, size: int, score: float, key: int) -> None:
    """Add to a heap of `size`."""
    at = size
    while at > 0:
        parent = (at - 1) >> 1
        if not worse(score, key, scores[parent], keys[parent]):
            break
        scores[at] = scores[parent]
        keys[at] = keys[parent]
        at = parent
    scores[at] = score
    keys[at] = key
