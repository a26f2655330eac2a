"""Which of the known domains is a document of? Judged by its emissions: by what each language model makes of them.

A document is a page or a manuscript, never a line. Each candidate's language model decodes some of its lines, all with
the same weights; the totals of these scores are compared.
"""

import hashlib
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from fada.decoding.defaults import certainty_of, weights_for
from fada.decoding.knowledge import Knowledge
from fada.decoding.weights import Weights
from fada.targets.target_set import TargetSet
from fada.text.counting import count_characters

if TYPE_CHECKING:
    from fada.decoding.wordlist import Words
from fada.text.alphabet import Alphabet

LINES = 16
"""Lines of a document that are looked at."""
BEAM = 6
_WEIGHT, _BONUS = 0.4, 0.7
_TEMPERATURE = 6.0
"""The difference of scores that makes one domain e times as probable as another: lines of a document are alike."""
_TEMPERATURE_OF_FREQUENCIES, _BORROWED = 16.0, 100.0
"""The same for frequencies of characters, and how many characters of its language a century borrows: on 16 lines each
of 64 manuscripts the most probable century is the right one as often as its probability says (48 %)."""
SLACK = 1.25
"""A language model fits if it needs at most so many times the bits for a character as for other text of its kind. Of 81
manuscripts those read in the right language needed up to 1.14 times as many; Greek 1.4, German 1.5, English 1.6."""
READS = 0.65
"""Of a recogniser that is less certain there is no telling the language: what it writes is the language model's."""


@dataclass(frozen=True)
class Posterior:
    """How probable each domain is for a document.

    Attributes:
        names, probabilities: of the candidates, the most probable first.
        bits: per character of the decoded text under the language model of the most probable one.
        fits: whether that model reads the text like one of its kind; otherwise none of the candidates is used.
        knowledge: of the most probable one, a mixture if several are probable, None if none fits.
        centuries: where the frequencies of single centuries are known of the most probable one, their names and
            probabilities, the most probable first; they are told, not used.
    """

    names: tuple[str, ...]
    probabilities: tuple[float, ...]
    bits: float
    fits: bool
    knowledge: Knowledge | None
    centuries: tuple[tuple[str, float], ...] = ()

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
        told = f"{self.names[0]} (certainty {self.certainty:.0%}{'; ' if others else ''}{', '.join(others)})"
        return told + "".join(f", perhaps {name} ({p:.0%})" for name, p in self.centuries[:1])


def infer(
    alphabet: Alphabet,
    log_probs: Sequence[np.ndarray],
    candidates: Mapping[str, Knowledge],
    *,
    lines: int = LINES,
) -> Posterior:
    """Which of the `candidates` a document is of.

    Args:
        alphabet: of the recogniser.
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
    spread = np.linspace(0, len(log_probs) - 1, lines).round().astype(int).tolist()
    chosen = [log_probs[i] for i in dict.fromkeys(spread)]  # np.unique would import as much again as all of this
    found = {}
    plain = next(iter(models.values())).decoder(alphabet).replace(beam_size=BEAM)  # prepares the alphabet for all
    for name, known in models.items():
        decoder = plain.replace(lm=known.global_lm, lm_weight=_WEIGHT, length_bonus=_BONUS)
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
    if not fits:
        return Posterior(names, shares, bits, fits, None)
    told = centuries(candidates[names[0]].targets, [each.text for each in best])
    return Posterior(names, shares, bits, fits, _mixed(candidates, names, shares), told)


def centuries(targets: TargetSet | None, texts: Sequence[str]) -> tuple[tuple[str, float], ...]:
    """How probable each domain of a language is for what was read, by its character frequencies alone.

    The likelihood of the counted characters under each domain's frequencies, which are smoothed by the language's, at a
    temperature: neighbouring characters, and manuscripts of one century, are not independent.

    Args:
        targets: of one language by century; without at least two of them nothing is told.
        texts: that were read of the document.
    """
    if targets is None or len(targets) < 2:
        return ()
    overall = targets.overall
    counted = count_characters(texts, overall.normalizer)
    counts = np.array([counted.get(symbol, 0) for symbol in overall.symbols], np.float64)
    scores = []
    for one in targets.values():
        own = np.array([one.frequency(symbol) * one.total for symbol in overall.symbols])
        smooth = (own + _BORROWED * overall.frequencies) / (one.total + _BORROWED)
        scores.append(float(counts[counts > 0] @ np.log(smooth[counts > 0])))
    odds = np.exp((np.array(scores) - max(scores)) / _TEMPERATURE_OF_FREQUENCIES)
    shares = dict(zip(targets, (odds / odds.sum()).tolist(), strict=True))
    return tuple(sorted(shares.items(), key=lambda item: -item[1]))


def _mixed(candidates: Mapping[str, Knowledge], names: Sequence[str], probabilities: Sequence[float]) -> Knowledge:
    """The knowledge of the most probable domains, each with its probability in tenths."""
    shares = [(candidates[n], round(p, 1)) for n, p in zip(names, probabilities, strict=True)]
    parts = [(known, share) for known, share in shares if share > 0] or [(candidates[names[0]], 1.0)]
    if len(parts) == 1:
        return parts[0][0]
    name = " and ".join(part.name for part, _ in parts)
    return Knowledge.mixture(parts, name).with_prior(parts[0][0].prior, parts[0][0].assumed)


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
        about = None if found is None else [found.names, found.probabilities, found.bits, found.fits, found.centuries]
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

    def decide(self, alphabet: Alphabet, log_probs: Sequence[np.ndarray], domain: str | None = None) -> Decision:
        """The decoder for a document.

        Args:
            alphabet: of the recogniser.
            log_probs: (frames, classes) of lines of the document.
            domain: of the document, if it is known.
        """
        certainty = certainty_of(log_probs)
        known = self.given or self.told(domain)
        if known is not None:
            return self._decision(known, certainty, None)
        return self._found(infer(alphabet, log_probs, self.candidates), certainty)

    def restored(self, record: Mapping[str, Any]) -> Decision:
        """The decision that was recorded."""
        if record["posterior"] is None:
            name = record["knowledge"]
            return self._decision(self.given or self.told(name) or Knowledge(), record["certainty"], None)
        names, probabilities, bits, fits, *told = record["posterior"]
        knowledge = _mixed(self.candidates, names, probabilities) if fits else None
        dated = tuple((name, p) for name, p in told[0]) if told else ()
        found = Posterior(tuple(names), tuple(probabilities), bits, fits, knowledge, dated)
        return self._found(found, record["certainty"])

    def told(self, domain: str | None) -> Knowledge | None:
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
        over = known.assumed is not None
        weights = weights_for(known.characters if has_model else 0, certainty, over=over).change(**self.asked)
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
