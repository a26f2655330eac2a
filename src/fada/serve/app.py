"""The application: routers under `/api`, the page at `/`, errors as sentences, the guard around it all."""

import asyncio
import logging
import re
import sqlite3
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from fastapi import FastAPI, Request
from fastapi.concurrency import run_in_threadpool
from fastapi.exceptions import RequestValidationError
from fastapi.responses import HTMLResponse, JSONResponse
from fastapi.staticfiles import StaticFiles
from starlette.exceptions import HTTPException

from fada._version import __version__
from fada.common.files import is_full
from fada.errors import FadaError
from fada.serve import adapting, work
from fada.serve.api import documents, explore, jobs, knowledge, lines, system
from fada.serve.api.docs import documentation
from fada.serve.desk import Desk, MissingError, OutdatedError, OutdatedKnowledgeError
from fada.serve.guard import Guard
from fada.serve.jobs import Full
from fada.serve.project import RefusedError

log = logging.getLogger(__name__)

PAGE = Path(__file__).parent / "page"
_STATUSES = {
    400: "the request cannot be understood.",
    404: "there is nothing at this address.",
    405: "this address does not take such a request.",
}


def create_app(desk: Desk, *, token: str | None = None, hosts: frozenset[str] = frozenset()) -> FastAPI:
    """The application of a desk.

    Args:
        desk: what it serves; closed when the application ends.
        token: what clients must know, None if only this machine reaches it.
        hosts: names of the server, besides `localhost` and addresses in numbers.
    """

    work.register(desk)
    desk.jobs.register("adapt", lambda job: adapting.adapt(desk, job))

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        desk.jobs.start()
        yield
        await asyncio.get_running_loop().run_in_executor(None, desk.close)

    app = FastAPI(
        title="fada serve",
        version=__version__,
        description="The desk on which a scholar reads a manuscript together with a recogniser.",
        lifespan=lifespan,
        docs_url=None,
        redoc_url=None,
        openapi_url="/openapi.json",
    )
    app.state.desk = desk
    for module in (system, documents, lines, knowledge, explore, jobs):
        app.include_router(module.router, prefix="/api")
    app.get("/api/openapi.json", include_in_schema=False)(lambda: JSONResponse(app.openapi()))
    for path in ("/docs", "/api/docs"):
        app.get(path, include_in_schema=False, response_class=HTMLResponse)(lambda: documentation(app.openapi()))
    _add_handlers(app, desk)
    app.mount("/", StaticFiles(directory=PAGE, html=True), name="page")
    guarded(app, desk, token, hosts)
    return app


def guarded(application: FastAPI, desk: Desk, token: str | None, hosts: frozenset[str]) -> None:
    """Put the guard around an application, which knows it for its metrics."""

    def held(app: Any) -> Guard:
        application.state.guard = Guard(app, desk.limits, token, hosts)
        return application.state.guard

    application.add_middleware(held)


def _add_handlers(app: FastAPI, desk: Desk) -> None:
    folder = re.compile(re.escape(str(desk.project.folder)) + r"[/\\]?")

    def told(status: int, error: str, where: str | None = None, **headers: str) -> JSONResponse:
        return JSONResponse({"error": folder.sub("", error), "where": where}, status, headers)

    @app.exception_handler(FadaError)
    async def sentence(request: Request, error: FadaError) -> JSONResponse:
        if isinstance(error, OutdatedError):
            return JSONResponse({"error": str(error), "line": error.line}, 409)
        if isinstance(error, OutdatedKnowledgeError):
            found = await run_in_threadpool(knowledge.as_known, desk, error.document)
            return JSONResponse({"error": str(error), "knowledge": found.model_dump()}, 409)
        status = 404 if isinstance(error, MissingError) else error.status if isinstance(error, RefusedError) else 400
        return told(status, str(error))

    @app.exception_handler(Full)
    async def full(request: Request, error: Full) -> JSONResponse:
        return told(429, "so many jobs are waiting that no further one is taken. Try again.", **{"retry-after": "5"})

    @app.exception_handler(RequestValidationError)
    async def invalid(request: Request, error: RequestValidationError) -> JSONResponse:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"])
        return told(422, f"{first['msg']} ({where}).", where)

    @app.exception_handler(HTTPException)
    async def refused(request: Request, error: HTTPException) -> JSONResponse:
        return told(error.status_code, _STATUSES.get(error.status_code, str(error.detail)), **(error.headers or {}))

    @app.exception_handler(sqlite3.OperationalError)
    @app.exception_handler(OSError)
    async def disk(request: Request, error: sqlite3.OperationalError | OSError) -> JSONResponse:
        log.exception("the disk of the desk failed")
        if isinstance(error, OSError) and not is_full(error):
            return await fault(request, error)
        return told(503, "the disk of the server is full or does not answer.", **{"retry-after": "5"})

    @app.exception_handler(Exception)
    async def fault(request: Request, error: Exception) -> JSONResponse:
        return told(500, "an internal error, which the server's log tells.")
