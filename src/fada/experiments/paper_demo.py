"""The study of the built-in synthetic set: four domains that differ in their letter frequencies alone."""

import logging
from pathlib import Path

from fada.common.say import BOLD
from fada.data.synthetic.set import SyntheticSettings, make_synthetic
from fada.experiments.recipe import Changes
from fada.experiments.study import PathLike, Study, run_study

log = logging.getLogger(__name__)

DEMO_LINES: SyntheticSettings = {"lines": 1690, "height": 48, "noise": 1.5, "seed": 0}
DEMO_SETTINGS: Changes = {
    "model": "crnn:tiny",
    "domain_column": "domain",
    "epochs": 12,
    "patience": 0,
    "batch_size": 8,
    "learning_rate": 4e-3,
    "augment": 0.5,
    "seed": 0,
}
DEMO_ALIGNED: Changes = {
    "lam": 0.5,
    "distance": "aligned_w2",
    "scale": 20.0,
    "lam_schedule": "warmup",
    "lam_warmup": 4.0,
}
QUICK_LINES: SyntheticSettings = {**DEMO_LINES, "lines": 120}
QUICK_SETTINGS: Changes = {"epochs": 1}


def paper_demo(out: PathLike, *, quick: bool = False, jobs: int = 2) -> Study:
    """The study of the built-in synthetic set: four domains that differ in their letter frequencies alone."""
    out = Path(out)
    lines = out / "lines"
    if not (lines / "test.parquet").exists():
        log.info("writing lines in eight hands; four domains that differ in letter frequencies alone", extra=BOLD)
        make_synthetic(**(QUICK_LINES if quick else DEMO_LINES), processes=None).save(lines)
    settings = {**DEMO_SETTINGS, **(QUICK_SETTINGS if quick else {})}
    return run_study([lines], out, settings, DEMO_ALIGNED, workers=jobs, title="Demo: synthetic Greek hands")
