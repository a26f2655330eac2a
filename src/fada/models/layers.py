"""The encoder of `trocr-tiny`: the convolutions of the C-RNN over the line, then a transformer over its columns.

A vision transformer whose patches are only multiplied by a matrix needs millions of lines to find the strokes of a
letter; convolutions need thousands. While training, an auxiliary CTC loss on the columns makes them hold letters before
the decoder has learnt where to look, as in hybrid CTC/attention speech recognition (Watanabe et al. 2017).
"""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn
from transformers import AutoConfig, AutoModel, PretrainedConfig, PreTrainedModel
from transformers.modeling_outputs import BaseModelOutput

from fada.models.crnn import add_outputs, columns_of, convolutions, initialize


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
