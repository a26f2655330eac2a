"""How text is brought to one form before its characters are counted."""

import re
import unicodedata
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields, replace
from functools import lru_cache
from typing import Any, Literal, get_args, get_type_hints

from fada.errors import FadaError

Form = Literal["NFC", "NFD", "NFKC", "NFKD", "none"]
Case = Literal["lower", "keep"]
Marks = Literal["keep", "fold"]
Spaces = Literal["keep", "collapse", "drop"]


@dataclass(frozen=True)
class TextNormalizer:
    """Unicode form, case, diacritics, spaces and letters: what counts as the same character.

    The default, NFC and lower case, is the paper's. Every target file records the normaliser it was counted with, and
    hypotheses are counted through the same one.

    Lower-casing works code point by code point (a capital sigma always becomes σ, never the final form), so that a
    growing hypothesis can be counted as it grows: apart from Unicode composition and the collapsing of spaces, the
    normal form of a text is that of its characters, one after the other.

    Args:
        form: Unicode normalisation form, or ``none``.
        case: ``lower`` or ``keep``.
        marks: ``fold`` removes diacritics (combining marks after canonical decomposition); ``keep`` leaves them.
        spaces: ``keep`` as they are; ``collapse`` every run of white space to one space, none at the ends; ``drop``.
        letters_only: keep letters and the marks that belong to them (Unicode categories L and M), nothing else.
    """

    form: Form = "NFC"
    case: Case = "lower"
    marks: Marks = "keep"
    spaces: Spaces = "keep"
    letters_only: bool = False

    def __post_init__(self) -> None:
        for field, choices in _choices().items():
            value = getattr(self, field)
            if not any(value == choice and type(value) is type(choice) for choice in choices):
                expected = ", ".join(map(str, choices))
                raise FadaError(f"text normaliser: {field} is {value!r}, expected one of {expected}.")

    def __call__(self, text: str) -> str:
        """The normal form of `text`; applying it twice changes nothing."""
        text = self._unicode(text)
        if self.case == "lower":
            # str.lower() looks at the context of a capital sigma; a growing hypothesis cannot.
            text = self._unicode(text.replace("Σ", "σ").lower())
        if self.marks == "fold":
            text = self._unicode("".join(map(_without_marks, text)))
        if self.letters_only:
            text = "".join(filter(_is_letter_or_mark, text))
        if self.spaces == "collapse":
            text = " ".join(text.split())
        elif self.spaces == "drop":
            text = "".join(text.split())
        # What was left out may have stood between a letter and a mark that now compose.
        return self._unicode(text) if self.letters_only or self.spaces == "drop" else text

    def of_part(self, text: str) -> str:
        """The characters that `text` adds to a longer text, such as a token to a line: spaces at its ends count."""
        if self.spaces != "collapse":
            return self(text)
        return re.sub(r"\s+", " ", replace(self, spaces="keep")(text))

    def keeps(self, character: str) -> bool:
        """Whether `character` is one code point that can stand in normalised text (and be saved as UTF-8)."""
        if character == " ":
            return self.spaces != "drop" and not self.letters_only
        return len(character) == 1 and self(character) == character and not "\ud800" <= character <= "\udfff"

    def _unicode(self, text: str) -> str:
        return text if self.form == "none" or text.isascii() else unicodedata.normalize(self.form, text)

    def to_dict(self) -> dict[str, Any]:
        """The settings as JSON values, in a fixed order."""
        return asdict(self)

    @classmethod
    def from_dict(cls, settings: Mapping[str, Any]) -> "TextNormalizer":
        """The inverse of :meth:`to_dict`; unknown settings are refused."""
        known = [field.name for field in fields(cls)]
        unknown = [name for name in settings if name not in known]
        if unknown:
            raise FadaError(f"text normaliser: unknown setting {unknown[0]!r}, expected {', '.join(known)}.")
        return cls(**settings)

    def describe(self) -> str:
        """A short reading for tables and captions, such as ``NFC, lower case, letters only``."""
        words: list[str] = [] if self.form == "none" else [self.form]
        words += ["lower case"] if self.case == "lower" else []
        words += ["diacritics folded"] if self.marks == "fold" else []
        words += {"keep": [], "collapse": ["spaces collapsed"], "drop": ["spaces dropped"]}[self.spaces]
        words += ["letters only"] if self.letters_only else []
        return ", ".join(words) or "text as it is"


@lru_cache(maxsize=1)
def _choices() -> dict[str, tuple[Any, ...]]:
    hints = get_type_hints(TextNormalizer)
    return {name: get_args(hint) or (True, False) for name, hint in hints.items()}


@lru_cache(maxsize=65536)
def _without_marks(character: str) -> str:
    """The character without its diacritics; a Hangul syllable, which holds none, stays whole."""
    decomposed = unicodedata.normalize("NFD", character)
    plain = "".join(c for c in decomposed if unicodedata.category(c)[0] != "M")
    return character if plain == decomposed else unicodedata.normalize("NFC", plain)


@lru_cache(maxsize=65536)
def _is_letter_or_mark(character: str) -> bool:
    return unicodedata.category(character)[0] in "LM"
