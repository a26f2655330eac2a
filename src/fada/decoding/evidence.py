"""Which of the known domains is a document of? Judged by its emissions: by what each language model makes of them.

A document is a page or a manuscript, never a line. Each candidate's language model decodes some of its lines, all with
the same weights; the totals of these scores are compared.
"""

import hashlib
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from fada.decoding.defaults import certainty_of, weights_for
from fada.decoding.knowledge import Knowledge
from fada.decoding.weights import Weights

if TYPE_CHECKING:
    from fada.decoding.wordlist import Words

LINES = 16
"""Lines of a document that are looked at."""
BEAM = 6
_WEIGHT, _BONUS = 0.4, 0.7
_TEMPERATURE = 6.0
"""The difference of scores that makes one domain e times as probable as another: lines of a document are alike."""
SLACK = 1.25
"""A language model fits if it needs at most so many times the bits for a character as for other text of its kind. Of 81
manuscripts those read in the right language needed up to 1.14 times as many; Greek 1.4, German 1.5, English 1.6."""
READS = 0.65
"""Of a recogniser that is less certain there is no telling the language: what it writes is the language model's."""


class HasAlphabet(Protocol):
    """A CTC recogniser, emissions or an alphabet."""

    @property
    def symbols(self) -> Sequence[str]: ...
    @property
    def blank(self) -> int: ...


@dataclass(frozen=True)
class Posterior:
    """How probable each domain is for a document.

    Attributes:
        names, probabilities: of the candidates, the most probable first.
        bits: per character of the decoded text under the language model of the most probable one.
        fits: whether that model reads the text like one of its kind; otherwise none of the candidates is used.
        knowledge: of the most probable one, a mixture if several are probable, None if none fits.
    """

    names: tuple[str, ...]
    probabilities: tuple[float, ...]
    bits: float
    fits: bool
    knowledge: Knowledge | None

    @property
    def certainty(self) -> float:
        """The probability of the most probable domain."""
        return self.probabilities[0] if self.probabilities else 0.0

    @property
    def best(self) -> str | None:
        """The most probable domain, if it fits."""
        return self.names[0] if self.fits else None

    def __str__(self) -> str:
        if not self.fits:
            return "none of the known domains fits"
        others = [f"{n} {p:.0%}" for n, p in zip(self.names[1:], self.probabilities[1:], strict=True) if p >= 0.01]
        return f"{self.names[0]} (certainty {self.certainty:.0%}{'; ' if others else ''}{', '.join(others)})"


def infer(
    recognizer: HasAlphabet,
    log_probs: Sequence[np.ndarray],
    candidates: Mapping[str, Knowledge],
    *,
    lines: int = LINES,
) -> Posterior:
    """Which of the `candidates` a document is of.

    Args:
        recognizer: what gives the symbols of the classes and the blank: a CTC recogniser, its emissions, an alphabet.
        log_probs: (frames, classes) of each line of the document.
        candidates: knowledge by name; those without a language model are left out, and those of a century where there
            is one of the whole language, which reads better.
        lines: so many of them are looked at, spread over the document.
    """
    whole = {known.about.language for known in candidates.values() if known.about.century is None} - {None}
    models = {
        name: known
        for name, known in candidates.items()
        if known.global_lm is not None and (known.about.century is None or known.about.language not in whole)
    }
    if not models or not len(log_probs):
        return Posterior((), (), math.nan, False, None)
    chosen = [log_probs[i] for i in np.unique(np.linspace(0, len(log_probs) - 1, lines).round().astype(int))]
    found = {}
    for name, known in models.items():
        decoder = known.decoder(recognizer.symbols, recognizer.blank)
        decoder = decoder.replace(beam_size=BEAM, lm=known.global_lm, lm_weight=_WEIGHT, length_bonus=_BONUS)
        found[name] = [nbest[0] for nbest in decoder.decode_batch(chosen)]
    scores = np.array([sum(best.score for best in each) for each in found.values()])
    odds = np.exp((scores - np.max(scores)) / _TEMPERATURE)
    probabilities = odds / odds.sum()
    order = np.argsort(-probabilities, kind="stable")
    names = tuple([*models][i] for i in order)
    best = found[names[0]]
    characters = sum(len(each.text) for each in best)
    bits = -sum(each.lm_log_prob for each in best) / math.log(2) / characters if characters else math.inf
    usual = candidates[names[0]].about.bits
    fits = characters > 0 and (usual is None or bits <= SLACK * usual) and certainty_of(chosen) >= READS
    shares = tuple(float(probabilities[i]) for i in order)
    return Posterior(names, shares, bits, fits, _mixed(candidates, names, shares) if fits else None)


def _mixed(candidates: Mapping[str, Knowledge], names: Sequence[str], probabilities: Sequence[float]) -> Knowledge:
    """The knowledge of the most probable domains, each with its probability in tenths."""
    shares = [(candidates[n], round(p, 1)) for n, p in zip(names, probabilities, strict=True)]
    parts = [(known, share) for known, share in shares if share > 0] or [(candidates[names[0]], 1.0)]
    if len(parts) == 1:
        return parts[0][0]
    name = " and ".join(part.name for part, _ in parts)
    return Knowledge.mixture(parts, name).with_prior(parts[0][0].prior)


@dataclass(frozen=True)
class Decision:
    """What a document is read with.

    Attributes:
        weights, knowledge: of the decoder.
        certainty: of the recogniser, see :func:`fada.decoding.defaults.certainty_of`.
        posterior: how the knowledge was found; None if it was given.
    """

    weights: Weights
    knowledge: Knowledge
    certainty: float
    posterior: Posterior | None = None

    def record(self) -> dict[str, Any]:
        """What :meth:`Automatic.restored` needs, for JSON."""
        found = self.posterior
        about = None if found is None else [found.names, found.probabilities, found.bits, found.fits]
        return {"knowledge": self.knowledge.name or None, "certainty": self.certainty, "posterior": about}

    def __str__(self) -> str:
        return self.knowledge.name if self.posterior is None else str(self.posterior)


class Automatic:
    """A decoder for each document: with knowledge that is given or found out, and weights that follow it.

    Args:
        candidates: knowledge by name, of which the one that fits is used. A document whose lines have a domain of one
            of these names is read with that; `la-13` is of the language `la`, if there is nothing of its own.
        given: knowledge for all documents, instead.
        asked: weights that hold whatever the document (`beam`, …).
        words: lists of words that join the knowledge of every document.
    """

    def __init__(
        self,
        candidates: Mapping[str, Knowledge] | None = None,
        given: Knowledge | None = None,
        asked: Mapping[str, Any] | None = None,
        words: "Words | None" = None,
    ) -> None:
        self.candidates, self.given, self.asked = dict(candidates or {}), given, dict(asked or {})
        self.words = words
        self._mixtures: dict[tuple[Any, ...], Knowledge | None] = {}

    def decide(self, recognizer: HasAlphabet, log_probs: Sequence[np.ndarray], domain: str | None = None) -> Decision:
        """The decoder for a document.

        Args:
            recognizer: what gives the symbols of the classes and the blank.
            log_probs: (frames, classes) of lines of the document.
            domain: of the document, if it is known.
        """
        certainty = certainty_of(log_probs)
        known = self.given or self._told(domain)
        if known is not None:
            return self._decision(known, certainty, None)
        return self._found(infer(recognizer, log_probs, self.candidates), certainty)

    def restored(self, record: Mapping[str, Any]) -> Decision:
        """The decision that was recorded."""
        if record["posterior"] is None:
            name = record["knowledge"]
            return self._decision(self.given or self._told(name) or Knowledge(), record["certainty"], None)
        names, probabilities, bits, fits = record["posterior"]
        knowledge = _mixed(self.candidates, names, probabilities) if fits else None
        found = Posterior(tuple(names), tuple(probabilities), bits, fits, knowledge)
        return self._found(found, record["certainty"])

    def _told(self, domain: str | None) -> Knowledge | None:
        """What is known of a domain that was told: a century within its language, or the language."""
        own, language = (self.candidates.get(name) for name in ((domain or ""), (domain or "").partition("-")[0]))
        if own is None or language is None or own.about.century is None:
            return own or language
        return self._mixtures.setdefault((domain,), own.within(language))

    def _found(self, found: Posterior, certainty: float) -> Decision:
        """Documents with the same mixture share it, so that its automaton is made once."""
        key = (found.names, *(round(p, 1) for p in found.probabilities), found.fits)
        known = self._mixtures.setdefault(key, found.knowledge)
        return self._decision(known or Knowledge(), certainty, replace(found, knowledge=known))

    def _decision(self, known: Knowledge, certainty: float, found: Posterior | None) -> Decision:
        has_model = known.global_lm is not None
        weights = weights_for(known.characters if has_model else 0, certainty).change(**self.asked)
        if weights.guided:  # λ takes from the recogniser what it gives to the distance: the others give as much
            shared = ("lm_weight", "prior_weight", "length_bonus")
            weights = weights.change(**{name: weights.lam * getattr(weights, name) for name in shared})
        if self.words is not None:
            decoder = self.words.joined(weights, known)
            weights, known = decoder.weights, decoder.knowledge
        return Decision(weights, known, certainty, found)

    def fingerprint(self) -> str:
        """Changes when anything in here changes."""
        known = {**self.candidates, **({} if self.given is None else {"": self.given})}
        parts = [[name, one.fingerprint(), one.characters] for name, one in sorted(known.items())]
        asked = self.asked if self.words is None else {**self.asked, "words": self.words.fingerprint()}
        return hashlib.sha256(json.dumps([parts, asked], sort_keys=True).encode()).hexdigest()[:16]
