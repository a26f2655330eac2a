"""Reading a source: which format it has, its lines with unique ids, or its texts alone."""

import glob
import os
import sys
import tempfile
import zipfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from importlib import import_module
from pathlib import Path, PurePosixPath

from fada.common.files import BROKEN_ARCHIVE
from fada.common.scratch import scratch_database
from fada.common.tables import SUFFIXES as TABLES
from fada.data.formats import text as plain_text
from fada.data.formats.registry import Format, format_of, formats, group, readable
from fada.data.line import Line, LineSet, Log, printable, split_of
from fada.data.places import DRAWING, walk
from fada.data.reading import Reading
from fada.data.rows import table_texts
from fada.errors import FadaError, first_few

NAMED_SETS = {
    "hub": "fada.data.formats.parquet:open_hub",
    **dict.fromkeys(("hpgt", "catmus", "edacc"), "fada.data.published:open_named"),
}
"""Sets that have a name instead of a path (`hub:owner/name`, `hpgt:FOLDER`), with the function that opens them."""

STANDARD_INPUT = "-"
ZIP_BYTES = 20 * 2**30
"""An archive that unpacks to more is not read."""

ZIP_RATIO = 200
"""Neither is one that unpacks to more than a gigabyte and so many times its own size."""

ADVICE: Mapping[str, str] = {
    ".djvu": "export its pages as images (for instance with ddjvu -format=tiff)",
    ".docx": "save the text as .txt",
    ".odt": "save the text as .txt",
    ".rar": "unpack it",
    ".7z": "unpack it",
    ".gz": "unpack it",
}
"""What to do about files that are not read."""

# --- lines -----------------------------------------------------------------------------------------------------------


def open_lines(paths: Sequence[str], reading: Reading) -> LineSet:
    """The lines of a source, or of several one after the other; see :func:`fada.read_lines`."""
    if reading.images is not None and not reading.images.is_dir():
        raise FadaError(f"{reading.images}: no such folder; images (--images) names that of the page images.")
    sets = [_open_one(path, reading) for path in paths]

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
    return source.partition(":")[0] in NAMED_SETS


def _open_one(source: str, reading: Reading) -> LineSet:
    name, _, rest = source.partition(":")
    path = Path(source)
    if name in NAMED_SETS and (name == "hub" or not path.exists()):
        module, _, function = NAMED_SETS[name].partition(":")
        return getattr(import_module(module), function)(rest if name == "hub" else source, reading)
    if not path.exists():
        raise _not_there(source)
    archived = path.suffix.lower() == ".zip" and path.is_file()
    path = unpacked(path) if archived else path
    files = _files(path)
    kinds = group(files)
    if reading.format is not None and reading.format not in readable():
        raise FadaError(f"format {reading.format!r} is not known; there are: {', '.join(readable())}.")
    name = reading.format or next((kind for kind in readable() if kind in kinds), "")
    if not kinds.get(name):
        raise _nothing_to_read(source, path, name, kinds)
    chosen = formats()[name]
    asked = reading.domain_column
    if asked and not chosen.columns and not reading.rule.given and not reading.rule.by_path:
        raise FadaError(
            f"{source}: read as {name}, which has no columns, so the domain cannot come from a column {asked!r}. "
            "Say where it comes from with domain_from (--domain-from): folder, a table, or a pattern over the path."
        )
    advised = [file for file in files if file.suffix.lower() in ADVICE]
    lines = _noting(chosen.open(path, kinds[name], reading), kinds, chosen, reading, advised)
    lines.name = source if archived else lines.name
    return lines


def _files(path: Path) -> list[Path]:
    if path.is_dir():
        return list(walk(path))
    if not path.is_file():
        raise FadaError(f"{path}: neither a file nor a folder, and not read: a pipe or a device may never end.")
    return [path]


def _not_there(source: str) -> FadaError:
    named = ", ".join(f"{name}:FOLDER" for name in NAMED_SETS if name != "hub")
    return FadaError(
        f"{source}: no such file or folder. A data set on the Hugging Face hub is written hub:owner/name, a published "
        f"one {named}."
    )


def _nothing_to_read(source: str, path: Path, name: str, kinds: Mapping[str, list[Path]]) -> FadaError:
    found = ", ".join(f"{len(files)} {kind}" for kind, files in kinds.items()) or "none of them"
    endings = {file.suffix.lower() for file in (walk(path) if path.is_dir() else [path])}
    advice = next((f" For {ending}: {ADVICE[ending]}." for ending in sorted(endings & {*ADVICE})), "")
    return FadaError(
        f"{source}: nothing to read{f' as {name}' if name else ''}. Expected parquet, arrow, CSV, TSV, JSONL, ALTO, "
        f"PAGE, image + .gt.txt, images or sounds, or a ZIP file of them; found {found}.{advice}"
    )


def _noting(
    lines: LineSet, kinds: Mapping[str, list[Path]], chosen: Format, reading: Reading, advised: Sequence[Path]
) -> LineSet:
    """The lines, with notes about files beside them that were not read and images that belong to none of them."""
    left = {kind: files for kind, files in kinds.items() if kind != chosen.name and kind not in chosen.parts}
    images = kinds.get("images", []) if chosen.name in ("xml", "manifest") and not reading.split else []
    images = [image for image in images if not image.name.endswith(DRAWING)]

    def read(log: Log, media: bool) -> Iterator[Line]:
        if advised:
            ending = advised[0].suffix.lower()
            log.note(f"not read: {first_few((file.name for file in advised), 1)}. For {ending}: {ADVICE[ending]}.")
        for kind, files in left.items():
            log.note(
                f"{len(files)} files of the kind {kind} ({files[0].name}, ...) beside the {chosen.name} ones were not "
                f"read; name them, or choose with format={kind!r} (--read-as {kind})."
            )
        used = set()
        for line in lines._read(log, media):
            image = getattr(line.image, "page", line.image)
            if images and isinstance(image, str | os.PathLike):
                used.add(os.path.realpath(image))
            yield line
        unused = [image.name for image in images if media and os.path.realpath(image) not in used]
        if unused:
            told = first_few(unused, 3)
            log.note(f"images that belong to none of the lines that were read: {len(unused)} ({told}).")

    if not left and not images and not advised:
        return lines
    return LineSet(read, lines.name, expected=lines.expected, licence=lines.licence, citation=lines.citation)


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

    The ids are kept in a temporary database, so that memory stays bounded for any number of lines.
    """
    seen = scratch_database("CREATE TABLE ids (id BLOB PRIMARY KEY) WITHOUT ROWID")
    try:

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


# --- archives --------------------------------------------------------------------------------------------------------

_TEMPORARY: list[tempfile.TemporaryDirectory[str]] = []


def unpacked(archive: Path) -> Path:
    """The folder with the files of a ZIP archive, unpacked for as long as the program runs."""
    found = archive.stat()
    return _unpacked(archive.absolute(), found.st_mtime_ns, found.st_size)


@lru_cache(maxsize=64)
def _unpacked(archive: Path, changed: int, size: int) -> Path:
    place = tempfile.TemporaryDirectory(prefix="fada-")
    _TEMPORARY.append(place)
    folder = Path(place.name, archive.stem)
    folder.mkdir()
    try:
        with zipfile.ZipFile(archive) as opened:
            if not all(opened.namelist()):
                raise zipfile.BadZipFile("a file in it has no name")
            files = [one for one in opened.infolist() if not one.is_dir() and _is_wanted(one.filename)]
            total = sum(one.file_size for one in files)
            if total > ZIP_BYTES or total > max(2**30, ZIP_RATIO * size):
                raise FadaError(f"{archive}: unpacks to {total:,} bytes, too much to be safe. Unpack it yourself.")
            for one in files:
                file = opened.extract(one, folder)  # which keeps names inside the folder
                os.utime(file, ns=(changed, changed))  # unpacked again, it is the same file
    except (OSError, ValueError, NotImplementedError, *BROKEN_ARCHIVE) as error:
        raise FadaError(f"{archive}: cannot be unpacked ({error}). Unpack it yourself and give the folder.") from None
    inside = [*folder.iterdir()]
    return inside[0] if len(inside) == 1 and inside[0].is_dir() else folder


def _is_wanted(name: str) -> bool:
    parts = PurePosixPath(name).parts
    if any(part.startswith((".", "__MACOSX")) for part in parts):
        return False
    return format_of(Path(name)) is not None or Path(name).suffix.lower() in plain_text.SUFFIXES


# --- texts -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class TextFile:
    """A file of text, and the folder it was found in when a folder was named; a folder of XML is one."""

    path: Path
    folder: Path | None = None

    @property
    def size(self) -> int:
        """Bytes."""
        return sum(file.stat().st_size for file in _pages(self.path)) or self.path.stat().st_size


@dataclass
class Texts:
    """The texts of sources, each with its domain, in constant memory: a line of a file or a row of a table each.

    Text files and tables of a folder are read; ALTO and PAGE files if it has none of them, without their images.
    A row that is broken is an error: what is counted is all or nothing.

    Attributes:
        on_bytes: called with the number of bytes read, now and then, for a progress bar.
        log: what was left out, and why.
    """

    paths: Sequence[str]
    reading: Reading
    on_bytes: Callable[[int], object] = lambda size: None
    log: Log = field(default_factory=Log)
    held_out: bool = True
    """Whether texts of validation and test are read too, where no split is asked for."""
    left_out: int = field(default=0, init=False)
    """How many files and rows were left out for that."""
    wanted: Callable[[int], bool] = lambda place: True
    """Which of the files are read, by their places in :meth:`files`; standard input follows them."""
    _divided: set[Path | None] = field(default_factory=set, init=False)
    place: str = field(default="", init=False)
    """The file that is being read."""

    def files(self) -> list[TextFile]:
        """The files behind the sources, each once, in a fixed order; standard input is not among them."""
        found: dict[Path, TextFile] = {}
        for path in self.paths:
            for file in _expanded(path) if path != STANDARD_INPUT else ():
                found.setdefault(file.path.resolve(), file)
        return list(found.values())

    def __iter__(self) -> Iterator[tuple[str | None, str]]:
        files = self.files()
        self._divided = {file.folder for file in files if _split_of(file) == "train"}
        for place, file in enumerate(files):
            self.place = str(file.path)
            if self.wanted(place):
                yield from self._file(file)
        for folder in map(Path, self.paths):
            if TextFile(folder, folder) not in files and folder.is_dir() and (pages := _pages(folder)):
                self.log.note(f"{folder}: {len(pages)} XML files beside text files or tables; name them to read them")
        if STANDARD_INPUT in self.paths and self.wanted(len(files)):
            if self.reading.domain is None:
                raise FadaError("standard input has no folder or file name to take the domain from: give it --domain.")
            for line in plain_text.stream_lines(sys.stdin.buffer, "standard input", self.reading.encoding):
                yield self.reading.domain, line

    def _keeps(self, split: str | None) -> bool:
        """Whether texts of this split are read."""
        if self.reading.split is not None:
            return split == self.reading.split
        kept = self.held_out or split in (None, "train")
        self.left_out += not kept
        return kept

    def _file(self, file: TextFile) -> Iterator[tuple[str | None, str]]:
        path, suffix = file.path, file.path.suffix.lower()
        base = self.reading.base_of(file.folder or path)
        split = _split_of(file) if file.folder in self._divided or self.reading.split else None
        if split is not None and not self._keeps(split):
            return
        keeps = self._keeps if split is None else lambda row: row is None or self._keeps(row)
        if path.is_dir() or suffix == ".xml":
            yield from self._xml(file)
        elif suffix in TABLES:
            yield from table_texts(path, base, self.reading, self.on_bytes, keeps)
        else:
            refuse_markup(path)
            if split is None and self.reading.split is not None:
                return
            name = base.name(path)
            domain = self.reading.domain_of(None, name, {}, base, self.log)
            if domain is None and self.reading.domain_from is not None:
                raise FadaError(f"{path}: --domain-from {self.reading.domain_from} gives no domain for it.")
            for line in plain_text.text_lines(path, self.reading.encoding, self.on_bytes):
                yield domain, line

    def _xml(self, file: TextFile) -> Iterator[tuple[str | None, str]]:
        """The lines of ALTO and PAGE files; no image is needed, and a page that is there as both is read once."""
        lines = _open_one(str(file.path), self.reading.change(format="xml"))
        number, before = 0, len(self.log.skipped)
        for line in lines._read(self.log, False):
            if line.text is not None:
                number += 1
                if self.reading.split is not None or self._keeps(line.split):
                    yield line.domain, line.text
        self.on_bytes(file.size)
        if not number:
            why = f": {self.log.skipped[-1].reason}" if len(self.log.skipped) > before else ""
            raise FadaError(f"{file.path}: no text of ALTO or PAGE lines{why}. Export the text of other XML, as .txt.")


def _split_of(file: TextFile) -> str | None:
    """The split that the name of a file in a folder stands for."""
    return split_of(file.path.relative_to(file.folder)) if file.folder and file.path != file.folder else None


def refuse_markup(path: Path) -> None:
    """Refuse a file whose ending tells that not all of its text is text."""
    if (suffix := path.suffix.lower()) in _MARKUP:
        raise FadaError(
            f"{path}: {suffix} files hold more than text, and all of it would be taken for text. Export the text, or a "
            f"table ({', '.join(sorted(TABLES))})."
        )


_MARKUP = (".html", ".htm", ".json", ".pdf", ".docx", ".odt", ".gz")


def _expanded(source: str) -> list[TextFile]:
    path = Path(source)
    if path.suffix.lower() == ".zip" and path.is_file():
        path = unpacked(path)
    if path.is_dir():
        known = (*plain_text.SUFFIXES, *sorted(TABLES))
        files = sorted(file for file in walk(path) if file.suffix.lower() in known)
        if not files and _pages(path):
            return [TextFile(path, path)]
        if not files:
            raise FadaError(f"{path}: a folder without text files or tables ({', '.join((*known, '.xml'))}).")
        return [TextFile(file, path) for file in files]
    if path.is_file():
        return [TextFile(path)]
    if path.exists():
        raise FadaError(f"{path}: neither a file nor a folder, and not read: a pipe or a device may never end.")
    if not glob.has_magic(source):
        raise FadaError(f"{path}: no such file or folder.")
    matches = sorted(glob.glob(source, recursive=True))
    if not matches:
        raise FadaError(f"{source}: no file matches this pattern.")
    return [one for match in matches if Path(match).suffix or Path(match).is_dir() for one in _expanded(match)]


def _pages(folder: Path) -> list[Path]:
    return [file for file in walk(folder) if file.suffix.lower() == ".xml"]
