"""Runs that are the same but for the seed, gathered for tables and reports."""

import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fada.errors import FadaError
from fada.evaluation.predictions import PREDICTIONS
from fada.evaluation.scores import Evaluation, Scoring
from fada.runs.run import Run, Training


def load_runs(folders: Iterable[str | os.PathLike[str]], scoring: Scoring | None = None) -> list[Run]:
    """Open several run folders, to be compared as `scoring` says; only ``predictions.parquet`` must be there."""
    runs = [Run(Path(folder), scoring or Scoring()) for folder in folders]
    if not runs:
        raise FadaError("no run folder given, expected at least one.")
    for run in runs:
        if not run.folder.is_dir():
            found = "a file, not a run folder" if run.folder.exists() else "no such run folder"
            raise FadaError(
                f"{run.folder}: {found}. Give the folder that fada train wrote; outputs of any kind are compared with "
                "--reference."
            )
        if not run.has(PREDICTIONS):
            raise FadaError(
                f"{run.folder / PREDICTIONS}: no such file. A report needs the predictions that training or "
                "evaluation writes."
            )
        _ = run.config, run.predictions  # a broken file is told before any work
    return runs


@dataclass(frozen=True)
class Experiment:
    """Runs that are the same but for the seed. `note` is the settings that tell it from its like, often empty."""

    runs: tuple[Run, ...]
    note: str = ""

    @property
    def dataset(self) -> str:
        return self.runs[0].dataset

    @property
    def model(self) -> str:
        """What the model is called, with the note."""
        return f"{self.runs[0].model} ({self.note})" if self.note else self.runs[0].model

    @property
    def training(self) -> Training:
        return self.runs[0].training

    def evaluations(self, guided: bool) -> list[Evaluation]:
        """One evaluation per run that has such a system, without intervals."""
        systems = [(run, run.guided_system if guided else run.plain_system) for run in self.runs]
        return [run.evaluation(system) for run, system in systems if system is not None]


def experiments(runs: Sequence[Run]) -> list[Experiment]:
    """Runs gathered by data set, model, training (standard first) and all settings but the seed, in the order given."""
    grouped: dict[Any, list[Run]] = {}
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
