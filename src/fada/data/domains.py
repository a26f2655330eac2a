"""The domain of a line: one rule for lines and for texts."""

import json
import os
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property, lru_cache, partial
from pathlib import Path
from typing import Any, TypeAlias

from fada.common.settings import unique_keys
from fada.common.tables import read_rows, whole
from fada.data.line import SPLIT_NAMES
from fada.errors import FadaError

DOMAIN_COLUMNS = ("domain", "century", "accent", "period")
"""What the column of the domain is usually called, first match first."""

XML_FOLDERS = frozenset({"page", "alto"})
"""Folders of exports that hold the XML of the pages beside or below their images."""

STRUCTURE_FOLDERS = frozenset({*XML_FOLDERS, "images", "img", "xml", "data", "lines", *SPLIT_NAMES})
"""Folders that say what kind of file is in them; none of them is a domain."""

Rule: TypeAlias = Callable[[str, Mapping[str, Any]], str | None]
"""Gives the domain from a path (relative to the base folder, with forward slashes) and the line's further columns."""

_Found: TypeAlias = Callable[[str, Mapping[str, Any], str], Any]
"""A :data:`Rule` that is told where the source is, too."""

Spec: TypeAlias = str | os.PathLike[str] | Mapping[str, str] | Rule
"""How a rule is written: `folder`, `folder:LEVEL`, `file`, a table (mapping, CSV, TSV or JSON file), a regular
expression, or a function."""


def domain_name(value: Any) -> str | None:
    """A column's value as the name of a domain: 13, 13.0 and "13" are one century; "" and "None" are none."""
    if value is None or value == "":
        return None
    if isinstance(value, float):
        if value != value:
            return None
        if value.is_integer():
            return str(int(value))
    name = str(value).strip()
    return None if name in ("", "None") else name


@dataclass(frozen=True)
class DomainRule:
    """Where the domain of a line comes from, in this order: the one given, a column that was named, the rule, a column
    that is usually called so, and what holds otherwise.

    Attributes:
        given: the domain of all lines.
        column: the column that was named.
        rule: `folder` is the first folder below the source, or the source's own name for files directly in it;
            `folder:2` the second, `folder:-1` the nearest; `file` the file's name without its endings; else see
            :data:`Spec`. A pattern is searched in the path
            below the source, else in the whole path; its group `domain`, or first group, or match is the domain.
        otherwise: the rule for what has no domain so far.
    """

    given: str | None = None
    column: str | None = None
    rule: Spec | None = None
    otherwise: Spec | None = None
    _first: _Found | None = field(init=False, repr=False, compare=False)
    _last: _Found | None = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_first", _rule(self.rule))
        object.__setattr__(self, "_last", _rule(self.otherwise))

    @cached_property
    def by_path(self) -> bool:
        """Whether a path may decide."""
        return self.given is None and not (self._first is None and self._last is None)

    def domain(self, value: Any, path: str, extra: Mapping[str, Any], source: str) -> str | None:
        """The domain of a line.

        Args:
            value: of its domain column; None if there is no such column, which is when `otherwise` holds if there is no
                rule either.
            path: of its file, relative to the source; with it, `source` is where the source is.
            extra: its further columns.
        """
        if self.given is not None:
            return self.given
        found = domain_name(value) if self.column is not None else None
        if found is None and self._first is not None:
            found = domain_name(self._first(path, extra, source))
        if found is None:
            found = domain_name(value)
        if found is None and value is None and self._first is None and self._last is not None:
            found = domain_name(self._last(path, extra, source))
        return found


def _rule(spec: Spec | None) -> _Found | None:
    if spec is None:
        return None
    if callable(spec):
        return lambda path, extra, source: spec(path, extra)
    if isinstance(spec, Mapping):
        return _by_table(spec)
    text = os.fspath(spec)
    if found := re.fullmatch(r"folder(?::(-?\d+))?", text):
        level = int(found[1] or 1)
        if level == 0:
            raise FadaError("domain_from='folder:0': levels count from 1, the first below the source, or from -1.")
        return partial(_by_folder, level)
    if text == "file":
        return _by_file
    if text.lower().endswith((".csv", ".tsv", ".json", ".jsonl", ".parquet")):
        return _by_table(_read_table(Path(text)))
    try:
        pattern = re.compile(text.removeprefix("regex:"))
    except re.error as error:
        raise FadaError(
            f"domain_from={text!r} is not 'folder', 'folder:LEVEL', 'file', a table (.csv, .tsv, .json) or a regular "
            f"expression: {error}."
        ) from None
    return partial(_by_pattern, pattern)


def _by_pattern(pattern: re.Pattern[str], path: str, extra: Mapping[str, Any], source: str) -> str | None:
    """What the pattern finds in the path below the source, else in the whole path."""
    found = pattern.search(path) or (pattern.search(f"{source}/{path}".replace(os.sep, "/")) if source else None)
    if not found:
        return None
    return found["domain"] if "domain" in pattern.groupindex else found[1] if pattern.groups else found[0]


def _by_folder(level: int, path: str, extra: Mapping[str, Any], source: str) -> str | None:
    return _folder(os.path.dirname(path), source, level)


@lru_cache(maxsize=4096)
def _folder(folder: str, source: str, level: int) -> str | None:
    """The folder at a level below the source that is no folder of the structure; without any, the source's own name."""
    whole = os.path.normpath(os.path.join(source, folder))
    inside = os.path.relpath(whole, source) if source else whole
    below = [name for name in inside.replace(os.sep, "/").split("/") if name.lower() not in _NO_NAMES]
    if inside.startswith(os.pardir):
        below = []
    if below:
        place = level - 1 if level > 0 else level
        return below[place] if -len(below) <= place < len(below) else None
    above = Path(os.path.realpath(whole if inside.startswith(os.pardir) else source or ".")).parts[1:]
    return next((name for name in reversed(above) if name.lower() not in _NO_NAMES), None)


_NO_NAMES = frozenset({"", ".", "..", *STRUCTURE_FOLDERS})


def _by_file(path: str, extra: Mapping[str, Any], source: str) -> str | None:
    name = os.path.basename(path)
    return name.partition(".")[0] or name


def _by_table(table: Mapping[str, Any]) -> _Found:
    def words(name: str) -> str:
        return re.sub(r"[\W_]+", " ", name).strip().casefold()

    exact = {words(str(key)): domain_name(value) for key, value in table.items()}
    parts = [
        (re.compile(rf"(?:^| ){re.escape(key)}(?: |$)"), exact[key])
        for key in sorted(exact, key=len, reverse=True)
        if key
    ]

    def by_table(path: str, extra: Mapping[str, Any], source: str) -> str | None:
        manuscript = words(str(extra.get("manuscript") or ""))
        if manuscript in exact:
            return exact[manuscript]
        place = words(path)
        return next((value for pattern, value in parts if pattern.search(place)), None)

    return by_table


def _read_table(path: Path) -> dict[str, Any]:
    if path.suffix.lower() == ".json":
        try:
            table = json.loads(path.read_text(encoding="utf-8-sig"), object_pairs_hook=unique_keys)
        except (OSError, ValueError, RecursionError) as error:
            raise FadaError(f"{path}: the table of domains cannot be read ({error}).") from None
        if not isinstance(table, dict):
            raise FadaError(f"{path}: expected an object from manuscript to domain, found a {type(table).__name__}.")
        return table

    def headerless(cells: list[str]) -> list[str] | None:
        is_header = len(cells) > 1 and cells[1].strip().lower() in DOMAIN_COLUMNS
        return None if is_header else ["manuscript", "domain", *map(str, range(2, len(cells)))]

    rows = [[*row.values()] for _, row in whole(path, read_rows(path, headerless=headerless))]
    return {row[0]: row[1] for row in rows if len(row) > 1}
