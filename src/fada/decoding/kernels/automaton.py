"""A character n-gram model that follows the classes of a recogniser; compiled."""

import math
from typing import Any, NamedTuple

import numpy as np
from numba import njit

from fada.decoding.kernels.memory import INLINED, pointers
from fada.decoding.kernels.parts import entry
from fada.decoding.kernels.vectors import ones

KNOWN_BITS = 128
"""Characters with a lower number have a bit in every state."""


class Arcs(NamedTuple):
    """N-grams, state by state."""

    character: np.ndarray
    """(arcs,) int32, ascending within a state."""
    target: np.ndarray
    """(arcs,) int32 the state that is reached."""
    log_prob: np.ndarray
    """(arcs,) float64."""


class Automaton(NamedTuple):
    """A mixture of components over the classes of a recogniser, for compiled code.

    A state is the number of a line of the processor's memory, 64 bytes each: what is read together lies together, for
    waiting for it is most of the time. Its first 16 bytes are the state one character shorter (int32, -1 at a root),
    the highest log-probability of any character after it (float32) and the log weight of leaving it for the shorter one
    (float64). In the next 16 bytes those bits are 1 that have the number of a character with an arc: whether there is
    one, and which it is, is known without a look at the arcs. These follow, 16 bytes each, in ascending order of
    characters (a root has one for each): the character and the state that is reached, both int32, and the
    log-probability, float64. Where characters have no bits, the number of their arcs stands before these, in 16 bytes.
    """

    numbers: np.ndarray
    """(16 · lines,) int32."""
    singles: np.ndarray
    """(16 · lines,) float32, the same memory, and so on."""
    weights: np.ndarray
    """(8 · lines,) float64."""
    bits: np.ndarray
    """(8 · lines,) int64."""
    start: np.ndarray
    """(components,) int32 state at the beginning of a line."""
    mixture: np.ndarray
    """(components,) float64 weights, summing to one."""
    text_first: np.ndarray
    """(V + 1,) int32 where the characters of a class start in `text`."""
    text: np.ndarray
    """(components, characters) int32."""
    text_share: np.ndarray
    """(components, characters) float64 log of the share of the arc's probability that belongs to the character."""
    ceiling: np.ndarray
    """(V,) float64 how much higher the log-probability of each class can be than that of any character."""


@njit(**INLINED)
def _arc(lm: Automaton, state: int, wanted: int) -> int:
    """Where the arc of a character stands, in 16 bytes from the first state on; -1 if the state has none."""
    at: Any = 4 * np.int64(state) + 2
    if lm.numbers[16 * state] < 0:
        return at + wanted
    word = lm.bits[8 * state + 2]
    if wanted >= 64:
        at += ones(word)
        word = lm.bits[8 * state + 3]
    if wanted < KNOWN_BITS:
        return at + ones(word & ((1 << (wanted & 63)) - 1)) if (word >> (wanted & 63)) & 1 else -1
    at += ones(word)
    count = np.int64(lm.numbers[4 * at])
    if count == 0:
        return -1
    at += 1
    while count > 1:
        half = count >> 1
        at += half * (lm.numbers[4 * (at + half)] <= wanted)
        count -= half
    return at if lm.numbers[4 * at] == wanted else -1


@njit(**INLINED)
def step(lm: Automaton, states: Any, components: int, characters: int, c: int, reached: Any, needed: float) -> float:
    """Log-probability of the characters of class `c` after `states` (one per component), or -inf if it is seen to be
    less than `needed`, mostly before all is read; writes the states reached.

    Args:
        lm: its arrays as pointers.
        characters: how many `text` has for a component.
    """
    for m in range(components):
        reached[m] = states[m]
    total = 0.0
    first, end = lm.text_first[c], lm.text_first[c + 1]
    for i in range(first, end):
        mixed = 0.0
        for m in range(components):
            state = np.int64(reached[m])
            wanted = np.int64(lm.text[m * characters + i])
            log_prob = lm.text_share[m * characters + i]
            while True:
                if components == 1 and i == first and log_prob + lm.singles[16 * state + 1] + lm.ceiling[c] < needed:
                    return -math.inf
                at = _arc(lm, state, wanted)
                if at >= 0:
                    break
                log_prob += lm.weights[8 * state + 1]
                state = np.int64(lm.numbers[16 * state])
            log_prob += lm.weights[2 * at + 1]
            reached[m] = lm.numbers[4 * at + 1]
            if components == 1:
                total += log_prob
            else:
                mixed += lm.mixture[m] * math.exp(log_prob)
        if components > 1:
            total += math.log(mixed)
    return total


@entry
def automaton_step(lm: Automaton, states: np.ndarray, c: int, reached: np.ndarray) -> float:
    """:func:`step`, to be called from Python."""
    return step(pointers(lm), states, states.shape[0], lm.text.shape[1], c, reached, -math.inf)


@entry
def walk(lm: Automaton, each: np.ndarray) -> None:
    """Log-probability of every class of the automaton, one after the other from the start of a line."""
    model = pointers(lm)
    states = lm.start.copy()
    reached = lm.start.copy()
    for c in range(each.shape[0]):
        each[c] = step(model, states, states.shape[0], lm.text.shape[1], c, reached, -math.inf)
        states[:] = reached


def packed(
    first: np.ndarray, suffix: np.ndarray, most: np.ndarray, backoff: np.ndarray, arcs: Arcs, before: int
) -> tuple[np.ndarray, np.ndarray]:
    """The memory of a component as :class:`Automaton` describes it, (8 · lines,) float64, and the number of every state
    in it, (states,).

    Args:
        first: (states + 1,) where the arcs of each state start.
        suffix, most, backoff: (states,) of each the shorter context, the highest log-probability after it, and the
            weight of going on in the shorter one.
        before: lines of other components.
    """
    many, further = np.diff(first), arcs.character >= KNOWN_BITS
    counted = int(first[1] > KNOWN_BITS)
    ends = np.cumsum((many + counted + 5) // 4)
    line = np.concatenate([[0], ends[:-1]])
    memory = np.zeros(8 * ends[-1])
    numbers, bits = memory.view(np.int32), memory.view(np.uint64)
    numbers[16 * line] = np.where(suffix < 0, -1, before + line[suffix])
    memory.view(np.float32)[16 * line + 1] = np.nextafter(most.astype(np.float32), np.float32(np.inf))
    memory[8 * line + 1] = backoff
    for i in range(KNOWN_BITS // 64):
        own = np.where(arcs.character >> 6 == i, np.uint64(1) << (arcs.character & 63).astype(np.uint64), np.uint64(0))
        # Each bit is there once, so that a difference of sums has the bits of a state, whatever the sums are.
        sums = np.concatenate([np.zeros(1, np.uint64), np.cumsum(own, dtype=np.uint64)])
        bits[8 * line + 2 + i] = np.diff(sums[first])
    at = np.repeat(4 * line + 2 - first[:-1], many) + np.arange(len(further))
    if counted:
        at[first[1] :] += further[first[1] :]
        counts = np.diff(np.concatenate([[0], np.cumsum(further)])[first])
        numbers[4 * (4 * line + 2 + many - counts)[1:]] = counts[1:]
    numbers[4 * at], numbers[4 * at + 1] = arcs.character, before + line[arcs.target]
    memory[2 * at + 1] = arcs.log_prob
    return memory, before + line
