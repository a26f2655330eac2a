"""A run folder: everything that a training left behind, and everything needed to repeat it."""

import os
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fada.common.settings import read_json
from fada.errors import FadaError
from fada.targets.target_set import TargetSet

if TYPE_CHECKING:
    import pyarrow

    from fada.decoding.emissions import Emissions
    from fada.models.recognizer import Recognizer


@dataclass(frozen=True)
class Run:
    """A run folder, opened: ``fada.load_run("runs/x").recognizer.transcribe(lines)``."""

    folder: Path

    @cached_property
    def config(self) -> dict[str, Any]:
        """Settings, version, seed, data, licence, citation."""
        return self._json("config.json")

    @property
    def metrics(self) -> dict[str, Any]:
        """`history` per epoch, `test`, times; read anew each time, for a run that is still going."""
        return self._json("metrics.json")

    @property
    def finished(self) -> bool:
        """Whether the training came to its end."""
        return (self.folder / "metrics.json").is_file() and "seconds" in self.metrics

    @cached_property
    def targets(self) -> TargetSet:
        """The character distributions of the domains."""
        return TargetSet.load(self.folder / "targets.json")

    @cached_property
    def predictions(self) -> "pyarrow.Table":
        """One row for each line and system."""
        import pyarrow.parquet

        path = self.existing("predictions.parquet")
        try:
            return pyarrow.parquet.read_table(path)
        except pyarrow.ArrowInvalid as error:
            raise FadaError(f"{path}: not a readable parquet table ({error}). Train again into a new folder.") from None

    @cached_property
    def recognizer(self) -> "Recognizer":
        """The trained model."""
        from fada.models.registry import load_recognizer

        return load_recognizer(self.existing("model"))

    def emissions(self, split: str = "test") -> "Emissions":
        """Stored log-probabilities of `validation` or `test` (CTC models)."""
        from fada.decoding.emissions import Emissions

        return Emissions.load(self.existing(f"emissions/{split}.npz"))

    def has(self, name: str) -> bool:
        """Whether the folder has this file or folder."""
        return (self.folder / name).exists()

    def existing(self, name: str) -> Path:
        """The path of a file or folder that must be there."""
        path = self.folder / name
        if not path.exists():
            why = "the run has not finished. Continue it with --resume."
            if name != "metrics.json" and self.finished:
                why = "the run has none. It may have had no lines of that kind, or be of a model without emissions."
            raise FadaError(f"{path} does not exist: {why}")
        return path

    def _json(self, name: str) -> dict[str, Any]:
        return read_json(self.existing(name), "Train again into a new folder.")


def load_run(folder: str | os.PathLike[str]) -> Run:
    """Open a run folder."""
    folder = Path(folder)
    if not (folder / "config.json").is_file():
        raise FadaError(f"{folder}: no config.json here, expected a run folder made by `fada train`.")
    return Run(folder)
