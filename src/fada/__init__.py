"""Frequency-Aware Distribution Alignment: text recognition that respects how often characters are used.

The public surface, in pipeline order: text is normalised and counted into targets, models are trained towards them,
decoding is guided by them, and the result is evaluated per domain. Names load what they need on first use, so that
``import fada`` stays cheap and works without PyTorch.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

_HOMES = {
    "FadaError": "errors",
    "TextNormalizer": "text",
    "CharDistribution": "targets",
    "TargetSet": "targets",
    "read_lines": "data.lines",
    "AlignmentLoss": "alignment",
    "CharNgram": "lm",
    "CTCBeamDecoder": "decoding.ctc",
    "GuidedLogitsProcessor": "decoding.generate",
    "guided_generate": "decoding.generate",
    "Emissions": "emissions",
    "load_recognizer": "models",
    "load_run": "runs",
    "evaluate": "evaluation",
    "compare": "evaluation",
}
_MODULES = ("distances",)

__all__ = ["__version__", *_HOMES, *_MODULES]

if TYPE_CHECKING:
    from fada import distances as distances
    from fada.alignment import AlignmentLoss as AlignmentLoss
    from fada.data.lines import read_lines as read_lines
    from fada.decoding.ctc import CTCBeamDecoder as CTCBeamDecoder
    from fada.decoding.generate import GuidedLogitsProcessor as GuidedLogitsProcessor
    from fada.decoding.generate import guided_generate as guided_generate
    from fada.emissions import Emissions as Emissions
    from fada.errors import FadaError as FadaError
    from fada.evaluation import compare as compare
    from fada.evaluation import evaluate as evaluate
    from fada.lm import CharNgram as CharNgram
    from fada.models import load_recognizer as load_recognizer
    from fada.runs import load_run as load_run
    from fada.targets import CharDistribution as CharDistribution
    from fada.targets import TargetSet as TargetSet
    from fada.text import TextNormalizer as TextNormalizer


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return import_module(f"fada.{name}")
    if name in _HOMES:
        return getattr(import_module(f"fada.{_HOMES[name]}"), name)
    raise AttributeError(f"module 'fada' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
