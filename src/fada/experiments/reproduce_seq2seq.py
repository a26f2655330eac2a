"""The rows of the main table whose models write token by token (TrOCR, Whisper), evaluated.

CTC emissions can be decoded again in milliseconds; a decoder must be run anew for every λ. So the encoder is run once
for each line, the grids are small, and every decoding is stored in its run folder: an interrupted evaluation goes on
where it stopped.

Guided decoding is Eq. 2 to the letter first (`sorted_w2`, scale 1, λ chosen on the validation lines); the rows marked
*ours* compare character by character (`aligned_w2`) with a scale chosen on the validation lines. Both are chosen with
the first seed, and kept for the others.
"""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from fada.decoding.knowledge import Knowledge
from fada.decoding.search import Search, Stored
from fada.decoding.weights import Weights
from fada.evaluation.predictions import Systems
from fada.models.seq2seq import Seq2SeqRecognizer
from fada.training.train import TrainSettings, read_splits
from fada.tuning.grid import refuse_overlap

if TYPE_CHECKING:
    from fada.experiments.reproduce import Recipe, Trained

DECODINGS = "decodings"
OUR_LAM = 0.5
"""λ of the rows marked *ours*: only (1 - λ) · scale / λ matters, and the scale is searched."""


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
    test = Systems(lines.ids, list(lines.references or ()), systems, columns, "test")
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


def _searches(item: "Trained") -> dict[str, Search]:
    """The validation and the test lines that could be read when the run was made, each decoding kept in its folder."""
    run, settings = item.run, TrainSettings.of({**item.settings, "out": item.run.folder})
    splits, left_out = read_splits(settings), run.config.get("left_out", {})
    recognizer = run.recognizer
    if settings.freeze == "encoder" and isinstance(recognizer, Seq2SeqRecognizer):
        recognizer.freeze_encoder()
    searches: dict[str, Search] = {}
    for split, part in (("validation", splits.validation), ("test", splits.test)):
        lines = [line for line in part if line.id not in left_out.get(split, {})]
        search = recognizer.search(lines, Knowledge(run.targets), cache=settings.encoder_cache)
        searches[split] = Stored(search, run.folder / DECODINGS / split)
    return searches
