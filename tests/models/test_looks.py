"""Several looks at a line: what they are, their mean, and who can do it."""

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import fada
from fada import load_recognizer
from fada.decoding.emissions import Emissions, doubt
from fada.errors import FadaError
from fada.models.looks import LOOKS, UNSURE, Looks, looked_at, seen, together
from fada.models.registry import load_network
from tests.support.commands import run_fada
from tests.support.model_folders import wav2vec2_with_alphabet_folder
from tests.support.training_lines import image_folder, image_lines


def log_probs(frames: int, classes: int, seed: int) -> np.ndarray:
    scores = np.random.default_rng(seed).normal(0, 3, (frames, classes))
    return (scores - np.logaddexp.reduce(scores, axis=1, keepdims=True)).astype(np.float32)


def slowly(looks: list[np.ndarray]) -> np.ndarray:
    """The mean of looks, class by class."""
    frames, classes = looks[0].shape
    mean = np.zeros((frames, classes))
    for look in looks:
        places = (np.arange(frames) + 0.5) / frames * len(look) - 0.5
        for c in range(classes):
            mean[:, c] += np.log(np.interp(places, np.arange(len(look)), np.exp(look[:, c].astype(np.float64))))
    mean = np.exp(mean / len(looks))
    return np.log(mean / mean.sum(axis=1, keepdims=True))


@settings(max_examples=40, deadline=None)
@given(st.lists(st.integers(1, 40), min_size=2, max_size=5), st.integers(2, 9))
def test_the_mean_of_looks_is_that_of_their_log_probabilities_at_the_frames_of_the_first(
    frames: list[int], classes: int
) -> None:
    looks = [log_probs(many, classes, seed) for seed, many in enumerate(frames)]
    found = together(looks)
    assert found.dtype == np.float32
    np.testing.assert_allclose(found, slowly(looks), atol=1e-4)
    np.testing.assert_allclose(np.exp(found).sum(axis=1), 1, atol=1e-5)


@settings(max_examples=40, deadline=None)
@given(st.integers(1, 300))
def test_another_look_is_as_high_and_as_wide_as_it_says(width: int) -> None:
    image = np.random.default_rng(width).integers(0, 255, (40, width), dtype=np.uint8)
    for slant, factor in LOOKS:
        assert seen(image, slant, factor).shape == (40, max(round(width * factor), 1))
    assert seen(image, *LOOKS[0]) is image
    assert together([image.astype(np.float32)]).shape == image.shape


def test_a_slant_leans_a_stroke_about_the_middle_of_the_line() -> None:
    image = np.full((40, 60), 255, np.uint8)
    image[:, 30] = 0
    darkest = seen(image, 0.1, 1.0).argmin(axis=1)
    assert darkest[19] == darkest[20] == 30
    assert (darkest[0], darkest[-1]) == (32, 28)


def test_a_network_sees_the_same_with_torch_and_without_and_one_look_is_the_line_itself() -> None:
    lines = image_lines(3)
    reader, network = load_recognizer("medieval"), load_network("medieval")
    once = reader.emit(lines)
    reader.use_looks(5)
    network.use_looks(5)
    found, expected = reader.emit(lines), network.emit(lines)
    for ours, theirs, plain in zip(found.log_probs, expected.log_probs, once.log_probs, strict=True):
        np.testing.assert_allclose(ours, theirs, atol=1e-4)
        assert ours.shape == plain.shape
        assert not np.array_equal(ours, plain)
    reader.use_looks(1)
    assert all(map(np.array_equal, reader.emit(lines).log_probs, once.log_probs))


def test_commands_look_as_often_as_they_are_told_and_record_it(tmp_path: Path) -> None:
    source = image_folder(tmp_path / "lines", 3)
    run_fada("emit", "medieval", source, "--out", tmp_path / "emissions.npz", "--looks", 3)
    recognizer = load_recognizer("medieval")
    recognizer.use_looks(3)
    found = Emissions.load(tmp_path / "emissions.npz")
    expected = recognizer.emit(fada.read_lines(source))
    assert found.ids == expected.ids
    assert all(map(np.array_equal, found.log_probs, expected.log_probs))
    run_fada("transcribe", source, "--out", tmp_path / "text.tsv", "--looks", 3)
    assert '"looks": "3"' in (tmp_path / "text.tsv.provenance.json").read_text("utf-8")


@pytest.mark.parametrize(("unsure", "times"), [(0.0, 1), (UNSURE - 0.01, 1), (UNSURE + 0.01, len(LOOKS))])
def test_a_line_is_looked_at_again_if_the_network_is_unsure_of_it(unsure: float, times: int) -> None:
    images: list[np.ndarray] = []

    def network(image: np.ndarray) -> np.ndarray:
        images.append(image)
        return np.log(np.tile([1 - unsure, max(unsure, 1e-30)], (5, 1)))

    found = looked_at(np.full((40, 120), 255, np.uint8), "auto", network)
    assert len(images) == times
    np.testing.assert_allclose(found, network(images[0]), atol=1e-6)


def test_lines_that_are_unsure_are_read_as_with_five_looks_and_the_others_as_with_one() -> None:
    lines = image_lines(3)
    recognizer = load_recognizer("medieval")
    read: dict[Looks, list[np.ndarray]] = {}
    looks: Looks
    for looks in (1, 5, "auto"):
        recognizer.use_looks(looks)
        read[looks] = recognizer.emit(lines).log_probs
    for once, often, auto in zip(read[1], read[5], read["auto"], strict=True):
        np.testing.assert_array_equal(auto, often if doubt(once).mean() > UNSURE else once)


def test_commands_look_again_where_they_are_unsure_unless_they_are_told(tmp_path: Path) -> None:
    source = image_folder(tmp_path / "lines", 2)
    run_fada("transcribe", source, "--out", tmp_path / "text.tsv")
    assert '"looks": "auto"' in (tmp_path / "text.tsv.provenance.json").read_text("utf-8")
    run_fada("transcribe", source, "--out", tmp_path / "once.tsv", "--looks", 1)
    assert '"looks"' not in (tmp_path / "once.tsv.provenance.json").read_text("utf-8")
    with pytest.raises(FadaError, match="expected a number from 1 to 5, or auto"):
        run_fada("transcribe", source, "--looks", "often")


def test_who_cannot_look_again_says_so(tmp_path: Path) -> None:
    for looks in (0, len(LOOKS) + 1):
        with pytest.raises(FadaError, match="expected 1 to 5"):
            load_recognizer("medieval").use_looks(looks)
    greek = load_recognizer("trocr-greek")
    greek.use_looks(1)
    greek.use_looks("auto")
    assert greek.looks == 1
    for blind in (greek, load_recognizer(wav2vec2_with_alphabet_folder(tmp_path))):
        with pytest.raises(FadaError, match="looks at a line once"):
            blind.use_looks(2)
