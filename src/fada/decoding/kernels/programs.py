"""Steps of a :class:`fada.decoding.steps.StepTable`: looked up, and done to the counts of a hypothesis; compiled."""

from typing import Any

from numba import njit

from fada.decoding.kernels.distance import SORTED_W2
from fada.decoding.kernels.memory import PART
from fada.decoding.kernels.records import EMPTY


@njit(cache=True, nogil=True, error_model="numpy")
def hash_slot(key: int, size: int) -> int:
    """Where to look for `key` first in an open-addressing table whose size is a power of two."""
    return ((key * 0x9E3779B1) >> 7) & (size - 1)


@njit(**PART)
def find_program(keys: Any, programs: Any, size: int, key: int) -> int:
    """The program of a step, -1 if it was not prepared."""
    slot = hash_slot(key, size)
    while keys[slot] != EMPTY:
        if keys[slot] == key:
            return programs[slot]
        slot = (slot + 1) & (size - 1)
    return -1


@njit(**PART)
def run(
    operations: Any,
    start: int,
    stop: int,
    kind: int,
    counts: Any,
    at_most: Any,
    highest: int,
    reference: Any,
    n: int,
    squares: float,
    products: float,
) -> tuple[int, float, float]:
    """Remove and add the characters of a program; returns the highest count, Σc² and Σcq afterwards."""
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


@njit(**PART)
def undo(operations: Any, start: int, stop: int, counts: Any, at_most: Any) -> None:
    """Take back what :func:`run` did to the counts."""
    for i in range(stop - 1, start - 1, -1):
        operation = operations[i]
        if operation > 0:
            counts[operation - 1] -= 1
            at_most[counts[operation - 1]] += 1
        else:
            at_most[counts[-operation - 1]] -= 1
            counts[-operation - 1] += 1
