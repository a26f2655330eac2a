"""Searching for the text of lines under any weights, each line with what is known of its domain."""

import hashlib
import json
import os
from abc import abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Protocol, runtime_checkable

import numpy as np

from fada.common.files import write_json
from fada.data.columns import LineColumns
from fada.decoding.hypothesis import Hypothesis
from fada.decoding.knowledge import Knowledge
from fada.decoding.weights import Weights
from fada.errors import FadaError
from fada.targets.distribution import CharDistribution

if TYPE_CHECKING:
    from fada.decoding.emissions import Emissions

Kind = Literal["ctc", "seq2seq", "nbest"]
"""What is searched: emissions, the tokens of a decoder, lists of hypotheses."""
EVERY_TERM = frozenset(Weights.model_fields)


@runtime_checkable
class Search(Protocol):
    """Lines, what a recogniser says of them, and what is known of their domains: asked for the best text of each.

    Made by ``Recognizer.search(lines, knowledge)``; also over stored emissions (:class:`BeamSearch`) and n-best lists
    (:class:`fada.decoding.nbest.Rescorer`). :class:`Stored` around any of them keeps what was found.

    Attributes:
        kind: what is searched; tuned weights remember it.
        terms: the weights that change what is found.
        knowledge: targets and language models.
        cheap: whether other weights cost little, as the network is not run again for them.
        keeps_several: whether :meth:`nbest` gives more than the best, at no further cost.
        ids, references, domains: of the lines; references are None unless every line has one.
    """

    kind: Kind
    terms: frozenset[str]
    knowledge: Knowledge
    cheap: bool = True
    keeps_several: bool = False
    ids: list[str]
    references: list[str] | None
    domains: list[str | None]

    @property
    def lines(self) -> LineColumns:
        """What is known of the lines."""
        return LineColumns(self.ids, self.references, self.domains if any(self.domains) else None)

    def without_domains(self) -> "Search | None":
        """The same lines as if nobody knew their domains, if that can be searched."""
        return None

    @abstractmethod
    def hypotheses(self, weights: Weights, alignment: bool = False) -> list[Hypothesis]:
        """The best hypothesis of every line; with `alignment`, frames and confidences where there are any."""

    @abstractmethod
    def recognized(self) -> Iterator[bytes]:
        """What the recogniser says of the lines, for fingerprints."""

    def choose(self, weights: Weights) -> list[str]:
        """The best text of every line."""
        return [hypothesis.text for hypothesis in self.hypotheses(weights)]

    def greedy(self) -> list[str]:
        """The texts of the cheapest search, without any knowledge."""
        return self.choose(Weights(beam=1))

    def keep(self, path: Path) -> None:
        """Write what the recogniser says of the lines, where that can be searched again: emissions, as ``.npz``."""
        return

    def nbest(self, weights: Weights) -> list[list[Hypothesis]]:
        """All that a search keeps of every line, best first; where `keeps_several` is not said, the best alone."""
        return [[hypothesis] for hypothesis in self.hypotheses(weights)]

    def check(self, weights: Weights) -> None:
        """Refuse weights that ask for a term this search does not have, or for knowledge that is not there."""
        self.knowledge.check(weights)
        usual, asked = Weights(beam=weights.beam), weights.change()
        if odd := [n for n in Weights.model_fields if n not in self.terms and getattr(asked, n) != getattr(usual, n)]:
            raise FadaError(
                f"the weights ask for {' and '.join(odd)}, which a model of this kind ({self.kind}) cannot follow; "
                f"it is guided by {', '.join(sorted(self.terms))}."
            )


def decoder_settings(weights: Weights, prior: CharDistribution | None) -> dict[str, Any]:
    """The weights as arguments of a decoder."""
    settings = weights.model_dump(exclude={"beam", "lm"})
    return {**settings, "beam_size": weights.beam, "prior": prior if weights.prior_weight else None}


class BeamSearch(Search):
    """Decodes emissions under any weights, each line with the target and language model of its domain.

    What the decoder prepares for symbols, targets and language models is kept with the knowledge.
    """

    kind: Kind = "ctc"
    terms = EVERY_TERM
    keeps_several = True

    def __init__(self, emissions: "Emissions", knowledge: Knowledge | None = None, threads: int | None = None) -> None:
        self.emissions = emissions
        self.knowledge = knowledge = knowledge or Knowledge()
        self.ids = list(emissions.ids)
        self.references = emissions.references
        self.domains = [domain or None for domain in emissions.domains or [""] * len(self.ids)]
        self._targets = {domain: knowledge.target_of(domain) for domain in set(self.domains)}
        self._decoder = knowledge.decoder(emissions.alphabet).replace(threads=threads)

    def __reduce__(self) -> tuple[type["BeamSearch"], tuple[Any, ...]]:
        """To be sent elsewhere: what it is made of; what the decoder prepared stays here."""
        return BeamSearch, (self.emissions, self.knowledge, self._decoder.threads)

    def without_domains(self) -> "BeamSearch":
        """The same emissions, whose lines get the target and language model of all domains."""
        return BeamSearch(replace(self.emissions, domains=None), self.knowledge, self._decoder.threads)

    def hypotheses(self, weights: Weights, alignment: bool = False) -> list[Hypothesis]:
        """The best hypothesis of every line."""
        return [found[0] for found in self._decode(weights, 1, alignment)]

    def nbest(self, weights: Weights) -> list[list[Hypothesis]]:
        """The whole beam of every line, best first."""
        return self._decode(weights, weights.beam)

    def _decode(self, weights: Weights, nbest: int, alignment: bool = False) -> list[list[Hypothesis]]:
        self.check(weights)
        needs_target = weights.guided or bool(weights.prior_weight)
        decoder = self._decoder.replace(**decoder_settings(weights, self.knowledge.prior))
        return decoder.decode_batch(
            self.emissions.log_probs,
            targets=[self._targets[domain] for domain in self.domains] if needs_target else None,
            lms=[self.knowledge.lm_of(weights.lm, d) for d in self.domains] if weights.lm != "none" else None,
            nbest=nbest,
            alignment=alignment,
            ids=self.ids,
        )

    def keep(self, path: Path) -> None:
        """Write the emissions."""
        self.emissions.save(path.with_suffix(".npz"))

    def recognized(self) -> Iterator[bytes]:
        """The emissions."""
        for log_probs in self.emissions.log_probs:
            yield np.ascontiguousarray(log_probs, np.float32).tobytes()

    def greedy(self) -> list[str]:
        """Best path decoding of every line."""
        return [self._decoder.greedy(log_probs).text for log_probs in self.emissions.log_probs]


class Stored(Search):
    """Another search whose findings are kept in a folder, one file for each setting.

    A file of another model, other lines or other knowledge is not used but replaced. For searches that take long: a
    token model runs its decoder anew for every setting.
    """

    def __init__(self, search: Search, folder: str | os.PathLike[str]) -> None:
        self.search, self.folder = search, Path(folder)
        self.kind, self.terms, self.cheap, self.knowledge = search.kind, search.terms, search.cheap, search.knowledge
        self.ids, self.references, self.domains = search.ids, search.references, search.domains
        self._known: str | None = None

    def hypotheses(self, weights: Weights, alignment: bool = False) -> list[Hypothesis]:
        """The best hypothesis of every line, without the frames it was read from."""
        self.check(weights)
        weights = weights.change()
        knowing = "" if weights == Weights(beam=weights.beam) else self.knowledge.fingerprint()

        def found() -> list[list[Any]]:
            return [[h.text, h.score, h.log_prob, h.distance, h.lm_log_prob] for h in self.search.hypotheses(weights)]

        return [Hypothesis(*values) for values in self._kept(weights.name, knowing, found)]

    def greedy(self) -> list[str]:
        """The texts of the cheapest search."""
        return self._kept("greedy", "", self.search.greedy)

    def recognized(self) -> Iterator[bytes]:
        """What the recogniser says of the lines."""
        return self.search.recognized()

    def _kept(self, name: str, knowing: str, find: Callable[[], list[Any]]) -> list[Any]:
        path, fingerprint = self.folder / f"{name}.json", f"{self._fingerprint()} {knowing}".strip()
        try:
            stored = json.loads(path.read_text(encoding="utf-8"))
            if stored["fingerprint"] == fingerprint:
                return stored["lines"]
        except (FileNotFoundError, ValueError, KeyError, TypeError):
            pass  # not there, or not whole: found anew
        lines = find()
        write_json(path, {"fingerprint": fingerprint, "lines": lines})
        return lines

    def _fingerprint(self) -> str:
        if self._known is None:
            digest = hashlib.blake2b(json.dumps([self.ids, self.domains]).encode(), digest_size=12)
            for part in self.search.recognized():
                digest.update(part)
            self._known = digest.hexdigest()
        return self._known
