"""Where independent pieces of work are done: in this process, in several on this machine, or elsewhere."""

import multiprocessing
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from typing import Protocol, TypeVar

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
        """See :class:`Workers`."""
        if self.count == 1 or len(items) < 2:
            yield from map(work, items)
            return
        spawn = multiprocessing.get_context("spawn")
        with ProcessPoolExecutor(
            self.count, mp_context=spawn, initializer=show_records if is_shown() else None
        ) as pool:
            for done in [pool.submit(work, item) for item in items]:
                yield done.result()
