"""What is made of label sequences that a search has found: their texts and their places in the emissions; compiled."""

import math
from typing import NamedTuple

import numpy as np
from numba import njit

from fada.decoding.kernels.records import Results


class Spelling(NamedTuple):
    """The hypotheses of a batch, one after the other."""

    labels: np.ndarray
    """(all labels,) int32."""
    label_ends: np.ndarray
    """(lines, nbest) int64 where each hypothesis ends in `labels`."""
    codes: np.ndarray
    """(all code points,) uint32."""
    code_ends: np.ndarray
    """(lines, nbest) int64 where each hypothesis ends in `codes`."""


@njit(cache=True, nogil=True, error_model="numpy")
def spell(
    results: Results, frames: np.ndarray, chosen: np.ndarray, symbol_starts: np.ndarray, symbol_codes: np.ndarray
) -> Spelling:
    """Gather the labels of the hypotheses of some lines, and the code points of their texts.

    Args:
        frames: (lines,) int64.
        chosen: (n,) int64 numbers of lines.
        symbol_starts: (V + 1,) int64 where each symbol starts in `symbol_codes`.
        symbol_codes: (code points of all symbols,) uint32.
    """
    n = len(chosen)
    nbest = results.lengths.shape[1]
    label_ends = np.empty((n, nbest), np.int64)
    code_ends = np.empty((n, nbest), np.int64)
    n_labels = 0
    n_codes = 0
    for j in range(n):
        i = chosen[j]
        for k in range(nbest):
            start = results.starts[i] + k * frames[i]
            for at in range(start, start + results.lengths[i, k]):
                c = results.labels[at]
                n_codes += symbol_starts[c + 1] - symbol_starts[c]
            n_labels += max(0, results.lengths[i, k])
            label_ends[j, k] = n_labels
            code_ends[j, k] = n_codes
    labels = np.empty(n_labels, np.int32)
    codes = np.empty(n_codes, np.uint32)
    n_labels = 0
    n_codes = 0
    for j in range(n):
        i = chosen[j]
        for k in range(nbest):
            start = results.starts[i] + k * frames[i]
            for at in range(start, start + results.lengths[i, k]):
                c = results.labels[at]
                labels[n_labels] = c
                n_labels += 1
                for x in range(symbol_starts[c], symbol_starts[c + 1]):
                    codes[n_codes] = symbol_codes[x]
                    n_codes += 1
    return Spelling(labels, label_ends, codes, code_ends)


@njit(cache=True, nogil=True, error_model="numpy")
def _log_sum(x: float, y: float) -> float:
    high, low = max(x, y), min(x, y)
    return high + math.log1p(math.exp(low - high)) if low > -math.inf else high


@njit(cache=True, nogil=True, error_model="numpy")
def forward_of(log_probs: np.ndarray, labels: np.ndarray, blank: int) -> np.ndarray:
    """log-probability that exactly `labels` (at least one) have been written up to each frame of `log_probs` (T, V),
    summed over all paths that end in a blank, and over all that end in the last label: (T, 2).
    """
    T = log_probs.shape[0]
    states = 2 * labels.shape[0] + 1
    alpha = np.full(states, -np.inf)
    forward = np.empty((T, 2))
    for t in range(T):
        for j in range(states - 1, -1, -1):
            c = labels[j // 2] if j % 2 == 1 else blank
            total = alpha[j] if t > 0 else (0.0 if j <= 1 else -np.inf)
            if t > 0 and j > 0:
                total = _log_sum(total, alpha[j - 1])
            if t > 0 and j > 2 and j % 2 == 1 and labels[j // 2] != labels[j // 2 - 1]:
                total = _log_sum(total, alpha[j - 2])
            alpha[j] = total + log_probs[t, c]
        forward[t, 0] = alpha[states - 1]
        forward[t, 1] = alpha[states - 2]
    return forward


@njit(cache=True, nogil=True, error_model="numpy")
def align_labels(log_probs: np.ndarray, labels: np.ndarray, blank: int) -> np.ndarray:
    """The most probable path of `log_probs` (T, V) that collapses to `labels`: first and last frame of each, (L, 2)."""
    T = log_probs.shape[0]
    L = labels.shape[0]
    states = 2 * L + 1
    score = np.full(states, -np.inf)
    came_from = np.zeros((T, states), np.int8)
    for t in range(T):
        for j in range(states - 1, -1, -1):
            c = labels[j // 2] if j % 2 == 1 else blank
            best = score[j] if t > 0 else (0.0 if j == 0 else -np.inf)
            step = 0
            if t == 0 and j == 1:
                best = 0.0
            if t > 0 and j > 0 and score[j - 1] > best:
                best = score[j - 1]
                step = 1
            if t > 0 and j > 2 and j % 2 == 1 and labels[j // 2] != labels[j // 2 - 1] and score[j - 2] > best:
                best = score[j - 2]
                step = 2
            score[j] = best + log_probs[t, c]
            came_from[t, j] = step
    spans = np.zeros((L, 2), np.int32)
    if T == 0 or L == 0:
        return spans
    j = states - 1 if score[states - 1] >= score[states - 2] else states - 2
    for i in range(L):
        spans[i, 0] = T
    for t in range(T - 1, -1, -1):
        if j % 2 == 1:
            spans[j // 2, 0] = min(spans[j // 2, 0], t)
            spans[j // 2, 1] = max(spans[j // 2, 1], t)
        j -= came_from[t, j]
    return spans
