"""C-RNN: a small convolutional network over the line, bidirectional LSTMs along it, CTC on top.

Made for CPUs: the image is halved before the first wide layer, normalisation follows the pooling, and the two
directions of an LSTM run as two plain ones over lines reversed within their own length, which gives what packed
sequences give at a fifth of their time.
"""

import json
import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from transformers import PretrainedConfig, PreTrainedModel
from transformers.utils import ModelOutput, cached_file

from fada.common.files import write_json
from fada.common.processes import summed
from fada.data.line import Line
from fada.errors import FadaError
from fada.models.line_image import straighten
from fada.models.recognizer import (
    CTCRecognizer,
    NewCharacters,
    Tagging,
    characters_of,
    characters_to_add,
    padded_labels,
)

PRESETS: dict[str, dict[str, Any]] = {
    "tiny": {"channels": (8, 16, 24, 32), "lstm_size": 48, "lstm_layers": 1, "dropout": 0.0},
    "small": {"channels": (32, 64, 128, 160), "lstm_size": 160, "lstm_layers": 2},
    "base": {"channels": (48, 96, 192, 320), "lstm_size": 320, "lstm_layers": 3},
}
"""What `crnn:<preset>` builds: tiny for tests, small (2 million parameters) for a CPU, base (8 million)."""


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
        domains, tagging: TR-TT: the domains that have a class, after those of the characters, and its use.
    """

    model_type = "fada-crnn"

    def __init__(
        self,
        vocab_size: int = 2,
        height: int = 40,
        channels: Sequence[int] = (32, 64, 128, 192),
        lstm_size: int = 192,
        lstm_layers: int = 2,
        dropout: float = 0.3,
        shortcut_weight: float = 0.1,
        pad_token_id: int = 0,
        domains: Sequence[str] = (),
        tagging: str = "none",
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
        self.pad_token_id = pad_token_id
        super().__init__(**kwargs)


@dataclass
class CTCOutput(ModelOutput):
    """What a CTC model gives.

    Attributes:
        loss: CTC loss per character, averaged over the lines (with labels only).
        logits: (batch, time, classes).
        lengths: (batch,) valid frames of each line.
    """

    loss: Tensor | None = None
    logits: Tensor | None = None
    lengths: Tensor | None = None


def ctc_loss(logits: Tensor, lengths: Tensor, labels: Tensor, blank: int) -> Tensor:
    """CTC loss divided by the length of each label, averaged over the lines; labels: (batch, length), -100 ignored.

    A line with more characters than frames counts zero. Where the device lacks the operation (Apple's MPS) it is
    computed on the CPU.
    """
    log_probs = logits.float().log_softmax(-1).transpose(0, 1)  # (time, batch, classes)
    if log_probs.device.type == "mps":
        log_probs, lengths, labels = log_probs.cpu(), lengths.cpu(), labels.cpu()
    counts = (labels >= 0).sum(-1)
    loss = F.ctc_loss(log_probs, labels.clamp(min=0), lengths, counts, blank=blank, zero_infinity=True)
    return loss.to(logits.device)


def mask_of(lengths: Tensor, size: int) -> Tensor:
    """(batch, size) float, 1 for positions inside each length."""
    return (torch.arange(size, device=lengths.device) < lengths[:, None]).float()


class MaskedBatchNorm(nn.Module):
    """Batch normalisation whose statistics leave padding out, over all processes of a distributed run.

    So neither the width of the padding nor the number of processes that share a batch changes what is learnt.
    """

    running_mean: Tensor
    running_var: Tensor

    def __init__(self, channels: int, momentum: float = 0.1, eps: float = 1e-5) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(channels))
        self.bias = nn.Parameter(torch.zeros(channels))
        self.register_buffer("running_mean", torch.zeros(channels))
        self.register_buffer("running_var", torch.ones(channels))
        self.momentum, self.eps = momentum, eps

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        """Normalise x (batch, channels, height, width), which must be zero where mask (batch, 1, 1, width) is."""
        mean, variance = self._batch_statistics(x, mask) if self.training else (self.running_mean, self.running_var)
        scale = self.weight * torch.rsqrt(variance + self.eps)
        shift = self.bias - mean * scale
        return torch.addcmul(shift.view(1, -1, 1, 1), x, scale.view(1, -1, 1, 1))

    def _batch_statistics(self, x: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
        rows = x.float().permute(0, 2, 3, 1).reshape(-1, x.shape[1])
        positions = mask.sum()[None] * x.shape[2]
        sums = summed(torch.cat([rows.sum(0), (rows * rows).sum(0), positions]))
        total, squares, count = sums.split([x.shape[1], x.shape[1], 1])
        mean = total / count
        variance = (squares / count - mean * mean).clamp(min=0)
        with torch.no_grad():
            unbiased = variance * count / (count - 1).clamp(min=1)
            self.running_mean.lerp_(mean.to(self.running_mean.dtype), self.momentum)
            self.running_var.lerp_(unbiased.to(self.running_var.dtype), self.momentum)
        return mean, variance


class ConvNorm(nn.Module):
    """Convolution, pooling, normalisation, ReLU; the padding stays zero."""

    def __init__(
        self, inputs: int, outputs: int, kernel: int = 3, stride: int = 1, pool: tuple[int, int] | None = None
    ) -> None:
        super().__init__()
        self.conv = nn.Conv2d(inputs, outputs, kernel, stride, kernel // 2, bias=False)
        self.pool = nn.MaxPool2d(pool) if pool else nn.Identity()
        self.norm = MaskedBatchNorm(outputs)

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        """x: (batch, inputs, height, width); mask: (batch, 1, 1, width of the output)."""
        return F.relu(self.norm(self.pool(self.conv(x)) * mask, mask)) * mask


class BiLSTM(nn.Module):
    """A bidirectional LSTM layer that padding cannot reach."""

    def __init__(self, inputs: int, hidden: int) -> None:
        super().__init__()
        self.ahead = nn.LSTM(inputs, hidden, batch_first=True)
        self.back = nn.LSTM(inputs, hidden, batch_first=True)

    def forward(self, x: Tensor, reverse: Tensor) -> Tensor:
        """x: (batch, time, inputs); reverse: (batch, time), where each frame comes from in the reversed line."""
        with torch.autocast(x.device.type, enabled=False):  # oneDNN has no bfloat16 LSTM on every CPU that has bfloat16
            x = x.float()
            ahead = self.ahead(x)[0]
            back = self.back(_reorder(x, reverse))[0]
        return torch.cat((ahead, _reorder(back, reverse)), -1)


def _reorder(x: Tensor, order: Tensor) -> Tensor:
    return x.gather(1, order[..., None].expand(-1, -1, x.shape[-1]))


def convolutions(channels: Sequence[int]) -> tuple[ConvNorm, nn.ModuleList, ConvNorm]:
    """The layers that :func:`columns_of` runs: stem, stages, last; `channels` as in :class:`CRNNConfig`."""
    stem, first, second, third = channels
    stages = [
        ConvNorm(stem, first, pool=(2, 2)),
        ConvNorm(first, second, pool=(2, 1)),
        ConvNorm(second, second),
        ConvNorm(second, third),
    ]
    return ConvNorm(1, stem, kernel=5, stride=2), nn.ModuleList(stages), ConvNorm(third, third)


def frames_of(widths: Tensor) -> Tensor:
    """Columns of lines of the given widths in pixels."""
    return (((widths + 1) // 2) // 2).clamp(min=1)


def columns_of(network: Any, pixel_values: Tensor, widths: Tensor) -> tuple[Tensor, Tensor]:
    """Run the convolutions of `network` and take the maximum over each column.

    Args:
        network: has the layers of :func:`convolutions` as `stem`, `stages` and `last`.
        pixel_values: (batch, 1, height, width), 0 for paper and 1 for ink.
        widths: (batch,) pixels of each line without padding.

    Returns:
        (batch, columns, channels), zero beyond the line, and (batch,) the columns of each line.
    """
    x = pixel_values.to(memory_format=torch.channels_last)
    x = x * mask_of(widths, x.shape[-1])[:, None, None, :].to(x.dtype)
    half = mask_of((widths + 1) // 2, (x.shape[-1] + 1) // 2)[:, None, None, :]
    x = network.stem(x, half)
    lengths = frames_of(widths)
    mask = mask_of(lengths, x.shape[-1] // 2)[:, None, None, :]
    for stage in network.stages:
        x = stage(x, mask)
    x = x + network.last(x, mask)
    return x.amax(2).transpose(1, 2), lengths


def initialize(module: nn.Module) -> None:
    """Weights to start from."""
    if isinstance(module, nn.Conv2d):
        nn.init.kaiming_normal_(module.weight, nonlinearity="relu")
    elif isinstance(module, nn.LSTM):
        for name, parameter in module.named_parameters():
            if name.startswith("weight_hh"):
                for gate in parameter.chunk(4):
                    nn.init.orthogonal_(gate)
            elif name.startswith("weight"):
                nn.init.xavier_uniform_(parameter)
            else:
                nn.init.zeros_(parameter)
    elif isinstance(module, nn.Linear | nn.Conv1d) and module.bias is not None:
        nn.init.xavier_uniform_(module.weight)
        nn.init.zeros_(module.bias)


def add_outputs(layer: nn.Linear | nn.Conv1d, count: int) -> None:
    """Append outputs to a layer, with zero weights and a low bias: not written before they are learnt."""
    weight, bias = layer.weight.data, layer.bias.detach()  # type: ignore[union-attr]
    layer.weight = nn.Parameter(torch.cat([weight, weight.new_zeros(count, *weight.shape[1:])]))
    layer.bias = nn.Parameter(torch.cat([bias, bias.new_full((count,), float(bias.min()) - 2)]))
    if isinstance(layer, nn.Linear):
        layer.out_features = len(layer.bias)
    else:
        layer.out_channels = len(layer.bias)


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
        nn.Module.to(self, memory_format=torch.channels_last)  # type: ignore[call-overload]
        self.post_init()

    def _init_weights(self, module: nn.Module) -> None:
        initialize(module)

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
        return_dict: bool | None = None,
    ) -> CTCOutput:
        """Recognise lines.

        Args:
            pixel_values: (batch, 1, height, width), 0 for paper and 1 for ink, 0 beyond `widths`.
            widths: (batch,) pixels of each line without padding; the full width by default.
            labels: (batch, length) classes, -100 for padding.
        """
        if widths is None:
            widths = torch.full((len(pixel_values),), pixel_values.shape[-1], device=pixel_values.device)
        columns, lengths = columns_of(self, pixel_values, widths)
        x = self.dropout(columns)
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


class CRNNProcessor:
    """Images to network input, text to labels and back; saved beside the model.

    Args:
        symbols: text of every class; `symbols[blank]` is the blank.
        height: rows of the network input.
        aspect: width of the input relative to an undistorted line; below 1 saves time.
        level: straighten the line and bring its letters to one size; else the whole image is scaled to `height`.
    """

    FILE = "crnn_processor.json"

    def __init__(
        self, symbols: Sequence[str], blank: int = 0, height: int = 40, aspect: float = 0.65, level: bool = True
    ) -> None:
        self.symbols = tuple(symbols)
        self.blank, self.height, self.aspect, self.level = blank, height, aspect, level
        self._classes = {symbol: i for i, symbol in enumerate(self.symbols) if i != blank}

    def image(self, image: Any) -> np.ndarray:
        """(height, width) uint8, dark on light, from a PIL image or a grey array."""
        from fada.data.images import load_line_image, normalize_height

        if self.level:
            grey = image if isinstance(image, np.ndarray) else np.asarray(load_line_image(image))
            return straighten(grey, self.height, self.aspect)
        return normalize_height(image, self.height)

    def batch(self, images: Sequence[np.ndarray]) -> dict[str, Tensor]:
        """Network input from images made by :meth:`image`."""
        from fada.data.images import pad_batch

        pixels, widths = pad_batch(images, multiple_of=4)
        return {"pixel_values": torch.from_numpy(pixels), "widths": torch.from_numpy(widths)}

    def encode(self, text: str) -> list[int]:
        """Classes of a text; a character without a class is left out."""
        return [self._classes[character] for character in text if character in self._classes]

    def save_pretrained(self, folder: str | os.PathLike[str]) -> None:
        """Write the processor beside the model."""
        settings = {"height": self.height, "aspect": self.aspect, "level": self.level, "blank": self.blank}
        write_json(Path(folder) / self.FILE, {**settings, "symbols": list(self.symbols)})

    @classmethod
    def from_pretrained(cls, name: str | os.PathLike[str]) -> "CRNNProcessor":
        """Read the processor from a folder or the hub."""
        path = cached_file(str(name), cls.FILE)
        return cls(**json.loads(Path(str(path)).read_text(encoding="utf-8")))


class CRNNRecognizer(CTCRecognizer):
    """A C-RNN with its processor."""

    def __init__(self, model: CRNNForCTC, processor: CRNNProcessor, tagging: Tagging = "none") -> None:
        self.model, self.processor, self.tagging = model, processor, tagging
        self.symbols, self.blank = processor.symbols, processor.blank
        self.domains = tuple(model.config.domains)

    @classmethod
    def build(
        cls,
        texts: Iterable[str],
        preset: str = "small",
        domains: Sequence[str] = (),
        tagging: Tagging = "none",
        **config: Any,
    ) -> "CRNNRecognizer":
        """A new network whose alphabet is that of `texts`; with tagging, one more class for each domain."""
        if preset not in PRESETS:
            raise FadaError(f"no C-RNN preset {preset!r}, expected one of {', '.join(PRESETS)}.")
        symbols = ["<blank>", *characters_of(texts)]
        domains = domains if tagging != "none" else ()
        settings = {**PRESETS[preset], **config, "vocab_size": len(symbols) + len(domains), "domains": domains}
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
        model = CRNNForCTC.from_pretrained(name, dtype=torch.float32)
        processor = CRNNProcessor.from_pretrained(name)
        if tagging not in (None, model.config.tagging):
            raise FadaError(f"{name} was trained with tagging {model.config.tagging!r}, not {tagging!r}.")
        missing = sorted({character for text in texts for character in text} - set(processor.symbols))
        new = characters_to_add(missing, new_characters, "the model's alphabet")
        if new and model.config.domains:
            raise FadaError(
                f"{name} has the classes of its domains after those of its characters, and cannot learn new ones "
                f"({', '.join(map(repr, new[:10]))}). Use --new-characters ignore, or a model without tagging."
            )
        if new:
            model.add_classes(len(new))
            processor = CRNNProcessor(
                (*processor.symbols, *new), processor.blank, processor.height, processor.aspect, processor.level
            )
        return cls(model, processor, model.config.tagging)

    def prepare(self, line: Line) -> np.ndarray:
        """(height, width) uint8."""
        return self.processor.image(line.load_image())

    def encode(self, text: str, domain: str | None = None) -> list[int]:
        """Classes of the characters, the domain's tag before them."""
        classes = self.processor.encode(text)
        if self.tagging == "none":
            return classes
        return [len(self.symbols) + self.domains.index(str(domain)), *classes]

    def collate(self, arrays: Sequence[np.ndarray], labels: Sequence[list[int]] | None = None) -> dict[str, Tensor]:
        """Pixels, widths and labels."""
        inputs = self.processor.batch(arrays)
        return inputs if labels is None else {**inputs, "labels": padded_labels(labels)}

    def save_pretrained(self, folder: str | os.PathLike[str]) -> None:
        """Write the network and its processor."""
        self.model.save_pretrained(folder)
        self.processor.save_pretrained(folder)
