"""A line image as the C-RNN sees it: even background, straight baseline, letters of one size.

Written with numpy alone, several times quicker than the filters of scipy, which also take long to import.
"""

from functools import lru_cache
from typing import Any

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray
from PIL import Image

from fada.data.images import MAX_WIDTH, MIN_WIDTH

MAX_ROWS = 512
"""Images of lines that are higher are scaled to so many rows first: the work grows with the cube of their height."""

_INK_SPREAD = 3.4  # half the crop, in mean distances of the ink from the centre line: keeps accents and tails
_BINS = 16  # the centre line is looked for in columns of so many to a height: far narrower than it is smoothed
_BLOCK = 1024  # more columns than this are smoothed in blocks: the matrix that smooths them has their square

_ALONE, _ALONE_DOT = 1 << 18, 10_000
"""Multiplications of a product of matrices (of vectors) that numpy's OpenBLAS does itself. It gives more of them to
threads, which are busy while they wait for each other: where others want the cores, many times the work."""

Floats = NDArray[np.float32]


def ink_of(grey: NDArray[np.uint8]) -> Floats:
    """Ink from 0 (paper) to 1, (height, width) as the grey image given, dark ink on light paper.

    The paper is a local maximum, smoothed, so stains and shadows fade; the 95th percentile of what is darker counts
    as full ink, so faded and dark hands look alike.
    """
    size = (max(3, grey.shape[0] // 3), max(3, grey.shape[0] // 2))
    # Whole numbers, no wider than they must be: several times as quick as floats, and exact.
    nine = _windows(np.add, grey.astype(np.uint16), (3, 3), np.uint16)
    lightest = _windows(np.maximum, nine, size, np.uint16)
    if 9 * 255 * size[0] >= 2**16:
        lightest = lightest.astype(np.int32)
    ink = _windows(np.add, lightest, size, np.int32).astype(np.float32)
    ink *= np.float32(1 / (9 * size[0] * size[1]))
    ink -= grey
    ink -= np.float32(0.05 * 255)
    ink /= np.float32(max(_percentile_of_positive(ink, 0.95), 1.0))
    return ink.clip(0, 1, out=ink)


def _percentile_of_positive(image: Floats, share: float) -> float:
    """As ``np.percentile`` of the values above 0, 0 if there are none, at a fraction of its cost: a sample tells which
    values need not be looked at.
    """
    sample = image[::4, ::8]
    sample = np.sort(sample[sample > 0])
    limit = sample[int((2 * share - 1) * len(sample))] if len(sample) else np.float32(0)
    many = np.count_nonzero(image > 0)
    place = share * (many - 1)
    below = int(place)
    values = image[image > limit]
    if len(values) < many - below:
        values = image[image > 0]
    if many == 0:
        return 0.0
    at = below - (many - len(values))
    low = np.partition(values, at)
    above = low[at + 1 :].min() if at + 1 < len(values) else low[at]
    return float(low[at] + (place - below) * (above - low[at]))


def _windows(combine: np.ufunc, image: np.ndarray, size: tuple[int, int], kind: type[np.integer]) -> np.ndarray:
    """What `combine` makes of a window around each pixel, in numbers of a kind; the image is mirrored beyond its edges.

    A window is put together of windows of 1, 2, 4, 8, … pixels, each found for the whole image from the one before.
    """
    rows, columns = image.shape
    high = _of_windows(combine, image.take(_mirrored(rows, size[0]), 0), size[0], rows)
    # Row after row in one long row: what lies beyond the end of a row is in nobody's window.
    wide = columns + size[1]
    flat = np.zeros(rows * wide + size[1], kind)
    before, last = size[1] // 2, columns - 1
    ends: Any = slice(before - 1, None, -1), slice(last, last + before - size[1] + 1, -1)
    if columns < size[1]:
        ends = np.split(_mirrored(columns, size[1]), [before, before + columns])[::2]
    lines = flat[: rows * wide].reshape(rows, wide)
    lines[:, before : before + columns] = high
    lines[:, :before] = high[:, ends[0]]
    lines[:, before + columns : -1] = high[:, ends[1]]
    return _of_windows(combine, flat, size[1], rows * wide).reshape(rows, wide)[:, :columns]


def _of_windows(combine: np.ufunc, image: np.ndarray, size: int, many: int) -> np.ndarray:
    """What `combine` makes of each of the first `many` windows of `size` along the first axis."""
    found, start, width = None, 0, 1
    while True:
        if size & width:
            part = image[start : start + many]
            found = part if found is None else combine(found, part)
            start += width
        if 2 * width > size:
            break
        image = combine(image[:-width], image[width:])
        width *= 2
    assert found is not None
    return found


@lru_cache(maxsize=64)
def _mirrored(pixels: int, size: int) -> NDArray[np.int64]:
    """Which pixels continue a row of them beyond its ends, so that there are as many windows of `size` as pixels."""
    places = np.arange(-(size // 2), pixels + size - 1 - size // 2)
    for end in (places[: size // 2], places[size // 2 + pixels :]):
        end %= 2 * pixels
        np.minimum(end, 2 * pixels - 1 - end, out=end)
    return places


@lru_cache(maxsize=64)
def _bell(sigma: float) -> Floats:
    """The weights of a normal distribution at whole steps, to four standard deviations; their sum is 1."""
    reach = int(4 * sigma + 0.5)
    steps = np.arange(-reach, reach + 1)
    weights = np.exp(-0.5 / max(sigma * sigma, 1e-12) * (steps * steps))
    weights /= weights.sum()
    return weights.astype(np.float32)


@lru_cache(maxsize=64)
def _smoothing(sigma: float, size: int) -> Floats:
    """(size, size): the matrix that smooths `size` values, with nothing beyond them."""
    weights = _bell(sigma)
    beyond = np.zeros(max(size - 1 - len(weights) // 2, 0), np.float32)
    band = np.concatenate([beyond, weights, beyond])
    band = band[len(band) // 2 - (size - 1) :]
    return np.ascontiguousarray(sliding_window_view(band, size)[size - 1 :: -1])


def _product(a: Floats, b: Floats) -> Floats:
    """The product of two matrices, found on this thread."""
    many, inner = a.shape
    rows = max(1, min(many, _ALONE // (8 * inner)))
    columns = max(1, _ALONE // (rows * inner))
    found = np.empty((many, b.shape[1]), np.float32)
    for i in range(0, many, rows):
        for j in range(0, b.shape[1], columns):
            np.matmul(a[i : i + rows], b[:, j : j + columns], out=found[i : i + rows, j : j + columns])
    return found


def _dot(a: Floats, b: Floats) -> float:
    """The sum of the products of two arrays' numbers, found on this thread."""
    x, y = a.ravel(), b.ravel()
    return sum(float(np.dot(x[i : i + _ALONE_DOT], y[i : i + _ALONE_DOT])) for i in range(0, x.size, _ALONE_DOT))


def _smoothed_across(image: Floats, sigma: float) -> Floats:
    """The image with its rows smoothed, nothing beyond their ends."""
    columns, reach = image.shape[1], len(_bell(sigma)) // 2
    if columns <= _BLOCK:
        return _product(image, _smoothing(sigma, columns))
    blocks = []
    for start in range(0, columns, _BLOCK):
        first, last = max(start - reach, 0), min(start + _BLOCK + reach, columns)
        block = _product(image[:, first:last], _smoothing(sigma, last - first))
        blocks.append(block[:, start - first : start - first + _BLOCK])
    return np.concatenate(blocks, axis=1)


def _centre(upright: Floats) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """The centre line of ink (columns, rows): columns, and the row of most ink around each, smoothed."""
    columns, rows = upright.shape
    width = max(1, rows // _BINS)
    starts = np.arange(0, columns, width)
    narrow = upright[::width].copy()
    for i in range(1, width):
        part = upright[i::width]
        narrow[: len(part)] += part
    narrow *= np.float32(1 / width)
    sigma = 0.8 * rows / width
    blurred = _smoothed_across(_product(_smoothing(0.16 * rows, rows), np.ascontiguousarray(narrow.T)), sigma)
    blurred += (1e-3 * np.hanning(rows + 2)[1:-1, None]).astype(np.float32)  # without ink, the middle is the centre
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
    upright = np.ascontiguousarray(ink.T)
    places, centre = _centre(upright)
    everywhere = np.interp(np.arange(columns), places, centre).astype(np.float32)
    distance = np.subtract(np.arange(rows, dtype=np.float32)[:, None], everywhere)
    near = ink * (np.abs(distance, out=distance) < 0.4 * rows)
    total = float(near.sum())
    spread = _dot(distance, near) / total if total > 0 else rows / 8
    half = min(max(_INK_SPREAD * spread, 0.28 * rows), 0.5 * rows)
    shrink = 2 * half / height
    width = min(max(MIN_WIDTH, round(columns * aspect / shrink)), MAX_WIDTH)
    across = (np.arange(width) + 0.5) * columns / width - 0.5
    down = ((np.arange(height) + 0.5) / height * 2 - 1) * half
    blur = (max(0.0, shrink - 1) / 2, max(0.0, columns / width - 1) / 2)  # against aliasing
    narrow = _sampled(upright, across, blur[1])
    level = _between(_blurred(narrow, blur[0]), np.interp(across, places, centre), down)
    level *= 255
    np.subtract(255, np.rint(level, out=level), out=level)
    return np.ascontiguousarray(level.astype(np.uint8).T)


def _taps(sigma: float) -> Floats:
    """The weights that smooth a little."""
    return _bell(sigma) if sigma > 0 else np.ones(1, np.float32)


def _blurred(image: Floats, sigma: float) -> Floats:
    """The image with its rows smoothed a little, mirrored beyond their ends."""
    weights = _taps(sigma)
    if len(weights) == 1:
        return image
    size = image.shape[1]
    padded = image.take(_mirrored(size, len(weights)), 1)
    blurred = padded[:, :size] * weights[0]
    for i in range(1, len(weights)):
        blurred += padded[:, i : i + size] * weights[i]
    return blurred


def _sampled(image: Floats, places: NDArray[np.float64], sigma: float) -> Floats:
    """(places, columns) the rows of the image smoothed a little, at places between them; 0 outside the image."""
    rows, weights = len(image), _taps(sigma)
    above = np.minimum(places.astype(np.int64), max(rows - 2, 0))
    inside = (places >= 0) & (places <= rows - 1)
    shares = np.zeros((len(weights) + 1, len(places)), np.float32)
    further = places - above
    np.multiply.outer(weights, (1 - further) * inside, out=shares[:-1], casting="same_kind")
    shares[1:] += np.multiply.outer(weights, further * inside)
    mirrored = _mirrored(rows, len(weights))
    sampled = image.take(mirrored[above], 0) * shares[0, :, None]
    for i in range(1, len(shares)):
        part = image.take(mirrored.take(above + i, mode="clip"), 0)
        part *= shares[i, :, None]
        sampled += part
    return sampled


def _between(image: Floats, centre: NDArray[np.float64], apart: NDArray[np.float64]) -> Floats:
    """(rows, places) the values in the rows of the image at its columns `centre` (rows,) + `apart` (places,), rising,
    between the pixels linear; 0 outside the image.
    """
    rows, columns = image.shape
    across = centre[:, None] + apart
    inside = apart[0] + centre.min() >= 0 and apart[-1] + centre.max() < columns - 1
    before = np.trunc(across if inside else np.clip(across, 0, max(columns - 2, 0)))
    share = (across - before).astype(np.float32)
    before += columns * np.arange(rows, dtype=np.float64)[:, None]
    place = before.astype(np.int64)
    found = image.take(place)
    found *= 1 - share
    place += columns > 1
    share *= image.take(place)
    found += share
    if not inside:
        found *= (across >= 0) & (across <= columns - 1)
    return found
