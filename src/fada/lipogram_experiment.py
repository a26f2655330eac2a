"""The lipogram experiment: all modes, letters and seeds on the same topics; resumable, with tables."""

import json
import os
import platform
import re
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from statistics import fmean, stdev
from typing import Any, Literal

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError

import fada
from fada.errors import FadaError
from fada.files import write_json, write_text
from fada.lipogram import (
    DEVELOPMENT_TOPICS,
    TOPICS,
    LipogramWriter,
    Mode,
    Story,
    Style,
    focused_target,
    forbidden_characters,
    lipogram_target,
    load_language_model,
    measure,
)
from fada.progress import console, track
from fada.targets import CharDistribution

Variant = Literal["plain", "paper", "soft", "hard", "soft+hard"]
"""A mode, or ``paper``: soft guidance with the whole distribution as target, scale 1 and no warm-up, as printed."""

METRICS = ("outputs", "words", "perplexity", "flesch", "distinct_1", "distinct_2", "repetition", "length", "complete")


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
    scale: float = Field(100.0, ge=0)
    warmup: float = Field(100.0, ge=0)
    tuned_scales: tuple[float, ...] = ()
    tuned_perplexity: float = Field(1.03, gt=1)
    both_scale: float = Field(20.0, ge=0)
    rates: dict[str, tuple[float, ...]] = {}
    rate_scale: float = Field(400.0, ge=0)
    max_new_tokens: int = Field(120, ge=1)
    min_new_tokens: int = Field(40, ge=1)
    batch_size: int = Field(10, ge=1)
    style: Style = "json"

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> "LipogramRecipe":
        """Read a YAML recipe."""
        try:
            settings = yaml.safe_load(Path(path).read_text(encoding="utf-8"))
        except FileNotFoundError:
            raise FadaError(f"{path}: no such recipe.") from None
        except yaml.YAMLError as error:
            raise FadaError(f"{path}: not YAML ({str(error).splitlines()[0]}).") from None
        try:
            return cls.model_validate(settings or {})
        except ValidationError as error:
            first = error.errors()[0]
            raise FadaError(f"{path}, {'.'.join(map(str, first['loc']))}: {first['msg']}.") from None

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
        self._scale: float | None = None
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
                        yield {"file": name, "search": search, "seed": run, "letter": letter, "variant": variant}
        first = self.recipe.searches[0]
        for letter, factors in self.recipe.rates.items():
            for factor in factors:
                name = f"stories/rate-{letter}-{factor:g}.json"
                seed = first.runs[0]
                yield {
                    "file": name,
                    "search": first,
                    "seed": seed,
                    "letter": letter,
                    "variant": "soft",
                    "factor": factor,
                }

    def writer(self, search: Search, **changes: Any) -> LipogramWriter:
        """A writer with the recipe's settings; the model is loaded once."""
        r = self.recipe
        if self._loaded is None:
            console.print(f"loading {r.model}")
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
                stories, _ = self._write(self.writer(self.recipe.searches[0]), DEVELOPMENT_TOPICS, "z", "plain")
                own = CharDistribution.from_texts(story.text for story in stories)
                stored = {"counts": dict(zip(own.symbols, own.counts.tolist(), strict=True))}
                write_json(self.folder / "own.json", stored)
            symbols = tuple(stored["counts"])
            self._own = CharDistribution(symbols, list(stored["counts"].values()))  # type: ignore[arg-type]
        return self._own

    def scale(self) -> float:
        """The scale of the soft modes: given, or the largest whose perplexity on development topics stays in bounds."""
        if self._scale is None:
            tuning = self.tune() if self.recipe.tuned_scales else {"chosen": self.recipe.scale}
            self._scale = float(tuning["chosen"])
        return self._scale

    def tune(self) -> dict[str, Any]:
        """Plain and soft stories about the development topics for each scale: violation, perplexity, the choice."""
        stored = self._read("tuning.json")
        if stored is not None:
            return stored
        search = self.recipe.searches[0]
        rows = []
        for scale in (0.0, *self.recipe.tuned_scales):
            figures = []
            writer = self.writer(search, scale=scale)
            mode: Mode = "soft" if scale else "plain"
            for letter in self.recipe.letters:
                for run in search.runs:
                    stories, _ = self._write(writer, DEVELOPMENT_TOPICS, letter, mode, seed=run)
                    figures.append(measure(stories, forbidden_characters(letter)))
            row = {"scale": scale, **{k: fmean(f[k] for f in figures) for k in ("outputs", "words", "perplexity")}}
            rows.append(row)
            console.print(f"tuning: scale {scale:g}, words {row['words']:.1f} %, perplexity {row['perplexity']:.2f}")
        limit = self.recipe.tuned_perplexity * rows[0]["perplexity"]
        fitting = [row["scale"] for row in rows if row["perplexity"] <= limit and row["scale"]]
        tuning = {"rows": rows, "chosen": max(fitting, default=min(self.recipe.tuned_scales))}
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
    ) -> tuple[list[Story], dict[str, float]]:
        stories: list[Story] = []
        seconds = guidance = 0.0
        size = self.recipe.batch_size
        for start in range(0, len(topics), size):
            batch = topics[start : start + size]
            written, timing = writer.write(batch, forbidden_characters(letter), mode, target, seed + 1000 * start)
            stories += written
            seconds += timing.seconds
            guidance += timing.guidance_seconds
        return stories, {"seconds": seconds, "guidance_seconds": guidance}

    def _run_cell(self, cell: Mapping[str, Any]) -> None:
        variant, letter, search = cell["variant"], cell["letter"], cell["search"]
        target, changes = None, {}
        requested = None
        if "factor" in cell:
            requested = cell["factor"] * self.own().frequency(letter)
            target, changes = focused_target({letter: requested}), {"scale": self.recipe.rate_scale}
        elif variant == "paper":
            target, changes = lipogram_target(self.own(), letter), {"scale": 1.0, "warmup": 0.0}
        elif variant == "soft":
            changes = {"scale": self.scale()}
        elif variant == "soft+hard":
            # The mask keeps the forbidden letters at zero; what is left to guide is the usual use of the others.
            target, changes = lipogram_target(self.own(), letter), {"scale": self.recipe.both_scale}
        mode: Mode = "soft" if variant == "paper" else variant
        writer = self.writer(search, **changes)
        begun = time.strftime("%Y-%m-%dT%H:%M:%S")
        stories, timing = self._write(writer, self.recipe.topics, letter, mode, target, cell["seed"])
        record: dict[str, Any] = {
            "search": search.name,
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
        if requested is not None:
            counts = CharDistribution.from_texts(story.text for story in stories)
            record |= {"factor": cell["factor"], "requested": requested, "realised": counts.frequency(letter)}
        write_json(self.folder / cell["file"], record)

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
                        if c["search"] == search and c["variant"] == variant and "factor" not in c
                        if letter in ("all", c["letter"])
                    ]
                    if records:
                        rows.append({"search": search.name, "letter": letter, "variant": variant, **_averaged(records)})
        rates = [
            {k: r[k] for k in ("letter", "factor", "requested", "realised")}
            | {"perplexity": r["metrics"]["perplexity"]}
            for c, r in done
            if "factor" in c
        ]
        summary = {
            "fada": fada.__version__,
            "machine": {
                "system": platform.system(),
                "processor": platform.machine(),
                "python": platform.python_version(),
            },
            "recipe": self.recipe.model_dump(mode="json"),
            "scale": self._scale if self._scale is not None else (self._read("tuning.json") or {}).get("chosen"),
            "tuning": self._read("tuning.json"),
            "cells": {"done": len(done), "planned": len(list(self._cells()))},
            "rows": rows,
            "rates": rates,
        }
        write_json(self.folder / "summary.json", summary)
        write_text(self.folder / "table.md", markdown(summary))
        return summary


def _averaged(records: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Metrics averaged over letters within a seed, then over seeds, with the standard error over seeds."""
    seeds = sorted({record["seed"] for record in records})
    row: dict[str, Any] = {"runs": len(seeds)}
    for name in METRICS:
        values = [fmean(r["metrics"][name] for r in records if r["seed"] == seed) for seed in seeds]
        row[name] = fmean(values)
        row[f"{name}_sem"] = stdev(values) / len(values) ** 0.5 if len(values) > 1 else 0.0
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
    if summary["rates"]:
        parts += [
            "### Rates: requested and realised frequency\n",
            "| letter | of the usual | requested % | realised % | perplexity |",
        ]
        parts.append("|---|---|---|---|---|")
        for row in summary["rates"]:
            figures = f"{100 * row['requested']:.2f} | {100 * row['realised']:.2f} | {row['perplexity']:.2f}"
            parts.append(f"| {row['letter']} | {row['factor']:g} | {figures} |")
        parts.append("")
    return "\n".join(parts)


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
