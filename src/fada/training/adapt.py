"""A model made one's own: a trained recogniser, fine-tuned on a handful of corrected lines of one manuscript.

The lines are divided into folds. For each fold a copy of the model is trained on the others and reads this one, so
every line is read by a model that never saw it: that is what the adaptation is worth, and what the guard judges by: if
there are more errors than before, beyond chance, the old model is given back. The adapted model is the mean of the
weights of the folds' models, which all start from the same place. Finished folds are kept, so an interrupted adaptation
goes on with the next one.
"""

import logging
import math
import re
import shutil
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from rapidfuzz.distance import Levenshtein
from torch import Tensor

from fada._version import __version__
from fada.common.files import check_writable, naming, write_json
from fada.common.settings import read_json
from fada.data.line import Line
from fada.data.source import read_lines
from fada.decoding.evidence import Automatic
from fada.decoding.knowledge import DECODER, FOLDER, SUFFIX, Decoder, Knowledge, write_knowledge
from fada.decoding.search import BeamSearch
from fada.decoding.weights import Weights
from fada.distances import LAM
from fada.errors import FadaError
from fada.evaluation.edits import score_lines
from fada.evaluation.scores import compare
from fada.models import registry
from fada.models.folders import resolve
from fada.models.network import Network
from fada.targets.target_set import TargetSet
from fada.training.folds import AdaptSettings, Fold, train_folds
from fada.training.lines import LineDataset, tell_left_out
from fada.training.reading import read_texts

log = logging.getLogger(__name__)

FEWEST = 5
"""Lines below which there is nothing to judge an adaptation by."""
RECORD = "adapt.json"
REPLAY = "replay.parquet"
"""Lines in a model folder that the model could read before it was adapted."""
_FOLD = "fold-{}.pt"
_JOB = "job.json"
CHANCE = 0.05
"""More errors after than before with a smaller p-value are harm, and the old model is given back."""
UNDECIDED = (2, 3)
"""In how many, of how many trials on other manuscripts in which 8 lines showed neither a gain nor harm beyond chance,
the adapted model read other pages better: `recipes/adapt_guard.py`."""
STRANGE = 60.0
"""CER in percent of the model as it was from which the texts may be those of other lines."""
_TYPICAL = 8.0
"""Lines after which the error usually begins to fall like a power of their number."""


@dataclass(frozen=True)
class Adaptation:
    """What an adaptation brought, measured on lines that the measured model had not seen.

    Attributes:
        lines: corrected lines it learnt from.
        before, after: CER in percent of the model as it was and as adapted.
        gain: after minus before, with its p-value.
        with_text: CER in percent as adapted, read with the knowledge and targets given; None if there were none.
        kept: whether the adapted model was kept; if it read worse beyond chance, the old one is in the folder.
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

    @property
    def verdict(self) -> str:
        """What a user should know of the outcome besides its figures; empty where the lines brought a gain."""
        told = []
        if self.before > STRANGE:
            told.append("The model reads these lines quite otherwise: check that each text is that of its image.")
        if not self.kept:
            told.append(
                "More errors, beyond chance: the model stays as it was. Check that the corrected lines are right."
            )
        elif self.after >= self.before:
            better, trials = UNDECIDED
            told.append(
                f"{self.lines} lines cannot tell whether that is a gain. The adapted model is kept: in {better} of "
                f"{trials} trials on other manuscripts in which 8 lines showed no gain, it read other pages better."
            )
        return " ".join(told)


class Adapting:
    """An adaptation that has begun: what its trainings need, and what becomes of them.

    Args:
        model: a model folder, run folder, hub name or built-in model.
        lines: with text; at least 5.
        out: the adapted model; if it reads worse than the old one beyond chance, the old one.
        knowledge: of the manuscript's domain, which the adapted model then carries; otherwise it carries the old one's.
        targets: frequencies that the adapted model is to be guided to (Eq. 2), which it then carries as well.
        replay: lines that the model could read before, so that it does not unlearn what the new ones lack; by default
            those in its folder (`replay.parquet`), if there are any.
        unlabelled: lines of the manuscript without text; those on which the folds' models disagree most are worth
            correcting next.

    Raises:
        FadaError: too few lines, none that can be read, or another adaptation in `out`.
    """

    def __init__(
        self,
        model: str,
        lines: Sequence[Line],
        out: Path,
        settings: AdaptSettings | None = None,
        *,
        knowledge: Knowledge | None = None,
        targets: TargetSet | None = None,
        replay: Sequence[Line] = (),
        unlabelled: Sequence[Line] = (),
    ) -> None:
        settings = settings or AdaptSettings()
        self._started = time.monotonic()
        if len(lines) < FEWEST:
            raise FadaError(f"{len(lines)} corrected lines, expected at least {FEWEST}. Correct some more, then adapt.")
        check_writable(out)
        self.model, self.out, self.knowledge, self.targets = model, out, knowledge, targets
        self._job: dict[str, Any] = {"model": model, "settings": settings.model_dump()}
        self._job["lines"] = [[line.id, line.text] for line in lines]
        self._job["knowledge"] = (
            None if knowledge is None else {**knowledge.about.model_dump(mode="json"), "is": knowledge.fingerprint()}
        )
        self._job["targets"] = None if targets is None else Knowledge(targets).fingerprint()
        self._work = _free(out, self._job)
        self._old = registry.load_network(model)
        self._replay = replay or _remembered(model)
        self._data = LineDataset(self._old, lines, (), None)
        tell_left_out(self._data, "train")
        self._waiting = LineDataset(self._old, unlabelled, (), None)
        tell_left_out(self._waiting, "unlabelled")
        self._held_out = _folds(len(self._data), settings.folds, settings.seed)
        self.folds = [
            Fold(
                model,
                [str(line.text) for line in lines],
                [line for i, line in enumerate(self._data.lines) if i not in set(part.tolist())],
                self._replay,
                settings,
                settings.seed + number,
                self._work / _FOLD.format(number),
            )
            for number, part in enumerate(self._held_out)
        ]
        write_json(self._work / _JOB, self._job)

    def train(self, processes: int | None = 1) -> None:
        """Train the folds that are not stored yet, see :func:`fada.training.folds.train_folds`.

        What cannot be trained at all leaves nothing behind.
        """
        try:
            train_folds(self.folds, processes)
        except FadaError:
            if not any(fold.stored.is_file() for fold in self.folds):
                shutil.rmtree(self._work, ignore_errors=True)
                with suppress(OSError):
                    self.out.rmdir()
            raise

    def read(self) -> "Crossed":
        """What the trained folds read, each the lines that it did not see, and their mean."""
        data, waiting, knowledge, targets = self._data, self._waiting, self.knowledge, self.targets
        after: list[str] = [""] * len(data)
        with_text: list[str] = [""] * len(data)
        readings: list[list[str]] = []
        mean = Mean()
        adapted, decoder = self._old, None
        for fold, held_out in zip(self.folds, self._held_out, strict=True):
            adapted = fold.trained()
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
        return Crossed(references, read_texts(self._old, data), after, adapted, decoder, with_text, readings)

    def finish(self) -> Adaptation:
        """Judge the trained folds by the lines that each did not see, and write the adapted model."""
        crossed = self.read()
        adapted, decoder, waiting = crossed.adapted, crossed.decoder, self._waiting
        result = _judged(crossed.references, crossed.before, crossed.after, len(self.folds))
        order = np.argsort(-_disagreement(crossed.readings), kind="stable")
        with_text = None if decoder is None else score_lines(crossed.references, crossed.with_text).rates()["cer"]
        found = Adaptation(
            **result,
            with_text=None if with_text is None else round(with_text, 2),
            new_characters="".join(
                sorted(set(getattr(adapted, "symbols", ())) - set(getattr(self._old, "symbols", ())))
            ),
            next_lines=[waiting.lines[i].id for i in order],
            left_out=self._data.left_out,
            replayed=len(self._replay),
            seconds=round(time.monotonic() - self._started, 1),
        )
        with naming(self.out):
            _save(adapted if found.kept else self._old, self.model, self.knowledge, self.out)
        if decoder is not None and self.targets is not None:
            decoder.save(self.out)
        write_json(self.out / RECORD, {**self._job, **asdict(found), "fada_version": __version__})
        shutil.rmtree(self._work)
        return found


@dataclass(frozen=True)
class Crossed:
    """What the folds of an adaptation read.

    Attributes:
        references, before, after: of every line: its text, what the old model reads, and what the fold that did not
            learn from it reads.
        adapted: the mean of the folds.
        decoder, with_text: what is read with the knowledge or targets given, and how; None if there are none.
        readings: of the unlabelled lines, by fold.
    """

    references: list[str]
    before: list[str]
    after: list[str]
    adapted: Network
    decoder: Decoder | None
    with_text: list[str]
    readings: list[list[str]]


def adapt(
    model: str, lines: Sequence[Line], out: Path, settings: AdaptSettings | None = None, **known: Any
) -> Adaptation:
    """Fine-tune `model` on corrected `lines` into the model folder `out`; takes what :class:`Adapting` takes."""
    begun = Adapting(model, lines, out, settings, **known)
    begun.train()
    return begun.finish()


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
        "kept": then <= first or difference.p >= CHANCE,
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
    pairs = [(a, b) for i, a in enumerate(readings) for b in readings[i + 1 :]]
    far = [[Levenshtein.normalized_distance(x, y) for x, y in zip(a, b, strict=True)] for a, b in pairs]
    return np.mean(far, 0) if far else np.zeros(len(readings[0]) if readings else 0)


def _free(out: Path, job: dict[str, Any]) -> Path:
    """The folder for finished folds; one of another adaptation, and a finished model, are refused."""
    work = out / "folds"
    if (out / "config.json").exists() and not (work / _JOB).exists():
        raise FadaError(f"{out} already holds a model. Choose another folder, or delete it.")
    if (work / _JOB).exists():
        if read_json(work / _JOB, f"Choose another folder, or delete {out}.") != job:
            raise FadaError(
                f"{out} holds an unfinished adaptation of another kind. Choose another folder, or delete it."
            )
        log.info("an unfinished adaptation goes on in %s", out)
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
