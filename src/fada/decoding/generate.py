r"""Guided decoding for everything that `transformers.generate` runs (Eq. 2).

Beam search in transformers adds up what a logits processor returns. :class:`GuidedLogitsProcessor` returns, for a
hypothesis `h` and a token `v`,

.. math:: \lambda \log p(v \mid h) - (1-\lambda)\, s\, \bigl[d(h + v) - d(h)\bigr]

with d = 0 before the first token, so that the sum telescopes to λ · log P - (1 - λ) · s · d of the whole text: Eq. 2,
exactly, at every step and for the final ranking.
"""

import math
import time
import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import torch
from transformers import LogitsProcessor, LogitsProcessorList

from fada.decoding.guidance import Guidance, check_weight
from fada.decoding.hypothesis import Hypothesis
from fada.decoding.kernels.generate import guide_rows
from fada.errors import FadaError
from fada.targets.distribution import CharDistribution
from fada.text.characters import joins_previous
from fada.text.normalizer import TextNormalizer
from fada.text.tokens import TokenTable, complete_text

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

_REPLACEMENT = "\ufffd"
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
        shows_broken = bool(normalizer(_REPLACEMENT))
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
            characters.update(self.normalizer(_REPLACEMENT))
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
        if _REPLACEMENT in text or not self._constraint.permits(before + text):
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


class GuidedLogitsProcessor(LogitsProcessor):
    """Makes any `generate` rank its hypotheses by Eq. 2.

    ::

        guide = GuidedLogitsProcessor(tokenizer, target, lam=0.5, prompt_length=inputs.input_ids.shape[1])
        model.generate(**inputs, logits_processor=[guide], num_beams=5, length_penalty=0.0)

    What is counted is the text generated so far, as the target's normaliser leaves it: not the prompt, not special
    tokens, not the spaces before the first character (tokenizers differ in whether they write one), not the bytes of a
    character that is not complete yet.

    * **Beam search** (``num_beams > 1``): the running score is Eq. 2. It needs ``length_penalty=0.0`` (otherwise the
      whole score is divided by a power of the length) and ``renormalize_logits=False``.
    * **Greedy** (``num_beams=1``): transformers passes raw logits, which differ from log-probabilities by a constant
      per row: the choice at each step is that of Eq. 2 with one hypothesis.
    * **Sampling**: tokens are drawn from p^λ · exp(-(1-λ)·scale·Δd). Pass ``temperature=lam`` to keep the model's own
      temperature, which :func:`guided_generate` does; the penalty is then weighted by (1-λ)/λ.

    λ = 1 without constraints returns the scores as they are.

    Args:
        tokenizer: a tokenizer of transformers, a processor that holds one, or a :class:`~fada.text.tokens.TokenTable`.
        target: the distribution to align to, or one for each input of the batch (they share their alphabet).
        lam: λ between 0 and 1.
        distance: ``sorted_w2`` (Eq. 1) or ``aligned_w2``; ``js``, ``kl`` and ``w1`` are possible and slower.
        scale: factor of the distance, 1 in the paper.
        warmup: characters over which the guidance sets in: the distance of a text of L characters counts
            L / (L + warmup). 0 is the paper. The frequencies of the first few characters of a text are necessarily far
            from any target, so that in open-ended generation with a large scale they would be chosen by their letters
            alone; a few dozen characters mend that.
        prompt_length: columns of ``input_ids`` before the first generated token. With 0, a first column of special
            tokens (the start token of encoder-decoder models) counts as prompt.
        keep: how many of the best tokens of each row must be exact; the rest gets a lower bound of its value, which
            saves most of the time. Beam search needs ``max(2, 1 + number of end tokens) * num_beams``, top-k
            sampling `k`. None: all tokens are exact.
        forbidden: characters that may not be written; ``"e"`` also stands for ``E`` if the normaliser lower-cases.
        allowed: the only characters that may be written.
    """

    def __init__(
        self,
        tokenizer: Any,
        target: CharDistribution | Sequence[CharDistribution],
        lam: float = 0.5,
        distance: str = "sorted_w2",
        scale: float = 1.0,
        prompt_length: int = 0,
        keep: int | None = None,
        warmup: float = 0.0,
        forbidden: Iterable[str] = (),
        allowed: Iterable[str] | None = None,
    ):
        targets = [target] if isinstance(target, CharDistribution) else list(target)
        if not targets:
            raise FadaError("no target given: expected a character distribution, or one for each input of the batch.")
        first = targets[0]
        for other in targets[1:]:
            if other.symbols != first.symbols or other.normalizer != first.normalizer:
                raise FadaError(
                    "the targets of a batch differ in alphabet or normaliser. "
                    "Take them from one TargetSet, which shares both."
                )
        if keep is not None and keep < 1:
            raise FadaError(f"keep is {keep}, expected at least 1, or None for all tokens.")
        self.prompt_length = prompt_length
        self.keep = keep
        check_weight("warmup", warmup, 0, math.inf)
        self.warmup = warmup
        self._table = token_table(tokenizer)
        only = None if allowed is None else frozenset(allowed)
        guidance = Guidance(
            first, lam=lam, distance=distance, scale=scale, forbidden=frozenset(forbidden), allowed=only
        )
        self._constrained = not guidance.constraint.is_void
        characters = vocabulary_of(self._table, first.normalizer).alphabet
        self.guidances = [replace(guidance, target=t).covering(characters) for t in targets]
        self._setup(len(self._table))

    @property
    def guidance(self) -> Guidance:
        """The guidance of the first target: its :meth:`~.Guidance.score` is what beams are ranked by."""
        return self.guidances[0]

    def guidance_of(self, item: int) -> Guidance:
        """The guidance of one input of the batch."""
        return self.guidances[item if len(self.guidances) > 1 else 0]

    def penalty(self, text: str, item: int = 0) -> float:
        """What the score of `text` loses by its distance: (1 - λ) · scale · distance · L / (L + warmup)."""
        guidance = self.guidance_of(item)
        length = len(guidance.target.normalizer(text))
        grown = length / (length + self.warmup) if self.warmup else 1.0
        return guidance.weight * guidance.distance_of(text) * grown

    def set_begin_index(self, begin_index: int) -> None:
        """Where the generated text starts; Whisper calls this for every window."""
        self.prompt_length = begin_index

    def _setup(self, size: int) -> None:
        """Arrays for an output layer of `size` tokens."""
        vocabulary = vocabulary_of(resized_table(self._table, size), self.guidance.target.normalizer)
        self.vocabulary = vocabulary
        self.reader = RowReader(vocabulary, self.guidance)
        self._context_tokens = np.flatnonzero(vocabulary.context)
        self._joining_tokens = np.flatnonzero(vocabulary.context == 2)
        may_break = (vocabulary.context == 1).any()
        self._broken = [self.guidance.cell(c) for c in vocabulary.normalizer(_REPLACEMENT)] if may_break else []
        self.banned = np.zeros(size, bool)
        if self._constrained:
            self._constraint = TokenConstraint(vocabulary, self.guidance)
            self.banned = self._constraint.banned

    @torch.no_grad()
    def __call__(self, input_ids: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
        """(rows, length) token ids and (rows, vocabulary) scores to guided scores, same dtype and device."""
        guidance = self.guidance
        if guidance.weight == 0 and guidance.lam == 1 and not self._constrained:
            return scores
        if scores.shape[1] != len(self.vocabulary.table):
            self._setup(scores.shape[1])
        ids = input_ids.cpu().numpy()
        begin, started = self._begin(ids)
        rows = self.reader.read(np.ascontiguousarray(ids[:, begin:]))
        if guidance.weight == 0 and guidance.lam == 1:
            return self._mask(rows, scores)
        log_probs = scores.detach().to("cpu", torch.float32).numpy()
        out = np.empty_like(log_probs)
        self._guide(rows, started, log_probs, out)
        return torch.from_numpy(out).to(scores.device, scores.dtype)

    def _mask(self, rows: list[Row], scores: torch.Tensor) -> torch.Tensor:
        """The constraints alone."""
        out = scores.masked_fill(torch.from_numpy(self.banned).to(scores.device), -torch.inf)
        for row, line in zip(rows, out, strict=True):
            line[
                torch.from_numpy(self._constraint.ruled_out(row, self._tokens_in_context(row))).to(line.device)
            ] = -torch.inf
        return out

    def _tokens_in_context(self, row: Row) -> np.ndarray:
        """The tokens whose characters depend on the end of `row`."""
        return self._context_tokens if row.pending else self._joining_tokens

    def _begin(self, ids: np.ndarray) -> tuple[int, bool]:
        begin = min(self.prompt_length, ids.shape[1])
        if begin == 0 and ids.shape[1] and all(self._is_special(i) for i in ids[:, 0]):
            begin = 1
        return begin, ids.shape[1] > begin

    def _is_special(self, token: int) -> bool:
        return token >= len(self._table) or bool(self._table.special[token])

    def _guide(self, rows: list[Row], started: bool, log_probs: np.ndarray, out: np.ndarray) -> None:
        g, v = self.guidance, self.vocabulary
        per_row = self._guidance_of_rows(len(rows))
        prefixes, prefix_lengths = self._prefixes(rows)
        thresholds, befores = np.empty(len(rows)), np.empty(len(rows))
        guide_rows(
            log_probs,
            out,
            thresholds,
            befores,
            np.array([row.counts for row in rows], np.int64),
            np.array([row.length for row in rows], np.int64),
            np.full(len(rows), started),
            np.array([self._at_start(row) for row in rows]),
            np.array([bool(row.pending) for row in rows]),
            prefixes,
            prefix_lengths,
            np.stack([guidance.reference for guidance in per_row]),
            self.reader.offsets,
            self.reader.cells,
            v.spaces,
            v.context,
            self.banned,
            g.kind,
            g.lam,
            g.weight,
            self.warmup,
            0 if self.keep is None else min(self.keep, log_probs.shape[1]),
        )
        for r, row in enumerate(rows):
            tokens = self._tokens_in_context(row)
            if self._constrained:
                out[r, self._constraint.ruled_out(row, tokens)] = -np.inf
            if len(tokens):
                self._read_in_context(
                    row, r * len(self.guidances) // len(rows), befores[r], tokens, log_probs[r], out[r], thresholds[r]
                )

    def _at_start(self, row: Row) -> bool:
        """Whether leading spaces of the next token are not part of the text; when collapsing, any white space is."""
        return not row.pending and (row.length == 0 if self.vocabulary.collapsing else not row.text)

    def _prefixes(self, rows: list[Row]) -> tuple[np.ndarray, np.ndarray]:
        """What the next token brings into the count besides its own characters, without and with a leading space.

        An unfinished character that is not continued becomes U+FFFD; with collapsing, white space at the end of a text
        starts to count when something follows it.
        """
        broken = self._broken
        prefixes = np.zeros((len(rows), 2, 1 + len(broken)), np.int64)
        lengths = np.zeros((len(rows), 2), np.int64)
        for r, row in enumerate(rows):
            waiting = self.vocabulary.collapsing and row.length > 0 and row.text[-1].isspace()
            space = [self.guidance.cell(" ")] if waiting else []
            both = [*space, *broken] if row.pending else None
            for which in range(2):
                cells = both if both is not None else (space if which == 0 else [])
                prefixes[r, which, : len(cells)] = cells
                lengths[r, which] = len(cells)
        return prefixes, lengths

    def _guidance_of_rows(self, rows: int) -> list[Guidance]:
        if rows % len(self.guidances):
            raise FadaError(
                f"{len(self.guidances)} targets for a batch of {rows} rows: "
                "expected one target for each input, or one for all."
            )
        return [guidance for guidance in self.guidances for _ in range(rows // len(self.guidances))]

    def _read_in_context(
        self,
        row: Row,
        item: int,
        before: float,
        tokens: np.ndarray,
        log_probs: np.ndarray,
        out: np.ndarray,
        threshold: float,
    ) -> None:
        """Score the tokens whose characters only the text can tell, unless their bound rules them out."""
        lam, paid = self.guidance.lam, self.guidance.weight * before
        best_possible = lam * log_probs[tokens] + paid
        for token in tokens[(best_possible >= threshold) & np.isfinite(out[tokens])]:
            text, _ = self.vocabulary.text_of(row.data + self.vocabulary.table.pieces[token])
            out[token] = lam * log_probs[token] - self.penalty(text, item) + paid


@dataclass
class Stopwatch:
    """Seconds spent in logits processors."""

    seconds: float = 0.0


class _Timed(LogitsProcessor):
    """Several processors as one that takes its time."""

    def __init__(self, processors: Sequence[LogitsProcessor], stopwatch: Stopwatch):
        self.processors, self.stopwatch = processors, stopwatch

    def set_begin_index(self, begin_index: int) -> None:
        for processor in self.processors:
            if hasattr(processor, "set_begin_index"):
                processor.set_begin_index(begin_index)

    def __call__(self, input_ids: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
        started = time.perf_counter()
        for processor in self.processors:
            scores = processor(input_ids, scores)
        self.stopwatch.seconds += time.perf_counter() - started
        return scores


def guided_generate(
    model: "PreTrainedModel",
    inputs: Any,
    target: CharDistribution | Sequence[CharDistribution],
    lam: float = 0.5,
    num_beams: int = 5,
    *,
    tokenizer: Any,
    distance: str = "sorted_w2",
    scale: float = 1.0,
    warmup: float = 0.0,
    forbidden: Iterable[str] = (),
    allowed: Iterable[str] | None = None,
    nbest: int = 1,
    logits_processor: Iterable[LogitsProcessor] = (),
    stopwatch: Stopwatch | None = None,
    **generation: Any,
) -> list[list[Hypothesis]]:
    """Generate with Eq. 2 as the score, every option of `generate` set so that it is exact.

    Args:
        model: any model of transformers that can `generate`: causal, TrOCR and other encoder-decoders, Whisper.
        inputs: what the model's processor or tokenizer returns (a mapping of tensors), the tensor of its main input, or
            for language models a prompt or a list of prompts.
        target: the distribution to align to, or one for each input.
        lam: λ, above 0 up to 1.
        num_beams: beam size; 1 is greedy, or plain sampling with ``do_sample=True``.
        tokenizer: the tokenizer, or a processor that holds it.
        distance, scale, warmup, forbidden, allowed: see :class:`GuidedLogitsProcessor`.
        nbest: hypotheses returned for each input, at most `num_beams` (with sampling: as many samples).
        logits_processor: further processors. They come before the guidance, which must see what they rule out.
        stopwatch: adds up the time spent in the guidance and the further processors.
        generation: further options of `generate`, such as ``max_new_tokens`` or ``do_sample``.

    Returns:
        For each input its hypotheses, best first: the text without prompt, special tokens, leading spaces and an
        incomplete last character (with a warm-up, the score has the distance times L / (L + warmup)). For long
        recordings (Whisper) the list holds the windows in order, each with its own score.
    """
    _check_options(lam, num_beams, nbest, generation)
    table = token_table(tokenizer)
    encoded = _encode(model, inputs, getattr(tokenizer, "tokenizer", tokenizer))
    settings = _exact_settings(model, lam, num_beams, nbest, generation)
    end_tokens = _end_tokens(model, generation)
    prompt = encoded.get("decoder_input_ids" if model.config.is_encoder_decoder else "input_ids")
    prompt_length = 1 if prompt is None else int(prompt.shape[1])
    guide = GuidedLogitsProcessor(
        table,
        target,
        lam=lam,
        distance=distance,
        scale=scale,
        prompt_length=prompt_length,
        keep=_needed_tokens(model, num_beams, len(end_tokens), settings),
        warmup=warmup,
        forbidden=forbidden,
        allowed=allowed,
    )
    processors = LogitsProcessorList([_Timed([*logits_processor, guide], stopwatch or Stopwatch())])
    with torch.inference_mode():
        output: Any = cast(Any, model).generate(**encoded, logits_processor=processors, **settings)
    if isinstance(output, Mapping) and "segments" in output:
        return [_windows(segments, guide, i, end_tokens) for i, segments in enumerate(output["segments"])]
    return _hypotheses(output, guide.prompt_length, guide, nbest, end_tokens)


def _check_options(lam: float, num_beams: int, nbest: int, generation: Mapping[str, Any]) -> None:
    if not 0 < lam <= 1:
        raise FadaError(f"lam is {lam}, expected a number above 0 up to 1 (1 is the model alone).")
    if num_beams < 1:
        raise FadaError(f"num_beams is {num_beams}, expected at least 1.")
    if nbest < 1 or (nbest > num_beams and not generation.get("do_sample")):
        raise FadaError(f"nbest is {nbest}, expected between 1 and the beam size, {num_beams}.")
    if generation.get("renormalize_logits"):
        raise FadaError(
            "renormalize_logits=True makes the scores of a beam sum to something other than Eq. 2. Leave it out."
        )
    if generation.get("length_penalty"):
        raise FadaError(
            f"length_penalty={generation['length_penalty']} divides the whole score by a power of the length. "
            "Eq. 2 needs 0.0: leave it out."
        )
    if generation.get("do_sample") and num_beams > 1 and generation.get("temperature", 1.0) != 1.0:
        raise FadaError(
            "a temperature together with sampling beams scales the sum of scores. Use num_beams=1 or leave it out."
        )


def _exact_settings(
    model: "PreTrainedModel", lam: float, num_beams: int, nbest: int, generation: Mapping[str, Any]
) -> dict[str, Any]:
    settings: dict[str, Any] = {
        "do_sample": False,
        "early_stopping": False,
        **generation,
        "num_beams": num_beams,
        "num_return_sequences": nbest,
        "renormalize_logits": False,
        "return_dict_in_generate": True,
        "output_scores": num_beams > 1,
        "output_logits": num_beams == 1,
    }
    if num_beams > 1:
        settings["length_penalty"] = 0.0
    else:
        del settings["early_stopping"]
    if settings["do_sample"]:
        # The guidance multiplies log-probabilities by λ, which would be a temperature of 1/λ.
        settings["temperature"] = 1.0 if num_beams > 1 else lam * generation.get("temperature", 1.0)
    elif hasattr(model.generation_config, "no_timestamps_token_id"):
        settings.setdefault("temperature", 0.0)  # Whisper: no fallback to sampling, it would read guided scores
    if model.generation_config.pad_token_id is None and "pad_token_id" not in settings:
        settings["pad_token_id"] = next(iter(_end_tokens(model, generation)), 0)
    return settings


def _needed_tokens(
    model: "PreTrainedModel", num_beams: int, end_tokens: int, settings: Mapping[str, Any]
) -> int | None:
    """How many tokens of a row the search can look at: None if all."""
    if not settings["do_sample"]:
        return max(2, 1 + end_tokens) * num_beams
    top_k = settings.get("top_k", model.generation_config.top_k)
    return top_k if top_k and num_beams == 1 else None


def _end_tokens(model: "PreTrainedModel", generation: Mapping[str, Any]) -> list[int]:
    tokens = generation.get("eos_token_id", model.generation_config.eos_token_id)
    if tokens is None:
        return []
    return [int(t) for t in tokens] if isinstance(tokens, Iterable) else [int(tokens)]


def _encode(model: "PreTrainedModel", inputs: Any, tokenizer: Any) -> dict[str, Any]:
    """The inputs of `generate`, on the model's device; prompts are padded on the left."""
    if isinstance(inputs, str):
        inputs = [inputs]
    if torch.is_tensor(inputs):
        encoded = {model.main_input_name: inputs}
    elif isinstance(inputs, Mapping):
        encoded = dict(inputs)
    else:
        prompts = [tokenizer(prompt)["input_ids"] for prompt in inputs]
        if not prompts or not all(prompts):
            raise FadaError("no prompt given: expected text, or tensors from the model's processor.")
        width = max(map(len, prompts))
        pad = tokenizer.pad_token_id if tokenizer.pad_token_id is not None else 0
        ids = torch.tensor([[pad] * (width - len(p)) + p for p in prompts])
        mask = torch.tensor([[0] * (width - len(p)) + [1] * len(p) for p in prompts])
        encoded = {"input_ids": ids, "attention_mask": mask}
    return {name: value.to(model.device) if torch.is_tensor(value) else value for name, value in encoded.items()}


def _generated(sequence: Sequence[int], end_tokens: Sequence[int]) -> tuple[int, ...]:
    """The tokens up to and with the first end token."""
    ends = [i for i, token in enumerate(sequence) if token in end_tokens]
    return tuple(sequence[: ends[0] + 1] if ends else sequence)


def _scored(
    tokens: tuple[int, ...], guide: GuidedLogitsProcessor, item: int, beam_score: Any, logits: Any
) -> Hypothesis:
    text, _ = guide.vocabulary.text_of(guide.vocabulary.table.join(tokens))
    guidance = guide.guidance_of(item)
    distance, penalty = guidance.distance_of(text), guide.penalty(text, item)
    if beam_score is not None:
        score = float(beam_score)
        return Hypothesis(text, score, (score + penalty) / guidance.lam, distance, labels=tokens)
    steps = zip(tokens, logits, strict=False)
    log_prob = sum(float(torch.log_softmax(step.float(), -1)[token]) for token, step in steps)
    return Hypothesis(text, guidance.lam * log_prob - penalty, log_prob, distance, labels=tokens)


def _hypotheses(
    output: Any, begin: int, guide: GuidedLogitsProcessor, nbest: int, end_tokens: Sequence[int]
) -> list[list[Hypothesis]]:
    beam_scores = getattr(output, "sequences_scores", None)
    found = []
    for i, sequence in enumerate(output.sequences.tolist()):
        tokens = _generated(sequence[begin:], end_tokens)
        logits = None if beam_scores is not None else [step[i] for step in output.logits]
        beam_score = None if beam_scores is None else beam_scores[i]
        found.append(_scored(tokens, guide, i // nbest, beam_score, logits))
    return [found[i : i + nbest] for i in range(0, len(found), nbest)]


def _windows(
    segments: Sequence[Mapping[str, Any]], guide: GuidedLogitsProcessor, item: int, end_tokens: Sequence[int]
) -> list[Hypothesis]:
    """One entry for each window of a long recording: the text that Whisper keeps of it, and the window's score."""
    windows: dict[int, list[Mapping[str, Any]]] = {}
    for segment in segments:
        windows.setdefault(id(segment["result"]), []).append(segment)
    found = []
    for kept in windows.values():
        result = kept[0]["result"]
        begin = min(segment["idxs"][0] for segment in kept)
        tokens = _generated(result["sequences"].tolist()[begin:], end_tokens)
        whole = _scored(tokens, guide, item, result.get("sequences_scores"), result.get("logits"))
        kept_tokens = [token for segment in kept for token in segment["tokens"].tolist()]
        text, _ = guide.vocabulary.text_of(guide.vocabulary.table.join(kept_tokens))
        found.append(whole._replace(text=text))
    return found
