"""Guided generation: equal to the definition of Eq. 2, whatever the model, the tokenizer and the search."""

import itertools
from typing import Any, cast

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from fada.decoding.generate import GuidedLogitsProcessor, guided_generate
from fada.decoding.guidance import Guidance
from fada.errors import FadaError
from fada.targets.distribution import CharDistribution
from fada.targets.target_set import TargetSet
from fada.text.normalizer import TextNormalizer
from fada.text.tokens import TokenTable
from tests.support import tiny_models as tiny
from tests.support.types import some

TOKENIZERS = {
    "byte-level": tiny.byte_level_tokenizer,
    "byte fallback": tiny.byte_fallback_tokenizer,
    "characters": tiny.character_tokenizer,
    "wordpiece": tiny.wordpiece_tokenizer,
}
TEXTS = {"English": tiny.ENGLISH, "Greek": tiny.GREEK}
NORMALIZERS = {
    "default": TextNormalizer(),
    "collapse": TextNormalizer(spaces="collapse"),
    "letters": TextNormalizer(letters_only=True, marks="fold"),
    "decomposed": TextNormalizer(form="NFD", case="keep"),
}


def brute_force(guide: GuidedLogitsProcessor, table: TokenTable, ids: list[int], log_probs: np.ndarray) -> np.ndarray:
    """λ·log p(v) - w·(d(h+v) - d(h)) from texts alone."""
    g = guide.guidance
    before = g.distance_of(table.decode(ids).lstrip(" ")) if ids else 0.0
    after = [g.distance_of(table.decode([*ids, v]).lstrip(" ")) for v in range(len(table))]
    return g.lam * log_probs - g.weight * (np.array(after) - before)


@st.composite
def cases(draw: Any) -> Any:
    name = draw(st.sampled_from(sorted(TOKENIZERS)))
    tokenizer = TOKENIZERS[name](draw(st.sampled_from(sorted(TEXTS.values()))))
    text = draw(st.sampled_from(sorted(TEXTS.values())))
    target = CharDistribution.from_texts([text], NORMALIZERS[draw(st.sampled_from(sorted(NORMALIZERS)))])
    ids = draw(st.lists(st.integers(0, len(tokenizer) - 1), max_size=6))
    return tokenizer, target, ids, draw(st.sampled_from(["sorted_w2", "aligned_w2", "js", "kl", "w1"]))


@settings(max_examples=60, deadline=None)
@given(cases(), st.floats(0, 1), st.sampled_from([1.0, 50.0]), st.sampled_from([None, 1, 7]), st.integers(0, 99))
def test_every_token_gets_its_eq2_increment_and_losers_a_lower_bound(
    case: Any, lam: float, scale: float, keep: int | None, seed: int
) -> None:
    tokenizer, target, ids, distance = case
    table = TokenTable.from_tokenizer(tokenizer)
    guide = GuidedLogitsProcessor(table, target, lam, distance, scale, prompt_length=2, keep=keep)
    logits = torch.from_numpy(np.random.default_rng(seed).normal(0, 4, (1, len(table))).astype(np.float32))
    log_probs = torch.log_softmax(logits, -1)
    got = guide(torch.tensor([[1, 1, *ids]]), log_probs)[0].double().numpy()
    want = brute_force(guide, table, ids, log_probs[0].double().numpy())
    if keep is None or lam == 1:
        np.testing.assert_allclose(got, want, atol=2e-5 * max(1, scale))
    else:
        assert (got <= want + 2e-5 * scale).all()
        best = np.argsort(-want)[:keep]
        np.testing.assert_allclose(got[best], want[best], atol=2e-5 * max(1, scale))


@settings(max_examples=25, deadline=None)
@given(cases(), st.sampled_from([10.0, 80.0]), st.sampled_from([None, 3]))
def test_the_warm_up_scales_the_distance_by_the_length_of_the_text(case: Any, warmup: float, keep: int | None) -> None:
    tokenizer, target, ids, distance = case
    table = TokenTable.from_tokenizer(tokenizer)
    guide = GuidedLogitsProcessor(table, target, 0.4, distance, 30.0, 1, keep, warmup)
    log_probs = torch.log_softmax(torch.randn(1, len(table), generator=torch.Generator().manual_seed(len(ids))) * 3, -1)
    got = guide(torch.tensor([[1, *ids]]), log_probs)[0].double().numpy()

    def penalty(tokens: list[int]) -> float:
        text = table.decode(tokens).lstrip(" ")
        length = len(target.normalizer(text))
        return guide.guidance.weight * guide.guidance.distance_of(text) * length / (length + warmup)

    before = penalty(ids) if ids else 0.0
    want = 0.4 * log_probs[0].double().numpy() - [penalty([*ids, v]) - before for v in range(len(table))]
    best = np.argsort(-want)[: keep or len(table)]
    np.testing.assert_allclose(got[best], want[best], atol=1e-3)
    assert (got <= want + 1e-3).all()


def eq2(target: CharDistribution, table: TokenTable, lam: float, distance: str, scale: float) -> Guidance:
    """The definition, over the alphabet of the target and the cell for what the tokens hold besides."""
    return GuidedLogitsProcessor(table, target, lam, distance, scale).guidance


def causal_log_prob(model: Any, prompt: list[int], tokens: tuple[int, ...]) -> float:
    with torch.no_grad():
        log_probs = torch.log_softmax(model(torch.tensor([[*prompt, *tokens]])).logits[0].double(), -1)
    return sum(float(log_probs[len(prompt) - 1 + i, token]) for i, token in enumerate(tokens))


def decoder_log_prob(model: Any, start: list[int], tokens: tuple[int, ...], **encoder: Any) -> float:
    with torch.no_grad():
        logits = model(**encoder, decoder_input_ids=torch.tensor([[*start, *tokens]])).logits[0]
    log_probs = torch.log_softmax(logits.double(), -1)
    return sum(float(log_probs[len(start) - 1 + i, token]) for i, token in enumerate(tokens))


@pytest.mark.parametrize("num_beams", [1, 5, 7])
@pytest.mark.parametrize(
    ("kind", "language", "distance"),
    [
        ("byte-level", "English", "sorted_w2"),
        ("byte-level", "Greek", "aligned_w2"),
        ("byte fallback", "Greek", "sorted_w2"),
        ("characters", "English", "aligned_w2"),
        ("characters", "Greek", "sorted_w2"),
    ],
)
def test_llama_scores_are_eq2_of_the_decoded_text_in_padded_batches(
    kind: str, language: str, distance: str, num_beams: int
) -> None:
    text = TEXTS[language]
    tokenizer = TOKENIZERS[kind](text)
    target = CharDistribution.from_texts([text])
    model = tiny.llama(len(tokenizer) + 5)  # output layers are often larger than the vocabulary
    prompts = [text[:4], text[:15]]
    options: dict[str, Any] = {"distance": distance, "scale": 20.0, "max_new_tokens": 12, "nbest": min(2, num_beams)}
    found = guided_generate(model, prompts, target, 0.4, num_beams, tokenizer=tokenizer, **options)
    guidance = eq2(target, TokenTable.from_tokenizer(tokenizer), 0.4, distance, 20.0)
    for prompt, hypotheses in zip(prompts, found, strict=True):
        assert [h.score for h in hypotheses] == sorted((h.score for h in hypotheses), reverse=True)
        for h in hypotheses:
            log_prob = causal_log_prob(model, tokenizer(prompt)["input_ids"], h.labels)
            decoded = tokenizer.decode([t for t in h.labels if t < len(tokenizer)], skip_special_tokens=True)
            assert str(decoded).lstrip(" ").rstrip("\ufffd") == h.text.rstrip("\ufffd") or kind == "byte fallback"
            assert h.log_prob == pytest.approx(log_prob, abs=1e-3)
            assert h.distance == pytest.approx(guidance.distance_of(h.text), abs=1e-9)
            assert h.score == pytest.approx(guidance.score(log_prob, h.text), abs=1e-4)


@pytest.mark.parametrize("num_beams", [1, 5, 7])
@pytest.mark.parametrize(("kind", "language"), [("byte-level", "Greek"), ("characters", "English")])
def test_trocr_scores_are_eq2_with_one_target_for_each_image(kind: str, language: str, num_beams: int) -> None:
    text = TEXTS[language]
    tokenizer = TOKENIZERS[kind](text)
    targets = [CharDistribution.from_texts([text]), CharDistribution.from_texts([text]).scaled({text[1].lower(): 3.0})]
    model = tiny.trocr(len(tokenizer))
    images = torch.randn(2, 3, 32, 32, generator=torch.Generator().manual_seed(0))
    options: dict[str, Any] = {"distance": "aligned_w2", "scale": 30.0, "max_new_tokens": 10}
    found = guided_generate(model, images, targets, 0.5, num_beams, tokenizer=tokenizer, **options)
    table = TokenTable.from_tokenizer(tokenizer)
    for image, target, (h,) in zip(images, targets, found, strict=True):
        log_prob = decoder_log_prob(model, [1], h.labels, pixel_values=image[None])
        assert h.score == pytest.approx(eq2(target, table, 0.5, "aligned_w2", 30.0).score(log_prob, h.text), abs=1e-4)


@pytest.mark.parametrize("num_beams", [1, 5, 7])
def test_whisper_scores_are_eq2_for_short_recordings(num_beams: int) -> None:
    tokenizer = tiny.byte_level_tokenizer()
    target = CharDistribution.from_texts([tiny.ENGLISH])
    model = tiny.whisper(len(tokenizer), sharpness=2.0)
    features = torch.randn(2, 8, 3000, generator=torch.Generator().manual_seed(1))
    found = guided_generate(model, features, target, 0.5, num_beams, tokenizer=tokenizer, scale=20.0, max_new_tokens=8)
    guidance = eq2(target, TokenTable.from_tokenizer(tokenizer), 0.5, "sorted_w2", 20.0)
    start = [len(tokenizer), len(tokenizer) + 4]  # start of transcript, no time stamps
    for item, (h,) in zip(features, found, strict=True):
        log_prob = decoder_log_prob(model, start, h.labels, input_features=item[None])
        assert h.score == pytest.approx(guidance.score(log_prob, h.text), abs=1e-4)


def test_samples_come_best_first() -> None:
    tokenizer = tiny.character_tokenizer()
    options: dict[str, Any] = {"do_sample": True, "max_new_tokens": 4, "nbest": 6, "num_beams": 1}
    torch.manual_seed(0)
    [found] = guided_generate(
        tiny.llama(len(tokenizer)), "A", CharDistribution.from_texts(["ab"]), tokenizer=tokenizer, **options
    )
    assert [h.score for h in found] == sorted((h.score for h in found), reverse=True)


def test_hypotheses_of_whisper_that_would_all_be_the_same_are_refused() -> None:
    tokenizer = tiny.byte_level_tokenizer()
    model, target = tiny.whisper(len(tokenizer)), CharDistribution.from_texts([tiny.ENGLISH])
    with pytest.raises(FadaError, match="nbest is 2: Whisper searches once for each"):
        guided_generate(model, torch.zeros(1, 8, 3000), target, tokenizer=tokenizer, nbest=2)


def test_inputs_are_given_in_the_precision_of_the_model() -> None:
    tokenizer = tiny.byte_level_tokenizer()
    target = CharDistribution.from_texts([tiny.ENGLISH])
    model = tiny.whisper(len(tokenizer), sharpness=2.0).bfloat16()
    features = torch.randn(1, 8, 3000, generator=torch.Generator().manual_seed(1))
    [[h]] = guided_generate(model, features, target, num_beams=2, tokenizer=tokenizer, max_new_tokens=3)
    assert h.labels


@pytest.mark.parametrize("num_beams", [1, 5, 7])
def test_whisper_windows_of_long_recordings_are_guided_one_by_one(num_beams: int) -> None:
    tokenizer = tiny.byte_level_tokenizer()
    target = CharDistribution.from_texts([tiny.ENGLISH])
    model = tiny.whisper(len(tokenizer), sharpness=2.0)
    features = torch.randn(1, 8, 5000, generator=torch.Generator().manual_seed(2))
    inputs = {"input_features": features, "attention_mask": torch.ones(1, 5000, dtype=torch.long)}
    [windows] = guided_generate(
        model, inputs, target, 0.5, num_beams, tokenizer=tokenizer, scale=20.0, max_new_tokens=8, return_timestamps=True
    )
    table = TokenTable.from_tokenizer(tokenizer).resized(model.config.vocab_size)
    guidance = eq2(target, table, 0.5, "sorted_w2", 20.0)
    assert len(windows) > 1
    first = windows[0]
    log_prob = decoder_log_prob(model, [len(tokenizer)], first.labels, input_features=features[:, :, :3000])
    # Time-stamp rules only rule tokens out, so that the sum stays that of the model's log-probabilities.
    assert first.score == pytest.approx(guidance.score(log_prob, table.decode(first.labels).lstrip(" ")), abs=1e-4)
    for window in windows:
        assert window.score == pytest.approx(0.5 * window.log_prob - 10 * some(window.distance), abs=1e-4)


@pytest.mark.parametrize("distance", ["sorted_w2", "aligned_w2"])
def test_a_wide_beam_finds_the_best_of_all_texts(distance: str) -> None:
    tokenizer = tiny.character_tokenizer("abc")
    target = CharDistribution.from_texts(["aab"])
    model = tiny.llama(len(tokenizer), seed=3, sharpness=2.0)
    [[best]] = guided_generate(
        model, ["a"], target, 0.3, 200, tokenizer=tokenizer, distance=distance, scale=5.0, max_new_tokens=4
    )
    table = TokenTable.from_tokenizer(tokenizer)
    guidance = eq2(target, table, 0.3, distance, 5.0)
    others = [t for t in range(len(table)) if t != 2]
    sequences = [(*body, 2) for n in range(4) for body in itertools.product(others, repeat=n)]
    sequences += list(itertools.product(others, repeat=4))
    scores = {s: guidance.score(causal_log_prob(model, [3], s), table.decode(s).lstrip(" ")) for s in sequences}
    assert scores[best.labels] == pytest.approx(max(scores.values()), abs=1e-5)
    assert best.score == pytest.approx(max(scores.values()), abs=1e-4)


def test_lambda_one_is_the_identity_and_dtype_is_kept() -> None:
    tokenizer = tiny.byte_level_tokenizer()
    target = CharDistribution.from_texts([tiny.ENGLISH])
    scores = torch.randn(3, len(tokenizer))
    ids = torch.ones(3, 4, dtype=torch.long)
    assert GuidedLogitsProcessor(tokenizer, target, lam=1.0)(ids, scores) is scores
    for dtype in (torch.float16, torch.bfloat16, torch.float32, torch.float64):
        guided = GuidedLogitsProcessor(tokenizer, target)(ids, scores.to(dtype))
        assert guided.dtype == dtype
        assert guided.shape == scores.shape


def test_reordered_beams_get_the_scores_of_their_own_text() -> None:
    tokenizer = tiny.byte_level_tokenizer(tiny.GREEK)
    target = CharDistribution.from_texts([tiny.GREEK])
    generator = torch.Generator().manual_seed(0)
    ids = torch.randint(3, len(tokenizer), (4, 7), generator=generator)
    scores = torch.log_softmax(torch.randn(4, len(tokenizer), generator=generator), -1)
    guide = GuidedLogitsProcessor(tokenizer, target, prompt_length=2, scale=50.0)
    order = [3, 1, 1, 0]
    for length in range(2, 7):
        guide(ids[:, :length], scores)
        swapped = guide(ids[order, : length + 1], scores)
        fresh = GuidedLogitsProcessor(tokenizer, target, prompt_length=2, scale=50.0)(ids[order, : length + 1], scores)
        torch.testing.assert_close(swapped, fresh)


def test_the_prompt_and_its_padding_are_not_counted() -> None:
    tokenizer = tiny.byte_level_tokenizer()
    target = CharDistribution.from_texts([tiny.ENGLISH])
    scores = torch.log_softmax(torch.randn(1, len(tokenizer)), -1)
    story = tokenizer(" the dog", add_special_tokens=False)["input_ids"]
    guided = [
        GuidedLogitsProcessor(tokenizer, target, prompt_length=len(prompt))(torch.tensor([[*prompt, *story]]), scores)
        for prompt in ([1], [0, 0, 1, 40, 50], tokenizer("zebra zoo")["input_ids"])
    ]
    torch.testing.assert_close(guided[0], guided[1])
    torch.testing.assert_close(guided[0], guided[2])


@pytest.mark.parametrize("sample", [False, True])
@pytest.mark.parametrize("kind", ["byte-level", "byte fallback", "characters"])
def test_forbidden_characters_never_appear_whatever_the_search(kind: str, sample: bool) -> None:
    tokenizer = TOKENIZERS[kind](tiny.GREEK)
    target = CharDistribution.from_texts([tiny.GREEK])
    model = tiny.llama(len(tokenizer))
    search: dict[str, Any] = {"do_sample": True, "top_k": 0, "num_beams": 1} if sample else {"num_beams": 5}
    torch.manual_seed(0)
    forbidden = "αεὰἄλ"
    found = guided_generate(
        model, ["Μῆ", "ἣ μ"] * 4, target, 0.5, tokenizer=tokenizer, forbidden=forbidden, max_new_tokens=30, **search
    )
    for prompt, (h,) in zip(["Μῆ", "ἣ μ"] * 4, found, strict=True):
        assert h.text
        log_prob = causal_log_prob(model, tokenizer(prompt)["input_ids"], h.labels)
        assert h.log_prob == pytest.approx(log_prob, abs=1e-2)  # of the model without the mask
        assert not set(forbidden) & set(target.normalizer(h.text))


def test_composing_a_forbidden_character_from_its_parts_is_ruled_out() -> None:
    tokenizer = tiny.character_tokenizer("abe\u0301")
    target = CharDistribution.from_texts(["abé"])
    guide = GuidedLogitsProcessor(tokenizer, target, prompt_length=1, forbidden="é")
    scores = torch.zeros(2, len(tokenizer))
    a, accent, e = (tokenizer.convert_tokens_to_ids(c) for c in ("a", "\u0301", "e"))
    guided = guide(torch.tensor([[1, a], [1, e]]), scores)
    assert torch.isfinite(guided[0]).all()
    assert guided[1].isneginf().nonzero().flatten().tolist() == [accent]


def test_bytes_that_can_only_become_a_forbidden_character_are_ruled_out_at_once() -> None:
    tokenizer = tiny.byte_level_tokenizer()
    target = CharDistribution.from_texts(["ab"])
    block = [chr(c) for c in range(0x80, 0xC0)]  # every character that starts with the byte C2
    guide = GuidedLogitsProcessor(tokenizer, target, forbidden=block)
    guided = guide(torch.tensor([[1]]), torch.zeros(1, len(tokenizer)))[0]
    table = TokenTable.from_tokenizer(tokenizer)
    assert guided[table.pieces.index(b"\xc2")].isneginf()
    assert guided[table.pieces.index(b"\xc3")].isfinite()


def test_only_allowed_characters_are_written() -> None:
    tokenizer = tiny.byte_level_tokenizer()
    target = CharDistribution.from_texts([tiny.ENGLISH])
    [[h]] = guided_generate(
        tiny.llama(len(tokenizer)), "A", target, 0.5, 3, tokenizer=tokenizer, allowed="abdog ", max_new_tokens=12
    )
    assert set(h.text.lower()) <= set("abdog ")


def test_sampling_follows_the_guided_distribution() -> None:
    tokenizer = tiny.character_tokenizer("abc")
    target = CharDistribution.from_texts(["aaab"])
    model = tiny.llama(len(tokenizer), sharpness=1.0)
    torch.manual_seed(0)
    lam, scale = 0.5, 3.0
    options: dict[str, Any] = {"do_sample": True, "top_k": 0, "max_new_tokens": 1, "nbest": 4000}
    [found] = guided_generate(
        model, "a", target, lam, 1, tokenizer=tokenizer, distance="aligned_w2", scale=scale, **options
    )
    guidance = eq2(target, TokenTable.from_tokenizer(tokenizer), lam, "aligned_w2", scale)
    table = TokenTable.from_tokenizer(tokenizer)
    weights = np.array(
        [
            causal_log_prob(model, [3], (t,)) - (1 - lam) / lam * scale * guidance.distance_of(table.decode([t]))
            for t in range(len(table))
        ]
    )
    want = np.exp(weights) / np.exp(weights).sum()
    drawn = np.bincount([h.labels[0] for h in found], minlength=len(table)) / len(found)
    np.testing.assert_allclose(drawn, want, atol=0.03)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"renormalize_logits": True}, "renormalize_logits"),
        ({"length_penalty": 1.0}, "length_penalty"),
        ({"lam": 0.0}, "lam is 0"),
        ({"lam": 1.5}, "lam is 1.5"),
        ({"nbest": 9}, "nbest is 9"),
        ({"num_return_sequences": 2}, "num_return_sequences is called nbest here"),
        ({"inputs": ["A"] * 4, "target": [CharDistribution.from_texts(["ab"])] * 2}, "2 targets for 4 inputs"),
        ({"distance": "w3"}, "w3"),
        ({"inputs": []}, "no prompt"),
        ({"target": []}, "no target"),
        ({"target": TargetSet.from_texts({"14": ["ab"]})}, "the target is a TargetSet, expected .* one domain"),
        ({"forbidden": [chr(c) for c in range(0x250)], "allowed": "x"}, "every token"),
    ],
)
def test_what_would_break_eq2_is_refused_with_a_reason(options: dict[str, Any], message: str) -> None:
    tokenizer = tiny.character_tokenizer()
    settings_: dict[str, Any] = {
        "inputs": "A",
        "target": CharDistribution.from_texts(["ab"]),
        "lam": 0.5,
        "num_beams": 3,
    } | options
    with pytest.raises(FadaError, match=message):
        guided_generate(tiny.llama(len(tokenizer)), tokenizer=tokenizer, max_new_tokens=2, **settings_)


def test_targets_of_a_batch_share_their_alphabet_and_match_the_rows() -> None:
    tokenizer = tiny.character_tokenizer()
    one, other = CharDistribution.from_texts(["ab"]), CharDistribution.from_texts(["abc"])
    with pytest.raises(FadaError, match="TargetSet"):
        GuidedLogitsProcessor(tokenizer, [one, other])
    guide = GuidedLogitsProcessor(tokenizer, [one, one])
    with pytest.raises(FadaError, match="2 targets for a batch of 3 rows"):
        guide(torch.ones(3, 1, dtype=torch.long), torch.zeros(3, len(tokenizer)))


# What the exactness rests on in the installed transformers: an upgrade that changes it must fail here.


class _Spy(GuidedLogitsProcessor):
    """Records what it is given."""

    def __call__(self, input_ids: Any, scores: Any) -> Any:
        self.seen = [*getattr(self, "seen", []), (input_ids.clone(), scores.clone())]
        return super().__call__(input_ids, scores)


def _spied(**options: Any) -> Any:
    tokenizer = tiny.character_tokenizer()
    model = tiny.llama(len(tokenizer))
    spy = _Spy(tokenizer, CharDistribution.from_texts([tiny.ENGLISH]), prompt_length=2)
    output = cast(Any, model).generate(
        torch.tensor([[1, 5]]),
        logits_processor=[spy],
        max_new_tokens=4,
        min_new_tokens=4,
        return_dict_in_generate=True,
        output_scores=True,
        **options,
    )
    return spy, output


def test_transformers_passes_log_probabilities_to_beams_and_logits_to_greedy() -> None:
    spy, _ = _spied(num_beams=3, length_penalty=0.0)
    # min_new_tokens has ruled out the end token before, so that the rest sums to less than one.
    assert all(torch.logsumexp(scores, -1).max() <= 1e-5 for _, scores in spy.seen)
    assert spy.seen[0][0].shape == (3, 2)
    spy, _ = _spied(num_beams=1, do_sample=False)
    assert any(torch.logsumexp(scores, -1).abs().max() > 0.1 for _, scores in spy.seen)


def test_transformers_adds_up_what_the_processor_returns_and_divides_by_no_length() -> None:
    _, output = _spied(num_beams=3, length_penalty=0.0)
    steps = [
        output.scores[t][output.beam_indices[0, t], output.sequences[0, 2 + t]]
        for t in range(output.beam_indices.shape[1])
    ]
    assert float(output.sequences_scores[0]) == pytest.approx(float(sum(steps)), abs=1e-5)


def test_transformers_looks_at_no_more_tokens_than_are_kept() -> None:
    tokenizer = tiny.byte_level_tokenizer()
    target = CharDistribution.from_texts([tiny.ENGLISH])
    model = tiny.llama(len(tokenizer))

    def texts(keep: int | None) -> Any:
        guide = GuidedLogitsProcessor(tokenizer, target, 0.3, "aligned_w2", 30.0, prompt_length=2, keep=keep)
        ids = torch.tensor([[1, 40], [1, 50]])
        return cast(Any, model).generate(
            ids, logits_processor=[guide], num_beams=4, length_penalty=0.0, max_new_tokens=15
        )

    torch.testing.assert_close(texts(8), texts(None))
