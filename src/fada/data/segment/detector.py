"""Where on a page there is text: the detector network inside the wheel of `rapidocr`, run by ONNX Runtime.

Only its model file is used (Apache-2.0, PaddleOCR); none of rapidocr's code is imported. What it finds is the *core* of
each line, about as tall as the small letters, as a map of probabilities.
"""

import importlib.metadata
import importlib.util
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from fada.errors import FadaError

if TYPE_CHECKING:
    from PIL import Image

PACKAGE = "rapidocr"
MODEL = "models/PP-OCRv6_det_small.onnx"
STRIDE = 32
"""Sides of the network's input are multiples of this."""


def version() -> str:
    """Name of the network and of the package that it comes with, for the record."""
    return f"{Path(MODEL).stem} of {PACKAGE} {importlib.metadata.version(PACKAGE)}"


def is_installed() -> bool:
    """Whether the extra that brings the detector is there."""
    return all(importlib.util.find_spec(name) is not None for name in (PACKAGE, "onnxruntime"))


@cache
def _session() -> Any:
    found = importlib.util.find_spec(PACKAGE)
    model = Path(found.origin).parent / MODEL if found is not None and found.origin else None
    if model is None or not is_installed():
        raise FadaError("finding lines on a page needs the extra [pages]. Install it with: pip install 'fada[pages]'")
    if not model.is_file():
        raise FadaError(f"{model}: the detector is not in this version of {PACKAGE}. Install it with: fada[pages]")
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    options.log_severity_level = 3
    return onnxruntime.InferenceSession(str(model), options, providers=["CPUExecutionProvider"])


def text_map(page: "Image.Image", side: int) -> NDArray[np.float32]:
    """Probability of text, (height, width), for a page scaled so that its longer side is about `side` pixels."""
    from PIL import Image

    scale = side / max(page.size)
    width, height = (max(STRIDE, round(length * scale / STRIDE) * STRIDE) for length in page.size)
    small = page.resize((width, height), Image.Resampling.BILINEAR, reducing_gap=2.0).convert("RGB")
    return probabilities(np.asarray(small, np.float32) / 127.5 - 1.0)


def probabilities(pixels: NDArray[np.float32]) -> NDArray[np.float32]:
    """Probability of text, (height, width), for colours (height, width, 3) from -1 to 1; sides: multiples of STRIDE."""
    blue_first = pixels[..., ::-1].transpose(2, 0, 1)[None]  # as the network was trained
    (found,) = _session().run(None, {"x": np.ascontiguousarray(blue_first)})
    return found[0, 0]
