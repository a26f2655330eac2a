"""The compiled part of guided generation: scores of all tokens for all rows, with exact pruning."""

import math

import numpy as np
from numba import njit

from fada.decoding.guidance import (
    ALIGNED_W2,
    JS,
    KL,
    KL_EPSILON,
    SORTED_W2,
    append_character,
    appended_products,
    counted_distance,
    remove_character,
    w2_value,
)

_BLOCK = 64


@njit(cache=True, nogil=True)
def _grown(length: int, warmup: float) -> float:
    return length / (length + warmup) if warmup > 0.0 else 1.0


@njit(cache=True, nogil=True)
def guide_rows(
    log_probs: np.ndarray,  # (rows, vocabulary) float32
    out: np.ndarray,  # (rows, vocabulary) float32, filled here
    thresholds: np.ndarray,  # (rows,) float64, filled here: below it a token cannot be among the `keep` best
    befores: np.ndarray,  # (rows,) float64, filled here: d(h), 0 before the first generated token
    counts: np.ndarray,  # (rows, n) int64 characters of each row's text; restored on return
    lengths: np.ndarray,  # (rows,) int64
    started: np.ndarray,  # (rows,) bool: False before the first generated token
    skip_spaces: np.ndarray,  # (rows,) bool: the text is empty, leading spaces are not part of it
    unfinished: np.ndarray,  # (rows,) bool: the text ends within a character
    prefixes: np.ndarray,  # (rows, 2, width) int64 cells that come before a token [without, with] a leading space
    prefix_lengths: np.ndarray,  # (rows, 2) int64
    references: np.ndarray,  # (rows, n) float64, the target of each row
    offsets: np.ndarray,  # (vocabulary + 1,) int64 into `cells`
    cells: np.ndarray,  # int64, the characters of all tokens as positions in the alphabet
    spaces: np.ndarray,  # (vocabulary,) int64 number of leading spaces among a token's characters
    context: np.ndarray,  # (vocabulary,) uint8: 1 depends on unfinished bytes, 2 on the last character, else 0
    banned: np.ndarray,  # (vocabulary,) bool: tokens that hard constraints rule out
    kind: int,
    lam: float,
    weight: float,
    warmup: float,  # the distance of a text of L characters counts L / (L + warmup)
    keep: int,  # this many best tokens of each row get their exact value; 0: all
) -> None:
    r"""Fill ``out`` with λ·log p(v) - w·(D(h+v) - D(h)) for each row `h` and token `v`.

    w = (1-λ)·scale and D(h) = d(h)·L/(L + warmup) for a text of L characters; the paper's Eq. 2 is warmup = 0.

    Adding `m` characters to `L` moves the frequencies by at most √2·m/(L+m), and W2 by 1/√n of that; this gives each
    token a lower and an upper bound. A token whose upper bound is below the `keep`-th best lower bound is a certain
    loser and gets its lower bound; all others are computed exactly. Tokens that depend on context in a way that only
    the text can tell get their lower bound here and are corrected by the caller.
    """
    rows, vocabulary = log_probs.shape
    n = references.shape[1]
    longest = 0
    for v in range(vocabulary):
        longest = max(longest, offsets[v + 1] - offsets[v])
    longest += prefixes.shape[2]
    nearest = np.empty(longest + 1)
    farthest = np.empty(longest + 1)
    heap = np.empty(max(keep, 1))
    candidates = np.empty(vocabulary, np.int64)
    any_banned = banned.any()
    for r in range(rows):
        reference = references[r]
        count = counts[r]
        length = lengths[r]
        highest = 0
        squares = 0.0
        for i in range(n):
            highest = max(highest, count[i])
            squares += float(count[i]) * count[i]
        at_most = np.zeros(highest + longest + 2, np.int64)
        for i in range(n):
            at_most[count[i]] += 1
        for k in range(1, at_most.shape[0]):
            at_most[k] += at_most[k - 1]
        products = 0.0
        if kind == SORTED_W2:
            k = 0
            for i in range(n):
                while at_most[k] <= i:
                    k += 1
                products += k * reference[i]
        else:
            for i in range(n):
                products += count[i] * reference[i]
        q_squares = 0.0
        for i in range(n):
            q_squares += reference[i] * reference[i]
        if kind <= ALIGNED_W2:
            current = w2_value(squares, products, length, q_squares, n)
        else:
            current = counted_distance(kind, count, length, reference)
        current *= _grown(length, warmup)
        before = current if started[r] else 0.0

        unscaled = w2_value(squares, products, length, q_squares, n) if kind <= ALIGNED_W2 else 0.0
        closest = worst = current
        for m in range(longest + 1):
            if m == 0:
                nearest[m] = farthest[m] = current
            elif kind <= ALIGNED_W2:
                reach = math.sqrt(2.0 / n) * m / (length + m)
                nearest[m] = max(unscaled - reach, 0.0) * _grown(length + m, warmup)
                farthest[m] = (unscaled + reach) * _grown(length + m, warmup)
            else:
                nearest[m] = 0.0
                farthest[m] = 1.0 if kind == JS else (-math.log(KL_EPSILON) + 1.0 if kind == KL else float(n))
            closest = min(closest, nearest[m])
            worst = max(worst, farthest[m])
        floor = weight * (worst - before)

        befores[r] = before
        row_log_probs = log_probs[r]
        row_out = out[r]
        narrow_lam = np.float32(lam)
        narrow_floor = np.float32(floor)
        for v in range(vocabulary):
            row_out[v] = narrow_lam * row_log_probs[v] - narrow_floor

        # Tokens that may be among the best. The bar rises with the lower bounds seen so far; most blocks, compared in
        # vector registers, have nothing above it.
        threshold = -np.inf
        bar = np.float32(-np.inf)
        filled = 0
        n_candidates = 0
        for block in range(0, vocabulary, _BLOCK):
            stop = min(block + _BLOCK, vocabulary)
            above = 0
            for v in range(block, stop):
                above += row_log_probs[v] >= bar
            if above == 0:
                continue
            for v in range(block, stop):
                if row_log_probs[v] < bar or row_log_probs[v] == -np.inf:
                    continue
                if banned[v] or context[v] == 2 or (unfinished[r] and context[v] == 1):
                    continue
                candidates[n_candidates] = v
                n_candidates += 1
                if keep == 0:
                    continue
                m = offsets[v + 1] - offsets[v]
                if skip_spaces[r]:
                    m -= spaces[v]
                if m > 0:
                    m += prefix_lengths[r, 1 if spaces[v] > 0 else 0]
                value = lam * row_log_probs[v] - weight * farthest[m]
                if filled < keep:
                    i = filled
                    filled += 1
                    while i > 0 and value < heap[(i - 1) // 2]:
                        heap[i] = heap[(i - 1) // 2]
                        i = (i - 1) // 2
                    heap[i] = value
                elif value > heap[0]:
                    i = 0
                    while True:
                        child = 2 * i + 1
                        if child >= filled:
                            break
                        if child + 1 < filled and heap[child + 1] < heap[child]:
                            child += 1
                        if heap[child] >= value:
                            break
                        heap[i] = heap[child]
                        i = child
                    heap[i] = value
                if filled == keep:
                    threshold = heap[0]
                    if lam > 0.0:
                        exact = (threshold + weight * closest) / lam
                        bar = np.float32(exact - 1e-6 * abs(exact))
        thresholds[r] = threshold + weight * before

        for v in candidates[:n_candidates]:
            value = lam * row_log_probs[v]
            start = offsets[v]
            end = offsets[v + 1]
            if skip_spaces[r]:
                start += spaces[v]
            m = end - start
            if m == 0:
                row_out[v] = value - weight * (current - before)
                continue
            which = 1 if spaces[v] > 0 else 0
            extra = prefix_lengths[r, which]
            m += extra
            if value - weight * nearest[m] < threshold:
                continue
            new_squares = squares
            new_products = products
            for x in range(start - extra, end):
                cell = cells[x] if x >= start else prefixes[r, which, x - start + extra]
                new_squares += 2.0 * count[cell] + 1.0
                new_products += appended_products(kind, count, at_most, reference, cell)
                append_character(count, at_most, cell)
            if kind <= ALIGNED_W2:
                distance = w2_value(new_squares, new_products, length + m, q_squares, n)
            else:
                distance = counted_distance(kind, count, length + m, reference)
            distance *= _grown(length + m, warmup)
            for x in range(start - extra, end):
                cell = cells[x] if x >= start else prefixes[r, which, x - start + extra]
                remove_character(count, at_most, cell)
            row_out[v] = value - weight * (distance - before)
        if any_banned or lam == 0.0:
            for v in range(vocabulary):
                if banned[v] or row_log_probs[v] == -np.inf:
                    row_out[v] = -np.inf
