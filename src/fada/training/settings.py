"""Everything that decides the outcome of a training run."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from pydantic import Field

from fada.alignment import Pool, Predicted, Schedule
from fada.common.settings import validated
from fada.data.splits import LineSources
from fada.decoding.weights import BEAM
from fada.distances import DISTANCE, LAM, SCALE
from fada.errors import FadaError
from fada.models.recognizer import Tagging
from fada.runs.run import Run

# Settings that say where files lie and how a run is executed, not what comes of it.
_FREE = {"data", "validation", "test", "out", "resume", "device", "threads", "save_steps", "encoder_cache"}


class TrainSettings(LineSources, extra="forbid", frozen=True, protected_namespaces=()):
    """Settings of one run. Unknown keys are refused."""

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

    lam: float = Field(LAM, ge=0, le=1)
    distance: str = DISTANCE
    scale: float = Field(SCALE, ge=0)
    pool: Pool = "sample"
    ngram: Literal[1, 2] = Field(1, description="What is counted: characters (the paper), or pairs of them (CTC).")
    predicted: Predicted = Field("expected", description="What the predicted distribution is made of (CTC).")
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
    hidden: float = Field(0.0, ge=0, lt=1, description="Share of each training line that is painted over, in spans.")
    dropout: float | None = Field(None, ge=0, lt=1)
    beam_size: int = Field(BEAM, ge=1)
    threads: int | None = Field(None, ge=1)
    device: Literal["auto", "cpu"] = "auto"
    save_steps: int | None = Field(None, ge=1, description="Also checkpoint every so many steps.")

    out: Path
    resume: bool = False

    @property
    def shows_gradients(self) -> bool:
        """Whether the loss can be followed back to the network's output: not if compiled or in mixed precision."""
        return self.precision == "fp32" and not self.compile

    @classmethod
    def of(cls, values: Mapping[str, Any], where: str = "settings") -> "TrainSettings":
        """Settings from a mapping; what is wrong is named."""
        return validated(cls, dict(values), where)


def settings_of(run: Run, data: Sequence[str] | None = None) -> TrainSettings:
    """The settings of a finished run; `data` is where the lines are now, if not where the run found them."""
    stored = {**run.config["settings"], "out": run.folder, **({"data": [*data]} if data else {})}
    return TrainSettings.of(stored, str(run.folder / "config.json")).found_from(run.folder)


def refuse_other_settings(settings: TrainSettings, run: Run) -> None:
    """Refuse to continue or to reuse a run that had other settings; where files lie and how it ran may differ."""
    before = settings_of(run).model_dump(exclude=_FREE)
    for name, value in settings.model_dump(exclude=_FREE).items():
        known = before[name]
        if name in ("model", "targets", "domain_from") and value and known:
            value, known = Path(value).name, Path(known).name
        if value != known:
            raise FadaError(
                f"{run.folder} holds a run with {name} = {known!r}, not {value!r}. "
                "Choose another folder, give the same settings, or delete it."
            )
