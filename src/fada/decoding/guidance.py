r"""The score of a growing hypothesis (Eq. 2): its definition, and the same in O(1) per character.

.. math:: S(h) = \lambda \log P(h) - (1-\lambda)\, s\, d\bigl(\mathrm{freq}(h), p\bigr)

:class:`Guidance` holds the target `p`, the distance `d`, λ and the scale `s` (1 is the paper), and the hard
constraints. :meth:`Guidance.score` is the definition, recomputed from the text; the compiled functions of
:mod:`fada.decoding.kernels.distance` keep the same number up to date while characters are appended and removed. The
decoders are built from the latter and tested against the former.
"""

import math
import unicodedata
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from fada import distances
from fada.decoding.kernels.distance import (
    ALIGNED_W2,
    JS,
    KL,
    SORTED_W2,
    W1,
    append_character,
    appended_products,
    counted_distance,
    remove_character,
    removed_products,
    w2_value,
)
from fada.distances import DISTANCE, LAM, SCALE
from fada.errors import FadaError
from fada.targets.distribution import CharDistribution
from fada.text.characters import OTHER
from fada.text.normalizer import TextNormalizer

KINDS = {"sorted_w2": SORTED_W2, "aligned_w2": ALIGNED_W2, "js": JS, "kl": KL, "w1": W1}


@dataclass(frozen=True)
class Guidance:
    """What guides a decoder: target, distance, weights and hard constraints of Eq. 2.

    Args:
        target: the character distribution to align to; its normaliser is how hypotheses are counted.
        lam: λ between 0 and 1; 1 ignores the target.
        distance: ``sorted_w2`` (Eq. 1), ``aligned_w2``, ``js``, ``kl`` or ``w1``.
        scale: factor of the distance, 1 in the paper. W2 is small (one substituted character moves it by about 4e-4),
            so larger values are often needed for the target to be felt.
        forbidden: characters that may not be written. They are compared in the normal form of the target, so that with
            a lower-casing normaliser ``"e"`` forbids ``E`` too.
        allowed: the only characters that may be written (list the space if it is one of them), or None for all.
    """

    target: CharDistribution
    lam: float = LAM
    distance: str = DISTANCE
    scale: float = SCALE
    forbidden: frozenset[str] = frozenset()
    allowed: frozenset[str] | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "forbidden", frozenset(self.forbidden))
        object.__setattr__(self, "allowed", None if self.allowed is None else frozenset(self.allowed))
        distances.get(self.distance)
        if self.distance not in KINDS:
            raise FadaError(
                f"distance {self.distance!r} cannot guide a decoder: it has no form that follows a growing text. "
                f"Choose one of {', '.join(KINDS)}."
            )
        check_weight("lam", self.lam, 0, 1)
        check_weight("scale", self.scale, 0, math.inf)

    @property
    def alphabet(self) -> tuple[str, ...]:
        """The characters that are told apart; everything else is counted in the `OTHER` cell, if there is one."""
        return self.target.symbols

    @property
    def kind(self) -> int:
        """The code of the distance for compiled code."""
        return KINDS[self.distance]

    @property
    def weight(self) -> float:
        """What a distance is multiplied with in the score: (1 - λ) · scale."""
        return (1 - self.lam) * self.scale

    @cached_property
    def reference(self) -> np.ndarray:
        """(n,) float64 target frequencies in the order the compiled functions expect (ascending for sorted_w2)."""
        frequencies = np.array(self.target.frequencies, dtype=np.float64)
        return np.sort(frequencies) if self.kind == SORTED_W2 else frequencies

    def covering(self, characters: Iterable[str]) -> "Guidance":
        """Guidance whose alphabet can count all of `characters`: an `OTHER` cell is added if one is outside it."""
        target = self.target.covering(characters)
        return self if target is self.target else replace(self, target=target)

    def cell(self, character: str) -> int:
        """The position in the alphabet where a normalised character is counted."""
        index = self.target.index
        at = index.get(character, index.get(OTHER, -1)) if character != OTHER else index.get(OTHER, -1)
        if at < 0:
            raise FadaError(f"the character {character!r} is outside the alphabet of the target: use covering() first.")
        return at

    def distance_of(self, text: str) -> float:
        """Distance of the characters of `text` from the target; the empty text is the zero vector.

        A character outside the alphabet is pooled in an `OTHER` cell with target 0, never dropped.
        """
        target = self.target.covering(self.target.normalizer(text))
        return float(distances.get(self.distance)(target.vector_of(text), target.frequencies))

    def distances_of(self, texts: Sequence[str]) -> np.ndarray:
        """:meth:`distance_of` each of many texts, (texts,)."""
        normal = [self.target.normalizer(text) for text in texts]
        outside = np.array([not self.target.index.keys() >= set(text) for text in normal], bool)
        found = np.zeros(len(texts))
        for rows in (np.flatnonzero(~outside), np.flatnonzero(outside)):
            some = [normal[row] for row in rows]
            target = self.target.covering(set("".join(some)))
            found[rows] = distances.get(self.distance)(target.vectors_of(some), target.frequencies)
        return found

    def score(self, log_prob: float, text: str) -> float:
        """Eq. 2 by definition: λ · log_prob - (1 - λ) · scale · distance."""
        return self.lam * log_prob - self.weight * self.distance_of(text)

    @cached_property
    def constraint(self) -> "Constraint":
        """The hard constraints, in the normal form of the target."""
        return Constraint(self.target.normalizer, self.forbidden, self.allowed)

    def start(self) -> "GrowingText":
        """The empty text, to be grown character by character."""
        return GrowingText(self)


class GrowingText:
    """The distance of a text that grows (and shrinks) by single, already normalised characters.

    A plain use of the compiled functions, for tests, explanations and decoders that are not compiled themselves::

        text = guidance.start()
        for character in guidance.target.normalizer("some words"):
            text.append(character)
        text.distance == guidance.distance_of("some words")
    """

    def __init__(self, guidance: Guidance) -> None:
        n = len(guidance.alphabet)
        self.guidance = guidance
        self.length = 0
        self.counts = np.zeros(n, np.int64)
        self.at_most = np.full(2, n, np.int64)
        self._squares = self._products = 0.0

    def append(self, character: str) -> None:
        """Add one occurrence of a normalised character."""
        g, at = self.guidance, self.guidance.cell(character)
        if self.counts[at] + 2 > len(self.at_most):
            self.at_most = np.append(self.at_most, np.full(len(self.at_most), len(self.counts)))
        gain = appended_products(g.kind, self.counts, self.at_most, g.reference, at)
        self._squares += 2 * self.counts[at] + 1
        self._products += gain
        append_character(self.counts, self.at_most, at)
        self.length += 1

    def remove(self, character: str) -> None:
        """Take one occurrence of a normalised character away."""
        g, at = self.guidance, self.guidance.cell(character)
        if not self.counts[at]:
            raise FadaError(f"the character {character!r} cannot be removed: the text does not contain it.")
        self._products -= removed_products(g.kind, self.counts, self.at_most, g.reference, at)
        self._squares -= 2 * self.counts[at] - 1
        remove_character(self.counts, self.at_most, at)
        self.length -= 1

    @property
    def distance(self) -> float:
        """Distance from the target: O(1) for the W2 distances, O(n) for the others."""
        g = self.guidance
        if g.kind <= ALIGNED_W2:
            q = g.reference
            return w2_value(self._squares, self._products, self.length, float(q @ q), len(q))
        return counted_distance(g.kind, self.counts, self.length, g.reference)


@dataclass(frozen=True)
class Constraint:
    """Which characters may be written at all.

    Characters are compared as the normaliser leaves them; those that it drops (digits under ``letters_only``) as they
    stand. A text is judged in composed form, so that forbidding ``é`` also stops ``e`` followed by a combining accent.
    """

    normalizer: TextNormalizer
    forbidden: frozenset[str] = frozenset()
    allowed: frozenset[str] | None = None

    @property
    def is_void(self) -> bool:
        """Whether everything is allowed."""
        return not self.forbidden and self.allowed is None

    def permits(self, text: str) -> bool:
        """Whether every character of `text` may be written."""
        return self.is_void or all(map(self._permits_character, unicodedata.normalize("NFC", text)))

    def _permits_character(self, character: str) -> bool:
        forms = self.normalizer(character) or character
        if character in self._banned or any(form in self._banned for form in forms):
            return False
        welcome = self._welcome
        return welcome is None or character in welcome or all(form in welcome for form in forms)

    @cached_property
    def _banned(self) -> set[str]:
        return self._with_normal_forms(self.forbidden)

    @cached_property
    def _welcome(self) -> set[str] | None:
        return None if self.allowed is None else self._with_normal_forms(self.allowed)

    def _with_normal_forms(self, characters: Iterable[str]) -> set[str]:
        return {form for character in characters for form in (character, *self.normalizer(character))}


def check_target(target: Any) -> None:
    """Refuse what is not the distribution of one domain."""
    if not isinstance(target, CharDistribution):
        raise FadaError(
            f"the target is a {type(target).__name__}, expected the character distribution of one domain, such as "
            'targets["14"].'
        )


def check_weight(name: str, value: Any, low: float, high: float) -> None:
    """Refuse a weight that is not a finite number between `low` and `high`."""
    if not isinstance(value, int | float | np.number) or not math.isfinite(value) or not low <= value <= high:
        between = f"between {low:g} and {high:g}" if math.isfinite(high) else f"from {low:g} up"
        raise FadaError(f"{name} is {value!r}, expected a number {between if math.isfinite(low) else '(finite)'}.")
