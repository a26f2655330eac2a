"""Every table and figure of the paper that can be made here, one recipe after the other.

A recipe whose lines or model are missing is told with what is missing, and the others go on. Given again, the command
goes on where it stopped: finished trainings, decodings and stories are kept.
"""

import logging
import os
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from fada.common.files import write_text
from fada.common.say import BOLD
from fada.data.synthetic.set import make_synthetic
from fada.errors import FadaError
from fada.evaluation.table import markdown_table
from fada.experiments.document import document
from fada.experiments.lipogram.experiment import Experiment, LipogramRecipe
from fada.experiments.recipe import MORE, Recipe, recipes_of
from fada.experiments.reproduce import Plan, Scope, reproduce
from fada.training.settings import TrainSettings
from fada.training.train import train_all

log = logging.getLogger(__name__)

LIPOGRAMS = {
    "lipogram": "lipogram_smollm2.yaml",
    "lipogram-beam": "lipogram_smollm2_beam.yaml",
    "lipogram-eq2": "lipogram_stories_beam.yaml",
}
PAPER_LIPOGRAMS = {"lipogram": "lipogram_llama.yaml"}
FEW = 160
"""Synthetic lines of --quick."""
SMALL = "stories260k"
"""The language model of --quick, where the folder of models has it: 260 thousand parameters."""


@dataclass(frozen=True)
class Outcome:
    """What became of a recipe: the folder of its results, or what is missing."""

    name: str
    folder: Path | None = None
    missing: str = ""


def lines_of(recipe_file: str | os.PathLike[str], data: str | os.PathLike[str] | None, scope: Scope) -> str | None:
    """Where a recipe's lines are: the sub-folder of `data` named in it, or `data` itself; None: where the recipe says.

    Synthetic lines are made, once, where there are none.
    """
    recipe = Recipe.load(recipe_file)
    source = recipe.source
    if source is None or (scope.size == "paper" and data is None):
        return None if data is None else str(data)
    if data is not None and (Path(data) / source.folder).exists():
        return str(Path(data) / source.folder)
    if source.synthetic is not None:
        if data is not None and (Path(data) / "test.parquet").exists():
            return str(data)
        made = scope.runs / scope.named(source.folder)
        if not (made / "test.parquet").exists():
            log.info("making the lines of %s", recipe.title)
            asked = source.synthetic.copy()
            if scope.size == "quick":
                asked["lines"] = min(FEW, asked.get("lines", FEW))
            make_synthetic(**asked, processes=None).save(made)
        return str(made)
    if data is not None and not _holds_sets(Path(data)):
        return str(data)
    named = recipe.train.get("data", [])
    if data is None and isinstance(named, list) and all(Path(str(part)).exists() for part in named):
        return None
    where = Path(data or "FOLDER") / source.folder
    raise FadaError(f"{recipe.title}: its lines are missing, expected in {where} (--data FOLDER). {source.how}".strip())


def _holds_sets(folder: Path) -> bool:
    """Whether a folder holds several data sets, each in a folder of its own, and no lines itself."""
    return folder.is_dir() and not any(path.is_file() and path.suffix == ".parquet" for path in folder.iterdir())


def reproduce_all(
    name: str, data: str | os.PathLike[str] | None, scope: Scope, recipes: str | os.PathLike[str] = "recipes"
) -> list[Outcome]:
    """Run every recipe of a table, and the lipograms; write ``results.md`` and ``summary.md`` of what there is.

    The table `more` has recipes alone.
    """
    files = recipes_of(name, recipes)
    _train_first(files, data, scope)
    stories = {} if name == MORE else PAPER_LIPOGRAMS if scope.size == "paper" else LIPOGRAMS
    outcomes = []
    for short, file in [(file.stem, file) for file in files] + [(n, Path(recipes) / f) for n, f in stories.items()]:
        log.info("%s", short, extra=BOLD)
        try:
            if short in stories:
                folder = _lipograms(file, scope.results / scope.named(short), scope)
            else:
                folder = reproduce(file, lines_of(file, data, scope), scope)
            outcomes.append(Outcome(short, folder))
        except FadaError as error:
            log.warning("%s", error)
            outcomes.append(Outcome(short, missing=str(error)))
    if any(outcome.folder for outcome in outcomes if outcome.name not in LIPOGRAMS):
        suffix = "" if scope.size == "usual" else f"-{scope.size}"
        write_text(scope.results / f"results{suffix}.md", document(scope.results, suffix))
    write_text(scope.results / f"{scope.named('summary')}.md", summary(outcomes))
    return outcomes


def _train_first(files: Sequence[Path], data: str | os.PathLike[str] | None, scope: Scope) -> None:
    """On a cluster: the trainings of all recipes that depend on no other, together; who cannot run is told later."""
    if isinstance(scope.workers, int):
        return
    settings: dict[str, TrainSettings] = {}
    for file in files:
        with suppress(FadaError):
            plan = Plan.of(file, lines_of(file, data, scope), scope)
            first = {seed: plan.trainings(seed) for seed in plan.rounds()[0]}
            settings |= {f"{plan.name}/{item}": values for item, values in Plan.settings(first).items()}
    with suppress(FadaError):
        train_all(settings, scope.workers)


def _lipograms(file: Path, folder: Path, scope: Scope) -> Path:
    recipe = LipogramRecipe.load(file)
    if scope.size == "quick":
        recipe = recipe.quick()
        if scope.model(SMALL) != SMALL and scope.model(recipe.model) == recipe.model:
            recipe = recipe.model_copy(update={"model": SMALL, "style": "continue"})
    Experiment(recipe, folder, scope.model(recipe.model)).run()
    return folder


def summary(outcomes: Sequence[Outcome]) -> str:
    """What ran and what could not, as a Markdown table."""
    rows = [[o.name, "done" if o.folder else "not run", str(o.folder or o.missing)] for o in outcomes]
    done = sum(outcome.folder is not None for outcome in outcomes)
    return f"{done} of {len(outcomes)} ran.\n\n" + markdown_table(["recipe", "", "results, or what is missing"], rows)
