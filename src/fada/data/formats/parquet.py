"""Parquet and Arrow tables in the convention of Hugging Face `datasets`: read by batches, written with features."""

import io
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from fada._version import __version__
from fada.common.files import replacing
from fada.data.line import Line, LineSet, Log, PathLike, column_names, nothing_to_write
from fada.data.source import SPLITS, Base, Columns, Options, canonical_split, split_of
from fada.errors import FadaError

BATCH = 128
"""Rows that are in memory at a time, and rows in a row group that is written."""

_MEDIA = pa.struct([("bytes", pa.binary()), ("path", pa.string())])
_FIXED = ("image", "audio", "text", "domain", "id")


# --- reading ---------------------------------------------------------------------------------------------------------


def open_tables(source: Path, files: list[Path], options: Options) -> LineSet:
    """The rows of parquet or Arrow files; where some files are named by splits, only those are read."""
    splits = {file: split_of(file.relative_to(source)) if source.is_dir() else None for file in files}
    files = sorted(files, key=lambda file: SPLITS.index(splits[file] or SPLITS[-1]))
    chosen, others = files, list[Path]()
    if source.is_dir() and any(splits.values()):
        chosen = [file for file in files if splits[file] and options.split in (None, splits[file])]
        others = [file for file in files if not splits[file]]
        if not chosen:
            known = ", ".join(sorted({split for split in splits.values() if split}))
            raise FadaError(f"{source}: no split {options.split!r}; there are: {known}.")
    base = Base.of(source, options)

    def read(log: Log, media: bool) -> Iterator[Line]:
        for file in others:
            log.note(f"{base.name(file)}: not one of the splits, not read; name the file to read it.")
        for file in chosen:
            try:
                with ExitStack() as stack:
                    schema, batches = _batches(file, stack)
                    yield from _lines(schema, batches, file, base, splits[file], options, log, media)
            except (pa.ArrowException, OSError) as error:
                log.skip(base.name(file), f"the table cannot be read ({error})", "table cannot be read")

    licence, citation, rows = _about(chosen)
    return LineSet(read, str(source), expected=rows, licence=licence, citation=citation)


def _batches(file: Path, stack: ExitStack) -> tuple[pa.Schema, Any]:
    """The schema, and a function from column names to record batches."""
    if file.suffix.lower() == ".parquet":
        table = stack.enter_context(pq.ParquetFile(file))
        return table.schema_arrow, lambda columns: table.iter_batches(BATCH, columns=columns)
    mapped = stack.enter_context(pa.memory_map(str(file)))
    try:
        stream = stack.enter_context(pa.ipc.open_stream(mapped))
        return stream.schema, lambda columns: _slices(stream, columns)
    except pa.ArrowInvalid:
        mapped.seek(0)
        opened = stack.enter_context(pa.ipc.open_file(mapped))
        parts = (opened.get_batch(number) for number in range(opened.num_record_batches))
        return opened.schema, lambda columns: _slices(parts, columns)


def _slices(batches: Iterable[pa.RecordBatch], columns: list[str]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        for start in range(0, batch.num_rows, BATCH):
            yield batch.select(columns).slice(start, BATCH)


def _lines(
    schema: pa.Schema,
    batches: Any,
    file: Path,
    base: Base,
    split: str | None,
    options: Options,
    log: Log,
    media: bool,
) -> Iterator[Line]:
    features = _features(schema)
    columns = Columns.detect(schema.names, options, str(file), _kinds(schema, features))
    wanted = [name for name in schema.names if media or name not in columns.media]
    labels = labels_of(schema)
    name = base.name(file)
    number = 0
    for batch in batches(wanted):
        for row in _rows(batch):
            number += 1
            if isinstance(row, Exception):
                log.skip(f"{name}:{number}", f"the row cannot be read ({row})", "row cannot be read")
            elif line := _line(labelled(row, labels), columns, file, name, number, base, split, options, log, media):
                yield line


def _rows(batch: pa.RecordBatch) -> Iterator[dict[str, Any] | Exception]:
    """The rows of a batch; for one that holds a value that Python has none for, what is wrong with it."""
    try:
        yield from batch.to_pylist()
    except (pa.ArrowException, ValueError, OverflowError) as error:
        if batch.num_rows == 1:
            yield error
            return
        for place in range(batch.num_rows):
            yield from _rows(batch.slice(place, 1))


def _line(
    row: dict[str, Any],
    columns: Columns,
    file: Path,
    name: str,
    number: int,
    base: Base,
    split: str | None,
    options: Options,
    log: Log,
    media: bool,
) -> Line | None:
    source = f"{name}:{number}"
    stored = canonical_split(str(row.get(columns.split) or "")) if columns.split else None
    split = stored or split
    if options.split not in (None, split):
        return None
    place = name
    loaded: dict[str, Any] = {}
    for kind, column in (("image", columns.image), ("audio", columns.audio)):
        if column is None or not media:
            continue
        value, written = _payload(row.get(column))
        try:
            loaded[kind] = value if value is not None or not written else base.find(file.parent, written)
        except FadaError as error:
            log.skip(source, str(error), f"{kind} not found")
            return None
        place = written or place
        if loaded[kind] is None:
            log.skip(source, f"the {kind} is empty", f"{kind} is empty")
            return None
    text = row.get(columns.text) if columns.text else None
    if text is None and not columns.media:
        log.skip(source, "no text, no image and no sound", "empty row")
        return None
    extra = {key: value for key, value in row.items() if key not in columns.consumed}
    if split:
        extra["split"] = split
    return Line(
        id=columns.id_of(row, f"{Path(name).with_suffix('').as_posix()}:{number}"),
        text=None if text is None else str(text),
        domain=options.domain_of(row.get(columns.domain) if columns.domain else None, place, extra, log),
        image=loaded.get("image"),
        audio=loaded.get("audio"),
        source=source,
        extra=extra,
    )


def _payload(value: Any) -> tuple[bytes | None, str | None]:
    """The bytes and the path in a cell: a struct of both, bytes, or a path."""
    if isinstance(value, dict):
        return value.get("bytes"), value.get("path")
    if isinstance(value, bytes):
        return value, None
    return None, None if value is None else str(value)


def _metadata(schema: pa.Schema) -> dict[str, Any]:
    try:
        info = json.loads((schema.metadata or {}).get(b"huggingface", b"{}"))["info"]
    except (ValueError, TypeError, LookupError):
        return {}
    return info if isinstance(info, dict) else {}


def _features(schema: pa.Schema) -> dict[str, Any]:
    features = _metadata(schema).get("features")
    return features if isinstance(features, dict) else {}


def labels_of(schema: pa.Schema) -> dict[str, list[str]]:
    """The columns that hold numbers of labels (`ClassLabel`), with the labels."""
    return {
        key: feature["names"]
        for key, feature in _features(schema).items()
        if isinstance(feature, dict) and feature.get("_type") == "ClassLabel" and isinstance(feature.get("names"), list)
    }


def labelled(row: dict[str, Any], labels: Mapping[str, list[str]]) -> dict[str, Any]:
    """A row with labels in place of their numbers."""
    for key, names in labels.items():
        if isinstance(row.get(key), int) and 0 <= row[key] < len(names):
            row[key] = names[row[key]]
    return row


def _kinds(schema: pa.Schema, features: Mapping[str, Any]) -> dict[str, str]:
    declared = {
        name: feature["_type"].lower()
        for name, feature in features.items()
        if isinstance(feature, dict) and feature.get("_type") in ("Image", "Audio") and name in schema.names
    }
    return dict(reversed(declared.items()))


def _about(files: list[Path]) -> tuple[str | None, str | None, int | None]:
    """Licence, citation and number of rows that the files declare."""
    found: dict[str, list[str]] = {"license": [], "citation": []}
    rows: int | None = 0
    for file in files:
        try:
            with ExitStack() as stack:
                if file.suffix.lower() == ".parquet":
                    table = stack.enter_context(pq.ParquetFile(file))
                    schema = table.schema_arrow
                    rows = None if rows is None else rows + table.metadata.num_rows
                else:
                    schema, rows = _batches(file, stack)[0], None
        except (pa.ArrowException, OSError):
            continue  # told when it is read
        for key, values in found.items():
            if value := _metadata(schema).get(key):
                values.append(str(value))
    join = {key: "\n".join(dict.fromkeys(values)) or None for key, values in found.items()}
    return join["license"], join["citation"], rows


def open_hub(name: str, options: Options) -> LineSet:
    """The rows of a data set on the Hugging Face hub, downloaded and cached by `datasets`."""
    try:
        import datasets
    except ImportError:
        from fada.errors import missing_extra

        raise missing_extra("datasets", "hub", "reading from the Hugging Face hub") from None
    name, _, config = name.partition("@")
    try:
        loaded = datasets.load_dataset(name, config or None)
    except Exception as error:  # the hub client raises many kinds, all of them about the name or the network
        raise FadaError(
            f"hub:{name}: the data set cannot be loaded ({type(error).__name__}: {error}). Is the name right "
            "(owner/name, or owner/name@configuration), and is the network allowed (HF_HUB_OFFLINE)?"
        ) from None
    parts = {canonical_split(str(split)): part for split, part in loaded.items()}
    if options.split is not None:
        if options.split not in parts:
            raise FadaError(f"hub:{name}: no split {options.split!r}; there are: {', '.join(map(str, parts))}.")
        parts = {options.split: parts[options.split]}

    def read(log: Log, media: bool) -> Iterator[Line]:
        for split, part in parts.items():
            table = part.with_format("arrow")
            schema = part.features.arrow_schema

            def batches(columns: list[str], table: Any = table) -> Iterator[pa.RecordBatch]:
                for chunk in table.select_columns(columns).iter(BATCH):
                    yield from chunk.to_batches()

            place = Path(f"{name}/{split}")
            yield from _lines(schema, batches, place, Base(place.parent), split, options, log, media)

    info = next(iter(parts.values())).info
    rows = sum(part.num_rows for part in parts.values())
    return LineSet(
        read, f"hub:{name}", expected=rows, licence=info.license or None, citation=(info.citation or "").strip() or None
    )


# --- writing ---------------------------------------------------------------------------------------------------------


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
        waiting: dict[str, list[pa.Table]] = {split: [] for split in writers}

        def flush(split: str) -> None:
            writers[split].write_table(pa.concat_tables(waiting[split]))
            waiting[split].clear()

        for line in lines:
            try:
                row = pa.Table.from_pylist([_row(line, extra, fixed)], schema=schema)
            except (FadaError, pa.ArrowException, ValueError, OverflowError, TypeError) as error:
                lines.skip(line, error)
                continue
            split = "" if to_file else line.split or "train"
            waiting[split].append(row)
            written += 1
            if len(waiting[split]) == BATCH:
                flush(split)
        for split, rows in waiting.items():
            if rows:
                flush(split)
        if not written:
            raise nothing_to_write(lines, path)
    return written


def _is_ours(file: Path) -> bool:
    try:
        return b"fada" in (pq.read_schema(file).metadata or {})
    except (pa.ArrowException, OSError):
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


def table_of(rows: Sequence[Mapping[str, Any]]) -> pa.Table:
    """A table with the columns of all rows, in types that hold all their values."""
    types: dict[str, pa.DataType] = {}
    for row in rows:
        _widen(types, row)
    types = _known(types)
    cells = [{key: _cell(value, types[key]) for key, value in row.items()} for row in rows]
    return pa.Table.from_pylist(cells, schema=pa.schema(list(types.items())))


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
    return {"bytes": png(line), "path": None}


def png(line: Line) -> bytes:
    """The line's image as grey PNG."""
    buffer = io.BytesIO()
    line.load_image().save(buffer, "PNG")
    return buffer.getvalue()
