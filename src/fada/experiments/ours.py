"""What this project can do beyond the paper: models adapted to each domain, language model, prior correction, guidance.

The parts are added one after the other so that the share of each can be read; every weight is chosen on validation
lines, one at a time until no change helps.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from fada.data.formats.parquet import write_parquet
from fada.data.line import Line
from fada.decoding.emissions import Emissions
from fada.decoding.knowledge import Knowledge
from fada.decoding.search import BeamSearch
from fada.decoding.weights import Weights
from fada.experiments.recipe import Ours
from fada.runs.run import Run
from fada.training.settings import TrainSettings
from fada.training.train import train_all
from fada.tuning.grid import LANGUAGE, PRIOR, Grid, descend, guidance_grid, with_domain_lm
from fada.tuning.trials import Trials

GUIDANCE = Grid(lam=(0.3, 0.5, 0.7, 0.9), scale=(10.0, 100.0), distance=("aligned_w2",))

Split = tuple[Emissions, Emissions]
"""Emissions of the validation and of the test lines."""


@dataclass(frozen=True)
class Decoded:
    """The texts of the test lines, the weights that found them, and the validation CER that chose these."""

    texts: list[str]
    weights: Weights
    validation_cer: float


def split_of(run: Run) -> Split:
    """What a run kept of the validation and of the test lines."""
    return run.emissions("validation"), run.emissions("test")


def continued(settings: TrainSettings) -> Split:
    """Emissions of a model trained further on the lines of all domains; a finished run is kept."""
    return split_of(train_all({"continued": settings}, 1)["continued"])


def adapted(lines: Mapping[str, Sequence[Line]], settings: Mapping[str, object], folder: Path) -> Split:
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
        domain: TrainSettings.of({**settings, "data": [str(folder / domain / "lines")], "out": folder / domain / "run"})
        for domain in domains
    }
    validation, test = zip(*(split_of(run) for run in train_all(trainings, 1).values()), strict=True)
    return (
        Emissions.concatenate(validation).ordered([line.id for line in lines["validation"]]),
        Emissions.concatenate(test).ordered([line.id for line in lines["test"]]),
    )


def our_texts(ours: Ours, arms: Mapping[str, Split], knowledge: Knowledge) -> dict[str, Decoded]:
    """What is read in the test lines with every part, by the name of the arm and of the part."""
    decoded: dict[str, Decoded] = {}
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
            wide = weights.change(beam=ours.beam)
            decoded[arm + part] = Decoded(search.choose(wide), wide, trials.evaluate(weights))
    return decoded
