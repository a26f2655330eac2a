"""Keeps masked generation from breaking off words and texts."""

import re
from typing import Any

import numpy as np
import torch
from transformers import LogitsProcessor

from fada.decoding.generate import resized_table, vocabulary_of
from fada.guidance import Constraint
from fada.text import TextNormalizer
from fada.tokens import TokenTable, complete_text

_SENTENCE_END = re.compile(r"[.!?…。！？][\"'”’»)\]]*\s*$")
_STOPS = re.compile(r"[.!?…。！？]+")


class WholeWords(LogitsProcessor):
    """What a character mask alone gets wrong: words that stop before a forbidden letter, texts that stop in a word.

    A mask that bars ``the`` leaves ``th`` possible, and a text that may end anywhere ends where the mask hurts. Put
    before a :class:`~fada.decoding.generate.GuidedLogitsProcessor` with the same constraint, this processor looks at
    the model's unmasked prediction, which tells what is about to go wrong:

    * A word may end only where the model would rather end it than go on with a forbidden letter; as long as the word
      has a permitted continuation, it goes on (``th`` → ``thing``).
    * A text may end only after a sentence, never within a character.
    * In the last third of the budget it ends with the first sentence that ends; in the last tokens no new word is
      begun, and the last but one closes the sentence.

    Where the vocabulary offers nothing that obeys, the rules are dropped rather than leaving no token at all.

    Args:
        table: the vocabulary.
        constraint: the characters that the mask will rule out.
        end_tokens: ids that end the text.
        prompt_length: columns before the first generated token.
        max_new_tokens: the budget.
    """

    last_words = 8

    def __init__(
        self,
        table: TokenTable,
        constraint: Constraint,
        end_tokens: list[int],
        prompt_length: int,
        max_new_tokens: int,
    ):
        self.prompt_length, self.max_new_tokens = prompt_length, max_new_tokens
        self._table = table
        self._constraint = constraint
        self._end_tokens = end_tokens
        self._size = 0

    def _setup(self, size: int, device: Any) -> None:
        self._sized = resized_table(self._table, size)
        vocabulary = vocabulary_of(self._sized, TextNormalizer())
        texts = vocabulary.texts
        end = np.zeros(size, bool)
        end[self._end_tokens] = True
        banned = np.array([not self._constraint.permits(text) for text in texts], bool)
        begins = np.array([text.lstrip(" ")[:1].isalnum() for text in texts], bool)
        spaced = np.array([text[:1].isspace() for text in texts], bool)
        partial = np.array(
            [bool(piece) and not text for piece, text in zip(vocabulary.table.pieces, texts, strict=True)]
        )
        within = (begins & ~spaced) | vocabulary.joins | partial
        stops = np.array([bool(_STOPS.fullmatch(text)) for text in texts], bool)
        closes = np.array([bool(_SENTENCE_END.search(text)) for text in texts], bool)

        def tensor(mask: np.ndarray) -> torch.Tensor:
            return torch.from_numpy(mask).to(device)

        self._size = size
        closing = (stops & ~banned) | (end & closes)
        boundary = (~within & ~banned & ~vocabulary.table.special) | (end & ~banned)
        new_word = begins & spaced
        self._ends, self._open_ends = tensor(np.flatnonzero(end)), tensor(np.flatnonzero(end & ~closes))
        self._closing, self._boundary = tensor(np.flatnonzero(closing)), tensor(np.flatnonzero(boundary))
        self._new_word = tensor(np.flatnonzero(new_word))
        self._no_new_word = tensor(np.flatnonzero(~new_word & ~banned & ~end))
        groups = np.stack([~within & ~banned, within & banned, within & ~banned], axis=1)
        self._groups = tensor(groups.astype(np.float32))  # the word ends, goes on with a forbidden letter, or without

    @torch.no_grad()
    def __call__(self, input_ids: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
        """(rows, length) ids and (rows, vocabulary) scores to scores with the tokens ruled out at minus infinity."""
        if scores.shape[1] != self._size:
            self._setup(scores.shape[1], scores.device)
        scores = scores.clone()
        generated = input_ids[:, self.prompt_length :].tolist()
        remaining = self.max_new_tokens - (input_ids.shape[1] - self.prompt_length)
        texts = [complete_text(self._sized.join(ids)) for ids in generated]
        in_word = [i for i, (text, pending) in enumerate(texts) if text[-1:].isalpha() and not pending]
        if in_word and remaining > 2:
            self._finish_words(scores, in_word)
        for row, (text, pending) in zip(scores, texts, strict=True):
            self._end_well(row, text, bool(pending), remaining)
        return scores

    def _finish_words(self, scores: torch.Tensor, in_word: list[int]) -> None:
        """No word ends where the model would go on with a forbidden letter and there is another way to go on."""
        ending, barred, open_ = (torch.softmax(scores[in_word].float(), -1) @ self._groups).T
        hopeful = (barred > ending) & (open_ > 0.01)
        for i, go_on in zip(in_word, hopeful.tolist(), strict=True):
            if go_on:
                scores[i].index_fill_(0, self._boundary, -torch.inf)

    def _end_well(self, row: torch.Tensor, text: str, pending: bool, remaining: int) -> None:
        complete = not pending and bool(_SENTENCE_END.search(text))
        if complete and (remaining <= self.max_new_tokens // 3 or remaining <= 1):
            _keep_only(row, self._ends)
            return
        if not complete:
            ends = self._ends if pending else self._open_ends
            saved = row[ends]
            row.index_fill_(0, ends, -torch.inf)
            if row.max().isneginf():  # the end is forced
                row[ends] = saved
        if remaining <= 2:
            _keep_only(row, self._closing)
        elif remaining <= self.last_words and torch.isfinite(row[self._no_new_word]).any():
            row.index_fill_(0, self._new_word, -torch.inf)


def _keep_only(row: torch.Tensor, tokens: torch.Tensor) -> None:
    """Leave only `tokens`, unless none of them is possible."""
    saved = row[tokens]
    if torch.isfinite(saved).any():
        row.fill_(-torch.inf)
        row[tokens] = saved
