"""Room on disk for what need not be in memory; it goes with the process."""

import pickle
import sqlite3
from collections.abc import Iterator
from typing import BinaryIO, Generic, TypeVar

T = TypeVar("T")


def scratch_database(*commands: str) -> sqlite3.Connection:
    """A temporary database that spills to disk, so that memory stays bounded whatever is put into it."""
    database = sqlite3.connect("", isolation_level=None, check_same_thread=False)
    for command in ("PRAGMA journal_mode = OFF", "PRAGMA synchronous = OFF", *commands, "BEGIN"):
        database.execute(command)
    return database


class Waiting(Generic[T]):
    """Things that wait in a file until all of them are there; then they are gone through in their order."""

    def __init__(self, file: BinaryIO) -> None:
        self._file, self._count = file, 0

    def add(self, item: T) -> None:
        pickle.dump(item, self._file)
        self._count += 1

    def __iter__(self) -> Iterator[T]:
        self._file.seek(0)
        return (pickle.load(self._file) for _ in range(self._count))
