"""Frequency-Aware Distribution Alignment: text recognition that respects how often characters are used.

The public surface, in pipeline order: text is normalised and counted into targets, models are trained towards them,
decoding is guided by them, and the result is evaluated per domain. Names load what they need on first use, so that
``import fada`` stays cheap and works without PyTorch.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from fada._version import __version__ as __version__
from fada.models.auto import announce

_HOMES = {
    "FadaError": "errors",
    "TextNormalizer": "text.normalizer",
    "CharDistribution": "targets.distribution",
    "TargetSet": "targets.target_set",
    "read_lines": "data.source",
    "AlignmentLoss": "alignment",
    "CharNgram": "decoding.lm",
    "CTCBeamDecoder": "decoding.ctc",
    "GuidedLogitsProcessor": "decoding.generate",
    "guided_generate": "decoding.generate",
    "Emissions": "decoding.emissions",
    "load_recognizer": "models.registry",
    "load_run": "runs.run",
    "evaluate": "evaluation.scores",
    "compare": "evaluation.scores",
}
_MODULES = ("distances",)

__all__ = ["__version__", *_HOMES, *_MODULES]

if TYPE_CHECKING:
    from fada import distances as distances
    from fada.alignment import AlignmentLoss as AlignmentLoss
    from fada.data.source import read_lines as read_lines
    from fada.decoding.ctc import CTCBeamDecoder as CTCBeamDecoder
    from fada.decoding.emissions import Emissions as Emissions
    from fada.decoding.generate import GuidedLogitsProcessor as GuidedLogitsProcessor
    from fada.decoding.generate import guided_generate as guided_generate
    from fada.decoding.lm import CharNgram as CharNgram
    from fada.errors import FadaError as FadaError
    from fada.evaluation.scores import compare as compare
    from fada.evaluation.scores import evaluate as evaluate
    from fada.models.registry import load_recognizer as load_recognizer
    from fada.runs.run import load_run as load_run
    from fada.targets.distribution import CharDistribution as CharDistribution
    from fada.targets.target_set import TargetSet as TargetSet
    from fada.text.normalizer import TextNormalizer as TextNormalizer


announce()


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return import_module(f"fada.{name}")
    if name in _HOMES:
        return getattr(import_module(f"fada.{_HOMES[name]}"), name)
    raise AttributeError(f"module 'fada' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
