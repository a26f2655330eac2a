"""What the modules of the interface share: the desk, who asks, how answers are documented."""

from typing import Annotated, Any

from fastapi import Depends, Header, Path, Request

from fada.serve.desk import Desk
from fada.serve.schema import Conflict, Told


def _desk(request: Request) -> Desk:
    found: Desk = request.app.state.desk
    return found


def _client(x_desk_client: Annotated[str, Header(max_length=80, description="Who asks, for the history.")] = "") -> str:
    return "".join(c for c in x_desk_client if c.isprintable()) or "somebody"


OfDesk = Annotated[Desk, Depends(_desk)]
Client = Annotated[str, Depends(_client)]
Number = Annotated[int, Path(ge=1, le=2**53)]

ERRORS: dict[int | str, dict[str, Any]] = {
    400: {"model": Told, "description": "Something about the request does not fit."},
    401: {"model": Told, "description": "The token is missing or wrong."},
    403: {"model": Told, "description": "The request comes from another site."},
    404: {"model": Told, "description": "There is nothing with this number."},
    413: {"model": Told, "description": "Too much at once."},
    415: {"model": Told, "description": "Not a kind of file that is read."},
    421: {"model": Told, "description": "The server has another name."},
    422: {"model": Told, "description": "The request cannot be understood."},
    429: {"model": Told, "description": "Too many jobs are waiting; the header Retry-After says when to try again."},
    503: {"model": Told, "description": "Too many requests at once; the header Retry-After says when to try again."},
}
CONFLICT: dict[int | str, dict[str, Any]] = {
    409: {"model": Conflict, "description": "The line was changed meanwhile; it comes with the answer."}
}
