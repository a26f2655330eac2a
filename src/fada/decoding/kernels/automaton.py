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


class Automaton(NamedTuple):
    """A mixture of components over the classes of a recogniser, for compiled code."""

    state_numbers: np.ndarray
    """(8 · (states + 1),) int32, eight for each state, of which two are used: where its arcs start (a root has one for
    every character), and the state one character shorter, -1 at a root."""
    state_weights: np.ndarray
    """(4 · (states + 1),) float64, the same memory: the second of each state is the log weight of leaving it for its
    suffix. What is read together lies together, for reading it is most of the time."""
    state_bits: np.ndarray
    """(4 · (states + 1),) int64, the same memory: in the last two of each state, those bits are 1 that have the number
    of a character with an arc: whether there is one, and which it is, is known without a look at the arcs."""
    arc_numbers: np.ndarray
    """(4 · arcs,) int32, four for each arc: its character, ascending within a state, and the state it reaches."""
    arc_weights: np.ndarray
    """(2 · arcs,) float64, the same memory: the second of each arc is its log-probability."""
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
    context: np.ndarray
    """(states,) int32 row of `bounds` that holds for a state: its last characters are the row's."""
    bounds: np.ndarray
    """(contexts, V) float32 the highest log-probability of each class after any state of a context."""
    anywhere: np.ndarray
    """(V,) float32 the highest of each class after any state."""


@njit(**INLINED)
def step(lm: Automaton, states: Any, components: int, characters: int, c: int, reached: Any) -> float:
    """Log-probability of the characters of class `c` after `states` (one per component); writes the states reached.

    Args:
        lm: its arrays as pointers.
        characters: how many `text` has for a component.
    """
    for m in range(components):
        reached[m] = states[m]
    total = 0.0
    for i in range(lm.text_first[c], lm.text_first[c + 1]):
        mixed = 0.0
        for m in range(components):
            state = reached[m]
            wanted = np.int64(lm.text[m * characters + i])
            log_prob = lm.text_share[m * characters + i]
            while True:
                low = np.int64(lm.state_numbers[8 * state])
                if lm.state_numbers[8 * state + 1] < 0:
                    low += wanted
                    break
                word = lm.state_bits[4 * state + 2]
                if wanted >= 64:
                    low += ones(word)
                    word = lm.state_bits[4 * state + 3]
                if wanted < KNOWN_BITS:
                    low += ones(word & ((1 << (wanted & 63)) - 1))
                    if (word >> (wanted & 63)) & 1:
                        break
                else:
                    low += ones(word)
                    count = lm.state_numbers[8 * state + 8] - low
                    found = count > 0
                    while count > 1:
                        half = count >> 1
                        low += half * (lm.arc_numbers[4 * (low + half)] <= wanted)
                        count -= half
                    if found and lm.arc_numbers[4 * low] == wanted:
                        break
                log_prob += lm.state_weights[4 * state + 1]
                state = lm.state_numbers[8 * state + 1]
            log_prob += lm.arc_weights[2 * low + 1]
            reached[m] = lm.arc_numbers[4 * low + 1]
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
    return step(pointers(lm), states, states.shape[0], lm.text.shape[1], c, reached)


@entry
def walk(lm: Automaton, each: np.ndarray) -> None:
    """Log-probability of every class of the automaton, one after the other from the start of a line."""
    model = pointers(lm)
    states = lm.start.copy()
    reached = lm.start.copy()
    for c in range(each.shape[0]):
        each[c] = step(model, states, states.shape[0], lm.text.shape[1], c, reached)
        states[:] = reached


def packed_states(first: np.ndarray, suffix: np.ndarray, backoff: np.ndarray, character: np.ndarray) -> np.ndarray:
    """States side by side, (4 · states,) float64 where a line of the processor's memory begins: where the arcs of each
    start, (states,) int32 like its suffix, and its weight; and the bits of the characters of its arcs, (arcs,).
    """
    memory = np.zeros(4 * len(first) + 8)
    memory = memory[-memory.ctypes.data % 64 // 8 :][: 4 * len(first)]
    memory.view(np.int32)[0::8], memory.view(np.int32)[1::8] = first, suffix
    memory[1::4] = backoff
    for i in range(KNOWN_BITS // 64):
        bits = np.where(character >> 6 == i, np.uint64(1) << (character & 63).astype(np.uint64), np.uint64(0))
        # Each bit is there once, so that a difference of sums has the bits of a state, whatever the sums are.
        sums = np.concatenate([np.zeros(1, np.uint64), np.cumsum(bits, dtype=np.uint64)])
        memory.view(np.uint64)[2 + i :: 4] = np.diff(sums[first], append=sums[-1:])
    return memory


def packed_arcs(character: np.ndarray, target: np.ndarray, log_prob: np.ndarray) -> np.ndarray:
    """Arcs side by side, (2 · arcs,) float64: character and target, (arcs,) int32 each, and log-probability."""
    memory = np.zeros((len(log_prob), 2))
    memory.view(np.int32)[:, 0], memory.view(np.int32)[:, 1] = character, target
    memory[:, 1] = log_prob
    return memory.reshape(-1)
