"""`fada transcribe`: from images or sound to text."""

import os
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from fada.cli.options import (
    NO_DOMAIN,
    SHARD,
    ClusterOptions,
    KnowledgeOptions,
    ReadingOptions,
    affordable,
    with_cluster,
    with_knowledge,
    with_reading,
)
from fada.cli.output import echo
from fada.cli.words import HOT_WORD, LM, LM_DEFAULT, LM_WEIGHT, WORDS, WORDS_SHARE, told_of, words_of
from fada.errors import FadaError

if TYPE_CHECKING:
    from fada.decoding.evidence import Automatic
    from fada.decoding.knowledge import Knowledge
    from fada.decoding.weights import Weights
    from fada.models.recognizer import Recognizer

BATCH = typer.Option(8, "--batch-size", min=1, help="Lines per call of the network.")
DEVICE = typer.Option(
    "cpu", "--device", help="cpu; cuda, mps or cuda:1 for models that torch runs; auto: a GPU if there is one."
)
LOOKS = typer.Option(
    1,
    "--looks",
    min=1,
    max=5,
    help="Look at every line so often, each time a little differently, and take the mean: fewer errors, more time.",
)
RESTART = typer.Option(False, "--restart", help="Forget an unfinished job with the same output.")
THREADS = typer.Option(None, "--threads", min=1, help="CPU threads of the network.")


@with_reading()
@with_knowledge(*NO_DOMAIN)
@with_cluster()
def transcribe(
    reading: ReadingOptions,
    known: KnowledgeOptions,
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
    lam: float | None = typer.Option(
        None,
        "--lam",
        min=0,
        max=1,
        help="λ of Eq. 2; 1 is plain beam search. Default: 0.5 with --targets, else the decoder stored with the model.",
    ),
    scale: float | None = typer.Option(None, "--scale", min=0, help="Factor of the distance; 1 is the paper. [1]"),
    distance: str | None = typer.Option(None, "--distance", help="sorted_w2, aligned_w2, js, kl or w1. [sorted_w2]"),
    beam: int | None = typer.Option(
        None, "--beam", min=1, callback=affordable, help="Hypotheses kept in the search. [5, or as stored]"
    ),
    tuned: Path | None = typer.Option(
        None, "--tuned", help="Weights found by `fada tune`; what the four options above say goes first."
    ),
    lm: Path | None = LM,
    lm_weight: float | None = LM_WEIGHT,
    words: list[Path] = WORDS,
    hot_word: list[str] = HOT_WORD,
    words_share: float = WORDS_SHARE,
    looks: int = LOOKS,
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
    from fada.data.write import refuse_source
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
    kept = None if out is None or streamed else _beside(part.part(out) if part else out)
    recognizer, lines = open_model(
        model, inputs, threads, device if cluster is None else "cpu", kept, **source, pages=part and part.owns
    )
    recognizer.use_looks(looks)
    asked = {"lam": lam, "scale": scale, "distance": distance, "beam": beam}
    asked = {name: value for name, value in asked.items() if value is not None}
    domains = any(value is not None for name, value in source.items() if name.startswith("domain"))
    if known.targets is not None:
        _tell_untargeted(known.targets, {line.domain for line in lines.without_media()})
    if lm is not None and known.says_text:
        raise FadaError("--lm and --text or --knowledge: each is a language model, and one is used. Leave one out.")
    weights, knowledge, automatic = _decoder(resolve(model), recognizer, asked, known, tuned, domains)
    if lm is not None and automatic is not None:
        known = replace(known, knowledge="none")
        weights, knowledge, automatic = _decoder(resolve(model), recognizer, asked, known, tuned, domains)
    if lm is not None or lm_weight is not None:
        weights, knowledge = _with_language(weights, knowledge, lm, lm_weight, automatic, recognizer)
    if own_words := words_of(words, hot_word, words_share, recognizer.characters, known.encoding):
        if automatic is None:
            decoder = own_words.joined(weights, knowledge)
            weights, knowledge = decoder.weights, decoder.knowledge
        else:
            automatic.words = own_words
    with tempfile.TemporaryDirectory() if streamed else nullcontext() as folder:
        target = Path(folder) / "text.txt" if folder else Path(str(out))
        how = {name: value for name, value in source.items() if not name.startswith("domain")}
        aims = str(known.targets) if known.targets else None
        job = Job(weights, knowledge, automatic, model, aims, how, told_of(lm, words, hot_word))
        summary = run(recognizer, lines, target, job, Execution(batch_size, restart, part, cluster), format=format)
        if out is None and target.is_file():
            echo(target.read_text(encoding="utf-8"), nl=False)
        elif out is not None and streamed and target.is_file():
            write_bytes(out, target.read_bytes())
    if kept is not None:
        shutil.rmtree(kept, ignore_errors=True)
    show_problems(summary.failed, summary.notes)
    speed = (summary.transcribed - summary.resumed) / max(summary.seconds, 1e-9)
    more = f" and {len(summary.files) - 1} more" if len(summary.files) > 1 else ""
    written = f"{summary.files[0]}{more}" if summary.files and not streamed else str(out)
    lost = f", {lines.lost} lost in damaged tables" if lines.lost else ""
    told = f"{summary.transcribed} lines transcribed ({speed:.1f} lines/s), {len(summary.failed)} failed{lost}"
    echo(told if out is None else f"{told}: {written}", err=streamed)
    if not summary.transcribed and part is None:
        raise typer.Exit(2)
    if lines.lost:
        raise typer.Exit(1)


def _beside(out: Path) -> Path:
    """Where a job keeps the pages of PDFs and what was found on photographs, until it is finished."""
    whole = Path(os.path.abspath(out))
    return whole.with_name(f".{whole.name}.pages")


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


def _decoder(
    model: str | os.PathLike[str],
    recognizer: "Recognizer",
    asked: dict[str, Any],
    known: KnowledgeOptions,
    tuned: Path | None,
    domains: bool,
) -> "tuple[Weights, Knowledge, Automatic | None]":
    """The decoder named by --tuned, else of --text or --knowledge, else the one stored with the model, to which
    --targets are added and which --lam alone replaces, else what the model knows of languages, else Eq. 2; in each,
    what was `asked` for holds.
    """
    from fada.decoding.evidence import Automatic
    from fada.decoding.knowledge import (
        Decoder,
        Knowledge,
        built_in_knowledge,
        knowledge_of_model,
        read_knowledge,
    )
    from fada.decoding.weights import NO_GUIDANCE, Weights
    from fada.distances import LAM
    from fada.targets.target_set import TargetSet
    from fada.tuning.tuned import Tuned

    targets = known.targets
    plain = known.knowledge == "none"
    guided = {"lam": asked.get("lam", LAM)} if targets is not None else {}
    given = known.for_model(model) if tuned is None else None
    if given is not None:
        echo(f"read with {given.name or given}: {given.characters} characters of text", err=True)
        return Weights(), Knowledge(), Automatic(given=given, asked={**asked, **guided})
    stored = Decoder.of_model(model) if tuned is None and known.knowledge is None else None
    if stored is not None and targets is not None:
        stored = stored.guided_to(TargetSet.load(targets), asked.pop("lam", LAM))
        echo(f"the decoder stored with the model stays ({stored.knowledge}), guided to {targets}", err=True)
    elif stored is not None and "lam" in asked:
        echo(f"--lam replaces the decoder stored with the model ({stored.knowledge})", err=True)
        stored = None
    elif (
        stored is None
        and tuned is None
        and "lm" in recognizer.terms
        and not plain
        and (targets or not {"lam", "scale"} & {*asked})
    ):
        candidates = knowledge_of_model(model, centuries=domains)
        if known.knowledge == "auto":
            candidates = candidates or {name: read_knowledge(path) for name, path in built_in_knowledge().items()}
        if candidates:
            if targets is not None:
                aims = TargetSet.load(targets)
                candidates = {name: replace(one, targets=aims) for name, one in candidates.items()}
            return Weights(), Knowledge(), Automatic(candidates, asked={**asked, **guided})
    settings = Tuned.load(tuned) if tuned else Tuned(weights=Weights(lam=LAM if targets else NO_GUIDANCE))
    weights = (settings.weights if stored is None else stored.weights).change(**asked)
    without_effect = [f"--{name}" for name in ("scale", "distance") if name in asked]
    if without_effect and not weights.guided and "lam" not in asked and asked.get("scale") != 0:
        raise FadaError(
            f"{' and '.join(without_effect)} without effect: nothing here is guided by a distance (λ = 1). "
            "Give --lam below 1 as well, or leave it out."
        )
    if stored is not None:
        return weights, stored.knowledge, None
    own = next(
        (path for name in ("targets.json", "decoder/targets.json") if (path := Path(model) / name).is_file()), None
    )
    return weights, known.load(own, order=settings.lm_order, share=settings.lm_share), None


def _tell_untargeted(targets: Path, domains: set[str | None]) -> None:
    """Say, before the work, which domains of the lines have no target."""
    from fada.targets.target_set import TargetSet

    known = TargetSet.load(targets)
    if unknown := sorted(domain for domain in domains if domain is not None and domain not in known):
        told = f"no target for {', '.join(unknown[:5])} in {targets} (known: {', '.join(list(known)[:10])})"
        echo(f"{told}: such lines are guided to that of all domains together", err=True)


def _with_language(
    weights: "Weights",
    knowledge: "Knowledge",
    lm: Path | None,
    lm_weight: float | None,
    automatic: "Automatic | None",
    recognizer: Any,
) -> "tuple[Weights, Knowledge]":
    """Weights and knowledge with the user's own weight, or language model in place of a stored one, which is said."""
    from fada.decoding.lm_files import read_lm

    if lm is None:
        if automatic is not None:
            automatic.asked["lm_weight"] = lm_weight
        elif weights.lm == "none":
            raise FadaError("--lm-weight without a language model: name one with --lm.")
        return weights.change(lm_weight=lm_weight), knowledge
    if weights.lm != "none":
        echo(f"--lm replaces the language model of the decoder ({knowledge})", err=True)
    weight = lm_weight if lm_weight is not None else weights.lm_weight or LM_DEFAULT
    own = read_lm(lm, recognizer.characters)
    knowledge = replace(knowledge, global_lm=own, domain_lms={}, lm_order=own.order)
    return weights.change(lm="global", lm_weight=weight), knowledge


def open_model(
    model: str, inputs: list[str], threads: int | None, device: str = "cpu", kept: Path | None = None, **source: Any
) -> tuple[Any, Any]:
    """The recogniser and the lines, those without transcription as well.

    Args:
        kept: folder for the pages of PDFs and for the lines that are found on photographs; a temporary one if None.
    """
    from functools import partial

    from fada.data.segment.store import PageStore
    from fada.data.source import read_lines
    from fada.models.look import look_at
    from fada.models.registry import load_on_device

    store = PageStore(kept)
    lines = read_lines(inputs if len(inputs) > 1 else inputs[0], untranscribed=True, store=store, **source)
    recognizer = load_on_device(model, device)
    if recognizer.emits and recognizer.modality == "image":
        store.look_at = partial(look_at, recognizer)
    if threads:
        recognizer.use_threads(threads)
    return recognizer, lines


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

    def more(number: int) -> str:
        return f" and {number} more" if number > 0 else ""

    by_reason: dict[str, list[str]] = {}
    for one in told:
        where, _, reason = one.partition(": ")
        by_reason.setdefault(reason or one, []).append(where)
    return [
        reason if reason == where[0] else f"{', '.join(where[:10])}{more(len(where) - 10)}: {reason}"
        for reason, where in by_reason.items()
    ]
