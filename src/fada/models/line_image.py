"""A line image as the C-RNN sees it: even background, straight baseline, letters of one size.

Written with numpy alone, several times quicker than the filters of scipy, which also take long to import.
"""

from functools import lru_cache

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from fada.data.images import MAX_WIDTH, MIN_WIDTH

MAX_ROWS = 512
"""Images of lines that are higher are scaled to so many rows first: the work grows with the cube of their height."""

_INK_SPREAD = 3.4  # half the crop, in mean distances of the ink from the centre line: keeps accents and tails
_BINS = 16  # the centre line is looked for in columns of so many to a height: far narrower than it is smoothed
_BLOCK = 1024  # more columns than this are smoothed in blocks: the matrix that smooths them has their square

Floats = NDArray[np.float32]


def ink_of(grey: NDArray[np.uint8]) -> Floats:
    """Ink from 0 (paper) to 1, (height, width) as the grey image given, dark ink on light paper.

    The paper is a local maximum, smoothed, so stains and shadows fade; the 95th percentile of what is darker counts
    as full ink, so faded and dark hands look alike.
    """
    size = (max(3, grey.shape[0] // 3), max(3, grey.shape[0] // 2))
    nine = _windows(np.add, grey.astype(np.uint16), (3, 3))  # whole numbers: twice as quick
    lightest = _windows(np.maximum, nine, size).astype(np.float32)
    paper = _windows(np.add, lightest, size) * np.float32(1 / (9 * size[0] * size[1]))
    ink = np.maximum(paper - grey - np.float32(0.05 * 255), 0)
    dark = ink[ink > 0]
    full = _percentile(dark, 0.95) if len(dark) else 1.0
    return np.minimum(ink / np.float32(max(full, 1.0)), 1)


def _percentile(values: Floats, share: float) -> float:
    """As ``np.percentile``, at half of its cost."""
    place = share * (len(values) - 1)
    below = int(place)
    low = np.partition(values, below)
    above = low[below + 1 :].min() if below + 1 < len(values) else low[below]
    return float(low[below] + (place - below) * (above - low[below]))


def _windows(combine: np.ufunc, image: np.ndarray, size: tuple[int, int]) -> np.ndarray:
    """What `combine` makes of a window around each pixel, the image mirrored beyond its edges.

    A window is put together of windows of 1, 2, 4, 8, … pixels, each found for the whole image from the one before.
    """
    for axis, many in enumerate(size):
        pixels = image.shape[axis]
        image = _mirrored(image, many, axis)
        found, start, width = None, 0, 1
        while True:
            if many & width:
                part = _part(image, start, pixels, axis)
                found = part if found is None else combine(found, part)
                start += width
            if 2 * width > many:
                break
            rest = image.shape[axis] - width
            image = combine(_part(image, 0, rest, axis), _part(image, width, rest, axis))
            width *= 2
        assert found is not None
        image = found
    return image


def _mirrored(image: np.ndarray, size: int, axis: int) -> np.ndarray:
    """The image continued beyond its edges, so that windows of `size` along `axis` are as many as its pixels."""
    pixels = image.shape[axis]
    places = np.arange(-(size // 2), pixels + size - 1 - size // 2) % (2 * pixels)
    return image.take(np.minimum(places, 2 * pixels - 1 - places), axis)


def _part(image: np.ndarray, start: int, many: int, axis: int) -> np.ndarray:
    return image[start : start + many] if axis == 0 else image[:, start : start + many]


def _bell(sigma: float) -> Floats:
    """The weights of a normal distribution at whole steps, to four standard deviations; their sum is 1."""
    reach = int(4 * sigma + 0.5)
    steps = np.arange(-reach, reach + 1)
    weights = np.exp(-0.5 / max(sigma * sigma, 1e-12) * steps**2)
    return (weights / weights.sum()).astype(np.float32)


@lru_cache(maxsize=64)
def _smoothing(sigma: float, size: int) -> Floats:
    """(size, size): the matrix that smooths `size` values, with nothing beyond them."""
    weights = _bell(sigma)
    apart = np.subtract.outer(np.arange(size), np.arange(size)) + len(weights) // 2
    return np.where((apart >= 0) & (apart < len(weights)), weights[np.clip(apart, 0, len(weights) - 1)], 0)


def _smoothed_across(image: Floats, sigma: float) -> Floats:
    """The image with its rows smoothed, nothing beyond their ends."""
    columns, reach = image.shape[1], len(_bell(sigma)) // 2
    if columns <= _BLOCK:
        return image @ _smoothing(sigma, columns)
    blocks = []
    for start in range(0, columns, _BLOCK):
        first, last = max(start - reach, 0), min(start + _BLOCK + reach, columns)
        block = image[:, first:last] @ _smoothing(sigma, last - first)
        blocks.append(block[:, start - first : start - first + _BLOCK])
    return np.concatenate(blocks, axis=1)


def _blurred(image: Floats, sigmas: tuple[float, float]) -> Floats:
    """The image smoothed a little, mirrored beyond its edges."""
    for axis, sigma in enumerate(sigmas):
        weights = _bell(sigma) if sigma > 0 else np.ones(1, np.float32)
        if len(weights) > 1:
            pixels, padded = image.shape[axis], _mirrored(image, len(weights), axis)
            reach = len(weights) // 2
            image = _part(padded, reach, pixels, axis) * weights[reach]
            for i in range(reach):
                image += weights[i] * (
                    _part(padded, i, pixels, axis) + _part(padded, len(weights) - 1 - i, pixels, axis)
                )
    return image


def _centre(ink: Floats) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """The centre line: columns, and the row of most ink around each, smoothed."""
    rows, columns = ink.shape
    width = max(1, rows // _BINS)
    starts = np.arange(0, columns, width)
    narrow = np.add.reduceat(ink, starts, axis=1) * np.float32(1 / width)
    sigma = 0.8 * rows / width
    blurred = _smoothed_across(_smoothing(0.16 * rows, rows) @ narrow, sigma)
    blurred += 1e-3 * np.hanning(rows + 2)[1:-1, None]  # where there is no ink, the middle is the centre
    bell = _bell(sigma)
    highest = np.argmax(blurred, axis=0).astype(np.float64)
    reach = len(bell) // 2
    highest = np.concatenate([np.full(reach, highest[0]), highest, np.full(reach, highest[-1])])
    return starts + (width - 1) / 2, np.convolve(highest, bell, mode="valid")


def _reduced(grey: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """An image that is too large for a line, scaled down, keeping its aspect as far as a pixel allows."""
    rows, columns = grey.shape
    factor = max(rows / MAX_ROWS, columns / (2 * MAX_WIDTH))
    size = max(round(columns / factor), 1), max(round(rows / factor), 1)
    return np.asarray(Image.fromarray(grey).resize(size, Image.Resampling.BOX, reducing_gap=2.0), dtype=np.uint8)


def straighten(grey: NDArray[np.uint8], height: int, aspect: float = 1.0) -> NDArray[np.uint8]:
    """Crop a grey line (any height, any width) around its writing, level it, and scale it to `height`.

    The centre line is the smoothed row of most ink in each column; the crop is proportional to the mean distance of
    the ink from it. Sloping and curved lines become level and small writing is enlarged, which scaling the bounding
    box cannot do.

    Args:
        grey: (h, w), dark on light.
        height: rows of the result.
        aspect: width of the result relative to an undistorted one.

    Returns:
        (height, width) uint8, dark on white; a line that would be wider than `MAX_WIDTH` is squeezed to it.
    """
    if max(grey.shape[0] / MAX_ROWS, grey.shape[1] / (2 * MAX_WIDTH)) > 1:
        grey = _reduced(grey)
    ink = ink_of(grey)
    rows, columns = ink.shape
    places, centre = _centre(ink)
    everywhere = np.interp(np.arange(columns), places, centre).astype(np.float32)
    distance = np.abs(np.arange(rows, dtype=np.float32)[:, None] - everywhere)
    near = ink * (distance < 0.4 * rows)
    spread = float((distance * near).sum() / near.sum()) if near.any() else rows / 8
    half = float(np.clip(_INK_SPREAD * spread, 0.28 * rows, 0.5 * rows))
    shrink = 2 * half / height
    width = min(max(MIN_WIDTH, round(columns * aspect / shrink)), MAX_WIDTH)
    across = (np.arange(width) + 0.5) * columns / width - 0.5
    down = ((np.arange(height) + 0.5) / height * 2 - 1) * half
    blur = (max(0.0, shrink - 1) / 2, max(0.0, columns / width - 1) / 2)  # against aliasing
    level = _sampled(_blurred(ink, blur), down[:, None] + np.interp(across, places, centre), across)
    return (255 - np.round(level * 255)).astype(np.uint8)


def _sampled(image: Floats, down: NDArray[np.float64], across: NDArray[np.float64]) -> Floats:
    """(height, width) the values at rows `down` (height, width) and columns `across` (width,), between the pixels
    linear; 0 outside the image.
    """
    rows, columns = image.shape
    left = np.clip(across.astype(np.int64), 0, max(columns - 2, 0))
    share = (across - left).astype(np.float32)
    image = image[:, left] * (1 - share) + image[:, np.minimum(left + 1, columns - 1)] * share
    image = image * ((across >= 0) & (across <= columns - 1))
    above = np.clip(down.astype(np.int64), 0, max(rows - 2, 0))
    share = (down - above).astype(np.float32)
    place = above * len(across) + np.arange(len(across))
    found = image.take(place) * (1 - share) + image.take(place + len(across) * (rows > 1)) * share
    return found * ((down >= 0) & (down <= rows - 1))
