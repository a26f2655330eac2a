"""The layers of the C-RNN, and the encoder of `trocr-tiny` that is made of them.

The encoder runs the convolutions of the C-RNN over the line, then a transformer over its columns: a vision transformer
whose patches are only multiplied by a matrix needs millions of lines to find the strokes of a letter; convolutions need
thousands. While training, an auxiliary CTC loss on the columns makes them hold letters before the decoder has learnt
where to look, as in hybrid CTC/attention speech recognition (Watanabe et al. 2017).
"""

from collections.abc import Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from transformers import AutoConfig, AutoModel, PretrainedConfig, PreTrainedModel
from transformers.modeling_outputs import BaseModelOutput

from fada.common.processes import summed


def mask_of(lengths: Tensor, size: int) -> Tensor:
    """(batch, size) float, 1 for positions inside each length."""
    return (torch.arange(size, device=lengths.device) < lengths[:, None]).float()


class MaskedBatchNorm(nn.Module):
    """Batch normalisation whose statistics leave padding out, over all processes of a distributed run.

    So neither the width of the padding nor the number of processes that share a batch changes what is learnt.
    """

    running_mean: Tensor
    running_var: Tensor

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(channels))
        self.bias = nn.Parameter(torch.zeros(channels))
        self.register_buffer("running_mean", torch.zeros(channels))
        self.register_buffer("running_var", torch.ones(channels))
        self.momentum, self.eps = 0.1, 1e-5

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
                loaded = getattr(parameter, "_is_hf_initialized", False)  # which its parts do not tell
                for gate in () if loaded else parameter.chunk(4):
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


class ColumnEncoderConfig(PretrainedConfig):
    """Shape of a :class:`ColumnEncoder`.

    Args:
        image_size: height (a multiple of 8) and width of the strip, in pixels.
        channels: as in :class:`fada.models.crnn.CRNNConfig`.
        hidden_size, num_hidden_layers, num_attention_heads: of the transformer, whose feed-forward layers are twice
            as wide.
        dropout: of the transformer.
        letters: outputs of the auxiliary CTC loss, one for each token of the decoder; the padding token is the blank.
        letters_weight: weight of that loss.
    """

    model_type = "fada-columns"

    def __init__(
        self,
        image_size: Sequence[int] = (40, 640),
        channels: Sequence[int] = (16, 32, 64, 96),
        hidden_size: int = 128,
        num_hidden_layers: int = 2,
        num_attention_heads: int = 4,
        dropout: float = 0.1,
        letters: int = 4,
        letters_weight: float = 0.5,
        **kwargs: Any,
    ) -> None:
        self.image_size = list(image_size)
        self.channels = list(channels)
        self.hidden_size = hidden_size
        self.num_hidden_layers = num_hidden_layers
        self.num_attention_heads = num_attention_heads
        self.dropout = dropout
        self.letters = letters
        self.letters_weight = letters_weight
        super().__init__(**kwargs)

    @property
    def columns(self) -> int:
        """Positions of the encoder's output."""
        return (self.image_size[1] + 1) // 2 // 2


class ColumnEncoder(PreTrainedModel):
    """Strips of text to one vector for every four pixels along the line."""

    config_class = ColumnEncoderConfig
    main_input_name = "pixel_values"
    _supports_sdpa = True

    def __init__(self, config: ColumnEncoderConfig) -> None:
        super().__init__(config)
        size = config.hidden_size
        self.stem, self.stages, self.last = convolutions(config.channels)
        self.project = nn.Linear(config.channels[-1], size)
        self.positions = nn.Parameter(torch.zeros(1, config.columns, size))
        self.layers = nn.ModuleList(
            nn.TransformerEncoderLayer(
                size,
                config.num_attention_heads,
                2 * size,
                config.dropout,
                activation="gelu",
                batch_first=True,
                norm_first=True,
            )
            for _ in range(config.num_hidden_layers)
        )
        self.norm = nn.LayerNorm(size)
        self.letters = nn.Linear(size, config.letters)
        nn.Module.to(self, memory_format=torch.channels_last)  # type: ignore[call-overload]
        self.post_init()

    def _init_weights(self, module: nn.Module) -> None:
        initialize(module)

    def add_letters(self, count: int) -> None:
        """Append outputs of the auxiliary loss."""
        add_outputs(self.letters, count)
        self.config.letters += count

    def forward(self, pixel_values: Tensor, **_: Any) -> BaseModelOutput:
        """(batch, columns, hidden size) of strips (batch, channels, height, width), 0 for paper and 1 for ink.

        The first channel is read. What follows the last column with ink is padding.
        """
        ink = pixel_values[:, :1]
        inked = (ink > 0).any(2)[:, 0]  # (batch, width)
        widths = (inked * torch.arange(1, ink.shape[-1] + 1, device=ink.device)).amax(1).clamp(min=1)
        x, _lengths = columns_of(self, ink, widths)
        x = self.project(x) + self.positions
        for layer in self.layers:
            x = layer(x)
        return BaseModelOutput(last_hidden_state=self.norm(x))


AutoConfig.register(ColumnEncoderConfig.model_type, ColumnEncoderConfig)
AutoModel.register(ColumnEncoderConfig, ColumnEncoder)
