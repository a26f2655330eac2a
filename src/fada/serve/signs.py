"""The palette: what a document's model can write, by use, with short codes to type it by."""

import re
import unicodedata
from collections import Counter
from typing import Any

from fada.serve.desk import Desk
from fada.text.characters import unicode_name

CODES = {
    "⁊": "et",
    "&": "and",
    "ꝑ": "per",
    "ꝓ": "pro",
    "ꝗ": "qb",
    "ꝙ": "qd",
    "ꝯ": "con",
    "ꝰ": "us",
    "ꝛ": "r2",
    "ꝝ": "rum",
    "ꝵ": "rum2",
    "\u1dd1": "ur",
    "\u033e": "er",
    "\u0335": "bar",
    "\u1dd3": "ra",
    "ſ": "s",
    "ẜ": "sd",
    "ꝭ": "is",
    "ꝫ": "etz",
    "ꝺ": "di",
    "đ": "ds",
    "ł": "ls",
    "ħ": "hs",
    "ꝥ": "that",
    "þ": "th",
    "ð": "dh",
    "æ": "ae",
    "œ": "oe",
    "ę": "e,",
    "ȝ": "yogh",
    "ƿ": "wynn",
    "¶": "para",
    "·": ".m",
    "\ue5d1": "est",
    "ı": "i0",
    "ȷ": "j0",
    "ꝟ": "ver",
    "÷": "est2",
    "¬": "not",
    "‸": "caret",
    "⁜": "cross",
    "Ø": "O/",
    "ß": "ss",
    "ⁿ": "^^n",
    "℥": "oz",
    "Ꝯ": "Con",
    "\u033d": "x",
    "\u0336": "bar2",
    "\u0303": "~",
    "\u0304": "-",
    "\u0305": "--",
    "\u0302": "^",
    "\u0301": "'",
    "\u0300": "`",
    "\u0308": '"',
    "\u0307": ".",
    "\u0327": ",",
    "\u0345": "|",
    "\u0342": "~g",
    "\u0313": ")",
    "\u0314": "(",
}
_GREEK = {
    "ALPHA": "a", "BETA": "b", "GAMMA": "g", "DELTA": "d", "EPSILON": "e", "ZETA": "z", "ETA": "h", "THETA": "q",
    "IOTA": "i", "KAPPA": "k", "LAMDA": "l", "MU": "m", "NU": "n", "XI": "c", "OMICRON": "o", "PI": "p", "RHO": "r",
    "SIGMA": "s", "TAU": "t", "UPSILON": "u", "PHI": "f", "CHI": "x", "PSI": "y", "OMEGA": "w",
}  # fmt: skip
"""Beta code."""
_MARKS = {
    "PSILI": ")",
    "DASIA": "(",
    "VARIA": "\\",
    "OXIA": "/",
    "TONOS": "/",
    "PERISPOMENI": "=",
    "YPOGEGRAMMENI": "|",
}


def code_of(character: str) -> str:
    """A short code for a character: what scholars type for it, else its letters, else its code point."""
    if character in CODES:
        return CODES[character]
    if len(character) > 1:
        return "".join(map(code_of, character))
    if character.isascii():
        return character
    name = unicodedata.name(character, "")
    words = name.replace("DIALYTIKA", "").split()
    if words[:1] == ["GREEK"]:
        letter = next((_GREEK[word] for word in words if word in _GREEK), "")
        if "FINAL" in words:
            letter += "2"
        return ("*" if "CAPITAL" in words else "") + letter + "".join(m for word, m in _MARKS.items() if word in words)
    if above := re.fullmatch(r"(COMBINING LATIN|MODIFIER LETTER) SMALL (?:LETTER )?([A-Z])", name):
        return ("^" if above[1].startswith("COMBINING") else "^^") + above[2].lower()
    plain = "".join(c for c in unicodedata.normalize("NFD", character) if c.isascii())
    marks = "".join(CODES.get(c, "") for c in unicodedata.normalize("NFD", character))
    if plain:
        return plain + marks
    return f"u+{ord(character):04x}"


def of_document(desk: Desk, document: int) -> list[dict[str, Any]]:
    """The characters of the model and of the document's lines, the most used first.

    Counts are those of the target, scaled to the document's length, and those of its own lines.
    """
    row = desk.document(document)
    symbols, blank = desk.alphabet(row["model"])
    counts: Counter[str] = Counter()
    texts = desk.store.rows(
        "SELECT lines.text FROM lines JOIN pages ON pages.id = lines.page WHERE pages.document = ?", document
    )
    for text in texts:
        counts.update(text["text"])
    total = sum(counts.values())
    target = desk.known(document).counted
    use = {
        symbol: counts[symbol] + (max(total, 1) * target.frequency(symbol) if target is not None else 0.0)
        for symbol in {*counts, *(symbol for c, symbol in enumerate(symbols) if c != blank and symbol)}
        if symbol != " " and symbol.isprintable() | (unicodedata.category(symbol[0])[0] in "MC")
    }
    taken: Counter[str] = Counter()
    signs = []
    for symbol, count in sorted(use.items(), key=lambda item: (-item[1], item[0])):
        code = code_of(symbol)
        taken[code] += 1
        unique = code if taken[code] == 1 else f"{code}{taken[code]}"
        signs.append({"character": symbol, "code": unique, "name": unicode_name(symbol), "count": round(count, 3)})
    return signs
