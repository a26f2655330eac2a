"""The compiled part of guided generation: scores of all tokens for all rows, with exact pruning."""

import math
from typing import NamedTuple

import numpy as np
from numba import njit

from fada.decoding.kernels.distance import (
    ALIGNED_W2,
    JS,
    KL,
    SORTED_W2,
    append_character,
    appended_products,
    counted_distance,
    remove_character,
    w2_value,
)
from fada.decoding.kernels.parts import entry
from fada.distances import KL_EPSILON

_BLOCK = 64


class Rows(NamedTuple):
    """What has been written in each row."""

    counts: np.ndarray
    """(rows, n) int64 characters of the text; restored after use."""
    lengths: np.ndarray
    """(rows,) int64 their number."""
    started: np.ndarray
    """(rows,) bool, False before the first generated token."""
    skip_spaces: np.ndarray
    """(rows,) bool: the text is empty, leading spaces are not part of it."""
    unfinished: np.ndarray
    """(rows,) bool: the text ends within a character."""
    prefixes: np.ndarray
    """(rows, 2, width) int64 cells that come before a token [without, with] a leading space."""
    prefix_lengths: np.ndarray
    """(rows, 2) int64."""
    references: np.ndarray
    """(rows, n) float64, the target of each row."""


class Tokens(NamedTuple):
    """The characters of every token of the vocabulary."""

    offsets: np.ndarray
    """(vocabulary + 1,) int64 into `cells`."""
    cells: np.ndarray
    """(characters of all tokens,) int64 as positions in the alphabet."""
    spaces: np.ndarray
    """(vocabulary,) int64 number of leading spaces among a token's characters."""
    context: np.ndarray
    """(vocabulary,) uint8: 1 depends on unfinished bytes, 2 on the last character, else 0."""
    banned: np.ndarray
    """(vocabulary,) bool: tokens that hard constraints rule out."""


class Terms(NamedTuple):
    """The score: λ · log p - weight · distance · L / (L + warmup)."""

    kind: int
    lam: float
    weight: float
    warmup: float
    keep: int
    """This many best tokens of each row get their exact value; 0: all."""


class Text(NamedTuple):
    """One row counted, so that a token more is O(1) per character."""

    counts: np.ndarray
    at_most: np.ndarray
    reference: np.ndarray
    length: int
    squares: float
    products: float
    q_squares: float


@njit(nogil=True)
def _grown(length: int, warmup: float) -> float:
    return length / (length + warmup) if warmup > 0.0 else 1.0


@njit(nogil=True)
def _counted(rows: Rows, r: int, kind: int, room: int) -> Text:
    """Row `r`, with room for counts that grow by `room`."""
    reference = rows.references[r]
    count = rows.counts[r]
    n = reference.shape[0]
    highest = 0
    squares = 0.0
    q_squares = 0.0
    for i in range(n):
        highest = max(highest, count[i])
        squares += float(count[i]) * count[i]
        q_squares += reference[i] * reference[i]
    at_most = np.zeros(highest + room + 2, np.int64)
    for i in range(n):
        at_most[count[i]] += 1
    for k in range(1, at_most.shape[0]):
        at_most[k] += at_most[k - 1]
    products = 0.0
    k = 0
    for i in range(n):
        if kind == SORTED_W2:
            while at_most[k] <= i:
                k += 1
            products += k * reference[i]
        else:
            products += count[i] * reference[i]
    return Text(count, at_most, reference, rows.lengths[r], squares, products, q_squares)


@njit(nogil=True)
def _distance(text: Text, kind: int, squares: float, products: float, length: int) -> float:
    if kind <= ALIGNED_W2:
        return w2_value(squares, products, length, text.q_squares, text.reference.shape[0])
    return counted_distance(kind, text.counts, length, text.reference)


@njit(nogil=True)
def _bound(text: Text, terms: Terms, current: float, nearest: np.ndarray, farthest: np.ndarray) -> None:
    """By the number of characters that a token adds, how near and how far it can bring the text to the target."""
    kind, warmup = terms.kind, terms.warmup
    n = text.reference.shape[0]
    unscaled = _distance(text, kind, text.squares, text.products, text.length) if kind <= ALIGNED_W2 else 0.0
    nearest[0] = farthest[0] = current
    for m in range(1, nearest.shape[0]):
        if kind <= ALIGNED_W2:
            reach = math.sqrt(2.0 / n) * m / (text.length + m)
            nearest[m] = max(unscaled - reach, 0.0) * _grown(text.length + m, warmup)
            farthest[m] = (unscaled + reach) * _grown(text.length + m, warmup)
        else:
            nearest[m] = 0.0
            farthest[m] = 1.0 if kind == JS else (-math.log(KL_EPSILON) + 1.0 if kind == KL else float(n))


@njit(nogil=True)
def _raise_bar(heap: np.ndarray, filled: int, value: float) -> int:
    """Put `value` among the best in the heap, whose worst is in front; returns how many there are."""
    if filled < heap.shape[0]:
        i = filled
        while i > 0 and value < heap[(i - 1) // 2]:
            heap[i] = heap[(i - 1) // 2]
            i = (i - 1) // 2
        heap[i] = value
        return filled + 1
    if value > heap[0]:
        i = 0
        while 2 * i + 1 < filled:
            child = 2 * i + 1
            if child + 1 < filled and heap[child + 1] < heap[child]:
                child += 1
            if heap[child] >= value:
                break
            heap[i] = heap[child]
            i = child
        heap[i] = value
    return filled


@njit(nogil=True)
def _choose(
    log_probs: np.ndarray,
    rows: Rows,
    r: int,
    tokens: Tokens,
    terms: Terms,
    nearest: np.ndarray,
    farthest: np.ndarray,
    candidates: np.ndarray,
) -> tuple[int, float]:
    """Write the tokens that may be among the `keep` best; returns their number and the `keep`-th best lower bound.

    The bar rises with the lower bounds seen so far; most blocks, compared in vector registers, have nothing above it.
    """
    offsets, _, spaces, context, banned = tokens
    keep, lam, weight = terms.keep, terms.lam, terms.weight
    closest = nearest.min()
    heap = np.empty(max(keep, 1))
    threshold = -np.inf
    bar = np.float32(-np.inf)
    filled = 0
    n_candidates = 0
    for block in range(0, log_probs.shape[0], _BLOCK):
        stop = min(block + _BLOCK, log_probs.shape[0])
        above = 0
        for v in range(block, stop):
            above += log_probs[v] >= bar
        if above == 0:
            continue
        for v in range(block, stop):
            if log_probs[v] < bar or log_probs[v] == -np.inf:
                continue
            if banned[v] or context[v] == 2 or (rows.unfinished[r] and context[v] == 1):
                continue
            candidates[n_candidates] = v
            n_candidates += 1
            if keep == 0:
                continue
            m = offsets[v + 1] - offsets[v]
            if rows.skip_spaces[r]:
                m -= spaces[v]
            if m > 0:
                m += rows.prefix_lengths[r, 1 if spaces[v] > 0 else 0]
            filled = _raise_bar(heap, filled, lam * log_probs[v] - weight * farthest[m])
            if filled == keep:
                threshold = heap[0]
                if lam > 0.0:
                    exact = (threshold + weight * closest) / lam
                    bar = np.float32(exact - 1e-6 * abs(exact))
    return n_candidates, threshold


@entry
def guide_rows(
    log_probs: np.ndarray, rows: Rows, tokens: Tokens, terms: Terms, out: np.ndarray, limits: np.ndarray
) -> None:
    r"""Fill ``out`` with λ·log p(v) - w·(D(h+v) - D(h)) for each row `h` and token `v`.

    w = (1-λ)·scale and D(h) = d(h)·L/(L + warmup) for a text of L characters; the paper's Eq. 2 is warmup = 0.

    Adding `m` characters to `L` moves the frequencies by at most √2·m/(L+m), and W2 by 1/√n of that; this gives each
    token a lower and an upper bound. A token whose upper bound is below the `keep`-th best lower bound is a certain
    loser and gets its lower bound; all others are computed exactly. Tokens that depend on context in a way that only
    the text can tell get their lower bound here and are corrected by the caller.

    Args:
        log_probs: (rows, vocabulary) float32.
        out: (rows, vocabulary) float32, filled here.
        limits: (rows, 2) float64, filled here: the value below which a token cannot be among the `keep` best, and D(h),
            0 before the first generated token.
    """
    vocabulary = log_probs.shape[1]
    offsets, cells, spaces, _, banned = tokens
    kind, lam, weight, warmup, _ = terms
    longest = rows.prefixes.shape[2] + np.max(offsets[1:] - offsets[:-1])
    nearest = np.empty(longest + 1)
    farthest = np.empty(longest + 1)
    candidates = np.empty(vocabulary, np.int64)
    any_banned = banned.any()
    for r in range(log_probs.shape[0]):
        text = _counted(rows, r, kind, longest)
        count, at_most, reference, length, squares, products, _ = text
        current = _distance(text, kind, squares, products, length) * _grown(length, warmup)
        before = current if rows.started[r] else 0.0
        _bound(text, terms, current, nearest, farthest)

        row_log_probs = log_probs[r]
        row_out = out[r]
        narrow_lam = np.float32(lam)
        narrow_floor = np.float32(weight * (farthest.max() - before))
        for v in range(vocabulary):
            row_out[v] = narrow_lam * row_log_probs[v] - narrow_floor
        n_candidates, threshold = _choose(row_log_probs, rows, r, tokens, terms, nearest, farthest, candidates)
        limits[r, 0] = threshold + weight * before
        limits[r, 1] = before

        for v in candidates[:n_candidates]:
            value = lam * row_log_probs[v]
            start = offsets[v]
            end = offsets[v + 1]
            if rows.skip_spaces[r]:
                start += spaces[v]
            m = end - start
            if m == 0:
                row_out[v] = value - weight * (current - before)
                continue
            which = 1 if spaces[v] > 0 else 0
            extra = rows.prefix_lengths[r, which]
            m += extra
            if value - weight * nearest[m] < threshold:
                continue
            new_squares = squares
            new_products = products
            for x in range(start - extra, end):
                cell = cells[x] if x >= start else rows.prefixes[r, which, x - start + extra]
                new_squares += 2.0 * count[cell] + 1.0
                new_products += appended_products(kind, count, at_most, reference, cell)
                append_character(count, at_most, cell)
            distance = _distance(text, kind, new_squares, new_products, length + m) * _grown(length + m, warmup)
            for x in range(start - extra, end):
                cell = cells[x] if x >= start else rows.prefixes[r, which, x - start + extra]
                remove_character(count, at_most, cell)
            row_out[v] = value - weight * (distance - before)
        if any_banned or lam == 0.0:
            for v in range(vocabulary):
                if banned[v] or row_log_probs[v] == -np.inf:
                    row_out[v] = -np.inf
