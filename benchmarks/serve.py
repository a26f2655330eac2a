"""A desk under load, on loopback: latencies, throughput, memory after many requests, and ten times its capacity.

python -m benchmarks.serve --requests 10000
"""

import argparse
import asyncio
import json
import os
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import psutil
from PIL import Image

from fada.data.images import png
from fada.serve.project import Limits

COMMAND = [sys.executable, "-m", "fada", "serve"]
FRAMES, CLASSES, LINES = 250, 100, 40
LIMIT, WAITING = Limits.requests, Limits.waiting
"""Requests that the server works at, or holds, at once; jobs that may wait."""


@dataclass
class Answered:
    """What many requests were answered."""

    seconds: dict[str, list[float]] = field(default_factory=dict)
    statuses: Counter[int] = field(default_factory=Counter)
    without_retry: int = 0
    """Refusals that did not say when to come back."""
    whole: float = 0.0

    def add(self, kind: str, status: int, headers: dict[str, str], seconds: float) -> None:
        """One more."""
        self.seconds.setdefault(kind, []).append(seconds)
        self.statuses[status] += 1
        self.without_retry += status in (429, 503) and "retry-after" not in headers


def prepare(folder: Path) -> None:
    """A project with a page of lines whose emissions are as long as those of manuscripts."""
    from fada.serve import lines, work
    from fada.serve.desk import Desk
    from fada.serve.project import Project
    from fada.serve.store import insert, now
    from fada.serve.worker import _save

    desk = Desk(Project(folder), Limits(), model="medieval")
    symbols = ["", *map(chr, range(97, 97 + CLASSES - 1))]
    desk.keep_alphabet("medieval", {"kind": "ctc", "symbols": symbols, "blank": 0})
    write = desk.store.write
    values = {
        "name": "load",
        "model": "medieval",
        "direction": "ltr",
        "created": now(),
        "knowledge": '{"domain": null}',
    }
    document = write(lambda c: insert(c, "documents", values))
    page = {"document": document, "number": 1, "name": "p", "file": "none.png", "media": "image", "width": 1000}
    number = write(lambda c: insert(c, "pages", {**page, "height": 2000, "upright": 1, "state": "read"}))
    rng = np.random.default_rng(0)
    emissions: dict[int, str] = {}
    for place in range(LINES):
        outline = [[0, 40 * place], [1000, 40 * place], [1000, 40 * place + 40], [0, 40 * place + 40]]
        row = {"page": number, "place": place, "outline": outline, "baseline": []}
        line = write(lambda c, row=row: lines.add(c, row, "reader"))  # type: ignore[misc]
        name = work.emission_name(desk.line(line), desk.page(number), "medieval")
        blank = np.zeros((FRAMES, CLASSES))
        blank[:, 0] = 4.0
        logits = rng.gumbel(size=(FRAMES, CLASSES)) * 1.5 + blank
        _save(desk.project.emission_file(document, name), logits - np.logaddexp.reduce(logits, axis=1, keepdims=True))
        emissions[line] = name
    work.store_readings(desk, desk.document(document), emissions, {})
    desk.close()


Answer = tuple[int, dict[str, str], bytes]


async def ask(
    reader: Any, writer: Any, method: str, path: str, body: Any = None, kind: str = "application/json"
) -> Answer:
    """One request on an open connection: status, headers, body."""
    data = body if isinstance(body, bytes) else json.dumps(body).encode() if body is not None else b""
    head = f"{method} {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: {kind}\r\n"
    writer.write(f"{head}Content-Length: {len(data)}\r\n\r\n".encode() + data)
    await writer.drain()
    status = int((await reader.readline()).split()[1])
    headers: dict[str, str] = {}
    while (line := await reader.readline()) not in (b"\r\n", b""):
        name, _, value = line.decode("latin-1").partition(":")
        headers[name.lower()] = value.strip()
    return status, headers, await reader.readexactly(int(headers.get("content-length", 0)))


async def user(port: int, number: int, requests: int, answered: Answered) -> None:
    """One who opens the page, types into a line, asks for its rest, and confirms it."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    version: int | None = None
    line = number % LINES + 1
    for i in range(requests):
        kind = ("complete", "type", "complete", "line")[i % 4] if i else "page"
        kind = "line" if kind == "type" and version is None else kind
        what: dict[str, tuple[str, str, Any]] = {
            "complete": ("POST", f"/api/lines/{line}/complete", {"prefix": "abc"[: i % 4]}),
            "type": ("PATCH", f"/api/lines/{line}", {"version": version, "text": f"abc {i}"}),
            "page": ("GET", "/api/pages/1", None),
            "line": ("GET", f"/api/lines/{line}", None),
        }
        started = time.perf_counter()
        status, headers, data = await ask(reader, writer, *what[kind])
        answered.add(kind, status, headers, time.perf_counter() - started)
        if kind in ("line", "type") and status in (200, 409):
            found = json.loads(data)
            version = found.get("version") or found["line"]["version"]
    writer.close()


async def load(port: int, users: int, requests: int) -> Answered:
    """So many users at once, so many requests each."""
    answered = Answered()
    started = time.perf_counter()
    await asyncio.gather(*(user(port, i, requests, answered) for i in range(users)))
    answered.whole = time.perf_counter() - started
    return answered


async def upload(port: int, count: int) -> Answered:
    """So many documents, one after the other, of a line each; then their jobs are cancelled."""
    head = '--b\r\nContent-Disposition: form-data; name="files"; filename="a.png"\r\n\r\n'
    form = head.encode() + png(Image.new("L", (200, 40), 255)) + b"\r\n--b--\r\n"
    answered = Answered()
    started = time.perf_counter()
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    for _ in range(count):
        at = time.perf_counter()
        post = ("POST", "/api/transcribe", form, "multipart/form-data; boundary=b")
        status, headers, _ = await ask(reader, writer, *post)
        answered.add("upload", status, headers, time.perf_counter() - at)
    answered.whole = time.perf_counter() - started
    for job in json.loads((await ask(reader, writer, "GET", "/api/jobs"))[2]):
        await ask(reader, writer, "DELETE", f"/api/jobs/{job['id']}")
    writer.close()
    return answered


def show(name: str, found: Answered, memory: float) -> None:
    """A block of the table."""
    count = sum(map(len, found.seconds.values()))
    told = ", ".join(f"{status}: {n}" for status, n in sorted(found.statuses.items()))
    print(
        f"{name}: {count} requests in {found.whole:.1f} s, {count / found.whole:.0f} a second; {told}; {memory:.0f} MB"
    )
    for kind, values in sorted(found.seconds.items()):
        half, most, worst = np.percentile(np.array(values) * 1000, [50, 95, 99])
        print(f"  {kind:<9} {len(values):>6}  median {half:7.1f} ms   95 % {most:7.1f} ms   99 % {worst:7.1f} ms")
    if refused := found.statuses[429] + found.statuses[503]:
        print(f"  {refused} refused, {found.without_retry} of them without Retry-After")


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the load."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--requests", type=int, default=10_000)
    parser.add_argument("--users", type=int, default=8)
    given = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory() as folder:
        project = Path(folder) / "desk"
        prepare(project)
        command = [*COMMAND, str(project), "--port", "0", "--no-browser"]
        server = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env={**os.environ})
        try:
            assert server.stdout is not None
            port = int(server.stdout.readline().strip().rstrip("/").rsplit(":")[-1])
            process = psutil.Process(server.pid)

            def memory() -> float:
                return process.memory_info().rss / 1e6

            asyncio.run(load(port, given.users, given.requests // given.users // 10))  # what is compiled is loaded
            before, used = memory(), sum(process.cpu_times()[:2])
            found = asyncio.run(load(port, given.users, given.requests // given.users))
            show(f"{given.users} users", found, memory())
            used = sum(process.cpu_times()[:2]) - used
            print(f"  {1000 * used / given.requests:.1f} ms of the server's CPU a request")
            print(f"  memory: {before:.0f} MB before (after a tenth as many), {memory():.0f} MB after")
            many = 10 * LIMIT
            show(f"{many} users (ten times what is taken at once)", asyncio.run(load(port, many, 4)), memory())
            show(
                f"{10 * WAITING} documents (ten times what may wait)", asyncio.run(upload(port, 10 * WAITING)), memory()
            )
            print(f"  afterwards: health {asyncio.run(_alive(port))}")
        finally:
            server.terminate()
            server.wait()


async def _alive(port: int) -> int:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        return (await ask(reader, writer, "GET", "/api/health"))[0]
    finally:
        writer.close()


if __name__ == "__main__":
    main()
