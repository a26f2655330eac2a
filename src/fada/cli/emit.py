"""`fada emit`: from images or sound to stored emissions."""

from pathlib import Path

import typer

from fada.cli.options import SHARD, ReadingOptions, with_reading
from fada.cli.output import echo
from fada.cli.transcribe import BATCH, DEVICE, THREADS, open_model, show_problems


def emit(
    reading: ReadingOptions,
    model: str = typer.Argument(..., help="Run folder, model folder or hub name of a CTC model."),
    inputs: list[str] = typer.Argument(
        ..., help="Images, folders, manifests, parquet, ALTO or PAGE files, audio: whatever `fada data inspect` reads."
    ),
    out: Path = typer.Option(..., "--out", "-o", help="The .npz file to write; symbols.json is written beside it."),
    batch_size: int = BATCH,
    threads: int | None = THREADS,
    device: str = DEVICE,
    shard: str | None = SHARD,
) -> None:
    """Store the log-probabilities of a CTC model, for `fada decode` and `fada tune`."""
    from fada.common.files import check_file
    from fada.jobs.emit import emit as run
    from fada.jobs.shards import Shard, Share

    share = Share(Shard.parse(shard)) if shard else None
    out = share.shard.part(out) if share else out
    check_file(out)
    recognizer, lines = open_model(model, inputs, threads, device, **reading.given())
    lines = share.of(lines) if share else lines
    emissions, failed, notes = run(recognizer, lines, batch_size=batch_size, may_be_empty=share is not None)
    emissions.save(out)
    if share:
        share.note(out, {"model": model, "reading": reading.given()}, [*{*share.positions} - {*emissions.ids}])
    show_problems(failed, notes)
    echo(f"{len(emissions.ids)} lines emitted, {len(failed)} failed: {out}")


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("emit")(with_reading()(emit))
