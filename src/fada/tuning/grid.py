r"""The settings that are tried: guidance as a full grid, the other terms one after the other.

Only (1 − λ) · scale / λ matters to a ranking by Eq. 2 alone; λ and scale are both kept because the paper's grid is
over λ at scale 1. When guidance joins other terms, their weights are multiplied by λ, so that their strength relative
to the recogniser stays as tuned.
"""

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from fada.common.settings import validated
from fada.decoding.weights import LanguageModel, Weights
from fada.tuning.trials import Trials

LAMBDAS = tuple(round(0.05 * step, 2) for step in range(1, 20))
"""The paper's grid: 0.05, 0.10, …, 0.95."""
PLAIN = Weights()


@dataclass(frozen=True)
class Grid:
    """The values that are tried. Guidance is a full grid; the other terms are swept one after the other."""

    lam: Sequence[float] = LAMBDAS
    scale: Sequence[float] = (1.0, 10.0, 100.0)
    distance: Sequence[str] = ("sorted_w2", "aligned_w2")
    beam: Sequence[int] = (5,)
    prior_weight: Sequence[float] = (0.25, 0.5, 0.75, 1.0, 1.5)
    lm_weight: Sequence[float] = (0.1, 0.2, 0.3, 0.5, 0.7, 1.0)
    length_bonus: Sequence[float] = (0.0, 0.5, 1.0, 1.5, 2.0)

    def __post_init__(self) -> None:
        for beam, lam, scale in itertools.product(self.beam or (5,), self.lam or (1.0,), self.scale or (1.0,)):
            validated(Weights, {"beam": beam, "lam": lam, "scale": scale}, "grid")

    @classmethod
    def of(
        cls,
        *,
        lam: Sequence[float] = (),
        scale: Sequence[float] = (),
        distance: Sequence[str] = (),
        beam: Sequence[int] = (),
        paper: bool = False,
    ) -> "Grid":
        """The default grid (or the paper's) with what is given in place of its own."""
        base = PAPER if paper else DEFAULT
        return cls(
            lam=tuple(lam) or base.lam,
            scale=tuple(scale) or base.scale,
            distance=tuple(distance) or base.distance,
            beam=tuple(beam) or base.beam,
        )

    def at_edge(self, weights: Weights) -> list[str]:
        """The weights that ended at an end of this grid, where a wider one might do better."""
        share = weights.lam if weights.guided else 1.0  # other weights were multiplied by λ
        tried = {"prior_weight": self.prior_weight, "lm_weight": self.lm_weight, "length_bonus": self.length_bonus}
        edges = [
            name
            for name, values in tried.items()
            if len(values) > 1 and abs(getattr(weights, name) - share * max(values)) < 1e-9
        ]
        if weights.guided and len(self.scale) > 1 and weights.scale == max(self.scale) and weights.lam == min(self.lam):
            edges.append("scale")
        return edges


DEFAULT = Grid()
PAPER = Grid(scale=(1.0,), distance=("sorted_w2",))
"""The paper's search: 19 values of λ, nothing else."""
LANGUAGE = {"lm_weight": [0.1 * step for step in range(1, 13)], "length_bonus": [0.25 * step for step in range(13)]}
PRIOR = {"prior_weight": [0.25 * step for step in range(7)]}
"""Axes for :func:`descend`: those of a language model, and of prior correction."""


def with_domain_lm(weights: Weights) -> Weights:
    """Where the search along :data:`LANGUAGE` begins."""
    return weights.change(lm="domain", lm_weight=0.5, length_bonus=1.0)


def guidance_grid(base: Weights, grid: Grid) -> Iterator[Weights]:
    """Every λ, scale and distance around `base`, weakest guidance first, so that ties go to the weaker.

    The other weights of `base` are multiplied by λ to keep their strength.
    """
    pairs = sorted(
        itertools.product(grid.scale, grid.lam), key=lambda pair: pair[0] * (1 - pair[1]) / max(pair[1], 1e-9)
    )
    for (scale, lam), distance in itertools.product(pairs, grid.distance):
        yield base.change(
            lam=lam,
            scale=scale,
            distance=distance,
            prior_weight=base.prior_weight * lam,
            lm_weight=base.lm_weight * lam,
            length_bonus=base.length_bonus * lam,
        )


def prior_grid(base: Weights, grid: Grid) -> Iterator[Weights]:
    """Every weight of the prior correction, none included."""
    for prior_weight in (0.0, *grid.prior_weight):
        yield base.change(prior_weight=prior_weight)


def lm_grid(base: Weights, grid: Grid, lm: LanguageModel) -> Iterator[Weights]:
    """Every weight of a language model with every length bonus."""
    for lm_weight, length_bonus in itertools.product(grid.lm_weight, grid.length_bonus):
        yield base.change(lm=lm, lm_weight=lm_weight, length_bonus=length_bonus)


def descend(trials: Trials, start: Weights, axes: Mapping[str, Sequence[float]], description: str) -> Weights:
    """From `start`, change one weight at a time to its best value on its axis, until no change helps."""
    best = trials.best_of([start], description)
    while True:
        before = best
        for name, values in axes.items():
            best = trials.best_of([best, *(best.change(**{name: value}) for value in values)], description)
        if best == before:
            return best


def try_grid(trials: Trials, base: Weights, grid: Grid, lms: Sequence[LanguageModel], prior: bool) -> None:
    """Guidance alone in full; then language model, prior correction and guidance, each on top of the best so far."""
    trials.best_of([base, *guidance_grid(base, grid)], f"guidance, beam {base.beam}")
    start = base
    for lm in lms:
        start = min(
            start, trials.best_of(lm_grid(base, grid, lm), f"{lm} language model, beam {base.beam}"), key=trials.error
        )
    if prior:
        trials.best_of(prior_grid(base, grid), f"prior correction, beam {base.beam}")
        start = trials.best_of(prior_grid(start, grid), f"prior correction on top, beam {base.beam}")
    if start != base:
        trials.best_of([start, *guidance_grid(start, grid)], f"guidance on top, beam {base.beam}")
