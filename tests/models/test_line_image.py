"""Straightening against the same steps with the filters of scipy, at every column."""

import time
import tracemalloc

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray
from PIL import Image
from scipy import ndimage

from fada.models.line_image import _bell, _dot, _product, _smoothed_across, _smoothing, ink_of, straighten
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


def windows(image: NDArray[np.integer], size: tuple[int, int]) -> NDArray[np.int64]:
    before = size[0] // 2, size[1] // 2
    pads = [(b, s - 1 - b) for b, s in zip(before, size, strict=True)]
    return sliding_window_view(np.pad(image.astype(np.int64), pads, mode="symmetric"), size)


def plain_ink(grey: NDArray[np.uint8]) -> NDArray[np.float32]:
    """That of `ink_of` to the last bit: its numbers one after the other, without its shortcuts."""
    size = (max(3, grey.shape[0] // 3), max(3, grey.shape[0] // 2))
    lightest = windows(windows(grey, (3, 3)).sum((2, 3)), size).max((2, 3))
    ink = windows(lightest, size).sum((2, 3)).astype(np.float32) * np.float32(1 / (9 * size[0] * size[1]))
    ink = ink - grey.astype(np.float32) - np.float32(0.05 * 255)
    dark = np.sort(ink[ink > 0])
    place = 0.95 * (len(dark) - 1)
    low, high = dark[[int(place), min(int(place) + 1, len(dark) - 1)]] if len(dark) else (0.0, 0.0)
    full = float(low + (place - int(place)) * (high - low))
    return np.clip(ink / np.float32(max(full, 1.0)), 0, 1)


def smoothed(rows: NDArray[np.float32], sigma: float) -> NDArray[np.float32]:
    """Each row smoothed a little, mirrored beyond its ends."""
    weights = _bell(sigma) if sigma > 0 else np.ones(1, np.float32)
    padded = np.pad(rows, [(0, 0), (len(weights) // 2,) * 2], mode="symmetric")
    parts = [padded[:, i : i + rows.shape[1]] * weight for i, weight in enumerate(weights)]
    return sum(parts[1:], parts[0])


def plainly_straightened(grey: NDArray[np.uint8], height: int, aspect: float) -> NDArray[np.uint8]:
    """What `straighten` gives to the last bit, row by row and without its shortcuts; of fewer than 1024 columns."""
    ink = plain_ink(grey)
    rows, columns = ink.shape
    bin_ = max(1, rows // 16)
    narrow = ink[:, ::bin_].copy()
    for i in range(1, bin_):
        narrow[:, : ink[:, i::bin_].shape[1]] += ink[:, i::bin_]
    narrow *= np.float32(1 / bin_)

    def matrix(sigma: float, size: int) -> NDArray[np.float32]:
        weights = _bell(sigma)
        apart = np.subtract.outer(np.arange(size), np.arange(size)) + len(weights) // 2
        return np.where((apart >= 0) & (apart < len(weights)), weights[apart.clip(0, len(weights) - 1)], 0)

    sigma = 0.8 * rows / bin_
    blurred = (matrix(0.16 * rows, rows) @ narrow) @ matrix(sigma, narrow.shape[1])
    blurred += (1e-3 * np.hanning(rows + 2)[1:-1, None]).astype(np.float32)
    highest = np.pad(np.argmax(blurred, axis=0).astype(np.float64), len(_bell(sigma)) // 2, mode="edge")
    centre = np.convolve(highest, _bell(sigma), mode="valid")
    places = np.arange(0, columns, bin_) + (bin_ - 1) / 2
    everywhere = np.interp(np.arange(columns), places, centre).astype(np.float32)
    distance = np.abs(np.arange(rows, dtype=np.float32)[:, None] - everywhere)
    near = ink * (distance < 0.4 * rows)
    total = float(near.sum())
    spread = float(np.vdot(distance, near)) / total if total > 0 else rows / 8
    half = min(max(3.4 * spread, 0.28 * rows), 0.5 * rows)
    shrink = 2 * half / height
    width = max(16, round(columns * aspect / shrink))
    across = (np.arange(width) + 0.5) * columns / width - 0.5
    down = ((np.arange(height) + 0.5) / height * 2 - 1) * half
    weights = _bell(sigma) if (sigma := max(0.0, columns / width - 1) / 2) > 0 else np.ones(1, np.float32)
    left = np.minimum(across.astype(np.int64), max(columns - 2, 0))
    inside = (across >= 0) & (across <= columns - 1)
    shares = np.zeros((len(weights) + 1, width), np.float32)
    shares[:-1] = np.outer(weights, (1 - (across - left)) * inside)
    shares[1:] += np.outer(weights, (across - left) * inside)
    padded = np.pad(ink, [(0, 0), (len(weights) // 2, len(weights) // 2 + 1)], mode="symmetric")
    narrow = sum((padded[:, left + i] * shares[i] for i in range(1, len(shares))), padded[:, left] * shares[0])
    narrow = smoothed(narrow.T, max(0.0, shrink - 1) / 2).T
    wanted = down[:, None] + np.interp(across, places, centre)
    above = wanted.astype(np.int64).clip(0, max(rows - 2, 0))
    share = (wanted - above).astype(np.float32)
    column = np.arange(width)
    level = narrow[above, column] * (1 - share) + narrow[above + (rows > 1), column] * share
    level *= (wanted >= 0) & (wanted <= rows - 1)
    return (255 - np.round(level * 255)).astype(np.uint8)


@settings(max_examples=40, deadline=None)
@given(st.integers(1, 90), st.integers(1, 300), st.sampled_from([20, 40]), st.integers(0, 2**32 - 1))
def test_every_image_is_straightened_to_the_last_bit_as_without_shortcuts(
    rows: int, columns: int, height: int, seed: int
) -> None:
    grey = np.random.default_rng(seed).integers(0, 256, (rows, columns), dtype=np.uint8)
    np.testing.assert_array_equal(straighten(grey, height, 0.65), plainly_straightened(grey, height, 0.65))


@pytest.mark.parametrize("height", [32, 64, 100])
@pytest.mark.parametrize("slope", [0, 0.06])
def test_a_line_is_straightened_to_the_last_bit_as_without_shortcuts(height: int, slope: float) -> None:
    line = drawn_line("abcd dcba abab", height)
    line = line.transform(line.size, Image.Transform.AFFINE, (1, 0, 0, slope, 1, 0), fillcolor=255)
    grey = np.asarray(line)
    np.testing.assert_array_equal(straighten(grey, 40, 0.65), plainly_straightened(grey, 40, 0.65))


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


@pytest.mark.parametrize(
    ("rows", "inner", "columns"), [(1, 1, 1), (40, 60, 70), (100, 100, 333), (7, 1500, 900), (512, 512, 70)]
)
def test_products_in_parts_are_those_of_the_whole(rows: int, inner: int, columns: int) -> None:
    rng = np.random.default_rng(rows)
    a, b = rng.random((rows, inner), np.float32), rng.random((inner, columns), np.float32)
    np.testing.assert_allclose(_product(a[:, ::-1], b), a[:, ::-1].astype(float) @ b, rtol=1e-5)
    assert _dot(b, b) == pytest.approx(np.sum(b.astype(float) ** 2), rel=1e-5)


def test_a_line_is_straightened_on_one_thread() -> None:
    grey = np.random.default_rng(0).integers(0, 256, (120, 1500)).astype(np.uint8)
    straighten(grey, 40)
    whole, here = time.process_time(), time.thread_time()
    for _ in range(20):
        straighten(grey, 40)
    here = time.thread_time() - here
    assert time.process_time() - whole - here < 0.3 * here
