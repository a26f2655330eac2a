"""The alignment loss against slow definitions: path enumeration, token counting, the paper's formula."""

import copy
import unicodedata
from itertools import groupby, pairwise, product
from types import SimpleNamespace
from typing import Any, Literal

import numpy as np
import pytest
import torch
import torch.nn as nn
from hypothesis import given, settings
from hypothesis import strategies as st

import fada
from fada import distances
from fada.alignment import (
    AlignmentLoss,
    BigramLoss,
    expected_ctc_bigrams,
    expected_ctc_counts,
    expected_token_counts,
    frequencies_of,
)
from fada.decoding.guidance import Guidance
from fada.text.alphabet import Alphabet
from fada.text.characters import OTHER
from fada.text.tokens import TokenTable
from tests.support import tiny_models

SYMBOLS = ("", "a", "b", "c")
Form = Literal["NFC", "NFD"]
TARGETS = fada.TargetSet.from_texts({"x": ["aab"], "y": ["abcc"]})


def log_probs(seed: int, *shape: int, dtype: torch.dtype = torch.float64) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(*shape, generator=generator, dtype=dtype).mul(2).log_softmax(-1)


@settings(max_examples=15, deadline=None)
@given(st.integers(0, 10_000), st.integers(0, 5))
def test_expected_counts_equal_the_sum_over_all_paths(seed: int, length: int) -> None:
    scores = log_probs(seed, 1, 5, 3)
    probs = scores[0, :length].exp().numpy()
    expected = np.zeros(3)
    for path in product(range(3), repeat=length):
        probability = np.prod([probs[t, c] for t, c in enumerate(path)])
        for label, _ in groupby(path):
            expected[label] += probability
    found = expected_ctc_counts(scores, torch.tensor([length]))[0].numpy()
    np.testing.assert_allclose(found[1:], expected[1:], atol=1e-12)  # class 0 is the blank


@settings(max_examples=15, deadline=None)
@given(st.integers(0, 10_000), st.integers(0, 5), st.integers(0, 2))
def test_expected_pairs_equal_the_sum_over_all_paths(seed: int, length: int, blank: int) -> None:
    scores = log_probs(seed, 1, 5, 3)
    probs = scores[0, :length].exp().numpy()
    expected, first = np.zeros((3, 3)), np.zeros(3)
    for path in product(range(3), repeat=length):
        probability = np.prod([probs[t, c] for t, c in enumerate(path)])
        text = [label for label, _ in groupby(path) if label != blank]
        for pair in pairwise(text):
            expected[pair] += probability
        first[text[:1]] += probability
    found = expected_ctc_bigrams(scores, torch.tensor([length]), blank)[0].numpy()
    np.testing.assert_allclose(found, expected, atol=1e-12)
    # Every character but the first of a text is the second of one pair.
    counts = expected_ctc_counts(scores, torch.tensor([length]))[0].numpy()
    written = np.arange(3) != blank
    np.testing.assert_allclose((found.sum(0) + first)[written], counts[written], atol=1e-12)


def test_a_text_read_for_certain_has_no_distance_from_its_own_pairs() -> None:
    texts = {"x": ["abba", "ab"], "y": ["ca"]}
    targets = fada.TargetSet.from_texts(texts)
    loss = BigramLoss.of_texts(targets, texts, Alphabet(SYMBOLS), distance="aligned_w2", lam=0.5, pool="domain")
    paths = torch.tensor([[1, 2, 0, 2, 2, 1], [1, 1, 0, 0, 2, 2]])  # abba, ab
    certain = torch.full((2, 6, 4), -1e9, dtype=torch.float64).scatter(2, paths[..., None], 0.0)
    lengths = torch.tensor([6, 6])
    counts = loss.character_counts(certain, lengths)
    assert counts.sum(1).tolist() == [3, 1]
    assert float(loss.alignment(certain, lengths, ["x", "x"])) == pytest.approx(0, abs=1e-7)
    assert float(loss.alignment(certain, lengths, ["y", "y"])) > 0.1
    with pytest.raises(fada.FadaError, match="one character each, found 'ab'"):
        BigramLoss.of_texts(targets, texts, Alphabet(("", "a", "ab")))


def test_frames_beyond_the_length_change_nothing() -> None:
    scores = log_probs(0, 2, 6, 4)
    longer = torch.cat([scores, log_probs(1, 2, 3, 4)], 1)
    lengths = torch.tensor([6, 4])
    loss = AlignmentLoss.for_ctc(TARGETS, SYMBOLS)
    assert torch.equal(loss.alignment(scores, lengths, ["x", "y"]), loss.alignment(longer, lengths, ["x", "y"]))


@settings(max_examples=15, deadline=None)
@given(st.integers(0, 10_000), st.integers(1, 6))
def test_the_decoded_reading_counts_the_best_path_and_has_no_gradient(seed: int, length: int) -> None:
    scores, lengths = log_probs(seed, 1, 6, 4).requires_grad_(), torch.tensor([length])
    loss = AlignmentLoss.for_ctc(TARGETS, SYMBOLS, predicted="decoded", lam=0.5)
    text = "".join(SYMBOLS[label] for label, _ in groupby(scores[0, :length].argmax(-1).tolist()))
    expected = [text.count(character) for character in TARGETS.symbols]
    assert loss.character_counts(scores, lengths)[0].tolist() == expected
    task = scores[0, 0, 0] * 2
    [gradient] = torch.autograd.grad(loss(task, scores, lengths, ["x"]), scores)
    assert gradient.flatten()[0] == 1  # λ times that of the task
    assert gradient.flatten()[1:].abs().sum() == 0


@settings(max_examples=15, deadline=None)
@given(st.integers(0, 10_000), st.integers(1, 6))
def test_the_reading_by_frames_sums_probabilities_with_the_blank(seed: int, length: int) -> None:
    scores, lengths = log_probs(seed, 1, 6, 4), torch.tensor([length])
    loss = AlignmentLoss.for_ctc(TARGETS, SYMBOLS, predicted="frames", distance="aligned_w2")
    summed = scores[0, :length].exp().sum(0).numpy()
    by_symbol = {character: summed[SYMBOLS.index(character)] for character in TARGETS.symbols}
    counts = loss.character_counts(scores, lengths)[0].numpy()
    np.testing.assert_allclose(counts, [*by_symbol.values(), summed[0]], atol=1e-12)
    target = np.append(TARGETS.frequencies[0], 0)  # of the blank: none
    expected = np.sqrt(np.mean((counts / length - target) ** 2))
    assert loss.alignment(scores, lengths, ["x"]).item() == pytest.approx(expected, abs=1e-7)


def test_the_other_readings_are_of_ctc_outputs() -> None:
    with pytest.raises(fada.FadaError, match="a reading of CTC outputs"):
        AlignmentLoss.for_tokens(TARGETS, tiny_models.byte_level_tokenizer(), predicted="frames")
    with pytest.raises(fada.FadaError, match="expected one of expected, frames, decoded"):
        AlignmentLoss.for_ctc(TARGETS, SYMBOLS, predicted="logits")


def test_token_counts_equal_brute_force_counting_of_every_token() -> None:
    tokenizer = tiny_models.byte_level_tokenizer()
    table = TokenTable.from_tokenizer(tokenizer)
    text = tiny_models.ENGLISH
    targets = fada.TargetSet.from_texts({"x": [text]})
    logits = log_probs(3, 2, 4, len(table))
    labels = torch.tensor([[5, 6, 7, -100], [5, -100, -100, -100]])
    loss = AlignmentLoss.for_tokens(targets, tokenizer)
    alphabet = [*targets.symbols, OTHER]
    for line, chosen in enumerate([[0, 1, 2], [0]]):
        expected = dict.fromkeys(alphabet, 0.0)
        for position in chosen:
            for token, p in enumerate(logits[line, position].softmax(-1).tolist()):
                text = table.decode([token])
                for character in targets.normalizer(text if position else text.lstrip(" ")):
                    expected[character if character in expected else OTHER] += p
        found = loss.character_counts(logits, labels)[line].tolist()
        # Bytes that are no character by themselves may or may not count as an unknown one.
        np.testing.assert_allclose(found[:-1], [expected[c] for c in targets.symbols], atol=1e-9)


def test_a_processor_stands_for_its_tokenizer() -> None:
    tokenizer = tiny_models.byte_level_tokenizer()
    processor: Any = SimpleNamespace(tokenizer=tokenizer)
    found, expected = (AlignmentLoss.for_tokens(TARGETS, given).amounts for given in (processor, tokenizer))
    assert torch.equal(found, expected)


def test_special_and_padding_tokens_are_not_counted() -> None:
    tokenizer = tiny_models.byte_level_tokenizer()
    targets = fada.TargetSet.from_texts({"x": ["abc"]})
    loss = AlignmentLoss.for_tokens(targets, tokenizer)
    certain = torch.full((1, 1, len(tokenizer)), -1e9)
    certain[0, 0, tokenizer.eos_token_id] = 0.0
    assert loss.character_counts(certain, torch.tensor([[1]])).sum() == 0


def test_the_normaliser_works_through_the_matrix_even_where_one_code_point_becomes_two() -> None:
    # Lower-casing İ gives i and a combining dot; a class may also write several characters.
    targets = fada.TargetSet.from_texts({"x": ["İab"]})
    symbols = ["", "İ", "AB", "?"]
    loss = AlignmentLoss.for_ctc(targets, symbols)
    certain = torch.full((1, 3, 4), -1e9)
    certain[0, [0, 1, 2], [1, 2, 3]] = 0.0
    counts = loss.character_counts(certain, torch.tensor([3]))[0]
    characters = [*targets.symbols, OTHER]
    found = {c: n for c, n in zip(characters, counts.tolist(), strict=True) if n}
    assert found == {"i": 1, "\u0307": 1, "a": 1, "b": 1, OTHER: 1}


@pytest.mark.parametrize("distance", ["sorted_w2", "aligned_w2", "js", "kl", "w1"])
def test_the_loss_is_the_papers_convex_combination(distance: str) -> None:
    scores, lengths = log_probs(5, 2, 6, 4), torch.tensor([6, 4])
    task = torch.tensor(2.5, dtype=torch.float64)
    loss = AlignmentLoss.for_ctc(TARGETS, SYMBOLS, lam=0.3, distance=distance, scale=7.0)
    per_line = []
    for line, domain in enumerate(["x", "y"]):
        counts = expected_ctc_counts(scores[line : line + 1], lengths[line : line + 1])[0, 1:].numpy()
        q, p = counts / counts.sum(), TARGETS[domain].frequencies.astype(np.float32).astype(np.float64)
        per_line.append(float(distances.get(distance)(q, p)))
    expected = 0.3 * 2.5 + 0.7 * 7.0 * sum(per_line) / 2
    assert float(loss(task, scores, lengths, ["x", "y"])) == pytest.approx(expected, rel=1e-6)


def test_domains_may_be_names_or_indices() -> None:
    scores, lengths = log_probs(5, 2, 6, 4), torch.tensor([6, 4])
    loss = AlignmentLoss.for_ctc(TARGETS, SYMBOLS)
    by_name = loss.alignment(scores, lengths, ["y", "x"])
    assert torch.equal(by_name, loss.alignment(scores, lengths, torch.tensor([1, 0])))


@pytest.mark.parametrize(
    ("scores", "lengths", "domains", "message"),
    [
        (log_probs(5, 6, 2, 4), torch.tensor([6, 4]), ["x", "y"], r"lengths of shape \(2,\), expected \(6,\)"),
        (log_probs(5, 2, 6, 5), torch.tensor([6, 4]), ["x", "y"], r"expected \(batch, time, 4\) for 4 classes"),
        (log_probs(5, 2, 6, 4), torch.tensor([6, 4]), ["x"], "found 1 for 2 lines"),
        (log_probs(5, 2, 6, 4), torch.tensor([6, 4]), "xy", "found 'xy' for 2 lines"),
        (log_probs(5, 2, 6, 4), torch.tensor([6, 4]), [13, 14], "the domain 1[34] is no text"),
        (log_probs(5, 2, 6, 4) + 2, torch.tensor([6, 4]), ["x", "y"], r"sum to 7.39, expected 1.*log_softmax"),
    ],
)
def test_what_would_be_stretched_or_misread_is_refused(
    scores: torch.Tensor, lengths: torch.Tensor, domains: Any, message: str
) -> None:
    with pytest.raises(fada.FadaError, match=message):
        AlignmentLoss.for_ctc(TARGETS, SYMBOLS)(torch.tensor(1.0), scores, lengths, domains)


def test_a_wider_output_layer_is_told_how_to_be_named() -> None:
    tokenizer = tiny_models.byte_level_tokenizer()
    labels = torch.tensor([[3, 4, -100]])
    logits = torch.zeros(1, 3, len(tokenizer) + 8)
    with pytest.raises(fada.FadaError, match="give vocabulary_size"):
        AlignmentLoss.for_tokens(TARGETS, tokenizer).alignment(logits, labels, ["x"])
    wide = AlignmentLoss.for_tokens(TARGETS, tokenizer, logits.shape[-1])
    assert wide.alignment(logits, labels, ["x"]).isfinite()
    with pytest.raises(fada.FadaError, match=r"labels of shape \(1, 2\), expected \(1, 3\)"):
        wide.alignment(logits, labels[:, :2], ["x"])


@pytest.mark.parametrize("pool", ["sample", "domain", "epoch"])
def test_a_batch_without_lines_has_no_alignment_term(pool: Any) -> None:
    loss = AlignmentLoss.for_ctc(TARGETS, (*SYMBOLS, "\u0301"), pool=pool)
    scores = torch.zeros(0, 6, 5, requires_grad=True)
    total = loss(torch.tensor(3.0), scores, torch.zeros(0, dtype=torch.long), [])
    assert float(total.detach()) == 1.5
    total.backward()


def test_padding_may_hold_anything_that_is_no_probability() -> None:
    scores, lengths = log_probs(5, 2, 6, 4), torch.tensor([6, 4])
    padded = torch.where(torch.arange(6)[:, None] < lengths[:, None, None], scores, -torch.inf)
    found, expected = (
        AlignmentLoss.for_ctc(TARGETS, SYMBOLS).alignment(x, lengths, ["x", "y"]) for x in (padded, scores)
    )
    assert torch.equal(found, expected)


def test_a_loss_can_be_copied_after_a_step() -> None:
    loss = AlignmentLoss.for_ctc(TARGETS, SYMBOLS)
    scores = log_probs(5, 2, 6, 4).requires_grad_()
    loss(torch.tensor(1.0), scores, torch.tensor([6, 4]), ["x", "y"]).backward()
    assert loss.last_alignment is not None
    assert copy.deepcopy(loss).last_alignment is None


def test_a_line_of_no_or_an_unknown_domain_is_aligned_to_all_domains_together(caplog: pytest.LogCaptureFixture) -> None:
    scores, lengths = log_probs(5, 2, 6, 4), torch.tensor([6, 4])
    loss = AlignmentLoss.for_ctc(TARGETS, SYMBOLS)
    pooled = AlignmentLoss.for_ctc(fada.TargetSet({"x": TARGETS.overall, "y": TARGETS.overall}), SYMBOLS)
    expected = pooled.alignment(scores, lengths, ["x", "y"])
    assert torch.equal(loss.alignment(scores, lengths, [None, "z"]), expected)
    assert "none, z" in caplog.text
    assert torch.equal(loss.alignment(scores, lengths, torch.tensor([2, 2])), expected)


def test_lambda_one_gives_bit_identical_gradients() -> None:
    def gradient(with_loss: bool) -> torch.Tensor:
        logits = torch.randn(2, 6, 4, generator=torch.Generator().manual_seed(0)).requires_grad_()
        scores = logits.log_softmax(-1)
        labels, lengths = torch.tensor([[1, 2], [3, 1]]), torch.tensor([6, 5])
        task = torch.nn.functional.ctc_loss(scores.transpose(0, 1), labels, lengths, torch.tensor([2, 2]))
        loss = AlignmentLoss.for_ctc(TARGETS, SYMBOLS, lam=1.0)
        (loss(task, scores, lengths, ["x", "y"]) if with_loss else task).backward()
        assert logits.grad is not None
        return logits.grad

    assert torch.equal(gradient(True), gradient(False))


@pytest.mark.parametrize("pool", ["sample", "domain", "epoch"])
@pytest.mark.parametrize("distance", ["sorted_w2", "aligned_w2"])
def test_gradients_are_right_for_ctc(pool: str, distance: str) -> None:
    logits = torch.randn(3, 4, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(1)).requires_grad_()

    def total(x: torch.Tensor) -> torch.Tensor:
        loss = AlignmentLoss.for_ctc(TARGETS, SYMBOLS, pool=pool, distance=distance)
        return loss.alignment(x.log_softmax(-1), torch.tensor([4, 3, 1]), ["x", "y", "x"])

    assert torch.autograd.gradcheck(total, logits)


def test_gradients_are_right_for_tokens() -> None:
    logits = torch.randn(2, 3, 5, dtype=torch.float64, generator=torch.Generator().manual_seed(1)).requires_grad_()
    labels = torch.tensor([[1, 2, -100], [3, -100, 4]])
    weights = torch.randn(2, 5, dtype=torch.float64, generator=torch.Generator().manual_seed(2))
    assert torch.autograd.gradcheck(lambda x: (expected_token_counts(x, labels) * weights).sum(), logits)


def test_nothing_written_is_the_zero_vector_with_a_finite_gradient() -> None:
    logits = torch.zeros(1, 3, 4)
    logits[..., 0] = 200.0  # blank only
    logits.requires_grad_()
    loss = AlignmentLoss.for_ctc(TARGETS, SYMBOLS)
    value = loss.alignment(logits.log_softmax(-1), torch.tensor([3]), ["x"])
    value.backward()
    p = TARGETS["x"].frequencies
    assert float(value) == pytest.approx(float(np.sqrt(np.mean(p**2))), rel=1e-6)
    assert logits.grad is not None
    assert torch.isfinite(logits.grad).all()
    assert torch.equal(frequencies_of(torch.zeros(2, 3)), torch.zeros(2, 3))


def test_pooling_by_domain_compares_the_frequencies_of_all_its_lines() -> None:
    scores, lengths = log_probs(7, 3, 5, 4), torch.tensor([5, 5, 5])
    loss = AlignmentLoss.for_ctc(TARGETS, SYMBOLS, pool="domain")
    counts = expected_ctc_counts(scores, lengths)[:, 1:]
    x, y = counts[0] + counts[2], counts[1]
    far = [distances.sorted_w2(q / q.sum(), torch.tensor(TARGETS[d].frequencies)) for q, d in ((x, "x"), (y, "y"))]
    assert float(loss.alignment(scores, lengths, ["x", "y", "x"])) == pytest.approx(float(2 * far[0] + far[1]) / 3)


def test_the_running_average_remembers_earlier_batches_until_the_epoch_ends() -> None:
    loss = AlignmentLoss.for_ctc(TARGETS, SYMBOLS, pool="epoch")
    first, second = log_probs(1, 1, 5, 4), log_probs(2, 1, 5, 4)
    alone = loss.alignment(second, torch.tensor([5]), ["x"])
    loss.start_epoch()
    loss.alignment(first, torch.tensor([5]), ["x"])
    after = loss.alignment(second, torch.tensor([5]), ["x"])
    assert not torch.equal(alone, after)
    loss.start_epoch()
    assert torch.equal(loss.alignment(second, torch.tensor([5]), ["x"]), alone)


def test_warm_up_moves_lambda_from_one_to_its_value() -> None:
    loss = AlignmentLoss.for_ctc(TARGETS, SYMBOLS, lam=0.4)
    found = []
    for progress in (0.0, 0.5, 1.0, 3.0):
        loss.warm_up(progress)
        found.append(loss.lam)
    assert found == pytest.approx([1.0, 0.7, 0.4, 0.4])


def test_adaptive_lambda_makes_both_terms_pull_equally_hard() -> None:
    logits = torch.randn(2, 6, 4, generator=torch.Generator().manual_seed(0)).requires_grad_()
    scores = logits.log_softmax(-1)
    loss = AlignmentLoss.for_ctc(TARGETS, SYMBOLS, lam=0.5)
    task = -scores[..., 1].mean()
    alignment = loss.alignment(scores, torch.tensor([6, 6]), ["x", "y"])
    loss.balance(task, alignment, logits, inertia=0.0)
    pulls = [torch.autograd.grad(t, logits, retain_graph=True)[0].norm() for t in (task, alignment)]
    assert float(loss.lam * pulls[0]) == pytest.approx(float((1 - loss.lam) * pulls[1]), rel=1e-4)


def test_bfloat16_autocast_gives_nearly_the_same_value() -> None:
    logits = torch.randn(2, 6, 4, generator=torch.Generator().manual_seed(0))
    loss = AlignmentLoss.for_ctc(TARGETS, SYMBOLS)
    exact = loss.alignment(logits.log_softmax(-1), torch.tensor([6, 4]), ["x", "y"])
    with torch.autocast("cpu", torch.bfloat16):
        rough = loss.alignment(logits.bfloat16().log_softmax(-1), torch.tensor([6, 4]), ["x", "y"])
    assert rough.dtype == torch.float32
    assert float(rough) == pytest.approx(float(exact), rel=0.05)


@pytest.mark.parametrize("kind", ["ctc", "tokens"])
def test_torch_compile_gives_the_same_loss_and_gradient(kind: str) -> None:
    if kind == "ctc":
        loss, classes, extent = AlignmentLoss.for_ctc(TARGETS, SYMBOLS), 4, torch.tensor([6, 4])
    else:
        tokenizer = tiny_models.byte_level_tokenizer()
        loss, classes = AlignmentLoss.for_tokens(TARGETS, tokenizer), len(tokenizer)
        extent = torch.tensor([[1, 2, 3, 4, 5, 6], [1, 2, -100, -100, -100, -100]])
    domains = torch.tensor([0, 1])

    def run(function: object) -> tuple[torch.Tensor, torch.Tensor]:
        logits = torch.randn(2, 6, classes, generator=torch.Generator().manual_seed(0)).requires_grad_()
        value = function(logits.mean(), logits.log_softmax(-1), extent, domains)  # type: ignore[operator]
        value.backward()
        assert logits.grad is not None
        return value.detach(), logits.grad

    plain, compiled = run(loss), run(torch.compile(loss, backend="aot_eager"))
    torch.testing.assert_close(plain, compiled)


@pytest.mark.parametrize("wrong", [{"lam": 1.5}, {"pool": "page"}, {"scale": -1}, {"distance": "far"}])
def test_wrong_options_are_named(wrong: dict[str, Any]) -> None:
    with pytest.raises(fada.FadaError, match=str(next(iter(wrong.values())))):
        AlignmentLoss.for_ctc(TARGETS, SYMBOLS, **wrong)


@pytest.mark.parametrize("spaces", ["keep", "collapse", "drop"])
def test_a_certain_text_has_the_distance_that_decoding_gives_it(spaces: Literal["keep", "collapse", "drop"]) -> None:
    normalizer = fada.TextNormalizer(spaces=spaces)
    targets = fada.TargetSet.from_texts({"old": ["a cat sat on a mat"]}, normalizer=normalizer)
    text, symbols = "the cat sat", ("", *sorted(set("the cat sat")))
    classes = [c for character in text for c in (symbols.index(character), 0)]
    scores = torch.log_softmax(50 * nn.functional.one_hot(torch.tensor([classes]), len(symbols)).float(), -1)
    loss = AlignmentLoss.for_ctc(targets, symbols, distance="aligned_w2", lam=0.0)
    found = loss(torch.zeros(()), scores, torch.tensor([len(classes)]), ["old"])
    assert float(found) == pytest.approx(Guidance(targets["old"], distance="aligned_w2").distance_of(text), abs=1e-5)


MARKED = ("", "e", "a", "\u0301", "\u0323", "é", " ")
"""Letters, marks that compose with them and with each other, and a letter that is composed already."""
BEGUN_BY_A_MARK = ("", "e", "\u0301", "\u0301e", "ᄒ", "ᅡ", "ᆫᄒ")
"""Classes that join the one before and end in a letter that the next may join."""
MARKS_ALONE = ("", "\u0995", "\u09c7", "\u09be", "e", "\u0301")
"""Marks that compose with each other."""


@settings(max_examples=15, deadline=None)
@given(
    st.sampled_from([MARKED, BEGUN_BY_A_MARK, MARKS_ALONE]),
    st.integers(0, 10_000),
    st.sampled_from(["NFC", "NFD", "none"]),
    st.integers(0, 4),
)
def test_expected_counts_of_marks_equal_the_sum_over_all_paths(
    symbols: tuple[str, ...], seed: int, form: str, length: int
) -> None:
    normalizer = fada.TextNormalizer(form=form)  # type: ignore[arg-type]
    targets = fada.TargetSet.from_texts({"x": ["éẹe a\u0301", "한하", "\u0995\u09cb"]}, normalizer)
    loss = AlignmentLoss.for_ctc(targets, symbols)
    scores = log_probs(seed, 1, 5, len(symbols))
    probs = scores[0].exp().numpy()
    cells = [*targets.symbols, OTHER]
    expected = np.zeros(len(cells))
    for path in product(range(len(symbols)), repeat=length):
        probability = np.prod([probs[t, c] for t, c in enumerate(path)])
        for character in normalizer("".join(symbols[label] for label, _ in groupby(path))):
            expected[cells.index(character if character in cells else OTHER)] += probability
    found = loss.character_counts(scores, torch.tensor([length]))[0].numpy()
    if length < 4:  # a third mark on a letter that composes with the first alone is counted as if it stood alone
        np.testing.assert_allclose(found, expected[: len(found)], atol=1e-10)
    else:
        np.testing.assert_allclose(found.sum(), expected.sum(), rtol=0.02)


@settings(max_examples=30, deadline=None)
@given(
    st.text(alphabet="eaoéèñ ẹç", min_size=1, max_size=8),
    st.sampled_from(["NFC", "NFD"]),
    st.sampled_from(["NFC", "NFD"]),
)
def test_a_character_is_the_same_in_loss_decoder_and_targets(text: str, written: Form, counted: Form) -> None:
    """A model that writes composed or decomposed text, targets counted either way: a perfect reading costs nothing."""
    targets = fada.TargetSet.from_texts({"x": [text]}, fada.TextNormalizer(form=counted))
    spelt = unicodedata.normalize(written, text)
    symbols = ["", *sorted(set(spelt))]
    frames = [frame for c in spelt for frame in (symbols.index(c), 0)]
    certain = torch.full((1, len(frames), len(symbols)), -1e9, dtype=torch.float64)
    certain[0, range(len(frames)), frames] = 0.0
    loss = AlignmentLoss.for_ctc(targets, symbols, distance="aligned_w2")
    assert loss.alignment(certain, torch.tensor([len(frames)]), ["x"]).item() == pytest.approx(0, abs=1e-6)
    decoder = fada.CTCBeamDecoder(symbols, target=targets["x"], distance="aligned_w2")
    best = decoder.decode(certain[0].numpy())[0]
    assert best.text == spelt
    assert best.distance == pytest.approx(0, abs=1e-6)


@pytest.mark.parametrize("form", ["NFC", "NFD"])
def test_marks_of_a_character_decoder_count_with_their_letters(form: Form) -> None:
    tokenizer = tiny_models.character_tokenizer(" ae\u0301é")
    targets = fada.TargetSet.from_texts({"x": ["aé"]})
    ids = [tokenizer.get_vocab()[c] for c in unicodedata.normalize(form, " aé")]
    certain = torch.full((1, len(ids), len(tokenizer)), -1e9)
    certain[0, range(len(ids)), ids] = 0.0
    loss = AlignmentLoss.for_tokens(targets, tokenizer, distance="aligned_w2")
    counts = loss.character_counts(certain, torch.tensor([ids]))[0]
    assert dict(zip([*targets.symbols, OTHER], counts.round().tolist(), strict=False)) == {"a": 1, "é": 1, OTHER: 0}
