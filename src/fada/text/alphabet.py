"""What the classes of a CTC model write: one object from the loss to the stored emissions."""

import json
import logging
import os
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from fada.common.kinds import refuse_kind
from fada.errors import FadaError

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Alphabet:
    """The text of every class of a model, and which of the classes is the blank.

    A text may have any number of code points, also none; that of the blank is ignored. Two classes that write the same
    text are allowed and told once: a search adds their probabilities, the loss counts each for itself. A blank that has
    the text of a character is told too, where another class has none: it may be that one.

    Args:
        symbols: (classes,) the text of each class.
        blank: index of the class that writes nothing.
    """

    symbols: tuple[str, ...]
    blank: int = 0

    def __post_init__(self) -> None:
        if isinstance(self.symbols, str | Mapping | Set):
            found = (
                "one string" if isinstance(self.symbols, str) else f"a {type(self.symbols).__name__}, without an order"
            )
            raise FadaError(f"symbols is {found}, expected a list with the text of each class, the blank included.")
        symbols = tuple(self.symbols)
        for i, symbol in enumerate(symbols):
            if not isinstance(symbol, str):
                raise FadaError(f"symbol {i} is {symbol!r}, expected text.")
        whole = hasattr(self.blank, "__index__") and not isinstance(self.blank, bool)
        if not whole or not 0 <= self.blank < len(symbols):
            raise FadaError(f"blank is {self.blank!r}, expected the index of one of {len(symbols)} symbols.")
        object.__setattr__(self, "symbols", symbols)
        object.__setattr__(self, "blank", int(self.blank))
        if self.twins:
            _tell_twins(self)
        if len(symbols[self.blank]) == 1 and "" in symbols:
            _tell_blank(self)

    def __len__(self) -> int:
        return len(self.symbols)

    @property
    def texts(self) -> tuple[str, ...]:
        """(classes,) what each class writes: nothing for the blank."""
        return (*self.symbols[: self.blank], "", *self.symbols[self.blank + 1 :])

    @property
    def twins(self) -> tuple[str, ...]:
        """The texts that more than one class writes."""
        return tuple(text for text, number in Counter(self.texts).items() if text and number > 1)

    def missing(self, texts: Iterable[str]) -> dict[str, int]:
        """How often each character occurs in `texts` that no class holds, the most frequent first."""
        known = set("".join(self.texts))
        found = Counter(character for text in texts for character in text if character not in known)
        return dict(sorted(found.items(), key=lambda item: (-item[1], item[0])))

    def to_dict(self) -> dict[str, Any]:
        """The content of a ``symbols.json``."""
        return {"symbols": list(self.symbols), "blank": self.blank}

    @classmethod
    def parse(cls, text: str, where: object, known_blank: int | None = None) -> "Alphabet":
        """From the text of a ``symbols.json``: a list, or ``{"symbols": [...], "blank": 0}``; `where` names it.

        Args:
            known_blank: the blank, whatever the text says.
        """
        try:
            document = json.loads(text)
        except (ValueError, RecursionError) as error:
            raise FadaError(f"{where}: not a JSON file: {error}") from None
        values, blank = document, 0
        if isinstance(document, dict):
            values, blank = document.get("symbols"), document.get("blank", 0)
        if not isinstance(values, list) or not values or not all(isinstance(value, str) for value in values):
            raise FadaError(f'{where}: expected a list of strings, or {{"symbols": [...], "blank": 0}}.')
        if isinstance(blank, bool) or not isinstance(blank, int) or not 0 <= blank < len(values):
            raise FadaError(f"{where}: blank is {blank!r}, expected a class from 0 to {len(values) - 1}.")
        return cls(tuple(values), blank if known_blank is None else known_blank)

    @classmethod
    def load(cls, path: str | os.PathLike[str], known_blank: int | None = None) -> "Alphabet":
        """Read a ``symbols.json``, see :meth:`parse`."""
        try:
            return cls.parse(Path(path).read_text(encoding="utf-8"), path, known_blank)
        except FileNotFoundError:
            raise FadaError(f"{path}: no such file. It lists the text of each class; name it with --symbols.") from None
        except UnicodeDecodeError as error:
            refuse_kind(error.object, path, "a JSON file with the text of each class")
            raise FadaError(f"{path}: not a JSON file: {error}") from None
        except OSError as error:
            raise FadaError(f"{path}: cannot be read: {error.strerror}.") from None


def alphabet_of(symbols: "Sequence[str] | Alphabet", blank: int = 0) -> Alphabet:
    """An alphabet from either form of the public surface: one object, or symbols with the index of the blank."""
    return symbols if isinstance(symbols, Alphabet) else Alphabet(symbols, blank)  # type: ignore[arg-type]


@lru_cache(maxsize=256)
def _tell_twins(alphabet: Alphabet) -> None:
    shown = ", ".join(map(repr, alphabet.twins[:5]))
    log.warning("%d texts are written by more than one class of the model, such as %s", len(alphabet.twins), shown)


@lru_cache(maxsize=256)
def _tell_blank(alphabet: Alphabet) -> None:
    blank, empty = alphabet.blank, alphabet.symbols.index("")
    log.warning(
        "class %d, %r, is taken for the blank, while class %d writes nothing: say which is the blank (--blank)",
        blank,
        alphabet.symbols[blank],
        empty,
    )
