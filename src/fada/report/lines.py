"""The browsable list of lines, as compact data for the page's script."""

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, TypedDict

from fada.evaluation.edits import score_lines
from fada.evaluation.predictions import SCORE_COLUMNS
from fada.evaluation.scores import NO_LABEL, Scoring
from fada.report.comparison import DataSet, paired_run
from fada.report.images import MEDIA_TYPE, Thumbnail
from fada.runs.run import Run
from fada.text.characters import natural_key


class Pair(TypedDict):
    """The systems and domains of a data set by their numbers, and the two systems put side by side."""

    systems: list[int]
    before: int
    after: int
    domains: list[int]


class Payload(TypedDict):
    """What the page's script takes; an image is its width, height and bytes."""

    sets: list[str]
    systems: list[str]
    domains: list[str]
    pairs: list[Pair]
    imageType: str
    images: list[tuple[int, int, str]]
    lines: list[list[Any]]


@dataclass(frozen=True)
class _Line:
    """A line while it is gathered: its texts by number, the reference first, and a reading of each system."""

    domain: str
    length: int
    readings: list[list[Any] | None]
    texts: dict[str, int] = field(default_factory=dict)

    def errors(self, place: int) -> int:
        reading = self.readings[place]
        return 0 if reading is None else int(reading[1])


class LineList:
    """Lines of all data sets with what every system of every run read.

    Attributes:
        names: the data sets; systems and domains are numbered over all of them.
        kept: the lines that are listed, as the page's script takes them, in the order of the data.
        images: by data source and line id.
        notes: what was left out.
    """

    def __init__(self, sets: Sequence[DataSet], scoring: Scoring) -> None:
        self.names = [data_set.name for data_set in sets]
        self.sources = [data_set.source for data_set in sets]
        self.systems: list[str] = []
        self.domains: list[str] = []
        self.pairs: list[Pair] = []
        self.images: dict[tuple[str, str], Thumbnail] = {}
        self.notes: list[str] = []
        self.kept: list[list[Any]] = []
        self._importance: list[tuple[int, int]] = []
        for number, data_set in enumerate(sets):
            self._add(number, data_set, scoring)
        self.total = len({(self.sources[line[1]], line[0]) for line in self.kept})

    def domain_number(self, name: str | None) -> int:
        """The number of a domain, which is listed if it is new."""
        name = NO_LABEL if name is None else name
        if name not in self.domains:
            self.domains.append(name)
        return self.domains.index(name)

    def fit(self, max_bytes: int) -> None:
        """Keep the lines that matter most (the largest change, then the most errors) within `max_bytes`."""
        order = sorted(range(len(self.kept)), key=lambda i: self._importance[i], reverse=True)
        kept = []
        for i in order:
            max_bytes -= len(json.dumps(self.kept[i], ensure_ascii=False, separators=(",", ":")).encode("utf-8")) + 1
            if max_bytes < 0:
                break
            kept.append(i)
        if len(kept) < len(self.kept):
            self.notes.append(
                f"Listed are the {len(kept):,} lines with the largest change or the most errors; the other "
                f"{len(self.kept) - len(kept):,} lines are in all numbers, but not in this list."
            )
        kept.sort()
        self._importance = [self._importance[i] for i in kept]
        self.kept = [self.kept[i] for i in kept]

    def wanted(self, source: str) -> list[str]:
        """Ids of the listed lines of a data source, the most important first."""
        order = sorted(range(len(self.kept)), key=lambda i: self._importance[i], reverse=True)
        return list(dict.fromkeys(self.kept[i][0] for i in order if self.sources[self.kept[i][1]] == source))

    def payload(self) -> Payload:
        """Everything for the page's script; an image stands once, also where several models read its line."""
        numbers = {key: number for number, key in enumerate(self.images)}
        lines = [[*line, numbers.get((self.sources[line[1]], line[0]), -1)] for line in self.kept]
        return {
            "sets": self.names,
            "systems": self.systems,
            "domains": self.domains,
            "pairs": self.pairs,
            "imageType": MEDIA_TYPE,
            "images": [(image.width, image.height, image.data) for image in self.images.values()],
            "lines": lines,
        }

    def _add(self, number: int, data_set: DataSet, scoring: Scoring) -> None:
        entries: list[tuple[Run, str]] = []
        start = len(self.systems)
        for contender in data_set.contenders:
            for run in contender.runs:
                seed = f" · seed {run.seed}" if len(contender.runs) > 1 else ""
                self.systems.append(contender.label + seed)
                entries.append((run, contender.system))
        before = entries.index((first := data_set.before.runs[0], data_set.before.system))
        after = entries.index((paired_run(data_set.after, first), data_set.after.system))
        lines: dict[str, _Line] = {}
        for place, (run, system) in enumerate(entries):
            read = run.predictions[system]
            scores = score_lines(read.references, read.hypotheses, **scoring.text_options)
            columns = [read.part(name) for name in SCORE_COLUMNS]
            for i, line_id in enumerate(read.ids):
                line = lines.get(line_id)
                if line is None:
                    domain = NO_LABEL if read.domains[i] is None else str(read.domains[i])
                    unread: list[list[Any] | None] = [None] * len(entries)
                    line = _Line(domain, int(scores.characters[i]), unread, {read.references[i]: 0})
                    lines[line_id] = line
                text = line.texts.setdefault(read.hypotheses[i], len(line.texts))
                line.readings[place] = [text, int(scores.edits[i]), *(_rounded(column[i]) for column in columns)]
        named = {line.domain for line in lines.values()}
        numbers = {name: self.domain_number(name) for name in sorted(named, key=natural_key)}
        for line_id, line in lines.items():
            readings = [None] * start + line.readings
            self.kept.append([line_id, number, numbers[line.domain], list(line.texts), readings, line.length])
            errors = line.errors(before), line.errors(after)
            self._importance.append((abs(errors[1] - errors[0]), max(errors)))
        self.pairs.append(
            {
                "systems": list(range(start, start + len(entries))),
                "before": start + before,
                "after": start + after,
                "domains": list(numbers.values()),
            }
        )


def _rounded(value: float | None) -> float | None:
    return None if value is None else float(f"{value:.5g}")
