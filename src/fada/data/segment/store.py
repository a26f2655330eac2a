"""Pages that are read without being segmented first: each is drawn and its lines are found once, and kept on disk."""

import hashlib
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from pydantic import TypeAdapter, ValidationError

from fada.common.files import write_bytes
from fada.data.crop import PageCrop
from fada.data.places import PDF
from fada.data.segment.detector import is_installed
from fada.data.segment.page import PageLines, find_lines, is_page
from fada.data.segment.photographs import Photograph, photographs, write_image
from fada.data.segment.upright import LookAt, find_upright
from fada.errors import FadaError


@dataclass(frozen=True)
class StoredPage:
    """A page of a file, as it was found.

    Attributes:
        suffix: what the file's name and this make the page's name: `-0003`; empty where the file is one page.
        image: its image on disk, which was `made` of the file, or is the file.
        found: its lines; None if there is a `problem`, or it was not wanted.
        notes: what is worth knowing.
    """

    suffix: str
    image: Path
    made: bool
    found: PageLines | None
    problem: str = ""
    notes: tuple[str, ...] = ()

    def crops(self) -> list[PageCrop]:
        """Its lines."""
        return [] if self.found is None else self.found.crops(self.image, made=self.made)


_RECORD = TypeAdapter(StoredPage)


class PageStore:
    """The pages of files with their lines.

    Args:
        folder: where they are kept; a temporary one if not given.
        look_at: tells which way up a page stands; pages are taken as they stand without.
    """

    def __init__(self, folder: Path | None = None, look_at: LookAt | None = None) -> None:
        self._given = folder
        self.look_at = look_at

    @cached_property
    def _temporary(self) -> "tempfile.TemporaryDirectory[str]":
        return tempfile.TemporaryDirectory(prefix="fada-")

    @property
    def folder(self) -> Path:
        """Where pages are kept."""
        return self._given or Path(self._temporary.name)

    def pages(self, file: Path, wanted: Callable[[str], bool]) -> Iterator[StoredPage] | None:
        """The pages of a file one after the other; None if it is a line, or nothing is installed to find any.

        Args:
            wanted: on which of them lines are looked for, by their suffixes; the others are given without.

        Raises:
            FadaError: the file cannot be opened.
        """
        if file.suffix.lower() != PDF and not (is_installed() and is_page(file)):
            return None
        return self._pages(file, wanted)

    def remove(self) -> None:
        """Forget everything that was kept."""
        shutil.rmtree(self.folder, ignore_errors=True)

    def _pages(self, file: Path, wanted: Callable[[str], bool]) -> Iterator[StoredPage]:
        found = file.stat()
        key = f"{os.path.realpath(file)} {found.st_size} {found.st_mtime_ns}"
        place = self.folder / f"{file.stem[:80]}-{hashlib.blake2b(os.fsencode(key), digest_size=6).hexdigest()}"
        place.mkdir(parents=True, exist_ok=True)
        others: list[StoredPage] = []

        def takes(name: str) -> bool:
            suffix = name.removeprefix(file.stem)
            if not wanted(suffix):
                others.append(StoredPage(suffix, place / f"{name}.png" if suffix else file, bool(suffix), None))
                return False
            return True

        for photograph in photographs(file, place, wanted=takes):
            yield from others
            others.clear()
            yield self._page(photograph, photograph.name.removeprefix(file.stem), place)
        yield from others

    def _page(self, photograph: Photograph, suffix: str, place: Path) -> StoredPage:
        record = place / f"page{suffix}.json"
        try:
            return _RECORD.validate_json(record.read_bytes())
        except (OSError, ValidationError):
            page = self._found(photograph, suffix, place)
        write_bytes(record, _RECORD.dump_json(page))
        return page

    def _found(self, photograph: Photograph, suffix: str, place: Path) -> StoredPage:
        file, made = photograph.file, photograph.made
        try:
            page = find_upright(photograph.load(), find_lines, self.look_at, "")
        except FadaError as error:
            return StoredPage(suffix, file, made, None, problem=str(error).removeprefix(": "))
        if page.turn:
            file, made = place / f"{photograph.name}-{page.turn}.png", True
            write_image(page.image, file)
        return StoredPage(suffix, file, made, page.found, notes=page.notes)
