"""A line: how it is shown, its texts one after the other, and nobody's change over somebody else's."""

import json
import sqlite3
from collections.abc import Mapping, Sequence
from typing import Any

from fada.errors import FadaError
from fada.serve.desk import Desk, MissingError, OutdatedError
from fada.serve.store import Row, insert, now, update


def shown(desk: Desk, line: Row, order: int, document: Row) -> dict[str, Any]:
    """A line as clients see it."""
    reading = json.loads(line["reading"])
    text = line["text"]
    characters: Sequence[Any] = reading.get("characters", [])
    if text != reading.get("text", ""):
        characters = aligned(desk, line, text, document)
    names = ("character", "confidence", "start", "end")
    sound = desk.sound(desk.page(line["page"]))
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
        "domain": json.loads(document["knowledge"]).get("domain"),
        "expected_word_error": reading.get("expected_word_error"),
        "audio": f"/api/lines/{line['id']}/audio" if sound else None,
    }


def shown_line(desk: Desk, number: int) -> dict[str, Any]:
    """A line as clients see it, by its number."""
    line = desk.line(number)
    before = "SELECT count(*) AS n FROM lines WHERE page = ? AND (place, id) < (?, ?)"
    order = desk.store.rows(before, line["page"], line["place"], line["id"])[0]["n"]
    return shown(desk, line, order, desk.document(line["document"]))


def aligned(desk: Desk, line: Row, text: str, document: Row) -> list[Any]:
    """Where the characters of a text stand in a line; none if it has no emissions."""
    log_probs = desk.project.emission(document["id"], line["emission"])
    if log_probs is None:
        return []
    return list(desk.reader(document["id"]).align(log_probs, text))


def change(desk: Desk, number: int, version: int, values: Mapping[str, Any], by: str) -> dict[str, Any]:
    """Give a line another text or state, if it has not been changed since `version`."""

    def write(connection: sqlite3.Connection) -> None:
        change_in(connection, number, version, values, by)

    try:
        desk.store.write(write)
    except OutdatedError:
        raise OutdatedError(shown_line(desk, number)) from None
    return tell_line(desk, number)


def tell_line(desk: Desk, number: int) -> dict[str, Any]:
    """Publish that a line changed; the line."""
    line = shown_line(desk, number)
    desk.events.publish("line", line)
    return line


def change_in(connection: sqlite3.Connection, number: int, version: int, values: Mapping[str, Any], by: str) -> None:
    """Another text, state or place of a line, in a transaction; remembered, if nobody was quicker."""
    check_version(connection, number, version)
    update(connection, "lines", number, {**values, "version": version + 1})
    remember(connection, number, by)


def history(desk: Desk, number: int) -> list[Row]:
    """The versions of a line, the oldest first."""
    desk.line(number)
    return desk.store.rows("SELECT version, text, state, at, by FROM history WHERE line = ? ORDER BY version", number)


def undo(desk: Desk, number: int, version: int, by: str) -> dict[str, Any]:
    """Take a line back to how it was before its last change of text or state; undoing again goes further back."""
    line = desk.line(number)
    steps = history(desk, number)
    at = len(steps) - 1
    while at >= 0 and steps[at]["by"].startswith("undo:"):  # what an undo took back to
        target = int(steps[at]["by"].split(":")[1])
        at = next((i for i, step in enumerate(steps) if step["version"] == target), -1)
    present = line["text"], line["state"]
    earlier = next((s for s in reversed(steps[: max(at, 0)]) if (s["text"], s["state"]) != present), None)
    if line["version"] != version:
        raise OutdatedError(shown_line(desk, number))
    if earlier is None:
        raise FadaError("there is nothing to undo.")
    values = {"text": earlier["text"], "state": earlier["state"]}
    return change(desk, number, version, values, f"undo:{earlier['version']}:{by}"[:200])


def add(connection: sqlite3.Connection, values: Mapping[str, Any], by: str) -> int:
    """A new line; its number."""
    number = insert(connection, "lines", values)
    remember(connection, number, by)
    return number


def remember(connection: sqlite3.Connection, number: int, by: str) -> None:
    """Add the line as it is now to its history."""
    connection.execute(
        "INSERT OR REPLACE INTO history SELECT id, version, text, state, ?, ? FROM lines WHERE id = ?",
        (now(), by, number),
    )


def check_version(connection: sqlite3.Connection, number: int, version: int) -> None:
    """Refuse if the line is another one by now."""
    found = connection.execute("SELECT * FROM lines WHERE id = ?", (number,)).fetchone()
    if found is None:
        raise MissingError(f"there is no line {number}.")
    if found["version"] != version:
        raise OutdatedError(dict(found))
