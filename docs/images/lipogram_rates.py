"""Draw docs/images/lipogram_rates.png from the results of the lipogram experiment.

Run with: python docs/images/lipogram_rates.py results/lipogram
"""

import json
import sys
from pathlib import Path

import matplotlib.pyplot as plt

from fada.experiments.lipogram.experiment import LipogramRecipe
from fada.targets.distribution import CharDistribution
from fada.text.normalizer import TextNormalizer

LETTERS = TextNormalizer(letters_only=True)
COLOURS = {"author": "#222222", "plain": "#999999", "soft": "#0072b2"}


def written(folder: Path, kind: str) -> CharDistribution:
    """The letters of all stories of one kind."""
    cells = [json.loads(path.read_text(encoding="utf-8")) for path in sorted(folder.glob(f"stories/{kind}-*.json"))]
    return CharDistribution.from_texts([story["text"] for cell in cells for story in cell["stories"]], LETTERS)


def main(folder: Path) -> None:
    """Requested against realised frequency of e; an author's letters, and the model's without and with guidance."""
    summary = json.loads((folder / "summary.json").read_text(encoding="utf-8"))
    recipe = LipogramRecipe.model_validate(summary["recipe"])
    author = CharDistribution.from_texts([recipe.author], LETTERS)
    figure, (left, right) = plt.subplots(1, 2, figsize=(9, 3.4), width_ratios=(1, 1.7), layout="constrained")

    rates = [row for row in summary["rates"] if row["factor"] is not None]
    usual = next(row for row in summary["rates"] if row["factor"] is None)["realised"]["mean"]
    wanted = [100 * row["requested"] for row in rates]
    left.axline((wanted[0], wanted[0]), slope=1, color=COLOURS["plain"], linewidth=1, label="requested")
    left.axhline(100 * usual, color=COLOURS["plain"], linewidth=1, linestyle=":", label="without guidance")
    left.errorbar(
        wanted,
        [100 * row["realised"]["mean"] for row in rates],
        [100 * row["realised"]["sem"] for row in rates],
        fmt="o",
        color=COLOURS["soft"],
        label="with guidance",
    )
    left.set(xlabel="requested share of e, %", ylabel="realised share of e, %", title="A rate")
    left.legend(frameon=False, fontsize=8)

    letters = sorted("abcdefghijklmnopqrstuvwxyz", key=author.frequency, reverse=True)[:16]
    for name, used, marker in (
        ("author", author, "_"),
        ("plain", written(folder, "usual"), "o"),
        ("soft", written(folder, "author"), "o"),
    ):
        size = 180 if name == "author" else 22
        label = {"author": "the author", "plain": "without guidance", "soft": "with guidance"}[name]
        shares = [100 * used.frequency(letter) for letter in letters]
        right.scatter(letters, shares, s=size, marker=marker, color=COLOURS[name], label=label, zorder=3)
    right.set(ylabel="share of the letters, %", title="An author: the sixteen commonest letters of The Raven")
    right.grid(axis="x", alpha=0.3)
    right.legend(frameon=False, fontsize=8)
    for axes in (left, right):
        axes.spines[["top", "right"]].set_visible(False)
    figure.savefig(Path(__file__).with_name("lipogram_rates.png"), dpi=150)


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "results/lipogram"))
