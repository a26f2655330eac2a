"""Who may speak to the desk, and how much: host, origin, token, sizes, numbers, and the headers of every answer."""

import contextlib
import hmac
import ipaddress
import json
import time
from collections import Counter
from dataclasses import dataclass, field
from http.cookies import CookieError, SimpleCookie
from typing import Any
from urllib.parse import parse_qs, urlsplit

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from fada.serve.project import Limits

CONTENT_POLICY = (
    "default-src 'self'; img-src 'self' data: blob:; media-src 'self' blob:; object-src 'none'; base-uri 'none'; "
    "form-action 'self'; frame-ancestors 'none'"
)
HEADERS = {
    "content-security-policy": CONTENT_POLICY,
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "permissions-policy": "camera=(), microphone=(), geolocation=()",
}
JSON_BODY = 64 * 2**20
"""Bytes of a request that is no upload of files."""
BUCKETS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0)
"""Seconds."""
_COOKIE = "fada_desk"
"""Holds the token."""
_ENTER = b'<!doctype html><meta charset="utf-8"><meta http-equiv="refresh" content="0;url=/"><title>fada</title>'


def _address(host: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    with contextlib.suppress(ValueError):
        return ipaddress.ip_address(host.strip("[]"))
    return None


def is_loopback(host: str) -> bool:
    """Whether an address can be reached from this machine only."""
    found = _address(host)
    return host == "localhost" if found is None else found.is_loopback


@dataclass
class Measured:
    """What was asked and how long it took."""

    statuses: Counter[tuple[str, int]] = field(default_factory=Counter)
    buckets: Counter[float] = field(default_factory=Counter)
    seconds: float = 0.0
    count: int = 0
    running: int = 0
    refused: int = 0

    def add(self, method: str, status: int, seconds: float) -> None:
        self.statuses[method, status] += 1
        self.count += 1
        self.seconds += seconds
        for limit in BUCKETS:
            if seconds <= limit:
                self.buckets[limit] += 1

    def text(self) -> str:
        """As Prometheus reads it."""
        rows = ["# TYPE fada_requests_total counter"]
        rows += [f'fada_requests_total{{method="{m}",status="{s}"}} {n}' for (m, s), n in sorted(self.statuses.items())]
        rows.append("# TYPE fada_request_seconds histogram")
        rows += [f'fada_request_seconds_bucket{{le="{limit:g}"}} {self.buckets[limit]}' for limit in BUCKETS]
        rows.append(f'fada_request_seconds_bucket{{le="+Inf"}} {self.count}')
        rows.append(f"fada_request_seconds_sum {self.seconds:.6f}")
        rows.append(f"fada_request_seconds_count {self.count}")
        rows += ["# TYPE fada_requests_running gauge", f"fada_requests_running {self.running}"]
        rows += ["# TYPE fada_requests_refused_total counter", f"fada_requests_refused_total {self.refused}"]
        return "\n".join(rows) + "\n"


class _TooLargeError(Exception):
    pass


class Guard:
    """The outermost layer of the server.

    Args:
        app: what is guarded.
        limits: how much is taken.
        token: what a client must know; None where only this machine reaches the server.
        hosts: names under which the server may be addressed, besides addresses in numbers.
    """

    def __init__(self, app: ASGIApp, limits: Limits, token: str | None, hosts: frozenset[str]) -> None:
        self.app, self.limits, self.token = app, limits, token
        self.hosts = hosts | {"localhost"}
        self.measured = Measured()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            if scope["type"] == "websocket":
                await send({"type": "websocket.close", "code": 1008})
                return
            await self.app(scope, receive, send)
            return
        headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]}
        started, told = time.perf_counter(), {"status": 500}

        async def sending(message: Message) -> None:
            if message["type"] == "http.response.start":
                told["status"] = message["status"]
                given = {name for name, _ in message["headers"]}
                message["headers"] = [
                    *message["headers"],
                    *((n.encode(), v.encode()) for n, v in HEADERS.items() if n.encode() not in given),
                ]
                if scope["path"].startswith("/api") and b"cache-control" not in given:
                    message["headers"].append((b"cache-control", b"no-store"))
            await send(message)

        streams = scope["path"].endswith("/events")
        refusal = self._refusal(scope, headers)
        if refusal is None and not streams and self.measured.running >= self.limits.requests:
            self.measured.refused += 1
            busy = "the desk has more requests than it can work at. Try again in a second."
            refusal = 503, busy, [("retry-after", "1")]
        if refusal is not None:
            await _answer(sending, *refusal)
        elif self._enters(scope):
            cookie = f"{_COOKIE}={self.token}; HttpOnly; SameSite=Strict; Path=/"
            given = [(b"content-type", b"text/html"), (b"set-cookie", cookie.encode()), (b"cache-control", b"no-store")]
            await sending({"type": "http.response.start", "status": 200, "headers": given})
            await sending({"type": "http.response.body", "body": _ENTER})
        else:
            self.measured.running += not streams
            try:
                await self._pass(scope, receive, sending, headers)
            finally:
                self.measured.running -= not streams
        if not streams:
            self.measured.add(scope["method"], told["status"], time.perf_counter() - started)

    async def _pass(self, scope: Scope, receive: Receive, send: Send, headers: dict[str, str]) -> None:
        most = self._most(headers)
        taken = 0

        async def receiving() -> Message:
            nonlocal taken
            message = await receive()
            taken += len(message.get("body", b""))
            if taken > most:
                raise _TooLargeError
            return message

        async def sending(message: Message) -> None:
            if taken <= most:  # otherwise what is said here is of a request that was cut off
                await send(message)

        with contextlib.suppress(_TooLargeError):
            await self.app(scope, receiving, sending)
        if taken > most:
            await _answer(send, 413, f"more than {most:,} bytes. Send less at once.", [("connection", "close")])

    def _most(self, headers: dict[str, str]) -> int:
        is_upload = headers.get("content-type", "").startswith("multipart/form-data")
        return self.limits.body if is_upload else min(JSON_BODY, self.limits.body)

    def _refusal(self, scope: Scope, headers: dict[str, str]) -> tuple[int, str, list[tuple[str, str]]] | None:
        """Status, sentence and headers if a request is not passed on."""
        host = headers.get("host", "")
        name = urlsplit(f"//{host}").hostname if host else None
        if name is None or not (name in self.hosts or _address(name)):
            return 421, f"this server is not called {name or 'nothing'!r}. Use the address that it printed.", []
        if (fault := self._from_elsewhere(scope, headers, host)) is not None:
            return 403, fault, []
        if self.token is not None and not self._knows_token(scope, headers):
            return 401, "this desk asks for a token. Open the address that `fada serve` printed, with its token.", []
        length = headers.get("content-length", "0")
        if not length.isdecimal() or int(length) > self._most(headers):
            return 413, f"more than {self._most(headers):,} bytes. Send less at once.", [("connection", "close")]
        return None

    def _from_elsewhere(self, scope: Scope, headers: dict[str, str], host: str) -> str | None:
        """Refuse what another site makes a browser send; opening the page by a link is no harm."""
        site, path = headers.get("sec-fetch-site"), scope["path"]
        opens_page = scope["method"] == "GET" and headers.get("sec-fetch-mode") == "navigate"
        if site in ("cross-site", "same-site") and not (opens_page and not path.startswith("/api")):
            return "a request of another site, which is refused."
        origin = headers.get("origin")
        if origin is not None and urlsplit(origin).netloc != host and not (origin == "null" and opens_page):
            return "a request of another origin, which is refused."
        return None

    def _knows_token(self, scope: Scope, headers: dict[str, str]) -> bool:
        given = headers.get("authorization", "").removeprefix("Bearer ").strip()
        if not given:
            try:
                found = SimpleCookie(headers.get("cookie", "")).get(_COOKIE)
            except CookieError:
                found = None
            given = found.value if found else self._asked_token(scope)
        return hmac.compare_digest(given.encode(), (self.token or "").encode())

    @staticmethod
    def _asked_token(scope: Scope) -> str:
        asked = parse_qs(scope["query_string"].decode("latin-1")).get("token", [""])
        return asked[0] if scope["path"] == "/" and scope["method"] == "GET" else ""

    def _enters(self, scope: Scope) -> bool:
        """Whether the page is opened with the token in its address, which moves into a cookie."""
        asked = self._asked_token(scope)
        return self.token is not None and hmac.compare_digest(asked.encode(), self.token.encode())


async def _answer(send: Send, status: int, error: str, headers: list[tuple[str, str]]) -> None:
    body = json.dumps({"error": error, "where": None}).encode()
    own: list[Any] = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
    own += [(name.encode(), value.encode()) for name, value in headers]
    await send({"type": "http.response.start", "status": status, "headers": own})
    await send({"type": "http.response.body", "body": body})
