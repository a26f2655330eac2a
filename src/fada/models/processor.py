"""From line images to the input of the C-RNN, from text to its labels."""

import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from fada.common.files import write_json
from fada.data.images import load_line_image, normalize_height
from fada.models.line_image import straighten
from fada.text.alphabet import Alphabet


class CRNNProcessor:
    """Images to network input, text to labels and back; saved beside the model.

    Args:
        symbols, blank: text of every class, and which of them is the blank.
        height: rows of the network input.
        aspect: width of the input relative to an undistorted line; below 1 saves time.
        level: straighten the line and bring its letters to one size; else the whole image is scaled to `height`.
    """

    FILE = "crnn_processor.json"

    def __init__(
        self, symbols: Sequence[str], blank: int = 0, height: int = 40, aspect: float = 0.65, level: bool = True
    ) -> None:
        self.alphabet = Alphabet(tuple(symbols), blank)
        self.height, self.aspect, self.level = height, aspect, level
        self._classes = {symbol: i for i, symbol in enumerate(self.alphabet.symbols) if i != blank}

    def image(self, image: Any) -> np.ndarray:
        """(height, width) uint8, dark on light, from a PIL image or a grey array."""
        if self.level:
            grey = image if isinstance(image, np.ndarray) else np.asarray(load_line_image(image))
            return straighten(grey, self.height, self.aspect)
        return normalize_height(image, self.height)

    def encode(self, text: str) -> list[int]:
        """Classes of a text; a character without a class is left out."""
        return [self._classes[character] for character in text if character in self._classes]

    def save_pretrained(self, folder: str | os.PathLike[str]) -> None:
        """Write the processor beside the model."""
        settings = {"height": self.height, "aspect": self.aspect, "level": self.level}
        write_json(Path(folder) / self.FILE, {**settings, **self.alphabet.to_dict()})

    @classmethod
    def from_pretrained(cls, name: str | os.PathLike[str]) -> "CRNNProcessor":
        """Read the processor from a folder or the hub."""
        path = Path(name) / cls.FILE
        if not Path(name).is_dir():
            from transformers.utils import cached_file

            path = Path(str(cached_file(str(name), cls.FILE)))
        return cls(**json.loads(path.read_text(encoding="utf-8")))
