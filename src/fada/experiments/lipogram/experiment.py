"""The lipogram experiment: all modes, letters and seeds on the same topics; resumable, with tables."""

import logging
import math
import os
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

import numpy as np
from pydantic import BaseModel, Field

from fada.common.files import write_json, write_text
from fada.common.say import track
from fada.common.settings import read_json, read_recipe, validated
from fada.decoding.guidance import Guidance
from fada.errors import FadaError
from fada.experiments.lipogram.effects import Tuning, expected_effects
from fada.experiments.lipogram.story import DEVELOPMENT_TOPICS, TOPICS, Story, forbidden_characters, measure
from fada.experiments.lipogram.summary import Change, Rate, Row, Summary, Written, author_rows, compared
from fada.experiments.lipogram.writer import (
    WARMUP,
    LipogramWriter,
    Manner,
    Mode,
    Style,
    Timing,
    focused_target,
    lipogram_target,
)
from fada.models.language import load_language_model
from fada.targets.distribution import CharDistribution
from fada.text.normalizer import TextNormalizer

log = logging.getLogger(__name__)

Variant = Literal["plain", "paper", "eq2", "soft", "hard", "soft+hard"]
"""A mode, or soft guidance with the whole distribution as target, scale 1 and no warm-up: ``eq2`` with the sorted
distance of Eq. 1 to the letter, ``paper`` with the one that knows which letter is meant."""

_AGAIN = "Delete it, and it is made again."
UNUSUAL = "z"
"""The letter that the prompt names where none is to be avoided: for usual texts, rates and authors."""


class Search(BaseModel, extra="forbid", frozen=True):
    """How texts are found: sampling (one run for each seed) or beam search (no seed)."""

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


class LipogramRecipe(BaseModel, extra="forbid", frozen=True):
    """The settings of the experiment; unknown keys are refused."""

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
        return validated(cls, read_recipe(path), path)

    def quick(self) -> "LipogramRecipe":
        """A version for trying out: three topics, short stories, one seed."""
        searches = tuple(search.model_copy(update={"seeds": search.seeds[:1]}) for search in self.searches)
        changes = {"topics": self.topics[:3], "searches": searches, "max_new_tokens": 30, "min_new_tokens": 10}
        return self.model_copy(update=changes)


class _Own(BaseModel):
    counts: dict[str, float]


@dataclass(frozen=True)
class Cell:
    """One file of stories: a search, a seed, a letter and a variant, or a rate or an author to follow."""

    file: str
    search: Search
    seed: int
    letter: str
    variant: Variant
    kind: Literal["mode", "usual", "rate", "author"] = "mode"
    rated: str = ""
    factor: float = 1.0


class Experiment:
    """Runs a recipe in a folder; every finished cell (search, letter, variant, seed) is a file and not done again.

    The folder holds ``stories/*.json`` (the texts of each cell with their figures), ``own.json`` (the model's own
    distribution), ``tuning.json``, ``summary.json`` and ``table.md``. Variants may be added to a finished run; any
    other change of the recipe needs another folder.

    Args:
        recipe: the settings.
        folder: where everything is written.
        model: where the recipe's model lies, if it is not found by its name.
    """

    def __init__(
        self, recipe: LipogramRecipe, folder: str | os.PathLike[str], model: str | os.PathLike[str] | None = None
    ):
        self.recipe, self.folder, self.model = recipe, Path(folder), os.fspath(model or recipe.model)
        settings = recipe.model_dump(mode="json")
        stored = self._read("recipe.json")
        if stored is not None:
            changed = [name for name in settings if name != "variants" and stored.get(name) != settings[name]]
            if changed:
                raise FadaError(
                    f"{self.folder}: holds a run with other settings ({', '.join(changed)}). "
                    "Choose another folder, or delete it."
                )

    def run(self) -> Summary:
        """Run what is missing, then write and return the summary."""
        settings = self.recipe.model_dump(mode="json")
        if self._read("recipe.json") != settings:
            write_json(self.folder / "recipe.json", settings)
        for cell in track(list(self._cells()), "lipograms"):
            if not (self.folder / cell.file).is_file():
                self._run_cell(cell)
        return self.summarise()

    def _read(self, name: str) -> Any:
        path = self.folder / name
        stored = read_json(path, _AGAIN) if path.is_file() else None
        if stored is not None and not isinstance(stored, dict):
            raise FadaError(f"{path}: expected a JSON object. {_AGAIN}")
        return stored

    def _cells(self) -> Iterator[Cell]:
        for search in self.recipe.searches:
            for seed in search.runs:
                for variant in self.recipe.variants:
                    for letter in self.recipe.letters:
                        name = f"stories/{search.name}-{seed}-{letter}-{variant.replace('+', '-')}.json"
                        yield Cell(name, search, seed, letter, variant)
        first = self.recipe.searches[0]
        for seed in first.runs:
            if self.recipe.rates or self.recipe.author:
                yield Cell(f"stories/usual-{seed}.json", first, seed, UNUSUAL, "plain", "usual")
            for letter, factors in self.recipe.rates.items():
                for factor in factors:
                    name = f"stories/rate-{seed}-{letter}-{factor:g}.json"
                    yield Cell(name, first, seed, UNUSUAL, "soft", "rate", letter, factor)
            if self.recipe.author:
                yield Cell(f"stories/author-{seed}.json", first, seed, UNUSUAL, "soft", "author")

    def manner(self, search: Search) -> Manner:
        """How a search of the recipe writes."""
        shared = {"lam", "scale", "warmup", "max_new_tokens", "min_new_tokens", "style"}
        return Manner(**self.recipe.model_dump(include=shared), **search.model_dump(exclude={"seeds"}))

    def writer(self, search: Search, manner: Manner | None = None) -> LipogramWriter:
        """A writer with the recipe's settings; the model is loaded once."""
        return LipogramWriter(*self._loaded, **vars(manner or self.manner(search)))

    @cached_property
    def _loaded(self) -> tuple[Any, Any]:
        log.info("loading %s", self.recipe.model)
        return load_language_model(self.model)

    @cached_property
    def own(self) -> CharDistribution:
        """The model's own distribution, from plain stories about the development topics."""
        stored = self._read("own.json")
        if stored is None:
            stories, _ = self._write(self.writer(self.recipe.searches[0]), DEVELOPMENT_TOPICS, UNUSUAL, "plain")
            own = CharDistribution.from_texts(story.text for story in stories)
            stored = {"counts": dict(zip(own.symbols, own.counts.tolist(), strict=True))}
            write_json(self.folder / "own.json", stored)
        counts = validated(_Own, stored, self.folder / "own.json").counts
        return CharDistribution(tuple(counts), np.array([*counts.values()]))

    @cached_property
    def author(self) -> CharDistribution:
        """The letters of the author's text."""
        return CharDistribution.from_texts([self.recipe.author], TextNormalizer(letters_only=True))

    def scale(self, letter: str) -> float:
        """The scale of soft guidance: given, or the largest whose cost on the development topics stays in bounds."""
        return self.tune().chosen[letter] if self.recipe.tuned_scales else self.recipe.scale

    def tune(self) -> Tuning:
        """The expected effect of each scale along plain stories about the development topics, and the choice."""
        if (stored := self._tuning()) is not None:
            return stored
        writer = self.writer(self.recipe.searches[0])
        tuning = Tuning()
        for letter in self.recipe.letters:
            stories, _ = self._write(writer, DEVELOPMENT_TOPICS, letter, "plain")
            rows = expected_effects(writer, stories, letter, sorted(self.recipe.tuned_scales))
            fitting = [row for row in rows if row.perplexity <= self.recipe.tuned_perplexity]
            chosen = (fitting or rows)[-1 if fitting else 0]
            tuning.chosen[letter] = chosen.scale
            tuning.rows.extend(rows)
            told = (letter, chosen.scale, chosen.tokens, chosen.perplexity)
            log.info("tuning: %s, scale %g: tokens with it %+.0f %%, perplexity x %.3f", *told)
        write_json(self.folder / "tuning.json", tuning.model_dump())
        return tuning

    def _tuning(self) -> Tuning | None:
        stored = self._read("tuning.json")
        return None if stored is None else validated(Tuning, stored, self.folder / "tuning.json")

    def _write(
        self,
        writer: LipogramWriter,
        topics: Sequence[str],
        letter: str,
        mode: Mode,
        target: CharDistribution | None = None,
        seed: int = 0,
        named: str | None = None,
    ) -> tuple[list[Story], Timing]:
        stories: list[Story] = []
        seconds = guidance = 0.0
        for start in range(0, len(topics), self.recipe.batch_size):
            batch = topics[start : start + self.recipe.batch_size]
            forbidden = forbidden_characters(letter)
            written, timing = writer.write(batch, forbidden, mode, target, seed + 1000 * start, named)
            stories += written
            seconds += timing.seconds
            guidance += timing.guidance_seconds
        return stories, Timing(seconds, guidance)

    def _guidance(self, cell: Cell) -> tuple[CharDistribution | None, Manner]:
        """Target and manner of a cell; without target, the writer takes the one of its mode."""
        manner = self.manner(cell.search)
        if cell.kind == "rate":
            return focused_target({cell.rated: self._requested(cell)}), replace(manner, scale=self.recipe.rate_scale)
        if cell.kind == "author":
            return self.author, replace(manner, scale=self.recipe.author_scale)
        if cell.variant in ("paper", "eq2"):
            distance = "sorted_w2" if cell.variant == "eq2" else "aligned_w2"
            return lipogram_target(self.own, cell.letter), replace(manner, scale=1.0, warmup=0.0, distance=distance)
        if cell.variant == "soft":
            return None, replace(manner, scale=self.scale(cell.letter))
        if cell.variant == "soft+hard":
            # The mask keeps the forbidden letters at zero; what is left to guide is the usual use of the others.
            return lipogram_target(self.own, cell.letter), replace(manner, scale=self.recipe.both_scale)
        return None, manner

    def _requested(self, cell: Cell) -> float:
        return float(cell.factor * self.own.frequency(cell.rated))

    def _run_cell(self, cell: Cell) -> None:
        target, manner = self._guidance(cell)
        mode: Mode = "soft" if cell.variant in ("paper", "eq2") else cell.variant  # type: ignore[assignment]
        writer = self.writer(cell.search, manner)
        begun = time.strftime("%Y-%m-%dT%H:%M:%S")
        stories, timing = self._write(writer, self.recipe.topics, cell.letter, mode, target, cell.seed, cell.letter)
        record = Written(
            search=cell.search.name,
            seed=cell.seed,
            letter=cell.letter,
            variant=cell.variant,
            lam=writer.manner.lam if "soft" in mode else 1.0,
            scale=writer.manner.scale or 0.0 if "soft" in mode else 0.0,
            metrics=measure(stories, forbidden_characters(cell.letter)),
            seconds=timing.seconds,
            guidance_seconds=timing.guidance_seconds,
            begun=begun,
            stories=stories,
        )
        if cell.kind != "mode":
            text = "\n".join(story.text for story in stories)
            used = CharDistribution.from_texts([text])
            record.frequencies = {letter: used.frequency(letter) for letter in self.recipe.rates}
            if self.recipe.author:
                record.author_distance = Guidance(self.author, distance="aligned_w2").distance_of(text)
        write_json(self.folder / cell.file, record.model_dump(exclude_unset=True))

    def _rates(self, done: Sequence[tuple[Cell, Written]]) -> list[Rate]:
        """Requested and realised frequencies; the first row of a letter is the unguided model's."""
        rows = []
        for letter, factors in self.recipe.rates.items():
            usual = [record for cell, record in done if cell.kind == "usual"]
            rows += [Rate.of(letter, usual)] if usual else []
            for factor in factors:
                found = [(c, r) for c, r in done if c.kind == "rate" and (c.rated, c.factor) == (letter, factor)]
                if found:
                    rows.append(Rate.of(letter, [r for _, r in found], factor, self._requested(found[0][0])))
        return rows

    def _rows(self, done: Sequence[tuple[Cell, Written]]) -> Iterator[Row]:
        """Means over seeds of every search, letter and variant, and over all letters."""
        for search in self.recipe.searches:
            modes = [(c.variant, r) for c, r in done if c.search == search and c.kind == "mode"]
            for letter in (*self.recipe.letters, "all"):
                here = [(variant, r) for variant, r in modes if letter in ("all", r.letter)]
                for variant in self.recipe.variants:
                    records = [r for other, r in here if other == variant]
                    if not records:
                        continue
                    against: dict[str, Change] = {}
                    places = {(r.letter, r.seed) for r in records}
                    for other in ("plain", "hard"):
                        matching = [r for name, r in here if name == other and (r.letter, r.seed) in places]
                        if variant != other and len(matching) == len(records):
                            against[other] = compared(records, matching)
                    yield Row.of(search.name, letter, variant, records, against)

    def differing(self) -> Iterator[str]:
        """Recompute every figure from the stored stories; one sentence for each that differs."""
        for cell in self._cells():
            if (path := self.folder / cell.file).is_file():
                record = Written.load(path)
                for figure, found in measure(record.stories, forbidden_characters(cell.letter)).items():
                    if not math.isclose(record.metrics[figure], found, abs_tol=1e-5):
                        yield f"{path}, {figure}: stored {record.metrics[figure]:g}, recomputed {found:g}."
        table = self.folder / "table.md"
        if not table.is_file() or table.read_text(encoding="utf-8") != self.summary().to_markdown():
            yield f"{table}: not what the stories come to."

    def summarise(self) -> Summary:
        """Write summary.json and table.md, and return the summary."""
        summary = self.summary()
        write_json(self.folder / "summary.json", summary.model_dump(mode="json"))
        write_text(self.folder / "table.md", summary.to_markdown())
        return summary

    def summary(self) -> Summary:
        """Means over seeds with standard errors, from the cells that are done."""
        done = [(cell, Written.load(path)) for cell in self._cells() if (path := self.folder / cell.file).is_file()]
        usual, guided = ([r for c, r in done if c.kind == kind] for kind in ("usual", "author"))
        return Summary(
            recipe=self.recipe.model_dump(mode="json"),
            tuning=self._tuning(),
            done=len(done),
            planned=len(list(self._cells())),
            rows=list(self._rows(done)),
            rates=self._rates(done),
            author=author_rows(usual, guided) if self.recipe.author else [],
        )
