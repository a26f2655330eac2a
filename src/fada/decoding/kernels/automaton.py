"""A character n-gram model that follows the classes of a recogniser; compiled."""

import math
from typing import NamedTuple

import numpy as np
from numba import njit


class Automaton(NamedTuple):
    """A mixture of components over the classes of a recogniser, for compiled code."""

    first: np.ndarray
    """(states + 1,) int64 where the arcs of a state start; a root has one for every character."""
    character: np.ndarray
    """(arcs,) int32 ascending within a state."""
    log_prob: np.ndarray
    """(arcs,) float64."""
    target: np.ndarray
    """(arcs,) int32 state reached."""
    backoff: np.ndarray
    """(states,) float64 log weight of leaving a state for its suffix."""
    suffix: np.ndarray
    """(states,) int32 the state one character shorter, -1 at a root."""
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


@njit(cache=True, nogil=True)
def automaton_step(lm: Automaton, states: np.ndarray, c: int, reached: np.ndarray) -> float:
    """Log-probability of the characters of class `c` after `states` (one per component); writes the states reached."""
    components = states.shape[0]
    for m in range(components):
        reached[m] = states[m]
    total = 0.0
    for i in range(lm.text_first[c], lm.text_first[c + 1]):
        mixed = 0.0
        for m in range(components):
            state = reached[m]
            wanted = lm.text[m, i]
            log_prob = lm.text_share[m, i]
            while True:
                low = lm.first[state]
                high = lm.first[state + 1]
                if lm.suffix[state] < 0:
                    low += wanted
                    break
                while low < high:
                    middle = (low + high) >> 1
                    if lm.character[middle] < wanted:
                        low = middle + 1
                    else:
                        high = middle
                if low < lm.first[state + 1] and lm.character[low] == wanted:
                    break
                log_prob += lm.backoff[state]
                state = lm.suffix[state]
            log_prob += lm.log_prob[low]
            reached[m] = lm.target[low]
            if components == 1:
                total += log_prob
            else:
                mixed += lm.mixture[m] * math.exp(log_prob)
        if components > 1:
            total += math.log(mixed)
    return total


@njit(cache=True, nogil=True)
def walk(lm: Automaton, each: np.ndarray) -> None:
    """Log-probability of every class of the automaton, one after the other from the start of a line."""
    states = lm.start.copy()
    reached = lm.start.copy()
    for c in range(each.shape[0]):
        each[c] = automaton_step(lm, states, c, reached)
        states[:] = reached
