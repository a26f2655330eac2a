"""From the texts of several systems to what is kept of them, and back: figures recomputed from stored texts."""

import hashlib
import json
import math
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from fada.errors import FadaError
from fada.evaluation.edits import score_lines
from fada.evaluation.predictions import Systems
from fada.evaluation.scores import Scoring
from fada.evaluation.sources import read_systems
from fada.evaluation.systems import evaluate_systems
from fada.experiments.lipogram.experiment import Experiment, LipogramRecipe
from fada.experiments.recipe import FAITHFUL, STANDARD, label
from fada.experiments.record import Edits, Example, Rates, Record, System, load_results
from fada.tuning.decode import BEAM

CLUSTER = "cluster"
LAMS = "lams"
"""The stored table of plain readings by every λ of training."""
BASE = label(STANDARD, guided=False)
DRAWS = {"systems": (1000, 10_000), "rivals": (200, 2000), "ours": (200, 10_000)}
"""Draws for the intervals and for the tests of each table."""
NOT_RECOMPUTED = "not recomputed."
"""How a sentence of :func:`check_results` ends that tells of no difference."""


def scored(systems: Systems, baseline: str, draws: tuple[int, int]) -> dict[str, System]:
    """What tables show of every system: error rates, per domain, and the tests against the baseline.

    The test is paired by line and, where there is a column for it, by cluster.
    """
    bootstrap, resamples = draws
    result = evaluate_systems(systems, baseline, Scoring(bootstrap=bootstrap, resamples=resamples))
    by_cluster = None
    if CLUSTER in systems.columns:
        by_cluster = evaluate_systems(systems, baseline, Scoring(bootstrap=0, resamples=resamples), clusters=CLUSTER)
    rows = {}
    for name, found in result.evaluations.items():
        row = rows[name] = System(
            cer=found.cer,
            wer=found.wer,
            ned=found.ned,
            interval=found.intervals.get("cer"),
            per_domain={domain: scores.cer for domain, scores in found.per_domain.items()},
        )
        if name in result.comparisons:
            test = result.comparisons[name].overall["cer"]
            row.relative, row.difference, row.change_interval = test.relative, test.difference, test.interval
            row.p, row.p_holm = test.p, result.p_holm[name]
            row.p_clusters = by_cluster.comparisons[name].overall["cer"].p if by_cluster else None
    return rows


def rates(references: Sequence[str], texts: Sequence[str]) -> Rates:
    """CER and WER in percent."""
    found = score_lines(references, texts).rates()
    return Rates(cer=found["cer"], wer=found["wer"])


def examples(test: Systems) -> list[Example]:
    """Lines chosen by rule: the two that FADA-TR-GD improves most, and the two that it harms most, ties by id.

    Without that arm, guided decoding of the standard model is shown.
    """
    guided = [label(FAITHFUL, guided=True), label(STANDARD, guided=True)]
    system = next(name for name in guided if name in test.systems)
    before = score_lines(test.references, test.systems[BASE]).edits
    after = score_lines(test.references, test.systems[system]).edits
    order = sorted(range(len(test.ids)), key=lambda i: (int(after[i]) - int(before[i]), test.ids[i]))
    chosen = [i for i in order[:2] if after[i] < before[i]] + [i for i in order[::-1][:2] if after[i] > before[i]]
    names = dict.fromkeys((BASE, label(STANDARD, guided=True), label(FAITHFUL, guided=False), system))
    domains = test.domains or [None] * len(test.ids)
    return [
        Example(
            id=test.ids[i],
            domain=domains[i],
            reference=test.references[i],
            system=system,
            edits=Edits(before=int(before[i]), after=int(after[i])),
            texts={name: test.systems[name][i] for name in names if name in test.systems},
        )
        for i in chosen
    ]


def fingerprint(ids: Sequence[str], references: Sequence[str]) -> str:
    """Changes when the lines are others, or in another order."""
    return hashlib.blake2b(json.dumps([list(ids), list(references)]).encode(), digest_size=12).hexdigest()


class Texts:
    """The hypotheses behind every figure of a record, in one table beside it; names are table/arm/system."""

    def __init__(self, test: Systems) -> None:
        self.test = test
        self.stored: dict[str, list[str]] = {}
        self.add("systems", "", test.systems)

    def add(self, table: str, arm: str, texts: Mapping[str, list[str]]) -> None:
        """Keep the texts of some systems."""
        self.stored |= {f"{table}/{arm}/{name}": found for name, found in texts.items()}

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write them as parquet, one row for each line and system."""
        replace(self.test, systems=self.stored).save(path)


def check_results(folder: str | os.PathLike[str]) -> Iterator[str]:
    """Recompute what `results/` holds from the stored texts; one sentence for each figure that differs or is bare.

    Stories of language models are texts, too.
    """
    for name, seeds in load_results(folder).items():
        for record in seeds:
            path = Path(folder) / name / f"{record.seed}.parquet"
            if not path.is_file():
                yield f"{name}, seed {record.seed}: made by fada {record.fada_version} without texts; {NOT_RECOMPUTED}"
                continue
            try:
                for what, stored, found in _recomputed(record, path):
                    if not math.isclose(stored, found, abs_tol=1e-5):
                        yield f"{name}, seed {record.seed}, {what}: stored {stored:g}, recomputed {found:g}."
            except KeyError as error:
                raise FadaError(
                    f"{path}: has texts of {error}, of which {path.with_suffix('.json').name} tells nothing. "
                    "Restore both files, or run the recipe again."
                ) from None
    for path in sorted(Path(folder).glob("lipogram*/recipe.json")):
        yield from Experiment(LipogramRecipe.load(path), path.parent).differing()


def _recomputed(record: Record, path: Path) -> Iterator[tuple[str, float, float]]:
    """What, as stored, as recomputed."""
    stored = read_systems(path)
    if record.made and record.made.data != fingerprint(stored.ids, stored.references):
        raise FadaError(f"{path}: texts of other lines than {path.with_suffix('.json').name} tells of.")
    groups: dict[tuple[str, str], dict[str, list[str]]] = {}
    for name, texts in stored.systems.items():
        if name.count("/") < 2:
            raise KeyError(name)
        table, arm, system = name.split("/", 2)
        groups.setdefault((table, arm), {})[system] = texts
    points = {(point.arm, f"{point.lam:g}"): point.test_cer for point in record.lambda_curves.get("TR", [])}
    for (table, arm), group in groups.items():
        if table == LAMS:
            for lam, found in group.items():
                yield f"{arm}, λ {lam}", points[arm, lam] or 0.0, rates(stored.references, found).cer
            continue
        if table == "beams":
            for width, found in group.items():
                yield f"{arm}, beam {width}", record.beams[arm][width].cer, rates(stored.references, found).cer
            continue
        tables: dict[str, Mapping[str, System]] = {
            "systems": record.systems,
            "rivals": record.rivals.get(arm, {}),
            "ours": record.ours.rows if record.ours else {},
        }
        kept = tables[table]
        systems = replace(stored, systems=group)
        rows = scored(systems, BEAM if table == "rivals" else BASE, DRAWS[table])
        for system, row in rows.items():
            for figure in ("cer", "wer", "ned", "relative", "p", "p_clusters"):
                if (expected := getattr(kept[system], figure)) is not None:
                    yield f"{table} {arm} {system}, {figure}", expected, getattr(row, figure)
            for domain, cer in row.per_domain.items():
                yield f"{table} {arm} {system}, {domain}", kept[system].per_domain[domain], cer
