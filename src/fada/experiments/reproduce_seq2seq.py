"""The rows of the main table whose models write token by token (TrOCR, Whisper), evaluated.

CTC emissions can be decoded again in milliseconds; a decoder must be run anew for every λ. So the encoder is run once
for each line, the grids are small, and every decoding is stored in its run folder: an interrupted evaluation goes on
where it stopped.

Guided decoding is Eq. 2 to the letter first (`sorted_w2`, scale 1, λ chosen on the validation lines); the rows marked
*ours* compare character by character (`aligned_w2`) with a scale chosen on the validation lines. Both are chosen with
the first seed, and kept for the others.
"""

import hashlib
import json
import time
from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from fada.common.files import write_json
from fada.common.say import track
from fada.data.line import Line
from fada.decoding.weights import Weights
from fada.errors import FadaError
from fada.evaluation.predictions import Systems
from fada.models.seq2seq import Seq2SeqRecognizer
from fada.runs.run import Run
from fada.training.lines import EncodedDataset
from fada.training.train import TrainSettings, read_splits
from fada.tuning.grid import refuse_overlap

if TYPE_CHECKING:
    from fada.experiments.reproduce import Recipe, Trained

DECODINGS = "decodings"
OUR_LAM = 0.5
"""λ of the rows marked *ours*: only (1 - λ) · scale / λ matters, and the scale is searched."""


class StoredSearch:
    """Beam search of a run over the lines of a split under any weights; each setting is decoded once and kept.

    Attributes:
        ids, references, domains: of the lines, in order.
    """

    def __init__(self, run: Run, lines: Sequence[Line], split: str, encoder_cache: Path | None, batch_size: int = 8):
        self.run, self.split, self.batch_size = run, split, batch_size
        self._given, self._encoder_cache = lines, encoder_cache
        self.ids = [line.id for line in self._lines]
        self.references = [str(line.text) for line in self._lines]
        self.domains: list[str | None] = [line.domain for line in self._lines]

    @cached_property
    def _recognizer(self) -> Seq2SeqRecognizer:
        recognizer = self.run.recognizer
        if not isinstance(recognizer, Seq2SeqRecognizer):
            raise FadaError(f"{self.run.folder}: a {recognizer.kind} model, expected one with a decoder.")
        return recognizer

    @cached_property
    def _lines(self) -> list[Line]:
        """The lines that could be read when the run was made."""
        left_out = self.run.config.get("left_out", {}).get(self.split, {})
        return [line for line in self._given if line.id not in left_out]

    @cached_property
    def _encoded(self) -> EncodedDataset:
        """What the encoder makes of the lines, with the rounding that a frozen encoder had in training."""
        frozen = self.run.config["settings"].get("freeze") == "encoder"
        folder, dtype = (self._encoder_cache, np.float16) if frozen else (None, np.float32)
        return EncodedDataset(self._recognizer, self._lines, self.run.targets.domains, folder, dtype)

    @cached_property
    def _fingerprint(self) -> str:
        """Changes when the model is another one, or the lines."""
        digest = hashlib.blake2b(json.dumps([self.ids, self.references]).encode(), digest_size=12)
        for path in sorted((self.run.folder / "model").glob("*.safetensors")):
            digest.update(path.read_bytes())
        return digest.hexdigest()

    def path(self, weights: Weights) -> Path:
        """Where the texts of a setting are kept."""
        guided = f"-{weights.distance}-x{weights.scale:g}-lam{weights.lam:g}" if weights.guided else ""
        return self.run.folder / DECODINGS / f"{self.split}-beam{weights.beam}{guided}.json"

    def choose(self, weights: Weights) -> list[str]:
        """The best text of every line."""
        if not weights.guided and (found := self._predicted(weights.beam)):
            return found
        path = self.path(weights)
        if path.exists():
            stored = json.loads(path.read_text(encoding="utf-8"))
            if stored["fingerprint"] == self._fingerprint:
                return stored["texts"]
        encoded = self._encoded
        started = time.process_time()
        texts = self._decode(encoded, weights)
        seconds = round(time.process_time() - started, 2)
        setting = weights.model_dump(include={"beam", "lam", "scale", "distance"})
        write_json(path, {"fingerprint": self._fingerprint, **setting, "cpu_seconds": seconds, "texts": texts})
        return texts

    def _predicted(self, beam: int) -> list[str] | None:
        """The texts that the training itself reported, if it used this beam on these lines."""
        table = self.run.predictions
        system = "greedy" if beam == 1 else f"beam{beam}"
        chosen = [row for row in table.select(["id", "system", "hypothesis"]).to_pylist() if row["system"] == system]
        return [row["hypothesis"] for row in chosen] if [row["id"] for row in chosen] == self.ids else None

    def _decode(self, encoded: EncodedDataset, weights: Weights) -> list[str]:
        targets = self.run.targets
        guidance = {"lam": weights.lam, "scale": weights.scale, "distance": weights.distance}
        texts = [""] * len(self.ids)
        batches = range(0, len(self.ids), self.batch_size)
        name = f"{self.run.folder.name}, {self.path(weights).stem}"
        for (chosen, inputs), _ in zip(encoded.batches(self.batch_size), track(batches, name), strict=True):
            lines = [encoded.lines[i] for i in chosen]
            wanted = [targets.get(str(line.domain), targets.overall) for line in lines]
            guided: dict[str, Any] = {"targets": wanted, **guidance} if weights.guided else {}
            found = self._recognizer.generate_batch(inputs, lines, num_beams=weights.beam, **guided)
            for i, reading in zip(chosen, found, strict=True):
                texts[i] = reading.text
        return texts


def evaluate_decoders(recipe: "Recipe", trained: "Sequence[Trained]", chosen: Mapping[str, Any]) -> dict[str, Any]:
    """What :func:`fada.experiments.reproduce.evaluate_seed` keeps of a seed, for models with a decoder.

    Every arm has one more row, guided decoding of ours. There are no rivals: they need emissions.
    """
    from fada.experiments import reproduce as shared

    beam = int(recipe.train.get("beam_size", 5))
    plain = Weights(beam=beam)
    faithful = [Weights(lam=lam, beam=beam) for lam in sorted(recipe.guided_lams, reverse=True)]
    ours = [
        Weights(lam=OUR_LAM, scale=scale, distance="aligned_w2", beam=beam) for scale in sorted(recipe.guided_scales)
    ]
    searches = {item.name: _searches(item) for item in trained}
    first = searches[next(item.name for item in trained if item.arm == shared.STANDARD)]
    refuse_overlap(first["validation"], first["test"])
    errors = {item.name: shared.rates(searches[item.name]["validation"], plain)["cer"] for item in trained}
    best = shared.best_of_arms(trained, errors)
    systems: dict[str, list[str]] = {}
    arms: dict[str, Any] = {}
    curves = shared.training_curve(trained, errors)
    for arm, item in best.items():
        search = searches[item.name]
        found: list[dict[Weights, float]] = [{}, {}]
        if arm in chosen:
            guided = next(weights for weights in faithful if weights.lam == chosen[arm]["lam_gd"])
            aligned = next(weights for weights in ours if weights.scale == chosen[arm]["aligned_gd"]["scale"])
        else:
            # Weakest guidance first, so that ties go to the weaker.
            found = [
                {weights: shared.rates(search["validation"], weights)["cer"] for weights in grid}
                for grid in (faithful, ours)
            ]
            guided, aligned = (min(curve, key=lambda weights: curve[weights]) for curve in found)
        name = shared.label(arm, guided=False)
        ours_name = f"{name.removesuffix(' (ours)')} + aligned GD (ours)"
        systems[name] = search["test"].choose(plain)
        systems[shared.label(arm, guided=True)] = search["test"].choose(guided)
        systems[ours_name] = search["test"].choose(aligned)
        if found[0]:
            curves[f"GD on {arm}"] = [
                {"lam": weights.lam, "validation_cer": cer} for weights, cer in reversed(found[0].items())
            ]
        arms[arm] = shared.arm_record(item, errors[item.name], guided.lam, systems)
        arms[arm]["aligned_gd"] = {
            "lam": aligned.lam,
            "scale": aligned.scale,
            "validation_cer": {f"{weights.scale:g}": cer for weights, cer in found[1].items()},
            "hypotheses_changed": sum(a != b for a, b in zip(systems[name], systems[ours_name], strict=True)),
        }
    lines = first["test"]
    standard = best[shared.STANDARD]
    columns = {"domain": lines.domains, **shared.clusters_of(recipe, standard, lines.ids)}
    test = Systems(lines.ids, lines.references, systems, columns, "test")
    beams = {
        arm: {str(width): shared.rates(searches[item.name]["test"], Weights(beam=width)) for width in recipe.beams}
        for arm, item in best.items()
        if arm in (shared.STANDARD, shared.FAITHFUL)
    }
    return {
        "lines": {"validation": len(first["validation"].ids), **shared.counted(test)},
        "arms": arms,
        "lambda_curves": curves,
        "systems": shared.scored(test, shared.label(shared.STANDARD, guided=False)),
        "beams": beams,
        "rivals": {},
        "ours": {},
        "examples": shared.examples(test),
    }


def _searches(item: "Trained") -> dict[str, StoredSearch]:
    settings = TrainSettings.of({**item.settings, "out": item.run.folder})
    splits = read_splits(settings)
    lines = {"validation": splits.validation, "test": splits.test}
    return {split: StoredSearch(item.run, part, split, settings.encoder_cache) for split, part in lines.items()}
