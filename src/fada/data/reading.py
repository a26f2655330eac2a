"""How lines are read: one settings object for every command that reads, and which column of a table holds what."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Self

from pydantic import BaseModel, Field, field_validator

from fada.data.domains import DOMAIN_COLUMNS, DomainRule
from fada.data.line import Log, canonical_split
from fada.data.places import Base
from fada.errors import FadaError

COLUMN_NAMES: Mapping[str, tuple[str, ...]] = {
    "text": ("text", "transcription", "transcript", "sentence", "ground_truth", "gt"),
    "image": ("image", "im", "img", "image_path", "line_image"),
    "audio": ("audio", "audio_path", "speech", "wav"),
    "file": ("file_name", "filename", "file", "path"),
    "domain": DOMAIN_COLUMNS,
    "id": ("id", "utterance_id"),
    "split": ("split", "gen_split"),
}
"""What columns are usually called, first match first; `file` is an image or a sound, told apart by its ending."""

PARTS_OF_ID = ("manuscript", "page", "line_id")
"""Columns that together name a line where there is no id."""

MOST_GROWTH = 2.0
"""Outlines are widened by at most so many times their height."""


class Reading(BaseModel, extra="forbid", frozen=True, arbitrary_types_allowed=True):
    """How lines are read, from whatever source.

    Attributes:
        format: of the source; found out if not given.
        split: read this split only.
        text_column, image_column, audio_column, domain_column, id_column: column names; the usual ones are recognised.
        domain: the domain of all lines.
        domain_from: the rule for domains, see :class:`~fada.data.domains.DomainRule`.
        domain_otherwise: the rule for what has no domain so far; counting texts takes the folder.
        images: folder with the page images of ALTO and PAGE files, if it is not where they say.
        base: folder that paths in manifests and XML must not leave; the source's folder if not given.
        allow_outside: follow paths that leave `base`.
        encoding: of manifests, texts and `.gt.txt` files, if it is not UTF-8.
        grow: widen the outlines of ALTO and PAGE lines by this share of their height, upwards most, where they cut
            accents off; 0.15 is a good value for outlines that were derived from baselines.
        untranscribed: in a folder of `line.png` + `line.gt.txt`, also read the images without a text, as for
            transcribing; otherwise they are skipped. Photographs of pages, and PDFs, are divided into their lines.
        pages: on which photographed pages lines are looked for, told by their ids; all by default. In the
            place of the lines of another page there is one, cut out of nothing.
        store: where these pages and their lines are kept (:class:`fada.data.segment.store.PageStore`).
    """

    format: str | None = None
    split: str | None = None
    text_column: str | None = None
    image_column: str | None = None
    audio_column: str | None = None
    domain_column: str | None = None
    id_column: str | None = None
    domain: str | None = None
    domain_from: Any = None
    domain_otherwise: str | None = None
    images: Path | None = None
    base: Path | None = None
    allow_outside: bool = False
    encoding: str | None = None
    grow: float = Field(default=0.0, ge=0, le=MOST_GROWTH)
    untranscribed: bool = False
    pages: Callable[[str], bool] | None = None
    store: Any = Field(default=None, exclude=True, repr=False)

    @field_validator("split")
    @classmethod
    def _canonical(cls, value: str | None) -> str | None:
        return canonical_split(value)

    @cached_property
    def rule(self) -> DomainRule:
        """Where domains come from."""
        return DomainRule(self.domain, self.domain_column, self.domain_from, self.domain_otherwise)

    def change(self, **values: Any) -> Self:
        """The same with other values."""
        return type(self)(**{**dict(self), **values})

    @property
    def columns(self) -> dict[str, str | None]:
        """The columns that were named, by role."""
        return {role: getattr(self, f"{role}_column", None) for role in COLUMN_NAMES}

    def base_of(self, source: Path) -> Base:
        """The folder that what is read of a source must not leave."""
        return Base.of(source, self.base, self.allow_outside)

    def domain_of(self, value: Any, path: str, extra: Mapping[str, Any], base: Base, log: Log) -> str | None:
        """The domain of a line, from the value of its column, its path (as :meth:`Base.name` gives it) and columns."""
        found = self.rule.domain(value, base.below(path) if self.rule.by_path else path, extra, base.source)
        if found is None and self.rule.by_path:
            log.note(f"{path}: the rule for domains gives none.")
        return found


def usual_column(role: str, names: Iterable[str]) -> str | None:
    """The column that holds something (:data:`COLUMN_NAMES`), by what it is usually called; None if there is none."""
    lower = {name.lower(): name for name in reversed([*names])}
    return next((lower[name] for name in COLUMN_NAMES[role] if name in lower), None)


@dataclass(frozen=True)
class Columns:
    """Which column of a table holds what; None where there is none."""

    text: str | None
    image: str | None
    audio: str | None
    file: str | None
    domain: str | None
    id: str | None
    split: str | None
    id_parts: tuple[str, ...]

    @classmethod
    def detect(
        cls, names: Iterable[str], named: Mapping[str, str | None], where: str, kinds: Mapping[str, str] | None = None
    ) -> "Columns":
        """Find the columns by their names; those asked for by option must exist.

        Args:
            named: the columns that were asked for, by role.
            kinds: column name to `image` or `audio`, where the file declares it.
        """
        present = list(names)
        lower = {name.lower(): name for name in reversed(present)}
        found: dict[str, str | None] = {}
        for role in COLUMN_NAMES:
            asked = named.get(role)
            if asked is not None and asked not in present:
                raise FadaError(
                    f"{where}: no column {asked!r} (asked for as {role} column); there are: {', '.join(present)}."
                )
            declared = next((name for name, kind in (kinds or {}).items() if kind == role), None)
            found[role] = asked or declared or usual_column(role, present)
        parts = tuple(lower[name] for name in PARTS_OF_ID if name in lower)
        return cls(**found, id_parts=parts if parts and parts[-1].lower() == "line_id" else ())

    @cached_property
    def media(self) -> frozenset[str]:
        """The columns that hold images and sound."""
        return frozenset(name for name in (self.image, self.audio) if name)

    @cached_property
    def consumed(self) -> frozenset[str]:
        """The columns that are not kept among the further ones, because a line has a place of its own for them."""
        own = {self.text, self.image, self.audio, self.file, self.split}
        return frozenset(name for name in own | ({self.id, self.domain} & {"id", "domain"}) if name)

    def id_of(self, row: Mapping[str, Any], otherwise: str) -> str:
        """The id of a row: its column, or manuscript, page and line id together, or `otherwise`."""
        value = row.get(self.id) if self.id else None
        if value is not None and str(value).strip():
            return str(value)
        if self.id_parts:
            return "/".join(str(row[name]) for name in self.id_parts if row.get(name) not in (None, ""))
        return otherwise
