"""What TrOCR and Whisper share: labels, the domain tag in the decoder's prompt, new characters, generation."""

import unicodedata
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor
from transformers import AddedToken, PreTrainedModel
from transformers.generation import GenerationMixin, LogitsProcessorList

from fada.alignment import AlignmentLoss
from fada.data.lines import Line
from fada.errors import FadaError
from fada.models.recognizer import IGNORED, Recognizer, Tagging, domain_tag, padded_labels
from fada.targets import CharDistribution, TargetSet
from fada.tokens import TokenTable

NewCharacters = Literal["fail", "add", "ignore"]


@dataclass(frozen=True)
class Reading:
    """One text with the parts of its score; `distance` is None where nothing guided it."""

    text: str
    score: float
    log_prob: float
    distance: float | None


class Seq2SeqRecognizer(Recognizer):
    """A recogniser with an encoder and a decoder over subwords.

    The decoder is given `prompt` (start token and the like) and, with tagging, the domain's tag; then the text.

    Attributes:
        tokenizer: of the decoder.
        prompt: token ids that precede every text.
    """

    kind = "seq2seq"
    model: Any
    tokenizer: Any
    prompt: tuple[int, ...]

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

    def alignment_loss(self, targets: TargetSet, **options: Any) -> AlignmentLoss:
        """Summed token probabilities."""
        return AlignmentLoss.for_tokens(targets, self.tokenizer, self._output_size, **options)

    def alignment_inputs(self, outputs: Any, inputs: dict[str, Tensor]) -> tuple[Tensor, Tensor]:
        """Logits and labels."""
        return outputs.logits, inputs["labels"]

    def read(self, inputs: dict[str, Tensor], lines: Sequence[Line]) -> list[str]:
        """Greedy."""
        return [reading.text for reading in self._generate(inputs, lines)]

    def transcribe(
        self, lines: Iterable[Line], *, batch_size: int = 8, targets: TargetSet | None = None, **options: Any
    ) -> list[str]:
        """The texts of lines; with `targets`, guided towards the distribution of each line's domain (Eq. 2).

        `options` are those of :meth:`generate`: `num_beams`, `lam`, `distance`, `scale`, `max_new_tokens`.
        """
        texts = []
        for batch, inputs in self.batches(lines, batch_size):
            wanted = None if targets is None else [targets[str(line.domain)] for line in batch]
            texts += [reading.text for reading in self._generate(inputs, batch, targets=wanted, **options)]
        return texts

    def generate(self, lines: Sequence[Line], **options: Any) -> list[Reading]:
        """Read a batch of lines.

        Args:
            lines: at once; with `tagging="given"` their domain is used.
            options: `targets` (one distribution for each line, to guide towards), `lam`, `distance`, `scale`,
                `num_beams`, `max_new_tokens`.
        """
        inputs = self.to_device(self.collate([self.prepare(line) for line in lines]))
        return self._generate(inputs, lines, **options)

    def _generate(
        self,
        inputs: dict[str, Tensor],
        lines: Sequence[Line],
        *,
        targets: Sequence[CharDistribution] | None = None,
        lam: float = 0.5,
        distance: str = "sorted_w2",
        scale: float = 1.0,
        num_beams: int = 1,
        max_new_tokens: int = 200,
    ) -> list[Reading]:
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
                self.tokenizer, targets, lam=lam, distance=distance, scale=scale, prompt_length=given
            )
        with torch.inference_mode():
            # Not the model's own method: Whisper's splits long recordings, which lines are not.
            generate: Any = GenerationMixin.generate
            found = generate(
                self.model,
                **inputs,
                decoder_input_ids=prompts,
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
        sums = found.sequences_scores.tolist() if num_beams > 1 else self._log_probs(found.logits, written)
        readings = []
        for text, total, distance_found in zip(texts, sums, far, strict=True):
            penalty = 0.0 if distance_found is None else (1 - lam) * scale * distance_found
            weight = 1.0 if guide is None else lam
            log_prob = (total + penalty) / weight if num_beams > 1 else total
            readings.append(Reading(text, weight * log_prob - penalty, log_prob, distance_found))
        return readings

    def _log_probs(self, logits: Sequence[Tensor], written: Tensor) -> list[float]:
        """Sum of the log-probabilities of greedily written tokens up to the end token."""
        steps = torch.stack([step.float().log_softmax(-1) for step in logits], 1)  # (batch, time, vocabulary)
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
        if domain not in self.domains:
            raise FadaError(
                f"the domain is {domain!r}, expected one of {', '.join(self.domains)}: "
                "this model was trained with domain tokens and needs the domain of every line."
            )
        return [int(self.tokenizer.convert_tokens_to_ids(domain_tag(domain)))]

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
    missing = missing_characters(tokenizer, texts)
    if not missing or policy == "ignore":
        return []
    if policy == "fail":
        names = ", ".join(f"{c!r} (U+{ord(c):04X})" for c in missing[:10])
        raise FadaError(
            f"{len(missing)} characters of the training text are missing from the model's tokenizer: {names}"
            f"{', …' if len(missing) > 10 else ''}. Use --new-characters add (or ignore)."
        )
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
    return missing


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
