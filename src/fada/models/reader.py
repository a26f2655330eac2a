"""The C-RNN as ONNX Runtime runs it: for reading, without torch."""

import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from fada.common.files import write_bytes
from fada.data.images import pad_batch
from fada.data.line import Line
from fada.decoding.batch import available_cores
from fada.errors import FadaError
from fada.models.ctc import CTCRecognizer
from fada.models.looks import LOOKS, looked_at
from fada.models.onnx_file import Shape, crnn_onnx
from fada.models.processor import CRNNProcessor

WEIGHTS = "model.safetensors"


class CRNNReader(CTCRecognizer):
    """A C-RNN that reads; its weights are those that torch trained, in the same folder.

    Args:
        model: as :func:`fada.models.onnx_file.crnn_onnx` writes it.
        config: what `config.json` says.
        name: what messages call the model.
    """

    most_looks = len(LOOKS)

    def __init__(self, model: bytes, config: Mapping[str, Any], processor: CRNNProcessor, name: str = "") -> None:
        import onnxruntime

        self.config, self.processor = config, processor
        self._alphabet = processor.alphabet
        self.domains, self.tagging = tuple(config.get("domains", ())), config.get("tagging", "none")
        self.threads: int | None = None
        self.tag_classes = len(self.domains)
        self._check_classes(Shape.of(config).vocab_size, name)
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = options.inter_op_num_threads = 1  # several lines run side by side instead
        options.log_severity_level = 3
        self._session = onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])

    @classmethod
    def load(cls, folder: str | os.PathLike[str]) -> "CRNNReader":
        """Read the network from a model folder."""
        folder = Path(folder)
        config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
        processor = CRNNProcessor.from_pretrained(folder)
        return cls(_model_of(folder, config), config, processor, str(folder))

    def prepare(self, line: Line) -> np.ndarray:
        """(height, width) uint8."""
        return self.processor.image(line.load_image())

    def scores(self, line: Line) -> np.ndarray:
        """Log-probabilities (time, classes) of a line, the classes of tags among them."""
        return looked_at(self.prepare(line), self.looks, self._scores_of)

    def _scores_of(self, image: np.ndarray) -> np.ndarray:
        pixels, _ = pad_batch([image])
        return self._session.run(None, {"pixels": pixels})[0]

    def use_threads(self, threads: int) -> None:
        """Read so many lines side by side."""
        self.threads = threads

    @contextmanager
    def side_by_side(self) -> Iterator[int]:
        """On how many threads lines run side by side."""
        yield self.threads or available_cores()


def can_read(folder: str | os.PathLike[str]) -> bool:
    """Whether the weights in a folder lie where :class:`CRNNReader` looks for them, or nowhere."""
    elsewhere = ("*.bin", f"{WEIGHTS}.index.json")
    return Path(folder).is_dir() and not any(any(Path(folder).glob(pattern)) for pattern in elsewhere)


def write_onnx(folder: str | os.PathLike[str], out: str | os.PathLike[str]) -> None:
    """Write a C-RNN as one ONNX file with its weights, for other programs; its alphabet is in the file's metadata."""

    folder = Path(folder)
    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    if config.get("domain_input"):
        raise FadaError(f"{folder}: a model that is told the domain of every line, which no ONNX file of ours holds.")
    processor = CRNNProcessor.from_pretrained(folder)
    about = {
        "symbols": json.dumps(processor.alphabet.symbols, ensure_ascii=False),
        "blank": str(processor.alphabet.blank),
        "domains": json.dumps(config.get("domains", []), ensure_ascii=False),
        "aspect": str(processor.aspect),
    }
    write_bytes(out, _model_of(folder, config, about))


def _model_of(folder: Path, config: Mapping[str, Any], about: Mapping[str, str] | None = None) -> bytes:
    from safetensors.numpy import load_file

    weights = load_file(folder / WEIGHTS)
    try:
        return crnn_onnx(Shape.of(config), weights, about)
    except FadaError as error:
        raise FadaError(f"{folder}: {error}") from None
