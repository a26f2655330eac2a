"""Pearson correlation between the centuries of HPGT beside the figures of the paper (Section A, Figure 2).

The text is not part of this repository. Give the folder that holds its parquet files (columns `text`, `century`):

    python -m benchmarks.hpgt_pearson path/to/hpgt
"""

import json
from pathlib import Path

import typer

from fada.targets.counts import Corpus
from fada.targets.target_set import TargetSet
from fada.text.normalizer import TextNormalizer

PAPER = {("10", "11"): 0.99, ("12", "13"): 0.94, ("10", "16"): 0.91, ("13", "15"): 0.89}
NORMALIZER = TextNormalizer(case="lower", letters_only=True)


def compare_with_paper(targets: TargetSet) -> list[dict[str, object]]:
    """One row per pair of centuries that the paper names."""
    correlation = targets.pearson()
    at = {domain: i for i, domain in enumerate(targets.domains)}
    rows: list[dict[str, object]] = []
    for (first, second), published in PAPER.items():
        found = float(correlation[at[first], at[second]])
        rows.append(
            {
                "pair": f"{first}-{second}",
                "found": round(found, 3),
                "paper": published,
                "within 0.01": abs(round(found, 2) - published) <= 0.01 + 1e-9,
            }
        )
    return rows


def main(folder: Path, domain_column: str = "century") -> None:
    """Count, compare, print; exit with 1 if a figure is not met."""
    corpus = Corpus([folder / "*.parquet"], domain_column=domain_column)
    rows = compare_with_paper(TargetSet.from_pairs(corpus, NORMALIZER))
    print(json.dumps(rows, indent=2))
    if not all(row["within 0.01"] for row in rows):
        raise SystemExit(1)


if __name__ == "__main__":
    typer.run(main)
