"""Work that takes its time: a queue with a limit, threads that work it off, processes that hold the networks."""

import contextlib
import heapq
import itertools
import json
import logging
import os
import queue
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from fada.common.files import is_full
from fada.errors import FadaError
from fada.serve.events import Events
from fada.serve.store import Row, Store, insert, now, update

log = logging.getLogger(__name__)

QUICK, USUAL = 0, 1
"""Priorities: what somebody waits for at the desk, and the rest."""


_AGAIN = 2.0
"""Seconds after which a full disk is tried again."""


class Full(Exception):  # noqa: N818 - nobody's mistake
    """So many jobs are waiting that no further one is taken."""


class Cancelled(Exception):  # noqa: N818 - it was asked for
    """The job was cancelled."""


class WorkerLostError(FadaError):
    """The process that held the network ended, or did not answer any more."""


class Worker:
    """A process with a network, started when it is first needed, and again after it was lost."""

    def __init__(self, folder: Path, stuck: float) -> None:
        self._folder, self._stuck = folder, stuck
        self._process: subprocess.Popen[str] | None = None
        self._answers: queue.Queue[list[Any] | None] = queue.Queue()
        self._numbers = itertools.count(1)
        self._lock = threading.Lock()

    @property
    def pid(self) -> int | None:
        process = self._process
        return process.pid if process is not None and process.poll() is None else None

    def _start(self) -> "subprocess.Popen[str]":
        if self._process is not None and self._process.poll() is None:
            return self._process
        environment = {**os.environ, "TMPDIR": str(self._folder), "TOKENIZERS_PARALLELISM": "false"}
        with self._lock:
            process = subprocess.Popen(
                [sys.executable, "-m", "fada.serve.worker"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
                encoding="utf-8",
                env=environment,
            )
            self._process = process
        answers: queue.Queue[list[Any] | None] = queue.Queue()
        self._answers = answers

        def listen() -> None:
            assert process.stdout is not None
            with contextlib.suppress(ValueError):
                for line in process.stdout:
                    answers.put(json.loads(line))
            answers.put(None)

        threading.Thread(target=listen, name="fada-worker-answers", daemon=True).start()
        return process

    def run(self, task: str, asked: dict[str, Any], stopped: Callable[[], bool] = lambda: False) -> Iterator[Any]:
        """Give the process a task, and pass on what it answers.

        Raises:
            Cancelled: `stopped` said so; the process was ended.
            WorkerLostError: the process ended by itself or said nothing for too long.
            FadaError: what the task raised.
        """
        process = self._start()
        number = next(self._numbers)
        assert process.stdin is not None
        try:
            process.stdin.write(json.dumps([number, task, asked]) + "\n")
            process.stdin.flush()
        except OSError:
            self.kill()
            raise WorkerLostError("the process that reads ended unexpectedly. Try again.") from None
        heard = time.monotonic()
        while True:
            try:
                answer = self._answers.get(timeout=0.1)
            except queue.Empty:
                if stopped():
                    self.kill()
                    raise Cancelled from None
                if time.monotonic() - heard > self._stuck:
                    self.kill()
                    raise WorkerLostError(f"the process that reads said nothing for {self._stuck:g} seconds.") from None
                continue
            heard = time.monotonic()
            if answer is None:
                self.kill()
                raise WorkerLostError("the process that reads ended unexpectedly: killed, or out of memory.")
            told, kind, value = answer
            if told != number:
                continue  # of a task that nobody waits for any more
            if kind == "part":
                yield value
            elif kind == "end":
                return
            elif kind == "problem":
                raise FadaError(value)
            else:
                log.error("a task of the desk failed: %s", value)
                raise FadaError(f"reading failed {_reason(Exception(value))}.")

    def kill(self) -> None:
        """End the process at once."""
        with self._lock:
            process, self._process = self._process, None
        if process is None:
            return
        process.kill()
        process.wait()
        for stream in (process.stdin, process.stdout):
            if stream is not None:
                with contextlib.suppress(OSError):
                    stream.close()


class Running:
    """A job that is worked at: what its function tells and asks."""

    def __init__(self, jobs: "Jobs", row: Row, worker: Worker) -> None:
        self._jobs, self.worker = jobs, worker
        self.id: int = row["id"]
        self.document: int | None = row["document"]
        self.asked: dict[str, Any] = json.loads(row["asked"])
        self.done = self.total = 0
        self._told = 0.0
        self._cancelled = threading.Event()

    def cancel(self) -> None:
        """Ask it to stop."""
        self._cancelled.set()

    @property
    def stopped(self) -> bool:
        return self._cancelled.is_set() or self._jobs.closing

    def check(self) -> None:
        """Raise if it shall stop."""
        if self.stopped:
            raise Cancelled

    def run(self, task: str, **asked: Any) -> Iterator[Any]:
        return self.worker.run(task, asked, lambda: self.stopped)

    def tell(self, done: int, total: int, message: str = "", force: bool = False) -> None:
        """How far it is; stored and published a few times a second at most."""
        self.done, self.total = done, total
        if not force and time.monotonic() - self._told < 0.2 and done < total:
            return
        self._told = time.monotonic()
        self._jobs.change(self.id, done=done, total=total, message=message)


Work = Callable[[Running], Any]


class Jobs:
    """The queue, and the threads that work it off, each with a worker process; the first takes only quick jobs."""

    def __init__(self, store: Store, events: Events, folder: Path, *, workers: int, waiting: int, stuck: float) -> None:
        self._store, self._events, self._most = store, events, waiting
        self._kinds: dict[str, tuple[Work, int]] = {}
        self._heap: list[tuple[int, int]] = []
        self._rows: dict[int, Row] = {}
        self._condition = threading.Condition()
        self._running: dict[int, Running] = {}
        self.closing = False
        self.finished: dict[str, int] = {}
        self.workers = [Worker(folder, stuck) for _ in range(workers + 1)]
        self._threads = [
            threading.Thread(target=self._work, args=(worker, i == 0), name=f"fada-jobs-{i}", daemon=True)
            for i, worker in enumerate(self.workers)
        ]

    def register(self, kind: str, work: Work, priority: int = USUAL) -> None:
        """How jobs of a kind are done."""
        self._kinds[kind] = work, priority

    def start(self) -> None:
        """Begin; jobs that an earlier server left unfinished are done again."""
        for row in self._store.rows("SELECT * FROM jobs WHERE state IN ('queued', 'running') ORDER BY id"):
            if row["kind"] in self._kinds:
                self._put(row)
        for thread in self._threads:
            thread.start()

    def _put(self, row: Row) -> None:
        with self._condition:
            self._rows[row["id"]] = row
            heapq.heappush(self._heap, (self._kinds[row["kind"]][1], row["id"]))
            self._condition.notify_all()

    @property
    def queued(self) -> int:
        return len(self._heap)

    def check_room(self) -> None:
        """Refuse before any work is done."""
        if len(self._heap) >= self._most:
            raise Full

    def add(self, kind: str, document: int | None = None, **asked: Any) -> Row:
        self.check_room()
        values = {"kind": kind, "document": document, "state": "queued", "asked": asked, "created": now()}
        number = self._store.write(lambda connection: insert(connection, "jobs", values))
        row = self.row(number)
        assert row is not None
        self._put(row)
        self._events.publish("job", shown(row))
        return row

    def row(self, number: int) -> Row | None:
        return self._store.row("SELECT * FROM jobs WHERE id = ?", number)

    def change(self, number: int, **values: Any) -> None:
        """Store and publish what changed."""
        self._store.write(lambda connection: update(connection, "jobs", number, values))
        row = self.row(number)
        if row is not None:
            self._events.publish("job", shown(row))

    def cancel(self, number: int) -> None:
        """Take a job out of the queue, or stop it."""
        with self._condition:
            waiting = self._rows.pop(number, None)
            if waiting is not None:
                self._heap = [entry for entry in self._heap if entry[1] != number]
                heapq.heapify(self._heap)
            elif number in self._running:
                self._running[number].cancel()
        if waiting is not None:
            self.change(number, state="cancelled", message="cancelled")

    def cancel_of(self, document: int) -> None:
        with self._condition:
            numbers = [n for n, row in self._rows.items() if row["document"] == document]
            numbers += [n for n, running in self._running.items() if running.document == document]
        for number in numbers:
            self.cancel(number)

    def _next(self, only_quick: bool) -> Row | None:
        with self._condition:
            while not self.closing:
                if self._heap and (not only_quick or self._heap[0][0] == QUICK):
                    _, number = heapq.heappop(self._heap)
                    return self._rows.pop(number)
                self._condition.wait()
            return None

    def _work(self, worker: Worker, only_quick: bool) -> None:
        while (row := self._next(only_quick)) is not None:
            running = Running(self, row, worker)
            with self._condition:
                self._running[row["id"]] = running
            try:
                self._do(running, row)
            except FadaError:
                return  # the store is closed
            finally:
                with self._condition:
                    del self._running[row["id"]]

    def _do(self, running: Running, row: Row) -> None:
        number = row["id"]
        self._insist(number, state="running")
        try:
            result = self._kinds[row["kind"]][0](running)
            end = {"state": "done", "result": json.dumps(result, ensure_ascii=False)}
        except Cancelled:
            if self.closing:
                return  # it goes on with the next server
            end = {"state": "cancelled", "message": "cancelled"}
        except FadaError as error:
            end = {"state": "failed", "message": str(error)}
        except Exception as error:
            log.exception("a job of the desk failed")
            end = {"state": "failed", "message": f"failed {_reason(error)}"}
        self.finished[end["state"]] = self.finished.get(end["state"], 0) + 1
        self._insist(number, **end)

    def _insist(self, number: int, **values: Any) -> None:
        """Change a job; while the disk has no room for that, wait for some."""
        while True:
            try:
                self.change(number, **values)
                return
            except sqlite3.OperationalError as error:
                log.warning("a job of the desk waits for its database (%s)", error)
            with self._condition:
                if self._condition.wait_for(lambda: self.closing, _AGAIN):
                    return

    def close(self) -> None:
        """Stop all work; what is unfinished goes on with the next server."""
        with self._condition:
            self.closing = True
            self._condition.notify_all()
        for thread in self._threads:
            if thread.is_alive():
                thread.join(timeout=10)
        for worker in self.workers:
            worker.kill()


def _reason(error: Exception) -> str:
    return "because the disk of the server is full" if is_full(error) else "for a reason that the server's log tells"


def shown(row: Row) -> dict[str, Any]:
    """A job as clients see it."""
    names = ("id", "kind", "document", "state", "done", "total", "message", "created")
    return {**{name: row[name] for name in names}, "result": json.loads(row["result"]) if row["result"] else None}
