"""What is kept of an experiment: ``results/<recipe>/<seed>.json``, typed, and the texts behind its figures.

A record of this version comes with ``<seed>.parquet``, every hypothesis of every system, and with `made`, on what and
by what it was made; those of version 0.1 have neither, and say so to `fada results --check`.
"""

import importlib.metadata
import os
import platform
import subprocess
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TypeVar

from pydantic import BaseModel, JsonValue

from fada._version import __version__
from fada.common.files import with_floats, write_json
from fada.common.settings import read_json, validated
from fada.errors import FadaError
from fada.experiments.recipe import MAIN, MORE, Ours
from fada.text.characters import natural_key

Interval = tuple[float, float]
T = TypeVar("T")
_LIBRARIES = ("numpy", "numba", "torch", "transformers", "rapidfuzz", "pyarrow", "pillow", "scipy")


class _Record(BaseModel, extra="forbid"):
    """A part of what is stored; unknown keys are refused."""


class Rates(_Record):
    """Error rates in percent."""

    cer: float
    wer: float


class System(Rates):
    """Error rates of a system, and its test against the baseline, which has none itself.

    `p` is paired by line; `p_clusters` by what lines share (page, speaker): lines of a page are alike, so the first is
    too sure of itself, and the second knows nothing below a few pages.
    """

    ned: float
    interval: Interval | None = None
    per_domain: dict[str, float]
    relative: float | None = None
    difference: float | None = None
    change_interval: Interval | None = None
    p: float | None = None
    p_holm: float | None = None
    p_clusters: float | None = None


class Rival(System):
    """Another way of decoding the same emissions, with what was chosen for it on validation lines."""

    setting: str = ""
    validation: float | None = None


class Test(_Record):
    """A paired test: the CER relative to the other system in percent, p by line and by what lines share."""

    relative: float | None = None
    p: float
    p_clusters: float | None = None


class OurSystem(System):
    """A row marked *ours*: its decoder's weights, and the validation CER that they were chosen by.

    `against_continued` tests a model adapted to each domain against the one trained as long on all of them.
    """

    weights: dict[str, int | float | str] | None = None
    validation_cer: float | None = None
    against_continued: Test | None = None


class OurSystems(_Record):
    """The rows marked *ours*."""

    settings: Ours
    rows: dict[str, OurSystem]


class Point(_Record):
    """Validation CER at a value of λ, of training (with its arm) or of decoding.

    `test_cer` is kept where a recipe asks for it; nothing is chosen by it.
    """

    lam: float
    validation_cer: float
    arm: str | None = None
    test_cer: float | None = None


class Pull(_Record):
    """How hard the alignment term pulls at the network's outputs; see :mod:`fada.training.diagnostics`."""

    task_loss: float
    alignment: float
    task_gradient: float
    alignment_gradient: float
    cosine: float
    pull_at_half: float
    batches: int | None = None


class Diagnostics(_Record):
    """The pull of both distances on a finished model."""

    settings: dict[str, JsonValue] = {}
    lines: int
    sorted_w2: Pull | None = None
    aligned_w2: Pull | None = None


class Epoch(BaseModel, extra="allow"):
    """One epoch of a training: its number and the validation CER; whatever else was measured is kept."""

    epoch: float
    validation: float


class AlignedGuidance(_Record):
    """Guided decoding of ours, for models with a decoder: `validation_cer` by scale, where it was searched."""

    lam: float
    scale: float
    validation_cer: dict[str, float]
    hypotheses_changed: int


class Arm(_Record):
    """The chosen training of an arm."""

    settings: dict[str, JsonValue]
    lam_tr: float
    lam_gd: float
    validation_cer: float
    epochs: int
    best_epoch: int | None = None
    seconds: float | None = None
    parameters: int | None = None
    history: list[Epoch]
    hypotheses_changed_by_gd: int
    diagnostics: Diagnostics | None = None
    aligned_gd: AlignedGuidance | None = None


class Edits(_Record):
    """Edits of a line by the standard model and by the system shown."""

    before: int
    after: int


class Example(_Record):
    """A test line chosen by rule."""

    id: str
    domain: str | None
    reference: str
    system: str
    edits: Edits
    texts: dict[str, str]


class Ratio(_Record):
    """Time with FADA over time without."""

    ratio: float
    plain_seconds: float


class Overhead(_Record):
    """What alignment adds to a training step, and guidance to decoding."""

    rounds: int
    training: Ratio
    decoding: Ratio


class Counts(_Record):
    """Lines, and what test lines share."""

    validation: int
    test: int
    clusters: int | None = None


class Made(_Record):
    """By what, from what and on what a record was made: everything that a second machine may have otherwise.

    `data` is a fingerprint of the ids and references of the test lines; `commit` is that of the source tree, with a
    ``+`` if it had other changes, and None for an installed package.
    """

    libraries: dict[str, str]
    python: str
    commit: str | None = None
    data: str = ""
    threads: int | None = None

    @classmethod
    def now(cls, data: str = "", threads: int | None = None) -> "Made":
        libraries = {}
        for name in _LIBRARIES:
            try:
                libraries[name] = importlib.metadata.version(name)
            except importlib.metadata.PackageNotFoundError:
                continue
        return cls(libraries=libraries, python=platform.python_version(), commit=commit(), data=data, threads=threads)


class Record(_Record):
    """One seed of a recipe."""

    recipe: str
    dataset: str
    model: str
    differences: str
    published: dict[str, list[float]]
    published_relative: dict[str, float] = {}
    seed: int
    fada_version: str = __version__
    machine: dict[str, str | int | None]
    made: Made | None = None
    lines: Counts
    arms: dict[str, Arm]
    lambda_curves: dict[str, list[Point]]
    systems: dict[str, System]
    beams: dict[str, dict[str, Rates]]
    rivals: dict[str, dict[str, Rival]] = {}
    ours: OurSystems | None = None
    examples: list[Example] = []
    overhead: Overhead | None = None

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> "Record":
        """Read a file of `results/`, also of version 0.1."""
        values = read_json(path, "Restore it, or run the recipe again.")
        return validated(cls, {**values, "ours": values.get("ours") or None}, path)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write it; figures to five digits after the point, for more would be noise in a file that is committed."""
        values = self.model_dump(mode="json", exclude_none=True)
        write_json(path, with_floats(values, lambda value: round(value, 5)))

    @property
    def title(self) -> str:
        """Data set and model."""
        return f"{self.dataset}, {self.model}"


Seeds = Sequence[Record]
"""The records of one recipe, one a seed."""


def load_seeds(folder: str | os.PathLike[str]) -> list[Record]:
    """The records of one recipe's folder, by seed."""
    return [Record.load(path) for path in sorted(Path(folder).glob("*.json"), key=lambda path: natural_key(path.stem))]


def load_results(folder: str | os.PathLike[str], suffix: str = "") -> dict[str, list[Record]]:
    """The seeds of every recipe, by the recipe's name, those of the paper's tables first.

    `suffix` is ``-quick`` or ``-paper``, or empty for results of the usual size.
    """
    found = {
        path.name: load_seeds(path)
        for kind in (MAIN, MORE)
        for path in sorted(Path(folder).glob(f"{kind}-*"))
        if (path.name.endswith(suffix) if suffix else not path.name.endswith(("-quick", "-paper")))
    }
    if not any(found.values()):
        raise FadaError(f"{folder}: no results here, expected folders such as main-hpgt-crnn made by `fada reproduce`.")
    return {name: seeds for name, seeds in found.items() if seeds}


def gathered(parts: Iterable[Mapping[str, T]]) -> dict[str, list[T]]:
    """What several mappings hold under each name, in the order of first appearance."""
    found: dict[str, list[T]] = {}
    for part in parts:
        for name, value in part.items():
            found.setdefault(name, []).append(value)
    return found


def commit() -> str | None:
    """The commit of the source tree that runs, with ``+`` if it holds other changes; None outside a clone."""
    root = Path(__file__).parents[3]
    if not (root / ".git").exists():
        return None
    try:
        asked = [
            ["git", "-C", str(root), *words] for words in (("rev-parse", "HEAD"), ("status", "--porcelain", "src"))
        ]
        head, changed = (subprocess.run(words, capture_output=True, text=True, check=True).stdout for words in asked)
    except (OSError, subprocess.CalledProcessError):
        return None
    return head.strip() + ("+" if changed.strip() else "")
