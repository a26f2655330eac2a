"""The arena: every rung of the ladder on manuscripts that no weight, no text and no setting has seen.

Which ones: `recipes/unseen.yaml`. Whole pages of a manuscript are set aside for correcting; the other pages are the
test, the same lines for every rung. What each rung read of a manuscript is one file, `results/unseen/<manuscript>/
<rung>.json`, with the seed where lines were corrected, written at once; a file of another model is made anew.
"""

import hashlib
import logging
import os
import time
import unicodedata
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from itertools import groupby
from pathlib import Path

import numpy as np
import torch
from pydantic import BaseModel

from fada._version import __version__
from fada.common.files import write_json, write_text
from fada.common.say import track
from fada.common.settings import read_json, read_recipe, validated
from fada.common.workers import Processes, Workers
from fada.data.columns import LineColumns
from fada.data.line import Line
from fada.data.source import read_lines
from fada.decoding.evidence import Automatic
from fada.decoding.knowledge import knowledge_of_model
from fada.errors import FadaError
from fada.evaluation.predictions import Systems
from fada.evaluation.scores import Scoring
from fada.evaluation.significance import mean_sem
from fada.evaluation.systems import SystemsEvaluation, evaluate_systems
from fada.evaluation.table import markdown_table
from fada.experiments.division import divided, drawn, page_of
from fada.experiments.ladder import RUNGS, About, Ladder, Rung
from fada.experiments.worth import Rate
from fada.models.folders import DEFAULT_MODEL, resolve
from fada.models.registry import load_recognizer
from fada.training.adapt import RECORD, AdaptSettings, adapt

log = logging.getLogger(__name__)

NAME = "unseen"
LISTED = Path("recipes") / "unseen.yaml"
SPLITS = ("train", "validation", "test")
PAGE = "page"
RESAMPLES = 10_000
MOST = max(rung.corrected for rung in RUNGS)
PLAIN = RUNGS[0]
AS_READ = next(rung for rung in RUNGS if rung.name == "inferred-again")
"""What `fada transcribe` does without being told anything."""


class Manuscript(BaseModel, extra="ignore", frozen=True):
    """A manuscript that nothing has seen, as `recipes/unseen.yaml` lists it."""

    manuscript: str
    language: str
    century: int
    lines: int
    texts: tuple[str, ...] = ()

    @property
    def folder(self) -> str:
        """Its name in letters that every file system takes."""
        return unicodedata.normalize("NFKD", self.manuscript).encode("ascii", "ignore").decode()


class Learnt(BaseModel, extra="ignore"):
    """What an adaptation brought by its own measure: see :class:`fada.training.adapt.Adaptation`."""

    before: float
    after: float
    p_value: float
    kept: bool
    expected: dict[int, float]
    seconds: float


class Told(About):
    """What a rung found and used, with the adaptation it read with and the error rate that `fada worth` predicts."""

    adaptation: Learnt | None = None
    predicted: Rate | None = None


class Read(BaseModel, extra="forbid"):
    """What one rung read of the test lines of a manuscript; `about` tells what it found and used."""

    manuscript: str
    rung: str
    seed: int
    model: str
    ids: list[str]
    references: list[str] = []
    pages: list[str] = []
    texts: list[str]
    seconds: float
    about: Told
    fada_version: str = __version__


def listed(path: str | os.PathLike[str] = LISTED) -> list[Manuscript]:
    """The manuscripts of the arena."""
    found = read_recipe(path).get("arena")
    if not isinstance(found, list):
        raise FadaError(f"{path}: no list `arena`, expected the manuscripts to report on.")
    return [validated(Manuscript, one, path) for one in found]


def lines_of(manuscripts: Sequence[Manuscript], data: Path) -> dict[str, list[Line]]:
    """The lines of each manuscript, of all splits of `latin_script`, which `data` is or holds."""
    folder = data / "latin_script" if (data / "latin_script").is_dir() else data
    found: dict[str, list[Line]] = {one.manuscript: [] for one in manuscripts}
    for split in SPLITS:
        path = folder / f"{split}.parquet"
        if not path.is_file():
            raise FadaError(f"{path}: no such file, expected the lines of latin_script. Give their folder with --data.")
        for line in read_lines(path):
            if (name := str(line.extra.get("manuscript"))) in found:
                found[name].append(line)
    for one in manuscripts:
        if len(found[one.manuscript]) != one.lines:
            raise FadaError(f"{folder}: {len(found[one.manuscript])} lines of {one.manuscript}, expected {one.lines}.")
    return found


LEARNT = (".safetensors", ".json", ".parquet")
KNOWN = (".fada", ".npz")


def fingerprint(model: str, settings: AdaptSettings, suffixes: Sequence[str] = LEARNT + KNOWN) -> str:
    """Changes with the model's files of these kinds and with how it is adapted."""
    digest = hashlib.blake2b(settings.model_dump_json(exclude={"seed"}).encode(), digest_size=12)
    folder = Path(resolve(model))
    for path in sorted(folder.rglob("*")) if folder.is_dir() else ():
        if path.is_file() and path.suffix in suffixes:
            digest.update(path.relative_to(folder).as_posix().encode() + path.read_bytes())
    return digest.hexdigest()


@dataclass(frozen=True)
class Climb:
    """What is read of a manuscript in one go: the rungs with corrected lines of a seed, or (None) those without."""

    manuscript: Manuscript
    lines: Sequence[Line]
    seed: int | None


def _on_one_thread(climb: Callable[[Climb], None], item: Climb) -> None:
    """Beside others on this machine."""
    torch.set_num_threads(1)
    climb(item)


@dataclass(frozen=True)
class Arena:
    """Every rung on every manuscript, one file each.

    Attributes:
        data: the folder of `latin_script`, or the one it is in.
        results, runs: folders for what was read and for adapted models.
        model: which is read with.
        seeds: of the adaptation.
        only: these manuscripts; all if none is named.
        settings: of the adaptation.
        recipe: the file that lists the manuscripts.
        workers: who reads and adapts, and has the same disk.
    """

    data: Path
    results: Path = Path("results")
    runs: Path = Path("runs")
    model: str = DEFAULT_MODEL
    seeds: Sequence[int] = (0, 1, 2)
    only: Sequence[str] = ()
    settings: AdaptSettings = field(default_factory=AdaptSettings)
    recipe: Path = LISTED
    workers: Workers = field(default_factory=Processes)

    @cached_property
    def folder(self) -> Path:
        """Of the results."""
        return self.results / NAME

    @cached_property
    def _fingerprint(self) -> str:
        return fingerprint(self.model, self.settings)

    @cached_property
    def _adapted_models(self) -> Path:
        """Adapted models are kept: other knowledge needs no other ones."""
        return self.runs / NAME / fingerprint(self.model, self.settings, LEARNT)

    @cached_property
    def _known(self) -> Automatic:
        return Automatic(knowledge_of_model(resolve(self.model)))

    def run(self) -> Path:
        """Read what is not read yet, and write the table of all there is."""
        manuscripts = listed(self.recipe)
        if unknown := set(self.only) - {one.manuscript for one in manuscripts}:
            raise FadaError(f"{self.recipe}: no manuscript {min(unknown)!r} in the arena.")
        chosen = [one for one in manuscripts if not self.only or one.manuscript in self.only]
        lines = lines_of(chosen, self.data)
        todo = [
            Climb(one, lines[one.manuscript], seed)
            for one in chosen
            for seed in (None, *self.seeds)
            if self._missing(one, seed)
        ]
        climb = replace(self, workers=Processes())._climb  # of its own: nothing else goes to the workers
        done = self.workers.each(climb if self.workers == Processes() else partial(_on_one_thread, climb), todo)
        for _ in track(done, "manuscripts", total=len(todo)):
            pass
        write_text(self.folder / "table.md", table(self.folder, manuscripts, self._fingerprint))
        return self.folder

    def _missing(self, one: Manuscript, seed: int | None) -> list[Rung]:
        """Rungs that are not read yet: those with corrected lines of this seed, or those without."""
        rungs = [rung for rung in RUNGS if bool(rung.corrected) == (seed is not None)]
        return [rung for rung in rungs if not self._is_read(one, rung, seed or 0)]

    def _climb(self, climb: Climb) -> None:
        one, seed = climb.manuscript, climb.seed
        pool, test = divided(climb.lines, MOST)
        for count, missing in groupby(self._missing(one, seed), lambda rung: rung.corrected):
            if seed is None:
                self._read(one, list(missing), self.model, test)
            else:
                self._adapted(one, list(missing), drawn(pool, count, seed), test, seed)

    def _adapted(
        self, one: Manuscript, rungs: Sequence[Rung], corrected: Sequence[Line], test: Sequence[Line], seed: int
    ) -> None:
        work = self._adapted_models / one.folder / f"{len(corrected)}-{seed}"
        if not (work / RECORD).is_file():
            adapt(self.model, corrected, work, self.settings.model_copy(update={"seed": seed}))
        learnt = validated(Learnt, read_json(work / RECORD), work / RECORD)
        self._read(one, rungs, str(work), test, seed, learnt)

    def _read(
        self,
        one: Manuscript,
        rungs: Sequence[Rung],
        model: str,
        test: Sequence[Line],
        seed: int = 0,
        learnt: Learnt | None = None,
    ) -> None:
        """Read the test lines with one model by several rungs."""
        log.info("%s: %s", one.manuscript, ", ".join(rung.name for rung in rungs))
        ladder = Ladder(load_recognizer(model), test, self._known)
        for rung in rungs:
            started = time.monotonic()
            texts, told = ladder.read(rung, one.language)
            predicted = ladder.predicted(rung, one.language) if rung is AS_READ else None
            read = Read(
                manuscript=one.manuscript,
                rung=rung.name,
                seed=seed,
                model=self._fingerprint,
                ids=[line.id for line in test],
                references=[str(line.text) for line in test] if rung is PLAIN else [],
                pages=[page_of(line) for line in test] if rung is PLAIN else [],
                texts=texts,
                seconds=round(time.monotonic() - started, 2),
                about=Told(**dict(told), adaptation=learnt, predicted=predicted),
            )
            write_json(self._path(one, rung, seed), read.model_dump(exclude_defaults=True))

    def _path(self, one: Manuscript, rung: Rung, seed: int) -> Path:
        name = f"{rung.name}-{seed}" if rung.corrected else rung.name
        return self.folder / one.folder / f"{name}.json"

    def _is_read(self, one: Manuscript, rung: Rung, seed: int) -> bool:
        path = self._path(one, rung, seed)
        return path.is_file() and validated(Read, read_json(path), path).model == self._fingerprint


# --------------------------------------------------------------------------------------------------------- the tables


@dataclass(frozen=True)
class Found:
    """What was read of every manuscript that has all rungs without correcting, by rung and seed."""

    manuscripts: Sequence[Manuscript]
    reads: Mapping[tuple[str, str, int], Read]

    @classmethod
    def load(cls, folder: Path, manuscripts: Sequence[Manuscript], model: str) -> "Found":
        """Read the files that were made with the model of this fingerprint."""
        reads = {}
        for path in sorted(folder.glob("*/*.json")):
            read = validated(Read, read_json(path), path)
            if read.model == model:
                reads[read.manuscript, read.rung, read.seed] = read
        whole = [rung for rung in RUNGS if not rung.corrected]
        there = [one for one in manuscripts if all((one.manuscript, rung.name, 0) in reads for rung in whole)]
        if not there:
            raise FadaError(f"{folder}: no results of this model here. Make them with `fada reproduce {NAME}`.")
        return cls(there, reads)

    @property
    def seeds(self) -> list[int]:
        """Those that every adapted rung has for every manuscript."""
        adapted = [rung for rung in RUNGS if rung.corrected]
        all_seeds = sorted({seed for _, _, seed in self.reads})
        return [
            seed
            for seed in all_seeds
            if all((one.manuscript, rung.name, seed) in self.reads for one in self.manuscripts for rung in adapted)
        ]

    def rungs(self) -> list[Rung]:
        """Those that there is something to tell of."""
        return [rung for rung in RUNGS if not rung.corrected or self.seeds]

    def systems(self, seed: int) -> Systems:
        """All test lines, and what every rung read; the domain of a line is its manuscript."""
        plain = [(one, self.reads[one.manuscript, PLAIN.name, 0]) for one in self.manuscripts]
        lines = LineColumns(
            [f"{one.manuscript}/{line}" for one, read in plain for line in read.ids],
            [text for _, read in plain for text in read.references],
            [one.manuscript for one, read in plain for _ in read.ids],
            {
                PAGE: [f"{one.manuscript}/{page}" for one, read in plain for page in read.pages],
                "language": [one.language for one, read in plain for _ in read.ids],
            },
        )
        texts = {
            rung.name: [
                text
                for one in self.manuscripts
                for text in self.reads[one.manuscript, rung.name, seed if rung.corrected else 0].texts
            ]
            for rung in self.rungs()
        }
        return Systems(lines, texts, source=NAME)


def table(folder: Path, manuscripts: Sequence[Manuscript], model: str) -> str:
    """The tables in Markdown, of all that is read with the model of this fingerprint."""
    found = Found.load(folder, manuscripts, model)
    seeds = found.seeds or [0]
    read, scoring = [found.systems(seed) for seed in seeds], Scoring(bootstrap=0, resamples=RESAMPLES)
    by_line = [evaluate_systems(one, PLAIN.name, scoring) for one in read]
    by_page = [evaluate_systems(one, PLAIN.name, scoring, clusters=PAGE, groups=["language"]) for one in read]
    systems = read[0]
    pages = len(set(systems.column(PAGE)))
    parts = [
        f"{len(found.manuscripts)} manuscripts, {len(systems.ids)} test lines on {pages} pages, none of which, nor any "
        "other page of these manuscripts, was in a training, in a text or in the choice of a weight. Corrected lines "
        f"are of other pages than the test. Seeds of the adaptation: {', '.join(map(str, seeds))}. CER in percent: of "
        "all lines, and the mean over manuscripts; the change is the mean over manuscripts of each one's own, against "
        "its plain reading. p: paired randomisation by page, of all lines together.",
        "",
        *_rungs_table(found, by_page),
        *_manuscripts_table(found, by_line),
        *_languages_table(found, by_page),
        *_inferred_table(found),
        *_predicted_table(found, by_line[0]),
    ]
    return "\n".join(parts).rstrip() + "\n"


def _changes(found: Found, evaluations: Sequence[SystemsEvaluation], rung: Rung) -> dict[str, float]:
    """Percent by which a rung changes the CER of each manuscript, mean over seeds."""
    changes = {}
    for name in (one.manuscript for one in found.manuscripts):
        rates = [[e.evaluations[r.name].per_domain[name].cer for r in (PLAIN, rung)] for e in evaluations]
        changes[name] = float(np.mean([100 * (cer / plain - 1) for plain, cer in rates if plain]))
    return changes


def _rungs_table(found: Found, evaluations: Sequence[SystemsEvaluation]) -> Iterator[str]:
    rows = []
    for rung in found.rungs():
        of_rung = [e.evaluations[rung.name] for e in evaluations]
        of_rung = of_rung if rung.corrected else of_rung[:1]
        row = [rung.title, str(mean_sem([e.cer for e in of_rung]))]
        row.append(f"{np.mean([[s.cer for s in e.per_domain.values()] for e in of_rung]):.2f}")
        if rung is not PLAIN:
            changes = _changes(found, evaluations, rung)
            tests = [e.comparisons[rung.name].overall["cer"].p for e in evaluations[: len(of_rung)]]
            worse = [change for change in changes.values() if change > 0]
            row += [f"{np.mean(list(changes.values())):+.1f} %", f"{max(tests):.4f}"]
            row += [f"{len(worse)} of {len(changes)}", f"{max(changes.values()):+.1f} %"]
        rows.append([*row, *[""] * (7 - len(row))])
    head = ["what the reader has", "CER", "mean of manuscripts", "change", "p (largest of the seeds)"]
    yield markdown_table([*head, "manuscripts worse", "the worst"], rows)


def _manuscripts_table(found: Found, evaluations: Sequence[SystemsEvaluation]) -> Iterator[str]:
    yield from (
        "### By manuscript",
        "",
        "CER; * differs from the plain reading with p < 0.05 by lines (all seeds).",
        "",
    )
    rows = []
    for one in found.manuscripts:
        row = [one.manuscript, f"{one.language}-{one.century}"]
        for rung in found.rungs():
            of_seeds = evaluations if rung.corrected else evaluations[:1]
            rates = [e.evaluations[rung.name].per_domain[one.manuscript].cer for e in of_seeds]
            tests = [e.comparisons[rung.name].per_domain[one.manuscript]["cer"].p for e in of_seeds if rung != PLAIN]
            mark = "*" if tests and max(tests) < 0.05 else ""
            row.append(f"{np.mean(rates):.1f}{mark}")
        rows.append(row)
    yield markdown_table(["manuscript", "domain", *(rung.short for rung in found.rungs())], rows)


def _languages_table(found: Found, evaluations: Sequence[SystemsEvaluation]) -> Iterator[str]:
    yield from ("### By language", "", "CER of all lines; change against the plain reading.", "")
    rows = []
    for language in dict.fromkeys(one.language for one in found.manuscripts):
        row = [language]
        plain = evaluations[0].evaluations[PLAIN.name].per_group["language"][language].cer
        for rung in found.rungs():
            of_seeds = evaluations if rung.corrected else evaluations[:1]
            cer = float(np.mean([e.evaluations[rung.name].per_group["language"][language].cer for e in of_seeds]))
            row.append(f"{cer:.1f}" + ("" if rung is PLAIN else f" ({100 * (cer / plain - 1):+.0f} %)"))
        rows.append(row)
    yield markdown_table(["language", *(rung.short for rung in found.rungs())], rows)


def _inferred_table(found: Found) -> Iterator[str]:
    rows = []
    for one in found.manuscripts:
        for rung in (rung for rung in RUNGS if rung.knowing == "inferred" and rung.looks == 1):
            read = found.reads.get((one.manuscript, rung.name, 0))
            if read and read.about.inferred:
                rows.append([one.manuscript, f"{one.language}-{one.century}", rung.short, read.about.inferred])
    if rows:
        yield from ("### Which domain was inferred", "")
        yield markdown_table(["manuscript", "domain", "model", "inferred"], rows)
        yield from _right(found)


def _right(found: Found) -> Iterator[str]:
    """How often language and century were found."""
    languages, off, sure = 0, [], []
    for one in found.manuscripts:
        about = found.reads[one.manuscript, "inferred", 0].about
        languages += str(about.inferred).startswith(f"{one.language} (")
        if told := about.centuries:
            off.append(abs(int(max(told, key=lambda name: told[name]).rpartition("-")[2]) - one.century))
            sure.append(max(told.values()))
    yield f"The language is right {languages} of {len(found.manuscripts)} times."
    if off:
        yield (
            f"The century, told for {len(off)} by the frequencies of characters alone, is right {off.count(0)} times "
            f"(mean certainty {np.mean(sure):.0%}) and within one century {sum(years <= 1 for years in off)} times."
        )
    yield ""


def _predicted_table(found: Found, evaluation: SystemsEvaluation) -> Iterator[str]:
    rows, inside = [], 0
    for one in found.manuscripts:
        predicted = found.reads[one.manuscript, AS_READ.name, 0].about.predicted
        if predicted:
            real = evaluation.evaluations[AS_READ.name].per_domain[one.manuscript].cer
            inside += predicted.low <= real <= predicted.high
            between = f"{predicted.low:.1f} to {predicted.high:.1f}"
            rows.append([one.manuscript, f"{predicted.cer:.1f}", between, f"{real:.1f}"])
    if rows:
        yield from ("### Predicted without ground truth (`fada worth`) against real: as `fada transcribe` reads", "")
        yield markdown_table(["manuscript", "predicted CER", "80 % interval", "real CER"], rows)
        yield f"{inside} of {len(rows)} are inside the interval."
