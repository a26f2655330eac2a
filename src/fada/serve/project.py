"""The project folder: where documents, page images and emissions lie, and what is let in."""

import os
import re
import secrets
import shutil
import unicodedata
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import BinaryIO
from zlib import crc32

import numpy as np
from filelock import FileLock, Timeout
from PIL import Image, ImageOps

from fada.common.files import BROKEN_ARCHIVE, check_writable, replacing
from fada.common.kinds import ending_of
from fada.errors import FadaError
from fada.serve.store import Store

DATABASE = "desk.sqlite"
IMAGES = frozenset({".png", ".jpg", ".tif", ".gif", ".webp", ".jp2", ".bmp", ".heic", ".avif"})
SOUNDS = frozenset({".wav", ".flac", ".ogg", ".mp3"})
_SAME = {".jpeg": ".jpg", ".tiff": ".tif", ".heif": ".heic", ".hif": ".heic", ".oga": ".ogg", ".opus": ".ogg"}


@dataclass(frozen=True)
class Limits:
    """How much the desk takes."""

    body: int = 512 * 2**20
    """Bytes of one request."""
    files: int = 500
    pixels: int = 178_956_970
    """Of one image: as many as are read."""
    pages: int = 2000
    """Of one document."""
    waiting: int = 32
    """Jobs that may wait; further ones are refused with 429."""
    requests: int = 64
    """Requests that are worked at, or wait, at the same time; further ones are refused with 503."""
    streams: int = 64
    """Open streams of events."""
    stuck: float = 900.0
    """Seconds after which a worker that says nothing is ended."""


def sniffed(head: bytes) -> str | None:
    """The ending that fits the first bytes of a file, whatever it is called; None if it is nothing that is read."""
    from fada.data.images import high_efficiency

    if (ending := ending_of(head)) in IMAGES | SOUNDS | {".pdf", ".zip"}:
        return ending
    if kind := high_efficiency(head):
        return {"HEIF": ".heic", "AVIF": ".avif"}[kind]
    start = head.removeprefix(b"\xef\xbb\xbf").lstrip()
    if start.startswith((b"<?xml", b"<alto", b"<PcGts", b"\xff\xfe<", b"\xfe\xff\0<")):
        return ".xml"
    return None


def shown_name(name: str) -> str:
    """The last part of a name that a client gave, without what cannot be shown."""
    base = unicodedata.normalize("NFC", re.split(r"[/\\]", name)[-1])
    return "".join(c for c in base if unicodedata.category(c)[0] != "C")[:100] or "file"


def safe_name(name: str, ending: str) -> str:
    """A file name that stays in its folder, with the ending that fits the content."""
    base = "".join(c for c in shown_name(name) if c not in '<>:"|?*')
    found = re.fullmatch(r"(.*)(\.[A-Za-z0-9]{1,5})", base)
    stem, own = (found[1], found[2]) if found else (base, "")
    fits = _SAME.get(own.lower(), own.lower()) == ending
    stem = stem.strip(". ") or "file"
    if re.fullmatch(r"(?i)con|prn|aux|nul|com\d|lpt\d", stem):
        stem += "_"
    return stem + (own if fits else ending)


class Project:
    """A project folder, opened by one server at a time."""

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        self.folder = Path(folder).resolve()
        if self.folder.exists() and not self.folder.is_dir():
            raise FadaError(f"{folder}: a file, expected a folder for the project.")
        others = [p.name for p in self.folder.iterdir() if not p.name.startswith(".")] if self.folder.is_dir() else []
        if others and DATABASE not in others:
            raise FadaError(
                f"{folder}: holds other files ({others[0]}) but no project of `fada serve`. Name a new or empty "
                "folder, and drop the files on the page."
            )
        check_writable(self.folder)
        self.folder.mkdir(parents=True, exist_ok=True)
        self._lock = FileLock(self.folder / ".desk.lock", thread_local=False)
        try:
            self._lock.acquire(timeout=5)
        except Timeout:
            raise FadaError(f"{folder}: another `fada serve` has this project open. Close it first.") from None
        for name in ("documents", "emissions", "models", "cache", "tmp", "runs"):
            (self.folder / name).mkdir(exist_ok=True)
        shutil.rmtree(self.temporary, ignore_errors=True)
        self.temporary.mkdir(exist_ok=True)
        self.store = Store(self.folder / DATABASE)

    @property
    def temporary(self) -> Path:
        """For uploads and exports; emptied at every start."""
        return self.folder / "tmp"

    def new_temporary(self) -> Path:
        """A new folder for one request or job."""
        folder = self.temporary / secrets.token_hex(8)
        folder.mkdir()
        return folder

    def source(self, document: int) -> Path:
        """The folder with what was uploaded for a document, and the pages made of it."""
        return self.folder / "documents" / str(document)

    def made(self, document: int) -> Path:
        """The folder with pages that were made of what was uploaded."""
        return self.source(document) / "pages"

    def model(self, name: str) -> str:
        """The folder of a model that was adapted here; any other name as it is."""
        own = self.folder / "models" / name
        return str(own) if own.parent == self.folder / "models" and own.is_dir() else name

    def forget(self, document: int) -> None:
        for kind in ("documents", "emissions", "cache"):
            shutil.rmtree(self.folder / kind / str(document), ignore_errors=True)

    def close(self) -> None:
        """Write what is waiting; others may open the folder."""
        self.store.close()
        self._lock.release()

    # --- emissions ----------------------------------------------------------------------------------------------------

    def emission_file(self, document: int, name: str) -> Path:
        return self.folder / "emissions" / str(document) / f"{name}.npz"

    def emission(self, document: int, name: str) -> np.ndarray | None:
        """(frames, classes) log-probabilities of a line, if it has been read by a CTC model."""
        file = self.emission_file(document, name)
        return None if not name or not file.is_file() else _loaded(file)

    # --- pictures -----------------------------------------------------------------------------------------------------

    def page_picture(self, document: int, page: int, file: Path, upright: bool, width: int | None) -> Path:
        """A page as JPEG, scaled down to a width (the next larger power of two), made once."""
        from fada.data.images import opened

        steps = [256, 512, 1024, 2048, 4096]
        width = next((step for step in steps if width is not None and step >= width), None)
        made = self.folder / "cache" / str(document) / f"{page}-{picture_name(file)}-{width or 'full'}.jpg"
        if not made.is_file():
            with opened(file, where=file.name) as image, image:
                if width:
                    image.draft("RGB", (width, max(1, width * image.height // image.width)))
                turned = ImageOps.exif_transpose(image) if upright else image
                shown = _shown(turned)
            if width and width < shown.width:
                shown.thumbnail((width, 2**16), Image.Resampling.LANCZOS)
            made.parent.mkdir(parents=True, exist_ok=True)
            with replacing(made) as temporary:
                shown.save(temporary, format="JPEG", quality=85, progressive=True)
        return made


def picture_name(file: Path) -> str:
    """What tells the pictures of a page apart, before and after it was turned."""
    return f"{crc32(file.name.encode()):08x}"


def _shown(image: Image.Image) -> Image.Image:
    """An image of any mode in colours or grey of 8 bits, on white."""
    if image.mode in ("RGB", "L"):
        return image.copy()
    if image.mode.startswith("I") or image.mode == "F":
        from fada.data.images import load_line_image

        return load_line_image(image, upright=False)
    if image.has_transparency_data:
        image = image.convert("RGBA")
        return Image.alpha_composite(Image.new("RGBA", image.size, "white"), image).convert("RGB")
    return image.convert("RGB")


@lru_cache(maxsize=256)
def _loaded(file: Path) -> np.ndarray | None:
    try:
        with np.load(file, allow_pickle=False) as archive:
            array = np.ascontiguousarray(archive["log_probs"], np.float32)
    except (OSError, ValueError, KeyError, *BROKEN_ARCHIVE):
        return None  # read again when it is asked for
    array.flags.writeable = True
    return array


class RefusedError(FadaError):
    """An upload that is not taken; `status` is that of HTTP."""

    def __init__(self, message: str, status: int = 415) -> None:
        super().__init__(message)
        self.status = status


def take_in(files: Iterable[tuple[str, BinaryIO]], folder: Path, limits: Limits) -> list[Path]:
    """Put uploaded files, by their names, into a folder; what is none of the kinds that are read is refused."""
    taken: list[Path] = []
    for name, stream in files:
        if len(taken) >= limits.files:
            raise RefusedError(f"more than {limits.files} files at once. Upload them in parts, or as a ZIP file.", 413)
        head = stream.read(4096)
        ending = sniffed(head)
        shown = shown_name(name)
        if ending is None:
            raise RefusedError(
                f"{shown}: not a kind of file that is read. Expected images (PNG, JPEG, TIFF, WebP, JPEG 2000, HEIC), "
                "PDF, ALTO or PAGE XML, sound (WAV, FLAC, Ogg, MP3), or a ZIP file of them."
            )
        stream.seek(0)
        if ending in IMAGES:
            _check_image(stream, shown, limits)
            stream.seek(0)
        place = folder / safe_name(name, ending)
        number = 2
        while place.exists():
            place = place.with_name(f"{safe_name(name, ending).removesuffix(place.suffix)}~{number}{place.suffix}")
            number += 1
        with place.open("wb") as target:
            shutil.copyfileobj(stream, target, 2**20)
            target.flush()
            os.fsync(target.fileno())
        taken.append(place)
    if not taken:
        raise RefusedError("no file was sent.", 422)
    return taken


def _check_image(stream: BinaryIO, name: str, limits: Limits) -> None:
    """Refuse, from its header alone, an image with too many pixels or none that can be opened."""
    from fada.data.images import open_image

    try:
        with open_image(stream, name) as image:
            width, height = image.size
    except FadaError as error:
        raise RefusedError(str(error)) from None
    except Image.DecompressionBombError:
        raise RefusedError(f"{name}: more than {limits.pixels:,} pixels. Scale it down.", 413) from None
    except Exception:
        raise RefusedError(f"{name}: the image is broken or of an unknown kind. Export it again.") from None
    if width * height > limits.pixels:
        raise RefusedError(f"{name}: {width:,} x {height:,} pixels, more than {limits.pixels:,}. Scale it down.", 413)
