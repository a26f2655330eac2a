"""What the compiled search is given and what it writes."""

from typing import NamedTuple

import numpy as np

NO_CHARACTER, GENERAL = -1, -2
"""`cell` of a class that adds no counted character, and of one that must be looked up."""
KEEP = -1
"""`reset` of a class that leaves the tail as it is."""
EMPTY = -1
"""A free place in the hash of programs."""

DONE, NO_PATH, UNKNOWN_STEP, TOO_DEEP, UNNORMALIZED = range(5)
"""How the search of a line ended."""


class Lines(NamedTuple):
    """Log-probabilities of lines, where they lie in memory: no copy is made. Whoever calls keeps the arrays alive."""

    address: np.ndarray
    """(lines,) int64 of a C-contiguous (frames, classes) array."""
    frames: np.ndarray
    """(lines,) int64."""
    like: np.ndarray
    """(0,) float32 or float64: of which kind all of them are."""
    classes: int


class Targets(NamedTuple):
    """What the distance and the prior need of each target."""

    reference: np.ndarray
    """(targets, n) float64 target frequencies, ascending for sorted_w2."""
    class_weight: np.ndarray
    """(targets, V) float64 what a class adds to the score by itself, -inf for the blank and for blocked classes."""
    tail_gain: np.ndarray
    """(targets, tails) float64 the most that the characters of a general step after each tail can add."""
    cell_weight: np.ndarray
    """(targets, n) float64 what a character of a general step adds to the score."""


class Score(NamedTuple):
    """Weights of the score, and the targets."""

    lam: float
    distance_weight: float
    lm_weight: float
    kind: int
    targets: Targets
    most_removed: int
    most_added: int
    weighs: bool
    """Whether characters have weights, and steps can add others than those of their class."""
    tracks_text: bool
    """Whether steps must be followed although there is no distance: prior or constraints with general symbols."""


class Terms(NamedTuple):
    """What the parts of the search of one call have in common."""

    lam: float
    mu: float
    """Weight of the distance."""
    lm_weight: float
    kind: int
    """Of the distance."""
    blank: int
    K: int
    """Hypotheses, a given beginning included."""
    V: int
    components: int
    """Of the language model."""
    characters: int
    """Of the texts of all classes."""
    shift: int
    """Bits of a class in the key of an extension."""
    n: int
    """Characters of the alphabet."""
    split: int
    """Where `at_most` starts in a row of `tally`."""
    words_each: int
    """64-bit words of a hypothesis in `words`; four times as many counts in `tally`."""
    depth: int
    """Highest count of one character that there is room for."""
    longest: int
    """Characters that a text can have, and a few more; 0 if they are not counted."""
    most_removed: int
    most_added: int
    nbest: int
    guided: bool
    incremental: bool
    """Whether the distance is O(1) per character."""
    has_general: bool
    bounds_step: bool
    """Whether the least distance of one character more is found. It pays where distances outweigh λ log P; a general
    step can do more."""
    silent: bool
    """Whether there are classes that write nothing."""
    program_slots: int
    """Size of the hash of programs."""
    weighs: bool
    """Whether characters do, so that general steps gain what is not in the weight of their class."""
    tails: int
    """How many `tail_gain` knows of."""


class TableArrays(NamedTuple):
    """What the search reads of a :class:`fada.decoding.steps.StepTable`."""

    cell: np.ndarray
    """(V,) int32 position of the one character a class adds, or NO_CHARACTER, or GENERAL."""
    reset: np.ndarray
    """(V,) int32 tail after a class whose effect does not depend on the tail, or KEEP."""
    joins: np.ndarray
    """(V,) bool whether the effect of a class depends on the tail."""
    irregular: np.ndarray
    """(tails,) bool whether every class's effect depends on this tail."""
    keys: np.ndarray
    """(slots,) int64 tail · V + class, or EMPTY."""
    programs: np.ndarray
    """(slots,) int32 number of the program."""
    starts: np.ndarray
    """(programs + 1,) int32 where each program starts in `operations`."""
    operations: np.ndarray
    """(operations,) int32 1 + cell to add, -(1 + cell) to remove."""
    next_state: np.ndarray
    """(programs,) int32 tail afterwards."""
    refused: np.ndarray
    """(programs,) bool whether the constraint forbids the result."""


class Results(NamedTuple):
    """Where the search writes the n-best of each line of a batch."""

    labels: np.ndarray
    """(nbest · all frames,) int32: room for as many labels as a line has frames, `nbest` times for each line."""
    starts: np.ndarray
    """(lines,) int64 where the labels of each line start."""
    lengths: np.ndarray
    """(lines, nbest) int32, -1 where there is no further hypothesis."""
    values: np.ndarray
    """(lines, nbest, 4) float64: score, log_prob, distance, language model log-probability."""
    status: np.ndarray
    """(lines,) int32."""
    finished: np.ndarray
    """(lines,) int64 above 0 as soon as all the above can be read by other threads."""


class Beginnings(NamedTuple):
    """Labels that the hypotheses of each line must begin with; no array has an element if there are none at all."""

    labels: np.ndarray
    """(all labels,) int32."""
    label_starts: np.ndarray
    """(lines + 1,) int64 where those of each line start."""
    forward: np.ndarray
    """(all frames, 2) float64 log-probability of exactly these labels up to each frame, the last of them a blank, and
    the last label: summed over all paths, no beam has a say."""
    forward_starts: np.ndarray
    """(lines + 1,) int64 where those of each line start."""


class Queue(NamedTuple):
    """Lines to be decoded, from which all threads take the next one."""

    order: np.ndarray
    """(many,) int64 numbers of lines."""
    taken: np.ndarray
    """(1,) int64 how many have been taken."""
