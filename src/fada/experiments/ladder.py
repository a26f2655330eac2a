"""The ladder of one manuscript: what a reader may have, and what is read with it."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

from pydantic import BaseModel

from fada.data.line import Line
from fada.decoding.emissions import Emissions
from fada.decoding.evidence import Automatic, Decision
from fada.decoding.knowledge import Knowledge
from fada.decoding.search import BeamSearch
from fada.decoding.weights import Weights
from fada.distances import LAM
from fada.errors import FadaError
from fada.experiments.worth import Rate, worth
from fada.models.looks import Looks
from fada.models.recognizer import Recognizer
from fada.targets.target_set import TargetSet

Knowing = Literal["nothing", "equation", "frequencies", "other", "language", "inferred"]
OTHER = "fr"
"""The language of a text that does not fit."""
PRIOR_WEIGHT = 0.5
"""Of log p_domain - log p_training for each character, where frequencies alone are known."""


@dataclass(frozen=True)
class Rung:
    """Something that a reader may have.

    Attributes:
        name: of files.
        title: in tables.
        short: in the heads of tables.
        knowing: what is known of the language.
        corrected: lines that were corrected.
        looks: at every line, see :meth:`fada.models.recognizer.Recognizer.use_looks`.
    """

    name: str
    title: str
    short: str
    knowing: Knowing = "nothing"
    corrected: int = 0
    looks: Looks = 1


RUNGS = (
    Rung("plain", "nothing: beam search", "plain"),
    Rung("french", "a text in another language (French)", "French text", "other"),
    Rung("equation", "the language's character frequencies: Eq. 2, λ = 0.5", "Eq. 2", "equation"),
    Rung("frequencies", "the language's character frequencies: prior correction", "frequencies", "frequencies"),
    Rung("text", "text in the language", "text", "language"),
    Rung("inferred", "**nothing given: the language inferred, its text**", "inferred", "inferred"),
    Rung(
        "inferred-again",
        "**the same, and lines looked at again where the network is unsure: as `fada transcribe` reads**",
        "as read",
        "inferred",
        looks="auto",
    ),
    Rung("looks", "nothing, but every line looked at five times", "5 looks", looks=5),
    Rung("inferred-looks", "**the language inferred, its text; five looks**", "inferred, 5 looks", "inferred", looks=5),
    Rung("lines8", "8 corrected lines", "8 lines", corrected=8),
    Rung("lines8-text", "8 corrected lines, text in the language", "8 + text", "language", 8),
    Rung("lines24", "24 corrected lines", "24 lines", corrected=24),
    Rung("lines24-text", "**24 corrected lines, text in the language**", "24 + text", "language", 24),
    Rung("lines24-looks", "24 corrected lines, text in the language; five looks", "24, 5 looks", "language", 24, 5),
)


class About(BaseModel, extra="forbid"):
    """What a rung found and used.

    Attributes:
        certainty: of the recogniser.
        weights: of the decoder, by name.
        knowledge, characters: its name and how much text it is of.
        inferred, probabilities, bits, centuries: how it was found, where it was not given.
    """

    certainty: float
    weights: str
    knowledge: str | None = None
    characters: int | None = None
    inferred: str | None = None
    probabilities: dict[str, float] = {}
    bits: float | None = None
    centuries: dict[str, float] = {}


class Ladder:
    """Lines as a recogniser sees them, read by any rung that needs no further correcting.

    The network runs once for all rungs of as many looks.

    Args:
        recognizer: as it is, or adapted already.
        lines: of one manuscript.
        known: what is known of the domains it may be of.
    """

    def __init__(self, recognizer: Recognizer, lines: Sequence[Line], known: Automatic) -> None:
        self.recognizer, self.lines, self.known = recognizer, lines, known
        self._seen: dict[Looks, Emissions] = {}

    def seen(self, looks: Looks = 1) -> Emissions:
        """What the network makes of the lines."""
        if looks not in self._seen:
            self.recognizer.use_looks(looks)
            self._seen[looks] = self.recognizer.emit(self.lines)
        return self._seen[looks]

    def read(self, rung: Rung, language: str) -> tuple[list[str], About]:
        """The texts of the lines, and what was found and used."""
        emissions = self.seen(rung.looks)
        decision = self._decided(rung.knowing, language, emissions)
        texts = BeamSearch(emissions, decision.knowledge).choose(decision.weights)
        about = About(certainty=round(decision.certainty, 4), weights=decision.weights.name)
        if decision.knowledge.name:
            about.knowledge, about.characters = decision.knowledge.name, decision.knowledge.characters
        if (found := decision.posterior) is not None:
            shares = zip(found.names, found.probabilities, strict=True)
            about.inferred, about.bits = str(found), round(found.bits, 3)
            about.probabilities = {name: round(share, 4) for name, share in shares if share >= 0.01}
            about.centuries = {name: round(share, 4) for name, share in found.centuries}
        return texts, about

    def predicted(self, rung: Rung, language: str) -> Rate:
        """The error rate that `fada worth` tells of the rung beforehand: with its text, if one is used."""
        emissions = self.seen(rung.looks)
        told = worth(emissions, self._decided(rung.knowing, language, emissions).knowledge)
        return told.expected.get("text", told.predicted)

    def _decided(self, knowing: Knowing, language: str, emissions: Emissions) -> Decision:
        """What the lines are read with."""
        alphabet, log_probs = emissions.alphabet, emissions.log_probs
        if knowing == "nothing":
            return Automatic(given=Knowledge()).decide(alphabet, log_probs)
        if knowing == "inferred":
            return self.known.decide(alphabet, log_probs)
        code = OTHER if knowing == "other" else language
        if code not in self.known.candidates:
            raise FadaError(f"nothing is known of the language {code!r}, only of {', '.join(self.known.candidates)}.")
        decision = self.known.decide(alphabet, log_probs, code)
        if knowing in ("equation", "frequencies") and (overall := decision.knowledge.overall) is not None:
            # those of the language: nobody told the century
            alone = replace(decision.knowledge, targets=TargetSet({code: overall}))
            decision = replace(decision, knowledge=alone)
        if knowing == "equation":
            return replace(decision, weights=Weights(beam=decision.weights.beam, lam=LAM))
        if knowing == "frequencies":
            return replace(decision, weights=Weights(beam=decision.weights.beam, prior_weight=PRIOR_WEIGHT))
        return decision
