"""The compiled search against a dictionary beam with brute-force scores, and against all paths."""

import itertools
import math
import pickle
from collections.abc import Callable, Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from fada.decoding.ctc import CTCBeamDecoder, Hypothesis
from fada.errors import FadaError
from fada.guidance import Constraint, Guidance
from fada.lm import CharNgram, prior_weights
from fada.targets import CharDistribution
from fada.text import TextNormalizer

PLAIN = TextNormalizer(form="NFC", case="keep")
Scorer = Callable[[tuple[int, ...], float], float]


def random_log_probs(
    rng: np.random.Generator, T: int, V: int, dtype: type = np.float64, zeros: bool = False
) -> np.ndarray:
    p = rng.dirichlet(np.full(V, 0.5), T) + 1e-9
    if zeros and T:
        p[int(rng.integers(T)), int(rng.integers(V))] = 0
    with np.errstate(divide="ignore"):
        return np.log(p / p.sum(axis=1, keepdims=True)).astype(dtype)


def random_target(rng: np.random.Generator, symbols: Sequence[str], normalizer: TextNormalizer) -> CharDistribution:
    characters = sorted({c for s in symbols for c in normalizer(s)}) or ["a"]
    known = characters[: max(1, int(rng.integers(1, len(characters) + 1)))]
    return CharDistribution(tuple(known), rng.integers(1, 30, len(known)), normalizer)


def definition(decoder: CTCBeamDecoder, target: CharDistribution | None, lm: CharNgram | None) -> Scorer:
    """The score of label sequences, recomputed from their text with nothing incremental."""
    steps = decoder._steps_for(PLAIN if target is None else target.normalizer)
    known: dict[str, float] = {}
    guidance = None
    weights = None
    if target is not None:
        guidance = Guidance(target, decoder.lam, decoder.distance, decoder.scale).covering(steps.characters)
        if decoder.prior is not None:
            weights = prior_weights(guidance.target, decoder.prior)
    constraint = Constraint(steps.normalizer, decoder.forbidden, decoder.allowed)

    def of_text(text: str) -> float:
        value = decoder.length_bonus * len(text)
        if guidance is not None:
            value -= guidance.weight * guidance.distance_of(text)
        if weights is not None and guidance is not None:
            value += decoder.prior_weight * sum(weights[guidance.cell(c)] for c in guidance.target.normalizer(text))
        if lm is not None:
            value += decoder.lm_weight * lm.log_prob(text)
        return value if constraint.permits(text) else -math.inf

    def score(labels: tuple[int, ...], log_prob: float) -> float:
        text = "".join(decoder.symbols[c] for c in labels)
        if text not in known:
            known[text] = of_text(text)
        return (1.0 if guidance is None else guidance.lam) * log_prob + known[text]

    return score


def dictionary_beam(log_probs: np.ndarray, blank: int, beam: int, score: Scorer) -> list[tuple[float, float, tuple]]:
    """Prefix beam search as in the textbook: (score, log_prob, labels), best first."""
    log_probs = log_probs.astype(np.float64)
    beams = {(): (0.0, -math.inf)}
    for row in log_probs:
        grown: dict[tuple[int, ...], list[float]] = {}
        for labels, (with_blank, with_label) in beams.items():
            both = np.logaddexp(with_blank, with_label)
            here = grown.setdefault(labels, [-math.inf, -math.inf])
            here[0] = np.logaddexp(here[0], both + row[blank])
            if labels:
                here[1] = np.logaddexp(here[1], with_label + row[labels[-1]])
            for c in range(len(row)):
                if c != blank:
                    there = grown.setdefault((*labels, c), [-math.inf, -math.inf])
                    source = with_blank if labels and labels[-1] == c else both
                    there[1] = np.logaddexp(there[1], source + row[c])
        totals = {labels: float(np.logaddexp(*parts)) for labels, parts in grown.items()}
        alive = [labels for labels, total in totals.items() if total > -math.inf]
        scores = {labels: score(labels, totals[labels]) for labels in alive}
        best = sorted((x for x in alive if scores[x] > -math.inf), key=lambda x: -scores[x])[:beam]
        beams = {labels: tuple(grown[labels]) for labels in best}
    final = [(float(np.logaddexp(*parts)), labels) for labels, parts in beams.items()]
    return sorted(((score(labels, total), total, labels) for total, labels in final), reverse=True)


def assert_same(decoded: list[Hypothesis], expected: list[tuple[float, float, tuple]], tolerance: float = 1e-6) -> None:
    assert len(decoded) == len(expected)
    gaps = [expected[i][0] - expected[i + 1][0] for i in range(len(expected) - 1)] + [math.inf]
    for i, (hypothesis, (score, log_prob, labels)) in enumerate(zip(decoded, expected, strict=True)):
        assert hypothesis.score == pytest.approx(score, abs=tolerance)
        if min(gaps[i], gaps[i - 1] if i else math.inf) > 1e-9:  # otherwise a tie: either order is right
            assert hypothesis.labels == labels
            assert hypothesis.log_prob == pytest.approx(log_prob, abs=tolerance)


def lm_for(rng: np.random.Generator, symbols: Sequence[str], k: int) -> CharNgram:
    lines = ["".join(rng.choice(list(symbols), int(rng.integers(1, 12)))) for _ in range(12)]
    model = CharNgram.train([x for x in lines if x] or ["a"], order=1 + k % 4, smoothing=("witten-bell", "kneser-ney")[k % 2])
    return model.interpolate(CharNgram.train(["abab", "cab"], order=3), 0.4) if k % 3 == 0 else model


SYMBOL_SETS = {
    "single characters": ["a", "b", "c", "d", "e"],
    "several characters": ["a", "ab", "", "ccc", "B"],
    "combining marks": ["e", "\u0301", "\u0323", "o", "\u0301\u0323"],
    "precomposed and combining": ["é", "e", "\u0301", "E", "\u0302"],
    "spaces": ["a", " ", "b ", " c", "\t"],
    "hangul jamo": ["\u1100", "\u1161", "\u11a8", "\uac00", "a"],
    "expanding and vanishing": ["ﬀ", "İ", "7", "ß", "\u0345"],
    "the same twice": ["a", "a", "b", "", ""],
}
NORMALIZERS = [
    TextNormalizer(),
    PLAIN,
    TextNormalizer(form="NFD"),
    TextNormalizer(form="NFKC", letters_only=True),
    TextNormalizer(spaces="collapse"),
    TextNormalizer(spaces="drop", marks="fold"),
    TextNormalizer(form="none", case="keep"),
]


def random_case(seed: int, names: Sequence[str], distances: Sequence[str]) -> None:
    rng = np.random.default_rng(seed)
    pool = SYMBOL_SETS[names[seed % len(names)]]
    V = int(rng.integers(2, len(pool) + 2))
    blank = int(rng.integers(0, V))
    symbols = list(rng.permutation(pool)[: V - 1])
    symbols.insert(blank, "<blank>")
    written = [s for i, s in enumerate(symbols) if i != blank]
    T = int(rng.integers(0, 8))
    dtype = (np.float32, np.float64)[seed % 2]
    log_probs = random_log_probs(rng, T, V, dtype, zeros=seed % 7 == 0)
    normalizer = NORMALIZERS[int(rng.integers(len(NORMALIZERS)))]
    target = None if seed % 5 == 0 else random_target(rng, written, normalizer)
    extras = seed % 4
    lm = lm_for(rng, written, seed) if extras in (1, 3) else None
    decoder = CTCBeamDecoder(
        symbols,
        blank=blank,
        beam_size=int(rng.integers(1, 9)),
        target=target,
        lam=float(rng.choice([0.02, 0.3, 0.7, 1.0])),
        distance=distances[int(rng.integers(len(distances)))],
        scale=float(rng.choice([1.0, 30.0])),
        lm=lm,
        lm_weight=float(rng.uniform(0.1, 1.5)) if lm else 0.0,
        prior=random_target(rng, written, normalizer) if extras >= 2 and target else None,
        prior_weight=float(rng.uniform(-1, 1)) if extras >= 2 and target else 0.0,
        length_bonus=float(rng.uniform(-0.5, 1)) if extras == 3 else 0.0,
        forbidden=("c", "é", "ẹ") if seed % 3 == 0 else (),
        allowed=set("abde\u0301 ") if seed % 11 == 0 else None,
        threads=1,
    )
    expected = dictionary_beam(log_probs, blank, decoder.beam_size, definition(decoder, target, lm))
    decoded = decoder.decode(log_probs, nbest=decoder.beam_size)
    if not expected:
        assert [h.log_prob for h in decoded] == [-math.inf]
        return
    assert_same(decoded, expected, 1e-6)


@pytest.mark.parametrize("block", range(10))
def test_search_equals_a_dictionary_beam_with_brute_force_distances(block: int) -> None:
    for seed in range(block * 200, block * 200 + 200):
        random_case(seed, list(SYMBOL_SETS), ["sorted_w2", "aligned_w2"])


def test_other_distances_are_exact_too() -> None:
    for seed in range(5000, 5150):
        random_case(seed, list(SYMBOL_SETS), ["js", "kl", "w1"])
