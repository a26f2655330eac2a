r"""Distances between character distributions: the one place with the maths.

Every function takes numpy arrays or torch tensors whose last axis runs over characters, broadcasts over the leading
axes, and returns the same library, dtype and device as its first argument. Gradients are finite everywhere, also
where the two distributions are equal and where a frequency is zero.

Which one?

=============  ==========================================================================================
``sorted_w2``  Eq. 1 of the paper: compares the shape of the usage curve, blind to which character is which
``aligned_w2`` character by character: edited targets, lipograms, hard constraints
``w1, w2``     transport along an ordered alphabet, or with a cost between characters: near misses cost less
``js``         Jensen-Shannon distance: bounded, symmetric, sensitive to rare characters
``kl``         Kullback-Leibler divergence, smoothed: not symmetric, the target second
=============  ==========================================================================================
"""

from collections.abc import Callable
from typing import Any

import numpy as np

from fada.errors import FadaError, missing_extra

Array = Any
"""A numpy array or a torch tensor."""

Distance = Callable[[Array, Array], Array]


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

    `cost` holds distances between characters, squared here; None puts the characters at 0, 1, …, n-1.

    Args:
        q, p: frequencies, (..., n), each summing to one.
        cost: (n, n), non-negative, or None.
    """
    q, p = _same_library(q, p)
    n = q.shape[-1]
    distance = np.abs(np.subtract.outer(np.arange(n), np.arange(n))) if cost is None else np.asarray(cost)
    return _square_root(_transport(q, p, distance.astype(np.float64) ** 2))


def js(q: Array, p: Array) -> Array:
    r"""Jensen-Shannon distance (the square root of the divergence, natural logarithm), between 0 and sqrt(log 2).

    .. math:: \sqrt{\tfrac12 KL(q \| m) + \tfrac12 KL(p \| m)}, \quad m = \tfrac12 (q + p)
    """
    q, p = _same_library(q, p)
    m = (q + p) / 2
    divergence = (_x_log_ratio(q, m) + _x_log_ratio(p, m)).sum(-1) / 2
    return _square_root(divergence)


def kl(q: Array, p: Array, epsilon: float = 1e-9) -> Array:
    r"""Kullback-Leibler divergence from the target, in nats, with `epsilon` added to both so that it stays finite.

    .. math:: KL(q \| p) = \sum_i (q_i + \epsilon) \log \frac{q_i + \epsilon}{p_i + \epsilon}
    """
    q, p = _same_library(q, p)
    q, p = q + epsilon, p + epsilon
    return (q * (_log(q) - _log(p))).sum(-1)


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
    return type(x).__module__.partition(".")[0] == "torch" or hasattr(x, "requires_grad")


def _same_library(q: Array, p: Array) -> tuple[Array, Array]:
    if _is_torch(q) or _is_torch(p):
        import torch

        reference = q if _is_torch(q) else p
        q, p = (torch.as_tensor(x, dtype=reference.dtype, device=reference.device) for x in (q, p))
    else:
        q = np.asarray(q)
        q = q if np.issubdtype(q.dtype, np.floating) else q.astype(np.float64)
        p = np.asarray(p, dtype=q.dtype)
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


def _rms(difference: Array) -> Array:
    return _square_root((difference * difference).mean(-1))


def _square_root(x: Array) -> Array:
    """sqrt of max(x, 0), whose gradient at zero is zero instead of infinite."""
    if _is_torch(x):
        import torch

        positive = x > 0
        return torch.where(positive, torch.where(positive, x, torch.ones_like(x)).sqrt(), torch.zeros_like(x))
    return np.sqrt(np.maximum(x, 0))


def _x_log_ratio(x: Array, y: Array) -> Array:
    """x * log(x / y), zero (with a zero gradient in x) where x is zero."""
    if _is_torch(x):
        import torch

        positive = (x > 0) & (y > 0)
        one = torch.ones_like(x)
        ratio = torch.where(positive, x, one) / torch.where(positive, y, one)
        return torch.where(positive, x * ratio.log(), torch.zeros_like(x))
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where((x > 0) & (y > 0), x * np.log(x / y), np.zeros_like(x))


def _transport(q: Array, p: Array, cost: np.ndarray) -> Array:
    """Exact optimal transport cost of every pair of rows, (...)."""
    try:
        import ot
    except ImportError:
        raise missing_extra("POT", "analysis", "optimal transport with a cost between characters") from None
    n = q.shape[-1]
    if cost.shape != (n, n) or not np.all(cost >= 0):
        raise FadaError(f"cost of shape {cost.shape}, expected a non-negative matrix of shape {(n, n)}.")
    if not _is_torch(q):
        q, p = np.broadcast_arrays(q, p)
        rows = [
            ot.emd2(a / a.sum(), b / b.sum(), cost)
            for a, b in zip(q.reshape(-1, n).astype(np.float64), p.reshape(-1, n).astype(np.float64), strict=True)
        ]
        return np.asarray(rows, dtype=q.dtype).reshape(q.shape[:-1])
    import torch

    q, p = torch.broadcast_tensors(q, p)
    ground = torch.as_tensor(cost, dtype=q.dtype, device=q.device)
    pairs = zip(q.reshape(-1, n), p.reshape(-1, n), strict=True)
    return torch.stack([ot.emd2(a / a.sum(), b / b.sum(), ground) for a, b in pairs]).reshape(q.shape[:-1])
