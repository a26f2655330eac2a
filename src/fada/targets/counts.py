"""Bodies of text as streams of (domain, text): folders, files, tables and standard input, in constant memory."""

import codecs
import csv
import glob
import io
import json
import os
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO

from fada.common.tables import delimited_rows
from fada.data.source import XML_FOLDERS, domain_name, usual_column
from fada.errors import FadaError

Pair = tuple[str, str]

STANDARD_INPUT = "-"
TEXT_SUFFIXES = (".txt", ".text")
TABLE_SUFFIXES = (".csv", ".tsv", ".jsonl", ".ndjson", ".parquet")
_BLOCK = 1 << 20
XML_SUFFIX = ".xml"
_MARKUP = (".html", ".htm", ".json", ".pdf", ".docx", ".odt", ".gz", ".zip")


@dataclass(frozen=True)
class Source:
    """A file to read, and the folder it was found in when a folder was named; a folder of XML is read as one."""

    path: Path
    folder: Path | None = None

    @property
    def size(self) -> int:
        """Bytes."""
        return sum(file.stat().st_size for file in _xml_files(self.path)) or self.path.stat().st_size


@dataclass(frozen=True)
class Corpus:
    """A body of text: iterate over it, as often as needed, for its (domain, text) pairs, one per line or table row.

    Args:
        sources: files, folders (searched for text files and tables; those without for ALTO and PAGE files), glob
            patterns, or ``-`` for standard input.
        domain: one domain for everything; otherwise it comes from `domain_column` or `domain_from`.
        domain_from: ``folder``: the folder below the one named, or the one a file lies in; ``file``: the file name
            without its endings; else a regular expression searched in the path, whose first group is the domain.
        text_column, domain_column: of tables (CSV, TSV, JSONL, parquet). Without a `domain_column`, a column called
            ``domain``, ``century``, ``accent`` or ``period`` is used if there is one, otherwise `domain_from`.
        on_bytes: called with the number of bytes read, now and then, for a progress bar.
        notes: what was left out, and why, is added here.
    """

    sources: Sequence[str | os.PathLike[str]]
    domain: str | None = None
    domain_from: str = "folder"
    text_column: str = "text"
    domain_column: str | None = None
    on_bytes: Callable[[int], object] = lambda size: None
    notes: list[str] = field(default_factory=list)

    def files(self) -> list[Source]:
        """The files behind the sources, each once, in a fixed order; standard input is not among them."""
        found: dict[Path, Source] = {}
        for source in self.sources:
            for file in _expanded(str(source)) if str(source) != STANDARD_INPUT else ():
                found.setdefault(file.path.resolve(), file)
        return list(found.values())

    def __iter__(self) -> Iterator[Pair]:
        files = self.files()
        for file in files:
            yield from self._file(file)
        for folder in map(Path, self.sources):
            if Source(folder, folder) not in files and (pages := _xml_files(folder)):
                self.notes.append(
                    f"{folder}: {len(pages)} XML files beside text files or tables; name them to count them"
                )
        if STANDARD_INPUT in map(str, self.sources):
            if self.domain is None:
                raise FadaError("standard input has no folder or file name to take the domain from: give it --domain.")
            for _, line in self._lines(sys.stdin.buffer, "standard input"):
                yield self.domain, line

    def _file(self, file: Source) -> Iterator[Pair]:
        path, suffix = file.path, file.path.suffix.lower()
        if suffix == XML_SUFFIX or path.is_dir():
            yield from self._xml(file)
            return
        if suffix in _MARKUP:
            raise FadaError(
                f"{path}: {suffix} files hold more than text, and would be counted as they are. "
                f"Export the text, or a table ({', '.join(TABLE_SUFFIXES)})."
            )
        if suffix == ".parquet":
            rows = self._parquet(path)
        elif suffix in (".jsonl", ".ndjson"):
            rows = self._jsonl(path)
        elif suffix in (".csv", ".tsv"):
            rows = self._table(path)
        else:
            domain = self._domain_of(file)
            with _opened(path) as stream:
                for _, line in self._lines(stream, str(path)):
                    yield domain, line
            return
        yield from self._rows(rows, file)

    def _xml(self, file: Source) -> Iterator[Pair]:
        """The lines of ALTO and PAGE files; no image is needed, and a page that is there as both is read once."""
        from fada.data.line import read_lines

        def domain(name: str, _: Mapping[str, Any]) -> str:
            return self._domain_of(Source(file.path / name, file.folder) if file.folder else file)

        lines = read_lines(file.path, format="xml", domain_from=domain, base=file.path if file.folder else None)
        number = 0
        for line in lines.texts():
            number += 1
            yield str(line.domain), line.text or ""
        self.on_bytes(file.size)
        self.notes.extend(map(str, lines.skipped))
        if not number:
            why = f": {lines.skipped[0]}" if lines.skipped else ""
            raise FadaError(f"{file.path}: no text of ALTO or PAGE lines{why}. Export the text of other XML, as .txt.")

    def _rows(self, rows: Iterable[tuple[str, Mapping[str, Any]]], file: Source) -> Iterator[Pair]:
        """The pairs of table rows, each given with where it stands."""
        domain: str | None
        names: list[str] = []
        column: str | None = None
        for where, row in rows:
            text = self._cell(row, self.text_column, "--text-column", where)
            if names != [*row]:
                names = [*row]
                column = self._column_of_domain(names)
            if self.domain is not None:
                domain = self.domain
            elif column is not None:
                domain = domain_name(self._cell(row, column, "--domain-column", where))
            else:
                domain = self._domain_of(file)
            if not isinstance(text, str):
                raise FadaError(f"{where}: column {self.text_column!r} holds {text!r}, expected text.")
            if not domain:
                raise FadaError(f"{where}: column {column!r} is empty, expected the name of a domain.")
            yield domain, text

    def _column_of_domain(self, names: Iterable[str]) -> str | None:
        return self.domain_column or usual_column("domain", names)

    def _cell(self, row: Mapping[str, Any], column: str, option: str, where: str) -> Any:
        if column not in row:
            known = ", ".join(map(str, row))
            raise FadaError(f"{where}: no column {column!r}, found: {known}. Name the right one with {option}.")
        if row[column] is None:
            raise FadaError(f"{where}: column {column!r} is missing its value. Fill it in, or remove the row.")
        return row[column]

    def _table(self, path: Path) -> Iterator[tuple[str, Mapping[str, Any]]]:
        header: list[str] = []
        with _opened(path) as stream:
            lines = (line + "\n" for _, line in self._lines(stream, str(path), cut=False))
            for number, cells in delimited_rows(lines, path.suffix):
                where = f"{path}, line {number}"
                if isinstance(cells, csv.Error):
                    raise FadaError(f"{where}: {cells}. Is a quotation mark left open, or not doubled?")
                if header and len(cells) not in (0, len(header)):
                    found = f"{len(cells)} cells under {len(header)} columns"
                    raise FadaError(f"{where}: {found}. Quote the cells that hold the delimiter.")
                if header and cells:
                    yield where, dict(zip(header, cells, strict=True))
                header = header or cells
        if not header:
            raise FadaError(f"{path}: empty, expected a first line with the names of the columns.")

    def _jsonl(self, path: Path) -> Iterator[tuple[str, Mapping[str, Any]]]:
        with _opened(path) as stream:
            for number, line in self._lines(stream, str(path), cut=False):
                where = f"{path}, line {number}"
                if not line.strip():
                    continue
                try:
                    row = json.loads(line)
                except (ValueError, RecursionError) as error:
                    raise FadaError(f"{where}: not valid JSON: {error}.") from None
                if not isinstance(row, dict):
                    raise FadaError(f'{where}: expected an object like {{"text": …}}, found {line[:40]}.')
                yield where, row

    def _parquet(self, path: Path) -> Iterator[tuple[str, Mapping[str, Any]]]:
        import pyarrow as pa
        import pyarrow.parquet as pq

        from fada.data.formats.parquet import labelled, labels_of

        size = path.stat().st_size
        try:
            with pq.ParquetFile(path) as table:
                names = table.schema_arrow.names
                wanted = [c for c in (self.text_column, self._column_of_domain(names)) if c in names]
                labels = labels_of(table.schema_arrow)
                row_number, rows = 0, max(table.metadata.num_rows, 1)
                # The columns left unread (images, sound) may be a hundred times as large as the text.
                for batch in table.iter_batches(batch_size=4096, columns=list(dict.fromkeys(wanted))):
                    for row in batch.to_pylist():
                        row_number += 1
                        named = {**dict.fromkeys(names), **labelled(row, labels)}
                        yield f"{path}, row {row_number}", named
                    self.on_bytes(size * len(batch) // rows)
        except pa.ArrowInvalid as error:
            raise FadaError(f"{path}: not a parquet file that can be read: {error}") from None

    def _domain_of(self, file: Source) -> str:
        if self.domain is not None:
            return self.domain
        path = Path(os.path.abspath(file.path))
        if self.domain_from == "folder":
            above = Path(os.path.abspath(file.folder or path.parent))
            names = (*path.relative_to(above).parts[:-1], *reversed(above.parts))
            apart = XML_FOLDERS if path.suffix.lower() == XML_SUFFIX else ()
            return next((name for name in names if name.lower() not in apart), above.name)
        if self.domain_from == "file":
            return path.name.partition(".")[0] or path.name
        found = _pattern(self.domain_from).search(file.path.as_posix())
        name = (found.group(1) if found.re.groups else found.group()) if found else None
        if not name:
            raise FadaError(f"{file.path}: the path does not match the pattern {self.domain_from!r} of --domain-from.")
        return name

    def _lines(self, stream: BinaryIO, name: str, cut: bool = True) -> Iterator[tuple[int, str]]:
        """Line number and text of each line, without its end; with `cut`, lines beyond a block come in pieces."""
        decoder = io.IncrementalNewlineDecoder(None, translate=True)
        number, rest = 1, ""
        for block in _decoded(stream, name, self.on_bytes):
            *lines, rest = (rest + decoder.decode(block)).split("\n")
            for line in lines:
                yield number, line
                number += 1
            if cut and len(rest) > _BLOCK:
                # Without line ends the rest would grow with the file. A space is a place where nothing composes.
                head, space, tail = rest.rpartition(" ")
                if space:
                    yield number, head + space
                    rest = tail
        rest += decoder.decode("", final=True)
        if rest:
            yield number, rest.removesuffix("\n")


def _decoded(stream: BinaryIO, name: str, on_bytes: Callable[[int], object]) -> Iterator[str]:
    """UTF-8 text of a stream in blocks; what is not UTF-8 is named with its offset."""
    offset, pending = 0, b""
    while block := stream.read(_BLOCK):
        on_bytes(len(block))
        if offset == 0 and not pending:
            if block.startswith((b"\xff\xfe", b"\xfe\xff")):
                raise FadaError(f"{name}: looks like UTF-16, expected UTF-8. Save it as UTF-8.")
            start = 3 if block.startswith(b"\xef\xbb\xbf") else 0
            offset, block = start, block[start:]
        data = pending + block
        text, used = _decode(data, name, offset, final=False)
        offset, pending = offset + used, data[used:]
        yield text
    if pending:
        _decode(pending, name, offset, final=True)


def _decode(data: bytes, name: str, offset: int, final: bool) -> tuple[str, int]:
    try:
        return codecs.utf_8_decode(data, "strict", final)
    except UnicodeDecodeError as error:
        raise FadaError(
            f"{name}, byte {offset + error.start}: invalid UTF-8 (byte 0x{data[error.start]:02X}, {error.reason}). "
            "Convert the file to UTF-8, for instance with: iconv -f LATIN1 -t UTF-8"
        ) from None


def _opened(path: Path) -> BinaryIO:
    try:
        return path.open("rb")
    except OSError as error:
        raise FadaError(f"{path}: cannot be read: {error.strerror}.") from None


def _expanded(source: str) -> list[Source]:
    path = Path(source)
    if path.is_dir():
        known = (*TEXT_SUFFIXES, *TABLE_SUFFIXES)
        files = sorted(p for p in path.rglob("*") if p.suffix.lower() in known and p.is_file())
        if not files and _xml_files(path):
            return [Source(path, path)]
        if not files:
            raise FadaError(f"{path}: a folder without text files or tables ({', '.join((*known, XML_SUFFIX))}).")
        return [Source(file, path) for file in files]
    if path.is_file():
        return [Source(path)]
    if not glob.has_magic(source):
        raise FadaError(f"{path}: no such file or folder.")
    matches = sorted(glob.glob(source, recursive=True))
    if not matches:
        raise FadaError(f"{source}: no file matches this pattern.")
    return [file for match in matches for file in (_expanded(match) if Path(match).is_dir() else [Source(Path(match))])]


def _xml_files(folder: Path) -> list[Path]:
    return [file for file in folder.rglob("*") if file.suffix.lower() == XML_SUFFIX and file.is_file()]


def _pattern(pattern: str) -> re.Pattern[str]:
    try:
        return re.compile(pattern)
    except re.error as error:
        raise FadaError(
            f"--domain-from {pattern!r}: expected folder, file, or a regular expression, but {error}."
        ) from None
