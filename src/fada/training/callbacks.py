"""What happens between the steps of a training: epochs counted, progress told, early stopping, signals."""

import logging
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from transformers import TrainerCallback

from fada.alignment import AlignmentLoss
from fada.common.say import progress_bar
from fada.training.history import Epoch, Patience
from fada.training.lines import LineDataset

log = logging.getLogger(__name__)


class Epochs(TrainerCallback):
    """Tells the data set and the alignment loss which epoch begins; checkpoints within it, if asked to."""

    def __init__(self, dataset: LineDataset, alignment_loss: AlignmentLoss, save_steps: int | None) -> None:
        self.dataset, self.alignment_loss, self.save_steps = dataset, alignment_loss, save_steps

    def on_epoch_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self.dataset.epoch = int((state.epoch or 0) + 1e-6)
        if not state.epoch or not within_epoch(state):
            self.alignment_loss.start_epoch()

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> Any:
        if self.save_steps and state.global_step % self.save_steps == 0 and within_epoch(state):
            control.should_save = True
        return control


class EarlyStopping(TrainerCallback):
    """Early stopping by what the history tells, so that a resumed run stops where the other would have."""

    def __init__(self, patience: Patience, history: list[Epoch]) -> None:
        self.patience, self.history = patience, history

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        if state.is_world_process_zero:
            log.info("%s", self.patience)

    def on_evaluate(self, args: Any, state: Any, control: Any, **kwargs: Any) -> Any:
        if self.patience.is_over(self.history):
            control.should_training_stop = True
            best = min(self.history, key=lambda epoch: epoch["validation"]["cer"])
            told = "stopped after epoch %d: no better validation CER since epoch %d (%.2f %%)"
            log.info(told, round(state.epoch), best["epoch"], best["validation"]["cer"])
        return control


class Progress(TrainerCallback):
    """A bar with the time left on a terminal; one line per epoch where nobody is watching."""

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        if not state.is_world_process_zero:
            return
        self._context = progress_bar()
        self._bar = self._context.__enter__()
        self._task = self._bar.add_task("training", total=state.max_steps, completed=state.global_step)
        self._started, self._from = time.time(), state.global_step

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        if state.is_world_process_zero:
            self._bar.update(self._task, completed=state.global_step)

    def on_evaluate(self, args: Any, state: Any, control: Any, metrics: Any = None, **kwargs: Any) -> None:
        if not state.is_world_process_zero or not hasattr(self, "_bar"):
            return
        seconds = time.time() - self._started
        left = seconds / max(state.global_step - self._from, 1) * (state.max_steps - state.global_step)
        told = f"epoch {round(state.epoch)}/{args.num_train_epochs}: validation CER {metrics['eval_cer']:.2f} %"
        self._bar.update(self._task, description=told)
        if self._bar.disable:
            log.info("%s, %.1f min, %.1f min left", told, seconds / 60, left / 60)

    def on_train_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        if state.is_world_process_zero:
            self._context.__exit__(None, None, None)


class StopOnSignal(TrainerCallback):
    """SIGTERM or Ctrl-C: finish the step, write a checkpoint, stop; a second one stops at once."""

    received = 0

    @contextmanager
    def listening(self) -> Iterator[None]:
        """Within the block, signals end the training in an orderly way."""
        try:
            self._before = {number: signal.signal(number, self._stop) for number in (signal.SIGTERM, signal.SIGINT)}
        except ValueError:  # not the main thread: signals are somebody else's business
            yield
            return
        try:
            yield
        finally:
            self._restore()

    def _stop(self, number: int, _: Any) -> None:
        self.received = number
        self._restore()
        log.info("stopping after this step; once more to stop at once")

    def _restore(self) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> Any:
        if self.received:
            control.should_save = within_epoch(state)
            control.should_training_stop = True
        return control

    def on_epoch_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> Any:
        if self.received and within_epoch(state):  # half an epoch is not a candidate for the best one
            control.should_evaluate = control.should_save = control.should_log = False
        return control


def within_epoch(state: Any) -> bool:
    """Whether steps of the epoch are left; at its end evaluation and checkpoint follow anyway."""
    return abs(state.epoch - round(state.epoch)) > 1e-6
