"""Distribution functions against those of scipy."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import special

from fada.common.probability import beta_cdf, beta_quantile, normal_cdf, normal_quantile, t_cdf, t_quantile

COUNTS = st.floats(0.5, 1e5)
LEVELS = st.sampled_from([0.0005, 0.005, 0.025, 0.05, 0.3, 0.5, 0.8, 0.975, 0.995])


@settings(max_examples=25, deadline=None)
@given(COUNTS, COUNTS, LEVELS)
def test_the_beta_distribution(a: float, b: float, p: float) -> None:
    x = float(special.betaincinv(a, b, p))
    np.testing.assert_allclose(beta_cdf(a, b, x), special.betainc(a, b, x), rtol=1e-7)
    np.testing.assert_allclose(beta_quantile(a, b, p), x, rtol=1e-8, atol=1e-15)


def test_many_at_once() -> None:
    a, b = np.array([0.5, 3.5, 1000.5]), np.array([2000.5, 1997.5, 1000.5])
    np.testing.assert_allclose(beta_quantile(a, b, 0.975), special.betaincinv(a, b, 0.975), rtol=1e-9)


@pytest.mark.parametrize("freedom", [1, 2, 3, 7, 30, 400, 2000])
def test_students_distribution(freedom: int) -> None:
    t = np.array([-40.0, -3.0, -1e-3, 0.0, 0.7, 5.0])
    np.testing.assert_allclose(t_cdf(freedom, t), special.stdtr(freedom, t), rtol=1e-9, atol=1e-15)
    for p in (0.0005, 0.025, 0.05, 0.25):
        assert t_quantile(freedom, p) == pytest.approx(special.stdtrit(freedom, p), rel=1e-10)


def test_the_normal_distribution() -> None:
    for x in (-8.0, -1.96, 0.0, 0.5, 3.0):
        assert normal_cdf(x) == pytest.approx(special.ndtr(x), rel=1e-12)
    for p in (1e-6, 0.025, 0.5, 0.9):
        assert normal_quantile(p) == pytest.approx(special.ndtri(p), rel=1e-12, abs=1e-15)
