"""Reading ease, variety, known words."""

import pytest

from fada.errors import FadaError
from fada.experiments.lipogram.readability import (
    distinct,
    flesch_reading_ease,
    syllables,
    unknown_words,
    word_frequencies,
    words_of,
)


def test_words_keep_their_apostrophes() -> None:
    assert words_of("It's a dog’s life, 7 days!") == ["It's", "a", "dog’s", "life", "days"]


def test_reading_ease_is_the_formula_and_falls_with_long_words() -> None:
    assert [syllables(w) for w in ("cat", "river", "umbrella")] == [1, 2, 3]
    easy, hard = "The cat sat. It ran.", "Institutional considerations necessitate comprehensive deliberation."
    assert flesch_reading_ease(easy) == pytest.approx(206.835 - 1.015 * 2.5 - 84.6)
    assert flesch_reading_ease(hard) < 30 < flesch_reading_ease(easy)
    assert flesch_reading_ease("...") == 0.0


def test_distinct_grams_are_counted_once() -> None:
    assert distinct(["a", "b", "a", "b"], 2) == pytest.approx(2 / 3)
    assert distinct([], 2) == 1.0


def test_frequent_words_are_listed_without_letters_and_abbreviations() -> None:
    words = word_frequencies("en", 5000)
    assert len(words) == 5000
    assert {"the", "i", "a", "didn't"} <= set(words)
    assert not {"s", "b", "th", "mr", "2019"} & set(words)
    assert words["the"] > words["garden"] > 0


def test_broken_words_are_unknown_and_possessives_are_not() -> None:
    assert unknown_words("The dog's waltlld day, Sarah’s too: didn’t") == ["waltlld"]
    assert unknown_words("") == []


def test_a_language_without_list_is_named() -> None:
    with pytest.raises(FadaError, match="no list of words for the language 'tlh'"):
        word_frequencies("tlh")
