"""A model folder to share: weights in half precision, and a model card that says what it is.

A CTC model comes with targets and a tuned decoder; ``fada transcribe FOLDER`` takes it unless it is told otherwise.
"""

import os
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from fada._version import __version__
from fada.common.files import replacing_folder, write_text
from fada.decoding.knowledge import DECODER, Decoder, Knowledge
from fada.decoding.weights import Weights
from fada.errors import FadaError
from fada.evaluation.edits import score_lines
from fada.evaluation.predictions import PREDICTIONS, Systems
from fada.evaluation.table import markdown_table
from fada.runs.run import Run, load_run
from fada.text.characters import natural_key
from fada.tuning.decode import decode_systems
from fada.tuning.grid import LANGUAGE, PRIOR, descend, with_domain_lm
from fada.tuning.overlap import refuse_overlap
from fada.tuning.trials import Trials


def export(
    run_folder: str | os.PathLike[str],
    out: str | os.PathLike[str],
    *,
    title: str | None = None,
    licence: str | None = None,
    credits_file: str | os.PathLike[str] | None = None,
    data: str | None = None,
    order: int = 6,
    beam: int = 10,
) -> Path:
    """Write the model of a finished run with the weights that ``fada tune`` found for it.

    A CTC recogniser that was not tuned comes with a decoder tuned here, on its validation lines, with a language model.

    Args:
        run_folder: as ``fada train`` wrote it.
        out: the model folder to write.
        title: of the model card.
        licence: of the model, which follows from that of its data.
        credits_file: Markdown with the attribution that the data ask for; it becomes part of the card.
        data: where the training lines are now, if not where the run found them.
        order: of the character language model, trained on the run's training text, if the run was not tuned.
        beam: of its tuned decoder.
    """
    run, out = load_run(run_folder, data), Path(out)
    config = run.config
    if not run.has(PREDICTIONS):
        raise FadaError(f"{run.folder}: no predictions, so no model that has finished training.")
    if out.exists() and any(out.iterdir()):
        raise FadaError(f"{out} is not empty. Choose another folder, or delete it.")
    about = Path(credits_file).read_text(encoding="utf-8").strip() if credits_file else config.get("citation") or ""
    licence = licence or config.get("licence")
    decoder = _decoder(run, order, beam)
    recognizer = run.network
    recognizer.model.half()
    errors = _errors(run, decoder)
    with replacing_folder(out) as folder:
        recognizer.save_pretrained(folder)
        if decoder is not None:
            decoder.save(folder)
        if run.tuned is not None:
            run.tuned.save(folder / DECODER / "tuned.json")  # with its evidence
        write_text(folder / "README.md", _card(run, errors, title or run.folder.name, licence, about))
    return out


def _decoder(run: Run, order: int, beam: int) -> Decoder | None:
    """What ``fada tune`` found for the run; else, of a CTC recogniser, a decoder tuned with a language model."""
    if run.tuned is not None:
        order, share = run.tuned.lm_order, run.tuned.lm_share
        if run.tuned.weights.lm == "none":
            return Decoder(run.tuned.weights, run.knowledge)
        texts = run.splits.training_texts()
        return Decoder(run.tuned.weights, Knowledge.from_texts(texts, run.targets, order=order, share=share))
    if not run.has("emissions"):
        return None
    knowledge = Knowledge.from_texts(run.splits.training_texts(), run.targets, order=order, smoothing="kneser-ney")
    validation = run.search("validation", knowledge)
    refuse_overlap(validation, run.search("test", knowledge))
    weights = descend(Trials(validation), with_domain_lm(Weights(beam=beam)), LANGUAGE | PRIOR, "tuning the decoder")
    return Decoder(weights, knowledge)


def _card(run: Run, errors: Sequence[str], title: str, licence: str | None, about: str) -> str:
    """The model card: what it reads, how well, how it was made, whose data it is from."""
    config = run.config
    settings = config["settings"]
    names = ("model", "epochs", "batch_size", "learning_rate", "lam", "distance", "scale", "augment", "seed")
    made = ", ".join(f"{name} {settings[name]}" for name in names)
    lines = config["lines"]
    front = f"---\nlicense: {licence.lower().replace(' ', '-')}\nlibrary_name: fada\n---\n\n" if licence else ""
    return "\n".join(
        [
            f"{front}# {title}",
            "",
            f"{config['model']['parameters']:,} parameters, weights in half precision, for `fada transcribe`.",
            "",
            "## Error rates",
            "",
            *errors,
            "",
            "## How it was made",
            "",
            f"fada {__version__}; {lines['train']} training lines; {made}.",
            "",
            "## Data and licence",
            "",
            *([f"Licence: {licence}.", ""] if licence else []),
            about,
            "",
        ]
    )


def _errors(run: Run, decoder: Decoder | None) -> list[str]:
    """CER of the test lines, per domain: with the decoder of the folder and without, or as the training found it."""
    if decoder is None:
        told = f"CER in percent on {len(run.predictions.ids)} lines that were not trained on."
        return [told, "", *_error_rows(run.predictions)]
    search = run.search("test", decoder.knowledge)
    beam = Weights(beam=run.config["settings"]["beam_size"])
    systems = decode_systems(
        search, {"beam search, network alone": beam, "with the decoder of this folder": decoder.weights}
    )
    if (unknown := search.without_domains()) is not None:
        found = decode_systems(unknown, {"... without being told the domain": decoder.weights})
        systems = systems.adding(next(iter(found.values())))
    lines = run.config["lines"]
    told = (
        f"CER in percent on {lines['test']} test lines, pages that were not trained on. The decoder's weights were "
        f"chosen on {lines['validation']} validation lines."
    )
    return [told, "", *_error_rows(systems)]


def _error_rows(systems: Systems) -> list[str]:
    """A Markdown table: CER of every system per domain and overall."""
    domain_of = [str(domain) for domain in systems.domains or [None] * len(systems.ids)]
    domains = sorted(set(domain_of), key=natural_key)
    rows = []
    for name, texts in systems.systems.items():
        scores = score_lines(systems.references, texts)
        cells = []
        for domain in [*domains, None]:
            inside = [domain in (None, found) for found in domain_of]
            cells.append(f"{scores.rates(np.array(inside))['cer']:.1f}")
        rows.append([name, *cells])
    return markdown_table(["", *domains, "all"], rows, labels=1).splitlines()
