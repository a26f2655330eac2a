"""Guided generation: equal to the definition of Eq. 2, whatever the model, the tokenizer and the search."""

import itertools

import numpy as np
import pytest
import tiny_models as tiny
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from fada.decoding.generate import GuidedLogitsProcessor, guided_generate
from fada.errors import FadaError
from fada.guidance import Guidance
from fada.targets import CharDistribution
from fada.text import TextNormalizer
from fada.tokens import TokenTable

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
def cases(draw):
    name = draw(st.sampled_from(sorted(TOKENIZERS)))
    tokenizer = TOKENIZERS[name](draw(st.sampled_from(sorted(TEXTS.values()))))
    text = draw(st.sampled_from(sorted(TEXTS.values())))
    target = CharDistribution.from_texts([text], NORMALIZERS[draw(st.sampled_from(sorted(NORMALIZERS)))])
    ids = draw(st.lists(st.integers(0, len(tokenizer) - 1), max_size=6))
    return tokenizer, target, ids, draw(st.sampled_from(["sorted_w2", "aligned_w2", "js", "w1"]))


@settings(max_examples=60, deadline=None)
@given(cases(), st.floats(0, 1), st.sampled_from([1.0, 50.0]), st.sampled_from([None, 1, 7]), st.integers(0, 99))
def test_every_token_gets_its_eq2_increment_and_losers_a_lower_bound(case, lam, scale, keep, seed):
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
