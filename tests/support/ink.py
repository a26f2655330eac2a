"""Emissions of a given text, as a recogniser that is more or less sure would give them."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import numpy as np

from fada.data.line import Line
from fada.models.ctc import CTCRecognizer
from fada.text.alphabet import Alphabet


def written(text: str, symbols: Sequence[str], doubt: float = 0.1, seed: int = 0) -> np.ndarray:
    """(2 · characters, classes) log-probabilities: each character, then a blank (class 0), `doubt` goes to others."""
    rng = np.random.default_rng([seed, *map(ord, text)])
    classes = [c for character in text if character in symbols for c in (symbols.index(character), 0)] or [0]
    rows = rng.dirichlet(np.full(len(symbols), 0.05), len(classes)) * doubt
    rows[np.arange(len(classes)), classes] += 1 - doubt
    return np.log(rows + 1e-9).astype(np.float32)


class InkReader(CTCRecognizer):
    """A CTC recogniser that reads what the column `ink` of a line says, with doubt."""

    def __init__(self, symbols: Sequence[str], doubt: float = 0.1) -> None:
        self._alphabet, self.doubt = Alphabet(tuple(symbols)), doubt

    def scores(self, line: Line) -> np.ndarray:
        return written(str(line.extra["ink"]), self.symbols, self.doubt)

    def prepare(self, line: Line) -> np.ndarray:
        raise NotImplementedError

    def use_threads(self, threads: int) -> None:
        raise NotImplementedError

    @contextmanager
    def side_by_side(self) -> Iterator[int]:
        yield 1
