"""What the classes of a model write: checked once, told where something is odd, the same in every file."""

import json
import logging
from pathlib import Path

import numpy as np
import pytest

from fada.errors import FadaError
from fada.text.alphabet import Alphabet


def test_the_blank_writes_nothing_whatever_its_name() -> None:
    alphabet = Alphabet(("a", "<blank>", "b"), blank=1)
    assert alphabet.texts == ("a", "", "b")
    assert len(alphabet) == 3


@pytest.mark.parametrize("blank", [-1, 2, True, None, "0", 0.0])
def test_a_blank_that_is_no_class_is_refused(blank: object) -> None:
    with pytest.raises(FadaError, match="blank is"):
        Alphabet(("", "a"), blank)  # type: ignore[arg-type]


def test_lists_and_numpy_integers_are_welcome() -> None:
    assert Alphabet(["", "a"], np.int64(0)) == Alphabet(("", "a"), 0)  # type: ignore[arg-type]


@pytest.mark.parametrize("symbols", ["abc", ["", 3], {"": 0, "a": 1}, {"", "a"}])
def test_what_is_no_list_of_texts_is_refused(symbols: object) -> None:
    with pytest.raises(FadaError, match="expected"):
        Alphabet(symbols)  # type: ignore[arg-type]


def test_two_classes_with_one_text_are_told(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, logger="fada"):
        assert Alphabet(("", "twin", "b", "twin", "", "")).twins == ("twin",)
    assert "'twin'" in caplog.text


@pytest.mark.parametrize(("blank", "told"), [(0, True), (2, False)])
def test_a_character_in_the_place_of_the_blank_is_told(
    blank: int, told: bool, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING, logger="fada"):
        Alphabet(("q", "r", ""), blank)
    assert ("class 0, 'q', is taken for the blank, while class 2 writes nothing" in caplog.text) == told


def test_missing_characters_come_with_their_number_most_frequent_first() -> None:
    assert Alphabet(("z", "ab", "c")).missing(["abz", "xzz", "cx"]) == {"z": 3, "x": 2}


def test_the_json_form_goes_there_and_back(tmp_path: Path) -> None:
    alphabet = Alphabet(("", "a", "é"), 0)
    path = tmp_path / "symbols.json"
    path.write_text(json.dumps(alphabet.to_dict()), encoding="utf-8")
    assert Alphabet.load(path) == alphabet
    path.write_text('["", "a", "é"]', encoding="utf-8")
    assert Alphabet.load(path) == alphabet


@pytest.mark.parametrize("text", ["[" * 100_000, "{}", "[]", '{"symbols": ["a"], "blank": 1}', "nothing"])
def test_a_damaged_symbols_file_is_a_sentence(tmp_path: Path, text: str) -> None:
    path = tmp_path / "symbols.json"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(FadaError, match=r"symbols\.json"):
        Alphabet.load(path)
