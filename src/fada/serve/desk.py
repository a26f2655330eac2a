"""The desk: a project with its store, jobs and readers, and everything that can be done with a document."""

import json
import shutil
import sqlite3
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fada.data.crop import PageCrop
from fada.errors import FadaError
from fada.serve.chosen import Chosen
from fada.serve.events import Events
from fada.serve.jobs import Jobs
from fada.serve.project import Limits, Project
from fada.serve.reading import Reading, completed_draft, warm_up
from fada.serve.store import Row, insert, now, update

if TYPE_CHECKING:  # what decodes takes a second to load: a server that only stores what is typed needs none of it
    from fada.serve.knowledge import Known
    from fada.serve.reading import Reader

_KNOWN = 8
"""Documents whose knowledge is kept in memory."""


class MissingError(FadaError):
    """There is nothing with this number."""


class OutdatedError(FadaError):
    """The line was changed meanwhile."""

    def __init__(self, line: Row) -> None:
        super().__init__("the line was changed by somebody else meanwhile; here it is as it stands now.")
        self.line = line


class OutdatedKnowledgeError(FadaError):
    """The knowledge of a document was changed meanwhile."""

    def __init__(self, document: int) -> None:
        super().__init__("what is known of the text was changed by somebody else meanwhile; here it is as it is now.")
        self.document = document


class Desk:
    """A project that is open.

    Args:
        project: its folder.
        limits: how much is taken.
        model: for new documents, if the settings name none.
        workers: processes that read, besides the one for what somebody waits for.
    """

    def __init__(self, project: Project, limits: Limits, *, model: str, workers: int = 1) -> None:
        self.project, self.limits, self.store = project, limits, project.store
        self.events = Events()
        self.default_model = model
        self.jobs = Jobs(
            self.store, self.events, project.temporary, workers=workers, waiting=limits.waiting, stuck=limits.stuck
        )
        self._known: OrderedDict[int, tuple[str, Known, Reader]] = OrderedDict()
        self._lock = threading.RLock()
        self._warm = False

    def close(self) -> None:
        """Stop all work and write what is waiting."""
        self.events.close()
        self.jobs.close()
        self.project.close()

    # --- settings -----------------------------------------------------------------------------------------------------

    def setting(self, name: str, default: Any = None) -> Any:
        found = self.store.row("SELECT value FROM settings WHERE name = ?", name)
        return json.loads(found["value"]) if found else default

    def set(self, values: Mapping[str, Any]) -> None:
        rows = [(name, json.dumps(value)) for name, value in values.items()]
        self.store.write(lambda c: c.executemany("INSERT OR REPLACE INTO settings VALUES (?, ?)", rows) and None)

    @property
    def beam(self) -> int:
        return int(self.setting("beam", 30))

    # --- rows ---------------------------------------------------------------------------------------------------------

    def document(self, number: int) -> Row:
        return self._row("documents", number, "document")

    def page(self, number: int) -> Row:
        return self._row("pages", number, "page")

    def line(self, number: int) -> Row:
        """A line, with the document it is of."""
        return self._row("lines", number, "line", "lines.*, pages.document", "JOIN pages ON pages.id = lines.page")

    def _row(self, table: str, number: int, name: str, columns: str = "*", join: str = "") -> Row:
        found = self.store.row(f"SELECT {columns} FROM {table} {join} WHERE {table}.id = ?", number)
        if found is None:
            raise MissingError(f"there is no {name} {number}.")
        return found

    def lines_of(self, page: int) -> list[Row]:
        """The lines of a page in reading order."""
        return self.store.rows("SELECT * FROM lines WHERE page = ? ORDER BY place, id", page)

    def page_file(self, page: Row) -> Path:
        return self.project.folder / page["file"]

    def sound(self, page: Row) -> Path | None:
        """The recording that a page is; None for an image."""
        media, _, name = page["media"].partition(":")
        return self.project.source(page["document"]) / name if media == "audio" else None

    def crop(self, line: Row, page: Row) -> PageCrop:
        """A line as a cut out of its page."""
        outline, baseline = (tuple(tuple(p) for p in json.loads(line[name])) for name in ("outline", "baseline"))
        size = (page["width"], page["height"])
        return PageCrop(self.page_file(page), size, outline, baseline, upright=bool(page["upright"]))

    def tell_page(self, page: int) -> None:
        """Publish that a page changed."""
        found = self.store.row("SELECT id, document, state, message FROM pages WHERE id = ?", page)
        if found is not None:
            self.events.publish("page", found)

    # --- knowledge ----------------------------------------------------------------------------------------------------

    def known(self, document: int) -> "Known":
        return self._prepared(document)[1]

    def reader(self, document: int) -> "Reader":
        """The searches for a document that was read by a CTC model."""
        return self._prepared(document)[2]

    def _prepared(self, document: int) -> "tuple[str, Known, Reader]":
        from fada.serve.knowledge import Known

        row = self.document(document)
        texts = self.store.rows("SELECT id, name FROM texts WHERE document = ? ORDER BY id", document)
        beam = self.beam
        key = json.dumps([row["model"], row["knowledge"], [text["id"] for text in texts], beam])
        with self._lock:
            if document in self._known and self._known[document][0] == key:
                self._known.move_to_end(document)
                return self._known[document]
            wanted = self.store.rows("SELECT name, text FROM texts WHERE document = ? ORDER BY id", document)
            chosen = Chosen.model_validate_json(row["knowledge"])
            given = {one["name"]: one["text"] for one in wanted}
            readings = partial(self._plain_readings, document)
            known = Known(self.project.model(row["model"]), given, chosen, readings, beam)
            self._known[document] = key, known, known.reader(*self.alphabet(row["model"]))
            while len(self._known) > _KNOWN:
                self._known.popitem(last=False)
            return self._known[document]

    def warm_up(self) -> None:
        """Load the compiled search, once, beside what is going on: the first keystroke shall not wait for it."""
        with self._lock:
            if self._warm or not any(self.project.folder.glob("emissions/*/*.npz")):
                return
            self._warm = True
        threading.Thread(target=warm_up, name="fada-warm-up", daemon=True).start()

    def _plain_readings(self, document: int) -> list[str]:
        query = (
            "SELECT json_extract(reading, '$.plain') AS plain FROM lines JOIN pages ON pages.id = lines.page "
            "WHERE pages.document = ? LIMIT 2000"
        )
        return [row["plain"] or "" for row in self.store.rows(query, document)]

    def alphabet(self, model: str) -> tuple[tuple[str, ...], int]:
        """The classes of a model; only a blank until it has read something, and for models that write tokens."""
        found = self.setting(f"alphabet:{model}") or {"symbols": [], "blank": 0}
        return tuple(found["symbols"]) or ("",), int(found["blank"])

    def chosen(self, document: int) -> Chosen:
        return Chosen.model_validate_json(self.document(document)["knowledge"])

    def alter_knowledge(self, document: int, alter: Callable[[Chosen], Chosen]) -> Chosen:
        """Change what was chosen for a document, from how it is at that moment; what it was."""

        def write(connection: sqlite3.Connection) -> Chosen:
            row = connection.execute("SELECT knowledge FROM documents WHERE id = ?", (document,)).fetchone()
            if row is None:
                raise MissingError(f"there is no document {document}.")
            before = Chosen.model_validate_json(row["knowledge"])
            update(connection, "documents", document, {"knowledge": alter(before).model_dump()})
            return before

        return self.store.write(write)

    def choose(self, document: int, version: int, change: Mapping[str, Any], page: int | None = None) -> Row:
        """Other knowledge for a document, which is read again from its emissions; if nobody chose since `version`."""

        def alter(before: Chosen) -> Chosen:
            if before.version != version:
                raise OutdatedKnowledgeError(document)
            return before.model_copy(update={**change, "version": version + 1})

        def back(now: Chosen) -> Chosen:
            undone = {name: getattr(before, name) for name in change} | {"version": now.version + 1}
            return now.model_copy(update=undone) if now.version == version + 1 else now

        self.jobs.check_room()
        before = self.alter_knowledge(document, alter)
        try:
            self.reader(document)
        except FadaError:
            self.alter_knowledge(document, back)
            raise
        self.tell_knowledge(document)
        return self.again(document, page)

    def tell_knowledge(self, document: int) -> None:
        """Publish that something else is known of a document."""
        self.events.publish("knowledge", {"document": document, "version": self.chosen(document).version})

    def again(self, document: int, page: int | None = None) -> Row:
        """Decode a document again, the open page first; an earlier wish for the same is forgotten."""
        for row in self.store.rows(
            "SELECT id FROM jobs WHERE document = ? AND kind = 'again' AND state IN ('queued', 'running')", document
        ):
            self.jobs.cancel(row["id"])
        return self.jobs.add("again", document, page=page)

    def complete(self, number: int, prefix: str, words: Sequence[tuple[str, float, float]]) -> Reading:
        """The best reading of a line under constraints."""
        line = self.line(number)
        log_probs = self.project.emission(line["document"], line["emission"])
        if log_probs is None:
            draft = json.loads(line["reading"]).get("text", "")
            text = completed_draft(draft, prefix)
            return Reading(text=text, alternatives=[(text, 0.0)])
        return self.reader(line["document"]).complete(log_probs, prefix, words)

    # --- jobs ---------------------------------------------------------------------------------------------------------

    def emitted(self, document: int, first: int = 0) -> list[Row]:
        """The lines of a document that have emissions, those of the page `first` before all others."""
        return self.store.rows(
            "SELECT lines.id, lines.page, lines.emission FROM lines JOIN pages ON pages.id = lines.page "
            "WHERE pages.document = ? AND lines.emission != '' ORDER BY lines.page != ?, pages.number, lines.place",
            document,
            first,
        )

    def keep_alphabet(self, model: str, alphabet: Mapping[str, Any]) -> None:
        """Remember what a model can write."""
        if self.setting(f"alphabet:{model}") != alphabet:
            self.set({f"alphabet:{model}": alphabet})
            with self._lock:
                self._known.clear()

    # --- documents ----------------------------------------------------------------------------------------------------

    def new_document(self, name: str, direction: str, model: str, files: Callable[[Path], Any]) -> tuple[int, Row]:
        """A document of files, which `files` puts into a folder, and the job that reads it."""
        self.jobs.check_room()
        folder = self.project.new_temporary()
        try:
            files(folder)
            values = {"name": name, "model": model, "direction": direction, "created": now()}
            number = self.store.write(lambda connection: insert(connection, "documents", values))
            folder.rename(self.project.source(number))
        finally:
            shutil.rmtree(folder, ignore_errors=True)
        return number, self.jobs.add("read", number)

    def alter(self, document: int, values: Mapping[str, str]) -> None:
        """Another name, direction or model of a document; with another model its pages are read again."""
        reads = values.get("model", self.document(document)["model"]) != self.document(document)["model"]
        if reads:
            self.jobs.check_room()
            self.jobs.cancel_of(document)

        def write(connection: sqlite3.Connection) -> None:
            if values:
                update(connection, "documents", document, values)
            if reads:
                connection.execute("UPDATE pages SET state = 'waiting' WHERE document = ?", (document,))

        self.store.write(write)
        if reads:
            self.jobs.add("read", document)
        for page in self.store.rows("SELECT id FROM pages WHERE document = ?", document):
            self.tell_page(page["id"])

    def delete(self, document: int) -> None:
        """Forget a document and its files."""
        self.document(document)
        self.jobs.cancel_of(document)
        self.store.write(lambda c: c.execute("DELETE FROM documents WHERE id = ?", (document,)) and None)
        with self._lock:
            self._known.pop(document, None)
        self.project.forget(document)

    def all_lines(self, document: int, confirmed: bool) -> Iterator[tuple[Row, list[Row]]]:
        """The pages of a document with their lines; only those that were confirmed, if asked for."""
        for page in self.store.rows("SELECT * FROM pages WHERE document = ? ORDER BY number", document):
            lines = self.lines_of(page["id"])
            kept = [line for line in lines if line["state"] == "confirmed" or not confirmed]
            yield page, [line for line in kept if line["state"] not in ("bad", "not_text")]
