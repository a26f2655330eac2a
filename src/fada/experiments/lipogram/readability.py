"""Simple measures of a text's surface: reading ease, variety, repetition, known words."""

import itertools
import re
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

from fada.errors import FadaError, needing

_WORD = re.compile(r"[^\W\d_]+(?:['’][^\W\d_]+)*")
_SENTENCE_END = re.compile(r"[.!?…]+")


def words_of(text: str) -> list[str]:
    """The words of a text: runs of letters, apostrophes within them kept."""
    return _WORD.findall(text)


def sentences_of(text: str) -> list[str]:
    """The sentences of a text: what stands between full stops, question and exclamation marks, and has a word."""
    return [part for part in _SENTENCE_END.split(text) if words_of(part)]


@lru_cache(maxsize=1)
def _hyphenator() -> Any:
    with needing("pyphen", "lipogram", "Flesch reading ease"):
        import pyphen
    # A hyphen may stand after one letter and before one, so that no syllable is lost at the ends.
    return pyphen.Pyphen(lang="en_US", left=1, right=1)


@lru_cache(maxsize=65536)
def syllables(word: str) -> int:
    """The number of syllables of an English word, by its hyphenation points; at least one."""
    return len(_hyphenator().positions(word.lower())) + 1


def flesch_reading_ease(text: str) -> float:
    """Flesch reading ease of an English text: 206.835 - 1.015 · words/sentence - 84.6 · syllables/word.

    Above 60 is easy to read, below 30 is hard; 0.0 for a text without words.
    """
    words = words_of(text)
    if not words:
        return 0.0
    sentences = max(1, len(sentences_of(text)))
    return 206.835 - 1.015 * len(words) / sentences - 84.6 * sum(map(syllables, words)) / len(words)


def distinct(words: Sequence[str], n: int) -> float:
    """The share of different n-grams among all: 1.0 if nothing is repeated, also for a text shorter than `n`."""
    grams = [tuple(words[i : i + n]) for i in range(len(words) - n + 1)]
    return len(set(grams)) / len(grams) if grams else 1.0


@lru_cache(maxsize=8)
def _frequencies(language: str) -> Mapping[str, float]:
    with needing("wordfreq", "lipogram", "lists of known words"):
        import wordfreq
    languages = wordfreq.available_languages()  # the package itself would take the nearest one that it has
    if language not in languages:
        raise FadaError(f"no list of words for the language {language!r}. Known: {' '.join(sorted(languages))}.")
    return wordfreq.get_frequency_dict(language, "best")


@lru_cache(maxsize=8)
def word_frequencies(language: str = "en", count: int = 30_000) -> Mapping[str, float]:
    """The most frequent words of a language, with their frequencies in running text.

    Single letters are left out unless they are among the commonest words (*a*, *I*), and so are plain Latin letters
    without a vowel, which are abbreviations for the most part.
    """
    found = ((word, frequency) for word, frequency in _frequencies(language).items() if _is_word(word, frequency))
    return dict(itertools.islice(found, count))


def _is_word(word: str, frequency: float) -> bool:
    if not _WORD.fullmatch(word) or (word.isascii() and not set(word) & set("aeiouy")):
        return False
    return len(word) > 1 or frequency > 1e-3


def unknown_words(text: str) -> list[str]:
    """The words of an English text that the longest list of words does not have; a possessive 's is ignored."""
    known = _frequencies("en")
    lowered = ((word, re.sub(r"['’]s$", "", word.lower()).replace("’", "'")) for word in words_of(text))
    return [word for word, plain in lowered if plain not in known]
