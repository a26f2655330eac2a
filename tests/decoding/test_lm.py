"""Language models against textbook formulas; prior correction."""

import gzip
import io
import json
import math
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fada.decoding import lm_store
from fada.decoding.kernels.automaton import automaton_step
from fada.decoding.lm import CharNgram, prior_weights
from fada.decoding.lm_train import UNKNOWN
from fada.errors import FadaError
from fada.targets.distribution import CharDistribution
from fada.text.alphabet import Alphabet
from fada.text.characters import OTHER
from fada.text.normalizer import TextNormalizer

LINES = ["abracadabra", "a barbarian", "cab", "", "abba é"]
SMOOTHINGS = ["witten-bell", "kneser-ney"]


@pytest.mark.parametrize("smoothing", SMOOTHINGS)
@pytest.mark.parametrize("order", [1, 2, 3, 6])
@pytest.mark.parametrize("context", ["", "a", "ab", "zq", "barbarian", "é", "a b"])
def test_probabilities_sum_to_one_in_any_context(smoothing: str, order: int, context: str) -> None:
    model = CharNgram.train(LINES, order, smoothing)
    after = model.distribution(context)
    assert sum(after.values()) == pytest.approx(1)
    assert min(after.values()) > 0


@settings(max_examples=40, deadline=None)
@given(
    st.lists(st.text("abé \u0301", max_size=8), min_size=1, max_size=6), st.text("abcé", max_size=4), st.integers(1, 5)
)
def test_any_training_text_gives_a_distribution(lines: list[str], context: str, order: int) -> None:
    if not any(lines):
        with pytest.raises(FadaError, match="no text"):
            CharNgram.train(lines, order)
        return
    for smoothing in SMOOTHINGS:
        model = CharNgram.train(lines, order, smoothing)
        assert sum(model.distribution(context).values()) == pytest.approx(1)
        assert math.isfinite(model.log_prob(context, end=True))


def witten_bell(lines: list[str], order: int, context: str, character: str) -> float:
    """The recursion of the textbook, from counts of tuples; "^" starts a line and "$" ends it."""
    counts: Counter[tuple[str, ...]] = Counter()
    for line in lines:
        marked = ("^", *line, "$")
        for end in range(1, len(marked)):
            for n in range(1, order + 1):
                if end - n + 1 >= 0:
                    counts[marked[end - n + 1 : end + 1]] += 1
    vocabulary = {c for line in lines for c in line}

    def p(history: tuple[str, ...], c: str) -> float:
        lower = p(history[1:], c) if history else 1 / (len(vocabulary) + 2)
        followers = {gram: k for gram, k in counts.items() if gram[:-1] == history}
        if not followers:
            return lower
        return (counts[(*history, c)] + len(followers) * lower) / (sum(followers.values()) + len(followers))

    return p(
        ("^", *context)[len(context) + 1 - (order - 1) :] if order <= len(context) + 1 else ("^", *context), character
    )


@pytest.mark.parametrize("order", [1, 2, 3, 4])
def test_witten_bell_is_the_textbook_recursion(order: int) -> None:
    model = CharNgram.train(LINES, order)
    for context in ["", "a", "ab", "xa", "abrac"]:
        for character in "abcé ":
            expected = witten_bell(LINES, order, context, character)
            found = model.log_prob(context + character) - model.log_prob(context)
            assert math.exp(found) == pytest.approx(expected), (context, character)


def test_kneser_ney_lower_orders_count_contexts_not_occurrences() -> None:
    # "q" always follows "x": frequent, but it continues one context only.
    lines = ["xq" * 20, "ab", "cb", "db", "eb"]
    model = CharNgram.train(lines, 2, "kneser-ney")
    after_unknown = model.distribution("\u2603")
    assert after_unknown["b"] > after_unknown["q"]
    assert CharNgram.train(lines, 2).distribution("\u2603")["b"] < CharNgram.train(lines, 2).distribution("\u2603")["q"]


@pytest.mark.parametrize("smoothing", SMOOTHINGS)
def test_longer_contexts_predict_better(smoothing: str) -> None:
    rng = np.random.default_rng(0)
    words = ["et", "in", "principio", "erat", "verbum", "deus", "apud"]
    train, test = ([" ".join(rng.choice(words, 8)) for _ in range(n)] for n in (300, 50))
    perplexities = [CharNgram.train(train, order, smoothing).perplexity(test) for order in (1, 2, 4)]
    assert perplexities[0] > perplexities[1] > perplexities[2]


def test_mixture_is_linear_in_probabilities_and_sums_to_one() -> None:
    a, b = CharNgram.train(["aab"], 3), CharNgram.train(["zzza"], 2, "kneser-ney")
    mixed = a.interpolate(b, 0.25)
    assert mixed.vocabulary == ("a", "b", "z")
    assert sum(mixed.distribution("az").values()) == pytest.approx(1)
    expected = 0.75 * math.exp(a.log_prob("a")) + 0.25 * math.exp(b.log_prob("a"))
    assert math.exp(mixed.log_prob("a")) == pytest.approx(expected)
    assert a.interpolate(b, 0).log_prob("ab") == pytest.approx(a.log_prob("ab"))
    three = mixed.interpolate(CharNgram.uniform("xy"), 0.5)
    assert sum(three.distribution("a").values()) == pytest.approx(1)


def test_an_automaton_over_symbols_is_the_model_over_their_text() -> None:
    model = CharNgram.train(LINES, 4).interpolate(CharNgram.train(["cabbage"], 3), 0.4)
    symbols = ["<blank>", "ab", "", "r", "\u2603", "é", "a"]
    arrays = model.automaton(Alphabet(tuple(symbols)).texts)
    states, reached = arrays.start.copy(), arrays.start.copy()
    text, total = "", 0.0
    for c in [1, 3, 6, 2, 4, 5, 1, 6]:
        step = automaton_step(arrays, states, c, reached)
        states[:] = reached
        total += step
        text += symbols[c]
        assert total == pytest.approx(model.log_prob(text))


@settings(max_examples=30, deadline=None)
@given(st.lists(st.text(alphabet="abrcdé ☃\U0010ffff\ud800", max_size=8), max_size=6))
def test_many_texts_have_the_log_probabilities_of_each(texts: list[str]) -> None:
    model = CharNgram.train(LINES, 4).interpolate(CharNgram.train(["cabbage"], 3), 0.4)
    assert model.log_probs(texts) == [model.log_prob(text) for text in texts]
    for component in model.components:
        for text in texts:
            assert component.encode(text).tolist() == [component.identities.get(c, UNKNOWN) for c in text]


def test_characters_without_a_bit_of_their_own_are_found_as_the_others_are() -> None:
    rng = np.random.default_rng(0)
    letters = [chr(0x4E00 + i) for i in range(300)]
    lines = ["".join(rng.choice(letters, 40)) for _ in range(60)]
    model = CharNgram.train(lines, 3)
    (component,) = model.components
    for text in [*lines[:5], "".join(rng.choice(letters, 100)) + "a"]:
        state, expected = component.start, []
        for identity, share in zip(component.encode(text), component.shares(component.encode(text)), strict=True):
            total = share
            while identity not in component.character[(arcs := slice(*component.first[state : state + 2]))]:
                total += component.backoff[state]
                state = component.suffix[state]
            arc = arcs.start + int(np.flatnonzero(component.character[arcs] == identity)[0])
            expected.append(total + component.log_prob[arc])
            state = component.target[arc]
        assert model.character_log_probs(text).tolist() == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize("smoothing", ["witten-bell", "kneser-ney"])
def test_no_class_is_more_probable_than_what_its_state_says(smoothing: str) -> None:
    rng = np.random.default_rng(3)
    model = CharNgram.train(LINES, 5, smoothing).interpolate(CharNgram.train(["cabbage"], 3), 0.4)
    symbols = ["<blank>", *model.vocabulary, "ab", "bra", "", "\u2603"]
    arrays = model.automaton(Alphabet(tuple(symbols)).texts)
    for _ in range(30):
        states, reached = arrays.start.copy(), arrays.start.copy()
        for c in rng.integers(1, len(symbols), 20):
            for other in range(1, len(symbols)):
                step = automaton_step(arrays, states, other, reached)
                assert step <= arrays.singles[16 * states + 1].max() + arrays.ceiling[other]
            automaton_step(arrays, states, c, reached)
            states[:] = reached


def test_the_normaliser_is_applied_to_training_text() -> None:
    model = CharNgram.train(["É"], 1, normalizer=TextNormalizer(form="NFD"))
    assert model.vocabulary == ("e", "\u0301")
    assert CharNgram.train(["a"], 1, vocabulary="xyz").vocabulary == ("a", "x", "y", "z")


def test_a_saved_model_is_read_back_without_pickle(tmp_path: Path) -> None:
    model = CharNgram.train(LINES, 3).interpolate(CharNgram.train(["zebra"], 2), 0.3)
    path = tmp_path / "lm.npz"
    model.save(path)
    assert CharNgram.load(path).log_prob("abra zé☃", end=True) == model.log_prob("abra zé☃", end=True)


def test_damaged_models_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "lm.npz"
    with pytest.raises(FadaError, match="no such file"):
        CharNgram.load(path)
    path.write_bytes(b"PK not a zip")
    with pytest.raises(FadaError, match="not a language model"):
        CharNgram.load(path)
    np.savez(path, header=np.array(json.dumps({"format": "other"})))
    with pytest.raises(FadaError, match="format 'other'"):
        CharNgram.load(path)
    damages: list[dict[str, Any]] = [
        {"arcs_0": np.array([200], np.uint8)},
        {"character_0": np.array([0, 1, 2, 3, 3, 200, 1], np.uint8)},
        {"longer_0": np.array([255], np.uint8)},
        {"longer_0": np.array([0], np.uint8)},
        {"start_0": np.array([10**6], np.uint32)},
        {"log_prob_0": np.array(["one"])},
        {"backoff_0": np.full(5, np.nan)},
    ]
    for damage in damages:
        CharNgram.train(["ab"], 2).save(path)
        with np.load(path) as file:
            arrays = {**file, **damage}
        np.savez(path, **arrays)
        with pytest.raises(FadaError, match="not a language model"):
            CharNgram.load(path)


def test_a_model_that_unpacks_to_more_than_a_model_needs_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "lm.npz"
    CharNgram.train(["ab"], 2).save(path)
    monkeypatch.setattr("fada.decoding.lm._MOST_BYTES", 100)
    with pytest.raises(FadaError, match=r"lm\.npz: unpacks to"):
        CharNgram.load(path)


TEXTS = st.lists(st.text("abcdé ", max_size=12), min_size=1, max_size=8).filter(any)


@settings(max_examples=60, deadline=None)
@given(TEXTS, st.integers(1, 6), st.sampled_from(SMOOTHINGS), st.text("abcdéx ", max_size=10))
def test_a_stored_model_is_the_same_to_the_last_digit(lines: list[str], order: int, smoothing: str, text: str) -> None:
    model = CharNgram.train(lines, order, smoothing)
    file = io.BytesIO()
    model.save(file)
    found = CharNgram.load(file)
    assert found.character_log_probs(text, end=True).tolist() == model.character_log_probs(text, end=True).tolist()
    again = io.BytesIO()
    found.save(again)
    assert again.getvalue() == file.getvalue()


def test_eight_bits_are_enough_and_take_two_bytes_for_an_ngram(tmp_path: Path) -> None:
    rng = np.random.default_rng(5)
    words = ["et", "in", "principio", "erat", "verbum", "deus", "apud", "omnia", "per", "ipsum", "facta", "sunt"]
    train, test = ([" ".join(rng.choice(words, 8)) for _ in range(n)] for n in (500, 50))
    model = CharNgram.train(train, 6)
    path = tmp_path / "lm.npz"
    model.save(path, bits=8)
    rounded = CharNgram.load(path)
    assert rounded.perplexity(test) == pytest.approx(model.perplexity(test), rel=0.01)
    for text in test:
        difference = rounded.character_log_probs(text) - model.character_log_probs(text)
        assert np.abs(difference).max() < 6 * 32 / 254 / 2
    assert path.stat().st_size < 3 * len(model.components[0].character) + 2000
    with pytest.raises(FadaError, match="bits is 4"):
        model.save(path, bits=4)


@settings(max_examples=40, deadline=None)
@given(TEXTS, st.integers(1, 5), st.sampled_from(SMOOTHINGS), st.integers(1, 60), st.text("abcdéx ", max_size=5))
def test_a_pruned_model_is_smaller_and_still_a_distribution(
    lines: list[str], order: int, smoothing: str, most: int, context: str
) -> None:
    model = CharNgram.train(lines, order, smoothing)
    smaller = model.pruned(most)
    assert len(smaller.components[0].character) <= max(most, len(model.vocabulary) + 2)
    assert sum(smaller.distribution(context).values()) == pytest.approx(1)
    whole = model.pruned(10**6)
    assert whole.distribution(context) == pytest.approx(model.distribution(context))
    file = io.BytesIO()
    smaller.save(file)
    assert CharNgram.load(file).log_prob(context, end=True) == smaller.log_prob(context, end=True)


def test_pruning_leaves_the_ngrams_that_change_the_model_least() -> None:
    """Stolcke's relative entropy of one n-gram, from the two distributions."""
    model = CharNgram.train(["abab", "abac", "aba", "bab"], 2)
    one_less = model.pruned(len(model.components[0].character) - 1)

    def change(other: CharNgram) -> float:
        total = 0.0
        for context in ["", "a", "b", "c"]:
            before = model.components[0]
            after = {
                c: p for c, p in model.distribution("\u2603" + context if context else "").items() if c is not None
            }
            pruned = other.distribution("\u2603" + context if context else "")
            scale = math.exp(before.log_prob[before.identities[context]]) if context else math.exp(before.log_prob[1])
            total += scale * sum(p * (math.log(p) - math.log(pruned[c])) for c, p in after.items())
        return total

    def without(arc: int) -> CharNgram:
        stays = np.ones(len(model.components[0].character), bool)
        stays[arc] = False
        return CharNgram([lm_store.without(model.components[0], stays)])

    arcs = range(len(model.vocabulary) + 2, len(model.components[0].character))
    assert change(one_less) == pytest.approx(min(change(without(arc)) for arc in arcs))
    with pytest.raises(FadaError, match="most is 0"):
        model.pruned(0)


ARPA = """
\\data\\
ngram 1=6
ngram 2=4

\\1-grams:
-1.0\t<unk>
-99\t<s>\t-0.5
-0.9\t</s>
-0.7\ta\t-0.3
-0.8\tb\t-0.2
-0.6\t<space>

\\2-grams:
-0.2\t<s> a
-0.4\ta b
-0.5\tb <space>
-0.3\tb </s>

\\end\\
"""


@pytest.mark.parametrize("compressed", [False, True])
def test_an_arpa_file_is_read_as_it_says(tmp_path: Path, compressed: bool) -> None:
    path = tmp_path / ("lm.arpa.gz" if compressed else "lm.arpa")
    path.write_bytes(gzip.compress(ARPA.encode()) if compressed else ARPA.encode())
    model = CharNgram.from_arpa(path)
    assert model.vocabulary == (" ", "a", "b")
    ten = math.log(10)
    assert model.log_prob("ab ") == pytest.approx(ten * (-0.2 - 0.4 - 0.5))
    assert model.log_prob("b") == pytest.approx(ten * (-0.5 - 0.8))
    assert model.log_prob("aa") == pytest.approx(ten * (-0.2 - 0.3 - 0.7))
    assert model.log_prob("a☃") == pytest.approx(ten * (-0.2 - 0.3 - 1.0))
    assert model.log_prob("ab", end=True) == pytest.approx(ten * (-0.2 - 0.4 - 0.3))


def test_what_is_not_a_character_arpa_file_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "lm.arpa"
    for content, message in [
        ("nothing here", "no n-grams"),
        ("\\1-grams:\n-1.0\thello\n", "'hello' is not a single character"),
        ("\\1-grams:\nminus\ta\n", "line 2"),
        ("\\1-grams:\nnan\ta\n", "line 2"),
        ("\\1-grams:\n-1.0\ta\n\\99999999-grams:\n", "line 3: n-grams of 99999999 words"),
        ("\\1-grams:\n-1.0\ta\n\\2-grams:\n-1.0\ta b\n", "'b' is in a longer n-gram"),
    ]:
        path.write_text(content, encoding="utf-8")
        with pytest.raises(FadaError, match=message):
            CharNgram.from_arpa(path)
    with pytest.raises(FadaError, match="cannot be read"):
        CharNgram.from_arpa(tmp_path / "missing.arpa")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"order": 0}, "order is 0"),
        ({"smoothing": "laplace"}, "smoothing is 'laplace'"),
        ({"texts": "one string"}, "one string"),
    ],
)
def test_impossible_training_is_refused(arguments: dict, message: str) -> None:
    with pytest.raises(FadaError, match=message):
        CharNgram.train(**{"texts": ["a"], **arguments})


@pytest.mark.parametrize("share", [0.05, 0.5, 0.99])
def test_a_model_file_cut_off_is_refused_in_a_sentence(tmp_path: Path, share: float) -> None:
    path = tmp_path / "lm.npz"
    CharNgram.train(["a"], 2).save(path)
    data = path.read_bytes()
    path.write_bytes(data[: int(len(data) * share)])
    with pytest.raises(FadaError, match=r"lm\.npz: not a language model"):
        CharNgram.load(path)


def test_impossible_mixtures_are_refused() -> None:
    with pytest.raises(FadaError, match="weight is 2"):
        CharNgram.train(["a"], 1).interpolate(CharNgram.train(["a"], 1), 2)
    with pytest.raises(FadaError, match="no text"):
        CharNgram.train(["a"], 1).perplexity([])


def test_prior_correction_is_the_log_ratio_of_frequencies() -> None:
    target = CharDistribution(("a", "b", "c"), np.array([8, 1, 1]))
    train = CharDistribution(("a", "b", "c"), np.array([50, 25, 25]))
    assert prior_weights(target, train) == pytest.approx(np.log([0.8 / 0.5, 0.1 / 0.25, 0.1 / 0.25]))


def test_prior_correction_stays_finite_and_silent_about_the_unseen() -> None:
    target = CharDistribution(("a", "b", "c", "d", OTHER), np.array([9, 0, 0, 1, 0]))
    train = CharDistribution(("a", "b", "e"), np.array([500, 499, 1]))
    weights = prior_weights(target, train)
    assert np.isfinite(weights).all()
    assert weights[1] == pytest.approx(math.log(0.05 / 0.499))
    assert weights[2] == 0
    assert weights[3] > 0
    assert weights[4] == pytest.approx(0)


def test_prior_correction_wants_one_normaliser() -> None:
    with pytest.raises(FadaError, match="another normaliser"):
        prior_weights(
            CharDistribution.from_texts(["a"]), CharDistribution.from_texts(["a"], TextNormalizer(case="keep"))
        )


@pytest.mark.parametrize("order", [2, 4])
@pytest.mark.parametrize("text", ["abracadabra", "cab", "a barbarian"])
def test_what_is_assumed_is_divided_out_of_every_character(order: int, text: str) -> None:
    own = CharNgram.train(LINES, order, "kneser-ney").interpolate(CharNgram.train(LINES[:3], order, "kneser-ney"))
    assumed = CharNgram.train(["barbara", "abc abc", "a cad in a barn"], 2, "kneser-ney")
    beyond = own.over(assumed, 0.4)
    # After the first character every context is known to the models: what is left is the recursion by hand.
    marked = [math.log(assumed.distribution(text[:i])[c]) for i, c in enumerate(text)]
    assert beyond.log_prob(text) == pytest.approx(own.log_prob(text) - 0.4 * sum(marked))
    assert own.over(assumed, 0).log_prob(text) == pytest.approx(own.log_prob(text))


def test_what_is_rare_in_both_costs_less_than_what_is_rare_in_the_text_alone() -> None:
    own = CharNgram.train(["abab abab abab", "ab/ab"], 3, "kneser-ney")
    common, rare = (CharNgram.train([line] * 3, 2, "kneser-ney") for line in ("ab/ab/ab/", "abababab/"))
    costs = [m.log_prob("ab/") - m.log_prob("ab") for m in (own.over(common, 0.4), own.over(rare, 0.4))]
    assert costs[0] < costs[1]
    with pytest.raises(FadaError, match="not a mixture"):
        own.over(common.interpolate(rare), 0.4)
