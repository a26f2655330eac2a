"""`fada transcribe`: from images or sound to text."""

import os
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from fada.cli.options import (
    NO_DOMAIN,
    SHARD,
    ClusterOptions,
    DecodingOptions,
    KnowledgeOptions,
    ReadingOptions,
    with_cluster,
    with_decoding,
    with_knowledge,
    with_reading,
)
from fada.cli.output import echo
from fada.errors import FadaError, first_few

if TYPE_CHECKING:
    from fada.models.looks import Looks

BATCH = typer.Option(8, "--batch-size", min=1, help="Lines per call of the network.")
DEVICE = typer.Option(
    "cpu", "--device", help="cpu; cuda, mps or cuda:1 for models that torch runs; auto: a GPU if there is one."
)
LOOKS = typer.Option(
    None,
    "--looks",
    help="Look at every line so often (1 to 5), each time a little differently, and take the mean: fewer errors, more "
    "time; or auto: again only at lines that the network is unsure of. By default auto on a CPU, 1 elsewhere.",
)
RESTART = typer.Option(False, "--restart", help="Forget an unfinished job with the same output.")
THREADS = typer.Option(None, "--threads", min=1, help="CPU threads of the network.")


@with_reading()
@with_knowledge(*NO_DOMAIN)
@with_decoding()
@with_cluster()
def transcribe(
    reading: ReadingOptions,
    known: KnowledgeOptions,
    decoding: DecodingOptions,
    where: ClusterOptions,
    model_and_inputs: list[str] = typer.Argument(
        ...,
        metavar="[MODEL] INPUTS...",
        help="Run folder, model folder or hub name, then images of lines or pages, PDFs, folders, manifests, parquet, "
        "ALTO or PAGE files, audio. Without a model the built-in one for the Latin script of the Middle Ages is used.",
    ),
    out: Path | None = typer.Option(
        None, "--out", "-o", help="File, or new or empty folder, to write; the text is printed without."
    ),
    format: str | None = typer.Option(
        None,
        "--format",
        help="same, alto, page, hocr, tei, pdf, txt, tsv, csv, jsonl, parquet or pairs; by default from --out.",
    ),
    looks: str | None = LOOKS,
    batch_size: int = BATCH,
    threads: int | None = THREADS,
    device: str = DEVICE,
    restart: bool = RESTART,
    shard: str | None = SHARD,
) -> None:
    """Transcribe images or sound, with what is known of their language or domain.

    The built-in model finds out itself which of the languages it knows a page is in. A text (--text) helps more, the
    frequencies of characters (--targets) as well; a run folder brings its own targets.
    An interrupted job goes on where it stopped when the same command is given again. Lines that cannot be read are
    reported and left out; the exit code is 0 as long as some were read, and 1 if rows of a damaged table were lost.
    """
    import shutil
    import tempfile
    from contextlib import nullcontext

    from fada.common.files import is_stream, write_bytes
    from fada.data.places import BARE
    from fada.data.write import refuse_source
    from fada.jobs.prepare import choose_decoder, open_model, tell_untargeted
    from fada.jobs.shards import Shard
    from fada.jobs.transcribe import Execution, Job
    from fada.jobs.transcribe import transcribe as run
    from fada.models.folders import DEFAULT_MODEL, resolve

    model, inputs = _model_and_inputs(model_and_inputs, DEFAULT_MODEL)
    if model == DEFAULT_MODEL and model not in model_and_inputs:
        echo(f"model: {model} (built in; another one may stand before the inputs)", err=True)
    part = Shard.parse(shard) if shard else None
    if out is not None:
        refuse_source(inputs, out)
    elif part is not None:
        raise FadaError(f"--shard {shard} without --out: name the file or folder that the parts are to be joined to.")
    cluster = where.cluster(device)
    source = reading.given()
    streamed = out is None or is_stream(out)
    kept = None
    if out is not None and not streamed:  # for pages of PDFs and what is found on photographs, until it is finished
        whole = Path(os.path.abspath(part.part(out) if part else out))
        kept = whole.with_name(f".{whole.name}.pages")
    recognizer, lines = open_model(
        model, inputs, threads, device if cluster is None else "cpu", kept, **source, pages=part and part.owns
    )
    recognizer.use_looks(looks_of(looks, device))
    wanted = decoding.wanted(known.told())
    if known.targets is not None:
        tell_untargeted(known.targets, lines)
    bare = all(Path(one).suffix.lower() in BARE for one in inputs)  # nothing in them tells a domain
    centuries = not bare or any(value is not None for name, value in source.items() if name.startswith("domain"))
    chosen = choose_decoder(wanted, resolve(model), recognizer, centuries=centuries)
    with tempfile.TemporaryDirectory() if streamed else nullcontext() as folder:
        target = Path(folder) / "text.txt" if folder else Path(str(out))
        how = {name: value for name, value in source.items() if not name.startswith("domain")}
        aims = str(known.targets) if known.targets else None
        job = Job(chosen.weights, chosen.knowledge, chosen.automatic, model, aims, how, wanted.record())
        try:
            summary = run(recognizer, lines, target, job, Execution(batch_size, restart, part, cluster), format=format)
        except KeyboardInterrupt:
            if not streamed:
                echo("what was finished is kept: the same command goes on where this one stopped", err=True)
            raise
        if out is None and target.is_file():
            echo(target.read_text(encoding="utf-8"), nl=False)
        elif out is not None and streamed and target.is_file():
            write_bytes(out, target.read_bytes())
    if kept is not None:
        shutil.rmtree(kept, ignore_errors=True)
    show_problems(summary.failed, summary.notes)
    speed = (summary.transcribed - summary.resumed) / max(summary.seconds, 1e-9)
    written = first_few(summary.files, 1) if summary.files and not streamed else str(out)
    lost = f", {lines.lost} lost in damaged tables" if lines.lost else ""
    several = "s" * (summary.transcribed != 1)
    told = f"{summary.transcribed} line{several} transcribed ({speed:.1f} lines/s), {len(summary.failed)} failed{lost}"
    echo(told if out is None else f"{told}: {written}", err=streamed)
    if not summary.transcribed and part is None:
        raise typer.Exit(2)
    if lines.lost:
        raise typer.Exit(1)


def looks_of(given: str | None, device: str) -> "Looks":
    """How often to look at a line: `--looks`, or what suits the device."""
    from fada.models.looks import USUAL

    if given is None:
        return USUAL if device == "cpu" else 1
    if given == "auto":
        return "auto"
    if not given.isdecimal():
        raise FadaError(f"--looks {given}: expected a number from 1 to 5, or auto.")
    return int(given)


def _model_and_inputs(given: list[str], default: str) -> tuple[str, list[str]]:
    """The first argument is a model if it is a model folder, a name of the package, or may be one of the hub."""
    from fada.common.tables import TEXT_SUFFIXES as MANIFEST_SUFFIXES
    from fada.data.places import AUDIO_SUFFIXES, IMAGE_SUFFIXES, PDF
    from fada.data.read import is_named_set
    from fada.models.folders import PRETRAINED, is_model_folder, resolve

    name, first, inputs = given[0], Path(given[0]), given[1:]
    is_model = is_model_folder(first) or resolve(name) != name
    if not is_model and first.is_dir() and any(first.glob("*.safetensors")):
        raise FadaError(f"{name}: weights of a model without its config.json. Get its files anew.")
    if not is_model and (first.exists() or is_named_set(name)):
        return default, given
    files = IMAGE_SUFFIXES | AUDIO_SUFFIXES | MANIFEST_SUFFIXES | {PDF, ".xml", ".parquet", ".arrow"}
    of_hub = name.count("/") == 1 and first.suffix.lower() not in files and inputs
    if not is_model and not of_hub:
        known = ", ".join(sorted(folder.name for folder in PRETRAINED.iterdir()))
        raise FadaError(
            f"{name}: no such file or folder, and no model that comes with fada ({known}). Check the path, or give a "
            "model before the inputs: a model or run folder, one of these names, or owner/name of the hub."
        )
    if not inputs:
        raise FadaError(f"{name} is a model, and nothing to transcribe is given. Name the inputs after it.")
    return name, inputs


def show_problems(failed: list[str], notes: list[str]) -> None:
    """The first lines that could not be read, and the first notes; what is wrong with many is told once."""
    failed, notes = _together(failed), _together(notes)
    for reason in [*failed[:20], *notes[:20]]:
        echo(f"  {reason}", err=True)
    left = max(len(failed) - 20, 0) + max(len(notes) - 20, 0)
    if left:
        echo(f"  … and {left} more", err=True)


def _together(told: list[str]) -> list[str]:
    """One sentence for all that ends alike: ``a.png, b.png, c.png and 4 more: the image is empty``."""
    by_reason: dict[str, list[str]] = {}
    for one in told:
        where, _, reason = one.partition(": ")
        by_reason.setdefault(reason or one, []).append(where)
    return [
        reason if reason == where[0] else f"{first_few(where, 10)}: {reason}" for reason, where in by_reason.items()
    ]
