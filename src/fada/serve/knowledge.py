"""What is known of a document, as its decoder takes it: the model's own, texts that were dropped, targets by hand."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from fada.decoding.ctc import CTCBeamDecoder
from fada.decoding.knowledge import Decoder, Knowledge
from fada.decoding.lm import CharNgram
from fada.decoding.weights import Weights
from fada.models.folders import resolve
from fada.serve.reading import Reader
from fada.targets.distribution import CharDistribution

UNKNOWN = "unknown"
EDITED = 0.99
"""λ at most where frequencies were edited: with λ = 1 no target acts at all."""
TEXT_WEIGHTS = {"lam": 1.0, "prior": 0.0, "lm": 0.4, "length": 1.0}
"""For a document with texts, if its model has no weights of its own."""


@dataclass(frozen=True)
class Chosen:
    """What was chosen for a document, as it is stored."""

    domain: str | None = UNKNOWN
    weights: Mapping[str, float] | None = None
    targets: Mapping[str, float] = field(default_factory=dict)

    @classmethod
    def of(cls, stored: Mapping[str, Any]) -> "Chosen":
        """Of the column of a document."""
        return cls(stored.get("domain", UNKNOWN), stored.get("weights"), stored.get("targets") or {})

    def to_dict(self) -> dict[str, Any]:
        """For the store."""
        return {"domain": self.domain, "weights": self.weights, "targets": dict(self.targets)}


class Known:
    """What is known of a document.

    Args:
        model: name or folder of its model.
        texts: by name.
        chosen: domain, weights, edited targets.
        beam: of the search.
    """

    def __init__(self, model: str, texts: Mapping[str, str], chosen: Chosen, beam: int) -> None:
        self.chosen, self.beam = chosen, beam
        self.own = Decoder.of_model(resolve(model))
        self.texts = {name: text.splitlines() for name, text in texts.items()}
        self.knowledge = self._knowledge()

    def _knowledge(self) -> Knowledge:
        own = self.own.knowledge if self.own else Knowledge()
        if not self.texts:
            return own
        given = Knowledge.from_texts(self.texts)
        if own.targets is None:
            return given
        targets = own.targets
        assert given.targets is not None
        for name in given.targets:
            if name not in targets and given.targets[name].normalizer == targets.overall.normalizer:
                targets = targets.with_domain(name, given.targets[name])
        own_lm, given_lm = own.global_lm, given.global_lm
        mixed = given_lm if own_lm is None or given_lm is None else given_lm.interpolate(own_lm, 0.5)
        lms = {**own.domain_lms, **given.domain_lms}
        return Knowledge(targets, own.prior, mixed, lms, own.lm_order, own.lm_share)

    @property
    def domains(self) -> list[str]:
        """Those that can be chosen."""
        return list(self.knowledge.targets or ())

    @property
    def domain(self) -> str | None:
        """The one that was chosen, if it is known."""
        return self.chosen.domain if self.chosen.domain in self.domains else None

    @property
    def weights(self) -> dict[str, float]:
        """As chosen, else those of the model, else what suits texts, else none."""
        if self.chosen.weights is not None:
            return dict(self.chosen.weights)
        if self.own is not None:
            own = self.own.weights
            return {"lam": own.lam, "prior": own.prior_weight, "lm": own.lm_weight, "length": own.length_bonus}
        return dict(TEXT_WEIGHTS) if self.texts else {"lam": 1.0, "prior": 0.0, "lm": 0.0, "length": 0.0}

    @property
    def lm(self) -> CharNgram | None:
        """The language model of the domain, else of all of them."""
        return self.knowledge.domain_lms.get(self.domain or "", self.knowledge.global_lm)

    @property
    def counted(self) -> CharDistribution | None:
        """The target as it was counted."""
        return None if self.chosen.domain is None else self.knowledge.target_of(self.domain)

    @property
    def target(self) -> CharDistribution | None:
        """The target with its edits."""
        counted = self.counted
        if counted is None or not self.chosen.targets:
            return counted
        return counted.with_frequency(dict(self.chosen.targets))

    def decoder(self, symbols: Sequence[str], blank: int) -> Reader:
        """The searches over emissions of an alphabet."""
        plain = CTCBeamDecoder(symbols, blank, beam_size=self.beam)
        if self.chosen.domain is None:
            return Reader(plain, plain)
        weights, target, lm = self.weights, self.target, self.lm
        lam = min(weights["lam"], EDITED) if self.chosen.targets else weights["lam"]
        prior = self.knowledge.prior
        settings = Weights(lam=lam if target is not None else 1.0)
        guided = plain.replace(
            target=target,
            lam=settings.lam,
            lm=lm,
            lm_weight=weights["lm"] if lm is not None else 0.0,
            prior=prior,
            prior_weight=weights["prior"] if target is not None and prior is not None else 0.0,
            length_bonus=weights["length"],
        )
        return Reader(guided, plain)
