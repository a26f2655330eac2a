"""Whisper, with a window as long as the utterances instead of 30 seconds, so that a CPU can fine-tune it."""

import math
import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from transformers import AutoTokenizer, WhisperFeatureExtractor, WhisperForConditionalGeneration
from transformers.models.whisper.tokenization_whisper import TO_LANGUAGE_CODE

from fada.data.line import Line
from fada.errors import FadaError
from fada.models.network import NewCharacters, load_weights
from fada.models.recognizer import Tagging
from fada.models.seq2seq import Seq2SeqRecognizer, UnfitLine, add_characters, check_tokens

_FRAMES_PER_SECOND = 50  # encoder positions; two mel frames of 10 ms each


class WhisperRecognizer(Seq2SeqRecognizer):
    """A Whisper model with its feature extractor and tokenizer."""

    modality = "audio"

    def __init__(
        self,
        model: WhisperForConditionalGeneration,
        features: WhisperFeatureExtractor,
        tokenizer: Any,
        tagging: Tagging = "none",
        domains: Sequence[str] = (),
    ) -> None:
        self.model, self.features, self.tokenizer = model, features, tokenizer
        self.tagging, self.domains = tagging, tuple(domains)
        self.prompt = tuple(tokenizer.prefix_tokens)
        # The prompt is passed as it is: no language or task detection on top of it.
        for name in ("forced_decoder_ids", "lang_to_id", "task_to_id"):
            setattr(model.generation_config, name, None)
        model.config.forced_decoder_ids = None

    @classmethod
    def load(
        cls,
        name: str | os.PathLike[str],
        texts: Iterable[str] = (),
        new_characters: NewCharacters = "ignore",
        domains: Sequence[str] = (),
        tagging: Tagging | None = None,
        max_seconds: float | None = None,
        language: str | None = None,
    ) -> "WhisperRecognizer":
        """Read a model from a folder or the hub.

        `max_seconds` shortens its window; `language` is that of a multilingual model, by default the one that it was
        trained with here, or English.
        """
        model = load_weights(WhisperForConditionalGeneration, name)
        features = WhisperFeatureExtractor.from_pretrained(name)
        tokenizer = AutoTokenizer.from_pretrained(name, trust_remote_code=False)
        check_tokens(name, model, tokenizer)
        saved = getattr(model.config, "fada", {})
        if getattr(model.generation_config, "is_multilingual", False):
            spoken = language or saved.get("language") or "english"
            if spoken.lower() not in {*TO_LANGUAGE_CODE, *TO_LANGUAGE_CODE.values()}:
                raise FadaError(f"Whisper knows no language {spoken!r}. Languages: {', '.join(TO_LANGUAGE_CODE)}.")
            tokenizer.set_prefix_tokens(language=spoken, task="transcribe")
        elif language is not None:
            raise FadaError(f"{name} knows one language only: leave `language` ({language!r}) out.")
        recognizer = cls(model, features, tokenizer, saved.get("tagging", "none"), saved.get("domains", ()))
        recognizer.set_window(min(max_seconds or recognizer.window, recognizer.window))
        add_characters(model, tokenizer, texts, new_characters)
        if tagging is not None:
            recognizer.add_tags(domains, tagging)
        return recognizer

    @property
    def window(self) -> float:
        """Seconds of sound that the encoder sees."""
        return self.model.config.max_source_positions / _FRAMES_PER_SECOND

    def set_window(self, seconds: float) -> None:
        """Cut the encoder's positions to a window of whole seconds.

        The positions are those of the start of the recording, so what is heard within the window is unchanged; cost
        falls at least in proportion.
        """
        seconds = math.ceil(seconds)
        positions = seconds * _FRAMES_PER_SECOND
        encoder = self.model.model.encoder
        kept = encoder.embed_positions.weight.detach()[:positions].clone()
        table = nn.Embedding(positions, kept.shape[1], _weight=kept)
        encoder.embed_positions = table.requires_grad_(False)  # sinusoids, fixed in Whisper
        encoder.max_source_positions = self.model.config.max_source_positions = positions
        self.features = WhisperFeatureExtractor(**{**_shape(self.features), "chunk_length": seconds})

    def prepare(self, line: Line) -> np.ndarray:
        """(mel bands, frames) float32, padded to the window."""
        samples, rate = line.load_audio()
        if len(samples) > self.window * rate:
            raise UnfitLine(
                f"{line.source or line.id}: {len(samples) / rate:.1f} s of sound, more than the window of "
                f"{self.window:g} s. Use --max-seconds {math.ceil(len(samples) / rate)}, or cut the recording."
            )
        return self.features(samples, sampling_rate=rate, return_tensors="np")["input_features"][0]

    def collate(self, arrays: Sequence[np.ndarray], labels: Sequence[list[int]] | None = None) -> dict[str, Tensor]:
        """Log-mel features and the decoder's side."""
        inputs = {"input_features": torch.from_numpy(np.stack(arrays))}
        return inputs if labels is None else {**inputs, **self.decoder_batch(labels)}

    def encode(self, text: str, domain: str | None = None) -> list[int]:
        """Prompt, tag, text, end; like Whisper's own, the text begins with a space."""
        return super().encode(f" {text.strip()}", domain)

    def write(self, folder: Path) -> None:
        language = self.tokenizer.language
        self.model.config.fada = {"tagging": self.tagging, "domains": list(self.domains), "language": language}
        self.model.save_pretrained(folder)
        self.features.save_pretrained(folder)
        self.tokenizer.save_pretrained(folder)


def _shape(features: WhisperFeatureExtractor) -> dict[str, Any]:
    names = ("feature_size", "sampling_rate", "hop_length", "n_fft", "padding_value")
    return {name: getattr(features, name) for name in names}
