"""The formats that are read and written: ours, and those that other packages add.

A format is a module (or any object) with a function `open` for reading, `write` for writing, or both. Another package
adds one with an entry point of the group `fada.formats`, whose name is the format's:

    [project.entry-points."fada.formats"]
    abbyy = "my_package.abbyy"

Its module says which files it reads and writes, `SUFFIXES = (".abbyy",)`, and may say `FOLDER = True` if it writes a
folder of files rather than one file, and `NEEDS_IMAGE = True` if it cannot be written without images.
"""

import importlib
import importlib.util
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import lru_cache
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any, TypeAlias

from fada.common.tables import TEXT_SUFFIXES
from fada.data.line import LineSet
from fada.data.places import AUDIO_SUFFIXES, GT_SUFFIX, IMAGE_SUFFIXES, PDF
from fada.data.reading import Reading
from fada.errors import EXTRAS, FadaError, missing_extra

GROUP = "fada.formats"


Opener: TypeAlias = Callable[[Path, list[Path], Reading], LineSet]
"""`open`: from a source and its files of one kind to their lines."""

Writer: TypeAlias = Callable[..., list[Path]]
"""`write`: writes transcriptions to a file or a folder (`results`, `destination`; by name `format`, `provenance`), and
says which files it wrote."""


@dataclass(frozen=True)
class Format:
    """A format.

    Attributes:
        home: the module, imported when it is needed, or the object that an entry point gives.
        suffixes: the endings of the files that are read; none if the format is only written.
        parts: formats of files that belong to this one: the images of pages, of pairs, of manifests.
        columns: whether it is a table.
        endings: what the name of a file to be written in it ends in, where that is not the name of the format.
        folder: whether it is written as a folder of files; None if only where the destination has no ending of a file.
        needs_image: whether writing needs the images of the lines.
        package: what must be installed to write it.
    """

    name: str
    home: Any
    suffixes: tuple[str, ...] = ()
    parts: tuple[str, ...] = ()
    columns: bool = False
    endings: tuple[str, ...] = ()
    folder: bool | None = False
    needs_image: bool = False
    package: str | None = None

    @property
    def open(self) -> Opener:
        return self._function("open", "read")

    @property
    def write(self) -> Writer:
        return self._function("write", "written")

    def _function(self, name: str, done: str) -> Any:
        module = importlib.import_module(self.home) if isinstance(self.home, str) else self.home
        if not hasattr(module, name):
            raise FadaError(f"the format {self.name} cannot be {done}.")
        return getattr(module, name)

    def is_folder(self, destination: Path) -> bool:
        """Whether it is written as a folder of files rather than as one file."""
        if self.folder is not None:
            return self.folder
        return not (destination.name.lower().endswith(self.endings) if self.endings else destination.suffix)


_HERE = "fada.data.formats"
_PARTS = ("images", "audio")
_OURS = (
    Format("arrow", f"{_HERE}.parquet", (".arrow",), columns=True),
    Format("parquet", f"{_HERE}.parquet", (".parquet",), columns=True),
    Format("xml", f"{_HERE}.pages", (".xml", ".hocr"), _PARTS),
    Format("pairs", f"{_HERE}.pairs", (GT_SUFFIX,), _PARTS, folder=True, needs_image=True),
    Format("manifest", f"{_HERE}.manifest", tuple(sorted(TEXT_SUFFIXES)), _PARTS, columns=True),
    Format("images", f"{_HERE}.media", (*sorted(IMAGE_SUFFIXES), PDF)),
    Format("audio", f"{_HERE}.media", tuple(sorted(AUDIO_SUFFIXES))),
    Format("same", f"{_HERE}.pages", endings=(".xml",), folder=None),
    Format("alto", f"{_HERE}.pages", endings=(".alto.xml", ".xml"), folder=None, needs_image=True),
    Format("page", f"{_HERE}.pages", endings=(".page.xml", ".xml"), folder=None, needs_image=True),
    Format("hocr", f"{_HERE}.hocr", endings=(".hocr", ".html"), folder=None, needs_image=True),
    Format("tei", f"{_HERE}.tei", endings=(".tei", ".tei.xml", ".xml"), folder=None, needs_image=True),
    Format("pdf", f"{_HERE}.pdf", needs_image=True, package="pypdfium2"),
    Format("txt", f"{_HERE}.text", folder=None),
    Format("tsv", f"{_HERE}.manifest"),
    Format("csv", f"{_HERE}.manifest"),
    Format("jsonl", f"{_HERE}.manifest"),
)
"""In the order of preference where a folder has several."""

WRITTEN = ("same", "alto", "page", "hocr", "tei", "pdf", "txt", "tsv", "csv", "jsonl", "parquet", "pairs")
"""Those of ours that are written; `same` is a copy of the ALTO or PAGE files of the lines, with new text."""


@lru_cache
def formats() -> dict[str, Format]:
    """All formats by name: ours, then those that other packages add."""
    found = {one.name: one for one in _OURS}
    for entry in entry_points(group=GROUP):
        if entry.name in found:
            raise FadaError(f"{entry.value}: adds a format {entry.name!r}, which is there already. Rename it.")
        module = entry.load()
        found[entry.name] = Format(
            entry.name,
            module,
            tuple(suffix.lower() for suffix in getattr(module, "SUFFIXES", ())) if hasattr(module, "open") else (),
            folder=bool(getattr(module, "FOLDER", False)),
            needs_image=bool(getattr(module, "NEEDS_IMAGE", False)),
        )
    return found


def readable() -> list[str]:
    """The names of the formats that are read, in order of preference."""
    return [name for name, one in formats().items() if one.suffixes]


def writable() -> list[str]:
    """The names of the formats that are written."""
    added = [name for name, one in formats().items() if not isinstance(one.home, str) and hasattr(one.home, "write")]
    return [*WRITTEN, *added]


def written_format(name: str, destination: Path) -> Format:
    """The format of this name, if it can be written here."""
    if name not in writable():
        raise FadaError(f"{destination}: format {name!r} is not known; there are: {', '.join(writable())}.")
    chosen = formats()[name]
    if chosen.package and importlib.util.find_spec(chosen.package) is None:
        raise missing_extra(chosen.package, EXTRAS[chosen.package], f"{destination}: writing {name}")
    return chosen


def format_by_ending(destination: Path) -> str:
    """The format that the name of a destination asks for, the longest ending that fits; "" for one without ending."""
    name = destination.name.lower()
    fitting = [(ending, one.name) for one in formats().values() for ending in one.endings if name.endswith(ending)]
    return max(fitting, key=lambda pair: len(pair[0]))[1] if fitting else destination.suffix.lower().removeprefix(".")


def format_of(file: Path) -> str | None:
    """The format of a file by its ending, the longest that fits."""
    name = file.name.lower()
    fitting = [(suffix, one.name) for one in formats().values() for suffix in one.suffixes if name.endswith(suffix)]
    return max(fitting, key=lambda pair: len(pair[0]))[1] if fitting else None


def group(files: Iterable[Path]) -> dict[str, list[Path]]:
    """Files by format, those of none left out."""
    kinds: dict[str, list[Path]] = {}
    for file in files:
        if kind := format_of(file):
            kinds.setdefault(kind, []).append(file)
    return kinds
