r"""Distances between character distributions: the one place with the maths.

Every function takes numpy arrays or torch tensors whose last axis runs over characters, broadcasts over the leading
axes, and returns the same library, dtype and device as its first argument. Values and gradients are finite
everywhere, also where the two distributions are equal, where a frequency is zero, and for an empty text (all zero).

Which one?

=============  ==========================================================================================
``sorted_w2``  Eq. 1 of the paper: compares the shape of the usage curve, blind to which character is which
``aligned_w2`` character by character: edited targets, lipograms, hard constraints
``w1, w2``     transport along an ordered alphabet, or with a cost between characters: near misses cost less
``js``         Jensen-Shannon distance: bounded, symmetric, sensitive to rare characters
``kl``         Kullback-Leibler divergence, smoothed: not symmetric, the target second
=============  ==========================================================================================
"""

import sys
from collections.abc import Callable
from typing import Any

import numpy as np

from fada.errors import FadaError, needing

Array = Any
"""A numpy array or a torch tensor."""

Distance = Callable[[Array, Array], Array]

LAM = 0.5
"""λ of loss (Eq. 1) and search (Eq. 2) where it is not given: both terms with the same weight, the paper's middle."""
SCALE = 1.0
"""Factor of the distance in both: 1 is the paper to the letter."""
DISTANCE = "sorted_w2"
"""The distance of both: the paper's (Eq. 1)."""

KL_EPSILON = 1e-9
"""What :func:`kl` adds to both frequencies."""


def sorted_w2(q: Array, p: Array) -> Array:
    r"""Wasserstein-2 distance between two frequency vectors, blind to which character is which (Eq. 1).

    .. math:: W_2(q, p) = \sqrt{\tfrac1n \sum_i (q_{(i)} - p_{(i)})^2}

    Both vectors are sorted first, so the distance compares the *shape* of the usage curve. It is zero for any
    permutation; use :func:`aligned_w2` when the identity of the characters matters (edited targets, lipograms).

    Args:
        q, p: frequencies, (..., n), each summing to one (an empty text: all zero).

    Returns:
        (...). The gradient is finite everywhere, also at q == p, where it is zero.
    """
    q, p = _same_library(q, p)
    return _rms(_sort(q) - _sort(p))


def aligned_w2(q: Array, p: Array) -> Array:
    r"""Root mean square difference of frequencies, character by character.

    .. math:: d(q, p) = \sqrt{\tfrac1n \sum_i (q_i - p_i)^2}

    The sibling of :func:`sorted_w2` that knows which character is which; never smaller than it.

    Args:
        q, p: frequencies, (..., n).

    Returns:
        (...). The gradient is finite everywhere, also at q == p, where it is zero.
    """
    q, p = _same_library(q, p)
    return _rms(q - p)


def w1(q: Array, p: Array, cost: np.ndarray | None = None) -> Array:
    r"""Wasserstein-1 distance over the alphabet itself: how far probability must be carried, and how much of it.

    On an ordered alphabet (``cost=None``) the characters stand at 0, 1, …, n-1 and

    .. math:: W_1(q, p) = \sum_{i} |Q_i - P_i|

    with the cumulative sums Q and P. With `cost`, an (n, n) matrix of distances between characters (by shape, say, so
    that ``c`` for ``e`` costs less than ``m`` for ``e``), it is the optimal transport cost, solved exactly by POT, for
    numpy and for torch (gradients by the dual potentials).

    An empty text (all zero) stands one step beyond the last character; with `cost`, as far away as the cost goes.

    Args:
        q, p: frequencies, (..., n), each summing to one.
        cost: (n, n), non-negative, or None.
    """
    q, p = _same_library(q, p)
    if cost is not None:
        return _transport(q, p, np.asarray(cost, dtype=np.float64))
    return _absolute(q.cumsum(-1) - p.cumsum(-1)).sum(-1)


def w2(q: Array, p: Array, cost: np.ndarray | None = None) -> Array:
    r"""Wasserstein-2 distance over an ordered or costed alphabet.

    .. math:: W_2(q, p) = \sqrt{\min_{\pi \in \Pi(q, p)} \sum_{ij} \pi_{ij} c_{ij}^2}

    On an ordered alphabet (``cost=None``) the characters stand at 0, 1, …, n-1, and the best plan takes the quantiles
    of q to those of p. With `cost`, distances between characters which are squared here, it is solved by POT.

    An empty text (all zero) stands one step beyond the last character; with `cost`, as far away as the cost goes.

    Args:
        q, p: frequencies, (..., n), each summing to one.
        cost: (n, n), non-negative, or None.
    """
    q, p = _same_library(q, p)
    if cost is not None:
        return _square_root(_transport(q, p, np.asarray(cost, dtype=np.float64) ** 2))
    return _square_root(_squared_quantile_transport(_cumulative(q), _cumulative(p)))


def js(q: Array, p: Array) -> Array:
    r"""Jensen-Shannon distance (the square root of the divergence, natural logarithm), between 0 and sqrt(log 2).

    .. math:: \sqrt{\tfrac12 KL(q \| m) + \tfrac12 KL(p \| m)}, \quad m = \tfrac12 (q + p)

    Computed from :math:`t = (q - p) / (q + p)`, so that it is exact to rounding also where q and p nearly agree. At a
    zero, where the true gradient is infinite, a finite one of the same sign stands in.
    """
    q, p = _same_library(q, p)
    total = q + p
    t = (q - p) / _where(total > 0, total, 1.0)
    divergence = (total * (_x_log_x_at_one_plus(t) + _x_log_x_at_one_plus(-t))).sum(-1) / 4
    return _square_root(divergence)


def kl(q: Array, p: Array, epsilon: float = KL_EPSILON) -> Array:
    r"""Kullback-Leibler divergence from the target, in nats, with `epsilon` added to both so that it stays finite.

    .. math:: KL(q \| p) = \sum_i a_i \log \frac{a_i}{b_i} - a_i + b_i, \quad a = q + \epsilon, \; b = p + \epsilon

    The last two terms cancel between distributions; with them it is never negative, its gradient at q == p is zero,
    and an empty text (all zero) is at distance 1 from any target. Not symmetric: the target is the second argument.
    """
    q, p = _same_library(q, p)
    q, p = q + epsilon, p + epsilon
    return (q * (_log(q) - _log(p)) - q + p).sum(-1)


DISTANCES: dict[str, Distance] = {
    "sorted_w2": sorted_w2,
    "aligned_w2": aligned_w2,
    "w1": w1,
    "w2": w2,
    "js": js,
    "kl": kl,
}


def get(name: str) -> Distance:
    """The distance of that name."""
    try:
        return DISTANCES[name]
    except KeyError:
        raise FadaError(f"unknown distance {name!r}, expected one of {', '.join(DISTANCES)}.") from None


def _is_torch(x: Array) -> bool:
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(x, torch.Tensor)


def _same_library(q: Array, p: Array) -> tuple[Array, Array]:
    if _is_torch(q) or _is_torch(p):
        import torch

        reference = q if _is_torch(q) else p
        dtype = reference.dtype if reference.is_floating_point() else torch.float64
        q, p = (
            # A copy: torch warns of sharing memory with an array that is read-only, as the frequencies are.
            x.to(dtype=dtype, device=reference.device)
            if _is_torch(x)
            else torch.tensor(np.array(x), dtype=dtype, device=reference.device)
            for x in (q, p)
        )
    else:
        q = np.asarray(q)
        q = q if np.issubdtype(q.dtype, np.floating) else q.astype(np.float64)
        p = np.asarray(p, dtype=q.dtype)
    if q.ndim == 0 or p.ndim == 0:
        raise FadaError("a distance compares vectors of frequencies, found a single number.")
    if q.shape[-1] != p.shape[-1]:
        raise FadaError(
            f"distributions over {q.shape[-1]} and {p.shape[-1]} characters cannot be compared: "
            "restrict both to one alphabet first."
        )
    return q, p


def _sort(x: Array) -> Array:
    return x.sort(dim=-1).values if _is_torch(x) else np.sort(x, axis=-1)


def _absolute(x: Array) -> Array:
    return x.abs() if _is_torch(x) else np.abs(x)


def _log(x: Array) -> Array:
    return x.log() if _is_torch(x) else np.log(x)


def _where(condition: Array, x: Array, otherwise: float) -> Array:
    if _is_torch(x):
        import torch

        return torch.where(condition, x, torch.full_like(x, otherwise))
    return np.where(condition, x, np.asarray(otherwise, dtype=x.dtype))


def _rms(difference: Array) -> Array:
    return _square_root((difference * difference).mean(-1))


def _square_root(x: Array) -> Array:
    """sqrt of max(x, 0), whose gradient at zero is zero instead of infinite."""
    positive = x > 0
    safe = _where(positive, x, 1.0)
    return _where(positive, safe.sqrt() if _is_torch(x) else np.sqrt(safe), 0.0)


def _x_log_x_at_one_plus(t: Array) -> Array:
    """(1 + t) log(1 + t) for t from -1 up, zero (with a zero gradient) at -1."""
    positive = t > -1
    safe = _where(positive, t, 0.0)
    return _where(positive, (1 + safe) * (safe.log1p() if _is_torch(t) else np.log1p(safe)), 0.0)


def _cumulative(x: Array) -> Array:
    """(..., n) cumulative sums that end at one exactly: the square root would make 1e-8 of a rounding error."""
    sums = x.cumsum(-1)
    total = sums[..., -1:]
    return sums / _where(total > 0, total, 1.0)


def _squared_quantile_transport(q: Array, p: Array) -> Array:
    """Mean squared distance between the quantiles of two cumulative distributions on 0, 1, …, n-1, (...).

    Between two neighbouring steps of either function both quantiles are constant: the number of steps each has made.
    """
    n = q.shape[-1]
    levels: Array
    order: Array
    if _is_torch(q):
        import torch

        levels, order = torch.cat(torch.broadcast_tensors(q, p), dim=-1).sort(dim=-1)
        widths: Array = levels.diff(dim=-1, prepend=torch.zeros_like(levels[..., :1]))
    else:
        both = np.concatenate(np.broadcast_arrays(q, p), axis=-1)
        order = np.argsort(both, axis=-1)
        levels = np.take_along_axis(both, order, axis=-1)
        widths = np.diff(levels, axis=-1, prepend=np.zeros_like(levels[..., :1]))
    step = _where(order < n, widths * 0 + 1, -1.0)
    ahead = step.cumsum(-1) - step
    return (widths * (ahead * ahead)).sum(-1)


def _transport(q: Array, p: Array, cost: np.ndarray) -> Array:
    """Exact optimal transport cost of every pair of rows, (...)."""
    with needing("POT", "analysis", "optimal transport with a cost between characters"):
        import ot
    n = q.shape[-1]
    if cost.shape != (n, n) or not np.all(np.isfinite(cost)) or not np.all(cost >= 0):
        raise FadaError(
            f"a cost of shape {cost.shape}, from {cost.min(initial=0):g} up, expected finite numbers from 0 up "
            f"of shape {(n, n)}."
        )

    def solve(a: Array, b: Array, ground: Array) -> Array:
        empty = int(a.sum() <= 0) + int(b.sum() <= 0)
        if empty:
            # The factor keeps the result in the graph, with a zero gradient.
            return (a.sum() + b.sum()) * 0 + (float(cost.max()) if empty == 1 else 0.0)
        return ot.emd2(a / a.sum(), b / b.sum(), ground)

    if not _is_torch(q):
        left, right = (x.reshape(-1, n).astype(np.float64) for x in np.broadcast_arrays(q, p))
        rows = [solve(a, b, cost) for a, b in zip(left, right, strict=True)]
        return np.asarray(rows, dtype=q.dtype).reshape(np.broadcast_shapes(q.shape, p.shape)[:-1])
    import torch

    q, p = torch.broadcast_tensors(q, p)
    ground = torch.as_tensor(cost, dtype=torch.float64)
    # POT solves in double precision on the CPU; the result goes back to where the arguments live.
    left, right = (x.reshape(-1, n).to(dtype=torch.float64, device="cpu") for x in (q, p))
    rows = [solve(a, b, ground) for a, b in zip(left, right, strict=True)]
    solved = torch.stack(rows) if rows else left.sum(-1)
    return solved.to(dtype=q.dtype, device=q.device).reshape(q.shape[:-1])
