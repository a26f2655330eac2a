"""Writing files so that a reader never sees half of one."""

import errno
import json
import os
import platform
import re
import secrets
import shutil
import stat
import tempfile
import tokenize
import zipfile
import zlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, TextIO

from fada.errors import FadaError

try:
    import fcntl
except ModuleNotFoundError:  # Windows
    fcntl = None  # type: ignore[assignment]

_MACHINE = f"{zlib.crc32(platform.node().encode()):016x}"

FULL = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}
"""What a full disk raises, or a limit for what one may write."""

_FULL_IN_WORDS = re.compile(
    rf"(os error |Errno )({'|'.join(map(str, sorted(FULL)))})\b|iostream error|PytorchStreamWriter|unexpected pos"
    r"|disk is full"
)
"""How errors tell it that have no number: those of safetensors, torch, SQLite, copies of folders."""

BROKEN_ARCHIVE = (zipfile.BadZipFile, zlib.error, EOFError, RuntimeError, tokenize.TokenError)
"""What reading a damaged zip file, such as ``.npz``, raises besides OSError, ValueError and KeyError."""


@contextmanager
def replacing(path: str | os.PathLike[str]) -> Iterator[Path]:
    """Yield a temporary path in the folder of `path`; rename it over `path` when the block ends without an error.

    What is written is on disk before the renaming. A link stays a link, and its file is replaced; the file keeps its
    mode, a new one gets that of the user's mask. What this process has open (/dev/stdout) is written into when the
    block ends; what else is no file, such as a pipe, is yielded itself.
    """
    _refuse_folder(path)
    if (number := _descriptor(path)) is not None:
        with tempfile.TemporaryDirectory() as folder:
            written = Path(folder) / "written"
            yield written
            with open(number, "wb", closefd=False) as stream, written.open("rb") as whole:
                shutil.copyfileobj(whole, stream)
        return
    if is_stream(path):
        yield Path(path)
        return
    path = Path(os.path.realpath(path))
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary, number = _temporary(path)
    except OSError as error:
        raise _unwritable(path, error) from None
    try:
        yield temporary
        with temporary.open("rb+") as stream:
            os.fsync(stream.fileno())
        if path.exists():
            temporary.chmod(stat.S_IMODE(path.stat().st_mode))
        temporary.replace(path)
    except Exception as error:
        if is_full(error):
            raise _full(path if full_place(error) in (None, str(temporary)) else full_place(error)) from error
        raise
    finally:
        temporary.unlink(missing_ok=True)
        os.close(number)


def _temporary(path: Path) -> tuple[Path, int]:
    """An empty file beside `path`, and its descriptor: what a killed process left is taken over, what one uses is not.

    The name is that of the machine, as locks may hold on one machine only.
    """
    named = f".{path.name[:40]}.{{}}.tmp"
    usual = path.with_name(named.format(_MACHINE))
    if (number := _locked(usual)) is not None:
        return usual, number
    other = path.with_name(named.format(secrets.token_hex(8)))
    return other, os.open(other, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o666)


def _locked(path: Path) -> int | None:
    """The descriptor of an empty file of ours that nobody else has locked, as long as it is open; None if not so."""
    if fcntl is None:
        return None
    try:
        number = os.open(path, os.O_CREAT | os.O_WRONLY | os.O_NOFOLLOW | os.O_NONBLOCK, 0o666)
    except OSError as error:
        if is_full(error):
            raise
        return None
    with suppress(OSError):
        fcntl.flock(number, fcntl.LOCK_EX | fcntl.LOCK_NB)
        about = os.fstat(number)
        renamed = not os.path.samestat(about, os.stat(path))  # between opening and locking it
        if not renamed and stat.S_ISREG(about.st_mode) and about.st_uid == os.geteuid() and about.st_nlink == 1:
            os.truncate(number, 0)
            return number
    os.close(number)
    return None


def is_full(error: BaseException) -> bool:
    """Whether an error is that of a full disk, which the libraries that write tell in many ways."""
    number = error.errno if isinstance(error, OSError) else None
    return number in FULL if number is not None else _FULL_IN_WORDS.search(str(error)) is not None


def full_place(error: BaseException) -> str | None:
    """What was being written when the disk was full, if the error knows: of a copy not what was read."""
    return getattr(error, "filename2", None) or getattr(error, "filename", None)


def _full(path: str | os.PathLike[str] | None) -> OSError:
    return OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))


@contextmanager
def naming(path: str | os.PathLike[str]) -> Iterator[None]:
    """A full disk that the block meets is told as an OSError that names what it wrote, `path` if it does not know."""
    try:
        yield
    except Exception as error:
        if is_full(error):
            raise _full(full_place(error) or path) from error
        raise


def is_stream(path: str | os.PathLike[str]) -> bool:
    """Whether a path is written into, and nothing beside it: a pipe, a terminal, /dev/stdout wherever that leads."""
    plain = os.path.isfile(path) or os.path.isdir(path) or not os.path.exists(path)
    return _descriptor(path) is not None or not plain


def _descriptor(path: str | os.PathLike[str]) -> int | None:
    """The number of what a process has open under this name: 1 for /dev/stdout, 3 for /dev/fd/3."""
    place = os.path.abspath(path)
    for _ in range(8):
        if found := re.fullmatch(r"(?:/dev|/proc/(?:self|\d+|thread-self))/fd/(\d+)", place):
            return int(found[1])
        if not os.path.islink(place):
            return None
        place = os.path.join(os.path.dirname(place), os.readlink(place))
    return None


@contextmanager
def replacing_folder(path: str | os.PathLike[str]) -> Iterator[Path]:
    """Yield a temporary folder beside `path`, which is not there or empty, and name it so when the block ends well."""
    path = Path(os.path.realpath(path))
    temporary = path.with_name(f".{path.name[:40]}.{secrets.token_hex(8)}.tmp")
    try:
        temporary.mkdir(parents=True)
        yield temporary
        if path.exists():
            path.rmdir()
        temporary.rename(path)
    except Exception as error:
        if is_full(error):
            raise _full(path) from error
        raise
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


@contextmanager
def text_file(path: str | os.PathLike[str]) -> Iterator[TextIO]:
    """A UTF-8 text file to write into, all or nothing; what is no character is written with backslashes."""
    with (
        replacing(path) as temporary,
        temporary.open("w", encoding="utf-8", errors="backslashreplace", newline="") as opened,
    ):
        yield opened


def write_bytes(path: str | os.PathLike[str], data: bytes) -> None:
    """Write bytes, all or nothing."""
    with replacing(path) as temporary:
        temporary.write_bytes(data)


def write_text(path: str | os.PathLike[str], text: str) -> None:
    """Write UTF-8 text with newline endings, all or nothing."""
    with replacing(path) as temporary:
        temporary.write_text(text, encoding="utf-8", newline="\n")


def write_json(path: str | os.PathLike[str], value: Any) -> None:
    """Write readable JSON (UTF-8, two-space indent, key order kept), all or nothing."""
    write_text(path, json.dumps(value, ensure_ascii=False, indent=2, allow_nan=False) + "\n")


def with_floats(value: Any, change: Callable[[float], float | None]) -> Any:
    """A JSON value whose floats are changed."""
    if isinstance(value, float):
        return change(value)
    if isinstance(value, Mapping):
        return {key: with_floats(item, change) for key, item in value.items()}
    return [with_floats(item, change) for item in value] if isinstance(value, list | tuple) else value


def refuse_pointer(head: bytes, where: object) -> None:
    """Refuse a file that begins as what git-lfs leaves in place of one that was not fetched."""
    if head.startswith(b"version https://git-lfs"):
        raise FadaError(f"{where}: only the pointer of git-lfs to the file. Fetch it with: git lfs pull")


def check_place(path: str | os.PathLike[str]) -> None:
    """Refuse a file or folder that could not be written, before any work is done; nothing is created."""
    if not is_stream(path):
        check_writable(path if os.path.isdir(path) else Path(os.path.realpath(path)).parent)


def check_file(path: str | os.PathLike[str]) -> None:
    """Refuse a file that could not be written, before any work is done; nothing is created."""
    _refuse_folder(path)
    check_place(path)


def _refuse_folder(path: str | os.PathLike[str]) -> None:
    if os.path.isdir(path):
        raise FadaError(f"{path}: a folder is here, expected a file to write. Name one in it.")


def _unwritable(path: Path, error: OSError) -> Exception:
    """What to tell of a place that nothing can be written to: to choose another, unless the disk is full."""
    if is_full(error):
        return _full(path)
    return FadaError(f"{path}: cannot be written ({error.strerror}). Choose another place.")


def check_writable(folder: str | os.PathLike[str]) -> None:
    """Refuse a folder that could not be written, before any work is done; nothing is created."""
    folder = Path(os.path.realpath(folder))
    existing = next(place for place in (folder, *folder.parents) if os.path.lexists(place))
    if not existing.is_dir():
        where = existing if existing == folder else f"{folder}: {existing}"
        raise FadaError(f"{where} is a file, expected a folder to write to. Choose another place.")
    probe = existing / f".fada-{secrets.token_hex(8)}.tmp"
    try:
        probe.write_bytes(bytes(4096))
    except OSError as error:
        raise _unwritable(folder, error) from None
    finally:
        with suppress(OSError):
            probe.unlink(missing_ok=True)
