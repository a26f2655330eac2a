"""The target file: versioned JSON, written for people to read and edit, and checked line by line when it is read.

.. code-block:: json

    {
      "format": "fada-targets",
      "version": 2,
      "normalizer": {"form": "NFC", "case": "lower", "marks": "keep", "spaces": "keep", "letters_only": false},
      "domains": {
        "13": {"counts": {"a": 812, "b": 97}},
        "14": {"frequencies": {"a": 0.9, "b": 0.1}, "characters": 300},
        "15": {"counts": {"a": 70, "b": 30}, "edited": {"b": 0.0}}
      },
      "digest": "…"
    }

A domain holds `counts`, or `frequencies` that sum to one with the number of `characters` they were estimated from.
Without that number a domain weighs as much as a single character: its frequencies count as wholly uncertain.
`edited` are frequencies that replace those counted; the rest is rescaled. The `digest` tells whether the counts were
changed since they were written. Version 1 had neither.
"""

import hashlib
import json
import math
import os
import re
import unicodedata
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from json.decoder import scanstring  # type: ignore[attr-defined]
from pathlib import Path
from typing import Any, NoReturn

from fada.common.files import write_text
from fada.common.kinds import refuse_kind
from fada.errors import FadaError
from fada.targets.distribution import misfit
from fada.text.normalizer import TextNormalizer

FORMAT = "fada-targets"
VERSION = 2
TOLERANCE = 1e-6
"""How far frequencies may be from summing to one."""


@dataclass(frozen=True)
class TargetRecords:
    """What a target file holds: the normaliser, and the count of every character of every domain.

    Attributes:
        edits: frequencies that replace those counted, by domain and character.
        by_hand: whether the file was changed by something else than fada.
    """

    normalizer: TextNormalizer
    domains: dict[str, dict[str, float]]
    edits: dict[str, dict[str, float]] = field(default_factory=dict)
    by_hand: bool = False

    @property
    def digest(self) -> str:
        """Changes with everything but the order of the domains' characters."""
        counts = {name: {s: _number(count) for s, count in cells.items()} for name, cells in self.domains.items()}
        content = json.dumps([self.normalizer.to_dict(), counts, self.edits], sort_keys=True)
        return hashlib.sha256(content.encode()).hexdigest()[:16]


def read(path: str | os.PathLike[str], *, normalize: bool = False) -> TargetRecords:
    """Read and check a target file; what is wrong is named with its line.

    Args:
        path: the file.
        normalize: rescale frequencies that do not sum to one instead of refusing them.
    """
    path = Path(path)
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        raise FadaError(f"{path}: no such file. Build it with: fada targets build") from None
    except OSError as error:
        raise FadaError(f"{path}: cannot be read: {error.strerror}.") from None
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        refuse_kind(content, path, "a target file")
        raise FadaError(
            f"{path}, byte {error.start}: not UTF-8 text (byte 0x{content[error.start]:02X}). Save the file as UTF-8."
        ) from None
    return parse(text, str(path), normalize=normalize)


def write(path: str | os.PathLike[str], records: TargetRecords) -> None:
    """Write a target file so that :func:`read` gives the records back bit for bit."""
    write_text(path, serialize(records))


def serialize(records: TargetRecords) -> str:
    """The text of a target file: one character per line, invisible ones escaped."""
    head = {"format": FORMAT, "version": VERSION, "normalizer": records.normalizer.to_dict()}
    domains = []
    for name, counted in records.domains.items():
        for symbol in counted:
            if fault := misfit(symbol, records.normalizer):
                raise FadaError(f"these targets cannot be saved: {fault}")
        counts = ",\n".join(f"        {_quoted(symbol)}: {_number(count)}" for symbol, count in counted.items())
        edited = ", ".join(f"{_quoted(s)}: {frequency!r}" for s, frequency in records.edits.get(name, {}).items())
        ending = f',\n      "edited": {{{edited}}}' if edited else ""
        domains.append(f'    {_quoted(name)}: {{\n      "counts": {{\n{counts}\n      }}{ending}\n    }}')
    opening = json.dumps(head, ensure_ascii=False, indent=2)[: -len("\n}")]
    return opening + ',\n  "domains": {\n' + ",\n".join(domains) + f'\n  }},\n  "digest": "{records.digest}"\n}}\n'


def parse(text: str, name: str = "targets", *, normalize: bool = False) -> TargetRecords:
    """The records of a target file's text; `name` is what errors call it."""
    reader = _Reader(name, normalize)
    try:
        return reader.read(_quickly(text))
    except (FadaError, ValueError, RecursionError):
        return reader.read(reader.parsed(text))  # slowly, and it knows the line of what it refuses


def _quoted(text: str) -> str:
    """JSON string; escaped where a character cannot be seen on its own (marks, controls, odd spaces)."""
    invisible = any(unicodedata.category(c)[0] in "MCZ" and c != " " for c in text)
    return json.dumps(text, ensure_ascii=invisible)


def _number(count: float) -> str:
    return str(int(count)) if count.is_integer() and count < 2**53 else repr(count)


@dataclass(frozen=True)
class _Value:
    """A JSON value and the line it starts on; an object is kept as its members, so that none is lost."""

    line: int
    value: Any
    source: str
    """The value as it is written, or what kind of thing it is."""


class _Members(list[tuple[str, int, _Value]]):
    """The (key, line of the key, value) of an object, in order, duplicates and all."""


def _quickly(text: str) -> _Value:
    """The values of a file, all on line 0."""

    def members(pairs: list[tuple[str, Any]]) -> _Members:
        return _Members((key, 0, _Value(0, value, "")) for key, value in pairs)

    return _Value(0, json.loads(text, parse_int=float, object_pairs_hook=members), "")


class _Reader:
    def __init__(self, file: str, normalize: bool) -> None:
        self.file = file
        self.normalize = normalize

    def read(self, file: _Value) -> TargetRecords:
        top = self._unique(file, "", "key")
        self._known(top, ("format", "version", "normalizer", "domains", "digest"), "")
        self._header(top)
        normalizer = self._normalizer(top["normalizer"][1])
        line, value = top["domains"]
        domains = self._unique(value, "", "domain")
        if not domains:
            self._refuse(line, "", "no domains", "Give at least one, or build the file with: fada targets build")
        counted, edits = dict[str, dict[str, float]](), dict[str, dict[str, float]]()
        for name, (_, value) in domains.items():
            where = f", domain {json.dumps(name, ensure_ascii=False)}"
            keys = self._unique(value, where, "key")
            counted[name] = self._domain(value.line, keys, where, normalizer)
            if "edited" in keys and (found := self._edited(*keys["edited"], where, normalizer)):
                edits[name] = found
        records = TargetRecords(normalizer, counted, edits)
        return replace(records, by_hand="digest" in top and top["digest"][1].value != records.digest)

    def parsed(self, text: str) -> _Value:
        try:
            json.loads(text, parse_int=float)
            return _Scanner(text).value()
        except json.JSONDecodeError as error:
            if not text.strip():
                self._refuse(1, "", "the file is empty", "Build it with: fada targets build")
            if text.lstrip()[0] not in "{[":
                self._refuse(1, "", "no target file, which is a JSON object", "Build one with: fada targets build")
            self._refuse(error.lineno, "", f"not valid JSON at column {error.colno}: {error.msg}", "Mend it there.")
        except RecursionError:
            self._refuse(1, "", "not a target file: it is nested too deeply", "Build one with: fada targets build")

    def _header(self, top: dict[str, tuple[int, _Value]]) -> None:
        for key in ("version", "normalizer", "domains"):
            if key not in top:
                self._refuse(1, "", f'the key "{key}" is missing', "Build a new file with: fada targets build")
        line, found = top["version"]
        if type(found.value) is bool or found.value not in range(1, VERSION + 1):
            advice = f"This fada reads versions up to {VERSION}: update fada, or build the file anew."
            self._refuse(line, "", f"version {found.source} is unknown", advice)
        if "format" in top and top["format"][1].value != FORMAT:
            line, found = top["format"]
            self._refuse(line, "", f'format {found.source}, expected "{FORMAT}"', "Is this the file you meant?")

    def _normalizer(self, settings: _Value) -> TextNormalizer:
        members = self._unique(settings, "", "normaliser setting")
        values: dict[str, Any] = {}
        for key, (line, value) in members.items():
            values[key] = value.value
            try:
                TextNormalizer.from_dict({key: value.value})
            except FadaError as error:
                self._refuse(line, "", str(error).rstrip("."), "Set it to one of these.")
        return TextNormalizer.from_dict(values)

    def _domain(
        self, start: int, keys: dict[str, tuple[int, _Value]], where: str, normalizer: TextNormalizer
    ) -> dict[str, float]:
        self._known(keys, ("counts", "frequencies", "characters", "edited"), where)
        if ("counts" in keys) == ("frequencies" in keys):
            found = 'both "counts" and "frequencies"' if "counts" in keys else 'neither "counts" nor "frequencies"'
            self._refuse(start, where, found, "Give one of the two.")
        if "counts" in keys and "characters" in keys:
            line = keys["characters"][0]
            self._refuse(line, where, '"characters" beside "counts", which sum to it already', "Remove it.")
        what = "counts" if "counts" in keys else "frequencies"
        line, cells = keys[what]
        members = self._unique(cells, where, "character")
        if not members:
            self._refuse(line, where, f"no {what}", "Give at least one character, or remove the domain.")
        counts = {}
        for symbol, (at, value) in members.items():
            self._check_symbol(symbol, at, where, normalizer)
            cell = f"{json.dumps(symbol, ensure_ascii=False)} has the {'count' if what == 'counts' else 'frequency'}"
            counts[symbol] = self._amount(value, at, where, cell)
        total = math.fsum(counts.values())
        if not 0 < total < math.inf:
            self._refuse(line, where, f"the {what} sum to {total:g}", "Give at least one character a number above 0.")
        if what == "frequencies":
            if abs(total - 1) > TOLERANCE and not self.normalize:
                advice = f"Renormalise with: fada targets edit {self.file} --normalize"
                self._refuse(line, where, f"frequencies sum to {total:.7g}, expected 1 (±{TOLERANCE:g})", advice)
            counts = {symbol: value * self._characters(keys, where) / total for symbol, value in counts.items()}
        return counts

    def _edited(self, line: int, cells: _Value, where: str, normalizer: TextNormalizer) -> dict[str, float]:
        edits = {}
        for symbol, (at, value) in self._unique(cells, where, "character").items():
            self._check_symbol(symbol, at, where, normalizer)
            cell = f"{json.dumps(symbol, ensure_ascii=False)} has the edited frequency"
            edits[symbol] = self._amount(value, at, where, cell)
        if math.fsum(edits.values()) > 1 + TOLERANCE:
            self._refuse(line, where, f"edited frequencies sum to {math.fsum(edits.values()):g}", "Give at most 1.")
        return edits

    def _characters(self, keys: dict[str, tuple[int, _Value]], where: str) -> float:
        if "characters" not in keys:
            return 1.0
        line, value = keys["characters"]
        number = self._amount(value, line, where, '"characters" is')
        if number == 0:
            self._refuse(line, where, '"characters" is 0', "Give the number of characters counted, or remove it.")
        return number

    def _check_symbol(self, symbol: str, line: int, where: str, normalizer: TextNormalizer) -> None:
        if fault := misfit(symbol, normalizer):
            found, _, advice = fault.rpartition(": ")
            self._refuse(line, where, found, advice[:1].upper() + advice[1:])

    def _amount(self, value: _Value, line: int, where: str, cell: str) -> float:
        number = value.value
        if type(number) is not float or not math.isfinite(number) or number < 0:
            self._refuse(line, where, f"{cell} {value.source}", "Give a number from 0 up.")
        return number + 0.0  # no negative zero

    def _unique(self, value: _Value, where: str, what: str) -> dict[str, tuple[int, _Value]]:
        if not isinstance(value.value, _Members):
            self._refuse(value.line, where, f"{value.source} where an object {{…}} is expected", "Mend it there.")
        members: dict[str, tuple[int, _Value]] = {}
        for key, line, member in value.value:
            if key in members:
                found = (
                    f"the {what} {json.dumps(key, ensure_ascii=False)} stands twice, first on line {members[key][0]}"
                )
                self._refuse(line, where, found, "Remove one of the two.")
            members[key] = line, member
        return members

    def _known(self, members: dict[str, tuple[int, _Value]], known: tuple[str, ...], where: str) -> None:
        for key, (line, _) in members.items():
            if key not in known:
                found = f"unknown key {json.dumps(key, ensure_ascii=False)}, expected {', '.join(known)}"
                self._refuse(line, where, found, "Remove or rename it.")

    def _refuse(self, line: int, where: str, found: str, advice: str) -> NoReturn:
        raise FadaError(f"{self.file}, line {line}{where}: {found}. {advice}")


class _Scanner:
    """Reads JSON that is known to be valid into values that know their lines."""

    _SPACE = re.compile(r"[ \t\n\r]*")
    _SCALAR = re.compile(r"[^\s,\]}]+")

    def __init__(self, text: str) -> None:
        self.text = text
        self.at = 0
        self._line = 1
        self._counted = 0

    def value(self) -> _Value:
        """The value that starts at or after the current position."""
        line = self._skip()
        opening = self.text[self.at]
        if opening == "{":
            return _Value(line, _Members(self._members()), "an object")
        if opening == "[":
            return _Value(line, [item for _, item in self._items("]")], "a list")
        if opening == '"':
            start = self.at
            text, self.at = scanstring(self.text, start + 1, True)
            return _Value(line, text, self.text[start : self.at])
        scalar = self._SCALAR.match(self.text, self.at)
        if scalar is None:
            raise FadaError(f"line {line}: not valid JSON.")
        self.at = scalar.end()
        return _Value(line, json.loads(scalar.group(), parse_int=float), scalar.group())

    def _members(self) -> Iterator[tuple[str, int, _Value]]:
        for line, key in self._items("}"):
            self._skip()
            self.at += 1  # the colon
            yield key.value, line, self.value()

    def _items(self, closing: str) -> Iterator[tuple[int, _Value]]:
        self.at += 1
        line = self._skip()
        while self.text[self.at] != closing:
            yield line, self.value()
            self._skip()
            self.at += self.text[self.at] == ","
            line = self._skip()
        self.at += 1

    def _skip(self) -> int:
        """Pass over white space; the line then reached."""
        space = self._SPACE.match(self.text, self.at)
        self.at = space.end() if space else self.at
        self._line += self.text.count("\n", self._counted, self.at)
        self._counted = self.at
        return self._line
