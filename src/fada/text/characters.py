"""Single characters: what they are called, how they are shown, and which of them join the one before."""

import os
import re
import sys
import unicodedata
from functools import lru_cache

OTHER = "<other>"
"""The cell that pools every character outside an alphabet. Never a character of its own."""

_NAMES = {" ": "space", "\u00a0": "nbsp", "\t": "tab", "\n": "newline", "\r": "return", OTHER: "other"}


def visible(symbol: str) -> str:
    """A character as a person can see it: marks on a dotted circle, white space and controls by name or code point."""
    if symbol in _NAMES:
        return _NAMES[symbol]
    kind = unicodedata.category(symbol[0])[0] if symbol else ""
    if kind == "M":
        return "◌" + symbol
    return " ".join(f"U+{ord(c):04X}" for c in symbol) if kind in ("C", "Z") else symbol


def sign(symbol: str) -> str:
    """A character as :func:`visible` shows it, but white space and nothing as signs: ``␣``, ``∅``."""
    return {" ": "␣", "\u00a0": "␣", "": "∅"}.get(symbol) or visible(symbol)


def unicode_name(text: str) -> str:
    """The Unicode names of a character or cluster: ``GREEK SMALL LETTER ALPHA``; private use by code point."""
    if not text:
        return "(nothing)"
    kinds = {"Co": "private use", "Cc": "control", "Cs": "surrogate"}
    found = ((c, kinds.get(unicodedata.category(c), "unassigned")) for c in text)
    return " + ".join(unicodedata.name(c, f"U+{ord(c):04X} ({kind})") for c, kind in found)


def from_visible(name: str) -> str:
    """The character that :func:`visible` shows as `name`; also ``U+0301`` for any character."""
    if re.fullmatch(r"[Uu]\+[0-9A-Fa-f]{4,6}", name) and int(name[2:], 16) <= sys.maxunicode:
        return chr(int(name[2:], 16))
    known = {shown: symbol for symbol, shown in _NAMES.items()}
    return known.get(name, name.removeprefix("◌") if len(name) == 2 else name)


def natural_key(name: str | os.PathLike[str]) -> tuple[tuple[bool, int, str], ...]:
    """Sorting key that puts 9 before 10, and numbers before words."""
    parts = re.split(r"([0-9]+)", os.fspath(name))
    return tuple((not part.isdecimal(), int(part) if part.isdecimal() else 0, part) for part in parts if part)


@lru_cache(maxsize=65536)
def joins_previous(text: str) -> bool:
    """Whether `text` may combine with the character before it: it starts with a mark, or a Hangul vowel or final."""
    first = unicodedata.normalize("NFKD", text[:1])[:1]
    return first != "" and (unicodedata.category(first)[0] == "M" or "\u1160" <= first <= "\u11ff")
