"""Counting characters of a stream of text, quickly and in constant memory."""

from collections import Counter
from collections.abc import Iterable

from fada.text import TextNormalizer


def count_characters(texts: Iterable[str], normalizer: TextNormalizer) -> dict[str, int]:
    """How often each character occurs in `texts` after normalisation, each text (a line, a page) on its own."""
    counts: Counter[str] = Counter()
    for text in texts:
        counts.update(normalizer(text))
    return dict(counts)
