"""The one exception that is the user's to mend, and what messages have in common."""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager

EXTRAS = {
    "accelerate": "train",
    "datasets": "hub",
    "fastapi": "serve",
    "fontTools": "synth",
    "gguf": "lipogram",
    "huggingface_hub": "hub",
    "kenlm": "kenlm",
    "matplotlib": "analysis",
    "optuna": "tune",
    "ot": "analysis",
    "pillow_heif": "heic",
    "pypdfium2": "pdf",
    "pyphen": "lipogram",
    "scipy": "analysis",
    "ray": "scale",
    "sentencepiece": "train",
    "soundfile": "audio",
    "soxr": "audio",
    "statsmodels": "analysis",
    "tokenizers": "train",
    "torch": "train",
    "transformers": "train",
    "uvicorn": "serve",
    "wordfreq": "lipogram",
}
"""Extra by the name under which a package is imported."""


class FadaError(Exception):
    """A mistake in input or settings: what was found, what was expected, where, and what to do.

    The command line prints the message without a traceback and exits with code 2.
    """


class Interrupted(Exception):  # noqa: N818 - nothing went wrong
    """A signal ended the work in an orderly way; what is done is kept.

    The command line prints the message and exits with `code`, 128 plus the number of the signal.
    """

    def __init__(self, message: str, code: int) -> None:
        super().__init__(message)
        self.code = code


def first_few(names: Iterable[object], most: int, between: str = ", ") -> str:
    """The first names, and how many more there are: ``a, b and 3 more``."""
    told = [*map(str, names)]
    more = f" and {len(told) - most} more" if len(told) > most else ""
    return between.join(told[:most]) + more


@contextmanager
def needing(package: str, extra: str, purpose: str) -> Iterator[None]:
    """Imports of an optional dependency in the block; one that is not installed is told as in :func:`missing_extra`."""
    try:
        yield
    except ImportError:
        raise missing_extra(package, extra, purpose) from None


def missing_extra(package: str, extra: str, purpose: str) -> FadaError:
    """The error for an optional dependency that is not installed."""
    return FadaError(f"{purpose} needs the package {package}, which is not installed. Try: pip install 'fada[{extra}]'")
