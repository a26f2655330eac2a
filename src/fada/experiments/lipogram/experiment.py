"""The lipogram experiment: all modes, letters and seeds on the same topics; resumable, with tables."""

import json
import logging
import os
import platform
import re
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any, Literal

import numpy as np
from pydantic import BaseModel, ConfigDict, Field

from fada._version import __version__
from fada.common.files import write_json, write_text
from fada.common.say import track
from fada.common.settings import read_recipe, validated
from fada.decoding.guidance import Guidance
from fada.errors import FadaError
from fada.evaluation.significance import sem
from fada.experiments.lipogram.effects import expected_effects
from fada.experiments.lipogram.readability import words_of
from fada.experiments.lipogram.writer import (
    DEVELOPMENT_TOPICS,
    TOPICS,
    WARMUP,
    LipogramWriter,
    Mode,
    Story,
    Style,
    focused_target,
    forbidden_characters,
    lipogram_target,
    load_language_model,
    measure,
    violating_words,
)
from fada.targets.distribution import CharDistribution
from fada.text.normalizer import TextNormalizer

log = logging.getLogger(__name__)

Variant = Literal["plain", "paper", "soft", "hard", "soft+hard"]
"""A mode, or ``paper``: soft guidance with the whole distribution as target, scale 1 and no warm-up, as printed."""

METRICS = (
    "outputs",
    "words",
    "perplexity",
    "flesch",
    "distinct_1",
    "distinct_2",
    "repetition",
    "unknown",
    "length",
    "complete",
)

UNUSUAL = "z"
"""The letter that the prompt names where none is to be avoided: for usual texts, rates and authors."""


class Search(BaseModel):
    """How texts are found: sampling (one run for each seed) or beam search (no seed)."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    sample: bool = True
    num_beams: int = Field(default=4, ge=1)
    temperature: float = Field(default=1.0, gt=0)
    top_k: int = Field(default=50, ge=1)
    seeds: tuple[int, ...] = (0, 1, 2)

    @property
    def name(self) -> str:
        return "sample" if self.sample else f"beam{self.num_beams}"

    @property
    def runs(self) -> tuple[int, ...]:
        return self.seeds if self.sample else (0,)


class LipogramRecipe(BaseModel):
    """The settings of the experiment; unknown keys are refused."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    model: str = "smollm2"
    letters: tuple[str, ...] = ("a", "e", "l")
    variants: tuple[Variant, ...] = ("plain", "paper", "soft", "hard", "soft+hard")
    searches: tuple[Search, ...] = (Search(),)
    topics: tuple[str, ...] = TOPICS
    lam: float = Field(0.5, gt=0, le=1)
    scale: float = Field(5_000.0, ge=0)
    warmup: float = Field(WARMUP, ge=0)
    tuned_scales: tuple[float, ...] = ()
    tuned_perplexity: float = Field(1.02, gt=1)
    both_scale: float = Field(4_000.0, ge=0)
    rates: dict[str, tuple[float, ...]] = {}
    rate_scale: float = Field(20_000.0, ge=0)
    author: str = ""
    author_scale: float = Field(50_000.0, ge=0)
    max_new_tokens: int = Field(120, ge=1)
    min_new_tokens: int = Field(40, ge=1)
    batch_size: int = Field(10, ge=1)
    style: Style = "json"

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> "LipogramRecipe":
        """Read a YAML recipe."""
        return validated(cls, read_recipe(path), path)

    def quick(self) -> "LipogramRecipe":
        """A version for trying out: three topics, short stories, one seed."""
        searches = tuple(search.model_copy(update={"seeds": search.seeds[:1]}) for search in self.searches)
        changes = {"topics": self.topics[:3], "searches": searches, "max_new_tokens": 30, "min_new_tokens": 10}
        return self.model_copy(update=changes)


def read_topics(path: str | os.PathLike[str]) -> tuple[str, ...]:
    """Topics from a text file, one on each line; empty lines and lines that start with # are skipped."""
    try:
        lines = Path(path).read_text(encoding="utf-8").splitlines()
    except FileNotFoundError:
        raise FadaError(f"{path}: no such file, expected one topic on each line.") from None
    topics = tuple(line.strip() for line in lines if line.strip() and not line.lstrip().startswith("#"))
    if not topics:
        raise FadaError(f"{path}: no topic in it, expected one on each line, such as 'a dog at the park'.")
    return topics


class Experiment:
    """Runs a recipe in a folder; every finished cell (search, letter, variant, seed) is a file and not done again.

    The folder holds ``stories/*.json`` (the texts of each cell with their figures), ``own.json`` (the model's own
    distribution), ``tuning.json``, ``summary.json`` and ``table.md``.
    """

    def __init__(self, recipe: LipogramRecipe, folder: str | os.PathLike[str]):
        self.recipe, self.folder = recipe, Path(folder)
        self._loaded: tuple[Any, Any] | None = None
        self._own: CharDistribution | None = None
        settings = recipe.model_dump(mode="json")
        stored = self._read("recipe.json")
        if stored is not None and stored != settings:
            changed = [name for name in settings if stored.get(name) != settings[name]]
            raise FadaError(
                f"{self.folder}: holds a run with other settings ({', '.join(changed)}). "
                "Choose another folder, or delete it."
            )
        write_json(self.folder / "recipe.json", settings)

    def run(self) -> dict[str, Any]:
        """Run what is missing, then write and return the summary."""
        cells = list(self._cells())
        for cell in track(cells, "lipograms"):
            if self._read(cell["file"]) is None:
                self._run_cell(cell)
        return self.summarise()

    def _read(self, name: str) -> Any:
        path = self.folder / name
        if not path.is_file():
            return None
        return json.loads(path.read_text(encoding="utf-8"))

    def _cells(self) -> Iterator[dict[str, Any]]:
        for search in self.recipe.searches:
            for run in search.runs:
                for variant in self.recipe.variants:
                    for letter in self.recipe.letters:
                        name = f"stories/{search.name}-{run}-{letter}-{variant.replace('+', '-')}.json"
                        yield {"file": name, "search": search, "seed": run, "letter": letter, "variant": variant} | {
                            "kind": "mode"
                        }
        first = self.recipe.searches[0]
        for run in first.runs:
            shared = {"search": first, "seed": run, "letter": UNUSUAL}
            if self.recipe.rates or self.recipe.author:
                yield {"file": f"stories/usual-{run}.json", "variant": "plain", "kind": "usual", **shared}
            for letter, factors in self.recipe.rates.items():
                for factor in factors:
                    name = f"stories/rate-{run}-{letter}-{factor:g}.json"
                    rate = {"rated": letter, "factor": factor}
                    yield {"file": name, "variant": "soft", "kind": "rate", **rate, **shared}
            if self.recipe.author:
                yield {"file": f"stories/author-{run}.json", "variant": "soft", "kind": "author", **shared}

    def writer(self, search: Search, **changes: Any) -> LipogramWriter:
        """A writer with the recipe's settings; the model is loaded once."""
        r = self.recipe
        if self._loaded is None:
            log.info("loading %s", r.model)
            self._loaded = load_language_model(r.model)
        settings: dict[str, Any] = {
            "lam": r.lam,
            "scale": r.scale,
            "warmup": r.warmup,
            "max_new_tokens": r.max_new_tokens,
            "min_new_tokens": r.min_new_tokens,
            "style": r.style,
            **search.model_dump(exclude={"seeds"}),
        }
        return LipogramWriter(*self._loaded, **(settings | changes))

    def own(self) -> CharDistribution:
        """The model's own distribution, from plain stories about the development topics."""
        if self._own is None:
            stored = self._read("own.json")
            if stored is None:
                stories, _ = self._write(self.writer(self.recipe.searches[0]), DEVELOPMENT_TOPICS, UNUSUAL, "plain")
                own = CharDistribution.from_texts(story.text for story in stories)
                stored = {"counts": dict(zip(own.symbols, own.counts.tolist(), strict=True))}
                write_json(self.folder / "own.json", stored)
            symbols = tuple(stored["counts"])
            self._own = CharDistribution(symbols, list(stored["counts"].values()))  # type: ignore[arg-type]
        return self._own

    def author(self) -> CharDistribution:
        """The letters of the author's text."""
        return CharDistribution.from_texts([self.recipe.author], TextNormalizer(letters_only=True))

    def scale(self, letter: str) -> float:
        """The scale of soft guidance: given, or the largest whose cost on the development topics stays in bounds."""
        return float(self.tune()["chosen"][letter]) if self.recipe.tuned_scales else self.recipe.scale

    def tune(self) -> dict[str, Any]:
        """The expected effect of each scale along plain stories about the development topics, and the choice."""
        stored = self._read("tuning.json")
        if stored is not None:
            return stored
        writer = self.writer(self.recipe.searches[0])
        tuning: dict[str, Any] = {"chosen": {}, "rows": []}
        for letter in self.recipe.letters:
            forbidden = forbidden_characters(letter)
            stories, _ = self._write(writer, DEVELOPMENT_TOPICS, letter, "plain")
            rows = expected_effects(writer, stories, forbidden, sorted(self.recipe.tuned_scales))
            fitting = [row for row in rows if row["perplexity"] <= self.recipe.tuned_perplexity]
            chosen = (fitting or rows)[-1 if fitting else 0]
            tuning["chosen"][letter] = chosen["scale"]
            tuning["rows"] += [{"letter": letter, **row} for row in rows]
            log.info(
                f"tuning: {letter}, scale {chosen['scale']:g}: tokens with it {chosen['tokens']:+.0f} %, "
                f"perplexity x {chosen['perplexity']:.3f}"
            )
        write_json(self.folder / "tuning.json", tuning)
        return tuning

    def _write(
        self,
        writer: LipogramWriter,
        topics: Sequence[str],
        letter: str,
        mode: Mode,
        target: CharDistribution | None = None,
        seed: int = 0,
        named: str | None = None,
    ) -> tuple[list[Story], dict[str, float]]:
        stories: list[Story] = []
        seconds = guidance = 0.0
        size = self.recipe.batch_size
        for start in range(0, len(topics), size):
            batch = topics[start : start + size]
            forbidden = forbidden_characters(letter)
            written, timing = writer.write(batch, forbidden, mode, target, seed + 1000 * start, named)
            stories += written
            seconds += timing.seconds
            guidance += timing.guidance_seconds
        return stories, {"seconds": seconds, "guidance_seconds": guidance}

    def _guidance(self, cell: Mapping[str, Any]) -> tuple[CharDistribution | None, dict[str, float]]:
        """Target and weights of a cell; without target, the writer takes the one of its mode."""
        letter, recipe = cell["letter"], self.recipe
        if cell["kind"] == "rate":
            return focused_target({cell["rated"]: self._requested(cell)}), {"scale": recipe.rate_scale}
        if cell["kind"] == "author":
            return self.author(), {"scale": recipe.author_scale}
        if cell["variant"] == "paper":
            return lipogram_target(self.own(), letter), {"scale": 1.0, "warmup": 0.0}
        if cell["variant"] == "soft":
            return None, {"scale": self.scale(letter)}
        if cell["variant"] == "soft+hard":
            # The mask keeps the forbidden letters at zero; what is left to guide is the usual use of the others.
            return lipogram_target(self.own(), letter), {"scale": recipe.both_scale}
        return None, {}

    def _requested(self, cell: Mapping[str, Any]) -> float:
        return float(cell["factor"] * self.own().frequency(cell["rated"]))

    def _run_cell(self, cell: Mapping[str, Any]) -> None:
        variant, letter = cell["variant"], cell["letter"]
        target, changes = self._guidance(cell)
        mode: Mode = "soft" if variant == "paper" else variant
        writer = self.writer(cell["search"], **changes)
        begun = time.strftime("%Y-%m-%dT%H:%M:%S")
        stories, timing = self._write(writer, self.recipe.topics, letter, mode, target, cell["seed"], letter)
        record: dict[str, Any] = {
            "search": cell["search"].name,
            "seed": cell["seed"],
            "letter": letter,
            "variant": variant,
            "lam": writer.lam if "soft" in mode else 1.0,
            "scale": writer.scale or 0.0 if "soft" in mode else 0.0,
            "metrics": measure(stories, forbidden_characters(letter)),
            **timing,
            "begun": begun,
            "stories": [vars(story) for story in stories],
        }
        if cell["kind"] != "mode":
            text = "\n".join(story.text for story in stories)
            used = CharDistribution.from_texts([text])
            record["frequencies"] = {letter: used.frequency(letter) for letter in self.recipe.rates}
            if self.recipe.author:
                record["author_distance"] = Guidance(self.author(), distance="aligned_w2").distance_of(text)
        write_json(self.folder / cell["file"], record)

    def _rates(self, done: Sequence[tuple[Mapping[str, Any], Mapping[str, Any]]]) -> list[dict[str, Any]]:
        """Requested and realised frequencies; the first row of a letter is the unguided model's."""
        rows = []
        for letter, factors in self.recipe.rates.items():
            for factor in (None, *factors):
                found = [
                    (c, r)
                    for c, r in done
                    if (
                        c["kind"] == "usual"
                        if factor is None
                        else (c.get("rated"), c.get("factor")) == (letter, factor)
                    )
                ]
                if found:
                    row: dict[str, Any] = {"letter": letter, "factor": factor}
                    row["requested"] = None if factor is None else self._requested(found[0][0])
                    row["realised"] = _mean([r["frequencies"][letter] for _, r in found])
                    row["perplexity"] = _mean([r["metrics"]["perplexity"] for _, r in found])
                    rows.append(row)
        return rows

    def _author(self, done: Sequence[tuple[Mapping[str, Any], Mapping[str, Any]]]) -> list[dict[str, Any]]:
        """Distance from the author's letters without and with guidance."""
        rows = []
        for kind in ("usual", "author") if self.recipe.author else ():
            found = [r for c, r in done if c["kind"] == kind]
            if found:
                row: dict[str, Any] = {"mode": "plain" if kind == "usual" else "soft"}
                row["distance"] = _mean([r["author_distance"] for r in found])
                row["perplexity"] = _mean([r["metrics"]["perplexity"] for r in found])
                rows.append(row)
        return rows

    def summarise(self) -> dict[str, Any]:
        """Means over seeds with standard errors, from the cells that are done; writes summary.json and table.md."""
        done = [(cell, record) for cell in self._cells() if (record := self._read(cell["file"])) is not None]
        rows = []
        for search in self.recipe.searches:
            for letter in (*self.recipe.letters, "all"):
                for variant in self.recipe.variants:
                    records = [
                        r
                        for c, r in done
                        if c["search"] == search and c["variant"] == variant and c["kind"] == "mode"
                        if letter in ("all", c["letter"])
                    ]
                    if not records:
                        continue
                    row = {"search": search.name, "letter": letter, "variant": variant, **_averaged(records)}
                    for other in ("plain", "hard"):
                        matching = [
                            r
                            for c, r in done
                            if c["search"] == search and c["variant"] == other and c["kind"] == "mode"
                            if (r["letter"], r["seed"]) in {(x["letter"], x["seed"]) for x in records}
                        ]
                        if variant != other and len(matching) == len(records):
                            row[f"against_{other}"] = compared(records, matching)
                    rows.append(row)
        summary = {
            "fada": __version__,
            "machine": {
                "system": platform.system(),
                "processor": platform.machine(),
                "python": platform.python_version(),
            },
            "recipe": self.recipe.model_dump(mode="json"),
            "tuning": self._read("tuning.json"),
            "cells": {"done": len(done), "planned": len(list(self._cells()))},
            "rows": rows,
            "rates": self._rates(done),
            "author": self._author(done),
        }
        write_json(self.folder / "summary.json", summary)
        write_text(self.folder / "table.md", markdown(summary))
        return summary


def _sums(records: Sequence[Mapping[str, Any]]) -> np.ndarray:
    """(topics, 4) violating words, words, log-probability and tokens of each topic, over letters and seeds."""
    sums: dict[str, np.ndarray] = {}
    for record in records:
        forbidden = forbidden_characters(record["letter"])
        for story in record["stories"]:
            broken, words = len(violating_words(story["text"], forbidden)), len(words_of(story["text"]))
            figures = np.array([broken, words, story["log_prob"], story["tokens"]], float)
            sums[story["topic"]] = sums.get(story["topic"], 0.0) + figures
    return np.stack([sums[topic] for topic in sorted(sums)])


def compared(
    records: Sequence[Mapping[str, Any]], others: Sequence[Mapping[str, Any]], draws: int = 2000
) -> dict[str, float]:
    """How the stories of some cells differ from those of others about the same topics.

    ``words``: relative change of the share of violating words, in percent; ``perplexity``: ratio; both with standard
    errors (``_se``) from drawing the topics anew (bootstrap), since the stories about one topic are not independent.
    """
    both = np.stack([_sums(records), _sums(others)])
    chosen = np.random.default_rng(0).integers(both.shape[1], size=(draws, both.shape[1]))

    def figures(sums: np.ndarray) -> np.ndarray:
        share = sums[..., 0] / np.maximum(sums[..., 1], 1)
        loss = -sums[..., 2] / np.maximum(sums[..., 3], 1)
        change = 100 * (share[0] / np.where(share[1] > 0, share[1], np.nan) - 1)
        return np.stack([change, np.exp(loss[0] - loss[1])])

    (words, perplexity), errors = figures(both.sum(1)), figures(both[:, chosen].sum(2)).std(1)
    found = {"words": words, "words_se": errors[0], "perplexity": perplexity, "perplexity_se": errors[1]}
    return {name: float(value) for name, value in found.items() if np.isfinite(value)}


def _mean(values: Sequence[float]) -> dict[str, float | None]:
    """Mean and its standard error."""
    return {"mean": fmean(values), "sem": sem(values)}


def _averaged(records: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Metrics averaged over letters within a seed, then over seeds, with the standard error over seeds."""
    seeds = sorted({record["seed"] for record in records})
    row: dict[str, Any] = {"runs": len(seeds)}
    for name in METRICS:
        values = [fmean(r["metrics"][name] for r in records if r["seed"] == seed) for seed in seeds]
        row[name] = fmean(values)
        row[f"{name}_sem"] = sem(values)
    seconds = sum(record["seconds"] for record in records)
    row["overhead"] = 100 * sum(r["guidance_seconds"] for r in records) / (seconds or 1.0)
    return row


_COLUMNS = {
    "letter": "letter",
    "variant": "mode",
    "outputs": "outputs violating %",
    "words": "words violating %",
    "perplexity": "perplexity",
    "flesch": "Flesch",
    "distinct_2": "distinct-2 %",
    "repetition": "repetition %",
    "unknown": "unknown words %",
    "length": "words",
    "complete": "ends with a sentence %",
    "overhead": "guidance, % of time",
}


def markdown(summary: Mapping[str, Any]) -> str:
    """The tables of a summary as Markdown."""
    parts = []
    for search in dict.fromkeys(row["search"] for row in summary["rows"]):
        parts.append(f"### {_search_title(search, summary)}\n")
        parts.append("| " + " | ".join(_COLUMNS.values()) + " |")
        parts.append("|" + "---|" * len(_COLUMNS))
        for row in summary["rows"]:
            if row["search"] == search:
                parts.append("| " + " | ".join(_cell(row, column) for column in _COLUMNS) + " |")
        parts.append("")
        parts += _comparisons([row for row in summary["rows"] if row["search"] == search])
    if summary["rates"]:
        parts += [
            "### Rates: requested and realised frequency\n",
            "| letter | of the usual | requested % | realised % | perplexity |",
            "|---|---|---|---|---|",
        ]
        for row in summary["rates"]:
            wanted = "| |" if row["factor"] is None else f"{row['factor']:g} | {100 * row['requested']:.2f} |"
            parts.append(f"| {row['letter']} | {wanted} {_pm(row['realised'], 100)} | {_pm(row['perplexity'])} |")
        parts.append("")
    if summary["author"]:
        parts += [
            "### An author's letters: aligned W2 distance from them\n",
            "| mode | distance x 1000 | perplexity |",
            "|---|---|---|",
        ]
        for row in summary["author"]:
            parts.append(f"| {row['mode']} | {_pm(row['distance'], 1000)} | {_pm(row['perplexity'])} |")
        parts.append("")
    return "\n".join(parts)


def _pm(figure: Mapping[str, float], factor: float = 1) -> str:
    return f"{factor * figure['mean']:.2f}" + (f" ± {factor * figure['sem']:.2f}" if figure["sem"] else "")


def _comparisons(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """Changes against the plain mode, and of the masked modes against the mask alone."""
    lines = []
    for row in rows:
        for other in ("plain", "hard"):
            if (figures := row.get(f"against_{other}")) is None or (other == "hard" and "hard" not in row["variant"]):
                continue
            words = f"{figures['words']:+.1f} ± {figures['words_se']:.1f}" if "words" in figures else ""
            perplexity = f"{figures['perplexity']:.3f} ± {figures['perplexity_se']:.3f}"
            lines.append(f"| {row['letter']} | {row['variant']} | {other} | {words} | {perplexity} |")
    if not lines:
        return []
    head = ["| letter | mode | against | violating words, relative % | perplexity, ratio |", "|---|---|---|---|---|"]
    return ["Standard errors over topics:\n", *head, *lines, ""]


def _search_title(name: str, summary: Mapping[str, Any]) -> str:
    runs = max(row["runs"] for row in summary["rows"] if row["search"] == name)
    if name == "sample":
        return f"Sampling, {runs} seed{'s' if runs > 1 else ''}"
    return f"Beam search, {re.sub('[a-z]', '', name)} beams"


def _cell(row: Mapping[str, Any], column: str) -> str:
    value = row[column]
    if isinstance(value, str):
        return value
    digits = 2 if column == "perplexity" else 1
    error = row.get(f"{column}_sem", 0.0)
    return f"{value:.{digits}f}" + (f" ± {error:.{digits}f}" if row["runs"] > 1 and error else "")
