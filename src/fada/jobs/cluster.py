"""The reading of lines on a Ray cluster: actors hold the model, the driver reads the source and keeps the journal.

Ray carries batches there and rows back, nothing else. What is done is decided by the driver's journal, so that a killed
actor, worker or driver loses nothing and doubles nothing; order comes from the source, so that the output is the one
that a single process writes.
"""

import logging
import os
import secrets
import sys
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fada.errors import FadaError, missing_extra
from fada.jobs.batches import document_of
from fada.jobs.documents import Documents
from fada.jobs.journal import Row
from fada.jobs.reader import Reader

if TYPE_CHECKING:
    from fada.data.line import Line
    from fada.decoding.evidence import Automatic
    from fada.decoding.knowledge import Knowledge
    from fada.decoding.weights import Weights

RETRIES = 5
"""So often a batch is given to a new actor when one dies over it; then its lines are tried one by one."""

DIED = f"the process that read it died {RETRIES + 1} times"

AHEAD = 2
"""Batches that wait for each actor, so that none is idle while the driver reads."""

TOKEN = ".ray.token"


@dataclass(frozen=True)
class Cluster:
    """Where to run.

    Attributes:
        address: of a running cluster (`ray://host:10001`, `host:6379`, `auto`); None starts one on this machine.
        workers: model actors; by default one for each CPU of the cluster.
        gpus: GPUs of each actor; a part of one is fine.
        token: file with the token of the cluster at `address`, if it asks for one.
    """

    address: str | None = None
    workers: int | None = None
    gpus: float = 0.0
    token: Path | None = None

    @contextmanager
    def running(self, folder: Path) -> Iterator[Any]:
        """Ray, connected; a cluster that was started here is stopped at the end.

        Args:
            folder: gets the token of a cluster that is started here.
        """
        own_token = folder / TOKEN if self.address is None and "ray" not in sys.modules else None
        token = own_token or self.token
        if own_token is not None:
            folder.mkdir(parents=True, exist_ok=True)
            with os.fdopen(os.open(own_token, os.O_CREAT | os.O_TRUNC | os.O_WRONLY, 0o600), "w") as stream:
                stream.write(secrets.token_hex(32))
        os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
        if token is not None:
            os.environ |= {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN_PATH": str(token.resolve())}
        try:
            import ray  # reads the environment once
        except ImportError:
            raise missing_extra("ray", "scale", "running on a Ray cluster") from None
        options: dict[str, Any] = {"address": self.address} if self.address else {"address": "local"}
        if self.address is None:
            options |= {"num_cpus": self.workers, "include_dashboard": False}
        try:
            ray.init(log_to_driver=False, configure_logging=False, logging_level=logging.ERROR, **options)
        except Exception as error:  # Ray raises many kinds, all of them about the address or the machine
            raise FadaError(
                f"the Ray cluster at {self.address or 'this machine'} cannot be used ({error}). "
                "Check --ray-address and its token, or leave --ray out."
            ) from None
        try:
            yield ray
        finally:
            ray.shutdown()
            if own_token is not None:
                own_token.unlink(missing_ok=True)

    def actors(self, ray: Any) -> int:
        """How many model actors to start."""
        if self.workers:
            return self.workers
        resources = ray.cluster_resources()
        fit = resources.get("GPU", 0) / self.gpus if self.gpus else resources.get("CPU", 1)
        return max(1, int(fit))


class Reading:
    """What an actor is: a model with its knowledge, which makes rows of lines."""

    def __init__(self, model: str, weights: "Weights", knowledge: "Knowledge", automatic: "Automatic | None") -> None:
        from fada.models.registry import load_recognizer

        recognizer = load_recognizer(model)
        recognizer.use_threads(1)
        self._reader = Reader(recognizer, weights, knowledge, automatic, {})

    def rows(self, batch: "list[Line]", decided: "dict[str, Any] | None") -> "list[Row]":
        """The rows of the journal for a batch; `decided` is what its document is read with, if that is known."""
        if decided is not None and self._reader.documents is not None:
            self._reader.documents.recall(decided)
        return self._reader.rows(batch)


def read_on(
    cluster: Cluster,
    folder: Path,
    model: str,
    reader: "Reader",
    batches: "Iterable[list[Line]]",
) -> "Iterator[tuple[list[Line], list[Row]]]":
    """Batches of lines and their rows, in the order in which they are finished.

    The lines of a document wait until its first batch told what it is read with, wherever they are read.

    Args:
        folder: for the token of a cluster that is started here.
        model: name or folder, as every machine of the cluster has it.
        reader: as this process would read; the actors read like it.
    """
    with cluster.running(folder) as ray:
        actor = ray.remote(Reading).options(
            num_cpus=1, num_gpus=cluster.gpus, max_restarts=-1, max_task_retries=RETRIES
        )
        shared = [ray.put(value) for value in (reader.weights, reader.knowledge, reader.automatic)]
        pool = _Pool(ray, [actor.remote(model, *shared) for _ in range(cluster.actors(ray))], reader.documents)
        again: list[list[Line]] = []
        for batch, rows in pool.spread(batches):
            if rows is None:
                again += [[line] for line in batch]
            else:
                yield batch, rows
        for batch, rows in pool.spread(again):
            yield batch, rows or [{"id": line.id, "source": line.source or line.id, "error": DIED} for line in batch]


class _Pool:
    """Actors that are kept busy, and no busier."""

    def __init__(self, ray: Any, actors: Sequence[Any], documents: "Documents | None") -> None:
        self._ray, self._actors, self._documents = ray, actors, documents
        self._load = [0] * len(actors)
        self._busy: dict[Any, tuple[list[Line], int]] = {}
        self._undecided: set[str] = set()

    def spread(self, batches: "Iterable[list[Line]]") -> "Iterator[tuple[list[Line], list[Row] | None]]":
        """Every batch with its rows; None if actor after actor died over it."""
        held: deque[list[Line]] = deque()
        most = AHEAD * len(self._actors)
        for batch in batches:
            held.append(batch)
            self._submit(held, most)
            while self._busy and len(held) + len(self._busy) > 2 * most:
                yield self._finished()
                self._submit(held, most)
        while held or self._busy:
            self._submit(held, most)
            yield self._finished()

    def _submit(self, held: "deque[list[Line]]", most: int) -> None:
        for _ in range(len(held)):
            batch = held.popleft()
            document = document_of(batch[0])
            if len(self._busy) >= most or document in self._undecided:
                held.append(batch)
                continue
            decided = None if self._documents is None else self._documents.record(document)
            if self._documents is not None and decided is None:
                self._undecided.add(document)
            place = min(range(len(self._actors)), key=self._load.__getitem__)
            self._busy[self._actors[place].rows.remote(batch, decided)] = batch, place
            self._load[place] += 1

    def _finished(self) -> "tuple[list[Line], list[Row] | None]":
        (done,), _ = self._ray.wait(list(self._busy), num_returns=1)
        batch, place = self._busy.pop(done)
        self._load[place] -= 1
        rows: list[Row] | None
        try:
            rows = self._ray.get(done)
        except self._ray.exceptions.RayActorError:
            rows = None
        except self._ray.exceptions.RayTaskError as error:
            raise (error.cause if isinstance(error.cause, FadaError) else error) from None
        self._undecided.discard(document_of(batch[0]))
        for row in rows or ():
            if self._documents is not None and "read_with" in row:
                self._documents.recall(row["read_with"])
        return batch, rows
