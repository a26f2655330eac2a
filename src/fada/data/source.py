"""What the readers share: options, finding out the format, columns, domains, paths that stay inside, unique ids."""

import csv
import io
import json
import os
import re
import sqlite3
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache, partial
from pathlib import Path
from typing import Any, TypeAlias

from fada.common.tables import delimited_rows
from fada.data.line import Line, LineSet, Log, PathLike, printable
from fada.errors import FadaError
from fada.text.characters import natural_key

IMAGE_SUFFIXES = frozenset({".png", ".jpg", ".jpeg", ".tif", ".tiff", ".bmp", ".gif", ".webp", ".jp2", ".pgm", ".ppm"})
AUDIO_SUFFIXES = frozenset({".wav", ".flac", ".ogg", ".mp3", ".opus", ".m4a"})
MANIFEST_SUFFIXES = frozenset({".csv", ".tsv", ".jsonl", ".ndjson"})
PUBLISHED = ("hpgt", "catmus", "edacc")

COLUMN_NAMES: Mapping[str, tuple[str, ...]] = {
    "text": ("text", "transcription", "transcript", "sentence", "ground_truth", "gt"),
    "image": ("image", "im", "img", "image_path", "line_image"),
    "audio": ("audio", "audio_path", "speech", "wav"),
    "file": ("file_name", "filename", "file", "path"),
    "domain": ("domain", "century", "accent", "period"),
    "id": ("id", "utterance_id"),
    "split": ("split", "gen_split"),
}
"""What columns are usually called, first match first; `file` is an image or a sound, told apart by its ending."""

PARTS_OF_ID = ("manuscript", "page", "line_id")
"""Columns that together name a line where there is no id."""

SPLITS = ("train", "validation", "test")
SPLIT_NAMES: Mapping[str, str] = {
    "train": "train",
    "training": "train",
    "validation": "validation",
    "valid": "validation",
    "val": "validation",
    "dev": "validation",
    "test": "test",
    "testing": "test",
}
_SPLIT_NAME = re.compile(r"(train(?:ing)?|valid(?:ation)?|val|dev|test(?:ing)?)(?:$|[-_.])", re.IGNORECASE)
XML_FOLDERS = frozenset({"page", "alto"})
"""Folders of exports that hold the XML of the pages beside or below their images."""
_STRUCTURE_FOLDERS = frozenset({*XML_FOLDERS, "images", "img", "xml", "data", "lines", *SPLIT_NAMES})

DomainRule: TypeAlias = Callable[[str, Mapping[str, Any]], str | None]
"""Gives the domain from a path (relative to the base folder, with forward slashes) and the line's further columns."""


@dataclass(frozen=True)
class Options:
    """How to read; see :func:`fada.data.line.read_lines`."""

    format: str | None = None
    split: str | None = None
    columns: Mapping[str, str | None] = field(default_factory=dict)
    domain: str | None = None
    domain_rule: DomainRule | None = None
    images: Path | None = None
    base: Path | None = None
    allow_outside: bool = False
    encoding: str | None = None
    grow: float = 0.0
    untranscribed: bool = False

    def domain_of(self, column: Any, path: str, extra: Mapping[str, Any], log: Log) -> str | None:
        """The domain of a line: the one given for all, else by the rule, else from its column."""
        if self.domain is not None:
            return self.domain
        if self.domain_rule is not None:
            found = self.domain_rule(path, extra)
            if found is None:
                log.note(f"{path}: the rule for domains gives none.")
            return found
        return domain_name(column)


def domain_name(value: Any) -> str | None:
    """A column's value as the name of a domain: 13, 13.0 and "13" are one century; empty is none."""
    if value is None or value == "":
        return None
    if isinstance(value, float):
        if value != value:
            return None
        if value.is_integer():
            return str(int(value))
    return str(value).strip() or None


# --- where things are ------------------------------------------------------------------------------------------------


LINK_OUTSIDE = "a link that leads outside of the folder; allow it with allow_outside (--allow-outside)"


@dataclass(frozen=True)
class Base:
    """A folder that the paths found in files, and the links in it, must not leave.

    Attributes:
        named: a file that was named as the source itself, which may be a link to anywhere.
    """

    folder: Path
    allow_outside: bool = False
    named: Path | None = None

    @classmethod
    def of(cls, source: Path, options: Options) -> "Base":
        """The base folder of a source: the folder itself, or the one that a file is in.

        It is one up from folders called `page` and `alto`: exports keep the images there.
        """
        named = None if source.is_dir() else source
        if options.base is not None:
            return cls(options.base, options.allow_outside, named)
        folder = source if source.is_dir() else source.parent
        if folder.name.lower() in XML_FOLDERS:
            folder = folder.parent
        return cls(folder, options.allow_outside, named)

    def name(self, path: PathLike) -> str:
        """The path relative to the base, with forward slashes."""
        try:
            return Path(path).relative_to(self.folder).as_posix()
        except ValueError:
            return Path(path).name

    def holds(self, path: PathLike) -> bool:
        """Whether the path, links followed, is in the base folder."""
        if self.allow_outside or path == self.named:
            return True
        base = os.fspath(self.folder)
        if not is_inside(os.path.dirname(path), base):
            return False
        return not os.path.islink(path) or is_inside(os.path.realpath(path), base)

    def find(self, folder: PathLike, name: str) -> str:
        """The file that `name`, as written in a file in `folder`, stands for; FadaError if it is missing or outside."""
        if "\0" in name or not name.strip():
            raise FadaError(f"the path {name!r} is not a path")
        path = os.path.join(folder, name)
        if "\\" in name and not os.path.exists(path):
            path = os.path.join(folder, name.replace("\\", "/"))
        if not self.holds(path):
            raise FadaError(
                f"the path {name!r} leads outside of {self.folder.name or self.folder}/ and is not followed; "
                "allow it with allow_outside (--allow-outside)"
            )
        if not os.path.isfile(path):
            raise FadaError(f"the file {name} does not exist")
        if os.pardir in path:  # behind a link, `..` is not what it looks like
            path = os.path.join(os.path.realpath(os.path.dirname(path)), os.path.basename(path))
        return path


@lru_cache(maxsize=4096)
def is_inside(path: str, base: str) -> bool:
    """Whether a path, links followed, is the base folder or in it."""
    real, base = os.path.realpath(path or "."), os.path.realpath(base or ".")
    return real == base or real.startswith(os.path.join(base, ""))


def walk(folder: Path) -> Iterator[Path]:
    """All files below a folder in natural order, hidden ones left out."""
    for where, folders, names in os.walk(folder):
        folders[:] = sorted((name for name in folders if not name.startswith((".", "__MACOSX"))), key=natural_key)
        for name in sorted((name for name in names if not name.startswith(".")), key=natural_key):
            yield Path(where, name)


def split_of(path: PathLike) -> str | None:
    """The split that a file name such as `train-00000-of-00002.parquet`, or else a folder above it, stands for.

    Args:
        path: relative to the source, so that folders above the source do not count.
    """
    for name in reversed(Path(path).parts):
        if found := _SPLIT_NAME.match(name):
            return SPLIT_NAMES[found[1].lower()]
    return None


def canonical_split(name: str | None) -> str | None:
    """`dev`, `val`, `valid` are `validation`; names of one's own stay."""
    return None if not name else SPLIT_NAMES.get(name.lower(), name)


# --- domains ---------------------------------------------------------------------------------------------------------


def domain_rule(spec: "str | Path | Mapping[str, str] | DomainRule | None") -> DomainRule | None:
    """The rule for `domain_from`: "folder", a table (mapping, CSV or JSON file), or a regular expression."""
    if spec is None or callable(spec):
        return spec
    if isinstance(spec, Mapping):
        return _by_table(spec)
    text = os.fspath(spec)
    if text == "folder":
        return _by_folder
    if text.lower().endswith((".csv", ".tsv", ".json")):
        return _by_table(_read_table(Path(text)))
    try:
        pattern = re.compile(text.removeprefix("regex:"))
    except re.error as error:
        raise FadaError(
            f"domain_from={text!r} is not 'folder', a table (.csv, .tsv, .json) or a regular expression: {error}."
        ) from None

    def by_pattern(path: str, extra: Mapping[str, Any]) -> str | None:
        found = pattern.search(path)
        if not found:
            return None
        return found["domain"] if "domain" in pattern.groupindex else found[1] if pattern.groups else found[0]

    return by_pattern


def _by_folder(path: str, extra: Mapping[str, Any], source: str = "") -> str | None:
    """The name of the folder that a file is in, or else that of the folder of its source, or the next one up."""
    folders = os.path.normpath(os.path.join(source, path)).replace(os.sep, "/").split("/")[:-1]
    return next((name for name in reversed(folders) if name.lower() not in {"", "..", *_STRUCTURE_FOLDERS}), None)


def _by_table(table: Mapping[str, Any]) -> DomainRule:
    def words(name: str) -> str:
        return re.sub(r"[\W_]+", " ", name).strip().casefold()

    exact = {words(str(key)): domain_name(value) for key, value in table.items()}
    parts = [
        (re.compile(rf"(?:^| ){re.escape(key)}(?: |$)"), exact[key])
        for key in sorted(exact, key=len, reverse=True)
        if key
    ]

    def by_table(path: str, extra: Mapping[str, Any]) -> str | None:
        manuscript = words(str(extra.get("manuscript") or ""))
        if manuscript in exact:
            return exact[manuscript]
        place = words(path)
        return next((value for pattern, value in parts if pattern.search(place)), None)

    return by_table


def _read_table(path: Path) -> dict[str, Any]:
    try:
        text = path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise FadaError(f"{path}: the table of domains cannot be read ({error}).") from None
    if path.suffix.lower() == ".json":
        try:
            table = json.loads(text)
        except ValueError as error:
            raise FadaError(f"{path}: not JSON ({error}).") from None
        if not isinstance(table, dict):
            raise FadaError(f"{path}: expected an object from manuscript to domain, found a {type(table).__name__}.")
        return table
    rows: list[list[str]] = []
    for number, row in delimited_rows(io.StringIO(text, newline=""), path.suffix):
        if isinstance(row, csv.Error) or 1 <= len(row) < 2:
            raise FadaError(f"{path}, row {number}: expected manuscript and domain, found {row}.")
        if row:
            rows.append(row)
    if rows and rows[0][1].strip().lower() in COLUMN_NAMES["domain"]:
        rows = rows[1:]
    return {row[0]: row[1] for row in rows}


# --- columns ---------------------------------------------------------------------------------------------------------


def usual_column(role: str, names: Iterable[str]) -> str | None:
    """The column that holds something (:data:`COLUMN_NAMES`), by what it is usually called; None if there is none."""
    lower = {name.lower(): name for name in reversed([*names])}
    return next((lower[name] for name in COLUMN_NAMES[role] if name in lower), None)


@dataclass(frozen=True)
class Columns:
    """Which column of a table holds what; None where there is none."""

    text: str | None
    image: str | None
    audio: str | None
    file: str | None
    domain: str | None
    id: str | None
    split: str | None
    id_parts: tuple[str, ...]

    @classmethod
    def detect(
        cls, names: Iterable[str], options: Options, where: str, kinds: Mapping[str, str] | None = None
    ) -> "Columns":
        """Find the columns by their names; those asked for by option must exist.

        Args:
            kinds: column name to `image` or `audio`, where the file declares it.
        """
        present = list(names)
        lower = {name.lower(): name for name in reversed(present)}
        found: dict[str, str | None] = {}
        for role in COLUMN_NAMES:
            asked = options.columns.get(role)
            if asked is not None and asked not in present:
                raise FadaError(
                    f"{where}: no column {asked!r} (asked for as {role} column); there are: {', '.join(present)}."
                )
            declared = next((name for name, kind in (kinds or {}).items() if kind == role), None)
            found[role] = asked or declared or usual_column(role, present)
        parts = tuple(lower[name] for name in PARTS_OF_ID if name in lower)
        return cls(**found, id_parts=parts if parts and parts[-1].lower() == "line_id" else ())

    @cached_property
    def media(self) -> frozenset[str]:
        """The columns that hold images and sound."""
        return frozenset(name for name in (self.image, self.audio) if name)

    @cached_property
    def consumed(self) -> frozenset[str]:
        """The columns that are not kept among the further ones, because a line has a place of its own for them."""
        own = {self.text, self.image, self.audio, self.file, self.split}
        return frozenset(name for name in own | ({self.id, self.domain} & {"id", "domain"}) if name)

    def id_of(self, row: Mapping[str, Any], otherwise: str) -> str:
        """The id of a row: its column, or manuscript, page and line id together, or `otherwise`."""
        value = row.get(self.id) if self.id else None
        if value is not None and str(value).strip():
            return str(value)
        if self.id_parts:
            return "/".join(str(row[name]) for name in self.id_parts if row.get(name) not in (None, ""))
        return otherwise


# --- characters and ids -----------------------------------------------------------------------------------------------


def printable_lines(lines: Iterable[Line], log: Log) -> Iterator[Line]:
    """The lines that can be written: what is not Unicode in names and columns is escaped, a text with it is skipped."""
    for line in lines:
        if line.text is not None and printable(line.text) != line.text:
            log.skip(line.source, "the text holds half of a surrogate pair, which is no character", "text not Unicode")
            continue
        names = {name: printable(value) for name in ("id", "domain", "source") if (value := getattr(line, name))}
        extra = {
            printable(key): printable(value) if isinstance(value, str) else value for key, value in line.extra.items()
        }
        if extra != line.extra or any(getattr(line, name) != value for name, value in names.items()):
            log.note(f"{line.source}: what is not Unicode in its name or columns is written with backslashes.")
            line = replace(line, **names, extra=extra)
        yield line


def unique_ids(lines: Iterable[Line], log: Log) -> Iterator[Line]:
    """Give a line whose id was seen before a new one (`id~2`), with a note.

    The ids are kept in a temporary database that spills to disk, so that memory stays bounded for any number of lines.
    """
    seen = sqlite3.connect("", isolation_level=None, check_same_thread=False)
    try:
        seen.execute("PRAGMA journal_mode = OFF")
        seen.execute("PRAGMA synchronous = OFF")
        seen.execute("CREATE TABLE ids (id BLOB PRIMARY KEY) WITHOUT ROWID")
        seen.execute("BEGIN")

        def is_new(name: str) -> bool:
            key = name.encode("utf-8", "surrogatepass")
            return seen.execute("INSERT OR IGNORE INTO ids VALUES (?)", (key,)).rowcount == 1

        for line in lines:
            if not is_new(line.id):
                number = 2
                while not is_new(f"{line.id}~{number}"):
                    number += 1
                log.note(f"{line.source}: the id {line.id} is taken, the line is called {line.id}~{number}.")
                line = replace(line, id=f"{line.id}~{number}")
            yield line
    finally:
        seen.close()


# --- dispatch --------------------------------------------------------------------------------------------------------


def open_source(source: PathLike | Iterable[PathLike], options: Options) -> LineSet:
    """The lines of a source, or of several one after the other; see :func:`fada.data.line.read_lines`."""
    if isinstance(source, str | os.PathLike):
        sets = [_open_one(os.fspath(source), options)]
    else:
        sets = [_open_one(os.fspath(one), options) for one in source]
        if not sets:
            raise FadaError("no source of lines was given.")

    def read(log: Log, media: bool) -> Iterator[Line]:
        return unique_ids(printable_lines((line for one in sets for line in one._read(log, media)), log), log)

    expected = [one.expected for one in sets]
    return LineSet(
        read,
        ", ".join(one.name for one in sets),
        expected=None if None in expected else sum(number or 0 for number in expected),
        licence="; ".join(dict.fromkeys(one.licence for one in sets if one.licence)) or None,
        citation="\n".join(dict.fromkeys(one.citation for one in sets if one.citation)) or None,
    )


def is_named_set(source: str) -> bool:
    """Whether a source is a set of the hub or a published one, and not a path."""
    return source.partition(":")[0] in ("hub", *PUBLISHED)


def _open_one(source: str, options: Options) -> LineSet:
    from fada.data.formats import manifest, pairs, parquet, xml

    options = replace(options, split=canonical_split(options.split))
    name, _, rest = source.partition(":")
    if name == "hub":
        return parquet.open_hub(rest, options)
    path = Path(source)
    if name in PUBLISHED and not path.exists():
        from fada.data import published

        return published.load(name, rest or None, split=options.split)
    if not path.exists():
        raise FadaError(
            f"{source}: no such file or folder. A data set on the Hugging Face hub is written hub:owner/name, "
            f"a published one {', '.join(f'{one}:FOLDER' for one in PUBLISHED)}."
        )
    if options.domain_rule is _by_folder:
        folder = os.path.realpath(Base.of(path, options).folder)
        options = replace(options, domain_rule=partial(_by_folder, source=folder))
    kinds: dict[str, list[Path]] = {}
    for file in [path] if path.is_file() else walk(path):
        if kind := _kind(file):
            kinds.setdefault(kind, []).append(file)
    if options.format is not None:
        if options.format not in _FORMATS:
            raise FadaError(f"format {options.format!r} is not known; there are: {', '.join(_FORMATS)}.")
        chosen = options.format
    else:
        chosen = next((kind for kind in _FORMATS if kind in kinds), "")
    if not kinds.get(chosen):
        found = ", ".join(f"{len(files)} {kind}" for kind, files in kinds.items()) or "none of them"
        raise FadaError(
            f"{source}: nothing to read{f' as {chosen}' if chosen else ''}. Expected parquet, arrow, CSV, TSV, JSONL, "
            f"ALTO, PAGE, image + .gt.txt, images or sounds; found {found}."
        )
    asked = options.columns.get("domain")
    if asked and chosen not in _TABLES and options.domain is None and options.domain_rule is None:
        raise FadaError(
            f"{source}: read as {chosen}, which has no columns, so the domain cannot come from a column {asked!r}. "
            "Say where it comes from with domain_from (--domain-from): folder, a table, or a pattern over the path."
        )
    openers = {
        "arrow": parquet.open_tables,
        "parquet": parquet.open_tables,
        "xml": xml.open_xml,
        "pairs": pairs.open_pairs,
        "manifest": manifest.open_manifests,
        "images": pairs.open_media,
        "audio": pairs.open_media,
    }
    opened = openers[chosen](path, kinds[chosen], options)
    left = {kind: files for kind, files in kinds.items() if kind != chosen and not _belongs(kind, chosen)}
    if left:
        opened = _noting(opened, left, chosen)
    images = kinds.get("images", [])
    return _noting_unused(opened, images) if images and chosen in {"xml", "manifest"} and not options.split else opened


_FORMATS = ("arrow", "parquet", "xml", "pairs", "manifest", "images", "audio")
"""In this order of preference where a folder has several."""

_TABLES = frozenset({"arrow", "parquet", "manifest"})


def _kind(file: Path) -> str | None:
    suffix = file.suffix.lower()
    if suffix in MANIFEST_SUFFIXES:
        return "manifest"
    if suffix in IMAGE_SUFFIXES:
        return "images"
    if suffix in AUDIO_SUFFIXES:
        return "audio"
    if file.name.lower().endswith(".gt.txt"):
        return "pairs"
    return {".parquet": "parquet", ".arrow": "arrow", ".xml": "xml"}.get(suffix)


def _belongs(kind: str, chosen: str) -> bool:
    """Whether files of a kind are parts of the chosen ones: the images of pages, of pairs, of manifests."""
    return kind in {"images", "audio"} and chosen in {"xml", "pairs", "manifest"}


def _noting(lines: LineSet, left: Mapping[str, list[Path]], chosen: str) -> LineSet:
    def read(log: Log, media: bool) -> Iterator[Line]:
        for kind, files in left.items():
            log.note(
                f"{len(files)} files of the kind {kind} ({files[0].name}, ...) beside the {chosen} ones were not read; "
                f"name them, or choose with format={kind!r} (--read-as {kind})."
            )
        yield from lines._read(log, media)

    return LineSet(read, lines.name, expected=lines.expected, licence=lines.licence, citation=lines.citation)


def _noting_unused(lines: LineSet, images: list[Path]) -> LineSet:
    def read(log: Log, media: bool) -> Iterator[Line]:
        used = set()
        for line in lines._read(log, media):
            image = getattr(line.image, "page", line.image)
            if isinstance(image, str | os.PathLike):
                used.add(os.path.realpath(image))
            yield line
        unused = [image.name for image in images if media and os.path.realpath(image) not in used]
        if unused:
            named = f"{', '.join(unused[:3])}{', ...' if len(unused) > 3 else ''}"
            log.note(f"images that belong to none of the lines that were read: {len(unused)} ({named}).")

    return LineSet(read, lines.name, expected=lines.expected, licence=lines.licence, citation=lines.citation)
