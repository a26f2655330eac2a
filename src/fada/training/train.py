"""One trainer for every model, on :class:`transformers.Trainer`: settings in, run folder out.

The defaults are those of the paper (30 epochs at most, patience 4 on the validation CER, batch 4, beam 5); recipes for
a CPU are in `recipes/`. What is random is a function of the seed, the epoch and the line, so a run that was stopped and
resumed ends with the same weights as one that was not, and so does one on several processes that share the batch.
"""

import errno
import logging
import math
import os
import platform
import shutil
import signal
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, Field, field_validator
from torch import Tensor, nn
from transformers import EarlyStoppingCallback, Trainer, TrainerCallback, TrainingArguments, set_seed
from transformers.trainer_callback import PrinterCallback, ProgressCallback
from transformers.utils.logging import disable_progress_bar

from fada import distances
from fada._version import __version__
from fada.alignment import Pool, Schedule
from fada.common.files import write_json
from fada.common.processes import summed, wait_for_all
from fada.common.say import progress_bar
from fada.common.settings import validated
from fada.data.augment import Augment
from fada.data.line import Line, LineSet, read_lines
from fada.errors import FadaError, Interrupted
from fada.evaluation.edits import score_lines
from fada.evaluation.predictions import Systems
from fada.models import registry
from fada.models.recognizer import CTCRecognizer, Recognizer, Tagging, best_path
from fada.models.seq2seq import Seq2SeqRecognizer
from fada.runs.run import Run
from fada.targets.target_set import TargetSet
from fada.text.normalizer import TextNormalizer
from fada.training.diagnostics import NAMES, named, pull
from fada.training.lines import (
    EncodedDataset,
    LineDataset,
    Splits,
    WidthSampler,
    check_domains,
    check_lines,
    evenly,
    split_lines,
    tell_left_out,
)

log = logging.getLogger(__name__)

READING = ("text_column", "domain_column", "domain_from", "image_column", "audio_column")
"""The settings that say how sources are read, as :func:`fada.read_lines` takes them."""

CHECKPOINT_STATE = "fada_state.pt"
_BALANCE_EVERY = 10  # steps between two measurements of the gradient norms, for an adaptive λ
# Settings that say where files lie and how a run is executed, not what comes of it.
_FREE = {"data", "validation", "test", "out", "resume", "device", "threads", "save_steps", "encoder_cache"}
_MEASURED_PER_EPOCH = 8  # steps of each epoch whose gradient norms are recorded


class TrainSettings(BaseModel):
    """Everything that decides the outcome of a run. Unknown keys are refused."""

    model_config = ConfigDict(extra="forbid", protected_namespaces=())

    data: list[str] = Field(description="Sources of lines, as `fada.read_lines` takes them.")
    validation: list[str] | None = Field(None, description="Sources to choose the best epoch on, if not in the data.")
    test: list[str] | None = Field(None, description="Sources to report on, if not in the data.")
    text_column: str | None = None
    domain_column: str | None = None
    domain_from: str | None = Field(
        None, description="Where domains come from without a column: folder, a table, a pattern over the path."
    )
    image_column: str | None = None
    audio_column: str | None = None
    validation_share: float = Field(0.1, gt=0, lt=1, description="Held out where the data have no validation split.")
    max_lines: int | None = Field(
        None, ge=1, description="Only so many lines of each split, evenly spaced: for trials."
    )
    targets: str | None = Field(None, description="Target file; counted on the training text by default.")
    normalizer: dict[str, Any] = Field(default_factory=dict, description="Settings of the text normaliser.")

    model: str = "crnn:base"
    new_characters: Literal["fail", "add", "ignore"] = "add"
    max_seconds: float = Field(10.0, gt=0, le=30, description="Audio window of Whisper.")
    language: str | None = Field(None, description="Language of a multilingual Whisper; its own or English by default.")
    tagging: Tagging = "none"
    freeze: Literal["none", "encoder"] = Field("none", description="`encoder`: train the decoder alone.")
    encoder_cache: Path | None = Field(
        None, description="Folder for what a frozen encoder makes of the lines, shared by runs; in memory by default."
    )

    lam: float = Field(0.5, ge=0, le=1)
    distance: str = "sorted_w2"
    scale: float = Field(1.0, ge=0)
    pool: Pool = "sample"
    lam_schedule: Schedule = "fixed"
    lam_warmup: float = Field(5.0, ge=0, description="Epochs until alignment has its full weight (warmup).")

    epochs: int = Field(30, ge=1)
    patience: int = Field(4, ge=0, description="Epochs without a better validation CER before stopping; 0 never.")
    batch_size: int = Field(4, ge=1)
    accumulate: int = Field(1, ge=1, description="Batches per optimiser step.")
    learning_rate: float | None = Field(None, gt=0, description="The model family's own by default.")
    weight_decay: float = Field(0.01, ge=0)
    warmup: float = Field(0.05, ge=0, lt=1, description="Share of the steps in which the learning rate rises.")
    clip: float = Field(1.0, gt=0, description="Norm to which gradients are clipped.")
    precision: Literal["fp32", "bf16", "fp16"] = "fp32"
    compile: bool = False
    augment: float = Field(1.0, ge=0, le=4)
    dropout: float | None = Field(None, ge=0, lt=1)
    beam_size: int = Field(5, ge=1)
    seed: int = 0
    threads: int | None = Field(None, ge=1)
    device: Literal["auto", "cpu"] = "auto"
    save_steps: int | None = Field(None, ge=1, description="Also checkpoint every so many steps.")

    out: Path
    resume: bool = False

    @property
    def shows_gradients(self) -> bool:
        """Whether the loss can be followed back to the network's output: not if compiled or in mixed precision."""
        return self.precision == "fp32" and not self.compile

    @field_validator("data", "validation", "test", mode="before")
    @classmethod
    def _one_is_a_list(cls, value: Any) -> Any:
        return [str(value)] if isinstance(value, str | os.PathLike) else value

    @classmethod
    def of(cls, values: Mapping[str, Any], where: str = "settings") -> "TrainSettings":
        """Settings from a mapping; what is wrong is named."""
        return validated(cls, dict(values), where)


def train(settings: TrainSettings) -> Run:
    """Train a recogniser and write the run folder.

    Returns:
        The run: model, metrics, predictions and emissions.

    Raises:
        FadaError: the settings or the data do not allow it, the loss is no longer a number, or the disk is full.
        Interrupted: SIGTERM or Ctrl-C; continue with `resume`.
    """
    disable_progress_bar()  # one bar is enough
    if settings.threads:
        torch.set_num_threads(settings.threads)
    with _disk_errors(settings.out):
        return _train(settings)


def _train(settings: TrainSettings) -> Run:
    out = settings.out
    if settings.lam_schedule == "adaptive" and not settings.shows_gradients:
        raise FadaError(
            "lam_schedule is 'adaptive', which needs the gradients at the network's output: "
            f"not with precision {settings.precision!r} and compile {settings.compile}. Use fp32 without compile."
        )
    checkpoints = out / "checkpoints"
    checkpoint = _last_checkpoint(checkpoints) if settings.resume else None
    if (out / "config.json").exists():
        if not settings.resume:
            raise FadaError(f"{out} already holds a run. Choose another folder, continue with --resume, or delete it.")
        refuse_other_settings(settings, Run(out))
        if Run(out).finished:
            return Run(out)
    started = time.time()
    set_seed(settings.seed)
    splits = read_splits(settings)
    check_lines(splits)
    targets = _targets(settings, splits)
    check_domains(splits, targets.domains)
    recognizer = registry.build(
        settings.model,
        [str(line.text) for line in splits.train],
        domains=targets.domains,
        tagging=settings.tagging,
        new_characters=settings.new_characters,
        max_seconds=settings.max_seconds,
        language=settings.language,
        dropout=settings.dropout,
    )
    _freeze(settings, recognizer)
    data = _datasets(settings, recognizer, splits, targets.domains)
    trainer = FadaTrainer(settings, recognizer, targets, data["train"], data["validation"], checkpoints)
    if trainer.is_world_process_zero():
        out.mkdir(parents=True, exist_ok=True)
        write_json(out / "config.json", _config(settings, splits, data, recognizer))
        targets.save(out / "targets.json")
    trainer.fit(checkpoint)
    if trainer.is_world_process_zero():
        _report(settings, recognizer, targets, data, trainer, time.time() - started)
        shutil.rmtree(checkpoints, ignore_errors=True)
    wait_for_all()
    return Run(out)


def _freeze(settings: TrainSettings, recognizer: Recognizer) -> None:
    if settings.freeze == "none":
        return
    if not isinstance(recognizer, Seq2SeqRecognizer):
        raise FadaError(
            f"freeze is {settings.freeze!r}, but {settings.model} has no decoder. "
            "Use it with TrOCR and Whisper models, or leave it out."
        )
    recognizer.freeze_encoder()


def _datasets(
    settings: TrainSettings, recognizer: Recognizer, splits: Splits, domains: Sequence[str]
) -> dict[str, LineDataset]:
    """The lines of each split, prepared; what a frozen encoder makes of unvaried lines is computed once."""
    varied = settings.augment > 0 and recognizer.modality == "image"
    data: dict[str, LineDataset] = {}
    for split in ("train", "validation", "test"):
        lines = getattr(splits, split)
        augment = Augment(settings.augment, settings.seed) if split == "train" else None
        if isinstance(recognizer, Seq2SeqRecognizer) and recognizer.encoder_is_frozen and not (augment and varied):
            data[split] = EncodedDataset(recognizer, lines, domains, settings.encoder_cache)
        else:
            data[split] = LineDataset(recognizer, lines, domains, augment)
        tell_left_out(data[split], split)
    return data


def read_splits(settings: TrainSettings) -> Splits:
    """Read the lines of a run; lines without text cannot be learnt from and are left out."""
    reading = settings.model_dump(include=set(READING))
    main = [read_lines(source, **reading) for source in settings.data]
    parts = split_lines(_lines_with_text(main), settings.validation_share, settings.seed)
    for name in ("validation", "test"):
        sources = getattr(settings, name)
        if sources is not None:
            parts[name] = _lines_with_text([read_lines(source, **reading) for source in sources])
    if settings.max_lines is not None:
        parts = {name: evenly(lines, settings.max_lines) for name, lines in parts.items()}
    return Splits(
        **parts,
        licence=next((source.licence for source in main if source.licence), None),
        citation=next((source.citation for source in main if source.citation), None),
    )


def settings_of(run: Run, data: Sequence[str] | None = None) -> TrainSettings:
    """The settings of a finished run; `data` is where the lines are now, if not where the run found them."""
    return TrainSettings.of({**run.config["settings"], "out": run.folder, **({"data": [*data]} if data else {})})


def refuse_other_settings(settings: TrainSettings, run: Run) -> None:
    """Refuse to continue or to reuse a run that had other settings; where files lie and how it ran may differ."""
    before = settings_of(run).model_dump(exclude=_FREE)
    for name, value in settings.model_dump(exclude=_FREE).items():
        known = before[name]
        if name in ("model", "targets") and value and known:
            value, known = Path(value).name, Path(known).name
        if value != known:
            raise FadaError(
                f"{run.folder} holds a run with {name} = {known!r}, not {value!r}. "
                "Choose another folder, give the same settings, or delete it."
            )


def _lines_with_text(sources: Sequence[LineSet]) -> list[Line]:
    """The lines that have a text; the others, and what could not be read, are counted and named."""
    lines = []
    for source in sources:
        for line in source:
            if line.text:
                lines.append(line)
            else:
                source.skip(line, "the line has no text")
        if source.skipped_count:
            first = "; ".join(map(str, source.skipped[:3]))
            log.warning("%d lines left out, such as: %s", source.skipped_count, first)
    return lines


def _targets(settings: TrainSettings, splits: Splits) -> TargetSet:
    if settings.targets:
        return TargetSet.load(settings.targets)
    return TargetSet.from_texts(splits.training_texts(), normalizer=TextNormalizer.from_dict(settings.normalizer))


class FadaTrainer(Trainer):
    """`transformers.Trainer` with the alignment loss, width-sorted batches, and our own validation and history."""

    def __init__(
        self,
        settings: TrainSettings,
        recognizer: Recognizer,
        targets: TargetSet,
        train_set: LineDataset,
        validation_set: LineDataset,
        checkpoints: Path,
    ) -> None:
        self.settings, self.recognizer, self.targets = settings, recognizer, targets
        self.validation_set = validation_set
        self.alignment_loss = recognizer.alignment_loss(
            targets, lam=settings.lam, distance=settings.distance, scale=settings.scale, pool=settings.pool
        )
        self.history: list[dict[str, Any]] = []
        self.terms = np.zeros(4)  # sums over the epoch: total, task, alignment, steps
        self.pulls = np.zeros(len(NAMES) + 1)  # sums over the measured steps of the epoch, and their number
        super().__init__(
            model=recognizer.model,
            args=_arguments(settings, checkpoints, recognizer),
            train_dataset=train_set,
            eval_dataset=validation_set,
            data_collator=train_set.collate,
            callbacks=[_Epochs(self), _Progress(), _StopOnSignal()],
        )
        for callback in (PrinterCallback, ProgressCallback):
            self.remove_callback(callback)
        if settings.patience:
            self.add_callback(EarlyStoppingCallback(early_stopping_patience=settings.patience))
        self.model_accepts_loss_kwargs = False  # the loss of a batch is a mean over its lines, as in the paper
        self.alignment_loss.to(self.args.device)

    def fit(self, checkpoint: Path | None) -> None:
        """Train from the start or from a checkpoint; a signal leaves a checkpoint to continue from."""
        stop = next(c for c in self.callback_handler.callbacks if isinstance(c, _StopOnSignal))
        if checkpoint is not None:
            self._load_own_state(checkpoint)
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
        if self._is_measured():
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

    def _is_measured(self) -> bool:
        steps = max(self.state.max_steps // self.settings.epochs, 1)
        return self.settings.shows_gradients and self.state.global_step % max(steps // _MEASURED_PER_EPOCH, 1) == 0

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
        entry = {
            "epoch": round(self.state.epoch or 0),
            "loss": total / max(steps, 1),
            "task_loss": task / max(steps, 1),
            "alignment_loss": alignment / max(steps, 1),
            "lam": self.alignment_loss.lam,
            "learning_rate": self._get_learning_rate(),
            **({"pull": named(pulls, measured)} if measured else {}),
            "validation": scores,
        }
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
        if self.args.should_save:
            # Before the Trainer's own files: its last one makes the checkpoint complete.
            folder = Path(str(self.args.output_dir)) / f"checkpoint-{self.state.global_step}"
            folder.mkdir(parents=True, exist_ok=True)
            own = {
                "history": self.history,
                "terms": torch.from_numpy(self.terms),
                "pulls": torch.from_numpy(self.pulls),
                "alignment": self.alignment_loss.state_dict(),
                "lam": self.alignment_loss.lam,
            }
            torch.save(own, folder / CHECKPOINT_STATE)
        super()._save_checkpoint(model, trial)

    def _load_own_state(self, checkpoint: Path) -> None:
        own = torch.load(checkpoint / CHECKPOINT_STATE, weights_only=True)
        self.history = own["history"]
        self.terms = own["terms"].numpy()
        self.pulls = own["pulls"].numpy()
        self.alignment_loss.load_state_dict(own["alignment"])
        self.alignment_loss.lam = own["lam"]

    def _load_from_checkpoint(self, resume_from_checkpoint: str, model: nn.Module | None = None) -> None:
        self._load_weights(resume_from_checkpoint)

    def _load_best_model(self) -> None:
        self._load_weights(str(self.state.best_model_checkpoint))

    def _load_weights(self, checkpoint: str) -> None:
        # Not the file as it is: some weights (those of ViT) have other names there than in the network, and the
        # Trainer would leave them as they are.
        stored = type(self.recognizer.model).from_pretrained(checkpoint, dtype=torch.float32)
        self.recognizer.model.load_state_dict(stored.state_dict())

    def _save(self, output_dir: str | None = None, state_dict: dict[str, Tensor] | None = None) -> None:
        self.recognizer.save_pretrained(output_dir or str(self.args.output_dir))


class _Epochs(TrainerCallback):
    """Tells the data set and the alignment loss which epoch begins; checkpoints within it, if asked to."""

    def __init__(self, trainer: FadaTrainer) -> None:
        self.trainer = trainer

    def on_epoch_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        dataset = self.trainer.train_dataset
        assert isinstance(dataset, LineDataset)
        dataset.epoch = int((state.epoch or 0) + 1e-6)
        if not state.epoch or not _within_epoch(state):
            self.trainer.alignment_loss.start_epoch()

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> Any:
        every = self.trainer.settings.save_steps
        if every and state.global_step % every == 0 and _within_epoch(state):
            control.should_save = True
        return control


class _Progress(TrainerCallback):
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


class _StopOnSignal(TrainerCallback):
    """SIGTERM or Ctrl-C: finish the step, write a checkpoint, stop; a second one stops at once."""

    received = 0

    @contextmanager
    def listening(self) -> Iterator[None]:
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
            control.should_save = _within_epoch(state)
            control.should_training_stop = True
        return control

    def on_epoch_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> Any:
        if self.received and _within_epoch(state):  # half an epoch is not a candidate for the best one
            control.should_evaluate = control.should_save = control.should_log = False
        return control


def _within_epoch(state: Any) -> bool:
    """Whether steps of the epoch are left; at its end evaluation and checkpoint follow anyway."""
    return abs(state.epoch - round(state.epoch)) > 1e-6


def _arguments(settings: TrainSettings, checkpoints: Path, recognizer: Recognizer) -> TrainingArguments:
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
        save_total_limit=1,
        load_best_model_at_end=True,
        metric_for_best_model="cer",
        greater_is_better=False,
        restore_callback_states_from_checkpoint=True,
        seed=settings.seed,
        use_cpu=settings.device == "cpu",
        remove_unused_columns=False,
        dataloader_pin_memory=False,
        ddp_find_unused_parameters=False,
        disable_tqdm=True,
        report_to=[],
        logging_nan_inf_filter=False,
    )


def _last_checkpoint(folder: Path) -> Path | None:
    """The newest complete checkpoint; incomplete ones (killed while writing) are removed."""
    complete = []
    for path in folder.glob("checkpoint-*"):
        if (path / "trainer_state.json").exists() and (path / CHECKPOINT_STATE).exists():
            complete.append(path)
        else:
            shutil.rmtree(path, ignore_errors=True)
    return max(complete, key=lambda path: int(path.name.partition("-")[2]), default=None)


def read_texts(recognizer: Recognizer, dataset: LineDataset, batch_size: int = 8, **options: Any) -> list[str]:
    """Best-path (CTC) or greedy (decoders, unless `options` of theirs say otherwise) texts, in the lines' order."""
    texts = [""] * len(dataset)
    for chosen, inputs in dataset.batches(batch_size):
        lines = [dataset.lines[i] for i in chosen]
        for i, text in zip(chosen, recognizer.read(inputs, lines, **options), strict=True):
            texts[i] = text
    return texts


def score_texts(lines: Sequence[Line], texts: Sequence[str], targets: TargetSet, distance: str) -> dict[str, Any]:
    """CER and WER in percent (micro), overall and per domain, and the mean distance of a line from its target."""
    far = np.array(_distances(lines, texts, targets, distance))
    domains = np.array([str(line.domain) for line in lines])
    scores = score_lines([str(line.text) for line in lines], texts)

    def rates(chosen: NDArray[np.bool_]) -> dict[str, float]:
        found = scores.rates(chosen)
        return {
            "cer": found["cer"],
            "wer": found["wer"],
            "distance": float(far[chosen].mean()) if chosen.any() else 0.0,
        }

    per_domain = {domain: rates(domains == domain) for domain in sorted(set(domains.tolist()))}
    return {**rates(np.ones(len(domains), bool)), "per_domain": per_domain}


def _distances(lines: Sequence[Line], texts: Sequence[str], targets: TargetSet, distance: str) -> list[float]:
    """How far each text is from the target of its line's domain."""
    measure = distances.get(distance)
    return [
        float(measure(target.vector_of(text), target.frequencies))
        for line, text in zip(lines, texts, strict=True)
        for target in [targets[str(line.domain)].covering(targets.normalizer(text))]
    ]


def _report(
    settings: TrainSettings,
    recognizer: Recognizer,
    targets: TargetSet,
    data: Mapping[str, LineDataset],
    trainer: FadaTrainer,
    seconds: float,
) -> None:
    """Model, emissions, predictions of the test lines (validation, if there are none) and the final metrics."""
    out = settings.out
    recognizer.save_pretrained(out / "model")
    reported = "test" if data["test"].lines else "validation"
    lines = data[reported].lines
    systems: dict[str, list[str]] = {}
    log_probs: dict[str, list[float]] = {}
    if isinstance(recognizer, CTCRecognizer):
        from fada.decoding.ctc import CTCBeamDecoder

        (out / "emissions").mkdir(exist_ok=True)
        emitted = {split: recognizer.emit(data[split].lines) for split in ("validation", "test") if data[split].lines}
        for split, emissions in emitted.items():
            emissions.save(out / "emissions" / f"{split}.npz")
        frames = emitted[reported].log_probs
        systems["greedy"] = [best_path(scores, recognizer.symbols, recognizer.blank) for scores in frames]
        decoder = CTCBeamDecoder(recognizer.symbols, blank=recognizer.blank, beam_size=settings.beam_size)
        best = [found[0] for found in decoder.decode_batch(frames)]
        systems[f"beam{settings.beam_size}"] = [hypothesis.text for hypothesis in best]
        log_probs[f"beam{settings.beam_size}"] = [float(hypothesis.log_prob) for hypothesis in best]
    else:
        systems["greedy"] = read_texts(recognizer, data[reported])
        if settings.beam_size > 1:
            beams = read_texts(recognizer, data[reported], num_beams=settings.beam_size)
            systems[f"beam{settings.beam_size}"] = beams
    far = {name: _distances(lines, texts, targets, settings.distance) for name, texts in systems.items()}
    references = [str(line.text) for line in lines]
    Systems([line.id for line in lines], references, systems, {"domain": [line.domain for line in lines]}).save(
        out / "predictions.parquet", {"log_prob": log_probs, "distance": far, "score": log_probs}
    )
    final = {name: score_texts(lines, texts, targets, settings.distance) for name, texts in systems.items()}
    best_epoch = min(trainer.history, key=lambda entry: entry["validation"]["cer"])
    write_json(
        out / "metrics.json",
        {
            "history": trainer.history,
            "best_epoch": best_epoch["epoch"],
            reported: final,
            "parameters": sum(p.numel() for p in recognizer.model.parameters()),
            "seconds": round(seconds, 1),
        },
    )


def _config(
    settings: TrainSettings, splits: Splits, data: Mapping[str, LineDataset], recognizer: Recognizer
) -> dict[str, Any]:
    parameters = list(recognizer.model.parameters())
    left_out = {split: part.left_out for split, part in data.items() if part.left_out}
    return {
        "settings": settings.model_dump(mode="json", exclude={"resume"}),
        "fada_version": __version__,
        "seed": settings.seed,
        "data": settings.data,
        "licence": splits.licence,
        "citation": splits.citation,
        "lines": {split: len(part) for split, part in data.items()},
        **({"left_out": left_out} if left_out else {}),
        "model": {
            "kind": recognizer.kind,
            "parameters": sum(p.numel() for p in parameters),
            "trained": sum(p.numel() for p in parameters if p.requires_grad),
        },
        "versions": {"python": platform.python_version(), "torch": torch.__version__},
        "machine": {"system": platform.system(), "processor": platform.machine(), "threads": torch.get_num_threads()},
    }


@contextmanager
def _disk_errors(out: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EDQUOT):
            raise
        raise FadaError(
            f"no space left on the disk while writing to {out}. Free some space and continue with --resume: "
            "the last complete checkpoint is kept."
        ) from None
