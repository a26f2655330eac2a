"""The paper's tables from run folders.

Runs that differ in nothing but the seed are one row: mean and standard error of the mean (SEM) over their seeds.
"""

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from fada.evaluation.edits import parse_normalization
from fada.evaluation.scores import Evaluation, over_seeds
from fada.evaluation.significance import mean_sem
from fada.evaluation.table import Cell, Table
from fada.runs.groups import experiments
from fada.runs.run import Run
from fada.text.characters import natural_key

METHODS = ("Standard", "TR-TT", "FADA-GD", "FADA-TR", "FADA-TR-GD")
"""The paper's names: domain token (TR-TT), guided decoding (GD), training-time alignment (TR), and both (TR-GD)."""

_METHOD = {
    ("standard", False): "Standard",
    ("TR-TT", False): "TR-TT",
    ("standard", True): "FADA-GD",
    ("FADA", False): "FADA-TR",
    ("FADA", True): "FADA-TR-GD",
}
_BEAM_SIZE = re.compile(r"(?:beam|@)[ _=-]?(\d+)", re.IGNORECASE)


def _by_method(runs: Sequence[Run]) -> dict[tuple[str, str], dict[str, list[Evaluation]]]:
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


def main_table(runs: Sequence[Run]) -> Table | None:
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


def ablation_table(runs: Sequence[Run]) -> Table | None:
    """Relative change of CER against standard training for guided decoding, training alignment, and both."""
    results = {key: found for key, found in _by_method(runs).items() if "Standard" in found}
    columns = [m for m in METHODS[2:] if any(m in found for found in results.values())]
    if not columns:
        return None
    rows = []
    for (dataset, model), found in results.items():
        cers = {method: over_seeds(seeds)["all"]["cer"].mean for method, seeds in found.items()}
        standard = cers["Standard"]
        cells = [
            Cell(mean_sem([100 * (cers[m] - standard) / standard if standard > 0 else 0.0]), signed=True)
            if m in cers
            else None
            for m in columns
        ]
        rows.append((dataset, model, *_mark_best(cells, below=0.0)))
    return Table(
        name="ablation",
        title="Ablation",
        caption="Relative change of the mean CER against standard training; negative is better. Bold: best of its row, "
        "if it is better than standard.",
        heads=(),
        columns=("Data", "Model", *columns),
        labels=2,
        rows=tuple(rows),
    )


def domain_tables(runs: Sequence[Run]) -> list[Table]:
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


def beam_table(runs: Sequence[Run]) -> Table | None:
    """Data set × model × method by beam size, from systems named by their beam (``beam 7``) or runs that record it."""
    found: dict[tuple[str, str, str], dict[int, list[float]]] = {}
    for run in runs:
        for system in run.predictions:
            method = _METHOD.get((run.training, run.predictions[system].guided))
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


def systems_table(runs: Sequence[Run]) -> Table:
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


def paper_tables(runs: Sequence[Run]) -> list[Table]:
    """Every table that these runs have the numbers for."""
    tables = [main_table(runs), ablation_table(runs), *domain_tables(runs), beam_table(runs), systems_table(runs)]
    return [table for table in tables if table is not None]


def _mark_best(cells: Sequence[Cell | None], period: int = 1, below: float = math.inf) -> list[Cell | None]:
    """Mark the smallest printed value among every `period`-th cell, if it is below `below` and not the only one."""
    result = list(cells)
    for start in range(period):
        values = {i: cell for i in range(start, len(cells), period) if (cell := cells[i]) is not None}
        if len(values) < 2:
            continue
        smallest = min(round(cell.value.mean, 2) for cell in values.values())
        for i, cell in values.items():
            if round(cell.value.mean, 2) == smallest < below:
                result[i] = replace(cell, best=True)
    return result


def _how(runs: Sequence[Run]) -> str:
    """How texts were compared: "micro average", and what is not the default."""
    scoring = runs[0].scoring
    parts = [f"{scoring.average} average"]
    if scoring.units == "graphemes":
        parts.append("over grapheme clusters")
    names = parse_normalization(scoring.normalization)
    return " ".join(parts) + (f", normalised ({', '.join(names)})" if names else "")


def _seeds_note(results: Mapping[Any, Mapping[str, Sequence[Evaluation]]]) -> str:
    counts = {len(found) for methods in results.values() for found in methods.values()}
    if counts == {1}:
        return "; single runs"
    numbers = f"{min(counts)} to {max(counts)}" if len(counts) > 1 else str(counts.pop())
    return f", mean over {numbers} seeds (SEM)"
