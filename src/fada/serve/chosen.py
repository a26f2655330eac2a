"""What a scholar has chosen for a document: domain, weights, frequencies."""

from collections.abc import Mapping, Sequence
from typing import Any

from pydantic import BaseModel

UNKNOWN = "unknown"
"""The domain is looked for in what was read."""


class Chosen(BaseModel, frozen=True):
    """What was chosen for a document and found out about it, as it is stored.

    Attributes:
        domain: a name, `unknown` to find it, None for a plain reading.
        mix: shares of several domains, instead of one.
        weights: None for what suits the texts and the recogniser's certainty.
        targets: frequencies that were set by hand, by character.
        inferred: the domains that the document may be of, with their probabilities; None if none was looked for.
        certainty: of the recogniser.
        version: how often somebody chose; what the machine finds out does not count.
    """

    domain: str | None = UNKNOWN
    mix: Mapping[str, float] = {}
    weights: Mapping[str, float] | None = None
    targets: Mapping[str, float] = {}
    inferred: Sequence[Any] | None = None
    certainty: float = 0.9
    version: int = 0
