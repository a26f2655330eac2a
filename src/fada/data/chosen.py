"""Lines that a list names, taken from the pages they were published on, in the split and domain that the list says.

A list is a table (CSV, TSV, parquet) with the columns ``page`` and ``split``, and if known ``line_id`` and ``domain``;
whatever else it holds goes to the lines. `page` is the name of the page's file without folder and ending, or its end
after the last underscore (``fol-77r`` of ``…Barocci-102_00161_fol-77r.xml``); a row without `line_id` takes every line
of the page.
"""

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import PurePosixPath
from typing import Any

from fada.common.tables import read_columns
from fada.data.line import Line, LineSet, Log, canonical_split
from fada.errors import FadaError

Row = Mapping[str, Any]


@dataclass(frozen=True)
class Choice:
    """The rows of a list, by page and line; the line is empty where all lines of the page are meant."""

    rows: Mapping[tuple[str, str], Row]

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> "Choice":
        """Read a list; rows of the same line are refused."""
        columns = read_columns(path)
        for name in ("page", "split"):
            if name not in columns:
                raise FadaError(f"{path}: no column {name!r}, expected page and split (line_id, domain).")
        rows: dict[tuple[str, str], Row] = {}
        for values in zip(*columns.values(), strict=True):
            row = {name: str(value) for name, value in zip(columns, values, strict=True) if value not in (None, "")}
            key = row.get("page", ""), row.get("line_id", "")
            if not key[0] or canonical_split(row.get("split")) is None:
                raise FadaError(f"{path}: a row without page or split: {', '.join(row.values())}.")
            if key in rows:
                raise FadaError(f"{path}: the line {key[1] or '(all)'} of page {key[0]} is there twice.")
            rows[key] = row
        return cls(rows)

    def of(self, line: Line) -> tuple[tuple[str, str], Row] | None:
        """The row that names a line, with its key."""
        page = PurePosixPath(str(line.extra.get("page", ""))).name
        for name in dict.fromkeys((page, page.rpartition("_")[2])):
            for own in (str(line.extra.get("line_id", "")), ""):
                if (key := (name, own)) in self.rows:
                    return key, self.rows[key]
        return None

    def taken(self, lines: LineSet) -> LineSet:
        """The lines that the list names; rows that name none are noted, and counted as skipped."""

        def read(log: Log, media: bool) -> Iterator[Line]:
            found = set()
            for line in lines._read(log, media):
                if (named := self.of(line)) is None:
                    continue
                key, row = named
                found.add(key)
                extra = {**line.extra, **row, "split": canonical_split(row["split"])}
                extra.pop("domain", None)
                yield replace(line, domain=row.get("domain", line.domain), extra=extra)
            for page, own in self.rows.keys() - found:
                log.skip(
                    f"{page}#{own}" if own else page, "named in the list, but not in the source", "not in the source"
                )

        return LineSet(read, lines.name, expected=len(self.rows), licence=lines.licence, citation=lines.citation)
