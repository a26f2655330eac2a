"""The trainings of an adaptation: one for each fold, independent of each other, so that they may run side by side.

A small network trains on one thread, whether in this process or beside others in its own: how many there are changes
nothing of the result.
"""

import itertools
import multiprocessing
import os
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, wait
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from math import ceil
from pathlib import Path
from typing import Any

import numpy as np
import torch
from pydantic import BaseModel, Field
from transformers.utils.logging import disable_progress_bar

from fada.common.files import replacing, write_json
from fada.common.say import progress_bar
from fada.common.threads import SMALL, cores, threads_for
from fada.common.workers import process_pool
from fada.data.augment import Augment
from fada.data.line import Line
from fada.errors import FadaError
from fada.models import registry
from fada.models.network import Network
from fada.training.lines import LineDataset

MOST_PROCESSES = 3
"""Trainings at a time: each takes almost a gigabyte."""
STEPS = "steps.json"
"""Beside the folds while they are trained: `done` of `total` steps."""
_TELL = 0.5
"""Seconds between two looks at how far the trainings are."""


class AdaptSettings(BaseModel, frozen=True, extra="forbid"):
    """How a model is adapted. Defaults were chosen once, on manuscripts that no result is reported on.

    See `recipes/adapt_settings.py`.
    """

    folds: int = Field(default=3, ge=2, le=10, description="Parts the lines are divided into.")
    epochs: int = Field(default=24, ge=1, description="Times every line is seen.")
    fewest_steps: int = Field(default=120, ge=1, description="Steps at least, however few the lines.")
    batch_size: int = Field(default=4, ge=1)
    replay: float = Field(
        default=0.25, ge=0, lt=1, description="Share of each batch that are lines the model knew before."
    )
    learning_rate: float | None = Field(default=None, gt=0, description="At its peak; its family's by default.")
    plain: float = Field(
        default=0.25, ge=0, le=1, description="Share of the steps, the last ones, on lines as they are."
    )
    augment: float = Field(default=1.0, ge=0, le=4)
    hidden: float = Field(default=0.0, ge=0, lt=1, description="Share of a line that is painted over, in spans.")
    seed: int = 0

    def steps(self, lines: int) -> int:
        """Steps of one training on so many lines."""
        return max(self.fewest_steps, ceil(self.epochs * lines / self.batch_size))


@dataclass(frozen=True)
class Fold:
    """A training on all lines but those of a fold.

    Attributes:
        model: what it starts from.
        texts: of all lines, whose characters it can write afterwards.
        lines: it learns from.
        replay: lines that the model could read before.
        stored: where its weights go.
    """

    model: str
    texts: Sequence[str]
    lines: Sequence[Line]
    replay: Sequence[Line]
    settings: AdaptSettings
    seed: int
    stored: Path

    @property
    def steps(self) -> int:
        """Of the training."""
        return self.settings.steps(len(self.lines))

    def network(self) -> Network:
        """The network before the training; new characters begin alike in every fold."""
        disable_progress_bar()  # one bar is enough
        torch.manual_seed(self.settings.seed)
        return registry.build(self.model, self.texts)

    def trained(self) -> Network:
        """The network after it."""
        network = self.network()
        try:
            network.model.load_state_dict(torch.load(self.stored, weights_only=True))
        except Exception as error:  # unpickling damaged bytes may raise anything
            reason = str(error).partition("\n")[0].rstrip(".") or type(error).__name__
            raise FadaError(f"{self.stored}: cannot be read ({reason}). Delete it, and it is trained again.") from None
        return network

    def train(self, stepped: Callable[[], None]) -> None:
        """Train on as many threads as the network is large enough for; the weights are stored."""
        network = self.network()
        before = torch.get_num_threads()
        torch.set_num_threads(1 if _is_small(network) else min(before, threads_for(SMALL)))
        try:
            fine_tune(network, self.lines, self.replay, self.settings, self.seed, stepped)
        finally:
            torch.set_num_threads(before)
        with replacing(self.stored) as temporary:
            torch.save(network.model.state_dict(), temporary)


def _is_small(network: Network) -> bool:
    return network.model.num_parameters() < SMALL


def train_folds(folds: Sequence[Fold], processes: int | None = 1) -> None:
    """Train those that are not stored yet.

    Args:
        processes: at a time, for small networks; None for one on each core. More than one start this program again:
            a script that asks for them begins with ``if __name__ == "__main__"``.
    """
    missing = [fold for fold in folds if not fold.stored.is_file()]
    if not missing:
        return
    count = min(processes or cores(), len(missing), MOST_PROCESSES)
    if count > 1 and not _is_small(missing[0].network()):
        count = 1
    total = sum(fold.steps for fold in missing)
    title = "adapting" if len(missing) == 1 else f"adapting, {len(missing)} parts"
    with progress_bar() as progress:
        task = progress.add_task(title, total=total)
        told = _Told(missing[0].stored.parent / STEPS, total)

        def show(done: int) -> None:
            progress.update(task, completed=done)
            told.write(done)

        if count == 1:
            done = itertools.count(1)
            for fold in missing:
                fold.train(lambda: show(next(done)))
        else:
            _side_by_side(missing, count, show)


@dataclass
class _Told:
    """How far the trainings are, for other programs."""

    file: Path
    total: int
    at: float = 0.0

    def write(self, done: int) -> None:
        """Not more often than there is something to see."""
        if done == self.total or time.monotonic() - self.at > _TELL:
            self.at = time.monotonic()
            write_json(self.file, {"done": done, "total": self.total})


def _side_by_side(folds: Sequence[Fold], count: int, show: Callable[[int], None]) -> None:
    """Train in processes of their own; they end when this one is interrupted or killed."""
    spawn = multiprocessing.get_context("spawn")
    steps, stop = spawn.Value("l", 0), spawn.Event()
    with process_pool(count, _begin, (steps, stop)) as pool:
        waiting = {pool.submit(_train, fold) for fold in folds}
        try:
            while waiting:
                done, waiting = wait(waiting, _TELL, FIRST_COMPLETED)
                for one in done:
                    one.result()
                show(steps.value)
        except BrokenProcessPool:
            raise FadaError(
                f"one of {count} trainings at a time was ended by the system; memory may be short. Try --threads 1."
            ) from None
        finally:
            stop.set()
            pool.shutdown(wait=False, cancel_futures=True)


_shared: dict[str, Any] = {}


def _begin(steps: Any, stop: Any) -> None:
    """In a new process: an interruption reaches it through the one that asked."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    _shared.update(steps=steps, stop=stop)


def _train(fold: Fold) -> None:
    fold.train(_stepped)


def _stepped() -> None:
    with _shared["steps"].get_lock():
        _shared["steps"].value += 1
    if _shared["stop"].is_set():
        os._exit(1)


def fine_tune(
    recognizer: Network,
    lines: Sequence[Line],
    replay: Sequence[Line],
    settings: AdaptSettings,
    seed: int,
    stepped: Callable[[], None] = lambda: None,
) -> None:
    """Train all weights for a fixed number of steps, the rate falling to zero, the last steps on lines as they are.

    `stepped` is called after each step.
    """
    torch.manual_seed(seed)
    own = LineDataset(recognizer, lines, (), Augment(settings.augment, seed, settings.hidden))
    old = LineDataset(recognizer, replay, (), Augment(settings.augment, seed, settings.hidden))
    known = round(settings.replay * settings.batch_size) if len(old) else 0
    batches = zip(_endless(own, settings.batch_size - known, seed), _endless(old, known, seed + 1), strict=False)
    steps = settings.steps(len(own))
    weights = [weight for weight in recognizer.model.parameters() if weight.requires_grad]
    rate = settings.learning_rate or registry.learning_rate(recognizer)
    optimizer = torch.optim.AdamW(weights, rate, weight_decay=0.01)
    falling = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, steps)
    for step, (new, remembered) in zip(range(steps), batches, strict=False):
        recognizer.model.train()
        if step >= (1 - settings.plain) * steps:
            own.augment = old.augment = None
        items = [own[i] for i in new] + [old[i] for i in remembered]
        inputs = recognizer.to_device(own.collate(items))
        del inputs["domains"]
        with recognizer.running():
            loss, _ = recognizer.task_loss(recognizer.model, inputs)
        if not torch.isfinite(loss):
            raise FadaError(f"the loss is {loss.item()} at step {step + 1}. Lower the learning rate.")
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(weights, 1.0)
        optimizer.step()
        falling.step()
        stepped()
    recognizer.model.eval()


def _endless(dataset: LineDataset, count: int, seed: int) -> Iterator[list[int]]:
    """`count` indices at a time, every line once before any comes again."""
    rng = np.random.default_rng(seed)
    waiting: list[int] = []
    while True:
        while count and len(waiting) < count:
            waiting += rng.permutation(len(dataset)).tolist()
            dataset.epoch += 1
        yield waiting[:count]
        waiting = waiting[count:]
