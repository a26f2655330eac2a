"""Lines: their crops, texts, history, completion, outlines."""

import time
from typing import Annotated, Any

from fastapi import APIRouter, Query, Request, Response
from fastapi.responses import FileResponse

from fada.serve import lines, outlines
from fada.serve.api.common import CONFLICT, ERRORS, Client, Number, OfDesk
from fada.serve.api.documents import line_picture
from fada.serve.desk import MissingError
from fada.serve.schema import (
    Completion,
    CompletionAsked,
    JoinAsked,
    Line,
    LineChange,
    OutlineChange,
    Seen,
    SplitAsked,
    Step,
)

router = APIRouter(tags=["lines"], responses=ERRORS)
_JPEG: dict[int | str, dict[str, Any]] = {200: {"content": {"image/jpeg": {}}}}


@router.get("/lines/{line}")
def get_line(desk: OfDesk, line: Number) -> Line:
    """A line."""
    return Line(**lines.shown_line(desk, line))


@router.get("/lines/{line}/image", response_class=Response, responses=_JPEG)
def line_image(desk: OfDesk, line: Number, request: Request) -> Response:
    """The line cut out of its page along its outline, in its colours."""
    return line_picture(desk, request, line)


@router.get("/lines/{line}/audio", response_class=FileResponse)
def line_audio(desk: OfDesk, line: Number) -> FileResponse:
    """The recording of a line."""
    row = desk.line(line)
    if (sound := desk.sound(desk.page(row["page"]))) is None:
        raise MissingError(f"line {line} has no sound.")
    return FileResponse(sound)


@router.patch("/lines/{line}", responses=CONFLICT)
def change_line(desk: OfDesk, line: Number, given: LineChange, by: Client) -> Line:
    """A new text or state. What is answered is on disk; a text without a state makes a draft a typed line."""
    values: dict[str, Any] = {}
    if given.text is not None:
        values["text"] = given.text
        values["state"] = "typed"
    if given.state is not None:
        values["state"] = given.state
    if not values:
        return Line(**lines.shown_line(desk, line))
    return Line(**lines.change(desk, line, given.version, values, by))


@router.get("/lines/{line}/history")
def line_history(desk: OfDesk, line: Number) -> list[Step]:
    """All versions of a line, the oldest first."""
    return [Step(**step) for step in lines.history(desk, line)]


@router.post("/lines/{line}/undo", responses=CONFLICT)
def undo_line(desk: OfDesk, line: Number, given: Seen, by: Client) -> Line:
    """Back to how the line was before its last change; again, and it goes further back."""
    return Line(**lines.undo(desk, line, given.version, by))


@router.post("/lines/{line}/complete")
def complete_line(desk: OfDesk, line: Number, given: CompletionAsked) -> Completion:
    """The best reading of the line that begins with a prefix, and has words where they were confirmed."""
    started = time.perf_counter()
    words = [(word.text, word.start, word.end) for word in given.words]
    found = desk.complete(line, given.prefix, words)
    names = ("character", "confidence", "start", "end")
    return Completion.model_validate(
        {
            "text": found.text,
            "characters": [dict(zip(names, cell, strict=True)) for cell in found.characters],
            "alternatives": [{"text": text, "score": score} for text, score in found.alternatives],
            "milliseconds": round((time.perf_counter() - started) * 1000, 2),
        }
    )


@router.post("/lines/{line}/split", responses=CONFLICT)
def split_line(desk: OfDesk, line: Number, given: SplitAsked, by: Client) -> list[Line]:
    """Cut a line in two; both are read."""
    halves = outlines.split(desk, line, given.version, given.at, by)
    return [Line(**lines.shown_line(desk, number)) for number in halves]


@router.post("/lines/join", responses=CONFLICT)
def join_lines(desk: OfDesk, given: JoinAsked, by: Client) -> Line:
    """Make lines of one page one, in the order given."""
    number = outlines.join(desk, [(one.id, one.version) for one in given.lines], by)
    return Line(**lines.shown_line(desk, number))


@router.put("/lines/{line}/outline", responses=CONFLICT)
def set_outline(desk: OfDesk, line: Number, given: OutlineChange, by: Client) -> Line:
    """Another outline and baseline; the line is read again."""
    outlines.reshape(desk, line, given.version, given.outline, given.baseline, by)
    return Line(**lines.shown_line(desk, line))


@router.delete("/lines/{line}", status_code=204, responses=CONFLICT)
def delete_line(desk: OfDesk, line: Number, version: Annotated[int, Query()]) -> None:
    """Delete a line."""
    outlines.remove(desk, line, version)
