r"""The weights of the decoder's score, chosen on validation lines, and how sure the choice is.

The choice is judged by cross-validation: in every fold the best setting *of the other folds* is applied to the lines of
this fold, so the error rate that comes out is that of the procedure, not that of the luckiest setting. If the result is
not better than plain beam search beyond noise, plain beam search (λ = 1) is what is recommended, and the evidence says
why.
"""

import re
import time
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from fada._version import __version__
from fada.common.workers import Workers
from fada.decoding.search import Search
from fada.decoding.weights import LanguageModel, Weights
from fada.errors import FadaError
from fada.evaluation import significance as statistics
from fada.tuning.drafts import Counts
from fada.tuning.grid import DEFAULT, PLAIN, Grid, try_grid
from fada.tuning.joint import Space, search_jointly
from fada.tuning.overlap import KnownLines, line_digests, refuse_overlap
from fada.tuning.trials import Fractions, Trials
from fada.tuning.tuned import Evidence, Gain, Metric, PathLike, Point, Tuned, describe

Rule = Literal["best", "one_se"]


@dataclass(frozen=True)
class Tuning:
    """How weights are chosen.

    Attributes:
        grid: the values to try; :data:`~fada.tuning.grid.PAPER` is the paper's grid of λ.
        lms: language models to try, of ``global`` and ``domain``; None for those that are known.
        prior: whether to try prior correction.
        folds: folds of the cross-validation.
        rule: ``best`` (lowest error), or ``one_se`` (plainest within one standard error of it).
        metric: ``cer``, ``wer`` or ``ned``: what is chosen by.
        normalization: as in :func:`fada.evaluate`.
        trials: further settings proposed by optuna (TPE) after the grid, over all weights jointly.
        study: SQLite file of the optuna study, resumed if it exists.
        store: file that keeps every setting decoded (JSONL), resumed if it exists.
        exact: decode every setting, instead of those alone that are best by rescoring.
        seed: of folds, tests and search.
    """

    grid: Grid = DEFAULT
    lms: Sequence[LanguageModel] | None = None
    prior: bool = True
    folds: int = 10
    rule: Rule = "best"
    metric: Metric = "cer"
    normalization: str | Iterable[str] | None = None
    trials: int = 0
    study: PathLike | None = None
    store: PathLike | None = None
    exact: bool = False
    seed: int = 0

    def __post_init__(self) -> None:
        if self.rule not in ("best", "one_se"):
            raise FadaError(f"rule is {self.rule!r}, expected best or one_se.")

    def space(self, search: Search) -> Space:
        """What is tried for a search: without knowledge of a term, the term is left out."""
        known, terms = search.knowledge, search.terms
        lms = self.lms
        if lms is None:
            lms = [*(["global"] if known.global_lm else []), *(["domain"] if known.domain_lms else [])]  # type: ignore[list-item]
        prior = self.prior and known.prior is not None and "prior_weight" in terms
        grid = self.grid if known.targets is not None else replace(self.grid, lam=(), prior_weight=())
        beams = grid.beam if "beam" in terms else grid.beam[:1]
        return Space(grid, beams, lms if "lm" in terms else (), prior, "length_bonus" in terms)


def tune(
    search: Search,
    settings: Tuning = Tuning(),
    *,
    test: KnownLines | None = None,
    clusters: Sequence[Hashable] | None = None,
    workers: Workers | None = None,
) -> Tuned:
    """Choose the weights of the decoder's score on validation lines, and say how sure the choice is.

    Args:
        search: of the validation lines, with references; what its knowledge lacks is not tuned.
        test: the lines the result will be reported on: refused if they overlap with those of `search`.
        clusters: the page of each line; lines of a page stay in one fold and are resampled together.
        workers: who decodes with the settings of the grid, if not this process.
    """
    started = time.monotonic()
    if test is not None:
        refuse_overlap(search, test)
    trials = Trials(
        search,
        metric=settings.metric,
        normalization=settings.normalization,
        store=settings.store,
        workers=workers,
        exact=settings.exact,
    )
    space = settings.space(search)
    plain = PLAIN.change(beam=space.beams[0])
    trials.evaluate(plain)
    for beam in space.beams:
        try_grid(trials, PLAIN.change(beam=beam), space.grid, space.lms, space.prior)
    if settings.trials:
        search_jointly(trials, space, settings.trials, settings.study, settings.seed)
    folds = Folds.make(len(search.ids), clusters, settings.folds, settings.seed)
    tuned = decide(trials, plain, folds, settings.rule, settings.seed)
    if tuned.evidence is not None:
        tuned.evidence.at_edge = space.grid.at_edge(tuned.weights)
        tuned.evidence.seconds = round(time.monotonic() - started, 3)
    return tuned


def decide(trials: Trials, plain: Weights, folds: "Folds", rule: Rule = "best", seed: int = 0) -> Tuned:
    """The recommendation from all settings tried, with its evidence.

    Folds choose from all settings, decoded or rescored; what is chosen, by one of them or in the end, is decoded.
    """
    every = list(dict.fromkeys([plain, *trials.tried]))
    trials.rescore(every)
    unguided = [weights for weights in every if not weights.guided]
    held_out, held_out_unguided = (held_out_counts(trials, among, folds) for among in (every, unguided))
    guidance_gain = gain_of(trials, held_out_unguided, held_out, folds, seed)
    best = trials.best()
    chosen = choose_setting(trials, every, rule, folds)
    refused: tuple[Weights, Gain, str] | None = None
    if chosen.guided and not guidance_gain.better:
        refused = chosen, guidance_gain, "the best without guidance (λ = 1)"
        chosen, held_out = choose_setting(trials, unguided, rule, folds), held_out_unguided
    gain = gain_of(trials, trials.counts[plain], held_out, folds, seed)
    if chosen != plain and not gain.better:
        refused = chosen, gain, "plain beam search (λ = 1)"
        chosen = plain
    evidence = Evidence(
        metric=trials.metric,
        lines=len(trials.references),
        clusters=len(set(folds.clusters)),
        folds=folds.count,
        plain=trials.error(plain),
        chosen=trials.error(chosen),
        held_out=trials.rate(held_out),
        gain=gain,
        guidance_gain=guidance_gain,
        best=_point(trials, best, plain, folds),
        warning=_not_better(*refused, chosen, folds) if refused else None,
        curve=[_point(trials, weights, plain, folds) for weights in every],
        line_digests=line_digests(trials.search.ids, trials.references),
        seed=seed,
        fada_version=__version__,
    )
    knowledge = trials.search.knowledge
    return Tuned(
        weights=chosen,
        kind=trials.search.kind,
        lm_order=knowledge.lm_order,
        lm_share=knowledge.lm_share,
        evidence=evidence,
    )


# ------------------------------------------------------------------------------------------------- cross-validation


@dataclass(frozen=True)
class Folds:
    """A split of the lines into folds in which the lines of one cluster (page) stay together."""

    number: NDArray[np.int64]
    clusters: Sequence[Hashable]
    count: int

    @classmethod
    def make(cls, lines: int, clusters: Sequence[Hashable] | None, folds: int, seed: int) -> "Folds":
        """At most `folds` folds of about equal numbers of clusters; without clusters every line is one."""
        labels: Sequence[Hashable] = range(lines) if clusters is None else clusters
        if len(labels) != lines:
            raise FadaError(f"{len(labels)} cluster labels for {lines} lines: give one label per line.")
        numbers, names = statistics.codes(labels)
        count = min(folds, len(names))
        fold_of = np.random.default_rng(seed).permutation(len(names)) % max(1, count)
        return cls(fold_of[numbers], labels, count)


def chosen_by_folds(trials: Trials, candidates: Sequence[Weights], folds: Folds) -> list[Weights]:
    """For every fold the best candidate of the other folds; ties go to the first."""
    per_fold = [
        [part[:, folds.number == fold].sum(1) for fold in range(folds.count)]
        for part in _stacked_fractions(trials, [trials.known(weights) for weights in candidates])
    ]
    numerators, denominators = (np.stack(part, axis=1) for part in per_fold)  # (candidates, folds)
    if folds.count > 1:
        numerators, denominators = (part.sum(1, keepdims=True) - part for part in (numerators, denominators))
    return [candidates[best] for best in np.argmin(statistics.ratio(numerators, denominators), axis=0)]


def held_out_counts(trials: Trials, candidates: Sequence[Weights], folds: Folds) -> Counts:
    """The counts when every fold is decoded with the best candidate of the other folds."""
    while True:
        chosen = chosen_by_folds(trials, candidates, folds)
        if not (left := list(dict.fromkeys(weights for weights in chosen if weights not in trials.counts))):
            break
        trials.decode(left, "cross-validation")
    tables = zip(*(trials.counts[weights] for weights in chosen), strict=True)
    return Counts(*(np.stack(table)[folds.number, np.arange(len(folds.number))] for table in tables))


def gain_of(trials: Trials, before: Counts, after: Counts, folds: Folds, seed: int = 0) -> Gain:
    """What `after` changes against `before`, paired."""
    a, b = (_columns(trials.fractions(counts)) for counts in (before, after))
    (test,) = statistics.paired_tests(a, b, clusters=folds.clusters, seed=seed)
    low, high = test.interval or (None, None)
    se = trials.difference_se(before, after, folds.clusters)
    return Gain(difference=test.difference, se=se, low=low, high=high, p=test.p_randomization)


def choose_setting(trials: Trials, candidates: Sequence[Weights], rule: Rule, folds: Folds) -> Weights:
    """The setting with the lowest error, or by the one-standard-error rule the plainest that is as good as it.

    ``one_se``: among the settings whose error exceeds the lowest by no more than the standard error of that (paired)
    difference, the one tried first; settings are tried from plain to elaborate.
    """
    best = trials.best(candidates)
    if rule == "best":
        return best

    def as_good(weights: Weights) -> bool:
        se = trials.difference_se(trials.counts[best], trials.known(weights), folds.clusters)
        return trials.error(weights) - trials.error(best) <= se

    for weights in candidates:
        if as_good(weights):
            trials.evaluate(weights)
            if as_good(weights):
                return weights
    return best


def clusters_from_ids(ids: Sequence[str], pattern: str | None) -> list[str] | None:
    """The page of every line, found in its id by a regular expression (first group, or the whole match)."""
    if pattern is None:
        return None
    try:
        compiled = re.compile(pattern)
    except re.error as error:
        raise FadaError(f"page pattern {pattern!r} is not a regular expression ({error}).") from None
    pages = []
    for line in ids:
        found = compiled.search(line)
        if found is None:
            raise FadaError(f"page pattern {pattern!r} does not match the line id {line!r}.")
        pages.append(found.group(1) if compiled.groups else found.group())
    return pages


# ---------------------------------------------------------------------------------------------------------- details


def _stacked_fractions(trials: Trials, counts: Sequence[Counts]) -> Fractions:
    """Numerators and denominators, both (candidates, lines)."""
    numerators, denominators = zip(*(trials.fractions(each) for each in counts), strict=True)
    return np.stack(numerators), np.stack(denominators)


def _columns(fractions: Fractions) -> Fractions:
    return fractions[0][:, None], fractions[1][:, None]


def _not_better(weights: Weights, gain: Gain, than: str, chosen: Weights, folds: Folds) -> str:
    return (
        f"The best setting ({describe(weights)}) is not better than {than} beyond noise: held-out difference "
        f"{gain.difference:+.3f} points, standard error {gain.se:.3f}, p = {gain.p:.3f}, "
        f"{len(set(folds.clusters))} independent lines or pages. Recommended is {describe(chosen)}."
    )


def _point(trials: Trials, weights: Weights, plain: Weights, folds: Folds) -> Point:
    return Point(
        weights=weights,
        error=round(trials.error(weights), 4),
        difference=round(trials.error(weights) - trials.error(plain), 4),
        se=round(trials.difference_se(trials.counts[plain], trials.known(weights), folds.clusters), 4),
        cer=round(trials.error(weights, "cer"), 4),
        wer=round(trials.error(weights, "wer"), 4),
        ned=round(trials.error(weights, "ned"), 4),
        rescored=True if weights in trials.rescored else None,
    )
