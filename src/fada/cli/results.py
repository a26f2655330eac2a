"""`fada results`: the results document from the committed figures."""

from pathlib import Path

import typer

from fada.cli.output import echo


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("results")(results)


def results(
    folder: Path = typer.Argument(Path("results"), help="Folder that `fada reproduce` wrote."),
    out: Path | None = typer.Option(None, "--out", "-o", help="Markdown file to write, such as docs/results.md."),
) -> None:
    """Write every table of the paper that has been run here as one Markdown document."""
    from fada.common.files import write_text
    from fada.experiments.document import document

    text = document(folder)
    if out is None:
        echo(text)
    else:
        write_text(out, text)
        echo(f"{out}: {len(text.splitlines())} lines")
