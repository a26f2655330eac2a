"""Words that are known to stand in a line: the search against all paths, enumerated."""

from collections import defaultdict
from itertools import groupby, pairwise, product

import numpy as np
import pytest

from fada import CTCBeamDecoder, FadaError
from fada.decoding.words import Word


def collapsed(path: tuple[int, ...], symbols: list[str]) -> str:
    return "".join(symbols[c] for c, _ in groupby(path) if c != 0)


def enumerated(log_probs: np.ndarray, symbols: list[str], words: list[Word], prefix: str) -> dict[str, float]:
    """log P of every reading: all paths, of which those count that write each word exactly in its frames."""
    frames, classes = log_probs.shape
    cuts = [0, *(at for _, start, end in words for at in (start, end)), frames]
    found: defaultdict[str, float] = defaultdict(float)
    for path in product(range(classes), repeat=frames):
        parts = [collapsed(path[a:b], symbols) for a, b in pairwise(cuts)]
        if all(part == word for part, (word, _, _) in zip(parts[1::2], words, strict=True)):
            text = "".join(parts)
            if text.startswith(prefix):
                found[text] += float(np.exp(log_probs[np.arange(frames), path].sum()))
    return {text: float(np.log(p)) for text, p in found.items() if p > 0}


@pytest.mark.parametrize("symbols", [["", "a", "b"], ["", "a", "b", "ab"], ["", "a", ""]])
@pytest.mark.parametrize(
    ("words", "prefix"),
    [
        ([("a", 2, 4)], ""),
        ([("ab", 1, 4)], ""),
        ([("aa", 1, 5)], ""),
        ([("a", 0, 2), ("a", 4, 6)], ""),
        ([("a", 2, 4)], "b"),
        ([("a", 0, 6)], ""),
        ([("x", 0, 6)], ""),
        ([("aaa", 1, 4)], ""),
    ],
)
def test_words_are_a_filter_of_all_paths(symbols: list[str], words: list[Word], prefix: str) -> None:
    rng = np.random.default_rng(7)
    log_probs = np.log(rng.dirichlet(np.ones(len(symbols)), 6))
    expected = enumerated(log_probs, symbols, words, prefix)
    decoder = CTCBeamDecoder(symbols, beam_size=2000)
    found = decoder.decode(log_probs, nbest=2000, prefix=prefix, words=words)
    if not expected:
        assert [(h.text, h.log_prob) for h in found] == [("", -np.inf)]
        return
    by_text: defaultdict[str, float] = defaultdict(float)
    for hypothesis in found:
        by_text[hypothesis.text] += float(np.exp(hypothesis.log_prob))
    assert by_text.keys() == expected.keys()
    for text, log_prob in expected.items():
        assert np.log(by_text[text]) == pytest.approx(log_prob, abs=1e-9)
    assert [h.score for h in found] == sorted((h.score for h in found), reverse=True)


def test_a_word_has_its_own_frames_and_is_certain() -> None:
    rng = np.random.default_rng(3)
    log_probs = np.log(rng.dirichlet(np.full(4, 0.4), 20))
    best = CTCBeamDecoder(["", "a", "b", "c"]).decode(log_probs, words=[("ab", 8, 14)], alignment=True)[0]
    at = next(i for i, (a, b) in enumerate(best.char_frames) if a >= 8)
    assert best.text[at : at + 2] == "ab"
    assert all(8 <= a < b <= 14 for a, b in best.char_frames[at : at + 2])
    assert best.char_confidences[at : at + 2] == (1.0, 1.0)
    assert all(b <= 20 for _, b in best.char_frames)
    assert [a for a, _ in best.char_frames] == sorted(a for a, _ in best.char_frames)


@pytest.mark.parametrize(
    "words", [[("a", 3, 3)], [("a", -1, 2)], [("a", 0, 9)], [("", 0, 2)], [("a", 0, 3), ("b", 2, 4)]]
)
def test_words_outside_the_line_or_over_each_other_are_refused(words: list[Word]) -> None:
    with pytest.raises(FadaError, match="frames"):
        CTCBeamDecoder(["", "a", "b"]).decode(np.log(np.full((6, 3), 1 / 3)), words=words)
