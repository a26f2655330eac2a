"""The C-RNN as an ONNX model: one line, alone and unpadded, so it needs none of the masks that training does.

An ONNX model is a message of Protocol Buffers (onnx.proto). The few kinds of fields that it takes are written here: the
package `onnx` would be another 30 MB to install and to import before the first line is read.
"""

import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

import numpy as np

from fada._version import __version__
from fada.errors import FadaError

_FLOAT, _INT64 = 1, 7
_IR_VERSION, _OPSET = 8, 17
_MOST_LAYERS = 64

Pieces = tuple[bytes, ...]
"""A message, to be joined once: the weights would be copied with every message around them."""


@dataclass(frozen=True)
class Shape:
    """What the `config.json` of a C-RNN says of its layers; see :class:`fada.models.crnn.CRNNConfig`."""

    vocab_size: int = 2
    height: int = 40
    channels: Sequence[int] = (32, 64, 128, 192)
    lstm_size: int = 192
    lstm_layers: int = 2

    @classmethod
    def of(cls, config: Mapping[str, Any]) -> "Shape":
        """The shape in a configuration that was read from a file."""
        shape = cls(**{field.name: config[field.name] for field in fields(cls) if field.name in config})
        sizes = [shape.vocab_size, shape.height, shape.lstm_size, shape.lstm_layers, *shape.channels]
        if len(shape.channels) != 4 or not all(isinstance(size, int) and 0 < size < 2**20 for size in sizes):
            raise ValueError("config.json does not describe a C-RNN")
        if shape.lstm_layers > _MOST_LAYERS:
            raise ValueError(f"config.json asks for {shape.lstm_layers} recurrent layers")
        return shape


def crnn_onnx(shape: Shape, weights: Mapping[str, np.ndarray], about: Mapping[str, str] | None = None) -> bytes:
    """An ONNX model: `pixels` (1, 1, height, width) float32 to `log_probs` (frames, classes).

    Args:
        weights: by the names of the network of torch, in any precision.
        about: stored with the model.

    Raises:
        FadaError: weights are missing.
        ValueError: they are of another shape.
    """
    graph = _Graph(weights)
    stem, first, second, third = shape.channels
    x = graph.convolution("pixels", "stem", (stem, 1, 5, 5), stride=2)
    stages = [(first, stem, (2, 2)), (second, first, (2, 1)), (second, second, None), (third, second, None)]
    for number, (outputs, inputs, pool) in enumerate(stages):
        x = graph.convolution(x, f"stages.{number}", (outputs, inputs, 3, 3), pool=pool)
    x = graph.node("Add", [x, graph.convolution(x, "last", (third, third, 3, 3))])
    x = graph.node("ReduceMax", [x], axes=[2], keepdims=0)  # (1, channels, frames)
    x = graph.node("Transpose", [x], perm=[2, 0, 1])  # (frames, 1, channels)
    size = shape.lstm_size
    for number in range(shape.lstm_layers):
        x = graph.lstm(x, f"recurrent.{number}", third if number == 0 else 2 * size, size)
    x = graph.node("Squeeze", [x, graph.constant("line", [1])])  # (frames, 2 * size)
    classes = shape.vocab_size
    output = [graph.weight("output.weight", (classes, 2 * size)), graph.weight("output.bias", (classes,))]
    graph.node("LogSoftmax", [graph.node("Gemm", [x, *output], transB=1)], "log_probs", axis=1)
    graph.refuse_missing()
    body = _message(
        (1, graph.nodes),
        (2, "C-RNN"),
        (5, graph.initializers),
        (11, _value("pixels", [1, 1, shape.height, "width"])),
        (12, _value("log_probs", ["frames", classes])),
    )
    stored = [_message((1, key), (2, value)) for key, value in (about or {}).items()]
    opset = _message((1, ""), (2, _OPSET))
    return b"".join(_message((1, _IR_VERSION), (2, "fada"), (3, __version__), (7, body), (8, opset), (14, stored)))


class _Graph:
    """Nodes and initialisers, as they are added; every node has one output."""

    def __init__(self, weights: Mapping[str, np.ndarray]) -> None:
        self.weights = weights
        self.missing: list[str] = []
        self.nodes: list[Pieces] = []
        self.initializers: list[Pieces] = []

    def node(self, kind: str, inputs: list[str], output: str = "", **attributes: int | float | str | list[int]) -> str:
        """Add an operation; the name of its output."""
        output = output or f"{kind}_{len(self.nodes)}"
        written = [_attribute(name, value) for name, value in attributes.items()]
        self.nodes.append(_message((1, inputs), (2, output), (3, output), (4, kind), (5, written)))
        return output

    def take(self, name: str, shape: tuple[int, ...]) -> np.ndarray:
        """A weight of the network, float32; zeros if it is missing, which :meth:`refuse_missing` tells."""
        if name not in self.weights:
            self.missing.append(name)
            return np.zeros(shape, np.float32) if np.prod(shape) < 2**28 else np.zeros(0, np.float32)
        weight = self.weights[name]
        if weight.shape != shape:
            raise ValueError(f"the weight {name} has the shape {weight.shape}, expected {shape} by config.json")
        return weight.astype(np.float32)

    def refuse_missing(self) -> None:
        if self.missing:
            many, first = len(self.missing), self.missing[0]
            raise FadaError(f"{many} weights of the network are missing, such as {first}. Get its files anew.")

    def weight(self, name: str, shape: tuple[int, ...]) -> str:
        return self.initializer(name, self.take(name, shape))

    def constant(self, name: str, values: list[int]) -> str:
        return self.initializer(name, np.array(values, np.int64))

    def initializer(self, name: str, array: np.ndarray) -> str:
        kind = _INT64 if array.dtype == np.int64 else _FLOAT
        data = np.ascontiguousarray(array, array.dtype.newbyteorder("<")).tobytes()
        self.initializers.append(_message((1, list(array.shape)), (2, kind), (8, name), (9, data)))
        return name

    def convolution(
        self, x: str, name: str, shape: tuple[int, int, int, int], stride: int = 1, pool: tuple[int, int] | None = None
    ) -> str:
        """Convolution, pooling, normalisation, ReLU; `shape` is (outputs, inputs, rows, columns) of the weights."""
        weight = self.weight(f"{name}.conv.weight", shape)
        x = self.node("Conv", [x, weight], strides=[stride] * 2, pads=[shape[-1] // 2] * 4)
        if pool:
            x = self.node("MaxPool", [x], kernel_shape=list(pool), strides=list(pool))
        parts = ("weight", "bias", "running_mean", "running_var")
        norm = [self.weight(f"{name}.norm.{part}", shape[:1]) for part in parts]
        return self.node("Relu", [self.node("BatchNormalization", [x, *norm], epsilon=1e-5)])

    def lstm(self, x: str, name: str, inputs: int, size: int) -> str:
        """Both directions over x (frames, 1, inputs): (frames, 1, 2 * size)."""

        def both(part: str, *shape: int) -> np.ndarray:
            """(2, 4 * size, ...): gates in the order input, output, forget, cell, where torch has output last."""
            ways = [self.take(f"{name}.{way}.{part}_l0", (4 * size, *shape)) for way in ("ahead", "back")]
            gates = np.stack(ways).reshape(2, 4, size, *shape)[:, [0, 3, 1, 2]]
            return gates.reshape(2, 4 * size, *shape)

        weights = [
            self.initializer(f"{name}.W", both("weight_ih", inputs)),
            self.initializer(f"{name}.R", both("weight_hh", size)),
            self.initializer(f"{name}.B", np.concatenate([both("bias_ih"), both("bias_hh")], axis=1)),
        ]
        y = self.node("LSTM", [x, *weights], hidden_size=size, direction="bidirectional")  # (frames, 2, 1, size)
        y = self.node("Transpose", [y], perm=[0, 2, 1, 3])
        return self.node("Reshape", [y, self.constant(f"{name}.shape", [0, 0, 2 * size])])


def _value(name: str, dimensions: list[int | str]) -> Pieces:
    """The type of an input or output: float32, with sizes or their names."""
    sizes = [_message((1 if isinstance(size, int) else 2, size)) for size in dimensions]
    tensor = _message((1, _FLOAT), (2, _message((1, sizes))))
    return _message((1, name), (2, _message((1, tensor))))


def _attribute(name: str, value: int | float | str | list[int]) -> Pieces:
    field, kind = {float: (2, 1), int: (3, 2), str: (4, 3), list: (8, 7)}[type(value)]
    return _message((1, name), (field, value), (20, kind))


def _message(*fields: tuple[int, Any]) -> Pieces:
    """A message of Protocol Buffers; a list is a repeated field."""
    every = ((number, value if isinstance(value, list) else [value]) for number, value in fields)
    return tuple(piece for number, values in every for one in values for piece in _field(number, one))


def _field(number: int, value: int | float | str | bytes | Pieces) -> Pieces:
    if isinstance(value, int):
        return (_varint(number << 3) + _varint(value),)
    if isinstance(value, float):
        return (_varint(number << 3 | 5) + struct.pack("<f", value),)
    pieces = value if isinstance(value, tuple) else (value.encode() if isinstance(value, str) else value,)
    return _varint(number << 3 | 2) + _varint(sum(map(len, pieces))), *pieces


def _varint(value: int) -> bytes:
    groups = bytearray()
    while value > 127:
        groups.append(value & 127 | 128)
        value >>= 7
    groups.append(value)
    return bytes(groups)
