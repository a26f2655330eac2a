"""What the cells of a lipogram experiment come to: means over seeds, comparisons by topic, and their tables."""

import os
import platform
import re
from collections.abc import Iterator, Mapping, Sequence
from statistics import fmean

import numpy as np
from pydantic import BaseModel, Field, JsonValue

from fada._version import __version__
from fada.common.settings import read_json, validated
from fada.errors import FadaError
from fada.evaluation.significance import MeanSem, mean_sem
from fada.evaluation.table import markdown_table
from fada.experiments.lipogram.effects import Tuning
from fada.experiments.lipogram.readability import words_of
from fada.experiments.lipogram.story import Story, forbidden_characters, violating_words

_HEADS = {
    "outputs": "outputs violating %",
    "words": "words violating %",
    "perplexity": "perplexity",
    "flesch": "Flesch",
    "distinct_1": "",
    "distinct_2": "distinct-2 %",
    "repetition": "repetition %",
    "unknown": "unknown words %",
    "length": "words",
    "complete": "ends with a sentence %",
}
"""Figures of stories and what they are called in the tables, as far as they stand there."""
METRICS = tuple(_HEADS)
_COLUMNS = {name: head for name, head in _HEADS.items() if head}


class Written(BaseModel, extra="forbid"):
    """The stories of one cell with their figures, as ``stories/*.json`` holds them; times in seconds."""

    search: str
    seed: int
    letter: str
    variant: str
    lam: float
    scale: float
    metrics: dict[str, float]
    seconds: float
    guidance_seconds: float
    begun: str = ""
    stories: list[Story]
    frequencies: dict[str, float] = {}
    author_distance: float | None = None

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> "Written":
        found = validated(cls, read_json(path), path)
        if missing := sorted({*METRICS} - {*found.metrics}):
            raise FadaError(f"{path}: the figure {missing[0]} is missing. Delete the file, and it is made again.")
        return found


class Change(BaseModel):
    """How stories differ from others about the same topics, each with its standard error over topics.

    `words`: relative change of the share of violating words, in percent, None where there are none to compare with (its
    error also where some topics have none); `perplexity`: ratio.
    """

    words: float | None = None
    words_se: float | None = None
    perplexity: float
    perplexity_se: float


class Row(BaseModel):
    """One variant: figures over letters within a seed, then over seeds; `overhead` in percent of the time."""

    search: str
    letter: str
    variant: str
    runs: int
    figures: dict[str, MeanSem]
    overhead: float
    against: dict[str, Change]

    @classmethod
    def of(
        cls, search: str, letter: str, variant: str, records: Sequence[Written], against: dict[str, Change]
    ) -> "Row":
        seeds = sorted({record.seed for record in records})
        figures = {
            name: mean_sem([fmean(r.metrics[name] for r in records if r.seed == seed) for seed in seeds])
            for name in METRICS
        }
        seconds = sum(record.seconds for record in records) or 1.0
        overhead = 100 * sum(record.guidance_seconds for record in records) / seconds
        return cls(
            search=search,
            letter=letter,
            variant=variant,
            runs=len(seeds),
            figures=figures,
            overhead=overhead,
            against=against,
        )


class Rate(BaseModel):
    """A letter's requested and realised frequency; without `factor`, what the model writes unguided."""

    letter: str
    factor: float | None = None
    requested: float | None = None
    realised: MeanSem
    perplexity: MeanSem

    @classmethod
    def of(
        cls, letter: str, records: Sequence[Written], factor: float | None = None, requested: float | None = None
    ) -> "Rate":
        if any(letter not in record.frequencies for record in records):
            raise FadaError(f"stories without the frequency of {letter!r}, whose rate the recipe asks for.")
        realised = mean_sem([record.frequencies[letter] for record in records])
        return cls(
            letter=letter, factor=factor, requested=requested, realised=realised, perplexity=_perplexity(records)
        )


class AuthorRow(BaseModel):
    """Distance from an author's letters without (``plain``) and with guidance (``soft``)."""

    mode: str
    distance: MeanSem
    perplexity: MeanSem


def author_rows(usual: Sequence[Written], guided: Sequence[Written]) -> list[AuthorRow]:
    """Without and with guidance, as far as there are cells."""
    return [
        AuthorRow(
            mode=mode,
            distance=mean_sem([record.author_distance or 0.0 for record in records]),
            perplexity=_perplexity(records),
        )
        for mode, records in (("plain", usual), ("soft", guided))
        if records
    ]


class Summary(BaseModel):
    """All figures of an experiment."""

    fada: str = __version__
    machine: dict[str, str] = Field(
        default_factory=lambda: {
            "system": platform.system(),
            "processor": platform.machine(),
            "python": platform.python_version(),
        }
    )
    recipe: dict[str, JsonValue]
    tuning: Tuning | None
    done: int
    planned: int
    rows: list[Row]
    rates: list[Rate]
    author: list[AuthorRow]

    def to_markdown(self) -> str:
        parts = []
        for search in dict.fromkeys(row.search for row in self.rows):
            rows = [row for row in self.rows if row.search == search]
            cells = [
                [
                    row.letter,
                    row.variant,
                    *(_pm(row.figures[name], 1 + (name == "perplexity")) for name in _COLUMNS),
                    f"{row.overhead:.1f}",
                ]
                for row in rows
            ]
            head = ["letter", "mode", *_COLUMNS.values(), "guidance, % of time"]
            parts += [f"### {_title(search, max(row.runs for row in rows))}\n", markdown_table(head, cells)]
            if changes := list(_changes(rows)):
                head = ["letter", "mode", "against", "violating words, relative %", "perplexity, ratio"]
                parts += ["Standard errors over topics:\n", markdown_table(head, changes)]
        if self.rates:
            rates = [
                [row.letter, *_wanted(row), _pm(row.realised, 2, 100), _pm(row.perplexity, 2)] for row in self.rates
            ]
            head = ["letter", "of the usual", "requested %", "realised %", "perplexity"]
            parts += ["### Rates: requested and realised frequency\n", markdown_table(head, rates)]
        if self.author:
            authors = [[row.mode, _pm(row.distance, 2, 1000), _pm(row.perplexity, 2)] for row in self.author]
            parts.append("### An author's letters: aligned W2 distance from them\n")
            parts.append(markdown_table(["mode", "distance x 1000", "perplexity"], authors))
        return "\n".join(parts)


def _perplexity(records: Sequence[Written]) -> MeanSem:
    return mean_sem([record.metrics["perplexity"] for record in records])


def _wanted(row: Rate) -> list[str]:
    return ["", ""] if row.factor is None else [f"{row.factor:g}", f"{100 * (row.requested or 0.0):.2f}"]


def _pm(figure: MeanSem, digits: int, factor: float = 1.0) -> str:
    spread = f" ± {factor * figure.sem:.{digits}f}" if figure.sem else ""
    return f"{factor * figure.mean:.{digits}f}{spread}"


def _title(search: str, runs: int) -> str:
    if search == "sample":
        return f"Sampling, {runs} seed{'s' if runs > 1 else ''}"
    return f"Beam search, {re.sub('[a-z]', '', search)} beams"


def _changes(rows: Sequence[Row]) -> Iterator[list[str]]:
    """Changes against the plain mode, and of the masked modes against the mask alone."""
    for row in rows:
        for other, change in row.against.items():
            if other == "plain" or "hard" in row.variant:
                spread = "" if change.words_se is None else f" ± {change.words_se:.1f}"
                words = "" if change.words is None else f"{change.words:+.1f}{spread}"
                perplexity = f"{change.perplexity:.3f} ± {change.perplexity_se:.3f}"
                yield [row.letter, row.variant, other, words, perplexity]


def _sums(records: Sequence[Written]) -> np.ndarray:
    """(topics, 4) violating words, words, log-probability and tokens of each topic, over letters and seeds."""
    sums: dict[str, np.ndarray] = {}
    for record in records:
        forbidden = forbidden_characters(record.letter)
        for story in record.stories:
            broken, words = len(violating_words(story.text, forbidden)), len(words_of(story.text))
            figures = np.array([broken, words, story.log_prob, story.tokens], float)
            sums[story.topic] = sums.get(story.topic, 0.0) + figures
    return np.stack([sums[topic] for topic in sorted(sums)])


def compared(records: Sequence[Written], others: Sequence[Written]) -> Change:
    """The change from `others` to `records`, with standard errors from drawing the topics anew (bootstrap).

    Topics are drawn, because the stories about one topic are not independent.
    """
    both = np.stack([_sums(records), _sums(others)])
    chosen = np.random.default_rng(0).integers(both.shape[1], size=(2000, both.shape[1]))

    def figures(sums: np.ndarray) -> np.ndarray:
        share = sums[..., 0] / np.maximum(sums[..., 1], 1)
        loss = -sums[..., 2] / np.maximum(sums[..., 3], 1)
        change = 100 * (share[0] / np.where(share[1] > 0, share[1], np.nan) - 1)
        return np.stack([change, np.exp(loss[0] - loss[1])])

    (words, perplexity), errors = figures(both.sum(1)), figures(both[:, chosen].sum(2)).std(1)
    found: Mapping[str, float] = {"words": words, "words_se": errors[0]}
    finite = {name: float(value) for name, value in found.items() if np.isfinite(value)}
    return Change(perplexity=float(perplexity), perplexity_se=float(errors[1]), **finite)
