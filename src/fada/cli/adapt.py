"""`fada adapt`: a model made one's own with a handful of corrected lines."""

from pathlib import Path

import typer

from fada.cli.options import NO_DOMAIN, KnowledgeOptions, ReadingOptions, with_knowledge, with_reading
from fada.cli.output import echo


@with_reading()
@with_knowledge(*NO_DOMAIN)
def adapt(
    reading: ReadingOptions,
    known: KnowledgeOptions,
    model: str = typer.Argument(help="Model folder, run folder, hub name, or a model that comes with fada."),
    lines: list[str] = typer.Option(..., "--lines", help="Corrected lines (any source of lines); repeatable."),
    out: Path = typer.Option(..., "--out", "-o", help="Folder of the adapted model."),
    unlabelled: list[str] = typer.Option(
        [], "--unlabelled", help="More lines of the manuscript, to tell which to correct next; repeatable."
    ),
    replay: list[str] = typer.Option(
        [],
        "--replay",
        help="Lines that the model could read before, so that it forgets nothing; repeatable. [those in its folder]",
    ),
    folds: int = typer.Option(3, min=2, max=10, help="Parts for cross-validation; their models are averaged."),
    epochs: int = typer.Option(24, min=1, help="Times every line is seen."),
    fewest_steps: int = typer.Option(120, min=1, help="Steps of each training at least, however few the lines."),
    learning_rate: float | None = typer.Option(None, help="At its peak. [that of the model's family]"),
    seed: int = typer.Option(0, help="Decides everything that is random."),
    threads: int | None = typer.Option(
        None, min=1, help="CPU threads; small networks train their parts side by side. [all]"
    ),
) -> None:
    """Fine-tune a model on 5 to 100 corrected lines, and tell what that is worth on lines it did not see.

    Every line is read by a model that was trained without it. If that makes more errors than before, beyond chance, the
    old model is kept. After an interruption the same command goes on.
    """
    import torch

    from fada.data.line import Line
    from fada.data.source import read_lines
    from fada.models.folders import resolve
    from fada.targets.target_set import TargetSet
    from fada.training.adapt import Adapting
    from fada.training.folds import AdaptSettings

    if threads:
        torch.set_num_threads(threads)

    def read(sources: list[str], untranscribed: bool = False) -> list[Line]:
        if not sources:
            return []
        found = read_lines(sources, untranscribed=untranscribed, **reading.given())
        kept = list(found)
        for told in (*found.skipped, *found.notes):
            echo(told, err=True)
        return kept

    given = read(lines)
    corrected = [line for line in given if line.text]
    if len(corrected) < len(given):
        echo(f"{len(given) - len(corrected)} lines without a text are left out", err=True)
    settings = AdaptSettings(
        folds=folds, epochs=epochs, fewest_steps=fewest_steps, learning_rate=learning_rate, seed=seed
    )
    begun = Adapting(
        model,
        corrected,
        out,
        settings,
        knowledge=known.told().for_model(resolve(model), reading.domain),
        targets=None if known.targets is None else TargetSet.load(known.targets),
        replay=[line for line in read(replay) if line.text],
        unlabelled=read(unlabelled, untranscribed=True),
    )
    begun.train(threads)
    done = begun.finish()
    for reason in done.left_out.values():
        echo(f"left out: {reason}", err=True)
    echo(
        f"CER {done.before:.2f} % → {done.after:.2f} % on lines the model did not see "
        f"({done.lines} lines, {folds} parts, p = {done.p_value:.3f})"
    )
    if done.with_text is not None:
        echo(f"CER {done.with_text:.2f} % with what is known besides")
    if done.verdict:
        echo(done.verdict)
    for count, rate in list(done.expected.items())[1:]:
        echo(f"with {count} lines about {rate:.1f} % can be expected")
    if done.new_characters:
        echo(f"new characters: {done.new_characters}")
    if done.next_lines:
        echo(f"correct next: {', '.join(done.next_lines[:5])}")
    echo(f"{out}: read with it by `fada transcribe {out} …`")
