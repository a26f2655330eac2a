"""What several systems read on the same lines, column by column, and the file of a run folder that holds it.

``predictions.parquet`` has one row per line and system (``id``, ``domain``, ``reference``, ``system``, ``hypothesis``,
parts of the score, and whatever else is known of a line); how each system decodes stands in the file's metadata.
"""

import json
import os
import re
import unicodedata
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from fada.common.files import replacing
from fada.common.parquet import stored_metadata
from fada.data.columns import LineColumns
from fada.data.domains import domain_name
from fada.data.line import Line
from fada.errors import FadaError
from fada.evaluation.scores import length_buckets

PathLike = str | os.PathLike[str]
Scores = Mapping[str, Sequence[float | None]]
"""``log_prob``, ``distance`` and ``score`` of a system's lines; what it does not have is left out."""

PREDICTIONS = "predictions.parquet"
"""The file in a run folder."""
LENGTH = "length"
"""A group column that every source has: buckets of the reference's length."""
SCORE_COLUMNS = ("log_prob", "distance", "score")
"""What a run folder's predictions tell of a hypothesis beside its text."""
GREEDY_SETTINGS: Mapping[str, Any] = {"search": "greedy"}
"""Settings of a system without any search; all others are the weights that it decodes with."""
MANY_EMPTY = 0.1
"""Of a larger share of empty references it is told."""
_METADATA = b"fada.systems"


class _OfLines:
    """Something that is known of lines with references."""

    lines: LineColumns

    @property
    def ids(self) -> list[str]:
        return self.lines.ids

    @property
    def references(self) -> list[str]:
        return self.lines.references or []


@dataclass(frozen=True)
class Predictions(_OfLines):
    """What one system read, line by line, and how it decodes (empty if that is not known)."""

    name: str
    lines: LineColumns
    hypotheses: list[str]
    settings: Mapping[str, Any] = field(default_factory=dict)
    scores: Scores = field(default_factory=dict)

    @property
    def domains(self) -> list[str | None]:
        """The domain of each line, None where it has none."""
        return self.lines.domains or [None] * len(self.lines)

    @property
    def guided(self) -> bool:
        """Whether FADA's guidance has a say."""
        return is_guided(self.name, self.settings)

    def part(self, name: str) -> Sequence[float | None]:
        """One of :data:`SCORE_COLUMNS`, None where it is not known."""
        return self.scores.get(name) or [None] * len(self.lines)

    def ordered(self, ids: Sequence[str]) -> "Predictions":
        """The lines with these ids, in this order."""
        rows = self.lines.rows_of(ids)
        scores = {name: [values[row] for row in rows] for name, values in self.scores.items()}
        texts = [self.hypotheses[row] for row in rows]
        return replace(self, lines=self.lines.take(rows), hypotheses=texts, scores=scores)


@dataclass(frozen=True)
class Systems(_OfLines, Mapping[str, Predictions]):
    """The hypotheses of one or more systems on the same lines: a mapping from a system's name to what it read.

    Attributes:
        lines: ids, references, domains and other columns.
        systems: the texts of each system, one for each line.
        settings: how each system decodes: its weights, or :data:`GREEDY_SETTINGS`; absent if it is not known.
        scores: parts of the score, by system.
        source: where this was read, for messages.
        left_out: lines of the source that had no reference or were not read by every system.
        unit: what is compared, and left out: lines or pages.
        note: how lines were paired, where it was not by id.
    """

    lines: LineColumns
    systems: Mapping[str, list[str]]
    settings: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    scores: Mapping[str, Scores] = field(default_factory=dict)
    source: str = ""
    left_out: int = 0
    unit: str = "lines"
    note: str = ""

    def __post_init__(self) -> None:
        if self.lines.references is None:
            raise FadaError(f"{self.source or 'predictions'}: no references, so there is nothing to compare with.")
        for name, texts in self.systems.items():
            if len(texts) != len(self.lines):
                raise FadaError(f"{self.source}: {len(texts)} texts of {name!r} for {len(self.lines)} lines.")

    def __getitem__(self, name: str) -> Predictions:
        return Predictions(name, self.lines, self.systems[name], self.settings.get(name, {}), self.scores.get(name, {}))

    def __iter__(self) -> Iterator[str]:
        return iter(self.systems)

    def __len__(self) -> int:
        """How many systems; there are ``len(self.lines)`` lines."""
        return len(self.systems)

    @property
    def domains(self) -> list[str | None] | None:
        """The domain of each line, if there is one."""
        return self.lines.domains

    @property
    def columns(self) -> dict[str, Sequence[str | None]]:
        """Everything known of a line that one can group by."""
        domains = {} if self.domains is None else {"domain": self.domains}
        return {**domains, **self.lines.extra}

    def column(self, name: str) -> Sequence[str | None]:
        """A column to group by; ``length`` is made from the references."""
        columns = self.columns
        if name == LENGTH and LENGTH not in columns:
            return length_buckets(self.references)
        if name not in columns:
            raise FadaError(f"{self.source}: no column {name!r}, expected one of {', '.join([*columns, LENGTH])}.")
        return columns[name]

    def only(self, names: Sequence[str]) -> "Systems":
        """Only these systems; all if none is named."""
        unknown = [name for name in names if name not in self.systems]
        if unknown:
            raise FadaError(f"{self.source}: no system {unknown[0]!r}, expected some of {', '.join(self.systems)}.")
        return replace(self, systems={name: self.systems[name] for name in names}) if names else self

    def transcribed(self) -> "Systems":
        """Only the lines whose reference is not empty."""
        ids = [id for id, text in zip(self.ids, self.references, strict=True) if text.strip()]
        if not ids:
            raise FadaError(f"{self.source}: every reference is empty, so there is nothing to compare with.")
        kept = {name: self[name].ordered(ids) for name in self}
        return replace(
            self,
            lines=self.lines.take(self.lines.rows_of(ids)),
            systems={name: found.hypotheses for name, found in kept.items()},
            scores={name: found.scores for name, found in kept.items()},
            left_out=self.left_out + len(self.lines) - len(ids),
        )

    def adding(self, new: Predictions) -> "Systems":
        """With one more system, or another in place of that of the same name; paired by line id."""
        new = new.ordered(self.ids)
        return replace(
            self,
            systems={**self.systems, new.name: new.hypotheses},
            settings={**self.settings, new.name: new.settings},
            scores={**self.scores, new.name: new.scores},
        )

    def left_out_note(self) -> str | None:
        """A note if lines or pages are left out."""
        return f"{self.left_out} {self.unit} left out: no reference, or not in every system." if self.left_out else None

    def empty_note(self) -> str | None:
        """A note if many references are empty, as those of lines are that nobody has transcribed yet."""
        empty = sum(not text.strip() for text in self.references)
        if empty <= MANY_EMPTY * len(self.references):
            return None
        return (
            f"{empty} of {len(self.references)} references are empty, and whatever is read there counts as wrong. "
            "Where they are only not transcribed yet, fada evaluate --skip-empty leaves them out."
        )

    def unicode_note(self) -> str | None:
        """A note if one side is composed (NFC) and the other is not: equal letters then count as errors."""
        composed = {"references": _is_composed(self.references)}
        composed |= {name: _is_composed(texts) for name, texts in self.systems.items()}
        apart = [name for name, value in composed.items() if not value]
        if not apart or len(apart) == len(composed):
            return None
        return (
            f"not composed (NFC), unlike the rest: {', '.join(apart)}. Letters with marks may count as wrong: "
            "--normalization nfc makes them alike."
        )

    def save(self, path: PathLike) -> None:
        """Write the long format of a run folder's ``predictions.parquet``."""
        import pyarrow as pa
        import pyarrow.parquet as pq

        count = len(self.systems)
        table: dict[str, Any] = {
            "id": self.ids * count,
            **{name: list(values) * count for name, values in self.columns.items()},
            "reference": self.references * count,
            "system": [name for name in self.systems for _ in self.ids],
            "hypothesis": [text for texts in self.systems.values() for text in texts],
        }
        for name in SCORE_COLUMNS:
            if any(name in scores for scores in self.scores.values()):
                values = [value for system in self.values() for value in system.part(name)]
                table[name] = pa.array(values, pa.float64())
        known = {name: dict(values) for name, values in self.settings.items() if name in self.systems and values}
        metadata = {_METADATA: json.dumps(known, ensure_ascii=False).encode()}
        with replacing(path) as temporary:
            pq.write_table(pa.table(table).replace_schema_metadata(metadata), temporary)


def stored_settings(path: PathLike) -> dict[str, dict[str, Any]]:
    """How each system of a parquet file decodes, as far as the file tells; nothing for files of version 0.1."""
    found = stored_metadata(Path(path)).get(_METADATA)
    try:
        settings = json.loads(found) if found else {}
    except (ValueError, RecursionError) as error:
        raise FadaError(f"{path}: what it says of its systems is damaged ({error}). Write the file again.") from None
    if not isinstance(settings, dict) or not all(isinstance(one, dict) for one in settings.values()):
        raise FadaError(f"{path}: expected the settings of each system in its metadata, found {str(settings)[:60]}.")
    return settings


def line_columns(lines: Iterable[Line]) -> LineColumns:
    """What evaluation needs of lines: ids, texts, domains, and the page that each stands on, where it is known."""
    listed = list(lines)
    pages = [page_of(line) for line in listed]
    domains = [line.domain for line in listed]
    return LineColumns(
        [line.id for line in listed],
        [str(line.text) for line in listed],
        domains if any(domains) else None,
        {"page": pages} if any(pages) else {},
    )


def page_of(line: Line) -> str | None:
    """The page a line stands on: as its data tell, or the file that it was cut from; a table is no page of its rows."""
    if "page" in line.extra or re.search(r":\d+$", line.source):
        return domain_name(line.extra.get("page"))
    return line.source.partition("#")[0] or None


def is_guided(name: str, settings: Mapping[str, Any]) -> bool:
    """Whether a system decodes with FADA's guidance: by its weights, or by its name where they are not known (0.1)."""
    if settings:
        return float(settings.get("lam", 1.0)) < 1 and float(settings.get("scale", 1.0)) > 0
    return bool(re.search(r"fada|guided|tuned|eq\. ?2|\bgd\b", name.lower()))


def is_plain_beam(name: str, settings: Mapping[str, Any]) -> bool:
    """Whether a system is beam search without any knowledge: by its weights, or by its name (0.1)."""
    if settings:
        terms = ("prior_weight", "lm_weight", "length_bonus")
        return settings != GREEDY_SETTINGS and not is_guided(name, settings) and not any(map(settings.get, terms))
    return bool(re.fullmatch(r"(beam( search)?[ _=-]?\d*|plain|standard)", name, re.IGNORECASE))


def _is_composed(texts: Iterable[str]) -> bool:
    return all(unicodedata.is_normalized("NFC", text) for text in texts)
