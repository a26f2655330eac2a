"""A model folder to share: weights in half precision, and a model card that says what it is.

A CTC model comes with targets and a tuned decoder; ``fada transcribe FOLDER`` takes it unless it is told otherwise.
"""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from fada._version import __version__
from fada.common.files import write_text
from fada.data.splits import LineSources
from fada.decoding.knowledge import Knowledge
from fada.decoding.search import BeamSearch
from fada.decoding.weights import Weights
from fada.errors import FadaError
from fada.evaluation.edits import score_lines
from fada.evaluation.table import markdown_table
from fada.runs.run import Run, load_run
from fada.text.characters import natural_key
from fada.tuning.grid import LANGUAGE, PRIOR, descend, with_domain_lm
from fada.tuning.overlap import refuse_overlap
from fada.tuning.trials import Trials
from fada.tuning.tuned import Tuned

DECODER = "decoder"
"""Folder of the tuned weights and what they need, inside a model folder."""


@dataclass(frozen=True)
class Decoder:
    """Tuned weights with their targets and language models, as stored in a model folder."""

    tuned: Tuned
    knowledge: Knowledge

    @classmethod
    def of_model(cls, folder: str | os.PathLike[str]) -> "Decoder | None":
        """The decoder stored with a model, if there is one."""
        path = Path(folder) / DECODER
        if not (path / "tuned.json").is_file():
            return None
        return cls(Tuned.load(path / "tuned.json"), Knowledge.load(path))

    def save(self, folder: Path) -> None:
        """Write it into a model folder."""
        self.knowledge.save(folder / DECODER)
        self.tuned.save(folder / DECODER / "tuned.json")


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
    """Write the model of a finished run; of a CTC recogniser, with a decoder tuned on its validation lines.

    Args:
        run_folder: as ``fada train`` wrote it.
        out: the model folder to write.
        title: of the model card.
        licence: of the model, which follows from that of its data.
        credits_file: Markdown with the attribution that the data ask for; it becomes part of the card.
        data: where the training lines are now, if not where the run found them.
        order: of the character language model of a CTC recogniser, trained on the run's training text.
        beam: of its tuned decoder.
    """
    run, out = load_run(run_folder), Path(out)
    if not (run.folder / "predictions.parquet").is_file():
        raise FadaError(f"{run.folder}: no predictions, so no model that has finished training.")
    if out.exists() and any(out.iterdir()):
        raise FadaError(f"{out} is not empty. Choose another folder, or delete it.")
    about = Path(credits_file).read_text(encoding="utf-8").strip() if credits_file else run.config.get("citation") or ""
    licence = licence or run.config.get("licence")
    has_emissions = (run.folder / "emissions").is_dir()
    decoder = _tuned_decoder(run, data, order, beam) if has_emissions else None
    recognizer = run.recognizer
    recognizer.model.half()
    recognizer.save_pretrained(out)
    errors = _errors_of_predictions(run) if decoder is None else _errors_with(decoder, run)
    if decoder is not None:
        decoder.save(out)
    write_text(out / "README.md", _card(run, errors, title or run.folder.name, licence, about))
    return out


def _tuned_decoder(run: Run, data: str | None, order: int, beam: int) -> Decoder:
    texts = LineSources.of_run(run.config["settings"], run.folder, data).read().training_texts()
    knowledge = Knowledge.from_texts(texts, run.targets, order=order, smoothing="kneser-ney")
    validation = run.emissions("validation")
    refuse_overlap(validation, run.emissions("test"))
    trials = Trials(BeamSearch(validation, knowledge, None))
    weights = descend(trials, with_domain_lm(Weights(beam=beam)), LANGUAGE | PRIOR, "tuning the decoder")
    return Decoder(Tuned(weights=weights, lm_order=order, lm_share=knowledge.lm_share), knowledge)


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


def _errors_with(decoder: Decoder, run: Run) -> list[str]:
    search = BeamSearch(run.emissions("test"), decoder.knowledge, None)
    systems = {
        "beam search, network alone": search.choose(Weights(beam=run.config["settings"]["beam_size"])),
        "with the decoder of this folder": search.choose(decoder.tuned.weights),
        "... without being told the domain": _without_domains(run, decoder),
    }
    lines = run.config["lines"]
    told = (
        f"CER in percent on {lines['test']} test lines, pages that were not trained on. The decoder's weights were "
        f"chosen on {lines['validation']} validation lines."
    )
    return [told, "", *_error_rows([str(d) for d in search.domains], list(search.references or ()), systems)]


def _errors_of_predictions(run: Run) -> list[str]:
    rows = run.predictions.to_pylist()
    systems = {
        name: [row for row in rows if row["system"] == name] for name in dict.fromkeys(r["system"] for r in rows)
    }
    first = next(iter(systems.values()))
    texts = {name: [row["hypothesis"] for row in chosen] for name, chosen in systems.items()}
    told = f"CER in percent on {len(first)} lines that were not trained on."
    return [told, "", *_error_rows([str(r["domain"]) for r in first], [r["reference"] for r in first], texts)]


def _without_domains(run: Run, decoder: Decoder) -> list[str]:
    return BeamSearch(replace(run.emissions("test"), domains=None), decoder.knowledge, None).choose(
        decoder.tuned.weights
    )


def _error_rows(domain_of: Sequence[str], references: Sequence[str], systems: Mapping[str, Sequence[str]]) -> list[str]:
    """A Markdown table: CER of every system per domain and overall."""
    domains = sorted(set(domain_of), key=natural_key)
    rows = []
    for name, texts in systems.items():
        scores = score_lines(references, texts)
        cells = []
        for domain in [*domains, None]:
            inside = [domain in (None, found) for found in domain_of]
            cells.append(f"{scores.rates(np.array(inside))['cer']:.1f}")
        rows.append([name, *cells])
    return markdown_table(["", *domains, "all"], rows, labels=1).splitlines()
