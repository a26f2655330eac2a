"""Before a job begins: the model and the lines opened, and the decoder chosen that fits what is told of the lines."""

import logging
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fada.data.line import LineSet
from fada.data.segment.store import PageStore
from fada.data.source import read_lines
from fada.decoding.emissions import Emissions
from fada.decoding.evidence import Automatic
from fada.decoding.knowledge import Decoder, Knowledge, all_built_in, knowledge_of_model
from fada.decoding.lm_files import read_lm
from fada.decoding.told import Told
from fada.decoding.weights import NO_GUIDANCE, Weights
from fada.decoding.wordlist import SHARE, Words
from fada.distances import LAM
from fada.errors import FadaError, first_few
from fada.models.look import look_at
from fada.models.registry import load_on_device
from fada.targets.target_set import TargetSet
from fada.tuning.tuned import Tuned

if TYPE_CHECKING:
    from fada.models.recognizer import Recognizer

log = logging.getLogger(__name__)

LM_WEIGHT = 0.5
"""Weight of a language model that is named, where nothing says otherwise."""


def open_model(
    model: str,
    inputs: Sequence[str],
    threads: int | None = None,
    device: str = "cpu",
    kept: Path | None = None,
    **source: Any,
) -> "tuple[Recognizer, LineSet]":
    """The recogniser and the lines, those without transcription as well.

    Args:
        kept: folder for the pages of PDFs and for the lines that are found on photographs; a temporary one if None.
        source: see :func:`fada.read_lines`.
    """
    store = PageStore(kept)
    lines = read_lines(inputs if len(inputs) > 1 else inputs[0], untranscribed=True, store=store, **source)
    recognizer = load_on_device(model, device)
    if recognizer.emits and recognizer.modality == "image":
        store.look_at = partial(look_at, recognizer)
    if threads:
        recognizer.use_threads(threads)
    return recognizer, lines


@dataclass(frozen=True)
class Wanted:
    """How lines are to be decoded, as far as a user says it.

    Attributes:
        told: what is known of the lines.
        asked: weights by name, which hold whatever is chosen.
        tuned: file of the weights that tuning found.
        lm: file of a language model, in place of any other.
        words, hot_words, words_share: files of words, words that are expected, and how much they count, see
            :class:`fada.decoding.wordlist.Words`.
    """

    told: Told = field(default_factory=Told)
    asked: Mapping[str, Any] = field(default_factory=dict)
    tuned: Path | None = None
    lm: Path | None = None
    words: Sequence[Path] = ()
    hot_words: Sequence[str] = ()
    words_share: float = SHARE

    def record(self) -> dict[str, str]:
        """The language model and the words by their names, to be recorded with what was read with them."""
        told = {"language_model": str(self.lm or ""), "words": ", ".join(map(str, self.words))}
        return {name: value for name, value in (told | {"hot_words": ", ".join(self.hot_words)}).items() if value}

    def own_words(self, characters: str) -> Words | None:
        """The words for a recogniser that can write these characters; None without any."""
        if not self.words and not self.hot_words:
            return None
        words = Words.of(self.words, self.hot_words, characters, self.words_share, self.told.encoding)
        if words.impossible:
            log.info("words that the model cannot write, left out: %s", first_few(words.impossible, 3))
        return words


@dataclass(frozen=True)
class Chosen:
    """What lines are decoded with: one decoder for all of them, or one for each document."""

    weights: Weights = field(default_factory=Weights)
    knowledge: Knowledge = field(default_factory=Knowledge)
    automatic: Automatic | None = None


def tell_untargeted(targets: Path, lines: LineSet) -> None:
    """Say, before the work, which domains of the lines have no target."""
    known = TargetSet.load(targets)
    domains = {line.domain for line in lines.without_media()}
    if unknown := sorted(domain for domain in domains if domain is not None and domain not in known):
        told = f"no target for {', '.join(unknown[:5])} in {targets} (known: {', '.join(list(known)[:10])})"
        log.info("%s: such lines are guided to that of all domains together", told)


def choose_decoder(
    wanted: Wanted, model: str | os.PathLike[str], recognizer: "Recognizer", *, centuries: bool = True
) -> Chosen:
    """What a recogniser reads with: the one decoder of :func:`_chosen`, with the language model and the words wanted.

    Args:
        model: folder of the recogniser.
        centuries: whether lines may have a domain, so that what the model knows of single centuries is wanted.
    """
    if wanted.lm is not None and wanted.told.says_text:
        raise FadaError("--lm and --text or --knowledge: each is a language model, and one is used. Leave one out.")
    asked = {name: value for name, value in wanted.asked.items() if name != "lm_weight"}
    wanted, lm_weight = replace(wanted, asked=asked), wanted.asked.get("lm_weight")
    chosen = _chosen(wanted, model, recognizer, centuries)
    if wanted.lm is not None and chosen.automatic is not None:
        chosen = _chosen(replace(wanted, told=replace(wanted.told, knowledge="none")), model, recognizer, centuries)
    if wanted.lm is not None or lm_weight is not None:
        chosen = _with_language(chosen, wanted.lm, lm_weight, recognizer.characters)
    if words := wanted.own_words(recognizer.characters):
        if chosen.automatic is None:
            decoder = words.joined(chosen.weights, chosen.knowledge)
            return Chosen(decoder.weights, decoder.knowledge)
        chosen.automatic.words = words
    return chosen


def _chosen(wanted: Wanted, model: str | os.PathLike[str], recognizer: "Recognizer", centuries: bool) -> Chosen:
    """The decoder of a tuned file, else of a text or knowledge, else the one stored with the model, to which targets
    are added and which λ alone replaces, else what the model knows of languages, else Eq. 2; in each, what was asked
    for holds.
    """
    told, tuned, asked = wanted.told, wanted.tuned, dict(wanted.asked)
    targets = None if told.targets is None else TargetSet.load(told.targets)
    guided = {} if targets is None else {"lam": asked.get("lam", LAM)}
    given = told.for_model(model) if tuned is None else None
    if given is not None:
        log.info("read with %s: %d characters of text", given.name or given, given.characters)
        return Chosen(automatic=Automatic(given=given, asked={**asked, **guided}))
    stored = Decoder.of_model(model) if tuned is None and told.knowledge is None else None
    if stored is not None and targets is not None:
        stored = stored.guided_to(targets, asked.pop("lam", LAM))
        log.info("the decoder stored with the model stays (%s), guided to %s", stored.knowledge, told.targets)
    elif stored is not None and "lam" in asked:
        log.info("--lam replaces the decoder stored with the model (%s)", stored.knowledge)
        stored = None
    elif (
        stored is None
        and tuned is None
        and (targets is not None or not {"lam", "scale"} & {*asked})
        and (candidates := _candidates(told, model, recognizer, centuries))
    ):
        if targets is not None:
            candidates = {name: replace(one, targets=targets) for name, one in candidates.items()}
        return Chosen(automatic=Automatic(candidates, asked={**asked, **guided}))
    settings = Tuned.load(tuned) if tuned else Tuned(weights=Weights(lam=NO_GUIDANCE if targets is None else LAM))
    weights = (settings.weights if stored is None else stored.weights).change(**asked)
    without_effect = [f"--{name}" for name in ("scale", "distance") if name in asked]
    if without_effect and not weights.guided and "lam" not in asked and asked.get("scale") != 0:
        raise FadaError(
            f"{' and '.join(without_effect)} without effect: nothing here is guided by a distance (λ = 1). "
            "Give --lam below 1 as well, or leave it out."
        )
    if stored is not None:
        return Chosen(weights, stored.knowledge)
    places = [Path(model) / name for name in ("targets.json", "decoder/targets.json")]
    own = next((path for path in places if path.is_file()), None)
    return Chosen(weights, told.load(own, order=settings.lm_order, share=settings.lm_share))


def _candidates(
    told: Told, model: str | os.PathLike[str], recognizer: "Recognizer", centuries: bool
) -> dict[str, Knowledge]:
    """The languages of which one may be found, where the recogniser can be read with a language model."""
    if "lm" not in recognizer.terms or told.knowledge == "none":
        return {}
    return knowledge_of_model(model, centuries=centuries) or (all_built_in() if told.finds else {})


def _with_language(chosen: Chosen, lm: Path | None, lm_weight: float | None, characters: str) -> Chosen:
    """The same with the user's own weight, or language model in place of a stored one, which is said."""
    weights, knowledge, automatic = chosen.weights, chosen.knowledge, chosen.automatic
    if lm is None:
        if automatic is not None:
            automatic.asked["lm_weight"] = lm_weight
        elif weights.lm == "none":
            raise FadaError("--lm-weight without a language model: name one with --lm.")
        return replace(chosen, weights=weights.change(lm_weight=lm_weight))
    if weights.lm != "none":
        log.info("--lm replaces the language model of the decoder (%s)", knowledge)
    weight = lm_weight if lm_weight is not None else weights.lm_weight or LM_WEIGHT
    own = read_lm(lm, characters)
    knowledge = replace(knowledge, global_lm=own, domain_lms={}, lm_order=own.order)
    return Chosen(weights.change(lm="global", lm_weight=weight), knowledge)


def decoder_for(emissions: Emissions, wanted: Wanted) -> Decoder:
    """What stored emissions are decoded with: the weights that tuning found, else those that follow the amount of text
    and the certainty of the recogniser, else Eq. 2; in each, what was asked for holds.
    """
    told, tuned = wanted.told, None if wanted.tuned is None else Tuned.load(wanted.tuned)
    characters = "".join(emissions.alphabet.texts)
    knowledge = Knowledge()
    if (told.says_text or told.finds) and tuned is None and wanted.lm is None:
        guided = {} if told.targets is None else {"lam": LAM}
        given = None if told.finds else told.load(smoothing="kneser-ney")
        automatic = Automatic(all_built_in() if told.finds else {}, given, {**guided, **wanted.asked})
        decision = automatic.decide(emissions.alphabet, emissions.log_probs, told.domain)
        log.info("read with %s", decision)
        weights, knowledge = decision.weights, decision.knowledge
    else:
        settings = tuned or Tuned(weights=Weights(lam=LAM, lm_weight=LM_WEIGHT))
        weights = settings.weights.model_copy(update=dict(wanted.asked))
        if wanted.lm is None and weights.lm == "none" and "lm_weight" in wanted.asked:
            raise FadaError("--lm-weight without a language model: name one with --lm.")
        if wanted.lm is not None:
            weights = weights.model_copy(update={"lm": "global"})
            knowledge = Knowledge(global_lm=read_lm(wanted.lm, characters))
        elif weights.lm != "none":
            knowledge = told.load(order=settings.lm_order, share=settings.lm_share)
    words = wanted.own_words(characters)
    return Decoder(weights, knowledge) if words is None else words.joined(weights, knowledge)
