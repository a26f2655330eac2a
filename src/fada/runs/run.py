"""A run folder: everything that a training left behind, everything needed to repeat it, and what was found since."""

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from fada.common.settings import read_json
from fada.data.columns import LineColumns
from fada.data.line import Line
from fada.data.splits import LineSources, Splits
from fada.decoding.emissions import Emissions
from fada.decoding.hypothesis import Hypothesis
from fada.decoding.knowledge import Knowledge
from fada.decoding.search import BeamSearch, Search, Stored
from fada.decoding.weights import Weights
from fada.errors import FadaError
from fada.evaluation.predictions import PREDICTIONS, Predictions, Systems, is_plain_beam
from fada.evaluation.scores import Evaluation, Scoring, evaluate
from fada.evaluation.sources import read_systems
from fada.targets.target_set import TargetSet
from fada.tuning.decode import TUNED, predictions_of
from fada.tuning.overlap import refuse_seen
from fada.tuning.tuned import Tuned

if TYPE_CHECKING:
    from fada.models.network import Network
    from fada.models.recognizer import Recognizer

Split = Literal["train", "validation", "test"]
Training = Literal["standard", "TR-TT", "FADA"]

DECODINGS = "decodings"
_PARTS_OF_A_SET = frozenset({"train", "validation", "test", "data", "lines"})
_NOT_A_SETTING = frozenset({"seed", "out", "resume", "device", "threads", "save_steps", "validation_share"})


@dataclass(frozen=True)
class Run:
    """A run folder, opened: ``fada.load_run("runs/x").recognizer.transcribe(lines)``. Files are read when asked for.

    Attributes:
        folder: as ``fada train`` wrote it.
        scoring: how to compare texts.
        data: where the lines are now, if they have moved.
    """

    folder: Path
    scoring: Scoring = field(default_factory=Scoring)
    data: str | os.PathLike[str] | None = None
    _evaluations: dict[str, Evaluation] = field(default_factory=dict, repr=False, compare=False)

    # ------------------------------------------------------------------------------------------------ what was stored

    @cached_property
    def config(self) -> dict[str, Any]:
        """Settings, version, seed, data, licence, citation; empty if they are not recorded."""
        return self._json("config.json")

    @property
    def metrics(self) -> dict[str, Any]:
        """`history` per epoch, `test`, times; read anew each time, for a run that is still going."""
        return self._json("metrics.json")

    @property
    def finished(self) -> bool:
        """Whether the training came to its end."""
        return "seconds" in self.metrics

    @cached_property
    def targets(self) -> TargetSet:
        """The character distributions of the domains."""
        return TargetSet.load(self.existing("targets.json"))

    @cached_property
    def knowledge(self) -> Knowledge:
        """What the run itself knows: its targets, or nothing."""
        return Knowledge(self.targets, self.targets.overall) if self.has("targets.json") else Knowledge()

    @cached_property
    def tuned(self) -> Tuned | None:
        """The weights that ``fada tune`` found, if it was run."""
        return Tuned.load(self.folder / "tuned.json") if self.has("tuned.json") else None

    @cached_property
    def predictions(self) -> Systems:
        """What every system read of the test lines (of the validation lines, if there were none)."""
        return read_systems(self.existing(PREDICTIONS))

    @cached_property
    def recognizer(self) -> "Recognizer":
        """The trained model, to read with."""
        from fada.models.registry import load_recognizer

        return load_recognizer(self.existing("model"))

    @cached_property
    def network(self) -> "Network":
        """The trained model as torch runs it, to train on or to look into."""
        from fada.models.registry import load_network

        return load_network(self.existing("model"))

    def emissions(self, split: Split = "test") -> Emissions:
        """Stored log-probabilities of `validation` or `test` (CTC models)."""
        return Emissions.load(self.existing(f"emissions/{split}.npz"))

    # -------------------------------------------------------------------------------------------- lines and searching

    @cached_property
    def splits(self) -> Splits:
        """The lines that the run was made of, read again."""
        return LineSources.of_run(self.config.get("settings", {}), self.folder, self.data).read()

    def lines(self, split: Split) -> list[Line]:
        """The lines of a split that could be read when the run was made."""
        left_out = self.config.get("left_out", {}).get(split, {})
        return [line for line in getattr(self.splits, split) if line.id not in left_out]

    def search(self, split: Split, knowledge: Knowledge | None = None, threads: int | None = None) -> Search:
        """A search over the lines of a split: of the stored emissions, or by the model, with what it found kept."""
        knowledge = knowledge or self.knowledge
        if self.has(f"emissions/{split}.npz"):
            return BeamSearch(self.emissions(split), knowledge, threads)
        recognizer = self.recognizer
        if self.setting("freeze") == "encoder":
            recognizer.freeze_encoder()  # with the rounding and the stored states that training had
        search = recognizer.search(self.lines(split), knowledge, cache=self.setting("encoder_cache"))
        return Stored(search, self.folder / DECODINGS / split)

    @property
    def reported(self) -> Split:
        """The split that the predictions are of: validation, where there were no test lines."""
        return "validation" if "validation" in self.metrics and "test" not in self.metrics else "test"

    def add_system(
        self, name: str, weights: Weights, hypotheses: Sequence[Hypothesis], lines: LineColumns, **about: Any
    ) -> None:
        """Put one more decoding of the reported lines into the predictions, in place of one of the same name."""
        new = predictions_of(name, lines, weights, hypotheses, **about)
        Systems.adding(self.predictions, new).save(self.folder / PREDICTIONS)
        self.__dict__.pop("predictions", None)
        self._evaluations.pop(name, None)

    def add_tuned(self, tuned: Tuned, search: Search) -> None:
        """Put the decoding of the reported lines with tuned weights into the predictions."""
        refuse_seen(tuned, search, self.folder)
        self.add_system(TUNED, tuned.weights, search.hypotheses(tuned.weights), search.lines, tuned=True)

    # ---------------------------------------------------------------------------------- as tables and reports see it

    @property
    def name(self) -> str:
        return self.folder.resolve().name

    @cached_property
    def data_source(self) -> list[str]:
        """Where the lines that were reported on came from, as the configuration records it; empty if it does not."""
        found = self.setting(self.reported) or self.setting("data")
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

    @property
    def seed(self) -> int | None:
        seed = self.setting("seed")
        return seed if isinstance(seed, int) else None

    @property
    def training(self) -> Training:
        """How the model was trained: plainly (λ = 1), with a domain token, or with the alignment loss."""
        if self.setting("tagging") not in (None, False, "none"):
            return "TR-TT"
        lam, scale = self.setting("lam"), self.setting("scale")
        return "FADA" if isinstance(lam, int | float) and lam < 1 and scale != 0 else "standard"

    @property
    def beam_size(self) -> int | None:
        """The beam that the run was decoded with, if recorded."""
        beam = self.setting("beam_size")
        return beam if isinstance(beam, int) else None

    @cached_property
    def plain_system(self) -> str | None:
        """The system that decodes without guidance: beam search if there is one, else best path."""
        systems = self.predictions
        beams = [name for name, found in systems.items() if is_plain_beam(name, found.settings)]
        usual = [name for name in (f"beam{self.beam_size}", *beams, "greedy") if name in systems]
        return next(iter([*usual, *(name for name, found in systems.items() if not found.guided)]), None)

    @cached_property
    def guided_system(self) -> str | None:
        """The system that decodes with guidance: one named for it alone before combinations and Eq. 2 as printed."""
        guided = [name for name, found in self.predictions.items() if found.guided]
        return min(guided, key=lambda name: not name.lower().startswith(("fada", "guided", "tuned")), default=None)

    @property
    def tuned_system(self) -> str | None:
        """The system whose weights were tuned, if there is one."""
        return next((name for name, found in self.predictions.items() if found.settings.get("tuned")), None)

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
            lines: Predictions = self.predictions[system]
            self._evaluations[system] = evaluate(
                lines.references, lines.hypotheses, lines.domains, bootstrap=0, **self.scoring.rate_options
            )
        return self._evaluations[system]

    # -------------------------------------------------------------------------------------------------------- files

    def has(self, name: str) -> bool:
        """Whether the folder has this file or folder."""
        return (self.folder / name).exists()

    def existing(self, name: str) -> Path:
        """The path of a file or folder that must be there."""
        path = self.folder / name
        if not path.exists():
            if not self.has("config.json"):
                raise _no_run(self.folder)
            why = "the run has not finished. Continue it with --resume."
            if self.finished:
                why = "the run has none. It may have had no lines of that kind, or be of a model without emissions."
            raise FadaError(f"{path} does not exist: {why}")
        return path

    def _json(self, name: str) -> dict[str, Any]:
        path = self.folder / name
        found = read_json(path, "Train again into a new folder.") if path.exists() else {}
        if not isinstance(found, dict):
            raise FadaError(f"{path}: found a {type(found).__name__}, expected an object with named values.")
        return found


def load_run(folder: str | os.PathLike[str], data: str | os.PathLike[str] | None = None) -> Run:
    """Open a run folder; `data` is where its lines are now, if they have moved."""
    folder = Path(folder)
    if not (folder / "config.json").is_file():
        raise _no_run(folder)
    return Run(folder, data=data)


def _no_run(folder: Path) -> FadaError:
    return FadaError(f"{folder}: no config.json here, expected a run folder made by `fada train`.")


def flatten(values: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Nested settings as dotted names and plain values."""
    for key, value in values.items():
        if isinstance(value, Mapping):
            yield from flatten(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value
