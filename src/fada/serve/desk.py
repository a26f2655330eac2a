"""The desk: a project with its store, jobs and readers, and everything that can be done with a document."""

import hashlib
import json
import shutil
import sqlite3
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fada.data.crop import PageCrop
from fada.errors import FadaError
from fada.serve import shapes
from fada.serve.chosen import Chosen
from fada.serve.events import Events
from fada.serve.jobs import QUICK, Jobs, Running, WorkerLostError
from fada.serve.project import Limits, Project
from fada.serve.reading import Reading, completed_draft, warm_up
from fada.serve.store import Row, insert, now, update

if TYPE_CHECKING:  # what decodes takes a second to load: a server that only stores what is typed needs none of it
    from fada.serve.knowledge import Known
    from fada.serve.reading import Reader

_SEEN = 16
"""Lines of a document by which its domain is judged."""
_AT_ONCE = 16
"""Lines that are read, or decoded, before what was found is stored."""
_TELL = 0.5
"""Seconds after which what was read meanwhile is stored and told."""
_LOOKS = (0, 3)
"""Pages after which the domain of a new document is looked for; once more after the last."""
_KNOWN = 8
"""Documents whose knowledge is kept in memory."""


class MissingError(FadaError):
    """There is nothing with this number."""


class OutdatedError(FadaError):
    """The line was changed meanwhile."""

    def __init__(self, line: Row) -> None:
        super().__init__("the line was changed by somebody else meanwhile; here it is as it stands now.")
        self.line = line


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
            self.store,
            self.events,
            project.temporary,
            workers=workers,
            waiting=limits.waiting,
            stuck=limits.stuck,
        )
        self._known: OrderedDict[int, tuple[str, Known, Reader]] = OrderedDict()
        self._lock = threading.RLock()
        self._warm = False
        self.jobs.register("read", self._read_document)
        self.jobs.register("lines", self._read_lines, QUICK)
        self.jobs.register("again", self._read_again, QUICK)

    def close(self) -> None:
        """Stop all work and write what is waiting."""
        self.events.close()
        self.jobs.close()
        self.project.close()

    # --- settings -----------------------------------------------------------------------------------------------------

    def setting(self, name: str, default: Any = None) -> Any:
        """A setting of the whole desk."""
        found = self.store.row("SELECT value FROM settings WHERE name = ?", name)
        return json.loads(found["value"]) if found else default

    def set(self, values: Mapping[str, Any]) -> None:
        """Change settings."""
        rows = [(name, json.dumps(value)) for name, value in values.items()]
        self.store.write(lambda c: c.executemany("INSERT OR REPLACE INTO settings VALUES (?, ?)", rows) and None)

    @property
    def beam(self) -> int:
        """Of the search."""
        return int(self.setting("beam", 30))

    # --- rows ---------------------------------------------------------------------------------------------------------

    def document(self, number: int) -> Row:
        """A document."""
        return self._row("documents", number, "document")

    def page(self, number: int) -> Row:
        """A page."""
        return self._row("pages", number, "page")

    def line(self, number: int) -> Row:
        """A line, with the document it is of."""
        found = self.store.row(
            "SELECT lines.*, pages.document FROM lines JOIN pages ON pages.id = lines.page WHERE lines.id = ?", number
        )
        if found is None:
            raise MissingError(f"there is no line {number}.")
        return found

    def _row(self, table: str, number: int, name: str) -> Row:
        found = self.store.row(f"SELECT * FROM {table} WHERE id = ?", number)
        if found is None:
            raise MissingError(f"there is no {name} {number}.")
        return found

    def lines_of(self, page: int) -> list[Row]:
        """The lines of a page in reading order."""
        return self.store.rows("SELECT * FROM lines WHERE page = ? ORDER BY place, id", page)

    def page_file(self, page: Row) -> Path:
        """The image of a page."""
        return self.project.folder / page["file"]

    def crop(self, line: Row, page: Row) -> PageCrop:
        """A line as a cut out of its page."""
        outline, baseline = (tuple(tuple(p) for p in json.loads(line[name])) for name in ("outline", "baseline"))
        size = (page["width"], page["height"])
        return PageCrop(self.page_file(page), size, outline, baseline, upright=bool(page["upright"]))

    # --- lines as they are shown --------------------------------------------------------------------------------------

    def shown(self, line: Row, order: int, document: Row) -> dict[str, Any]:
        """A line as clients see it."""
        reading = json.loads(line["reading"])
        text = line["text"]
        characters: Sequence[Any] = reading.get("characters", [])
        if text != reading.get("text", ""):
            characters = self._aligned(line, text, document)
        names = ("character", "confidence", "start", "end")
        domain = json.loads(document["knowledge"]).get("domain")
        media = self.page(line["page"])["media"]
        return {
            **{name: line[name] for name in ("id", "page", "text", "state", "version")},
            "order": order,
            "outline": json.loads(line["outline"]),
            "baseline": json.loads(line["baseline"]),
            "plain": reading.get("plain", ""),
            "reading": reading.get("text", ""),
            "confidence": reading.get("confidence"),
            "characters": [dict(zip(names, cell, strict=True)) for cell in characters],
            "alternatives": [{"text": t, "score": score} for t, score in reading.get("alternatives", [])],
            "direction": document["direction"],
            "domain": domain,
            "expected_word_error": reading.get("expected_word_error"),
            "audio": f"/api/lines/{line['id']}/audio" if media.startswith("audio:") else None,
        }

    def shown_line(self, number: int) -> dict[str, Any]:
        """A line as clients see it, by its number."""
        line = self.line(number)
        before = "SELECT count(*) AS n FROM lines WHERE page = ? AND (place, id) < (?, ?)"
        order = self.store.rows(before, line["page"], line["place"], line["id"])[0]["n"]
        return self.shown(line, order, self.document(line["document"]))

    def _aligned(self, line: Row, text: str, document: Row) -> list[Any]:
        log_probs = self.project.emission(document["id"], line["emission"])
        if log_probs is None:
            return []
        return list(self.reader(document["id"]).align(log_probs, text))

    # --- changing a line ----------------------------------------------------------------------------------------------

    def change(self, number: int, version: int, values: Mapping[str, Any], by: str) -> dict[str, Any]:
        """Give a line another text or state, if it has not been changed since `version`."""

        def write(connection: sqlite3.Connection) -> None:
            self._change(connection, number, version, values, by)

        try:
            self.store.write(write)
        except OutdatedError:
            raise OutdatedError(self.shown_line(number)) from None
        return self._tell_line(number)

    def _tell_line(self, number: int) -> dict[str, Any]:
        shown = self.shown_line(number)
        self.events.publish("line", shown)
        return shown

    @staticmethod
    def _change(connection: sqlite3.Connection, number: int, version: int, values: Mapping[str, Any], by: str) -> None:
        found = connection.execute("SELECT * FROM lines WHERE id = ?", (number,)).fetchone()
        if found is None:
            raise MissingError(f"there is no line {number}.")
        if found["version"] != version:
            raise OutdatedError(dict(found))
        update(connection, "lines", number, {**values, "version": version + 1})
        _remember(connection, number, by)

    def history(self, number: int) -> list[Row]:
        """The versions of a line, the oldest first."""
        self.line(number)
        return self.store.rows(
            "SELECT version, text, state, at, by FROM history WHERE line = ? ORDER BY version", number
        )

    def undo(self, number: int, version: int, by: str) -> dict[str, Any]:
        """Take a line back to how it was before its last change of text or state; undoing again goes further back."""
        line = self.line(number)
        steps = self.history(number)
        at = len(steps) - 1
        while at >= 0 and steps[at]["by"].startswith("undo:"):  # what an undo took back to
            target = int(steps[at]["by"].split(":")[1])
            at = next((i for i, step in enumerate(steps) if step["version"] == target), -1)
        earlier = next((s for s in reversed(steps[: max(at, 0)]) if (s["text"], s["state"]) != _what(line)), None)
        if line["version"] != version:
            raise OutdatedError(self.shown_line(number))
        if earlier is None:
            raise FadaError("there is nothing to undo.")
        values = {"text": earlier["text"], "state": earlier["state"]}
        return self.change(number, version, values, f"undo:{earlier['version']}:{by}"[:200])

    # --- outlines -----------------------------------------------------------------------------------------------------

    def split(self, number: int, version: int, at: float, by: str) -> tuple[list[int], Row]:
        """Cut a line in two at a fraction of its width; both are read."""
        line = self.line(number)
        outline, baseline = json.loads(line["outline"]), json.loads(line["baseline"])
        halves = shapes.split(outline, baseline, at)
        if self.document(line["document"])["direction"] == "rtl":
            halves = (halves[1], halves[0])
        (first, first_base), (second, second_base) = halves
        text = line["text"]
        cut = self._cut(line, text, at) if line["state"] != "draft" else 0
        parts = (text[:cut].rstrip(), text[cut:].lstrip())

        def write(connection: sqlite3.Connection) -> int:
            further = connection.execute(
                "SELECT min(place) FROM lines WHERE page = ? AND place > ?", (line["page"], line["place"])
            ).fetchone()[0]
            place = line["place"] + 1 if further is None else (line["place"] + further) / 2
            state = "draft" if line["state"] == "draft" else "typed"
            changed = {"outline": first, "baseline": first_base, "text": parts[0], "state": state, "emission": ""}
            self._change(connection, number, version, {**changed, "reading": "{}"}, by)
            new = {"page": line["page"], "place": place, "outline": second, "baseline": second_base}
            return _add(connection, {**new, "text": parts[1], "state": state}, by)

        new = self._written(write, number)
        return [number, new], self._reread(line["document"], [number, new])

    def _cut(self, line: Row, text: str, at: float) -> int:
        cells = self._aligned(line, text, self.document(line["document"]))
        return next((i for i, cell in enumerate(cells) if (cell[2] + cell[3]) / 2 > at), len(text)) if cells else 0

    def _written(self, write: Callable[[sqlite3.Connection], Any], number: int) -> Any:
        try:
            return self.store.write(write)
        except OutdatedError as error:
            raise OutdatedError(self.shown_line(error.line.get("id", number))) from None

    def join(self, seen: Sequence[tuple[int, int]], by: str) -> tuple[int, Row]:
        """Make lines of one page one; the first stays, the others go."""
        lines = [self.line(number) for number, _ in seen]
        if len({line["page"] for line in lines}) > 1:
            raise FadaError("the lines are of several pages. Join lines of one page.")
        if len({line["id"] for line in lines}) < len(lines):
            raise FadaError("the same line twice. Name each line once.")
        outline, baseline = shapes.join(
            [json.loads(line["outline"]) for line in lines], [json.loads(line["baseline"]) for line in lines]
        )
        typed = any(line["state"] != "draft" for line in lines)
        text = " ".join(line["text"].strip() for line in lines if line["text"].strip()) if typed else ""
        first = lines[0]["id"]

        def write(connection: sqlite3.Connection) -> None:
            for number, version in seen[1:]:
                _check_version(connection, number, version)
                connection.execute("DELETE FROM lines WHERE id = ?", (number,))
            values = {"outline": outline, "baseline": baseline, "text": text, "emission": "", "reading": "{}"}
            state = "typed" if typed else "draft"
            self._change(connection, first, seen[0][1], {**values, "state": state}, by)

        self._written(write, first)
        return first, self._reread(lines[0]["document"], [first])

    def draw(self, page: int, outline: Any, baseline: Any, by: str) -> tuple[int, Row]:
        """A new line on a page, in the order of its height; it is read."""
        found = self.page(page)
        outline, baseline = shapes.checked(outline, baseline, found["width"], found["height"])
        middle = shapes.middle(outline)

        def write(connection: sqlite3.Connection) -> int:
            rows = connection.execute(
                "SELECT place, outline FROM lines WHERE page = ? ORDER BY place", (page,)
            ).fetchall()
            before = [row["place"] for row in rows if shapes.middle(json.loads(row["outline"])) <= middle]
            after = [row["place"] for row in rows if not before or row["place"] > max(before)]
            low = max(before) if before else (min(after) - 2 if after else 0.0)
            place = (low + min(after)) / 2 if after else low + 1
            return _add(connection, {"page": page, "place": place, "outline": outline, "baseline": baseline}, by)

        number = self.store.write(write)
        return number, self._reread(found["document"], [number])

    def reshape(self, number: int, version: int, outline: Any, baseline: Any, by: str) -> Row:
        """Give a line another outline; it is read again."""
        line = self.line(number)
        page = self.page(line["page"])
        outline, baseline = shapes.checked(outline, baseline, page["width"], page["height"])
        values = {"outline": outline, "baseline": baseline, "emission": "", "reading": "{}"}
        self._written(lambda connection: self._change(connection, number, version, values, by), number)
        return self._reread(line["document"], [number])

    def remove(self, number: int, version: int) -> None:
        """Delete a line."""
        line = self.line(number)

        def write(connection: sqlite3.Connection) -> None:
            _check_version(connection, number, version)
            connection.execute("DELETE FROM lines WHERE id = ?", (number,))

        self._written(write, number)
        self.tell_page(line["page"])

    def reorder(self, page: int, numbers: Sequence[int]) -> None:
        """Another reading order of all lines of a page."""
        self.page(page)

        def write(connection: sqlite3.Connection) -> None:
            found = {row["id"] for row in connection.execute("SELECT id FROM lines WHERE page = ?", (page,))}
            if found != set(numbers) or len(found) != len(numbers):
                raise FadaError(f"{len(numbers)} lines for a page of {len(found)}: name each of its lines once.")
            connection.executemany("UPDATE lines SET place = ? WHERE id = ?", [*enumerate(numbers)])

        self.store.write(write)
        self.tell_page(page)

    def tell_page(self, page: int) -> None:
        """Publish that a page changed."""
        found = self.store.row("SELECT id, document, state, message FROM pages WHERE id = ?", page)
        if found is not None:
            self.events.publish("page", found)

    # --- knowledge ----------------------------------------------------------------------------------------------------

    def known(self, document: int) -> "Known":
        """What is known of a document."""
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
            chosen = Chosen.of(json.loads(row["knowledge"]))
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

    def kind(self, model: str) -> str:
        """`ctc` or `tokens`, as far as it is known."""
        return str((self.setting(f"alphabet:{model}") or {}).get("kind", "ctc"))

    def choose(self, document: int, chosen: Chosen, page: int | None = None) -> Row:
        """Other knowledge for a document, which is read again from its emissions."""
        before = json.loads(self.document(document)["knowledge"])

        def write(values: Mapping[str, Any]) -> None:
            self.store.write(lambda connection: update(connection, "documents", document, {"knowledge": values}))

        self.jobs.check_room()
        write(chosen.to_dict())
        try:
            self.reader(document)
        except FadaError:
            write(before)
            raise
        return self.again(document, page)

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

    def _reread(self, document: int, lines: Sequence[int]) -> Row:
        for page in {self.line(number)["page"] for number in lines}:
            self.tell_page(page)
        return self.jobs.add("lines", document, lines=list(lines))

    def _read_document(self, job: Running) -> dict[str, Any]:
        """Find the pages of a new document, their lines, and what is written in them."""
        document = self.document(job.document or 0)
        problems: list[str] = []
        if not self.store.row("SELECT id FROM pages WHERE document = ?", document["id"]):
            self._find_pages(job, document, problems)
        pages = self.store.rows("SELECT * FROM pages WHERE document = ? ORDER BY number", document["id"])
        if not pages:
            raise FadaError(problems[0] if problems else "nothing to read was found in these files.")
        for done, page in enumerate(pages):
            job.check()
            job.tell(done, len(pages), page["name"], force=True)
            if page["state"] == "read":
                continue
            try:
                self._read_page(job, document, page)
            except WorkerLostError as error:
                problems.append(f"{page['name']}: {error}")
                self._set_page(page["id"], "failed", str(error))
            except FadaError as error:
                problems.append(f"{page['name']}: {error}")
                self._set_page(page["id"], "failed", _short(str(error)))
            if done in _LOOKS or done == len(pages) - 1:
                self.look(job, document["id"])
        job.tell(len(pages), len(pages), force=True)
        return {"document": document["id"], "pages": len(pages), "problems": problems[:100]}

    def look(self, job: Running, number: int) -> None:
        """Find out which domain a document is of, from what was read of it; if that changes, decode it again."""
        from fada.serve.knowledge import looked_at

        document = self.document(number)
        before = Chosen.of(json.loads(document["knowledge"]))
        rows = self.emitted(number)
        chosen = (
            [rows[i] for i in sorted({round(i * (len(rows) - 1) / (_SEEN - 1)) for i in range(_SEEN)})] if rows else []
        )
        lines = [e for row in chosen if (e := self.project.emission(number, row["emission"])) is not None and len(e)]
        model = self.project.model(document["model"])
        after = looked_at(before, model, *self.alphabet(document["model"]), lines)
        if after == before:
            return
        names = [[name for name, _ in one.inferred or ()] for one in (before, after)]
        self.store.write(lambda connection: update(connection, "documents", number, {"knowledge": after.to_dict()}))
        if before.inferred is None or names[0] != names[1]:
            self._decode(job, self.document(number), rows)

    def emitted(self, document: int, first: int = 0) -> list[Row]:
        """The lines of a document that have emissions, those of the page `first` before all others."""
        return self.store.rows(
            "SELECT lines.id, lines.page, lines.emission FROM lines JOIN pages ON pages.id = lines.page "
            "WHERE pages.document = ? AND lines.emission != '' ORDER BY lines.page != ?, pages.number, lines.place",
            document,
            first,
        )

    def _find_pages(self, job: Running, document: Row, problems: list[str]) -> None:
        folder = self.project.source(document["id"])
        limits = self.limits
        found: list[Any] = []
        for answer in job.run(
            "pages",
            folder=str(folder),
            direction=document["direction"],
            most=limits.pages,
            pixels=limits.pixels,
            seconds=limits.seconds,
        ):
            if "problem" in answer:
                problems.append(answer["problem"])
            else:
                found.append(answer)
                job.tell(0, len(found), "finding pages")

        def write(connection: sqlite3.Connection) -> None:
            for number, answer in enumerate(found, 1):
                file = Path(answer["page"].pop("file")).resolve().relative_to(self.project.folder)
                values = {"document": document["id"], "number": number, "file": file.as_posix(), "state": "waiting"}
                page = insert(connection, "pages", {**answer["page"], **values})
                for place, line in enumerate(answer.get("lines", ())):
                    text = line.get("text")
                    state = "draft" if text is None else "typed"
                    _add(connection, {"page": page, "place": place, **line, "text": text or "", "state": state}, "file")

        self.store.write(write)

    def _read_page(self, job: Running, document: Row, page: Row) -> None:
        self._set_page(page["id"], "reading")
        lines = self.lines_of(page["id"])
        if not lines:
            if page["media"].startswith("audio:"):
                whole = shapes.box(page["width"], page["height"])
                found = [{"outline": whole, "baseline": []}]
            else:
                file, rtl = str(self.page_file(page)), document["direction"] == "rtl"
                asked = {"file": file, "upright": bool(page["upright"]), "right_to_left": rtl}
                found = [line for answer in job.run("segment", **asked) for line in answer["lines"]]
            self.store.write(
                lambda connection: [
                    _add(connection, {"page": page["id"], "place": place, **line}, "reader")
                    for place, line in enumerate(found)
                ]
            )
            lines = self.lines_of(page["id"])
            self.tell_page(page["id"])
        problems = self.emit(job, document, lines)
        if problems and len(problems) == len(lines):
            raise FadaError(problems[0])
        told = f"{len(problems)} lines could not be read: {problems[0]}" if problems else ""
        self._set_page(page["id"], "read", _short(told))

    def _set_page(self, page: int, state: str, message: str = "") -> None:
        values = {"state": state, "message": message}
        self.store.write(lambda connection: update(connection, "pages", page, values))
        self.tell_page(page)

    def _read_lines(self, job: Running) -> dict[str, Any]:
        """Read lines whose outline changed."""
        document = self.document(job.document or 0)
        lines = [row for n in job.asked["lines"] if (row := self.store.row("SELECT * FROM lines WHERE id = ?", n))]
        self.emit(job, document, lines)
        return {"lines": [line["id"] for line in lines]}

    def emit(self, job: Running, document: Row, lines: Sequence[Row]) -> list[str]:
        """Run the network over lines, then decode them; a few at a time, so that they appear as they are read.

        Returns:
            What was wrong with lines that cannot be read.
        """
        problems: list[str] = []
        model = document["model"]
        folder = self.project.folder / "emissions" / str(document["id"])
        pages = {number: self.page(number) for number in {line["page"] for line in lines}}
        for first in range(0, len(lines), _AT_ONCE):
            asked, emissions = [], {}
            for line in lines[first : first + _AT_ONCE]:
                page = pages[line["page"]]
                name = self.emission_name(line, page, model)
                if line["emission"] == name and self.project.emission(document["id"], name) is not None:
                    emissions[line["id"]] = name
                    continue
                audio = page["media"].removeprefix("audio:") if page["media"].startswith("audio:") else None
                asked.append(
                    {
                        "id": line["id"],
                        "page": str(self.page_file(page)),
                        "size": [page["width"], page["height"]],
                        "upright": bool(page["upright"]),
                        "outline": json.loads(line["outline"]),
                        "baseline": json.loads(line["baseline"]),
                        "emission": name,
                        "audio": str(self.project.source(document["id"]) / audio) if audio else None,
                    }
                )
            self._store_readings(document, emissions, {})
            for answers in self._answers(job, model, folder, asked):
                texts = {answer["line"]: answer["text"] for answer in answers if "text" in answer}
                self._store_readings(
                    document,
                    {answer["line"]: answer["emission"] for answer in answers if "emission" in answer},
                    {number: Reading(text, text, alternatives=[(text, 0.0)]) for number, text in texts.items()},
                )
                problems += [answer["problem"] for answer in answers if "problem" in answer]
        return problems

    def _answers(self, job: Running, model: str, folder: Path, asked: list[Any]) -> Iterator[list[Any]]:
        """What a worker reads in lines, as it comes: all that came in the last half second."""
        if not asked:
            return
        where = {"model": self.project.model(model), "out": str(folder), "beam": self.beam}
        waiting: list[Any] = []
        told = time.monotonic()
        for answer in job.run("read", lines=asked, **where):
            if "alphabet" in answer:
                self._keep_alphabet(model, answer["alphabet"])
            else:
                waiting.append(answer)
            if waiting and time.monotonic() - told > _TELL:
                yield waiting
                waiting, told = [], time.monotonic()
        yield waiting

    @staticmethod
    def emission_name(line: Row, page: Row, model: str) -> str:
        """Of the file with a line's emissions: another model, page or outline has another one."""
        parts = [model, page["file"], page["upright"], line["outline"], line["baseline"]]
        return f"{line['id']}-{hashlib.blake2b(json.dumps(parts).encode(), digest_size=8).hexdigest()}"

    def _keep_alphabet(self, model: str, alphabet: Mapping[str, Any]) -> None:
        if self.setting(f"alphabet:{model}") != alphabet:
            self.set({f"alphabet:{model}": alphabet})
            with self._lock:
                self._known.clear()

    def _store_readings(self, document: Row, emissions: Mapping[int, str], texts: Mapping[int, Reading]) -> None:
        """Decode emissions and store what was read; a text that somebody typed stays."""
        found = dict(texts)
        stored = {number: self.project.emission(document["id"], name) for number, name in emissions.items()}
        there = {number: array for number, array in stored.items() if array is not None and len(array)}
        if there:
            found |= dict(zip(there, self.reader(document["id"]).read([*there.values()]), strict=True))
        for number in stored.keys() - there.keys():
            found[number] = Reading()

        def write(connection: sqlite3.Connection) -> None:
            for number, reading in found.items():
                values = {"reading": reading.to_dict()} | (
                    {"emission": emissions[number]} if number in emissions else {}
                )
                row = connection.execute("SELECT state, text FROM lines WHERE id = ?", (number,)).fetchone()
                if row is None:
                    continue
                if row["state"] == "draft" and row["text"] != reading.text:
                    version = connection.execute("SELECT version FROM lines WHERE id = ?", (number,)).fetchone()[0]
                    values |= {"text": reading.text, "version": version + 1}
                    update(connection, "lines", number, values)
                    _remember(connection, number, "reader")
                else:
                    update(connection, "lines", number, values)

        self.store.write(write)
        for number in found:
            if self.store.row("SELECT id FROM lines WHERE id = ?", number):
                self._tell_line(number)

    def _read_again(self, job: Running) -> dict[str, Any]:
        """Decode a document from its emissions, the open page first."""
        document = self.document(job.document or 0)
        rows = self.emitted(document["id"], job.asked.get("page") or 0)
        self._decode(job, document, rows)
        return {"document": document["id"], "lines": len(rows)}

    def _decode(self, job: Running, document: Row, rows: Sequence[Row]) -> None:
        """Decode lines from their emissions."""
        for done in range(0, len(rows), _AT_ONCE):
            job.check()
            job.tell(done, len(rows))
            self._store_readings(document, {r["id"]: r["emission"] for r in rows[done : done + _AT_ONCE]}, {})
        job.tell(len(rows), len(rows), force=True)

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


def _what(row: Row) -> tuple[str, str]:
    return row["text"], row["state"]


def _add(connection: sqlite3.Connection, values: Mapping[str, Any], by: str) -> int:
    number = insert(connection, "lines", values)
    _remember(connection, number, by)
    return number


def _remember(connection: sqlite3.Connection, number: int, by: str) -> None:
    """Add the line as it is now to its history."""
    connection.execute(
        "INSERT OR REPLACE INTO history SELECT id, version, text, state, ?, ? FROM lines WHERE id = ?",
        (now(), by, number),
    )


def _check_version(connection: sqlite3.Connection, number: int, version: int) -> None:
    found = connection.execute("SELECT * FROM lines WHERE id = ?", (number,)).fetchone()
    if found is None:
        raise MissingError(f"there is no line {number}.")
    if found["version"] != version:
        raise OutdatedError(dict(found))


def _short(text: str) -> str:
    return text if len(text) < 300 else text[:297] + "…"
