"""What this project can do beyond the paper: models adapted to each domain, language model, prior correction, guidance.

The parts are added one after the other so that the share of each can be read; every weight is chosen on validation
lines, one at a time until no change helps.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from fada.data.formats.parquet import write_parquet
from fada.data.line import Line
from fada.decoding.emissions import Emissions
from fada.decoding.knowledge import Knowledge
from fada.decoding.search import BeamSearch
from fada.decoding.weights import Weights
from fada.experiments.recipe import Ours
from fada.runs.run import Run
from fada.training.train import train_all
from fada.tuning.grid import LANGUAGE, PRIOR, Grid, descend, guidance_grid, with_domain_lm
from fada.tuning.trials import Trials

GUIDANCE = Grid(lam=(0.3, 0.5, 0.7, 0.9), scale=(10.0, 100.0), distance=("aligned_w2",))

Split = tuple[Emissions, Emissions]
"""Emissions of the validation and of the test lines."""


def split_of(run: Run) -> Split:
    """What a run kept of the validation and of the test lines."""
    return run.emissions("validation"), run.emissions("test")


def continued(settings: Mapping[str, Any]) -> Split:
    """Emissions of a model trained further on the lines of all domains; a finished run is kept."""
    return split_of(train_all({"continued": settings}, 1)["continued"])


def adapted(lines: Mapping[str, Sequence[Line]], settings: Mapping[str, Any], folder: Path) -> Split:
    """Emissions of a model trained further on each domain's own lines, in the order of `lines`.

    Args:
        lines: of train, validation and test.
        settings: of the further trainings, with the `model` to start from.
        folder: for a run of each domain; finished ones are kept.
    """
    domains = sorted({str(line.domain) for line in lines["train"]})
    for domain in domains:
        for split, part in lines.items():
            path = folder / domain / "lines" / f"{split}.parquet"
            own = [line for line in part if str(line.domain) == domain]
            if own and not path.exists():
                write_parquet(own, path)
    trainings = {
        domain: {
            **settings,
            "data": [str(folder / domain / "lines")],
            "domain_column": "domain",
            "out": folder / domain / "run",
        }
        for domain in domains
    }
    validation, test = zip(*(split_of(run) for run in train_all(trainings, 1).values()), strict=True)
    return (
        Emissions.concatenate(validation).ordered([line.id for line in lines["validation"]]),
        Emissions.concatenate(test).ordered([line.id for line in lines["test"]]),
    )


def our_texts(
    ours: Ours, arms: Mapping[str, Split], knowledge: Knowledge
) -> tuple[dict[str, list[str]], dict[str, dict[str, Any]]]:
    """Texts of the test lines and settings of every part, by the name of the arm and of the part."""
    texts: dict[str, list[str]] = {}
    settings: dict[str, dict[str, Any]] = {}
    order = f"{knowledge.lm_order}-gram"
    for arm, (validation, test) in arms.items():
        trials = Trials(BeamSearch(validation, knowledge, None))
        plain = Weights(beam=ours.tuning_beam)
        with_lm = with_domain_lm(plain)
        everything = descend(trials, with_lm, LANGUAGE | PRIOR, f"{order} + prior")
        chosen = {
            f", beam {ours.beam}": trials.best_of([plain], "beam"),
            " + prior": descend(trials, plain, PRIOR, "prior"),
            f" + {order} of all domains": descend(trials, with_lm.change(lm="global"), LANGUAGE, f"{order} of all"),
            f" + {order}": descend(trials, with_lm, LANGUAGE, order),
            f" + {order} + prior": everything,
            f" + {order} + prior + FADA-GD": trials.best_of(
                [everything, *guidance_grid(everything, GUIDANCE)], "guidance"
            ),
        }
        search = BeamSearch(test, knowledge, None)
        for part, weights in chosen.items():
            texts[arm + part] = search.choose(weights.change(beam=ours.beam))
            settings[arm + part] = {
                "weights": weights.change(beam=ours.beam).model_dump(exclude_defaults=True),
                "validation_cer": trials.evaluate(weights),
            }
    return texts, settings
