"""`fada emit`: from images or sound to stored emissions."""

from pathlib import Path

import typer

from fada.cli.options import ReadingOptions, with_reading
from fada.cli.output import echo
from fada.cli.transcribe import BATCH, THREADS, open_model, show_problems


def emit(
    reading: ReadingOptions,
    model: str = typer.Argument(..., help="Run folder, model folder or hub name of a CTC model."),
    inputs: list[str] = typer.Argument(
        ..., help="Images, folders, manifests, parquet, ALTO or PAGE files, audio: whatever `fada data inspect` reads."
    ),
    out: Path = typer.Option(..., "--out", "-o", help="The .npz file to write; symbols.json is written beside it."),
    batch_size: int = BATCH,
    threads: int | None = THREADS,
) -> None:
    """Store the log-probabilities of a CTC model, for `fada decode` and `fada tune`."""
    from fada.common.files import check_file
    from fada.jobs.emit import emit as run

    check_file(out)
    recognizer, lines = open_model(model, inputs, threads, **reading.given())
    emissions, failed, notes = run(recognizer, lines, batch_size=batch_size)
    emissions.save(out)
    show_problems(failed, notes)
    echo(f"{len(emissions.ids)} lines emitted, {len(failed)} failed: {out}")


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("emit")(with_reading()(emit))
