"""What a file is by its first bytes, whatever it is called."""

from fada.common.files import refuse_pointer
from fada.errors import FadaError

_MAGIC: tuple[tuple[bytes, int, str], ...] = (
    (b"\x89PNG\r\n\x1a\n", 0, ".png"),
    (b"\xff\xd8\xff", 0, ".jpg"),
    (b"II*\0", 0, ".tif"),
    (b"MM\0*", 0, ".tif"),
    (b"GIF8", 0, ".gif"),
    (b"WEBP", 8, ".webp"),
    (b"\0\0\0\x0cjP  ", 0, ".jp2"),
    (b"BM", 0, ".bmp"),
    (b"%PDF-", 0, ".pdf"),
    (b"PK\x03\x04", 0, ".zip"),
    (b"WAVE", 8, ".wav"),
    (b"fLaC", 0, ".flac"),
    (b"OggS", 0, ".ogg"),
    (b"ID3", 0, ".mp3"),
    (b"\xff\xfb", 0, ".mp3"),
    (b"\xff\xf3", 0, ".mp3"),
    (b"PAR1", 0, ".parquet"),
    (b"\x1f\x8b", 0, ".gz"),
    (b"SQLite format 3\0", 0, ".sqlite"),
)
_NAMES = {
    ".png": "a PNG image",
    ".jpg": "a JPEG image",
    ".tif": "a TIFF image",
    ".pdf": "a PDF",
    ".zip": "a ZIP file, as .npz and .fada are",
    ".parquet": "a parquet file",
    ".gz": "a gzip file",
    ".sqlite": "a database",
}
"""What no text can begin like, and what is easily given in the place of something else."""


def ending_of(head: bytes) -> str | None:
    """The ending that fits the first bytes of a file; None if it is none of these kinds."""
    return next((ending for magic, at, ending in _MAGIC if head[at : at + len(magic)] == magic), None)


def name_of(head: bytes) -> str | None:
    """What a file is that begins like this, where it can be no text."""
    return _NAMES.get(ending_of(head) or "")


def refuse_kind(head: bytes, where: object, expected: str = "text") -> None:
    """Refuse a file that begins as one of quite another kind, or as a pointer of git-lfs; what is damaged passes."""
    refuse_pointer(head, where)
    if kind := name_of(head):
        raise FadaError(f"{where}: this is {kind}, expected {expected}.")
