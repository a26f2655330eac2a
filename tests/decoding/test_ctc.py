"""The compiled search against a dictionary beam with brute-force scores, and against all paths."""

import gc
import itertools
import math
import os
import pickle
import signal
import time
import weakref
from collections import defaultdict
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from fada.decoding.ctc import CTCBeamDecoder
from fada.decoding.guidance import Constraint, Guidance
from fada.decoding.hypothesis import Alignment, Hypothesis
from fada.decoding.kernels.ctc import search_lines
from fada.decoding.kernels.records import GENERAL
from fada.decoding.lm import CharNgram, prior_weights
from fada.decoding.steps import StepTable, SymbolSteps
from fada.errors import FadaError
from fada.targets.distribution import CharDistribution
from fada.targets.target_set import TargetSet
from fada.text.normalizer import TextNormalizer
from tests.support.types import some

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
    beams: dict[tuple[int, ...], tuple[float, float]] = {(): (0.0, -math.inf)}
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
        totals = {labels: float(np.logaddexp(a, b)) for labels, (a, b) in grown.items()}
        alive = [labels for labels, total in totals.items() if total > -math.inf]
        scores = {labels: score(labels, totals[labels]) for labels in alive}
        best = sorted((x for x in alive if scores[x] > -math.inf), key=lambda x: -scores[x])[:beam]
        beams = {labels: (grown[labels][0], grown[labels][1]) for labels in best}
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
    model = CharNgram.train(
        [x for x in lines if x] or ["a"], order=1 + k % 4, smoothing=("witten-bell", "kneser-ney")[k % 2]
    )
    return model.interpolate(CharNgram.train(["abab", "cab"], order=3), 0.4) if k % 3 == 0 else model


SYMBOL_SETS = {
    "single characters": ["a", "b", "c", "d", "e"],
    "several characters": ["a", "ab", "", "ccc", "B"],
    "combining marks": ["e", "\u0301", "\u0323", "o", "\u0301\u0323"],
    "precomposed and combining": ["é", "e", "\u0301", "E", "\u0302"],
    "spaces": ["a", " ", "b ", " c", "\t"],
    "hangul jamo": ["\u1100", "\u1161", "\u11a8", "\uac00", "a"],
    "expanding and vanishing": ["ﬀ", "İ", "7", "ß", "\u0345"],
    "marks over gaps": ["a", "7", "\u0301", "7\u0301e", "= "],
    "composing signs": ["a", "=", "\u0338", "e7", "\u0301"],
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
    TextNormalizer(letters_only=True, spaces="collapse"),
    TextNormalizer(form="NFKC", spaces="collapse"),
]


def random_case(seed: int, names: Sequence[str], distances: Sequence[str], prior_weight: float = 1.0) -> None:
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
        scale=float(rng.choice([1.0, 30.0, 300.0])),
        lm=lm,
        lm_weight=float(rng.uniform(0.1, 1.5)) if lm else 0.0,
        prior=random_target(rng, written, normalizer) if extras >= 2 and target else None,
        prior_weight=prior_weight * float(rng.uniform(-1, 1)) if extras >= 2 and target else 0.0,
        length_bonus=float(rng.uniform(-0.5, 1)) if extras == 3 else 0.0,
        forbidden=("c", "é", "ẹ") if seed % 3 == 0 else (),
        allowed=set("abde\u0301 ") if seed % 11 == 0 else None,
        threads=1,
    )
    merged = decoder._classes.merged(log_probs)
    expected = dictionary_beam(merged, blank, decoder.beam_size, definition(decoder, target, lm))
    decoded = decoder.decode(log_probs, nbest=decoder.beam_size)
    if not expected:
        assert [h.log_prob for h in decoded] == [-math.inf]
        return
    assert_same(decoded, expected, 1e-6)


@pytest.mark.parametrize("block", range(10))
def test_search_equals_a_dictionary_beam_with_brute_force_distances(block: int) -> None:
    for seed in range(block * 200, block * 200 + 200):
        random_case(seed, list(SYMBOL_SETS), ["sorted_w2", "aligned_w2"])


def test_weights_of_characters_may_outweigh_the_recogniser() -> None:
    for seed in range(7000, 7600):
        if seed % 4 >= 2:
            random_case(seed, list(SYMBOL_SETS), ["sorted_w2", "aligned_w2"], prior_weight=20.0)


@pytest.mark.parametrize("normalizer", NORMALIZERS)
@pytest.mark.parametrize("name", SYMBOL_SETS)
def test_no_step_gains_more_than_is_said_of_its_tail(name: str, normalizer: TextNormalizer) -> None:
    rng = np.random.default_rng(len(name))
    symbols = ["<blank>", *SYMBOL_SETS[name]]
    steps = SymbolSteps(symbols, 0, normalizer)
    alphabet = sorted(steps.characters)
    table = StepTable(steps, alphabet, Constraint(normalizer, frozenset(), None))
    weights = rng.normal(0, 3, (2, len(alphabet)))
    V = len(symbols)
    for _ in range(2):
        most, arrays = table.most_gained(weights), table.arrays
        for state, tail in enumerate(table._tails[:60]):
            for c in range(1, V):
                if not (table.cell[c] == GENERAL or arrays.irregular[state]):
                    continue
                removed, added, _ = steps.step(tail if table.joins[c] or arrays.irregular[state] else "", symbols[c])
                gained = weights[:, [alphabet.index(x) for x in added]].sum(1)
                gained -= weights[:, [alphabet.index(x) for x in removed]].sum(1)
                if table.cell[c] >= 0:
                    gained -= weights[:, table.cell[c]]
                assert (gained <= most[:, state]).all()
        table.extend([s * V + c for s in range(len(table._tails)) for c in np.flatnonzero(table.joins).tolist()])


def test_other_distances_are_exact_too() -> None:
    for seed in range(5000, 5150):
        random_case(seed, list(SYMBOL_SETS), ["js", "kl", "w1"])


def all_paths(log_probs: np.ndarray, blank: int) -> dict[tuple[int, ...], float]:
    """log P of every label sequence, summed over all paths."""
    T, V = log_probs.shape
    sums: dict[tuple[int, ...], float] = {}
    for path in itertools.product(range(V), repeat=T):
        labels = tuple(c for c, _ in itertools.groupby(path) if c != blank)
        sums[labels] = sums.get(labels, 0.0) + math.exp(sum(log_probs[t, c] for t, c in enumerate(path)))
    return {labels: math.log(p) for labels, p in sums.items()}


@pytest.mark.parametrize("distance", ["sorted_w2", "aligned_w2"])
@pytest.mark.parametrize("with_lm", [False, True])
@pytest.mark.parametrize("symbols", [["", "a", "b"], ["", "e", "\u0301"], ["", "ab", "b"]])
def test_a_wide_beam_finds_the_best_of_all_paths(distance: str, with_lm: bool, symbols: list[str]) -> None:
    rng = np.random.default_rng(len(symbols[1]) + with_lm)
    for _ in range(6):
        log_probs = random_log_probs(rng, 6, 3)
        target = random_target(rng, symbols[1:], TextNormalizer())
        lm = lm_for(rng, symbols[1:], 2) if with_lm else None
        decoder = CTCBeamDecoder(
            symbols, beam_size=500, target=target, lam=0.3, distance=distance, scale=5.0, lm=lm, lm_weight=0.4
        )
        score = definition(decoder, target, lm)
        paths = all_paths(log_probs, 0)
        best = max(paths, key=lambda labels: score(labels, paths[labels]))
        found = decoder.decode(log_probs)[0]
        assert found.labels == best
        assert found.log_prob == pytest.approx(paths[best], abs=1e-9)
        assert found.score == pytest.approx(score(best, paths[best]), abs=1e-9)


@pytest.mark.parametrize("prefix", ["a", "ab", "b", "aa", "e", "e\u0301", "aab", "ccc", "x"])
@pytest.mark.parametrize("symbols", [["", "a", "b"], ["", "e", "\u0301"], ["", "ab", "b", "a"], ["", "a", "a", ""]])
def test_a_prefix_is_a_filter_of_all_texts(symbols: list[str], prefix: str) -> None:
    rng = np.random.default_rng(len(prefix))
    for k in range(3):
        log_probs = random_log_probs(rng, 5, len(symbols), (np.float32, np.float64)[k % 2], zeros=k == 1)
        target = random_target(rng, symbols[1:], TextNormalizer()) if k else None
        lm = lm_for(rng, [s for s in symbols[1:] if s], k) if k == 2 else None
        settings_: dict[str, Any] = {
            "lam": 0.3,
            "scale": 5.0,
            "lm": lm,
            "lm_weight": 0.4 if lm else 0.0,
            "beam_size": 400,
        }
        decoder = CTCBeamDecoder(symbols, target=target, **settings_)
        score = definition(decoder, target, lm)
        # Empty classes write nothing, as the blank; those that write the same are one.
        folded = [0 if i == 0 or not s else symbols.index(s) for i, s in enumerate(symbols)]
        sums: dict[tuple[int, ...], float] = {}
        for path in itertools.product(range(len(symbols)), repeat=5):
            labels = tuple(c for c, _ in itertools.groupby(map(folded.__getitem__, path)) if c)
            p = math.exp(sum(float(log_probs[t, c]) for t, c in enumerate(path)))
            if p > 0 and "".join(symbols[c] for c in labels).startswith(prefix):
                sums[labels] = sums.get(labels, 0.0) + p
        expected = sorted(((score(x, math.log(p)), math.log(p), x) for x, p in sums.items()), reverse=True)
        found = decoder.decode(log_probs, nbest=400, prefix=prefix)
        if not expected:
            assert [(h.text, h.log_prob) for h in found] == [("", -math.inf)]
            continue
        assert_same(found, expected, 1e-5)


def test_a_prefix_the_recogniser_does_not_believe_in_is_kept_by_a_small_beam() -> None:
    rng = np.random.default_rng(70)
    symbols = ["", *"abcdefghijklmnopqrstuvwxyz "]
    log_probs = np.log(rng.dirichlet(np.full(len(symbols), 0.02), 200) * 0.999 + 0.001 / len(symbols))
    target = CharDistribution.from_texts(["the quick brown fox jumps over the lazy dog"])
    for decoder in (CTCBeamDecoder(symbols), CTCBeamDecoder(symbols, target=target, lam=0.5, scale=20.0)):
        free = decoder.decode(log_probs)[0]
        assert decoder.decode(log_probs, prefix=free.text[:20])[0].score >= free.score - 1e-6
        typed = "zebra " * 8
        best, second = decoder.decode(log_probs, nbest=2, prefix=typed)
        assert best.text.startswith(typed)
        assert second.text.startswith(typed)
        assert len(best.text) > len(typed)
        assert -2000 < best.log_prob < free.log_prob
        every = decoder.replace(beam_size=200).decode(log_probs, prefix=typed)[0]
        assert every.score == pytest.approx(best.score, rel=0.01)
    with pytest.raises(FadaError, match="more than 256 ways"):
        CTCBeamDecoder(["", "a", "aa"]).decode(np.log(np.full((30, 3), 1 / 3)), prefix="a" * 20)


def test_long_lines_agree_with_the_dictionary_beam() -> None:
    rng = np.random.default_rng(3)
    symbols = ["", *"abcdefghijklmnopqrstuvwxyz ", "\u0301"]
    target = CharDistribution.from_texts(["the quick brown fox jumps over the lazy dog and eats"])
    for distance in ("sorted_w2", "aligned_w2"):
        decoder = CTCBeamDecoder(symbols, beam_size=6, target=target, lam=0.4, distance=distance, scale=20.0)
        log_probs = random_log_probs(rng, 60, len(symbols), np.float32)
        expected = dictionary_beam(log_probs, 0, 6, definition(decoder, target, None))
        assert_same(decoder.decode(log_probs, nbest=6), expected, 1e-5)


def test_score_is_equation_two() -> None:
    rng = np.random.default_rng(0)
    target = CharDistribution.from_texts(["abracadabra"])
    decoder = CTCBeamDecoder(["", "a", "b", "c"], target=target, lam=0.25, scale=3.0)
    for hypothesis in decoder.decode(random_log_probs(rng, 20, 4), nbest=5):
        guidance = Guidance(target, 0.25, scale=3.0)
        assert hypothesis.distance == pytest.approx(guidance.distance_of(hypothesis.text))
        assert hypothesis.score == pytest.approx(guidance.score(hypothesis.log_prob, hypothesis.text))


def test_lambda_one_is_plain_beam_search_and_still_tells_the_distance() -> None:
    log_probs = random_log_probs(np.random.default_rng(1), 25, 5)
    plain = CTCBeamDecoder(["", *"abcd"])
    target = CharDistribution.from_texts(["aabbccd"])
    one = plain.replace(target=target, lam=1.0).decode(log_probs, nbest=5)
    for a, b in zip(plain.decode(log_probs, nbest=5), one, strict=True):
        assert (a.text, a.score, a.log_prob) == (b.text, b.score, b.log_prob)
        assert a.distance is None
        assert b.distance == pytest.approx(Guidance(target).distance_of(b.text))


def test_lines_of_a_batch_have_the_distances_from_their_own_targets() -> None:
    rng = np.random.default_rng(2)
    targets = [CharDistribution.from_texts([text]) for text in ("aab", "abcd")]
    own = [targets[0], None, targets[1], targets[0]]
    lines = [random_log_probs(rng, 12, 5) for _ in own]
    found = CTCBeamDecoder(["", *"abcd"], lam=1.0).decode_batch(lines, targets=own, nbest=3)
    for hypotheses, target in zip(found, own, strict=True):
        for h in hypotheses:
            assert h.distance == (None if target is None else Guidance(target).distance_of(h.text))


def test_lambda_zero_looks_at_the_distance_alone_among_possible_texts() -> None:
    target = CharDistribution.from_texts(["ab"])
    with np.errstate(divide="ignore"):
        log_probs = np.log([[0.9, 0.1, 0.0], [0.9, 0.1, 0.0]])
    best = CTCBeamDecoder(["", "a", "b"], target=target, lam=0.0, distance="aligned_w2", beam_size=20).decode(log_probs)
    assert "b" not in best[0].text
    assert best[0].text == "a"


def test_each_line_of_a_batch_has_its_own_target_and_language_model() -> None:
    rng = np.random.default_rng(5)
    symbols = ["", *"abc"]
    lines = [random_log_probs(rng, int(rng.integers(0, 12)), 4, (np.float32, np.float64)[i % 2]) for i in range(40)]
    choices = [
        CharDistribution.from_texts(["aab"]),
        CharDistribution.from_texts(["cccab"]),
        CharDistribution.from_texts(["a"], TextNormalizer(case="keep")),
        None,
    ]
    models = [None, CharNgram.train(["abc", "cab"], 2), CharNgram.train(["bbb"], 3)]
    targets = [choices[i % 4] for i in range(40)]
    lms = [models[i % 3] for i in range(40)]
    decoder = CTCBeamDecoder(symbols, lam=0.3, scale=10.0, lm_weight=0.5)
    together = decoder.decode_batch(lines, targets, lms, nbest=3)
    for line, target, lm, found in zip(lines, targets, lms, together, strict=True):
        alone = decoder.replace(target=target, lm=lm).decode(line, nbest=3)
        assert [(h.text, h.score, h.log_prob, h.distance) for h in found] == [
            (h.text, h.score, h.log_prob, h.distance) for h in alone
        ]


def test_arrays_of_any_layout_are_read_as_what_they_hold() -> None:
    rng = np.random.default_rng(60)
    line = random_log_probs(rng, 30, 5, np.float32)
    unaligned = np.frombuffer(b"x" + line.tobytes(), np.uint8)[1:].view(np.float32).reshape(line.shape)
    frozen = line.copy()
    frozen.flags.writeable = False
    own_type = line.view(np.dtype(np.float32, metadata={"unit": "nat"}))
    wide = np.zeros((30, 9), np.float32)
    wide[:, 2:7] = line
    layouts = [
        line,
        unaligned,
        frozen,
        own_type,
        line.astype(">f4"),
        np.asfortranarray(line),
        wide[:, 2:7],
        np.concatenate([line, line])[:30],
        line[::-1][::-1],
        line.astype(np.float64),
        line.tolist(),
        torch.from_numpy(line),
    ]
    decoder = CTCBeamDecoder(["", *"abcd"])
    best = decoder.decode(line)[0]
    for alone in layouts:
        assert decoder.decode(alone)[0].text == best.text
    for found in decoder.decode_batch(layouts[:-2]):
        assert found[0].text == best.text
        assert found[0].score == pytest.approx(best.score, abs=1e-6)


@pytest.mark.parametrize("threads", [1, 2, 5])
def test_threads_do_not_change_results(threads: int) -> None:
    rng = np.random.default_rng(6)
    lines = [random_log_probs(rng, int(rng.integers(1, 60)), 5) for _ in range(70)]
    target = CharDistribution.from_texts(["abacad"])
    one = CTCBeamDecoder(["", *"abcd"], target=target, threads=1).decode_batch(lines)
    many = CTCBeamDecoder(["", *"abcd"], target=target, threads=threads).decode_batch(lines)
    assert [h[0].text for h in one] == [h[0].text for h in many]
    assert [h[0].score for h in one] == [h[0].score for h in many]


def _texts(decoder: CTCBeamDecoder, lines: Sequence[np.ndarray]) -> list[str]:
    return [found[0].text for found in decoder.decode_batch(lines)]


def test_batches_decoded_at_the_same_time_share_their_helpers() -> None:
    rng = np.random.default_rng(61)
    batches = [[random_log_probs(rng, int(rng.integers(1, 60)), 5) for _ in range(150)] for _ in range(6)]
    decoder = CTCBeamDecoder(["", *"abcd"], threads=3)
    alone = [_texts(decoder.replace(threads=1), lines) for lines in batches]
    with ThreadPoolExecutor(6) as pool:
        assert list(pool.map(lambda lines: _texts(decoder, lines), batches)) == alone


@pytest.mark.parametrize("alignment", [False, True])
@pytest.mark.parametrize("lam", [0.5, 1.0])
def test_single_calls_find_what_a_batch_finds(lam: float, alignment: bool) -> None:
    rng = np.random.default_rng(63)
    lines = [random_log_probs(rng, int(rng.integers(1, 40)), 5, (np.float32, np.float64)[i % 2]) for i in range(20)]
    lines += [random_log_probs(rng, 700, 5, np.float32), lines[3] + 7, lines[4][::2], np.asfortranarray(lines[5])]
    lines[6].flags.writeable = False
    target = CharDistribution.from_texts(["abacad"])
    settings_: list[dict[str, Any]] = [
        {},
        {"target": target, "lam": lam},
        {"lm": CharNgram.train(["abba", "dada"], 3), "lm_weight": 0.7, "lm_end": True, "length_bonus": 0.3},
    ]
    for chosen in settings_:
        decoder = CTCBeamDecoder(["", *"abcd"], threads=1, **chosen)
        together = [decoder.decode_batch([line], nbest=3, alignment=alignment)[0] for line in lines]
        with ThreadPoolExecutor(3) as pool:
            alone = list(pool.map(lambda line: decoder.decode(line, 3, alignment), lines))  # noqa: B023
        assert alone == together
        assert decoder.decode(lines[0]) == decoder.decode_batch(lines[:1])[0]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="the system has no fork")
def test_a_forked_process_has_helpers_of_its_own() -> None:
    rng = np.random.default_rng(62)
    lines = [random_log_probs(rng, 30, 5) for _ in range(100)]
    decoder = CTCBeamDecoder(["", *"abcd"], threads=2)
    expected = _texts(decoder, lines)
    child = os.fork()
    if child == 0:
        os._exit(int(_texts(decoder, lines) != expected))
    deadline = time.monotonic() + 240
    while (ended := os.waitpid(child, os.WNOHANG)) == (0, 0) and time.monotonic() < deadline:
        time.sleep(0.02)
    if ended == (0, 0):
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
    assert ended == (child, 0)


def test_a_hypothesis_is_plain_and_outlives_its_batch() -> None:
    rng = np.random.default_rng(21)
    target = CharDistribution.from_texts(["abca"])
    decoder = CTCBeamDecoder(["", "a", "bc"], target=target, lam=1.0)
    lines = [random_log_probs(rng, 12, 3) for _ in range(3)]
    freed = [weakref.ref(line) for line in lines]
    kept = decoder.decode_batch(lines, nbest=2, alignment=True)
    for (best, second), again in zip(kept, decoder.decode_batch(lines), strict=True):
        assert best._replace(alignment=None) == again[0] != second
        assert hash(best._replace(alignment=None)) == hash(again[0])
        copy = pickle.loads(pickle.dumps(best))
        assert copy == best
        assert copy.char_frames == best.char_frames
        with pytest.raises(AttributeError):
            best.text = "other"  # type: ignore[misc]
        with pytest.raises(FadaError, match="alignment=True"):
            again[0].char_frames  # noqa: B018
    lines.clear()
    gc.collect()
    assert [line() for line in freed] == [None] * 3


def test_texts_of_any_code_points_come_out_whole() -> None:
    symbols = ["", "\0", "\ud800", "\ufeff", "\U0001f600x", "", "e\u0301"]
    p = np.full((12, 7), 1e-4)
    p[np.arange(12), [1, 0, 2, 0, 3, 4, 5, 6, 0, 6, 1, 0]] = 1
    lines = [np.log(p / p.sum(axis=1, keepdims=True))] * 2
    for best, second in CTCBeamDecoder(symbols).decode_batch(lines, nbest=2):
        assert best.text == "\0\ud800\ufeff\U0001f600xe\u0301e\u0301\0"
        assert best.labels == (1, 2, 3, 4, 5, 6, 6, 1)
        assert second.text == "".join(symbols[c] for c in second.labels)


@pytest.mark.parametrize("threads", [1, 3])
def test_lines_that_need_another_round_are_finished_among_those_that_do_not(
    threads: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fada.decoding.batch._LINES_PER_CALL", 2)
    monkeypatch.setattr("fada.decoding.batch._DEPTH", 2)
    monkeypatch.setattr("fada.decoding.steps._PREPARED_STEPS", 0)
    rng = np.random.default_rng(22)
    symbols = ["", "e", "\u0301", "\u0323", "a"]
    lines = [random_log_probs(rng, int(rng.integers(0, 25)), 5, (np.float32, np.float64)[i % 2]) for i in range(24)]
    for i in range(0, 24, 3):
        lines[i] = lines[i] + 7  # logits
    with np.errstate(divide="ignore"):
        lines.append(np.log([[0.0, 1.0, 0.0, 0.0, 0.0]]))  # no path, for e is forbidden
    targets = [CharDistribution.from_texts([text]) for text in ("eéa", "ẹ")]
    chosen = [(*targets, None)[i % 3] for i in range(25)]
    settings_: dict[str, Any] = {"lam": 0.4, "scale": 9.0, "forbidden": "e", "beam_size": 4}
    together = CTCBeamDecoder(symbols, threads=threads, **settings_).decode_batch(lines, chosen, nbest=3)
    for line, target, found in zip(lines, chosen, together, strict=True):
        assert found == CTCBeamDecoder(symbols, target=target, threads=1, **settings_).decode(line, nbest=3)
    assert together[-1][0].log_prob == -math.inf


def test_forbidden_and_allowed_hold_inside_the_beam() -> None:
    rng = np.random.default_rng(8)
    log_probs = random_log_probs(rng, 40, 6)
    symbols = ["", "e", "E", "\u0301", "é", "a"]
    free = CTCBeamDecoder(symbols, beam_size=10)
    no_accents = free.replace(forbidden="é")
    for hypothesis in no_accents.decode(log_probs, nbest=10):
        assert "e\u0301" not in hypothesis.text
        assert "é" not in hypothesis.text
    only = free.replace(allowed="ea").decode(log_probs, nbest=10)
    assert all(set(h.text) <= {"e", "a"} for h in only)
    # Full beams all the same: the constraint acts in the search, not on its result.
    assert len(only) == 10
    lower = CharDistribution.from_texts(["eae"])
    guided = free.replace(target=lower, forbidden="e").decode(log_probs, nbest=10)
    assert not any("e" in h.text.lower() for h in guided)
    assert any("é" in h.text for h in guided)


def test_constraints_that_leave_no_path_give_an_impossible_empty_text() -> None:
    with np.errstate(divide="ignore"):
        log_probs = np.log([[0.0, 1.0], [0.5, 0.5]])
    (nothing,) = CTCBeamDecoder(["", "a"], forbidden="a").decode(log_probs, nbest=3, alignment=True)
    assert (nothing.text, nothing.log_prob, nothing.score) == ("", -math.inf, -math.inf)
    assert nothing.char_frames == nothing.char_confidences == ()


def test_frames_and_confidences_follow_the_text() -> None:
    p = np.full((7, 4), 0.01)
    for t, c in enumerate([0, 1, 1, 0, 2, 3, 0]):
        p[t, c] = 1
    p[2, 1] = 0.6
    p /= p.sum(axis=1, keepdims=True)
    best = CTCBeamDecoder(["", "a", "bc", ""]).decode(np.log(p), alignment=True)[0]
    assert best.text == "abc"
    assert best.labels == (1, 2, 3)
    assert best.label_frames == ((1, 3), (4, 5), (5, 6))
    assert best.char_frames == ((1, 3), (4, 5), (4, 5))
    assert best.char_confidences == pytest.approx([p[1, 1], p[4, 2], p[4, 2]])


def test_characters_meet_halfway_and_share_the_place_of_their_label() -> None:
    found = Alignment(((2, 3), (6, 8), (12, 13)), (1.0, 1.0, 1.0), (1, 2, 1), 20)
    assert found.edges == pytest.approx([edge / 20 for edge in (0.25, 4.5, 7.25, 10, 14.75)])
    assert Alignment(((0, 1),), (1.0,), (1,), 1).edges == (0, 1)
    assert Alignment((), (), (), 5).edges == ()
    rng = np.random.default_rng(5)
    for _ in range(20):
        best = CTCBeamDecoder(["", "a", "b", " "]).decode(random_log_probs(rng, 12, 4), alignment=True)[0]
        assert best.alignment is not None
        edges = best.alignment.edges
        assert len(edges) == len(best.text) + 1 or not best.text
        assert all(0 <= left < right <= 1 for left, right in itertools.pairwise(edges))
        for (start, end), left, right in zip(best.char_frames, edges, edges[1:], strict=False):
            assert left * 12 <= end
            assert start <= right * 12


def test_alignment_is_the_most_probable_path() -> None:
    rng = np.random.default_rng(9)
    for _ in range(20):
        log_probs = random_log_probs(rng, 6, 3)
        best = CTCBeamDecoder(["", "a", "b"]).decode(log_probs, alignment=True)[0]
        candidates = [
            (sum(log_probs[t, c] for t, c in enumerate(path)), path)
            for path in itertools.product(range(3), repeat=6)
            if tuple(c for c, _ in itertools.groupby(path) if c) == best.labels
        ]
        path = max(candidates)[1]
        runs = [(c, len(list(group))) for c, group in itertools.groupby(path)]
        starts = np.cumsum([0] + [n for _, n in runs]).tolist()
        expected = tuple((start, start + n) for (c, n), start in zip(runs, starts, strict=False) if c)
        assert best.label_frames == expected


def test_greedy_is_the_best_path() -> None:
    log_probs = np.log(np.array([[0.1, 0.8, 0.1], [0.1, 0.8, 0.1], [0.8, 0.1, 0.1], [0.1, 0.8, 0.1], [0.1, 0.1, 0.8]]))
    best = CTCBeamDecoder(["", "a", "b"]).greedy(log_probs, alignment=True)
    assert best.text == "aab"
    assert best.log_prob == pytest.approx(5 * math.log(0.8))
    assert best.char_frames == ((0, 2), (3, 4), (4, 5))


def test_zero_frames_read_as_nothing() -> None:
    target = CharDistribution.from_texts(["ab"])
    for dtype in (np.float32, np.float64):
        (best,) = CTCBeamDecoder(["", "a"], target=target).decode(np.empty((0, 2), dtype), nbest=4)
        assert (best.text, best.log_prob) == ("", 0.0)
        assert best.distance == pytest.approx(math.sqrt(0.25))
    assert CTCBeamDecoder(["", "a"]).decode_batch([]) == []
    assert CTCBeamDecoder(["", "a"]).greedy(np.empty((0, 2))).text == ""


def test_logits_are_normalised_and_read_the_same() -> None:
    rng = np.random.default_rng(11)
    log_probs = random_log_probs(rng, 30, 6)
    decoder = CTCBeamDecoder(["", *"abcde"], target=CharDistribution.from_texts(["abcde"]), lam=0.2, scale=9.0)
    expected = decoder.decode(log_probs)[0]
    for shifted in (log_probs + rng.normal(0, 30, (30, 1)), (log_probs - 500), log_probs + 1e4):
        found = decoder.decode(shifted)[0]
        assert found.text == expected.text
        assert found.log_prob == pytest.approx(expected.log_prob, abs=1e-6)


def test_any_blank_index_gives_the_same_reading() -> None:
    log_probs = random_log_probs(np.random.default_rng(12), 20, 4)
    expected = CTCBeamDecoder(["", *"abc"]).decode(log_probs)[0]
    for blank in range(4):
        order = [*range(1, 4)]
        order.insert(blank, 0)
        symbols = [["", *"abc"][i] for i in order]
        found = CTCBeamDecoder(symbols, blank=blank).decode(log_probs[:, order])[0]
        assert (found.text, found.log_prob) == pytest.approx((expected.text, expected.log_prob))


def test_torch_tensors_and_odd_memory_layouts_are_read() -> None:
    torch = pytest.importorskip("torch")
    log_probs = random_log_probs(np.random.default_rng(13), 20, 4, np.float32)
    decoder = CTCBeamDecoder(["", *"abc"])
    expected = decoder.decode(log_probs)[0]
    frozen = log_probs.copy()
    frozen.flags.writeable = False
    for same in (torch.tensor(log_probs), np.asfortranarray(log_probs), frozen, np.repeat(log_probs, 2, 0)[::2]):
        assert decoder.decode(same)[0] == expected
    assert decoder.decode(log_probs.astype(np.float16))[0].log_prob == pytest.approx(expected.log_prob, abs=0.1)


@pytest.mark.parametrize(
    ("log_probs", "message"),
    [
        (np.full((3, 2), np.nan), "frame 0, class 0: nan"),
        (np.array([[0.0, np.inf]]), "inf"),
        (np.full((2, 2), -np.inf), "every class has probability zero"),
        (np.zeros((3, 5)), "expected \\(frames, 2\\) for 2 symbols"),
        (np.zeros((2, 5)), "axes seem to be swapped"),
        (np.zeros(4), "shape \\(4,\\)"),
        (np.array([["a", "b"]]), "type <U1"),
        (np.full((3, 2), 0.5), "these are probabilities"),
    ],
)
def test_what_cannot_be_decoded_is_refused_with_a_reason(log_probs: np.ndarray, message: str) -> None:
    good = np.log(np.full((2, 2), 0.5))
    decoder = CTCBeamDecoder(["", "a"])
    with pytest.raises(FadaError, match=message):
        decoder.decode(log_probs)
    with pytest.raises(FadaError, match="line 1"):
        decoder.decode_batch([good, log_probs])
    reasons: dict[int, FadaError] = {}
    found = decoder.decode_batch([good, log_probs, good], ids=["x", "y", "z"], failed=reasons.__setitem__)
    assert [len(nbest) for nbest in found] == [1, 0, 1]
    assert list(reasons) == [1]
    assert str(reasons[1]).startswith("line 'y'")


@pytest.mark.parametrize(
    ("settings_", "message"),
    [
        ({"symbols": "abc"}, "one string"),
        ({"symbols": ["", 3]}, "symbol 1 is 3"),
        ({"blank": 2}, "blank is 2"),
        ({"beam_size": 0}, "beam_size is 0"),
        ({"lam": 1.5}, "lam is 1.5"),
        ({"scale": float("nan")}, "scale is nan"),
        ({"lm_weight": -1.0}, "lm_weight is -1.0"),
        ({"length_bonus": float("inf")}, "length_bonus is inf"),
        ({"threads": 0}, "threads is 0"),
        ({"distance": "w2", "target": CharDistribution.from_texts(["a"])}, "no form that follows a growing text"),
        ({"prior_weight": 1.0, "target": CharDistribution.from_texts(["a"])}, "prior"),
        ({"target": TargetSet.from_texts({"14": ["a"]})}, "the target is a TargetSet, expected .* one domain"),
    ],
)
def test_impossible_settings_are_refused(settings_: dict, message: str) -> None:
    with pytest.raises(FadaError, match=message):
        CTCBeamDecoder(**{"symbols": ["", "a"], **settings_})


def test_wrong_numbers_of_targets_and_unknown_settings_are_refused() -> None:
    decoder = CTCBeamDecoder(["", "a"])
    with pytest.raises(FadaError, match="2 targets for 1 lines"):
        decoder.decode_batch([np.log(np.full((2, 2), 0.5))], targets=[None, None])
    with pytest.raises(FadaError, match="the target is a str"):
        decoder.decode_batch([np.log(np.full((2, 2), 0.5))], targets=["14"])  # type: ignore[list-item]
    with pytest.raises(FadaError, match="unknown decoder setting 'beam'"):
        decoder.replace(beam=3)


def test_counts_beyond_the_prepared_depth_are_made_room_for(monkeypatch: pytest.MonkeyPatch) -> None:
    p = np.tile([[0.05, 0.95], [0.95, 0.05]], (40, 1))
    target = CharDistribution.from_texts(["ab"])
    expected = CTCBeamDecoder(["", "a"], target=target, lam=0.9).decode(np.log(p))[0]
    monkeypatch.setattr("fada.decoding.batch._DEPTH", 3)
    best = CTCBeamDecoder(["", "a"], target=target, lam=0.9).decode(np.log(p))[0]
    assert best == expected
    assert len(best.text) > 30
    assert best.distance == pytest.approx(Guidance(target).distance_of(best.text))


def test_the_text_of_the_blank_is_ignored() -> None:
    target = CharDistribution.from_texts(["a b"], TextNormalizer(spaces="collapse"))
    log_probs = random_log_probs(np.random.default_rng(4), 12, 4)
    odd = CTCBeamDecoder(["☃ \u0301", "a", " ", "b"], target=target).decode(log_probs, nbest=5)
    assert odd == CTCBeamDecoder(["", "a", " ", "b"], target=target).decode(log_probs, nbest=5)


def test_many_classes_are_searched_exactly_too() -> None:
    rng = np.random.default_rng(17)
    symbols = ["", *(chr(0x4E00 + i) for i in range(400))]
    target = CharDistribution(tuple(symbols[1:300]), rng.integers(1, 9, 299))
    lm = CharNgram.train(["".join(rng.choice(symbols[1:], 30)) for _ in range(10)], 2)
    decoder = CTCBeamDecoder(symbols, beam_size=4, target=target, lam=0.5, lm=lm, lm_weight=0.3)
    log_probs = random_log_probs(rng, 4, len(symbols))
    expected = dictionary_beam(log_probs, 0, 4, definition(decoder, target, lm))
    assert_same(decoder.decode(log_probs, nbest=4), expected)


@pytest.mark.parametrize(("beam", "classes"), [(12, 15), (13, 16), (13, 17), (32, 40), (40, 33)])
def test_few_some_and_many_hypotheses_and_blocks_of_classes_are_searched_exactly(beam: int, classes: int) -> None:
    rng = np.random.default_rng(beam + classes)
    decoder = CTCBeamDecoder(["", *(chr(0x61 + i) for i in range(classes - 1))], beam_size=beam)
    log_probs = random_log_probs(rng, 10, classes)
    expected = dictionary_beam(log_probs, 0, beam, definition(decoder, None, None))
    assert_same(decoder.decode(log_probs, nbest=beam), expected)


def test_one_compilation_serves_every_setting() -> None:
    lines = [np.log(np.full((3, 3), 1 / 3, dtype)) for dtype in (np.float32, np.float64)]
    targets = [CharDistribution.from_texts(["aab"]), CharDistribution.from_texts(["abb"])]
    lm = CharNgram.train(["ab"], 2).interpolate(CharNgram.train(["ba"], 3), 0.5)
    compiled = []
    for distance in ("sorted_w2", "js"):
        for symbols in (["", "a", "b"], ["a", "", "\u0301b"]):
            decoder = CTCBeamDecoder(symbols, symbols.index(""), lam=0.5, scale=2, distance=distance, forbidden="c")
            decoder.decode_batch(lines, targets)
            decoder.replace(lm=lm, lm_weight=1, prior=targets[0], prior_weight=1).decode_batch(lines, targets)
            compiled.append(set(search_lines.signatures))
    assert compiled == compiled[:1] * 4


def test_lines_of_both_precisions_are_read_as_each_alone() -> None:
    rng = np.random.default_rng(8)
    lines = [random_log_probs(rng, 9, 4, dtype) for dtype in (np.float32, np.float64, np.float32)]
    decoder = CTCBeamDecoder(["", "a", "b", "c"], beam_size=3)
    assert decoder.decode_batch(lines) == [decoder.decode(line) for line in lines]


log_probability_arrays = hnp.arrays(
    st.sampled_from([np.float32, np.float64]),
    st.tuples(st.integers(0, 12), st.just(4)),
    elements=st.floats(-200, 50, width=32) | st.just(-np.inf),
)
texts = st.text(st.sampled_from(" aAeé\u0301\u0345İßﬀ7\t\u1100\u1161"), max_size=3)


@settings(max_examples=150, deadline=None)
@given(
    log_probability_arrays,
    st.lists(texts, min_size=4, max_size=4),
    st.integers(0, 3),
    st.integers(1, 12),
    st.sampled_from(NORMALIZERS),
    st.sampled_from(["sorted_w2", "aligned_w2", "js", "kl", "w1"]),
    st.floats(0, 1),
)
def test_whatever_comes_in_the_score_of_what_comes_out_is_its_definition(
    log_probs: np.ndarray,
    symbols: list[str],
    blank: int,
    beam: int,
    normalizer: TextNormalizer,
    distance: str,
    lam: float,
) -> None:
    target = CharDistribution(("a", "é"), np.array([2.0, 1.0]), normalizer)
    decoder = CTCBeamDecoder(symbols, blank, beam, target=target, lam=lam, distance=distance, scale=3.0)
    if np.isneginf(log_probs).all(axis=1).any():
        with pytest.raises(FadaError, match="probability zero"):
            decoder.decode(log_probs)
        return
    if len(log_probs) and log_probs.min() >= 0:
        log_probs = log_probs - 1  # could be mistaken for probabilities
    found = decoder.decode(log_probs, nbest=beam, alignment=True)
    guidance = Guidance(target, lam, distance, 3.0).covering(decoder._steps_for(normalizer).characters)
    assert len({h.labels for h in found}) == len(found)
    assert [h.score for h in found] == sorted((h.score for h in found), reverse=True)
    for h in found:
        assert h.text == "".join(symbols[c] for c in h.labels)
        if h.log_prob > -math.inf:
            assert h.distance == pytest.approx(guidance.distance_of(h.text), abs=1e-6)
            assert h.score == pytest.approx(guidance.score(h.log_prob, h.text), abs=1e-6)
            assert len(h.char_frames) == len(h.char_confidences) == len(h.text)
            assert all(0 <= start < end <= len(log_probs) for start, end in h.char_frames)
            assert all(0 <= c <= 1 for c in h.char_confidences)


def test_bfloat16_tensors_are_decoded() -> None:
    log_probs = torch.log_softmax(torch.randn(6, 3, generator=torch.Generator().manual_seed(0)), -1)
    decoder = CTCBeamDecoder(["", "a", "b"])
    assert decoder.decode(log_probs.bfloat16())[0].text == decoder.decode(log_probs.bfloat16().float())[0].text


def test_a_prior_without_any_target_is_refused() -> None:
    decoder = CTCBeamDecoder(["", "a", "b"], prior=CharDistribution.from_texts(["ab"]), prior_weight=1.0)
    with pytest.raises(FadaError, match="no line has a target"):
        decoder.decode(np.log(np.full((4, 3), 1 / 3)))


def edited_target_and_emissions() -> tuple[CharDistribution, np.ndarray]:
    """Text of a, b and c, three frames in which b is a little more likely than c."""
    counted = CharDistribution.from_texts(["aabbbbcc"])
    frames = np.log(np.array([[0.1, 0.8, 0.05, 0.05], [0.02, 0.08, 0.5, 0.4], [0.9, 0.02, 0.04, 0.04]]))
    return counted, frames


@pytest.mark.parametrize("distance", ["sorted_w2", "aligned_w2"])
def test_an_edited_target_acts_by_default(distance: str, caplog: pytest.LogCaptureFixture) -> None:
    counted, frames = edited_target_and_emissions()
    symbols = ["", "a", "b", "c"]

    def text(target: CharDistribution, **options: Any) -> str:
        settings = {"lam": 0.5, "distance": distance, "scale": 0.0, **options}
        return CTCBeamDecoder(symbols, target=target, **settings).decode(frames)[0].text

    assert text(counted) == "ab"
    assert text(counted.with_frequency("b", 0.0)) == "ac", "a frequency of 0 forbids the character"
    assert text(counted.with_frequency("b", 0.01)) == "ac", "rarer than it was counted"
    assert text(counted.with_frequency("b", 0.5)) == "ab", "set to what was counted: nothing changes"
    assert text(counted.with_frequency("b", 0.0), lam=1.0) == "ab", "λ = 1 asks for no target"
    with caplog.at_level("INFO", logger="fada"):
        text(counted.with_frequency({"b": 0.0, "c": 0.3 if distance == "sorted_w2" else 0.31}))
    assert "b forbidden" in caplog.text
    assert ("cannot see which character" in caplog.text) == (distance == "sorted_w2")


def test_the_score_of_an_edited_target_is_eq2_and_the_weights_of_its_characters() -> None:
    counted, frames = edited_target_and_emissions()
    target = counted.with_frequency("c", 0.5)
    best = CTCBeamDecoder(["", "a", "b", "c"], target=target, lam=0.5).decode(frames)[0]
    weights = dict(zip(target.symbols, target.edit_weights, strict=True))
    expected = 0.5 * best.log_prob - 0.5 * some(best.distance) + sum(weights[c] for c in best.text)
    assert best.score == pytest.approx(expected)


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 2**32 - 1), st.sampled_from([np.float32, np.float64]))
def test_classes_with_the_same_text_are_one(seed: int, kind: type) -> None:
    """Against every path there is: the texts of frames, repetitions taken for one and blanks left out."""
    rng = np.random.default_rng(seed)
    symbols = ["a", "", "b", "a", "b", "a"]
    log_probs = random_log_probs(rng, 4, len(symbols), kind)
    expected: dict[str, float] = defaultdict(float)
    for path in itertools.product(range(len(symbols)), repeat=len(log_probs)):
        read = [symbol for symbol, _ in itertools.groupby(symbols[c] for c in path)]
        expected["".join(read)] += float(np.exp(sum(log_probs[t, c] for t, c in enumerate(path))))
    decoder = CTCBeamDecoder(symbols, blank=1, beam_size=200)
    found = decoder.decode(log_probs, nbest=200, alignment=True)
    assert {h.text: np.exp(h.log_prob) for h in found} == pytest.approx(expected, rel=1e-4)
    assert len({h.text for h in found}) == len(found)
    assert {c for h in found for c in h.labels} <= {0, 2}
    assert decoder.decode(log_probs, prefix="b")[0].text == max(
        (text for text in expected if text[:1] == "b"), key=expected.__getitem__
    )
    assert decoder.greedy(log_probs).text in expected


def test_probabilities_are_refused_also_where_classes_have_the_same_text() -> None:
    decoder = CTCBeamDecoder(["", "a", "a"])
    probabilities = np.tile([0.5, 0.3, 0.2], (4, 1))
    with pytest.raises(FadaError, match="line 0: these are probabilities"):
        decoder.decode(probabilities)
    with pytest.raises(FadaError, match="frame 0, class 2: nan"):
        decoder.decode(np.array([[-1.0, -1.0, np.nan]]))


def test_the_end_of_a_line_counts_if_asked_for() -> None:
    rng = np.random.default_rng(8)
    symbols = ["", *"abc"]
    lm = CharNgram.train(["ab", "cab", "aab", "cb"], 3)
    decoder = CTCBeamDecoder(symbols, beam_size=300, lm=lm, lm_weight=0.7, lm_end=True)
    plain = decoder.replace(lm_end=False)
    for _ in range(5):
        log_probs = random_log_probs(rng, 4, 4)
        expected = {h.text: h.log_prob + 0.7 * lm.log_prob(h.text, end=True) for h in plain.decode(log_probs, 300)}
        found = decoder.decode(log_probs, 3)
        assert [h.score for h in found] == pytest.approx(sorted(expected.values(), reverse=True)[:3])
        assert found[0].score == pytest.approx(expected[found[0].text])
        assert found[0].lm_log_prob == pytest.approx(lm.log_prob(found[0].text, end=True))
        assert decoder.decode(log_probs, prefix=found[0].text[:1])[0].text == found[0].text
