"""Counting characters of a stream of text, quickly and in constant memory.

Texts are gathered to about a million characters, and their code points counted at once. Where no character of such a
text acts on its neighbours under Unicode composition (nearly always, once the text is composed), the normaliser is
applied to the few distinct characters instead of to the text, which is what makes it fast; otherwise to that text.
"""

import re
import unicodedata
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from fada.errors import FadaError
from fada.text.characters import OTHER, joins_previous
from fada.text.normalizer import TextNormalizer

if TYPE_CHECKING:
    from scipy.sparse import csr_matrix

CHUNK = 1 << 20
"""Characters held back before they are counted."""


class CharacterCounter:
    """Counts of the characters of many texts after normalisation, each text (a line, a page) on its own.

    Args:
        normalizer: applied to every text as if alone: nothing collapses or composes from one text to the next.
    """

    def __init__(self, normalizer: TextNormalizer) -> None:
        self.normalizer = normalizer
        self.pending = 0
        self._character_by_character = replace(normalizer, spaces="keep")
        self._composes = normalizer.form in ("NFC", "NFKC")
        self._texts: list[str] = []
        self._counts: Counter[str] = Counter()
        self._normal_forms: dict[str, str | None] = {}

    def add(self, text: str) -> None:
        """Count one text; `pending` says how many characters are held back until the next chunk is full."""
        self._texts.append(text)
        self.pending += len(text) + 1
        if self.pending >= CHUNK:
            self.flush()

    def counts(self) -> dict[str, int]:
        """How often each character occurred so far."""
        self.flush()
        return {character: count for character, count in sorted(self._counts.items()) if count}

    def flush(self) -> None:
        """Count what is held back."""
        texts, self._texts, self.pending = self._texts, [], 0
        if not texts:
            return
        for prepare in (str, self._composed):
            texts = [prepare(text) for text in texts]
            dependent = self._add_by_character(texts)
            if not dependent:
                return
            # Composed, most scripts leave no mark on its own: the texts that need care become few.
            needs_care = re.compile(f"[{re.escape(dependent)}]").search
            careful: list[str] = []
            simple: list[str] = []
            for text in texts:
                (careful if needs_care(text) else simple).append(text)
            self._add_by_character(simple)
            texts = careful
        histogram = _histogram("\n".join(map(self.normalizer, texts)))
        histogram["\n"] -= max(len(texts) - 1, 0)
        self._counts.update(histogram)

    def _composed(self, text: str) -> str:
        return text if self.normalizer.form == "none" else unicodedata.normalize(self.normalizer.form, text)

    def _add_by_character(self, texts: list[str]) -> str:
        """Count by the normal form of each distinct character, unless some depend on their neighbours: return those."""
        # A newline never composes: the texts stay apart.
        histogram = _histogram("\n".join(texts))
        histogram["\n"] -= max(len(texts) - 1, 0)
        forms = {character: self._normal_form(character) for character in histogram}
        if None in forms.values():
            return "".join(character for character, form in forms.items() if form is None)
        counts: Counter[str] = Counter()
        for character, count in histogram.items():
            for normal in forms[character] or "":
                counts[normal] += count
        if self.normalizer.spaces != "keep":
            for character in [c for c in counts if c.isspace()]:
                del counts[character]
            if self.normalizer.spaces == "collapse" and not self.normalizer.letters_only:
                counts[" "] = sum(max(len(text.split()) - 1, 0) for text in texts)
        self._counts.update(counts)
        return ""

    def _normal_form(self, character: str) -> str | None:
        """The normal form of one character (spaces kept), None if it may depend on its neighbours."""
        if character not in self._normal_forms:
            form = self._character_by_character(character)
            # Spaces collapse by what is left between them: a mark folded away, a sign that NFKC turns into a space.
            changes_spaces = form == "" or any(c.isspace() for c in form) != character.isspace()
            dependent = changes_spaces and self.normalizer.spaces == "collapse" and not self.normalizer.letters_only
            if self._composes:
                dependent |= any(map(joins_previous, (character, *form)))
            self._normal_forms[character] = None if dependent else form
        return self._normal_forms[character]


def count_characters(texts: Iterable[str], normalizer: TextNormalizer) -> dict[str, int]:
    """How often each character occurs in `texts` after normalisation, each text (a line, a page) on its own."""
    counter = CharacterCounter(normalizer)
    for text in texts:
        counter.add(text)
    return counter.counts()


def count_by_domain(pairs: Iterable[tuple[str, str]], normalizer: TextNormalizer) -> dict[str, dict[str, int]]:
    """Character counts of every domain of a stream of (domain, text), read once, in the order of first appearance."""
    counters: dict[str, CharacterCounter] = {}
    pending = 0
    for domain, text in pairs:
        if domain not in counters:
            counters[domain] = CharacterCounter(normalizer)
        counters[domain].add(text)
        pending += len(text) + 1
        # With many domains each holds little back, but all of them together must not grow.
        if pending >= 4 * CHUNK:
            for counter in counters.values():
                counter.flush()
            pending = 0
    return {domain: counter.counts() for domain, counter in counters.items()}


def count_matrix(texts: Sequence[str], alphabet: Sequence[str], normalizer: TextNormalizer) -> "csr_matrix":
    """How often each of `texts`, as parts of longer texts, holds each character: sparse (texts, alphabet).

    A character outside the alphabet is counted in the cell `OTHER` if the alphabet has one, else not at all.
    """
    from scipy.sparse import csr_matrix

    index = {symbol: i for i, symbol in enumerate(alphabet)}
    other = index.get(OTHER)
    rows: list[int] = []
    columns: list[int] = []
    for row, text in enumerate(texts):
        for character in normalizer.of_part(text) if text else "":
            column = index.get(character, other)
            if column is not None:
                rows.append(row)
                columns.append(column)
    return csr_matrix((np.ones(len(rows)), (rows, columns)), shape=(len(texts), len(index)))  # repeated cells add up


def _histogram(text: str) -> Counter[str]:
    try:
        codes = np.frombuffer(text.encode("utf-32-le"), dtype=np.uint32)
    except UnicodeEncodeError as error:
        raise FadaError(
            f"the text holds half of a surrogate pair, U+{ord(text[error.start]):04X}, which is no character: "
            "read the file as UTF-8, or remove it."
        ) from None
    counts = np.bincount(codes)
    present = np.flatnonzero(counts)
    return Counter(dict(zip(map(chr, present.tolist()), counts[present].tolist(), strict=True)))
