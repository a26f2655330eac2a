"""What TrOCR and Whisper share: labels, the domain tag in the decoder's prompt, new characters, generation."""

import hashlib
import os
import unicodedata
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from functools import cached_property
from itertools import islice
from pathlib import Path
from typing import Any, TypeVar, cast

import numpy as np
import torch
from torch import Tensor
from transformers import AddedToken, DynamicCache, EncoderDecoderCache, PreTrainedModel
from transformers.generation import GenerationMixin, LogitsProcessorList
from transformers.modeling_outputs import BaseModelOutput

from fada.alignment import AlignmentLoss
from fada.common.files import replacing
from fada.common.say import track
from fada.data.line import Line
from fada.decoding.hypothesis import Hypothesis
from fada.decoding.knowledge import Knowledge
from fada.decoding.search import Kind, Search
from fada.decoding.weights import Weights
from fada.distances import DISTANCE, LAM, SCALE
from fada.errors import FadaError
from fada.models.network import (
    ANEW,
    IGNORED,
    Network,
    NewCharacters,
    characters_to_add,
    domain_tag,
    one_thread_each,
    padded_labels,
)
from fada.models.recognizer import Tagging
from fada.targets.distribution import CharDistribution
from fada.targets.target_set import TargetSet
from fada.text.tokens import TokenTable

R = TypeVar("R")

STATES = "encoder_states"
"""The network input that stands for the encoder's, where its output is known already: (batch, positions, size)."""


_SPARE = 128
"""Classes that a network may have beyond its tokens: their number is often rounded up."""


class UnfitLine(FadaError):  # noqa: N818 - the line is at fault, not the program
    """A line that can be read, but not with these settings: something to decide, not to pass over."""


class Seq2SeqRecognizer(Network):
    """A recogniser with an encoder and a decoder over subwords.

    The decoder is given `prompt` (start token and the like) and, with tagging, the domain's tag; then the text.

    Attributes:
        tokenizer: of the decoder.
        prompt: token ids that precede every text.
    """

    kind = "seq2seq"
    terms = frozenset({"lam", "scale", "distance", "beam"})
    model: Any
    tokenizer: Any
    prompt: tuple[int, ...]
    rows = 8

    @property
    def at_once(self) -> int:
        """A group of lines for each thread."""
        return self.rows * torch.get_num_threads()

    @property
    def characters(self) -> str:
        """The number of its tokens."""
        return f"subwords, {self._output_size}"

    def encode(self, text: str, domain: str | None = None) -> list[int]:
        """The whole decoder sequence: prompt, tag, text, end."""
        text_ids = self.tokenizer(text, add_special_tokens=False)["input_ids"]
        return [*self.prompt, *self._tag(domain), *text_ids, self._end]

    def decoder_batch(self, sequences: Sequence[list[int]]) -> dict[str, Tensor]:
        """Decoder inputs and labels of whole sequences; what is given at inference is not to be predicted."""
        given = len(self.prompt) + (self.tagging == "given")
        labels = [[IGNORED] * (given - 1) + sequence[given:] for sequence in sequences]
        padding = self.model.generation_config.pad_token_id
        padding = self._end if padding is None else padding
        inputs = padded_labels([sequence[:-1] for sequence in sequences])
        return {"decoder_input_ids": inputs.masked_fill(inputs == IGNORED, padding), "labels": padded_labels(labels)}

    def freeze_encoder(self) -> None:
        """Train the decoder alone. The encoder's dropout is off from now on, so that its output is always the same."""
        self.model.get_encoder().requires_grad_(False)
        self.encoder_is_frozen = True

    def encoder_states(self, inputs: dict[str, Tensor]) -> Tensor:
        """(batch, positions, size): what the decoder attends to."""
        if STATES in inputs:
            return inputs[STATES].to(self.model.dtype)
        encoder = self.model.get_encoder()
        if not self.encoder_is_frozen:
            return encoder(inputs[self.model.main_input_name]).last_hidden_state
        with torch.no_grad():
            return encoder.eval()(inputs[self.model.main_input_name]).last_hidden_state

    def _encoder_outputs(self, inputs: dict[str, Tensor]) -> BaseModelOutput:
        return BaseModelOutput(last_hidden_state=cast(Any, self.encoder_states(inputs)))

    def encoded(
        self,
        arrays: Sequence[np.ndarray],
        folder: Path | None = None,
        dtype: type[np.floating[Any]] = np.float16,
        batch_size: int = 8,
    ) -> np.ndarray:
        """(lines, positions, size): what the encoder makes of prepared lines.

        Args:
            arrays: prepared lines; any sequence, also one that prepares them when they are asked for.
            folder: keeps the result in a file that all models with the same encoder share for the same lines.
            dtype: float16 halves the space; what it rounds is far below what the decoder notices.
            batch_size: lines per call of the network.
        """
        if folder is None or not len(arrays):
            return self._encoded(arrays, dtype, batch_size)
        digest = hashlib.blake2b(np.dtype(dtype).str.encode(), digest_size=12)
        for name, weight in self.model.get_encoder().state_dict().items():
            digest.update(name.encode())
            digest.update(weight.detach().cpu().contiguous().numpy().data)
        for array in arrays:
            digest.update(np.ascontiguousarray(array).data)
        path = folder / f"{digest.hexdigest()}.npy"
        if not path.exists():
            with replacing(path) as temporary, temporary.open("wb") as stream:
                np.save(stream, self._encoded(arrays, dtype, batch_size))
        return np.load(path, mmap_mode="r")

    def _encoded(self, arrays: Sequence[np.ndarray], dtype: type[np.floating[Any]], batch_size: int) -> np.ndarray:
        self.model.eval()

        def states_of(chosen: list[int]) -> np.ndarray:
            inputs = self.to_device(self.collate([arrays[i] for i in chosen]))
            with self.running(halfway=True), torch.inference_mode():
                return self.encoder_states(inputs).float().cpu().numpy()

        states = np.empty(0, dtype)
        for chosen, found in _in_groups(states_of, range(len(arrays)), self, batch_size, "running the encoder"):
            if not len(states):
                states = np.empty((len(arrays), *found.shape[1:]), dtype)
            states[chosen] = found
        return states

    def collate_states(
        self, states: Sequence[np.ndarray], labels: Sequence[list[int]] | None = None
    ) -> dict[str, Tensor]:
        """Like :meth:`collate`, of lines whose encoder output (positions, size) is known."""
        inputs = {STATES: torch.from_numpy(np.stack(states))}
        return inputs if labels is None else {**inputs, **self.decoder_batch(labels)}

    def task_loss(self, model: torch.nn.Module, inputs: dict[str, Tensor]) -> tuple[Tensor, Any]:
        """Cross-entropy; a frozen encoder is run without gradients, or not at all."""
        if not self.encoder_is_frozen:
            return super().task_loss(model, inputs)
        outputs = model(
            encoder_outputs=self._encoder_outputs(inputs),
            **{name: inputs[name] for name in ("decoder_input_ids", "labels")},
        )
        return outputs.loss, outputs

    def alignment_loss(self, targets: TargetSet, **options: Any) -> AlignmentLoss:
        """Summed token probabilities."""
        return AlignmentLoss.for_tokens(targets, self.tokenizer, self._output_size, **options)

    def alignment_inputs(self, outputs: Any, inputs: dict[str, Tensor]) -> tuple[Tensor, Tensor]:
        """Logits and labels."""
        return outputs.logits, inputs["labels"]

    def read(self, inputs: dict[str, Tensor], lines: Sequence[Line], **options: Any) -> list[str]:
        """Greedy; `options` are those of :meth:`generate`."""
        return [reading.text for reading in self.generate_batch(inputs, lines, **options)]

    def _transcribe(
        self, lines: Sequence[Line], batch_size: int, targets: TargetSet | None = None, **options: Any
    ) -> list[str]:
        """With `targets`, guided towards the distribution of each line's domain (Eq. 2).

        `options` are those of :meth:`generate`: `num_beams`, `lam`, `distance`, `scale`, `max_new_tokens`.
        """
        texts = []
        for batch, inputs in self.batches(lines, batch_size):
            wanted = None if targets is None else [targets[str(line.domain)] for line in batch]
            texts += [reading.text for reading in self.generate_batch(inputs, batch, targets=wanted, **options)]
        return texts

    def search(
        self,
        lines: Iterable[Line],
        knowledge: Knowledge | None = None,
        *,
        batch_size: int = 8,
        threads: int | None = None,
        cache: str | os.PathLike[str] | None = None,
    ) -> Search:
        """Guided generation; the encoder is run once."""
        return Generation(self, lines, knowledge, batch_size=batch_size, cache=cache)

    def generate(self, lines: Sequence[Line], **options: Any) -> list[Hypothesis]:
        """Read a batch of lines.

        Args:
            lines: at once; with `tagging="given"` their domain is used.
            options: `targets` (one distribution for each line, to guide towards), `lam`, `distance`, `scale`,
                `num_beams`, `max_new_tokens`.
        """
        inputs = self.to_device(self.collate([self.prepare(line) for line in lines]))
        return self.generate_batch(inputs, lines, **options)

    def generate_batch(self, inputs: dict[str, Tensor], lines: Sequence[Line], **options: Any) -> list[Hypothesis]:
        """Read lines whose network input is there; see :meth:`generate`."""
        with self.running():
            return self._generated(inputs, lines, **options)

    def _generated(
        self,
        inputs: dict[str, Tensor],
        lines: Sequence[Line],
        *,
        targets: Sequence[CharDistribution] | None = None,
        lam: float = LAM,
        distance: str = DISTANCE,
        scale: float = SCALE,
        num_beams: int = 1,
        max_new_tokens: int = 200,
    ) -> list[Hypothesis]:
        self.model.eval()
        prompts = torch.tensor(
            [[*self.prompt, *(self._tag(line.domain) if self.tagging == "given" else ())] for line in lines],
            device=self.model.device,
        )
        given = prompts.shape[1]
        guide = None
        if targets is not None:
            from fada.decoding.generate import GuidedLogitsProcessor

            guide = GuidedLogitsProcessor(
                self.tokenizer,
                targets,
                lam=lam,
                distance=distance,
                scale=scale,
                prompt_length=given,
                keep=2 * num_beams,  # with one end token, all that the search looks at
            )
        with torch.inference_mode():
            states = self._encoder_outputs(inputs)
            heard = {"attention_mask": states[0].new_ones(states[0].shape[:2])} if self.modality == "audio" else {}
            # Not the model's own method: Whisper's splits long recordings, which lines are not.
            generate: Any = GenerationMixin.generate
            found = generate(
                self.model,
                encoder_outputs=states,
                **heard,  # all of it, silence too; without a mask `generate` would guess one
                decoder_input_ids=prompts,
                decoder_attention_mask=torch.ones_like(prompts),
                past_key_values=self._attended(states, prompts, num_beams),
                num_beams=num_beams,
                do_sample=False,
                **({"length_penalty": 0.0} if num_beams > 1 else {}),
                max_length=None,
                max_new_tokens=min(max_new_tokens, self._positions - given),
                logits_processor=LogitsProcessorList([] if guide is None else [guide]),
                return_dict_in_generate=True,
                output_scores=num_beams > 1,
                output_logits=num_beams == 1,
            )
        written = found.sequences[:, given:]
        texts = [text.strip() for text in self.tokenizer.batch_decode(written, skip_special_tokens=True)]
        far = (
            [None] * len(texts) if guide is None else [guide.guidance_of(i).distance_of(t) for i, t in enumerate(texts)]
        )
        weight = 1.0 if guide is None else lam
        from_score = num_beams > 1 and weight > 0
        if num_beams == 1:
            sums = self._log_probs(torch.stack(found.logits, 1), written)
        elif from_score:
            sums = found.sequences_scores.tolist()
        else:  # λ = 0: the score does not tell the probability, one more look at the text does
            with torch.inference_mode():
                tokens = torch.cat([prompts, written], 1)[:, :-1]
                output = self.model(encoder_outputs=states, **heard, decoder_input_ids=tokens)
            sums = self._log_probs(output.logits[:, given - 1 :], written)
        readings = []
        for text, total, distance_found in zip(texts, sums, far, strict=True):
            penalty = 0.0 if distance_found is None else (1 - lam) * scale * distance_found
            log_prob = (total + penalty) / weight if from_score else total
            readings.append(Hypothesis(text, weight * log_prob - penalty, log_prob, distance_found))
        return readings

    def _attended(self, states: BaseModelOutput, prompts: Tensor, num_beams: int) -> EncoderDecoderCache | None:
        """Keys and values of the encoder's output, computed once for all beams of a line; None: not with this model."""
        first = self.model(encoder_outputs=states, decoder_input_ids=prompts[:, :1], use_cache=True).past_key_values
        if not isinstance(first, EncoderDecoderCache):
            return None
        attended: Any = first.cross_attention_cache
        for layer in attended.layers if num_beams > 1 else ():
            layer.keys, layer.values = (x.repeat_interleave(num_beams, 0) for x in (layer.keys, layer.values))
        return _SharedAttention(DynamicCache(), attended)

    def _log_probs(self, logits: Tensor, written: Tensor) -> list[float]:
        """Sum of the log-probabilities of written tokens up to the end, from logits (batch, time, vocabulary)."""
        steps = logits.float().log_softmax(-1)
        chosen = steps.gather(-1, written[..., None])[..., 0]
        ended = (written == self._end).cumsum(1) - (written == self._end).long() > 0
        return chosen.masked_fill(ended, 0.0).sum(1).tolist()

    def add_tags(self, domains: Sequence[str], tagging: Tagging) -> None:
        """Give every domain a token of its own (TR-TT)."""
        self.tagging = tagging
        if tagging == "none":
            return
        self.domains = tuple(domains)
        tags = [AddedToken(domain_tag(d), special=True, normalized=False) for d in domains]
        self.tokenizer.add_tokens(tags, special_tokens=True)
        resize_embeddings(self.model, len(self.tokenizer), {})

    def _tag(self, domain: str | None) -> list[int]:
        if self.tagging == "none":
            return []
        self.place_of(domain)
        return [int(self.tokenizer.convert_tokens_to_ids(domain_tag(str(domain))))]

    @property
    def _end(self) -> int:
        end = self.model.generation_config.eos_token_id
        return int(end[0] if isinstance(end, list) else end)

    @property
    def _positions(self) -> int:
        """Tokens that the decoder has room for."""
        config = self.model.config.get_text_config(decoder=True)
        names = ("max_target_positions", "max_position_embeddings")
        return next((int(getattr(config, name)) for name in names if getattr(config, name, None)), 1024)

    @property
    def _output_size(self) -> int:
        return int(self.model.config.get_text_config(decoder=True).vocab_size)


class Generation(Search):
    """The texts that a token model writes under any weights. Its encoder is run once, its decoder for each setting."""

    kind: Kind = "seq2seq"
    terms = Seq2SeqRecognizer.terms
    cheap = False

    def __init__(
        self,
        recognizer: Seq2SeqRecognizer,
        lines: Iterable[Line],
        knowledge: Knowledge | None = None,
        *,
        batch_size: int = 8,
        cache: str | os.PathLike[str] | None = None,
    ) -> None:
        self.recognizer, self.knowledge, self.batch_size = recognizer, knowledge or Knowledge(), batch_size
        self._lines = list(lines)
        self._cache = None if cache is None else Path(cache)
        self.ids = [line.id for line in self._lines]
        texts = [line.text for line in self._lines if line.text is not None]
        self.references = texts if len(texts) == len(self._lines) else None
        self.domains = [line.domain for line in self._lines]

    def hypotheses(self, weights: Weights, alignment: bool = False) -> list[Hypothesis]:
        """The best hypothesis of every line; lines of similar length are written together."""
        self.check(weights)
        order = np.argsort([-len(line.text or "") for line in self._lines], kind="stable").tolist()
        options: dict[str, Any] = {"num_beams": weights.beam}
        if weights.guided:
            options |= weights.model_dump(include={"lam", "scale", "distance"})
        states = self._states

        def written(chosen: list[int]) -> list[Hypothesis]:
            lines = [self._lines[i] for i in chosen]
            targets: Any = [self.knowledge.target_of(line.domain) for line in lines] if weights.guided else None
            inputs = self.recognizer.to_device(self.recognizer.collate_states([states[i] for i in chosen]))
            return self.recognizer.generate_batch(inputs, lines, targets=targets, **options)

        found: dict[int, Hypothesis] = {}
        for chosen, hypotheses in _in_groups(written, order, self.recognizer, self.batch_size, weights.name):
            found |= zip(chosen, hypotheses, strict=True)
        return [found[i] for i in range(len(order))]

    def recognized(self) -> Iterator[bytes]:
        """The weights of the network and the names of the lines: telling what it writes would mean to run it."""
        for name, weight in sorted(self.recognizer.model.state_dict().items()):
            yield name.encode()
            yield weight.detach().cpu().contiguous().numpy().tobytes()
        yield "\0".join(self.ids).encode("utf-8", "surrogatepass")

    @cached_property
    def _states(self) -> np.ndarray:
        """(lines, positions, size); a frozen encoder's with the rounding that they had in training."""
        frozen = self.recognizer.encoder_is_frozen
        prepared = [self.recognizer.prepare(line) for line in self._lines]
        dtype = np.float16 if frozen else np.float32
        return self.recognizer.encoded(prepared, self._cache if frozen else None, dtype, self.batch_size)


def _in_groups(
    work: Callable[[list[int]], R], order: Sequence[int], recognizer: Network, batch_size: int, title: str
) -> Iterator[tuple[list[int], R]]:
    """Groups of lines, by their numbers, and what the network makes of them, with a progress bar.

    A CPU gives the network always as many lines, the last one repeated, and works at several groups side by side, each
    on one thread: what it finds is the same whatever the batch and the number of threads.
    """
    on_cpu = recognizer.model.device.type == "cpu"
    size = recognizer.rows if on_cpu else batch_size
    chosen = (list(order[start : start + size]) for start in track(range(0, len(order), size), title))
    groups = (some + some[-1:] * (size - len(some) if on_cpu else 0) for some in chosen)
    with one_thread_each() if on_cpu else nullcontext(1) as threads, ThreadPoolExecutor(threads) as pool:
        while some := list(islice(groups, threads)):
            yield from zip(some, pool.map(work, some), strict=True)


class _SharedAttention(EncoderDecoderCache):
    """All beams of a line attend to the same encoder output: when beams change places, it need not be moved."""

    def reorder_cache(self, beam_idx: torch.LongTensor) -> None:
        self.self_attention_cache.reorder_cache(beam_idx)


def missing_characters(tokenizer: Any, texts: Iterable[str]) -> list[str]:
    """Characters of texts that are not a whole token: unknown to the tokenizer, or spelt in bytes."""
    whole = {piece.strip() for piece in TokenTable.from_tokenizer(tokenizer).pieces}
    characters = sorted({character for text in texts for character in text})
    return [c for c in characters if not c.isspace() and c.encode() not in whole]


def add_characters(model: PreTrainedModel, tokenizer: Any, texts: Iterable[str], policy: NewCharacters) -> list[str]:
    """Make every character of texts a whole token of the tokenizer.

    A new character starts as the mean of the tokens that spelt it so far and of its base letter (ᾳ from α), so that
    it is close to what the model already knows.

    Args:
        model, tokenizer: changed in place.
        texts: training texts.
        policy: `add`; `fail` with the list of what is missing; `ignore`: leave the tokenizer as it is.

    Returns:
        The characters that were added.
    """
    missing = characters_to_add(missing_characters(tokenizer, texts), policy, "the model's tokenizer")
    if not missing:
        return []
    donors: dict[str, list[int]] = {}
    for character in missing:
        base = unicodedata.normalize("NFD", character)[0]
        donors[character] = [
            i
            for spelling in {character, base, base.lower()}
            for i in tokenizer(spelling, add_special_tokens=False)["input_ids"]
            if i != tokenizer.unk_token_id
        ]
    tokenizer.add_tokens([AddedToken(c, normalized=False) for c in missing])
    sources = {int(tokenizer.convert_tokens_to_ids(c)): donors[c] for c in missing}
    resize_embeddings(model, len(tokenizer), sources)
    return [*missing]


def check_tokens(name: str | os.PathLike[str], model: PreTrainedModel, tokenizer: Any) -> None:
    """Refuse a tokenizer of another model; transformers takes an empty one where its file is missing."""
    classes = model.config.get_text_config(decoder=True).vocab_size
    if len(tokenizer) <= classes - min(_SPARE, classes // 2):
        raise FadaError(
            f"{name}: the network has {classes} classes, but its tokenizer {len(tokenizer)} tokens: a file is missing, "
            f"or of another model. {ANEW}"
        )


def resize_embeddings(model: PreTrainedModel, size: int, sources: dict[int, list[int]]) -> None:
    """Enlarge input and output embeddings to `size` tokens; a row with `sources` becomes their mean."""
    decoder = getattr(model, "decoder", None)
    text_model: Any = decoder if isinstance(decoder, PreTrainedModel) else model
    rows = text_model.get_input_embeddings().weight.shape[0]
    if size > rows:
        text_model.resize_token_embeddings(size, mean_resizing=True)
    with torch.no_grad():
        for layer in (text_model.get_input_embeddings(), text_model.get_output_embeddings()):
            for row, donors in sources.items():
                if donors:
                    layer.weight[row] = layer.weight[donors].mean(0)
    model.config.get_text_config(decoder=True).vocab_size = max(size, rows)
