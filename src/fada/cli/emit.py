"""`fada emit`: from images or sound to stored emissions."""

from pathlib import Path

import typer

from fada.cli.options import SHARD, ClusterOptions, ReadingOptions, with_cluster, with_reading
from fada.cli.output import echo
from fada.cli.transcribe import BATCH, DEVICE, LOOKS, RESTART, THREADS, looks_of, show_problems


@with_reading()
@with_cluster()
def emit(
    reading: ReadingOptions,
    where: ClusterOptions,
    model: str = typer.Argument(..., help="Run folder, model folder or hub name of a CTC model."),
    inputs: list[str] = typer.Argument(
        ..., help="Images, folders, manifests, parquet, ALTO or PAGE files, audio: whatever `fada data inspect` reads."
    ),
    out: Path = typer.Option(..., "--out", "-o", help="The .npz file to write; symbols.json is written beside it."),
    looks: str | None = LOOKS,
    batch_size: int = BATCH,
    threads: int | None = THREADS,
    device: str = DEVICE,
    restart: bool = RESTART,
    shard: str | None = SHARD,
) -> None:
    """Store the log-probabilities of a CTC model, for `fada decode` and `fada tune`.

    An interrupted job goes on where it stopped when the same command is given again.
    """
    from fada.common.files import check_file
    from fada.jobs.emit import emit as run
    from fada.jobs.prepare import open_model
    from fada.jobs.shards import Shard
    from fada.jobs.transcribe import Execution, Job

    part = Shard.parse(shard) if shard else None
    check_file(part.part(out) if part else out)
    cluster, source = where.cluster(device), reading.given()
    device = device if cluster is None else "cpu"
    recognizer, lines = open_model(model, inputs, threads, device, **source, pages=part and part.owns)
    recognizer.use_looks(looks_of(looks, device))
    job = Job(model_name=model, reading=source)
    summary = run(recognizer, lines, out, job, Execution(batch_size, restart, part, cluster))
    show_problems(summary.failed, summary.notes)
    echo(f"{summary.transcribed} lines emitted, {len(summary.failed)} failed: {summary.files[0]}")
