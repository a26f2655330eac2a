"""Parquet and Arrow tables in the convention of Hugging Face `datasets`: read by batches, written with features."""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from itertools import islice
from pathlib import Path
from tempfile import TemporaryFile
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from fada._version import __version__
from fada.common.files import replacing
from fada.common.parquet import stored_metadata
from fada.common.scratch import Waiting
from fada.common.tables import BATCH, arrow_table, open_table
from fada.data.formats.manifest import columns_of
from fada.data.images import png
from fada.data.line import (
    SPLITS,
    Line,
    LineSet,
    Log,
    PathLike,
    Provenance,
    Transcription,
    canonical_split,
    column_names,
    nothing_to_write,
    split_of,
)
from fada.data.places import Base
from fada.data.reading import Reading
from fada.data.rows import TableLines
from fada.errors import FadaError, needing

GROUP_BYTES, GROUP_BATCHES = 2**22, 64
"""A row group is written when it has so many bytes, or batches of rows."""

_MEDIA = pa.struct([("bytes", pa.binary()), ("path", pa.string())])
_FIXED = ("image", "audio", "text", "domain", "id")


# --- reading ---------------------------------------------------------------------------------------------------------


def open(source: Path, files: list[Path], reading: Reading) -> LineSet:
    """The rows of parquet or Arrow files; where some files are named by splits, only those are read."""
    splits = {file: split_of(file.relative_to(source)) if source.is_dir() else None for file in files}
    files = sorted(files, key=lambda file: SPLITS.index(splits[file] or SPLITS[-1]))
    chosen, others = files, list[Path]()
    if source.is_dir() and any(splits.values()):
        chosen = [file for file in files if splits[file] and reading.split in (None, splits[file])]
        others = [file for file in files if not splits[file]]
        if not chosen:
            known = ", ".join(sorted({split for split in splits.values() if split}))
            raise FadaError(f"{source}: no split {reading.split!r}; there are: {known}.")
    base = reading.base_of(source)

    def read(log: Log, media: bool) -> Iterator[Line]:
        for file in others:
            log.note(f"{base.name(file)}: not one of the splits, not read; name the file to read it.")
        for file in chosen:
            name = base.name(file)
            with ExitStack() as stack:
                try:
                    table = stack.enter_context(open_table(file))
                except FadaError as error:
                    log.skip(name, str(error).removeprefix(f"{file}: "), "table cannot be read")
                    continue
                ids = Path(name).with_suffix("").as_posix()
                yield from TableLines(file, base, splits[file], reading, log, media, ids).of(table)

    about = [_about(file) for file in chosen]
    counts = [rows for *_, rows in about if rows is not None]
    return LineSet(
        read,
        str(source),
        expected=sum(counts) if len(counts) == len(about) else None,
        licence="\n".join(dict.fromkeys(licence for licence, *_ in about if licence)) or None,
        citation="\n".join(dict.fromkeys(citation for _, citation, _ in about if citation)) or None,
    )


def _about(file: Path) -> tuple[str, str, int | None]:
    """Licence, citation and number of rows that a file declares."""
    try:
        with open_table(file) as table:
            return str(table.info.get("license") or ""), str(table.info.get("citation") or ""), table.count
    except FadaError:
        return "", "", None  # told when it is read


def open_hub(name: str, reading: Reading) -> LineSet:
    """The rows of a data set on the Hugging Face hub, downloaded and cached by `datasets`."""
    with needing("datasets", "hub", "reading from the Hugging Face hub"):
        import datasets
    name, _, config = name.partition("@")
    try:
        loaded = datasets.load_dataset(name, config or None)
    except Exception as error:  # the hub client raises many kinds, all of them about the name or the network
        raise FadaError(
            f"hub:{name}: the data set cannot be loaded ({type(error).__name__}: {error}). Is the name right "
            "(owner/name, or owner/name@configuration), and is the network allowed (HF_HUB_OFFLINE)?"
        ) from None
    parts = {canonical_split(str(split)): part for split, part in loaded.items()}
    if reading.split is not None:
        if reading.split not in parts:
            raise FadaError(f"hub:{name}: no split {reading.split!r}; there are: {', '.join(map(str, parts))}.")
        parts = {reading.split: parts[reading.split]}

    def read(log: Log, media: bool) -> Iterator[Line]:
        for split, part in parts.items():
            formatted = part.with_format("arrow")

            def batches(columns: Sequence[str], formatted: Any = formatted) -> Iterator[pa.RecordBatch]:
                for chunk in formatted.select_columns(list(columns)).iter(BATCH):
                    yield from chunk.to_batches()

            place = Path(f"{name}/{split}")
            table = arrow_table(place, part.features.arrow_schema, batches, part.num_rows)
            yield from TableLines(place, Base(place.parent), split, reading, log, media, str(split)).of(table)

    info = next(iter(parts.values())).info
    rows = sum(part.num_rows for part in parts.values())
    return LineSet(
        read, f"hub:{name}", expected=rows, licence=info.license or None, citation=(info.citation or "").strip() or None
    )


# --- writing ---------------------------------------------------------------------------------------------------------


def write(results: Iterable[Transcription], destination: Path, *, format: str, provenance: Provenance) -> list[Path]:
    """A table of the transcriptions, without images, that names what made it."""
    write_rows((columns_of(result) for result in results), destination, provenance.to_dict())
    return [destination]


def write_rows(rows: Iterable[Mapping[str, Any]], destination: Path, record: Mapping[str, Any]) -> None:
    """A table of the columns of transcriptions; `record` says what made it.

    Which columns there are, and of which types, is known after the last row: until then the rows wait on disk.
    """
    types: dict[str, pa.DataType] = {}
    with TemporaryFile() as file, replacing(destination) as temporary:
        waiting = Waiting[Mapping[str, Any]](file)
        for row in rows:
            _widen(types, row)
            waiting.add(row)
        if not types:
            _widen(types, columns_of(Transcription("", "")))
        types = _known(types)
        schema = pa.schema(list(types.items()), metadata={"fada": json.dumps(record, ensure_ascii=False)})
        cells = ({key: _cell(value, types[key]) for key, value in row.items()} for row in waiting)
        with pq.ParquetWriter(temporary, schema) as writer:
            groups = _RowGroups(writer)
            while batch := list(islice(cells, BATCH)):
                groups.add(pa.Table.from_pylist(batch, schema=schema))
            groups.close()


def write_parquet(
    lines: Iterable[Line], path: PathLike, *, licence: str | None = None, citation: str | None = None
) -> int:
    """Write lines as parquet in the convention of `datasets`, further columns included.

    Image files keep their bytes; lines cut out of pages are stored as grey PNG. The set's licence and citation
    go into the schema. A line whose image cannot be read is recorded in the set's `skipped`.

    Args:
        lines: a set, or any lines; they are gone through twice, first without images, to find the columns.
        path: a `.parquet` file, or a folder that gets one file per split.

    Returns:
        The number of lines written.
    """
    path = Path(path)
    lines = lines if isinstance(lines, LineSet) else LineSet.of(list(lines))
    licence, citation = licence or lines.licence, citation or lines.citation
    extra, fixed, splits = _survey(lines)
    schema = _schema(extra, fixed, licence, citation)
    to_file = path.suffix.lower() == ".parquet"
    files = {"": path} if to_file else {name: path / f"{name}.parquet" for name in splits}
    for file in () if to_file else path.glob("*.parquet"):
        if file in files.values() and not _is_ours(file):
            raise FadaError(f"{file}: is there already and was not written by fada. Choose another folder.")
        if split_of(file.name) and file not in files.values():
            raise FadaError(
                f"{file}: is there already and would be read along with the new {', '.join(sorted(splits))}; "
                "remove it, or choose another folder."
            )
    written = 0
    with ExitStack() as stack:
        writers = {
            split: stack.enter_context(pq.ParquetWriter(stack.enter_context(replacing(file)), schema))
            for split, file in files.items()
        }
        groups = {split: _RowGroups(writer) for split, writer in writers.items()}

        for line in lines:
            try:
                row = pa.Table.from_pylist([_row(line, extra, fixed)], schema=schema)
            except (FadaError, pa.ArrowException, ValueError, OverflowError, TypeError) as error:
                lines.skip(line, error)
                continue
            split = "" if to_file else line.split or "train"
            groups[split].add(row)
            written += 1
        for rows in groups.values():
            rows.close()
        if not written:
            raise nothing_to_write(lines, path)
    return written


class _RowGroups:
    """Rows on their way into a parquet file: groups so large that its list of them, which readers hold, stays short."""

    def __init__(self, writer: pq.ParquetWriter) -> None:
        self._writer = writer
        self._rows: list[pa.Table] = []
        self._count = 0
        self._packed: list[pa.Table] = []

    def add(self, rows: pa.Table) -> None:
        self._rows.append(rows)
        self._count += len(rows)
        if self._count >= BATCH:
            self._pack()
            if sum(table.nbytes for table in self._packed) >= GROUP_BYTES or len(self._packed) == GROUP_BATCHES:
                self.close()

    def _pack(self) -> None:
        if self._rows:
            self._packed.append(pa.concat_tables(self._rows).combine_chunks())
            self._rows, self._count = [], 0

    def close(self) -> None:
        """Write what waits."""
        self._pack()
        if self._packed:
            self._writer.write_table(pa.concat_tables(self._packed))
            self._packed = []


def _is_ours(file: Path) -> bool:
    try:
        return b"fada" in stored_metadata(file)
    except (FadaError, OSError):
        return False


def _survey(lines: LineSet) -> tuple[dict[str, pa.DataType], set[str], list[str]]:
    """The further columns with their types, which of the fixed ones there are, and the splits."""
    types: dict[str, pa.DataType] = {}
    fixed = {"text", "id"}
    splits: dict[str, None] = {}
    first = next(iter(lines), None)
    for line in lines.without_media() if first is not None else ():
        splits[line.split or "train"] = None
        fixed |= {name for name in ("image", "audio", "domain") if getattr(line, name) is not None}
        _widen(types, line.extra)
    if first is not None:
        fixed |= {name for name in ("image", "audio") if getattr(first, name) is not None}
    return _known(types), fixed, list(splits)


def _widen(types: dict[str, pa.DataType], row: Mapping[str, Any]) -> None:
    """Let the types of columns hold the values of one more row; text if no other type holds all of them."""
    for key, value in row.items():
        known = types.setdefault(key, pa.null())
        if value is None or pa.types.is_string(known):
            continue
        try:
            found = pa.scalar(value).type
            if found != known:
                both = [pa.schema([(key, kind)]) for kind in (known, found)]
                found = pa.unify_schemas(both, promote_options="permissive").field(0).type
        except (pa.ArrowException, ValueError, OverflowError, TypeError):
            found = pa.string()
        types[key] = pa.string() if "struct<>" in str(found) else found  # parquet has no place for an empty struct


def _known(types: Mapping[str, pa.DataType]) -> dict[str, pa.DataType]:
    """The types, text for columns without any value."""
    return {key: pa.string() if pa.types.is_null(kind) else kind for key, kind in types.items()}


def _cell(value: Any, kind: pa.DataType) -> Any:
    """A value as its column takes it: in a column of text, lists and structures become JSON."""
    if value is None or isinstance(value, str) or not pa.types.is_string(kind):
        return value
    return json.dumps(value, ensure_ascii=False, default=str) if isinstance(value, list | dict) else str(value)


def _schema(extra: Mapping[str, pa.DataType], fixed: set[str], licence: str | None, citation: str | None) -> pa.Schema:
    kinds = {name: _MEDIA if name in ("image", "audio") else pa.string() for name in _FIXED if name in fixed}
    fields = [*kinds.items(), *((name, extra[key]) for key, name in column_names(_FIXED, extra).items())]
    info: dict[str, Any] = {"features": {name: _feature(name, kind) for name, kind in fields}}
    info |= {key: value for key, value in (("license", licence), ("citation", citation)) if value}
    made = {"made_by": f"fada {__version__}", "licence": licence, "citation": citation}
    return pa.schema(
        fields,
        metadata={
            "huggingface": json.dumps({"info": info}, ensure_ascii=False),
            "fada": json.dumps({key: value for key, value in made.items() if value}, ensure_ascii=False),
        },
    )


def _feature(name: str, kind: pa.DataType) -> Any:
    if kind == _MEDIA:
        return {"_type": "Image"} if name == "image" else {"sampling_rate": None, "_type": "Audio"}
    if pa.types.is_list(kind):
        return {"feature": _feature("", kind.value_type), "_type": "List"}
    if pa.types.is_struct(kind):
        return {field.name: _feature(field.name, field.type) for field in kind}
    names = {pa.float64(): "float64", pa.float32(): "float32"}
    return {"dtype": names.get(kind, str(kind)), "_type": "Value"}


def _row(line: Line, extra: Mapping[str, pa.DataType], fixed: set[str]) -> dict[str, Any]:
    row: dict[str, Any] = {name: getattr(line, name) for name in ("text", "domain", "id") if name in fixed}
    for key, name in column_names(_FIXED, extra).items():
        row[name] = _cell(line.extra.get(key), extra[key])
    for kind in ("image", "audio"):
        if kind in fixed:
            row[kind] = _encoded(line, kind)
        elif getattr(line, kind) is not None:
            raise FadaError(
                f"{line.source}: has {kind} while the first lines have none; write it to a file of its own."
            )
    return row


def _encoded(line: Line, kind: str) -> dict[str, Any] | None:
    value = getattr(line, kind)
    if value is None:
        return None
    if isinstance(value, bytes):
        return {"bytes": value, "path": None}
    if isinstance(value, str | Path):
        try:
            return {"bytes": Path(value).read_bytes(), "path": Path(value).name}
        except OSError as error:
            raise FadaError(f"{line.source}: the {kind} cannot be read ({error}).") from None
    return {"bytes": png(line.load_image()), "path": None}
