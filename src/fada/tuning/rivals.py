"""Every decoding on the same emissions, side by side: what a user would take instead of guidance, and with it.

Each rival is tuned on the validation emissions within its own small grid and then decodes the test emissions once; all
are tested against plain beam search on the same lines. If a rival is better than guidance, the table says so.
"""

import os
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from fada.decoding.knowledge import Knowledge
from fada.decoding.nbest import NBest
from fada.decoding.search import BeamSearch
from fada.decoding.weights import Weights
from fada.errors import FadaError
from fada.evaluation.predictions import Systems, SystemsEvaluation, evaluate_systems
from fada.tuning.grid import (
    PLAIN,
    Grid,
    Trials,
    Tunable,
    clusters_from_ids,
    guidance_grid,
    lm_grid,
    prior_grid,
    refuse_overlap,
    used_for_tuning,
)
from fada.tuning.tuned import Tuned

if TYPE_CHECKING:
    from fada.decoding.emissions import Emissions

PathLike = str | os.PathLike[str]

GREEDY = "greedy"
BEAM = "beam"


@dataclass(frozen=True)
class Rival:
    """A decoding and what it was tuned to; `weights` is None for best-path decoding, `validation` its CER there."""

    name: str
    weights: Weights | None
    validation: float

    @property
    def setting(self) -> str:
        """The weights that differ from plain beam search, for the table."""
        if self.weights is None:
            return ""
        names = {"lam": "λ", "prior_weight": "prior", "lm_weight": "lm", "length_bonus": "bonus", "scale": "scale"}
        values = self.weights.model_dump(exclude_defaults=True)
        return ", ".join(f"{label} {values[name]:g}" for name, label in names.items() if name in values)


@dataclass(frozen=True)
class RivalsTable:
    """All rivals: how each was tuned, what each read on the test lines, and the tests against the beam."""

    rivals: dict[str, Rival]
    systems: Systems
    result: SystemsEvaluation
    seconds: float

    def rows(self) -> list[dict[str, Any]]:
        """One row per rival: its setting, its validation CER, then test error rates and tests."""
        rows = []
        for row in self.result.rows():
            rival = self.rivals[row["system"]]
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
    validation: "Emissions",
    test: "Emissions",
    knowledge: Knowledge,
    *,
    grid: Grid = Grid(),
    normalization: str | Iterable[str] | None = None,
    clusters: Sequence[str | None] | None = None,
    bootstrap: int = 1000,
    resamples: int = 10_000,
    store: PathLike | None = None,
    threads: int | None = None,
    seed: int = 0,
) -> RivalsTable:
    """Tune every rival on `validation`, evaluate it on `test`.

    What `knowledge` lacks is left out: without targets there is no guidance and no prior correction, without language
    models no n-gram rows.

    Args:
        clusters: the page of each *test* line, resampled as a whole.
        store: file that keeps every validation setting tried; an interrupted comparison goes on from it.
    """
    started = time.monotonic()
    refuse_overlap(validation, test)
    if test.references is None:
        raise FadaError("the test emissions hold no references, so the rivals cannot be compared on them.")
    tuning = BeamSearch(validation, knowledge, threads)
    trials = Trials(tuning, normalization=normalization, store=store)
    rivals = {rival.name: rival for rival in tune_rivals(trials, grid)}
    search = BeamSearch(test, knowledge, threads)
    texts = {
        name: search.greedy() if rival.weights is None else search.choose(rival.weights)
        for name, rival in rivals.items()
    }
    columns: dict[str, list[str | None]] = {"domain": search.domains} if test.domains else {}
    if clusters is not None:
        columns["cluster"] = list(clusters)
    systems = Systems(search.ids, list(test.references), texts, columns, "test emissions")
    result = evaluate_systems(
        systems,
        BEAM,
        clusters=None if clusters is None else "cluster",
        normalization=normalization,
        bootstrap=bootstrap,
        resamples=resamples,
        seed=seed,
    )
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
    if isinstance(search, BeamSearch):
        rivals.insert(0, Rival(GREEDY, None, trials.rate(trials.edits_of(search.greedy()))))
    return rivals


def rivals_of_files(
    files: Tunable,
    knowledge: Knowledge,
    grid: Grid = Grid(),
    normalization: str | Iterable[str] | None = None,
    page: str | None = None,
    threads: int | None = None,
    seed: int = 0,
) -> RivalsTable:
    """:func:`compare_rivals` for what :func:`~.grid.load_tunable` read; `page` finds a line's page in its id."""
    if files.test is None:
        raise FadaError("rivals are compared on test emissions: give them with --test.")
    if isinstance(files.validation, NBest) or isinstance(files.test, NBest):
        raise FadaError("rivals are compared on emissions of a CTC model; n-best lists can be tuned, not compared.")
    return compare_rivals(
        files.validation,
        files.test,
        knowledge,
        grid=grid,
        normalization=normalization,
        clusters=clusters_from_ids(files.test.ids, page),
        threads=threads,
        seed=seed,
    )


def decode_tuned(
    emissions: "Emissions | PathLike",
    tuned: Tuned | PathLike | None = None,
    knowledge: Knowledge | None = None,
    threads: int | None = None,
) -> Systems:
    """Greedy, beam and, with tuned weights, tuned decoding of stored emissions, ready for evaluation."""
    from fada.decoding.emissions import Emissions

    data = emissions if isinstance(emissions, Emissions) else Emissions.load(emissions)
    source = "emissions" if isinstance(emissions, Emissions) else str(emissions)
    if data.references is None:
        raise FadaError(
            f"{source}: no references are stored with these emissions, so there is nothing to compare with."
        )
    weights = None if tuned is None else tuned if isinstance(tuned, Tuned) else Tuned.load(tuned)
    if weights is not None and (seen := used_for_tuning(weights, data)):
        raise FadaError(
            f"{source}: the weights were tuned on {seen} of these {len(data.ids)} lines, so their error rates would be "
            "too good. Evaluate on lines that tuning has not seen."
        )
    search = BeamSearch(data, knowledge or Knowledge(), threads)
    plain = PLAIN if weights is None else PLAIN.change(beam=weights.beam)
    texts = {BEAM: search.choose(plain), GREEDY: search.greedy()}
    if weights is not None:
        texts["tuned"] = search.choose(weights.weights)
    columns: dict[str, list[str | None]] = {"domain": search.domains} if data.domains else {}
    return Systems(search.ids, list(data.references), texts, columns, source)
