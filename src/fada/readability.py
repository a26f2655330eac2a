"""Simple measures of a text's surface: reading ease, variety, repetition."""

import re
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

from fada.errors import missing_extra

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
    try:
        import pyphen
    except ImportError:
        raise missing_extra("pyphen", "lipogram", "Flesch reading ease") from None
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
