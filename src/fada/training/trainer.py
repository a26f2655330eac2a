"""`transformers.Trainer` with the alignment loss: the one place that reaches into its private methods.

What is random is a function of the seed, the epoch and the line, so a run that was stopped and resumed ends with the
same weights as one that was not, and so does one on several processes that share the batch.
"""

import math
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from transformers import Trainer, TrainerState, TrainingArguments
from transformers.trainer_callback import PrinterCallback, ProgressCallback

from fada.alignment import NAMES, AlignmentLoss, named, pull
from fada.common.files import naming, write_json
from fada.common.processes import summed
from fada.errors import FadaError, Interrupted
from fada.models import registry
from fada.models.network import Network
from fada.targets.target_set import TargetSet
from fada.training.callbacks import EarlyStopping, Epochs, Progress, StopOnSignal
from fada.training.checkpoints import CHECKPOINT_STATE, check_optimizer, numbers, write_checksums
from fada.training.history import Epoch, Patience
from fada.training.lines import LineDataset, WidthSampler
from fada.training.reading import read_texts, score_texts
from fada.training.settings import TrainSettings

OVERRIDDEN = (
    "_get_train_sampler",
    "_save_checkpoint",
    "_load_from_checkpoint",
    "_load_optimizer_and_scheduler",
    "_load_rng_state",
    "_load_best_model",
    "_save",
)
"""The private methods of `transformers.Trainer` that are overridden here, and may change with it."""

_BALANCE_EVERY = 10  # steps between two measurements of the gradient norms, for an adaptive λ
_MEASURED_PER_EPOCH = 8  # steps of each epoch whose gradient norms are recorded


def _alignment_loss(
    settings: TrainSettings, recognizer: Network, targets: TargetSet, train_set: LineDataset
) -> AlignmentLoss:
    """The alignment term that the settings ask for."""
    options: dict[str, Any] = {name: getattr(settings, name) for name in ("lam", "distance", "scale", "pool")}
    if settings.ngram == 1:
        return recognizer.alignment_loss(targets, predicted=settings.predicted, **options)
    if settings.predicted != "expected":
        raise FadaError(f"predicted is {settings.predicted!r}: pairs of characters (ngram 2) have 'expected' alone.")
    texts: dict[str, list[str]] = {}
    for line in train_set.lines:
        texts.setdefault(str(line.domain), []).append(str(line.text))
    return recognizer.bigram_loss(targets, texts, **options)


class FadaTrainer(Trainer):
    """`transformers.Trainer` with the alignment loss, width-sorted batches, and our own validation and history."""

    def __init__(
        self,
        settings: TrainSettings,
        recognizer: Network,
        targets: TargetSet,
        train_set: LineDataset,
        validation_set: LineDataset,
        checkpoints: Path,
    ) -> None:
        self.settings, self.recognizer, self.targets = settings, recognizer, targets
        self.validation_set = validation_set
        self.alignment_loss = _alignment_loss(settings, recognizer, targets, train_set)
        self.history: list[Epoch] = []
        self.terms = np.zeros(4)  # sums over the epoch: total, task, alignment, steps
        self.pulls = np.zeros(len(NAMES) + 1)  # sums over the measured steps of the epoch, and their number
        super().__init__(
            model=recognizer.model,
            args=_arguments(settings, checkpoints, recognizer),
            train_dataset=train_set,
            eval_dataset=validation_set,
            data_collator=train_set.collate,
            callbacks=[Epochs(train_set, self.alignment_loss, settings.save_steps), Progress(), StopOnSignal()],
        )
        for callback in (PrinterCallback, ProgressCallback):
            self.remove_callback(callback)
        steps = len(train_set) // (settings.batch_size * self.args.world_size * settings.accumulate)
        self.patience = Patience.over(settings.patience, steps)
        if self.patience:
            self.add_callback(EarlyStopping(self.patience, self.history))
        self.model_accepts_loss_kwargs = False  # the loss of a batch is a mean over its lines, as in the paper
        self.alignment_loss.to(self.args.device)

    def fit(self, checkpoint: Path | None) -> None:
        """Train from the start or from a checkpoint; a signal leaves a checkpoint to continue from."""
        stop = next(c for c in self.callback_handler.callbacks if isinstance(c, StopOnSignal))
        if checkpoint is not None:
            with _sound(checkpoint):
                self._load_own_state(checkpoint)
                state = TrainerState.load_from_json(str(checkpoint / "trainer_state.json"))
                stopped = self.patience is not None and self.patience.is_over(self.history)
                if stopped or state.global_step >= state.max_steps:  # killed after the last epoch
                    self.state = state
                    self._load_best_model()
                    return
        with stop.listening():
            self.train(resume_from_checkpoint=None if checkpoint is None else str(checkpoint))
        if stop.received:
            raise Interrupted(
                f"stopped by a signal after step {self.state.global_step} of {self.state.max_steps}; "
                f"a checkpoint is in {self.args.output_dir}. Continue with --resume.",
                code=128 + stop.received,
            )

    def compute_loss(
        self, model: nn.Module, inputs: dict[str, Any], return_outputs: bool = False, num_items_in_batch: Any = None
    ) -> Any:
        """λ · task + (1 - λ) · alignment."""
        domains = inputs.pop("domains")
        with self.recognizer.running():
            task, outputs = self.recognizer.task_loss(model, inputs)
        loss = task
        align = self.alignment_loss
        if align.full_lam < 1:
            scores, extent = self.recognizer.alignment_inputs(outputs, inputs)
            if self.settings.lam_schedule == "warmup":
                epochs = self.state.global_step / self.state.max_steps * self.settings.epochs
                align.warm_up(epochs / max(self.settings.lam_warmup, 1e-9))
            loss = align(task, scores, extent, domains)
        alignment = align.last_alignment
        balanced = self.settings.lam_schedule == "adaptive" and self.state.global_step % _BALANCE_EVERY == 0
        if balanced and alignment is not None:
            align.balance(task, alignment, outputs.logits)
        steps = max(self.state.max_steps // self.settings.epochs, 1)
        if self.settings.shows_gradients and self.state.global_step % max(steps // _MEASURED_PER_EPOCH, 1) == 0:
            self._measure(task, alignment, outputs, inputs, domains)
        values = torch.stack([x.detach().float() for x in (loss, task, alignment if alignment is not None else task)])
        total, task_value, alignment_value = values.tolist()
        if not math.isfinite(total):
            raise FadaError(
                f"the loss is {total} at step {self.state.global_step + 1} (task {task_value:g}). "
                "Lower learning_rate, or use precision fp32. The last checkpoint is kept: continue with --resume."
            )
        self.terms += (total, task_value, alignment_value if alignment is not None else 0.0, 1)
        return (loss, outputs) if return_outputs else loss

    def _measure(
        self, task: Tensor, alignment: Tensor | None, outputs: Any, inputs: dict[str, Tensor], domains: Tensor
    ) -> None:
        """Record how hard both terms pull on the network's output; at λ = 1, how hard alignment would."""
        align = self.alignment_loss
        if alignment is None:
            alignment = align.alignment(*self.recognizer.alignment_inputs(outputs, inputs), domains)
        if torch.is_grad_enabled() and alignment.requires_grad:
            self.pulls[:-1] += pull(task, alignment, outputs.logits, align.scale).cpu().numpy()
            self.pulls[-1] += 1

    def evaluate(self, *args: Any, **kwargs: Any) -> dict[str, float]:
        """Validation CER overall and per domain, and the distance of what is written from the targets."""
        lines = self.validation_set.lines
        texts = read_texts(self.recognizer, self.validation_set)
        scores = score_texts(lines, texts, self.targets, self.settings.distance)
        total, task, alignment, steps = summed(torch.from_numpy(self.terms.copy())).tolist()
        *pulls, measured = summed(torch.from_numpy(self.pulls.copy())).tolist()
        entry: Epoch = {
            "epoch": round(self.state.epoch or 0),
            "loss": total / max(steps, 1),
            "task_loss": task / max(steps, 1),
            "alignment_loss": alignment / max(steps, 1),
            "lam": self.alignment_loss.lam,
            "learning_rate": self._get_learning_rate(),
            "validation": scores,
        }
        if measured:
            entry["pull"] = named(pulls, measured)
        self.history.append(entry)
        self.terms[:] = self.pulls[:] = 0
        if self.is_world_process_zero():
            write_json(self.settings.out / "metrics.json", {"history": self.history})
        metrics = {"eval_cer": scores["cer"], "eval_wer": scores["wer"], "eval_distance": scores["distance"]}
        self.log(metrics)
        self.control = self.callback_handler.on_evaluate(self.args, self.state, self.control, metrics)
        return metrics

    def _get_train_sampler(self, train_dataset: Any = None) -> WidthSampler:
        assert isinstance(self.train_dataset, LineDataset)
        block = self.args.per_device_train_batch_size * self.args.world_size
        return WidthSampler(self.train_dataset, block, self.settings.seed)

    def _save_checkpoint(self, model: nn.Module, trial: Any = None) -> None:
        folder = Path(str(self.args.output_dir)) / f"checkpoint-{self.state.global_step}"
        own = {
            "history": self.history,
            "terms": torch.from_numpy(self.terms),
            "pulls": torch.from_numpy(self.pulls),
            "alignment": self.alignment_loss.state_dict(),
            "lam": self.alignment_loss.lam,
        }
        with naming(folder):
            if self.args.should_save:  # before the Trainer's own files: its last one makes the checkpoint complete
                folder.mkdir(parents=True, exist_ok=True)
                torch.save(own, folder / CHECKPOINT_STATE)
            super()._save_checkpoint(model, trial)
            if self.args.should_save:
                write_checksums(folder)

    def _load_own_state(self, checkpoint: Path) -> None:
        own = torch.load(checkpoint / CHECKPOINT_STATE, weights_only=True)
        self.history[:] = own["history"]
        self.terms = own["terms"].numpy()
        self.pulls = own["pulls"].numpy()
        self.alignment_loss.load_state_dict(own["alignment"])
        self.alignment_loss.lam = own["lam"]

    def _load_from_checkpoint(self, resume_from_checkpoint: str, model: nn.Module | None = None) -> None:
        self._load_weights(resume_from_checkpoint)

    def _load_optimizer_and_scheduler(self, checkpoint: str | None) -> None:
        if checkpoint is None:
            return
        with _sound(Path(checkpoint)):
            expected = numbers(self.optimizer, self.lr_scheduler)
            super()._load_optimizer_and_scheduler(checkpoint)
            check_optimizer(self.optimizer)
            if (found := numbers(self.optimizer, self.lr_scheduler)) != expected:
                raise ValueError(f"the optimizer has the numbers {found}, expected {expected}")

    def _load_rng_state(self, checkpoint: str | None) -> None:
        if checkpoint is not None:
            with _sound(Path(checkpoint)):
                super()._load_rng_state(checkpoint)

    def _load_best_model(self) -> None:
        # By its step: the folder may have been moved since.
        self._load_weights(f"{self.args.output_dir}/checkpoint-{self.state.best_global_step}")

    def _load_weights(self, checkpoint: str) -> None:
        # Not the file as it is: some weights (those of ViT) have other names there than in the network, and the
        # Trainer would leave them as they are.
        with _sound(Path(checkpoint)):
            stored = type(self.recognizer.model).from_pretrained(checkpoint, dtype=torch.float32)
        try:
            self.recognizer.model.load_state_dict(stored.state_dict())
        except RuntimeError:
            raise FadaError(
                f"{checkpoint}: another network than that of {self.settings.model}: one of them was changed. Get the "
                "files of the model anew, or delete this folder: the one before it is taken then."
            ) from None

    def _save(self, output_dir: str | None = None, state_dict: dict[str, Tensor] | None = None) -> None:
        self.recognizer.save_pretrained(output_dir or str(self.args.output_dir))


@contextmanager
def _sound(checkpoint: Path) -> Iterator[None]:
    """What the files of a damaged checkpoint raise, almost anything, as a sentence."""
    try:
        yield
    except FadaError:
        raise
    except Exception as error:
        reason = str(error).partition("\n")[0] or type(error).__name__
        raise FadaError(
            f"{checkpoint}: cannot be continued from ({reason}). Delete this folder: the one before it is taken then."
        ) from None


def on_cpu(settings: TrainSettings) -> bool:
    """Whether the processor itself trains: it was asked for, or there is nothing else."""
    return settings.device == "cpu" or not torch.accelerator.is_available()


def _arguments(settings: TrainSettings, checkpoints: Path, recognizer: Network) -> TrainingArguments:
    return TrainingArguments(
        output_dir=str(checkpoints),
        num_train_epochs=settings.epochs,
        per_device_train_batch_size=settings.batch_size,
        gradient_accumulation_steps=settings.accumulate,
        learning_rate=settings.learning_rate or registry.learning_rate(recognizer),
        weight_decay=settings.weight_decay,
        warmup_steps=settings.warmup,
        lr_scheduler_type="cosine",
        max_grad_norm=settings.clip,
        bf16=settings.precision == "bf16",
        fp16=settings.precision == "fp16",
        torch_compile=settings.compile,
        eval_strategy="epoch",
        logging_strategy="epoch",
        save_strategy="epoch",
        save_total_limit=2,  # the newest and the best; with 1 all but the best are deleted in the end
        load_best_model_at_end=True,
        metric_for_best_model="cer",
        greater_is_better=False,
        restore_callback_states_from_checkpoint=True,
        seed=settings.seed,
        use_cpu=on_cpu(settings),
        remove_unused_columns=False,
        dataloader_pin_memory=False,
        ddp_find_unused_parameters=False,
        disable_tqdm=True,
        report_to=[],
        logging_nan_inf_filter=False,
    )
