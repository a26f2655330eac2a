"""A character n-gram model that follows the classes of a recogniser; compiled."""

import math
from typing import Any, NamedTuple

import numpy as np
from numba import njit

from fada.decoding.kernels.memory import INLINED, pointers


class Automaton(NamedTuple):
    """A mixture of components over the classes of a recogniser, for compiled code."""

    state_numbers: np.ndarray
    """(4 · (states + 1),) int32, four for each state, of which two are used: where its arcs start (a root has one for
    every character), and the state one character shorter, -1 at a root."""
    state_weights: np.ndarray
    """(2 · (states + 1),) float64, the same memory: the second of each state is the log weight of leaving it for its
    suffix. What is read together lies together, for reading it is most of the time."""
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
            wanted = lm.text[m * characters + i]
            log_prob = lm.text_share[m * characters + i]
            while True:
                low = lm.state_numbers[4 * state]
                if lm.state_numbers[4 * state + 1] < 0:
                    low += wanted
                    break
                count = lm.state_numbers[4 * state + 4] - low
                found = count > 0
                while count > 1:  # without a branch, which could not be foreseen
                    half = count >> 1
                    low += half * (lm.arc_numbers[4 * (low + half)] <= wanted)
                    count -= half
                if found and lm.arc_numbers[4 * low] == wanted:
                    break
                log_prob += lm.state_weights[2 * state + 1]
                state = lm.state_numbers[4 * state + 1]
            log_prob += lm.arc_weights[2 * low + 1]
            reached[m] = lm.arc_numbers[4 * low + 1]
            if components == 1:
                total += log_prob
            else:
                mixed += lm.mixture[m] * math.exp(log_prob)
        if components > 1:
            total += math.log(mixed)
    return total


@njit(cache=True, nogil=True)
def automaton_step(lm: Automaton, states: np.ndarray, c: int, reached: np.ndarray) -> float:
    """:func:`step`, to be called from Python."""
    return step(pointers(lm), states, states.shape[0], lm.text.shape[1], c, reached)


@njit(cache=True, nogil=True)
def walk(lm: Automaton, each: np.ndarray) -> None:
    """Log-probability of every class of the automaton, one after the other from the start of a line."""
    model = pointers(lm)
    states = lm.start.copy()
    reached = lm.start.copy()
    for c in range(each.shape[0]):
        each[c] = step(model, states, states.shape[0], lm.text.shape[1], c, reached)
        states[:] = reached


def packed(numbers: tuple[np.ndarray, np.ndarray], weights: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Two columns of whole numbers and one of weights, each (n,), side by side: as (4 n,) int32 and (2 n,) float64."""
    memory = np.zeros((len(weights), 2))
    memory.view(np.int32)[:, 0], memory.view(np.int32)[:, 1] = numbers
    memory[:, 1] = weights
    return memory.view(np.int32).reshape(-1), memory.reshape(-1)
