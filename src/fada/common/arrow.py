"""What an Arrow file claims to hold, and what its values would take: Arrow itself unpacks whatever it is told to.

A file is looked at without Arrow: its messages are flatbuffers; the numbers of their fields are those of https://github.com/apache/arrow/tree/main/format.
"""

import struct
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

from fada.common.parquet import most_bytes, most_rows
from fada.errors import FadaError

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

_MAGIC = b"ARROW1"
_DICTIONARIES, _BATCH = 2, 3
_BLOCK, _BUFFER, _PREFIX, _VIEW, _POINTER = 24, 16, 8, 16, 8
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


def unpacked_bytes(batch: Any) -> int:
    """What the values of a record batch take at most, those that share their bytes counted every time."""
    return sum(map(_bytes_of, batch.columns))


def _bytes_of(column: Any) -> int:
    """What the values of an Arrow array take at most; nothing is unpacked."""
    import pyarrow as pa
    import pyarrow.types as types

    kind = column.type
    if isinstance(column, pa.ExtensionArray):
        return _bytes_of(column.storage)
    if types.is_struct(kind):
        return sum(map(_bytes_of, column.flatten()))
    if types.is_map(kind):
        start, end = column.offsets[0].as_py(), column.offsets[-1].as_py()
        return sum(_listed(part.slice(start, end - start)) for part in (column.keys, column.items))
    if types.is_list_view(kind) or types.is_large_list_view(kind):
        overlap = column.sizes.to_numpy().sum() > len(column.values)
        return len(column) * _listed(column.values) if overlap else _listed(column.flatten())
    if types.is_union(kind):
        return len(column) * sum(_bytes_of(column.field(number)) for number in range(kind.num_fields))
    if types.is_nested(kind) and not types.is_run_end_encoded(kind):
        return _POINTER * len(column) + _listed(column.flatten())
    return int(_sizes(column).sum() if may_share(kind) else column.nbytes)


def _listed(column: Any) -> int:
    """What the values of an Arrow array take at most as items of lists, where none takes nothing."""
    return max(_bytes_of(column), _POINTER * len(column))


def may_share(kind: Any) -> bool:
    """Whether values of an Arrow type may share their bytes."""
    return any(name in str(kind) for name in ("dictionary<", "run_end_encoded<", "_view"))


def _sizes(column: Any) -> "NDArray[np.int64]":
    """The bytes of each value of an Arrow array, at most."""
    import numpy as np
    import pyarrow as pa
    import pyarrow.compute as pc
    import pyarrow.types as types

    kind = column.type
    if types.is_dictionary(kind):
        indices = column.indices.cast(pa.int64()).fill_null(-1).to_numpy()
        return np.append(_sizes(column.dictionary), 0)[indices]
    if types.is_run_end_encoded(kind):
        places = column.offset + np.arange(len(column))
        return _sizes(column.values)[column.run_ends.to_numpy().searchsorted(places, side="right")]
    if types.is_string_view(kind) or types.is_binary_view(kind):
        lengths = np.frombuffer(column.buffers()[1] or b"", "<i4")[:: _VIEW // 4]
        return lengths[column.offset :][: len(column)].clip(0).astype(np.int64)
    if any(f(kind) for f in (types.is_string, types.is_large_string, types.is_binary, types.is_large_binary)):
        return pc.binary_length(column).cast(pa.int64()).fill_null(0).to_numpy()
    each = _bytes_of(column) if types.is_nested(kind) else _POINTER
    return np.full(len(column), each, np.int64)


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
