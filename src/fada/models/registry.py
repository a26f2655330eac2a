"""Names of models to recognisers: `crnn:small`, `trocr-tiny`, a folder, a hub name."""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from fada.errors import FadaError
from fada.models.crnn import CRNNRecognizer
from fada.models.recognizer import Recognizer, Tagging


def build(
    name: str,
    texts: Sequence[str],
    *,
    domains: Sequence[str] = (),
    tagging: Tagging = "none",
    new_characters: str = "add",
    max_seconds: float = 10.0,
    dropout: float | None = None,
) -> Recognizer:
    """A recogniser to train: new, or loaded to be fine-tuned."""
    family, _, preset = name.partition(":")
    if family == "crnn":
        options: dict[str, Any] = {} if dropout is None else {"dropout": dropout}
        return CRNNRecognizer.build(texts, preset or "base", domains, tagging, **options)
    raise FadaError(f"no model {name!r}.")


def load(name: str | os.PathLike[str]) -> Recognizer:
    """A trained recogniser from a model folder, a run folder or a hub name."""
    path = Path(name)
    if (path / "model" / "config.json").is_file():
        path = path / "model"
    return CRNNRecognizer.load(path)


def learning_rate(recognizer: Recognizer) -> float:
    """The usual learning rate of the family."""
    return 1e-3 if isinstance(recognizer, CRNNRecognizer) else 5e-5
