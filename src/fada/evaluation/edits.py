"""Edits between reference and hypothesis, line by line: how texts are prepared, split into units and aligned."""

import os
import re
import sys
import unicodedata
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, fields
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal, TypedDict, get_args

import numpy as np
from numpy.typing import NDArray
from rapidfuzz import process
from rapidfuzz.distance import Levenshtein

from fada.common.kinds import refuse_kind
from fada.errors import FadaError
from fada.evaluation import significance as statistics
from fada.evaluation.significance import Floats
from fada.text.normalizer import TextNormalizer

Average = Literal["micro", "macro"]
Units = Literal["codepoints", "graphemes"]


class TextOptions(TypedDict, total=False):
    """Arguments of functions that compare texts: `codepoints` by default, compared exactly."""

    units: Units
    normalization: str | Iterable[str] | None


NORMALIZATIONS: dict[str, str] = {
    "nfc": "Unicode composition (implied by the others)",
    "case": "lower case",
    "diacritics": "combining marks removed",
    "punctuation": "Unicode punctuation removed, runs of white space collapsed",
    "uv": "v written as u",
    "ij": "j written as i",
    "spaces": "runs of white space collapsed",
}

_CHUNK = 50_000  # pairs split into words at once


def parse_normalization(
    names: str | Iterable[str] | None, table: str | os.PathLike[str] | None = None
) -> tuple[str, ...]:
    """Names of :data:`NORMALIZATIONS` in their fixed order, then equivalences such as ``ſ=s``.

    Args:
        names: a sequence, or one string with commas. What stands before the first ``=`` of an equivalence counts as
            what stands behind it.
        table: file with further equivalences, see :func:`read_equivalences`.
    """
    listed = [part.strip() for part in names.split(",")] if isinstance(names, str) else list(names or ())
    listed += [] if table is None else read_equivalences(table)
    wanted = [name for name in listed if name and name != "none"]
    for name in wanted:
        if name not in NORMALIZATIONS and not _is_equivalence(name):
            raise FadaError(
                f"unknown normalisation {name!r}, expected some of {', '.join(NORMALIZATIONS)}, or an equivalence such "
                "as ſ=s."
            )
    equivalences = dict.fromkeys(name for name in wanted if _is_equivalence(name))
    return (*(name for name in NORMALIZATIONS if name in wanted), *equivalences)


def read_equivalences(path: str | os.PathLike[str]) -> list[str]:
    """What counts as the same, from a text file: one pair a line, with a tab, ``=`` or white space between.

    ``ſ s`` writes every long s as s, ``ꝑ per`` expands an abbreviation, ``¶`` alone removes a sign. A line that begins
    with ``# `` is a comment.
    """
    try:
        lines = Path(path).read_text(encoding="utf-8-sig").splitlines()
    except OSError as error:
        raise FadaError(f"{path}: cannot be read ({error}).") from None
    except UnicodeDecodeError as error:
        refuse_kind(error.object, path)
        raise FadaError(f"{path}: not UTF-8 text. Save it as UTF-8, as plain text.") from None
    found = []
    for number, line in enumerate(lines, 1):
        text = line.strip()
        if not text or text.startswith("# "):
            continue
        between = next((sign for sign in ("\t", "=", " ") if sign in text[1:]), None)
        written, _, counts_as = (text, "", "") if between is None else text.partition(between)
        if not written.strip() or "=" in written:
            raise FadaError(f"{path}, line {number}: {line!r}, expected what is written and what it counts as.")
        found.append(f"{written.strip()}={counts_as.strip()}")
    return found


def text_preparation(normalization: str | Iterable[str] | None) -> Callable[[str], str]:
    """The function that a text goes through before it is compared: equivalences, normalisation, then stripping."""
    names = parse_normalization(normalization)
    if not names:
        return str.strip
    replace = _replacing(name for name in names if _is_equivalence(name))
    normalizer = TextNormalizer(
        form="NFC", case="lower" if "case" in names else "keep", marks="fold" if "diacritics" in names else "keep"
    )
    table: dict[int, str | None] = dict(_punctuation()) if "punctuation" in names else {}
    if "uv" in names:
        table |= {ord("v"): "u", ord("V"): "U"}
    if "ij" in names:
        table |= {ord("j"): "i", ord("J"): "I"}
    collapses = bool({"spaces", "punctuation"} & set(names))

    def prepare(text: str) -> str:
        text = normalizer(replace(text))
        if table:  # a letter that changed may compose with the mark after it
            text = unicodedata.normalize("NFC", text.translate(table))
        return " ".join(text.split()) if collapses else text.strip()

    return prepare


def _is_equivalence(name: str) -> bool:
    return "=" in name[1:]


def _replacing(equivalences: Iterable[str]) -> Callable[[str], str]:
    """Replace every written form in one pass, the longest first, so that nothing is replaced twice."""
    forms: dict[str, str] = {}
    for pair in equivalences:
        written, _, counts_as = unicodedata.normalize("NFC", pair).partition("=")
        forms[written] = counts_as
    if not forms:
        return str
    pattern = re.compile("|".join(re.escape(form) for form in sorted(forms, key=len, reverse=True)))
    return lambda text: pattern.sub(lambda found: forms[found[0]], unicodedata.normalize("NFC", text))


def clusters_of(text: str) -> Sequence[str]:
    """The grapheme clusters of a text: what a reader calls a character (a letter with its marks)."""
    if text.isascii() and "\r" not in text:
        return text
    joining, cluster = _cluster_patterns()
    return cluster.findall(text) if joining.search(text) else text


@dataclass(frozen=True)
class LineScores:
    """Edit counts of every line, each (lines,): what all rates, intervals and tests are sums of."""

    edits: NDArray[np.int64]
    substitutions: NDArray[np.int64]
    insertions: NDArray[np.int64]
    deletions: NDArray[np.int64]
    characters: NDArray[np.int64]
    predicted_characters: NDArray[np.int64]
    word_edits: NDArray[np.int64]
    words: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.edits)

    @property
    def cer(self) -> Floats:
        """CER of each line in percent."""
        return 100.0 * statistics.ratio(self.edits.astype(np.float64), self.characters.astype(np.float64))

    def fractions(self, average: Average = "micro") -> tuple[Floats, Floats]:
        """Numerators and denominators of CER, WER and NED in percent, both (lines, 3)."""
        numerators = 100.0 * np.stack([self.edits, self.word_edits, self.edits], axis=1).astype(np.float64)
        longer = np.maximum(self.characters, self.predicted_characters)
        denominators = np.stack([self.characters, self.words, longer], axis=1).astype(np.float64)
        if average == "macro":
            return statistics.ratio(numerators, denominators), np.ones_like(denominators)
        return numerators, denominators

    def rates(self, chosen: NDArray[np.bool_] | None = None) -> dict[str, float]:
        """CER, WER and NED in percent, micro-averaged over all lines or the `chosen` ones; 0 where there is no text."""
        numerators, denominators = (part if chosen is None else part[chosen] for part in self.fractions())
        values = numerators.sum(0) / np.maximum(denominators.sum(0), 1.0)
        return dict(zip(("cer", "wer", "ned"), values.tolist(), strict=True))


def score_lines(
    references: Sequence[str],
    hypotheses: Sequence[str],
    *,
    units: Units = "codepoints",
    normalization: str | Iterable[str] | None = None,
) -> LineScores:
    """Align every pair of texts; insertions are characters that only the hypothesis has."""
    check_pairs(references, hypotheses)
    prepare = text_preparation(normalization)
    check_choice("units", units, Units)
    split = None if units == "codepoints" else clusters_of
    parts = []
    for start in range(0, len(references), _CHUNK):
        ref_texts = [prepare(text) for text in references[start : start + _CHUNK]]
        hyp_texts = [prepare(text) for text in hypotheses[start : start + _CHUNK]]
        ref_units, hyp_units = (
            texts if split is None else [split(t) for t in texts] for texts in (ref_texts, hyp_texts)
        )
        ref_words, hyp_words = ([text.split() for text in texts] for texts in (ref_texts, hyp_texts))
        ref_lengths, hyp_lengths = _lengths(ref_units), _lengths(hyp_units)
        edits = _edit_distances(ref_units, hyp_units)
        substitutions = _substitutions(ref_units, hyp_units, edits, hyp_lengths - ref_lengths)
        insertions = (edits - substitutions + hyp_lengths - ref_lengths) // 2
        parts.append(
            (
                edits,
                substitutions,
                insertions,
                edits - substitutions - insertions,
                ref_lengths,
                hyp_lengths,
                _edit_distances(ref_words, hyp_words),
                _lengths(ref_words),
            )
        )
    if not parts:
        return LineScores(*(np.zeros(0, dtype=np.int64) for _ in fields(LineScores)))
    return LineScores(*(np.concatenate(column) for column in zip(*parts, strict=True)))


def check_pairs(references: Sequence[str], hypotheses: Sequence[str]) -> None:
    """Refuse lists of different lengths and lines without a text."""
    if len(references) != len(hypotheses):
        raise FadaError(
            f"{len(references)} references and {len(hypotheses)} hypotheses: "
            "give one hypothesis per reference, an empty text where nothing was recognised."
        )
    for what, texts in (("reference", references), ("hypothesis", hypotheses)):
        missing = next((i for i, text in enumerate(texts) if not isinstance(text, str)), None)
        if missing is not None:
            raise FadaError(
                f"{what} {missing + 1} of {len(texts)} is {texts[missing]!r}, expected a text. "
                "Leave out lines without a transcription; an empty text is a line on which nothing is written."
            )


def check_choice(name: str, value: str, choices: Any) -> None:
    """Refuse a value outside a ``Literal`` type."""
    if value not in get_args(choices):
        raise FadaError(f"{name} is {value!r}, expected one of {', '.join(get_args(choices))}.")


def _lengths(sequences: Sequence[Sequence[str]]) -> NDArray[np.int64]:
    return np.fromiter(map(len, sequences), dtype=np.int64, count=len(sequences))


def _edit_distances(references: Sequence[Sequence[str]], hypotheses: Sequence[Sequence[str]]) -> NDArray[np.int64]:
    return process.cpdist(references, hypotheses, scorer=Levenshtein.distance, workers=-1, dtype=np.int64)


def _substitutions(
    references: Sequence[Sequence[str]],
    hypotheses: Sequence[Sequence[str]],
    edits: NDArray[np.int64],
    longer_by: NDArray[np.int64],
) -> NDArray[np.int64]:
    """Substitutions in the alignment that rapidfuzz (and so jiwer) reports; several alignments may be equally short."""
    result = np.zeros(len(edits), dtype=np.int64)
    # Elsewhere there are only insertions, or only deletions.
    for i in np.flatnonzero(edits > np.abs(longer_by)).tolist():
        operations = Levenshtein.editops(references[i], hypotheses[i]).as_list()
        result[i] = sum(operation[0] == "replace" for operation in operations)
    return result


@lru_cache(maxsize=1)
def _cluster_patterns() -> tuple[Any, Any]:
    import regex

    return regex.compile(r"\P{GCB=Other}"), regex.compile(r"\X")


@lru_cache(maxsize=1)
def _punctuation() -> dict[int, None]:
    return {point: None for point in range(sys.maxunicode + 1) if unicodedata.category(chr(point))[0] == "P"}
