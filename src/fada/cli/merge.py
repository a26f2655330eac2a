"""`fada merge`: the parts of a job that was run in shards, joined."""

from pathlib import Path

import typer

from fada.cli.output import echo


def merge(
    parts: list[str] = typer.Argument(..., help="All parts of one job: out.*-of-064.tsv."),
    out: Path = typer.Option(..., "--out", "-o", help="File or folder to write, of the same kind."),
) -> None:
    """Join the parts that `--shard` wrote, in the order of the source.

    Nothing is written if a part is missing, doubled, unfinished or of another job.
    """
    import glob

    from fada.jobs.merge import merge as run

    found = [path for part in parts for path in (glob.glob(part) if glob.has_magic(part) else [part])]
    found = [path for path in found if not path.endswith((".shard.json", ".provenance.json"))]
    merged = run([Path(path) for path in found], out)
    failed = f", {merged.left_out} could not be read" if merged.left_out else ""
    echo(f"{merged.parts} parts, {merged.lines} {merged.unit}{failed}: {out}")
