"""Searching stored emissions under any weights, each line with what is known of its domain."""

from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from fada.decoding.knowledge import Knowledge
from fada.decoding.weights import Weights
from fada.targets.distribution import CharDistribution

if TYPE_CHECKING:
    from fada.decoding.ctc import CTCBeamDecoder, Hypothesis
    from fada.decoding.emissions import Emissions
    from fada.decoding.lm import CharNgram


def make_decoder(
    weights: Weights,
    symbols: Sequence[str],
    blank: int,
    target: CharDistribution | None = None,
    prior: CharDistribution | None = None,
    lm: "CharNgram | None" = None,
    **options: Any,
) -> "CTCBeamDecoder":
    """A beam search with `weights`; what they need and is not given is named."""
    from fada.decoding.ctc import CTCBeamDecoder

    return CTCBeamDecoder(
        symbols,
        blank=blank,
        beam_size=weights.beam,
        target=target,
        lam=weights.lam,
        distance=weights.distance,
        scale=weights.scale,
        lm=lm,
        lm_weight=weights.lm_weight,
        prior=prior if weights.prior_weight else None,
        prior_weight=weights.prior_weight,
        length_bonus=weights.length_bonus,
        **options,
    )


@lru_cache(maxsize=4)
def _plain_decoder(symbols: tuple[str, ...], blank: int, threads: int | None) -> "CTCBeamDecoder":
    """One decoder to derive others from: what it prepares for language models serves batch after batch."""
    return make_decoder(Weights(), symbols, blank, threads=threads)


class BeamSearch:
    """Decodes stored emissions under any weights, each line with the target and language model of its domain.

    What the decoder prepares for symbols, targets and language models is kept from one setting to the next.
    """

    kind: Literal["ctc"] = "ctc"

    def __init__(self, emissions: "Emissions", knowledge: Knowledge, threads: int | None = None) -> None:
        self.emissions = emissions
        self.knowledge = knowledge
        self.ids = list(emissions.ids)
        self.references = emissions.references
        self.domains: list[str | None] = [*(emissions.domains or [])] or [None] * len(self.ids)
        self._targets = {domain: knowledge.target_of(domain) for domain in set(self.domains)}
        self._decoder = _plain_decoder(tuple(emissions.symbols), emissions.blank, threads)

    def hypotheses(self, weights: Weights) -> "list[Hypothesis]":
        """The best hypothesis of every line."""
        self.knowledge.check(weights)
        needs_target = weights.guided or bool(weights.prior_weight)
        decoder = self._decoder.replace(
            beam_size=weights.beam,
            lam=weights.lam,
            distance=weights.distance,
            scale=weights.scale,
            lm_weight=weights.lm_weight,
            prior=self.knowledge.prior if weights.prior_weight else None,
            prior_weight=weights.prior_weight,
            length_bonus=weights.length_bonus,
        )
        found = decoder.decode_batch(
            self.emissions.log_probs,
            targets=[self._targets[domain] for domain in self.domains] if needs_target else None,
            lms=[self.knowledge.lm_of(weights.lm, d) for d in self.domains] if weights.lm != "none" else None,
        )
        return [nbest[0] for nbest in found]

    def choose(self, weights: Weights) -> list[str]:
        """The best text of every line."""
        return [hypothesis.text for hypothesis in self.hypotheses(weights)]

    def recognized(self) -> Iterator[bytes]:
        """The emissions, for fingerprints."""
        for log_probs in self.emissions.log_probs:
            yield np.ascontiguousarray(log_probs, np.float32).tobytes()

    def greedy(self) -> list[str]:
        """Best path decoding of every line."""
        return [self._decoder.greedy(log_probs).text for log_probs in self.emissions.log_probs]


def decode_emissions(
    emissions: "Emissions", weights: Weights, knowledge: Knowledge, threads: int | None = None
) -> "list[Hypothesis]":
    """The best hypothesis of every line, each line with the target and language model of its domain."""
    return BeamSearch(emissions, knowledge, threads).hypotheses(weights)
