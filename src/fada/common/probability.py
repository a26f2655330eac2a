"""The few distribution functions that intervals and tests need; scipy, which has them too, is not needed to read."""

import math
from functools import lru_cache
from statistics import NormalDist

import numpy as np
from numpy.typing import ArrayLike, NDArray

Floats = NDArray[np.float64]

_log_gamma = np.vectorize(math.lgamma, otypes=[np.float64])
_MOST_TERMS = 100_000
_FEW = 40.0


def normal_cdf(x: float) -> float:
    """The probability of at most `x` under the standard normal distribution."""
    return 0.5 * math.erfc(-x / math.sqrt(2))


def normal_quantile(p: float) -> float:
    """The value that a standard normal one does not exceed with probability `p`, between 0 and 1."""
    return NormalDist().inv_cdf(p)


def beta_cdf(a: ArrayLike, b: ArrayLike, x: ArrayLike) -> Floats:
    """The probability of at most `x`, from 0 to 1, under the beta distribution.

    Found below the mean; above, by symmetry.
    """
    a, b, x = np.broadcast_arrays(*(np.asarray(value, np.float64) for value in (a, b, x)))
    above = x > (a + 1) / (a + b + 2)
    a, b = np.where(above, b, a), np.where(above, a, b)
    x, rest = np.where(above, 1 - x, x), np.where(above, x, 1 - x)
    many = np.minimum(a, b) > _FEW
    value = np.empty(x.shape)
    for chosen, tail in ((many, _integral), (~many, _fraction)):
        if chosen.any():
            value[chosen] = tail(a[chosen], b[chosen], x[chosen], rest[chosen])
    return np.where(above, 1 - value, value)


def _log_density(a: Floats, b: Floats, x: Floats, rest: Floats) -> Floats:
    """The logarithm of the density at x = 1 - rest, with respect to the logit of x."""
    with np.errstate(divide="ignore"):
        return _log_gamma(a + b) - _log_gamma(a) - _log_gamma(b) + a * np.log(x) + b * np.log(rest)


def _integral(a: Floats, b: Floats, x: Floats, rest: Floats) -> Floats:
    """The probability below x, over its logit, where the density is nearly a normal one: Gauss and Legendre's rule."""
    nodes, weights = np.polynomial.legendre.leggauss(80)
    end = np.log(x) - np.log(rest)
    start = np.minimum(np.log(a / b) - 12 * np.sqrt(1 / a + 1 / b), end - 1e-3)
    half = (end - start) / 2
    logits = (start + half)[:, None] + half[:, None] * nodes  # (values, nodes)
    log_x, log_rest = -np.log1p(np.exp(-logits)), -np.log1p(np.exp(logits))
    log_front = (_log_gamma(a + b) - _log_gamma(a) - _log_gamma(b))[:, None]
    return half * (np.exp(log_front + a[:, None] * log_x + b[:, None] * log_rest) @ weights)


def _fraction(a: Floats, b: Floats, x: Floats, rest: Floats) -> Floats:
    """The probability below x by Lentz's algorithm for the continued fraction, quick where one count is small."""
    tiny = 1e-300
    c, d = np.ones_like(x), 1 - (a + b) * x / (a + 1)
    d = 1 / np.where(np.abs(d) < tiny, tiny, d)
    found = d.copy()
    for m in range(1, _MOST_TERMS):
        step = np.ones_like(x)
        for term in (
            m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m)),
            -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1)),
        ):
            d, c = 1 + term * d, 1 + term / c
            d = 1 / np.where(np.abs(d) < tiny, tiny, d)
            c = np.where(np.abs(c) < tiny, tiny, c)
            step = d * c
            found = found * step
        if np.all(np.abs(step - 1) < 1e-14):
            break
    return np.exp(_log_density(a, b, x, rest)) / a * found


def beta_quantile(a: ArrayLike, b: ArrayLike, p: ArrayLike) -> Floats:
    """The value that a beta-distributed one does not exceed with probability `p`.

    Newton's steps in the logit of the value; a step that leaves what is known of its place is replaced by a bisection.
    """
    a, b, p = np.broadcast_arrays(*(np.asarray(value, np.float64) for value in (a, b, p)))
    low, high = np.full(p.shape, -700.0), np.full(p.shape, 36.0)
    around = NormalDist().inv_cdf  # where both counts are large, the logit is nearly normal
    z = np.vectorize(around, otypes=[np.float64])(np.clip(p, 1e-9, 1 - 1e-9))
    logit = np.clip(np.log(a / b) + z * np.sqrt(1 / a + 1 / b), -30, 30)
    for _ in range(100):
        x = 1 / (1 + np.exp(-logit))
        error = beta_cdf(a, b, x) - p
        low, high = np.where(error < 0, logit, low), np.where(error < 0, high, logit)
        with np.errstate(all="ignore"):
            slope = np.exp(_log_density(a, b, x, 1 - x))
            step = -error / slope
            following = logit + step
        found = np.abs(step) <= 1e-11 * np.maximum(1, np.abs(logit))
        outside = ~((following > low) & (following < high))
        logit = np.where(found, logit, np.where(outside, (low + high) / 2, following))
        if np.all(found):
            break
    return 1 / (1 + np.exp(-logit))


def t_cdf(freedom: float, t: ArrayLike) -> Floats:
    """The probability of at most `t` under Student's distribution with so many degrees of freedom."""
    t = np.asarray(t, np.float64)
    tail = 0.5 * beta_cdf(freedom / 2, 0.5, freedom / (freedom + t * t))
    return np.where(t > 0, 1 - tail, tail)


@lru_cache(maxsize=256)
def t_quantile(freedom: float, p: float) -> float:
    """The value that Student's distribution does not exceed with probability `p`, at most a half."""
    x = float(beta_quantile(0.5, freedom / 2, 1 - 2 * p))  # t² / (freedom + t²)
    return -math.sqrt(freedom * x / (1 - x))
