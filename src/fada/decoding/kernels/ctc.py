"""The compiled part of the CTC prefix beam search. See :mod:`fada.decoding.ctc` and ``docs/decoding.md``.

A hypothesis is a node of a trie of label sequences; the live ones occupy slots. A hypothesis that is not extended stays
in its slot; one that drops out and comes back finds its old node, and with it its living children. Probabilities are
kept in the linear domain, rescaled when they get small, so that merging two paths is one addition.

The beam of the next frame is the exact best `beam_size` of all (hypothesis, class) pairs: a heap of that size is filled
with the hypotheses as they are, then with their extensions in falling order of what a class can contribute at most,
until the bound says that nothing better can follow.
"""

import math
from typing import Any, NamedTuple

import numpy as np
from numba import carray, njit, types
from numba.extending import intrinsic

from fada.decoding.kernels.automaton import Automaton, automaton_step
from fada.decoding.kernels.distance import ALIGNED_W2, SORTED_W2, counted_distance, w2_value
from fada.decoding.kernels.heap import push, sift_down, worse

NO_CHARACTER, GENERAL = -1, -2
"""`cell` of a class that adds no counted character, and of one that must be looked up."""
KEEP = -1
"""`reset` of a class that leaves the tail as it is."""
EMPTY = -1
"""A free place in the hash of programs."""

DONE, NO_PATH, UNKNOWN_STEP, TOO_DEEP, UNNORMALIZED = range(5)
"""How the search of a line ended."""

P_BLANK, P_LABEL, TOTAL, LOG_TOTAL = 0, 1, 2, 3
NEW_BLANK, NEW_LABEL, NEW_LOG = 4, 5, 6
EXTRA, REST, REACH = 7, 8, 9
SQUARES, PRODUCTS, DISTANCE, CONSTANT = 10, 11, 12, 13
LM_TOTAL, LOOSE, VALUES = 14, 15, 16
"""What is known of a live hypothesis, side by side in memory: the probability of its paths that end in a blank, of
those that end in its last label, their sum and its logarithm; the same after the current frame; the part of the score
that is neither λ log P nor distance, the score without λ log P, the most that can be after one symbol more (before that
symbol's own contribution); Σc², Σcq, the distance and the part of W2² one character later that does not depend on the
character; the log-probability by the language model; how much more than one character a general step can gain."""
NODE, LAST, TAIL, LENGTH, HIGHEST, NUMBER, PLACES = 0, 1, 2, 3, 4, 5, 8
"""Its node in the trie, its last label, its tail (see `_symbols`), its number of characters and their highest count; a
number that no other hypothesis of this slot had."""

_LOWEST = -1e300
_FEW = 32
"""Up to this number, classes are sorted; more of them are taken from a heap as they are needed."""
_ROUNDING = 1.0 + 1e-12
_TINY = 1e-30
"""Probabilities are rescaled when the largest falls below this."""
_HUGE = 1.0 / _TINY


class Lines(NamedTuple):
    """Log-probabilities of lines, where they lie in memory: no copy is made. Whoever calls keeps the arrays alive."""

    address: np.ndarray
    """(lines,) int64 of a C-contiguous (frames, classes) array."""
    frames: np.ndarray
    """(lines,) int64."""
    is_float64: np.ndarray
    """(lines,) bool; the others are float32."""
    classes: int


class Score(NamedTuple):
    """Weights of the score and, per target, what the distance and the prior need."""

    lam: float
    distance_weight: float
    lm_weight: float
    kind: int
    reference: np.ndarray
    """(targets, n) float64 target frequencies, ascending for sorted_w2."""
    class_weight: np.ndarray
    """(targets, V) float64 what a class adds to the score by itself, -inf for the blank and for blocked classes."""
    class_ceiling: np.ndarray
    """(targets, V) float64 the most a class can add in any context, but for the language model."""
    cell_weight: np.ndarray
    """(targets, n) float64 what a character of a general step adds to the score."""
    most_removed: int
    most_added: int
    tracks_text: bool
    """Whether steps must be followed although there is no distance: prior or constraints with general symbols."""


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


@njit(cache=True, nogil=True, error_model="numpy")
def hash_slot(key: int, size: int) -> int:
    """Where to look for `key` first in an open-addressing table whose size is a power of two."""
    return ((key * 0x9E3779B1) >> 7) & (size - 1)


@njit(cache=True, nogil=True, error_model="numpy", fastmath={"reassoc", "contract", "nsz"})
def _row_sum(rows: np.ndarray, t: int, bits: np.ndarray, powers: np.ndarray) -> np.floating:
    """Σ exp of frame `t`, at most 6 % too high; NaN if NaN or +inf is in it.

    The bits of a float32 are its base-2 logarithm, linearly interpolated: writing x / log 2 there gives exp(x) in two
    operations that run in vector registers. `powers` is the float32 view of `bits`.
    """
    sound = np.float32(0.0)
    for c in range(bits.shape[0]):
        x = np.float32(rows[t, c])
        y = np.float32(-87.0) if x < np.float32(-87.0) else x
        sound += y
        z = np.float32(88.0) if y > np.float32(88.0) else y
        bits[c] = np.int32(z * np.float32(12102203.0) + np.float32(1065353216.0))
    total = np.float32(0.0)
    for c in range(bits.shape[0]):
        total += powers[c]
    return total if sound < np.float32(1e30) else np.float32(math.nan)


def _pointer_to(element: types.Type) -> Any:
    @intrinsic
    def pointer(typing_context: Any, address: Any) -> Any:
        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            return builder.inttoptr(arguments[0], context.get_value_type(signature.return_type))

        return types.CPointer(element)(types.int64), generate

    return pointer


_float32_at = _pointer_to(types.float32)
_float64_at = _pointer_to(types.float64)


def _atomic_addition(typing_context: Any, counter: Any) -> Any:
    """Add one to the first element of an int64 array, as one operation for all threads; returns what was there."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        array = context.make_array(signature.args[0])(context, builder, arguments[0])
        return builder.atomic_rmw("add", array.data, context.get_constant(types.int64, 1), "seq_cst")

    return types.int64(counter), generate


_count_up: Any = intrinsic(_atomic_addition)


@njit(cache=True)
def address_of(rows: np.ndarray) -> int:
    """Where the data of an array lie; in Python this would take several times as long."""
    return rows.ctypes.data


@njit(cache=True, nogil=True, error_model="numpy")
def _contributions(
    rows: np.ndarray, t: int, lam: float, ceiling: np.ndarray, threshold: float, gain: np.ndarray
) -> int:
    """The most each class can add to a score in frame `t`; returns how many reach `threshold`. Runs in vectors."""
    count = 0
    for c in range(ceiling.shape[0]):
        x = lam * rows[t, c] + ceiling[c]
        gain[c] = x
        count += x >= threshold
    return count


@njit(cache=True, nogil=True, error_model="numpy")
def _most(bounds: np.ndarray, context: np.ndarray, lm_state: np.ndarray, s: int, c: int) -> float:
    """The highest log-probability that the language model can give class `c` after hypothesis `s`."""
    most = bounds[context[lm_state[s, 0]], c]
    for m in range(1, lm_state.shape[1]):
        most = max(most, bounds[context[lm_state[s, m]], c])
    return most


@njit(cache=True, nogil=True, error_model="numpy")
def _raise_ceiling(
    class_ceiling: np.ndarray,
    g: int,
    bounds: np.ndarray,
    context: np.ndarray,
    lm_weight: float,
    lm_state: np.ndarray,
    active: np.ndarray,
    n_active: int,
    highest: np.ndarray,
    ceiling: np.ndarray,
) -> None:
    """The most each class can add to a score after any of the live hypotheses, language model included."""
    for c in range(highest.shape[0]):
        highest[c] = bounds[context[lm_state[active[0], 0]], c]
    for a in range(n_active):
        for m in range(0 if a else 1, lm_state.shape[1]):
            row = context[lm_state[active[a], m]]
            for c in range(highest.shape[0]):
                highest[c] = max(highest[c], bounds[row, c])
    for c in range(ceiling.shape[0]):
        ceiling[c] = class_ceiling[g, c] + lm_weight * highest[c]


@njit(cache=True, nogil=True, error_model="numpy")
def _lowest_square(
    kind: int,
    counts: np.ndarray,
    at_most: np.ndarray,
    highest: int,
    reference: np.ndarray,
    one: float,
    two: float,
) -> float:
    """The least that one character more adds to the part of W2² that does not depend on the character."""
    lowest = math.inf
    if kind == SORTED_W2:
        for k in range(highest + 1):
            if at_most[k] > 0:
                lowest = min(lowest, (2 * k + 1) * two + reference[at_most[k] - 1] * one)
    else:
        for i in range(reference.shape[0]):
            lowest = min(lowest, (2 * counts[i] + 1) * two + reference[i] * one)
    return lowest


@njit(cache=True, nogil=True, error_model="numpy")
def _find_program(keys: np.ndarray, programs: np.ndarray, key: int) -> int:
    size = keys.shape[0]
    slot = hash_slot(key, size)
    while keys[slot] != EMPTY:
        if keys[slot] == key:
            return programs[slot]
        slot = (slot + 1) & (size - 1)
    return -1


@njit(cache=True, nogil=True, error_model="numpy")
def _run(
    operations: np.ndarray,
    start: int,
    stop: int,
    kind: int,
    counts: np.ndarray,
    at_most: np.ndarray,
    highest: int,
    reference: np.ndarray,
    squares: float,
    products: float,
) -> tuple[int, float, float]:
    """Remove and add the characters of a program; returns the highest count, Σc² and Σcq afterwards."""
    n = reference.shape[0]
    for i in range(start, stop):
        operation = operations[i]
        if operation > 0:
            cell = operation - 1
            k = counts[cell]
            if k == highest:
                highest += 1
                at_most[highest] = n
            products += reference[at_most[k] - 1] if kind == SORTED_W2 else reference[cell]
            squares += 2 * k + 1
            at_most[k] -= 1
            counts[cell] = k + 1
        else:
            cell = -operation - 1
            k = counts[cell]
            products -= reference[at_most[k - 1]] if kind == SORTED_W2 else reference[cell]
            squares -= 2 * k - 1
            at_most[k - 1] += 1
            counts[cell] = k - 1
    return highest, squares, products


@njit(cache=True, nogil=True, error_model="numpy")
def _undo(operations: np.ndarray, start: int, stop: int, counts: np.ndarray, at_most: np.ndarray) -> None:
    for i in range(stop - 1, start - 1, -1):
        operation = operations[i]
        if operation > 0:
            counts[operation - 1] -= 1
            at_most[counts[operation - 1]] += 1
        else:
            at_most[counts[-operation - 1]] -= 1
            counts[-operation - 1] += 1


@njit(cache=True, nogil=True, error_model="numpy")
def _by_length(longest: int, score: Score) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """By the number of characters up to `longest`: the factors of Σcq and Σc² in W2², and how much one symbol more can
    lower the weighted W2.
    """
    mu = score.distance_weight
    n = score.reference.shape[1]
    linear = np.zeros(longest + 1)
    quadratic = np.zeros(longest + 1)
    most_relief = np.zeros(longest + 1)
    radius = mu * math.sqrt(2.0 / n) if score.kind <= ALIGNED_W2 or mu <= 0.0 else math.inf
    added, removed = score.most_added, score.most_removed
    most_relief[0] = radius
    for i in range(1, longest + 1):
        linear[i] = -2.0 / (float(i) * n)
        quadratic[i] = 1.0 / (float(i) * float(i) * n)
        moved = max(added / (i - removed + added), removed / i) if i > removed else 1.0
        most_relief[i] = radius * moved
    return linear, quadratic, most_relief


@njit(cache=True, nogil=True, error_model="numpy")
def _is_normalized(rows: np.ndarray, bits: np.ndarray, powers: np.ndarray) -> bool:
    """Whether the probabilities of every frame seem to sum to about 1."""
    for t in range(rows.shape[0]):  # noqa: SIM110 (compiled)
        if not 0.985 <= _row_sum(rows, t, bits, powers) <= 1.075:
            return False
    return True


@njit(cache=True, nogil=True, error_model="numpy", inline="always")
def _sort_by_gain(
    candidates: np.ndarray, found: int, gain: np.ndarray, best_gain: np.ndarray, best_class: np.ndarray
) -> None:
    """The first `found` candidates in falling order of their gain, by insertion."""
    for j in range(found):
        c = candidates[j]
        x = gain[c]
        i = j
        while i > 0 and best_gain[i - 1] < x:
            best_gain[i] = best_gain[i - 1]
            best_class[i] = best_class[i - 1]
            i -= 1
        best_gain[i] = x
        best_class[i] = c


@njit(cache=True, nogil=True, error_model="numpy", inline="always")
def _forget_children(
    has_child: np.ndarray,
    active: np.ndarray,
    n_active: int,
    place_of: np.ndarray,
    parent: np.ndarray,
    slot_of: np.ndarray,
) -> None:
    """Clear what the live hypotheses have set in their living parents' rows of `has_child`."""
    for a in range(n_active):
        s = active[a]
        if place_of[s, LAST] >= 0:
            above = slot_of[parent[place_of[s, NODE]]]
            if above >= 0:
                has_child[above, place_of[s, LAST]] = 0


@njit(cache=True, nogil=True, error_model="numpy", inline="always")
def _move_on(value_of: np.ndarray, active: np.ndarray, n_active: int, largest: float) -> float:
    """Take the probabilities after this frame as those before the next; returns the logarithm of what they are
    divided by, which is not 0 if the largest of them is tiny (or, after a given beginning, huge).
    """
    moves = largest < _TINY or largest > _HUGE
    log_largest = math.log(largest) if moves else 0.0
    rescale = 1.0 / largest if moves else 1.0
    for a in range(n_active):
        s = active[a]
        value_of[s, P_BLANK] = value_of[s, NEW_BLANK] * rescale
        value_of[s, P_LABEL] = value_of[s, NEW_LABEL] * rescale
        value_of[s, TOTAL] = value_of[s, P_BLANK] + value_of[s, P_LABEL]
        value_of[s, LOG_TOTAL] = value_of[s, NEW_LOG] - log_largest
    return log_largest


@njit(cache=True, nogil=True, error_model="numpy")
def _begin(forward: np.ndarray, values: np.ndarray) -> tuple[int, float]:
    """Give a hypothesis the probabilities of the first frame in which it can be whole; returns the number of the frame
    after it (beyond the last if there is none) and the logarithm of what they are divided by.
    """
    T = forward.shape[0]
    for t in range(T):
        scale = max(forward[t, 0], forward[t, 1])
        if scale > -math.inf:
            values[P_BLANK] = math.exp(forward[t, 0] - scale)
            values[P_LABEL] = math.exp(forward[t, 1] - scale)
            values[TOTAL] = values[P_BLANK] + values[P_LABEL]
            values[LOG_TOTAL] = math.log(values[TOTAL])
            return t + 1, scale
    return T + 1, 0.0


@njit(cache=True, nogil=True, error_model="numpy")
def _write_labels(labels: np.ndarray, node: int, parent: np.ndarray, label: np.ndarray) -> int:
    """Write the labels from the root to a node; returns how many."""
    count = 0
    here = node
    while here > 0:
        count += 1
        here = parent[here]
    at = count
    here = node
    while here > 0:
        at -= 1
        labels[at] = label[here]
        here = parent[here]
    return count


def _search(with_all_terms: bool) -> Any:
    """The search; without a language model and given beginnings it is smaller, quicker to compile and to run."""

    @njit(cache=True, nogil=True, error_model="numpy")
    def search_lines(
        lines: Lines,
        queue: Queue,
        most_lines: int,
        target_of: np.ndarray,
        blank: int,
        beam_size: int,
        nbest: int,
        depth: int,
        checks: bool,
        score: Score,
        table: TableArrays,
        lm: Automaton,
        beginnings: Beginnings,
        results: Results,
        unknown: np.ndarray,
    ) -> None:
        """Decode lines from the queue, each with its own target, until it is empty or `most_lines` are done.

        Args:
            target_of: (lines,) int64 row of the target in `score`.
            depth: highest count of one character that there is room for.
            checks: whether to leave lines undecoded whose probabilities do not seem to sum to about 1.
            results: written.
            unknown: (many,) int64 written: steps asked for and not found; the first element holds their number.
        """
        begins = with_all_terms and beginnings.label_starts.shape[0] > 0
        K = beam_size + begins  # a given beginning has a place of its own, for its time may come late
        V = lines.classes
        most_frames = 0
        for line in queue.order:
            most_frames = max(most_frames, lines.frames[line])

        shift = 1
        while (1 << shift) < V:
            shift += 1
        mask = (1 << shift) - 1

        lam = score.lam
        lm_weight = score.lm_weight
        cell_weight = score.cell_weight
        most_added = score.most_added
        table_cell, reset, joins, table_irregular, step_keys, step_programs, starts, operations, next_state, refused = (
            table
        )
        mu = score.distance_weight
        squared_weight = mu * mu
        guided = mu > 0.0
        incremental = score.kind <= ALIGNED_W2
        kind = score.kind
        uses_lm = with_all_terms and lm_weight != 0.0
        tracks = guided or score.tracks_text
        has_general = tracks and starts.shape[0] > 1
        n = score.reference.shape[1]
        components = lm.start.shape[0]
        # Taken from their tuples once: each access would count references.
        class_ceiling = score.class_ceiling
        bounds = lm.bounds
        context = lm.context
        highest_bound = np.empty(V, np.float32)
        # What the language model said of the classes after each hypothesis, as far as it was asked.
        asked = np.zeros((2 * K + 1 if uses_lm else 1, V), np.int32)
        lm_value = np.empty(asked.shape)
        lm_reached = np.empty((asked.shape[0], V, components), np.int32)
        born = 0
        # One character more has a least distance that can be known, which pays where distances outweigh λ log P; a
        # general step can do more.
        bounds_step = guided and incremental and mu * math.sqrt(2.0 / n) > 2.0 * lam
        silent = False
        for c in range(V):
            silent = silent or (c != blank and table_cell[c] == NO_CHARACTER)
        given_labels, label_starts, forward, forward_starts = beginnings

        # -- trie: parent, label, first child and next sibling of each node; the slot of a live one
        capacity = most_frames * (K + begins) + 2
        parent = np.empty(capacity, np.int32)
        label = np.empty(capacity, np.int32)
        child = np.empty(capacity, np.int32)
        sibling = np.empty(capacity, np.int32)
        slot_of = np.empty(capacity, np.int32)

        # -- slots: twice the beam, so that a hypothesis that stays is never moved
        slots = 2 * K + 1
        value_of = np.zeros((slots, VALUES))
        place_of = np.zeros((slots, PLACES), np.int32)
        lm_state = np.zeros((slots, components), np.int32)
        # The counts of a hypothesis and behind them its `at_most` (see fada.decoding.guidance), to be copied in one go,
        # which is fastest in whole blocks of 16 words.
        split = (n + 3) // 4 * 4 if guided else 4
        words = np.zeros((slots, (split + (depth if guided else 0) + 63) // 64 * 16), np.uint64)
        tally = words.view(np.uint16)
        has_child = np.zeros((slots, V), np.uint8)
        active = np.empty(K, np.int32)
        upcoming = np.empty(K, np.int32)
        free = np.empty(slots, np.int32)

        heap_score = np.empty(K)
        heap_key = np.empty(K, np.int64)
        gain = np.empty(V)
        ceiling = np.empty(V)
        slack = np.empty(V)
        candidates = np.empty(V + 1, np.int32)
        bits = np.empty(V, np.int32)
        powers = bits.view(np.float32)
        best_gain = np.empty(V)
        best_class = np.empty(V, np.int32)
        waiting_score = np.empty(V)
        waiting_class = np.empty(V, np.int64)
        probability = np.empty(V)
        computed_at = np.empty(V, np.int32)

        linear, quadratic, most_relief = _by_length(most_frames * most_added + 2, score)

        n_unknown = 0
        for _ in range(most_lines):
            place = _count_up(queue.taken)
            if place >= queue.order.shape[0]:
                break
            line = queue.order[place]
            T = lines.frames[line]
            wide = lines.is_float64[line]
            narrow_rows = carray(_float32_at(lines.address[line]), (T, V))
            wide_rows = carray(_float64_at(lines.address[line]), (T, V))
            for k in range(nbest):
                results.lengths[line, k] = -1
            if checks and not (
                _is_normalized(wide_rows, bits, powers) if wide else _is_normalized(narrow_rows, bits, powers)
            ):
                results.status[line] = UNNORMALIZED
                continue
            g = target_of[line]
            reference = score.reference[g]
            weights = score.class_weight[g]
            for c in range(V):
                ceiling[c] = class_ceiling[g, c]
                slack[c] = ceiling[c] - weights[c]
            q_squares = 0.0
            for i in range(n):
                q_squares += reference[i] * reference[i]
            q_mean = q_squares / n
            for c in range(V):
                computed_at[c] = -1

            parent[0] = -1
            label[0] = -1
            child[0] = -1
            sibling[0] = -1
            slot_of[0] = 0
            nodes = 1
            n_free = 0
            for s in range(slots - 1, 0, -1):
                free[n_free] = s
                n_free += 1
            n_active = 1
            active[0] = 0
            place_of[0, NODE] = 0
            place_of[0, LAST] = -1
            value_of[0, P_BLANK] = 1.0
            value_of[0, P_LABEL] = 0.0
            value_of[0, TOTAL] = 1.0
            value_of[0, LOG_TOTAL] = 0.0
            value_of[0, EXTRA] = 0.0
            value_of[0, LM_TOTAL] = 0.0
            place_of[0, TAIL] = 0
            born += 1
            place_of[0, NUMBER] = born
            for m in range(components):
                lm_state[0, m] = lm.start[m]
            place_of[0, HIGHEST] = 0
            place_of[0, LENGTH] = 0
            value_of[0, SQUARES] = 0.0
            value_of[0, PRODUCTS] = 0.0
            if guided:
                for i in range(n):
                    tally[0, i] = 0
                tally[0, split] = n
                if incremental:
                    value_of[0, DISTANCE] = w2_value(0.0, 0.0, 0, q_squares, n)
                else:
                    value_of[0, DISTANCE] = counted_distance(kind, tally[0], 0, reference)
            value_of[0, REST] = -mu * value_of[0, DISTANCE]
            value_of[0, REACH] = -max(0.0, mu * value_of[0, DISTANCE] - most_relief[0])
            value_of[0, CONSTANT] = q_mean
            value_of[0, LOOSE] = 0.0
            log_scale = 0.0
            status = DONE
            is_new = True

            # -- a given beginning is written before the first frame, one label for each frame before it
            given = 0
            label_start = 0
            forward_start = 0
            root = -1
            first_frame = 0
            if begins:
                label_start = label_starts[line]
                given = label_starts[line + 1] - label_start
                forward_start = forward_starts[line]
                if given > T:
                    results.status[line] = NO_PATH
                    continue
            for t in range(-given, T):
                if t == 0 and given > 0:
                    root = active[0]
                    first_frame, log_scale = _begin(forward[forward_start : forward_start + T], value_of[root])
                    if first_frame > T:
                        status = NO_PATH
                        break
                if 0 <= t < first_frame:
                    continue
                if t < 0:
                    s = active[0]
                    c = given_labels[label_start + given + t]
                    heap_key[0] = (np.int64(s) << shift) | c
                    size = 1
                    if weights[c] == -math.inf:
                        status = NO_PATH
                    elif tracks and (table_cell[c] == GENERAL or (has_general and table_irregular[place_of[s, TAIL]])):
                        state = place_of[s, TAIL] if joins[c] or table_irregular[place_of[s, TAIL]] else 0
                        program = _find_program(step_keys, step_programs, np.int64(state) * V + c)
                        if program < 0:
                            status = UNKNOWN_STEP
                            if n_unknown + 1 < unknown.shape[0]:
                                n_unknown += 1
                                unknown[n_unknown] = np.int64(state) * V + c
                        elif refused[program]:
                            status = NO_PATH
                else:
                    # -- the hypotheses as they are: a blank, or the last label again, or their parent's extension
                    blank_probability = math.exp(wide_rows[t, blank] if wide else narrow_rows[t, blank])
                    for a in range(n_active):
                        s = active[a]
                        value_of[s, NEW_BLANK] = value_of[s, TOTAL] * blank_probability
                        c = place_of[s, LAST]
                        if c >= 0:
                            if computed_at[c] != t:
                                computed_at[c] = t
                                probability[c] = math.exp(wide_rows[t, c] if wide else narrow_rows[t, c])
                            value_of[s, NEW_LABEL] = value_of[s, P_LABEL] * probability[c]
                        else:
                            value_of[s, NEW_LABEL] = 0.0
                    for a in range(n_active):
                        s = active[a]
                        c = place_of[s, LAST]
                        if c >= 0:
                            above = slot_of[parent[place_of[s, NODE]]]
                            if above >= 0:
                                has_child[above, c] = 1
                                value_of[s, NEW_LABEL] += (
                                    value_of[above, P_BLANK] if place_of[above, LAST] == c else value_of[above, TOTAL]
                                ) * probability[c]
                    if root >= 0:
                        value_of[root, NEW_BLANK] = math.exp(forward[forward_start + t, 0] - log_scale)
                        value_of[root, NEW_LABEL] = math.exp(forward[forward_start + t, 1] - log_scale)
                    size = 0
                    best_base = _LOWEST
                    lowest_score = math.inf
                    largest = 0.0
                    for a in range(n_active):
                        s = active[a]
                        mass = value_of[s, NEW_BLANK] + value_of[s, NEW_LABEL]
                        best_base = max(best_base, lam * value_of[s, LOG_TOTAL] + value_of[s, REACH])
                        if mass > 0.0:
                            value_of[s, NEW_LOG] = math.log(mass)
                            value = lam * value_of[s, NEW_LOG] + value_of[s, REST]
                            if begins and s == root:
                                value = math.inf
                            heap_score[size] = value
                            heap_key[size] = (np.int64(s) << shift) | blank
                            size += 1
                            lowest_score = min(lowest_score, value)
                            largest = max(largest, mass)
                        elif begins and s == root:
                            root = -1
                    full = size == K

                    # -- classes that can matter, in falling order of what they contribute at most
                    if is_new and (uses_lm or (bounds_step and has_general)):
                        is_new = False
                        if uses_lm:
                            _raise_ceiling(
                                class_ceiling,
                                g,
                                bounds,
                                context,
                                lm_weight,
                                lm_state,
                                active,
                                n_active,
                                highest_bound,
                                ceiling,
                            )
                        if bounds_step and has_general:
                            loose = 0.0
                            for a in range(n_active):
                                loose = max(loose, value_of[active[a], LOOSE])
                            for c in range(V):
                                if table_cell[c] == GENERAL:
                                    ceiling[c] = (ceiling[c] if uses_lm else class_ceiling[g, c]) + loose
                        for c in range(V):
                            slack[c] = ceiling[c] - weights[c]
                    threshold = lowest_score - best_base if full else _LOWEST
                    if wide:
                        found = _contributions(wide_rows, t, lam, ceiling, threshold, gain)
                    else:
                        found = _contributions(narrow_rows, t, lam, ceiling, threshold, gain)
                    ready = 0
                    j = 0
                    c = 0
                    while j < found:
                        candidates[j] = c
                        j += gain[c] >= threshold
                        c += 1
                    if found <= _FEW:
                        _sort_by_gain(candidates, found, gain, best_gain, best_class)
                        ready = found
                    else:
                        # Too many to sort: most will never be reached. They wait in a heap.
                        for j in range(found):
                            waiting_score[j] = -gain[candidates[j]]
                            waiting_class[j] = candidates[j]
                        for j in range((found >> 1) - 1, -1, -1):
                            sift_down(waiting_score, waiting_class, j, found)

                    if found == 0 and full:
                        # Nothing can enter: the beam is the same, and only the probabilities move on.
                        _forget_children(has_child, active, n_active, place_of, parent, slot_of)
                        log_scale += _move_on(value_of, active, n_active, largest)
                        continue

                    # -- extensions
                    for i in range((size >> 1) - 1, -1, -1):
                        sift_down(heap_score, heap_key, i, size)
                    if found > 0:
                        # The last frame's heap had its worst in front; the better come first here, so that fewer
                        # extensions get in that must leave again.
                        for a in range(n_active - 1, -1, -1):
                            s = active[a]
                            log_total = value_of[s, LOG_TOTAL]
                            base = lam * log_total + value_of[s, EXTRA]
                            bound = lam * log_total + value_of[s, REACH]
                            last = place_of[s, LAST]
                            constant = value_of[s, CONSTANT]
                            length = place_of[s, LENGTH]
                            one = linear[length + 1]
                            two = quadratic[length + 1]
                            irregular = has_general and table_irregular[place_of[s, TAIL]]
                            for i in range(found):
                                if i == ready:
                                    best_gain[i] = -waiting_score[0]
                                    best_class[i] = waiting_class[0]
                                    ready += 1
                                    waiting_score[0] = waiting_score[found - ready]
                                    waiting_class[0] = waiting_class[found - ready]
                                    sift_down(waiting_score, waiting_class, 0, found - ready)
                                if full and bound + best_gain[i] < lowest_score:
                                    break
                                c = best_class[i]
                                if has_child[s, c]:
                                    continue
                                value = base + best_gain[i] - slack[c]
                                if c == last:
                                    if value_of[s, P_BLANK] <= 0.0:
                                        continue
                                    value += lam * (math.log(value_of[s, P_BLANK]) - log_total)
                                told = 0.0
                                if uses_lm:
                                    if asked[s, c] == place_of[s, NUMBER]:
                                        told = lm_weight * lm_value[s, c]
                                    else:
                                        told = lm_weight * _most(bounds, context, lm_state, s, c)
                                    is_general = tracks and (irregular or table_cell[c] == GENERAL)
                                    if full and not is_general and value + told < lowest_score:
                                        continue
                                if tracks:
                                    cell = table_cell[c]
                                    if irregular or cell == GENERAL:
                                        state = place_of[s, TAIL] if irregular or joins[c] else 0
                                        program = _find_program(step_keys, step_programs, np.int64(state) * V + c)
                                        if program < 0:
                                            status = UNKNOWN_STEP
                                            if n_unknown + 1 < unknown.shape[0]:
                                                n_unknown += 1
                                                unknown[n_unknown] = np.int64(state) * V + c
                                            continue
                                        if refused[program]:
                                            continue
                                        begin = starts[program]
                                        end = starts[program + 1]
                                        if cell >= 0:  # the class's own weight counts it already
                                            value -= cell_weight[g, cell]
                                        for j in range(begin, end):
                                            x = operations[j]
                                            value += cell_weight[g, x - 1] if x > 0 else -cell_weight[g, -x - 1]
                                        if guided:
                                            new_length = length
                                            for j in range(begin, end):
                                                new_length += 1 if operations[j] > 0 else -1
                                            _, new_squares, new_products = _run(
                                                operations,
                                                begin,
                                                end,
                                                kind,
                                                tally[s],
                                                tally[s, split:],
                                                place_of[s, HIGHEST],
                                                reference,
                                                value_of[s, SQUARES],
                                                value_of[s, PRODUCTS],
                                            )
                                            if incremental:
                                                value -= mu * w2_value(
                                                    new_squares, new_products, new_length, q_squares, n
                                                )
                                            else:
                                                value -= mu * counted_distance(kind, tally[s], new_length, reference)
                                            _undo(operations, begin, end, tally[s], tally[s, split:])
                                    elif guided:
                                        if cell < 0:
                                            value -= mu * value_of[s, DISTANCE]
                                        elif incremental:
                                            k = tally[s, cell]
                                            q = (
                                                reference[tally[s, split + k] - 1]
                                                if kind == SORTED_W2
                                                else reference[cell]
                                            )
                                            square = constant + (2 * k + 1) * two + q * one
                                            if full:
                                                # Most do not get in, which can be seen without the square root.
                                                room = value + told - lowest_score
                                                if room < 0.0 or square * squared_weight > room * room * _ROUNDING:
                                                    continue
                                            if square > 0.0:
                                                value -= mu * math.sqrt(square)
                                        else:
                                            tally[s, cell] += 1
                                            value -= mu * counted_distance(kind, tally[s], length + 1, reference)
                                            tally[s, cell] -= 1
                                if uses_lm:
                                    if full and value + told < lowest_score:
                                        continue
                                    if asked[s, c] != place_of[s, NUMBER]:
                                        asked[s, c] = place_of[s, NUMBER]
                                        lm_value[s, c] = automaton_step(lm, lm_state[s], c, lm_reached[s, c])
                                    value += lm_weight * lm_value[s, c]
                                key = (np.int64(s) << shift) | c
                                if not full:
                                    push(heap_score, heap_key, size, value, key)
                                    size += 1
                                    full = size == K
                                    lowest_score = heap_score[0]
                                elif worse(lowest_score, heap_key[0], value, key):
                                    heap_score[0] = value
                                    heap_key[0] = key
                                    sift_down(heap_score, heap_key, 0, size)
                                    lowest_score = heap_score[0]

                _forget_children(has_child, active, n_active, place_of, parent, slot_of)
                if status != DONE:
                    break
                if size == 0:
                    status = NO_PATH
                    break

                # -- the next beam; extensions go to free slots, for they still read the old state
                largest = 0.0
                for i in range(size):
                    s = heap_key[i] >> shift
                    c = heap_key[i] & mask
                    if c == blank:
                        upcoming[i] = s
                        largest = max(largest, value_of[s, NEW_BLANK] + value_of[s, NEW_LABEL])
                        continue
                    n_free -= 1
                    d = free[n_free]
                    upcoming[i] = d
                    if computed_at[c] != t:
                        computed_at[c] = t
                        probability[c] = math.exp(wide_rows[t, c] if wide else narrow_rows[t, c])
                    repeated = c == place_of[s, LAST]
                    mass = (value_of[s, P_BLANK] if repeated else value_of[s, TOTAL]) * probability[c]
                    largest = max(largest, mass)
                    value_of[d, NEW_BLANK] = 0.0
                    value_of[d, NEW_LABEL] = mass
                    value_of[d, NEW_LOG] = (math.log(value_of[s, P_BLANK]) if repeated else value_of[s, LOG_TOTAL]) + (
                        wide_rows[t, c] if wide else narrow_rows[t, c]
                    )
                    node = place_of[s, NODE]
                    here = child[node]
                    while here >= 0 and label[here] != c:
                        here = sibling[here]
                    if here < 0:
                        here = nodes
                        nodes += 1
                        parent[here] = node
                        label[here] = c
                        child[here] = -1
                        sibling[here] = child[node]
                        child[node] = here
                        slot_of[here] = -1
                    place_of[d, NODE] = here
                    place_of[d, LAST] = c
                    extra = value_of[s, EXTRA] + weights[c]
                    if uses_lm:
                        if asked[s, c] != place_of[s, NUMBER]:
                            lm_value[s, c] = automaton_step(lm, lm_state[s], c, lm_reached[s, c])
                        step = lm_value[s, c]
                        born += 1
                        place_of[d, NUMBER] = born
                        value_of[d, LM_TOTAL] = value_of[s, LM_TOTAL] + step
                        extra += lm_weight * step
                        for m in range(components):
                            lm_state[d, m] = lm_reached[s, c, m]
                    cell = NO_CHARACTER
                    length = place_of[s, LENGTH]
                    begin = 0
                    end = 0
                    if tracks:
                        cell = table_cell[c]
                        tail = place_of[s, TAIL]
                        irregular = has_general and table_irregular[tail]
                        if irregular or cell == GENERAL:
                            program = _find_program(
                                step_keys, step_programs, np.int64(tail if irregular or joins[c] else 0) * V + c
                            )
                            begin = starts[program]
                            end = starts[program + 1]
                            tail = next_state[program]
                            if cell >= 0:
                                extra -= cell_weight[g, cell]
                            for j in range(begin, end):
                                x = operations[j]
                                extra += cell_weight[g, x - 1] if x > 0 else -cell_weight[g, -x - 1]
                                length += 1 if x > 0 else -1
                            cell = GENERAL
                        elif reset[c] != KEEP:
                            tail = reset[c]
                        place_of[d, TAIL] = tail
                    value_of[d, EXTRA] = extra
                    rest = extra
                    reach = extra
                    if guided:
                        top = place_of[s, HIGHEST]
                        squares = value_of[s, SQUARES]
                        products = value_of[s, PRODUCTS]
                        # Read before the copy, not after it: the processor need not wait for what it has just written.
                        k = tally[s, max(cell, 0)]
                        place = tally[s, split + k]
                        for j in range(((split + top + 64) >> 6) << 4):
                            words[d, j] = words[s, j]
                        if cell >= 0:
                            length += 1
                            squares += 2 * k + 1
                            products += reference[place - 1 if kind == SORTED_W2 else cell]
                            tally[d, cell] = k + 1
                            tally[d, split + k] = place - 1
                            if k == top:
                                top += 1
                                tally[d, split + top] = n
                        elif cell == GENERAL:
                            top, squares, products = _run(
                                operations,
                                begin,
                                end,
                                kind,
                                tally[d],
                                tally[d, split:],
                                top,
                                reference,
                                squares,
                                products,
                            )
                        if incremental:
                            square = squares * quadratic[length] + products * linear[length] + q_mean
                            distance = math.sqrt(square) if square > 0.0 else 0.0
                        else:
                            distance = counted_distance(kind, tally[d], length, reference)
                        if top + most_added + 1 >= depth:
                            status = TOO_DEEP
                        place_of[d, LENGTH] = length
                        place_of[d, HIGHEST] = top
                        value_of[d, SQUARES] = squares
                        value_of[d, PRODUCTS] = products
                        value_of[d, CONSTANT] = squares * quadratic[length + 1] + products * linear[length + 1] + q_mean
                        value_of[d, DISTANCE] = distance
                        rest -= mu * distance
                        loosely = max(0.0, mu * distance - most_relief[length])
                        value_of[d, LOOSE] = 0.0
                        if bounds_step and not (has_general and table_irregular[place_of[d, TAIL]]):
                            square = value_of[d, CONSTANT] + _lowest_square(
                                kind,
                                tally[d],
                                tally[d, split:],
                                top,
                                reference,
                                linear[length + 1],
                                quadratic[length + 1],
                            )
                            least = math.sqrt(square) if square > 0.0 else 0.0
                            tightly = max(loosely, mu * (min(least, distance) if silent else least) - 1e-12)
                            value_of[d, LOOSE] = tightly - loosely
                            reach -= tightly
                        else:
                            reach -= loosely
                    value_of[d, REST] = rest
                    value_of[d, REACH] = reach

                if t < 0:  # no frame was read
                    value_of[upcoming[0], NEW_BLANK] = 1.0
                    value_of[upcoming[0], NEW_LABEL] = 0.0
                    value_of[upcoming[0], NEW_LOG] = 0.0
                    largest = 1.0
                if largest <= 0.0:
                    status = NO_PATH
                if status != DONE:
                    break
                for a in range(n_active):
                    slot_of[place_of[active[a], NODE]] = -1
                for i in range(size):
                    slot_of[place_of[upcoming[i], NODE]] = upcoming[i]
                for a in range(n_active):
                    if slot_of[place_of[active[a], NODE]] != active[a]:
                        free[n_free] = active[a]
                        n_free += 1
                for i in range(size):
                    active[i] = upcoming[i]
                n_active = size
                is_new = True
                log_scale += _move_on(value_of, active, n_active, largest)

            results.status[line] = status
            if status != DONE:
                continue
            for a in range(n_active):
                s = active[a]
                heap_score[a] = lam * value_of[s, LOG_TOTAL] + value_of[s, REST]
            for k in range(min(nbest, n_active)):
                best = -1
                for a in range(n_active):
                    if active[a] >= 0 and (best < 0 or heap_score[a] > heap_score[best]):
                        best = a
                s = active[best]
                active[best] = -1
                start = results.starts[line] + k * T
                results.lengths[line, k] = _write_labels(results.labels[start:], place_of[s, NODE], parent, label)
                results.values[line, k, 0] = heap_score[best] + lam * log_scale
                results.values[line, k, 1] = value_of[s, LOG_TOTAL] + log_scale
                results.values[line, k, 2] = value_of[s, DISTANCE]
                results.values[line, k, 3] = value_of[s, LM_TOTAL]
            _count_up(results.finished[line:])
        unknown[0] = n_unknown

    return search_lines


search_lines = _search(with_all_terms=False)
search_with_all_terms = _search(with_all_terms=True)
