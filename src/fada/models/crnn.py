"""C-RNN: a small convolutional network over the line, bidirectional LSTMs along it, CTC on top.

Made for CPUs: the image is halved before the first wide layer, normalisation follows the pooling, and the two
directions of an LSTM run as two plain ones over lines reversed within their own length, which gives what packed
sequences give at half of their time when reading and a quarter of it when training.
"""

import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from transformers import AutoConfig, AutoModel, AutoModelForCTC, PretrainedConfig, PreTrainedModel

from fada.data.images import pad_batch
from fada.data.line import Line
from fada.errors import FadaError
from fada.models.ctc_network import CTCNetwork, CTCOutput, ctc_loss
from fada.models.layers import BiLSTM, add_outputs, columns_of, convolutions, initialize
from fada.models.looks import LOOKS, looked_at
from fada.models.network import NewCharacters, characters_of, characters_to_add, load_weights, padded_labels
from fada.models.onnx_file import Shape
from fada.models.processor import CRNNProcessor
from fada.models.recognizer import Tagging

PRESETS: dict[str, dict[str, Any]] = {
    "tiny": {"channels": (8, 16, 24, 32), "lstm_size": 48, "lstm_layers": 1, "dropout": 0.0},
    "small": {"channels": (32, 64, 128, 160), "lstm_size": 160, "lstm_layers": 2},
    "base": {"channels": (48, 96, 192, 320), "lstm_size": 320, "lstm_layers": 3},
    "plain": {
        "height": 32,
        "channels": (16, 24, 32, 48),
        "lstm_size": 64,
        "lstm_layers": 2,
        "dropout": 0.0,
        "shortcut_weight": 0.0,
    },
}
"""What `crnn:<preset>` builds: tiny for tests, small (2 million parameters) for a CPU, base (8 million); plain, of the
usual shape with neither dropout nor the auxiliary loss, for the paper's regime."""

_TRAINED_WIDTHS = 32
"""Batches of training are padded to a multiple of so many pixels: oneDNN prepares its kernels anew for every shape that
it has not seen lately, which takes a quarter of a step of a small network. Padding changes nothing that is learnt."""


class CRNNConfig(PretrainedConfig):
    """Shape of a :class:`CRNNForCTC`.

    Args:
        vocab_size: output classes, the blank (class `pad_token_id`) included.
        height: rows of the input image; a multiple of 8.
        channels: of the stem (at half the resolution) and of the three stages after it.
        lstm_size: hidden units of each direction.
        dropout: before and between the recurrent layers and before the output.
        shortcut_weight: weight of the auxiliary CTC loss, computed from the convolutional features alone while
            training. It makes the convolutions learn letters before the recurrent layers can.
        domains, tagging: TR-TT: the domains that have a tag, and its use.
        domain_input: the tag is an input, a vector added to the columns of the line; without it, a class for each
            domain after those of the characters, which is written first.
    """

    model_type = "fada-crnn"

    def __init__(
        self,
        vocab_size: int = Shape.vocab_size,
        height: int = Shape.height,
        channels: Sequence[int] = Shape.channels,
        lstm_size: int = Shape.lstm_size,
        lstm_layers: int = Shape.lstm_layers,
        dropout: float = 0.3,
        shortcut_weight: float = 0.1,
        pad_token_id: int = 0,
        domains: Sequence[str] = (),
        tagging: str = "none",
        domain_input: bool = False,
        **kwargs: Any,
    ) -> None:
        self.vocab_size = vocab_size
        self.height = height
        self.channels = list(channels)
        self.lstm_size = lstm_size
        self.lstm_layers = lstm_layers
        self.dropout = dropout
        self.shortcut_weight = shortcut_weight
        self.domains = list(domains)
        self.tagging = tagging
        self.domain_input = domain_input
        self.pad_token_id = pad_token_id
        super().__init__(**kwargs)


class CRNNForCTC(PreTrainedModel):
    """Line recogniser: convolutions, the maximum over each column, bidirectional LSTMs, CTC."""

    config_class = CRNNConfig
    main_input_name = "pixel_values"

    def __init__(self, config: CRNNConfig) -> None:
        super().__init__(config)
        self.stem, self.stages, self.last = convolutions(config.channels)
        third = config.channels[-1]
        sizes = [third] + [2 * config.lstm_size] * (config.lstm_layers - 1)
        self.recurrent = nn.ModuleList([BiLSTM(size, config.lstm_size) for size in sizes])
        self.dropout = nn.Dropout(config.dropout)
        self.output = nn.Linear(2 * config.lstm_size, config.vocab_size)
        self.shortcut = nn.Conv1d(third, config.vocab_size, 3, padding=1) if config.shortcut_weight else None
        self.domain = nn.Embedding(len(config.domains), third) if config.domain_input else None
        nn.Module.to(self, memory_format=torch.channels_last)  # type: ignore[call-overload]
        self.post_init()

    def _init_weights(self, module: nn.Module) -> None:
        initialize(module)
        if isinstance(module, nn.Embedding):
            nn.init.zeros_(module.weight)  # a network that is told the domain starts as one that is not

    def add_classes(self, count: int) -> None:
        """Append output classes, with zero weights and a low bias: not written before they are learnt."""
        add_outputs(self.output, count)
        if self.shortcut is not None:
            add_outputs(self.shortcut, count)
        self.config.vocab_size += count

    def forward(
        self,
        pixel_values: Tensor,
        widths: Tensor | None = None,
        labels: Tensor | None = None,
        tags: Tensor | None = None,
        return_dict: bool | None = None,
    ) -> CTCOutput:
        """Recognise lines.

        Args:
            pixel_values: (batch, 1, height, width), 0 for paper and 1 for ink, 0 beyond `widths`.
            widths: (batch,) pixels of each line without padding; the full width by default.
            labels: (batch, length) classes, -100 for padding.
            tags: (batch,) index of each line's domain, where the domain is an input.
        """
        if widths is None:
            widths = torch.full((len(pixel_values),), pixel_values.shape[-1], device=pixel_values.device)
        columns, lengths = columns_of(self, pixel_values, widths)
        x = self.dropout(columns if self.domain is None else columns + self.domain(tags)[:, None])
        time = torch.arange(x.shape[1], device=x.device)
        reverse = lengths[:, None] - 1 - time
        reverse = torch.where(reverse >= 0, reverse, time)
        for layer in self.recurrent:
            x = self.dropout(layer(x, reverse))
        logits = self.output(x)
        loss = None
        if labels is not None:
            loss = ctc_loss(logits, lengths, labels, self.config.pad_token_id)
            if self.training and self.shortcut is not None:
                shortcut = self.shortcut(self.dropout(columns).transpose(1, 2)).transpose(1, 2)
                auxiliary = ctc_loss(shortcut, lengths, labels, self.config.pad_token_id)
                loss = loss + self.config.shortcut_weight * auxiliary
        return CTCOutput(loss=loss, logits=logits, lengths=lengths)


class CRNNRecognizer(CTCNetwork):
    """A C-RNN with its processor."""

    most_looks = len(LOOKS)

    def __init__(self, model: CRNNForCTC, processor: CRNNProcessor, tagging: Tagging = "none") -> None:
        self.model, self.processor, self.tagging = model, processor, tagging
        self._alphabet = processor.alphabet
        self.domains = tuple(model.config.domains)
        self.tag_classes = 0 if model.config.domain_input else len(self.domains)
        self._check_classes(model.output.out_features, model.name_or_path or "")

    @classmethod
    def build(
        cls,
        texts: Iterable[str],
        preset: str = "small",
        domains: Sequence[str] = (),
        tagging: Tagging = "none",
        **config: Any,
    ) -> "CRNNRecognizer":
        """A new network whose alphabet is that of `texts`.

        With tagging, each domain has a vector of its own (`given`) or one more class (`predicted`).
        """
        if preset not in PRESETS:
            raise FadaError(f"no C-RNN preset {preset!r}, expected one of {', '.join(PRESETS)}.")
        symbols = ["<blank>", *characters_of(texts)]
        domains = domains if tagging != "none" else ()
        given = tagging == "given"
        classes = len(symbols) + (0 if given else len(domains))
        settings = {**PRESETS[preset], **config, "vocab_size": classes, "domains": domains, "domain_input": given}
        model = CRNNForCTC(CRNNConfig(tagging=tagging, **settings))
        return cls(model, CRNNProcessor(symbols, height=model.config.height), tagging)

    @classmethod
    def load(
        cls,
        name: str | os.PathLike[str],
        texts: Iterable[str] = (),
        new_characters: NewCharacters = "ignore",
        domains: Sequence[str] = (),
        tagging: Tagging | None = None,
    ) -> "CRNNRecognizer":
        """Read a network from a folder or the hub; to fine-tune it, give `texts` and what to do about new characters.

        The classes of new characters start from zero weights. A network keeps the tagging it was built with.
        """
        model: CRNNForCTC = load_weights(CRNNForCTC, name)
        processor = CRNNProcessor.from_pretrained(name)
        if tagging not in (None, model.config.tagging):
            raise FadaError(f"{name} was trained with tagging {model.config.tagging!r}, not {tagging!r}.")
        missing = sorted({character for text in texts for character in text} - set(processor.alphabet.symbols))
        new = characters_to_add(missing, new_characters, "the model's alphabet")
        if new and model.config.domains and not model.config.domain_input:
            raise FadaError(
                f"{name} has the classes of its domains after those of its characters, and cannot learn new ones "
                f"({', '.join(map(repr, new[:10]))}). Use --new-characters ignore, or a model without tagging."
            )
        if new:
            model.add_classes(len(new))
            processor = CRNNProcessor(
                (*processor.alphabet.symbols, *new),
                processor.alphabet.blank,
                processor.height,
                processor.aspect,
                processor.level,
            )
        return cls(model, processor, model.config.tagging)

    def prepare(self, line: Line) -> np.ndarray:
        """(height, width) uint8."""
        return self.processor.image(line.load_image())

    def scores(self, line: Line) -> np.ndarray:
        """Log-probabilities (time, classes) of a line, the classes of tags among them."""
        return looked_at(self.prepare(line), self.looks, lambda image: self.scores_of(image, line))

    def encode(self, text: str, domain: str | None = None) -> list[int]:
        """Classes of the characters, the domain's tag before them (as a class after the last of the characters)."""
        classes = self.processor.encode(text)
        return classes if self.tagging == "none" else [len(self.symbols) + self.place_of(domain), *classes]

    def told(self, inputs: dict[str, Tensor], lines: Sequence[Line]) -> dict[str, Tensor]:
        """Network input with the domain of each line, where that is an input."""
        if not self.model.config.domain_input:
            return inputs
        places = [self.place_of(line.domain) for line in lines]
        return {**inputs, "tags": torch.tensor(places, device=self.model.device)}

    def collate(self, arrays: Sequence[np.ndarray], labels: Sequence[list[int]] | None = None) -> dict[str, Tensor]:
        """Pixels, widths and labels."""
        pixels, widths = pad_batch(arrays, multiple_of=4 if labels is None else _TRAINED_WIDTHS)
        inputs = {"pixel_values": torch.from_numpy(pixels), "widths": torch.from_numpy(widths)}
        if labels is None:
            return inputs
        if self.model.config.domain_input:
            inputs["tags"] = torch.tensor([label[0] - len(self.symbols) for label in labels])
            labels = [label[1:] for label in labels]
        return {**inputs, "labels": padded_labels(labels)}

    def write(self, folder: Path) -> None:
        self.model.save_pretrained(folder)
        self.processor.save_pretrained(folder)


AutoConfig.register(CRNNConfig.model_type, CRNNConfig, exist_ok=True)
AutoModel.register(CRNNConfig, CRNNForCTC, exist_ok=True)
AutoModelForCTC.register(CRNNConfig, CRNNForCTC, exist_ok=True)
