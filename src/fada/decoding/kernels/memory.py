"""Memory of the compiled search: arrays as pointers, and the work space of one thread.

An array that numba passes from function to function is eight numbers and a count of who uses it, changed atomically. A
pointer is one number: the parts of the search take a fraction of the time to compile, and calling one costs nothing. In
return nobody checks its length, and it must not outlive the memory.
"""

from typing import Any, NamedTuple

import numpy as np
from numba import njit, types
from numba.extending import intrinsic

PART: dict[str, Any] = {
    "nogil": True,
    "error_model": "numpy",
    "no_cpython_wrapper": True,
    "no_cfunc_wrapper": True,
}
"""Options of what only compiled code calls: stored with its caller, and half the time to compile."""
INLINED: dict[str, Any] = {**PART, "forceinline": True}
"""Options of a part that is called too often to be called: it becomes part of its caller."""

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
NODE, LAST, TAIL, LENGTH, HIGHEST, PLACES = 0, 1, 2, 3, 4, 8
"""Its node in the trie, its last label, its tail (see `_symbols`), its number of characters and their highest count."""
STATUS, NODES, FREE, STAMP, COUNTERS = 0, 1, 2, 3, 4
"""How the line stands, how many nodes and free slots there are, and the last number that was written into `stamps`."""
MEMO = 4096
"""So many answers of the language model are remembered, a power of two."""


class Beam(NamedTuple):
    """Work space of one thread, pointers all: K hypotheses in 2 K + 1 slots, so that one that stays is never moved; V
    classes. Arrays of two axes are written as such, and lie row by row.
    """

    value_of: np.ndarray
    """(slots, VALUES) float64."""
    place_of: np.ndarray
    """(slots, PLACES) int32."""
    counter: np.ndarray
    """(COUNTERS,) int32."""
    active: np.ndarray
    """(K,) int32 slots of the live hypotheses."""
    upcoming: np.ndarray
    """(K,) int32 slots of those of the next frame."""
    free: np.ndarray
    """(slots,) int32 slots of none."""
    has_child: np.ndarray
    """(slots, V) uint8 whether the extension by a class is alive."""
    parent: np.ndarray
    """(nodes,) int32 of the trie, like the following: its parent, label, first child, next sibling; its slot, or -1."""
    label: np.ndarray
    child: np.ndarray
    sibling: np.ndarray
    slot_of: np.ndarray
    heap_score: np.ndarray
    """(K,) float64 what enters the next beam, the worst in front."""
    heap_key: np.ndarray
    """(K,) int64 slot and class."""
    gain: np.ndarray
    """(V,) float64 the most each class can add in this frame."""
    ceiling: np.ndarray
    """(V,) float64 the most it can add in any."""
    slack: np.ndarray
    """(V,) float64 how much of that is uncertain."""
    candidates: np.ndarray
    """(V + 1,) int32 classes that can matter."""
    best_gain: np.ndarray
    """(V,) float64 in falling order."""
    best_class: np.ndarray
    """(V,) int32 in the same order."""
    waiting_score: np.ndarray
    """(V,) float64 heap of the classes that are not in order yet."""
    waiting_class: np.ndarray
    """(V,) int64."""
    probability: np.ndarray
    """(V,) float64 of a class in the frame `computed_at`."""
    computed_at: np.ndarray
    """(V,) int32."""
    bits: np.ndarray
    """(V,) int32, and the same memory as float32."""
    powers: np.ndarray
    words: np.ndarray
    """(slots, many) uint64 the counts of a hypothesis and behind them its `at_most` (see fada.decoding.guidance), to be
    copied in one go, which is fastest in whole blocks of 16 words."""
    tally: np.ndarray
    """(slots, 4 · many) uint16, the same memory."""
    linear: np.ndarray
    """By the number of characters: the factor of Σcq in W2², that of Σc², and how much one symbol more can lower the
    weighted W2."""
    quadratic: np.ndarray
    most_relief: np.ndarray
    lm_state: np.ndarray
    """(slots, components) int32 of the language model."""
    lm_context: np.ndarray
    """(slots, components) int32 the rows of its bounds."""
    stamps: np.ndarray
    """(contexts,) int32 when a row of the bounds was last looked at."""
    memo: np.ndarray
    """(MEMO, 2 · components + 1) int32 what the language model was asked and reached: the states before, 1 + the class
    (0: nothing is here), the states after."""
    memo_value: np.ndarray
    """(MEMO,) float64 what it said."""
    highest: np.ndarray
    """(V,) float32."""


def _typed_pointer(typing_context: Any, address: Any, like: Any) -> Any:
    """An address as a pointer to elements of the type of `like`, an array or a type."""
    pointer_type = types.CPointer(like.dtype)

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.inttoptr(arguments[0], context.get_value_type(pointer_type))

    return pointer_type(address, like), generate


pointer: Any = intrinsic(_typed_pointer)


def _shifted_pointer(typing_context: Any, start: Any, elements: Any) -> Any:
    """A pointer so many elements further."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.gep(arguments[0], [arguments[1]])

    return start(start, elements), generate


shifted: Any = intrinsic(_shifted_pointer)


@njit(**INLINED)
def row_of(table: np.ndarray, i: int) -> Any:
    """A pointer to the first element of a row."""
    return pointer(table.ctypes.data + i * table.shape[1] * table.itemsize, table)


def _pointers_of(typing_context: Any, record: Any) -> Any:
    """A record whose arrays have become pointers to their first elements (truth values to bytes); None stays None."""
    if not hasattr(record, "instance_class"):
        return record(record), lambda context, builder, signature, arguments: arguments[0]

    def element(kind: Any) -> Any:
        return types.uint8 if kind.dtype == types.boolean else kind.dtype

    kinds = [types.CPointer(element(kind)) if isinstance(kind, types.Array) else kind for kind in record]
    pointed = types.NamedTuple(kinds, record.instance_class)

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        parts = []
        for i, kind in enumerate(record):
            part = builder.extract_value(arguments[0], i)
            if isinstance(kind, types.Array):
                data = context.make_array(kind)(context, builder, part).data
                part = builder.bitcast(data, context.get_value_type(kinds[i]))
            parts.append(part)
        return context.make_tuple(builder, pointed, parts)

    return pointed(record), generate


pointers: Any = intrinsic(_pointers_of)


def _atomic_addition(typing_context: Any, counter: Any) -> Any:
    """Add one to the first element of an int64 array, as one operation for all threads; returns what was there."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        array = context.make_array(signature.args[0])(context, builder, arguments[0])
        return builder.atomic_rmw("add", array.data, context.get_constant(types.int64, 1), "seq_cst")

    return types.int64(counter), generate


count_up: Any = intrinsic(_atomic_addition)


@njit(cache=True)
def address_of(rows: np.ndarray) -> int:
    """Where the data of an array lie; in Python this would take several times as long."""
    return rows.ctypes.data


@njit(**PART)
def room(
    start: int, beam_size: int, classes: int, frames: int, words_each: int, longest: int, components: int, contexts: int
) -> tuple[Beam, int]:
    """The work space from an address on, and the address after it. From address 0 on it tells the size.

    Args:
        words_each: 64-bit words for the counts of a hypothesis, 0 if they are not followed.
        longest: characters that a text can have at most, 0 if they are not counted.
        components: of the language model, 0 if there is none; and the rows of its bounds.
    """
    K, V = beam_size, classes
    slots = 2 * K + 1
    nodes = frames * (K + 1) + 2
    at = start
    value_of = pointer(at, np.float64)
    at += slots * VALUES * 8
    words = pointer(at, np.uint64)
    tally = pointer(at, np.uint16)
    at += slots * words_each * 8
    heap_score = pointer(at, np.float64)
    heap_key = pointer(at + K * 8, np.int64)
    at += K * 16
    gain = pointer(at, np.float64)
    ceiling = pointer(at + V * 8, np.float64)
    slack = pointer(at + V * 16, np.float64)
    best_gain = pointer(at + V * 24, np.float64)
    waiting_score = pointer(at + V * 32, np.float64)
    waiting_class = pointer(at + V * 40, np.int64)
    probability = pointer(at + V * 48, np.float64)
    at += V * 56
    linear = pointer(at, np.float64)
    quadratic = pointer(at + longest * 8, np.float64)
    most_relief = pointer(at + longest * 16, np.float64)
    at += longest * 24
    place_of = pointer(at, np.int32)
    at += slots * PLACES * 4
    counter = pointer(at, np.int32)
    active = pointer(at + COUNTERS * 4, np.int32)
    upcoming = pointer(at + COUNTERS * 4 + K * 4, np.int32)
    free = pointer(at + COUNTERS * 4 + K * 8, np.int32)
    at += COUNTERS * 4 + K * 8 + slots * 4
    parent = pointer(at, np.int32)
    label = pointer(at + nodes * 4, np.int32)
    child = pointer(at + nodes * 8, np.int32)
    sibling = pointer(at + nodes * 12, np.int32)
    slot_of = pointer(at + nodes * 16, np.int32)
    at += nodes * 20
    candidates = pointer(at, np.int32)
    best_class = pointer(at + V * 4 + 4, np.int32)
    computed_at = pointer(at + V * 8 + 4, np.int32)
    bits = pointer(at + V * 12 + 4, np.int32)
    powers = pointer(at + V * 12 + 4, np.float32)
    highest = pointer(at + V * 16 + 4, np.float32)
    at += V * 20 + 4
    lm_state = pointer(at, np.int32)
    lm_context = pointer(at + slots * components * 4, np.int32)
    at += slots * components * 8
    stamps = pointer(at, np.int32)
    at += contexts * 4
    memo = pointer(at, np.int32)
    at += MEMO * (2 * components + 1) * 4 if components > 0 else 0
    at = (at + 7) // 8 * 8
    memo_value = pointer(at, np.float64)
    at += MEMO * 8 if components > 0 else 0
    has_child = pointer(at, np.uint8)
    at += slots * V
    beam = Beam(
        value_of, place_of, counter, active, upcoming, free, has_child, parent, label, child, sibling, slot_of,
        heap_score, heap_key, gain, ceiling, slack, candidates, best_gain, best_class, waiting_score, waiting_class,
        probability, computed_at, bits, powers, words, tally, linear, quadratic, most_relief, lm_state, lm_context,
        stamps, memo,
        memo_value, highest,
    )  # fmt: skip
    return beam, at
