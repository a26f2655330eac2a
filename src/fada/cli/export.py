"""`fada export`: a trained model to share."""

from pathlib import Path

import typer

from fada.cli.options import affordable
from fada.cli.output import echo


def export(
    run: Path = typer.Argument(..., help="Run folder, finished; with --onnx also a model folder or built-in model."),
    out: Path = typer.Option(..., "--out", "-o", help="The model folder to write; with --onnx, the file."),
    onnx: bool = typer.Option(False, "--onnx", help="Write the network of a C-RNN as one ONNX file instead."),
    title: str | None = typer.Option(None, "--title", help="Title of the model card."),
    licence: str | None = typer.Option(None, "--licence", help="Licence of the model; it follows from its data."),
    credits_file: Path | None = typer.Option(
        None, "--credits", exists=True, dir_okay=False, help="Markdown file with the attribution that the data ask for."
    ),
    data: str | None = typer.Option(None, "--data", help="Where the training lines are now, if they were moved."),
    order: int = typer.Option(6, "--lm-order", min=1, max=12, help="Order of the character language model."),
    beam: int = typer.Option(
        10, "--beam", min=1, callback=affordable, help="Beam of the decoder that comes with the model."
    ),
) -> None:
    """Write a model folder to share: half-precision weights, a model card; of CTC models also targets and a decoder.

    The decoder (language model, prior correction) is trained on the run's training text and tuned on its validation
    lines; `fada transcribe FOLDER …` uses it unless told otherwise. With --onnx the network becomes one file for
    other programs; fada itself reads model folders without torch as they are.
    """
    if onnx:
        from fada.models.registry import export_onnx

        export_onnx(run, out)
        echo(f"{out}: {out.stat().st_size / 2**20:.1f} MiB")
        return
    from fada.runs.export import export as write

    folder = write(run, out, title=title, licence=licence, credits_file=credits_file, data=data, order=order, beam=beam)
    size = sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
    echo((folder / "README.md").read_text(encoding="utf-8"))
    echo(f"{folder}: {size / 2**20:.1f} MiB")
