"""One schema for everything that is read, trained on and written: the line.

A line has an image or a sound, a text if it is known, a domain (century, region, accent), an id and a source; further
columns are kept in `extra`. :func:`fada.read_lines` reads every supported format into it, lazily.
"""

import os
import re
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

from fada._version import __version__
from fada.common.tables import LOST
from fada.errors import FadaError

if TYPE_CHECKING:
    import numpy as np
    from PIL import Image

LISTED = 10_000
"""So many skipped lines and notes are listed one by one; all are counted."""

PathLike: TypeAlias = str | os.PathLike[str]

SPLITS = ("train", "validation", "test")
SPLIT_NAMES: Mapping[str, str] = {
    "train": "train",
    "training": "train",
    "validation": "validation",
    "valid": "validation",
    "val": "validation",
    "dev": "validation",
    "test": "test",
    "testing": "test",
}
_SPLIT_NAME = re.compile(r"(train(?:ing)?|valid(?:ation)?|val|dev|test(?:ing)?)(?:$|[-_.])", re.IGNORECASE)


class LazyImage(Protocol):
    """An image that is made when it is asked for, such as a line cut out of its page."""

    def load(self) -> "Image.Image":
        """The image, in mode L."""
        ...


@dataclass(frozen=True, slots=True)
class Line:
    """A line of text with its image or sound.

    Attributes:
        id: unique in its set.
        text: the transcription; None if there is none, "" if it is known to be empty.
        domain: what the text's character frequencies depend on: a century, a region, an accent.
        image: a file, the bytes of one, a Pillow image, or something with a `load()` that gives one.
        audio: a file, or the bytes of one.
        source: where it was read, for messages: `page_3.xml#r1l4`, `lines.csv:17`.
        extra: further columns, as they were found; `split` is the split if the source has splits.
    """

    id: str
    text: str | None = None
    domain: str | None = None
    image: "bytes | PathLike | Image.Image | LazyImage | None" = None
    audio: "bytes | PathLike | None" = None
    source: str = ""
    extra: Mapping[str, Any] = field(default_factory=dict)

    @property
    def split(self) -> str | None:
        """The split that the line belongs to, if its source has splits."""
        return self.extra.get("split")

    def load_image(self) -> "Image.Image":
        """The line's image in grey (mode L)."""
        where = self.source or self.id
        if self.image is None:
            raise FadaError(f"{where}: the line has no image.")
        from PIL import Image

        from fada.data.images import load_line_image

        if isinstance(self.image, str | bytes | os.PathLike | Image.Image):
            return load_line_image(self.image, where=where)
        return self.image.load()

    def load_audio(self) -> "tuple[np.ndarray, int]":
        """The line's sound: samples (n,) float32 in [-1, 1], mono, and the sample rate 16,000."""
        if self.audio is None:
            raise FadaError(f"{self.source or self.id}: the line has no sound.")
        from fada.data.audio import SAMPLE_RATE, load_audio

        return load_audio(self.audio), SAMPLE_RATE


def split_of(path: PathLike) -> str | None:
    """The split that a file name such as `train-00000-of-00002.parquet`, or else a folder above it, stands for.

    Args:
        path: relative to the source, so that folders above the source do not count.
    """
    for name in reversed(Path(path).parts):
        if found := _SPLIT_NAME.match(name):
            return SPLIT_NAMES[found[1].lower()]
    return None


def canonical_split(name: str | None) -> str | None:
    """`dev`, `val`, `valid` are `validation`; names of one's own stay."""
    return None if not name else SPLIT_NAMES.get(name.lower(), name)


@dataclass(frozen=True, slots=True)
class Skipped:
    """Something that could not be read, and why."""

    source: str
    reason: str

    def __str__(self) -> str:
        return f"{self.source}: {self.reason.removeprefix(f'{self.source}: ')}"  # which many errors begin with


def printable(text: str) -> str:
    r"""Text in which halves of surrogate pairs, which bytes in file names that are not UTF-8 become, are `\\udce9`."""
    return text if text.isascii() else text.encode("utf-8", "backslashreplace").decode("utf-8")


class Log:
    """What happened while reading: what was left out and what is worth knowing; all counted, the first ones listed."""

    def __init__(self) -> None:
        self.skipped: list[Skipped] = []
        self.skipped_count = 0
        self.reasons: Counter[str] = Counter()
        self.notes: list[str] = []
        self.blank: list[tuple[Path, Path]] = []

    def skip(self, source: str, reason: str, kind: str | None = None, lines: int = 1) -> None:
        """Record something left out. `kind` is the reason without its details, for counting."""
        reason = reason.removeprefix(f"{source}: ")
        self.skipped_count += lines
        self.reasons[kind or reason] += lines
        if len(self.skipped) < LISTED:
            self.skipped.append(Skipped(printable(source), printable(reason)))

    def note(self, text: str) -> None:
        """Record something that was read, but not quite as it stood."""
        if len(self.notes) < LISTED:
            self.notes.append(printable(text))


Reader: TypeAlias = Callable[[Log, bool], Iterator[Line]]
"""Reads the lines from the start: takes the log, and whether images and sound are wanted."""


class LineSet:
    """Lines read lazily, as often as asked for: `for line in lines`.

    `skipped`, `reasons` and `notes` tell what the last pass left out or changed; `licence` and `citation` belong to the
    data and are kept with whatever is made of it. `len()` works once the number is known: after a pass, or at once
    for a set made of a list.
    """

    def __init__(
        self,
        read: Reader,
        name: str = "",
        *,
        length: int | None = None,
        expected: int | None = None,
        licence: str | None = None,
        citation: str | None = None,
    ) -> None:
        self._read = read
        self._length = length
        self._log = Log()
        self.name = name
        self.expected = length if expected is None else expected
        """Number of lines if none is skipped, where the source tells it; for progress bars."""
        self.licence = licence
        self.citation = citation

    @classmethod
    def of(
        cls, lines: Sequence[Line], name: str = "", licence: str | None = None, citation: str | None = None
    ) -> "LineSet":
        """A set of lines that are in memory."""
        return cls(lambda log, media: iter(lines), name, length=len(lines), licence=licence, citation=citation)

    def __iter__(self) -> Iterator[Line]:
        return self._pass(media=True)

    def __len__(self) -> int:
        if self._length is None:
            raise TypeError(f"the number of lines in {self.name or 'this set'} is known after a pass: use count()")
        return self._length

    def __bool__(self) -> bool:
        return self._length > 0 if self._length is not None else next(self._read(Log(), False), None) is not None

    def __repr__(self) -> str:
        return f"LineSet({self.name!r}, {'?' if self._length is None else self._length} lines)"

    def _pass(self, media: bool) -> Iterator[Line]:
        self._log = log = Log()
        number = 0
        for line in self._read(log, media):
            number += 1
            yield line
        if media:
            self._length = number

    @property
    def skipped(self) -> list[Skipped]:
        """What the last pass left out, and why (the first 10,000)."""
        return self._log.skipped

    @property
    def skipped_count(self) -> int:
        """How much the last pass left out."""
        return self._log.skipped_count

    @property
    def reasons(self) -> Counter[str]:
        """How often each reason for leaving something out occurred in the last pass."""
        return self._log.reasons

    @property
    def lost(self) -> int:
        """How many lines the last pass could not read because a table is damaged."""
        return self._log.reasons[LOST]

    @property
    def notes(self) -> list[str]:
        """What the last pass read differently from how it stood: scaled, renamed, joined (the first 10,000)."""
        return self._log.notes

    @property
    def blank(self) -> list[tuple[Path, Path]]:
        """The ALTO and PAGE files without text lines in the last pass, each with the folder of its source."""
        return self._log.blank

    def skip(self, line: Line, reason: str | Exception) -> None:
        """Record a line that was read but turned out to be unusable, such as one with a broken image."""
        self._log.skip(line.source or line.id, str(reason))

    def note(self, text: str) -> None:
        """Record something that was written, but not quite as it was read."""
        self._log.note(text)

    def count(self) -> int:
        """The number of lines; reads the set once if it is not known yet."""
        return len(self) if self._length is not None else sum(1 for _ in self)

    def texts(self) -> Iterator[Line]:
        """The lines that have a transcription, without image and sound."""
        return (line for line in self.without_media() if line.text is not None)

    def without_media(self) -> Iterator[Line]:
        """One pass in which no image and no sound is read: for counting and for text."""
        return self._pass(media=False)

    def with_images(self) -> Iterator[tuple[Line, "Image.Image"]]:
        """The lines with their images in grey; a line whose image cannot be read is recorded in `skipped`."""
        for line in self:
            try:
                image = line.load_image()
            except FadaError as error:
                self.skip(line, error)
            else:
                yield line, image

    def filter(self, keep: Callable[[Line], bool]) -> "LineSet":
        """The lines for which `keep` is true; the others are left out on purpose and are not listed as skipped."""
        return self.select(lambda position, line: keep(line))

    def select(self, keep: Callable[[int, Line], bool]) -> "LineSet":
        """The lines for which `keep`, given their position in the set and themselves, is true."""

        def read(log: Log, media: bool) -> Iterator[Line]:
            return (line for position, line in enumerate(self._read(log, media)) if keep(position, line))

        return LineSet(read, self.name, expected=self.expected, licence=self.licence, citation=self.citation)

    def only(self, split: str) -> "LineSet":
        """The lines of one split."""
        return self.filter(lambda line: line.split == split)


def nothing_to_write(lines: LineSet, destination: PathLike) -> FadaError:
    """The error for a set of which no line could be read."""
    why = f"{lines.skipped_count} skipped, the first {lines.skipped[0]}" if lines.skipped else "none is there"
    return FadaError(
        f"{lines.name or 'the set'}: no line to write ({why}), so {destination} is not written. "
        "`fada data inspect` shows what can be read, and of which splits."
    )


def column_names(own: Collection[str], further: Collection[str]) -> dict[str, str]:
    """The names that further columns are written under: their own, `text~source` for `text` where a line has a `text`.

    Args:
        own: names of the columns for the line's own fields, which win.
        further: names of the further columns.
    """
    taken = {*own, *further}
    names: dict[str, str] = {}
    for name in further:
        new = name
        while new in own or (new != name and new in taken):
            new += "~source"
        names[name] = new
        taken.add(new)
    return names


# --- what was recognised ----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Transcription:
    """What was recognised in a line.

    Attributes:
        id: of the line.
        text: what was recognised; None if it is not known, as for lines that are only converted.
        confidence: of the whole line, 0 to 1.
        word_confidences: one for each word of `text` (separated by spaces).
        char_confidences: one for each character of `text`.
        edges: where the characters of `text` stand: the left edge of each, then the right edge of the last, as shares
            of the width of the line (of its outline, where it has one); one more than there are characters.
        line: the line itself; needed to write ALTO, PAGE, parquet and pairs.
        extra: further columns for tables, such as scores.
    """

    id: str
    text: str | None
    confidence: float | None = None
    word_confidences: Sequence[float] | None = None
    char_confidences: Sequence[float] | None = None
    edges: Sequence[float] | None = None
    line: Line | None = None
    extra: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def of(cls, line: Line, text: str | None = None, **details: Any) -> "Transcription":
        """The transcription of a line; its own text if no other is given."""
        return cls(line.id, line.text if text is None else text, line=line, **details)

    def characters_in(self, span: tuple[int, int]) -> list[float] | None:
        """The confidences of the characters from `span[0]` up to `span[1]`; None if they are not known."""
        known = self.char_confidences is not None and len(self.char_confidences) == len(self.text or "")
        if self.char_confidences is None or not known or span[0] == span[1]:
            return None
        return [min(max(float(value), 0.0), 1.0) for value in self.char_confidences[slice(*span)]]

    def confidence_of(self, span: tuple[int, int] | None) -> str | None:
        """The confidence of a part of the text, as best known: of its words, its characters, else the whole line.

        Args:
            span: from where to where the part goes; None for the whole line.
        """
        value = self.confidence
        if span is not None or value is None:
            start, end = span or (0, len(self.text or ""))
            words = word_spans(self.text or "")
            by_word = self.word_confidences if len(self.word_confidences or ()) == len(words) else None
            of_words = [
                one for one, word in zip(by_word or (), words, strict=False) if word[0] < end and start < word[1]
            ]
            if known := of_words or self.characters_in((start, end)):
                value = fmean(known)
        return None if value is None else f"{min(max(float(value), 0.0), 1.0):.4f}"

    def across(self, span: tuple[int, int]) -> tuple[float, float] | None:
        """From where to where a part of the text goes across the line, as shares of its width; None if not known."""
        if self.edges is None or len(self.edges) != len(self.text or "") + 1 or span[0] >= span[1]:
            return None
        start, end = (min(max(float(self.edges[place]), 0.0), 1.0) for place in span)
        return (start, end) if start < end else None


def word_spans(text: str) -> list[tuple[int, int]]:
    """From where to where the words of a text go, which are separated by spaces (U+0020)."""
    return [found.span() for found in re.finditer("[^ ]+", text)]


def line_of(result: Transcription) -> Line:
    """The line of a transcription, which some formats need."""
    if result.line is None:
        raise FadaError(f"{result.id}: the line itself is needed to write this format, not only its id.")
    return result.line


@dataclass(frozen=True)
class Provenance:
    """What made the transcriptions: kept with them wherever the format has a place for it."""

    model: str | None = None
    target: str | None = None
    lam: float | None = None
    details: Mapping[str, Any] = field(default_factory=dict)
    version: str = __version__
    created: str = field(default_factory=lambda: datetime.now(UTC).isoformat(timespec="seconds"))

    @property
    def tool(self) -> str:
        """Name and version."""
        return f"fada {self.version}"

    def settings(self) -> dict[str, str]:
        """Model, target, λ and further settings, those that are known."""
        known = {"model": self.model, "target": self.target, "lambda": self.lam, **self.details}
        return {key: str(value) for key, value in known.items() if value is not None}

    def settings_text(self) -> str:
        """The settings in one line: `model=...; target=...; lambda=0.5`."""
        return "; ".join(f"{key}={value}" for key, value in self.settings().items())

    def to_dict(self) -> dict[str, Any]:
        return {"tool": "fada", "version": self.version, "created": self.created, **self.settings()}
