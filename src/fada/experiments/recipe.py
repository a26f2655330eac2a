"""A recipe: one row of the paper's main table, a data set and a model, with where its settings come from."""

import os
from pathlib import Path
from typing import TypeAlias

from pydantic import BaseModel, Field, JsonValue

from fada.common.settings import read_recipe, validated
from fada.data.synthetic.set import SyntheticSettings
from fada.decoding.weights import BEAM
from fada.errors import FadaError
from fada.tuning.grid import LAMBDAS

STANDARD = "standard"
FAITHFUL = "fada-tr"
TAGGED = "tr-tt"

MAIN = "main"
MORE = "more"
"""Beginnings of the names of recipes: rows of the paper's tables, and what answers an objection to them."""
TABLES = ("main", "ablation", "domains", "beams", "lambda", "examples", "diagnostics", "overhead", "figures")
"""Tables of the paper by name: one run of the recipes serves all of them."""


Changes: TypeAlias = dict[str, JsonValue]
"""Some settings of a training by name, as a recipe writes them; `lam` may be a list to choose from."""


class Ours(BaseModel, extra="forbid"):
    """Settings of the rows marked *ours*.

    `adapt` are the settings of a further training of the standard model: on each domain's own lines, and, to tell what
    the domain is worth from what the training is, on all lines.
    """

    lm_order: int = 7
    lm_smoothing: str = "kneser-ney"
    lm_share: float = Field(0.5, description="Weight of the domain's own model; the rest is that of all domains.")
    tuning_beam: int = 10
    beam: int = 30
    adapt: Changes | None = None


class Lines(BaseModel, extra="forbid"):
    """Where the lines of a recipe come from."""

    folder: str = Field(description="Their folder below that of --data.")
    texts: list[str] = Field([], description="Files in it with text alone: for the figures of letter frequencies.")
    synthetic: SyntheticSettings | None = Field(None, description="Settings of `fada synth` that make them.")
    how: str = Field("", description="How to get them.")


class Recipe(BaseModel, extra="forbid"):
    """A row of the main table. Unknown keys are refused."""

    title: str
    dataset: str
    model: str
    published: dict[str, list[float]] = Field(description="The paper's CER and WER of each arm, for comparison.")
    published_sem: dict[str, float] = Field({}, description="The paper's standard error of the CER of each arm.")
    published_relative: dict[str, float] = Field(
        default_factory=dict, description="The paper's change of the CER relative to standard, in percent."
    )
    differences: str = Field(description="How data and model here differ from the paper's.")
    source: Lines | None = None
    train: Changes = Field(description="Settings of all trainings, as in `fada train`.")
    arms: dict[str, Changes]
    clusters: list[str] = Field(
        [], description="Columns that together name what lines share (page, speaker): tests are paired by it, too."
    )
    every_lam: bool = Field(
        False, description="Train every λ with every seed, and keep the test CER of each, by which none is chosen."
    )
    rivals: bool = Field(True, description="Also decode the emissions of CTC models in the other ways there are.")
    seeds: list[int] = [1, 2, 3]
    beams: list[int] = [1, 5, 7]
    guided_lams: list[float] = Field(list(LAMBDAS), description="λ of guided decoding that are tried on validation.")
    guided_scales: list[float] = Field([1.0], description="Scales of the *ours* guided row of decoders.")
    ours: Ours | None = None
    overhead_rounds: int = Field(9, description="Pairs of measurements of the overhead.")
    diagnosed_lines: int = Field(64, description="Validation lines on which the pull of the alignment is measured.")
    quick: Changes = Field({}, description="Training settings of --quick.")
    paper: Changes = Field({}, description="Training settings of --paper.")

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> "Recipe":
        """Read a recipe; what is wrong in it is named."""
        recipe = validated(cls, read_recipe(path), path)
        if STANDARD not in recipe.arms:
            raise FadaError(f"{path}: no arm {STANDARD!r}, the one that the others are compared with.")
        return recipe

    def smaller(self) -> "Recipe":
        """With fewer values of what is tried: the path of --quick."""
        train = {**self.train, **self.quick}
        beam = train.get("beam_size", BEAM)
        few = {"train": train, "guided_lams": self.guided_lams[:2], "beams": [1] if beam == 1 else [1, beam]}
        adapt = self.ours and self.ours.adapt and {**self.ours.adapt, "epochs": 1}
        ours = self.ours and self.ours.model_copy(update={"adapt": adapt})
        less = {"guided_scales": self.guided_scales[:1], "overhead_rounds": 3, "diagnosed_lines": 8}
        return self.model_copy(update={**few, **less, "ours": ours})


def recipes_of(name: str, folder: str | os.PathLike[str] = "recipes") -> list[Path]:
    """The recipe files of a table, or the one file that `name` is."""
    if name in (*TABLES, MORE):
        pattern = f"{MORE if name == MORE else MAIN}-*.yaml"
        found = sorted(Path(folder).glob(pattern))
        if not found:
            raise FadaError(f"{folder}: no recipes {pattern} here. Run this in a copy of the repository.")
        return found
    if not Path(name).is_file():
        raise FadaError(f"{name}: no such recipe, and no table of this name. Tables: {', '.join(TABLES)}.")
    return [Path(name)]


def label(arm: str, guided: bool) -> str:
    """The paper's name of an arm with plain or guided decoding."""
    names = {STANDARD: ("standard", "FADA-GD"), FAITHFUL: ("FADA-TR", "FADA-TR-GD"), TAGGED: ("TR-TT", "TR-TT + GD")}
    if arm.startswith(f"{FAITHFUL}-"):  # another reading of the same sentence of the paper
        return f"{label(FAITHFUL, guided)} ({arm.removeprefix(f'{FAITHFUL}-')})"
    plain, with_gd = names.get(arm, (f"{arm} (ours)", f"{arm} + GD (ours)"))
    return with_gd if guided else plain
