"""What an Arrow file or stream claims to hold, read without Arrow, which unpacks whatever it is told to.

Its messages are flatbuffers; the numbers of their fields are those of https://github.com/apache/arrow/tree/main/format.
"""

import struct
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from fada.common.parquet import most_bytes, most_rows
from fada.errors import FadaError

_MAGIC = b"ARROW1"
_DICTIONARIES, _BATCH = 2, 3
_BLOCK, _BUFFER, _PREFIX = 24, 16, 8
_OLD_COMPRESSION = b"ARROW:experimental_compression"


def sound_batches(path: Path) -> tuple[int, str]:
    """How many record batches can be read, and what is wrong behind them; nothing if it is empty.

    A small file that claims far more rows, or unpacks to far more bytes, than memory holds is refused.
    """
    size, batches, rows, unpacked = path.stat().st_size, 0, 0, 0
    try:
        with path.open("rb") as file:
            for metadata, body in _messages(file, size):
                message = _Table.root(metadata)
                kind, batch = message.number(1, "B"), message.table(2)
                if kind == _DICTIONARIES and batch:
                    batch = batch.table(1)
                if kind not in (_DICTIONARIES, _BATCH) or batch is None:
                    continue
                rows += max(batch.number(0, "q"), 0)
                if batch.table(3) or _OLD_COMPRESSION in metadata:
                    unpacked += sum(_unpacked(file, body + at) for at, length in batch.pairs(2, _BUFFER) if length > 0)
                if rows > most_rows(size):
                    raise FadaError(f"{path}: {size:,} bytes that claim {rows:,} rows; not read, to be safe.")
                if unpacked > most_bytes(path):
                    raise FadaError(f"{path}: {size:,} bytes that unpack to {unpacked:,}; not read, to be safe.")
                batches += kind == _BATCH
    except (struct.error, ValueError, OverflowError, OSError) as error:  # the last two of places that no file has
        return batches, f"a message is damaged: {error}"
    return batches, ""


def _unpacked(file: BinaryIO, at: int) -> int:
    """The length that stands before a packed buffer; -1 before one that is not packed after all."""
    file.seek(at)
    return max(int(struct.unpack("<q", file.read(_PREFIX))[0]), 0)


def _messages(file: BinaryIO, size: int) -> Iterator[tuple[bytes, int]]:
    """The metadata of every message and where its body begins: dictionaries before the batches, or as they come."""
    if file.read(len(_MAGIC)) == _MAGIC:
        for at, length in _blocks(file, size):
            metadata, _ = _metadata(file, at, size)
            yield metadata, at + length
        return
    at = 0
    while at < size:
        metadata, at = _metadata(file, at, size)
        if not metadata:
            return
        yield metadata, at
        length = _Table.root(metadata).number(3, "q")
        if length < 0:
            raise ValueError(f"a body of {length} bytes")
        at += length


def _metadata(file: BinaryIO, at: int, size: int) -> tuple[bytes, int]:
    """The metadata of the message at a place of the file, and where its body begins."""
    file.seek(at)
    (length,) = struct.unpack("<i", file.read(4))
    if length == -1:
        (length,) = struct.unpack("<i", file.read(4))
    if not 0 <= length <= size:
        raise ValueError(f"metadata of {length} bytes")
    metadata = file.read(length)
    return metadata, file.tell()


def _blocks(file: BinaryIO, size: int) -> Iterator[tuple[int, int]]:
    """Where the messages begin that the footer of a file names, and how long their metadata are."""
    end = size - len(_MAGIC) - 4
    file.seek(end)
    (length,) = struct.unpack("<i", file.read(4))
    if not 0 < length <= end:
        raise ValueError(f"a footer of {length} bytes")
    file.seek(end - length)
    footer = _Table.root(file.read(length))
    for field in (_DICTIONARIES, _BATCH):
        for at, described in footer.pairs(field, _BLOCK):
            yield at, described & 0x7FFFFFFF  # four bytes of padding follow


class _Table:
    """A table of a flatbuffer; struct.error or ValueError where it breaks."""

    def __init__(self, data: bytes, at: int) -> None:
        self._data, self._at = data, at
        self._fields = at - self._get("i", at)

    @classmethod
    def root(cls, data: bytes) -> "_Table":
        return cls(data, int(struct.unpack_from("<I", data)[0]))

    def _get(self, kind: str, at: int) -> int:
        if at < 0:
            raise ValueError("a place before the beginning")
        return int(struct.unpack_from(f"<{kind}", self._data, at)[0])

    def _place(self, field: int) -> int | None:
        """Where the value of a field is; None if the table has none."""
        entry = 4 + 2 * field
        if entry >= self._get("H", self._fields):
            return None
        offset = self._get("H", self._fields + entry)
        return self._at + offset if offset else None

    def number(self, field: int, kind: str) -> int:
        """Zero by default."""
        place = self._place(field)
        return 0 if place is None else self._get(kind, place)

    def table(self, field: int) -> "_Table | None":
        place = self._place(field)
        return None if place is None else _Table(self._data, place + self._get("I", place))

    def pairs(self, field: int, size: int) -> Iterator[tuple[int, int]]:
        """The first two numbers of eight bytes of every struct of this size in a vector."""
        place = self._place(field)
        if place is None:
            return
        place += self._get("I", place)
        for at in range(place + 4, place + 4 + size * self._get("I", place), size):
            yield self._get("q", at), self._get("q", at + 8)
