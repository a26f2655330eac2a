"""The paper's tables from run folders: one table, written as HTML, Markdown, LaTeX and CSV.

Runs that differ in nothing but the seed are one row: mean and standard error of the mean (SEM) over their seeds.
"""

import csv
import io
import json
import os
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

from markupsafe import Markup

from fada.errors import FadaError
from fada.evaluation import Evaluation, evaluate, over_seeds, parse_normalization
from fada.files import write_text
from fada.statistics import MeanSem, mean_sem
from fada.systems import read_table
from fada.targets import TargetSet
from fada.text import natural_key
from fada.tuned import Tuned

Training = Literal["standard", "TR-TT", "FADA"]

FORMATS = ("html", "md", "tex", "csv")
METHODS = ("Standard", "TR-TT", "FADA-GD", "FADA-TR", "FADA-TR-GD")
"""The paper's names: domain token (TR-TT), guided decoding (GD), training-time alignment (TR), and both (TR-GD)."""

_METHOD = {
    ("standard", False): "Standard",
    ("TR-TT", False): "TR-TT",
    ("standard", True): "FADA-GD",
    ("FADA", False): "FADA-TR",
    ("FADA", True): "FADA-TR-GD",
}
_PLAIN_BEAM = re.compile(r"(beam( search)?[ _=-]?\d*|plain|standard)", re.IGNORECASE)
_BEAM_SIZE = re.compile(r"(?:beam|@)[ _=-]?(\d+)", re.IGNORECASE)
_PARTS_OF_A_SET = frozenset({"train", "validation", "test", "data", "lines"})
_NOT_A_SETTING = frozenset({"seed", "out", "resume", "device", "threads", "save_steps", "validation_share"})
_PREDICTION_COLUMNS = ("id", "domain", "reference", "system", "hypothesis")
_SCORE_COLUMNS = ("log_prob", "distance", "score")


# ---------------------------------------------------------------------------------------------------------- runs


@dataclass(frozen=True)
class Predictions:
    """What one system of a run read, line by line; the three score parts are None where a system has none."""

    ids: list[str]
    domains: list[str | None]
    references: list[str]
    hypotheses: list[str]
    log_prob: list[float | None]
    distance: list[float | None]
    score: list[float | None]


@dataclass(frozen=True)
class RunResults:
    """A run folder as the tables and the report see it: settings, history and predictions; the model is not loaded."""

    folder: Path
    config: dict[str, Any]
    metrics: dict[str, Any]
    predictions: dict[str, Predictions]
    targets: TargetSet | None
    tuned: Tuned | None
    options: Mapping[str, Any] = field(default_factory=dict)
    _evaluations: dict[str, Evaluation] = field(default_factory=dict, repr=False, compare=False)

    @classmethod
    def load(cls, folder: str | os.PathLike[str], **options: Any) -> "RunResults":
        """Read a run folder; only ``predictions.parquet`` must be there.

        Args:
            options: how to compare texts: `average`, `units` and `normalization` of :func:`fada.evaluation.evaluate`.
        """
        folder = Path(folder)
        if not folder.is_dir():
            raise FadaError(f"{folder}: no such run folder. Give the folder that fada train wrote.")
        targets = folder / "targets.json"
        tuned = folder / "tuned.json"
        return cls(
            folder=folder,
            config=_read_json(folder / "config.json"),
            metrics=_read_json(folder / "metrics.json"),
            predictions=_read_predictions(folder / "predictions.parquet"),
            targets=TargetSet.load(targets) if targets.exists() else None,
            tuned=Tuned.load(tuned) if tuned.exists() else None,
            options=options,
        )

    @property
    def name(self) -> str:
        """The name of the folder."""
        return self.folder.resolve().name

    @cached_property
    def data_source(self) -> list[str]:
        """Where the lines that were reported on came from, as the configuration records it; empty if it does not."""
        found = self.setting("test") or self.setting("data")
        found = [found] if isinstance(found, str) else found
        return [str(source) for source in found] if isinstance(found, list) else []

    @cached_property
    def dataset(self) -> str:
        """What the data set is called in a table: the setting `dataset`, or the name of the file or folder."""
        named = self.setting("dataset")
        if isinstance(named, str):
            return named
        sources = self.setting("data") or self.data_source
        source = sources if isinstance(sources, str) else next(iter(sources), "data")
        scheme, colon, rest = source.partition(":")
        if colon and len(scheme) > 1:  # a hub or a published set, not the drive of a path
            return rest.rsplit("/", 1)[-1] if scheme == "hub" else scheme
        path = Path(source)
        return path.parent.name if path.stem in _PARTS_OF_A_SET and path.parent.name else path.stem

    @cached_property
    def model(self) -> str:
        """What the model is called in a table."""
        name = Path(str(self.setting("model") or "model")).name
        family, _, size = name.partition(":")
        shown = {"crnn": "C-RNN", "trocr": "TrOCR", "whisper": "Whisper"}.get(family.lower(), family)
        return shown if size in ("", "base") else f"{shown} {size}"

    @cached_property
    def seed(self) -> int | None:
        """The seed of the run."""
        seed = self.setting("seed")
        return seed if isinstance(seed, int) else None

    @cached_property
    def training(self) -> Training:
        """How the model was trained: plainly (λ = 1), with a domain token, or with the alignment loss."""
        if self.setting("tagging") not in (None, False, "none"):
            return "TR-TT"
        lam, scale = self.setting("lam"), self.setting("scale")
        return "FADA" if isinstance(lam, int | float) and lam < 1 and scale != 0 else "standard"

    @cached_property
    def beam_size(self) -> int | None:
        """The beam that the run was decoded with, if recorded."""
        beam = self.setting("beam_size")
        return beam if isinstance(beam, int) else None

    @cached_property
    def plain_system(self) -> str | None:
        """The system that decodes without guidance: beam search if there is one, else best path."""
        beams = [name for name in self.predictions if _PLAIN_BEAM.fullmatch(name)]
        usual = [name for name in (f"beam{self.beam_size}", *beams, "greedy") if name in self.predictions]
        return next(iter([*usual, *(name for name in self.predictions if not is_guided(name))]), None)

    @cached_property
    def guided_system(self) -> str | None:
        """The system that decodes with guidance: one named for it alone before combinations and Eq. 2 as printed."""
        guided = [name for name in self.predictions if is_guided(name)]
        return min(guided, key=lambda name: not name.lower().startswith(("fada", "guided", "tuned")), default=None)

    @cached_property
    def variant(self) -> tuple[tuple[str, str], ...]:
        """Every setting but the seed and the places: runs with the same variant are seeds of one experiment."""
        settings = self.config.get("settings", self.config)
        flat = dict(flatten(settings if isinstance(settings, Mapping) else {}))
        return tuple(sorted((k, str(v)) for k, v in flat.items() if not _NOT_A_SETTING.intersection(k.split("."))))

    def setting(self, name: str) -> Any:
        """A value of the configuration: of its settings, or else beside them."""
        settings = self.config.get("settings")
        found = settings.get(name) if isinstance(settings, Mapping) else None
        return self.config.get(name) if found is None else found

    def evaluation(self, system: str) -> Evaluation:
        """Error rates of one system, without intervals, computed once."""
        if system not in self._evaluations:
            lines = self.predictions[system]
            self._evaluations[system] = evaluate(
                lines.references, lines.hypotheses, lines.domains, bootstrap=0, **self.options
            )
        return self._evaluations[system]


def is_guided(system: str) -> bool:
    """Whether a system of this name decodes with FADA's guidance."""
    return bool(re.search(r"fada|guided|tuned|eq\. ?2|\bgd\b", system.lower()))


def load_runs(folders: Iterable[str | os.PathLike[str]], **options: Any) -> list[RunResults]:
    """Read several run folders; `options` as in :meth:`RunResults.load`."""
    runs = [RunResults.load(folder, **options) for folder in folders]
    if not runs:
        raise FadaError("no run folder given, expected at least one.")
    return runs


def flatten(values: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Nested settings as dotted names and plain values."""
    for key, value in values.items():
        if isinstance(value, Mapping):
            yield from flatten(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value


def _read_json(path: Path) -> dict[str, Any]:
    if not path.exists():
        return {}
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise FadaError(f"{path}: not valid JSON ({error}). Restore the file or write the run again.") from None
    if not isinstance(value, dict):
        raise FadaError(f"{path}: found a {type(value).__name__}, expected an object with named values.")
    return value


def _read_predictions(path: Path) -> dict[str, Predictions]:
    if not path.exists():
        raise FadaError(f"{path}: no such file. A report needs the predictions that training or evaluation writes.")
    columns = read_table(path)
    missing = [name for name in _PREDICTION_COLUMNS if name not in columns]
    if missing:
        raise FadaError(
            f"{path}: columns {', '.join(missing)} are missing; found {', '.join(columns)}. "
            "Expected one row per line and system."
        )
    for name in _SCORE_COLUMNS:
        columns.setdefault(name, [None] * len(columns["id"]))
    rows_of: dict[str, list[int]] = {}
    for row, (system, reference) in enumerate(zip(columns["system"], columns["reference"], strict=True)):
        if reference is not None:
            rows_of.setdefault(str(system), []).append(row)
    for system, rows in rows_of.items():
        ids = [columns["id"][row] for row in rows]
        if len(set(ids)) < len(ids):
            twice = next(name for name, times in Counter(ids).items() if times > 1)
            raise FadaError(f"{path}: line {twice!r} stands twice for system {system!r}, expected one row each.")
    if not rows_of:
        raise FadaError(f"{path}: no line with a reference, so nothing can be evaluated.")

    def picked(rows: list[int], name: str, convert: Callable[[Any], Any]) -> list[Any]:
        return [None if (value := columns[name][row]) is None else convert(value) for row in rows]

    return {
        system: Predictions(
            ids=picked(rows, "id", str),
            domains=picked(rows, "domain", str),
            references=picked(rows, "reference", str),
            hypotheses=[text or "" for text in picked(rows, "hypothesis", str)],
            log_prob=picked(rows, "log_prob", float),
            distance=picked(rows, "distance", float),
            score=picked(rows, "score", float),
        )
        for system, rows in rows_of.items()
    }


# -------------------------------------------------------------------------------------------------------- tables


@dataclass(frozen=True)
class Cell:
    """A number of a table: a rate in percent with its SEM, or a relative change (`signed`); `best` is set in bold."""

    value: MeanSem
    signed: bool = False
    best: bool = False

    @property
    def number(self) -> str:
        """The mean as printed: two digits, or a signed percentage with one."""
        return f"{self.value.mean:+.1f} %".replace("-", "−") if self.signed else f"{self.value.mean:.2f}"

    @property
    def error(self) -> str:
        """The SEM as printed, or nothing for a single run."""
        return "" if self.value.sem is None else f"({self.value.sem:.2f})"


@dataclass(frozen=True)
class Table:
    """A table with label columns, groups of value columns, and a caption that says what the numbers are.

    Args:
        name: file name without ending.
        heads: (text, number of columns) above the columns; empty for a single head row.
        columns: one head per column.
        labels: how many leading columns are labels.
        rows: labels as text, values as :class:`Cell`, None where there is no such run.
    """

    name: str
    title: str
    caption: str
    heads: tuple[tuple[str, int], ...]
    columns: tuple[str, ...]
    labels: int
    rows: tuple[tuple[str | Cell | None, ...], ...]

    def to_markdown(self) -> str:
        """A pipe table; the column groups are part of the column heads."""

        def cell(value: str | Cell | None) -> str:
            if isinstance(value, Cell):
                number = f"**{value.number}**" if value.best else value.number
                return f"{number} {value.error}".strip()
            return _escape_markdown(value or "")

        names = [_escape_markdown(name) for name in self._flat_columns()]
        lines = [names, ["---"] * self.labels + ["---:"] * (len(names) - self.labels)]
        lines += [[cell(value) for value in row] for row in self.rows]
        body = "\n".join("| " + " | ".join(line) + " |" for line in lines)
        return f"**{_escape_markdown(self.title)}.** {_escape_markdown(self.caption)}\n\n{body}\n"

    def to_latex(self) -> str:
        """A ``table`` for a document that loads ``booktabs`` (and a Unicode engine for labels in other scripts)."""

        def cell(value: str | Cell | None) -> str:
            if isinstance(value, Cell):
                number = escape_latex(value.number).replace("−", "$-$").replace("+", "$+$")
                number = rf"\textbf{{{number}}}" if value.best else number
                return f"{number} {{\\tiny {value.error}}}" if value.error else number
            return escape_latex(value) if value is not None else "--"

        heads = ""
        if self.heads:
            cells, rules, at = [], [], 1
            for text, span in self.heads:
                cells.append(rf"\multicolumn{{{span}}}{{c}}{{{escape_latex(text)}}}" if text else "&" * (span - 1))
                rules.append(rf"\cmidrule(lr){{{at}-{at + span - 1}}}" if text else "")
                at += span
            heads = " & ".join(cells) + " \\\\\n" + " ".join(filter(None, rules)) + "\n"
        lines = [" & ".join(escape_latex(name) for name in self.columns)]
        previous = None
        body = []
        for row in self.rows:
            if previous is not None and self.labels > 1 and row[0] != previous:
                body.append(r"\midrule")
            body.append(" & ".join(cell(value) for value in row) + r" \\")
            previous = row[0]
        return "\n".join(
            [
                r"\begin{table}[t]",
                r"\centering",
                r"\small",
                rf"\begin{{tabular}}{{{'l' * self.labels}{'c' * (len(self.columns) - self.labels)}}}",
                r"\toprule",
                f"{heads}{lines[0]} \\\\",
                r"\midrule",
                *body,
                r"\bottomrule",
                r"\end{tabular}",
                rf"\caption{{\textbf{{{escape_latex(self.title)}.}} {escape_latex(self.caption)}}}",
                rf"\label{{tab:{self.name}}}",
                r"\end{table}",
                "",
            ]
        )

    def to_csv(self) -> str:
        """Full precision; the SEM in a column of its own, empty for a single run."""
        names: list[str] = []
        for i, name in enumerate(self._flat_columns()):
            names += [name] if i < self.labels else [name, f"{name} SEM"]
        buffer = io.StringIO()
        writer = csv.writer(buffer, lineterminator="\n")
        writer.writerow(names)
        for row in self.rows:
            cells: list[Any] = list(row[: self.labels])
            for value in row[self.labels :]:
                cells += [value.value.mean, value.value.sem] if isinstance(value, Cell) else [value, None]
            writer.writerow(cells)
        return buffer.getvalue()

    def to_html(self) -> Markup:
        """A ``<table>`` with caption and scoped heads; all text is escaped."""

        def cell(value: str | Cell | None, label: bool) -> Markup:
            if isinstance(value, Cell):
                sem = Markup(" <small>{}</small>").format(value.error) if value.error else ""
                best = Markup("<b>{}</b>") if value.best else Markup("{}")
                return Markup('<td class="num">{}{}</td>').format(best.format(value.number), sem)
            if label:
                return Markup('<th scope="row"><bdi>{}</bdi></th>').format(value or "")
            return Markup('<td class="num">{}</td>').format("–" if value is None else value)

        heads = Markup()
        if self.heads:
            group = Markup('<th class="group" scope="colgroup" colspan="{}">{}</th>')
            empty = Markup('<td colspan="{}"></td>')
            cells = [group.format(span, text) if text else empty.format(span) for text, span in self.heads]
            heads = Markup("<tr>{}</tr>").format(Markup().join(cells))
        columns = [
            Markup('<th scope="col" class="{}"><bdi>{}</bdi></th>').format("num" if i >= self.labels else "label", name)
            for i, name in enumerate(self.columns)
        ]
        rows = [
            Markup("<tr>{}</tr>").format(Markup().join(cell(value, i < self.labels) for i, value in enumerate(row)))
            for row in self.rows
        ]
        return Markup(
            "<table>\n<caption><b>{}.</b> {}</caption>\n<thead>{}<tr>{}</tr></thead>\n<tbody>\n{}\n</tbody>\n</table>\n"
        ).format(self.title, self.caption, heads, Markup().join(columns), Markup("\n").join(rows))

    def to_format(self, ending: str) -> str:
        """One of :data:`FORMATS`."""
        writers: dict[str, Callable[[], str]] = {
            "html": self.to_html,
            "md": self.to_markdown,
            "tex": self.to_latex,
            "csv": self.to_csv,
        }
        if ending not in writers:
            raise FadaError(f"unknown table format {ending!r}, expected one of {', '.join(FORMATS)}.")
        return str(writers[ending]())

    def _flat_columns(self) -> list[str]:
        groups = [text for text, span in self.heads for _ in range(span)] or [""] * len(self.columns)
        return [f"{group} {name}".strip() for group, name in zip(groups, self.columns, strict=True)]


def write_tables(
    tables: Sequence[Table], folder: str | os.PathLike[str], formats: Sequence[str] = FORMATS
) -> list[Path]:
    """Write every table in every format into `folder`; the files written."""
    paths = []
    for table in tables:
        for ending in formats:
            path = Path(folder) / f"{table.name}.{ending}"
            write_text(path, table.to_format(ending))
            paths.append(path)
    return paths


def escape_latex(text: str) -> str:
    """Text that LaTeX prints as it is."""
    special = {"\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}"}
    special |= {c: f"\\{c}" for c in "&%$#_{}"}
    special |= {"→": r"$\rightarrow$", "↓": r"$\downarrow$", "λ": r"$\lambda$"}
    return "".join(special.get(c, c) for c in " ".join(text.split()))


def _escape_markdown(text: str) -> str:
    return re.sub(r"([\\|*_`<>\[\]])", r"\\\1", " ".join(text.split()))


# ---------------------------------------------------------------------------------------------- the paper's tables


@dataclass(frozen=True)
class Experiment:
    """Runs that are the same but for the seed. `note` is the settings that tell it from its like, often empty."""

    runs: tuple[RunResults, ...]
    note: str = ""

    @property
    def dataset(self) -> str:
        """What the data set is called."""
        return self.runs[0].dataset

    @property
    def model(self) -> str:
        """What the model is called, with the note."""
        return f"{self.runs[0].model} ({self.note})" if self.note else self.runs[0].model

    @property
    def training(self) -> Training:
        """How the model was trained."""
        return self.runs[0].training

    def evaluations(self, guided: bool) -> list[Evaluation]:
        """One evaluation per run that has such a system, without intervals."""
        systems = [(run, run.guided_system if guided else run.plain_system) for run in self.runs]
        return [run.evaluation(system) for run, system in systems if system is not None]


def experiments(runs: Sequence[RunResults]) -> list[Experiment]:
    """Runs gathered by data set, model, training (standard first) and all settings but the seed, in the order given."""
    grouped: dict[Any, list[RunResults]] = {}
    places = {(run.dataset, run.model): i for i, run in reversed(list(enumerate(runs)))}
    order = ("standard", "TR-TT", "FADA")
    for run in sorted(runs, key=lambda run: (places[run.dataset, run.model], order.index(run.training))):
        grouped.setdefault((run.dataset, run.model, run.training, run.variant), []).append(run)
    families: dict[Any, list[Any]] = {}
    for key in grouped:
        families.setdefault(key[:3], []).append(key)
    return [Experiment(tuple(members), _note(key, families[key[:3]])) for key, members in grouped.items()]


def _note(key: Any, family: Sequence[Any]) -> str:
    if len(family) == 1:
        return ""
    variants = [dict(other[3]) for other in family]
    differing = sorted({k for v in variants for k in v if len({other.get(k) for other in variants}) > 1})
    return ", ".join(f"{name.rsplit('.', 1)[-1]} {dict(key[3]).get(name, '–')}" for name in differing[:3])


def _by_method(runs: Sequence[RunResults]) -> dict[tuple[str, str], dict[str, list[Evaluation]]]:
    """(data set, model) → method → evaluations, one per seed.

    Variants of one method (say, three values of λ) are rows of their own, each beside the same baselines.
    """
    found: dict[tuple[str, str], dict[str, dict[str, list[Evaluation]]]] = {}
    for experiment in experiments(runs):
        for guided in (False, True):
            method = _METHOD.get((experiment.training, guided))
            if method and (evaluations := experiment.evaluations(guided)):
                notes = found.setdefault((experiment.dataset, experiment.runs[0].model), {})
                notes.setdefault(experiment.note, {})[method] = evaluations
    result = {}
    for (dataset, model), notes in found.items():
        shared = notes.get("", {})
        for note, methods in notes.items():
            if note:
                result[dataset, f"{model} ({note})"] = {**shared, **methods}
            elif len(notes) == 1:
                result[dataset, model] = methods
    return result


def main_table(runs: Sequence[RunResults]) -> Table | None:
    """Data set × model × {standard, TR-TT, FADA-TR-GD}: CER and WER, mean (SEM), the best of a row in bold."""
    results = _by_method(runs)
    paper = [m for m in ("Standard", "TR-TT", "FADA-TR-GD") if any(m in found for found in results.values())]
    if len(paper) < 2:
        return None
    rows = []
    for (dataset, model), found in results.items():
        means = {m: over_seeds(found[m])["all"] for m in paper if m in found}
        cells: list[Cell | None] = []
        for method in paper:
            for metric in ("cer", "wer"):
                cells.append(Cell(means[method][metric]) if method in means else None)
        rows.append((dataset, model, *_mark_best(cells, period=2)))
    return Table(
        name="main",
        title="Main results",
        caption=f"CER and WER in percent, {_how(runs)}{_seeds_note(results)}. Bold: best of its row.",
        heads=(("", 2), *((method, 2) for method in paper)),
        columns=("Data", "Model", *("CER ↓", "WER ↓") * len(paper)),
        labels=2,
        rows=tuple(rows),
    )


def ablation_table(runs: Sequence[RunResults]) -> Table | None:
    """Relative change of CER against standard training for guided decoding, training alignment, and both."""
    results = {key: found for key, found in _by_method(runs).items() if "Standard" in found}
    columns = [m for m in METHODS[2:] if any(m in found for found in results.values())]
    if not columns:
        return None
    rows = []
    for (dataset, model), found in results.items():
        standard = over_seeds(found["Standard"])["all"]["cer"].mean
        cells = [
            Cell(_relative(over_seeds(found[m])["all"]["cer"].mean, standard), signed=True) if m in found else None
            for m in columns
        ]
        rows.append((dataset, model, *_mark_best(cells)))
    return Table(
        name="ablation",
        title="Ablation",
        caption="Relative change of the mean CER against standard training; negative is better. Bold: best of its row.",
        heads=(),
        columns=("Data", "Model", *columns),
        labels=2,
        rows=tuple(rows),
    )


def domain_tables(runs: Sequence[RunResults]) -> list[Table]:
    """One table per data set: model and method × domain, CER; the best of each domain and model in bold."""
    results = _by_method(runs)
    tables = []
    for number, dataset in enumerate(dict.fromkeys(dataset for dataset, _ in results)):
        blocks = {model: found for (name, model), found in results.items() if name == dataset}
        means = {(model, m): over_seeds(found[m]) for model, found in blocks.items() for m in METHODS if m in found}
        domains = sorted({d for values in means.values() for d in values} - {"all"}, key=natural_key)
        if not domains:
            continue
        columns: list[list[Cell | None]] = []
        for domain in [*domains, "all"]:
            column: list[Cell | None] = []
            for model in blocks:
                cells = [Cell(v[domain]["cer"]) if domain in v else None for (m, _), v in means.items() if m == model]
                column += _mark_best(cells)
            columns.append(column)
        keys = [key for model in blocks for key in means if key[0] == model]
        tables.append(
            Table(
                name="domains" if number == 0 else f"domains-{number + 1}",
                title=f"Per domain: {dataset}",
                caption=f"CER in percent, {_how(runs)}{_seeds_note(results)}. Bold: best of its model and domain.",
                heads=(),
                columns=("Model", "Method", *domains, "all"),
                labels=2,
                rows=tuple((*key, *(column[i] for column in columns)) for i, key in enumerate(keys)),
            )
        )
    return tables


def beam_table(runs: Sequence[RunResults]) -> Table | None:
    """Data set × model × method by beam size, from systems named by their beam (``beam 7``) or runs that record it."""
    found: dict[tuple[str, str, str], dict[int, list[float]]] = {}
    for run in runs:
        for system in run.predictions:
            method = _METHOD.get((run.training, is_guided(system)))
            named = _BEAM_SIZE.search(system)
            size = int(named[1]) if named else 1 if system == "greedy" else run.beam_size
            chosen = named or system in {run.plain_system, run.guided_system, "greedy"}
            if method is None or size is None or not chosen:
                continue
            cer = run.evaluation(system).cer
            found.setdefault((run.dataset, run.model, method), {}).setdefault(size, []).append(cer)
    sizes = sorted({size for by_size in found.values() for size in by_size})
    if len(sizes) < 2:
        return None
    rows = [
        (*key, *_mark_best([Cell(mean_sem(by_size[size])) if size in by_size else None for size in sizes]))
        for key, by_size in found.items()
    ]
    return Table(
        name="beam",
        title="Beam size",
        caption=f"CER in percent, {_how(runs)}, mean over seeds (SEM); beam 1 is best path. Bold: best of its row.",
        heads=(("", 3), ("beam", len(sizes))),
        columns=("Data", "Model", "Method", *map(str, sizes)),
        labels=3,
        rows=tuple(rows),
    )


def systems_table(runs: Sequence[RunResults]) -> Table:
    """Every experiment and every system: CER, WER and NED; the best of a data set and model in bold."""
    blocks: dict[tuple[str, str], list[tuple[str, str, list[Cell | None]]]] = {}
    for experiment in experiments(runs):
        for system in dict.fromkeys(system for run in experiment.runs for system in run.predictions):
            scored = [run.evaluation(system) for run in experiment.runs if system in run.predictions]
            means = over_seeds(scored)["all"]
            cells: list[Cell | None] = [Cell(means[metric]) for metric in ("cer", "wer", "ned")]
            block = blocks.setdefault((experiment.dataset, experiment.model), [])
            block.append((experiment.training, system, cells))
    rows: list[tuple[str | Cell | None, ...]] = []
    for key, block in blocks.items():
        columns = [_mark_best([cells[j] for _, _, cells in block]) for j in range(3)]
        rows += [(*key, t, s, *(column[i] for column in columns)) for i, (t, s, _) in enumerate(block)]
    return Table(
        name="systems",
        title="All systems",
        caption=f"Rates in percent, {_how(runs)}, mean over seeds (SEM). Bold: best of its data set and model.",
        heads=(),
        columns=("Data", "Model", "Training", "Decoding", "CER ↓", "WER ↓", "NED ↓"),
        labels=4,
        rows=tuple(rows),
    )


def paper_tables(runs: Sequence[RunResults]) -> list[Table]:
    """Every table that these runs have the numbers for."""
    tables = [main_table(runs), ablation_table(runs), *domain_tables(runs), beam_table(runs), systems_table(runs)]
    return [table for table in tables if table is not None]


def _mark_best(cells: Sequence[Cell | None], period: int = 1) -> list[Cell | None]:
    """Mark the smallest printed value among every `period`-th cell, if there is more than one to choose from."""
    result = list(cells)
    for start in range(period):
        values = {i: cell for i in range(start, len(cells), period) if (cell := cells[i]) is not None}
        if len(values) < 2:
            continue
        smallest = min(round(cell.value.mean, 2) for cell in values.values())
        for i, cell in values.items():
            if round(cell.value.mean, 2) == smallest:
                result[i] = replace(cell, best=True)
    return result


def _relative(value: float, baseline: float) -> MeanSem:
    return mean_sem([100 * (value - baseline) / baseline if baseline > 0 else 0.0])


def _how(runs: Sequence[RunResults]) -> str:
    """How texts were compared: "micro average", and what is not the default."""
    options = runs[0].options
    parts = [f"{options.get('average') or 'micro'} average"]
    if options.get("units") == "graphemes":
        parts.append("over grapheme clusters")
    names = parse_normalization(options.get("normalization"))
    return " ".join(parts) + (f", normalised ({', '.join(names)})" if names else "")


def _seeds_note(results: Mapping[Any, Mapping[str, Sequence[Evaluation]]]) -> str:
    counts = {len(found) for methods in results.values() for found in methods.values()}
    if counts == {1}:
        return "; single runs"
    numbers = f"{min(counts)} to {max(counts)}" if len(counts) > 1 else str(counts.pop())
    return f", mean over {numbers} seeds (SEM)"
