"""Every decoding on the same emissions, side by side: what a user would take instead of guidance, and with it.

Each rival is tuned on the validation emissions within its own small grid and then decodes the test emissions once; all
are tested against plain beam search on the same lines. If a rival is better than guidance, the table says so.
"""

import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from fada.common.tables import Cells
from fada.decoding.search import Search
from fada.decoding.weights import Weights
from fada.evaluation.predictions import Systems
from fada.evaluation.scores import Scoring
from fada.evaluation.systems import SystemsEvaluation, evaluate_systems
from fada.tuning.decode import BEAM, GREEDY, decode_systems
from fada.tuning.grid import PLAIN, Grid, guidance_grid, lm_grid, prior_grid
from fada.tuning.overlap import refuse_overlap
from fada.tuning.trials import Trials
from fada.tuning.tuned import PathLike, describe


@dataclass(frozen=True)
class Rival:
    """A decoding and what it was tuned to; `weights` is None for best-path decoding, `validation` its CER there."""

    name: str
    weights: Weights | None
    validation: float

    @property
    def setting(self) -> str:
        """The weights that differ from plain beam search, for the table."""
        if self.weights is None or self.weights == PLAIN.change(beam=self.weights.beam):
            return ""
        return describe(self.weights)


@dataclass(frozen=True)
class RivalsTable:
    """All rivals: how each was tuned, what each read on the test lines, and the tests against the beam."""

    rivals: dict[str, Rival]
    systems: Systems
    result: SystemsEvaluation
    seconds: float

    def rows(self) -> list[Cells]:
        """One row per rival: its setting, its validation CER, then test error rates and tests."""
        rows: list[Cells] = []
        for row in self.result.rows():
            rival = self.rivals[str(row["system"])]
            rest = {name: value for name, value in row.items() if name != "system"}
            rows.append({"system": rival.name, "setting": rival.setting, "validation": rival.validation, **rest})
        return rows

    def to_dict(self) -> dict[str, Any]:
        """JSON values: rivals, evaluation, time; the texts are saved by ``systems.save``."""
        rivals = {
            name: {
                "weights": None if rival.weights is None else rival.weights.model_dump(),
                "validation": rival.validation,
            }
            for name, rival in self.rivals.items()
        }
        return {"rivals": rivals, "seconds": self.seconds, "test": self.result.to_dict()}


def compare_rivals(
    validation: Search,
    test: Search,
    *,
    grid: Grid = Grid(),
    clusters: Sequence[str | None] | None = None,
    store: PathLike | None = None,
    scoring: Scoring = Scoring(),
) -> RivalsTable:
    """Tune every rival on `validation`, evaluate it on `test`.

    What is not known is left out: without targets there is no guidance and no prior correction, without language
    models no n-gram rows.

    Args:
        clusters: the page of each *test* line, resampled as a whole.
        store: file that keeps every validation setting tried; an interrupted comparison goes on from it.
    """
    started = time.monotonic()
    refuse_overlap(validation, test)
    trials = Trials(validation, normalization=scoring.normalization, store=store)
    rivals = {rival.name: rival for rival in tune_rivals(trials, grid)}
    lines = test.lines
    if clusters is not None:
        lines = replace(lines, extra={"cluster": list(clusters)})
    systems = decode_systems(test, {name: rival.weights for name, rival in rivals.items()}, "test lines", lines)
    result = evaluate_systems(systems, BEAM, scoring, clusters=None if clusters is None else "cluster")
    return RivalsTable(rivals, systems, result, round(time.monotonic() - started, 3))


def tune_rivals(trials: Trials, grid: Grid = Grid()) -> list[Rival]:
    """Tune each rival on validation emissions, within its own grid; combinations start from their tuned parts."""
    knowledge, search = trials.search.knowledge, trials.search
    base = trials.best_of([PLAIN.change(beam=beam) for beam in grid.beam], "beam")
    found: dict[str, Weights] = {BEAM: base}

    def add(name: str, candidates: Iterable[Weights]) -> Weights:
        found[name] = trials.best_of(candidates, name)
        return found[name]

    def guided(start: Weights, distance: str) -> Iterable[Weights]:
        return guidance_grid(start, Grid(grid.lam, grid.scale, (distance,)))

    def corrected(start: Weights) -> Iterable[Weights]:
        return (weights for weights in prior_grid(start, grid) if weights.prior_weight)

    has_targets = knowledge.targets is not None
    if has_targets:
        add("Eq. 2, λ = 0.5", [base.change(lam=0.5)])
        add("FADA sorted", guided(base, "sorted_w2"))
        add("FADA aligned", guided(base, "aligned_w2"))
        add("prior correction", corrected(base))
    order = knowledge.lm_order
    if knowledge.global_lm is not None:
        language = add(f"{order}-gram", lm_grid(base, grid, "global"))
        if has_targets:
            add(f"{order}-gram + prior", corrected(language))
    if knowledge.domain_lms:
        language = add(f"{order}-gram per domain", lm_grid(base, grid, "domain"))
        if has_targets:
            prior = add(f"{order}-gram per domain + prior", corrected(language))
            add(f"{order}-gram per domain + FADA sorted", guided(language, "sorted_w2"))
            add(f"{order}-gram per domain + FADA aligned", guided(language, "aligned_w2"))
            add(f"{order}-gram per domain + prior + FADA aligned", guided(prior, "aligned_w2"))
    rivals = [Rival(name, weights, trials.error(weights)) for name, weights in found.items()]
    if "beam" in search.terms:
        rivals.insert(0, Rival(GREEDY, None, trials.rate(trials.count(search.greedy()))))
    return rivals
