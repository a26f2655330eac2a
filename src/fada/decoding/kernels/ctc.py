"""The compiled part of the CTC prefix beam search. See :mod:`fada.decoding.ctc` and ``docs/decoding.md``.

A hypothesis is a node of a trie of label sequences; the live ones occupy slots. A hypothesis that is not extended stays
in its slot; one that drops out and comes back finds its old node, and with it its living children. Probabilities are
kept in the linear domain, rescaled when they get small, so that merging two paths is one addition.

The beam of the next frame is the exact best `beam_size` of all (hypothesis, class) pairs: to the hypotheses as they are
come their extensions by the class that can contribute most, then those by the others in falling order, until the bound
says that nothing better can follow.

What is not asked for is None (language model, step table, given beginnings), and is not compiled: every ``is None``
below is answered by the compiler. The parts are functions that become one when they are compiled.
"""

import math
from typing import Any, NamedTuple

import numpy as np
from numba import carray, njit

from fada.decoding.kernels.automaton import Automaton, step
from fada.decoding.kernels.best import insert, keep_best, make_heap, sift_down
from fada.decoding.kernels.classes import (
    FEW,
    contributions,
    gather,
    is_normalized,
    mark,
    most_promising,
    next_waiting,
)
from fada.decoding.kernels.distance import SORTED_W2, counted_distance, w2_value
from fada.decoding.kernels.memory import (
    CONSTANT,
    DISTANCE,
    EXTRA,
    FRAME,
    FREE,
    HIGHEST,
    INLINED,
    LAST,
    LENGTH,
    LM_TOTAL,
    LOG_TOTAL,
    LOOSE,
    MEMO,
    NEW_BLANK,
    NEW_LABEL,
    NEW_LOG,
    NODE,
    NODES,
    P_BLANK,
    P_LABEL,
    PART,
    PLACES,
    PRODUCTS,
    REACH,
    REST,
    ROOM,
    SQUARES,
    STATUS,
    TAIL,
    TOTAL,
    VALUES,
    Beam,
    Sizes,
    carved,
    count_up,
    pointer,
    pointers,
    shifted,
)
from fada.decoding.kernels.parts import entry
from fada.decoding.kernels.programs import find_program, run, undo
from fada.decoding.kernels.records import (
    DONE,
    GENERAL,
    KEEP,
    NO_PATH,
    TOO_DEEP,
    UNKNOWN_STEP,
    UNNORMALIZED,
    Beginnings,
    Lines,
    Queue,
    Results,
    TableArrays,
    Targets,
    Terms,
)
from fada.decoding.kernels.vectors import BLOCK, fetch

_LOWEST = -1e300
_FEW_HYPOTHESES, _SOME_HYPOTHESES = 12, ROOM // 2
"""So many are kept in order, so many are chosen from ROOM at once; more are kept in a heap, the worst in front."""
_ROUNDING = 1.0 + 1e-12
_ROUNDED = 1e-9
"""No score is wrong by as much."""
_TINY = 1e-30
"""Probabilities are rescaled when the largest falls below this."""
_HUGE = 1.0 / _TINY


class Target(NamedTuple):
    """That of a line."""

    reference: Any
    """Pointer to (n,) float64, and so on."""
    weights: Any
    """(V,) float64 of the classes."""
    tail_gain: Any
    """(tails,) float64."""
    cell_weight: Any
    """(n,) float64."""
    q_squares: float
    q_mean: float


@njit(**INLINED)
def _most(beam: Beam, terms: Terms, lm: Automaton, s: int) -> float:
    """The most that the language model can add for any character after hypothesis `s`."""
    most = -math.inf
    for m in range(terms.components):
        most = max(most, np.float64(lm.singles[16 * np.int64(beam.lm_state[s * terms.components + m]) + 1]))
    return terms.lm_weight * most


@njit(**PART)
def _set_ceilings(
    beam: Beam, terms: Terms, target: Target, table: TableArrays | None, lm: Automaton | None, most: tuple[float, float]
) -> None:
    """The most each class can add after any hypothesis: its weight, what the language model makes of it, and the `most`
    that a step adds beyond, where one character is usual and where it is not.
    """
    for c in range(terms.V):
        slack = most[0]
        if table is not None and table.cell[c] == GENERAL:
            slack = most[1]
        if lm is not None:
            slack += terms.lm_weight * lm.ceiling[c]
        beam.ceiling[c] = target.weights[c] + slack
        beam.slack[c] = slack


@njit(**PART)
def _lowest_square(terms: Terms, counts: Any, highest: int, reference: Any, one: float, two: float) -> float:
    """The least that one character more adds to the part of W2² that does not depend on the character."""
    lowest = math.inf
    if terms.kind == SORTED_W2:
        at_most = shifted(counts, terms.split)
        for k in range(highest + 1):
            if at_most[k] > 0:
                lowest = min(lowest, (2 * k + 1) * two + reference[at_most[k] - 1] * one)
    else:
        for i in range(terms.n):
            lowest = min(lowest, (2 * counts[i] + 1) * two + reference[i] * one)
    return lowest


@njit(**PART)
def _recounted(terms: Terms, counts: Any, length: int, reference: Any) -> float:
    """A distance that is recomputed from all counts."""
    return counted_distance(terms.kind, carray(counts, terms.n), length, carray(reference, terms.n))


@njit(**PART)
def _by_length(beam: Beam, terms: Terms) -> None:
    """Write by the number of characters: the factors of Σcq and Σc² in W2², and how much one symbol more can lower the
    weighted W2.
    """
    mu, n, added, removed = terms.mu, terms.n, terms.most_added, terms.most_removed
    radius = mu * math.sqrt(2.0 / n) if terms.incremental or mu <= 0.0 else math.inf
    beam.most_relief[0] = radius
    for i in range(1, terms.longest):
        beam.linear[i] = -2.0 / (float(i) * n)
        beam.quadratic[i] = 1.0 / (float(i) * float(i) * n)
        moved = max(added / (i - removed + added), removed / i) if i > removed else 1.0
        beam.most_relief[i] = radius * moved


@njit(**PART)
def _start(beam: Beam, terms: Terms, target: Target, table: TableArrays | None, lm: Automaton | None) -> None:
    """The empty text as the only hypothesis."""
    value_of, place_of, counter, tally = beam.value_of, beam.place_of, beam.counter, beam.tally
    _set_ceilings(beam, terms, target, table, lm, (0.0, 0.0))
    for c in range(terms.V):
        beam.computed_at[c] = -1
    for c in range(terms.V, (terms.V + BLOCK - 1) // BLOCK * BLOCK):
        beam.gain[c] = -math.inf
    beam.parent[0] = -1
    beam.label[0] = -1
    beam.child[0] = -1
    beam.sibling[0] = -1
    beam.slot_of[0] = 0
    beam.active[0] = 0
    slots = 2 * terms.K + 1
    for s in range(1, slots):
        beam.free[slots - 1 - s] = s
    counter[STATUS] = DONE
    counter[NODES] = 1
    counter[FREE] = slots - 1
    for i in range(VALUES):
        value_of[i] = 0.0
    for i in range(PLACES):
        place_of[i] = 0
    value_of[P_BLANK] = 1.0
    value_of[TOTAL] = 1.0
    place_of[LAST] = -1
    if lm is not None:
        for m in range(terms.components):
            beam.lm_state[m] = lm.start[m]
        value_of[REACH] = _most(beam, terms, lm, 0)
    if table is not None:
        if terms.guided:
            for i in range(terms.n):
                tally[i] = 0
            tally[terms.split] = terms.n
            if terms.incremental:
                value_of[DISTANCE] = w2_value(0.0, 0.0, 0, target.q_squares, terms.n)
            else:
                value_of[DISTANCE] = _recounted(terms, tally, 0, target.reference)
        value_of[REST] = -terms.mu * value_of[DISTANCE]
        value_of[REACH] -= max(0.0, terms.mu * value_of[DISTANCE] - beam.most_relief[0])
        value_of[CONSTANT] = target.q_mean


@njit(**PART)
def _next_frame(beam: Beam, terms: Terms) -> int:
    """Count the frames, from 1 to 255 over and over: what `has_child` has of the last time is then forgotten."""
    now = beam.counter[FRAME] + 1
    if now > 255:
        now = 1
        for i in range((2 * terms.K + 1) * terms.V):
            beam.has_child[i] = 0
    beam.counter[FRAME] = now
    return now


@njit(**INLINED)
def _stay(beam: Beam, terms: Terms, frame: Any, t: int, n_active: int) -> None:
    """The probabilities of the hypotheses as they are after frame `t`: after a blank, or their last label again, or as
    their parent's extension.
    """
    value_of, place_of, slot_of, parent = beam.value_of, beam.place_of, beam.slot_of, beam.parent
    probability, computed_at, active = beam.probability, beam.computed_at, beam.active
    blank_probability = math.exp(np.float64(frame[terms.blank]))
    for a in range(n_active):
        s = active[a]
        value_of[s * VALUES + NEW_BLANK] = value_of[s * VALUES + TOTAL] * blank_probability
        c = place_of[s * PLACES + LAST]
        if c >= 0:
            if computed_at[c] != t:
                computed_at[c] = t
                probability[c] = math.exp(np.float64(frame[c]))
            value_of[s * VALUES + NEW_LABEL] = value_of[s * VALUES + P_LABEL] * probability[c]
        else:
            value_of[s * VALUES + NEW_LABEL] = 0.0
    now = _next_frame(beam, terms)
    for a in range(n_active):
        s = active[a]
        c = place_of[s * PLACES + LAST]
        if c >= 0:
            above = slot_of[parent[place_of[s * PLACES + NODE]]]
            if above >= 0:
                beam.has_child[above * terms.V + c] = now
                value_of[s * VALUES + NEW_LABEL] += (
                    value_of[above * VALUES + P_BLANK]
                    if place_of[above * PLACES + LAST] == c
                    else value_of[above * VALUES + TOTAL]
                ) * probability[c]


@njit(**INLINED)
def _rank(beam: Beam, terms: Terms, n_active: int, root: int) -> tuple[int, float, float, float]:
    """Score the hypotheses as they are: how many have a probability, the highest bound of an extension, the score that
    an extension must reach, the largest probability. The one in slot `root` is always the best.
    """
    value_of, active = beam.value_of, beam.active
    size = 0
    best_base = _LOWEST
    lowest_score = math.inf
    largest = 0.0
    for a in range(n_active):
        s = active[a]
        mass = value_of[s * VALUES + NEW_BLANK] + value_of[s * VALUES + NEW_LABEL]
        best_base = max(best_base, terms.lam * value_of[s * VALUES + LOG_TOTAL] + value_of[s * VALUES + REACH])
        if mass > 0.0:
            value_of[s * VALUES + NEW_LOG] = math.log(mass)
            value = terms.lam * value_of[s * VALUES + NEW_LOG] + value_of[s * VALUES + REST]
            if s == root:
                value = math.inf
            beam.score[size] = value
            beam.key[size] = (np.int64(s) << terms.shift) | terms.blank
            size += 1
            lowest_score = min(lowest_score, value)
            largest = max(largest, mass)
    return size, best_base, lowest_score if size == terms.K else -math.inf, largest


@njit(**INLINED)
def _most_gained(beam: Beam, terms: Terms, target: Target, table: TableArrays, n_active: int) -> tuple[float, float]:
    """What steps after any of the hypotheses gain at most beyond the weight of their class: where one character is
    usual (nothing, but for a space that waits for it), and general ones.
    """
    usual = 0.0
    general = -math.inf if terms.weighs else 0.0
    loose = 0.0
    for a in range(n_active):
        s = beam.active[a]
        loose = max(loose, beam.value_of[s * VALUES + LOOSE])
        if terms.weighs:
            tail = beam.place_of[s * PLACES + TAIL]
            general = max(general, target.tail_gain[tail])
            if table.irregular[tail]:
                usual = max(usual, target.tail_gain[tail])
    return usual, general + loose


@njit(**INLINED)
def _move_on(beam: Beam, n_active: int, largest: float) -> float:
    """Take the probabilities after this frame as those before the next; returns the logarithm of what they are
    divided by, which is not 0 if the largest of them is tiny (or, after a given beginning, huge).
    """
    value_of, active = beam.value_of, beam.active
    moves = largest < _TINY or largest > _HUGE
    log_largest = math.log(largest) if moves else 0.0
    rescale = 1.0 / largest if moves else 1.0
    for a in range(n_active):
        s = active[a]
        value_of[s * VALUES + P_BLANK] = value_of[s * VALUES + NEW_BLANK] * rescale
        value_of[s * VALUES + P_LABEL] = value_of[s * VALUES + NEW_LABEL] * rescale
        value_of[s * VALUES + TOTAL] = value_of[s * VALUES + P_BLANK] + value_of[s * VALUES + P_LABEL]
        value_of[s * VALUES + LOG_TOTAL] = value_of[s * VALUES + NEW_LOG] - log_largest
    return log_largest


@njit(**INLINED)
def _is_general(terms: Terms, table: TableArrays, tail: int, c: int) -> bool:
    """Whether the step of class `c` after a tail must be looked up."""
    return table.cell[c] == GENERAL or (terms.has_general and table.irregular[tail])


@njit(**INLINED)
def _program_of(terms: Terms, table: TableArrays, tail: int, c: int) -> int:
    """The program of a general step, -1 if it was not prepared."""
    state = tail if table.joins[c] or table.irregular[tail] else 0
    return find_program(table.keys, table.programs, terms.program_slots, np.int64(state) * terms.V + c)


@njit(**PART)
def _ask_for(beam: Beam, terms: Terms, table: TableArrays, tail: int, c: int, unknown: np.ndarray) -> None:
    """Note a step that was not prepared."""
    state = tail if table.joins[c] or table.irregular[tail] else 0
    beam.counter[STATUS] = UNKNOWN_STEP
    if unknown[0] + 1 < unknown.shape[0]:
        unknown[0] += 1
        unknown[unknown[0]] = np.int64(state) * terms.V + c


@njit(**PART)
def _after_program(
    beam: Beam, terms: Terms, target: Target, table: TableArrays, s: int, c: int, program: int, value: float
) -> float:
    """The score `value` of an extension whose step is general, with its characters and the distance."""
    begin, end = table.starts[program], table.starts[program + 1]
    operations = table.operations
    if table.cell[c] >= 0:  # the class's own weight counts it already
        value -= target.cell_weight[table.cell[c]]
    length: Any = np.int64(beam.place_of[s * PLACES + LENGTH])
    for j in range(begin, end):
        x = operations[j]
        value += target.cell_weight[x - 1] if x > 0 else -target.cell_weight[-x - 1]
        length += 1 if x > 0 else -1
    if terms.guided:
        counts = shifted(beam.tally, s * terms.words_each * 4)
        at_most = shifted(counts, terms.split)
        squares, products = beam.value_of[s * VALUES + SQUARES], beam.value_of[s * VALUES + PRODUCTS]
        highest = beam.place_of[s * PLACES + HIGHEST]
        _, squares, products = run(
            operations, begin, end, terms.kind, counts, at_most, highest, target.reference, terms.n, squares, products
        )
        if terms.incremental:
            value -= terms.mu * w2_value(squares, products, length, target.q_squares, terms.n)
        else:
            value -= terms.mu * _recounted(terms, counts, length, target.reference)
        undo(operations, begin, end, counts, at_most)
    return value


@njit(**INLINED)
def _after_character(
    beam: Beam, terms: Terms, target: Target, s: int, cell: int, value: float, room_left: float
) -> float:
    """The score `value` of an extension that adds one character (or none, `cell` < 0), distance included, or -inf if
    the distance takes more than `room_left` of it, which is seen without the square root: most do not get in.
    """
    counts, value_of = shifted(beam.tally, s * terms.words_each * 4), beam.value_of
    length = np.int64(beam.place_of[s * PLACES + LENGTH])
    if cell < 0:
        return value - terms.mu * value_of[s * VALUES + DISTANCE]
    if terms.incremental:
        k = counts[cell]
        q = target.reference[counts[terms.split + k] - 1] if terms.kind == SORTED_W2 else target.reference[cell]
        square = (
            value_of[s * VALUES + CONSTANT] + (2 * k + 1) * beam.quadratic[length + 1] + q * beam.linear[length + 1]
        )
        if room_left < 0.0 or square * (terms.mu * terms.mu) > room_left * room_left * _ROUNDING:
            return -math.inf
        return value - terms.mu * math.sqrt(square) if square > 0.0 else value
    counts[cell] += 1
    value -= terms.mu * _recounted(terms, counts, length + 1, target.reference)
    counts[cell] -= 1
    return value


@njit(**INLINED)
def _memo_place(beam: Beam, terms: Terms, s: int, c: int) -> int:
    """Where the answer of the language model on class `c` after hypothesis `s` is remembered, if it is."""
    key: Any = np.int64(0)
    for m in range(terms.components):
        key = key * 1000003 + beam.lm_state[s * terms.components + m]
    return (((key * terms.V + c) * 0x9E3779B1) >> 15) & (MEMO - 1)


@njit(**INLINED)
def _remembers(beam: Beam, terms: Terms, at: int, s: int, c: int) -> bool:
    """Whether it is the answer to this question that is remembered there."""
    M = terms.components
    remembered = shifted(beam.memo, at * (2 * M + 1))
    same = remembered[M] == c + 1
    for m in range(M):
        same = same and remembered[m] == beam.lm_state[s * M + m]
    return same


@njit(**PART)
def _ask(beam: Beam, terms: Terms, lm: Automaton, at: int, s: int, c: int, needed: float) -> float:
    """Ask the language model of class `c` after hypothesis `s`, and remember what it says; -inf if that is less than
    `needed`.
    """
    M = terms.components
    remembered = shifted(beam.memo, at * (2 * M + 1))
    states = shifted(beam.lm_state, s * M)
    said = step(lm, states, M, terms.characters, c, shifted(remembered, M + 1), needed)
    for m in range(M):
        remembered[m] = states[m]
    remembered[M] = c + 1 if said > -math.inf else 0
    beam.memo_value[at] = said
    return said


@njit(**INLINED)
def _fetch_ahead(beam: Beam, terms: Terms, lm: Automaton, at: int) -> None:
    """Have at hand soon what an answer leads to: most of the time of a language model is waiting for memory."""
    M = terms.components
    for m in range(M):
        fetch(shifted(lm.weights, 8 * np.int64(beam.memo[at * (2 * M + 1) + M + 1 + m])))


@njit(**INLINED)
def _extend(
    beam: Beam,
    terms: Terms,
    target: Target,
    table: TableArrays | None,
    lm: Automaton | None,
    n_active: int,
    size: int,
    best_base: float,
    lowest_score: float,
    unknown: np.ndarray,
) -> tuple[int, int]:
    """Add the extensions that are among the best to the hypotheses, of which there are `size`: those by the class that
    can gain most come first, for they raise the `lowest_score` that the others must reach. Returns how many hypotheses
    and extensions there are, at most K, and how many extensions were good enough at first.
    """
    value_of, place_of, active, has_child = beam.value_of, beam.place_of, beam.active, beam.has_child
    best_gain, best_class, slack = beam.best_gain, beam.best_class, beam.slack
    lam, K, V = terms.lam, terms.K, terms.V
    now = beam.counter[FRAME]
    per_weight = 1.0 / terms.lm_weight if lm is not None else 0.0
    few, some = K <= _FEW_HYPOTHESES, _FEW_HYPOTHESES < K <= _SOME_HYPOTHESES
    if few:
        for i in range(size):
            insert(beam.score, beam.key, i, K, beam.score[i], beam.key[i])
    elif size == K and not some:
        make_heap(beam.score, beam.key, K)
    added = 0
    many = ready = 1
    best = most_promising(beam, V)
    best_class[0] = best
    best_gain[0] = beam.gain[best]
    for turn in range(2):
        if turn == 1:
            if size > K:
                lowest_score = keep_best(beam.score, beam.key, size, K)
                size = K
            many = gather(beam, V, best, max(lowest_score - best_base, _LOWEST))
            ready = many if many <= FEW else 0
        for a in range(n_active if many > 0 else 0):
            s = active[a]
            log_total = value_of[s * VALUES + LOG_TOTAL]
            base = lam * log_total + value_of[s * VALUES + EXTRA]
            bound = lam * log_total + value_of[s * VALUES + REACH]
            for i in range(many):
                if i == ready:
                    next_waiting(beam, ready, many)
                    ready += 1
                if bound + best_gain[i] < lowest_score:
                    break
                c = best_class[i]
                if has_child[s * V + c] == now:
                    continue
                value = base + best_gain[i] - slack[c]
                if c == place_of[s * PLACES + LAST]:
                    if value_of[s * VALUES + P_BLANK] <= 0.0:
                        continue
                    value += lam * (math.log(value_of[s * VALUES + P_BLANK]) - log_total)
                is_general = False
                if table is not None:
                    is_general = _is_general(terms, table, place_of[s * PLACES + TAIL], c)
                if table is not None:
                    if is_general:
                        program = _program_of(terms, table, place_of[s * PLACES + TAIL], c)
                        if program < 0:
                            _ask_for(beam, terms, table, place_of[s * PLACES + TAIL], c, unknown)
                            continue
                        if table.refused[program]:
                            continue
                        value = _after_program(beam, terms, target, table, s, c, program, value)
                    elif terms.guided:
                        room_left = value - lowest_score
                        if lm is not None:
                            room_left += _most(beam, terms, lm, s) + terms.lm_weight * lm.ceiling[c]
                        value = _after_character(beam, terms, target, s, table.cell[c], value, room_left)
                        if value == -math.inf:
                            continue
                if lm is not None:
                    at = _memo_place(beam, terms, s, c)
                    if _remembers(beam, terms, at, s, c):
                        value += terms.lm_weight * beam.memo_value[at]
                    else:
                        needed = (lowest_score - value - _ROUNDED) * per_weight
                        value += terms.lm_weight * _ask(beam, terms, lm, at, s, c, needed)
                if value < lowest_score:
                    continue
                if lm is not None:
                    _fetch_ahead(beam, terms, lm, at)
                key = (np.int64(s) << terms.shift) | c
                added += 1
                if few:
                    size = insert(beam.score, beam.key, size, K, value, key)
                    lowest_score = beam.score[K - 1] if size == K else lowest_score
                elif some:
                    if size == ROOM:
                        lowest_score = keep_best(beam.score, beam.key, size, K)
                        size = K
                        if value < lowest_score:
                            continue
                    beam.score[size] = value
                    beam.key[size] = key
                    size += 1
                elif size < K:
                    beam.score[size] = value
                    beam.key[size] = key
                    size += 1
                    if size == K:
                        make_heap(beam.score, beam.key, K)
                        lowest_score = beam.score[0]
                elif value > lowest_score or key < beam.key[0]:
                    beam.score[0] = value
                    beam.key[0] = key
                    sift_down(beam.score, beam.key, np.int64(0), K)
                    lowest_score = beam.score[0]
    if size > K:
        keep_best(beam.score, beam.key, size, K)
        size = K
    return size, added


@njit(**INLINED)
def _child_of(beam: Beam, node: int, c: int) -> int:
    """The node of the trie one label further, made if there is none."""
    label, child, sibling = beam.label, beam.child, beam.sibling
    here = child[node]
    while here >= 0 and label[here] != c:
        here = sibling[here]
    if here < 0:
        here = beam.counter[NODES]
        beam.counter[NODES] += 1
        beam.parent[here] = node
        label[here] = c
        child[here] = -1
        sibling[here] = child[node]
        child[node] = here
        beam.slot_of[here] = -1
    return here


@njit(**INLINED)
def _count_characters(
    beam: Beam,
    terms: Terms,
    target: Target,
    table: TableArrays,
    s: int,
    d: int,
    cell: int,
    begin: int,
    end: int,
    length: int,
) -> None:
    """The counts and the distance of hypothesis `d`, which is `s` and one step more: a character, or a program that
    leads to `length` characters.
    """
    value_of, place_of, tally, words = beam.value_of, beam.place_of, beam.tally, beam.words
    linear, quadratic, split, kind, reference = beam.linear, beam.quadratic, terms.split, terms.kind, target.reference
    counts, new = shifted(tally, s * terms.words_each * 4), shifted(tally, d * terms.words_each * 4)
    top = place_of[s * PLACES + HIGHEST]
    squares = value_of[s * VALUES + SQUARES]
    products = value_of[s * VALUES + PRODUCTS]
    # Read before the copy, not after it: the processor need not wait for what it has just written.
    k = counts[max(cell, 0)]
    place = counts[split + k]
    for j in range(((split + top + 64) >> 6) << 4):
        words[d * terms.words_each + j] = words[s * terms.words_each + j]
    if cell >= 0:
        length += 1
        squares += 2 * k + 1
        products += reference[place - 1 if kind == SORTED_W2 else cell]
        new[cell] = k + 1
        new[split + k] = place - 1
        if k == top:
            top += 1
            new[split + top] = terms.n
    elif cell == GENERAL:
        top, squares, products = run(
            table.operations, begin, end, kind, new, shifted(new, split), top, reference, terms.n, squares, products
        )
    if terms.incremental:
        square = squares * quadratic[length] + products * linear[length] + target.q_mean
        distance = math.sqrt(square) if square > 0.0 else 0.0
    else:
        distance = _recounted(terms, new, length, reference)
    if top + terms.most_added + 1 >= terms.depth:
        beam.counter[STATUS] = TOO_DEEP
    place_of[d * PLACES + LENGTH] = length
    place_of[d * PLACES + HIGHEST] = top
    value_of[d * VALUES + SQUARES] = squares
    value_of[d * VALUES + PRODUCTS] = products
    value_of[d * VALUES + CONSTANT] = squares * quadratic[length + 1] + products * linear[length + 1] + target.q_mean
    value_of[d * VALUES + DISTANCE] = distance
    value_of[d * VALUES + REST] -= terms.mu * distance
    loosely = max(0.0, terms.mu * distance - beam.most_relief[length])
    value_of[d * VALUES + LOOSE] = 0.0
    if terms.bounds_step and not (terms.has_general and table.irregular[place_of[d * PLACES + TAIL]]):
        square = value_of[d * VALUES + CONSTANT] + _lowest_square(
            terms, new, top, reference, linear[length + 1], quadratic[length + 1]
        )
        least = math.sqrt(square) if square > 0.0 else 0.0
        tightly = max(loosely, terms.mu * (min(least, distance) if terms.silent else least) - 1e-12)
        value_of[d * VALUES + LOOSE] = tightly - loosely
        value_of[d * VALUES + REACH] -= tightly
    else:
        value_of[d * VALUES + REACH] -= loosely


@njit(**INLINED)
def _enter(
    beam: Beam,
    terms: Terms,
    target: Target,
    table: TableArrays | None,
    lm: Automaton | None,
    s: int,
    c: int,
) -> int:
    """Make the extension of hypothesis `s` by class `c` a hypothesis, but for its probability; returns its slot."""
    value_of, place_of, counter = beam.value_of, beam.place_of, beam.counter
    counter[FREE] -= 1
    d = beam.free[counter[FREE]]
    place_of[d * PLACES + NODE] = _child_of(beam, place_of[s * PLACES + NODE], c)
    place_of[d * PLACES + LAST] = c
    extra = value_of[s * VALUES + EXTRA] + target.weights[c]
    most = 0.0
    if lm is not None:
        at = _memo_place(beam, terms, s, c)
        if not _remembers(beam, terms, at, s, c):
            _ask(beam, terms, lm, at, s, c, -math.inf)
        said = beam.memo_value[at]
        value_of[d * VALUES + LM_TOTAL] = value_of[s * VALUES + LM_TOTAL] + said
        extra += terms.lm_weight * said
        M = terms.components
        for m in range(M):
            state = beam.memo[at * (2 * M + 1) + M + 1 + m]
            beam.lm_state[d * M + m] = state
            shorter: Any = np.int64(lm.numbers[16 * np.int64(state)])
            fetch(shifted(lm.weights, 8 * max(shorter, 0)))
        most = _most(beam, terms, lm, d)
    if table is None:
        value_of[d * VALUES + EXTRA] = value_of[d * VALUES + REST] = extra
        value_of[d * VALUES + REACH] = extra + most
    else:
        cell = table.cell[c]
        length = np.int64(place_of[s * PLACES + LENGTH])
        begin = np.int64(0)
        end = np.int64(0)
        tail = place_of[s * PLACES + TAIL]
        if _is_general(terms, table, tail, c):
            program = _program_of(terms, table, tail, c)
            begin = table.starts[program]
            end = table.starts[program + 1]
            tail = table.next_state[program]
            if cell >= 0:
                extra -= target.cell_weight[cell]
            for j in range(begin, end):
                x = table.operations[j]
                extra += target.cell_weight[x - 1] if x > 0 else -target.cell_weight[-x - 1]
                length += 1 if x > 0 else -1
            cell = GENERAL
        elif table.reset[c] != KEEP:
            tail = table.reset[c]
        place_of[d * PLACES + TAIL] = tail
        value_of[d * VALUES + EXTRA] = value_of[d * VALUES + REST] = extra
        value_of[d * VALUES + REACH] = extra + most
        if terms.guided:
            _count_characters(beam, terms, target, table, s, d, cell, begin, end, length)
    return d


@njit(**INLINED)
def _give_probability(beam: Beam, frame: Any, t: int, s: int, c: int, d: int) -> float:
    """The probability of hypothesis `d`, which is `s` with the label `c` of frame `t`; returns it."""
    value_of, probability = beam.value_of, beam.probability
    if beam.computed_at[c] != t:
        beam.computed_at[c] = t
        probability[c] = math.exp(np.float64(frame[c]))
    repeated = c == beam.place_of[s * PLACES + LAST]
    mass = (value_of[s * VALUES + P_BLANK] if repeated else value_of[s * VALUES + TOTAL]) * probability[c]
    value_of[d * VALUES + NEW_BLANK] = 0.0
    value_of[d * VALUES + NEW_LABEL] = mass
    before = math.log(value_of[s * VALUES + P_BLANK]) if repeated else value_of[s * VALUES + LOG_TOTAL]
    value_of[d * VALUES + NEW_LOG] = before + frame[c]
    return mass


@njit(**INLINED)
def _take_over(beam: Beam, n_active: int, size: int) -> None:
    """Make the upcoming hypotheses the live ones, and free the slots of those that are not among them."""
    place_of, slot_of, active, upcoming = beam.place_of, beam.slot_of, beam.active, beam.upcoming
    for a in range(n_active):
        slot_of[place_of[active[a] * PLACES + NODE]] = -1
    for i in range(size):
        slot_of[place_of[upcoming[i] * PLACES + NODE]] = upcoming[i]
    for a in range(n_active):
        if slot_of[place_of[active[a] * PLACES + NODE]] != active[a]:
            beam.free[beam.counter[FREE]] = active[a]
            beam.counter[FREE] += 1
    for i in range(size):
        active[i] = upcoming[i]


@njit(**PART)
def _can_write(beam: Beam, terms: Terms, target: Target, table: TableArrays, c: int, unknown: np.ndarray) -> None:
    """Whether the only hypothesis may go on with the label `c` of a given beginning; tells the status."""
    tail = beam.place_of[beam.active[0] * PLACES + TAIL]
    if target.weights[c] == -math.inf:
        beam.counter[STATUS] = NO_PATH
    elif table is not None and _is_general(terms, table, tail, c):
        program = _program_of(terms, table, tail, c)
        if program < 0:
            _ask_for(beam, terms, table, tail, c, unknown)
        elif table.refused[program]:
            beam.counter[STATUS] = NO_PATH


@njit(**PART)
def _begin(forward: np.ndarray, values: Any) -> tuple[int, float]:
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


@njit(**PART)
def _write_labels(labels: Any, node: int, parent: Any, label: Any) -> int:
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


@njit(**PART)
def _write_best(
    beam: Beam, lam: float, n_active: int, nbest: int, log_scale: float, results: Results, line: int, T: int
) -> None:
    """The best hypotheses of the last frame, as many as are wanted."""
    value_of, active, score = beam.value_of, beam.active, beam.score
    for a in range(n_active):
        score[a] = lam * value_of[active[a] * VALUES + LOG_TOTAL] + value_of[active[a] * VALUES + REST]
    for k in range(min(nbest, n_active)):
        best = -1
        for a in range(n_active):
            if active[a] >= 0 and (best < 0 or score[a] >= score[best]):
                best = a
        s = active[best]
        active[best] = -1
        labels = shifted(results.labels, results.starts[line] + k * T)
        results.lengths[line * nbest + k] = _write_labels(
            labels, beam.place_of[s * PLACES + NODE], beam.parent, beam.label
        )
        results.values[(line * nbest + k) * 4 + 0] = score[best] + lam * log_scale
        results.values[(line * nbest + k) * 4 + 1] = value_of[s * VALUES + LOG_TOTAL] + log_scale
        results.values[(line * nbest + k) * 4 + 2] = value_of[s * VALUES + DISTANCE]
        results.values[(line * nbest + k) * 4 + 3] = value_of[s * VALUES + LM_TOTAL]


@entry
def search_lines(
    lines: Lines,
    queue: Queue,
    most_lines: int,
    target_of: np.ndarray,
    checks: bool,
    terms: Terms,
    sizes: Sizes,
    start: int,
    targets: Targets,
    table: TableArrays | None,
    lm: Automaton | None,
    beginnings: Beginnings | None,
    results: Results,
    unknown: np.ndarray,
) -> None:
    """Decode lines from the queue, each with its own target, until it is empty or `most_lines` are done.

    Args:
        target_of: (lines,) int64 row of the target in `targets`.
        checks: whether to leave lines undecoded whose probabilities do not seem to sum to about 1.
        terms: weights; those of what is None are not looked at.
        sizes: of the work space, which begins at the address `start` and was all zeros before its first search.
        table: None if no character needs to be counted or followed.
        results: written.
        unknown: (many,) int64 written: steps asked for and not found; the first element holds their number.
    """
    V, n, nbest, blank = terms.V, terms.n, terms.nbest, terms.blank
    beam = carved(start, sizes)
    if table is not None:
        _by_length(beam, terms)
    aims, steps, model = pointers(targets), pointers(table), pointers(lm)
    waiting, written = pointers(queue), pointers(results)

    unknown[0] = 0
    for _ in range(most_lines):
        place = count_up(waiting.taken)
        if place >= queue.order.shape[0]:
            break
        line = waiting.order[place]
        T = lines.frames[line]
        rows = pointer(lines.address[line], lines.like)
        for k in range(nbest):
            written.lengths[line * nbest + k] = -1
        if checks and not is_normalized(terms, rows, T):
            written.status[line] = UNNORMALIZED
            continue
        g = target_of[line]
        reference = shifted(aims.reference, g * n)
        q_squares = 0.0
        for i in range(n):
            q_squares += reference[i] * reference[i]
        target = Target(
            reference, shifted(aims.class_weight, g * V), shifted(aims.tail_gain, g * terms.tails),
            shifted(aims.cell_weight, g * n), q_squares, q_squares / n,
        )  # fmt: skip
        _start(beam, terms, target, steps, model)
        n_active: Any = np.int64(1)  # a plain 1 would be a type of its own, and every part compiled for both
        log_scale = 0.0
        is_new = True
        most = (0.0, 0.0)

        # -- a given beginning is written before the first frame, one label for each frame before it
        given = 0
        root = -1
        first_frame = 0
        if beginnings is not None:
            given = beginnings.label_starts[line + 1] - beginnings.label_starts[line]
            forward = beginnings.forward[beginnings.forward_starts[line] : beginnings.forward_starts[line] + T]
            if given > T:
                written.status[line] = NO_PATH
                continue
        for t in range(-given, T):
            if beginnings is not None:
                if t == 0 and given > 0:
                    root = beam.active[0]
                    first_frame, log_scale = _begin(forward, shifted(beam.value_of, root * VALUES))
                    if first_frame > T:
                        beam.counter[STATUS] = NO_PATH
                        break
                if 0 <= t < first_frame:
                    continue
            if beginnings is not None and t < 0:
                c = beginnings.labels[beginnings.label_starts[line] + given + t]
                beam.key[0] = (np.int64(beam.active[0]) << terms.shift) | c
                size = added = 1
                _can_write(beam, terms, target, steps, c, unknown)
            else:
                frame = shifted(rows, t * V)
                _stay(beam, terms, frame, t, n_active)
                if beginnings is not None and root >= 0:
                    beam.value_of[root * VALUES + NEW_BLANK] = math.exp(forward[t, 0] - log_scale)
                    beam.value_of[root * VALUES + NEW_LABEL] = math.exp(forward[t, 1] - log_scale)
                    if beam.value_of[root * VALUES + NEW_BLANK] + beam.value_of[root * VALUES + NEW_LABEL] <= 0.0:
                        root = -1
                size, best_base, lowest_score, largest = _rank(beam, terms, n_active, root)

                if table is not None and is_new and terms.has_general and (terms.bounds_step or terms.weighs):
                    before = most
                    most = _most_gained(beam, terms, target, steps, n_active)
                    if most != before:
                        _set_ceilings(beam, terms, target, steps, model, most)
                is_new = False
                contributions(frame, V, terms.lam, beam.ceiling, beam.gain)
                added = 0
                if mark(beam, V, max(lowest_score - best_base, _LOWEST)):
                    size, added = _extend(
                        beam, terms, target, steps, model, n_active, size, best_base, lowest_score, unknown
                    )
            if size == 0:
                beam.counter[STATUS] = NO_PATH
            if beam.counter[STATUS] != DONE:
                break
            if added == 0 and size == n_active:
                # Nothing can enter: the beam is the same, and only the probabilities move on.
                log_scale += _move_on(beam, n_active, largest)
                continue

            # -- the next beam; extensions go to free slots, for they still read the old state
            largest = 0.0
            for i in range(size):
                s = np.int32(beam.key[i] >> terms.shift)
                c = np.int32(beam.key[i] & ((1 << terms.shift) - 1))
                if c == blank:
                    beam.upcoming[i] = s
                    largest = max(
                        largest, beam.value_of[s * VALUES + NEW_BLANK] + beam.value_of[s * VALUES + NEW_LABEL]
                    )
                    continue
                d = _enter(beam, terms, target, steps, model, s, c)
                beam.upcoming[i] = d
                if beginnings is None or t >= 0:
                    largest = max(largest, _give_probability(beam, shifted(rows, t * V), t, s, c, d))
                else:  # no frame was read
                    beam.value_of[d * VALUES + NEW_BLANK] = 1.0
                    beam.value_of[d * VALUES + NEW_LABEL] = 0.0
                    beam.value_of[d * VALUES + NEW_LOG] = 0.0
                    largest = 1.0
            if largest <= 0.0:
                beam.counter[STATUS] = NO_PATH
            if beam.counter[STATUS] != DONE:
                break
            _take_over(beam, n_active, size)
            n_active = size
            is_new = True
            log_scale += _move_on(beam, n_active, largest)

        written.status[line] = beam.counter[STATUS]
        if beam.counter[STATUS] != DONE:
            continue
        _write_best(beam, terms.lam, n_active, nbest, log_scale, written, line, T)
        count_up(shifted(written.finished, line))
