"""The one reader of tables: rows of parquet, Arrow, CSV, TSV and JSON Lines files, each with its place.

Everything is read in constant memory. What cannot be read is given as :class:`Damage` in its place and reading goes on
behind it; who wants all or nothing asks for :func:`whole`.
"""

import codecs
import csv
import io
import json
import os
import re
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from itertools import accumulate, chain, count
from pathlib import Path
from typing import Any, TypeAlias, cast

from fada.common.arrow import may_share, sound_batches, unpacked_bytes
from fada.common.kinds import name_of
from fada.common.parquet import BATCH_BYTES, most_bytes, refuse_bomb
from fada.common.settings import TwiceError, unique_keys
from fada.errors import FadaError

JSON_SUFFIXES = frozenset({".jsonl", ".ndjson"})
TEXT_SUFFIXES = frozenset({".csv", ".tsv"}) | JSON_SUFFIXES
SUFFIXES = frozenset({".parquet"}) | TEXT_SUFFIXES

BATCH = 128
"""Rows of parquet and Arrow files that are in memory at a time; they may hold images."""

ROW_BYTES = 2**30
"""A row of a parquet or Arrow file that would take more memory is not read."""

BUFFER = 2**16
"""Bytes of a column of a parquet file that are read at a time."""

CELL_CHARACTERS = 2**24
"""A quotation mark that is not closed within so many characters is a mistake."""

LOST = "rows cannot be read"
"""The kind of :class:`Damage` of a file that is damaged itself, whatever is in its rows."""

_BLOCK = 2**18


@dataclass(frozen=True, slots=True)
class Damage:
    """What stands in the place of rows that cannot be read.

    Attributes:
        reason: what is wrong and what to do.
        kind: the reason without its details, for counting.
        rows: how many are lost.
    """

    reason: str
    kind: str
    rows: int = 1


Row: TypeAlias = dict[str, Any]
"""A row that was read: whatever its cells hold, by the names of their columns."""
Cells: TypeAlias = dict[str, str | int | float | None]
"""A row to be shown: its cells by the heads of their columns."""
Placed: TypeAlias = tuple[int, Row | Damage]
"""A row, or what is wrong with it, and its number: of the line that it ends on in text, of the row in others."""

Headerless: TypeAlias = Callable[[list[str]], Sequence[str] | None]
"""Names for the columns if the first row of a CSV or TSV file is no header, None if it is one."""


@dataclass(frozen=True)
class Table:
    """A table that is open for reading.

    Attributes:
        rows: the rows, of the columns asked for (all if None).
        names: of the columns; None where every row has its own (JSON Lines).
        flat: the columns that hold plain values: no bytes, no images, nothing nested.
        info: what Hugging Face `datasets` stores with a table: features, licence, citation.
        count: number of rows, if the file tells it.
        embeds: whether images and sound may be in the table itself.
    """

    rows: Callable[[Sequence[str] | None], Iterator[Placed]]
    names: Sequence[str] | None
    flat: Sequence[str] = ()
    info: Mapping[str, Any] = field(default_factory=dict)
    count: int | None = None
    embeds: bool = False


@contextmanager
def open_table(
    path: str | os.PathLike[str],
    *,
    encoding: str | None = None,
    headerless: Headerless | None = None,
    ragged: bool = False,
    on_bytes: Callable[[int], object] | None = None,
) -> Iterator[Table]:
    """Open a table by its ending; CSV if it has none that is known.

    Args:
        encoding: of text; UTF-8, or UTF-16 if it says so, by default.
        headerless: decides whether the first row of a CSV or TSV file is a header; it is one by default.
        ragged: whether rows of CSV and TSV may lack cells at their end.
        on_bytes: called with the number of bytes read, now and then, for a progress bar.
    """
    path = Path(path)
    suffix = path.suffix.lower()
    with ExitStack() as stack:
        if suffix in (".parquet", ".arrow"):
            yield (_parquet if suffix == ".parquet" else _arrow)(path, stack, on_bytes)
            return
        stream = stack.enter_context(_text(path, encoding, on_bytes))
        expected = encoding or "UTF-8"
        if kind := name_of(cast(io.BufferedReader, stream.buffer).peek(16)):
            other = Damage(f"this is {kind}, expected a table (CSV, TSV, JSON Lines)", "not a table", 0)
            yield Table(lambda columns: iter([(0, other)]), [])
        elif suffix in JSON_SUFFIXES:
            yield Table(lambda columns: _decodable(_json_rows(stream, expected), expected), None)
        else:
            yield _delimited(stream, suffix, expected, headerless, ragged)


def read_rows(path: str | os.PathLike[str], columns: Sequence[str] | None = None, **options: Any) -> Iterator[Placed]:
    """The rows of a table; options as in :func:`open_table`."""
    with open_table(path, **options) as table:
        yield from table.rows(columns)


def whole(path: str | os.PathLike[str], rows: Iterable[Placed]) -> Iterator[tuple[int, Row]]:
    """The rows; FadaError at the first that cannot be read."""
    for number, row in rows:
        if isinstance(row, Damage):
            raise FadaError(f"{place(path, number)}: {row.reason}.")
        yield number, row


def place(path: str | os.PathLike[str], number: int) -> str:
    """How messages name a row."""
    unit = "row" if Path(path).suffix.lower() in (".parquet", ".arrow") else "line"
    return f"{path}, {unit} {number}" if number else str(path)


def read_columns(path: str | os.PathLike[str], **options: Any) -> dict[str, list[Any]]:
    """All columns of a table; bytes, images and nested values of parquet are left out. FadaError if a row is broken.

    Args:
        options: as in :func:`open_table`.
    """
    with open_table(path, **options) as table:
        if table.names is not None:
            columns: dict[str, list[Any]] = {name: [] for name in table.flat or table.names}
            for _, row in whole(path, table.rows([*columns])):
                for name, values in columns.items():
                    values.append(row.get(name))
            return columns
        rows = [row for _, row in whole(path, table.rows(None))]
        return {name: [row.get(name) for row in rows] for name in dict.fromkeys(key for row in rows for key in row)}


# --- text ------------------------------------------------------------------------------------------------------------


class _Counted(io.FileIO):
    """A file that tells how many bytes are read from it."""

    on_bytes: Callable[[int], object]

    def readinto(self, buffer: Any) -> int | None:
        size = super().readinto(buffer)
        self.on_bytes(size or 0)
        return size


def _text(path: Path, encoding: str | None, on_bytes: Callable[[int], object] | None) -> io.TextIOWrapper:
    try:
        raw = _Counted(path) if on_bytes else io.FileIO(path)
    except OSError as error:
        raise FadaError(f"{path}: cannot be read: {error.strerror}.") from None
    if isinstance(raw, _Counted) and on_bytes:
        raw.on_bytes = on_bytes
    buffer = io.BufferedReader(raw, _BLOCK)
    marked = buffer.peek(2)[:2] in (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)
    try:
        return io.TextIOWrapper(
            buffer, encoding or ("utf-16" if marked else "utf-8-sig"), errors="surrogateescape", newline=""
        )
    except LookupError as error:
        raise FadaError(f"{path}: {error}.") from None


def encoding_advice(expected: str) -> str:
    """What to do about bytes that are not text in the encoding expected."""
    return (
        f"not {expected}; save it as UTF-8, or name its encoding: --encoding latin-1, or cp1252 if it was made on "
        "Windows"
    )


def _is_text(decoded: str) -> bool:
    """Whether no byte was undecodable, which the error handler surrogateescape makes half of a surrogate pair of."""
    try:
        decoded.encode()
    except UnicodeEncodeError:
        return False
    return True


def _undecoded(expected: str) -> Damage:
    return Damage(encoding_advice(expected), f"not {expected}")


def _decodable(rows: Iterator[Placed], expected: str) -> Iterator[Placed]:
    """The rows up to where the encoding, such as UTF-16, makes no sense any more."""
    number = 0
    try:
        for number, row in rows:
            yield number, row
    except UnicodeError as error:
        yield number + 1, Damage(f"the rest cannot be decoded ({error}); {encoding_advice(expected)}", "not decodable")


def _delimited(
    stream: io.TextIOWrapper, suffix: str, expected: str, headerless: Headerless | None, ragged: bool
) -> Table:
    rows = delimited_rows(stream, suffix)
    header: list[str] = []
    first: list[Placed] = []
    try:
        for number, cells in rows:
            if isinstance(cells, csv.Error):
                first.append((number, _not_csv(cells)))
            elif cells:
                names = headerless(cells) if headerless else None
                header = [*names] if names is not None else [name.strip() for name in cells]
                rows = chain([(number, cells)], rows) if names is not None else rows
                break
    except UnicodeError as error:
        first.append((1, Damage(f"cannot be decoded ({error}); {encoding_advice(expected)}", "not decodable")))
    header = [name or f"column_{place}" for place, name in enumerate(header, 1)]
    if twice := next((name for name in header if header.count(name) > 1), None):
        first.append((0, Damage(f"the column {twice!r} stands twice; rename one of the two", "column stands twice", 0)))
    if not header and not first:
        first.append((0, Damage("empty, expected a header line with the names of the columns", "empty table", 0)))

    def read(columns: Sequence[str] | None) -> Iterator[Placed]:
        yield from first
        if header and not twice:
            yield from _decodable(_cells(rows, header, expected, ragged), expected)

    return Table(read, header)


def _not_csv(error: csv.Error) -> Damage:
    return Damage(f"not CSV ({error}): is a quotation mark not closed, or not doubled?", "not CSV")


def _cells(
    rows: Iterable[tuple[int, list[str] | csv.Error]], header: list[str], expected: str, ragged: bool
) -> Iterator[Placed]:
    width = len(header)
    for number, cells in rows:
        if isinstance(cells, csv.Error):
            yield number, _not_csv(cells)
            continue
        if not cells:
            if width > 1 or ragged:
                continue
            cells = [""]
        if len(cells) > width or (len(cells) < width and not ragged):
            reason = f"{len(cells)} cells, expected {width} ({', '.join(header)[:80]})"
            if len(cells) > width:
                reason += "; quote cells that hold the delimiter"
            yield number, Damage(reason, "wrong number of cells")
            continue
        for cell in cells:
            if not cell.isascii() and not _is_text(cell):
                yield number, _undecoded(expected)
                break
        else:
            yield number, dict(zip(header, cells, strict=False))


def delimited_rows(stream: Iterable[str], suffix: str) -> Iterator[tuple[int, list[str] | csv.Error]]:
    """The rows of CSV or TSV with the number of the line that each ends on; for one that is not CSV, what is wrong.

    A TSV file has a row a line; quotation marks are text, unless they enclose a cell as spreadsheets write it. In CSV,
    the delimiter is the most frequent one in the first line, outside of quotation marks. After a row that is wrong,
    such as one whose quotation mark is never closed, reading goes on with the next line.

    Args:
        stream: the lines with their ends.
        suffix: `.tsv` for TSV; anything else is CSV.
    """
    lines = iter(stream)
    if suffix.lower() == ".tsv":
        for number, line in enumerate(lines, 1):
            cells = line.rstrip("\r\n").split("\t")
            if '"' in line:
                cells = [_unquoted(cell) for cell in cells]
            yield number, cells if any(cells) or len(cells) > 1 else []
        return
    csv.field_size_limit(CELL_CHARACTERS)
    first = next(lines, "")
    delimiter = max(",;\t|", key=re.sub(r'"[^"]*"?', "", first).count)
    ahead, row = deque([first] if first else []), list[str]()

    def physical_lines() -> Iterator[str]:
        while (line := ahead.popleft() if ahead else next(lines, None)) is not None:
            row.append(line)
            yield line

    number = 0
    while True:
        reader = csv.reader(physical_lines(), delimiter=delimiter, strict=True)
        try:
            for cells in reader:
                number += len(row)
                row.clear()
                yield number, cells
            return
        except csv.Error as error:
            number += 1
            ahead.extendleft(reversed(row[1:]))
            row.clear()
            yield number, error


def _unquoted(cell: str) -> str:
    """A TSV cell without the quotation marks that spreadsheets put around some cells; a lone mark is text."""
    inner = cell[1:-1]
    if len(cell) >= 2 and cell[0] == cell[-1] == '"' and '"' not in inner.replace('""', ""):
        return inner.replace('""', '"')
    return cell


_DECODER = json.JSONDecoder(object_pairs_hook=unique_keys)


def _json_rows(stream: Iterable[str], expected: str) -> Iterator[Placed]:
    for number, line in enumerate(stream, 1):
        if line.isspace():
            continue
        if not line.isascii() and not _is_text(line):
            yield number, _undecoded(expected)
            continue
        try:
            row = json.loads(line)
            if isinstance(row, dict) and line.count(":") > len(row):  # a key may stand twice; the last one was kept
                row = _DECODER.decode(line)
        except TwiceError as error:
            yield number, Damage(str(error), "key stands twice")
        except (ValueError, RecursionError) as error:
            yield number, Damage(f"not JSON ({error})", "not JSON")
        else:
            if isinstance(row, dict):
                yield number, row
            else:
                found = f'expected a JSON object like {{"text": …}}, found {type(row).__name__}'
                yield number, Damage(found, "not a JSON object")


# --- parquet and Arrow ------------------------------------------------------------------------------------------------


def _parquet(path: Path, stack: ExitStack, on_bytes: Callable[[int], object] | None) -> Table:
    import pyarrow as pa

    try:
        file, leaves = _opened_parquet(path, stack)
    except (pa.ArrowException, OSError, UnicodeError) as error:
        raise _unreadable(path, error) from None
    rows = refuse_bomb(path, BATCH, [leaf.max_repetition_level > 0 for leaf in leaves])
    ends = list(accumulate(file.metadata.row_group(group).num_rows for group in range(file.num_row_groups)))
    size = path.stat().st_size / max(file.metadata.num_rows, 1)

    def batches(columns: Sequence[str], group: int, after: int) -> Iterator[Any]:
        """The batches from a row group on; behind the first error, every row group on its own."""
        read = after
        try:
            groups = range(group, len(ends))
            for batch in file.iter_batches(rows, columns=columns, row_groups=groups, use_threads=False):
                yield batch
                read += len(batch)
                if on_bytes:
                    on_bytes(round(size * len(batch)))
            return
        except (pa.ArrowException, OSError) as error:
            damaged = next((place for place in range(group, len(ends)) if read < ends[place]), len(ends) - 1)
            first = error
        while damaged < len(ends):
            start = ends[damaged - 1] if damaged else 0
            skip, problem = read - start, first
            try:
                for batch in file.iter_batches(rows, columns=columns, row_groups=[damaged], use_threads=False):
                    part = batch.slice(skip)
                    skip = max(skip - len(batch), 0)
                    if len(part):
                        yield part
                        read += len(part)
            except (pa.ArrowException, OSError) as error:
                problem = error
            if read < ends[damaged]:
                lost, told = ends[damaged] - read, " ".join(str(problem).split())
                yield Damage(f"{lost} rows from here on cannot be read ({told})", LOST, lost)
                read = ends[damaged]
            damaged += 1

    def bounded(columns: Sequence[str]) -> Iterator[Any]:
        """The batches, as long as they are no more than a file of this size holds."""
        read, left = 0, most_bytes(path)
        for batch in batches(columns, 0, 0):
            read += batch.rows if isinstance(batch, Damage) else len(batch)
            left -= 0 if isinstance(batch, Damage) else unpacked_bytes(batch)
            yield batch
            if left < 0 and read < ends[-1]:
                told = f"the {ends[-1] - read:,} rows from here on are not read, to be safe: too much for its size"
                yield Damage(told, LOST, ends[-1] - read)
                return

    return arrow_table(path, file.schema_arrow, bounded, file.metadata.num_rows)


def _opened_parquet(path: Path, stack: ExitStack) -> tuple[Any, list[Any]]:
    """A parquet file, not the whole of it, and its columns; of texts in lists, those that repeat are read once."""
    import pyarrow.parquet as pq

    def opened(**options: Any) -> Any:
        return stack.enter_context(pq.ParquetFile(path, pre_buffer=False, buffer_size=BUFFER, **options))

    file = opened()
    leaves = [file.schema.column(leaf) for leaf in range(len(file.schema))]
    lists = [leaf.path for leaf in leaves if leaf.max_repetition_level and leaf.physical_type == "BYTE_ARRAY"]
    return opened(metadata=file.metadata, read_dictionary=lists) if lists else file, leaves


def _arrow(path: Path, stack: ExitStack, on_bytes: Callable[[int], object] | None) -> Table:
    import pyarrow as pa

    try:
        opened = stack.enter_context(pa.OSFile(str(path)))
        try:
            stream = stack.enter_context(pa.ipc.open_stream(opened))
            schema, parts = stream.schema, iter(stream)
        except pa.ArrowInvalid:
            opened.seek(0)
            file = stack.enter_context(pa.ipc.open_file(opened))
            schema, parts = file.schema, (file.get_batch(place) for place in range(file.num_record_batches))
    except (pa.ArrowException, OSError, SystemError) as error:
        raise _unreadable(path, error) from None
    sound, damage = sound_batches(path)

    def batches(columns: Sequence[str]) -> Iterator[Any]:
        left = most_bytes(path)
        for place in count():
            try:
                if damage and place == sound:
                    raise pa.ArrowInvalid(damage)
                batch = next(parts, None)
                if batch is None:
                    return
                batch.validate(full=True)  # a damaged offset would be followed anywhere in memory
            except (pa.ArrowException, OSError, SystemError, StopIteration) as error:
                yield Damage(f"the rest of the table cannot be read ({error})", LOST)
                return
            chosen = batch.select(columns)
            longest = sum(column.get_total_buffer_size() for column in chosen.columns if may_share(column.type))
            step = min(BATCH, max(BATCH_BYTES // max(longest, 1), 1))
            for start in range(0, batch.num_rows, step):
                if left < 0:
                    yield Damage("the rows from here on are not read, to be safe: too much for its size", LOST)
                    return
                yield (part := chosen.slice(start, step))
                left -= unpacked_bytes(part)

    return arrow_table(path, schema, batches, None)


def arrow_table(
    path: str | os.PathLike[str], schema: Any, batches: Callable[[Sequence[str]], Iterator[Any]], count: int | None
) -> Table:
    """A table of Arrow batches; numbers of labels (`ClassLabel`) are replaced by the labels.

    Args:
        batches: from names of columns to record batches, or Damage where one cannot be read.
    """
    try:
        names, info = schema.names, _info(schema)
    except UnicodeDecodeError as error:
        raise _unreadable(Path(path), f"the name of a column is not UTF-8: {error}") from None
    if twice := next((name for name in names if names.count(name) > 1), None):
        raise FadaError(f"{path}: the column {twice!r} stands twice. Rename one of the two.")
    labels = _labels(info)

    def read(columns: Sequence[str] | None) -> Iterator[Placed]:
        number = 0
        for batch in batches(names if columns is None else columns):
            if isinstance(batch, Damage):
                yield number + 1, batch
                number += batch.rows
                continue
            for row in _python_rows(batch):
                number += 1
                yield number, _labelled(row, labels) if labels and isinstance(row, dict) else row

    flat = [name for name, kind in zip(names, schema.types, strict=True) if _is_flat(kind)]
    return Table(read, names, flat, info, count, embeds=True)


def _is_flat(kind: Any) -> bool:
    import pyarrow.types as types

    return not (types.is_nested(kind) or types.is_binary(kind) or types.is_large_binary(kind))


def _unreadable(path: Path, error: object) -> FadaError:
    return FadaError(f"{path}: not a readable {path.suffix[1:].lower()} file ({error}).")


def _python_rows(batch: Any) -> Iterator[Row | Damage]:
    """The rows of a batch; for one that holds too much, or a value that Python has none for, what is wrong with it."""
    import pyarrow as pa

    alone = batch.num_rows == 1
    size = unpacked_bytes(batch)
    if alone and size > ROW_BYTES:
        yield Damage(f"the row unpacks to {size:,} bytes; not read, to be safe", "row unpacks to too much")
        return
    try:
        if alone or size <= BATCH_BYTES:
            yield from batch.to_pylist()
            return
    except (pa.ArrowException, ValueError, OverflowError) as error:
        if alone:
            yield Damage(f"the row cannot be read ({error})", "row cannot be read")
            return
    for row in range(batch.num_rows):
        yield from _python_rows(batch.slice(row, 1))


def _info(schema: Any) -> dict[str, Any]:
    try:
        info = json.loads((schema.metadata or {}).get(b"huggingface", b"{}"))["info"]
    except (ValueError, TypeError, LookupError, RecursionError):
        return {}
    return info if isinstance(info, dict) else {}


def features(info: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """The columns that the features of a `datasets` table describe."""
    found = info.get("features")
    return {name: one for name, one in found.items() if isinstance(one, dict)} if isinstance(found, dict) else {}


def _labels(info: Mapping[str, Any]) -> dict[str, list[str]]:
    return {
        name: feature["names"]
        for name, feature in features(info).items()
        if feature.get("_type") == "ClassLabel" and isinstance(feature.get("names"), list)
    }


def _labelled(row: Row, labels: Mapping[str, list[str]]) -> Row:
    for key, names in labels.items():
        if isinstance(row.get(key), int) and 0 <= row[key] < len(names):
            row[key] = names[row[key]]
    return row
