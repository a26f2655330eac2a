import itertools
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fada.errors import FadaError
from fada.evaluation import significance as statistics
from tests.support.types import some


def _noisy_lines(rng: np.random.Generator, lines: Any, rate: Any, pages: Any = None) -> Any:
    """Lengths and edits of lines whose error rate varies from line to line (and, with `pages`, from page to page)."""
    lengths = rng.integers(10, 70, lines).astype(float)
    page_rate = np.full(lines, rate)
    if pages is not None:
        page_rate = rate * rng.gamma(4, 1 / 4, pages)[np.arange(lines) % pages]
    line_rate = page_rate * rng.gamma(2, 1 / 2, lines)
    return 100.0 * rng.poisson(lengths * line_rate)[:, None].astype(float), lengths[:, None]


def _coverage(trials: Any, make: Any, truth: Any, **options: Any) -> Any:
    hits = 0
    for trial in range(trials):
        numerators, denominators, clusters = make(np.random.default_rng(trial))
        ends = statistics.intervals(numerators, denominators, clusters=clusters, resamples=400, seed=trial, **options)
        [[low, high]] = some(ends)
        hits += low <= truth <= high
    return hits / trials


@pytest.mark.parametrize("lines", [15, 60, 300])
def test_intervals_over_lines_cover_the_true_rate_about_95_times_in_100(lines: int) -> None:
    coverage = _coverage(500, lambda rng: (*_noisy_lines(rng, lines, 0.1), None), truth=10.0)
    assert 0.91 <= coverage <= 0.985


def test_intervals_over_pages_cover_where_intervals_over_lines_are_too_narrow() -> None:
    pages = [i % 20 for i in range(400)]
    by_page = _coverage(300, lambda rng: (*_noisy_lines(rng, 400, 0.1, 20), pages), truth=10.0)
    by_line = _coverage(300, lambda rng: (*_noisy_lines(rng, 400, 0.1, 20), None), truth=10.0)
    assert by_page >= 0.90
    assert by_line < 0.75


def test_intervals_of_pooled_lines_have_the_width_of_unpooled_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    numerators, denominators = _noisy_lines(np.random.default_rng(0), 4000, 0.1)
    unpooled = np.diff(some(statistics.intervals(numerators, denominators, resamples=2000)))[0, 0]
    monkeypatch.setattr(statistics, "POOLED_CLUSTERS", 1000)
    pooled = np.diff(some(statistics.intervals(numerators, denominators, resamples=2000)))[0, 0]
    assert pooled == pytest.approx(unpooled, rel=0.1)


def test_intervals_need_two_clusters() -> None:
    numerators, denominators = _noisy_lines(np.random.default_rng(0), 10, 0.1)
    assert statistics.intervals(numerators, denominators, clusters=["one page"] * 10) is None
    assert statistics.intervals(numerators[:1], denominators[:1]) is None


def test_intervals_depend_on_the_seed_alone() -> None:
    fractions = _noisy_lines(np.random.default_rng(0), 50, 0.1)
    first, same, other = (some(statistics.intervals(*fractions, seed=seed)) for seed in (3, 3, 4))
    assert np.array_equal(first, same)
    assert not np.array_equal(first, other)


def test_cluster_labels_must_match_the_lines() -> None:
    with pytest.raises(FadaError, match="3 cluster labels for 10 lines"):
        statistics.intervals(*_noisy_lines(np.random.default_rng(0), 10, 0.1), clusters=["a", "b", "c"])


def test_randomization_p_value_equals_full_enumeration() -> None:
    rng = np.random.default_rng(5)
    a, lengths = _noisy_lines(rng, 9, 0.1)
    b = a + 100.0 * rng.integers(-2, 2, (9, 1))
    observed = abs((b - a).sum())
    flips = np.array(list(itertools.product([-1, 1], repeat=9)))
    exact = np.mean(np.abs(flips @ (b - a)) >= observed - 1e-9)
    (test,) = statistics.paired_tests((a, lengths), (b, lengths), resamples=20_000)
    assert test.p_randomization == pytest.approx(exact, abs=0.015)


def test_paired_tests_reject_equal_systems_about_5_times_in_100() -> None:
    rejected = np.zeros(2)
    for trial in range(300):
        rng = np.random.default_rng(trial)
        a, lengths = _noisy_lines(rng, 80, 0.1)
        b = np.maximum(0, a + 100.0 * rng.integers(-1, 2, (80, 1)))
        # exchangeable by construction: which of the two is called a is decided by a coin
        swap = rng.integers(0, 2, (80, 1)).astype(bool)
        (test,) = statistics.paired_tests(
            (np.where(swap, b, a), lengths), (np.where(swap, a, b), lengths), resamples=300, seed=trial
        )
        rejected += [test.p_randomization < 0.05, test.p_bootstrap < 0.05]
    assert np.all(rejected / 300 <= 0.09)
    assert np.all(rejected / 300 >= 0.01)


def test_paired_tests_see_a_small_difference_that_separate_intervals_hide() -> None:
    rng = np.random.default_rng(0)
    a, lengths = _noisy_lines(rng, 200, 0.1)
    b = np.maximum(0, a - 100.0 * (rng.random((200, 1)) < 0.2))
    (test,) = statistics.paired_tests((a, lengths), (b, lengths))
    assert test.p_randomization < 0.001
    assert test.p_bootstrap < 0.001
    low, high = some(test.interval)
    assert high < 0
    assert low <= test.difference <= high


def test_paired_tests_of_a_system_against_itself_find_nothing() -> None:
    fractions = _noisy_lines(np.random.default_rng(0), 30, 0.1)
    (test,) = statistics.paired_tests(fractions, fractions)
    assert (test.difference, test.interval, test.p_randomization, test.p_bootstrap) == (0.0, (0.0, 0.0), 1.0, 1.0)


def test_paired_tests_of_one_cluster_claim_nothing() -> None:
    a, lengths = _noisy_lines(np.random.default_rng(0), 30, 0.1)
    (test,) = statistics.paired_tests((a, lengths), (a + 100, lengths), clusters=["page"] * 30)
    assert (test.p_randomization, test.interval) == (1.0, None)


def test_holm_equals_the_textbook_example() -> None:
    assert statistics.holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])


@given(st.lists(st.floats(0, 1), max_size=12))
def test_holm_never_lowers_a_p_value_and_keeps_their_order(p_values: Any) -> None:
    adjusted = statistics.holm(p_values)
    assert all(p <= q <= 1 for p, q in zip(p_values, adjusted, strict=True))
    assert [adjusted[i] for i in np.argsort(p_values, kind="stable")] == sorted(adjusted)


@given(st.lists(st.floats(0, 1), min_size=1, max_size=8))
def test_holm_equals_the_definition_by_rank(p_values: Any) -> None:
    expected = [min(1.0, max(q * sum(r >= q for r in p_values) for q in p_values if q <= p)) for p in p_values]
    assert statistics.holm(p_values) == pytest.approx(expected)


def test_mean_and_sem_over_seeds() -> None:
    result = statistics.mean_sem([10.0, 12.0, 14.0])
    assert (result.mean, result.runs) == (12.0, 3)
    assert result.sem == pytest.approx(2 / np.sqrt(3))
    assert str(result) == "12.00 (1.15)"
    assert statistics.mean_sem([10.0]).sem is None
    assert statistics.sem([10.0]) is None
    assert statistics.sem([10.0, 12.0, 14.0]) == result.sem
    with pytest.raises(FadaError, match="at least one"):
        statistics.mean_sem([])


def test_the_bootstrap_test_of_few_clusters_agrees_with_its_interval() -> None:
    for trial in range(60):
        rng = np.random.default_rng(trial)
        lengths = np.full((5, 1), 1000.0)
        a = 100.0 * rng.integers(50, 80, (5, 1)).astype(float)
        b = a + 100.0 * rng.integers(-8, 14, (5, 1))
        (test,) = statistics.paired_tests((a, lengths), (b, lengths), resamples=2000, seed=trial)
        if abs(test.p_bootstrap - 0.05) > 0.01:
            assert (test.p_bootstrap < 0.05) == (not some(test.interval)[0] <= 0 <= some(test.interval)[1])
