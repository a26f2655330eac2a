"""Lines divided into those to learn from, those to choose the best epoch on, and those to report on."""

import hashlib
import logging
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import numpy as np
from pydantic import BaseModel, ConfigDict, Field, field_validator

from fada.common.settings import validated
from fada.data.line import Line, LineSet, read_lines
from fada.data.source import SPLIT_NAMES
from fada.errors import FadaError

log = logging.getLogger(__name__)

NO_DOMAIN = "all"
"""What the only domain is called where no line has one."""


@dataclass(frozen=True)
class Splits:
    """The lines to learn from, to choose the best epoch on, and to report on."""

    train: list[Line]
    validation: list[Line]
    test: list[Line]
    licence: str | None = None
    citation: str | None = None

    def domains(self) -> tuple[str, ...]:
        """Domains of the training lines, sorted; `NO_DOMAIN` alone where none has one."""
        return tuple(sorted({line.domain for line in self.train if line.domain})) or (NO_DOMAIN,)

    def training_texts(self) -> dict[str, list[str]]:
        """The training text of every domain; lines without one are left out where others have one."""
        texts: dict[str, list[str]] = {domain: [] for domain in self.domains()}
        for line in self.train:
            if line.domain or NO_DOMAIN in texts:
                texts[line.domain or NO_DOMAIN].append(str(line.text))
        return texts


class LineSources(BaseModel):
    """Where the lines of a training are, how they are read, and how they are divided."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    data: list[str] = Field(description="Sources of lines, as `fada.read_lines` takes them.")
    validation: list[str] | None = Field(None, description="Sources to choose the best epoch on, if not in the data.")
    test: list[str] | None = Field(None, description="Sources to report on, if not in the data.")
    text_column: str | None = None
    domain_column: str | None = None
    domain_from: str | None = Field(
        None, description="Where domains come from without a column: folder, a table, a pattern over the path."
    )
    image_column: str | None = None
    audio_column: str | None = None
    validation_share: float = Field(0.1, gt=0, lt=1, description="Held out where the data have no validation split.")
    max_lines: int | None = Field(
        None, ge=1, description="Only so many lines of each split, evenly spaced: for trials."
    )
    seed: int = 0

    @field_validator("data", "validation", "test", mode="before")
    @classmethod
    def _one_is_a_list(cls, value: Any) -> Any:
        return [str(value)] if isinstance(value, str | os.PathLike) else value

    def read(self) -> Splits:
        """Read the lines; those without text cannot be learnt from and are left out."""
        reading = self.model_dump(include=set(READING))
        main = [read_lines(source, **reading) for source in self.data]
        parts = split_lines(_with_text(main), self.validation_share, self.seed)
        for name, sources in (("validation", self.validation), ("test", self.test)):
            if sources is not None:
                parts[name] = _with_text([read_lines(source, **reading) for source in sources])
        if self.max_lines is not None:
            parts = {name: evenly(lines, self.max_lines) for name, lines in parts.items()}
        return Splits(
            **parts,
            licence=next((source.licence for source in main if source.licence), None),
            citation=next((source.citation for source in main if source.citation), None),
        )

    def anchored(self) -> dict[str, Any]:
        """The settings with absolute paths, so that the lines are found from any folder; hub names stay."""
        values = self.model_dump(mode="json")
        for name in ("data", "validation", "test"):
            values[name] = values[name] and [_absolute(source) for source in values[name]]
        return {**values, "domain_from": values["domain_from"] and _absolute(values["domain_from"])}

    @classmethod
    def of_run(cls, settings: Mapping[str, Any], folder: Path, data: str | os.PathLike[str] | None = None) -> Self:
        """Of the stored settings of the run in `folder`; `data` is where the lines are now, if they have moved."""
        given = {} if data is None else {"data": data}
        return validated(cls, {**settings, **given}, folder / "config.json").found_from(folder)

    def found_from(self, folder: Path) -> Self:
        """With relative paths that are not here looked for beside `folder` and in the folders above it."""

        def found(source: str) -> str:
            above = [folder, *folder.resolve().parents] if not Path(source).exists() else []
            return next((str(place / source) for place in above if (place / source).exists()), source)

        moved = {
            name: [found(source) for source in sources]
            for name in ("data", "validation", "test")
            if (sources := getattr(self, name)) is not None
        }
        return self.model_copy(update=moved)


READING = ("text_column", "domain_column", "domain_from", "image_column", "audio_column")
"""The settings that say how sources are read, as :func:`fada.read_lines` takes them."""


def split_lines(lines: Iterable[Line], validation_share: float, seed: int) -> dict[str, list[Line]]:
    """Sort lines into train, validation and test by their `split`; hold some out if nothing is there to validate on.

    A line is held out by a hash of its id and the seed, so that adding lines moves no other line.
    """
    parts: dict[str, list[Line]] = {"train": [], "validation": [], "test": []}
    for line in lines:
        name = (line.split or "train").lower()
        if name not in SPLIT_NAMES:
            raise FadaError(f"{line.source}: split {name!r}, expected one of {', '.join(SPLIT_NAMES)}.")
        parts[SPLIT_NAMES[name]].append(line)
    if not parts["validation"]:
        kept: list[Line] = []
        for line in parts["train"]:
            digest = hashlib.sha256(f"{seed}\0{line.id}".encode()).digest()
            held_out = int.from_bytes(digest[:8], "big") / 2**64 < validation_share
            (parts["validation"] if held_out else kept).append(line)
        if not parts["validation"] and len(kept) > 1:
            parts["validation"].append(kept.pop())
        parts["train"] = kept
    return parts


def evenly(lines: Sequence[Line], count: int) -> list[Line]:
    """At most `count` of the lines, evenly spaced."""
    if count >= len(lines):
        return list(lines)
    return [lines[i] for i in np.linspace(0, len(lines) - 1, count).round().astype(int)]


def _with_text(sources: Sequence[LineSet]) -> list[Line]:
    """The lines that have a text; the others, and what could not be read, are counted and named."""
    lines = []
    for source in sources:
        for line in source:
            if line.text:
                lines.append(line)
            else:
                source.skip(line, "the line has no text")
        if source.skipped_count:
            log.warning("%d lines left out, such as: %s", source.skipped_count, "; ".join(map(str, source.skipped[:3])))
    return lines


def _absolute(source: str) -> str:
    return os.path.abspath(source) if os.path.exists(source) else source
