"""A line image as the C-RNN sees it: even background, straight baseline, letters of one size."""

import numpy as np
from numpy.typing import NDArray
from PIL import Image
from scipy import ndimage

from fada.data.images import MAX_WIDTH, MIN_WIDTH

MAX_ROWS = 512
"""Images of lines that are higher are scaled to so many rows first: the work grows with the cube of their height."""

_INK_SPREAD = 3.4  # half the crop, in mean distances of the ink from the centre line: keeps accents and tails


def ink_of(grey: NDArray[np.uint8]) -> NDArray[np.float32]:
    """Ink from 0 (paper) to 1, (height, width) as the grey image given, dark ink on light paper.

    The paper is a local maximum, smoothed, so stains and shadows fade; the 95th percentile of what is darker counts
    as full ink, so faded and dark hands look alike.
    """
    light = grey.astype(np.float32)
    size = (max(3, grey.shape[0] // 3), max(3, grey.shape[0] // 2))
    paper = ndimage.uniform_filter(ndimage.maximum_filter(ndimage.uniform_filter(light, 3), size), size)
    ink = np.clip(paper - light - 0.05 * 255, 0, None)
    full = float(np.percentile(ink[ink > 0], 95)) if (ink > 0).any() else 1.0
    return np.clip(ink / max(full, 1.0), 0, 1).astype(np.float32)


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
    blurred = ndimage.gaussian_filter(ink, (rows * 0.16, rows * 0.8), mode="constant")
    blurred += 1e-3 * np.hanning(rows + 2)[1:-1, None]  # where there is no ink, the middle is the centre
    centre = ndimage.gaussian_filter1d(np.argmax(blurred, axis=0).astype(np.float64), rows * 0.8, mode="nearest")
    distance = np.abs(np.arange(rows)[:, None] - centre)
    near = ink * (distance < 0.4 * rows)
    spread = float((distance * near).sum() / near.sum()) if near.any() else rows / 8
    half = float(np.clip(_INK_SPREAD * spread, 0.28 * rows, 0.5 * rows))
    shrink = 2 * half / height
    width = min(max(MIN_WIDTH, round(columns * aspect / shrink)), MAX_WIDTH)
    across = (np.arange(width) + 0.5) * columns / width - 0.5
    down = ((np.arange(height) + 0.5) / height * 2 - 1) * half
    blur = (max(0.0, shrink - 1) / 2, max(0.0, columns / width - 1) / 2)  # against aliasing
    level = ndimage.map_coordinates(
        ndimage.gaussian_filter(ink, blur),
        [down[:, None] + np.interp(across, np.arange(columns), centre), np.broadcast_to(across, (height, width))],
        order=1,
        mode="constant",
    )
    return (255 - np.round(level * 255)).astype(np.uint8)
