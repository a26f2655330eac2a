"""What a parquet file claims to hold, read without Arrow, which believes every claim and ends the process at some.

The footer and the headers of pages are Thrift structs in the compact protocol; the numbers of their fields are those of
https://github.com/apache/parquet-format/blob/master/src/main/thrift/parquet.thrift.
"""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, BinaryIO, TypeAlias

from fada.errors import FadaError

BOMB_BYTES = 2**26
"""A column whose row group unpacks to more than this, and to more than `BOMB_RATIO` times the file, is refused; of all
rows together, what is more is not read."""

BOMB_RATIO = 100

BATCH_BYTES = 2**27
"""Fewer rows are read at a time where values that repeat may be so long that they would take more; a small file in
which they would take eight times as much is refused."""

ROWS_PER_BYTE = 100
"""A file with more rows, or values in a column, than a million and so many for each of its bytes is refused."""

PAGES = 100_000
"""A column of more pages in one row group is refused: some hundred are usual, and every one costs time."""

_HEADERS = (2**10, 2**20)
"""Bytes in which the header of a page is looked for: usually some dozen; more where it holds long statistics."""

_ROWS, _GROUPS, _METADATA = 3, 4, 5
"""Fields of FileMetaData."""

_DICTIONARY_PAGE, _DELTA_BYTE_ARRAY = 2, 7
_DEPTH = 32

_Struct: TypeAlias = dict[int, Any]


def most_bytes(path: Path) -> int:
    """What a table may unpack to."""
    return max(BOMB_BYTES, BOMB_RATIO * path.stat().st_size)


def most_rows(size: int) -> int:
    """What a table of so many bytes may hold."""
    return 1_000_000 + ROWS_PER_BYTE * size


def refuse_bomb(path: Path, batch: int, repeated: Sequence[bool]) -> int:
    """Refuse a small parquet file that unpacks to far more than memory holds, or whose footer is damaged.

    Args:
        batch: rows that would be read at a time.
        repeated: of each column, whether a row may hold any number of values.

    Returns:
        The rows to be read at a time: `batch`, or fewer.
    """
    size, longest = path.stat().st_size, 1
    claimed = {"rows": 0, "values in one column": 0}
    with path.open("rb") as file:
        for field, found in _footer(path, file, size, len(repeated)):
            if field in (_ROWS, _GROUPS):
                claimed["rows"] = max(claimed["rows"], found if field == _ROWS else found[3])
            for column, is_repeated in zip(found[1], repeated, strict=True) if field == _GROUPS else ():
                values, unpacked, widest = _claims(path, file, column[3], is_repeated)
                claimed["values in one column"] = max(claimed["values in one column"], values)
                longest = max(longest, widest)
                repeats = widest * min(batch, values)
                if unpacked > most_bytes(path) or repeats > max(8 * BATCH_BYTES, BOMB_RATIO * size):
                    unpacked = max(unpacked, repeats)
                    raise FadaError(
                        f"{path}: {size:,} bytes that unpack to {unpacked:,} in one column; not read, to be safe."
                    )
    what, most = max(claimed.items(), key=lambda claim: claim[1])
    if most > most_rows(size):
        raise FadaError(f"{path}: {size:,} bytes that claim {most:,} {what}; not read, to be safe.")
    return min(batch, max(BATCH_BYTES // longest, 1))


def stored_metadata(path: Path) -> dict[bytes, bytes]:
    """The keys and values that a parquet file was written with."""
    size = path.stat().st_size
    stored: dict[bytes, bytes] = {}
    with path.open("rb") as file:
        for field, one in _footer(path, file, size):
            if field == _METADATA and isinstance(one, dict):
                key, value = one.get(1), one.get(2, b"")
                if isinstance(key, bytes) and isinstance(value, bytes):
                    stored[key] = value
    return stored


def _footer(path: Path, file: BinaryIO, size: int, columns: int | None = None) -> Iterator[tuple[int, Any]]:
    """The fields of FileMetaData, of lists their items one by one; everything that is used is there and of its type.

    Args:
        columns: how many every row group has to have.
    """
    try:
        file.seek(size - 8)
        length = int.from_bytes(file.read(4), "little")
        if file.read(4) != b"PAR1":
            raise ValueError("no PAR1 at the end")
        file.seek(size - 8 - length)
        rows = None
        for field, found in _Thrift(file.read(length)).fields(divided=(_GROUPS, _METADATA)):
            if field == _GROUPS:
                numbers = [found[3]]
                if columns is not None and len(found[1]) != columns:
                    raise ValueError(f"{len(found[1])} columns in a row group of {columns}")
                for column in found[1]:
                    numbers += [column[3][field] for field in (5, 6, 7, 9)]
                    numbers.append(column[3].get(11, 0))
                sum(numbers)
            elif field == _ROWS:
                rows = sum([found])
            yield field, found
        if rows is None:
            raise ValueError("no number of rows")
    except (LookupError, TypeError, ValueError, AttributeError, OSError) as error:
        raise FadaError(f"{path}: not a readable parquet file (its footer is damaged: {error}).") from None


def _claims(path: Path, file: BinaryIO, column: _Struct, repeated: bool) -> tuple[int, int, int]:
    """Values of a column chunk, the bytes that its pages may unpack to, and those of the longest value that repeats."""
    values, unpacked, widest, pages = column[5], column[6], 0.0, 0
    for number, page in enumerate(_pages(file, column)):
        if number == PAGES:
            raise FadaError(f"{path}: a column of more than {PAGES:,} pages in one row group; not read, to be safe.")
        header: _Struct = next((page[field] for field in (5, 7, 8) if field in page), {})
        count = max(header.get(1, 0), 0)
        pages += page[2]
        if page[1] == _DICTIONARY_PAGE:
            widest = max(widest, page[2] / max(count, 1) if repeated else page[2])
        else:
            values = max(values, count)
            if _DELTA_BYTE_ARRAY in (header.get(2), header.get(4)):  # a value repeats the beginning of the one before
                widest = max(widest, page[2])
    return values, max(unpacked, pages, round(widest * values) if repeated else 0), round(widest)


def _pages(file: BinaryIO, column: _Struct) -> Iterator[_Struct]:
    """The headers of pages, up to one that is damaged: Arrow tells of it when the rows are read."""
    at = min(column[9], column.get(11) or column[9])
    end = at + column[7]
    while 0 <= at < end:
        if (page := _header(file, at, end)) is None:
            return
        yield page
        at = page[0]


def _header(file: BinaryIO, at: int, end: int) -> _Struct | None:
    """The header of the page at a place of the file, with the place behind the page as its field 0."""
    for size in _HEADERS:
        file.seek(at)
        thrift = _Thrift(file.read(min(size, end - at)))
        try:
            page = thrift.struct()
            page[0] = at + thrift.at + max(page[3], 0)
            sum([page[1], page[2], *(page[field].get(1, 0) for field in (5, 7, 8) if field in page)])
            return page
        except (LookupError, TypeError, ValueError, AttributeError):
            continue
    return None


class _Thrift:
    """The compact protocol: structs are dicts by the number of the field; LookupError or ValueError where it breaks."""

    def __init__(self, data: bytes) -> None:
        self.data, self.at = data, 0

    def struct(self, depth: int = 0) -> _Struct:
        if depth > _DEPTH:
            raise ValueError("nested too deeply")
        return dict(self.fields(depth=depth))

    def fields(self, divided: Sequence[int] = (), depth: int = 0) -> Iterator[tuple[int, Any]]:
        """The fields of a struct; of lists in the fields `divided` each item on its own."""
        field = 0
        while byte := self._byte():
            field = field + (byte >> 4) if byte >> 4 else self._number()
            kind = byte & 15
            if field in divided and kind in (9, 10):
                for item in self._items(depth):
                    yield field, item
            else:
                yield field, kind == 1 if kind in (1, 2) else self._value(kind, depth)

    def _items(self, depth: int) -> Iterator[Any]:
        byte = self._byte()
        count = self._varint() if byte >> 4 == 15 else byte >> 4
        for _ in range(self._possible(count)):
            yield self._value(byte & 15, depth + 1)

    def _value(self, kind: int, depth: int) -> Any:
        match kind:
            case 1 | 2 | 3:
                return self._byte()
            case 4 | 5 | 6:
                return self._number()
            case 7:
                return self._bytes(8)
            case 8:
                return self._bytes(self._varint())
            case 9 | 10:
                return list(self._items(depth))
            case 11:
                count = self._possible(self._varint())
                kinds = self._byte() if count else 0
                return [(self._value(kinds >> 4, depth + 1), self._value(kinds & 15, depth + 1)) for _ in range(count)]
            case 12:
                return self.struct(depth + 1)
            case 13:
                return self._bytes(16)
        raise ValueError(f"no type has the number {kind}")

    def _byte(self) -> int:
        self.at += 1
        return self.data[self.at - 1]

    def _bytes(self, size: int) -> bytes:
        self.at += self._possible(size)
        return self.data[self.at - size : self.at]

    def _possible(self, count: int) -> int:
        if count > len(self.data) - self.at:
            raise ValueError(f"{count:,} claimed where {len(self.data) - self.at:,} bytes are left")
        return count

    def _varint(self) -> int:
        value = shift = 0
        while shift < 70:
            byte = self._byte()
            value |= (byte & 127) << shift
            if byte < 128:
                return value
            shift += 7
        raise ValueError("a number of more than ten bytes")

    def _number(self) -> int:
        value = self._varint()
        return (value >> 1) ^ -(value & 1)
