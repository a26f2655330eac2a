r"""Weights from stored emissions: every λ, scale, distance, prior and language-model weight without running the model.

The choice is made on validation lines and judged by cross-validation: in every fold the best setting *of the other
folds* is applied to the lines of this fold, so the error rate that comes out is that of the procedure, not that of the
luckiest setting. If the result is not better than plain beam search beyond noise, plain beam search (λ = 1) is what is
recommended, with a warning.

Only (1 − λ) · scale / λ matters to a ranking by Eq. 2 alone; λ and scale are both kept because the paper's grid is
over λ at scale 1. When guidance joins other terms, their weights are multiplied by λ, so that their strength relative
to the recogniser stays as tuned.
"""

import hashlib
import itertools
import json
import os
import re
import time
import warnings
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Protocol

import numpy as np
from numpy.typing import NDArray

from fada._version import __version__
from fada.common.files import replacing, write_text
from fada.common.say import track
from fada.common.settings import validated
from fada.decoding.knowledge import Knowledge
from fada.decoding.nbest import NBest, Rescorer
from fada.decoding.search import BeamSearch, Search
from fada.decoding.weights import NO_GUIDANCE, LanguageModel, Weights
from fada.errors import FadaError, missing_extra
from fada.evaluation import significance as statistics
from fada.evaluation.edits import score_lines
from fada.tuning.tuned import Evidence, Tuned

if TYPE_CHECKING:
    from fada.decoding.emissions import Emissions

__all__ = ["Grid", "Knowledge", "Tuned", "Weights", "draw_curve", "refuse_overlap", "tune"]

PathLike = str | os.PathLike[str]
Metric = Literal["cer", "wer"]
Rule = Literal["best", "one_se"]

LAMBDAS = tuple(round(0.05 * step, 2) for step in range(1, 20))
"""The paper's grid: 0.05, 0.10, …, 0.95."""
ALPHA = 0.05
PLAIN = Weights()


class KnownLines(Protocol):
    """Lines with ids and, where they are known, their texts."""

    @property
    def ids(self) -> Sequence[str]:
        """One for each line."""
        ...

    @property
    def references(self) -> Sequence[str] | None:
        """The texts, if they are known."""
        ...


class Reading(KnownLines, Protocol):
    """Something that reads lines, under weights."""

    def choose(self, weights: Weights) -> list[str]:
        """The best text of every line."""
        ...


@dataclass(frozen=True)
class Grid:
    """The values that are tried. Guidance is a full grid; the other terms are swept one after the other."""

    lam: Sequence[float] = LAMBDAS
    scale: Sequence[float] = (1.0, 10.0, 100.0)
    distance: Sequence[str] = ("sorted_w2", "aligned_w2")
    beam: Sequence[int] = (5,)
    prior_weight: Sequence[float] = (0.25, 0.5, 0.75, 1.0, 1.5)
    lm_weight: Sequence[float] = (0.1, 0.2, 0.3, 0.5, 0.7, 1.0)
    length_bonus: Sequence[float] = (0.0, 0.5, 1.0, 1.5, 2.0)

    def __post_init__(self) -> None:
        for beam, lam, scale in itertools.product(self.beam or (5,), self.lam or (1.0,), self.scale or (1.0,)):
            validated(Weights, {"beam": beam, "lam": lam, "scale": scale}, "grid")

    @classmethod
    def of(
        cls,
        *,
        scale: Sequence[float] = (),
        distance: Sequence[str] = (),
        beam: Sequence[int] = (),
        paper: bool = False,
    ) -> "Grid":
        """The default grid (or the paper's) with what is given in place of its own."""
        base = PAPER if paper else cls()
        return cls(
            scale=tuple(scale) or base.scale, distance=tuple(distance) or base.distance, beam=tuple(beam) or base.beam
        )


LANGUAGE = {"lm_weight": [0.1 * step for step in range(1, 13)], "length_bonus": [0.25 * step for step in range(13)]}
PRIOR = {"prior_weight": [0.25 * step for step in range(7)]}
"""Axes for :func:`descend`: those of a language model, and of prior correction."""


def with_domain_lm(weights: Weights) -> Weights:
    """Where the search along :data:`LANGUAGE` begins."""
    return weights.change(lm="domain", lm_weight=0.5, length_bonus=1.0)


PAPER = Grid(scale=(1.0,), distance=("sorted_w2",))
"""The paper's search: 19 values of λ, nothing else."""


# ------------------------------------------------------------------------------------------------ settings and errors


class Trials:
    """The edits that each setting makes on each line; a setting is decoded once, and kept in a file if one is given."""

    def __init__(
        self,
        search: Search,
        *,
        metric: Metric = "cer",
        normalization: str | Iterable[str] | None = None,
        store: PathLike | None = None,
    ) -> None:
        if search.references is None:
            raise FadaError("tuning needs references: store them with the emissions (or n-best lists) of validation.")
        if not search.ids:
            raise FadaError("no lines to tune on.")
        if metric not in ("cer", "wer"):
            raise FadaError(f"metric is {metric!r}, expected cer or wer.")
        self.search = search
        self.metric = metric
        self.normalization = normalization
        self.references = list(search.references)
        self.edits: dict[Weights, NDArray[np.int64]] = {}
        self._stored: dict[Weights, NDArray[np.int64]] = {}
        nothing = score_lines(self.references, [""] * len(self.references), normalization=normalization)
        self.lengths = (nothing.characters if metric == "cer" else nothing.words).astype(np.float64)
        self._store = Path(store) if store is not None else None
        if self._store is not None:
            self._resume(self._store)

    def __len__(self) -> int:
        return len(self._stored | self.edits)

    def evaluate(self, weights: Weights) -> float:
        """The error rate of a setting in percent."""
        if weights in self._stored:
            self.edits[weights] = self._stored[weights]
        elif weights not in self.edits:
            self.edits[weights] = self.edits_of(self.search.choose(weights))
            self._append(weights)
        return self.error(weights)

    def edits_of(self, texts: Sequence[str]) -> NDArray[np.int64]:
        """(lines,) edits that the metric counts in texts of all lines."""
        lines = score_lines(self.references, texts, normalization=self.normalization)
        return lines.edits if self.metric == "cer" else lines.word_edits

    def rate(self, edits: NDArray[np.int64]) -> float:
        """The error rate in percent of these edits."""
        return float(100 * edits.sum() / max(1.0, self.lengths.sum()))

    def error(self, weights: Weights) -> float:
        """The error rate of a setting that has been evaluated."""
        return self.rate(self.edits[weights])

    def best(self, among: Iterable[Weights] | None = None) -> Weights:
        """The evaluated setting with the lowest error; ties go to the one tried first."""
        return min(self.edits if among is None else among, key=self.error)

    def best_of(self, candidates: Iterable[Weights], description: str) -> Weights:
        """Evaluate all, with progress, and return the best of them."""
        unique = list(dict.fromkeys(candidates))
        for weights in track(unique, description):
            self.evaluate(weights)
        return self.best(unique)

    @property
    def fingerprint(self) -> str:
        """Changes when the lines, their references, their recogniser's output or the measure change."""
        settings = [self.metric, str(self.normalization), self.search.kind, self.search.knowledge.fingerprint()]
        digest = hashlib.sha256(json.dumps(settings).encode())
        for line, text in zip(self.search.ids, self.references, strict=True):
            digest.update(f"{line}\0{text}\0".encode("utf-8", "surrogatepass"))
        for part in self.search.recognized():
            digest.update(part)
        return digest.hexdigest()[:16]

    def _resume(self, store: Path) -> None:
        fingerprint = self.fingerprint
        if not store.exists():
            write_text(store, json.dumps({"fingerprint": fingerprint}) + "\n")
            return
        rows = store.read_text(encoding="utf-8").splitlines()
        if json.loads(rows[0])["fingerprint"] != fingerprint:
            raise FadaError(
                f"{store}: results of other lines or another measure. Give another file, or delete this one."
            )
        for number, row in enumerate(rows[1:], 1):
            try:
                value = json.loads(row)
            except json.JSONDecodeError:  # the last line of an interrupted run
                write_text(store, "\n".join(rows[:number]) + "\n")
                break
            self._stored[Weights(**value["weights"])] = np.array(value["edits"], dtype=np.int64)

    def _append(self, weights: Weights) -> None:
        if self._store is None:
            return
        row = {"weights": weights.model_dump(exclude_defaults=True), "edits": self.edits[weights].tolist()}
        with self._store.open("a", encoding="utf-8") as stream:
            stream.write(json.dumps(row) + "\n")


def guidance_grid(base: Weights, grid: Grid) -> Iterator[Weights]:
    """Every λ, scale and distance around `base`, weakest guidance first, so that ties go to the weaker.

    The other weights of `base` are multiplied by λ to keep their strength.
    """
    pairs = sorted(
        itertools.product(grid.scale, grid.lam), key=lambda pair: pair[0] * (1 - pair[1]) / max(pair[1], 1e-9)
    )
    for (scale, lam), distance in itertools.product(pairs, grid.distance):
        yield base.change(
            lam=lam,
            scale=scale,
            distance=distance,
            prior_weight=base.prior_weight * lam,
            lm_weight=base.lm_weight * lam,
            length_bonus=base.length_bonus * lam,
        )


def prior_grid(base: Weights, grid: Grid) -> Iterator[Weights]:
    """Every weight of the prior correction, none included."""
    for prior_weight in (0.0, *grid.prior_weight):
        yield base.change(prior_weight=prior_weight)


def lm_grid(base: Weights, grid: Grid, lm: LanguageModel) -> Iterator[Weights]:
    """Every weight of a language model with every length bonus."""
    for lm_weight, length_bonus in itertools.product(grid.lm_weight, grid.length_bonus):
        yield base.change(lm=lm, lm_weight=lm_weight, length_bonus=length_bonus)


def descend(trials: Trials, start: Weights, axes: Mapping[str, Sequence[float]], description: str) -> Weights:
    """From `start`, change one weight at a time to its best value on its axis, until no change helps."""
    best = trials.best_of([start], description)
    while True:
        before = best
        for name, values in axes.items():
            best = trials.best_of([best, *(best.change(**{name: value}) for value in values)], description)
        if best == before:
            return best


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


def held_out_edits(trials: Trials, candidates: Sequence[Weights], folds: Folds) -> NDArray[np.int64]:
    """(lines,) edits when every fold is decoded with the best candidate of the other folds; ties go to the first."""
    table = np.stack([trials.edits[weights] for weights in candidates])
    if folds.count < 2:
        return table[int(np.argmin(table.sum(1)))]
    per_fold = np.stack([table[:, folds.number == fold].sum(1) for fold in range(folds.count)], axis=1)
    chosen = np.argmin(per_fold.sum(1, keepdims=True) - per_fold, axis=0)
    return table[chosen[folds.number], np.arange(table.shape[1])]


def gain_of(
    trials: Trials, before: NDArray[np.int64], after: NDArray[np.int64], folds: Folds, seed: int = 0
) -> dict[str, float | None]:
    """What `after` changes against `before` in points: difference, standard error, 95 % interval, p-value."""
    lengths = trials.lengths[:, None]
    (test,) = statistics.paired_tests(
        (100.0 * before[:, None], lengths), (100.0 * after[:, None], lengths), clusters=folds.clusters, seed=seed
    )
    low, high = test.interval or (None, None)
    return {
        "difference": test.difference,
        "se": statistics.difference_standard_error(100.0 * (after - before), trials.lengths, folds.clusters),
        "low": low,
        "high": high,
        "p": test.p_randomization,
    }


def is_better(gain: dict[str, float | None]) -> bool:
    """Fewer errors, beyond noise: the two-sided test rejects at 5 %."""
    return (gain["difference"] or 0.0) < 0 and (gain["p"] or 0.0) < ALPHA


def choose_setting(trials: Trials, candidates: Sequence[Weights], rule: Rule, folds: Folds) -> Weights:
    """The setting with the lowest error, or by the one-standard-error rule the plainest that is as good as it.

    ``one_se``: among the settings whose error exceeds the lowest by no more than the standard error of that (paired)
    difference, the one tried first; settings are tried from plain to elaborate.
    """
    best = trials.best(candidates)
    if rule == "best":
        return best
    for weights in candidates:
        change = 100.0 * (trials.edits[weights] - trials.edits[best])
        se = statistics.difference_standard_error(change, trials.lengths, folds.clusters)
        if trials.error(weights) - trials.error(best) <= se:
            return weights
    return best


# ---------------------------------------------------------------------------------------------------------- tuning


def tune(
    data: "Emissions | NBest",
    knowledge: Knowledge,
    *,
    grid: Grid = Grid(),
    lms: Sequence[LanguageModel] | None = None,
    prior: bool = True,
    test: "Emissions | NBest | None" = None,
    clusters: Sequence[Hashable] | None = None,
    folds: int = 10,
    rule: Rule = "best",
    metric: Metric = "cer",
    normalization: str | Iterable[str] | None = None,
    trials: int = 0,
    study: PathLike | None = None,
    store: PathLike | None = None,
    threads: int | None = None,
    seed: int = 0,
) -> Tuned:
    """Choose the weights of the decoder's score on validation lines, and say how sure the choice is.

    Args:
        data: validation emissions (decoded anew for every setting), or n-best lists (rescored); with references.
        knowledge: targets, training distribution and language models; what is missing is not tuned.
        grid: the values to try; :data:`PAPER` is the paper's grid of λ.
        lms: language models to try, of ``global`` and ``domain``; by default those that `knowledge` has.
        prior: whether to try prior correction.
        test: the lines the result will be reported on: refused if they overlap with `data`.
        clusters: the page of each line; lines of a page stay in one fold and are resampled together.
        folds: folds of the cross-validation.
        rule: ``best`` (lowest error), or ``one_se`` (plainest within one standard error of it).
        metric: ``cer`` or ``wer``.
        normalization: as in :func:`fada.evaluate`.
        trials: further settings proposed by optuna (TPE) after the grid, over all weights jointly.
        study: SQLite file of the optuna study, resumed if it exists.
        store: file that keeps every setting tried (JSONL), resumed if it exists.
    """
    started = time.monotonic()
    if test is not None:
        refuse_overlap(data, test)
    search: Search = Rescorer(data, knowledge) if isinstance(data, NBest) else BeamSearch(data, knowledge, threads)
    table = Trials(search, metric=metric, normalization=normalization, store=store)
    if lms is None:
        lms = [*(["global"] if knowledge.global_lm else []), *(["domain"] if knowledge.domain_lms else [])]  # type: ignore[list-item]
    if knowledge.targets is None:
        grid = Grid(grid.lam[:0], grid.scale, grid.distance, grid.beam, (), grid.lm_weight, grid.length_bonus)
    beams: Sequence[int] = grid.beam if "beam" in search.terms else grid.beam[:1]
    plain = PLAIN.change(beam=beams[0])
    table.evaluate(plain)
    for beam in beams:
        _try_grid(table, PLAIN.change(beam=beam), grid, lms, prior and knowledge.prior is not None)
    if trials:
        _optuna(table, grid, beams, lms, prior and knowledge.prior is not None, trials, study, seed)
    if rule not in ("best", "one_se"):
        raise FadaError(f"rule is {rule!r}, expected best or one_se.")
    tuned = decide(table, plain, Folds.make(len(search.ids), clusters, folds, seed), rule, seed, started)
    if tuned.evidence is not None:
        tuned.evidence.at_edge = _at_edge(tuned.weights, grid)
    return tuned


def decide(
    table: Trials, plain: Weights, folds: Folds, rule: Rule = "best", seed: int = 0, started: float | None = None
) -> Tuned:
    """The recommendation from all settings tried, with its evidence."""
    started = time.monotonic() if started is None else started
    every = [plain, *(weights for weights in table.edits if weights != plain)]
    unguided = [weights for weights in every if not weights.guided]
    held_out = held_out_edits(table, every, folds)
    held_out_unguided = held_out_edits(table, unguided, folds)
    guidance_gain = gain_of(table, held_out_unguided, held_out, folds, seed)
    best = table.best(every)
    chosen = choose_setting(table, every, rule, folds)
    warning = None
    if chosen.guided and not is_better(guidance_gain):
        warning = _not_better(chosen, guidance_gain, "λ = 1 (no guidance)", len(set(folds.clusters)))
        chosen, held_out = choose_setting(table, unguided, rule, folds), held_out_unguided
    gain = gain_of(table, table.edits[plain], held_out, folds, seed)
    if chosen != plain and not is_better(gain):
        warning = _not_better(chosen, gain, "plain beam search (λ = 1)", len(set(folds.clusters)))
        chosen = plain
    if warning:
        warnings.warn(warning, stacklevel=3)
    references = table.references
    evidence = Evidence(
        metric=table.metric,
        lines=len(references),
        clusters=len(set(folds.clusters)),
        folds=folds.count,
        plain=table.error(plain),
        chosen=table.error(chosen),
        held_out=float(100 * held_out.sum() / max(1.0, table.lengths.sum())),
        gain=gain,
        guidance_gain=guidance_gain,
        best={**best.model_dump(), "error": table.error(best)},
        warning=warning,
        curve=[_point(table, weights, plain, folds) for weights in every],
        line_digests=line_digests(table.search.ids, references),
        seconds=round(time.monotonic() - started, 3),
        seed=seed,
        fada_version=__version__,
    )
    knowledge = table.search.knowledge
    return Tuned(
        **chosen.model_dump(),
        kind=table.search.kind,
        lm_order=knowledge.lm_order,
        lm_share=knowledge.lm_share,
        evidence=evidence,
    )


def line_digests(ids: Iterable[str], references: Iterable[str] | None) -> list[str]:
    """A short digest of every line's id and reference."""
    texts = itertools.repeat("") if references is None else references
    pairs = zip(ids, texts, strict=False)
    return [hashlib.sha256(f"{i}\0{t}".encode("utf-8", "surrogatepass")).hexdigest()[:12] for i, t in pairs]


def refuse_overlap(validation: KnownLines, test: KnownLines) -> None:
    """Refuse to tune on lines that will be reported on: the same id, and the same reference where both are known."""
    shared = sorted(set(validation.ids) & set(test.ids))
    if shared and validation.references and test.references:
        first, second = (dict(zip(part.ids, part.references or [], strict=True)) for part in (validation, test))
        shared = [line for line in shared if first[line] == second[line]]
    if shared:
        raise FadaError(
            f"{len(shared)} of {len(test.ids)} test lines are also validation lines, the first is {shared[0]!r}: "
            "weights tuned on test lines make the test worthless. Keep the two apart."
        )


def used_for_tuning(tuned: Tuned, data: "Emissions | NBest") -> int:
    """How many of these lines the weights were tuned on; their error rates are too good."""
    seen = set(tuned.evidence.line_digests) if tuned.evidence else set()
    return sum(digest in seen for digest in line_digests(data.ids, data.references))


@dataclass(frozen=True)
class Tunable:
    """What a tuning starts from: validation data, perhaps test data, the target file, and where results go."""

    validation: "Emissions | NBest"
    test: "Emissions | NBest | None"
    targets: Path | None
    folder: Path


def load_tunable(
    source: PathLike,
    targets: PathLike | None = None,
    test: PathLike | None = None,
    lines: PathLike | None = None,
) -> Tunable:
    """Read emissions (``.npz``), n-best lists (a table) or a run folder with emissions of validation and test lines.

    Args:
        lines: where references and domains of emissions are found by line id, if they are not stored with them
            (anything that ``read_lines`` reads).
    """
    path = Path(source)
    target_file = None if targets is None else Path(targets)
    test_file = None if test is None else Path(test)
    folder = path.parent
    if path.is_dir():
        folder = path
        if target_file is None and (path / "targets.json").is_file():
            target_file = path / "targets.json"
        if test_file is None and (path / "emissions" / "test.npz").is_file():
            test_file = path / "emissions" / "test.npz"
        path = path / "emissions" / "validation.npz"
    if not path.is_file():
        raise FadaError(f"{path}: no such file. Tuning needs stored validation emissions or n-best lists.")
    return Tunable(_read(path, lines), None if test_file is None else _read(test_file, lines), target_file, folder)


def with_references(emissions: "Emissions", lines: PathLike) -> "Emissions":
    """The emissions with the transcriptions and domains of the lines that have the same ids."""
    from fada.data.line import read_lines

    known = {line.id: line for line in read_lines(lines).texts()}
    missing = [name for name in emissions.ids if name not in known]
    if missing:
        raise FadaError(
            f"{lines}: no transcription for {len(missing)} of {len(emissions.ids)} lines of the emissions, "
            f"the first is {missing[0]!r}. The ids of both must agree."
        )
    references = [known[name].text or "" for name in emissions.ids]
    domains = [known[name].domain or "" for name in emissions.ids]
    return replace(emissions, references=references, domains=domains if any(domains) else emissions.domains)


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


def tuning_rows(tuned: Tuned, limit: int = 15) -> list[dict[str, Any]]:
    """The settings tried, best first and at most `limit`, with plain beam search always among them."""
    if tuned.evidence is None:
        return []
    points = sorted(tuned.evidence.curve, key=lambda point: point["error"])
    plain = tuned.evidence.curve[0]
    shown = points[:limit] if plain in points[:limit] else [*points[: limit - 1], plain]
    columns = list(
        dict.fromkeys(name for point in shown for name in point if name not in ("error", "difference", "se"))
    )
    return [
        {name: point.get(name) for name in columns}
        | {tuned.evidence.metric: point["error"], "change": point["difference"], "se": point["se"]}
        for point in shown
    ]


def draw_curve(tuned: Tuned, path: PathLike) -> None:
    """Draw the error rate over λ, one line per distance and scale, to a PNG, SVG or PDF file."""
    if tuned.evidence is None:
        raise FadaError("these weights carry no evidence, so there is no curve to draw.")
    try:
        from matplotlib.figure import Figure
    except ImportError:
        raise missing_extra("matplotlib", "analysis", "drawing the curve") from None
    evidence = tuned.evidence
    lines: dict[tuple[str, float], list[dict[str, Any]]] = {}
    for point in evidence.curve:
        if "distance" in point and not {"prior_weight", "lm_weight", "length_bonus"} & set(point):
            lines.setdefault((point["distance"], point["scale"]), []).append(point)
    figure = Figure(figsize=(8, 4.8), layout="constrained")
    axes = figure.add_subplot()
    for (distance, scale), points in sorted(lines.items()):
        points = sorted(points, key=lambda point: point["lam"])
        lam = np.array([point["lam"] for point in points] + [NO_GUIDANCE])
        error = np.array([point["error"] for point in points] + [evidence.plain])
        se = np.array([point["se"] for point in points] + [0.0])
        (drawn,) = axes.plot(lam, error, marker=".", label=f"{distance}, scale {scale:g}")
        axes.fill_between(lam, error - se, error + se, alpha=0.15, color=drawn.get_color(), linewidth=0)
    axes.axhline(evidence.plain, color="black", linestyle="--", linewidth=1, label="plain beam search (λ = 1)")
    if tuned.guided or not lines:
        axes.plot(
            [tuned.lam], [evidence.chosen], marker="*", markersize=14, color="black", linestyle="none", label="chosen"
        )
    lowest = min([evidence.plain, *(point["error"] for points in lines.values() for point in points)])
    room = max(evidence.plain - lowest, 0.02 * evidence.plain, 0.1)
    axes.set_ylim(lowest - 0.5 * room, evidence.plain + 2 * room)
    axes.set_xlabel("λ")
    axes.set_ylabel(f"validation {evidence.metric.upper()} (%)")
    axes.set_title("bands: ±1 standard error of the difference from λ = 1; much worse settings are cut off", fontsize=9)
    axes.legend(fontsize="small")
    suffix = Path(path).suffix.lstrip(".").lower() or "png"
    with replacing(path) as temporary:
        figure.savefig(temporary, format=suffix, dpi=150)


# ---------------------------------------------------------------------------------------------------------- details


def _read(path: Path, lines: PathLike | None) -> "Emissions | NBest":
    if path.suffix.lower() != ".npz":
        return NBest.load(path)
    from fada.decoding.emissions import Emissions

    emissions = Emissions.load(path)
    return emissions if lines is None else with_references(emissions, lines)


def _try_grid(table: Trials, base: Weights, grid: Grid, lms: Sequence[LanguageModel], prior: bool) -> None:
    """Guidance alone in full; then language model, prior correction and guidance, each on top of the best so far."""
    table.best_of([base, *guidance_grid(base, grid)], f"guidance, beam {base.beam}")
    start = base
    for lm in lms:
        start = min(
            start, table.best_of(lm_grid(base, grid, lm), f"{lm} language model, beam {base.beam}"), key=table.error
        )
    if prior:
        table.best_of(prior_grid(base, grid), f"prior correction, beam {base.beam}")
        start = table.best_of(prior_grid(start, grid), f"prior correction on top, beam {base.beam}")
    if start != base:
        table.best_of([start, *guidance_grid(start, grid)], f"guidance on top, beam {base.beam}")


def _optuna(
    table: Trials,
    grid: Grid,
    beams: Sequence[int],
    lms: Sequence[LanguageModel],
    prior: bool,
    trials: int,
    study_file: PathLike | None,
    seed: int,
) -> None:
    """Joint search by TPE, within and beyond the grid; a trial carries its edits, so a resumed study loses nothing."""
    try:
        import optuna
    except ImportError:
        raise missing_extra("optuna", "tune", "the joint search") from None
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    guided = bool(grid.lam)

    def weights_of(suggest: Any) -> Weights:
        values: dict[str, Any] = {"beam": suggest.suggest_categorical("beam", list(beams))}
        if guided:
            # λ = 0.5 and a free scale cover every ratio of distance to log-probability: one dimension instead of two.
            wanted = suggest.suggest_categorical("guided", [True, False])
            scale = suggest.suggest_float("scale", 1e-2, 1e4, log=True)
            distance = suggest.suggest_categorical("distance", list(grid.distance))
            values |= {"lam": 0.5, "scale": scale, "distance": distance} if wanted else {}
        share = values.get("lam", NO_GUIDANCE)
        if prior:
            values["prior_weight"] = share * suggest.suggest_float("prior_weight", 0.0, 1.5)
        if lms:
            values["lm"] = suggest.suggest_categorical("lm", ["none", *lms])
            values["lm_weight"] = share * suggest.suggest_float("lm_weight", 0.0, 1.5)
        values["length_bonus"] = share * suggest.suggest_float("length_bonus", -1.0, 3.0)
        return PLAIN.change(**values)

    storage = None if study_file is None else f"sqlite:///{Path(study_file).absolute()}"
    if study_file is not None:
        Path(study_file).parent.mkdir(parents=True, exist_ok=True)
    study = optuna.create_study(
        study_name="fada",
        storage=storage,
        load_if_exists=True,
        sampler=optuna.samplers.TPESampler(seed=seed, multivariate=True),
    )
    fingerprint = table.fingerprint
    if study.user_attrs.setdefault("fingerprint", fingerprint) != fingerprint:
        raise FadaError(
            f"{study_file}: a study of other lines or another measure. Give another file, or delete this one."
        )
    study.set_user_attr("fingerprint", fingerprint)
    done = [trial for trial in study.trials if trial.state.name == "COMPLETE"]
    for trial in done:
        table.edits.setdefault(Weights(**trial.user_attrs["weights"]), np.array(trial.user_attrs["edits"]))
    if done:  # a resumed sampler starts its random numbers anew; another seed keeps it from repeating itself
        study.sampler = optuna.samplers.TPESampler(seed=seed + len(done), multivariate=True)

    def objective(trial: Any) -> float:
        weights = weights_of(trial)
        error = table.evaluate(weights)
        trial.set_user_attr("weights", weights.model_dump())
        trial.set_user_attr("edits", table.edits[weights].tolist())
        return error

    for _ in track(range(max(0, trials - len(done))), "joint search"):
        study.optimize(objective, n_trials=1)


def _not_better(weights: Weights, gain: dict[str, float | None], than: str, clusters: int) -> str:
    setting = ", ".join(f"{name} {value}" for name, value in weights.model_dump(exclude_defaults=True).items())
    return (
        f"The best setting ({setting}) is not better than {than} beyond noise: held-out difference "
        f"{gain['difference']:+.3f} points, standard error {gain['se']:.3f}, p = {gain['p']:.3f}, "
        f"{clusters} independent lines or pages. Recommended is {than}."
    )


def _at_edge(weights: Weights, grid: Grid) -> list[str]:
    """The weights that ended at an end of their grid, where a wider grid might do better."""
    share = weights.lam if weights.guided else 1.0  # other weights were multiplied by λ
    tried = {"prior_weight": grid.prior_weight, "lm_weight": grid.lm_weight, "length_bonus": grid.length_bonus}
    edges = [
        n for n, values in tried.items() if len(values) > 1 and abs(getattr(weights, n) - share * max(values)) < 1e-9
    ]
    if weights.guided and len(grid.scale) > 1 and weights.scale == max(grid.scale) and weights.lam == min(grid.lam):
        edges.append("scale")
    return edges


def _point(table: Trials, weights: Weights, plain: Weights, folds: Folds) -> dict[str, Any]:
    change = 100.0 * (table.edits[weights] - table.edits[plain])
    guidance = {"scale": weights.scale, "distance": weights.distance} if weights.guided else {}
    return {
        "lam": weights.lam,
        **guidance,
        **weights.model_dump(exclude_defaults=True),
        "error": round(table.error(weights), 4),
        "difference": round(table.error(weights) - table.error(plain), 4),
        "se": round(statistics.difference_standard_error(change, table.lengths, folds.clusters), 4),
    }
