"""Straightening against the same steps with the filters of scipy, at every column."""

import tracemalloc

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from PIL import Image
from scipy import ndimage

from fada.models.line_image import _smoothed_across, _smoothing, ink_of, straighten
from tests.support.training_lines import drawn_line


def slow_ink(grey: NDArray[np.uint8]) -> NDArray[np.float32]:
    light = grey.astype(np.float32)
    size = (max(3, grey.shape[0] // 3), max(3, grey.shape[0] // 2))
    paper = ndimage.uniform_filter(ndimage.maximum_filter(ndimage.uniform_filter(light, 3), size), size)
    ink = np.clip(paper - light - 0.05 * 255, 0, None)
    full = float(np.percentile(ink[ink > 0], 95)) if (ink > 0).any() else 1.0
    return np.clip(ink / max(full, 1.0), 0, 1).astype(np.float32)


def slowly_straightened(grey: NDArray[np.uint8], height: int, aspect: float) -> NDArray[np.uint8]:
    ink = slow_ink(grey)
    rows, columns = ink.shape
    blurred = ndimage.gaussian_filter(ink, (rows * 0.16, rows * 0.8), mode="constant")
    blurred += 1e-3 * np.hanning(rows + 2)[1:-1, None]
    centre = ndimage.gaussian_filter1d(np.argmax(blurred, axis=0).astype(np.float64), rows * 0.8, mode="nearest")
    distance = np.abs(np.arange(rows)[:, None] - centre)
    near = ink * (distance < 0.4 * rows)
    spread = float((distance * near).sum() / near.sum()) if near.any() else rows / 8
    half = float(np.clip(3.4 * spread, 0.28 * rows, 0.5 * rows))
    shrink = 2 * half / height
    width = max(16, round(columns * aspect / shrink))
    across = (np.arange(width) + 0.5) * columns / width - 0.5
    down = ((np.arange(height) + 0.5) / height * 2 - 1) * half
    blur = (max(0.0, shrink - 1) / 2, max(0.0, columns / width - 1) / 2)
    places = [down[:, None] + np.interp(across, np.arange(columns), centre), np.broadcast_to(across, (height, width))]
    level = ndimage.map_coordinates(ndimage.gaussian_filter(ink, blur), places, order=1, mode="constant")
    return (255 - np.round(level * 255)).astype(np.uint8)


@settings(max_examples=30, deadline=None)
@given(st.integers(1, 90), st.integers(1, 200), st.integers(0, 2**32 - 1))
def test_ink_is_that_of_the_slow_filters(rows: int, columns: int, seed: int) -> None:
    grey = np.random.default_rng(seed).integers(0, 256, (rows, columns), dtype=np.uint8)
    np.testing.assert_allclose(ink_of(grey), slow_ink(grey), atol=1e-5)


@pytest.mark.parametrize("height", [24, 40, 64, 90])
@pytest.mark.parametrize("slope", [0, 0.05, -0.08])
def test_a_line_is_straightened_as_the_slow_filters_do(height: int, slope: float) -> None:
    line = drawn_line("abcd dcba abab", height)
    line = line.transform(line.size, Image.Transform.AFFINE, (1, 0, 0, slope, 1, 0), fillcolor=255)
    grey = np.asarray(line)
    for aspect in (1.0, 0.65):
        found, expected = straighten(grey, 40, aspect), slowly_straightened(grey, 40, aspect)
        assert abs(found.shape[1] - expected.shape[1]) <= 1
        if found.shape == expected.shape:
            assert np.abs(found.astype(int) - expected).mean() < 1.5


def test_paper_without_ink_stays_white() -> None:
    assert straighten(np.full((50, 300), 200, np.uint8), 40, 0.65).min() == 255


@pytest.mark.parametrize("sigma", [0.8, 12.8, 25.0])
@pytest.mark.parametrize("columns", [1, 1024, 1025, 3000])
def test_a_long_line_is_smoothed_in_blocks_as_it_is_in_one(sigma: float, columns: int) -> None:
    ink = np.random.default_rng(0).random((2, columns), dtype=np.float32)
    np.testing.assert_allclose(_smoothed_across(ink, sigma), ink @ _smoothing(sigma, columns), rtol=1e-5)


@pytest.mark.parametrize("size", [(1, 65_535), (20, 32_768), (65_535, 1), (3000, 3000)])
def test_no_shape_of_an_image_needs_much_memory(size: tuple[int, int]) -> None:
    tracemalloc.start()
    straighten(np.zeros(size, np.uint8), 40, 0.65)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 300e6
