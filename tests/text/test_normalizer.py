"""TextNormalizer: what counts as the same character."""

import unicodedata

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fada.errors import FadaError
from fada.text.characters import from_visible, natural_key, visible
from fada.text.normalizer import TextNormalizer
from tests.support.normalizers import NORMALIZERS

TRICKY = st.text(st.sampled_from("aΣσςΆά \t\n\u00a0\u00b4\u0301\u0323\u0345İẞﬁΐ가각가1-_.का🙂\u0344K"), max_size=12)
texts = st.one_of(st.text(st.characters(exclude_categories=["Cs"]), max_size=20), TRICKY)


@given(texts, st.sampled_from(NORMALIZERS))
@settings(max_examples=400, deadline=None)
def test_applying_it_twice_changes_nothing(text: str, normalizer: TextNormalizer) -> None:
    once = normalizer(text)
    assert normalizer(once) == once


@given(texts, st.sampled_from(NORMALIZERS))
@settings(max_examples=300, deadline=None)
def test_every_character_that_is_left_is_one_that_it_keeps(text: str, normalizer: TextNormalizer) -> None:
    assert all(normalizer.keeps(character) for character in normalizer(text))


@given(texts, st.sampled_from([n for n in NORMALIZERS if n.form == "none" and n.spaces != "collapse"]))
@settings(max_examples=200, deadline=None)
def test_without_composition_and_collapsing_it_acts_character_by_character(
    text: str, normalizer: TextNormalizer
) -> None:
    assert normalizer(text) == "".join(map(normalizer, text))


@pytest.mark.parametrize(
    ("settings", "text", "expected"),
    [
        ({}, "E\u0301 ΟΔΟΣ", "é οδοσ"),
        ({"case": "keep"}, "E\u0301", "É"),
        ({"form": "NFD"}, "É", "e\u0301"),
        ({"form": "NFKC"}, "ﬁn", "fin"),
        ({"form": "none"}, "e\u0301", "e\u0301"),
        ({"marks": "fold"}, "Ἀρχὴ ça 각", "αρχη ca 각"),
        ({"marks": "fold", "form": "none"}, "é각", "e각"),
        ({"spaces": "collapse"}, " a \t\n b\u00a0", "a b"),
        ({"spaces": "drop"}, " a \t b", "ab"),
        ({"letters_only": True}, "l'an 1650, été.", "lanété"),
        ({"letters_only": True}, "a1\u0301", "á"),
    ],
)
def test_settings_do_what_they_say(settings: dict, text: str, expected: str) -> None:
    assert TextNormalizer(**settings)(text) == expected


def test_a_collapsed_space_is_kept_as_a_character_but_other_white_space_is_not() -> None:
    collapsing = TextNormalizer(spaces="collapse")
    assert collapsing.keeps(" ")
    assert not collapsing.keeps("\t")
    assert not TextNormalizer(spaces="drop").keeps(" ")
    assert not TextNormalizer().keeps("A")
    assert not TextNormalizer().keeps("ab")
    assert not TextNormalizer().keeps("\ud800")


@pytest.mark.parametrize("normalizer", NORMALIZERS[::7])
def test_settings_round_trip_and_compare(normalizer: TextNormalizer) -> None:
    again = TextNormalizer.from_dict(normalizer.to_dict())
    assert again == normalizer
    assert hash(again) == hash(normalizer)


@pytest.mark.parametrize(
    "settings", [{"form": "NFX"}, {"case": "upper"}, {"letters_only": 1}, {"letters_only": "no"}, {"colour": "red"}]
)
def test_a_wrong_setting_is_refused_with_what_was_expected(settings: dict) -> None:
    with pytest.raises(FadaError, match="expected"):
        TextNormalizer.from_dict(settings)


def test_describe_reads_like_a_caption() -> None:
    assert TextNormalizer(letters_only=True).describe() == "NFC, lower case, letters only"
    assert TextNormalizer(form="none", case="keep").describe() == "text as it is"


@given(st.characters(exclude_categories=["Cs"]))
@settings(max_examples=300, deadline=None)
def test_what_is_shown_of_a_character_can_be_seen_and_typed_back(character: str) -> None:
    shown = visible(character)
    assert all(unicodedata.category(c)[0] not in "CZ" for c in shown)
    assert from_visible(shown) == character


def test_natural_key_puts_nine_before_ten() -> None:
    assert sorted(["16", "9", "10", "b", "a2", "a10"], key=natural_key) == ["9", "10", "16", "a2", "a10", "b"]
