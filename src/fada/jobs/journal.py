"""What a job has done so far, on disk after every batch: an interruption loses nothing and repeats nothing.

The journal is a JSON Lines file beside the output. Its first line says what the job is (model, weights, targets);
every further line is one finished line of text with its domain, or one that could not be read and why. When all lines
are in it, the output is written from it and the journal is removed.
"""

import hashlib
import json
import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, BinaryIO, Required, cast

from filelock import FileLock, Timeout
from pydantic import TypeAdapter
from typing_extensions import TypedDict

from fada.common.files import check_writable, naming
from fada.common.scratch import scratch_database
from fada.data.line import Line
from fada.errors import FadaError


class Row(TypedDict, total=False):
    """One finished line in the journal, as it stands there: what was read with its score parts, or the `error`."""

    id: Required[str]
    domain: str | None
    stamp: str | None
    text: str
    confidence: float
    characters: list[float]
    edges: list[float]
    log_prob: float
    distance: float | None
    score: float
    source: str
    error: str
    file: str
    """With the emissions of the line."""
    read_with: dict[str, Any]
    """In the first row of a document: what its lines are read with."""


_ROW = TypeAdapter(Row)


def stamp_of(line: Line) -> str | None:
    """Changes when the image or the sound of a line does: size and time of its file, or a digest of its bytes."""
    media = line.audio if line.image is None else line.image
    media = getattr(media, "page", media)  # of a line on a page
    if isinstance(media, bytes):
        return hashlib.blake2b(media, digest_size=8).hexdigest()
    if not isinstance(media, str | os.PathLike):
        return None
    try:
        found = os.stat(media)
    except OSError:
        return "missing"
    return f"{found.st_size} {found.st_mtime_ns}"


def failed_row(line: Line, reason: str) -> Row:
    """The row of a line that could not be read."""
    return {"id": line.id, "source": line.source or line.id, "error": reason}


class Rows(Mapping[str, Row]):
    """The rows of a journal by the id of their line, the newest of each.

    They stay in the file; where each begins is kept in a temporary database that spills to disk, so that memory stays
    bounded for any number of lines.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file: BinaryIO | None = None
        self._places = scratch_database("CREATE TABLE places (id BLOB PRIMARY KEY, place INTEGER) WITHOUT ROWID")
        self._length = 0

    def put(self, line: str, place: int) -> None:
        """The row of a line begins at this byte."""
        self._length += line not in self
        self._places.execute("INSERT OR REPLACE INTO places VALUES (?, ?)", (_key(line), place))

    def _place(self, line: str) -> int | None:
        found = self._places.execute("SELECT place FROM places WHERE id = ?", (_key(line),)).fetchone()
        return None if found is None else found[0]

    def __getitem__(self, line: str) -> Row:
        place = self._place(line)
        if place is None:
            raise KeyError(line)
        if self._file is None:
            self._file = self._path.open("rb")
        self._file.seek(place)
        return cast(Row, json.loads(self._file.readline()))

    def __iter__(self) -> Iterator[str]:
        return (row["id"] for row in self.values())

    def values(self) -> Iterator[Row]:  # type: ignore[override]
        """The rows in the order of the journal, read from it in one pass."""
        if not self._length:
            return
        with self._path.open("rb") as stream:
            place = len(stream.readline())  # what the job is
            for raw in stream:
                row = cast(Row, json.loads(raw))
                if self._place(row["id"]) == place:
                    yield row
                place += len(raw)

    def __len__(self) -> int:
        return self._length

    def __contains__(self, line: object) -> bool:
        return isinstance(line, str) and self._place(line) is not None

    def close(self) -> None:
        """The file may go."""
        if self._file is not None:
            self._file.close()
            self._file = None


def _key(line: str) -> bytes:
    return line.encode("utf-8", "surrogatepass")


class Journal:
    """What a job has finished so far, on disk after every batch.

    Args:
        path: the file; continued if it is there.
        job: what decides the result. A journal of another job is refused, never mixed in.
        restart: forget what is there.
    """

    def __init__(self, path: Path, job: Mapping[str, Any], *, restart: bool = False) -> None:
        self.path = path
        self.rows = Rows(path)
        self._stream: BinaryIO | None = None
        self._lock = FileLock(path.with_name(f"{path.name}.lock"))
        self._job = dict(job)
        self._restart = restart

    def _read(self) -> int:
        """Take in what is there; returns the length of its readable part in bytes."""
        good = 0
        with self.path.open("rb") as stream:
            for number, raw in enumerate(stream):
                try:
                    row = json.loads(raw) if raw.endswith(b"\n") else None
                    if number > 0:
                        row = _ROW.validate_python(row, strict=True)
                except (ValueError, RecursionError):
                    row = None
                if not isinstance(row, dict):
                    break  # the interruption fell into this line: it is transcribed again
                if number == 0 and row != json.loads(json.dumps(self._job)):
                    raise self._other_job("with other settings")
                if number > 0:
                    self.rows.put(row["id"], good)
                good += len(raw)
        return good

    def __enter__(self) -> "Journal":
        check_writable(self.path.parent)
        self.path.parent.mkdir(parents=True, exist_ok=True)
        try:
            self._lock.acquire(timeout=0)
        except Timeout:
            raise FadaError(
                f"{self.path}: another process is writing the same output. Wait for it, or choose another output."
            ) from None
        except NotImplementedError:  # a file system without locks
            pass
        try:
            keep = 0 if self._restart or not self.path.exists() else self._read()
            self._stream = self.path.open("ab")
            self._stream.truncate(keep)
            self._stream.seek(0, os.SEEK_END)
            if not keep:
                self._write([self._job])
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.rows.close()
        with suppress(OSError):  # of a full disk, told already
            if self._stream:
                self._stream.close()
        with suppress(OSError):
            Path(self._lock.lock_file).unlink(missing_ok=True)  # while it is still ours
        self._lock.release()

    def finish(self) -> None:
        """Everything is written elsewhere: the journal goes."""
        self.path.unlink(missing_ok=True)

    def has(self, line: Line) -> bool:
        """Whether the line is done, and its image or sound is still what was read.

        One that was done for another domain is refused like any other setting.
        """
        row = self.rows.get(line.id)
        if row is not None and row.get("domain") != line.domain:
            raise self._other_job(f"in which {line.id!r} is of the domain {row.get('domain')!r}, not {line.domain!r},")
        return row is not None and row.get("stamp") in (None, stamp_of(line))

    def _other_job(self, which: str) -> FadaError:
        return FadaError(
            f"{self.path}: an unfinished job {which} is here. Repeat it with the same settings to finish it, choose "
            "another output, or start over with --restart."
        )

    def append(self, rows: Iterable[Row]) -> None:
        """Record finished lines; they are on disk when this returns."""
        rows = list(rows)
        for row, place in zip(rows, self._write(rows), strict=True):
            self.rows.put(row["id"], place)

    def _write(self, rows: Iterable[Mapping[str, Any]]) -> list[int]:
        """Where each row begins."""
        if self._stream is None:
            raise RuntimeError("the journal is not open")
        places = []
        with naming(self.path):
            for row in rows:
                places.append(self._stream.tell())
                self._stream.write((json.dumps(row, ensure_ascii=False) + "\n").encode("utf-8", "surrogatepass"))
            self._stream.flush()
            os.fsync(self._stream.fileno())
        return places
