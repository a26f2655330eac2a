"""`fada demo`: the whole story with one command, on lines that come with fada."""

from pathlib import Path

import typer

from fada.cli.output import echo, print_rows
from fada.cli.study import print_study


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

        print_study(paper_demo(out, quick=quick, jobs=jobs))
        return
    from fada.experiments.demo import demo as run

    done = run(out, quick=quick, threads=threads)
    print_rows(done.rows(), f"{done.view.results[0].evaluation.lines} lines on other pages than the corrected ones")
    echo(f"language found: {done.told}")
    echo(f"report: {done.report}")
