"""A model made one's own: a trained recogniser, fine-tuned on a handful of corrected lines of one manuscript.

The lines are divided into folds. For each fold a copy of the model is trained on the others and reads this one, so
every line is read by a model that never saw it: that is what the adaptation is worth, and what the guard judges by. The
adapted model is the mean of the weights of the folds' models, which all start from the same place. Finished folds are
kept, so an interrupted adaptation goes on with the next one.
"""

import logging
import math
import re
import shutil
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, Field
from torch import Tensor

from fada._version import __version__
from fada.common.files import check_writable, replacing, write_json
from fada.common.say import progress_bar
from fada.common.settings import read_json
from fada.data.augment import Augment
from fada.data.line import Line
from fada.data.source import read_lines
from fada.decoding.evidence import Automatic
from fada.decoding.knowledge import DECODER, FOLDER, SUFFIX, Decoder, Knowledge, write_knowledge
from fada.decoding.search import BeamSearch
from fada.decoding.weights import Weights
from fada.distances import LAM
from fada.errors import FadaError
from fada.evaluation.scores import compare, score_lines
from fada.models import registry
from fada.models.folders import resolve
from fada.models.network import Network
from fada.targets.target_set import TargetSet
from fada.training.lines import LineDataset, tell_left_out
from fada.training.reading import read_texts

log = logging.getLogger(__name__)

FEWEST = 5
"""Lines below which there is nothing to judge an adaptation by."""
RECORD = "adapt.json"
REPLAY = "replay.parquet"
"""Lines in a model folder that the model could read before it was adapted."""
_FOLD = "fold-{}.pt"
_TYPICAL = 8.0
"""Lines after which the error usually begins to fall like a power of their number."""


class AdaptSettings(BaseModel):
    """How a model is adapted. Defaults were chosen once, on manuscripts that no result is reported on.

    See `recipes/adapt_settings.py`.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

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
        return max(self.fewest_steps, math.ceil(self.epochs * lines / self.batch_size))


@dataclass(frozen=True)
class Adaptation:
    """What an adaptation brought, measured on lines that the measured model had not seen.

    Attributes:
        lines: corrected lines it learnt from.
        before, after: CER in percent of the model as it was and as adapted.
        gain: after minus before, with its p-value.
        with_text: CER in percent as adapted, read with the knowledge and targets given; None if there were none.
        kept: whether the adapted model was kept; otherwise the old one is in the folder.
        expected: lines → CER to be expected of so many corrected lines.
        new_characters: learnt.
        next_lines: ids of unlabelled lines, those worth correcting first at the front.
        left_out: id → why a line could not be learnt from.
        replayed: lines to remember by that were shown again.
    """

    lines: int
    before: float
    after: float
    gain: float
    p_value: float
    kept: bool
    expected: dict[int, float]
    with_text: float | None = None
    new_characters: str = ""
    next_lines: list[str] = field(default_factory=list)
    left_out: dict[str, str] = field(default_factory=dict)
    replayed: int = 0
    seconds: float = 0.0


def adapt(
    model: str,
    lines: Sequence[Line],
    out: Path,
    settings: AdaptSettings | None = None,
    *,
    knowledge: Knowledge | None = None,
    targets: TargetSet | None = None,
    replay: Sequence[Line] = (),
    unlabelled: Sequence[Line] = (),
) -> Adaptation:
    """Fine-tune `model` on corrected `lines` into the model folder `out`.

    Args:
        model: a model folder, run folder, hub name or built-in model.
        lines: with text; at least 5.
        out: the adapted model; if it does not read better than the old one, the old one.
        knowledge: of the manuscript's domain, which the adapted model then carries; otherwise it carries the old one's.
        targets: frequencies that the adapted model is to be guided to (Eq. 2), which it then carries as well.
        replay: lines that the model could read before, so that it does not unlearn what the new ones lack; by default
            those in its folder (`replay.parquet`), if there are any.
        unlabelled: lines of the manuscript without text; those on which the folds' models disagree most are worth
            correcting next.

    Raises:
        FadaError: too few lines, none that can be read, or another adaptation in `out`.
    """
    settings = settings or AdaptSettings()
    started = time.monotonic()
    if len(lines) < FEWEST:
        raise FadaError(f"{len(lines)} corrected lines, expected at least {FEWEST}. Correct some more, then adapt.")
    check_writable(out)
    texts = [str(line.text) for line in lines]
    job: dict[str, Any] = {"model": model, "settings": settings.model_dump()}
    job["lines"] = [[line.id, line.text] for line in lines]
    job["knowledge"] = (
        None if knowledge is None else {**knowledge.about.model_dump(mode="json"), "is": knowledge.fingerprint()}
    )
    job["targets"] = None if targets is None else Knowledge(targets).fingerprint()
    work = _opened(out, job)
    old = registry.load_network(model)
    replay = replay or _remembered(model)
    data = LineDataset(old, lines, (), None)
    tell_left_out(data, "train")
    before = read_texts(old, data)
    waiting = LineDataset(old, unlabelled, (), None)
    tell_left_out(waiting, "unlabelled")
    folds = _folds(len(data), settings.folds, settings.seed)
    after: list[str] = [""] * len(data)
    with_text: list[str] = [""] * len(data)
    readings: list[list[str]] = []
    mean = Mean()
    adapted, decoder = old, None
    for number, held_out in enumerate(folds):
        torch.manual_seed(settings.seed)  # new characters begin alike in every fold
        adapted = registry.build(model, texts)
        chosen = [line for i, line in enumerate(data.lines) if i not in set(held_out.tolist())]
        stored = work / _FOLD.format(number)
        if stored.is_file():
            adapted.model.load_state_dict(torch.load(stored, weights_only=True))
        else:
            told = f"adapting, part {number + 1} of {len(folds)}"
            fine_tune(adapted, chosen, replay, settings, settings.seed + number, told)
            with replacing(stored) as temporary:
                torch.save(adapted.model.state_dict(), temporary)
        part = LineDataset(adapted, [data.lines[i] for i in held_out], (), None)
        for i, text in zip(held_out.tolist(), read_texts(adapted, part), strict=True):
            after[i] = text
        if knowledge is not None or targets is not None:
            decoder, read = read_knowing(adapted, part.lines, knowledge or Knowledge(), targets)
            for i, text in zip(held_out.tolist(), read, strict=True):
                with_text[i] = text
        if waiting.lines:
            readings.append(read_texts(adapted, LineDataset(adapted, waiting.lines, (), None)))
        mean.add(adapted.model.state_dict())
    mean.load_into(adapted.model)
    references = [str(line.text) for line in data.lines]
    result = _judged(references, before, after, len(folds))
    order = np.argsort(-_disagreement(readings), kind="stable")
    found = Adaptation(
        **result,
        with_text=None if decoder is None else round(score_lines(references, with_text).rates()["cer"], 2),
        new_characters="".join(sorted(set(getattr(adapted, "symbols", ())) - set(getattr(old, "symbols", ())))),
        next_lines=[waiting.lines[i].id for i in order],
        left_out=data.left_out,
        replayed=len(replay),
        seconds=round(time.monotonic() - started, 1),
    )
    _save(adapted if found.kept else old, model, knowledge, out)
    if decoder is not None and targets is not None:
        decoder.save(out)
    write_json(out / RECORD, {**job, **asdict(found), "fada_version": __version__})
    shutil.rmtree(work)
    return found


class Mean:
    """The mean of the weights of several models; what is no number with a point (counters) is that of the last."""

    def __init__(self) -> None:
        self.count = 0
        self._sums: dict[str, Tensor] = {}

    def add(self, weights: Mapping[str, Tensor]) -> None:
        """Take a model in."""
        self.count += 1
        for name, value in weights.items():
            summed = value.is_floating_point() and name in self._sums
            self._sums[name] = self._sums[name] + value.double() if summed else value.detach().clone().double()

    def load_into(self, model: torch.nn.Module) -> None:
        """Give a model the mean."""
        like = model.state_dict()
        model.load_state_dict(
            {
                name: (value / self.count if like[name].is_floating_point() else value).to(like[name].dtype)
                for name, value in self._sums.items()
            }
        )


def fine_tune(
    recognizer: Network,
    lines: Sequence[Line],
    replay: Sequence[Line],
    settings: AdaptSettings,
    seed: int,
    title: str,
) -> None:
    """Train all weights for a fixed number of steps, the rate falling to zero, the last steps on lines as they are."""
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
    with progress_bar() as progress:
        task = progress.add_task(title, total=steps)
        for step, (new, remembered) in zip(range(steps), batches, strict=False):
            recognizer.model.train()
            if step >= (1 - settings.plain) * steps:
                own.augment = old.augment = None
            items = [own[i] for i in new] + [old[i] for i in remembered]
            inputs = recognizer.to_device(own.collate(items))
            del inputs["domains"]
            loss, _ = recognizer.task_loss(recognizer.model, inputs)
            if not torch.isfinite(loss):
                raise FadaError(f"the loss is {loss.item()} at step {step + 1}. Lower the learning rate.")
            optimizer.zero_grad()
            loss.backward()
            torch.nn.utils.clip_grad_norm_(weights, 1.0)
            optimizer.step()
            falling.step()
            progress.advance(task)
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


def _folds(lines: int, folds: int, seed: int) -> list[NDArray[np.int64]]:
    """Indices of the lines that each fold holds out."""
    return np.array_split(np.random.default_rng(seed).permutation(lines), min(folds, lines))


def _judged(references: Sequence[str], before: Sequence[str], after: Sequence[str], folds: int) -> dict[str, Any]:
    """Rates before and after, whether the difference speaks for the adapted model, and what more lines would bring."""
    difference = compare(references, before, after).overall["cer"]
    first, then = difference.a, difference.b
    return {
        "lines": len(references),
        "before": round(first, 2),
        "after": round(then, 2),
        "gain": round(then - first, 2),
        "p_value": difference.p,
        "kept": then < first,
        "expected": _expected(first, then, len(references), folds),
    }


def _expected(before: float, after: float, lines: int, folds: int) -> dict[int, float]:
    """Error rates to be expected of the lines there are, twice and four times as many: a power law through two points.

    The folds' models learnt from all but a fold, so the rate after belongs to so many lines.
    """
    learnt = lines * (folds - 1) / folds
    if not 0 < after < before:
        return {}
    power = math.log(before / after) / math.log(1 + learnt / _TYPICAL)
    return {lines * more: round(before * (1 + lines * more / _TYPICAL) ** -power, 2) for more in (1, 2, 4)}


def _disagreement(readings: Sequence[Sequence[str]]) -> NDArray[np.float64]:
    """(lines,) mean distance between what two models read, as a share of the longer text."""
    from rapidfuzz.distance import Levenshtein

    pairs = [(a, b) for i, a in enumerate(readings) for b in readings[i + 1 :]]
    far = [[Levenshtein.normalized_distance(x, y) for x, y in zip(a, b, strict=True)] for a, b in pairs]
    return np.mean(far, 0) if far else np.zeros(len(readings[0]) if readings else 0)


def _opened(out: Path, job: dict[str, Any]) -> Path:
    """The folder of finished folds; one of another adaptation, and a finished model, are refused."""
    if (out / "config.json").exists() and not (out / "folds" / "job.json").exists():
        raise FadaError(f"{out} already holds a model. Choose another folder, or delete it.")
    work = out / "folds"
    work.mkdir(parents=True, exist_ok=True)
    record = work / "job.json"
    if record.exists():
        if read_json(record) != job:
            raise FadaError(
                f"{out} holds an unfinished adaptation of another kind. Choose another folder, or delete it."
            )
        log.info("an unfinished adaptation goes on in %s", out)
    else:
        write_json(record, job)
    return work


def _remembered(model: str) -> list[Line]:
    """The lines that came with a model to remember by."""
    stored = Path(resolve(model)) / REPLAY
    return list(read_lines(stored)) if stored.is_file() else []


def _save(recognizer: Network, model: str, knowledge: Knowledge | None, out: Path) -> None:
    """The model folder, with what is known: the knowledge given, or what was stored with the old model."""
    recognizer.save_pretrained(out)
    folder = Path(resolve(model))
    if (folder / REPLAY).is_file():
        shutil.copy(folder / REPLAY, out / REPLAY)
    known = out / FOLDER
    shutil.rmtree(known, ignore_errors=True)
    if (folder / FOLDER).is_dir():
        shutil.copytree(folder / FOLDER, known)
    if knowledge is not None:
        for path in known.glob(f"*{SUFFIX}"):
            path.unlink()
        known.mkdir(exist_ok=True)
        name = re.sub(r"[^\w-]+", "-", knowledge.name).strip("-") or "text"
        write_knowledge(replace(knowledge, domain_lms={}), known / f"{name}{SUFFIX}")
    elif (folder / DECODER).is_dir():
        shutil.copytree(folder / DECODER, out / DECODER, dirs_exist_ok=True)


def read_knowing(
    recognizer: Network, lines: Sequence[Line], knowledge: Knowledge, targets: TargetSet | None = None
) -> tuple[Decoder, list[str]]:
    """What a recogniser reads with knowledge at the default weights, guided to targets if there are any, and how.

    Models without emissions read without a language model.
    """
    if "lm" in recognizer.terms:
        emissions = recognizer.emit(lines)
        given = Automatic(given=knowledge).decide(emissions.alphabet, emissions.log_probs)
        decoder = Decoder(given.weights, knowledge)
        decoder = decoder if targets is None else decoder.guided_to(targets, LAM)
        return decoder, BeamSearch(emissions, decoder.knowledge).choose(decoder.weights)
    decoder = Decoder(Weights() if targets is None else Weights(lam=LAM), Knowledge(targets))
    return decoder, recognizer.search(lines, decoder.knowledge).choose(decoder.weights)
