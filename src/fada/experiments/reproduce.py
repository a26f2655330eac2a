"""The paper's tables from recipes: every training resumable, every choice made on validation lines, results as JSON.

A recipe is one row of the main table: a data set and a model. Its *arms* are trainings (standard, TR-TT, FADA-TR,
ours); an arm whose ``lam`` is a list is trained once per value with the first seed, the value that is best on the
validation lines is kept, and the other seeds use it. From the chosen runs come guided decoding, beam sizes, the λ
curves, the results per domain, the rivals, and the rows marked *ours*.

Guided decoding is Eq. 2 to the letter first (`sorted_w2`, scale 1). Stored emissions are decoded in milliseconds, so
for CTC models every λ of the paper is tried with every seed. Other models run their decoder anew for every setting:
their grids are small, every decoding is kept in the run folder, and the other seeds keep what the first chose.
"""

import json
import os
import platform
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Literal

from fada.common.files import write_json, write_text
from fada.common.workers import Workers
from fada.data.columns import LineColumns
from fada.data.source import read_lines
from fada.data.splits import Splits
from fada.decoding.knowledge import Knowledge
from fada.decoding.weights import Weights
from fada.errors import FadaError
from fada.evaluation.predictions import Systems
from fada.evaluation.scores import Scoring
from fada.experiments.document import draw_curves, table_of
from fada.experiments.ours import adapted, continued, our_texts, split_of
from fada.experiments.recipe import FAITHFUL, STANDARD, TAGGED, Changes, Recipe, label
from fada.experiments.record import (
    AlignedGuidance,
    Arm,
    Counts,
    Diagnostics,
    Epoch,
    Made,
    OurSystem,
    OurSystems,
    Overhead,
    Point,
    Rates,
    Record,
    Rival,
    Test,
    load_seeds,
)
from fada.experiments.scoring import BASE, CLUSTER, DRAWS, LAMS, Texts, examples, fingerprint, rates, scored
from fada.runs.run import Run, load_run
from fada.targets.figures import analyze
from fada.targets.target_set import TargetSet
from fada.text.characters import natural_key
from fada.text.normalizer import TextNormalizer
from fada.training.settings import TrainSettings
from fada.training.train import train_all
from fada.tuning.decode import BEAM
from fada.tuning.overlap import refuse_overlap
from fada.tuning.rivals import compare_rivals

OUR_LAM = 0.5
"""λ of the *ours* guidance of decoders: only (1 - λ) · scale / λ matters, and the scale is searched."""


@dataclass(frozen=True)
class Scope:
    """How much of a recipe is run, and where.

    Attributes:
        runs, results: folders for the run folders and for what is kept of them.
        seeds: only these.
        arms: train only these; whatever else is finished is evaluated with them.
        size: ``quick``: the recipe's small settings, minutes on two cores, no result to publish; ``paper``: its
            settings with the paper's models and hub data.
        workers: who trains: so many processes here, or a cluster.
        models: folder with models by their names, for those that the hub cannot give.
    """

    runs: Path = Path("runs")
    results: Path = Path("results")
    seeds: Sequence[int] = ()
    arms: Sequence[str] = ()
    size: Literal["usual", "quick", "paper"] = "usual"
    workers: Workers | int = 2
    models: Path | None = None

    def model(self, name: str) -> str:
        """Where a model is: in the folder of models (an owner on the hub left out), or wherever its name leads."""
        here = self.models and self.models / Path(name).name
        return str(here) if here and here.is_dir() else name

    def named(self, name: str) -> str:
        """The name of a result of this size."""
        return name if self.size == "usual" else f"{name}-{self.size}"


@dataclass(frozen=True)
class Training:
    """One training of an arm; its `run` is there when it is finished."""

    arm: str
    settings: TrainSettings

    @property
    def name(self) -> str:
        """The arm, and λ if the arm has several."""
        return self.settings.out.name

    @cached_property
    def run(self) -> Run:
        return load_run(self.settings.out)

    @cached_property
    def splits(self) -> Splits:
        """The lines that the run was trained and tested on."""
        return self.settings.found_from(self.run.folder).read()

    @cached_property
    def texts(self) -> dict[str, list[str]]:
        """The training text of every domain."""
        return {**{domain: [] for domain in self.run.targets.domains}, **self.splits.training_texts()}


def reproduce(recipe_file: str | os.PathLike[str], data: str | None = None, scope: Scope | None = None) -> Path:
    """Train what is missing, evaluate, and write ``results/<recipe>/<seed>.json``, its texts, and ``table.md``.

    Args:
        recipe_file: a YAML file of `recipes/`.
        data: where the lines are, if not where the recipe says.
        scope: how much, and where.
    """
    plan = Plan.of(recipe_file, data, scope or Scope())
    for seeds in plan.rounds():
        planned = {seed: plan.trainings(seed) for seed in seeds}
        train_all(Plan.settings(planned), plan.scope.workers)
        for seed, trained in planned.items():
            evaluation = SeedEvaluation(plan.recipe, seed, trained, plan.chosen(seed))
            evaluation.record().save(plan.folder / f"{seed}.json")
            evaluation.texts.save(plan.folder / f"{seed}.parquet")
    found = load_seeds(plan.folder)
    write_text(plan.folder / "table.md", table_of(plan.recipe, found))
    draw_curves(plan.recipe, found, plan.folder / "curves.png")
    _draw_frequencies(plan.recipe, trained[0], plan.folder / "figures")
    return plan.folder


@dataclass(frozen=True)
class Plan:
    """The trainings of a recipe: what the first seed chose holds for the others, which are independent of each other.

    Attributes:
        shared: settings of all trainings.
        name: of the folders of its runs and results.
    """

    recipe: Recipe
    scope: Scope
    shared: Changes
    name: str

    @classmethod
    def of(cls, recipe_file: str | os.PathLike[str], data: str | None, scope: Scope) -> "Plan":
        """The plan of a recipe, of the size that is asked for."""
        recipe = Recipe.load(recipe_file)
        for arm in scope.arms:
            if arm not in recipe.arms:
                raise FadaError(f"{recipe_file}: no arm {arm!r}, expected one of {', '.join(recipe.arms)}.")
        sizes: dict[str, Changes] = {"usual": {}, "quick": recipe.quick, "paper": recipe.paper}
        shared = {**recipe.train, **sizes[scope.size]}
        if scope.size == "quick":
            recipe = recipe.smaller()
        if data is not None:
            shared["data"] = [data]
        if "model" in shared:
            shared["model"] = scope.model(str(shared["model"]))
        if shared.get("encoder_cache"):
            shared["encoder_cache"] = str(scope.runs / Path(str(shared["encoder_cache"])).name)
        if scope.workers != 1:
            shared["threads"] = 1
        return cls(recipe, scope, shared, scope.named(Path(recipe_file).stem))

    @property
    def folder(self) -> Path:
        return self.scope.results / self.name

    def rounds(self) -> list[list[int]]:
        """Seeds that can be trained at the same time."""
        first = self.recipe.seeds[0]
        seeds = self.scope.seeds or (self.recipe.seeds[:1] if self.scope.size == "quick" else self.recipe.seeds)
        rounds = [[seed for seed in seeds if seed == first], [seed for seed in seeds if seed != first]]
        return [seeds for seeds in rounds if seeds]

    def chosen(self, seed: int) -> Mapping[str, Arm]:
        """What the first seed chose, for another one."""
        first = self.folder / f"{self.recipe.seeds[0]}.json"
        return Record.load(first).arms if seed != self.recipe.seeds[0] and first.is_file() else {}

    def trainings(self, seed: int) -> list[Training]:
        """Every training of one seed that is asked for, or finished."""
        folder = self.scope.runs / self.name / str(seed)
        planned = _trainings(self.recipe, {**self.shared, "seed": seed}, folder, self.chosen(seed))
        asked = self.scope.arms
        return [one for one in planned if not asked or one.arm in asked or Run(one.settings.out).finished]

    @staticmethod
    def settings(planned: Mapping[int, Sequence[Training]]) -> dict[str, TrainSettings]:
        """Trainings of several seeds by name, for :func:`train_all`."""
        return {f"{seed}/{one.name}": one.settings for seed, trainings in planned.items() for one in trainings}


def _draw_frequencies(recipe: Recipe, item: Training, folder: Path) -> None:
    """The paper's figures of a data set: letter frequencies, correlations and trends of its training text.

    Domains of which there is text alone are drawn with the others.
    """
    texts = {domain: list(lines) for domain, lines in item.texts.items() if lines}
    for name in recipe.source.texts if recipe.source else ():
        for path in (Path(part) / name for part in item.settings.data):
            for line in read_lines(path, domain_column=item.settings.domain_column) if path.is_file() else ():
                texts.setdefault(str(line.domain), []).append(str(line.text))
    ordered = {domain: texts[domain] for domain in sorted(texts, key=natural_key)}
    analyze(TargetSet.from_texts(ordered, normalizer=TextNormalizer(letters_only=True)), folder, formats=["png"])


def _trainings(recipe: Recipe, shared: Changes, folder: Path, chosen: Mapping[str, Arm]) -> list[Training]:
    """Every training of one seed."""
    planned = []
    for arm, changes in recipe.arms.items():
        values = changes.get("lam", shared.get("lam"))
        searched = isinstance(values, list)
        for lam in values if isinstance(values, list) else [values]:
            name = f"{arm}-{lam:g}" if searched else arm
            if not searched or recipe.every_lam or arm not in chosen or chosen[arm].lam_tr == lam:
                settings = {**shared, **changes, **({} if lam is None else {"lam": lam}), "out": folder / name}
                planned.append(Training(arm, TrainSettings.of(settings, name)))
    return planned


@dataclass
class SeedEvaluation:
    """Everything the tables need of one seed; λ of TR and of GD are chosen on the validation lines.

    `chosen` are the arms of the first seed's record, for the others.
    """

    recipe: Recipe
    seed: int
    trained: Sequence[Training]
    chosen: Mapping[str, Arm]
    texts: Texts = field(init=False)

    def __post_init__(self) -> None:
        if STANDARD not in {item.arm for item in self.trained}:
            raise FadaError(
                f"seed {self.seed}: the arm {STANDARD!r} is not trained yet; the others are compared with it."
            )
        self.standard = next(item for item in self.trained if item.arm == STANDARD)
        self.knowledge = Knowledge.from_texts(self.standard.texts, self.standard.run.targets)
        self.searches = {
            item.name: {
                "validation": item.run.search("validation", self.knowledge),
                "test": item.run.search("test", self.knowledge),
            }
            for item in self.trained
        }
        self.first = self.searches[self.standard.name]
        self.cheap = self.first["test"].cheap
        refuse_overlap(self.first["validation"], self.first["test"])
        self.plain = Weights(beam=self.standard.settings.beam_size)
        self.errors = {item.name: self._validation_cer(item, self.plain) for item in self.trained}
        arms = dict.fromkeys(item.arm for item in self.trained)
        self.best = {arm: self._best_of(arm) for arm in arms}

    def _best_of(self, arm: str) -> Training:
        """The training of an arm that is kept: with the λ of the first seed, there the best on validation lines."""
        items = [item for item in self.trained if item.arm == arm]
        kept = [item for item in items if arm in self.chosen and item.settings.lam == self.chosen[arm].lam_tr]
        return min(kept or items, key=lambda item: self.errors[item.name])

    def record(self) -> Record:
        """All figures of the seed; fills `texts` with what they come from."""
        curves: dict[str, list[Point]] = {"TR": []}
        arms: dict[str, Arm] = {}
        systems: dict[str, list[str]] = {}
        for arm, item in self.best.items():
            arms[arm] = self._arm(item, systems, curves)
        lines = self.first["test"]
        known = LineColumns(lines.ids, list(lines.references or ()), lines.domains, self._clusters(lines.ids))
        test = Systems(known, systems, source="test")
        self.texts = Texts(test)
        curves["TR"] += self._points(test)
        recipe = self.recipe
        return Record(
            recipe=recipe.title,
            dataset=recipe.dataset,
            model=recipe.model,
            differences=recipe.differences.strip(),
            published=recipe.published,
            published_relative=recipe.published_relative,
            seed=self.seed,
            machine={"system": platform.system(), "processor": platform.machine(), "cores": os.cpu_count()},
            made=Made.now(fingerprint(test.ids, test.references), self.standard.settings.threads),
            lines=Counts(
                validation=len(self.first["validation"].ids),
                test=len(test.ids),
                clusters=len(set(test.column(CLUSTER))) if CLUSTER in test.columns else None,
            ),
            arms=arms,
            lambda_curves=curves,
            systems=scored(test, BASE, DRAWS["systems"]),
            beams=self._beams(),
            rivals=self._rivals(test) if self.cheap and recipe.rivals else {},
            ours=self._ours(test) if self.cheap and recipe.ours else None,
            examples=examples(test),
            overhead=self._overhead() if self.seed == recipe.seeds[0] else None,
        )

    def _points(self, test: Systems) -> list[Point]:
        """Every training with its λ."""
        points = []
        for item in self.trained:
            cer = None
            if self.recipe.every_lam:
                texts = self.searches[item.name]["test"].choose(self.plain)
                self.texts.add(LAMS, item.arm, {f"{item.settings.lam:g}": texts})
                cer = rates(test.references, texts).cer
            points.append(
                Point(lam=item.settings.lam, validation_cer=self.errors[item.name], arm=item.arm, test_cer=cer)
            )
        return points

    def _validation_cer(self, item: Training, weights: Weights) -> float:
        search = self.searches[item.name]["validation"]
        return rates(list(search.references or ()), search.choose(weights)).cer

    def _chosen(self, item: Training, grid: Sequence[Weights]) -> tuple[Weights, dict[Weights, float]]:
        """The best of a grid on the validation lines, and all of it; ties go to the weaker, which stands first."""
        errors = {weights: self._validation_cer(item, weights) for weights in grid}
        return min(errors, key=lambda weights: errors[weights]), errors

    def _arm(self, item: Training, systems: dict[str, list[str]], curves: dict[str, list[Point]]) -> Arm:
        """Decode the test lines with an arm's best training, into `systems`, and tell what was chosen."""
        from fada.training.diagnostics import alignment_diagnostics

        arm, search, recipe = item.arm, self.searches[item.name], self.recipe
        before = None if self.cheap else self.chosen.get(arm)
        if before:
            guided = self.plain.change(lam=before.lam_gd)
        else:
            grid = [self.plain.change(lam=lam) for lam in sorted(recipe.guided_lams, reverse=True)]
            guided, errors = self._chosen(item, grid)
            curves[f"GD on {arm}"] = [
                Point(lam=weights.lam, validation_cer=cer) for weights, cer in reversed(errors.items())
            ]
        name = label(arm, guided=False)
        plain = systems[name] = search["test"].choose(self.plain)
        with_gd = systems[label(arm, guided=True)] = search["test"].choose(guided)
        aligned = None
        if not self.cheap:
            aligned, ours = self._aligned(item, before.aligned_gd if before else None, plain)
            systems[f"{name.removesuffix(' (ours)')} + aligned GD (ours)"] = ours
        metrics, given = item.run.metrics, item.settings.model_dump(mode="json", exclude_unset=True)
        # A folder by its name: where it lies on one machine tells nobody anything.
        told = {k: Path(v).name if isinstance(v, str) and Path(v).is_absolute() else v for k, v in given.items()}
        return Arm(
            settings={name: value for name, value in told.items() if name not in ("out", "data")},
            lam_tr=item.settings.lam,
            lam_gd=guided.lam,
            validation_cer=self.errors[item.name],
            epochs=len(metrics["history"]),
            best_epoch=metrics.get("best_epoch"),
            seconds=metrics.get("seconds"),
            parameters=metrics.get("parameters"),
            history=[Epoch(**{**entry, "validation": entry["validation"]["cer"]}) for entry in metrics["history"]],
            hypotheses_changed_by_gd=_changed(plain, with_gd),
            diagnostics=Diagnostics(
                **alignment_diagnostics(item.run.folder, recipe.diagnosed_lines, data=item.settings.data)
            ),
            aligned_gd=aligned,
        )

    def _aligned(
        self, item: Training, before: AlignedGuidance | None, plain: Sequence[str]
    ) -> tuple[AlignedGuidance, list[str]]:
        """Guidance that compares character by character, with a scale chosen on the validation lines."""
        shared = {"lam": OUR_LAM, "distance": "aligned_w2"}
        grid = [self.plain.change(scale=scale, **shared) for scale in sorted(self.recipe.guided_scales)]
        errors: dict[Weights, float] = {}
        if before:
            weights = self.plain.change(scale=before.scale, **shared)
        else:
            weights, errors = self._chosen(item, grid)
        texts = self.searches[item.name]["test"].choose(weights)
        by_scale = {f"{weights.scale:g}": cer for weights, cer in errors.items()}
        changed = _changed(plain, texts)
        return AlignedGuidance(
            lam=OUR_LAM, scale=weights.scale, validation_cer=by_scale, hypotheses_changed=changed
        ), texts

    def _beams(self) -> dict[str, dict[str, Rates]]:
        found = {}
        for arm, item in self.best.items():
            if arm in (STANDARD, FAITHFUL):
                search = self.searches[item.name]["test"]
                texts = {str(width): search.choose(Weights(beam=width)) for width in self.recipe.beams}
                self.texts.add("beams", arm, texts)
                found[arm] = {width: rates(list(search.references or ()), read) for width, read in texts.items()}
        return found

    def _rivals(self, test: Systems) -> dict[str, dict[str, Rival]]:
        found = {}
        for arm, item in self.best.items():
            if arm != TAGGED:
                search = self.searches[item.name]
                untested = Scoring(bootstrap=0, resamples=0)
                table = compare_rivals(search["validation"], search["test"], scoring=untested)
                texts = table.systems.systems
                self.texts.add("rivals", arm, texts)
                rows = scored(replace(test, systems=texts), BEAM, DRAWS["rivals"])
                found[arm] = {
                    name: Rival(
                        setting=table.rivals[name].setting, validation=table.rivals[name].validation, **vars(row)
                    )
                    for name, row in rows.items()
                }
        return found

    def _ours(self, test: Systems) -> OurSystems:
        """The rows marked *ours*, all against plain beam search of the standard model."""
        ours, standard = self.recipe.ours, self.standard
        assert ours is not None
        knowledge = Knowledge.from_texts(
            standard.texts, standard.run.targets, order=ours.lm_order, share=ours.lm_share, smoothing=ours.lm_smoothing
        )
        arms = {arm: split_of(item.run) for arm, item in self.best.items() if arm != TAGGED}
        if ours.adapt is not None:
            splits = standard.splits
            lines = {"train": splits.train, "validation": splits.validation, "test": splits.test}
            given = standard.settings.model_dump(exclude_unset=True)
            kept: dict[str, object] = {name: given[name] for name in ("seed", "threads") if name in given}
            further: dict[str, object] = {**ours.adapt, **kept, "model": str(standard.run.folder), "lam": 1.0}
            folder = standard.run.folder.parent
            arms["continued"] = continued(TrainSettings.of({**given, **further, "out": folder / "continued"}))
            arms["adapted"] = adapted(lines, {**further, "domain_column": "domain"}, folder / "adapted")
        decoded = our_texts(ours, arms, knowledge)
        texts = {BASE: test.systems[BASE], **{name: found.texts for name, found in decoded.items()}}
        self.texts.add("ours", "", texts)
        systems = replace(test, systems=texts)
        rows = {name: OurSystem(**vars(row)) for name, row in scored(systems, BASE, DRAWS["ours"]).items()}
        for name, found in decoded.items():
            rows[name].weights = found.weights.model_dump(exclude_defaults=True)
            rows[name].validation_cer = found.validation_cer
        for name, row in rows.items():
            control = name.replace("adapted", "continued", 1)
            if name.startswith("adapted") and control in rows:
                beside = scored(systems.only([control, name]), control, DRAWS["ours"])[name]
                row.against_continued = Test(relative=beside.relative, p=beside.p or 0.0, p_clusters=beside.p_clusters)
        return OurSystems(settings=ours, rows=rows)

    def _clusters(self, ids: Sequence[str]) -> dict[str, list[str | None]]:
        """The column `cluster` of the test lines: the recipe's `clusters`, joined; no column if it names none."""
        if not self.recipe.clusters:
            return {}
        shared = {
            line.id: "/".join(str(line.extra.get(column, "")) for column in self.recipe.clusters)
            for line in self.standard.splits.test
        }
        return {CLUSTER: [shared[line] for line in ids]}

    def _overhead(self) -> Overhead:
        """Measured once for a run, and kept in its folder."""
        from fada.experiments.overhead import measure_overhead

        path = self.standard.run.folder / "overhead.json"
        if not path.exists():
            data, rounds = self.standard.settings.data, self.recipe.overhead_rounds
            found = measure_overhead(self.standard.run.folder, data=data, rounds=rounds)
            write_json(path, found.model_dump())
        return Overhead.model_validate(json.loads(path.read_text(encoding="utf-8")))


def _changed(a: Sequence[str], b: Sequence[str]) -> int:
    return sum(x != y for x, y in zip(a, b, strict=True))
