"""Distances against scipy and POT, in numpy and in torch, with their gradients."""

from collections.abc import Callable
from random import Random
from typing import Any, cast

import numpy as np
import ot
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.spatial.distance import jensenshannon
from scipy.special import kl_div
from scipy.stats import wasserstein_distance

from fada import distances
from fada.errors import FadaError
from tests.support.types import some

SYMMETRIC = [name for name in distances.DISTANCES if name != "kl"]


def ground_cost(n: int) -> np.ndarray:
    """A cost between characters that is a metric: distances between points of a plane."""
    points = np.random.default_rng(n).random((n, 2))
    return np.linalg.norm(points[:, None] - points, axis=-1)


def costed(name: str) -> Callable[..., Any]:
    distance: Callable[..., Any] = distances.get(name)
    return lambda q, p: distance(q, p, cost=ground_cost(q.shape[-1]))


EVERY = {**distances.DISTANCES, "w1 with a cost": costed("w1"), "w2 with a cost": costed("w2")}
every = pytest.mark.parametrize("distance", list(EVERY.values()), ids=list(EVERY))


Library = Callable[[np.ndarray], Any]


@pytest.fixture(scope="module", params=[np.asarray, torch.tensor], ids=["numpy", "torch"])
def library(request: pytest.FixtureRequest) -> Library:
    """What makes an array of either library: every property holds for both."""
    return request.param


@st.composite
def pairs(draw: st.DrawFn, largest: int = 12) -> tuple[np.ndarray, np.ndarray]:
    """Two distributions over one alphabet, with zeros among them."""
    n = draw(st.integers(1, largest))
    counts = st.lists(st.integers(0, 50), min_size=n, max_size=n).filter(any)
    q, p = (np.array(draw(counts), dtype=np.float64) for _ in range(2))
    return q / q.sum(), p / p.sum()


def random_pair(n: int = 7, seed: int = 0, size: tuple[int, ...] = ()) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    return rng.dirichlet(np.ones(n), size=size or None), rng.dirichlet(np.ones(n), size=size or None)


@given(pair=pairs())
@settings(max_examples=100, deadline=None)
def test_they_agree_with_scipy_and_pot(library: Library, pair: tuple[np.ndarray, np.ndarray]) -> None:
    q, p = pair
    n = len(q)

    def found(name: str, **options: Any) -> float:
        return float(distances.get(name)(library(q), library(p), **options))

    places = np.arange(n, dtype=np.float64)
    apart = np.abs(places[:, None] - places)
    assert found("sorted_w2") == pytest.approx(np.sqrt(ot.wasserstein_1d(q, p, p=2)), abs=1e-12)
    assert found("aligned_w2") == pytest.approx(np.linalg.norm(q - p) / np.sqrt(n), abs=1e-12)
    assert found("w1") == pytest.approx(wasserstein_distance(places, places, q, p), abs=1e-12)
    assert found("w2") ** 2 == pytest.approx(ot.emd2(q, p, apart**2), abs=1e-12)
    assert found("js") ** 2 == pytest.approx(jensenshannon(q, p) ** 2, abs=1e-12, nan_ok=True)
    assert found("kl") == pytest.approx(kl_div(q + distances.KL_EPSILON, p + distances.KL_EPSILON).sum(), abs=1e-12)
    assert found("w1", cost=apart) == pytest.approx(found("w1"), abs=1e-9)
    assert found("w2", cost=apart) ** 2 == pytest.approx(found("w2") ** 2, abs=1e-9)


@every
@given(pair=pairs())
@settings(max_examples=40, deadline=None)
def test_zero_on_equality_and_never_negative(
    library: Library, distance: Callable, pair: tuple[np.ndarray, np.ndarray]
) -> None:
    q, p = map(library, pair)
    assert float(distance(p, p)) == pytest.approx(0, abs=1e-12)
    assert float(distance(q, p)) >= -1e-15


@pytest.mark.parametrize("name", SYMMETRIC)
@given(pair=pairs())
@settings(max_examples=40, deadline=None)
def test_symmetric_where_it_should_be(library: Library, name: str, pair: tuple[np.ndarray, np.ndarray]) -> None:
    q, p = map(library, pair)
    measure = distances.get(name)
    assert float(measure(q, p)) == pytest.approx(float(measure(p, q)), abs=1e-12)


def test_kl_is_not_symmetric() -> None:
    q, p = random_pair()
    assert distances.kl(q, p) != pytest.approx(distances.kl(p, q), abs=1e-6)


@given(pair=pairs(), rng=st.randoms(use_true_random=False))
@settings(max_examples=60, deadline=None)
def test_sorted_w2_is_blind_to_which_character_is_which_and_never_above_aligned_w2(
    library: Library, pair: tuple[np.ndarray, np.ndarray], rng: Random
) -> None:
    shuffled = pair[0].copy()
    rng.shuffle(cast(Any, shuffled))
    q, p = map(library, pair)
    assert distances.sorted_w2(library(shuffled), q) == 0
    assert distances.sorted_w2(q, p) <= distances.aligned_w2(q, p) + 1e-15


@every
def test_gradcheck_passes(distance: Callable) -> None:
    q, p = (torch.tensor(x, requires_grad=True) for x in random_pair(6, seed=3))
    # On the simplex: the transport distances are defined between distributions of one mass only.
    assert torch.autograd.gradcheck(lambda a, b: distance(a / a.sum(), b / b.sum()), (q, p))


EMPTY = np.zeros(5)
SPIKE = np.array([1.0, 0, 0, 0, 0])
SPREAD = np.array([0.5, 0.25, 0.25, 0, 0])
NEARLY = np.array([0.5, 0.25, 0.25, 1e-300, 1e-200])


@every
@pytest.mark.parametrize("q", [EMPTY, SPIKE, SPREAD, NEARLY])
@pytest.mark.parametrize("p", [EMPTY, SPIKE, SPREAD])
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_values_and_gradients_are_finite_at_zero_at_equality_and_for_an_empty_text(
    distance: Callable, q: np.ndarray, p: np.ndarray, dtype: torch.dtype
) -> None:
    a, b = (torch.tensor(x, dtype=dtype, requires_grad=True) for x in (q, p))
    value = distance(a, b)
    value.backward()
    assert torch.isfinite(value)
    assert torch.isfinite(some(a.grad)).all()
    assert torch.isfinite(some(b.grad)).all()
    assert float(distance(q, p)) == pytest.approx(value.item(), rel=1e-5, abs=1e-5)


@pytest.mark.parametrize("name", ["sorted_w2", "aligned_w2", "w1", "w2", "js", "kl"])
def test_the_gradient_at_equality_is_zero(name: str) -> None:
    _, p = random_pair()
    q = torch.tensor(p, requires_grad=True)
    distances.get(name)(q, p).backward()
    assert some(q.grad).abs().max() < 1e-6


def test_an_empty_text_is_at_the_root_mean_square_of_the_target(library: Library) -> None:
    empty, spread, spike = map(library, (EMPTY, SPREAD, SPIKE))
    for name in ("sorted_w2", "aligned_w2"):
        assert float(distances.get(name)(empty, spread)) == pytest.approx(np.sqrt((SPREAD**2).mean()))
    assert float(distances.kl(empty, spread)) == pytest.approx(1, abs=1e-6)
    assert distances.w1(empty, spike) == distances.w2(empty, spike) == 5
    assert distances.w1(empty, spike, cost=ground_cost(5)) == ground_cost(5).max()


@every
def test_batches_broadcast_over_leading_axes(library: Library, distance: Callable) -> None:
    q, p = map(library, random_pair(5, size=(3,)))
    expected = np.array([[float(distance(a, b)) for b in p] for a in q])
    np.testing.assert_allclose(distance(q[:, None], p), expected, atol=1e-12)
    assert distance(q, p[0]).shape == (3,)


@every
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_dtype_and_library_of_the_first_argument_are_kept(distance: Callable, dtype: type) -> None:
    q, p = random_pair(5, size=(2,))
    assert distance(q.astype(dtype), p).dtype == dtype
    tensor = distance(torch.tensor(q.astype(dtype)), p)
    assert tensor.dtype == torch.tensor(q.astype(dtype)).dtype


@pytest.mark.filterwarnings("error")
def test_a_read_only_target_is_taken_without_a_warning() -> None:
    q, p = random_pair()
    p.flags.writeable = False
    distances.sorted_w2(torch.tensor(q), p)


def test_js_tells_nearly_equal_distributions_apart() -> None:
    p = np.full(4, 0.25)
    q = p + 1e-9 * np.array([1, -1, 1, -1])
    assert distances.js(q, p) == pytest.approx(np.sqrt(((q - p) ** 2 / p).sum() / 8), rel=1e-6)


def test_mistakes_are_refused() -> None:
    with pytest.raises(FadaError, match="unknown distance 'l2'"):
        distances.get("l2")
    with pytest.raises(FadaError, match="5 and 4 characters"):
        distances.sorted_w2(np.ones(5) / 5, np.ones(4) / 4)
    with pytest.raises(FadaError, match="single number"):
        distances.js(0.5, 0.5)
    with pytest.raises(FadaError, match="cost of shape"):
        distances.w1(SPIKE, SPREAD, cost=-np.ones((5, 5)))
