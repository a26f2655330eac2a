"""The paper's tables from recipes: every training resumable, every choice made on validation lines, results as JSON.

A recipe is one row of the main table: a data set and a model. Its *arms* are trainings (standard, TR-TT, FADA-TR,
ours); an arm whose ``lam`` is a list is trained once per value, and the best on the validation lines is kept. From the
emissions of the chosen runs come guided decoding, beam sizes, the λ curve, per-domain results and the rivals.
"""

import json
import os
import platform
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError

import fada
from fada.errors import FadaError
from fada.evaluation import score_lines
from fada.files import replacing, write_json, write_text
from fada.rivals import compare_rivals
from fada.runs import Run
from fada.statistics import mean_sem
from fada.study import train_all
from fada.systems import Systems, evaluate_systems
from fada.tuned import BeamSearch, Knowledge, Weights
from fada.tuning import LAMBDAS, refuse_overlap

STANDARD = "standard"
FAITHFUL = "fada-tr"
TAGGED = "tr-tt"


class Recipe(BaseModel):
    """A row of the main table. Unknown keys are refused."""

    model_config = ConfigDict(extra="forbid")

    title: str
    dataset: str
    model: str
    published: dict[str, list[float]] = Field(description="The paper's CER and WER of each arm, for comparison.")
    differences: str = Field(description="How data and model here differ from the paper's.")
    train: dict[str, Any] = Field(description="Settings of all trainings, as in `fada train`.")
    arms: dict[str, dict[str, Any]]
    seeds: list[int] = [1, 2, 3]
    beams: list[int] = [1, 5, 7]
    quick: dict[str, Any] = Field(default_factory=dict, description="Training settings of --quick.")
    paper: dict[str, Any] = Field(default_factory=dict, description="Training settings of --paper.")

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> "Recipe":
        """Read a recipe; what is wrong in it is named."""
        path = Path(path)
        try:
            values = yaml.safe_load(path.read_text(encoding="utf-8"))
        except FileNotFoundError:
            raise FadaError(f"{path}: no such recipe.") from None
        except yaml.YAMLError as error:
            raise FadaError(f"{path}: not YAML: {error}") from None
        try:
            recipe = cls.model_validate(values)
        except ValidationError as error:
            first = error.errors()[0]
            raise FadaError(f"{path}, {'.'.join(map(str, first['loc']))}: {first['msg']}.") from None
        if STANDARD not in recipe.arms:
            raise FadaError(f"{path}: no arm {STANDARD!r}, the one that the others are compared with.")
        return recipe


@dataclass(frozen=True)
class Trained:
    """One training of an arm, with its emissions."""

    arm: str
    settings: dict[str, Any]
    run: Run

    @property
    def name(self) -> str:
        """The arm, and λ if the arm has several."""
        return self.run.folder.name


def reproduce(
    recipe_file: str | os.PathLike[str],
    data: str | None = None,
    *,
    runs: str | os.PathLike[str] = "runs",
    results: str | os.PathLike[str] = "results",
    seeds: Sequence[int] | None = None,
    arms: Sequence[str] | None = None,
    quick: bool = False,
    paper: bool = False,
    jobs: int = 2,
) -> Path:
    """Train what is missing, evaluate, and write ``results/<recipe>/<seed>.json`` and ``table.md``.

    Args:
        recipe_file: a YAML file of `recipes/`.
        data: where the lines are, if not where the recipe says.
        runs, results: folders for the run folders and for what is kept of them.
        seeds, arms: only these.
        quick: the recipe's small settings: minutes on two cores, no result to publish.
        paper: the recipe's settings with the paper's models and hub data.
        jobs: trainings at a time.
    """
    recipe = Recipe.load(recipe_file)
    name = Path(recipe_file).stem + ("-quick" if quick else "-paper" if paper else "")
    chosen = {arm: recipe.arms[arm] for arm in arms or recipe.arms}
    folder = Path(results) / name
    for seed in seeds or (recipe.seeds[:1] if quick else recipe.seeds):
        trained = _train_seed(recipe, chosen, Path(runs) / name / str(seed), seed, data, quick, paper, jobs)
        write_json(folder / f"{seed}.json", evaluate_seed(recipe, seed, trained))
    found = [json.loads(path.read_text(encoding="utf-8")) for path in sorted(folder.glob("*.json"))]
    write_text(folder / "table.md", table_of(recipe, found))
    draw_curves(recipe, found, folder / "curves.png")
    return folder


def _train_seed(
    recipe: Recipe,
    arms: Mapping[str, Mapping[str, Any]],
    folder: Path,
    seed: int,
    data: str | None,
    quick: bool,
    paper: bool,
    jobs: int,
) -> list[Trained]:
    shared = {**recipe.train, **(recipe.quick if quick else recipe.paper if paper else {}), "seed": seed}
    if data is not None:
        shared["data"] = [data]
    if jobs > 1:
        shared["threads"] = 1
    todo: dict[str, dict[str, Any]] = {}
    arm_of: dict[str, str] = {}
    for arm, changes in arms.items():
        values = changes.get("lam", shared.get("lam"))
        for lam in values if isinstance(values, list) else [values]:
            name = f"{arm}-{lam:g}" if isinstance(values, list) else arm
            todo[name] = {**shared, **changes, "lam": lam, "out": folder / name}
            arm_of[name] = arm
    runs = train_all(todo, jobs)
    return [Trained(arm_of[name], todo[name], run) for name, run in runs.items()]


def evaluate_seed(recipe: Recipe, seed: int, trained: Sequence[Trained]) -> dict[str, Any]:
    """Everything the tables need of one seed; λ of TR and of GD are chosen on the validation lines."""
    beam = int(recipe.train.get("beam_size", 5))
    plain = Weights(beam=beam)
    standard = next(item for item in trained if item.arm == STANDARD)
    texts_by_domain = _training_texts(standard)
    knowledge = Knowledge.from_texts(texts_by_domain, standard.run.targets)
    searches = {
        item.name: {split: BeamSearch(item.run.emissions(split), knowledge, None) for split in ("validation", "test")}
        for item in trained
    }
    first = searches[standard.name]
    refuse_overlap(standard.run.emissions("validation"), standard.run.emissions("test"))
    errors = {item.name: _cer(searches[item.name]["validation"], plain) for item in trained}
    best = {
        arm: min((item for item in trained if item.arm == arm), key=lambda item: errors[item.name])
        for arm in dict.fromkeys(item.arm for item in trained)
    }
    systems: dict[str, list[str]] = {}
    chosen: dict[str, Any] = {}
    curves: dict[str, Any] = {
        "TR": [{"lam": item.settings["lam"], "validation_cer": errors[item.name], "arm": item.arm} for item in trained]
    }
    for arm, item in best.items():
        search = searches[item.name]
        systems[_label(arm, guided=False)] = search["test"].choose(plain)
        grid = [Weights(lam=lam, beam=beam) for lam in LAMBDAS]
        validation = {weights.lam: _cer(search["validation"], weights) for weights in grid}
        lam = min(validation, key=lambda value: (validation[value], -value))
        curves[f"GD on {arm}"] = [{"lam": value, "validation_cer": cer} for value, cer in validation.items()]
        guided = Weights(lam=lam, beam=beam)
        systems[_label(arm, guided=True)] = search["test"].choose(guided)
        chosen[arm] = {
            "settings": {k: v for k, v in item.settings.items() if k not in ("out", "data")},
            "lam_tr": item.settings["lam"],
            "lam_gd": lam,
            "validation_cer": errors[item.name],
            "epochs": len(item.run.metrics["history"]),
            "best_epoch": item.run.metrics.get("best_epoch"),
            "seconds": item.run.metrics.get("seconds"),
            "parameters": item.run.metrics.get("parameters"),
            "history": item.run.metrics["history"],
            "hypotheses_changed_by_gd": sum(
                a != b
                for a, b in zip(systems[_label(arm, guided=False)], systems[_label(arm, guided=True)], strict=True)
            ),
        }
    test = Systems(
        first["test"].ids, list(first["test"].references or ()), systems, {"domain": first["test"].domains}, "test"
    )
    result = evaluate_systems(test, _label(STANDARD, guided=False))
    beams = {
        arm: {str(width): _rates(searches[item.name]["test"], Weights(beam=width)) for width in recipe.beams}
        for arm, item in best.items()
        if arm in (STANDARD, FAITHFUL)
    }
    rivals = {
        arm: compare_rivals(
            item.run.emissions("validation"), item.run.emissions("test"), knowledge, bootstrap=200, resamples=2000
        ).to_dict()
        for arm, item in best.items()
        if arm != TAGGED
    }
    return {
        "recipe": recipe.title,
        "dataset": recipe.dataset,
        "model": recipe.model,
        "seed": seed,
        "fada_version": fada.__version__,
        "machine": {"system": platform.system(), "processor": platform.machine(), "cores": os.cpu_count()},
        "lines": {"validation": len(first["validation"].ids), "test": len(first["test"].ids)},
        "arms": chosen,
        "lambda_curves": curves,
        "systems": result.to_dict(),
        "beams": beams,
        "rivals": rivals,
    }


def _label(arm: str, guided: bool) -> str:
    """The paper's name of an arm with plain or guided decoding."""
    names = {STANDARD: ("standard", "FADA-GD"), FAITHFUL: ("FADA-TR", "FADA-TR-GD"), TAGGED: ("TR-TT", "TR-TT + GD")}
    plain, with_gd = names.get(arm, (f"{arm} (ours)", f"{arm} + GD (ours)"))
    return with_gd if guided else plain


def _training_texts(item: Trained) -> dict[str, list[str]]:
    """The training text of every domain, from the data of a run."""
    from fada.training import TrainSettings, read_splits

    splits = read_splits(TrainSettings.of({**item.settings, "out": item.run.folder}))
    texts: dict[str, list[str]] = {domain: [] for domain in item.run.targets.domains}
    for line in splits.train:
        texts.setdefault(str(line.domain), []).append(str(line.text))
    return texts


def _cer(search: BeamSearch, weights: Weights) -> float:
    return _rates(search, weights)["cer"]


def _rates(search: BeamSearch, weights: Weights) -> dict[str, float]:
    scores = score_lines(list(search.references or ()), search.choose(weights))
    return {
        "cer": 100.0 * float(scores.edits.sum()) / max(int(scores.characters.sum()), 1),
        "wer": 100.0 * float(scores.word_edits.sum()) / max(int(scores.words.sum()), 1),
    }


def table_of(recipe: Recipe, seeds: Iterable[Mapping[str, Any]]) -> str:
    """The row of the main table in Markdown: CER and WER, mean (SEM) over seeds, beside the paper's own figures."""
    seeds = list(seeds)
    names = [name for name in seeds[0]["systems"]["evaluations"] if all(_has(seed, name) for seed in seeds)]
    base = [seed["systems"]["evaluations"]["standard"]["cer"] for seed in seeds]
    rows = []
    for name in names:
        found = [seed["systems"]["evaluations"][name] for seed in seeds]
        relative = mean_sem([100 * (f["cer"] / b - 1) for f, b in zip(found, base, strict=True)])
        tests = [seed["systems"]["comparisons"].get(name, {}).get("overall", {}).get("cer") for seed in seeds]
        significant = sum(1 for test in tests if test and test["p"] < 0.05)
        cer, wer = (mean_sem([f[metric] for f in found]) for metric in ("cer", "wer"))
        told = "" if name == "standard" else f"{relative} %"
        verdict = "" if name == "standard" else f"{significant} of {len(seeds)}"
        paper = recipe.published.get(name)
        published = f"{paper[0]:.2f} / {paper[1]:.2f}" if paper else ""
        rows.append(f"| {name} | {cer} | {wer} | {told} | {verdict} | {published} |")
    return "\n".join(
        [
            f"# {recipe.title}",
            "",
            recipe.differences,
            "",
            f"{len(seeds)} seed(s), {seeds[0]['lines']['test']} test lines; mean (SEM).",
            "",
            "| system | CER % | WER % | CER relative to standard | seeds with p < 0.05 | the paper, CER / WER |",
            "|---|---|---|---|---|---|",
            *rows,
            "",
        ]
    )


def draw_curves(recipe: Recipe, seeds: Sequence[Mapping[str, Any]], path: Path) -> None:
    """Validation CER by epoch, one line per arm and seed."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(6.4, 4), layout="constrained")
    axes = figure.add_subplot()
    arms = list(dict.fromkeys(arm for seed in seeds for arm in seed["arms"]))
    for seed in seeds:
        for arm, found in seed["arms"].items():
            epochs = [entry["epoch"] for entry in found["history"]]
            errors = [entry["validation"]["cer"] for entry in found["history"]]
            first = seed is next(s for s in seeds if arm in s["arms"])
            axes.plot(epochs, errors, color=f"C{arms.index(arm)}", marker=".", label=arm if first else None)
    axes.set(title=f"{recipe.title}: validation", xlabel="epoch", ylabel="CER in percent (best path)", yscale="log")
    axes.yaxis.set_major_formatter("{x:g}")
    axes.yaxis.set_minor_formatter("{x:g}")
    axes.grid(alpha=0.3, which="both")
    axes.legend()
    with replacing(path) as temporary:
        figure.savefig(temporary, format="png", dpi=120)


def _has(seed: Mapping[str, Any], name: str) -> bool:
    return name in seed["systems"]["evaluations"]
