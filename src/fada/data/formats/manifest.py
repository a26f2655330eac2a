"""CSV, TSV and JSONL manifests: a line a row, files named relative to the manifest; read in constant memory."""

import csv
import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from tempfile import TemporaryFile
from typing import Any, TextIO

from fada.common.files import text_file
from fada.common.scratch import Waiting
from fada.common.tables import open_table
from fada.data.formats.text import one_line
from fada.data.line import Line, LineSet, Log, Provenance, Transcription, column_names, split_of
from fada.data.places import LINK_OUTSIDE
from fada.data.reading import Reading
from fada.data.rows import TableLines, headerless


def open(source: Path, files: list[Path], reading: Reading) -> LineSet:
    """The rows of one or several manifests."""
    base = reading.base_of(source)

    def read(log: Log, media: bool) -> Iterator[Line]:
        for file in files:
            if not base.holds(file):
                log.skip(base.name(file), LINK_OUTSIDE)
                continue
            split = split_of(file.name) if source.is_dir() else None
            with open_table(file, encoding=reading.encoding, headerless=headerless(reading), ragged=True) as table:
                yield from TableLines(file, base, split, reading, log, media).of(table)

    return LineSet(read, str(source))


def write(results: Iterable[Transcription], destination: Path, *, format: str, provenance: Provenance) -> list[Path]:
    """A row for each transcription: `tsv`, `csv` or `jsonl`."""
    with text_file(destination) as opened:
        if format == "jsonl":
            _write_json(results, opened)
        else:
            _write_table(results, opened, "excel-tab" if format == "tsv" else "excel")
    return [destination]


def columns_of(result: Transcription) -> dict[str, Any]:
    """A transcription as columns; further ones of the same names are renamed."""
    line, extra = result.line, dict(result.extra)
    own = {
        "id": result.id,
        "text": result.text,
        "confidence": extra.pop("confidence", None) if result.confidence is None else result.confidence,
        "domain": None if line is None else line.domain,
        "source": None if line is None else line.source,
    }
    return own | {new: extra[name] for name, new in column_names(own, extra).items()}


def _write_json(results: Iterable[Transcription], opened: TextIO) -> None:
    for result in results:
        row = columns_of(result)
        for name in ("word_confidences", "char_confidences", "edges"):
            if (values := getattr(result, name)) is not None:
                row[name] = [float(value) for value in values]
        opened.write(json.dumps(row, ensure_ascii=False, default=str) + "\n")


def _write_table(results: Iterable[Transcription], opened: TextIO, dialect: str) -> None:
    """Which columns there are is known after the last row: until then the rows wait on disk."""
    names: dict[str, None] = {}
    with TemporaryFile() as file:
        rows = Waiting[dict[str, Any]](file)
        for result in results:
            row = {key: _cell(value) for key, value in columns_of(result).items()}
            names |= dict.fromkeys(row)
            rows.add(row)
        fields = list(names or columns_of(Transcription("", "")))
        writer = csv.DictWriter(opened, fields, dialect=dialect, lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)


def _cell(value: Any) -> Any:
    if isinstance(value, list | dict):
        return json.dumps(value, ensure_ascii=False, default=str)
    return one_line(value) if isinstance(value, str) else value
