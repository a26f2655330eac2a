"""`fada study`: the whole story with one command, on one's own lines."""

from pathlib import Path
from typing import TYPE_CHECKING

import typer

from fada.cli.options import JOBS, NO_JOBS, ClusterOptions, ReadingOptions, with_cluster, with_reading
from fada.cli.output import echo, print_rows

if TYPE_CHECKING:
    from fada.experiments.study import Study


@with_reading()
@with_cluster(*NO_JOBS)
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
    print_study(done)


def print_study(result: "Study") -> None:
    """Its tables, what to beware of, and where the report is."""
    title = f"CER in percent with 95 % intervals, {result.view.results[0].evaluation.clusters} test lines"
    print_rows(result.rows(), title)
    print_rows(result.tests(), "against the standard model with plain beam search", digits=3)
    if result.view.unread:
        typer.echo("The model does not read yet: these differences are no gain. Train longer, or on more lines.")
    for name, tuned in result.tuned.items():
        if tuned.evidence and tuned.evidence.warning:
            echo(f"{name}: {tuned.evidence.warning}")
    echo(f"report: {result.report}")
