"""The work of jobs: documents read page by page, lines read again, from the picture or from what is stored."""

import hashlib
import json
import sqlite3
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

from fada.errors import FadaError
from fada.serve import lines, shapes
from fada.serve.chosen import Chosen
from fada.serve.desk import Desk
from fada.serve.jobs import QUICK, Running
from fada.serve.reading import Reading
from fada.serve.store import Row, insert, update

_SEEN = 16
"""Lines of a document by which its domain is judged."""
_AT_ONCE = 16
"""Lines that are read, or decoded, before what was found is stored."""
_TELL = 0.5
"""Seconds after which what was read meanwhile is stored and told."""
_LOOKS = (0, 3)
"""Pages after which the domain of a new document is looked for; once more after the last."""


def register(desk: Desk) -> None:
    """Tell the desk's queue how these jobs are done."""
    desk.jobs.register("read", partial(_read_document, desk))
    desk.jobs.register("lines", partial(_read_lines, desk), QUICK)
    desk.jobs.register("again", partial(_read_again, desk), QUICK)


def _read_document(desk: Desk, job: Running) -> dict[str, Any]:
    """Find the pages of a new document, their lines, and what is written in them."""
    document = desk.document(job.document or 0)
    problems: list[str] = []
    if not desk.store.row("SELECT id FROM pages WHERE document = ?", document["id"]):
        _find_pages(desk, job, document, problems)
    pages = desk.store.rows("SELECT * FROM pages WHERE document = ? ORDER BY number", document["id"])
    if not pages:
        raise FadaError(problems[0] if problems else "nothing to read was found in these files.")
    for done, page in enumerate(pages):
        job.check()
        job.tell(done, len(pages), page["name"], force=True)
        if page["state"] == "read":
            continue
        try:
            _read_page(desk, job, document, page)
        except FadaError as error:
            problems.append(f"{page['name']}: {error}")
            _set_page(desk, page["id"], "failed", _short(str(error)))
        if done in _LOOKS or done == len(pages) - 1:
            look(desk, job, document["id"])
    job.tell(len(pages), len(pages), force=True)
    return {"document": document["id"], "pages": len(pages), "problems": problems[:100]}


def look(desk: Desk, job: Running, number: int) -> None:
    """Find out which domain a document is of, from what was read of it; if that changes, decode it again."""
    from fada.serve.knowledge import looked_at

    document = desk.document(number)
    before = Chosen.model_validate_json(document["knowledge"])
    rows = desk.emitted(number)
    chosen = [rows[i] for i in sorted({round(i * (len(rows) - 1) / (_SEEN - 1)) for i in range(_SEEN)})] if rows else []
    emissions = [e for row in chosen if (e := desk.project.emission(number, row["emission"])) is not None and len(e)]
    model = desk.project.model(document["model"])
    after = looked_at(before, model, *desk.alphabet(document["model"]), emissions)
    if after == before:
        return
    names = [[name for name, _ in one.inferred or ()] for one in (before, after)]
    found = {"inferred": after.inferred, "certainty": after.certainty}
    desk.alter_knowledge(number, lambda now: now.model_copy(update=found))
    if before.inferred is None or names[0] != names[1]:
        _decode(desk, job, desk.document(number), rows)


def _find_pages(desk: Desk, job: Running, document: Row, problems: list[str]) -> None:
    folder, limits = desk.project.source(document["id"]), desk.limits
    found: list[Any] = []
    for answer in job.run("pages", folder=str(folder), most=limits.pages, pixels=limits.pixels):
        if "problem" in answer:
            problems.append(answer["problem"])
        else:
            found.append(answer)
            job.tell(0, len(found), "finding pages")

    def write(connection: sqlite3.Connection) -> None:
        for number, answer in enumerate(found, 1):
            file = Path(answer["page"].pop("file")).resolve().relative_to(desk.project.folder)
            values = {"document": document["id"], "number": number, "file": file.as_posix(), "state": "waiting"}
            page = insert(connection, "pages", {**answer["page"], **values})
            for place, line in enumerate(answer.get("lines", ())):
                text = line.get("text")
                values = {"text": text or "", "state": "draft" if text is None else "typed"}
                lines.add(connection, {"page": page, "place": place, **line, **values}, "file")

    desk.store.write(write)


def _read_page(desk: Desk, job: Running, document: Row, page: Row) -> None:
    _set_page(desk, page["id"], "reading")
    rows = desk.lines_of(page["id"])
    notes: list[str] = []
    turned: dict[str, Any] = {}
    if not rows:
        if desk.sound(page):
            whole = shapes.box(page["width"], page["height"])
            found = [{"outline": whole, "baseline": []}]
        else:
            file, rtl = str(desk.page_file(page)), document["direction"] == "rtl"
            asked = {"file": file, "upright": bool(page["upright"]), "right_to_left": rtl}
            asked |= {"model": desk.project.model(document["model"]), "made": str(desk.project.made(document["id"]))}
            answers = {name: value for answer in job.run("segment", **asked) for name, value in answer.items()}
            found, notes, turned = answers["lines"], answers.get("notes", notes), answers.get("turned", turned)

        def write(connection: sqlite3.Connection) -> None:
            if turned:
                picture = Path(turned["file"]).resolve().relative_to(desk.project.folder)
                update(connection, "pages", page["id"], {**turned, "file": picture.as_posix()})
            for place, line in enumerate(found):
                lines.add(connection, {"page": page["id"], "place": place, **line}, "reader")

        desk.store.write(write)
        rows = desk.lines_of(page["id"])
        desk.tell_page(page["id"])
    problems = emit(desk, job, document, rows)
    if problems and len(problems) == len(rows):
        raise FadaError(problems[0])
    if problems:
        notes = [*notes, f"{len(problems)} lines could not be read: {problems[0]}"]
    _set_page(desk, page["id"], "read", _short(" ".join(notes)))


def _set_page(desk: Desk, page: int, state: str, message: str = "") -> None:
    values = {"state": state, "message": message}
    desk.store.write(lambda connection: update(connection, "pages", page, values))
    desk.tell_page(page)


def _read_lines(desk: Desk, job: Running) -> dict[str, Any]:
    """Read lines whose outline changed."""
    document = desk.document(job.document or 0)
    rows = [row for n in job.asked["lines"] if (row := desk.store.row("SELECT * FROM lines WHERE id = ?", n))]
    emit(desk, job, document, rows)
    return {"lines": [row["id"] for row in rows]}


def emit(desk: Desk, job: Running, document: Row, rows: Sequence[Row]) -> list[str]:
    """Run the network over lines, then decode them; a few at a time, so that they appear as they are read.

    Returns:
        What was wrong with lines that cannot be read.
    """
    problems: list[str] = []
    model = document["model"]
    folder = desk.project.folder / "emissions" / str(document["id"])
    pages = {number: desk.page(number) for number in {line["page"] for line in rows}}
    for first in range(0, len(rows), _AT_ONCE):
        asked, emissions = [], {}
        for line in rows[first : first + _AT_ONCE]:
            page = pages[line["page"]]
            name = emission_name(line, page, model)
            if line["emission"] == name and desk.project.emission(document["id"], name) is not None:
                emissions[line["id"]] = name
                continue
            sound = desk.sound(page)
            asked.append(
                {
                    "id": line["id"],
                    "page": str(desk.page_file(page)),
                    "size": [page["width"], page["height"]],
                    "upright": bool(page["upright"]),
                    "outline": json.loads(line["outline"]),
                    "baseline": json.loads(line["baseline"]),
                    "emission": name,
                    "audio": sound and str(sound),
                }
            )
        store_readings(desk, document, emissions, {})
        for answers in _answers(desk, job, model, folder, asked):
            texts = {answer["line"]: answer["text"] for answer in answers if "text" in answer}
            store_readings(
                desk,
                document,
                {answer["line"]: answer["emission"] for answer in answers if "emission" in answer},
                {number: Reading(text, text, alternatives=[(text, 0.0)]) for number, text in texts.items()},
            )
            problems += [answer["problem"] for answer in answers if "problem" in answer]
    return problems


def _answers(desk: Desk, job: Running, model: str, folder: Path, asked: list[Any]) -> Iterator[list[Any]]:
    """What a worker reads in lines, as it comes: all that came in the last half second."""
    if not asked:
        return
    where = {"model": desk.project.model(model), "out": str(folder), "beam": desk.beam}
    waiting: list[Any] = []
    told = time.monotonic()
    for answer in job.run("read", lines=asked, **where):
        if "alphabet" in answer:
            desk.keep_alphabet(model, answer["alphabet"])
        else:
            waiting.append(answer)
        if waiting and time.monotonic() - told > _TELL:
            yield waiting
            waiting, told = [], time.monotonic()
    yield waiting


def emission_name(line: Row, page: Row, model: str) -> str:
    """Of the file with a line's emissions: another model, page or outline has another one."""
    parts = [model, page["file"], page["upright"], line["outline"], line["baseline"]]
    return f"{line['id']}-{hashlib.blake2b(json.dumps(parts).encode(), digest_size=8).hexdigest()}"


def store_readings(desk: Desk, document: Row, emissions: Mapping[int, str], texts: Mapping[int, Reading]) -> None:
    """Decode emissions and store what was read; a text that somebody typed stays."""
    stored = {number: desk.project.emission(document["id"], name) for number, name in emissions.items()}
    there = {number: array for number, array in stored.items() if array is not None and len(array)}
    found = {number: Reading() for number in stored.keys() - there.keys()} | dict(texts)

    def write(connection: sqlite3.Connection) -> bool:
        row = connection.execute("SELECT knowledge FROM documents WHERE id = ?", (document["id"],)).fetchone()
        if row is not None and Chosen.model_validate_json(row["knowledge"]).version != version:
            return False
        for number, reading in found.items():
            values = {"reading": asdict(reading)} | ({"emission": emissions[number]} if number in emissions else {})
            row = connection.execute("SELECT state, text FROM lines WHERE id = ?", (number,)).fetchone()
            if row is None:
                continue
            if row["state"] == "draft" and row["text"] != reading.text:
                before = connection.execute("SELECT version FROM lines WHERE id = ?", (number,)).fetchone()[0]
                values |= {"text": reading.text, "version": before + 1}
                update(connection, "lines", number, values)
                lines.remember(connection, number, "reader")
            else:
                update(connection, "lines", number, values)
        return True

    while True:  # what was read with knowledge that somebody changed meanwhile is not stored
        version = desk.chosen(document["id"]).version
        if there:
            found |= dict(zip(there, desk.reader(document["id"]).read([*there.values()]), strict=True))
        if desk.store.write(write):
            break
    for number in found:
        if desk.store.row("SELECT id FROM lines WHERE id = ?", number):
            lines.tell_line(desk, number)


def _read_again(desk: Desk, job: Running) -> dict[str, Any]:
    """Decode a document from its emissions, the open page first."""
    document = desk.document(job.document or 0)
    rows = desk.emitted(document["id"], job.asked.get("page") or 0)
    _decode(desk, job, document, rows)
    return {"document": document["id"], "lines": len(rows)}


def _decode(desk: Desk, job: Running, document: Row, rows: Sequence[Row]) -> None:
    """Decode lines from their emissions."""
    for done in range(0, len(rows), _AT_ONCE):
        job.check()
        job.tell(done, len(rows))
        store_readings(desk, document, {r["id"]: r["emission"] for r in rows[done : done + _AT_ONCE]}, {})
    job.tell(len(rows), len(rows), force=True)


def _short(text: str) -> str:
    return text if len(text) < 300 else text[:297] + "…"
