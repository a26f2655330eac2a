"""All weights at once, by optuna (TPE), within and beyond the grid."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fada.common.files import is_full
from fada.common.say import track
from fada.decoding.weights import NO_GUIDANCE, LanguageModel, Weights
from fada.errors import FadaError, missing_extra
from fada.tuning.grid import PLAIN, Grid
from fada.tuning.trials import Trials, counts_of, counts_to_json
from fada.tuning.tuned import PathLike


@dataclass(frozen=True)
class Space:
    """What may be changed: guidance within the grid's distances, beams, language models, prior correction, length."""

    grid: Grid
    beams: Sequence[int]
    lms: Sequence[LanguageModel]
    prior: bool
    length: bool

    def suggest(self, trial: Any) -> Weights:
        """The weights that an optuna trial proposes."""
        values: dict[str, Any] = {"beam": trial.suggest_categorical("beam", list(self.beams))}
        if self.grid.lam:
            # λ = 0.5 and a free scale cover every ratio of distance to log-probability: one dimension instead of two.
            wanted = trial.suggest_categorical("guided", [True, False])
            scale = trial.suggest_float("scale", 1e-2, 1e4, log=True)
            distance = trial.suggest_categorical("distance", list(self.grid.distance))
            values |= {"lam": 0.5, "scale": scale, "distance": distance} if wanted else {}
        share = values.get("lam", NO_GUIDANCE)
        if self.prior:
            values["prior_weight"] = share * trial.suggest_float("prior_weight", 0.0, 1.5)
        if self.lms:
            values["lm"] = trial.suggest_categorical("lm", ["none", *self.lms])
            values["lm_weight"] = share * trial.suggest_float("lm_weight", 0.0, 1.5)
        if self.length:
            values["length_bonus"] = share * trial.suggest_float("length_bonus", -1.0, 3.0)
        return PLAIN.change(**values)


def search_jointly(trials: Trials, space: Space, count: int, file: PathLike | None = None, seed: int = 0) -> None:
    """Try `count` settings in all; a study in `file` (SQLite) carries the counts of each, so resuming loses nothing."""
    try:
        import optuna
    except ImportError:
        raise missing_extra("optuna", "tune", "the joint search") from None
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    storage = None
    if file is not None:
        Path(file).parent.mkdir(parents=True, exist_ok=True)
        storage = f"sqlite:///{Path(file).absolute()}"
    with _stored(file):
        study = optuna.create_study(
            study_name=f"fada {trials.metric}",
            storage=storage,
            load_if_exists=True,
            sampler=optuna.samplers.TPESampler(seed=seed, multivariate=True),
        )
        fingerprint = trials.fingerprint
        if study.user_attrs.get("fingerprint", fingerprint) != fingerprint:
            raise FadaError(f"{file}: a study of other lines. Give another file, or delete this one.")
        study.set_user_attr("fingerprint", fingerprint)
        done = [trial for trial in study.trials if trial.state.name == "COMPLETE"]
        for known in done:
            weights, counts = Weights(**known.user_attrs["weights"]), counts_of(known.user_attrs["counts"])
            if any(column.shape != (len(trials.references),) for column in counts):
                raise ValueError("counts of another number of lines")
            trials.counts.setdefault(weights, counts)
    if done:  # a resumed sampler starts its random numbers anew; another seed keeps it from repeating itself
        study.sampler = optuna.samplers.TPESampler(seed=seed + len(done), multivariate=True)
    for _ in track(range(max(0, count - len(done))), "joint search"):
        with _stored(file):
            trial = study.ask()
            weights = space.suggest(trial)
        error = trials.evaluate(weights)
        with _stored(file):
            trial.set_user_attr("weights", weights.model_dump())
            trial.set_user_attr("counts", counts_to_json(trials.counts[weights]))
            study.tell(trial, error)


@contextmanager
def _stored(file: PathLike | None) -> Iterator[None]:
    """What a damaged study makes optuna and SQLAlchemy raise, almost anything, as a sentence."""
    try:
        yield
    except Exception as error:
        if file is None or isinstance(error, FadaError) or is_full(error):
            raise
        reason = str(error).partition("\n")[0] or type(error).__name__
        raise FadaError(f"{file}: not a sound study ({reason}). Give another file, or delete this one.") from None
