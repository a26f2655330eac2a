"""How sure a difference is: bootstrap intervals, paired tests, correction for many domains, mean over seeds.

Every measure here is a ratio of two sums over lines (edits over characters; for macro averages, line rates over
lines), so all functions take two arrays, `numerators` and `denominators`, (lines, measures), and the value of measure
j is ``numerators[:, j].sum() / max(1, denominators[:, j].sum())``: :func:`ratio`.

Lines of one page share a hand, a photograph and often a mistake. Give the page of each line as `clusters` and whole
pages are resampled; otherwise lines are.
"""

from collections.abc import Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fada.common.probability import normal_cdf, normal_quantile, t_cdf, t_quantile
from fada.errors import FadaError

Floats = NDArray[np.floating[Any]]

POOLED_CLUSTERS = 5000
"""More clusters than this are pooled at random into this many: the variance is estimated to one per cent, and the cost
no longer grows with the number of lines."""

_CELLS = 1 << 21  # bootstrap weights held in memory at once


def ratio(numerators: Floats, denominators: Floats) -> Floats:
    """Sums (..., measures) to values; an empty denominator counts as one, so that errors on nothing stay visible."""
    return numerators / np.maximum(1.0, denominators)


def codes(labels: Iterable[Hashable]) -> tuple[NDArray[np.int64], list[Hashable]]:
    """Number the labels in order of first appearance: (lines,) integers, and the labels."""
    seen: dict[Hashable, int] = {}
    numbers = np.fromiter((seen.setdefault(label, len(seen)) for label in labels), dtype=np.int64)
    return numbers, list(seen)


def cluster_sums(values: Floats, clusters: Sequence[Hashable] | None, rng: np.random.Generator) -> Floats:
    """Sum the rows (lines, columns) of each cluster: (clusters, columns), at most ``POOLED_CLUSTERS`` of them."""
    if clusters is not None:
        if len(clusters) != len(values):
            raise FadaError(f"{len(clusters)} cluster labels for {len(values)} lines: give one label per line.")
        numbers, labels = codes(clusters)
        values = _group_sums(values, numbers, len(labels))
    if len(values) > POOLED_CLUSTERS:
        values = _group_sums(values, rng.permutation(len(values)) % POOLED_CLUSTERS, POOLED_CLUSTERS)
    return values


def bootstrap(sums: Floats, resamples: int, rng: np.random.Generator) -> Floats:
    """Column sums of `resamples` data sets drawn with replacement from the rows of `sums` (clusters, columns).

    Returns:
        (resamples, columns)
    """
    size = len(sums)
    draws = np.empty((resamples, sums.shape[1]))
    for part in _parts(resamples, size):
        count = part.stop - part.start
        chosen = rng.integers(0, size, (count, size)) + np.arange(count)[:, None] * size
        weights = np.bincount(chosen.ravel(), minlength=count * size).reshape(count, size)
        draws[part] = weights.astype(np.float64) @ sums
    return draws


def percentile_interval(samples: Floats, clusters: int) -> Floats:
    r"""95 % percentile interval of bootstrap samples (resamples, measures), widened for few clusters.

    The plain percentile interval of n observations is too narrow by about :math:`\sqrt{(n-1)/n}` and uses normal where
    t quantiles are due. The levels are therefore moved out to :math:`\Phi(-\sqrt{n/(n-1)}\, t_{n-1,\alpha/2})`
    (Hesterberg's expanded percentile interval); for many clusters this is the usual one.

    Returns:
        (measures, 2): lower and upper end.
    """
    t = -t_quantile(clusters - 1, 0.025)
    tail = normal_cdf(-np.sqrt(clusters / (clusters - 1)) * t)
    return np.quantile(samples, [tail, 1 - tail], axis=0).T


def intervals(
    numerators: Floats,
    denominators: Floats,
    *,
    clusters: Sequence[Hashable] | None = None,
    resamples: int = 1000,
    seed: int = 0,
) -> Floats | None:
    """95 % bootstrap interval of every measure, (measures, 2), or None with fewer than two clusters."""
    rng = np.random.default_rng(seed)
    sums = cluster_sums(np.concatenate([numerators, denominators], axis=1), clusters, rng)
    if len(sums) < 2 or resamples < 1:
        return None
    drawn = bootstrap(sums, resamples, rng)
    measures = numerators.shape[1]
    return percentile_interval(ratio(drawn[:, :measures], drawn[:, measures:]), len(sums))


@dataclass(frozen=True)
class PairedTest:
    """What two systems differ by on the same lines, and whether chance alone would do it. `difference` is b − a."""

    difference: float
    interval: tuple[float, float] | None
    p_bootstrap: float
    p_randomization: float


def paired_tests(
    a: tuple[Floats, Floats],
    b: tuple[Floats, Floats],
    *,
    clusters: Sequence[Hashable] | None = None,
    resamples: int = 10_000,
    seed: int = 0,
) -> list[PairedTest]:
    """Paired bootstrap and approximate randomisation, two-sided, one result per measure.

    Both keep the pairing: the bootstrap draws lines (or clusters) with both systems' results; the randomisation test
    swaps the two systems' results line by line (cluster by cluster) with probability one half, which is exact under
    the hypothesis that the systems are exchangeable. P-values are (1 + as extreme) / (1 + resamples), never zero.

    Args:
        a, b: numerators and denominators of each system, both (lines, measures).
    """
    rng = np.random.default_rng(seed)
    measures = a[0].shape[1]
    stacked = cluster_sums(np.concatenate([*a, *b], axis=1), clusters, rng)
    first, second = stacked[:, : 2 * measures], stacked[:, 2 * measures :]

    def difference(sums_a: Floats, sums_b: Floats) -> Floats:
        return ratio(sums_b[..., :measures], sums_b[..., measures:]) - ratio(
            sums_a[..., :measures], sums_a[..., measures:]
        )

    total_a, total_b = first.sum(0), second.sum(0)
    observed = difference(total_a, total_b)
    if len(stacked) < 2 or resamples < 1:
        return [PairedTest(float(value), None, 1.0, 1.0) for value in observed]

    drawn = bootstrap(stacked, resamples, rng)
    samples = difference(drawn[:, : 2 * measures], drawn[:, 2 * measures :])
    ends = percentile_interval(samples, len(stacked))
    below, above = (samples <= 0).sum(0), (samples >= 0).sum(0)
    tails = np.minimum(0.5, (1 + np.minimum(below, above)) / (1 + resamples))
    few = np.sqrt((len(stacked) - 1) / len(stacked))  # as the interval is widened, see percentile_interval
    p_bootstrap = 2 * t_cdf(len(stacked) - 1, np.array([normal_quantile(tail) for tail in tails.tolist()]) * few)

    extreme = np.zeros(measures)
    change = second - first
    change = change[np.any(change != 0, axis=1)]  # swapping equals changes nothing
    tolerance = 1e-9 * np.maximum(1.0, np.abs(observed))
    for part in _parts(resamples, max(1, len(change))):
        swapped = rng.integers(0, 2, (part.stop - part.start, len(change)), dtype=np.int8).astype(np.float64) @ change
        shuffled = difference(total_a + swapped, total_b - swapped)
        extreme += (np.abs(shuffled) >= np.abs(observed) - tolerance).sum(0)
    p_randomization = (1 + extreme) / (1 + resamples)
    return [
        PairedTest(float(d), (float(low), float(high)), float(pb), float(pr))
        for d, (low, high), pb, pr in zip(observed, ends, p_bootstrap, p_randomization, strict=True)
    ]


def difference_standard_error(
    a: tuple[Floats, Floats], b: tuple[Floats, Floats], clusters: Sequence[Hashable] | None = None
) -> float:
    r"""Standard error of the paired difference of two micro-averaged rates, by linearisation.

    With :math:`R = \sum n_i / \sum d_i` of each system, the residuals are those of b less those of a,
    :math:`(n_i - R d_i) / \sum d_i`, summed within clusters.

    Args:
        a, b: numerators (edits times 100) and denominators (lengths) of each system, all (lines,).

    Returns:
        The standard error; 0.0 with fewer than two clusters, where it is unknown.
    """
    sums = cluster_sums(np.stack([*a, *b], axis=1).astype(np.float64), clusters, np.random.default_rng(0))
    count = len(sums)
    if count < 2:
        return 0.0

    def residuals(numerators: Floats, denominators: Floats) -> Floats:
        total = max(1.0, float(denominators.sum()))
        return (numerators - numerators.sum() / total * denominators) / total

    change = residuals(sums[:, 2], sums[:, 3]) - residuals(sums[:, 0], sums[:, 1])
    return float(np.sqrt(count / (count - 1) * np.square(change).sum()))


def holm(p_values: Sequence[float]) -> list[float]:
    """P-values adjusted for looking at all of them (Holm): an adjusted value below α is significant at level α."""
    order = np.argsort(p_values, kind="stable")
    factors = np.arange(len(p_values), 0, -1)
    stepped = np.maximum.accumulate(np.asarray(p_values, dtype=np.float64)[order] * factors)
    adjusted = np.empty(len(p_values))
    adjusted[order] = np.minimum(1.0, stepped)
    return [float(value) for value in adjusted]


@dataclass(frozen=True)
class MeanSem:
    """Mean over runs and its standard error (None for a single run)."""

    mean: float
    sem: float | None
    runs: int

    def __str__(self) -> str:
        return f"{self.mean:.2f}" if self.sem is None else f"{self.mean:.2f} ({self.sem:.2f})"


def mean_sem(values: ArrayLike) -> MeanSem:
    """Mean and standard error of the mean of a measure over seeds."""
    array = np.asarray(values, dtype=np.float64)
    if array.size == 0:
        raise FadaError("mean over no runs: give at least one value.")
    return MeanSem(float(array.mean()), sem(array), int(array.size))


def sem(values: ArrayLike) -> float | None:
    """Standard error of the mean; None for one value, whose spread is unknown."""
    array = np.asarray(values, dtype=np.float64)
    return float(array.std(ddof=1) / np.sqrt(array.size)) if array.size > 1 else None


def _group_sums(values: Floats, numbers: NDArray[Any], groups: int) -> Floats:
    return np.stack([np.bincount(numbers, weights=column, minlength=groups) for column in values.T], axis=1)


def _parts(rows: int, columns: int) -> Iterator[slice]:
    step = max(1, _CELLS // columns)
    for start in range(0, rows, step):
        yield slice(start, min(rows, start + step))
