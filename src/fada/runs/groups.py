"""What run folders hold for tables and reports: settings, history and predictions, gathered over seeds."""

import json
import os
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

from fada.common.tables import read_columns
from fada.errors import FadaError
from fada.evaluation.predictions import SCORE_COLUMNS
from fada.evaluation.scores import Evaluation, evaluate
from fada.targets.target_set import TargetSet
from fada.tuning.tuned import Tuned

Training = Literal["standard", "TR-TT", "FADA"]

_PLAIN_BEAM = re.compile(r"(beam( search)?[ _=-]?\d*|plain|standard)", re.IGNORECASE)
_PARTS_OF_A_SET = frozenset({"train", "validation", "test", "data", "lines"})
_NOT_A_SETTING = frozenset({"seed", "out", "resume", "device", "threads", "save_steps", "validation_share"})
_PREDICTION_COLUMNS = ("id", "domain", "reference", "system", "hypothesis")


@dataclass(frozen=True)
class Predictions:
    """What one system of a run read, line by line; the three score parts are None where a system has none."""

    ids: list[str]
    domains: list[str | None]
    references: list[str]
    hypotheses: list[str]
    log_prob: list[float | None]
    distance: list[float | None]
    score: list[float | None]


@dataclass(frozen=True)
class RunResults:
    """A run folder as the tables and the report see it: settings, history and predictions; the model is not loaded."""

    folder: Path
    config: dict[str, Any]
    metrics: dict[str, Any]
    predictions: dict[str, Predictions]
    targets: TargetSet | None
    tuned: Tuned | None
    options: Mapping[str, Any] = field(default_factory=dict)
    _evaluations: dict[str, Evaluation] = field(default_factory=dict, repr=False, compare=False)

    @classmethod
    def load(cls, folder: str | os.PathLike[str], **options: Any) -> "RunResults":
        """Read a run folder; only ``predictions.parquet`` must be there.

        Args:
            options: how to compare texts: `average`, `units` and `normalization` of :func:`fada.evaluate`.
        """
        folder = Path(folder)
        if not folder.is_dir():
            raise FadaError(f"{folder}: no such run folder. Give the folder that fada train wrote.")
        targets = folder / "targets.json"
        tuned = folder / "tuned.json"
        return cls(
            folder=folder,
            config=_read_json(folder / "config.json"),
            metrics=_read_json(folder / "metrics.json"),
            predictions=_read_predictions(folder / "predictions.parquet"),
            targets=TargetSet.load(targets) if targets.exists() else None,
            tuned=Tuned.load(tuned) if tuned.exists() else None,
            options=options,
        )

    @property
    def name(self) -> str:
        """The name of the folder."""
        return self.folder.resolve().name

    @property
    def validated_only(self) -> bool:
        """Whether the predictions are of the validation lines, for lack of test lines."""
        return "validation" in self.metrics and "test" not in self.metrics

    @cached_property
    def data_source(self) -> list[str]:
        """Where the lines that were reported on came from, as the configuration records it; empty if it does not."""
        reported = self.setting("validation" if self.validated_only else "test")
        found = reported or self.setting("data")
        found = [found] if isinstance(found, str) else found
        return [str(source) for source in found] if isinstance(found, list) else []

    @cached_property
    def dataset(self) -> str:
        """What the data set is called in a table: the setting `dataset`, or the name of the file or folder."""
        named = self.setting("dataset")
        if isinstance(named, str):
            return named
        sources = self.setting("data") or self.data_source
        source = sources if isinstance(sources, str) else next(iter(sources), "data")
        scheme, colon, rest = source.partition(":")
        if colon and len(scheme) > 1:  # a hub or a published set, not the drive of a path
            return rest.rsplit("/", 1)[-1] if scheme == "hub" else scheme
        path = Path(source)
        return path.parent.name if path.stem in _PARTS_OF_A_SET and path.parent.name else path.stem

    @cached_property
    def model(self) -> str:
        """What the model is called in a table."""
        name = Path(str(self.setting("model") or "model")).name
        family, _, size = name.partition(":")
        shown = {"crnn": "C-RNN", "trocr": "TrOCR", "whisper": "Whisper"}.get(family.lower(), family)
        return shown if size in ("", "base") else f"{shown} {size}"

    @cached_property
    def seed(self) -> int | None:
        """The seed of the run."""
        seed = self.setting("seed")
        return seed if isinstance(seed, int) else None

    @cached_property
    def training(self) -> Training:
        """How the model was trained: plainly (λ = 1), with a domain token, or with the alignment loss."""
        if self.setting("tagging") not in (None, False, "none"):
            return "TR-TT"
        lam, scale = self.setting("lam"), self.setting("scale")
        return "FADA" if isinstance(lam, int | float) and lam < 1 and scale != 0 else "standard"

    @cached_property
    def beam_size(self) -> int | None:
        """The beam that the run was decoded with, if recorded."""
        beam = self.setting("beam_size")
        return beam if isinstance(beam, int) else None

    @cached_property
    def plain_system(self) -> str | None:
        """The system that decodes without guidance: beam search if there is one, else best path."""
        beams = [name for name in self.predictions if _PLAIN_BEAM.fullmatch(name)]
        usual = [name for name in (f"beam{self.beam_size}", *beams, "greedy") if name in self.predictions]
        return next(iter([*usual, *(name for name in self.predictions if not is_guided(name))]), None)

    @cached_property
    def guided_system(self) -> str | None:
        """The system that decodes with guidance: one named for it alone before combinations and Eq. 2 as printed."""
        guided = [name for name in self.predictions if is_guided(name)]
        return min(guided, key=lambda name: not name.lower().startswith(("fada", "guided", "tuned")), default=None)

    @cached_property
    def variant(self) -> tuple[tuple[str, str], ...]:
        """Every setting but the seed and the places: runs with the same variant are seeds of one experiment."""
        settings = self.config.get("settings", self.config)
        flat = dict(flatten(settings if isinstance(settings, Mapping) else {}))
        return tuple(sorted((k, str(v)) for k, v in flat.items() if not _NOT_A_SETTING.intersection(k.split("."))))

    def setting(self, name: str) -> Any:
        """A value of the configuration: of its settings, or else beside them."""
        settings = self.config.get("settings")
        found = settings.get(name) if isinstance(settings, Mapping) else None
        return self.config.get(name) if found is None else found

    def evaluation(self, system: str) -> Evaluation:
        """Error rates of one system, without intervals, computed once."""
        if system not in self._evaluations:
            lines = self.predictions[system]
            self._evaluations[system] = evaluate(
                lines.references, lines.hypotheses, lines.domains, bootstrap=0, **self.options
            )
        return self._evaluations[system]


def is_guided(system: str) -> bool:
    """Whether a system of this name decodes with FADA's guidance."""
    return bool(re.search(r"fada|guided|tuned|eq\. ?2|\bgd\b", system.lower()))


def load_runs(folders: Iterable[str | os.PathLike[str]], **options: Any) -> list[RunResults]:
    """Read several run folders; `options` as in :meth:`RunResults.load`."""
    runs = [RunResults.load(folder, **options) for folder in folders]
    if not runs:
        raise FadaError("no run folder given, expected at least one.")
    return runs


def flatten(values: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Nested settings as dotted names and plain values."""
    for key, value in values.items():
        if isinstance(value, Mapping):
            yield from flatten(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value


def _read_json(path: Path) -> dict[str, Any]:
    if not path.exists():
        return {}
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise FadaError(f"{path}: not valid JSON ({error}). Restore the file or write the run again.") from None
    if not isinstance(value, dict):
        raise FadaError(f"{path}: found a {type(value).__name__}, expected an object with named values.")
    return value


def _read_predictions(path: Path) -> dict[str, Predictions]:
    if not path.exists():
        raise FadaError(f"{path}: no such file. A report needs the predictions that training or evaluation writes.")
    columns = read_columns(path)
    missing = [name for name in _PREDICTION_COLUMNS if name not in columns]
    if missing:
        raise FadaError(
            f"{path}: columns {', '.join(missing)} are missing; found {', '.join(columns)}. "
            "Expected one row per line and system."
        )
    for name in SCORE_COLUMNS:
        columns.setdefault(name, [None] * len(columns["id"]))
    rows_of: dict[str, list[int]] = {}
    for row, (system, reference) in enumerate(zip(columns["system"], columns["reference"], strict=True)):
        if reference is not None:
            rows_of.setdefault(str(system), []).append(row)
    for system, rows in rows_of.items():
        ids = [columns["id"][row] for row in rows]
        if len(set(ids)) < len(ids):
            twice = next(name for name, times in Counter(ids).items() if times > 1)
            raise FadaError(f"{path}: line {twice!r} stands twice for system {system!r}, expected one row each.")
    if not rows_of:
        raise FadaError(f"{path}: no line with a reference, so nothing can be evaluated.")

    def picked(rows: list[int], name: str, convert: Callable[[Any], Any]) -> list[Any]:
        return [None if (value := columns[name][row]) is None else convert(value) for row in rows]

    return {
        system: Predictions(
            ids=picked(rows, "id", str),
            domains=picked(rows, "domain", str),
            references=picked(rows, "reference", str),
            hypotheses=[text or "" for text in picked(rows, "hypothesis", str)],
            log_prob=picked(rows, "log_prob", float),
            distance=picked(rows, "distance", float),
            score=picked(rows, "score", float),
        )
        for system, rows in rows_of.items()
    }


@dataclass(frozen=True)
class Experiment:
    """Runs that are the same but for the seed. `note` is the settings that tell it from its like, often empty."""

    runs: tuple[RunResults, ...]
    note: str = ""

    @property
    def dataset(self) -> str:
        """What the data set is called."""
        return self.runs[0].dataset

    @property
    def model(self) -> str:
        """What the model is called, with the note."""
        return f"{self.runs[0].model} ({self.note})" if self.note else self.runs[0].model

    @property
    def training(self) -> Training:
        """How the model was trained."""
        return self.runs[0].training

    def evaluations(self, guided: bool) -> list[Evaluation]:
        """One evaluation per run that has such a system, without intervals."""
        systems = [(run, run.guided_system if guided else run.plain_system) for run in self.runs]
        return [run.evaluation(system) for run, system in systems if system is not None]


def experiments(runs: Sequence[RunResults]) -> list[Experiment]:
    """Runs gathered by data set, model, training (standard first) and all settings but the seed, in the order given."""
    grouped: dict[Any, list[RunResults]] = {}
    places = {(run.dataset, run.model): i for i, run in reversed(list(enumerate(runs)))}
    order = ("standard", "TR-TT", "FADA")
    for run in sorted(runs, key=lambda run: (places[run.dataset, run.model], order.index(run.training))):
        grouped.setdefault((run.dataset, run.model, run.training, run.variant), []).append(run)
    families: dict[Any, list[Any]] = {}
    for key in grouped:
        families.setdefault(key[:3], []).append(key)
    return [Experiment(tuple(members), _note(key, families[key[:3]])) for key, members in grouped.items()]


def _note(key: Any, family: Sequence[Any]) -> str:
    if len(family) == 1:
        return ""
    variants = [dict(other[3]) for other in family]
    differing = sorted({k for v in variants for k in v if len({other.get(k) for other in variants}) > 1})
    return ", ".join(f"{name.rsplit('.', 1)[-1]} {dict(key[3]).get(name, '–')}" for name in differing[:3])
