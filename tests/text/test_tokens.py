"""Tokens as bytes and characters: the table agrees with what the tokenizer decodes."""

from typing import Any, cast

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer, decoders, models
from transformers import ByT5Tokenizer, PreTrainedTokenizerFast

from fada.errors import FadaError
from fada.text.characters import OTHER
from fada.text.normalizer import TextNormalizer
from fada.text.tokens import TokenTable, complete_text, whole_characters
from tests.support import tiny_models as tiny

BUILDERS = {
    "byte-level": tiny.byte_level_tokenizer,
    "byte fallback": tiny.byte_fallback_tokenizer,
    "characters": tiny.character_tokenizer,
    "wordpiece": tiny.wordpiece_tokenizer,
}


@pytest.mark.parametrize("text", [tiny.ENGLISH, tiny.GREEK], ids=["English", "Greek"])
@pytest.mark.parametrize("kind", BUILDERS)
def test_the_joined_bytes_are_the_decoded_text(kind: str, text: str) -> None:
    tokenizer = BUILDERS[kind](text)
    ids = tokenizer(text, add_special_tokens=False)["input_ids"]
    decoded = tokenizer.decode([1, *ids, 2, 0], skip_special_tokens=True)
    assert TokenTable.from_tokenizer(tokenizer).decode([1, *ids, 2, 0]).lstrip(" ") == decoded
    assert len(decoded) >= len(text) - 40


@settings(max_examples=60, deadline=None)
@given(st.text(max_size=40), st.sampled_from(["byte-level", "byte fallback"]))
def test_any_text_survives_tokenizers_that_fall_back_to_bytes(text: str, kind: str) -> None:
    text = text.replace("▁", " ").encode("utf-8", "ignore").decode().strip(" ")
    tokenizer = BUILDERS[kind]()
    ids = tokenizer(text, add_special_tokens=False)["input_ids"]
    assert TokenTable.from_tokenizer(tokenizer).decode(ids).lstrip(" ") == text


def test_special_tokens_time_stamps_and_ids_without_a_token_are_not_text() -> None:
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=Tokenizer(models.WordLevel({"a": 0, "b": 7}, unk_token="a")), eos_token="</s>"
    )
    tokenizer.backend_tokenizer.decoder = decoders.Fuse()
    tokenizer.add_tokens(["<|0.00|>", "<|29.98|>", "word"])
    table = TokenTable.from_tokenizer(tokenizer)
    ids: Any = tokenizer.convert_tokens_to_ids(["</s>", "<|0.00|>", "<|29.98|>"])
    assert all(table.special[i] and table.pieces[i] == b"" for i in [*ids, 3])
    assert table.decode([0, *ids, 3, 7, cast(int, tokenizer.convert_tokens_to_ids("word"))]) == "abword"


def test_a_leading_space_marker_is_a_space_and_continuations_have_none() -> None:
    table = TokenTable.from_tokenizer(tiny.wordpiece_tokenizer())
    names = tiny.wordpiece_tokenizer().get_vocab()
    assert table.pieces[names["dog"]] == b" dog"
    assert all(table.pieces[i] == name[2:].encode() for name, i in names.items() if name.startswith("##"))
    words = PreTrainedTokenizerFast(tokenizer_object=Tokenizer(models.WordLevel({"a": 0, "b": 1}, unk_token="a")))
    assert TokenTable.from_tokenizer(words).decode([0, 1]).lstrip() == words.decode([0, 1]) == "a b"


def test_tokenizers_written_in_python_are_read_too() -> None:
    tokenizer = ByT5Tokenizer()
    text = "naïve ἄειδε"
    assert TokenTable.from_tokenizer(tokenizer).decode(tokenizer(text)["input_ids"]) == text


def test_counts_are_the_characters_of_the_normalised_token() -> None:
    tokenizer = tiny.byte_level_tokenizer()
    table = TokenTable.from_tokenizer(tokenizer)
    normalizer = TextNormalizer()
    alphabet = [*"aeo dgé", OTHER]
    counts = table.counts(alphabet, normalizer)
    assert counts.shape == (len(table), len(alphabet))
    for i, piece in enumerate(table.pieces):
        text = normalizer(whole_characters(piece))
        want = [sum(c == a for c in text) for a in alphabet[:-1]]
        np.testing.assert_array_equal(counts[i].toarray()[0], [*want, len(text) - sum(want)])
    without_other = table.counts(alphabet[:-1], normalizer)
    np.testing.assert_array_equal(without_other.toarray(), counts.toarray()[:, :-1])


@given(st.text(max_size=8), st.integers(0, 8))
def test_cutting_utf8_anywhere_loses_nothing_but_the_cut_character(text: str, cut: int) -> None:
    data = text.encode("utf-8", "ignore")
    head, pending = complete_text(data[:cut])
    assert head.encode() + pending == data[:cut]
    assert len(pending) < 4


@given(st.binary(max_size=12))
def test_bytes_that_are_not_utf8_become_replacement_characters_as_in_python(data: bytes) -> None:
    text, pending = complete_text(data)
    assert text + pending.decode("utf-8", "replace") == data.decode("utf-8", "replace")
    # What waits is always completed or replaced as one character.
    assert len(pending.decode("utf-8", "replace")) == (1 if pending else 0)


def test_a_table_fits_output_layers_of_another_size() -> None:
    table = TokenTable.from_tokenizer(tiny.character_tokenizer())
    assert len(table.resized(100)) == 100
    assert table.resized(100).special[len(table) :].all()
    assert len(table.resized(5)) == 5
    assert table.resized(len(table)) is table


def test_an_unknown_decoder_is_refused_by_name() -> None:
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=Tokenizer(models.WordLevel({"a": 0}, unk_token="a")))
    tokenizer.backend_tokenizer.decoder = decoders.CTC()
    with pytest.raises(FadaError, match="CTC"):
        TokenTable.from_tokenizer(tokenizer)
