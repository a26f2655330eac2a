"""Memory of the compiled search: arrays as pointers, and the work space of one thread.

An array that numba passes from function to function is eight numbers and a count of who uses it, changed atomically. A
pointer is one number: the parts of the search take a fraction of the time to compile, and calling one costs nothing. In
return nobody checks its length, and it must not outlive the memory.
"""

from typing import Any, NamedTuple

import numpy as np
from numba import types
from numba.core.errors import NumbaError
from numba.extending import intrinsic

from fada.decoding.kernels.parts import PartCompiler, entry
from fada.decoding.kernels.vectors import BLOCK

PART: dict[str, Any] = {
    "nogil": True,
    "error_model": "numpy",
    "no_cpython_wrapper": True,
    "no_cfunc_wrapper": True,
    "pipeline_class": PartCompiler,
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
STATUS, NODES, FREE, FRAME, COUNTERS = 0, 1, 2, 3, 4
"""How the line stands, how many nodes and free slots there are; the frames counted from 1 to 255, over and over."""
ROOM = 64
"""At least so many may want to enter the next beam before the best of them are chosen: one bit for each."""
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
    """(slots, V) uint8 the frame, as counted, in which the extension by a class was last alive."""
    parent: np.ndarray
    """(nodes,) int32 of the trie, like the following: its parent, label, first child, next sibling; its slot, or -1."""
    label: np.ndarray
    child: np.ndarray
    sibling: np.ndarray
    slot_of: np.ndarray
    score: np.ndarray
    """(entries,) float64 of what may enter the next beam."""
    key: np.ndarray
    """(entries,) int64 its slot and class."""
    gain: np.ndarray
    """(V,) float64 the most each class can add in this frame; -inf up to the next multiple of BLOCK."""
    ceiling: np.ndarray
    """(V,) float64 the most it can add in any."""
    slack: np.ndarray
    """(V,) float64 how much of that is uncertain."""
    marks: np.ndarray
    """(blocks,) int64 of BLOCK classes each: the bits of those that can matter are 1."""
    candidates: np.ndarray
    """(V,) int32 classes that can matter."""
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
    memo: np.ndarray
    """(MEMO, 2 · components + 1) int32 what the language model was asked and reached: the states before, 1 + the class
    (0: nothing is here), the states after."""
    memo_value: np.ndarray
    """(MEMO,) float64 what it said."""


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
    """Add one to an int64 that is pointed to, as one operation for all threads; returns what was there."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.atomic_rmw("add", arguments[0], context.get_constant(types.int64, 1), "seq_cst")

    return types.int64(counter), generate


count_up: Any = intrinsic(_atomic_addition)


def _array_address(typing_context: Any, rows: Any) -> Any:
    """Where the data of an array lie."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        data = context.make_array(signature.args[0])(context, builder, arguments[0]).data
        return builder.ptrtoint(data, context.get_value_type(types.int64))

    return types.int64(rows), generate


_address: Any = intrinsic(_array_address)


@entry
def address_of(rows: np.ndarray) -> int:
    """Where the data of an array lie; in Python this would take several times as long."""
    return _address(rows)


UNFIT = (TypeError, NumbaError)
"""What it raises for an array that it cannot read as it is: numba 0.61 has errors of its own for some of them."""


class Sizes(NamedTuple):
    """How many of what a work space has room for."""

    slots: int
    """Of hypotheses."""
    values: int
    places: int
    """Of all slots, see above."""
    children: int
    """Classes of all slots."""
    words: int
    """64-bit words for the counts of all slots; 0 if they are not followed."""
    hypotheses: int
    entries: int
    """What may enter the next beam."""
    classes: int
    gains: int
    """Of whole blocks of classes."""
    blocks: int
    nodes: int
    """Of the trie."""
    longest: int
    """Characters that a text can have at most; 0 if they are not counted."""
    states: int
    """Of the language model, one for each slot and component; 0 if there is none."""
    answers: int
    """Of it that are remembered."""
    questions: int
    """Numbers that they are remembered by."""
    counters: int = COUNTERS

    @classmethod
    def of(
        cls,
        hypotheses: int,
        classes: int,
        frames: int,
        words_each: int,
        longest: int,
        components: int,
    ) -> "Sizes":
        """Those that a search needs: of the words for each hypothesis, and of the components of a language model."""
        slots = 2 * hypotheses + 1
        answers = MEMO if components else 0
        blocks = -(-classes // BLOCK)
        return cls(
            slots=slots,
            values=slots * VALUES,
            places=slots * PLACES,
            children=slots * classes,
            words=slots * words_each,
            hypotheses=hypotheses,
            entries=max(hypotheses, ROOM),
            classes=classes,
            gains=BLOCK * blocks,
            blocks=blocks,
            nodes=frames * (hypotheses + 1) + 2,
            longest=longest,
            states=slots * components,
            answers=answers,
            questions=answers * (2 * components + 1),
        )

    @property
    def bytes(self) -> int:
        """That a work space takes."""
        return sum(kind.bitwidth // 8 * getattr(self, size) for kind, size in _LAYOUT.values())


_LAYOUT: dict[str, tuple[Any, str]] = {
    "value_of": (types.float64, "values"),
    "words": (types.uint64, "words"),
    "score": (types.float64, "entries"),
    "key": (types.int64, "entries"),
    "marks": (types.int64, "blocks"),
    "gain": (types.float64, "gains"),
    "ceiling": (types.float64, "classes"),
    "slack": (types.float64, "classes"),
    "best_gain": (types.float64, "classes"),
    "waiting_score": (types.float64, "classes"),
    "waiting_class": (types.int64, "classes"),
    "probability": (types.float64, "classes"),
    "linear": (types.float64, "longest"),
    "quadratic": (types.float64, "longest"),
    "most_relief": (types.float64, "longest"),
    "memo_value": (types.float64, "answers"),
    "place_of": (types.int32, "places"),
    "counter": (types.int32, "counters"),
    "active": (types.int32, "hypotheses"),
    "upcoming": (types.int32, "hypotheses"),
    "free": (types.int32, "slots"),
    "parent": (types.int32, "nodes"),
    "label": (types.int32, "nodes"),
    "child": (types.int32, "nodes"),
    "sibling": (types.int32, "nodes"),
    "slot_of": (types.int32, "nodes"),
    "best_class": (types.int32, "classes"),
    "computed_at": (types.int32, "classes"),
    "candidates": (types.int32, "classes"),
    "lm_state": (types.int32, "states"),
    "memo": (types.int32, "questions"),
    "has_child": (types.uint8, "children"),
}
"""What a work space is made of, one after the other, the widest numbers first: their type, and how many."""
_ALIASES = {"tally": ("words", types.uint16)}
"""The same memory by another name and type."""


def _carved(typing_context: Any, start: Any, sizes: Any) -> Any:
    """The work space of these sizes from an address on, which must be a multiple of 8."""
    kinds = {name: kind for name, (kind, _) in _LAYOUT.items()} | {name: kind for name, (_, kind) in _ALIASES.items()}
    beam_type = types.NamedTuple([types.CPointer(kinds[name]) for name in Beam._fields], Beam)

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        at, numbers = arguments
        places = {}
        for name, (kind, size) in _LAYOUT.items():
            places[name] = at
            width = context.get_constant(types.int64, kind.bitwidth // 8)
            count = builder.extract_value(numbers, Sizes._fields.index(size))
            at = builder.add(at, builder.mul(count, width))
        places |= {name: places[other] for name, (other, _) in _ALIASES.items()}
        parts = [
            builder.inttoptr(places[name], context.get_value_type(types.CPointer(kinds[name]))) for name in Beam._fields
        ]
        return context.make_tuple(builder, beam_type, parts)

    return beam_type(start, sizes), generate


carved: Any = intrinsic(_carved)


class WorkSpace:
    """Memory of one thread for searches of the same sizes, one after the other."""

    def __init__(self, sizes: Sizes) -> None:
        self.sizes = sizes
        self._memory = np.zeros(sizes.bytes // 8 + 9, np.int64)
        self.start = (self._memory.ctypes.data + 63) // 64 * 64
        """Where it begins: with a line of the processor's memory."""
