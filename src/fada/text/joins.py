"""Which classes of a model change what stands before them: marks that compose with a letter, parts of Hangul syllables.

Counting the characters of every class on its own is right for all others. For these, the characters of a text are those
of its classes plus a *change* for every class that joins the one before: ``e`` and a combining acute count one ``é``
more, one ``e`` and one acute fewer, under NFC. So the same text counts the same whether a model writes it composed or
decomposed.
"""

import logging
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from fada.text.characters import joins_previous
from fada.text.normalizer import TextNormalizer

log = logging.getLogger(__name__)

MOST_PAIRS = 100_000
"""Pairs of a class and one that may join it that are looked at: the vocabularies of characters, not of subwords."""


@dataclass(frozen=True)
class Join:
    """A class that is written after a certain end of the text, and what changes by that.

    Attributes:
        before: the classes that the end of the text was written by, from the last one on that joined nothing.
        joining: the class that is written now.
        after: the end of the text that follows: longer by this class, or this class alone, if it ends in a character of
            its own, which joins nothing.
        change: by how much the count of each character differs from that of the classes counted one by one; empty
            where it matters only for what may follow.
    """

    before: tuple[int, ...]
    joining: int
    after: tuple[int, ...]
    change: dict[str, int]


def joins_of(texts: Sequence[str], normalizer: TextNormalizer) -> list[Join]:
    """Every way in which the classes with these texts join; piles of marks, on letters they compose with, as well."""
    joining = [i for i, text in enumerate(texts) if joins_previous(text)]
    if len(joining) * len(texts) > MOST_PAIRS:
        log.info("combining marks are counted by themselves: too many tokens (%d) for pairs of them", len(texts))
        return []
    marks = {i for i in joining if all(map(joins_previous, texts[i]))}
    found: list[Join] = []
    ends: list[tuple[int, ...]] = [(i,) for i, text in enumerate(texts) if text]
    while ends:
        longer = []
        for end in ends:
            text = "".join(texts[i] for i in end)
            for i in joining:
                change = Counter(normalizer.of_part(text + texts[i]))
                change.subtract(normalizer.of_part(text))
                change.subtract(normalizer.of_part(texts[i]))
                after = (*end, i) if i in marks else (i,)
                found.append(Join(end, i, after, {c: n for c, n in change.items() if n}))
                # A mark may compose over one that does not (é, a second acute, a dot below): seen for one such mark.
                if i in marks and (found[-1].change or len(end) == 1):
                    longer.append(after)
        ends = longer
    needed = {join.before[:length] for join in found if join.change for length in range(1, len(join.before) + 1)}
    return [join for join in found if join.change or (len(join.after) > 1 and join.after in needed)]
