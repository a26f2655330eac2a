"""`fada train`: settings from a recipe and the command line, a run folder out."""

import os
from pathlib import Path
from typing import Any

import typer

from fada.cli.options import ReadingOptions, given, with_reading
from fada.cli.output import echo
from fada.errors import FadaError


@with_reading()
def train(
    context: typer.Context,
    reading: ReadingOptions,
    recipe: Path | None = typer.Option(None, help="YAML file with settings; options given here override it."),
    data: list[str] = typer.Option([], help="Lines to train on (any source of lines, with its splits); repeatable."),
    validation: list[str] = typer.Option([], help="Lines to choose the best epoch on, if --data has no such split."),
    test: list[str] = typer.Option([], help="Lines to report on, if --data has no such split."),
    out: Path | None = typer.Option(None, "--out", "-o", help="The run folder to write."),
    model: str | None = typer.Option(
        None,
        show_default="crnn:base",
        help="crnn:tiny|plain|small|base, trocr-tiny, trocr-subword, a folder, or a hub name.",
    ),
    targets: Path | None = typer.Option(None, help="Target file; counted on the training text if not given."),
    lam: float | None = typer.Option(
        None, show_default="0.5", min=0, max=1, help="λ: 1 is the plain task loss, 0 alignment alone."
    ),
    distance: str | None = typer.Option(
        None, show_default="sorted_w2", help="sorted_w2 (the paper), aligned_w2, js, kl, w1."
    ),
    scale: float | None = typer.Option(None, show_default="1", min=0, help="Factor of the distance; 1 is the paper."),
    pool: str | None = typer.Option(
        None, show_default="sample", help="Whose frequencies are aligned: sample (the paper), domain, epoch."
    ),
    lam_schedule: str | None = typer.Option(
        None, show_default="fixed", help="fixed, warmup (alignment comes in slowly), adaptive."
    ),
    tagging: str | None = typer.Option(
        None, show_default="none", help="TR-TT: none, given or predicted domain tokens."
    ),
    new_characters: str | None = typer.Option(
        None, show_default="add", help="Characters that a loaded model lacks: fail, add, ignore."
    ),
    epochs: int | None = typer.Option(None, show_default="30", min=1, help="At most so many."),
    patience: int | None = typer.Option(
        None,
        show_default="4",
        min=0,
        help="Stop after so many epochs without a better CER, once the model reads; more on few lines; 0 never.",
    ),
    batch_size: int | None = typer.Option(None, show_default="4", min=1, help="Lines per step and process."),
    learning_rate: float | None = typer.Option(None, show_default="the model's own", help="At its peak."),
    precision: str | None = typer.Option(None, show_default="fp32", help="fp32, bf16 or fp16."),
    max_seconds: float | None = typer.Option(
        None, show_default="10", help="Audio window of Whisper; shorter is faster."
    ),
    seed: int | None = typer.Option(None, show_default="0", help="Decides everything that is random."),
    threads: int | None = typer.Option(None, show_default="as PyTorch does", min=1, help="CPU threads."),
    device: str | None = typer.Option(None, show_default="auto", help="auto or cpu."),
    set_: list[str] = typer.Option([], "--set", help="Any other setting, as key=value; repeatable."),
    resume: bool = typer.Option(False, "--resume", help="Continue the run in --out from its last checkpoint."),
) -> None:
    """Train a recogniser towards the character frequencies of each line's domain (FADA-TR), or without (λ = 1).

    The run folder holds the model, metrics of every epoch, predictions and emissions. After an interruption, the same
    command with --resume ends with the same result.
    """
    from fada.common.settings import read_recipe
    from fada.training.settings import TrainSettings
    from fada.training.train import train as run

    settings: dict[str, Any] = read_recipe(recipe) if recipe else {}
    own = {name: value for name, value in given(context).items() if name in TrainSettings.model_fields}
    for name, value in {**own, **reading.given()}.items():
        settings[name] = str(value) if isinstance(value, Path) else value
    for pair in set_:
        key, equals, value = pair.partition("=")
        if not equals:
            raise FadaError(f"--set {pair}: expected key=value.")
        import yaml

        settings[key.strip()] = yaml.safe_load(value)
    try:
        finished = run(TrainSettings.of(settings, where=str(recipe or "command line")))
    except OSError as error:
        error.add_note("with --resume")
        raise
    if os.environ.get("RANK", "0") != "0":
        return
    metrics = finished.metrics
    split = "test" if "test" in metrics else "validation"
    if split == "validation":
        echo("no test lines: these are the validation lines, on which the best epoch was chosen", err=True)
    for system, rates in metrics[split].items():
        echo(f"{system}, {split} lines: CER {rates['cer']:.2f} %, WER {rates['wer']:.2f} %")
    echo(f"{finished.folder}: best epoch {metrics['best_epoch']}, {metrics['seconds'] / 60:.1f} minutes")
