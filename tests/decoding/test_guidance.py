"""Growing texts against the distance recomputed from scratch; constraints."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fada import distances
from fada.decoding.guidance import KINDS, Constraint, Guidance
from fada.errors import FadaError
from fada.targets.distribution import CharDistribution
from fada.text.characters import OTHER
from fada.text.normalizer import TextNormalizer

TARGET = CharDistribution.from_texts(["the quick brown fox jumps over the lazy dog, eating eels"])
characters = st.sampled_from("etaoz q!")


@settings(max_examples=60, deadline=None)
@given(st.sampled_from(sorted(KINDS)), st.lists(st.tuples(characters, st.booleans()), max_size=60))
def test_a_growing_and_shrinking_text_keeps_the_exact_distance(kind: str, moves: list[tuple[str, bool]]) -> None:
    guidance = Guidance(TARGET, distance=kind).covering("!")
    growing, text = guidance.start(), ""
    for character, remove in moves:
        if remove and character in text:
            growing.remove(character)
            text = text.replace(character, "", 1)
        else:
            growing.append(character)
            text += character
        assert growing.distance == pytest.approx(guidance.distance_of(text), abs=1e-7)


@pytest.mark.parametrize("kind", sorted(KINDS))
def test_the_score_is_equation_two(kind: str) -> None:
    guidance = Guidance(TARGET, lam=0.3, distance=kind, scale=7.0)
    q = TARGET.vector_of("the eel")
    expected = 0.3 * -4.2 - 0.7 * 7.0 * float(distances.get(kind)(q, TARGET.frequencies))
    assert guidance.score(-4.2, "THE EEL") == pytest.approx(expected)


def test_the_empty_text_is_the_zero_vector() -> None:
    assert Guidance(TARGET).distance_of("") == pytest.approx(math.sqrt(np.mean(TARGET.frequencies**2)))
    assert Guidance(TARGET).start().distance == pytest.approx(Guidance(TARGET).distance_of(""))


@pytest.mark.parametrize("kind", KINDS)
def test_many_texts_are_as_far_from_the_target_as_each_of_them(kind: str) -> None:
    guidance, texts = Guidance(TARGET, distance=kind), ["", "€é", "ab a", "bbb", "a€"]
    assert guidance.distances_of(texts) == pytest.approx([guidance.distance_of(text) for text in texts])


def test_a_character_outside_the_alphabet_is_pooled_and_never_dropped() -> None:
    guidance = Guidance(TARGET)
    covering = guidance.covering("té€")
    assert covering.alphabet == (*TARGET.symbols, OTHER)
    assert guidance.covering("the") is guidance
    assert guidance.distance_of("€é") == pytest.approx(covering.distance_of("€é"))
    assert covering.cell("€") == covering.cell("é") == len(TARGET.symbols)
    with pytest.raises(FadaError, match="outside the alphabet"):
        guidance.cell("€")


def test_removing_what_is_not_there_is_refused() -> None:
    with pytest.raises(FadaError, match="does not contain it"):
        Guidance(TARGET).start().remove("e")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"lam": -0.1}, "lam is -0.1"),
        ({"lam": "half"}, "lam is 'half'"),
        ({"scale": -1}, "scale is -1"),
        ({"distance": "w2"}, "no form that follows a growing text"),
        ({"distance": "cosine"}, "unknown distance 'cosine'"),
    ],
)
def test_impossible_settings_are_refused(arguments: dict, message: str) -> None:
    with pytest.raises(FadaError, match=message):
        Guidance(TARGET, **arguments)


@pytest.mark.parametrize(
    ("forbidden", "allowed", "text", "expected"),
    [
        ("e", None, "tank", True),
        ("e", None, "tEnk", False),
        ("E", None, "tenk", False),
        ("é", None, "e\u0301", False),
        ("e", None, "é", True),
        ("", "abc", "ABC", True),
        ("", "abc", "a b", False),
        ("b", "abc", "b", False),
        ("", None, "anything", True),
        ("", "", "", True),
    ],
)
def test_constraints_compare_normal_forms(forbidden: str, allowed: str | None, text: str, expected: bool) -> None:
    guidance = Guidance(TARGET, forbidden=frozenset(forbidden), allowed=None if allowed is None else frozenset(allowed))
    assert guidance.constraint.permits(text) is expected


def test_a_character_that_the_normaliser_drops_is_judged_as_it_stands() -> None:
    letters = TextNormalizer(letters_only=True)
    assert not Constraint(letters, frozenset("7")).permits("a7")
    assert Constraint(letters, frozenset("7")).permits("a8")
    assert not Constraint(letters, frozenset(), frozenset("a")).permits("a8")


def test_guidance_is_frozen_and_comparable() -> None:
    assert Guidance(TARGET, 0.4) == Guidance(TARGET, 0.4)
    assert Guidance(TARGET, 0.4) != Guidance(TARGET, 0.5)
    with pytest.raises(AttributeError):
        Guidance(TARGET).lam = 0.1  # type: ignore[misc]
