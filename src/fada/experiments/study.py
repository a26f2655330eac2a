"""The whole story on one data set: targets, training with and without alignment, tuning, guided decoding, report.

Every step leaves its result in the study's folder and is skipped when it is there, so an interrupted study goes on
where it stopped.
"""

import logging
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fada.common.files import write_json
from fada.common.say import BOLD
from fada.common.settings import read_json
from fada.common.tables import Cells
from fada.common.workers import Workers
from fada.data.line import Line
from fada.data.source import read_lines
from fada.data.splits import with_splits
from fada.decoding.weights import Weights
from fada.distances import DISTANCE, SCALE
from fada.errors import FadaError
from fada.evaluation.predictions import PREDICTIONS, Systems
from fada.evaluation.predictions import page_of as known_page_of
from fada.report.page import write_report
from fada.report.sections import View
from fada.runs.run import Run
from fada.text.characters import natural_key
from fada.tuning.choose import Tuning, tune
from fada.tuning.decode import decode_systems
from fada.tuning.grid import Grid
from fada.tuning.tuned import Tuned

log = logging.getLogger(__name__)

PathLike = str | os.PathLike[str]

STANDARD, ALIGNED = "standard", "fada-tr"
PLAIN, GUIDED = "beam", "guided"
NAMES = {
    (STANDARD, PLAIN): "standard",
    (STANDARD, GUIDED): "FADA-GD",
    (ALIGNED, PLAIN): "FADA-TR",
    (ALIGNED, GUIDED): "FADA-TR-GD",
}
"""What a model and a decoding are called together in the paper."""


@dataclass(frozen=True)
class Study:
    """A finished study; `view` is what the report says of it, and what the tables here are made of.

    `names` are the systems as the paper would call them, by the report's labels; what is not as printed there says so.
    """

    folder: Path
    view: View
    names: Mapping[str, str]
    tuned: Mapping[str, Tuned]
    report: Path

    def rows(self) -> list[Cells]:
        """CER in percent with its 95 % interval, one row per domain, one column per system."""
        rows = []
        for domain in [*sorted(self.view.results[0].evaluation.per_domain, key=natural_key), "all"]:
            row: Cells = {"domain": domain}
            for result in self.view.results:
                scores = result.evaluation if domain == "all" else result.evaluation.per_domain[domain]
                low, high = scores.intervals.get("cer", (scores.cer, scores.cer))
                row[self.names[result.label]] = f"{scores.cer:.2f} ({low:.2f} to {high:.2f})"
            rows.append(row)
        return rows

    def tests(self) -> list[Cells]:
        """Each system against the standard one: change of the CER in points and in percent, with the paired test."""
        return [
            {
                "system": self.names[result.label],
                "change": result.difference.difference,
                "relative %": result.difference.relative,
                "p (Holm)": result.difference.p_holm,
            }
            for result in self.view.results
            if result.difference
        ]


def run_study(
    data: Sequence[PathLike],
    out: PathLike,
    settings: Mapping[str, Any],
    aligned: Mapping[str, Any],
    *,
    workers: Workers | int = 2,
    title: str | None = None,
) -> Study:
    """Train twice, tune, decode, evaluate, report.

    Args:
        data: sources with train, validation and test lines, as ``fada train`` takes them.
        out: folder of the study.
        settings: of both trainings (:class:`fada.training.settings.TrainSettings`).
        aligned: what the second training changes, such as ``{"lam": 0.5}``; the first has λ = 1.
        workers: who trains: so many processes here, with one thread each if more than one, or a cluster.
        title: of the report.
    """
    from fada.training.settings import TrainSettings
    from fada.training.train import train_all

    out = Path(out)
    shared = {**settings, "data": [str(source) for source in data]}
    if workers != 1:
        shared["threads"] = 1
    changes = {STANDARD: {"lam": 1.0}, ALIGNED: aligned}
    planned = {
        name: TrainSettings.of({**shared, **changed, "out": out / name}, name) for name, changed in changes.items()
    }
    runs = train_all(planned, workers)
    tuned = {name: _tuned(run) for name, run in runs.items()}
    decoded = {name: _decode(run, tuned[name]) for name, run in runs.items()}
    if decoded[STANDARD].ids != decoded[ALIGNED].ids:
        raise FadaError(f"{out}: the two models were tested on different lines. Delete the folder and start over.")
    called = _called(aligned, tuned)
    read = {called[name, system]: found for name, systems in decoded.items() for system, found in systems.items()}
    joined = Systems(
        decoded[STANDARD].lines,
        {name: found.hypotheses for name, found in read.items()},
        {name: found.settings for name, found in read.items()},
        source=str(out),
    )
    joined.save(out / PREDICTIONS)
    report = write_report([run.folder for run in runs.values()], out / "report.html", title=title)
    view = report.views[0]
    names = {
        c.label: called.get((c.runs[0].folder.name, c.system), c.label) for c in (r.contender for r in view.results)
    }
    return Study(out, view, names, tuned, report.path)


def _called(aligned: Mapping[str, Any], tuned: Mapping[str, Tuned]) -> dict[tuple[str, str], str]:
    """The paper's name of each model and decoding, with what is not as printed there."""
    distance, scale = aligned.get("distance", DISTANCE), aligned.get("scale", SCALE)
    trained = "" if (distance, scale) == (DISTANCE, SCALE) else f" ({distance} ×{scale:g})"
    called = {}
    for (model, decoding), name in NAMES.items():
        called[model, decoding] = name + (trained if model == ALIGNED else "")
        weights = _guided_weights(tuned[model])
        if decoding == GUIDED and (weights.distance, weights.scale) != (DISTANCE, SCALE):
            called[model, decoding] += f" [{weights.distance} ×{weights.scale:g}]"
    return called


def split_by_page(data: Sequence[PathLike], out: Path, reading: Mapping[str, str | None]) -> list[PathLike]:
    """Sources that have a test split as they are; others as parquet in `out`, split by page, stratified by domain.

    Args:
        reading: columns and `domain_from`, as :func:`fada.read_lines` takes them.
    """
    from fada.data.formats.parquet import write_parquet

    asked = {"data": [os.path.abspath(source) for source in data], **reading}
    record = out.with_name("source.json")
    if record.exists() and (out / "test.parquet").exists():  # the record is written last
        if read_json(record) != asked:
            raise FadaError(f"{out} holds the lines of another study. Choose another folder, or delete this one.")
        return [out]
    lines = read_lines([*data] if len(data) > 1 else data[0], **reading)
    if any(line.split == "test" for line in lines.without_media()):
        return [*data]

    def page_of(line: Line) -> str:
        page = line.extra.get("page") or line.source.partition("#")[0] or line.id
        return f"{line.extra.get('manuscript') or ''}/{page}"

    log.info("no test split in the data: dividing the pages of each domain into train, validation and test", extra=BOLD)
    if pageless := sum(known_page_of(line) is None for line in lines.without_media()):
        log.warning(
            "%d lines name no page (a column 'page'), so these are divided one by one: lines of one page may be among "
            "those to train on and among those to test on, and the error rates then seem lower than they are",
            pageless,
        )
    divided = with_splits(lines, page_of, resplit=True)
    if not any(line.split == "test" for line in divided.without_media()):
        raise FadaError(
            f"{lines.name}: no domain has more than one page, so none can be set aside to test on. "
            "Add pages, or give the lines a split (train, validation, test), as a column or as folders."
        )
    write_parquet(divided, out, licence=lines.licence, citation=lines.citation)
    write_json(record, asked)
    for skipped in divided.skipped[:20]:
        log.warning("left out: %s", skipped)
    return [out]


def _tuned(run: Run) -> Tuned:
    path = run.folder / "tuned.json"
    if not path.exists():
        log.info(f"{run.folder.name}: tuning guided decoding on the validation lines", extra=BOLD)
        tune(run.search("validation"), Tuning(Grid(), lms=(), prior=False)).save(path)
    return Tuned.load(path)


def _guided_weights(tuned: Tuned) -> Weights:
    """The best guided setting, also where tuning recommends none: the table shows what guidance does."""
    if tuned.weights.guided or tuned.evidence is None:
        return tuned.weights
    guided = [point for point in tuned.evidence.curve if point.weights.guided and not point.rescored]
    return min(guided, key=lambda point: point.error).weights


def _decode(run: Run, tuned: Tuned) -> Systems:
    """Plain and guided decoding of the test lines, also written into the run's predictions."""
    weights = {PLAIN: Weights(beam=tuned.weights.beam), GUIDED: _guided_weights(tuned)}
    decoded = decode_systems(run.search("test"), weights, str(run.folder))
    decoded.save(run.folder / PREDICTIONS)
    return decoded
