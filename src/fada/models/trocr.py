"""TrOCR: any `VisionEncoderDecoderModel`, and a tiny one to build from scratch with a tokenizer of characters."""

import os
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor
from transformers import (
    AutoImageProcessor,
    AutoTokenizer,
    GenerationConfig,
    PreTrainedTokenizerBase,
    PreTrainedTokenizerFast,
    TrOCRConfig,
    VisionEncoderDecoderConfig,
    VisionEncoderDecoderModel,
    ViTConfig,
    ViTImageProcessor,
)

from fada.data.lines import Line
from fada.models.recognizer import Tagging, characters_of
from fada.models.seq2seq import NewCharacters, Seq2SeqRecognizer, add_characters

TINY: dict[str, Any] = {"height": 32, "width": 512, "patch": (16, 8), "size": 128, "layers": 2, "heads": 4}


class TrOCRRecognizer(Seq2SeqRecognizer):
    """A vision encoder-decoder with its image processor and tokenizer."""

    def __init__(
        self,
        model: VisionEncoderDecoderModel,
        image_processor: Any,
        tokenizer: PreTrainedTokenizerBase,
        tagging: Tagging = "none",
        domains: Sequence[str] = (),
    ) -> None:
        self.model, self.image_processor, self.tokenizer = model, image_processor, tokenizer
        self.tagging, self.domains = tagging, tuple(domains)
        self.prompt = (_first(model.config.decoder_start_token_id, tokenizer.bos_token_id, tokenizer.cls_token_id),)
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
        model = VisionEncoderDecoderModel.from_pretrained(name, dtype=torch.float32)
        saved = getattr(model.config, "fada", {})
        recognizer = cls(
            model,
            AutoImageProcessor.from_pretrained(name),
            AutoTokenizer.from_pretrained(name),
            saved.get("tagging", "none"),
            saved.get("domains", ()),
        )
        add_characters(model, recognizer.tokenizer, texts, new_characters)
        if tagging is not None:
            recognizer.add_tags(domains, tagging)
        return recognizer

    @classmethod
    def build_tiny(
        cls, texts: Iterable[str], domains: Sequence[str] = (), tagging: Tagging = "none", **shape: Any
    ) -> "TrOCRRecognizer":
        """A new small model (under a million parameters) whose tokens are the characters of `texts`."""
        shape = {**TINY, **shape}
        tokenizer = character_tokenizer(characters_of(texts))
        encoder = ViTConfig(
            hidden_size=shape["size"],
            num_hidden_layers=shape["layers"],
            num_attention_heads=shape["heads"],
            intermediate_size=2 * shape["size"],
            image_size=(shape["height"], shape["width"]),
            patch_size=shape["patch"],
            num_channels=3,
        )
        decoder = TrOCRConfig(
            vocab_size=len(tokenizer),
            d_model=shape["size"],
            cross_attention_hidden_size=shape["size"],
            decoder_layers=shape["layers"],
            decoder_attention_heads=shape["heads"],
            decoder_ffn_dim=2 * shape["size"],
            max_position_embeddings=256,
            dropout=0.1,
            bos_token_id=tokenizer.bos_token_id,
            eos_token_id=tokenizer.eos_token_id,
            pad_token_id=tokenizer.pad_token_id,
            decoder_start_token_id=tokenizer.bos_token_id,
        )
        config = VisionEncoderDecoderConfig.from_encoder_decoder_configs(encoder, decoder)
        config.decoder_start_token_id = tokenizer.bos_token_id
        config.pad_token_id = tokenizer.pad_token_id
        config.eos_token_id = tokenizer.eos_token_id
        model = VisionEncoderDecoderModel(config)
        model.generation_config = GenerationConfig(
            decoder_start_token_id=tokenizer.bos_token_id,
            eos_token_id=tokenizer.eos_token_id,
            pad_token_id=tokenizer.pad_token_id,
        )
        size = {"height": shape["height"], "width": shape["width"]}
        recognizer = cls(model, ViTImageProcessor(size=size), tokenizer)
        recognizer.add_tags(domains, tagging)
        return recognizer

    def prepare(self, line: Line) -> np.ndarray:
        """(height, width) uint8: the grey line; the model's own preprocessing follows, after augmentation."""
        return np.asarray(line.load_image())

    def collate(self, arrays: Sequence[np.ndarray], labels: Sequence[list[int]] | None = None) -> dict[str, Tensor]:
        """Pixels as the model's image processor makes them, and the decoder's side."""
        images = [np.repeat(array[..., None], 3, axis=2) for array in arrays]
        pixels = self.image_processor(images, return_tensors="np", input_data_format="channels_last")["pixel_values"]
        inputs = {"pixel_values": torch.from_numpy(np.asarray(pixels))}
        return inputs if labels is None else {**inputs, **self.decoder_batch(labels)}

    def save_pretrained(self, folder: str | os.PathLike[str]) -> None:
        """Write model, image processor and tokenizer."""
        self.model.config.fada = {"tagging": self.tagging, "domains": list(self.domains)}
        self.model.save_pretrained(folder)
        self.image_processor.save_pretrained(folder)
        self.tokenizer.save_pretrained(folder)


def character_tokenizer(characters: Sequence[str]) -> PreTrainedTokenizerFast:
    """A tokenizer whose tokens are single characters, spaces included."""
    from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers

    special = ["<pad>", "<s>", "</s>", "<unk>"]
    vocabulary = {token: i for i, token in enumerate([*special, *characters])}
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.Split(Regex(r"[\s\S]"), "isolated")
    tokenizer.decoder = decoders.Fuse()
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, pad_token="<pad>", bos_token="<s>", eos_token="</s>", unk_token="<unk>"
    )


def _first(*values: Any) -> int:
    found = next(value for value in values if value is not None)
    return int(found[0] if isinstance(found, list) else found)
