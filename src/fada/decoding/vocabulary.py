"""The tokens of a model as characters: which each brings, what has been written so far, which may not follow."""

import unicodedata
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np

from fada.decoding.guidance import Guidance
from fada.errors import FadaError
from fada.text.characters import joins_previous
from fada.text.normalizer import TextNormalizer
from fada.text.tokens import TokenTable, complete_text

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

REPLACEMENT = "\ufffd"
_ANY_COMPOSED = "\U0010ffff"
"""Stands for the characters that combining marks may compose to and that no token holds: never in an alphabet."""


class Vocabulary:
    """The characters of every token over one alphabet, and which tokens depend on what stands before them.

    A token's characters are known beforehand, except in two cases, which the text decides: tokens that begin with a
    part of a character or are only such a part (after an unfinished character), and tokens that begin with a combining
    mark or a conjoining Hangul letter (they may compose with the character before).
    """

    def __init__(self, table: TokenTable, normalizer: TextNormalizer):
        self.table = table
        self.normalizer = normalizer
        decoded = [complete_text(piece) for piece in table.pieces]
        self.texts = [text for text, _ in decoded]
        self.pending = [pending for _, pending in decoded]
        self.joins = np.array([joins_previous(text) for text in self.texts], bool)
        self.collapsing = normalizer.spaces == "collapse"
        self.characters = [self._characters(text) for text in self.texts]
        shows_broken = bool(normalizer(REPLACEMENT))
        incomplete = [
            bool(piece) and (not text or piece[0] & 0xC0 == 0x80 or (shows_broken and not characters))
            for piece, text, characters in zip(table.pieces, self.texts, self.characters, strict=True)
        ]
        self.context = np.where(self.joins, 2, np.where(incomplete, 1, 0)).astype(np.uint8)
        # After collapsing, a space within the text stands for any white space at the border of a token.
        spaces = [_leading_spaces(t, c, self.collapsing) for t, c in zip(self.texts, self.characters, strict=True)]
        self.spaces = np.array(spaces, np.int64)

    def _characters(self, text: str) -> str:
        normal = self.normalizer(text)
        if self.collapsing and normal and text[0].isspace():
            return " " + normal
        return normal

    @cached_property
    def offsets(self) -> np.ndarray:
        """(tokens + 1,) int64 where the characters of each token start among those of all."""
        return np.concatenate([[0], np.cumsum([len(characters) for characters in self.characters])]).astype(np.int64)

    @cached_property
    def _distinct(self) -> tuple[list[str], np.ndarray]:
        """The different characters, and for every character of every token which of them it is."""
        codes = np.array(list(map(ord, "".join(self.characters))), np.uint32)
        distinct, which = np.unique(codes, return_inverse=True)
        return [chr(code) for code in distinct], which

    def cells(self, guidance: Guidance) -> np.ndarray:
        """(all characters, at least 1) int64 where the characters of all tokens are counted."""
        distinct, which = self._distinct
        if not distinct:
            return np.zeros(1, np.int64)
        return np.array([guidance.cell(character) for character in distinct], np.int64)[which]

    @cached_property
    def alphabet(self) -> frozenset[str]:
        """Every character that a text of these tokens can contain after normalisation."""
        characters = set(self._distinct[0])
        if (self.context == 1).any():
            characters.update(self.normalizer(REPLACEMENT))
        if self.joins.any() and self.normalizer.form in ("NFC", "NFKC"):
            characters.add(_ANY_COMPOSED)
        return frozenset(characters)

    def text_of(self, data: bytes) -> tuple[str, bytes]:
        """The text of joined bytes without leading spaces, and the bytes of an unfinished last character."""
        text, pending = complete_text(data)
        return text.lstrip(" "), pending


def _leading_spaces(text: str, characters: str, collapsing: bool) -> int:
    if collapsing:
        return int(characters.startswith(" "))
    run = len(text) - len(text.lstrip(" "))
    return run if characters.startswith(" " * run) else 0


@lru_cache(maxsize=4)
def _table(tokenizer: "PreTrainedTokenizerBase", _size: int) -> TokenTable:
    return TokenTable.from_tokenizer(tokenizer)


@lru_cache(maxsize=8)
def vocabulary_of(table: TokenTable, normalizer: TextNormalizer) -> Vocabulary:
    """The vocabulary of a table, kept for the next call."""
    return Vocabulary(table, normalizer)


@lru_cache(maxsize=16)
def resized_table(table: TokenTable, size: int) -> TokenTable:
    """The table for an output layer of `size` tokens, kept for the next call."""
    return table.resized(size)


def token_table(tokenizer: Any) -> TokenTable:
    """The table of a tokenizer (or of a processor that holds one), kept for the next call."""
    tokenizer = getattr(tokenizer, "tokenizer", tokenizer)
    if isinstance(tokenizer, TokenTable):
        return tokenizer
    return _table(tokenizer, len(tokenizer))


@dataclass(frozen=True)
class Row:
    """What has been generated in one row: the bytes, the text they make, and its characters counted."""

    data: bytes
    text: str
    pending: bytes
    counts: np.ndarray
    length: int


class RowReader:
    """Reads rows of token ids into texts and counts; remembers the last step's rows, whatever their new order."""

    def __init__(self, vocabulary: Vocabulary, guidance: Guidance):
        self.vocabulary = vocabulary
        self.guidance = guidance
        size = len(guidance.alphabet)
        self.cells = vocabulary.cells(guidance)
        self.offsets = vocabulary.offsets
        self._empty = Row(b"", "", b"", np.zeros(size, np.int64), 0)
        self._known: dict[bytes, Row] = {}

    def read(self, rows: np.ndarray) -> list[Row]:
        """The state of each row of ``rows`` (rows, generated tokens)."""
        known: dict[bytes, Row] = {}
        states = []
        for ids in rows:
            key = ids.tobytes()
            state = known.get(key) or self._known.get(key)
            if state is None:
                parent = self._known.get(ids[:-1].tobytes()) if len(ids) else None
                state = self._whole(ids) if parent is None else self.extended(parent, int(ids[-1]))
            known[key] = state
            states.append(state)
        self._known = known
        return states

    def _whole(self, ids: np.ndarray) -> Row:
        return self._counted(self.vocabulary.table.join(ids.tolist()))

    def _counted(self, data: bytes) -> Row:
        text, pending = self.vocabulary.text_of(data)
        cells = [self.guidance.cell(c) for c in self.guidance.target.normalizer(text)]
        counts = np.bincount(np.array(cells, np.int64), minlength=len(self._empty.counts))
        return Row(data, text, pending, counts, len(cells))

    def extended(self, row: Row, token: int) -> Row:
        """The state after one more token."""
        v = self.vocabulary
        piece = v.table.pieces[token]
        if not piece:
            return row
        if not row.text or row.pending or v.context[token] or v.collapsing:
            return self._counted(row.data + piece)
        start, end = self.offsets[token], self.offsets[token + 1]
        counts = row.counts.copy()
        for cell in self.cells[start:end].tolist():
            counts[cell] += 1
        return Row(row.data + piece, row.text + v.texts[token], v.pending[token], counts, row.length + int(end - start))


class TokenConstraint:
    """Hard constraints on characters, enforced token by token so that no dead end can be entered.

    A token is banned if one of its characters is not permitted, or if it leaves an unfinished character that no token
    of the vocabulary can complete to a permitted one. Tokens that depend on what stands before them are judged there.
    """

    def __init__(self, vocabulary: Vocabulary, guidance: Guidance):
        self.vocabulary = vocabulary
        self._constraint = guidance.constraint
        self._verdicts: dict[tuple[str, bytes], np.ndarray] = {}
        self._viable: dict[bytes, bool] = {}
        # With a short list of allowed characters it is quicker to ask which of them are meant than to try all others.
        self._allowed_bytes = (
            None
            if guidance.allowed is None
            else {f.encode() for c in guidance.allowed for f in (c, c.lower(), c.upper())}
        )
        self._composed = guidance.allowed is not None or any(
            len(unicodedata.normalize("NFD", character)) > 1 for character in guidance.forbidden
        )
        single = lru_cache(maxsize=None)(self._constraint.permits)
        texts = (unicodedata.normalize("NFC", text) for text in vocabulary.texts)
        good = np.array([all(map(single, text)) for text in texts], bool)
        self._continuing = [p for p in vocabulary.table.pieces if p and p[0] & 0xC0 == 0x80]
        viable = np.array([not pending or self._can_complete(pending) for pending in vocabulary.pending], bool)
        self.banned = ~(good & viable)
        text_tokens = ~vocabulary.table.special
        if text_tokens.any() and self.banned[text_tokens].all():
            raise FadaError(
                f"the constraints rule out every token of the vocabulary (forbidden: {sorted(guidance.forbidden)}, "
                f"allowed: {'all' if guidance.allowed is None else sorted(guidance.allowed)}). Relax them."
            )

    def _can_complete(self, pending: bytes) -> bool:
        """Whether some token turns the pending bytes into a permitted character."""
        if self._allowed_bytes is not None and not any(c.startswith(pending) for c in self._allowed_bytes):
            return False
        if pending not in self._viable:
            self._viable[pending] = False  # a chain of unfinished characters that comes back here does not count
            self._viable[pending] = any(self._continues(pending, piece) for piece in self._continuing)
        return self._viable[pending]

    def _continues(self, pending: bytes, piece: bytes, before: str = "") -> bool:
        text, rest = complete_text(pending + piece)
        if REPLACEMENT in text or not self._constraint.permits(before + text):
            return False
        return not rest or self._can_complete(rest)

    def ruled_out(self, row: Row, tokens: np.ndarray) -> np.ndarray:
        """Those of `tokens`, which depend on context, that may not follow `row`."""
        if not row.pending and not self._composed:
            return tokens[:0]
        key = (_last_cluster(row.text), row.pending)
        if key not in self._verdicts:
            if len(self._verdicts) >= 4096:
                self._verdicts.clear()
            pieces = self.vocabulary.table.pieces
            self._verdicts[key] = np.array([not self._continues(key[1], pieces[t], key[0]) for t in tokens], bool)
        return tokens[self._verdicts[key]]


def _last_cluster(text: str) -> str:
    """The last character with the marks that belong to it."""
    start = len(text) - 1
    while start > 0 and joins_previous(text[start]):
        start -= 1
    return text[max(start, 0) :]
