"""How large a gain appears when a setting that changes nothing is chosen among several, by test or by validation lines?

Trainings of one and the same setting differ by their seed. Take K settings that have no effect at all, each the mean of
three seeds, and report the best: on average it is better than the baseline. How much better follows from the spread
over seeds and from what the choice looks at. The spread comes from stored results (every arm with several seeds, its
seeds being compared with each other alone) and, for the paper's own rows, from the standard errors printed there.

    python -m benchmarks.selection [--results results] [--recipes recipes] [--out results/selection]

Nothing is trained; the draws are normal, with the spread and the correlation of validation and test CER found.
"""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import typer

from fada.common.files import write_json, write_text
from fada.evaluation.table import markdown_table
from fada.experiments.recipe import MAIN, Recipe, label
from fada.experiments.record import Record, load_results

SEEDS = 3
SETTINGS = (5, 19)
"""Values of λ: those that the paper found best with λ = 1, and its whole grid."""
DRAWS = 20_000
UNKNOWN = 0.5
"""Correlation of validation and test CER over seeds, where the paper prints none."""


@dataclass(frozen=True)
class Spread:
    """How much trainings of one setting differ: mean test CER, standard deviations, their correlation."""

    name: str
    model: str
    cer: float
    test: float
    validation: float
    correlation: float
    degrees: int
    """Of freedom: trainings beyond the first of each arm."""
    reported: float | None = None
    """Change of the CER that was reported, in percent."""


def spread_of(seeds: Sequence[Record]) -> Spread | None:
    """From the seeds of a recipe, pooled within arms; None where no arm has two seeds."""
    pairs: dict[tuple[str, float], list[tuple[float, float]]] = {}
    for record in seeds:
        for name, arm in record.arms.items():
            found = (arm.validation_cer, record.systems[label(name, guided=False)].cer)
            pairs.setdefault((name, arm.lam_tr), []).append(found)
    deviations = [np.array(found) - np.mean(found, axis=0) for found in pairs.values() if len(found) > 1]
    if not deviations:
        return None
    degrees = sum(len(found) - 1 for found in deviations)
    rows = np.concatenate(deviations)
    covariance = rows.T @ rows / degrees
    validation, test = np.sqrt(np.diag(covariance))
    standard = [record.systems["standard"].cer for record in seeds]
    return Spread(
        name=seeds[0].dataset,
        model=seeds[0].model,
        cer=float(np.mean(standard)),
        test=float(test),
        validation=float(validation),
        correlation=float(covariance[0, 1] / (validation * test)),
        degrees=degrees,
    )


def published(recipe: Recipe) -> Spread | None:
    """From the standard error that the paper prints of its standard model."""
    if "standard" not in recipe.published_sem:
        return None
    deviation = recipe.published_sem["standard"] * SEEDS**0.5
    return Spread(
        name=f"the paper: {recipe.dataset}",
        model=recipe.model,
        cer=recipe.published["standard"][0],
        test=deviation,
        validation=deviation,
        correlation=UNKNOWN,
        degrees=SEEDS - 1,
        reported=recipe.published_relative.get("FADA-TR-GD"),
    )


def gains(spread: Spread, settings: int, draws: int = DRAWS, seed: int = 0) -> dict[str, float]:
    """Mean change of the test CER in percent of the chosen of `settings` against the baseline, by what it is chosen."""
    random = np.random.default_rng(seed)
    both = spread.correlation * spread.validation * spread.test
    covariance = np.array([[spread.validation**2, both], [both, spread.test**2]]) / SEEDS
    found = random.multivariate_normal([0, 0], covariance, size=(draws, settings + 1), check_valid="ignore")
    baseline, tried = found[:, 0, 1], found[:, 1:]
    chosen = {"validation": tried[..., 0].argmin(1), "test": tried[..., 1].argmin(1)}
    rows = np.arange(draws)
    return {by: float(100 * (tried[rows, best, 1] - baseline).mean() / spread.cer) for by, best in chosen.items()}


def markdown(spreads: Sequence[Spread]) -> str:
    """The table, with what it is of."""
    head = ["data", "model", "CER", "spread over seeds (d. f.)", "correlation"]
    head += [f"best of {n}, by {by}" for n in SETTINGS for by in ("validation", "test")]
    rows = []
    for spread in spreads:
        known = "" if spread.name.startswith("the paper") else f"{spread.correlation:+.2f}"
        row = [spread.name, spread.model, f"{spread.cer:.2f}", f"{spread.test:.2f} ({spread.degrees})", known]
        row += [f"{gain:+.1f} %" for n in SETTINGS for gain in gains(spread, n).values()]
        rows.append([*row, "" if spread.reported is None else f"{spread.reported:+.1f} %"])
    told = (
        "Settings without any effect, each the mean of three seeds: by how much the CER of the best seems to change, "
        "when it is chosen by its CER on validation or on test lines. The spread is the standard deviation of the test "
        "CER over seeds of one setting, in points, with its degrees of freedom: two are few, and the figures as rough "
        "as that. For the paper's rows it is the printed standard error times √3, and the correlation, which is not "
        f"printed, taken as {UNKNOWN:g}; the last column is the change that the paper reports for FADA-TR-GD."
    )
    return told + "\n\n" + markdown_table([*head, "reported"], rows, labels=2)


def main(
    results: Path = Path("results"), recipes: Path = Path("recipes"), out: Path = Path("results/selection")
) -> None:
    """Compute, print and write."""
    ours = [spread_of(seeds) for seeds in load_results(results).values()]
    theirs = [published(Recipe.load(path)) for path in sorted(recipes.glob(f"{MAIN}-*.yaml"))]
    spreads = [spread for spread in (*ours, *theirs) if spread is not None]
    text = markdown(spreads)
    print(text)
    write_text(out / "table.md", text)
    rows = [{**asdict(spread), "gains": {n: gains(spread, n) for n in SETTINGS}} for spread in spreads]
    write_json(out / "selection.json", rows)


if __name__ == "__main__":
    typer.run(main)
