"""The paper's tables from recipes: every training resumable, every choice made on validation lines, results as JSON.

A recipe is one row of the main table: a data set and a model. Its *arms* are trainings (standard, TR-TT, FADA-TR,
ours); an arm whose ``lam`` is a list is trained once per value with the first seed, the value that is best on the
validation lines is kept, and the other seeds use it. From the chosen runs come guided decoding, beam sizes, the λ
curves, the results per domain, the rivals, and the rows marked *ours*.
"""

import json
import os
import platform
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel, ConfigDict, Field

from fada._version import __version__
from fada.common.files import write_json, write_text
from fada.common.settings import read_recipe, validated
from fada.decoding.knowledge import Knowledge
from fada.decoding.search import BeamSearch
from fada.decoding.weights import Weights
from fada.errors import FadaError
from fada.evaluation.predictions import Systems, evaluate_systems
from fada.evaluation.scores import score_lines
from fada.experiments.ours import Ours, adapted, continued, our_texts, split_of
from fada.experiments.study import train_all
from fada.runs.run import Run
from fada.targets.figures import analyze
from fada.targets.target_set import TargetSet
from fada.text.normalizer import TextNormalizer
from fada.tuning.grid import LAMBDAS, Reading, refuse_overlap
from fada.tuning.rivals import BEAM, compare_rivals

if TYPE_CHECKING:
    from fada.training.lines import Splits

STANDARD = "standard"
FAITHFUL = "fada-tr"
TAGGED = "tr-tt"
CLUSTER = "cluster"

MAIN = "main-*.yaml"
TABLES = {
    "main": MAIN,
    "ablation": MAIN,
    "domains": MAIN,
    "beams": MAIN,
    "lambda": MAIN,
    "examples": MAIN,
    "diagnostics": MAIN,
    "overhead": MAIN,
    "figures": MAIN,
}
"""Tables of the paper by name, and the recipes that they are made from: one run of a recipe serves all of them."""


class Recipe(BaseModel):
    """A row of the main table. Unknown keys are refused."""

    model_config = ConfigDict(extra="forbid")

    title: str
    dataset: str
    model: str
    published: dict[str, list[float]] = Field(description="The paper's CER and WER of each arm, for comparison.")
    published_relative: dict[str, float] = Field(
        default_factory=dict, description="The paper's change of the CER relative to standard, in percent."
    )
    differences: str = Field(description="How data and model here differ from the paper's.")
    train: dict[str, Any] = Field(description="Settings of all trainings, as in `fada train`.")
    arms: dict[str, dict[str, Any]]
    clusters: list[str] = Field(
        [], description="Columns that together name what lines share (page, speaker): tests are paired by it, too."
    )
    seeds: list[int] = [1, 2, 3]
    beams: list[int] = [1, 5, 7]
    guided_lams: list[float] = Field(list(LAMBDAS), description="λ of guided decoding that are tried on validation.")
    guided_scales: list[float] = Field([1.0], description="Scales of the *ours* guided row of decoders.")
    ours: Ours | None = None
    quick: dict[str, Any] = Field(default_factory=dict, description="Training settings of --quick.")
    paper: dict[str, Any] = Field(default_factory=dict, description="Training settings of --paper.")

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> "Recipe":
        """Read a recipe; what is wrong in it is named."""
        recipe = validated(cls, read_recipe(path), path)
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


def recipes_of(name: str, folder: str | os.PathLike[str] = "recipes") -> list[Path]:
    """The recipe files of a table, or the one file that `name` is."""
    if name in TABLES:
        found = sorted(Path(folder).glob(TABLES[name]))
        if not found:
            raise FadaError(f"{folder}: no recipes {TABLES[name]} here. Run this in a copy of the repository.")
        return found
    if not Path(name).is_file():
        raise FadaError(f"{name}: no such recipe, and no table of this name. Tables: {', '.join(TABLES)}.")
    return [Path(name)]


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
        seeds: only these.
        arms: train only these; whatever else is finished is evaluated with them.
        quick: the recipe's small settings: minutes on two cores, no result to publish.
        paper: the recipe's settings with the paper's models and hub data.
        jobs: trainings at a time.
    """
    from fada.experiments.document import draw_curves, table_of

    recipe = Recipe.load(recipe_file)
    for arm in arms or ():
        if arm not in recipe.arms:
            raise FadaError(f"{recipe_file}: no arm {arm!r}, expected one of {', '.join(recipe.arms)}.")
    name = Path(recipe_file).stem + ("-quick" if quick else "-paper" if paper else "")
    folder = Path(results) / name
    shared = {**recipe.train, **(recipe.quick if quick else recipe.paper if paper else {})}
    if data is not None:
        shared["data"] = [data]
    if jobs > 1:
        shared["threads"] = 1
    for seed in seeds or (recipe.seeds[:1] if quick else recipe.seeds):
        chosen = _chosen_before(recipe, folder, seed)
        planned = _trainings(recipe, {**shared, "seed": seed}, Path(runs) / name / str(seed), chosen)
        asked = {
            item: values
            for item, (arm, values) in planned.items()
            if not arms or arm in arms or Run(values["out"]).finished
        }
        trained = [Trained(planned[item][0], asked[item], run) for item, run in train_all(asked, jobs).items()]
        write_json(folder / f"{seed}.json", _rounded(evaluate_seed(recipe, seed, trained, chosen)))
    found = [json.loads(path.read_text(encoding="utf-8")) for path in sorted(folder.glob("*.json"))]
    write_text(folder / "table.md", table_of(recipe, found))
    draw_curves(recipe, found, folder / "curves.png")
    _draw_frequencies(trained[0], folder / "figures")
    return folder


def _draw_frequencies(item: Trained, folder: Path) -> None:
    """The paper's figures of a data set: letter frequencies, correlations and trends of the training text."""
    texts = {domain: lines for domain, lines in training_texts(item).items() if lines}
    analyze(TargetSet.from_texts(texts, normalizer=TextNormalizer(letters_only=True)), folder, formats=["png"])


def _chosen_before(recipe: Recipe, folder: Path, seed: int) -> dict[str, Any]:
    """The arms of the first seed's result, whose choices hold for the other seeds."""
    first = folder / f"{recipe.seeds[0]}.json"
    if seed == recipe.seeds[0] or not first.is_file():
        return {}
    return json.loads(first.read_text(encoding="utf-8"))["arms"]


def _trainings(
    recipe: Recipe, shared: Mapping[str, Any], folder: Path, chosen: Mapping[str, Any]
) -> dict[str, tuple[str, dict[str, Any]]]:
    """Name, arm and settings of every training of one seed."""
    planned: dict[str, tuple[str, dict[str, Any]]] = {}
    for arm, changes in recipe.arms.items():
        values = changes.get("lam", shared.get("lam"))
        searched = isinstance(values, list)
        for lam in values if isinstance(values, list) else [values]:
            name = f"{arm}-{lam:g}" if searched else arm
            if not searched or arm not in chosen or chosen[arm]["lam_tr"] == lam:
                planned[name] = (arm, {**shared, **changes, "lam": lam, "out": folder / name})
    return planned


def evaluate_seed(recipe: Recipe, seed: int, trained: Sequence[Trained], chosen: Mapping[str, Any]) -> dict[str, Any]:
    """Everything the tables need of one seed; λ of TR and of GD are chosen on the validation lines.

    `chosen` are the arms of the first seed's result, for the others: their guidance takes long to choose for models
    with a decoder.
    """
    if STANDARD not in {item.arm for item in trained}:
        raise FadaError(f"seed {seed}: the arm {STANDARD!r} is not trained yet; the others are compared with it.")
    if (trained[0].run.folder / "emissions").is_dir():
        found = _evaluate_emissions(recipe, trained)
    else:
        from fada.experiments.reproduce_seq2seq import evaluate_decoders

        found = evaluate_decoders(recipe, trained, chosen)
    if seed == recipe.seeds[0]:
        standard = next(item for item in trained if item.arm == STANDARD)
        found["overhead"] = _overhead_of(standard)
    return {
        "recipe": recipe.title,
        "dataset": recipe.dataset,
        "model": recipe.model,
        "differences": recipe.differences.strip(),
        "published": recipe.published,
        "published_relative": recipe.published_relative,
        "seed": seed,
        "fada_version": __version__,
        "machine": {"system": platform.system(), "processor": platform.machine(), "cores": os.cpu_count()},
        **found,
    }


def _overhead_of(item: Trained) -> dict[str, Any]:
    """Measured once for a run, and kept in its folder."""
    from fada.experiments.overhead import measure_overhead

    path = item.run.folder / "overhead.json"
    if not path.exists():
        write_json(path, measure_overhead(item.run.folder, data=item.settings["data"]))
    return json.loads(path.read_text(encoding="utf-8"))


def _evaluate_emissions(recipe: Recipe, trained: Sequence[Trained]) -> dict[str, Any]:
    beam = int(recipe.train.get("beam_size", 5))
    plain = Weights(beam=beam)
    standard = next(item for item in trained if item.arm == STANDARD)
    texts = training_texts(standard)
    knowledge = Knowledge.from_texts(texts, standard.run.targets)
    searches = {
        item.name: {split: BeamSearch(item.run.emissions(split), knowledge, None) for split in ("validation", "test")}
        for item in trained
    }
    refuse_overlap(standard.run.emissions("validation"), standard.run.emissions("test"))
    errors = {item.name: rates(searches[item.name]["validation"], plain)["cer"] for item in trained}
    best = best_of_arms(trained, errors)
    grid = [Weights(lam=lam, beam=beam) for lam in recipe.guided_lams]
    systems: dict[str, list[str]] = {}
    arms: dict[str, Any] = {}
    curves = training_curve(trained, errors)
    for arm, item in best.items():
        search = searches[item.name]
        validation = {weights.lam: rates(search["validation"], weights)["cer"] for weights in grid}
        lam = min(validation, key=lambda value: (validation[value], -value))
        curves[f"GD on {arm}"] = [{"lam": value, "validation_cer": cer} for value, cer in validation.items()]
        systems[label(arm, guided=False)] = search["test"].choose(plain)
        systems[label(arm, guided=True)] = search["test"].choose(Weights(lam=lam, beam=beam))
        arms[arm] = arm_record(item, errors[item.name], lam, systems)
    first = searches[standard.name]["test"]
    columns: dict[str, list[str | None]] = {"domain": first.domains, **clusters_of(recipe, standard, first.ids)}
    test = Systems(first.ids, list(first.references or ()), systems, columns, "test")
    beams = {
        arm: {str(width): rates(searches[item.name]["test"], Weights(beam=width)) for width in recipe.beams}
        for arm, item in best.items()
        if arm in (STANDARD, FAITHFUL)
    }
    rivals = {}
    for arm, item in best.items():
        if arm != TAGGED:
            table = compare_rivals(*split_of(item.run), knowledge, bootstrap=0, resamples=0)
            decoded = Systems(test.ids, test.references, table.systems.systems, columns, "test")
            rivals[arm] = {
                name: {"setting": table.rivals[name].setting, "validation": table.rivals[name].validation, **row}
                for name, row in scored(decoded, BEAM, bootstrap=200, resamples=2000).items()
            }
    return {
        "lines": {"validation": len(searches[standard.name]["validation"].ids), **counted(test)},
        "arms": arms,
        "lambda_curves": curves,
        "systems": scored(test, label(STANDARD, guided=False)),
        "beams": beams,
        "rivals": rivals,
        "ours": {} if recipe.ours is None else _our_rows(recipe.ours, test, best, texts),
        "examples": examples(test),
    }


def _our_rows(
    ours: Ours, test: Systems, best: Mapping[str, Trained], texts: Mapping[str, Sequence[str]]
) -> dict[str, Any]:
    """The rows marked *ours*, all against plain beam search of the standard model."""
    standard = best[STANDARD]
    knowledge = Knowledge.from_texts(
        texts, standard.run.targets, order=ours.lm_order, share=ours.lm_share, smoothing=ours.lm_smoothing
    )
    arms = {arm: split_of(item.run) for arm, item in best.items() if arm != TAGGED}
    if ours.adapt is not None:
        splits = read_splits_of(standard)
        lines = {"train": splits.train, "validation": splits.validation, "test": splits.test}
        kept = {name: value for name, value in standard.settings.items() if name in ("seed", "threads")}
        further = {**ours.adapt, **kept, "model": str(standard.run.folder), "lam": 1.0}
        folder = standard.run.folder.parent
        arms["continued"] = continued({**standard.settings, **further, "out": folder / "continued"})
        arms["adapted"] = adapted(lines, further, folder / "adapted")
    base = label(STANDARD, guided=False)
    decoded, settings = our_texts(ours, arms, knowledge)
    systems = Systems(test.ids, test.references, {base: test.systems[base], **decoded}, test.columns, "test")
    rows = scored(systems, base, bootstrap=200)
    return {
        "settings": ours.model_dump(),
        "rows": {name: {**settings.get(name, {}), **row} for name, row in rows.items()},
    }


def clusters_of(recipe: Recipe, item: Trained, ids: Sequence[str]) -> dict[str, list[str | None]]:
    """The column `cluster` of the test lines: the recipe's `clusters`, joined; no column if it names none."""
    if not recipe.clusters:
        return {}
    shared = {
        line.id: "/".join(str(line.extra.get(column, "")) for column in recipe.clusters)
        for line in read_splits_of(item).test
    }
    return {CLUSTER: [shared[line] for line in ids]}


def counted(test: Systems) -> dict[str, int]:
    """Test lines, and the clusters they come from."""
    clusters = {"clusters": len(set(test.column(CLUSTER)))} if CLUSTER in test.columns else {}
    return {"test": len(test), **clusters}


def scored(systems: Systems, baseline: str, *, bootstrap: int = 1000, resamples: int = 10_000) -> dict[str, Any]:
    """What tables show of every system: error rates, per domain, and the tests against the baseline.

    The test is paired by line (``p``) and, where there is a column for it, by cluster (``p_clusters``): lines of a page
    are alike, so the first is too sure of itself, and the second knows nothing below a few pages.
    """
    result = evaluate_systems(systems, baseline, bootstrap=bootstrap, resamples=resamples)
    by_cluster = None
    if CLUSTER in systems.columns:
        by_cluster = evaluate_systems(systems, baseline, clusters=CLUSTER, bootstrap=0, resamples=resamples)
    rows: dict[str, Any] = {}
    for name, evaluation in result.evaluations.items():
        row: dict[str, Any] = {
            "cer": evaluation.cer,
            "wer": evaluation.wer,
            "ned": evaluation.ned,
            "interval": evaluation.intervals.get("cer"),
            "per_domain": {domain: scores.cer for domain, scores in evaluation.per_domain.items()},
        }
        if name in result.comparisons:
            test = result.comparisons[name].overall["cer"]
            row |= {"relative": test.relative, "difference": test.difference, "change_interval": test.interval}
            row |= {"p": test.p, "p_holm": result.p_holm[name]}
            if by_cluster is not None:
                row["p_clusters"] = by_cluster.comparisons[name].overall["cer"].p
        rows[name] = row
    return rows


def examples(test: Systems, each: int = 2) -> list[dict[str, Any]]:
    """Lines chosen by rule: those that FADA-TR-GD improves most, and those that it harms most, ties by id.

    Without that arm, guided decoding of the standard model is shown.
    """
    base, names = label(STANDARD, guided=False), [label(FAITHFUL, guided=True), label(STANDARD, guided=True)]
    system = next(name for name in names if name in test.systems)
    before = score_lines(test.references, test.systems[base]).edits
    after = score_lines(test.references, test.systems[system]).edits
    order = sorted(range(len(test)), key=lambda i: (int(after[i]) - int(before[i]), test.ids[i]))
    chosen = [i for i in order[:each] if after[i] < before[i]] + [i for i in order[::-1][:each] if after[i] > before[i]]
    shown = [
        name
        for name in (base, label(STANDARD, guided=True), label(FAITHFUL, guided=False), system)
        if name in test.systems
    ]
    domains = test.domains or [None] * len(test)
    return [
        {
            "id": test.ids[i],
            "domain": domains[i],
            "reference": test.references[i],
            "system": system,
            "edits": {"before": int(before[i]), "after": int(after[i])},
            "texts": {name: test.systems[name][i] for name in dict.fromkeys(shown)},
        }
        for i in chosen
    ]


def best_of_arms(trained: Sequence[Trained], errors: Mapping[str, float]) -> dict[str, Trained]:
    """The training of each arm with the lowest validation CER."""
    return {
        arm: min((item for item in trained if item.arm == arm), key=lambda item: errors[item.name])
        for arm in dict.fromkeys(item.arm for item in trained)
    }


def training_curve(trained: Sequence[Trained], errors: Mapping[str, float]) -> dict[str, Any]:
    """Validation CER of every training by its λ."""
    points = [{"lam": item.settings["lam"], "validation_cer": errors[item.name], "arm": item.arm} for item in trained]
    return {"TR": points}


def arm_record(
    item: Trained, validation_cer: float, lam_gd: float, systems: Mapping[str, Sequence[str]]
) -> dict[str, Any]:
    """What is kept of an arm's best training."""
    from fada.training.diagnostics import alignment_diagnostics

    plain, guided = (systems[label(item.arm, guided=value)] for value in (False, True))
    metrics = item.run.metrics
    return {
        "settings": {k: v for k, v in item.settings.items() if k not in ("out", "data")},
        "lam_tr": item.settings["lam"],
        "lam_gd": lam_gd,
        "validation_cer": validation_cer,
        "epochs": len(metrics["history"]),
        "best_epoch": metrics.get("best_epoch"),
        "seconds": metrics.get("seconds"),
        "parameters": metrics.get("parameters"),
        "history": [{**entry, "validation": entry["validation"]["cer"]} for entry in metrics["history"]],
        "hypotheses_changed_by_gd": sum(a != b for a, b in zip(plain, guided, strict=True)),
        "diagnostics": alignment_diagnostics(item.run.folder, data=item.settings["data"]),
    }


def label(arm: str, guided: bool) -> str:
    """The paper's name of an arm with plain or guided decoding."""
    names = {STANDARD: ("standard", "FADA-GD"), FAITHFUL: ("FADA-TR", "FADA-TR-GD"), TAGGED: ("TR-TT", "TR-TT + GD")}
    plain, with_gd = names.get(arm, (f"{arm} (ours)", f"{arm} + GD (ours)"))
    return with_gd if guided else plain


def read_splits_of(item: Trained) -> "Splits":
    """The lines that a run was trained and tested on."""
    from fada.training.train import TrainSettings, read_splits

    return read_splits(TrainSettings.of({**item.settings, "out": item.run.folder}))


def training_texts(item: Trained) -> dict[str, list[str]]:
    """The training text of every domain, from the data of a run."""
    return {**{domain: [] for domain in item.run.targets.domains}, **read_splits_of(item).training_texts()}


def rates(search: Reading, weights: Weights) -> dict[str, float]:
    """CER and WER in percent of a decoding."""
    found = score_lines(list(search.references or ()), search.choose(weights)).rates()
    return {"cer": found["cer"], "wer": found["wer"]}


def _rounded(value: Any) -> Any:
    """Figures to five digits after the point: more would be noise in a file that is committed."""
    if isinstance(value, float):
        return round(value, 5)
    if isinstance(value, Mapping):
        return {key: _rounded(item) for key, item in value.items()}
    return [_rounded(item) for item in value] if isinstance(value, list | tuple) else value
