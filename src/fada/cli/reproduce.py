"""`fada reproduce`: the ladder on unseen manuscripts, and the paper's tables from recipes."""

from dataclasses import replace
from pathlib import Path
from typing import Literal

import typer

from fada.cli.options import JOBS, NO_JOBS, ClusterOptions, with_cluster
from fada.cli.output import echo
from fada.errors import FadaError, Interrupted


@with_cluster(*NO_JOBS)
def reproduce(
    where: ClusterOptions,
    name: str = typer.Argument(
        ...,
        help="`unseen` (the ladder on manuscripts that nothing has seen), a recipe (a YAML file of recipes/), or a "
        "table of the paper: main, ablation, domains, beams, lambda, examples, diagnostics, overhead, figures (one run "
        "of a recipe gives all of them), or `more`: what a reader may object to them, answered by runs.",
    ),
    data: str | None = typer.Option(
        None,
        "--data",
        help="Folder with one sub-folder a data set (hpgt, catmus_fr, accents; models/ in it or beside it may hold "
        "models), or the lines of a recipe.",
    ),
    runs: Path = typer.Option(Path("runs"), "--runs", help="Folder for the run folders."),
    results: Path = typer.Option(Path("results"), "--results", help="Folder for the results."),
    seed: list[int] | None = typer.Option(None, "--seed", help="Only this seed; may be repeated."),
    manuscript: list[str] | None = typer.Option(
        None, "--manuscript", help="Only this one of `unseen`; may be repeated."
    ),
    arm: list[str] | None = typer.Option(None, "--arm", help="Only this arm; may be repeated."),
    quick: bool = typer.Option(False, "--quick", help="Small settings that end in minutes: the path, not a result."),
    paper: bool = typer.Option(False, "--paper", help="The paper's models and hub data, where the recipe has them."),
    jobs: int | None = JOBS,
) -> None:
    """Run a row of the paper's tables: train every arm with every seed, evaluate, write results and table.

    Finished trainings are kept, interrupted ones go on: give the same command again. A table's name runs all its
    recipes and the lipograms; one that cannot run is listed with what is missing (exit code 2), the others go on.

    Examples:

        fada reproduce unseen --data FOLDER/latin_script

        fada reproduce main --quick --data FOLDER

        fada reproduce recipes/main-synthetic-crnn.yaml
    """
    from fada.common.workers import Processes
    from fada.experiments.paper import lines_of, reproduce_all, summary
    from fada.experiments.recipe import MORE, TABLES, recipes_of
    from fada.experiments.reproduce import Scope
    from fada.experiments.reproduce import reproduce as run

    if quick and paper:
        raise FadaError("--quick and --paper ask for different sizes: give one of them.")
    size: Literal["usual", "quick", "paper"] = "quick" if quick else "paper" if paper else "usual"
    models = [folder / "models" for folder in (Path(data), Path(data).resolve().parent)] if data else []
    try:
        if name == "unseen":
            from fada.experiments.arena import Arena

            if data is None:
                raise FadaError(
                    "the lines of the unseen manuscripts are not in the package: give the folder latin_script (--data)."
                )
            arena = Arena(Path(data), results, runs, seeds=seed or (0, 1, 2), only=manuscript or ())
            with where.workers(runs, jobs) as workers:
                several = Processes(workers) if isinstance(workers, int) else workers
                echo((replace(arena, workers=several).run() / "table.md").read_text(encoding="utf-8"))
            return
        with where.workers(runs, jobs) as workers:
            here = next(filter(Path.is_dir, models), None)
            scope = Scope(runs, results, seed or (), arm or (), size, workers, here)
            if name in (*TABLES, MORE):
                outcomes = reproduce_all(name, data, scope)
                echo(summary(outcomes))
                raise typer.Exit(2 if any(outcome.missing for outcome in outcomes) else 0)
            [recipe] = recipes_of(name)
            folder = run(recipe, lines_of(recipe, data, scope), scope)
    except Interrupted as stop:
        raise Interrupted("stopped; what is done is kept. The same command goes on from here.", stop.code) from None
    echo((folder / "table.md").read_text(encoding="utf-8"))
    echo(f"results: {folder}")
