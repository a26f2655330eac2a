"""Keeps masked generation to whole, known words and whole sentences."""

import hashlib
import json
import os
import re
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from importlib.metadata import version
from pathlib import Path

import numpy as np
import torch
from transformers import LogitsProcessor, PreTrainedTokenizerBase, PreTrainedTokenizerFast

from fada.common.files import write_text
from fada.decoding.guidance import Constraint
from fada.decoding.vocabulary import resized_table, vocabulary_of
from fada.errors import FadaError
from fada.experiments.lipogram.readability import word_frequencies
from fada.text.normalizer import TextNormalizer
from fada.text.tokens import TokenTable, complete_text

_SENTENCE_END = re.compile(r"[.!?…。！？][\"'”’»)\]]*\s*$")
_STOPS = re.compile(r"[.!?…。！？]+")
_LETTER = re.compile(r"[^\W\d_]")
_POSSESSIVE = re.compile(r"['’]s")
_PUNCTUATION = b"\xe2\x80"  # the first two bytes of curly quotation marks, dashes and the like
_CONTEXT = 8  # tokens that tell whether a sentence has ended


@dataclass
class _Node:
    """The beginning of some words, token by token."""

    children: list[int]
    share: float = 0.0  # of the running text with this beginning, how much may be written
    steps: int = 1 << 30  # tokens to the nearest end of a word; 0: the word may end here


@dataclass(frozen=True, eq=False)
class Lexicon:
    """Words as the model would write them: the tokens of each spelling, and its frequency in running text."""

    spellings: tuple[tuple[str, tuple[int, ...], float], ...]

    @classmethod
    def of(cls, tokenizer: PreTrainedTokenizerBase, table: TokenTable, frequencies: Mapping[str, float]) -> "Lexicon":
        """The tokens of each word, small and capitalised, with and without a space before it."""
        forms = [(w, f) for word, f in frequencies.items() for w in dict.fromkeys((word, word.capitalize()))]
        forms = [(space + form, f) for form, f in forms for space in (" ", "")]
        ids = _encoded(tokenizer, [form for form, _ in forms])
        spellings = {}
        for (form, frequency), tokens in zip(forms, ids, strict=True):
            while tokens and table.pieces[tokens[0]].isspace():
                tokens = tokens[1:]
            written = table.join(tokens).decode("utf-8", "replace")
            # Some tokenizers put a space before every text: what was written counts, not what was asked.
            if tokens and written.strip() == form.strip() and not written.startswith("  "):
                spellings[tuple(tokens)] = (written, tuple(tokens), frequency)
        return cls(tuple(spellings.values()))

    def permitted(self, constraint: Constraint) -> dict[tuple[int, ...], _Node]:
        """The tree of the words that the constraint permits: every beginning with what can follow; () is the root."""
        whole: dict[tuple[int, ...], float] = {}
        tree: dict[tuple[int, ...], _Node] = {(): _Node([])}
        permits = lru_cache(maxsize=None)(constraint.permits)
        for written, tokens, frequency in self.spellings:
            good = permits(written.strip().lower())
            for length in range(1, len(tokens) + 1):
                beginning = tokens[:length]
                whole[beginning] = whole.get(beginning, 0.0) + frequency
                if not good:
                    continue
                node = tree.get(beginning)
                if node is None:
                    node = tree[beginning] = _Node([])
                    tree[tokens[: length - 1]].children.append(tokens[length - 1])
                node.share += frequency
                node.steps = min(node.steps, len(tokens) - length)
        for beginning, node in tree.items():
            node.share /= whole.get(beginning) or 1.0
        return tree


def _encoded(tokenizer: PreTrainedTokenizerBase, texts: list[str]) -> Iterable[list[int]]:
    """The tokens of each text, in a third of the time where nothing else is asked of the tokenizer."""
    if not isinstance(tokenizer, PreTrainedTokenizerFast):
        return tokenizer(texts, add_special_tokens=False)["input_ids"]
    rules = tokenizer.backend_tokenizer
    rules.no_padding()  # as an earlier call may have left them; the next call sets them anew
    rules.no_truncation()
    return (found.ids for found in rules.encode_batch_fast(texts, add_special_tokens=False))


@lru_cache(maxsize=4)
def _lexicon(tokenizer: PreTrainedTokenizerBase, table: TokenTable, language: str) -> Lexicon:
    """The lexicon of a vocabulary, kept in the user's cache folder: it takes seconds to make."""
    rules = getattr(tokenizer, "backend_tokenizer", None)
    made_of = [language, version("wordfreq"), type(tokenizer).__name__, rules.to_str() if rules else "", table.pieces]
    name = hashlib.sha256(repr(made_of).encode()).hexdigest()[:32]
    folder = os.environ.get("FADA_CACHE") or Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "fada"
    kept = Path(folder) / f"words-{name}.json"
    with suppress(OSError, ValueError, TypeError):
        spellings = json.loads(kept.read_text(encoding="utf-8"))
        return Lexicon(tuple((str(text), tuple(map(int, ids)), float(share)) for text, ids, share in spellings))
    made = Lexicon.of(tokenizer, table, word_frequencies(language))
    with suppress(OSError, FadaError):
        write_text(kept, json.dumps(made.spellings, ensure_ascii=False))
    return made


class _Rules:
    """What may be written where, for one vocabulary and one set of forbidden characters."""

    def __init__(self, table: TokenTable, lexicon: Lexicon, forbidden: frozenset[str], end_tokens: tuple[int, ...]):
        constraint = Constraint(TextNormalizer(), forbidden)
        self.table, self.tree = table, lexicon.permitted(constraint)
        vocabulary = vocabulary_of(table, TextNormalizer())
        self.texts = texts = vocabulary.texts
        size = len(table)
        end = np.zeros(size, bool)
        end[list(end_tokens)] = True
        # Only punctuation and numbers stand outside words; of what begins a character, only what begins punctuation.
        broken = np.array([piece[:1] >= b"\x80" and piece[:1] < b"\xc0" for piece in table.pieces], bool)
        broken |= np.array([pending not in (b"", _PUNCTUATION) for pending in vocabulary.pending], bool)
        banned = np.array([not constraint.permits(text) for text in texts], bool)
        outside = (
            np.array([not _LETTER.search(text) for text in texts], bool) & ~banned & ~broken & (~table.special | end)
        )
        stops = np.array([bool(_STOPS.fullmatch(text)) for text in texts], bool)
        closes = np.array([bool(_SENTENCE_END.search(text)) for text in texts], bool)
        possessive = np.array([bool(_POSSESSIVE.fullmatch(text)) for text in texts], bool) & ~banned
        ordinal = np.array([text in ("st", "nd", "rd", "th", "s") for text in texts], bool) & ~banned
        roots = [(token, self.tree[(token,)]) for token in self.tree[()].children]
        between, spaced = np.full(size, -np.inf), np.full(size, -np.inf)
        for token, node in roots:
            between[token] = np.log(node.share)
            if texts[token][:1].isspace():
                spaced[token] = between[token]
        biases = [
            np.where(outside, 0.0, between),
            np.where(outside | possessive, 0.0, spaced),
            np.full(size, -np.inf),
            np.where(outside | ordinal, 0.0, spaced),
        ]
        self.biases = torch.from_numpy(np.stack(biases).astype(np.float32))
        self.slow_roots = {
            n: torch.tensor([token for token, node in roots if node.steps > n], dtype=torch.long)
            for n in range(-2, max((node.steps for _, node in roots), default=0))
        }
        self.ends = torch.from_numpy(np.flatnonzero(end))
        self.open_ends = torch.from_numpy(np.flatnonzero(end & ~closes))
        self.closing = torch.from_numpy(np.flatnonzero((stops & ~banned) | (end & closes)))

    def to(self, device: torch.device) -> "_Rules":
        """These rules, their tensors moved to `device`."""
        if self.biases.device == device:
            return self
        for name in ("biases", "ends", "open_ends", "closing"):
            setattr(self, name, getattr(self, name).to(device))
        self.slow_roots = {n: tokens.to(device) for n, tokens in self.slow_roots.items()}
        return self


@lru_cache(maxsize=8)
def _rules(
    table: TokenTable, lexicon: Lexicon, forbidden: frozenset[str], end_tokens: tuple[int, ...], size: int
) -> _Rules:
    return _Rules(resized_table(table, size), lexicon, forbidden, end_tokens)


_BETWEEN, _AFTER_WORD, _WITHIN, _AFTER_DIGIT = range(4)
"""Where a text ends: after a space or a mark, a whole word, within a word, a digit. Positions in `_Rules.biases`."""


class KnownWords(LogitsProcessor):
    """What a character mask alone gets wrong: words that stop before a forbidden letter, texts that stop in a word.

    A mask that bars ``the`` leaves ``th`` possible, and a text that may end anywhere ends where the mask hurts. Put
    before a :class:`~fada.decoding.generate.GuidedLogitsProcessor` with the same constraint, this processor permits
    only what can become a known word without a forbidden letter, spelled in tokens as the model spells it:

    * A word begins with tokens that some permitted word begins with, goes on with those that can follow, and ends
      only where one is complete. Numbers and punctuation are free; a number may be followed by *th* and the like.
    * A beginning is weighted by the share of running text with it that may be written: ``tw`` is not worth much
      without *l* if most of what begins with it is *twilight*.
    * A text ends only after a sentence. In the last third of the budget it ends with the first sentence that does; in
      the last sixth the end of a sentence becomes more and more likely; words that cannot be finished in time are not
      begun, and the last but one token closes the sentence.

    Where the vocabulary offers nothing that obeys, the rules are dropped rather than leaving no token at all.

    Args:
        tokenizer, table: the vocabulary.
        forbidden: the characters that the mask will rule out.
        end_tokens: ids that end the text.
        prompt_length: columns before the first generated token.
        max_new_tokens: the budget.
        language: of the words; see :func:`~fada.experiments.lipogram.readability.word_frequencies`.
    """

    def __init__(
        self,
        tokenizer: PreTrainedTokenizerBase,
        table: TokenTable,
        forbidden: Iterable[str],
        end_tokens: list[int],
        prompt_length: int,
        max_new_tokens: int,
        language: str = "en",
    ):
        self.prompt_length, self.max_new_tokens = prompt_length, max_new_tokens
        self._key = (table, _lexicon(tokenizer, table, language), frozenset(forbidden), tuple(end_tokens))
        self._rules = _rules(*self._key, len(table))

    @torch.no_grad()
    def __call__(self, input_ids: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
        """(rows, length) ids and (rows, vocabulary) scores to scores with the tokens ruled out at minus infinity."""
        self._rules = rules = _rules(*self._key, scores.shape[1]).to(scores.device)
        generated = input_ids[:, self.prompt_length :].tolist()
        remaining = self.max_new_tokens - (input_ids.shape[1] - self.prompt_length)
        ends = [complete_text(rules.table.join(ids[-_CONTEXT:])) for ids in generated]
        words = [self._word(ids, bool(pending)) for ids, (_, pending) in zip(generated, ends, strict=True)]
        nodes = [rules.tree.get(word) if word else None for word in words]
        kinds = [_kind(word, node, text) for word, node, (text, _) in zip(words, nodes, ends, strict=True)]
        out = scores + rules.biases[kinds].to(scores.dtype)
        late = rules.slow_roots.get(max(remaining - 3, -2))
        for i, (word, node, (text, pending)) in enumerate(zip(words, nodes, ends, strict=True)):
            row = out[i]
            if pending:
                row.copy_(scores[i])
            if late is not None:
                row.index_fill_(0, late, -torch.inf)
            if node is not None and node.children:
                self._go_on(row, scores[i], word, node, remaining)
            self._end_well(row, text, bool(pending), kinds[i], remaining)
            if row.max().isneginf():
                row.copy_(scores[i])
        return out

    def _word(self, ids: list[int], pending: bool) -> tuple[int, ...]:
        """The tokens of the word that the text ends with; none after anything else than a letter."""
        start = len(ids)
        while start and not pending:
            text = self._rules.texts[ids[start - 1]]
            if not text[-1:].isalpha():
                break
            start -= 1
            if text[0].isspace():
                break
        return tuple(ids[start:])

    def _go_on(
        self, row: torch.Tensor, scores: torch.Tensor, word: tuple[int, ...], node: _Node, remaining: int
    ) -> None:
        following = {token: self._rules.tree[(*word, token)] for token in node.children}
        in_time = [token for token, child in following.items() if child.steps <= remaining - 3] or node.children
        bias = torch.tensor([following[token].share for token in in_time], dtype=row.dtype, device=row.device).log()
        row[in_time] = scores[in_time] + bias

    def _end_well(self, row: torch.Tensor, text: str, pending: bool, kind: int, remaining: int) -> None:
        complete = not pending and bool(_SENTENCE_END.search(text))
        if complete and (remaining <= self.max_new_tokens // 3 or remaining <= 1):
            _keep_only(row, self._rules.ends)
            return
        if not complete:
            row.index_fill_(0, self._rules.ends if pending else self._rules.open_ends, -torch.inf)
        if remaining <= (3 if kind == _AFTER_WORD else 2):
            _keep_only(row, self._rules.closing)
        elif kind == _AFTER_WORD and remaining <= self.max_new_tokens // 6:
            row[self._rules.closing] += self.max_new_tokens // 6 + 1 - remaining


def _kind(word: tuple[int, ...], node: _Node | None, text: str) -> int:
    if not word:
        return _AFTER_DIGIT if text[-1:].isdigit() else _BETWEEN
    return _AFTER_WORD if node is None or node.steps == 0 else _WITHIN


class Plausible(LogitsProcessor):
    """Rules out tokens that are less probable than the best one by more than `nats`.

    Sampling would not draw them anyway, and guidance need not look at them, which saves most of its time.
    """

    def __init__(self, nats: float = 10.0):
        self.nats = nats

    @torch.no_grad()
    def __call__(self, input_ids: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
        """(rows, vocabulary) scores to scores with the improbable tokens at minus infinity."""
        return torch.nn.functional.threshold(scores - scores.amax(-1, keepdim=True), -self.nats, -torch.inf)


def _keep_only(row: torch.Tensor, tokens: torch.Tensor) -> None:
    """Leave only `tokens`, unless none of them is possible."""
    saved = row[tokens]
    if torch.isfinite(saved).any():
        row.fill_(-torch.inf)
        row[tokens] = saved
