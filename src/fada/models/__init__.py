"""Recognition models as `transformers` models, with the processors saved beside them."""

import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from fada.models.recognizer import Recognizer


def load_recognizer(name: str | os.PathLike[str]) -> "Recognizer":
    """A recogniser from a model folder, a run folder, or a hub name; what it is, its configuration tells."""
    from fada.models.registry import load

    return load(name)
