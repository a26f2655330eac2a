"""`fada study` and `fada demo`: the whole story with one command."""

from pathlib import Path
from typing import TYPE_CHECKING

import typer

from fada.cli.options import JOBS, NO_JOBS, ClusterOptions, ReadingOptions, with_cluster, with_reading
from fada.cli.output import echo, print_rows

if TYPE_CHECKING:
    from fada.experiments.study import Study


def register(app: typer.Typer) -> None:
    """Add the commands."""
    app.command("study")(with_reading()(with_cluster(*NO_JOBS)(study)))
    app.command("demo")(demo)


def study(
    reading: ReadingOptions,
    where: ClusterOptions,
    data: list[str] = typer.Argument(..., help="Lines with text: ALTO or PAGE folders, parquet, manifests."),
    out: Path = typer.Option(..., "--out", "-o", help="Folder for models, weights, predictions and report."),
    model: str = typer.Option("crnn:small", "--model", help="As in `fada train`."),
    epochs: int = typer.Option(30, "--epochs", min=1, help="Epochs of each training."),
    batch_size: int = typer.Option(8, "--batch-size", min=1, help="Lines per step."),
    lam: float = typer.Option(0.5, "--lam", min=0, max=1, help="λ of the second training; the first has 1."),
    distance: str = typer.Option("sorted_w2", "--distance", help="sorted_w2 (the paper) or aligned_w2."),
    scale: float = typer.Option(1.0, "--scale", min=0, help="Factor of the distance in training; 1 is the paper."),
    seed: int = typer.Option(0, "--seed", help="Of both trainings."),
    jobs: int | None = JOBS,
) -> None:
    """Train with and without alignment, tune, decode, test and report: everything on your own lines.

    Lines without a test split are divided by page, stratified by domain. Interrupted, it goes on where it stopped when
    the same command is given again.
    """
    from fada.experiments.study import run_study, split_by_page

    columns = {name: str(value) if isinstance(value, Path) else value for name, value in reading.given().items()}
    sources = split_by_page(data, out / "lines", columns)
    if sources == [out / "lines"]:
        columns = {}
    settings = {"model": model, "epochs": epochs, "batch_size": batch_size, "patience": 0, "seed": seed, **columns}
    with where.workers(out / "study", jobs) as workers:
        done = run_study(sources, out, settings, {"lam": lam, "distance": distance, "scale": scale}, workers=workers)
    _print(done)


def demo(
    out: Path = typer.Option(Path("demo-output"), "--out", "-o", help="Folder for everything the demo makes."),
    quick: bool = typer.Option(False, "--quick", help="A few steps of each training: shows the path, not the result."),
    paper: bool = typer.Option(False, "--paper", help="The paper's story instead, on synthetic lines; some minutes."),
    jobs: int = typer.Option(2, "--jobs", min=1, help="Trainings at a time, with --paper."),
    threads: int | None = typer.Option(None, min=1, help="Trainings at a time, without --paper. [one a core]"),
) -> None:
    """A manuscript that the built-in model never saw, read better step by step: its language found, lines corrected.

    With --paper everything that the paper tells of: targets, training with and without alignment, tuning, guided
    decoding.
    """
    if paper:
        from fada.experiments.paper_demo import paper_demo

        _print(paper_demo(out, quick=quick, jobs=jobs))
        return
    from fada.experiments.demo import demo as run

    done = run(out, quick=quick, threads=threads)
    print_rows(done.rows(), f"{done.view.results[0].evaluation.lines} lines on other pages than the corrected ones")
    echo(f"language found: {done.told}")
    echo(f"report: {done.report}")


def _print(result: "Study") -> None:
    title = f"CER in percent with 95 % intervals, {result.view.results[0].evaluation.clusters} test lines"
    print_rows(result.rows(), title)
    print_rows(result.tests(), "against the standard model with plain beam search", digits=3)
    if result.view.unread:
        typer.echo("The model does not read yet: these differences are no gain. Train longer, or on more lines.")
    for name, tuned in result.tuned.items():
        if tuned.evidence and tuned.evidence.warning:
            echo(f"{name}: {tuned.evidence.warning}")
    echo(f"report: {result.report}")
