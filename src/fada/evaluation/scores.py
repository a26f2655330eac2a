"""CER, WER and NED, overall, per domain and per any other column, with intervals and paired tests.

Rules, the same everywhere and the same as jiwer's:

* Rates are in percent. **Micro** average (default): all edits over all reference characters or words. **Macro**: the
  mean over lines of each line's own rate.
* White space at the two ends of a line is not part of it; words are what stands between white space.
* The denominator is never less than one. Nothing recognised as nothing is 0 %; three characters written where the
  reference is empty are three errors: 300 % on that line, three more errors in a micro average.
* NED is the edit distance over the longer of the two texts, so it never exceeds 100 %.
* Texts are compared as they are, code point by code point, unless a normalisation is stated.
"""

import re
from collections import Counter
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fada import distances
from fada.common.tables import Cells
from fada.errors import FadaError
from fada.evaluation import significance as statistics
from fada.evaluation.edits import (
    Average,
    LineScores,
    TextOptions,
    Units,
    check_choice,
    parse_normalization,
    score_lines,
)
from fada.evaluation.significance import MeanSem
from fada.text.characters import natural_key
from fada.text.counting import count_characters
from fada.text.normalizer import TextNormalizer

Interval = tuple[float, float]

METRICS = ("cer", "wer", "ned")
DISTRIBUTION_DISTANCES = ("sorted_w2", "aligned_w2", "js")
_SURROGATES = re.compile("[\ud800-\udfff]")
NO_LABEL = "(none)"
"""Where a line without a domain is counted."""


@dataclass(frozen=True)
class Scoring:
    """How texts are compared and how sure the figures are; the fields are the arguments of :func:`evaluate`.

    `bootstrap` and `resamples` are the draws for the intervals of a system and for the paired tests; 0 for none.
    """

    average: Average = "micro"
    units: Units = "codepoints"
    normalization: str | Iterable[str] | None = None
    bootstrap: int = 1000
    resamples: int = 10_000
    seed: int = 0

    @property
    def text_options(self) -> TextOptions:
        """What decides whether two texts are equal."""
        return {"units": self.units, "normalization": self.normalization}

    @property
    def rate_options(self) -> "RateOptions":
        """What decides an error rate."""
        return {"average": self.average, **self.text_options}


class RateOptions(TextOptions):
    """Arguments of functions that compute error rates."""

    average: Average


# ---------------------------------------------------------------------------------------------------------- results


@dataclass(frozen=True, kw_only=True)
class Scores:
    """Error rates of a set of lines, in percent, with what they were computed from.

    `intervals` holds the 95 % bootstrap interval of each rate (absent for fewer than two lines or clusters);
    `distance` the distances between the distributions of predicted and reference characters (NFC, lower case).
    """

    lines: int
    characters: int
    words: int
    cer: float
    wer: float
    ned: float
    substitutions: int
    insertions: int
    deletions: int
    intervals: dict[str, Interval] = field(default_factory=dict)
    distance: dict[str, float] = field(default_factory=dict)

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(frozen=True, kw_only=True)
class Evaluation(Scores):
    """The :class:`Scores` of all lines, of each domain and of each value of any other column, and how they were made.

    `per_group` is column → value → scores. `clusters` is the number of resampled units (pages, or lines).
    """

    per_domain: dict[str, Scores] = field(default_factory=dict)
    per_group: dict[str, dict[str, Scores]] = field(default_factory=dict)
    average: Average = "micro"
    units: Units = "codepoints"
    normalization: tuple[str, ...] = ()
    bootstrap: int = 0
    clusters: int = 0
    seed: int = 0

    def rows(self) -> list[Cells]:
        """One row per domain and a last one for all lines, ready for a table."""
        return [_row("domain", name, scores) for name, scores in [*self.per_domain.items(), ("all", self)]]

    def group_rows(self, column: str) -> list[Cells]:
        """One row per value of `column`, the worst first."""
        worst_first = sorted(self.per_group[column].items(), key=lambda item: -item[1].cer)
        return [_row(column, name, scores) for name, scores in worst_first]

    def describe(self) -> str:
        """What the numbers are, for captions: ``CER, WER and NED in percent, micro average over …``."""
        units = {"codepoints": "code points", "graphemes": "grapheme clusters"}[self.units]
        how = "exact" if not self.normalization else "normalised: " + ", ".join(self.normalization)
        return f"CER, WER and NED in percent, {self.average} average over {units}, {how}"


@dataclass(frozen=True, kw_only=True)
class Difference:
    """System b against system a on one measure. `difference` is b − a in points, `relative` in percent of a.

    `p` is the approximate-randomisation p-value, `p_bootstrap` the paired bootstrap's; `p_holm` is `p` corrected over
    all domains (equal to `p` for all lines together). `distance` holds each distribution distance before and after.
    """

    metric: str
    lines: int
    a: float
    b: float
    difference: float
    relative: float | None
    interval: Interval | None
    p: float
    p_bootstrap: float
    p_holm: float
    distance: dict[str, Interval] = field(default_factory=dict)

    @property
    def significant(self) -> bool:
        """Whether `p_holm` is below 0.05."""
        return self.p_holm < 0.05


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """Two systems on the same lines: `overall` by measure, `per_domain` by domain and measure."""

    names: tuple[str, str]
    overall: dict[str, Difference]
    per_domain: dict[str, dict[str, Difference]]
    average: Average
    units: Units
    normalization: tuple[str, ...]
    resamples: int
    seed: int

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)

    def rows(self, metric: str = "cer") -> list[Cells]:
        """One row per domain and a last one for all lines, ready for a table."""
        named = [(domain, items[metric]) for domain, items in self.per_domain.items()]
        return [
            {
                "domain": name,
                "lines": change.lines,
                f"{metric} {self.names[0]}": change.a,
                f"{metric} {self.names[1]}": change.b,
                "change": change.difference,
                "low": change.interval[0] if change.interval else None,
                "high": change.interval[1] if change.interval else None,
                "relative %": change.relative,
                "p": change.p,
                "p (bootstrap)": change.p_bootstrap,
                "p (Holm)": change.p_holm,
            }
            for name, change in [*named, ("all", self.overall[metric])]
        ]


# ----------------------------------------------------------------------------------------------------------- groups


def length_buckets(references: Iterable[str]) -> list[str]:
    """A group label by reference length, such as ``21-40``, for the `groups` of :func:`evaluate`."""
    edges = (10, 20, 40, 80)
    labels = [f"{low + 1}-{high}" for low, high in zip((-1, *edges), edges, strict=False)] + [f"over {edges[-1]}"]
    lengths = np.fromiter((len(text.strip()) for text in references), dtype=np.int64)
    return [labels[position] for position in np.searchsorted(edges, lengths)]


# ------------------------------------------------------------------------------------------------------- evaluation


def evaluate(
    references: Sequence[str],
    hypotheses: Sequence[str],
    domains: Sequence[str | None] | None = None,
    *,
    groups: Mapping[str, Sequence[Any]] | None = None,
    average: Average = "micro",
    units: Units = "codepoints",
    normalization: str | Iterable[str] | None = None,
    bootstrap: int = 1000,
    clusters: Sequence[Hashable] | None = None,
    seed: int = 0,
) -> Evaluation:
    """Error rates of `hypotheses` against `references`, with 95 % bootstrap intervals.

    Args:
        references, hypotheses: one text per line, in the same order.
        domains: the domain of each line (century, region, …) for `per_domain`; a line without one counts under
            ``(none)``.
        groups: further columns (manuscript, page, writer; see :func:`length_buckets`) for `per_group`.
        average: ``micro`` (all edits over all characters) or ``macro`` (mean of the lines' own rates).
        units: count code points, or grapheme clusters (a letter with its marks is one).
        normalization: some of :data:`fada.evaluation.edits.NORMALIZATIONS`, as names or as one string with commas; None
            compares exactly, but for white space at both ends.
        bootstrap: number of resamples for the intervals; 0 for none.
        clusters: the page (or other cluster) of each line: whole clusters are resampled instead of lines.
        seed: of the resampling.
    """
    check_choice("average", average, Average)
    names = parse_normalization(normalization)
    lines = score_lines(references, hypotheses, units=units, normalization=names)
    columns = dict(groups or {})
    for name, labels in [("domains", domains), ("clusters", clusters), *columns.items()]:
        if labels is not None and len(labels) != len(lines):
            raise FadaError(f"{name}: {len(labels)} labels for {len(lines)} lines, expected one per line.")

    def scores(chosen: NDArray[np.int64] | None) -> dict[str, Any]:
        return _scores(lines, chosen, average, bootstrap, clusters, seed)

    def per_value(labels: Sequence[Any]) -> dict[str, NDArray[np.int64]]:
        return group_positions([NO_LABEL if label is None else str(label) for label in labels])

    by_domain = {} if domains is None else per_value(domains)
    counted = {
        domain: [_counts(texts[i] for i in chosen) for texts in (references, hypotheses)]
        for domain, chosen in by_domain.items()
    }
    totals = counted.values() if counted else [[_counts(references), _counts(hypotheses)]]
    by_column = {column: per_value(labels) for column, labels in columns.items()}
    return Evaluation(
        **scores(None),
        distance=_distances(*(sum(side, Counter()) for side in zip(*totals, strict=True))),
        per_domain={
            domain: Scores(**scores(chosen), distance=_distances(*counted[domain]))
            for domain, chosen in by_domain.items()
        },
        per_group={
            column: {value: Scores(**scores(chosen)) for value, chosen in positions.items()}
            for column, positions in by_column.items()
        },
        average=average,
        units=units,
        normalization=names,
        bootstrap=bootstrap,
        clusters=len(lines) if clusters is None else len(set(clusters)),
        seed=seed,
    )


def compare(
    references: Sequence[str],
    a: Sequence[str],
    b: Sequence[str],
    domains: Sequence[str | None] | None = None,
    clusters: Sequence[Hashable] | None = None,
    *,
    names: tuple[str, str] = ("a", "b"),
    average: Average = "micro",
    units: Units = "codepoints",
    normalization: str | Iterable[str] | None = None,
    resamples: int = 10_000,
    seed: int = 0,
) -> Comparison:
    """Is system b better than system a on the same lines? Paired tests for all lines and for each domain.

    Both a paired bootstrap (interval of the difference) and an approximate-randomisation test are made; over the
    domains the p-values are corrected by Holm's method, per measure.
    """
    check_choice("average", average, Average)
    chosen = parse_normalization(normalization)
    lines_a = score_lines(references, a, units=units, normalization=chosen)
    lines_b = score_lines(references, b, units=units, normalization=chosen)
    if domains is not None and len(domains) != len(lines_a):
        raise FadaError(f"domains: {len(domains)} labels for {len(lines_a)} lines, expected one per line.")

    def tested(positions: NDArray[np.int64]) -> dict[str, Difference]:
        fractions = [tuple(part[positions] for part in lines.fractions(average)) for lines in (lines_a, lines_b)]
        values = [statistics.ratio(numerators.sum(0), denominators.sum(0)) for numerators, denominators in fractions]
        tests = statistics.paired_tests(
            (fractions[0][0], fractions[0][1]),
            (fractions[1][0], fractions[1][1]),
            clusters=None if clusters is None else [clusters[i] for i in positions],
            resamples=resamples,
            seed=seed,
        )
        counted, *read = (_counts(column[i] for i in positions) for column in (references, a, b))
        before, after = (_distances(counted, predicted) for predicted in read)
        return {
            metric: Difference(
                metric=metric,
                lines=len(positions),
                a=float(values[0][j]),
                b=float(values[1][j]),
                difference=test.difference,
                relative=float(100 * test.difference / values[0][j]) if values[0][j] > 0 else None,
                interval=test.interval,
                p=test.p_randomization,
                p_bootstrap=test.p_bootstrap,
                p_holm=test.p_randomization,
                distance={name: (before[name], after[name]) for name in before if name in after},
            )
            for j, (metric, test) in enumerate(zip(METRICS, tests, strict=True))
        }

    labels = None if domains is None else [NO_LABEL if domain is None else str(domain) for domain in domains]
    per_domain = {} if labels is None else {d: tested(chosen) for d, chosen in group_positions(labels).items()}
    for metric in METRICS:
        adjusted = statistics.holm([items[metric].p for items in per_domain.values()])
        for items, p_holm in zip(per_domain.values(), adjusted, strict=True):
            items[metric] = replace(items[metric], p_holm=p_holm)
    return Comparison(
        names=names,
        overall=tested(np.arange(len(lines_a))),
        per_domain=per_domain,
        average=average,
        units=units,
        normalization=chosen,
        resamples=resamples,
        seed=seed,
    )


def over_seeds(evaluations: Sequence[Evaluation]) -> dict[str, dict[str, MeanSem]]:
    """Mean and standard error over seeds: ``result["all"]["cer"]``, and the same for each domain that all runs have."""
    if not evaluations:
        raise FadaError("mean over no runs: give at least one evaluation.")
    shared = [domain for domain in evaluations[0].per_domain if all(domain in e.per_domain for e in evaluations)]
    scores: dict[str, list[Scores]] = {"all": list(evaluations)}
    scores |= {domain: [e.per_domain[domain] for e in evaluations] for domain in shared}
    return {
        name: {metric: statistics.mean_sem([getattr(score, metric) for score in runs]) for metric in METRICS}
        for name, runs in scores.items()
    }


def group_positions(labels: Sequence[str]) -> dict[str, NDArray[np.int64]]:
    """The positions of each label, labels in natural order."""
    numbers, names = statistics.codes(labels)
    order = np.argsort(numbers, kind="stable")
    bounds = np.searchsorted(numbers[order], np.arange(len(names) + 1))
    positions = {str(name): order[bounds[i] : bounds[i + 1]] for i, name in enumerate(names)}
    return {name: positions[name] for name in sorted(positions, key=natural_key)}


# ---------------------------------------------------------------------------------------------------------- details


def _scores(
    lines: LineScores,
    chosen: NDArray[np.int64] | None,
    average: Average,
    resamples: int,
    clusters: Sequence[Hashable] | None,
    seed: int,
) -> dict[str, Any]:
    if chosen is not None:
        lines = LineScores(*(getattr(lines, part.name)[chosen] for part in fields(lines)))
        clusters = None if clusters is None else [clusters[i] for i in chosen]
    numerators, denominators = lines.fractions(average)
    rates = statistics.ratio(numerators.sum(0), denominators.sum(0))
    ends = statistics.intervals(numerators, denominators, clusters=clusters, resamples=resamples, seed=seed)
    return {
        "lines": len(lines),
        "characters": int(lines.characters.sum()),
        "words": int(lines.words.sum()),
        **{metric: float(rate) for metric, rate in zip(METRICS, rates, strict=True)},
        "substitutions": int(lines.substitutions.sum()),
        "insertions": int(lines.insertions.sum()),
        "deletions": int(lines.deletions.sum()),
        "intervals": {}
        if ends is None
        else {metric: (float(low), float(high)) for metric, (low, high) in zip(METRICS, ends, strict=True)},
    }


def _counts(texts: Iterable[str]) -> Counter[str]:
    """Of characters in NFC and lower case."""
    # Half a surrogate pair is an error of some export, not a character; it is an edit like any other, and counted as �.
    whole = (_SURROGATES.sub("\N{REPLACEMENT CHARACTER}", text.strip()) for text in texts)
    return Counter(count_characters(whole, TextNormalizer()))


def _distances(references: Counter[str], hypotheses: Counter[str]) -> dict[str, float]:
    """Distances between the distributions of counted characters; none if a side is empty."""
    if not references or not hypotheses:
        return {}
    alphabet = sorted(references.keys() | hypotheses.keys())
    p, q = (np.array([count[character] for character in alphabet], float) for count in (references, hypotheses))
    return {name: float(distances.get(name)(q / q.sum(), p / p.sum())) for name in DISTRIBUTION_DISTANCES}


def _row(label: str, name: str, scores: Scores) -> Cells:
    low, high = scores.intervals.get("cer", (None, None))
    return {
        label: name,
        "lines": scores.lines,
        "characters": scores.characters,
        "cer": scores.cer,
        "low": low,
        "high": high,
        "wer": scores.wer,
        "ned": scores.ned,
        "sorted W2": scores.distance.get("sorted_w2"),
        "aligned W2": scores.distance.get("aligned_w2"),
    }
