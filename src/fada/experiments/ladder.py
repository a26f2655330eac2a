"""The ladder of one manuscript: what a reader may have, and what is read with it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

from fada.data.line import Line
from fada.decoding.defaults import BEAM, certainty_of, weights_for
from fada.decoding.emissions import Emissions
from fada.decoding.evidence import Posterior, infer
from fada.decoding.knowledge import Knowledge
from fada.decoding.search import BeamSearch
from fada.decoding.weights import Weights
from fada.distances import LAM
from fada.errors import FadaError
from fada.models.ctc import CTCRecognizer
from fada.models.recognizer import Recognizer

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
    """

    name: str
    title: str
    short: str
    knowing: Knowing = "nothing"
    corrected: int = 0


RUNGS = (
    Rung("plain", "nothing: beam search", "plain"),
    Rung("french", "a text in another language (French)", "French text", "other"),
    Rung("equation", "the language's character frequencies: Eq. 2, λ = 0.5", "Eq. 2", "equation"),
    Rung("frequencies", "the language's character frequencies: prior correction", "frequencies", "frequencies"),
    Rung("text", "text in the language", "text", "language"),
    Rung("inferred", "**nothing given: the language inferred, its text**", "inferred", "inferred"),
    Rung("lines8", "8 corrected lines", "8 lines", corrected=8),
    Rung("lines8-text", "8 corrected lines, text in the language", "8 + text", "language", 8),
    Rung("lines24", "24 corrected lines", "24 lines", corrected=24),
    Rung("lines24-text", "**24 corrected lines, text in the language**", "24 + text", "language", 24),
)


class Ladder:
    """Lines as a recogniser sees them, read by any rung that needs no further correcting; the network runs once.

    Args:
        recognizer: as it is, or adapted already.
        lines: of one manuscript.
        known: what is known of the domains it may be of; see :func:`fada.decoding.knowledge.knowledge_of_model`.
    """

    def __init__(self, recognizer: Recognizer, lines: Sequence[Line], known: Mapping[str, Knowledge]) -> None:
        if not isinstance(recognizer, CTCRecognizer):
            raise FadaError("the rungs of the ladder are read from the emissions of a CTC model; this one has none.")
        self.emissions: Emissions = recognizer.emit(lines)
        self.known = known
        self.certainty = certainty_of(self.emissions.log_probs)

    def read(self, rung: Rung, language: str) -> tuple[list[str], dict[str, Any]]:
        """The texts of the lines, and what was found and used."""
        knowledge, about = self._known(rung.knowing, language)
        weights = self._weights(rung.knowing, knowledge)
        texts = BeamSearch(self.emissions, knowledge).choose(weights)
        return texts, {**about, "certainty": round(self.certainty, 4), "weights": weights.name}

    def language(self, code: str) -> Knowledge:
        """What is known of a language, all its centuries together."""
        if code in self.known:
            return self.known[code]
        parts = [known for known in self.known.values() if known.about.language == code]
        if not parts:
            raise FadaError(f"the model brings no knowledge of the language {code!r}, only {', '.join(self.known)}.")
        mixed = Knowledge.mixture([(part, float(part.characters)) for part in parts], code)
        return mixed.with_prior(parts[0].prior)

    @cached_property
    def inferred(self) -> Posterior:
        """Which of the known domains the lines are of."""
        return infer(self.emissions, self.emissions.log_probs, self.known)

    def _known(self, knowing: Knowing, language: str) -> tuple[Knowledge | None, dict[str, Any]]:
        if knowing == "nothing":
            return None, {}
        if knowing == "inferred":
            best = self.inferred
            names = dict(zip(best.names, (round(p, 4) for p in best.probabilities), strict=True))
            likely = {name: p for name, p in names.items() if p >= 0.01}
            return best.knowledge, {"inferred": str(best), "probabilities": likely, "bits": round(best.bits, 3)}
        knowledge = self.language(OTHER if knowing == "other" else language)
        return knowledge, {"knowledge": knowledge.name, "characters": knowledge.characters}

    def _weights(self, knowing: Knowing, knowledge: Knowledge | None) -> Weights:
        if knowledge is None:
            return Weights(beam=BEAM)
        if knowing == "equation":
            return Weights(beam=BEAM, lam=LAM)
        if knowing == "frequencies":
            return Weights(beam=BEAM, prior_weight=PRIOR_WEIGHT)
        return weights_for(knowledge.characters, self.certainty)
