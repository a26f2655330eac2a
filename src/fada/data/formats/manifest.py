"""CSV, TSV and JSONL manifests: a line a row, files named relative to the manifest; read in constant memory."""

import codecs
import csv
import json
import os
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import Any

from fada.common.tables import delimited_rows
from fada.data.line import Line, LineSet, Log
from fada.data.source import (
    AUDIO_SUFFIXES,
    IMAGE_SUFFIXES,
    LINK_OUTSIDE,
    Base,
    Columns,
    Options,
    canonical_split,
    split_of,
)
from fada.errors import FadaError

_HEADERLESS = ("file", "text", "domain")
_UNDECODED = re.compile("[\\udc80-\\udcff]")  # what the error handler surrogateescape makes of bytes that are not text


def open_manifests(source: Path, files: list[Path], options: Options) -> LineSet:
    """The rows of one or several manifests."""
    base = Base.of(source, options)

    def read(log: Log, media: bool) -> Iterator[Line]:
        for file in files:
            split = split_of(file.name) if source.is_dir() else None
            if not base.holds(file):
                log.skip(base.name(file), LINK_OUTSIDE)
                continue
            try:
                yield from _read_manifest(file, base, split, options, log, media)
            except UnicodeDecodeError as error:
                log.skip(
                    file.name, f"the rest of the manifest cannot be decoded ({error})", "manifest cannot be decoded"
                )

    return LineSet(read, str(source))


def _read_manifest(
    file: Path, base: Base, split: str | None, options: Options, log: Log, media: bool
) -> Iterator[Line]:
    is_json = file.suffix.lower() in {".jsonl", ".ndjson"}
    number, name, folder = 0, base.name(file), os.fspath(file.parent)
    for number, row, columns in (_json_rows if is_json else _table_rows)(file, options, log):
        if line := _line(row, columns, name, folder, number, base, split, options, log, media):
            yield line
    if number == 0:
        log.skip(name, "the manifest has no rows")


def _only_present(options: Options, keys: Iterable[str]) -> Options:
    """JSON objects may lack a key that others have: a column asked for is then simply absent."""
    present = set(keys)
    return replace(options, columns={role: name for role, name in options.columns.items() if name in present})


def _line(
    row: Mapping[str, Any],
    columns: Columns,
    name: str,
    folder: str,
    number: int,
    base: Base,
    split: str | None,
    options: Options,
    log: Log,
    media: bool,
) -> Line | None:
    source = f"{name}:{number}"
    row_split = canonical_split(str(row.get(columns.split) or "")) if columns.split else None
    split = row_split or split
    if options.split not in (None, split):
        return None
    for value in row.values():
        if isinstance(value, str) and not value.isascii() and _UNDECODED.search(value):
            reason = f"the row is not {options.encoding or 'UTF-8'}"
            log.skip(source, f"{reason}; save the manifest as UTF-8 or name its encoding", reason)
            return None
    image = row.get(columns.image) if columns.image else None
    audio = row.get(columns.audio) if columns.audio else None
    if columns.file and (path := row.get(columns.file)):
        if str(path).lower().endswith(tuple(AUDIO_SUFFIXES)):
            audio = audio or path
        else:
            image = image or path
    place = str(image or audio or name)
    try:
        image = base.find(folder, str(image)) if image and media else None
        audio = base.find(folder, str(audio)) if audio and media else None
    except FadaError as error:
        log.skip(source, str(error), "file missing or outside of the folder")
        return None
    text = row.get(columns.text) if columns.text else None
    if text is None and place == name:
        log.skip(source, "no text, no image and no sound", "empty row")
        return None
    extra = {key: value for key, value in row.items() if key not in columns.consumed and key is not None}
    if split:
        extra["split"] = split
    return Line(
        id=columns.id_of(row, source),
        text=None if text is None else str(text),
        domain=options.domain_of(row.get(columns.domain) if columns.domain else None, place, extra, log),
        image=image,
        audio=audio,
        source=source,
        extra=extra,
    )


def _encoding(file: Path, options: Options) -> str:
    if options.encoding:
        return options.encoding
    with file.open("rb") as opened:
        start = opened.read(4)
    return "utf-16" if start.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)) else "utf-8-sig"


def _table_rows(file: Path, options: Options, log: Log) -> Iterator[tuple[int, dict[str, Any], Columns]]:
    """The rows of a CSV or TSV file with the numbers of the lines that they end on."""
    rows = _cells(file, options, log)
    number, first = next(rows, (0, []))
    if _is_header(first, options):
        header = [name.strip() for name in first]
    else:
        header = [*_HEADERLESS, *(f"column_{place}" for place in range(4, len(first) + 1))][: len(first)]
        rows = chain([(number, first)], rows)
    columns = Columns.detect(header, options, str(file))
    for number, cells in rows:
        if len(cells) > len(header):
            reason = f"{len(cells)} cells, expected {len(header)}; quote cells that hold the delimiter"
            log.skip(f"{file.name}:{number}", reason, "wrong number of cells")
            continue
        yield number, dict(zip(header, cells, strict=False)), columns


def _cells(file: Path, options: Options, log: Log) -> Iterator[tuple[int, list[str]]]:
    with _open(file, options) as opened:
        for number, row in delimited_rows(opened, file.suffix):
            if isinstance(row, csv.Error):
                reason = f"not CSV: {row}; is a quotation mark not closed, or not doubled?"
                log.skip(f"{file.name}:{number}", reason, "not CSV")
            elif row:
                yield number, row


def _open(file: Path, options: Options) -> Any:
    try:
        return file.open(encoding=_encoding(file, options), errors="surrogateescape", newline="")
    except LookupError as error:
        raise FadaError(f"{file}: {error}.") from None


def _is_header(cells: list[str], options: Options) -> bool:
    if any(options.columns.values()):
        return True
    return not any(Path(cell).suffix.lower() in IMAGE_SUFFIXES | AUDIO_SUFFIXES for cell in cells)


def _json_rows(file: Path, options: Options, log: Log) -> Iterator[tuple[int, dict[str, Any], Columns]]:
    known: tuple[str, ...] | None = None
    with _open(file, options) as opened:
        for number, line in enumerate(opened, 1):
            if not line.strip():
                continue
            try:
                row = json.loads(line)
            except (ValueError, RecursionError) as error:
                log.skip(f"{file.name}:{number}", f"not JSON ({error})", "not JSON")
                continue
            if not isinstance(row, dict):
                reason = f"expected an object, found {type(row).__name__}"
                log.skip(f"{file.name}:{number}", reason, "not a JSON object")
                continue
            if tuple(row) != known:
                known = tuple(row)
                columns = Columns.detect(known, _only_present(options, known), str(file))
            yield number, row, columns
