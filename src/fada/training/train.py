"""One way to train every model: settings in, run folder out.

The defaults are those of the paper (30 epochs at most, patience 4 on the validation CER, batch 4, beam 5); recipes for
a CPU are in `recipes/`.
"""

import logging
import platform
import shutil
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch
from transformers import set_seed
from transformers.utils.logging import disable_progress_bar

from fada._version import __version__
from fada.common.files import check_writable, naming, write_json
from fada.common.processes import wait_for_all
from fada.common.say import BOLD, track
from fada.common.workers import Processes, Workers
from fada.data.augment import Augment
from fada.data.splits import Splits
from fada.decoding.weights import Weights
from fada.errors import FadaError
from fada.evaluation.predictions import PREDICTIONS, line_columns
from fada.models import registry
from fada.models.network import Network
from fada.runs.run import Run, load_run
from fada.targets.target_set import TargetSet
from fada.text.normalizer import TextNormalizer
from fada.training.checkpoints import last_checkpoint
from fada.training.lines import LineDataset, check_lines, prepared, tell_left_out, tell_pooled
from fada.training.reading import distances_from_targets, score_texts
from fada.training.settings import TrainSettings, refuse_other_settings
from fada.training.trainer import FadaTrainer, on_cpu
from fada.tuning.decode import GREEDY, decode_systems

log = logging.getLogger(__name__)


def train(settings: TrainSettings) -> Run:
    """Train a recogniser and write the run folder.

    Returns:
        The run: model, metrics, predictions and emissions.

    Raises:
        FadaError: the settings or the data do not allow it, or the loss is no longer a number.
        Interrupted: SIGTERM or Ctrl-C; continue with `resume`.
        OSError: the disk is full, or cannot be written; continue with `resume`.
    """
    disable_progress_bar()  # one bar is enough
    if settings.threads:
        torch.set_num_threads(settings.threads)
    with naming(settings.out):
        return _train(settings)


def _train(settings: TrainSettings) -> Run:
    out = settings.out
    if settings.precision == "fp16" and on_cpu(settings):
        raise FadaError("precision is 'fp16', which torch trains with on a GPU alone, and here a CPU trains. Use bf16.")
    if settings.lam_schedule == "adaptive" and not settings.shows_gradients:
        raise FadaError(
            "lam_schedule is 'adaptive', which needs the gradients at the network's output: "
            f"not with precision {settings.precision!r} and compile {settings.compile}. Use fp32 without compile."
        )
    if settings.lam_schedule == "adaptive" and settings.predicted == "decoded":
        raise FadaError("lam_schedule is 'adaptive', but predicted 'decoded' has no gradient to be balanced.")
    checkpoints = out / "checkpoints"
    if (out / "config.json").exists():
        if not settings.resume:
            raise FadaError(f"{out} already holds a run. Choose another folder, continue with --resume, or delete it.")
        refuse_other_settings(settings, Run(out))
        if Run(out).finished:
            return Run(out)
    check_writable(out)
    checkpoint = last_checkpoint(checkpoints) if settings.resume else None
    started = time.time()
    set_seed(settings.seed)
    splits = settings.read()
    check_lines(splits)
    targets = _targets(settings, splits)
    tell_pooled(splits, targets.domains, settings)
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


def _freeze(settings: TrainSettings, recognizer: Network) -> None:
    if settings.freeze == "none":
        return
    try:
        recognizer.freeze_encoder()
    except FadaError as error:
        raise FadaError(f"freeze is {settings.freeze!r}, but {settings.model} {error}") from None


def _datasets(
    settings: TrainSettings, recognizer: Network, splits: Splits, domains: Sequence[str]
) -> dict[str, LineDataset]:
    """The lines of each split, prepared; those to learn from with variations."""
    varied = (settings.augment > 0 or settings.hidden > 0) and recognizer.modality == "image"
    data: dict[str, LineDataset] = {}
    for split in ("train", "validation", "test"):
        augment = Augment(settings.augment, settings.seed, settings.hidden) if split == "train" and varied else None
        data[split] = prepared(recognizer, getattr(splits, split), domains, augment, settings.encoder_cache)
        tell_left_out(data[split], split)
    return data


def _targets(settings: TrainSettings, splits: Splits) -> TargetSet:
    if settings.targets:
        return TargetSet.load(settings.targets)
    return TargetSet.from_texts(splits.training_texts(), normalizer=TextNormalizer.from_dict(settings.normalizer))


def _report(
    settings: TrainSettings,
    recognizer: Network,
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
    beam, weights, columns = f"beam{settings.beam_size}", Weights(beam=settings.beam_size), line_columns(lines)
    searches = {
        split: recognizer.search(data[split].lines, cache=settings.encoder_cache)
        for split in ("validation", "test")
        if data[split].lines
    }
    for split, search in searches.items():
        search.keep(out / "emissions" / split)
    named = {GREEDY: None, beam: weights}
    if settings.beam_size == 1 and not searches[reported].cheap:  # the same search again
        del named[beam]
    systems = decode_systems(searches[reported], named, lines=columns)
    scores = {
        name: {**read.scores, "distance": distances_from_targets(lines, read.hypotheses, targets, settings.distance)}
        for name, read in systems.items()
    }
    replace(systems, scores=scores).save(out / PREDICTIONS)
    final = {name: score_texts(lines, read, targets, settings.distance) for name, read in systems.systems.items()}
    best_epoch = min(trainer.history, key=lambda entry: entry["validation"]["cer"])
    write_json(
        out / "metrics.json",
        {
            "history": trainer.history,
            "best_epoch": best_epoch["epoch"],
            reported: final,
            "parameters": recognizer.model.num_parameters(),
            "seconds": round(seconds, 1),
        },
    )


def _config(
    settings: TrainSettings, splits: Splits, data: Mapping[str, LineDataset], recognizer: Network
) -> dict[str, Any]:
    left_out = {split: part.left_out for split, part in data.items() if part.left_out}
    return {
        "settings": {name: value for name, value in settings.anchored().items() if name != "resume"},
        "fada_version": __version__,
        "seed": settings.seed,
        "data": settings.anchored()["data"],
        "licence": splits.licence,
        "citation": splits.citation,
        "lines": {split: len(part) for split, part in data.items()},
        **({"left_out": left_out} if left_out else {}),
        "model": {
            "kind": recognizer.kind,
            "parameters": recognizer.model.num_parameters(),
            "trained": recognizer.model.num_parameters(only_trainable=True),
        },
        "versions": {"python": platform.python_version(), "torch": torch.__version__},
        "machine": {"system": platform.system(), "processor": platform.machine(), "threads": torch.get_num_threads()},
    }


def train_all(settings: Mapping[str, TrainSettings], workers: Workers | int) -> dict[str, Run]:
    """Run the trainings that are not finished, several at a time; each keeps to its own seed and folder.

    Args:
        settings: of each training by name.
        workers: who trains, and has the same disk; a number is one of processes here.
    """
    todo = {}
    for name, chosen in settings.items():
        run = Run(chosen.out)
        if run.finished:
            refuse_other_settings(chosen, run)
        else:
            check_writable(chosen.out)
            todo[name] = chosen
    if todo:
        lams = ", ".join(str(chosen.lam) for chosen in todo.values())
        log.info("training %s (λ = %s)", " and ".join(todo), lams, extra=BOLD)
    several = Processes(workers) if isinstance(workers, int) else workers
    done = several.each(_train_apart, list(todo.values()))
    for _ in done if isinstance(workers, int) else track(done, "training", total=len(todo)):  # bars of their own here
        pass
    return {name: load_run(chosen.out) for name, chosen in settings.items()}


def _train_apart(settings: TrainSettings) -> None:
    """A training whose result stays in the run folder; one that was interrupted there goes on."""
    run = Run(settings.out)
    if not run.finished:  # by another worker, while nobody knew whether this one lived
        train(settings.model_copy(update={"resume": run.has("config.json")}))
