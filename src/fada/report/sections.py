"""The sections of the report as plain values for its template: numbers, sentences and finished drawings."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import numpy as np
from markupsafe import Markup

from fada import distances
from fada.decoding.weights import NO_GUIDANCE
from fada.evaluation.confusions import CharacterChange, character_changes, confusions
from fada.evaluation.edits import score_lines
from fada.evaluation.scores import NO_LABEL, Difference, Evaluation, Scoring
from fada.evaluation.significance import MeanSem
from fada.evaluation.systems import READS_BELOW
from fada.report.charts import Curve, frequency_chart, interval_bar, line_chart
from fada.report.comparison import Contender, DataSet, Pairing
from fada.report.lines import LineList
from fada.runs.run import Run
from fada.targets.distribution import CharDistribution
from fada.text.characters import OTHER, natural_key
from fada.text.normalizer import TextNormalizer
from fada.tuning.tuned import Point

SHOWN_CHARACTERS = 22
SHOWN_DOMAINS = 12
SHOWN_CONFUSIONS = 10
_OTHER_STYLES = ("s2", "s3", "s4", "s5")


@dataclass(frozen=True)
class Tile:
    """A figure of the masthead."""

    label: str
    value: str
    note: str


@dataclass(frozen=True)
class ResultRow:
    """A system in the table of results; `difference` is None for the baseline."""

    contender: Contender
    evaluation: Evaluation
    rates: Mapping[str, MeanSem]
    difference: Difference | None
    best: bool
    role: str
    """``first reading``, ``second reading`` or nothing."""

    @property
    def label(self) -> str:
        return self.contender.label

    @property
    def distance(self) -> float | None:
        """Sorted W2 between the character frequencies of what was read and of the reference."""
        return self.evaluation.distance.get("sorted_w2")

    @property
    def significance(self) -> str:
        """Whether the difference is larger than chance explains, with p."""
        if self.difference is None:
            return ""
        return f"{'yes' if self.difference.significant else 'no'}, p\u00a0{_equation(self.difference.p_holm)}"


@dataclass(frozen=True)
class DomainRow:
    """A domain: error rates of both readings in percent, drawn as `bars`; `number` is that of the list of lines."""

    name: str
    number: int
    lines: int
    bars: Markup
    before: float
    after: float
    difference: Difference | None


@dataclass(frozen=True)
class Drawing:
    """A finished drawing with its title, a note, and the curves that its legend names."""

    name: str
    note: str
    chart: Markup
    curves: Sequence[Curve] = ()


@dataclass(frozen=True)
class ConfusionRow:
    """A character read as another, and how often in each reading."""

    reference: str
    predicted: str
    before: int
    after: int


Row = TypeVar("Row")


@dataclass(frozen=True)
class Listing(Generic[Row]):
    """Rows under a caption."""

    caption: str
    rows: Sequence[Row]


@dataclass(frozen=True)
class View:
    """Everything that the page says about one data set."""

    index: int
    name: str
    single: bool
    before: Contender
    after: Contender
    seeds: int
    how: str
    verdict: Markup
    unread: bool
    tiles: Sequence[Tile]
    results: Sequence[ResultRow]
    notes: Sequence[str]
    domains: Sequence[DomainRow]
    frequencies: Sequence[Drawing]
    more_frequencies: Sequence[Drawing]
    target_name: str
    confusions: Sequence[Listing[ConfusionRow]]
    characters: Sequence[Listing[CharacterChange]]


def view(number: int, data_set: DataSet, listed: LineList, scoring: Scoring) -> View:
    evaluations = {c.label: c.evaluation(scoring) for c in data_set.contenders}
    differences = data_set.differences(scoring)
    pairing = Pairing.of(data_set.before, data_set.after)
    before, after = evaluations[data_set.before.label], evaluations[data_set.after.label]
    frequencies, target_name = _frequencies(data_set, pairing)
    unread = all(c.rates["cer"].mean > READS_BELOW for c in data_set.contenders)
    return View(
        index=number,
        name=data_set.name,
        single=data_set.single,
        before=data_set.before,
        after=data_set.after,
        seeds=max(len(c.runs) for c in data_set.contenders),
        how=before.describe() + f"; {before.clusters:,} lines.",
        verdict=_unread(data_set) if unread else _verdict(data_set, evaluations, differences),
        unread=unread,
        tiles=_tiles(data_set, pairing, before, after, scoring),
        results=_results(data_set, evaluations, differences, unread),
        notes=_notes(data_set, evaluations),
        domains=_domains(data_set, listed, pairing, (before, after), scoring),
        frequencies=frequencies[:SHOWN_DOMAINS],
        more_frequencies=frequencies[SHOWN_DOMAINS:],
        target_name=target_name,
        confusions=_confusions(data_set, pairing, scoring),
        characters=[] if data_set.single else _characters(pairing, scoring),
    )


def p_value(p: float) -> str:
    """A p-value as printed."""
    return "<\u00a00.001" if p < 0.001 else f"{p:.3f}"


# ------------------------------------------------------------------------------------------------------ masthead


def _unread(data_set: DataSet) -> Markup:
    best = min(data_set.contenders, key=lambda c: c.rates["cer"].mean)
    return Markup(
        "<b>The model does not read yet.</b> Even <b>{}</b>, the best here, has a character error rate of {:.1f} %: "
        "differences between such texts are no gain. Train longer, or on more lines, before comparing systems."
    ).format(best.label, best.rates["cer"].mean)


def _verdict(data_set: DataSet, evaluations: Mapping[str, Evaluation], differences: Mapping[str, Difference]) -> Markup:
    first = evaluations[data_set.before.label]
    if data_set.single:
        interval = first.intervals.get("cer")
        between = f", 95 % interval {interval[0]:.2f} to {interval[1]:.2f}" if interval else ""
        return Markup("<b>{}</b> reads {:,} lines with a character error rate of <b>{:.2f} %</b>{}.").format(
            data_set.before.label, first.lines, first.cer, between
        )
    change = differences.get(data_set.after.label)
    if change is None:
        return Markup("<b>{}</b> and <b>{}</b> have no line in common.").format(
            data_set.before.label, data_set.after.label
        )
    if change.difference == 0:
        effect = Markup("makes as many character errors as")
    else:
        amount = (
            f"{abs(change.relative):.1f} %" if change.relative is not None else f"{abs(change.difference):.2f} points"
        )
        better = change.difference < 0
        effect = Markup('makes <b class="{}">{} {} character errors</b> than').format(
            "better" if better else "worse", amount, "fewer" if better else "more"
        )
    interval = change.interval
    between = f", 95 % interval {_signed(interval[0])} to {_signed(interval[1])} points" if interval else ""
    sentences = [
        Markup("<b>{}</b> {} <b>{}</b>: {:.2f} % instead of {:.2f} %{}, p\u00a0{}.").format(
            data_set.after.label, effect, data_set.before.label, change.b, change.a, between, _equation(change.p_holm)
        ),
        "The difference is larger than chance explains."
        if change.significant
        else "That is within what chance alone would produce on these lines.",
    ]
    best = min(data_set.contenders, key=lambda c: c.rates["cer"].mean)
    if best not in (data_set.before, data_set.after) and best.rates["cer"].mean < data_set.after.rates["cer"].mean:
        sentences.append(
            Markup("The lowest error rate here is that of <b>{}</b>: {:.2f} %.").format(
                best.label, best.rates["cer"].mean
            )
        )
    return Markup(" ").join(sentences)


def _tiles(data_set: DataSet, pairing: Pairing, before: Evaluation, after: Evaluation, scoring: Scoring) -> list[Tile]:
    def rates(label: str, metric: str) -> Tile:
        first, second = getattr(before, metric), getattr(after, metric)
        value = f"{first:.2f}" if data_set.single else f"{first:.2f} → {second:.2f}"
        interval = after.intervals.get(metric)
        note = f"95 % interval {interval[0]:.2f} to {interval[1]:.2f}" if interval else ""
        return Tile(label, Markup("{} <small>%</small>").format(value), note)

    tiles = [rates("Character error rate", "cer"), rates("Word error rate", "wer")]
    if not data_set.single and pairing.ids:
        first = score_lines(pairing.references, pairing.before, **scoring.text_options).edits
        second = score_lines(pairing.references, pairing.after, **scoring.text_options).edits
        better, worse = int((second < first).sum()), int((second > first).sum())
        counts = Markup('<span class="better">▼ {:,}</span> <span class="worse">▲ {:,}</span>').format(better, worse)
        tiles.append(Tile("Lines", counts, f"with fewer, with more errors; {len(first) - better - worse:,} the same"))
    if "sorted_w2" in before.distance and "sorted_w2" in after.distance:
        first_w2, second_w2 = (1000 * e.distance["sorted_w2"] for e in (before, after))
        value = f"{first_w2:.3f}" if data_set.single else f"{first_w2:.3f} → {second_w2:.3f}"
        tiles.append(Tile("Distance of character frequencies", value, "sorted W₂ to the reference, × 1000"))
    return tiles


# ------------------------------------------------------------------------------------------------------- results


def _results(
    data_set: DataSet, evaluations: Mapping[str, Evaluation], differences: Mapping[str, Difference], unread: bool
) -> list[ResultRow]:
    rates = {c.label: c.rates for c in data_set.contenders}
    smallest = min(round(r["cer"].mean, 2) for r in rates.values())
    roles = {data_set.after.label: "second reading", data_set.before.label: "first reading"}
    return [
        ResultRow(
            contender=contender,
            evaluation=evaluations[contender.label],
            rates=rates[contender.label],
            difference=differences.get(contender.label),
            best=not unread and len(rates) > 1 and round(rates[contender.label]["cer"].mean, 2) == smallest,
            role="" if data_set.single else roles.get(contender.label, ""),
        )
        for contender in data_set.contenders
    ]


def _notes(data_set: DataSet, evaluations: Mapping[str, Evaluation]) -> list[str]:
    notes = []
    if len(data_set.contenders) > 1:
        notes.append(
            f"Changes are relative to {data_set.before.label}; p by approximate randomisation over lines, corrected by "
            "Holm for the number of systems compared. Bold: lowest CER."
        )
    if any(len(c.runs) > 1 for c in data_set.contenders):
        notes.append("± is the standard error of the mean over seeds; intervals draw lines, with all their seeds.")
    if len({e.clusters for e in evaluations.values()}) > 1:
        notes.append("The systems did not read the same lines; changes are computed on the lines that both have.")
    read = data_set.before.lines[0]
    pages = set(read.lines.extra.get("page", ())) - {None}
    if 0 < len(pages) < len(read.ids):
        notes.append(
            f"The lines stand on {len(pages):,} {'pages' if len(pages) > 1 else 'page'}, and lines of one page are "
            "alike: tests and intervals over lines are too sure of themselves. Over pages: fada evaluate --clusters "
            "page."
        )
    runs = [run for contender in data_set.contenders for run in contender.runs]
    notes += dict.fromkeys(note for run in runs for note in run.config.get("paired", []))
    counts = [run.config.get("lines") for run in runs]
    if any(isinstance(count, Mapping) and count.get("test") == 0 for count in counts):
        notes.append("There were no test lines: these are the validation lines, on which the best epoch was chosen.")
    return notes


def _domains(
    data_set: DataSet, listed: LineList, pairing: Pairing, both: tuple[Evaluation, Evaluation], scoring: Scoring
) -> list[DomainRow]:
    before, after = both
    names = [name for name in before.per_domain if name in after.per_domain]
    if not names or names == [NO_LABEL]:
        return []
    tests = {} if data_set.single else pairing.compare(scoring, per_domain=True).per_domain
    ends = [e.per_domain[n].intervals.get("cer", (0.0, e.per_domain[n].cer))[1] for e in (before, after) for n in names]
    limit = max([*ends, *(e.per_domain[n].cer for e in (before, after) for n in names)], default=1.0)
    rows = []
    for name in names:
        first, second = before.per_domain[name], after.per_domain[name]
        bars = [interval_bar(first.cer, first.intervals.get("cer"), limit, "s0")]
        if not data_set.single:
            bars.append(interval_bar(second.cer, second.intervals.get("cer"), limit, "s1"))
        if data_set.single or name in tests:
            rows.append(
                DomainRow(
                    name=name,
                    number=listed.domain_number(name),
                    lines=first.lines // len(data_set.before.runs),
                    bars=Markup().join(bars),
                    before=first.cer,
                    after=second.cer,
                    difference=None if data_set.single else tests[name]["cer"],
                )
            )
    return rows


# --------------------------------------------------------------------------------------------------- frequencies


def _frequencies(data_set: DataSet, pairing: Pairing) -> tuple[list[Drawing], str]:
    """A drawing for each domain, and what its bars are."""
    runs = [*data_set.after.runs, *data_set.before.runs]
    targets = next((run.knowledge.targets for run in runs if run.knowledge.targets is not None), None)
    normalizer = targets.normalizer if targets is not None else TextNormalizer()
    groups: dict[str, list[int]] = {}
    for i, domain in enumerate(pairing.domains):
        groups.setdefault(NO_LABEL if domain is None else domain, []).append(i)
    figures = []
    for name in sorted(groups, key=natural_key):
        texts = [[column[i] for i in groups[name]] for column in (pairing.references, pairing.before, pairing.after)]
        reference, before, after = (_distribution(column, normalizer) for column in texts)
        target = targets.get(name) if targets is not None else reference
        if target is None or before is None or after is None:
            continue
        ranked = sorted(target.plain, key=lambda c: (-target.frequency(c), c))
        symbols = [c for c in ranked if target.frequency(c) > 0][:SHOWN_CHARACTERS]
        columns = [[100 * p.frequency(c) for c in symbols] for p in (target, before, after)]
        labels = ("target" if targets is not None else "reference", data_set.before.label, data_set.after.label)
        title = f"Character frequencies of {name}: {', '.join(labels)}"
        chart = frequency_chart(symbols, columns[0], columns[1], columns[2], title, labels)
        figures.append(Drawing(name, _distance_note(target, before, after, data_set.single), chart))
    return figures, "target of the domain" if targets is not None else "reference texts"


def _distribution(texts: Iterable[str], normalizer: TextNormalizer) -> CharDistribution | None:
    joined = [text for text in texts if normalizer(text)]
    return CharDistribution.from_texts(joined, normalizer) if joined else None


def _distance_note(target: CharDistribution, before: CharDistribution, after: CharDistribution, single: bool) -> str:
    alphabet = sorted({c for p in (target, before, after) for c in p.symbols if c != OTHER})
    p, q, r = (np.array([d.frequency(c) for c in alphabet]) for d in (target, before, after))
    notes = []
    for name, label in (("sorted_w2", "sorted"), ("aligned_w2", "aligned")):
        first, second = (1000 * float(distances.get(name)(x, p)) for x in (q, r))
        notes.append(f"{label} {first:.2f}" if single else f"{label} {first:.2f} → {second:.2f}")
    return "W₂ to the target × 1000: " + ", ".join(notes)


# ---------------------------------------------------------------------------------------------------- confusions


def _confusions(data_set: DataSet, pairing: Pairing, scoring: Scoring) -> list[Listing[ConfusionRow]]:
    before, after = (
        {(c.reference, c.predicted): c.count for c in confusions(pairing.references, texts, **scoring.text_options)}
        for texts in (pairing.before, pairing.after)
    )
    rows = [ConfusionRow(*pair, before.get(pair, 0), after.get(pair, 0)) for pair in before.keys() | after.keys()]
    if not rows:
        return []

    def key(row: ConfusionRow) -> tuple[int, int, str, str]:
        return (-abs(row.after - row.before), -row.before, row.reference, row.predicted)

    if data_set.single:
        common = sorted(rows, key=lambda row: (-row.before, row.reference, row.predicted))
        return [Listing("The most frequent confusions", common[: 2 * SHOWN_CONFUSIONS])]
    fewer = sorted((row for row in rows if row.after < row.before), key=key)
    more = sorted((row for row in rows if row.after > row.before), key=key)
    return [
        Listing("Confusions that became rarer", fewer[:SHOWN_CONFUSIONS]),
        Listing("Confusions that became more frequent", more[:SHOWN_CONFUSIONS]),
    ]


def _characters(pairing: Pairing, scoring: Scoring) -> list[Listing[CharacterChange]]:
    changes = character_changes(pairing.references, pairing.before, pairing.after, **scoring.text_options)
    helped = [change for change in changes if change.helped > 0][:SHOWN_CONFUSIONS]
    hurt = [change for change in reversed(changes) if change.helped < 0][:SHOWN_CONFUSIONS]
    return [Listing("Characters most helped", helped), Listing("Characters most hurt", hurt)]


# --------------------------------------------------------------------------------------------- training and tuning


def learning_figures(runs: Sequence[Run], sets: Sequence[DataSet]) -> list[Drawing]:
    """Validation error and losses by epoch, one curve for each run; a single run shows the parts of its loss."""
    styles = _run_styles(runs, sets)
    histories = [(run, run.metrics.get("history") or []) for run in runs]
    figures = []
    cer = [
        Curve(run.name, *_series(history, "validation", "cer"), styles[id(run)])
        for run, history in histories
        if _series(history, "validation", "cer")[0]
    ]
    if cer:
        marks = []
        if len(cer) == 1:
            best = int(np.argmin(cer[0].ys))
            marks = [(cer[0].xs[best], f"best: {cer[0].ys[best]:.2f} %, epoch {cer[0].xs[best]:g}")]
        chart = line_chart(cer, "Validation character error rate by epoch", "epoch", "CER, %", marks=marks, log_y=True)
        figures.append(Drawing("Learning curve", "validation CER by epoch", chart, cer))
    if len(runs) == 1:
        history = histories[0][1]
        named = (("loss", "total", "s1"), ("task_loss", "recognition", "s0"), ("alignment_loss", "alignment", "s2"))
        losses = [Curve(label, *_series(history, key), style, dots=False) for key, label, style in named]
    else:
        losses = [Curve(run.name, *_series(h, "loss"), styles[id(run)], dots=False) for run, h in histories]
    losses = [curve for curve in losses if curve.xs]
    if losses:
        chart = line_chart(losses, "Training loss by epoch", "epoch", "loss", log_y=True)
        figures.append(Drawing("Training loss", "by epoch", chart, losses))
    return figures


def tuning_figures(runs: Sequence[Run]) -> list[Drawing]:
    """Validation error by λ, from the tuning that a run folder holds: one curve for each scale and distance."""
    figures = []
    for run in runs:
        evidence = run.tuned.evidence if run.tuned else None
        if run.tuned is None or evidence is None:
            continue
        curves = _lambda_curves(evidence.curve, evidence.plain)
        if not curves:
            continue
        plain = Curve("plain beam search", [0.0, 1.0], [evidence.plain] * 2, "s5", dots=False)
        lam, error = run.tuned.weights.lam, evidence.chosen
        note = f"{evidence.lines:,} validation lines; band: 95 % interval of the difference from λ = 1. "
        if any(point.rescored for point in evidence.curve):
            note += "Settings far from the best are rescored, not decoded. "
        note += evidence.warning or f"Cross-validated: {evidence.held_out:.2f} % against {evidence.plain:.2f} %."
        title = "Choice of λ" + (f": {run.name}" if len(runs) > 1 else "")
        marks = [(lam, f"recommended: λ = {lam:g}, {error:.2f} %")]
        chart = line_chart([*curves, plain], title, "λ", f"{evidence.metric.upper()}, %", marks=marks)
        figures.append(Drawing(title, note, chart, [*curves, plain]))
    return figures


def _lambda_curves(points: Sequence[Point], plain: float, limit: int = 4) -> list[Curve]:
    """The settings that differ in λ alone, joined; the curves with the lowest errors, at most `limit`."""
    gain = plain - min((point.error for point in points), default=plain)
    worst = plain + 2 * max(gain, 0.02 * plain)  # far worse settings would flatten the rest of the drawing
    names = {"distance": "", "scale": "scale", "beam": "beam", "prior_weight": "prior", "lm": "LM"}
    names |= {"lm_weight": "LM weight", "length_bonus": "bonus"}
    guided: dict[tuple[object, ...], list[Point]] = {}
    unguided: dict[tuple[object, ...], Point] = {}
    for point in points:
        key = tuple(getattr(point.weights, name) for name in names)
        if point.weights.lam == NO_GUIDANCE:
            unguided[key[2:]] = point
        elif point.error <= worst:
            guided.setdefault(key, []).append(point)
    joined = [
        (key, sorted([*members, *filter(None, [unguided.get(key[2:])])], key=lambda point: point.weights.lam))
        for key, members in guided.items()
        if len(members) > 1
    ]
    joined.sort(key=lambda item: min(point.error for point in item[1]))
    joined = joined[:limit]
    told = [i for i in range(len(names)) if i < 2 or len({key[i] for key, _ in joined}) > 1]
    return [
        Curve(
            ", ".join(f"{list(names.values())[i]} {_plain_number(key[i])}".strip() for i in told),
            [point.weights.lam for point in members],
            [point.error for point in members],
            ("s1", "s2", "s3", "s4")[place],
            band=[(p.error - 1.96 * (p.se or 0.0), p.error + 1.96 * (p.se or 0.0)) for p in members]
            if place == 0
            else None,
        )
        for place, (key, members) in enumerate(joined)
    ]


def _plain_number(value: object) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value).replace("_", " ")


def _run_styles(runs: Sequence[Run], sets: Sequence[DataSet]) -> dict[int, str]:
    styles = {id(run): _OTHER_STYLES[i % len(_OTHER_STYLES)] for i, run in enumerate(runs)}
    for data_set in sets:
        styles |= {id(run): "s0" for run in data_set.before.runs}
        styles |= {id(run): "s1" for run in data_set.after.runs}
    return styles


def _series(history: Sequence[Mapping[str, Any]], *path: str) -> tuple[list[float], list[float]]:
    xs, ys = [], []
    for i, entry in enumerate(history):
        value: Any = entry
        for key in path:
            value = value.get(key) if isinstance(value, Mapping) else None
        if isinstance(value, int | float):
            xs.append(float(entry.get("epoch", i + 1)))
            ys.append(float(value))
    return xs, ys


def _signed(value: float) -> str:
    return f"{value:+.2f}".replace("-", "−")


def _equation(p: float) -> str:
    return p_value(p) if p < 0.001 else f"=\u00a0{p_value(p)}"
