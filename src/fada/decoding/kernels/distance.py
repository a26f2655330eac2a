r"""The distance of a growing text from its target, in O(1) per character; compiled.

With the counts `c` of a text of `L` characters over an alphabet of `n`, both W2 distances are

.. math:: W_2^2 = \tfrac1n \bigl(\tfrac{\Sigma c^2}{L^2} - \tfrac{2 \Sigma c q}{L} + \Sigma q^2\bigr)

where for ``sorted_w2`` counts and target are in ascending order. A count that grows from `k` to `k + 1` keeps that
order if it is the last of the run of `k`, which ends at position ``at_most[k] - 1`` (``at_most[k]``: how many
characters have a count of at most `k`). So `Σc²` grows by `2k + 1`, `Σcq` by the target value at that one position, and
``at_most[k]`` falls by one: no sort.
"""

import math

import numpy as np
from numba import njit

from fada.distances import KL_EPSILON

SORTED_W2, ALIGNED_W2, JS, KL, W1 = range(5)
"""Codes of the distances for compiled code; up to `ALIGNED_W2` they are O(1) per character, the others O(n)."""


@njit(cache=True, nogil=True)
def w2_value(squares: float, products: float, length: int, q_squares: float, n: int) -> float:
    """W2 from Σc², Σcq, the number of characters, Σq² and the size of the alphabet."""
    inverse = 1.0 / length if length > 0 else 0.0
    mean_square = (squares * inverse * inverse - 2.0 * products * inverse + q_squares) / n
    return math.sqrt(mean_square) if mean_square > 0.0 else 0.0


@njit(cache=True, nogil=True)
def appended_products(kind: int, counts: np.ndarray, at_most: np.ndarray, reference: np.ndarray, cell: int) -> float:
    """How much Σcq grows when the character of `cell` is appended; changes nothing."""
    return reference[at_most[counts[cell]] - 1] if kind == SORTED_W2 else reference[cell]


@njit(cache=True, nogil=True)
def removed_products(kind: int, counts: np.ndarray, at_most: np.ndarray, reference: np.ndarray, cell: int) -> float:
    """How much Σcq shrinks when one character of `cell` (present) is removed; changes nothing.

    The first of the run of `k` steps down to `k - 1`; the run starts at position ``at_most[k - 1]``.
    """
    return reference[at_most[counts[cell] - 1]] if kind == SORTED_W2 else reference[cell]


@njit(cache=True, nogil=True)
def append_character(counts: np.ndarray, at_most: np.ndarray, cell: int) -> None:
    """Count one character more. `at_most` must hold `n` one place beyond the highest count."""
    at_most[counts[cell]] -= 1
    counts[cell] += 1


@njit(cache=True, nogil=True)
def remove_character(counts: np.ndarray, at_most: np.ndarray, cell: int) -> None:
    """Count one character less; the inverse of :func:`append_character`."""
    counts[cell] -= 1
    at_most[counts[cell]] += 1


@njit(cache=True, nogil=True)
def counted_distance(kind: int, counts: np.ndarray, length: int, reference: np.ndarray) -> float:
    """The distances that are recomputed from all counts: js, kl and w1, O(n)."""
    inverse = 1.0 / length if length > 0 else 0.0
    total = 0.0
    carried = 0.0
    for i in range(reference.shape[0]):
        p = reference[i]
        q = counts[i] * inverse
        if kind == JS:
            m = (p + q) / 2
            if q > 0.0:
                total += q * math.log(q / m) / 2
            if p > 0.0:
                total += p * math.log(p / m) / 2
        elif kind == KL:
            total += (q + KL_EPSILON) * math.log((q + KL_EPSILON) / (p + KL_EPSILON)) - q + p
        else:
            carried += q - p
            total += abs(carried)
    if kind == JS:
        return math.sqrt(total) if total > 0.0 else 0.0
    return total
