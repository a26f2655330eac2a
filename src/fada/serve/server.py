"""Starting and stopping the server: address, token, folder, signals."""

import logging
import secrets
import socket
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from fada.errors import FadaError
from fada.serve.desk import Desk
from fada.serve.guard import is_loopback
from fada.serve.project import Limits, Project

SHORTEST_TOKEN = 16
FIRST_PORT, PORTS = 8765, 20
"""Where a free port is looked for if none is asked for."""


def listening(host: str, port: int | None) -> socket.socket:
    """A socket that listens: at the port asked for, else at the first free one."""
    last: OSError | None = None
    for tried in (port,) if port is not None else range(FIRST_PORT, FIRST_PORT + PORTS):
        try:
            family = socket.getaddrinfo(host, tried, type=socket.SOCK_STREAM)[0][0]
            opened = socket.socket(family, socket.SOCK_STREAM)
            if sys.platform != "win32":
                opened.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            opened.bind((host, tried))
            opened.listen(256)
            return opened
        except socket.gaierror:
            raise FadaError(f"{host}: not an address of this machine. Use 127.0.0.1, or 0.0.0.0 for all.") from None
        except (OSError, OverflowError) as error:
            last = error if isinstance(error, OSError) else OSError(str(error))
    reason = last.strerror if last is not None and last.strerror else str(last)
    raise FadaError(f"{host}:{port or FIRST_PORT}: cannot listen here ({reason}). Choose another --port.")


def serve(
    folder: Path, *, host: str, port: int | None, model: str, token: str | None, workers: int, say: Callable[[str], Any]
) -> None:
    """Serve a project folder until a signal ends it.

    Args:
        token: for clients on other machines; one is made if it is needed and not given.
        say: tells the address, when the server is about to listen.
    """
    import uvicorn

    from fada.serve.app import create_app

    if token is not None and len(token) < SHORTEST_TOKEN:
        raise FadaError(f"a token of {len(token)} characters, expected at least {SHORTEST_TOKEN}. Leave it out.")
    if token is not None and not all(c.isascii() and (c.isalnum() or c in "-_.~") for c in token):
        raise FadaError("a token may have letters, digits and - _ . ~ only.")
    if not is_loopback(host) and token is None:
        token = secrets.token_urlsafe(24)
    project = Project(folder)
    tempfile.tempdir = str(project.temporary)  # of uploads: nothing is written outside of the folder
    opened = listening(host, port)
    desk = Desk(project, Limits(), model=model, workers=workers)
    names = frozenset({socket.gethostname().lower(), host.lower()}) if not is_loopback(host) else frozenset({host})
    app = create_app(desk, token=token, hosts=names)
    shown = f"[{host}]" if ":" in host else host
    if host in ("0.0.0.0", "::"):
        shown = socket.gethostname()
    address = f"http://{shown}:{opened.getsockname()[1]}/" + (f"?token={token}" if token else "")
    say(address)
    logging.getLogger("uvicorn.error").setLevel(logging.WARNING)
    config = uvicorn.Config(
        app,
        log_level="warning",
        access_log=False,
        server_header=False,
        timeout_keep_alive=30,
        timeout_graceful_shutdown=5,
        limit_concurrency=None,
        lifespan="on",
    )

    class Server(uvicorn.Server):
        def handle_exit(self, sig: int, frame: Any) -> None:
            desk.events.close()  # open streams would hold the server up
            super().handle_exit(sig, frame)

    Server(config).run(sockets=[opened])
