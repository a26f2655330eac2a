"""Work on a Ray cluster: actors hold the model, the driver reads the source and keeps the journal.

Ray carries batches there and rows back, nothing else. What is done is decided by the driver's journal, so that a killed
actor, worker or driver loses nothing and doubles nothing; order comes from the source, so that the output is the one
that a single process writes.
"""

import logging
import os
import secrets
import sys
import tempfile
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias, TypeVar

from fada.data.line import Line
from fada.decoding.evidence import Automatic
from fada.decoding.knowledge import Knowledge
from fada.decoding.weights import Weights
from fada.errors import FadaError, needing
from fada.jobs.batches import document_of
from fada.jobs.documents import Documents
from fada.jobs.journal import Row, failed_row
from fada.jobs.reader import Reader
from fada.models.looks import Looks
from fada.models.recognizer import Recognizer

T = TypeVar("T")
R = TypeVar("R")
Work: TypeAlias = Callable[[list[Line], dict[str, Any] | None], Any]

RETRIES = 5
"""So often a batch is given to a new actor when one dies over it; then its lines are tried one by one."""

DIED = f"the process that read it died {RETRIES + 1} times"

STARTS = 3
"""So often a cluster on this machine is started: Ray gives up after half a minute, which a busy machine may need."""

AHEAD = 2
"""Batches that wait for each actor, so that none is idle while the driver reads."""

TOKEN = ".ray.token"


@dataclass(frozen=True)
class Cluster:
    """Where to run.

    Attributes:
        address: of a running cluster (`ray://host:10001`, `host:6379`, `auto`); None starts one on this machine.
        workers: model actors, or tasks at a time; by default one for each CPU of the cluster.
        device: of each actor; any but the CPU takes a GPU of the cluster.
        token: file with the token of the cluster at `address`, if it asks for one.
    """

    address: str | None = None
    workers: int | None = None
    device: str = "cpu"
    token: Path | None = None

    @contextmanager
    def running(self, out: Path) -> Iterator["Running"]:
        """The cluster, connected; one that was started here is stopped at the end.

        Args:
            out: what is written; the token of a cluster that is started here lives beside it while it runs.
        """
        started_here = self.address is None and "ray" not in sys.modules
        whole = Path(os.path.abspath(out))
        own_token = whole.with_name(f".{whole.name}{TOKEN}") if started_here else None
        token = own_token or self.token
        if own_token is not None:
            own_token.parent.mkdir(parents=True, exist_ok=True)
            with os.fdopen(os.open(own_token, os.O_CREAT | os.O_TRUNC | os.O_WRONLY, 0o600), "w") as stream:
                stream.write(secrets.token_hex(32))
        elif token is not None and not token.is_file():
            raise FadaError(f"{token}: no such file. --ray-token names the file with the token of the cluster.")
        os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
        os.environ.setdefault("RAY_agent_register_timeout_ms", "300000")  # a busy machine needs more than its 30 s
        if token is not None:
            os.environ |= {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN_PATH": str(token.resolve())}
        try:
            with needing("ray", "scale", "running on a Ray cluster"):
                import ray  # reads the environment once
            self._connect(ray)
            try:
                yield Running(ray, self)
            finally:
                ray.shutdown()
        finally:
            if own_token is not None:
                own_token.unlink(missing_ok=True)

    def _connect(self, ray: Any) -> None:
        options: dict[str, Any] = {"address": self.address or "local"}
        if self.address is None:
            options |= {"num_cpus": self.workers, "include_dashboard": False}
        tries = STARTS if self.address is None else 1
        for left in reversed(range(tries)):
            with _caught() as complaints:
                try:
                    ray.init(log_to_driver=False, configure_logging=False, logging_level=logging.ERROR, **options)
                    return
                except Exception as error:  # Ray raises many kinds, all of them about the address or the machine
                    ray.shutdown()
                    if left:
                        continue
                    token_asked = b"AuthToken" in complaints()
                    problem = "it asks for a token, and this is not it" if token_asked else str(error)
                    raise FadaError(
                        f"the Ray cluster at {self.address or 'this machine'} cannot be used ({problem}). Check "
                        "--ray-address and --ray-token (the file with the token of the cluster), or leave --ray out."
                    ) from None


@contextmanager
def _caught() -> Iterator[Callable[[], bytes]]:
    """What Ray's own processes complain of on standard error, once a second while they look for a network or a token.

    Gives what tells it so far.
    """
    with tempfile.TemporaryFile() as stream:
        before = os.dup(2)
        os.dup2(stream.fileno(), 2)
        try:
            yield lambda: os.pread(stream.fileno(), 1 << 20, 0)
        finally:
            os.dup2(before, 2)
            os.close(before)


@dataclass(frozen=True)
class Running:
    """A cluster that is connected: :class:`fada.common.workers.Workers` whose work is done on its machines."""

    ray: Any
    cluster: Cluster

    @property
    def gpus(self) -> float:
        return 0.0 if self.cluster.device == "cpu" else 1.0

    @property
    def count(self) -> int:
        """How many actors or tasks at a time."""
        if self.cluster.workers:
            return self.cluster.workers
        resources = self.ray.cluster_resources()
        return max(1, int(resources.get("GPU", 0) if self.gpus else resources.get("CPU", 1)))

    def each(self, work: Callable[[T], R], items: Sequence[T]) -> Iterator[R]:
        """The result of `work` for each item, in their order; what dies is done again, elsewhere.

        An error of one is raised when the others are done.
        """
        task = self.ray.remote(_work).options(num_cpus=1, num_gpus=self.gpus, max_retries=RETRIES)
        shared, folder = self.ray.put(work), os.getcwd()
        waiting, most = deque(enumerate(items)), self.count
        busy: dict[Any, int] = {}
        found: dict[int, R] = {}
        told = 0
        problem: Exception | None = None
        while waiting or busy:
            while waiting and len(busy) < most:
                place, item = waiting.popleft()
                busy[task.remote(folder, shared, item)] = place
            (done,), _ = self.ray.wait(list(busy), num_returns=1)
            place = busy.pop(done)
            try:
                found[place] = self.ray.get(done)
            except self.ray.exceptions.RayTaskError as error:
                problem = problem or (error.cause if isinstance(error.cause, FadaError) else error)
            except self.ray.exceptions.RayError:
                problem = problem or FadaError(
                    f"the cluster lost the same work {RETRIES + 1} times: its workers die, often for want of memory. "
                    "Fewer at a time (--jobs) may do; the same command goes on with what is not finished."
                )
            while told in found:
                yield found.pop(told)
                told += 1
        if problem is not None:
            raise problem


def _work(folder: str, work: Callable[[T], R], item: T) -> R:
    """A task, in the folder that relative paths are meant from."""
    _go_to(folder)
    return work(item)


def _go_to(folder: str) -> None:
    with suppress(OSError):  # a machine without this folder: paths are not relative then
        os.chdir(folder)


class ModelActor:
    """A model that works on batches of lines."""

    def start(self, folder: str, model: str, device: str, make: Callable[[Recognizer], Work]) -> None:
        """Load the model.

        Args:
            folder: that relative paths are meant from.
            model: name or folder.
            make: makes of the model what works: a function of a batch and of what was decided for its document.
        """
        from fada.models.registry import load_on_device

        _go_to(folder)
        recognizer = load_on_device(model, device)
        recognizer.use_threads(1)
        self._work = make(recognizer)

    def work(self, batch: list[Line], decided: dict[str, Any] | None) -> Any:
        return self._work(batch, decided)


def on_actors(
    cluster: Cluster,
    out: Path,
    model: str,
    make: Callable[[Recognizer], Work],
    batches: Iterable[list[Line]],
    documents: Documents | None = None,
) -> Iterator[tuple[list[Line], Any | None]]:
    """Batches of lines and what actors make of them, in the order in which they are finished.

    The lines of a document wait until its first batch told what it is read with, wherever they are read. A batch over
    which actor after actor died is divided; a line over which they died has the result None.

    Args:
        out: what is written; the token of a cluster that is started here lives beside it.
        model: name or folder, as every machine of the cluster has it.
        make: see :class:`ModelActor`.
        documents: what is decided so far; decisions in rows that come back are taken over.
    """
    with cluster.running(out) as running:
        ray = running.ray
        actor = ray.remote(ModelActor).options(num_cpus=1, num_gpus=running.gpus)
        shared = ray.put(make)

        def start() -> tuple[Any, Any]:
            one = actor.remote()
            return one, one.start.remote(os.getcwd(), model, cluster.device, shared)

        yield from _Pool(ray, start, running.count, documents).spread(batches)


def read_on(
    cluster: Cluster, out: Path, model: str, reader: Reader, batches: Iterable[list[Line]]
) -> Iterator[tuple[list[Line], list[Row]]]:
    """Batches of lines and their rows, in the order in which they are finished; see :func:`on_actors`.

    Args:
        reader: as this process would read; the actors read like it.
    """
    make = partial(_reading, reader.weights, reader.knowledge, reader.automatic, reader.recognizer.looks)
    for batch, rows in on_actors(cluster, out, model, make, batches, reader.documents):
        yield batch, rows or [failed_row(line, DIED) for line in batch]


def _reading(
    weights: Weights, knowledge: Knowledge, automatic: Automatic | None, looks: Looks, recognizer: Recognizer
) -> Work:
    recognizer.use_looks(looks)
    reader = Reader(recognizer, weights, knowledge, automatic, {})

    def rows(batch: list[Line], decided: dict[str, Any] | None) -> list[Row]:
        if decided is not None and reader.documents is not None:
            reader.documents.recall(decided)
        return reader.rows(batch)

    return rows


class _Pool:
    """Actors that are kept busy, and no busier; for one that dies another is started, wherever there is room.

    Args:
        start: starts an actor; gives it and what tells that it is ready.
        count: so many actors.
    """

    def __init__(
        self, ray: Any, start: "Callable[[], tuple[Any, Any]]", count: int, documents: Documents | None
    ) -> None:
        self._ray, self._start, self._documents = ray, start, documents
        self._most = AHEAD * count
        self._starting: dict[Any, Any] = {}
        self._load: dict[Any, int] = {}
        """Batches that each actor that is ready has."""
        self._busy: dict[Any, tuple[_Batch, Any]] = {}
        self._held: deque[_Batch] = deque()
        self._undecided: set[str] = set()
        self._stillborn = 0
        for _ in range(count):
            self._start_one()

    def spread(self, batches: Iterable[list[Line]]) -> Iterator[tuple[list[Line], Any | None]]:
        """Every batch with its result; None for a line if actor after actor died over it."""
        for batch in batches:
            self._held.append(_Batch(batch))
            self._submit()
            while len(self._held) + len(self._busy) > 2 * self._most:
                yield from self._next()
        while self._held or self._busy:
            yield from self._next()

    def _start_one(self) -> None:
        actor, ready = self._start()
        self._starting[ready] = actor

    def _submit(self) -> None:
        for _ in range(len(self._held)):
            batch = self._held.popleft()
            document = document_of(batch.lines[0])
            actor = min(self._load, key=self._load.__getitem__, default=None)
            if actor is None or self._load[actor] >= AHEAD or document in self._undecided:
                self._held.append(batch)
                continue
            decided = None if self._documents is None else self._documents.record(document)
            if self._documents is not None and decided is None:
                self._undecided.add(document)
            self._busy[actor.work.remote(batch.lines, decided)] = batch, actor
            self._load[actor] += 1

    def _next(self) -> Iterator[tuple[list[Line], Any | None]]:
        """Wait for something to happen: an actor is ready, a batch is done, an actor died."""
        (done,), _ = self._ray.wait([*self._busy, *self._starting], num_returns=1)
        starting = self._starting.pop(done, None)
        batch, actor = (None, starting) if starting is not None else self._busy.pop(done)
        try:
            found = self._ray.get(done)
        except self._ray.exceptions.RayTaskError as error:
            raise (error.cause if isinstance(error.cause, FadaError) else error) from None
        except self._ray.exceptions.RayError:
            yield from self._died(batch, actor)
        else:
            self._stillborn = 0
            if batch is None:
                self._load[actor] = 0
            else:
                if actor in self._load:  # or it has died since, over a later batch
                    self._load[actor] -= 1
                self._undecided.discard(document_of(batch.lines[0]))
                if self._documents is not None:
                    for row in found:
                        if "read_with" in row:
                            self._documents.recall(row["read_with"])
                yield batch.lines, found
        self._submit()

    def _died(self, batch: "_Batch | None", actor: Any) -> Iterator[tuple[list[Line], Any | None]]:
        """Another actor in the place of a dead one; its batches go to any."""
        if self._load.pop(actor, None) is not None or batch is None:
            self._start_one()
        if batch is None:
            self._stillborn += 1
            if self._stillborn > RETRIES:
                raise FadaError(
                    f"the cluster lost {self._stillborn} processes while they loaded the model, often for want of "
                    "memory. Fewer side by side (--jobs) may do; the same command goes on with what is not finished."
                )
            return
        self._undecided.discard(document_of(batch.lines[0]))
        if batch.deaths < RETRIES:
            self._held.appendleft(_Batch(batch.lines, batch.deaths + 1))
        elif len(batch.lines) > 1:
            self._held.extendleft(_Batch([line]) for line in reversed(batch.lines))
        else:
            yield batch.lines, None


@dataclass(frozen=True)
class _Batch:
    """Lines to be worked on together, and how many actors died over them."""

    lines: list[Line]
    deaths: int = 0
