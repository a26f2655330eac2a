"""Searches over emissions and n-best lists under any weights, and what is kept of them."""

import gc
import json
import weakref
from pathlib import Path

import numpy as np
import pytest

import fada
from fada.decoding.guidance import Guidance
from fada.decoding.hypothesis import Hypothesis
from fada.decoding.knowledge import Knowledge
from fada.decoding.nbest import NBest, Rescorer, adaptive_lam
from fada.decoding.search import BeamSearch, Search, Stored
from fada.decoding.weights import Weights
from fada.errors import FadaError
from tests.support.emission_sets import make_emissions, training_texts

GUIDED = Weights(lam=0.5, distance="aligned_w2", scale=30.0)
WEIGHTS = [Weights(), Weights(beam=2), GUIDED, Weights(prior_weight=0.5), Weights(lm="domain", lm_weight=0.3)]


@pytest.fixture(scope="module")
def knowledge() -> Knowledge:
    return Knowledge.from_texts(training_texts(), order=3)


def nbest_of(search: BeamSearch) -> NBest:
    found = [search._decoder.decode_batch(search.emissions.log_probs, nbest=3)][0]
    texts = [[h.text for h in lists] for lists in found]
    return NBest(search.ids, texts, [[h.log_prob for h in lists] for lists in found], search.references, search.domains)


@pytest.fixture(params=["ctc", "nbest"])
def search(request: pytest.FixtureRequest, knowledge: Knowledge) -> Search:
    beam = BeamSearch(make_emissions(3, 4), knowledge, 1)
    return beam if request.param == "ctc" else Rescorer(nbest_of(beam), knowledge)


def test_every_search_keeps_to_the_protocol(search: Search, tmp_path: Path) -> None:
    for one in (search, Stored(search, tmp_path)):
        assert isinstance(one, Search)
        assert one.choose(GUIDED) == [hypothesis.text for hypothesis in one.hypotheses(GUIDED)]
        assert len(one.greedy()) == len(one.ids) == len(one.references or ()) == len(one.domains)


def test_guided_scores_are_eq_2_in_every_search(search: Search) -> None:
    for hypothesis in search.hypotheses(GUIDED):
        assert hypothesis.distance is not None
        assert hypothesis.score == pytest.approx(0.5 * hypothesis.log_prob - 0.5 * 30 * hypothesis.distance)


@pytest.mark.parametrize("weights", WEIGHTS, ids=lambda weights: weights.name)
def test_what_is_kept_is_what_was_found(search: Search, tmp_path: Path, weights: Weights) -> None:
    found = search.hypotheses(weights)
    for _ in range(2):
        kept = Stored(search, tmp_path).hypotheses(weights)
        for name in ("text", "score", "log_prob", "distance", "lm_log_prob"):
            assert [getattr(h, name) for h in kept] == [getattr(h, name) for h in found]


def test_a_setting_is_searched_once_and_again_for_other_lines_or_knowledge(
    tmp_path: Path, knowledge: Knowledge
) -> None:
    class Counted(BeamSearch):
        calls = 0

        def hypotheses(self, weights: Weights, alignment: bool = False) -> list[Hypothesis]:
            Counted.calls += 1
            return super().hypotheses(weights, alignment)

    def calls(seed: int, known: Knowledge, weights: Weights = GUIDED) -> int:
        Counted.calls = 0
        Stored(Counted(make_emissions(seed, 3), known, 1), tmp_path).choose(weights)
        return Counted.calls

    other = Knowledge.from_texts({"12": ["abab"], "13": ["hede"]}, order=3)
    plain = Weights()
    assert [calls(3, knowledge), calls(3, knowledge)] == [1, 0]
    assert [calls(4, knowledge), calls(4, other), calls(4, other)] == [1, 1, 0]
    assert [calls(4, knowledge, plain), calls(4, other, plain)] == [1, 0]  # without knowledge, none can have changed


def test_a_damaged_file_is_found_anew(tmp_path: Path, knowledge: Knowledge) -> None:
    search = BeamSearch(make_emissions(3, 3), knowledge, 1)
    expected = Stored(search, tmp_path).choose(GUIDED)
    (path,) = tmp_path.iterdir()
    for damage in ("", "[]", path.read_text(encoding="utf-8")[:-40]):
        path.write_text(damage, encoding="utf-8")
        assert Stored(search, tmp_path).choose(GUIDED) == expected
        assert json.loads(path.read_text(encoding="utf-8"))["lines"]


def test_a_language_model_is_let_go_with_the_knowledge_that_holds_it() -> None:
    knowledge = Knowledge.from_texts(training_texts(), order=3)
    BeamSearch(make_emissions(3, 2), knowledge, 1).choose(Weights(lm="global", lm_weight=0.5))
    model = weakref.ref(knowledge.global_lm)
    del knowledge
    gc.collect()
    assert model() is None


def test_what_a_search_cannot_follow_is_named(knowledge: Knowledge) -> None:
    search = BeamSearch(make_emissions(3, 2), Knowledge(), 1)
    with pytest.raises(FadaError, match="need a target file"):
        search.check(GUIDED)
    search.terms = frozenset({"lam", "scale", "distance", "beam"})
    with pytest.raises(FadaError, match="ask for length_bonus, which a model of this kind"):
        search.check(Weights(length_bonus=1.0, beam=9))
    search.check(Weights(beam=9))


def test_an_adaptive_lambda_gives_both_terms_the_weight_that_is_asked_for() -> None:
    log_probs, distances = np.array([-3.0, -5.0, -9.0]), np.array([0.004, 0.001, 0.002])
    for asked in (0.2, 0.5, 0.9):
        lam = adaptive_lam(log_probs, distances, asked)
        assert (lam * log_probs.std()) / ((1 - lam) * distances.std()) == pytest.approx(asked / (1 - asked))
    assert adaptive_lam(log_probs, np.zeros(3), 0.5) == 0  # no guidance to weigh
    assert adaptive_lam(log_probs[:1], distances[:1], 0.3) == 0.3  # nothing varies
    assert adaptive_lam(log_probs, distances, 1.0) == 1


def test_adaptive_rescoring_chooses_by_the_lambda_of_each_line() -> None:
    target = fada.TargetSet.from_texts({"x": ["aab"]})
    texts, values = [["abb", "aab"], ["bbb", "aab"]], [[-1.0, -1.5], [-1.0, -9.0]]
    lists = NBest(["1", "2"], texts, values, domains=["x", "x"])
    weights = Weights(lam=0.4, distance="aligned_w2")
    adaptive = Rescorer(lists, Knowledge(target), adaptive=True)
    assert Rescorer(lists, Knowledge(target)).choose(weights) == ["abb", "bbb"]  # the distance is too small to matter
    assert adaptive.choose(weights) == ["aab", "aab"]
    for line, found in zip(range(2), adaptive.hypotheses(weights), strict=True):
        far = np.array([Guidance(target["x"], distance="aligned_w2").distance_of(text) for text in texts[line]])
        lam = adaptive_lam(np.array(values[line]), far, 0.4)
        assert found.score == pytest.approx(max(lam * np.array(values[line]) - (1 - lam) * far))
