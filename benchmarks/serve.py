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
from pathlib import Path
from typing import Any

import numpy as np
import psutil

COMMAND = [sys.executable, "-c", "from fada.cli import main; main()", "serve"]
FRAMES, CLASSES, LINES = 250, 100, 40
LIMIT = 64
"""Requests that the server works at, or holds, at once."""


def prepare(folder: Path) -> None:
    """A project with a page of lines whose emissions are as long as those of manuscripts."""
    from fada.serve.desk import Desk, _add
    from fada.serve.project import Limits, Project
    from fada.serve.store import insert, now
    from fada.serve.worker import _save

    desk = Desk(Project(folder), Limits(), model="medieval")
    symbols = ["", *map(chr, range(97, 97 + CLASSES - 1))]
    desk._keep_alphabet("medieval", {"kind": "ctc", "symbols": symbols, "blank": 0})
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
        line = write(lambda c, row=row: _add(c, row, "reader"))  # type: ignore[misc]
        name = desk.emission_name(desk.line(line), desk.page(number), "medieval")
        blank = np.zeros((FRAMES, CLASSES))
        blank[:, 0] = 4.0
        logits = rng.gumbel(size=(FRAMES, CLASSES)) * 1.5 + blank
        _save(desk.project.emission_file(document, name), logits - np.logaddexp.reduce(logits, axis=1, keepdims=True))
        emissions[line] = name
    desk._store_readings(desk.document(document), emissions, {})
    desk.close()


async def ask(reader: Any, writer: Any, method: str, path: str, body: Any = None) -> tuple[int, bytes]:
    """One request on an open connection."""
    data = json.dumps(body).encode() if body is not None else b""
    head = f"{method} {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
    writer.write(f"{head}Content-Length: {len(data)}\r\n\r\n".encode() + data)
    await writer.drain()
    status = int((await reader.readline()).split()[1])
    length = 0
    while (line := await reader.readline()) not in (b"\r\n", b""):
        name, _, value = line.partition(b":")
        if name.lower() == b"content-length":
            length = int(value)
    return status, await reader.readexactly(length)


async def user(port: int, number: int, requests: int, seconds: dict[str, list[float]], statuses: Counter[int]) -> None:
    """One who opens the page, types into a line, asks for its rest, and confirms it."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    version: int | None = None
    line = number % LINES + 1
    for i in range(requests):
        kind = ("complete", "type", "complete", "line")[i % 4] if i else "page"
        started = time.perf_counter()
        if kind == "complete":
            status, data = await ask(reader, writer, "POST", f"/api/lines/{line}/complete", {"prefix": "abc"[: i % 4]})
        elif kind == "type" and version is not None:
            change = {"version": version, "text": f"abc {i}"}
            status, data = await ask(reader, writer, "PATCH", f"/api/lines/{line}", change)
        elif kind == "page":
            status, data = await ask(reader, writer, "GET", "/api/pages/1")
        else:
            status, data = await ask(reader, writer, "GET", f"/api/lines/{line}")
        seconds.setdefault(kind, []).append(time.perf_counter() - started)
        statuses[status] += 1
        if kind in ("line", "type") and status in (200, 409):
            found = json.loads(data)
            version = found.get("version") or found["line"]["version"]
        if status == 503:
            await asyncio.sleep(0.05)
    writer.close()


async def load(port: int, users: int, requests: int) -> tuple[dict[str, list[float]], Counter[int], float]:
    """So many users at once, so many requests each."""
    seconds: dict[str, list[float]] = {}
    statuses: Counter[int] = Counter()
    started = time.perf_counter()
    await asyncio.gather(*(user(port, i, requests, seconds, statuses) for i in range(users)))
    return seconds, statuses, time.perf_counter() - started


def show(name: str, found: tuple[dict[str, list[float]], Counter[int], float], memory: float) -> None:
    """A block of the table."""
    seconds, statuses, whole = found
    count = sum(map(len, seconds.values()))
    told = ", ".join(f"{status}: {n}" for status, n in sorted(statuses.items()))
    print(f"{name}: {count} requests in {whole:.1f} s, {count / whole:.0f} a second; {told}; {memory:.0f} MB")
    for kind, values in sorted(seconds.items()):
        half, most, worst = np.percentile(np.array(values) * 1000, [50, 95, 99])
        print(f"  {kind:<9} {len(values):>6}  median {half:7.1f} ms   95 % {most:7.1f} ms   99 % {worst:7.1f} ms")


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
            asyncio.run(load(port, 2, 20))  # what is compiled is loaded
            before = process.memory_info().rss / 1e6
            found = asyncio.run(load(port, given.users, given.requests // given.users))
            after = process.memory_info().rss / 1e6
            show(f"{given.users} users", found, after)
            print(f"  memory: {before:.0f} MB before, {after:.0f} MB after")
            flood = asyncio.run(load(port, 10 * LIMIT, 4))
            show(f"{10 * LIMIT} users (ten times what is taken at once)", flood, process.memory_info().rss / 1e6)
            (status, _) = asyncio.run(_alive(port))
            print(f"  afterwards: health {status}")
        finally:
            server.terminate()
            server.wait()


async def _alive(port: int) -> tuple[int, bytes]:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        return await ask(reader, writer, "GET", "/api/health")
    finally:
        writer.close()


if __name__ == "__main__":
    main()
