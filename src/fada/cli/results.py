"""`fada results`: the results document from the committed figures."""

from pathlib import Path

import typer

from fada.cli.output import echo


def results(
    folder: Path = typer.Argument(Path("results"), help="Folder that `fada reproduce` wrote."),
    out: Path | None = typer.Option(None, "--out", "-o", help="Markdown file to write, such as docs/results.md."),
    check: bool = typer.Option(
        False,
        "--check",
        help="Recompute every figure from the stored texts, and compare the file of --out; exit code 3 if one differs.",
    ),
) -> None:
    """Write every table of the paper that has been run here as one Markdown document.

    Examples:

        fada results --out docs/results.md

        fada results --check --out docs/results.md
    """
    from fada.common.files import write_text
    from fada.experiments.document import document
    from fada.experiments.scoring import NOT_RECOMPUTED, check_results

    if check:
        told = list(check_results(folder))
        if out is not None and out.read_text(encoding="utf-8") != document(folder):
            told.append(f"{out}: not what the files in {folder} come to.")
        for sentence in told:
            echo(sentence)
        differing = [sentence for sentence in told if not sentence.endswith(NOT_RECOMPUTED)]
        echo(f"{len(differing)} figures differ, {len(told) - len(differing)} files could not be checked")
        raise typer.Exit(3 if differing else 0)
    text = document(folder)
    if out is None:
        echo(text)
    else:
        write_text(out, text)
        echo(f"{out}: {len(text.splitlines())} lines")
