"""The target file: versioned JSON, written for people to read and edit."""

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from fada.errors import FadaError
from fada.files import write_json
from fada.text import TextNormalizer

if TYPE_CHECKING:
    from fada.targets import TargetSet

VERSION = 1


def save(targets: "TargetSet", path: str | os.PathLike[str]) -> None:
    """Write `targets` so that :func:`load` gives them back bit for bit."""
    document = {
        "format": "fada-targets",
        "version": VERSION,
        "normalizer": targets.normalizer.to_dict(),
        "domains": {
            name: {"counts": {s: _number(c) for s, c in zip(p.symbols, p.counts.tolist(), strict=True)}}
            for name, p in targets.items()
        },
    }
    write_json(path, document)


def load(path: str | os.PathLike[str]) -> "TargetSet":
    """Read and check a target file."""
    from fada.targets import CharDistribution, TargetSet

    path = Path(path)
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise FadaError(f"{path}: no such file. Build it with: fada targets build") from None
    except (UnicodeDecodeError, json.JSONDecodeError) as error:
        raise FadaError(f"{path}: not a JSON file: {error}") from None
    normalizer = TextNormalizer.from_dict(document["normalizer"])
    return TargetSet(
        {
            name: CharDistribution(tuple(d["counts"]), np.array(list(d["counts"].values())), normalizer)
            for name, d in document["domains"].items()
        }
    )


def _number(count: float) -> Any:
    return int(count) if count.is_integer() else count
