"""Where lines stand on a page: split, joined, drawn, moved, put in order, deleted; what is cut anew is read anew."""

import json
import sqlite3
from collections.abc import Callable, Sequence
from typing import Any

from fada.errors import FadaError
from fada.serve import lines, shapes
from fada.serve.desk import Desk, OutdatedError
from fada.serve.store import Row


def split(desk: Desk, number: int, version: int, at: float, by: str) -> list[int]:
    """Cut a line in two at a fraction of its width; both are read."""
    line = desk.line(number)
    outline, baseline = json.loads(line["outline"]), json.loads(line["baseline"])
    halves = shapes.split(outline, baseline, at)
    if desk.document(line["document"])["direction"] == "rtl":
        halves = (halves[1], halves[0])
    (first, first_base), (second, second_base) = halves
    text = line["text"]
    cut = _cut(desk, line, text, at) if line["state"] != "draft" else 0
    parts = (text[:cut].rstrip(), text[cut:].lstrip())

    def write(connection: sqlite3.Connection) -> int:
        further = connection.execute(
            "SELECT min(place) FROM lines WHERE page = ? AND place > ?", (line["page"], line["place"])
        ).fetchone()[0]
        place = line["place"] + 1 if further is None else (line["place"] + further) / 2
        state = "draft" if line["state"] == "draft" else "typed"
        changed = {"outline": first, "baseline": first_base, "text": parts[0], "state": state, "emission": ""}
        lines.change_in(connection, number, version, {**changed, "reading": "{}"}, by)
        new = {"page": line["page"], "place": place, "outline": second, "baseline": second_base}
        return lines.add(connection, {**new, "text": parts[1], "state": state}, by)

    numbers = [number, _written(desk, write, number)]
    _reread(desk, line["document"], numbers)
    return numbers


def _cut(desk: Desk, line: Row, text: str, at: float) -> int:
    cells = lines.aligned(desk, line, text, desk.document(line["document"]))
    return next((i for i, cell in enumerate(cells) if (cell[2] + cell[3]) / 2 > at), len(text)) if cells else 0


def _written(desk: Desk, write: Callable[[sqlite3.Connection], Any], number: int) -> Any:
    try:
        return desk.store.write(write)
    except OutdatedError as error:
        raise OutdatedError(lines.shown_line(desk, error.line.get("id", number))) from None


def join(desk: Desk, seen: Sequence[tuple[int, int]], by: str) -> int:
    """Make lines of one page one; the first stays, the others go."""
    rows = [desk.line(number) for number, _ in seen]
    if len({line["page"] for line in rows}) > 1:
        raise FadaError("the lines are of several pages. Join lines of one page.")
    if len({line["id"] for line in rows}) < len(rows):
        raise FadaError("the same line twice. Name each line once.")
    outline, baseline = shapes.join(
        [json.loads(line["outline"]) for line in rows], [json.loads(line["baseline"]) for line in rows]
    )
    typed = any(line["state"] != "draft" for line in rows)
    text = " ".join(line["text"].strip() for line in rows if line["text"].strip()) if typed else ""
    first = rows[0]["id"]

    def write(connection: sqlite3.Connection) -> None:
        for number, version in seen[1:]:
            lines.check_version(connection, number, version)
            connection.execute("DELETE FROM lines WHERE id = ?", (number,))
        values = {"outline": outline, "baseline": baseline, "text": text, "emission": "", "reading": "{}"}
        state = "typed" if typed else "draft"
        lines.change_in(connection, first, seen[0][1], {**values, "state": state}, by)

    _written(desk, write, first)
    _reread(desk, rows[0]["document"], [first])
    return int(first)


def draw(desk: Desk, page: int, outline: Any, baseline: Any, by: str) -> int:
    """A new line on a page, in the order of its height; it is read."""
    found = desk.page(page)
    outline, baseline = shapes.checked(outline, baseline, found["width"], found["height"])
    middle = shapes.middle(outline)

    def write(connection: sqlite3.Connection) -> int:
        rows = connection.execute("SELECT place, outline FROM lines WHERE page = ? ORDER BY place", (page,)).fetchall()
        before = [row["place"] for row in rows if shapes.middle(json.loads(row["outline"])) <= middle]
        after = [row["place"] for row in rows if not before or row["place"] > max(before)]
        low = max(before) if before else (min(after) - 2 if after else 0.0)
        place = (low + min(after)) / 2 if after else low + 1
        return lines.add(connection, {"page": page, "place": place, "outline": outline, "baseline": baseline}, by)

    number = desk.store.write(write)
    _reread(desk, found["document"], [number])
    return number


def reshape(desk: Desk, number: int, version: int, outline: Any, baseline: Any, by: str) -> None:
    """Give a line another outline; it is read again."""
    line = desk.line(number)
    page = desk.page(line["page"])
    outline, baseline = shapes.checked(outline, baseline, page["width"], page["height"])
    values = {"outline": outline, "baseline": baseline, "emission": "", "reading": "{}"}
    _written(desk, lambda connection: lines.change_in(connection, number, version, values, by), number)
    _reread(desk, line["document"], [number])


def remove(desk: Desk, number: int, version: int) -> None:
    line = desk.line(number)

    def write(connection: sqlite3.Connection) -> None:
        lines.check_version(connection, number, version)
        connection.execute("DELETE FROM lines WHERE id = ?", (number,))

    _written(desk, write, number)
    desk.tell_page(line["page"])


def reorder(desk: Desk, page: int, numbers: Sequence[int]) -> None:
    """Another reading order of all lines of a page."""
    desk.page(page)

    def write(connection: sqlite3.Connection) -> None:
        found = {row["id"] for row in connection.execute("SELECT id FROM lines WHERE page = ?", (page,))}
        if found != set(numbers) or len(found) != len(numbers):
            raise FadaError(f"{len(numbers)} lines for a page of {len(found)}: name each of its lines once.")
        connection.executemany("UPDATE lines SET place = ? WHERE id = ?", [*enumerate(numbers)])

    desk.store.write(write)
    desk.tell_page(page)


def _reread(desk: Desk, document: int, numbers: Sequence[int]) -> None:
    for page in {desk.line(number)["page"] for number in numbers}:
        desk.tell_page(page)
    desk.jobs.add("lines", document, lines=list(numbers))
