"""Documents: upload, list, delete; pages and their pictures; signs; export."""

import hashlib
import io
from collections.abc import Callable
from typing import Annotated, Any

from fastapi import APIRouter, File, Form, Query, Request, Response, UploadFile
from fastapi.responses import FileResponse, JSONResponse

from fada.data.images import load_upright
from fada.data.segment.drawing import draw_lines
from fada.errors import FadaError
from fada.serve import export, lines, models, outlines, signs
from fada.serve.api.common import ERRORS, Client, Number, OfDesk
from fada.serve.desk import Desk
from fada.serve.jobs import shown
from fada.serve.project import picture_name, take_in
from fada.serve.schema import (
    Direction,
    Document,
    DocumentChange,
    Job,
    Line,
    NewLine,
    OrderAsked,
    PageHead,
    Sign,
    Uploaded,
    WholeDocument,
    WholePage,
)

router = APIRouter(tags=["documents"], responses=ERRORS)

_COUNTS = """
SELECT documents.*, count(DISTINCT pages.id) AS pages, count(lines.id) AS lines,
    coalesce(sum(lines.state = 'confirmed'), 0) AS confirmed
FROM documents LEFT JOIN pages ON pages.document = documents.id LEFT JOIN lines ON lines.page = pages.id
"""
_PAGES = """
SELECT pages.*, count(lines.id) AS lines, coalesce(sum(lines.state = 'confirmed'), 0) AS confirmed
FROM pages LEFT JOIN lines ON lines.page = pages.id WHERE pages.document = ? GROUP BY pages.id ORDER BY pages.number
"""


def _document(desk: Desk, number: int) -> dict[str, Any]:
    desk.document(number)
    return desk.store.rows(f"{_COUNTS} WHERE documents.id = ? GROUP BY documents.id", number)[0]


@router.get("/documents")
def list_documents(desk: OfDesk) -> list[Document]:
    """All documents, the newest first."""
    return [Document(**row) for row in desk.store.rows(f"{_COUNTS} GROUP BY documents.id ORDER BY documents.id DESC")]


@router.post("/documents", status_code=201)
def new_document(
    desk: OfDesk,
    files: Annotated[list[UploadFile], File(description="Images, PDF, ALTO or PAGE XML, sound, ZIP files of them.")],
    name: Annotated[str, Form(max_length=200)] = "",
    direction: Annotated[Direction, Form()] = "ltr",
    model: Annotated[str, Form(max_length=200)] = "",
) -> Uploaded:
    """Upload files as a new document; a job reads it."""
    chosen = models.check(desk, model or desk.setting("model", desk.default_model))
    title = name.strip() or (files[0].filename or "document").rsplit("/")[-1][:200]

    def take(folder: Any) -> None:
        take_in(((file.filename or "file", file.file) for file in files), folder, desk.limits)

    number, job = desk.new_document(title, direction, chosen, take)
    return Uploaded(document=Document(**_document(desk, number)), job=Job(**shown(job)))


@router.get("/documents/{document}")
def get_document(desk: OfDesk, document: Number) -> WholeDocument:
    """A document with its pages."""
    pages = [PageHead(**row) for row in desk.store.rows(_PAGES, document)]
    return WholeDocument(**{**_document(desk, document), "pages": pages})


@router.patch("/documents/{document}")
def change_document(desk: OfDesk, document: Number, given: DocumentChange) -> Document:
    """Another name, direction or model. With another model a job reads the document again; what was typed stays."""
    values = given.model_dump(exclude_none=True)
    if "model" in values:
        models.check(desk, values["model"])
    desk.alter(document, values)
    return Document(**_document(desk, document))


@router.delete("/documents/{document}", status_code=204)
def delete_document(desk: OfDesk, document: Number) -> None:
    """Delete a document, its lines and its files."""
    desk.delete(document)


@router.get("/documents/{document}/signs")
def get_signs(desk: OfDesk, document: Number) -> list[Sign]:
    """The characters that the document's model can write, the most used first, with short codes to type them by."""
    return [Sign(**sign) for sign in signs.of_document(desk, document)]


@router.get("/documents/{document}/export", response_class=FileResponse)
def export_document(
    desk: OfDesk,
    document: Number,
    format: Annotated[export.Format, Query(description="What is written.")] = "alto",
    only: Annotated[export.Only, Query(description="Confirmed lines, or all of them.")] = "confirmed",
) -> Response:
    """The lines of a document as a file, or as a ZIP file of several."""
    name, kind, data = export.exported(desk, document, format, only)
    quoted = {"content-disposition": f"attachment; filename*=UTF-8''{name}"}
    return Response(data, media_type=kind, headers=quoted)


@router.get("/pages/{page}", response_model=WholePage)
def get_page(desk: OfDesk, page: Number) -> JSONResponse:
    """A page with its lines in reading order."""
    row = desk.page(page)
    document = desk.document(row["document"])
    desk.warm_up()
    shown_lines = [lines.shown(desk, line, order, document) for order, line in enumerate(desk.lines_of(page))]
    names = ("id", "document", "name", "number", "width", "height", "state", "message")
    image = f"/api/pages/{page}/image?v={picture_name(desk.page_file(row))}"
    # As it is: checking each of some thousand characters against the schema would take longer than all else.
    return JSONResponse({**{name: row[name] for name in names}, "image": image, "lines": shown_lines})


@router.get("/pages/{page}/image", response_class=FileResponse, responses={200: {"content": {"image/jpeg": {}}}})
def page_image(
    desk: OfDesk, page: Number, request: Request, width: Annotated[int | None, Query(ge=1, le=65535)] = None
) -> Response:
    """The picture of a page, at least `width` pixels wide if it is, else as large as it is."""
    row = desk.page(page)
    file = desk.page_file(row)

    def make() -> Response:
        made = desk.project.page_picture(row["document"], page, file, bool(row["upright"]), width)
        return FileResponse(made, media_type="image/jpeg")

    return picture(request, [str(file), row["upright"], width], make)


@router.get("/pages/{page}/drawing", response_class=Response, responses={200: {"content": {"image/png": {}}}})
def page_drawing(desk: OfDesk, page: Number, request: Request) -> Response:
    """The picture of a page with its lines, numbered in reading order: as `fada segment --draw` draws it."""
    row = desk.page(page)
    crops = [desk.crop(line, row) for line in desk.lines_of(page)]

    def make() -> Response:
        stream = io.BytesIO()
        image = load_upright(desk.page_file(row), upright=bool(row["upright"]))[0]
        draw_lines(image, crops).save(stream, format="PNG")
        return Response(stream.getvalue(), media_type="image/png")

    return picture(request, [crops], make)


@router.post("/pages/{page}/lines", status_code=201)
def draw_line(desk: OfDesk, page: Number, given: NewLine, by: Client) -> Line:
    """A new line around an outline that was drawn; it is read."""
    number = outlines.draw(desk, page, given.outline, given.baseline, by)
    return Line(**lines.shown_line(desk, number))


@router.put("/pages/{page}/order", response_model=WholePage)
def set_order(desk: OfDesk, page: Number, given: OrderAsked) -> JSONResponse:
    """Another reading order: all lines of the page."""
    outlines.reorder(desk, page, given.lines)
    return get_page(desk, page)


def picture(request: Request, what: list[Any], make: Callable[[], Response]) -> Response:
    """A picture with a mark of what it is made of: a browser that has it already is told so.

    It asks every time: another project may be served at the same address.
    """
    mark = f'"{hashlib.blake2b(repr(what).encode(), digest_size=12).hexdigest()}"'
    headers = {"etag": mark, "cache-control": "private, no-cache"}
    if request.headers.get("if-none-match") == mark:
        return Response(status_code=304, headers=headers)
    answer = make()
    answer.headers.update(headers)
    return answer


def line_picture(desk: Desk, request: Request, number: int) -> Response:
    """The crop of a line as JPEG."""
    line = desk.line(number)
    page = desk.page(line["page"])

    def make() -> Response:
        stream = io.BytesIO()
        try:
            desk.crop(line, page).load(colours=True).save(stream, format="JPEG", quality=88)
        except (OSError, ValueError) as error:
            raise FadaError(f"the line cannot be cut out of its page ({type(error).__name__}).") from None
        return Response(stream.getvalue(), media_type="image/jpeg")

    return picture(request, [str(desk.page_file(page)), page["upright"], line["outline"]], make)
