"""What the report compares: every decoding of every experiment, pooled over seeds and paired line by line."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from fada.errors import FadaError
from fada.evaluation import significance as statistics
from fada.evaluation.predictions import Predictions
from fada.evaluation.scores import Comparison, Difference, Evaluation, Scoring, compare, evaluate, over_seeds
from fada.evaluation.significance import MeanSem
from fada.runs.groups import Experiment, experiments
from fada.runs.run import Run


@dataclass(frozen=True)
class Contender:
    """One way of decoding in one experiment; several seeds of it are pooled."""

    experiment: Experiment
    system: str
    label: str

    @property
    def runs(self) -> list[Run]:
        """The runs, one per seed, that have this system."""
        return [run for run in self.experiment.runs if self.system in run.predictions]

    @property
    def lines(self) -> list[Predictions]:
        """The predictions of each run."""
        return [run.predictions[self.system] for run in self.runs]

    @property
    def guided(self) -> bool:
        """Whether FADA's guidance was used."""
        return self.runs[0].predictions[self.system].guided

    @property
    def rates(self) -> dict[str, MeanSem]:
        """Mean and SEM over seeds of each rate."""
        return over_seeds([run.evaluation(self.system) for run in self.runs])["all"]

    def evaluation(self, scoring: Scoring) -> Evaluation:
        """All seeds pooled, with intervals; the seeds of a line are drawn together."""
        lines = self.lines
        return evaluate(
            [text for part in lines for text in part.references],
            [text for part in lines for text in part.hypotheses],
            [domain for part in lines for domain in part.domains],
            clusters=[line_id for part in lines for line_id in part.ids],
            bootstrap=scoring.bootstrap,
            **scoring.rate_options,
        )


@dataclass(frozen=True)
class Pairing:
    """The lines that two contenders both read, over all seeds that both have: five columns of equal length."""

    ids: list[str]
    domains: list[str | None]
    references: list[str]
    before: list[str]
    after: list[str]

    @classmethod
    def of(cls, before: Contender, after: Contender) -> "Pairing":
        """Pair seed with seed, or in the order given where the seeds differ, and line with line by id."""
        pairing = cls([], [], [], [], [])
        seeds = {run.seed: run for run in after.runs}
        same_seed = [(run, seeds[run.seed]) for run in before.runs if run.seed is not None and run.seed in seeds]
        for first, second in same_seed or zip(before.runs, after.runs, strict=False):
            a, b = first.predictions[before.system], second.predictions[after.system]
            known = set(b.ids)
            a = a.ordered([line_id for line_id in a.ids if line_id in known])
            columns = (a.ids, a.domains, a.references, a.hypotheses, b.ordered(a.ids).hypotheses)
            for column, values in zip(vars(pairing).values(), columns, strict=True):
                column.extend(values)
        return pairing

    def compare(self, scoring: Scoring, per_domain: bool) -> Comparison:
        """Paired tests of the second against the first."""
        return compare(
            self.references,
            self.before,
            self.after,
            self.domains if per_domain else None,
            self.ids,
            resamples=scoring.resamples,
            **scoring.rate_options,
        )


@dataclass(frozen=True)
class DataSet:
    """The contenders with one model on one data set, and the two that the report puts side by side.

    The two are the same one if it is alone. `source` is the data set's own name, `name` is how the report calls this.
    """

    name: str
    source: str
    contenders: tuple[Contender, ...]
    before: Contender
    after: Contender

    @property
    def single(self) -> bool:
        """Whether there is nothing to compare with."""
        return self.before is self.after

    def differences(self, scoring: Scoring) -> dict[str, Difference]:
        """CER of every other contender against `before`, by label; p-values corrected by Holm over all of them."""
        found = {}
        for other in self.contenders:
            if other is not self.before and (pairing := Pairing.of(self.before, other)).ids:
                found[other.label] = pairing.compare(scoring, per_domain=False).overall["cer"]
        adjusted = statistics.holm([difference.p for difference in found.values()])
        return {
            label: Difference(**{**vars(difference), "p_holm": p})
            for (label, difference), p in zip(found.items(), adjusted, strict=True)
        }


def data_sets(runs: Sequence[Run], baseline: str | None = None, compared: str | None = None) -> list[DataSet]:
    """The runs by data set. `baseline` and `compared` are the two systems put side by side: labels or system names."""
    groups: dict[tuple[str, str], list[Experiment]] = {}
    for experiment in experiments(runs):
        groups.setdefault((experiment.dataset, experiment.runs[0].model), []).append(experiment)
    models = {model for _, model in groups}
    result = []
    for (source, model), members in groups.items():
        label = _labeller(members)
        contenders = tuple(
            Contender(experiment, system, label(experiment, system))
            for experiment in members
            for system in dict.fromkeys(system for run in experiment.runs for system in run.predictions)
        )
        before = _named(contenders, baseline) if baseline else _default_baseline(contenders)
        after = _named(contenders, compared) if compared else _default_compared(contenders, before)
        name = f"{source} · {model}" if len(models) > 1 else source
        result.append(DataSet(name, source, contenders, before, after))
    return result


def paired_run(contender: Contender, run: Run) -> Run:
    """The run of `contender` with the seed of `run`, or its first."""
    return next((other for other in contender.runs if other.seed == run.seed), contender.runs[0])


def _labeller(members: Sequence[Experiment]) -> Callable[[Experiment, str], str]:
    def parts(experiment: Experiment) -> list[str]:
        shown = []
        if len({other.training for other in members}) > 1:
            shown.append({"standard": "Standard", "TR-TT": "TR-TT", "FADA": "FADA-TR"}[experiment.training])
        if experiment.note:
            shown.append(experiment.note)
        return shown

    return lambda experiment, system: " · ".join([*parts(experiment), system])


def _named(contenders: Sequence[Contender], name: str) -> Contender:
    found = [c for c in contenders if c.label == name] or [c for c in contenders if c.system == name]
    if not found:
        known = ", ".join(repr(c.label) for c in contenders)
        raise FadaError(f"no system {name!r} in these runs, expected one of {known}.")
    return found[0]


def _default_baseline(contenders: Sequence[Contender]) -> Contender:
    def rank(contender: Contender) -> tuple[bool, bool, bool]:
        plain = contender.system == contender.runs[0].plain_system
        return (contender.experiment.training != "standard", contender.guided, not plain)

    return min(contenders, key=rank)


def _default_compared(contenders: Sequence[Contender], before: Contender) -> Contender:
    others = [c for c in contenders if c is not before]

    def rank(contender: Contender) -> tuple[bool, bool, bool]:
        run = contender.runs[0]
        usual = contender.system in (run.guided_system, run.plain_system, run.tuned_system)
        return (not contender.guided, contender.experiment.training != "FADA", not usual)

    # Among equals the first, never the one with the lowest error: that would be chosen on the test lines.
    return min(others, key=rank, default=before)
