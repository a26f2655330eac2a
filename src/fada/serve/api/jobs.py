"""Jobs and events; a batch that is transcribed without a desk."""

from collections.abc import AsyncIterator
from typing import Annotated, Any

from fastapi import APIRouter, File, Form, Request, UploadFile
from fastapi.responses import StreamingResponse
from starlette.concurrency import run_in_threadpool

from fada.errors import FadaError
from fada.serve.api.common import ERRORS, Number, OfDesk
from fada.serve.api.documents import new_document
from fada.serve.desk import Desk, MissingError
from fada.serve.events import stream
from fada.serve.jobs import Full, shown
from fada.serve.schema import Direction, Job

router = APIRouter(tags=["jobs"], responses=ERRORS)
_EVENTS: dict[int | str, dict[str, Any]] = {200: {"content": {"text/event-stream": {}}}}
_ENDED = ("done", "failed", "cancelled")


def _job(desk: Desk, number: int) -> dict[str, Any]:
    row = desk.jobs.row(number)
    if row is None:
        raise MissingError(f"there is no job {number}.")
    return shown(row)


@router.get("/jobs")
def list_jobs(desk: OfDesk) -> list[Job]:
    """The last hundred jobs, the newest first."""
    return [Job(**shown(row)) for row in desk.store.rows("SELECT * FROM jobs ORDER BY id DESC LIMIT 100")]


@router.get("/jobs/{job}")
def get_job(desk: OfDesk, job: Number) -> Job:
    """How far a job is."""
    return Job(**_job(desk, job))


@router.delete("/jobs/{job}")
def cancel_job(desk: OfDesk, job: Number) -> Job:
    """Cancel a job: one that waits at once, one that runs as soon as it looks up."""
    _job(desk, job)
    desk.jobs.cancel(job)
    return Job(**_job(desk, job))


@router.get("/jobs/{job}/result")
def job_result(desk: OfDesk, job: Number) -> dict[str, Any]:
    """The lines that a job has read, page by page."""
    found = _job(desk, job)
    if found["state"] != "done":
        raise FadaError(f"the job is {found['state']}, expected done. Its events tell when it is.")
    if found["document"] is None or not desk.store.row("SELECT id FROM documents WHERE id = ?", found["document"]):
        raise MissingError(f"the document of job {job} was deleted.")
    pages = []
    for page, lines in desk.all_lines(found["document"], confirmed=False):
        kept = [{"id": line["id"], "text": line["text"], "state": line["state"]} for line in lines]
        pages.append({"id": page["id"], "name": page["name"], "lines": kept})
    return {"job": job, "document": found["document"], "pages": pages}


@router.get("/jobs/{job}/events", response_class=StreamingResponse, responses=_EVENTS)
async def job_events(desk: OfDesk, job: Number) -> StreamingResponse:
    """Server-sent events of one job, beginning with how it is now, until it ends."""
    await run_in_threadpool(_job, desk, job)
    _check_room(desk)

    async def events() -> AsyncIterator[str]:
        with desk.events.listening() as listener:
            listener.put(("job", await run_in_threadpool(_job, desk, job)))

            def wanted(kind: str, value: Any) -> tuple[bool, bool]:
                mine = kind == "job" and value["id"] == job
                return mine, mine and value["state"] in _ENDED

            async for text in stream(listener, wanted):
                yield text

    return StreamingResponse(events(), media_type="text/event-stream")


@router.get("/events", response_class=StreamingResponse, responses=_EVENTS)
async def all_events(desk: OfDesk, request: Request) -> StreamingResponse:
    """Server-sent events of everything: `job`, `line` and `page`; after `lost`, look at what is shown again."""
    _check_room(desk)

    async def events() -> AsyncIterator[str]:
        with desk.events.listening() as listener:
            async for text in stream(listener):
                yield text

    return StreamingResponse(events(), media_type="text/event-stream")


def _check_room(desk: Desk) -> None:
    if desk.events.count >= desk.limits.streams:
        raise Full


@router.post("/transcribe", status_code=202)
def transcribe(
    desk: OfDesk,
    files: Annotated[list[UploadFile], File(description="As for a document.")],
    name: Annotated[str, Form(max_length=200)] = "",
    direction: Annotated[Direction, Form()] = "ltr",
    model: Annotated[str, Form(max_length=200)] = "",
) -> Job:
    """Transcribe files in one go; the texts are at `/jobs/{job}/result` when the job is done."""
    return new_document(desk, files, name, direction, model).job
