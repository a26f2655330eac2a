"""What was acknowledged is there: the server killed twenty times while lines are typed and confirmed."""

import http.client
import json
import os
import signal
import subprocess
import threading
from pathlib import Path
from typing import Any

import pytest

from fada.serve.desk import Desk
from fada.serve.project import Limits, Project
from fada.serve.store import Store, insert
from tests.support.desks import SERVER, put_document

KILLS = 20


class Server:
    """A real process."""

    def __init__(self, folder: Path) -> None:
        command = [*SERVER, str(folder), "--port", "0", "--no-browser"]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        assert self.process.stdout is not None
        address = self.process.stdout.readline().strip()
        self.place = address.removeprefix("http://").rstrip("/")

    def ask(self, connection: http.client.HTTPConnection, method: str, path: str, body: Any = None) -> Any:
        connection.request(
            method, path, json.dumps(body) if body is not None else None, {"content-type": "application/json"}
        )
        answer = connection.getresponse()
        data = json.loads(answer.read())
        assert answer.status == 200, data
        return data

    def connect(self) -> http.client.HTTPConnection:
        return http.client.HTTPConnection(self.place, timeout=60)

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()
        assert self.process.stdout is not None
        self.process.stdout.close()


def type_until_killed(
    server: Server, lines: list[dict[str, Any]], told: dict[int, Any], enough: threading.Event
) -> None:
    """Type and confirm, remembering what was acknowledged; `enough` is set after some answers."""
    connection = server.connect()
    number = 0
    try:
        while True:
            line = lines[number % len(lines)]
            change = {"text": f"text {number} of {os.getpid()}"} if number % 3 else {"state": "confirmed"}
            found = server.ask(connection, "PATCH", f"/api/lines/{line['id']}", {"version": line["version"], **change})
            lines[number % len(lines)] = found
            told[found["id"]] = (found["version"], found["text"], found["state"])
            number += 1
            if number == 5:
                enough.set()
    except (OSError, http.client.HTTPException):
        pass  # killed
    finally:
        enough.set()
        connection.close()


@pytest.mark.timeout(900)
def test_nothing_acknowledged_is_lost_when_the_server_is_killed(tmp_path: Path) -> None:
    folder = tmp_path / "desk"
    desk = Desk(Project(folder), Limits(), model="medieval")
    put_document(desk, emitted=False)
    desk.close()
    told: dict[int, Any] = {}
    for _ in range(KILLS):
        server = Server(folder)
        try:
            connection = server.connect()
            lines = server.ask(connection, "GET", "/api/pages/1")["lines"]
            connection.close()
            for line in lines:
                expected = told.get(line["id"])
                if expected is not None:
                    # At most the one change that was under way when the server was killed is there beyond.
                    assert line["version"] in (expected[0], expected[0] + 1)
                    if line["version"] == expected[0]:
                        assert (line["text"], line["state"]) == expected[1:]
            enough = threading.Event()
            typist = threading.Thread(target=type_until_killed, args=(server, lines, told, enough))
            typist.start()
            assert enough.wait(60)
        finally:
            server.kill()
        typist.join(60)
    assert len(told) == 3
    store = Store(folder / "desk.sqlite")
    try:
        assert store.rows("PRAGMA integrity_check")[0]["integrity_check"] == "ok"
        for number, (version, text, state) in told.items():
            step = store.row("SELECT * FROM history WHERE line = ? AND version = ?", number, version)
            assert step is not None
            assert (step["text"], step["state"]) == (text, state)
            versions = store.rows("SELECT version FROM history WHERE line = ? ORDER BY version", number)
            assert [row["version"] for row in versions] == list(range(1, len(versions) + 1))
    finally:
        store.close()


@pytest.mark.timeout(600)
def test_a_server_that_is_asked_to_stop_ends_in_order_with_open_streams(tmp_path: Path) -> None:
    server = Server(tmp_path / "desk")
    stream = server.connect()
    stream.request("GET", "/api/events")
    events = stream.getresponse()
    assert events.readline().startswith(b"retry")
    server.process.terminate()
    assert events.read().strip() == b""
    assert server.process.wait(60) in (0, -signal.SIGTERM)
    stream.close()
    server.kill()
    Project(tmp_path / "desk").close()


def test_changes_of_many_threads_are_all_there_and_one_that_fails_undoes_only_itself(tmp_path: Path) -> None:
    store = Store(tmp_path / "desk.sqlite")

    def add(name: str) -> None:
        values = {"name": name, "model": "m", "direction": "ltr", "created": ""}
        store.write(lambda c: insert(c, "documents", values))

        def fails(connection: Any) -> None:
            insert(connection, "documents", {**values, "name": "never"})
            raise ValueError("undone")

        with pytest.raises(ValueError, match="undone"):
            store.write(fails)

    def add_many(i: int) -> None:
        for j in range(20):
            add(f"{i}-{j}")

    threads = [threading.Thread(target=add_many, args=(i,)) for i in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    names = {row["name"] for row in store.rows("SELECT name FROM documents")}
    store.close()
    assert names == {f"{i}-{j}" for i in range(8) for j in range(20)}
