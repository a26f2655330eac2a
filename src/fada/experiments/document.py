"""The results document: every table of `docs/results.md` comes from the JSON files in `results/`."""

import json
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fada.common.files import replacing
from fada.errors import FadaError
from fada.evaluation.significance import mean_sem
from fada.text.characters import natural_key

if TYPE_CHECKING:
    from fada.experiments.reproduce import Recipe

BASE = "standard"
ABLATION = ("FADA-GD", "FADA-TR", "FADA-TR-GD")
_DIAGNOSED = {
    "task_loss": "task loss",
    "alignment": "distance",
    "task_gradient": "task gradient",
    "alignment_gradient": "distance gradient",
    "pull_at_half": "ratio",
    "cosine": "cosine",
}
Seeds = Sequence[Mapping[str, Any]]


def load_results(folder: str | os.PathLike[str]) -> dict[str, list[dict[str, Any]]]:
    """The seeds of every recipe of the main table, by the recipe's name."""
    found = {
        path.name: [_read(file) for file in sorted(path.glob("*.json"), key=lambda file: natural_key(file.stem))]
        for path in sorted(Path(folder).glob("main-*"))
        if not path.name.endswith(("-quick", "-paper"))
    }
    if not any(found.values()):
        raise FadaError(f"{folder}: no results here, expected folders such as main-hpgt-crnn made by `fada reproduce`.")
    return {name: seeds for name, seeds in found.items() if seeds}


def document(folder: str | os.PathLike[str] = "results") -> str:
    """The whole document in Markdown."""
    folder = Path(folder)
    found = load_results(folder)
    parts = [
        "# Results",
        "",
        "Made by `fada results` from the files in `results/`; do not edit by hand. CER and WER in percent,",
        "micro-averaged; mean (standard error of the mean) over seeds. Weights and λ are chosen on validation lines;",
        "none is chosen on test lines. The test against the standard model is a paired randomisation test for each",
        "seed, by lines and, after the comma, by pages or speakers: lines of one page are alike, so the first is too",
        "sure of itself; and no test by five pages can fall below 0.06.",
        "",
        *_included("Reading", folder / "reading.md"),
        *_main_table(found),
        *_ablation(found),
        *_ours(found),
        *_per_domain(found),
        *_beams(found),
        *_lambdas(found),
        *_rivals(found),
        *_diagnostics(found),
        *_examples(found),
        *_overhead(found),
        *_costs(found),
        *_included(
            "Reading the synthetic lines: `--noise`", folder / "noise" / "table.md", "python -m benchmarks.noise"
        ),
        *_included(
            "Lipograms",
            folder / "lipogram" / "table.md",
            "fada lipogram --recipe recipes/lipogram_smollm2.yaml --out results/lipogram",
        ),
        *_included(
            "Lipograms with beam search",
            folder / "lipogram-beam" / "table.md",
            "fada lipogram --recipe recipes/lipogram_smollm2_beam.yaml --out results/lipogram-beam",
        ),
    ]
    return "\n".join(parts).rstrip() + "\n"


def table_of(recipe: "Recipe", seeds: Iterable[Mapping[str, Any]]) -> str:
    """The row of the main table in Markdown: CER and WER, mean (SEM) over seeds, beside the paper's own figures."""
    seeds = list(seeds)
    rows = []
    for name in _names(seeds, "systems"):
        paper = recipe.published.get(name)
        published = f"{paper[0]:.2f} / {paper[1]:.2f}" if paper else ""
        entries = _entries(seeds, "systems", name)
        rows.append([name, str(len(entries)), *_row(entries), published])
    head = ["system", "seeds", "CER %", "WER %", "CER relative to standard", "with p < 0.05", "the paper, CER / WER"]
    lines = seeds[0]["lines"]
    shared = f" of {lines['clusters']} {' / '.join(recipe.clusters)}" if "clusters" in lines else ""
    told = f"{lines['test']} test lines{shared}; mean (SEM) over seeds."
    return "\n".join([f"# {recipe.title}", "", recipe.differences.strip(), "", told, "", *_table(head, rows), ""])


def draw_curves(recipe: "Recipe", seeds: Seeds, path: Path) -> None:
    """Validation CER by epoch, one line per arm and seed."""
    from matplotlib.figure import Figure
    from matplotlib.ticker import MaxNLocator

    figure = Figure(figsize=(6.4, 4), layout="constrained")
    axes = figure.add_subplot()
    arms = list(dict.fromkeys(arm for seed in seeds for arm in seed["arms"]))
    for seed in seeds:
        for arm, found in seed["arms"].items():
            epochs = [entry["epoch"] for entry in found["history"]]
            errors = [entry["validation"] for entry in found["history"]]
            first = seed is next(s for s in seeds if arm in s["arms"])
            axes.plot(epochs, errors, color=f"C{arms.index(arm)}", marker=".", label=arm if first else None)
    axes.set(title=f"{recipe.title}: validation", xlabel="epoch", ylabel="CER in percent", yscale="log")
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.yaxis.set_major_formatter("{x:g}")
    axes.yaxis.set_minor_formatter("{x:g}")
    axes.grid(alpha=0.3, which="both")
    axes.legend()
    with replacing(path) as temporary:
        figure.savefig(temporary, format="png", dpi=120)


# ------------------------------------------------------------------------------------------------------- the sections


def _main_table(found: Mapping[str, Seeds]) -> Iterator[str]:
    yield from ("## Main results", "")
    rows = []
    for seeds in found.values():
        names = _names(seeds, "systems")
        ours = [name for name in names if name not in (BASE, "TR-TT", "TR-TT + GD", *ABLATION)]
        for name in (BASE, "TR-TT", "FADA-TR-GD", *ours):
            if entries := _entries(seeds, "systems", name):
                row = [seeds[0]["dataset"], seeds[0]["model"], name, str(len(entries))]
                rows.append([*row, *_row(entries), _paper_change(seeds[0], name)])
    head = [
        "data",
        "model",
        "system",
        "seeds",
        "CER",
        "WER",
        "CER relative",
        "seeds with p < 0.05",
        "the paper, relative",
    ]
    yield from _table(head, rows)
    yield ""
    for seeds in found.values():
        yield f"* **{seeds[0]['dataset']}, {seeds[0]['model']}**: {' '.join(seeds[0]['differences'].split())}"
    yield ""


def _ablation(found: Mapping[str, Seeds]) -> Iterator[str]:
    rows = []
    for seeds in found.values():
        found_here = [_entries(seeds, "systems", name) for name in ABLATION]
        cells = [_row(entries)[2] if entries else "" for entries in found_here]
        papers = [_paper_change(seeds[0], name) for name in ABLATION]
        changed = sum(seed["arms"][BASE]["hypotheses_changed_by_gd"] for seed in seeds)
        lines = sum(seed["lines"]["test"] for seed in seeds)
        told = [f"{cell} [{paper}]" if cell else "" for cell, paper in zip(cells, papers, strict=True)]
        rows.append([seeds[0]["dataset"], seeds[0]["model"], *told, f"{changed} of {lines}"])
    yield from ("## Ablation: change of the CER relative to the standard model [in the paper]", "")
    yield from _table(["data", "model", *ABLATION, "hypotheses that GD changes"], rows)
    yield ""


def _ours(found: Mapping[str, Seeds]) -> Iterator[str]:
    for seeds in _having(found, "ours"):
        first = seeds[0]["ours"]
        settings = first["settings"]
        yield from (f"## Ours: {_title(seeds)}", "")
        yield (
            f"Parts added one after the other, against plain beam search of the standard model. Language model: "
            f"{settings['lm_order']}-gram, {settings['lm_smoothing']}, {settings['lm_share']:g} of the domain's own; "
            f"beam {settings['beam']}."
        )
        yield ""
        rows = []
        for name in _names(seeds, "ours", "rows"):
            entries = _entries(seeds, "ours", "rows", name)
            validation = [entry["validation_cer"] for entry in entries if "validation_cer" in entry]
            tuned = str(mean_sem(validation)) if validation else ""
            rows.append([name, str(len(entries)), tuned, *_row(entries)])
        head = ["system", "seeds", "validation CER", "CER", "WER", "CER relative", "seeds with p < 0.05"]
        yield from _table(head, rows)
        yield ""


def _per_domain(found: Mapping[str, Seeds]) -> Iterator[str]:
    for seeds in found.values():
        domains = sorted(seeds[0]["systems"][BASE]["per_domain"], key=natural_key)
        rows = []
        for name in _names(seeds, "systems"):
            entries = _entries(seeds, "systems", name, "per_domain")
            rates = [str(mean_sem([entry[domain] for entry in entries])) for domain in domains]
            rows.append([name, str(len(entries)), *rates])
        yield from (f"## CER per domain: {_title(seeds)}", "")
        yield from _table(["system", "seeds", *domains], rows)
        yield ""


def _beams(found: Mapping[str, Seeds]) -> Iterator[str]:
    rows = []
    for seeds in found.values():
        for arm in _names(seeds, "beams"):
            for width in _names(seeds, "beams", arm):
                entries = _entries(seeds, "beams", arm, width)
                rates = [str(mean_sem([entry[metric] for entry in entries])) for metric in ("cer", "wer")]
                rows.append([seeds[0]["dataset"], seeds[0]["model"], arm, width, str(len(entries)), *rates])
    yield from ("## Beam size, plain beam search", "")
    yield from _table(["data", "model", "training", "beam", "seeds", "CER", "WER"], rows)
    yield ""


def _lambdas(found: Mapping[str, Seeds]) -> Iterator[str]:
    rows = []
    for seeds in found.values():
        first = seeds[0]
        base = first["arms"][BASE]["validation_cer"]
        for curve, points in first["lambda_curves"].items():
            if curve == "TR":
                told = ", ".join(f"{point['arm']} {point['lam']:g}: {point['validation_cer']:.2f}" for point in points)
            else:
                best = min(points, key=lambda point: (point["validation_cer"], -point["lam"]))
                worst = max(point["validation_cer"] for point in points)
                told = f"best {best['validation_cer']:.2f} at {best['lam']:g}, worst {worst:.2f}; {len(points)} values"
            rows.append([first["dataset"], first["model"], curve, f"{base:.2f}", told])
    yield from ("## λ: validation CER of the first seed", "")
    yield from _table(["data", "model", "what", "standard, beam", "λ: validation CER"], rows)
    yield ""


def _rivals(found: Mapping[str, Seeds]) -> Iterator[str]:
    for seeds in _having(found, "rivals"):
        rows = []
        for arm in _names(seeds, "rivals"):
            for name in _names(seeds, "rivals", arm):
                entries = _entries(seeds, "rivals", arm, name)
                settings = "; ".join(filter(None, dict.fromkeys(entry["setting"] for entry in entries)))
                rows.append([arm, name, settings, str(len(entries)), *_row(entries)])
        yield from (f"## Rivals on the same emissions: {_title(seeds)}", "")
        yield "Relative to plain beam search of the same training."
        yield ""
        head = ["training", "decoding", "setting, from validation", "seeds"]
        yield from _table([*head, "CER", "WER", "CER relative", "seeds with p < 0.05"], rows)
        yield ""


def _diagnostics(found: Mapping[str, Seeds]) -> Iterator[str]:
    rows = []
    for seeds in found.values():
        for arm in seeds[0]["arms"]:
            measured = [seed["arms"][arm].get("diagnostics", {}) for seed in seeds if arm in seed["arms"]]
            for distance in ("sorted_w2", "aligned_w2"):
                entries = [entry[distance] for entry in measured if distance in entry]
                if entries:
                    cells = [f"{mean_sem([entry[column] for entry in entries]).mean:.3g}" for column in _DIAGNOSED]
                    rows.append([seeds[0]["dataset"], seeds[0]["model"], arm, distance, *cells])
    if not rows:
        return
    yield from ("## How hard the alignment term pulls", "")
    yield "The finished models on validation lines: the task loss, the distance at scale 1, the norms of their"
    yield "gradients at the network's outputs, the ratio of these (as λ = 0.5 weighs them), and their cosine."
    yield ""
    head = ["data", "model", "training", "distance", *(_DIAGNOSED.values())]
    yield from _table(head, rows)
    yield ""


def _examples(found: Mapping[str, Seeds]) -> Iterator[str]:
    chosen = [seeds for seeds in found.values() if seeds[0].get("examples")]
    if not chosen:
        return
    yield from ("## Examples, chosen by rule", "")
    yield "First seed: the two test lines that the last system of a block improves most, and the two it harms most."
    yield ""
    for seeds in chosen:
        yield from (f"**{_title(seeds)}**", "")
        rows = []
        for example in seeds[0]["examples"]:
            rows.append([f"{example['domain']}: reference", f"`{example['reference']}`", ""])
            for name, text in example["texts"].items():
                edits = {BASE: example["edits"]["before"], example["system"]: example["edits"]["after"]}.get(name, "")
                rows.append([name, f"`{text}`", str(edits)])
        yield from _table(["system", "text", "edits"], rows)
        yield ""


def _overhead(found: Mapping[str, Seeds]) -> Iterator[str]:
    rows = []
    rounds = 0
    for seeds in _having(found, "overhead"):
        measured = seeds[0]["overhead"]
        cells = [f"{100 * (measured[what]['ratio'] - 1):+.1f} %" for what in ("training", "decoding")]
        plain = [f"{1000 * measured[what]['plain_seconds']:.0f} ms" for what in ("training", "decoding")]
        rounds = measured["rounds"]
        rows.append([seeds[0]["dataset"], seeds[0]["model"], cells[0], plain[0], cells[1], plain[1]])
    if not rows:
        return
    yield from ("## Computational overhead", "")
    yield "More CPU time with FADA than without (λ = 0.5, `sorted_w2`): a training step on one batch; beam search of"
    yield "all test lines (CTC: the search alone; others: of one batch, with the decoder network). Median of"
    yield f"{rounds} pairs in turns; a negative figure is noise."
    yield "The paper: +4 to +6 % for training, +7 to +9 % for decoding."
    yield ""
    yield from _table(["data", "model", "training step", "without", "decoding", "without"], rows)
    yield ""


def _costs(found: Mapping[str, Seeds]) -> Iterator[str]:
    rows = []
    for seeds in found.values():
        for arm, record in seeds[0]["arms"].items():
            minutes = f"{record['seconds'] / 60:.0f}" if record.get("seconds") else ""
            size = f"{record['parameters'] / 1e6:.1f}" if record.get("parameters") else ""
            rows.append([seeds[0]["dataset"], seeds[0]["model"], arm, size, str(record["epochs"]), minutes])
    yield from ("## Trainings of the first seed", "")
    yield "Minutes by the clock on one core of a shared machine: the order of magnitude."
    yield ""
    yield from _table(["data", "model", "arm", "million parameters", "epochs", "minutes"], rows)
    yield ""


def _included(title: str, path: Path, command: str | None = None) -> Iterator[str]:
    """A part that lies ready as Markdown, with the command that made it."""
    if path.is_file():
        yield from (f"## {title}", "")
        if command is not None:
            yield from (f"`{command}`", "")
        yield from (path.read_text(encoding="utf-8").strip(), "")


# ------------------------------------------------------------------------------------------------------------ helpers


def _read(path: Path) -> dict[str, Any]:
    return json.loads(path.read_text(encoding="utf-8"))


def _having(found: Mapping[str, Seeds], part: str) -> list[list[Mapping[str, Any]]]:
    """The seeds of each recipe that have a part; recipes without any are left out."""
    kept = [[seed for seed in seeds if seed.get(part)] for seeds in found.values()]
    return [seeds for seeds in kept if seeds]


def _entries(seeds: Seeds, *path: str) -> list[Mapping[str, Any]]:
    """What lies at the end of a path of keys, of the seeds that have it."""
    found: list[Any] = list(seeds)
    for key in path:
        found = [entry[key] for entry in found if key in entry]
    return found


def _names(seeds: Seeds, *path: str) -> list[str]:
    """The keys at the end of a path, of any seed."""
    return list(dict.fromkeys(name for entry in _entries(seeds, *path) for name in entry))


def _row(entries: Seeds) -> list[str]:
    """CER, WER, relative change and number of significant seeds of one system."""
    rates = [str(mean_sem([entry[metric] for entry in entries])) for metric in ("cer", "wer")]
    if not all("relative" in entry for entry in entries):
        return [*rates, "", ""]
    relative = mean_sem([entry["relative"] for entry in entries])
    sem = "" if relative.sem is None else f" ({relative.sem:.1f})"
    tests = [name for name in ("p", "p_clusters") if all(name in entry for entry in entries)]
    significant = ", ".join(str(sum(entry[name] < 0.05 for entry in entries)) for name in tests)
    return [*rates, f"{relative.mean:+.1f}{sem} %", f"{significant} of {len(entries)}"]


def _paper_change(seed: Mapping[str, Any], name: str) -> str:
    value = seed.get("published_relative", {}).get(name)
    if value is None and name in seed["published"] and name != BASE:
        value = 100 * (seed["published"][name][0] / seed["published"][BASE][0] - 1)
    return "" if value is None else f"{value:+.1f} %"


def _title(seeds: Seeds) -> str:
    return f"{seeds[0]['dataset']}, {seeds[0]['model']}"


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> Iterator[str]:
    yield "| " + " | ".join(head) + " |"
    yield "|" + "---|" * len(head)
    for row in rows:
        yield "| " + " | ".join(str(cell).replace("|", "\\|") for cell in row) + " |"
