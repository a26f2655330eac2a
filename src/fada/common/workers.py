"""Where independent pieces of work are done: in this process, in several on this machine, or elsewhere."""

import multiprocessing
import os
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

from fada.common.say import is_shown, show_records

T = TypeVar("T")
R = TypeVar("R")


class Workers(Protocol):
    """Does independent pieces of work, several at a time."""

    def each(self, work: Callable[[T], R], items: Sequence[T]) -> Iterator[R]:
        """The result of `work` for each item, in their order; both can be pickled."""
        ...


@dataclass(frozen=True)
class Processes:
    """Processes on this machine; one is this process itself.

    Attributes:
        count: so many at a time.
    """

    count: int = 1

    def each(self, work: Callable[[T], R], items: Sequence[T]) -> Iterator[R]:
        if self.count == 1 or len(items) < 2:
            yield from map(work, items)
            return
        with process_pool(self.count) as pool:
            for done in [pool.submit(work, item) for item in items]:
                yield done.result()


def process_pool(
    count: int, begin: Callable[..., object] | None = None, given: tuple[Any, ...] = ()
) -> ProcessPoolExecutor:
    """So many processes, started afresh, that end with this one, however it ends.

    Forking a process that has threads (of a trainer, of BLAS) can hang. And a process that waits for work of one that
    was killed would wait for ever.

    Args:
        begin: called in each, with what is `given`, before its first work.
    """
    spawn = multiprocessing.get_context("spawn")
    return ProcessPoolExecutor(count, spawn, _begin, (is_shown(), begin, given))


def _begin(shown: bool, begin: Callable[..., object] | None, given: tuple[Any, ...]) -> None:
    threading.Thread(target=_end_with, args=(multiprocessing.parent_process(),), daemon=True).start()
    if shown:
        show_records()
    if begin:
        begin(*given)


def _end_with(parent: Any) -> None:
    parent.join()
    os._exit(1)  # nothing is half written: files appear under their name when they are whole
