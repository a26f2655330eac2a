"""Character distributions and target sets: estimating, editing, mixing, comparing."""

from itertools import pairwise
from typing import Any, cast

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import beta, pearsonr

from fada import distances
from fada.errors import FadaError
from fada.targets.distribution import CharDistribution
from fada.targets.target_set import TargetSet
from fada.text.characters import OTHER
from fada.text.normalizer import TextNormalizer

texts = st.lists(st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=20), min_size=1, max_size=5)
ALPHABET = "abcdeé "
counts = st.dictionaries(st.sampled_from(ALPHABET), st.integers(1, 1000), min_size=1)
sets = st.dictionaries(st.sampled_from(["9", "10", "x", "y"]), counts, min_size=1, max_size=3).map(
    lambda domains: TargetSet({name: CharDistribution.from_counts(each) for name, each in domains.items()})
)


def distribution(**given: float) -> CharDistribution:
    return CharDistribution.from_counts(given)


@given(texts)
@settings(max_examples=100, deadline=None)
def test_frequencies_sum_to_one_and_are_those_of_the_text(lines: list[str]) -> None:
    p = CharDistribution.from_texts(lines)
    text = "".join(map(TextNormalizer(), lines))
    assert p.frequencies.sum() == pytest.approx(1, abs=1e-12)
    assert p.total == len(text)
    assert p.symbols == tuple(sorted(set(text)))
    assert p.frequency(text[0]) == pytest.approx(text.count(text[0]) / len(text))


@given(counts, st.dictionaries(st.sampled_from(ALPHABET + "z"), st.floats(0, 0.19), min_size=1, max_size=5))
@settings(max_examples=150, deadline=None)
def test_with_frequency_sets_some_rescales_the_rest_and_keeps_the_total(
    given_counts: dict[str, int], wanted: dict[str, float]
) -> None:
    p = CharDistribution.from_counts(given_counts)
    if set(p.symbols) <= set(wanted):
        with pytest.raises(FadaError, match="no other characters are left"):
            p.with_frequency(wanted)
        return
    q = p.with_frequency(wanted)
    assert q.frequencies.sum() == pytest.approx(1, abs=1e-12)
    assert q.total == pytest.approx(p.total)
    for character, frequency in wanted.items():
        assert q.frequency(character) == pytest.approx(frequency, abs=1e-12)
    rest = [c for c in p.symbols if c not in wanted]
    ratios = [q.frequency(c) / p.frequency(c) for c in rest]
    assert all(a == pytest.approx(b) for a, b in pairwise(ratios))


def test_with_frequency_keeps_the_order_of_the_alphabet() -> None:
    p = distribution(a=1, b=2).restricted_to("ba")
    assert p.with_frequency("a", 0.5).symbols == ("b", "a", OTHER)
    assert p.with_frequency("c", 0.5).symbols == ("b", "a", "c", OTHER)
    assert distribution(a=1, b=1).with_frequency(OTHER, 0.5).frequency(OTHER) == 0.5


@pytest.mark.parametrize(
    ("character", "frequency", "message"),
    [
        ("a", 1.5, "expected a number from 0 to 1"),
        ("a", float("nan"), "expected a number from 0 to 1"),
        ("a", None, "which frequency"),
        ("A", 0.1, "did you mean 'a'"),
        ("e\u0301", 0.1, "did you mean 'é'"),
        ("ab", 0.1, "single characters"),
        ({"a": 0.7, "b": 0.7}, None, "sum to 1.4"),
        ({"a": 0.3, "b": 0.3}, None, "no other characters"),
    ],
)
def test_impossible_frequencies_are_refused(character: str, frequency: float | None, message: str) -> None:
    with pytest.raises(FadaError, match=message):
        distribution(a=1, b=3).with_frequency(character, frequency)


def test_a_space_can_be_set_also_where_spaces_collapse() -> None:
    p = CharDistribution.from_texts(["a  b c"], TextNormalizer(spaces="collapse"))
    assert p.with_frequency(" ", 0.0).frequency(" ") == 0


def test_scaled_halves_a_frequency() -> None:
    p = distribution(a=1, b=3)
    assert p.scaled({"b": 0.5}).frequency("b") == pytest.approx(0.375)
    with pytest.raises(FadaError, match="from 0 up"):
        p.scaled({"b": -1})


def test_smoothing_adds_to_every_count() -> None:
    p = distribution(a=1, b=3).over("abc").smoothed(0.5)
    assert p.counts.tolist() == [1.5, 3.5, 0.5]
    for alpha in (-1, float("nan"), float("inf")):
        with pytest.raises(FadaError, match="expected a number from 0 up"):
            p.smoothed(alpha)


@given(counts, st.lists(st.sampled_from(ALPHABET + "z"), max_size=6))
@settings(max_examples=100, deadline=None)
def test_restriction_pools_what_is_outside_the_alphabet(given_counts: dict[str, int], alphabet: list[str]) -> None:
    p = CharDistribution.from_counts(given_counts)
    q = p.restricted_to(alphabet)
    assert q.symbols == (*dict.fromkeys(alphabet), OTHER)
    assert q.total == p.total
    assert q.counts[-1] == sum(n for c, n in given_counts.items() if c not in alphabet)
    assert q.restricted_to(alphabet) == q


def test_a_fractional_count_leaves_nothing_in_an_other_cell_it_does_not_reach() -> None:
    p = distribution(a=0.1, b=0.2, c=0.3)
    assert p.restricted_to("abc").frequency(OTHER) == 0


def test_covering_adds_an_other_cell_only_where_it_is_needed() -> None:
    p = distribution(a=1, b=1)
    assert p.covering("ab") is p
    assert p.covering("abz").symbols == ("a", "b", OTHER)
    assert p.covering("z").vector_of("Azz").tolist() == pytest.approx([1 / 3, 0, 2 / 3])
    assert p.vector_of("").tolist() == [0, 0]
    with pytest.raises(FadaError, match="outside the alphabet"):
        p.vector_of("z")


def test_standard_errors_shrink_with_the_text_and_are_not_zero_for_the_unseen() -> None:
    little, much = (distribution(a=n, b=2 * n).over("abc") for n in (100, 10_000))
    assert (little.standard_errors > 9 * much.standard_errors).all()
    assert little.standard_errors[0] == pytest.approx(np.sqrt(1 / 3 * 2 / 3 / 300), rel=0.01)
    assert little.standard_errors[2] > 0
    np.testing.assert_allclose(little.standard_errors, beta(little.counts + 0.5, 300 - little.counts + 0.5).std())


def test_intervals_are_those_of_jeffreys_and_reach_zero_and_one() -> None:
    p = distribution(a=30, b=270).over("abc")
    low, high = p.intervals(0.9).T
    np.testing.assert_allclose([low[0], high[0]], beta(30.5, 270.5).ppf([0.05, 0.95]))
    assert low[2] == 0 < high[2] < 0.02
    assert distribution(a=5).intervals().tolist()[0][1] == 1
    with pytest.raises(FadaError, match="between 0 and 1"):
        p.intervals(95)


def test_intervals_cover_the_truth_about_as_often_as_they_say() -> None:
    rng = np.random.default_rng(0)
    truth = np.array([0.5, 0.3, 0.15, 0.05])
    samples = [CharDistribution(tuple("abcd"), rng.multinomial(300, truth)) for _ in range(250)]
    intervals = np.stack([p.intervals() for p in samples])
    inside = np.mean((intervals[..., 0] <= truth) & (truth <= intervals[..., 1]))
    assert 0.93 < inside < 0.97


def test_mixing_weighs_frequencies_not_lengths() -> None:
    targets = TargetSet({"13": distribution(a=10, b=0), "14": distribution(a=0, b=1000)})
    mixed = targets.mix({"13": 7, "14": 3})
    assert mixed.frequencies.tolist() == pytest.approx([0.7, 0.3])
    assert mixed.total == pytest.approx(1 / (0.49 / 10 + 0.09 / 1000))
    with pytest.raises(FadaError, match="mixing weights"):
        targets.mix({"13": 0, "14": 0})
    with pytest.raises(FadaError, match="no domain '15'"):
        targets.mix({"15": 1})


@given(sets, sets, sets)
@settings(max_examples=80, deadline=None)
def test_merging_is_associative_and_exact(a: TargetSet, b: TargetSet, c: TargetSet) -> None:
    assert a.merge(b).merge(c) == a.merge(b.merge(c))
    merged = a.merge(b)
    assert merged.overall.total == a.overall.total + b.overall.total
    assert {name: p.total for name, p in merged.items()} == {
        name: sum(s[name].total for s in (a, b) if name in s) for name in merged
    }


def test_merging_counts_equals_counting_all_of_the_text() -> None:
    first, second = {"x": ["Abc"], "y": ["dé"]}, {"x": ["ca ca"]}
    merged = TargetSet.from_texts(first).merge(TargetSet.from_texts(second))
    assert merged == TargetSet.from_texts({"x": ["Abc", "ca ca"], "y": ["dé"]})


@given(sets)
@settings(max_examples=60, deadline=None)
def test_domains_share_one_sorted_alphabet(targets: TargetSet) -> None:
    assert all(p.symbols == targets.symbols for p in targets.values())
    assert list(targets.symbols) == sorted(targets.symbols)
    assert targets.frequencies.sum(axis=1) == pytest.approx(1)
    assert targets.overall.counts.tolist() == np.sum([p.counts for p in targets.values()], axis=0).tolist()


@given(sets)
@settings(max_examples=60, deadline=None)
def test_pearson_and_every_distance_between_domains(targets: TargetSet) -> None:
    correlation = targets.pearson()
    rows = targets.frequencies
    assert np.isfinite(correlation).all()
    assert np.diag(correlation) == pytest.approx(1)
    for i, q in enumerate(rows):
        for j, p in enumerate(rows):
            if np.ptp(q) > 1e-9 and np.ptp(p) > 1e-9:
                assert correlation[i, j] == pytest.approx(pearsonr(q, p).statistic, abs=1e-9)
    for name, measure in distances.DISTANCES.items():
        matrix = targets.distances(name)
        assert matrix.shape == (len(targets), len(targets))
        assert np.diag(matrix) == pytest.approx(0, abs=1e-12)
        assert matrix[0, -1] == pytest.approx(float(measure(rows[0], rows[-1])))


def test_texts_and_pairs_give_the_same_targets_in_natural_order() -> None:
    pairs = [("10", "ab"), ("9", "c"), ("10", "b")]
    targets = TargetSet.from_pairs(pairs)
    assert targets.domains == ("9", "10")
    assert dict(targets) == dict(TargetSet.from_texts({"9": ["c"], "10": ["ab", "b"]}))


def test_rows_are_ready_for_a_table() -> None:
    row: dict[str, Any] = TargetSet.from_texts({"x": ["aab"]}).rows()[0]
    assert (row["domain"], row["character"], row["count"]) == ("x", "a", 2)
    assert row["low"] < row["frequency"] < row["high"]


def test_sets_side_by_side_keep_their_names() -> None:
    a, b = (TargetSet.from_texts({"x": [text]}) for text in ("ab", "bc"))
    assert TargetSet.side_by_side({"a": a, "b": b}).domains == ("a: x", "b: x")
    assert TargetSet.side_by_side({"a": a}) is a


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: TargetSet({}), "at least one domain"),
        (lambda: TargetSet.from_texts({"x": []}), "domain 'x': no characters"),
        (lambda: TargetSet.from_pairs([]), "no text found"),
        (lambda: TargetSet({cast(str, 13): distribution(a=1), "13": distribution(a=1)}), "two domains have one name"),
        (lambda: TargetSet.from_texts({"x": ["a"]})["y"], "no domain 'y'"),
        (lambda: CharDistribution(("a", "a"), np.ones(2)), "stands twice"),
        (lambda: CharDistribution(("a",), np.ones(2)), "shape"),
        (lambda: distribution(a=-1), "expected a number from 0 up"),
        (lambda: distribution(a=float("nan")), "expected a number from 0 up"),
        (lambda: distribution(a=1e308, b=1e308), "too large"),
        (lambda: distribution(a=1).over("b"), "lacks 'a'"),
    ],
)
def test_mistakes_are_refused_with_a_sentence(build: Any, message: str) -> None:
    with pytest.raises(FadaError, match=message):
        build()


def test_different_normalisers_do_not_mix() -> None:
    lower, keep = (TargetSet.from_texts({"x": ["A"]}, TextNormalizer(case=case)) for case in ("lower", "keep"))
    with pytest.raises(FadaError, match="normaliser"):
        lower.merge(keep)
    with pytest.raises(FadaError, match="normaliser"):
        TargetSet({"a": lower["x"], "b": keep["x"]})


def test_counts_cannot_be_changed_from_outside() -> None:
    with pytest.raises(ValueError, match="read-only"):
        distribution(a=1).counts[0] = 2


def test_an_edited_distribution_remembers_what_was_counted() -> None:
    p = CharDistribution.from_texts(["aaaabbcc"])
    q = p.with_frequency("b", 0.5).with_frequency("c", 0.0)
    assert q.counted == p
    assert q.forbidden == {"c"}
    assert q.describe_edits() == "b 3 times as often, c forbidden"
    weights = dict(zip(q.symbols, q.edit_weights, strict=True))
    assert weights["a"] == weights["c"] == 0
    assert np.exp(weights["b"]) == pytest.approx((q.frequency("b") / q.frequency("a")) / (2 / 4))
    assert p.counted is None
    assert not p.edit_weights.any()


def test_merging_and_mixing_keep_the_memory_of_edits() -> None:
    p = CharDistribution.from_texts(["aaaabbcc"])
    edited = TargetSet({"x": p.with_frequency("c", 0.0), "y": p})
    assert edited.overall.edits.keys() == {"c"}
    assert edited.overall.frequency("c") == pytest.approx(edited["y"].frequency("c") / 2)
    assert edited.mix({"x": 1, "y": 0}).forbidden == {"c"}
    merged = edited.merge(TargetSet({"x": p}))
    assert merged["x"].counted is not None
    assert merged["x"].frequency("c") == pytest.approx(1 / 8)
    assert p.with_frequency("c", 0.0).smoothed(1).forbidden == {"c"}
