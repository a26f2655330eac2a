"""From the rows of a table to lines and to texts: the same for parquet, Arrow, manifests and the hub."""

import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from fada.common.tables import Damage, Table, features, open_table, place, whole
from fada.data.domains import domain_name
from fada.data.line import Line, Log, canonical_split
from fada.data.places import AUDIO_SUFFIXES, IMAGE_SUFFIXES, Base
from fada.data.reading import Columns, Reading, usual_column
from fada.errors import FadaError

_HEADERLESS = ("file", "text", "domain")
_MEDIA_SUFFIXES = tuple(IMAGE_SUFFIXES | AUDIO_SUFFIXES)


@dataclass
class TableLines:
    """The lines of one table.

    Attributes:
        file: where the table is; files that its rows name are relative to its folder.
        split: of rows that do not name one.
        media: whether images and sound are wanted.
        number_ids: the name that ids of rows without one are made of, with the row's number.
    """

    file: Path
    base: Base
    split: str | None
    reading: Reading
    log: Log
    media: bool
    number_ids: str = ""
    _detected: dict[tuple[str, ...], Columns] = field(default_factory=dict)

    @cached_property
    def name(self) -> str:
        """The table, as messages name it."""
        return self.base.name(self.file)

    @cached_property
    def _folder(self) -> str:
        return os.path.join(os.path.dirname(self.name), "")

    def of(self, table: Table) -> Iterator[Line]:
        """The lines; rows that cannot be used are logged."""
        name, found = self.name, 0
        columns = None if table.names is None else self._columns(table.names, table.info)
        for number, row in table.rows(None if columns is None else self._wanted(table.names or (), columns)):
            found += 1
            if isinstance(row, Damage):
                self.log.skip(f"{name}:{number}" if number else name, row.reason, row.kind, max(row.rows, 1))
            elif line := self._line(number, row, columns or self._columns(tuple(row), {}, some=True), table.embeds):
                yield line
        if not found:
            self.log.skip(name, "the table has no rows")

    def _columns(self, names: Any, info: Mapping[str, Any], some: bool = False) -> Columns:
        """Which column holds what.

        Args:
            some: whether a column that was asked for may be missing, as a key of one of several JSON objects may.
        """
        key = tuple(names)
        if key not in self._detected:
            typed = {name: one.get("_type") for name, one in features(info).items()}
            kinds = {name: kind.lower() for name, kind in typed.items() if kind in ("Image", "Audio")}
            asked = {role: one for role, one in self.reading.columns.items() if not some or one in key}
            self._detected[key] = Columns.detect(key, asked, str(self.file), dict(reversed(kinds.items())))
        return self._detected[key]

    def _wanted(self, names: Any, columns: Columns) -> list[str] | None:
        """The columns to read: without media, of images and sound at most their paths."""
        return None if self.media else [name for name in names if name not in columns.media]

    def _line(self, number: int, row: Mapping[str, Any], columns: Columns, embeds: bool) -> Line | None:
        source, log = f"{self.name}:{number}", self.log
        split = (canonical_split(str(row.get(columns.split) or "")) if columns.split else None) or self.split
        if self.reading.split not in (None, split):
            return None
        values = {"image": row.get(columns.image or ""), "audio": row.get(columns.audio or "")}
        if columns.file and (path := row.get(columns.file)):
            kind = "audio" if str(path).lower().endswith(tuple(AUDIO_SUFFIXES)) else "image"
            values[kind] = values[kind] or path
        path, media = "", dict[str, Any]()
        for kind, value in values.items():
            data, written = _payload(value)
            path = path or written or ""
            if not self.media:
                continue
            try:
                media[kind] = data or (self.base.find(self.file.parent, written) if written else None)
            except FadaError as error:
                log.skip(source, str(error), f"{kind} not found")
                return None
            if media[kind] is None and embeds and getattr(columns, kind):
                log.skip(source, f"the {kind} is empty", f"{kind} is empty")
                return None
        text = row.get(columns.text) if columns.text else None
        if text is None and not path and not any(media.values()) and not (columns.media and not self.media):
            log.skip(source, "no text, no image and no sound", "empty row")
            return None
        extra = {key: value for key, value in row.items() if key not in columns.consumed}
        if split:
            extra["split"] = split
        written = self._folder + path if path else self.name
        return Line(
            id=columns.id_of(row, f"{self.number_ids}:{number}" if self.number_ids else source),
            text=None if text is None else str(text),
            domain=self.reading.domain_of(
                row.get(columns.domain) if columns.domain else None, written, extra, self.base, log
            ),
            source=source,
            extra=extra,
            **media,
        )


def _payload(value: Any) -> tuple[bytes | None, str | None]:
    """The bytes and the path in a cell: a struct of both, bytes, or a path. Only bytes are bytes."""
    if isinstance(value, dict):
        data, path = value.get("bytes"), value.get("path")
        return data if isinstance(data, bytes) else None, path if isinstance(path, str) and path else None
    if isinstance(value, bytes):
        return value or None, None
    return None, None if value is None or value == "" else str(value)


def headerless(reading: Reading) -> Callable[[list[str]], list[str] | None]:
    """A first row that names a file is no header, unless columns were asked for: file, text and domain it is then."""

    def names(cells: list[str]) -> list[str] | None:
        if any(reading.columns.values()) or not any(cell.lower().endswith(_MEDIA_SUFFIXES) for cell in cells):
            return None
        return [*_HEADERLESS, *(f"column_{number}" for number in range(4, len(cells) + 1))][: len(cells)]

    return names


def table_texts(
    file: Path,
    base: Base,
    reading: Reading,
    on_bytes: Callable[[int], object] | None = None,
    keeps: Callable[[str | None], bool] = lambda split: True,
) -> Iterator[tuple[str | None, str]]:
    """The domain and the text of every row: no ids, no media, nothing skipped. FadaError for a row that is broken.

    Args:
        keeps: whether texts of a split are wanted, asked for the rows of tables that have a column of it.
    """
    rule, name, source = reading.rule, base.name(file), base.source
    columns_of: dict[tuple[str, ...], _TextColumns] = {}

    def detect(names: tuple[str, ...], where: str) -> _TextColumns:
        return columns_of.setdefault(names, _text_columns(names, reading, where))

    with open_table(file, encoding=reading.encoding, headerless=headerless(reading), on_bytes=on_bytes) as table:
        chosen: list[str] | None = None
        if table.names:
            columns = detect(tuple(table.flat or table.names), str(file))
            chosen = [
                *dict.fromkeys(one for one in (columns.text, columns.domain, columns.split, *columns.paths) if one)
            ]
        for number, row in whole(file, table.rows(chosen)):
            if chosen is None:
                names = tuple(row)
                columns = columns_of.get(names) or detect(names, place(file, number))
            if not keeps(canonical_split(str(row.get(columns.split) or "")) if columns.split else None):
                continue
            text = row[columns.text]
            if type(text) is not str:
                held = "is missing its value" if text is None else f"holds {text!r}, expected text"
                raise FadaError(f"{place(file, number)}: column {columns.text!r} {held}.")
            value = row[columns.domain] if columns.domain else None
            if not rule.by_path:
                yield rule.given or domain_name(value), text
                continue
            path = next((str(row[key]) for key in columns.paths if row.get(key)), None)
            written = os.path.join(os.path.dirname(name), path) if path else name
            given = "" if value is None and columns.domain else value
            yield rule.domain(given, base.below(written), row, source), text


@dataclass(frozen=True)
class _TextColumns:
    text: str
    domain: str | None
    split: str | None
    paths: tuple[str, ...]


def _text_columns(names: tuple[str, ...], reading: Reading, where: str) -> _TextColumns:
    text = reading.text_column or usual_column("text", names) or "text"
    for column, option in ((text, "--text-column"), (reading.domain_column, "--domain-column")):
        if column is not None and column not in names:
            known = ", ".join(map(str, names))
            raise FadaError(f"{where}: no column {column!r}, found: {known}. Name the right one with {option}.")
    domain = reading.domain_column or usual_column("domain", names)
    roles = ("image", "audio", "file") if reading.rule.by_path else ()
    paths = (reading.columns.get(role) or usual_column(role, names) for role in roles)
    split = usual_column("split", names)
    return _TextColumns(text, domain, split, tuple(path for path in paths if path in names))
