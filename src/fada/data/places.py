"""Where files are: endings, folders that paths must not leave, names that every file system takes."""

import hashlib
import os
import re
import stat
import unicodedata
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property, lru_cache
from pathlib import Path

from fada.data.domains import XML_FOLDERS
from fada.data.line import PathLike
from fada.errors import FadaError
from fada.text.characters import natural_key

IMAGE_SUFFIXES = frozenset(
    {".png", ".jpg", ".jpeg", ".tif", ".tiff", ".bmp", ".gif", ".webp", ".jp2", ".pgm", ".ppm"}
    | {".heic", ".heif", ".hif", ".avif"}
)
PDF = ".pdf"
DRAWING = ".lines.png"
"""What the name of a drawing of found lines ends in; it is no page."""
AUDIO_SUFFIXES = frozenset({".wav", ".flac", ".ogg", ".mp3", ".opus", ".m4a"})
BARE = IMAGE_SUFFIXES | AUDIO_SUFFIXES | {PDF, ".xml"}
"""Files that hold no columns."""
GT_SUFFIX = ".gt.txt"
IDS = "ids.json"
"""The table of ids in a folder of pairs, for those that no file can be called."""

LINK_OUTSIDE = "a link that leads outside of the folder; allow it with allow_outside (--allow-outside)"


@dataclass(frozen=True)
class Base:
    """A folder that the paths found in files, and the links in it, must not leave.

    Attributes:
        named: a file that was named as the source itself, which may be a link to anywhere.
        own: the folder of the source, if the base is another one.
    """

    folder: Path
    allow_outside: bool = False
    named: Path | None = None
    own: Path | None = None

    @classmethod
    def of(cls, source: Path, base: Path | None = None, allow_outside: bool = False) -> "Base":
        """The base folder of a source: the one given, else the folder itself, or the one that a file is in.

        It is one up from folders called `page` and `alto`: exports keep the images there.
        """
        named = None if source.is_dir() else source
        own = source if source.is_dir() else source.parent
        if base is not None:
            return cls(base, allow_outside, named, own)
        folder = own.parent if own.name.lower() in XML_FOLDERS else own
        return cls(folder, allow_outside, named, folder)

    @cached_property
    def source(self) -> str:
        """The folder of the source, links followed: what the rule for domains counts folders from."""
        return os.path.realpath(self.own or self.folder)

    def below(self, name: str) -> str:
        """A path as :meth:`name` gives it, seen from the source."""
        if self.own is None or self.own == self.folder:
            return name
        return os.path.relpath(os.path.join(os.path.realpath(self.folder), name), self.source).replace(os.sep, "/")

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
            raise FadaError(f"the file {name} {'is no file' if os.path.exists(path) else 'does not exist'}")
        if os.pardir in path:  # behind a link, `..` is not what it looks like
            path = os.path.join(os.path.realpath(os.path.dirname(path)), os.path.basename(path))
        return path


@lru_cache(maxsize=4096)
def is_inside(path: str, base: str) -> bool:
    """Whether a path, links followed, is the base folder or in it."""
    real, base = os.path.realpath(path or "."), os.path.realpath(base or ".")
    return real == base or real.startswith(os.path.join(base, ""))


def walk(folder: Path) -> Iterator[Path]:
    """All files below a folder in natural order; hidden ones, pipes and devices, which never end, are left out."""
    for where, folders, names in os.walk(folder):
        folders[:] = sorted((name for name in folders if not name.startswith((".", "__MACOSX"))), key=natural_key)
        for name in sorted((name for name in names if not name.startswith(".")), key=natural_key):
            path = Path(where, name)
            if stat.S_ISREG(mode := _mode(path)) or not mode:
                yield path


def _mode(path: Path) -> int:
    """What kind of file this is; 0 for a link that leads nowhere, which is told when it is read."""
    try:
        return path.stat().st_mode
    except OSError:
        return 0


# --- names of new files -----------------------------------------------------------------------------------------------


NAME_BYTES = 200
"""A part of a file name is cut to so many bytes; file systems take 255, endings included."""


def safe_name(name: str) -> str:
    """An id as a relative path that cannot leave its folder and that every file system takes."""
    parts = [re.sub(r'[<>:"\\|?*\x00-\x1f\ud800-\udfff]', "_", part).strip(" .") for part in name.split("/")]
    return "/".join(_cut(part) for part in parts if part) or "line"


def _cut(part: str) -> str:
    data = part.encode()
    if len(data) <= NAME_BYTES:
        return part
    return f"{data[: NAME_BYTES - 9].decode(errors='ignore')}~{hashlib.sha1(data).hexdigest()[:8]}"


class FileNames:
    """The file names of one output: none is given twice, whichever characters and cases the file system tells apart."""

    def __init__(self) -> None:
        self._taken: set[str] = set()

    def take(self, name: str) -> str:
        """A safe name (:func:`safe_name`) that no other line has; `~2` is appended where it is taken."""
        safe = new = safe_name(name)
        number = 1
        while (key := unicodedata.normalize("NFC", new.casefold())) in self._taken:
            number += 1
            new = f"{safe}~{number}"
        self._taken.add(key)
        return new
