"""What the desk knows, in one SQLite file: documents, pages, lines with their history, texts, jobs, settings.

All writing is done by one thread that takes changes from a queue: as many as are waiting become one transaction, and
whoever asked is answered when it is on disk (`synchronous = FULL` in WAL mode). Reading goes on beside it.
"""

import json
import queue
import re
import sqlite3
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypeVar

from fada.common.files import is_full, naming
from fada.errors import FadaError

T = TypeVar("T")
Row = dict[str, Any]
Change = Callable[[sqlite3.Connection], T]

VERSION = 1
_AT_ONCE = 256
"""Changes in one transaction at most."""
_SCHEMA = """
CREATE TABLE IF NOT EXISTS documents (
    id INTEGER PRIMARY KEY AUTOINCREMENT, name TEXT NOT NULL, model TEXT NOT NULL, direction TEXT NOT NULL,
    created TEXT NOT NULL, knowledge TEXT NOT NULL DEFAULT '{}');
CREATE TABLE IF NOT EXISTS pages (
    id INTEGER PRIMARY KEY AUTOINCREMENT, document INTEGER NOT NULL REFERENCES documents ON DELETE CASCADE,
    number INTEGER NOT NULL, name TEXT NOT NULL, file TEXT NOT NULL, media TEXT NOT NULL, width INTEGER NOT NULL,
    height INTEGER NOT NULL, upright INTEGER NOT NULL, state TEXT NOT NULL, message TEXT NOT NULL DEFAULT '');
CREATE INDEX IF NOT EXISTS pages_of ON pages (document, number);
CREATE TABLE IF NOT EXISTS lines (
    id INTEGER PRIMARY KEY AUTOINCREMENT, page INTEGER NOT NULL REFERENCES pages ON DELETE CASCADE,
    place REAL NOT NULL, outline TEXT NOT NULL, baseline TEXT NOT NULL, text TEXT NOT NULL DEFAULT '',
    state TEXT NOT NULL DEFAULT 'draft', version INTEGER NOT NULL DEFAULT 1, reading TEXT NOT NULL DEFAULT '{}',
    emission TEXT NOT NULL DEFAULT '');
CREATE INDEX IF NOT EXISTS lines_of ON lines (page, place);
CREATE TABLE IF NOT EXISTS history (
    line INTEGER NOT NULL REFERENCES lines ON DELETE CASCADE, version INTEGER NOT NULL, text TEXT NOT NULL,
    state TEXT NOT NULL, at TEXT NOT NULL, by TEXT NOT NULL, PRIMARY KEY (line, version)) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS texts (
    id INTEGER PRIMARY KEY AUTOINCREMENT, document INTEGER NOT NULL REFERENCES documents ON DELETE CASCADE,
    name TEXT NOT NULL, text TEXT NOT NULL);
CREATE INDEX IF NOT EXISTS texts_of ON texts (document);
CREATE TABLE IF NOT EXISTS jobs (
    id INTEGER PRIMARY KEY AUTOINCREMENT, kind TEXT NOT NULL, document INTEGER, state TEXT NOT NULL,
    done INTEGER NOT NULL DEFAULT 0, total INTEGER NOT NULL DEFAULT 0, message TEXT NOT NULL DEFAULT '',
    asked TEXT NOT NULL DEFAULT '{}',
    result TEXT, created TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS settings (name TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
"""


def now() -> str:
    """The time, as it is stored."""
    return datetime.now(UTC).isoformat(timespec="milliseconds")


_DAMAGED = re.compile("no such|decode|malformed")
"""What SQLite says of a damaged file where it might as well be a full disk or one that does not answer."""


class Store:
    """The database of a project folder."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._queue: queue.Queue[tuple[Change[Any], Future[Any]] | None] = queue.Queue()
        self._readers = threading.local()
        self._opened: list[sqlite3.Connection] = []
        self._lock = threading.Lock()
        self._closed = False
        with naming(path):
            connection = self._open()
        self._thread = threading.Thread(target=self._write, args=(connection,), name="fada-store", daemon=True)
        self._thread.start()

    def _open(self) -> sqlite3.Connection:
        try:
            connection = self._connect()
            found = connection.execute("PRAGMA user_version").fetchone()[0]
            if found > VERSION:
                raise FadaError(f"{self.path}: written by a newer version of fada (format {found}). Update fada.")
            connection.execute("PRAGMA journal_mode = WAL")
            connection.executescript(f"BEGIN; {_SCHEMA} PRAGMA user_version = {VERSION}; COMMIT;")
        except (sqlite3.DatabaseError, UnicodeError) as error:
            if is_full(error):
                raise
            raise FadaError(f"{self.path}: cannot be opened as the database of a desk ({error}).") from None
        return connection

    def _connect(self) -> sqlite3.Connection:
        connection = sqlite3.connect(self.path, timeout=30, isolation_level=None, check_same_thread=False)
        connection.row_factory = sqlite3.Row
        connection.execute("PRAGMA synchronous = FULL")
        connection.execute("PRAGMA foreign_keys = ON")
        return connection

    # --- writing ------------------------------------------------------------------------------------------------------

    def write(self, change: Change[T]) -> T:
        """Do a change and return what it returns, once it is on disk; what it raises undoes it and is raised here."""
        done: Future[T] = Future()
        with self._lock:
            if self._closed:
                raise FadaError("the desk is being closed.")
            self._queue.put((change, done))
        return done.result()

    def _write(self, connection: sqlite3.Connection) -> None:
        while (first := self._queue.get()) is not None:
            changes = [first]
            ended = False
            while len(changes) < _AT_ONCE:
                try:
                    further = self._queue.get_nowait()
                except queue.Empty:
                    break
                if further is None:
                    ended = True
                    break
                changes.append(further)
            self._commit(connection, changes)
            if ended:
                break
        connection.close()

    @staticmethod
    def _commit(connection: sqlite3.Connection, changes: Sequence[tuple[Change[Any], Future[Any]]]) -> None:
        """Each change in a savepoint of its own, all in one transaction."""
        answers: list[tuple[Future[Any], Any, BaseException | None]] = []
        try:
            connection.execute("BEGIN IMMEDIATE")
            for change, done in changes:
                connection.execute("SAVEPOINT change")
                try:
                    answers.append((done, change(connection), None))
                except Exception as error:
                    connection.execute("ROLLBACK TO change")
                    answers.append((done, None, error))
                connection.execute("RELEASE change")
            connection.execute("COMMIT")
        except BaseException as error:
            if connection.in_transaction:
                connection.execute("ROLLBACK")
            for _, done in changes:
                done.set_exception(error)
            return
        for done, result, failure in answers:
            if failure is None:
                done.set_result(result)
            else:
                done.set_exception(failure)

    # --- reading ------------------------------------------------------------------------------------------------------

    def rows(self, query: str, *values: Any) -> list[Row]:
        connection = getattr(self._readers, "connection", None)
        if connection is None:
            connection = self._readers.connection = self._connect()
            connection.execute("PRAGMA query_only = ON")
            with self._lock:
                self._opened.append(connection)
        try:
            return [dict(row) for row in connection.execute(query, values)]
        except (sqlite3.DatabaseError, UnicodeError) as error:
            if not isinstance(error, sqlite3.OperationalError) or _DAMAGED.search(str(error)):
                raise FadaError(f"{self.path}: the database is damaged ({error}). Take it from a copy.") from None
            raise

    def row(self, query: str, *values: Any) -> Row | None:
        found = self.rows(query, *values)
        return found[0] if found else None

    def close(self) -> None:
        """Write what is waiting, then close the file."""
        with self._lock:
            if self._closed:
                return
            self._closed = True
            self._queue.put(None)
        self._thread.join()
        for connection in self._opened:
            connection.close()


def insert(connection: sqlite3.Connection, table: str, values: Mapping[str, Any]) -> int:
    """A new row; its number."""
    columns = {name: json_text(value) for name, value in values.items()}
    marks = ", ".join("?" * len(columns))
    found = connection.execute(f"INSERT INTO {table} ({', '.join(columns)}) VALUES ({marks})", [*columns.values()])
    return int(found.lastrowid or 0)


def update(connection: sqlite3.Connection, table: str, number: int, values: Mapping[str, Any]) -> None:
    columns = {name: json_text(value) for name, value in values.items()}
    marks = ", ".join(f"{name} = ?" for name in columns)
    connection.execute(f"UPDATE {table} SET {marks} WHERE id = ?", [*columns.values(), number])


def json_text(value: Any) -> Any:
    """Lists and dictionaries as JSON; anything else as it is."""
    return json.dumps(value, ensure_ascii=False) if isinstance(value, dict | list | tuple) else value
