"""The ladder on one manuscript that the built-in model never saw: plain reading, its language found, lines corrected.

The lines come with the package (`sample/`, credits beside them). Those of some pages are for correcting, the others
are the test. Every step leaves its result in the demo's folder and is skipped when it is there.
"""

import logging
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from fada._version import __version__
from fada.common.files import write_json
from fada.common.say import BOLD
from fada.common.settings import read_json
from fada.common.tables import Cells
from fada.data.columns import LineColumns
from fada.data.line import Line
from fada.data.source import read_lines
from fada.decoding.evidence import Automatic
from fada.decoding.knowledge import knowledge_of_model
from fada.evaluation.predictions import PREDICTIONS, Systems
from fada.experiments.division import drawn
from fada.experiments.ladder import Ladder, Rung
from fada.models.folders import DEFAULT_MODEL, resolve
from fada.models.looks import USUAL
from fada.models.registry import load_recognizer
from fada.report.page import write_report
from fada.report.sections import View
from fada.training.adapt import RECORD, Adapting
from fada.training.folds import AdaptSettings, train_folds

log = logging.getLogger(__name__)

SAMPLE = Path(__file__).parent / "sample"
MANUSCRIPT, LANGUAGE, DOMAIN = "Paris, BnF, latin 17901", "la", "Latin, 11th century"
FEW, MOST = 8, 24
RUNGS = (
    Rung("plain reading", "nothing", ""),
    Rung(
        "finding its language and looking again",
        "nothing: the language found, unsure lines looked at again",
        "",
        "inferred",
        0,
        USUAL,
    ),
    Rung(f"learning from {FEW} corrected lines", f"{FEW} corrected lines", "", "inferred", FEW, USUAL),
    Rung(f"learning from {MOST} corrected lines", f"{MOST} corrected lines", "", "inferred", MOST, USUAL),
)
QUICK = AdaptSettings(folds=2, epochs=1, fewest_steps=2)


@dataclass(frozen=True)
class Demo:
    """A finished demo; `view` is what the report says of it."""

    folder: Path
    view: View
    report: Path
    told: str
    """What was found of the language."""

    def rows(self) -> list[Cells]:
        """One row for each rung: CER in percent with its 95 % interval, and the change against plain reading."""
        rows: list[Cells] = []
        for rung, result in zip(RUNGS, self.view.results, strict=True):
            low, high = result.evaluation.intervals["cer"]
            change = result.difference
            rows.append(
                {
                    "what the reader has": rung.title,
                    "CER %": f"{result.evaluation.cer:.2f} ({low:.2f} to {high:.2f})",
                    "change": "" if change is None or change.relative is None else f"{change.relative:+.1f} %",
                    "p": "" if change is None else f"{change.p_holm:.4f}",
                }
            )
        return rows


def demo(out: str | os.PathLike[str], *, quick: bool = False, threads: int | None = 1) -> Demo:
    """Read the manuscript of the package by every rung, test, report.

    Args:
        out: folder for the adapted models, the predictions and the report.
        quick: a few steps only: shows the path, not the result.
        threads: trainings at a time; None for one on each core. See :func:`fada.training.folds.train_folds`.
    """
    out = Path(out)
    source = SAMPLE / "lines.parquet"
    lines = list(read_lines(source))
    pool = [line for line in lines if line.split == "train"]
    test = [line for line in lines if line.split == "test"]
    log.info("%s: %d lines to read, none of which the model has seen", MANUSCRIPT, len(test), extra=BOLD)
    texts: dict[str, list[str]] = {}
    inferred: list[str] = []
    known = Automatic(knowledge_of_model(resolve(DEFAULT_MODEL)))
    ladder = Ladder(load_recognizer(DEFAULT_MODEL), test, known)
    for rung in RUNGS:
        if rung.corrected:
            _adapt(out, pool, QUICK if quick else AdaptSettings(), threads)
            ladder = Ladder(load_recognizer(_adapted(out, rung.corrected)), test, known)
        texts[rung.name], about = ladder.read(rung, LANGUAGE)
        inferred += [about.inferred] if about.inferred else []
    _write_run(out, source, test, texts)
    names = [rung.name for rung in RUNGS]
    report = write_report(
        [out],
        out / "report.html",
        title=f"A manuscript that nobody trained on: {MANUSCRIPT}",
        baseline=names[0],
        compared=names[-1],
        command="fada demo",
    )
    return Demo(out, report.views[0], report.path, inferred[0])


def _adapted(out: Path, corrected: int) -> Path:
    """The model folder after so many lines were corrected."""
    return out / f"with-{corrected}-lines"


def _adapt(out: Path, pool: Sequence[Line], settings: AdaptSettings, threads: int | None) -> None:
    """Make the adapted models that are not there yet; their trainings run side by side."""
    missing = [count for count in (FEW, MOST) if not (_adapted(out, count) / RECORD).is_file()]
    if not missing:
        return
    log.info("learning from %s corrected lines of other pages", " and from ".join(map(str, missing)), extra=BOLD)
    begun = [Adapting(DEFAULT_MODEL, drawn(pool, count, 0), _adapted(out, count), settings) for count in missing]
    train_folds([fold for one in begun for fold in one.folds], threads)
    for one in begun:
        one.finish()


def _write_run(out: Path, source: Path, test: Sequence[Line], texts: dict[str, list[str]]) -> None:
    """What was read, as a run folder that reports and tables are made of."""
    references = [str(line.text) for line in test]
    pages = [line.extra["page"] for line in test]
    columns = LineColumns([line.id for line in test], references, [DOMAIN] * len(test), {"page": pages})
    Systems(columns, texts, source=str(out)).save(out / PREDICTIONS)
    settings = {"model": DEFAULT_MODEL, "data": [str(source)], "dataset": MANUSCRIPT, "seed": 0}
    credit = (SAMPLE / "CREDITS.md").read_text(encoding="utf-8").strip()
    config = {"settings": settings, "fada_version": __version__, "licence": "CC BY 4.0", "citation": credit}
    write_json(out / "config.json", config)
    learnt = {_adapted(out, n).name: read_json(_adapted(out, n) / RECORD) for n in (FEW, MOST)}
    write_json(out / "metrics.json", {"test": {}, "history": [], "adapted": learnt})
