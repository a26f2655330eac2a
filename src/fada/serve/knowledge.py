"""What is known of a document, as its decoder takes it: the model's own, texts that were dropped, targets by hand."""

from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property, lru_cache
from pathlib import Path

import numpy as np

from fada.decoding.defaults import certainty_of, weights_for
from fada.decoding.evidence import infer
from fada.decoding.knowledge import (
    Decoder,
    Knowledge,
    all_built_in,
    knowledge_of_model,
    training_pairs_of,
    training_text_of,
)
from fada.decoding.lm import CharNgram
from fada.decoding.weights import NO_GUIDANCE, Weights
from fada.models.folders import resolve
from fada.serve.chosen import UNKNOWN, Chosen
from fada.serve.reading import Reader
from fada.targets.distribution import CharDistribution
from fada.targets.target_set import TargetSet
from fada.text.alphabet import Alphabet
from fada.text.normalizer import TextNormalizer

EDITED = 0.99
"""λ at most where frequencies were edited: with λ = 1 no target acts at all."""
OWN_SHARE = 0.5
"""Of the texts that were dropped, where the document's domain was found besides."""
_MIXTURES = 8
"""Mixtures of domains that are kept with what the search prepared for them."""
_AS_WRITTEN = TextNormalizer(form="NFC", case="keep")


class Candidates:
    """The domains that a model may find by itself: those of its folder, else those that come with fada."""

    def __init__(self, model: str) -> None:
        self.folder = Path(resolve(model))
        self.stored = Decoder.of_model(self.folder)
        own = None if self.stored is None else self.stored.knowledge.prior
        self.mixtures: OrderedDict[tuple[tuple[str, float], ...], Knowledge] = OrderedDict()
        self.prior: CharDistribution | None = training_text_of(self.folder) or own
        self.assumed = training_pairs_of(self.folder)

    @cached_property
    def found(self) -> dict[str, Knowledge]:
        own = knowledge_of_model(self.folder)
        if not own and self.stored is not None:
            own = _by_domain(self.stored.knowledge)
        if not own and self.folder.is_dir():
            own = {name: known.with_prior(self.prior) for name, known in all_built_in().items()}
        return own


@lru_cache(maxsize=4)
def candidates_of(model: str) -> Candidates:
    """The candidates of a model, read once."""
    return Candidates(model)


@lru_cache(maxsize=16)
def _of_text(name: str, text: str, prior: CharDistribution | None, assumed: CharNgram | None) -> Knowledge:
    """The knowledge of a text that was dropped, made once."""
    lines = text.splitlines()
    counted = TargetSet.from_texts({name: lines}, None if prior is None else prior.normalizer)
    return Knowledge.from_texts(lines, counted, name=name).with_prior(prior, assumed)


def _by_domain(knowledge: Knowledge) -> dict[str, Knowledge]:
    """Each domain of a decoder that is stored with a model, for itself."""
    return {
        name: replace(
            knowledge,
            targets=TargetSet({name: knowledge.targets[name]}),
            global_lm=knowledge.domain_lms.get(name, knowledge.global_lm),
            domain_lms={},
            about=knowledge.about.model_copy(update={"name": name}),
        )
        for name in knowledge.targets or ()
        if knowledge.targets is not None
    }


class Known:
    """What is known of a document.

    Args:
        model: name or folder of its model.
        texts: by name.
        chosen: domain, weights, edited targets.
        readings: of the document without knowledge, for a target if there is no other.
        beam: of the search.
    """

    def __init__(
        self, model: str, texts: Mapping[str, str], chosen: Chosen, readings: Callable[[], Sequence[str]], beam: int
    ) -> None:
        self.chosen, self.beam = chosen, beam
        self.candidates = candidates_of(model)
        self.prior = self.candidates.prior
        self.texts = {name: _of_text(name, text, self.prior, self.candidates.assumed) for name, text in texts.items()}
        self._readings = readings
        self.knowledge = self._chosen()

    @property
    def domains(self) -> list[str]:
        """Those that can be chosen: the texts, then what the model brings."""
        return list({**self.texts, **self.candidates.found})

    def _of(self, name: str) -> Knowledge:
        return self.texts[name] if name in self.texts else self.candidates.found[name]

    def _chosen(self) -> Knowledge:
        """The knowledge of the domain, of a mixture, or of what was found and dropped."""
        if self.chosen.domain is None:
            return Knowledge()
        if parts := [(self._of(name), share) for name, share in self.chosen.mix.items() if name in self.domains]:
            return self._mixed(parts)
        if self.chosen.domain in self.domains:
            return self._of(self.chosen.domain)
        parts = [(text, OWN_SHARE * text.characters) for text in self.texts.values()]
        total = sum(share for _, share in parts)
        found = [(self._of(name), p) for name, p in self.chosen.inferred or () if name in self.candidates.found]
        parts = [(text, share / total) for text, share in parts] if total else []
        return self._mixed([*parts, *found]) if parts or found else Knowledge()

    def _mixed(self, parts: Sequence[tuple[Knowledge, float]]) -> Knowledge:
        if len(parts) == 1:
            return parts[0][0]
        key = tuple((part.fingerprint(), share) for part, share in parts)
        mixtures = self.candidates.mixtures
        if key not in mixtures:
            name = " and ".join(part.name for part, _ in parts)
            mixtures[key] = Knowledge.mixture(parts, name).with_prior(self.prior, self.candidates.assumed)
            while len(mixtures) > _MIXTURES:
                mixtures.popitem(last=False)
        return mixtures[key]

    @property
    def domain(self) -> str | None:
        """The one that was chosen, else the most probable one."""
        if self.chosen.domain in self.domains:
            return self.chosen.domain
        return self.inferred[0] if self.inferred and self.chosen.domain == UNKNOWN else None

    @property
    def inferred(self) -> tuple[str, float] | None:
        """The most probable domain, with its probability."""
        return next(((name, p) for name, p in self.chosen.inferred or () if name in self.candidates.found), None)

    @property
    def usual(self) -> Weights:
        """The weights of one who says nothing: stored with the model for its domains, else by text and certainty."""
        stored = self.candidates.stored
        if stored is not None and self.domain in (stored.knowledge.targets or ()) and not self.texts:
            return stored.weights
        return weights_for(self.knowledge.characters, self.chosen.certainty, over=self.knowledge.assumed is not None)

    @property
    def weights(self) -> dict[str, float]:
        """As chosen, else the usual ones."""
        if self.chosen.weights is not None:
            return dict(self.chosen.weights)
        usual = self.usual
        return {"lam": usual.lam, "prior": usual.prior_weight, "lm": usual.lm_weight, "length": usual.length_bonus}

    @property
    def counted(self) -> CharDistribution | None:
        """The target as it was counted: of the domain, else of the document's own readings."""
        if self.chosen.domain is None:
            return None
        if self.knowledge.targets is not None:
            return self.knowledge.targets.overall
        readings = self._readings()
        return CharDistribution.from_texts(readings, _AS_WRITTEN) if any(readings) else None

    @property
    def target(self) -> CharDistribution | None:
        """The target with its edits."""
        counted = self.counted
        if counted is None or not self.chosen.targets:
            return counted
        return counted.with_frequency(dict(self.chosen.targets))

    def reader(self, symbols: Sequence[str], blank: int) -> Reader:
        """The searches over emissions of an alphabet."""
        plain = self.knowledge.decoder(Alphabet(tuple(symbols), blank)).replace(beam_size=self.beam)
        if self.chosen.domain is None:
            return Reader(plain, plain)
        weights, target, lm = self.weights, self.target, self.knowledge.global_lm
        if lm is not None and self.knowledge.assumed is not None:
            lm = self.knowledge.lm_of("over", None)
        edited = target is not None and bool(self.chosen.targets)
        lam = NO_GUIDANCE if target is None else min(weights["lam"], EDITED) if edited else weights["lam"]
        prior = self.knowledge.prior
        corrects = target is not None and prior is not None and prior.normalizer == target.normalizer
        guided = plain.replace(
            target=target if lam < NO_GUIDANCE or (corrects and weights["prior"]) else None,
            lam=lam,
            distance="aligned_w2" if edited else "sorted_w2",
            lm=lm,
            lm_weight=weights["lm"] if lm is not None else 0.0,
            prior=prior if corrects else None,
            prior_weight=weights["prior"] if corrects else 0.0,
            length_bonus=weights["length"] if lm is not None else 0.0,
        )
        return Reader(guided, plain)


def looked_at(chosen: Chosen, model: str, symbols: Sequence[str], blank: int, lines: Sequence[np.ndarray]) -> Chosen:
    """With the domains that emissions of a document speak for, and the recogniser's certainty of them."""
    if not lines:
        return chosen
    found = infer(Alphabet(tuple(symbols), blank), lines, candidates_of(model).found)
    pairs = [[n, round(p, 3)] for n, p in zip(found.names, found.probabilities, strict=True) if p >= 0.05]
    told = {"inferred": pairs if found.fits else [], "certainty": round(certainty_of(lines), 4)}
    return chosen.model_copy(update=told)
