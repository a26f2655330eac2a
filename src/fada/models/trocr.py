"""TrOCR: any `VisionEncoderDecoderModel`, and two small ones to build from scratch, over characters and subwords."""

import math
import os
from collections.abc import Iterable, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch import Tensor
from transformers import (
    AutoImageProcessor,
    AutoTokenizer,
    GenerationConfig,
    PretrainedConfig,
    PreTrainedTokenizerBase,
    PreTrainedTokenizerFast,
    TrOCRConfig,
    VisionEncoderDecoderConfig,
    VisionEncoderDecoderModel,
    ViTConfig,
)

try:  # the one that needs no torchvision
    from transformers import ViTImageProcessorPil as ViTImageProcessor
except ImportError:
    from transformers import ViTImageProcessor  # type: ignore[assignment]

from fada.data.line import Line
from fada.models.ctc_network import ctc_loss
from fada.models.layers import ColumnEncoder, ColumnEncoderConfig
from fada.models.line_image import straighten
from fada.models.network import NewCharacters, characters_of, load_weights, padded_labels
from fada.models.recognizer import Tagging
from fada.models.seq2seq import Seq2SeqRecognizer, add_characters, check_tokens

TINY: dict[str, Any] = {
    "height": 40,
    "width": 640,
    "channels": (16, 32, 64, 96),
    "size": 128,
    "layers": (2, 2),  # encoder, decoder
    "heads": 4,
}
"""Shape of `trocr-tiny`: a million parameters, lines as level strips of 160 columns."""
SUBWORD: dict[str, Any] = {
    "height": 40,
    "width": 640,
    "patch": 8,  # pixels along the line; a patch is as high as the strip
    "size": 128,
    "layers": (3, 2),
    "heads": 4,
    "vocabulary": 500,
}
"""Shape of `trocr-subword`: a million parameters, a strip as 80 patches."""
_STRIP_ASPECT = 0.6
_COLUMNS_PER_CHARACTER = 2.5  # of a strip, on average: where the decoder looks first
_SHARPNESS = 2.0  # of that look: about six columns at first
_COLUMN_WAVES = 1.0  # size of the positions of columns: about what the convolutions bring


class TrOCRRecognizer(Seq2SeqRecognizer):
    """A vision encoder-decoder with its image processor and tokenizer."""

    def __init__(
        self,
        model: VisionEncoderDecoderModel,
        image_processor: Any,
        tokenizer: PreTrainedTokenizerBase,
        tagging: Tagging = "none",
        domains: Sequence[str] = (),
        strips: bool = False,
    ) -> None:
        self.model, self.image_processor, self.tokenizer = model, image_processor, tokenizer
        self.strips = strips
        self.tagging, self.domains = tagging, tuple(domains)
        self.prompt = (_first(model.config.decoder_start_token_id, tokenizer.bos_token_id, tokenizer.cls_token_id),)
        model.generation_config.decoder_start_token_id = self.prompt[0]
        model.generation_config.eos_token_id = _first(model.generation_config.eos_token_id, tokenizer.eos_token_id)
        model.generation_config.pad_token_id = _first(model.generation_config.pad_token_id, tokenizer.pad_token_id)

    @classmethod
    def load(
        cls,
        name: str | os.PathLike[str],
        texts: Iterable[str] = (),
        new_characters: NewCharacters = "ignore",
        domains: Sequence[str] = (),
        tagging: Tagging | None = None,
    ) -> "TrOCRRecognizer":
        """Read a model from a folder or the hub, and make it ready for the characters and domains of training texts."""
        model = load_weights(VisionEncoderDecoderModel, name, new=("pooler",))  # of no use here, and often left out
        saved = getattr(model.config, "fada", {})
        recognizer = cls(
            model,
            AutoImageProcessor.from_pretrained(name, trust_remote_code=False),
            AutoTokenizer.from_pretrained(name, trust_remote_code=False),
            saved.get("tagging", "none"),
            saved.get("domains", ()),
            saved.get("strips", False),
        )
        check_tokens(name, model, recognizer.tokenizer)
        add_characters(model, recognizer.tokenizer, texts, new_characters)
        if tagging is not None:
            recognizer.add_tags(domains, tagging)
        recognizer._fit_auxiliary_loss()
        return recognizer

    @classmethod
    def build_tiny(
        cls, texts: Iterable[str], domains: Sequence[str] = (), tagging: Tagging = "none", **shape: Any
    ) -> "TrOCRRecognizer":
        """A new small model whose tokens are the characters of `texts`; `shape` changes :data:`TINY`.

        A transformer that starts from nothing needs long to find out that text runs along the line, and what a letter
        looks like. Four things tell it: lines are level strips with the proportions they have, padded at the end; the
        encoder gives a sequence of columns, found by convolutions; an auxiliary CTC loss makes them hold letters
        (:mod:`fada.models.layers`); and cross-attention starts along the diagonal (:func:`look_along_the_line`).
        """
        shape = {**TINY, **shape}
        tokenizer = character_tokenizer(characters_of(texts))
        encoder = ColumnEncoderConfig(
            image_size=(shape["height"], shape["width"]),
            channels=shape["channels"],
            hidden_size=shape["size"],
            num_hidden_layers=shape["layers"][0],
            num_attention_heads=shape["heads"],
            letters=len(tokenizer),
        )
        recognizer = cls._build(encoder, tokenizer, shape)
        look_along_the_line(recognizer.model, recognizer.model.encoder.positions[0], _COLUMNS_PER_CHARACTER)
        recognizer.add_tags(domains, tagging)
        recognizer._fit_auxiliary_loss()
        return recognizer

    @classmethod
    def build_subword(
        cls, texts: Iterable[str], domains: Sequence[str] = (), tagging: Tagging = "none", **shape: Any
    ) -> "TrOCRRecognizer":
        """A new small model of TrOCR's kind: a vision transformer over patches, subwords, cross-entropy alone.

        `shape` changes :data:`SUBWORD`. The subwords are learnt from `texts`. As in `build_tiny` lines are level
        strips, and cross-attention starts along the diagonal; nothing else helps it.
        """
        shape, texts = {**SUBWORD, **shape}, list(texts)
        tokenizer = subword_tokenizer(texts, shape["vocabulary"])
        encoder = ViTConfig(
            image_size=(shape["height"], shape["width"]),
            patch_size=(shape["height"], shape["patch"]),
            hidden_size=shape["size"],
            intermediate_size=2 * shape["size"],
            num_hidden_layers=shape["layers"][0],
            num_attention_heads=shape["heads"],
        )
        recognizer = cls._build(encoder, tokenizer, shape)
        lengths = [max(len(tokenizer(text)["input_ids"]), 1) for text in texts]
        per_token = sum(map(len, texts)) / max(sum(lengths), 1)
        stride = _COLUMNS_PER_CHARACTER * 4 / shape["patch"] * per_token  # a column of `trocr-tiny` has four pixels
        patches = recognizer.model.encoder.embeddings.position_embeddings[0, 1:]  # the first is that of the class token
        look_along_the_line(recognizer.model, patches, stride)
        recognizer.add_tags(domains, tagging)
        return recognizer

    @classmethod
    def _build(
        cls, encoder: PretrainedConfig, tokenizer: PreTrainedTokenizerBase, shape: dict[str, Any]
    ) -> "TrOCRRecognizer":
        """New weights: this encoder, and a decoder over the tokens."""
        ends = {"decoder_start_token_id": tokenizer.bos_token_id}
        ends |= {"eos_token_id": tokenizer.eos_token_id, "pad_token_id": tokenizer.pad_token_id}
        decoder = TrOCRConfig(
            vocab_size=len(tokenizer),
            d_model=shape["size"],
            cross_attention_hidden_size=shape["size"],
            decoder_layers=shape["layers"][1],
            decoder_attention_heads=shape["heads"],
            decoder_ffn_dim=2 * shape["size"],
            max_position_embeddings=256,
            dropout=0.1,
            bos_token_id=tokenizer.bos_token_id,
            **ends,
        )
        config = VisionEncoderDecoderConfig.from_encoder_decoder_configs(encoder, decoder, **ends)
        model = VisionEncoderDecoderModel(config)
        model.generation_config = GenerationConfig(**ends)
        size = {"height": shape["height"], "width": shape["width"]}
        processor = ViTImageProcessor(size=size, image_mean=[1.0] * 3, image_std=[-1.0] * 3)  # paper is 0, ink is 1
        return cls(model, processor, tokenizer, strips=True)

    def _fit_auxiliary_loss(self) -> None:
        """Let it know tokens that were added to the decoder's."""
        encoder = self.model.encoder
        if isinstance(encoder, ColumnEncoder):
            encoder.add_letters(len(self.tokenizer) - encoder.config.letters)

    def task_loss(self, model: torch.nn.Module, inputs: dict[str, Tensor]) -> tuple[Tensor, Any]:
        """Cross-entropy; of `trocr-tiny`, with the auxiliary CTC loss of its encoder."""
        loss, outputs = super().task_loss(model, inputs)
        encoder = self.model.encoder
        if not isinstance(encoder, ColumnEncoder) or not encoder.training or self.encoder_is_frozen:
            return loss, outputs
        characters = [[i for i in row if i >= 0 and i not in self._not_written] for row in inputs["labels"].tolist()]
        scores = encoder.letters(outputs.encoder_last_hidden_state)
        lengths = torch.full((len(scores),), scores.shape[1], device=scores.device)
        labels = padded_labels(characters).to(scores.device)
        auxiliary = ctc_loss(scores, lengths, labels, self.tokenizer.pad_token_id)
        return loss + encoder.config.letters_weight * auxiliary, outputs

    @cached_property
    def _not_written(self) -> frozenset[int]:
        return frozenset(i for i, token in self.tokenizer.added_tokens_decoder.items() if token.special)

    def prepare(self, line: Line) -> np.ndarray:
        """(height, width) uint8: the grey line, or a level strip; the model's own preprocessing follows."""
        grey = np.asarray(line.load_image())
        return straighten(grey, self.image_processor.size["height"], _STRIP_ASPECT) if self.strips else grey

    def collate(self, arrays: Sequence[np.ndarray], labels: Sequence[list[int]] | None = None) -> dict[str, Tensor]:
        """Pixels as the model's image processor makes them, and the decoder's side."""
        if self.strips:
            arrays = [_padded(array, self.image_processor.size["width"]) for array in arrays]
        images = [np.repeat(array[..., None], 3, axis=2) for array in arrays]
        pixels = self.image_processor(images, return_tensors="np", input_data_format="channels_last")["pixel_values"]
        inputs = {"pixel_values": torch.from_numpy(np.asarray(pixels))}
        return inputs if labels is None else {**inputs, **self.decoder_batch(labels)}

    def write(self, folder: Path) -> None:
        self.model.config.fada = {"tagging": self.tagging, "domains": list(self.domains), "strips": self.strips}
        self.model.save_pretrained(folder)
        self.image_processor.save_pretrained(folder)
        self.tokenizer.save_pretrained(folder)


def look_along_the_line(model: Any, columns: Tensor, stride: float) -> None:
    """Start cross-attention along the diagonal: the nth token is sought where nth tokens are on average.

    Positions of columns and of tokens become waves over the same lengths, and every cross-attention begins by
    comparing them. All of it goes on learning. `model` has a TrOCR decoder as large as its encoder.

    Args:
        columns: (columns, size), the encoder's positions; changed in place.
        stride: columns that a token takes.
    """
    decoder = model.decoder.model.decoder
    characters = decoder.embed_positions.weight  # (2 + tokens, size); the first two are never used
    heads, size = decoder.layers[0].encoder_attn.num_heads, columns.shape[-1]
    with torch.no_grad():
        columns[:] = _COLUMN_WAVES * _waves(torch.arange(len(columns)), size, heads)
        # The first token is written at the second position: the start token comes before it.
        where = (torch.arange(len(characters) - 2) + 0.5) * stride
        characters[2:] = model.config.decoder.init_std * _waves(where, size, heads)  # as large as the tokens
        for layer in decoder.layers:
            for projection in (layer.encoder_attn.q_proj, layer.encoder_attn.k_proj):
                projection.weight += _SHARPNESS * torch.eye(size)


def _waves(positions: Tensor, size: int, heads: int) -> Tensor:
    """(positions, size), mean square 1: sine and cosine over lengths from 6 to 600, all of them in every head."""
    lengths = torch.logspace(math.log10(6), math.log10(600), size // heads // 2)
    angles = 2 * math.pi * positions[:, None] / lengths
    return math.sqrt(2) * torch.cat([angles.sin(), angles.cos()], -1).repeat(1, heads)


def _padded(strip: np.ndarray, width: int) -> np.ndarray:
    """The strip with white at its end, or squeezed if it is too long."""
    if strip.shape[1] > width:
        return np.asarray(Image.fromarray(strip).resize((width, strip.shape[0]), Image.Resampling.BILINEAR))
    return np.pad(strip, ((0, 0), (0, width - strip.shape[1])), constant_values=255)


def character_tokenizer(characters: Sequence[str]) -> PreTrainedTokenizerFast:
    """A tokenizer whose tokens are single characters, spaces included."""
    from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers

    special = ["<pad>", "<s>", "</s>", "<unk>"]
    vocabulary = {token: i for i, token in enumerate([*special, *characters])}
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.Split(Regex(r"[\s\S]"), "isolated")
    tokenizer.decoder = decoders.Fuse()
    return _with_special(tokenizer)


def subword_tokenizer(texts: Sequence[str], vocabulary: int) -> PreTrainedTokenizerFast:
    """Byte-pair encoding of characters, learnt from `texts`; a word begins with the space before it."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

    tokenizer = Tokenizer(models.BPE(unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="never")
    tokenizer.decoder = decoders.Metaspace(prepend_scheme="never")
    special = ["<pad>", "<s>", "</s>", "<unk>"]
    trainer = trainers.BpeTrainer(vocab_size=vocabulary, special_tokens=special, show_progress=False)
    tokenizer.train_from_iterator(texts, trainer)
    return _with_special(tokenizer)


def _with_special(tokenizer: Any) -> PreTrainedTokenizerFast:
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, pad_token="<pad>", bos_token="<s>", eos_token="</s>", unk_token="<unk>"
    )


def _first(*values: Any) -> int:
    found = next(value for value in values if value is not None)
    return int(found[0] if isinstance(found, list) else found)
