"""Lines divided into those to learn from, those to choose the best epoch on, and those to report on."""

import hashlib
import logging
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Self

import numpy as np
from pydantic import Field, field_validator

from fada.common.settings import validated
from fada.data.line import SPLIT_NAMES, SPLITS, Line, LineSet, Log
from fada.data.reading import Reading
from fada.data.source import read_lines
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


class LineSources(Reading, extra="ignore", frozen=True):
    """Where the lines of a training are, how they are read, and how they are divided."""

    data: list[str] = Field(description="Sources of lines, as `fada.read_lines` takes them.")
    validation: list[str] | None = Field(
        default=None, description="Sources to choose the best epoch on, if not in the data."
    )
    test: list[str] | None = Field(default=None, description="Sources to report on, if not in the data.")
    validation_share: float = Field(
        default=0.1, gt=0, lt=1, description="Held out where the data have no validation split."
    )
    max_lines: int | None = Field(
        default=None, ge=1, description="Only so many lines of each split, evenly over its domains: for trials."
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
            by_domain = {name: sorted(lines, key=lambda line: line.domain or "") for name, lines in parts.items()}
            parts = {name: evenly(lines, self.max_lines) for name, lines in by_domain.items()}
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
        for name in ("domain_from", "images", "base"):
            values[name] = _absolute(values[name]) if isinstance(values[name], str) else values[name]
        return values

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


READING = tuple(Reading.model_fields)
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


# --- pages divided into splits ----------------------------------------------------------------------------------------

SHARES = (0.8, 0.1, 0.1)
"""Of the pages of every domain, for training, validation and test."""


def group_of(column: str) -> Callable[[Line], str]:
    """What must stay together: the page (with its manuscript) or the speaker of a line; the line itself if unknown."""

    def group(line: Line) -> str:
        extra = line.extra
        if column != "page":
            return str(extra.get(column) or line.id)
        manuscript = extra.get("manuscript") or extra.get("shelfmark") or ""
        page = extra.get("page") or ""
        return f"{manuscript}/{page}" if page else str(manuscript or line.id)

    return group


def assign_splits(
    groups: Iterable[tuple[str, str | None]], shares: tuple[float, float, float] = SHARES
) -> dict[str, str]:
    """Divide pages into training, validation and test, the same way on every machine.

    The pages of each domain are put in the order of the SHA-1 of their names; the first ones are for testing, the next
    for validation, the rest for training. A page is in one split only: if it has lines of several domains it counts for
    the first one. From three pages on every split gets at least one; of two pages one is for testing.

    Args:
        groups: page and domain of every line, or of every page.
        shares: of training, validation and test.

    Returns:
        Page to split.
    """
    if len(shares) != 3 or min(shares) < 0 or abs(sum(shares) - 1) > 1e-6:
        raise FadaError(f"the shares of {', '.join(SPLITS)} are {shares}, expected three that sum to 1.")
    domain_of: dict[str, str] = {}
    for group, domain in groups:
        domain_of.setdefault(group, domain or "")
    splits = {}
    for domain in dict.fromkeys(domain_of.values()):
        pages = [page for page, own in domain_of.items() if own == domain]
        pages.sort(key=lambda page: (hashlib.sha1(page.encode("utf-8", "replace")).digest(), page))
        test, validation = (_number(len(pages), share, minimum) for share, minimum in ((shares[2], 2), (shares[1], 3)))
        for place, page in enumerate(pages):
            splits[page] = "test" if place < test else "validation" if place < test + validation else "train"
    return splits


def _number(pages: int, share: float, minimum: int) -> int:
    return max(int(pages * share + 0.5), 1) if share > 0 and pages >= minimum else 0


def with_splits(lines: LineSet, group: Callable[[Line], str], resplit: bool = False) -> LineSet:
    """The lines with a split each; those stored with them are kept if there is a training part among them."""
    assigned: dict[str, str] | None = None

    def read(log: Log, media: bool) -> Iterator[Line]:
        nonlocal assigned
        if assigned is None:
            stored: set[str | None] = set()
            groups: dict[str, str | None] = {}
            for line in lines._read(Log(), False):
                stored.add(line.split)
                groups.setdefault(group(line), line.domain)
            assigned = {} if "train" in stored and not resplit else assign_splits(groups.items(), SHARES)
        for line in lines._read(log, media):
            yield replace(line, extra={**line.extra, "split": assigned[group(line)]}) if assigned else line

    return LineSet(read, lines.name, expected=lines.expected, licence=lines.licence, citation=lines.citation)
