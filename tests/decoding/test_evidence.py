"""Which language a document is in, told by its emissions; and the weights that follow from it."""

import math
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest

from fada.decoding.defaults import certainty_of, weights_for
from fada.decoding.evidence import Automatic, centuries, infer
from fada.decoding.knowledge import OVER, Decoder, Knowledge, load_knowledge, read_knowledge
from fada.decoding.lm import CharNgram
from fada.decoding.weights import Weights
from fada.errors import FadaError
from fada.targets.distribution import CharDistribution
from fada.targets.target_set import TargetSet
from fada.text.alphabet import Alphabet
from tests.support.ink import written
from tests.support.languages import ENGLISH, FRENCH, LATIN, SYMBOLS
from tests.support.types import some

ALPHABET = Alphabet(SYMBOLS, 0)


def page(text: str, doubt: float = 0.1) -> list[np.ndarray]:
    words = " ".join(text.split())
    return [written(words[i : i + 40], SYMBOLS, doubt, seed=i) for i in range(0, len(words), 40)]


@pytest.fixture(scope="module")
def known() -> dict[str, Knowledge]:
    return {name: read_knowledge(name) for name in ("la", "fr", "es", "it")}


def test_a_latin_page_is_read_as_latin_and_a_french_one_as_french(known: Mapping[str, Knowledge]) -> None:
    for text, language in ((LATIN, "la"), (FRENCH, "fr")):
        found = infer(ALPHABET, page(text, 0.3), known)
        assert found.best == language, str(found)
        assert found.certainty > 0.9
        assert found.knowledge is known[language]
        assert sum(found.probabilities) == pytest.approx(1)
        assert str(found).startswith(f"{language} (certainty")


def test_no_language_model_where_none_fits(known: Mapping[str, Knowledge]) -> None:
    noise = [np.log(np.random.default_rng(i).dirichlet(np.full(len(SYMBOLS), 0.3), 60)) for i in range(8)]
    for lines in (page(ENGLISH), noise, [written("", SYMBOLS)], []):
        found = infer(ALPHABET, lines, known)
        assert not found.fits
        assert found.best is None
        assert found.knowledge is None


def test_two_languages_that_explain_a_page_equally_are_mixed(known: Mapping[str, Knowledge]) -> None:
    same = {"one": known["la"], "two": known["la"]}
    found = infer(ALPHABET, page(LATIN), same)
    assert found.probabilities == pytest.approx((0.5, 0.5))
    assert len(some(some(found.knowledge).global_lm).components) == 2


def test_a_century_is_no_candidate_beside_its_language(known: Mapping[str, Knowledge]) -> None:
    found = infer(ALPHABET, page(LATIN), {**known, "la-13": read_knowledge("la-13")})
    assert "la-13" not in found.names


def test_a_century_that_is_told_is_read_within_its_language(known: Mapping[str, Knowledge]) -> None:
    century = read_knowledge("la-13")
    told = Automatic({**known, "la-13": century}).decide(ALPHABET, page(LATIN), "la-13")
    mixed = some(known["la"].global_lm).interpolate(some(century.global_lm), 0.3)
    assert some(told.knowledge.global_lm).log_prob("et deus") == pytest.approx(mixed.log_prob("et deus"))
    assert told.knowledge.name == "la-13"
    assert told.weights == Automatic(known).decide(ALPHABET, page(LATIN), "la").weights
    given = load_knowledge(stored="la-13")
    assert some(given.global_lm).log_prob("et deus") == pytest.approx(mixed.log_prob("et deus"))


def test_a_decision_is_the_same_when_it_is_taken_up_again(known: Mapping[str, Knowledge]) -> None:
    automatic = Automatic(known, asked={"beam": 3})
    decision = automatic.decide(ALPHABET, page(LATIN))
    assert decision.weights.beam == 3
    again = Automatic(known, asked={"beam": 3}).restored(decision.record())
    assert (again.weights, str(again)) == (decision.weights, str(decision))
    assert again.knowledge.fingerprint() == decision.knowledge.fingerprint()


def test_what_is_told_goes_before_what_is_found(known: Mapping[str, Knowledge]) -> None:
    assert Automatic(known).decide(ALPHABET, page(LATIN), "fr").knowledge is known["fr"]
    assert Automatic(known).decide(ALPHABET, page(LATIN), "fr-12").knowledge is known["fr"]
    assert Automatic(known).decide(ALPHABET, page(LATIN), "13").knowledge is known["la"]
    assert Automatic(given=known["it"]).decide(ALPHABET, page(LATIN)).knowledge is known["it"]
    guided = Automatic(given=known["it"], asked={"lam": 0.5}).decide(ALPHABET, page(LATIN)).weights
    alone = Automatic(given=known["it"]).decide(ALPHABET, page(LATIN)).weights
    assert guided.lm_weight == pytest.approx(0.5 * alone.lm_weight)


def test_the_century_is_told_by_its_frequencies() -> None:
    early, late = CharDistribution.from_counts({"a": 60, "b": 40}), CharDistribution.from_counts({"a": 40, "b": 60})
    told = dict(centuries(TargetSet({"xx-11": early, "xx-15": late}), ["aab", "ab a"]))
    # Smoothed with a hundred characters of the language, which has both alike; four a and two b were read.
    p_early, p_late = (60 + 50) / 200, (40 + 50) / 200
    log_odds = (4 - 2) * (math.log(p_early) - math.log(p_late)) / 16
    assert math.log(told["xx-11"] / told["xx-15"]) == pytest.approx(log_odds)
    assert sum(told.values()) == pytest.approx(1)
    assert centuries(TargetSet({"xx": early}), ["ab"]) == ()
    assert centuries(None, ["ab"]) == ()


def test_language_and_century_are_told_with_their_certainty(known: Mapping[str, Knowledge]) -> None:
    found = infer(ALPHABET, page(LATIN, 0.3), known)
    assert {name.partition("-")[0] for name, _ in found.centuries} == {"la"}
    assert ", perhaps la-" in str(found)
    assert [p for _, p in found.centuries] == sorted((p for _, p in found.centuries), reverse=True)


def test_what_the_recogniser_has_learnt_is_divided_out_where_it_is_known(known: Mapping[str, Knowledge]) -> None:
    learnt = CharNgram.train(LATIN.splitlines(), 2, "kneser-ney")
    trained = {name: one.with_prior(None, learnt) for name, one in known.items()}
    decision = Automatic(trained).decide(ALPHABET, page(LATIN, 0.3))
    assert decision.weights.lm == "over"
    read = decision.knowledge.lm_of("over", None)
    assert some(read).log_prob("et deus") == some(known["la"].global_lm).over(learnt, OVER).log_prob("et deus")
    assert decision.knowledge.lm_of("over", None) is read, "one automaton serves every batch"
    assert decision.knowledge.fingerprint() != known["la"].fingerprint()
    mixed = infer(ALPHABET, page(LATIN), {"one": trained["la"], "two": trained["la"]}).knowledge
    assert some(mixed).assumed is learnt
    with pytest.raises(FadaError, match="not known here"):
        known["la"].lm_of("over", None)


def test_a_decoder_keeps_what_the_recogniser_has_learnt(tmp_path: Path) -> None:
    learnt = CharNgram.train(FRENCH.splitlines(), 2, "kneser-ney")
    text = Knowledge.from_texts(LATIN.splitlines(), name="la").with_prior(None, learnt)
    Decoder(weights_for(text.characters, 0.8, over=True), text).save(tmp_path)
    again = some(Decoder.of_model(tmp_path))
    assert again.weights.lm == "over"
    expected = some(text.lm_of("over", None)).log_prob("et deus")
    assert some(again.knowledge.lm_of("over", None)).log_prob("et deus") == pytest.approx(expected, abs=1e-4)


def test_more_text_counts_more_and_certainty_less() -> None:
    by_text = [weights_for(characters, 0.8).lm_weight for characters in (500, 2_000, 8_000, 30_000, 10**6, 10**9)]
    assert by_text == sorted(by_text)
    by_certainty = [weights_for(30_000, certainty).lm_weight for certainty in (0.5, 0.8, 0.9, 0.95, 1.0)]
    assert by_certainty == sorted(by_certainty, reverse=True)
    assert 0 < by_certainty[-1] < by_certainty[0]
    assert weights_for(0, 0.5) == Weights(beam=16)


def test_certainty_is_the_mean_of_the_best_class_where_it_is_no_blank() -> None:
    lines = [np.log(np.random.default_rng(i).dirichlet(np.full(5, 0.4), 30)) for i in range(3)]
    blanks = np.bincount(np.concatenate([line.argmax(1) for line in lines])).argmax()
    best = [math.exp(max(row)) for line in lines for row in line.tolist() if np.argmax(row) != blanks]
    assert certainty_of(lines) == pytest.approx(sum(best) / len(best))
    assert certainty_of([]) == 1.0
