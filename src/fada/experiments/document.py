"""The results document: every table of `docs/results.md` comes from the JSON files in `results/`."""

import os
import textwrap
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from fada.common.files import replacing
from fada.evaluation.significance import mean_sem
from fada.evaluation.table import markdown_table
from fada.experiments.recipe import MAIN, STANDARD, Recipe, label
from fada.experiments.record import Point, Rates, Record, Seeds, System, gathered, load_results
from fada.text.characters import natural_key

BASE = label(STANDARD, guided=False)
ABLATION = ("FADA-GD", "FADA-TR", "FADA-TR-GD")
_DIAGNOSED = {
    "task_loss": "task loss",
    "alignment": "distance",
    "task_gradient": "task gradient",
    "alignment_gradient": "distance gradient",
    "pull_at_half": "ratio",
    "cosine": "cosine",
}
Found = Mapping[str, Seeds]


def document(folder: str | os.PathLike[str] = "results", suffix: str = "") -> str:
    """The whole document in Markdown; `suffix` is that of a smaller or larger size, ``-quick`` or ``-paper``."""
    folder = Path(folder)
    every = load_results(folder, suffix)
    found = {name: seeds for name, seeds in every.items() if name.startswith(f"{MAIN}-")}
    more = {name: seeds for name, seeds in every.items() if name not in found}
    parts = [
        "# Results",
        "",
        "Made by `fada results` from the files in `results/`; do not edit by hand. CER and WER in percent,",
        "micro-averaged; mean (standard error of the mean) over seeds. Weights and λ are chosen on validation lines;",
        "none is chosen on test lines. The test against the standard model is a paired randomisation test for each",
        "seed, by lines and, after the comma, by pages or speakers: lines of one page are alike, so the first is too",
        "sure of itself; and no test by five pages can fall below 0.06.",
        "",
        *([] if suffix else _included("Reading", folder / "reading.md")),
        *_included(
            "The ladder on unseen manuscripts",
            folder / "unseen" / "table.md",
            "fada reproduce unseen --data FOLDER/latin_script",
        ),
        *_main_table(found),
        *_more(more),
        *_included(
            "How large a gain is when nothing but λ is chosen",
            folder / "selection" / "table.md",
            "python -m benchmarks.selection",
        ),
        *_ablation(found),
        *_ours(found),
        *_per_domain(every),
        *_beams(found),
        *_lambdas(found),
        *_rivals(every),
        *_diagnostics(every),
        *_examples(found),
        *_overhead(found),
        *_costs(every),
        *_included(
            "What frequencies can be worth: bits per character",
            folder / "frequency_bound" / "table.md",
            "python -m benchmarks.frequency_bound hpgt:century catmus_fr:century latin_script:language accents:accent "
            "synthetic:domain",
        ),
        *_included(
            "Reading the synthetic lines: `--noise`", folder / "noise" / "table.md", "python -m benchmarks.noise"
        ),
        *_included(
            "Lipograms",
            folder / f"lipogram{suffix}" / "table.md",
            "fada lipogram --recipe recipes/lipogram_smollm2.yaml --out results/lipogram",
        ),
        *_included(
            "Lipograms with beam search",
            folder / f"lipogram-beam{suffix}" / "table.md",
            "fada lipogram --recipe recipes/lipogram_smollm2_beam.yaml --out results/lipogram-beam",
        ),
        *_included(
            "Lipograms with Eq. 2 to the letter and beam search",
            folder / f"lipogram-eq2{suffix}" / "table.md",
            "fada lipogram --recipe recipes/lipogram_stories_beam.yaml --model FOLDER --out results/lipogram-eq2",
        ),
        *_included(
            "Beyond the paper: pairs of characters, adaptive λ, case, in decoding",
            folder / "beyond" / "decoding.md",
            "python -m benchmarks.beyond FOLDER/catmus_fr:century --no-training",
        ),
        *_included("Beyond the paper, in training", folder / "beyond" / "training.md", "python -m benchmarks.beyond"),
        *_included(
            "The same training on one thread and on two",
            folder / "threads" / "table.md",
            "python -m benchmarks.threads",
        ),
    ]
    return "\n".join(parts).rstrip() + "\n"


def table_of(recipe: Recipe, seeds: Seeds) -> str:
    """The row of the main table in Markdown: CER and WER, mean (SEM) over seeds, beside the paper's own figures."""
    rows = []
    for name, entries in gathered(seed.systems for seed in seeds).items():
        paper = recipe.published.get(name)
        published = f"{paper[0]:.2f} / {paper[1]:.2f}" if paper else ""
        rows.append([name, str(len(entries)), *_row(entries), published])
    head = ["system", "seeds", "CER %", "WER %", "CER relative to standard", "with p < 0.05", "the paper, CER / WER"]
    lines = seeds[0].lines
    shared = "" if lines.clusters is None else f" of {lines.clusters} {' / '.join(recipe.clusters)}"
    told = f"{lines.test} test lines{shared}; mean (SEM) over seeds."
    return "\n".join([f"# {recipe.title}", "", recipe.differences.strip(), "", told, "", markdown_table(head, rows)])


def draw_curves(recipe: Recipe, seeds: Seeds, path: Path) -> None:
    """Validation CER by epoch, one line per arm and seed."""
    from matplotlib.figure import Figure
    from matplotlib.ticker import MaxNLocator

    figure = Figure(figsize=(6.4, 4), layout="constrained")
    axes = figure.add_subplot()
    for number, (arm, trained) in enumerate(gathered(seed.arms for seed in seeds).items()):
        for i, found in enumerate(trained):
            epochs, errors = [e.epoch for e in found.history], [e.validation for e in found.history]
            axes.plot(epochs, errors, color=f"C{number}", marker=".", label=None if i else arm)
    axes.set(
        title=textwrap.fill(f"{recipe.title}: validation", 60), xlabel="epoch", ylabel="CER in percent", yscale="log"
    )
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.yaxis.set_major_formatter("{x:g}")
    axes.yaxis.set_minor_formatter("{x:g}")
    axes.grid(alpha=0.3, which="both")
    axes.legend()
    with replacing(path) as temporary:
        figure.savefig(temporary, format="png", dpi=120)


# ------------------------------------------------------------------------------------------------------- the sections


def _main_table(found: Found) -> Iterator[str]:
    yield from ("## Main results", "")
    rows = []
    for seeds in found.values():
        first, systems = seeds[0], gathered(seed.systems for seed in seeds)
        ours = [name for name in systems if name not in (BASE, "TR-TT", "TR-TT + GD", *ABLATION)]
        for name in (BASE, "TR-TT", "FADA-TR-GD", *ours):
            if entries := systems.get(name):
                row = [first.dataset, first.model, name, str(len(entries))]
                rows.append([*row, *_row(entries), _paper_change(first, name)])
    head = ["data", "model", "system", "seeds", "CER", "WER", "CER relative", "seeds with p < 0.05"]
    yield markdown_table([*head, "the paper, relative"], rows)
    for seeds in found.values():
        yield f"* **{seeds[0].title}**: {' '.join(seeds[0].differences.split())}"
    yield ""


def _more(found: Found) -> Iterator[str]:
    """What a reader may object to the main results, each answered by runs of its own."""
    for name, seeds in found.items():
        yield from (f"## Once more: {seeds[0].title}", "", f"`fada reproduce recipes/{name}.yaml --data FOLDER`", "")
        yield from (" ".join(seeds[0].differences.split()), "")
        lines = seeds[0].lines
        yield from (f"{lines.test} test lines; λ and weights from {lines.validation} validation lines.", "")
        rows = []
        for system, entries in gathered(seed.systems for seed in seeds).items():
            rows.append([system, str(len(entries)), *_row(entries), _paper_change(seeds[0], system)])
        head = ["system", "seeds", "CER", "WER", "CER relative", "seeds with p < 0.05", "the paper, relative"]
        yield markdown_table(head, rows)
        yield from _every_lam(seeds)


def _every_lam(seeds: Seeds) -> Iterator[str]:
    """Validation and test CER of every λ of training, where a recipe keeps them."""
    points: dict[tuple[str, float], list[Point]] = {}
    for seed in seeds:
        for point in seed.lambda_curves.get("TR", []):
            if point.test_cer is not None:
                points.setdefault((str(point.arm), point.lam), []).append(point)
    if not points:
        return
    rows = []
    for (arm, lam), entries in points.items():
        tests = [point.test_cer for point in entries if point.test_cer is not None]
        validation = mean_sem([point.validation_cer for point in entries])
        rows.append([arm, f"{lam:g}", str(len(entries)), str(validation), str(mean_sem(tests))])
    yield from ("Every λ of training, plain beam search. None is chosen by the last column.", "")
    yield markdown_table(["training", "λ", "seeds", "validation CER", "test CER"], rows)


def _ablation(found: Found) -> Iterator[str]:
    rows = []
    for seeds in found.values():
        systems = gathered(seed.systems for seed in seeds)
        told = [f"{_row(systems[n])[2]} [{_paper_change(seeds[0], n)}]" if n in systems else "" for n in ABLATION]
        changed = sum(seed.arms[BASE].hypotheses_changed_by_gd for seed in seeds)
        lines = sum(seed.lines.test for seed in seeds)
        rows.append([seeds[0].dataset, seeds[0].model, *told, f"{changed} of {lines}"])
    yield from ("## Ablation: change of the CER relative to the standard model [in the paper]", "")
    yield markdown_table(["data", "model", *ABLATION, "hypotheses that GD changes"], rows)


def _ours(found: Found) -> Iterator[str]:
    for seeds in found.values():
        ours = [seed.ours for seed in seeds if seed.ours]
        if not ours:
            continue
        settings = ours[0].settings
        yield from (f"## Ours: {seeds[0].title}", "")
        yield (
            f"Parts added one after the other, against plain beam search of the standard model. Language model: "
            f"{settings.lm_order}-gram, {settings.lm_smoothing}, {settings.lm_share:g} of the domain's own; "
            f"beam {settings.beam}."
        )
        yield ""
        rows = []
        for name, entries in gathered(seed.ours.rows for seed in seeds if seed.ours).items():
            validation = [entry.validation_cer for entry in entries if entry.validation_cer is not None]
            tuned = str(mean_sem(validation)) if validation else ""
            rows.append([name, str(len(entries)), tuned, *_row(entries)])
        head = ["system", "seeds", "validation CER", "CER", "WER", "CER relative", "seeds with p < 0.05"]
        yield markdown_table(head, rows)


def _per_domain(found: Found) -> Iterator[str]:
    for seeds in found.values():
        domains = sorted(seeds[0].systems[BASE].per_domain, key=natural_key)
        rows = []
        for name, entries in gathered(seed.systems for seed in seeds).items():
            rates = [str(mean_sem([entry.per_domain[domain] for entry in entries])) for domain in domains]
            rows.append([name, str(len(entries)), *rates])
        yield from (f"## CER per domain: {seeds[0].title}", "")
        yield markdown_table(["system", "seeds", *domains], rows)


def _beams(found: Found) -> Iterator[str]:
    rows = []
    for seeds in found.values():
        for arm, parts in gathered(seed.beams for seed in seeds).items():
            for width, entries in gathered(parts).items():
                rows.append([seeds[0].dataset, seeds[0].model, arm, width, str(len(entries)), *_rates(entries)])
    yield from ("## Beam size, plain beam search", "")
    yield markdown_table(["data", "model", "training", "beam", "seeds", "CER", "WER"], rows)


def _lambdas(found: Found) -> Iterator[str]:
    rows = []
    for first, *_ in found.values():
        for curve, points in first.lambda_curves.items():
            if curve == "TR":
                told = ", ".join(f"{point.arm} {point.lam:g}: {point.validation_cer:.2f}" for point in points)
            else:
                best = min(points, key=lambda point: (point.validation_cer, -point.lam))
                worst = max(point.validation_cer for point in points)
                told = f"best {best.validation_cer:.2f} at {best.lam:g}, worst {worst:.2f}; {len(points)} values"
            rows.append([first.dataset, first.model, curve, f"{first.arms[BASE].validation_cer:.2f}", told])
    yield from ("## λ: validation CER of the first seed", "")
    yield markdown_table(["data", "model", "what", "standard, beam", "λ: validation CER"], rows)


def _rivals(found: Found) -> Iterator[str]:
    for seeds in found.values():
        rows = []
        for arm, parts in gathered(seed.rivals for seed in seeds).items():
            for name, entries in gathered(parts).items():
                settings = "; ".join(filter(None, dict.fromkeys(entry.setting for entry in entries)))
                rows.append([arm, name, settings, str(len(entries)), *_row(entries)])
        if rows:
            yield from (f"## Rivals on the same emissions: {seeds[0].title}", "")
            yield from ("Relative to plain beam search of the same training.", "")
            head = ["training", "decoding", "setting, from validation", "seeds"]
            yield markdown_table([*head, "CER", "WER", "CER relative", "seeds with p < 0.05"], rows)


def _diagnostics(found: Found) -> Iterator[str]:
    rows = []
    for seeds in found.values():
        for arm in seeds[0].arms:
            measured = [d for seed in seeds if arm in seed.arms and (d := seed.arms[arm].diagnostics)]
            for distance in ("sorted_w2", "aligned_w2"):
                if entries := [pull for entry in measured if (pull := getattr(entry, distance))]:
                    cells = [f"{mean_sem([getattr(e, column) for e in entries]).mean:.3g}" for column in _DIAGNOSED]
                    rows.append([seeds[0].dataset, seeds[0].model, arm, distance, *cells])
    if not rows:
        return
    yield from ("## How hard the alignment term pulls", "")
    yield "The finished models on validation lines: the task loss, the distance at scale 1, the norms of their"
    yield "gradients at the network's outputs, the ratio of these (as λ = 0.5 weighs them), and their cosine."
    yield ""
    yield markdown_table(["data", "model", "training", "distance", *(_DIAGNOSED.values())], rows)


def _examples(found: Found) -> Iterator[str]:
    chosen = [seeds[0] for seeds in found.values() if seeds[0].examples]
    if not chosen:
        return
    yield from ("## Examples, chosen by rule", "")
    yield "First seed: the two test lines that the last system of a block improves most, and the two it harms most."
    yield ""
    for first in chosen:
        rows = []
        for example in first.examples:
            edits = {BASE: str(example.edits.before), example.system: str(example.edits.after)}
            rows.append([f"{example.domain}: reference", f"`{example.reference}`", ""])
            rows += [[name, f"`{text}`", edits.get(name, "")] for name, text in example.texts.items()]
        yield from (f"**{first.title}**", "", markdown_table(["system", "text", "edits"], rows))


def _overhead(found: Found) -> Iterator[str]:
    rows = []
    rounds = 0
    for seeds in found.values():
        for seed in [seed for seed in seeds if seed.overhead][:1]:
            assert seed.overhead is not None
            rounds, row = seed.overhead.rounds, [seed.dataset, seed.model]
            for measured in (seed.overhead.training, seed.overhead.decoding):
                row += [f"{100 * (measured.ratio - 1):+.1f} %", f"{1000 * measured.plain_seconds:.0f} ms"]
            rows.append(row)
    if not rows:
        return
    yield from ("## Computational overhead", "")
    yield "More CPU time with FADA than without (λ = 0.5, `sorted_w2`): a training step on one batch; beam search of"
    yield "all test lines (CTC: the search alone; others: of one batch, with the decoder network). Median of"
    yield f"{rounds} pairs in turns; a negative figure is noise."
    yield "The paper: +4 to +6 % for training, +7 to +9 % for decoding."
    yield ""
    yield markdown_table(["data", "model", "training step", "without", "decoding", "without"], rows)


def _costs(found: Found) -> Iterator[str]:
    rows = []
    for first, *_ in found.values():
        for arm, record in first.arms.items():
            minutes = f"{record.seconds / 60:.0f}" if record.seconds else ""
            size = f"{record.parameters / 1e6:.1f}" if record.parameters else ""
            rows.append([first.dataset, first.model, arm, size, str(record.epochs), minutes])
    yield from ("## Trainings of the first seed", "")
    yield "Minutes by the clock on one core of a shared machine: the order of magnitude."
    yield ""
    yield markdown_table(["data", "model", "arm", "million parameters", "epochs", "minutes"], rows)


def _included(title: str, path: Path, command: str | None = None) -> Iterator[str]:
    """A part that lies ready as Markdown, with the command that made it."""
    if path.is_file():
        yield from (f"## {title}", "")
        if command is not None:
            yield from (f"`{command}`", "")
        yield from (path.read_text(encoding="utf-8").strip(), "")


# ------------------------------------------------------------------------------------------------------------ helpers


def _rates(entries: Iterable[Rates]) -> list[str]:
    """CER and WER over seeds."""
    entries = list(entries)
    return [str(mean_sem([getattr(entry, metric) for entry in entries])) for metric in ("cer", "wer")]


def _row(entries: Sequence[System]) -> list[str]:
    """CER, WER, relative change and number of significant seeds of one system."""
    changes = [entry.relative for entry in entries if entry.relative is not None]
    if len(changes) < len(entries):
        return [*_rates(entries), "", ""]
    relative = mean_sem(changes)
    sem = "" if relative.sem is None else f" ({relative.sem:.1f})"
    tests = [[entry.p for entry in entries], [entry.p_clusters for entry in entries]]
    significant = ", ".join(str(sum(p < 0.05 for p in ps if p is not None)) for ps in tests if None not in ps)
    return [*_rates(entries), f"{relative.mean:+.1f}{sem} %", f"{significant} of {len(entries)}"]


def _paper_change(seed: Record, name: str) -> str:
    value = seed.published_relative.get(name)
    if value is None and name in seed.published and name != BASE:
        value = 100 * (seed.published[name][0] / seed.published[BASE][0] - 1)
    return "" if value is None else f"{value:+.1f} %"
