"""Several systems on the same lines: evaluated side by side, tested against one of them, averaged over seeds."""

from collections.abc import Hashable, Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from fada.common.tables import Cells
from fada.errors import FadaError
from fada.evaluation import significance as statistics
from fada.evaluation.confusions import character_changes
from fada.evaluation.predictions import Systems
from fada.evaluation.scores import Comparison, Evaluation, Scoring, compare, evaluate, over_seeds

READS_BELOW = 50.0
"""Above this CER, in percent, more is wrong than right."""


def does_not_read(rates: Iterable[float]) -> str | None:
    """A sentence if all of these CER are so high that nothing can be learnt from their differences."""
    lowest = min(rates, default=0.0)
    if lowest <= READS_BELOW:
        return None
    return (
        f"No system reads yet: the lowest CER is {lowest:.1f} %, so more is wrong than right, and a difference between "
        "systems says nothing. Train longer or on more lines, and check that the texts belong to the lines."
    )


@dataclass(frozen=True, kw_only=True)
class SystemsEvaluation:
    """Every system's :class:`Evaluation`, and its :class:`Comparison` with the baseline.

    `p_holm` corrects the overall CER test over the systems compared.
    """

    baseline: str
    evaluations: dict[str, Evaluation]
    comparisons: dict[str, Comparison]
    p_holm: dict[str, float]

    @property
    def unreadable(self) -> str | None:
        """A sentence if no system reads yet: differences between texts that are mostly wrong say nothing."""
        return does_not_read(evaluation.cer for evaluation in self.evaluations.values())

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)

    def rows(self) -> list[Cells]:
        """One row per system: error rates with intervals, and the change against the baseline with its tests."""
        rows = []
        for name, evaluation in self.evaluations.items():
            low, high = evaluation.intervals.get("cer", (None, None))
            row: Cells = {"system": name, "cer": evaluation.cer, "low": low, "high": high}
            row |= {"wer": evaluation.wer, "ned": evaluation.ned}
            change = self.comparisons[name].overall["cer"] if name in self.comparisons else None
            ends = change.interval if change and change.interval else (None, None)
            row |= {
                "change": change.difference if change else None,
                "change low": ends[0],
                "change high": ends[1],
                "relative %": change.relative if change else None,
                "p": change.p if change else None,
                "p (bootstrap)": change.p_bootstrap if change else None,
                "p (Holm)": self.p_holm.get(name),
            }
            rows.append(row)
        return rows


def evaluate_systems(
    systems: Systems,
    baseline: str | None = None,
    scoring: Scoring = Scoring(),
    *,
    groups: Iterable[str] = (),
    clusters: str | None = None,
) -> SystemsEvaluation:
    """Evaluate every system, and test each against the baseline (the first system if not named).

    Args:
        groups: columns for :attr:`Evaluation.per_group`.
        clusters: the column (such as ``page``) whose values are resampled as a whole.
    """
    baseline = baseline or next(iter(systems.systems))
    if baseline not in systems.systems:
        raise FadaError(f"{systems.source}: no system {baseline!r}, expected one of {', '.join(systems.systems)}.")
    group_columns = {name: systems.column(name) for name in groups}
    labels: list[Hashable] | None = None
    if clusters is not None:  # a line without a label shares nothing with others
        found = systems.column(clusters)
        labels = [(i,) if label is None else label for i, label in enumerate(found)]
    evaluations = {
        name: evaluate(
            systems.references,
            texts,
            systems.domains,
            groups=group_columns,
            bootstrap=scoring.bootstrap,
            clusters=labels,
            seed=scoring.seed,
            **scoring.rate_options,
        )
        for name, texts in systems.systems.items()
    }
    before = systems.systems[baseline]
    comparisons = {
        name: compare(
            systems.references,
            before,
            texts,
            systems.domains,
            names=(baseline, name),
            resamples=scoring.resamples,
            clusters=labels,
            seed=scoring.seed,
            **scoring.rate_options,
        )
        for name, texts in systems.systems.items()
        if name != baseline
    }
    adjusted = statistics.holm([comparison.overall["cer"].p for comparison in comparisons.values()])
    return SystemsEvaluation(
        baseline=baseline,
        evaluations=evaluations,
        comparisons=comparisons,
        p_holm=dict(zip(comparisons, adjusted, strict=True)),
    )


def seed_rows(results: Sequence[SystemsEvaluation]) -> list[Cells]:
    """Mean and SEM over runs that differ in their seed: one row per system and domain that all runs have."""
    names = [name for name in results[0].evaluations if all(name in result.evaluations for result in results)]
    rows = []
    for name in names:
        means = over_seeds([result.evaluations[name] for result in results])
        for domain, by_metric in means.items():
            row: Cells = {"system": name, "domain": domain, "runs": len(results)}
            for metric, value in by_metric.items():
                row |= {metric: value.mean, f"{metric} sem": value.sem}
            rows.append(row)
    return rows


def character_rows(systems: Systems, baseline: str, name: str, limit: int, **options: Any) -> list[Cells]:
    """The characters most helped and most hurt by `name` against the baseline, at most `limit` of each."""
    changes = character_changes(systems.references, systems.systems[baseline], systems.systems[name], **options)
    helped = [change for change in changes if change.helped > 0][:limit]
    hurt = [change for change in changes if change.helped < 0][-limit:]
    return [change.row() for change in [*helped, *hurt]] if limit else []
