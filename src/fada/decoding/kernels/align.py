"""Label sequences in emissions: their probability, and their places on the most probable path; compiled."""

import math
from collections.abc import Sequence

import numpy as np
from numba import njit

from fada.decoding.kernels.memory import PART
from fada.decoding.kernels.parts import entry


@njit(**PART)
def _log_sum(x: float, y: float) -> float:
    high, low = max(x, y), min(x, y)
    return high + math.log1p(math.exp(low - high)) if low > -math.inf else high


@entry
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


def align_labels(log_probs: np.ndarray, labels: Sequence[int], blank: int) -> np.ndarray:
    """The most probable path of `log_probs` (T, V) that collapses to `labels`: first and last frame of each, (L, 2)."""
    T, L = len(log_probs), len(labels)
    spans = np.zeros((L, 2), np.int32)
    if T and L:
        spans[:, 0] = T
        score, came_from = np.full(2 * L + 1, -np.inf), np.zeros((T, 2 * L + 1), np.int8)
        _align(np.ascontiguousarray(log_probs, np.float64), np.array(labels, np.int64), blank, score, came_from, spans)
    return spans


@entry
def _align(
    log_probs: np.ndarray, labels: np.ndarray, blank: int, score: np.ndarray, came_from: np.ndarray, spans: np.ndarray
) -> None:
    """Write the spans of :func:`align_labels`; `score` is -inf, `came_from` a table of frames and states."""
    T = log_probs.shape[0]
    L = labels.shape[0]
    states = 2 * L + 1
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
    j = states - 1 if score[states - 1] >= score[states - 2] else states - 2
    for t in range(T - 1, -1, -1):
        if j % 2 == 1:
            spans[j // 2, 0] = t  # each frame is before those that were looked at
            if spans[j // 2, 1] < t:
                spans[j // 2, 1] = t
        j -= came_from[t, j]
