r"""Guided decoding for everything that `transformers.generate` runs (Eq. 2).

Beam search in transformers adds up what a logits processor returns. :class:`GuidedLogitsProcessor` returns, for a
hypothesis `h` and a token `v`,

.. math:: \lambda \log p(v \mid h) - (1-\lambda)\, s\, \bigl[d(h + v) - d(h)\bigr]

with d = 0 before the first token, so that the sum telescopes to λ · log P - (1 - λ) · s · d of the whole text: Eq. 2,
exactly, at every step and for the final ranking.
"""

import math
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import torch
from transformers import LogitsProcessor, LogitsProcessorList

from fada.decoding.guidance import Guidance, check_target, check_weight
from fada.decoding.hypothesis import Hypothesis
from fada.decoding.kernels.generate import Rows, Terms, Tokens, guide_rows
from fada.decoding.vocabulary import (
    REPLACEMENT,
    Row,
    RowReader,
    TokenConstraint,
    resized_table,
    token_table,
    vocabulary_of,
)
from fada.decoding.weights import BEAM
from fada.distances import DISTANCE, LAM, SCALE
from fada.errors import FadaError
from fada.targets.distribution import CharDistribution

if TYPE_CHECKING:
    from transformers import PreTrainedModel


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
        lam: float = LAM,
        distance: str = DISTANCE,
        scale: float = SCALE,
        prompt_length: int = 0,
        keep: int | None = None,
        warmup: float = 0.0,
        forbidden: Iterable[str] = (),
        allowed: Iterable[str] | None = None,
    ):
        targets: list[Any] = list(target) if isinstance(target, Sequence) else [target]
        if not targets:
            raise FadaError("no target given: expected a character distribution, or one for each input of the batch.")
        for one in targets:
            check_target(one)
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
        self._broken = [self.guidance.cell(c) for c in vocabulary.normalizer(REPLACEMENT)] if may_break else []
        self.banned = np.zeros(size, bool)
        if self._constrained:
            self._constraint = TokenConstraint(vocabulary, self.guidance)
            self.banned = self._constraint.banned
        cells, spaces, context = self.reader.cells, vocabulary.spaces, vocabulary.context
        self._tokens = Tokens(vocabulary.offsets, cells, spaces, context, self.banned)

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
        g = self.guidance
        per_row = self._guidance_of_rows(len(rows))
        written = Rows(
            np.array([row.counts for row in rows], np.int64),
            np.array([row.length for row in rows], np.int64),
            np.full(len(rows), started),
            np.array([self._at_start(row) for row in rows]),
            np.array([bool(row.pending) for row in rows]),
            *self._prefixes(rows),
            np.stack([guidance.reference for guidance in per_row]),
        )
        keep = 0 if self.keep is None else min(self.keep, log_probs.shape[1])
        limits = np.empty((len(rows), 2))
        guide_rows(log_probs, written, self._tokens, Terms(g.kind, g.lam, g.weight, self.warmup, keep), out, limits)
        for r, row in enumerate(rows):
            tokens = self._tokens_in_context(row)
            if self._constrained:
                out[r, self._constraint.ruled_out(row, tokens)] = -np.inf
            if len(tokens):
                item = r * len(self.guidances) // len(rows)
                self._read_in_context(row, item, tokens, log_probs[r], out[r], limits[r])

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
        tokens: np.ndarray,
        log_probs: np.ndarray,
        out: np.ndarray,
        limits: np.ndarray,
    ) -> None:
        """Score the tokens whose characters only the text can tell, unless their bound rules them out."""
        threshold, before = limits
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
    lam: float = LAM,
    num_beams: int = BEAM,
    *,
    tokenizer: Any,
    distance: str = DISTANCE,
    scale: float = SCALE,
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
    if nbest > 1 and _is_whisper(model) and not generation.get("do_sample"):
        raise FadaError(f"nbest is {nbest}: Whisper searches once for each of them and finds the same. Leave it out.")
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
    targets, lines = len(guide.guidances), len(next(iter(encoded.values())))
    if targets not in (1, lines):
        raise FadaError(f"{targets} targets for {lines} inputs: expected one target for each input, or one for all.")
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
    if "num_return_sequences" in generation:
        raise FadaError("num_return_sequences is called nbest here: give that.")
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


def _is_whisper(model: "PreTrainedModel") -> bool:
    return hasattr(model.generation_config, "no_timestamps_token_id")


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
    elif _is_whisper(model):
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
    """The inputs of `generate`, on the model's device and in its precision; prompts are padded on the left."""
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
    return {name: _moved(value, model) if torch.is_tensor(value) else value for name, value in encoded.items()}


def _moved(value: torch.Tensor, model: "PreTrainedModel") -> torch.Tensor:
    return value.to(model.device, model.dtype if value.is_floating_point() else value.dtype)


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
    items = (found[i : i + nbest] for i in range(0, len(found), nbest))
    return [sorted(hypotheses, key=lambda h: -h.score) for hypotheses in items]


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
