"""The decoder for kraken against the shapes of kraken 7's own: (N, C, W) probabilities in, labellings out."""

from types import SimpleNamespace

import numpy as np
import pytest

from fada.decoding.ctc import CTCBeamDecoder
from fada.errors import FadaError
from fada.integrations.kraken import decoder, symbols_of
from fada.targets.distribution import CharDistribution

CODEC = SimpleNamespace(l2c={(1,): "a", (2,): "b", (3,): "ſt", (5,): "e"})
TARGET = CharDistribution.from_texts(["aabbae"])


def outputs(lines: int, frames: int, classes: int = 6) -> np.ndarray:
    p = np.random.default_rng(lines).dirichlet(np.full(classes, 0.3), (lines, frames))
    return p.transpose(0, 2, 1).astype(np.float32)


def test_the_codec_gives_the_symbols() -> None:
    assert symbols_of(CODEC) == ["", "a", "b", "ſt", "", "e"]
    with pytest.raises(FadaError, match="2 labels"):
        symbols_of(SimpleNamespace(l2c={(1, 2): "æ"}))


@pytest.mark.parametrize("as_tensor", [False, True])
def test_a_batch_gives_one_labelling_for_each_line(as_tensor: bool) -> None:
    torch = pytest.importorskip("torch")
    probabilities, lengths = outputs(3, 20), np.array([20, 11, 0])
    decode = decoder(TARGET, 0.5, CODEC, scale=10.0)
    found = decode(*((torch.tensor(probabilities), torch.tensor(lengths)) if as_tensor else (probabilities, lengths)))
    assert [type(line) for line in found] == [list, list, list]
    assert found[2] == []
    search = CTCBeamDecoder(symbols_of(CODEC), target=TARGET, lam=0.5, scale=10.0)
    for line, p, n in zip(found, probabilities, lengths, strict=True):
        best = search.decode(np.log(p[:, :n].T))[0]
        assert tuple(label for label, *_ in line) == best.labels
        previous = -1
        for label, start, end, confidence in line:
            assert previous < start <= end < n
            assert confidence == pytest.approx(p[label, start : end + 1].max(), abs=1e-5)
            previous = end


def test_a_single_line_may_come_without_batch_and_lengths() -> None:
    probabilities = outputs(1, 9)
    assert decoder(None, codec=CODEC)(probabilities[0]) == decoder(None, codec=CODEC)(probabilities, np.array([9]))


def test_a_certain_network_is_read_like_kraken_reads_it() -> None:
    path = [0, 1, 1, 0, 1, 2, 2, 0]
    probabilities = np.full((6, len(path)), 0.002)
    probabilities[path, range(len(path))] = 0.99
    (line,) = decoder(TARGET, 0.9, CODEC)(probabilities)
    assert [(label, start, end) for label, start, end, _ in line] == [(1, 1, 2), (1, 4, 4), (2, 5, 6)]


def test_zero_probabilities_are_no_obstacle() -> None:
    probabilities = np.zeros((1, 6, 4), np.float32)
    probabilities[0, [1, 0, 2, 0], range(4)] = 1
    assert [label for label, *_ in decoder(None, codec=CODEC)(probabilities)[0]] == [1, 2]


def test_what_does_not_fit_is_refused() -> None:
    with pytest.raises(FadaError, match=r"codec=net\.codec"):
        decoder(TARGET, 0.5)
    with pytest.raises(FadaError, match="codec of this model"):
        decoder(TARGET, 0.5, CODEC)(outputs(2, 5, classes=3))
    with pytest.raises(FadaError, match="lengths"):
        decoder(TARGET, 0.5, CODEC)(outputs(2, 5), np.array([5, 6]))
