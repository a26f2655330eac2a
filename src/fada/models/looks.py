"""A line looked at several times, each time a little differently: slanted, narrower, wider. The mean errs less.

A network of two million parameters is right about most letters however they are shown to it, and its mistakes depend on
chance: what it takes for `m` in one view is `ni` in the next. The mean of several views keeps what they agree on.
"""

from collections.abc import Callable, Sequence
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from fada.decoding.emissions import doubt

LOOKS = ((0.0, 1.0), (0.1, 1.0), (-0.1, 1.0), (0.0, 0.94), (0.0, 1.06))
"""Slant (columns to a row, about the middle row) and width of each look; the first is the line as it is."""
Looks = int | Literal["auto"]
"""How often a line is looked at; auto: once if the network is sure of it, else as often as it can."""
USUAL: Looks = "auto"
"""Where lines are read for a user on a CPU."""
UNSURE = 0.05
"""Doubt of a mean frame (the probability of all classes but the best) from which a line is looked at again. Half of 493
validation lines of `medieval` are above it; they bring nine tenths of what looking at all of them again does."""


def looked_at(
    image: NDArray[np.uint8], looks: Looks, scores_of: Callable[[NDArray[np.uint8]], np.ndarray]
) -> np.ndarray:
    """What a network makes of so many looks at a line, together.

    Args:
        image: (height, width), dark on white.
        scores_of: the network: log-probabilities (time, classes) of an image.
    """
    first = scores_of(image)
    if looks == "auto":
        looks = len(LOOKS) if float(doubt(first).mean()) > UNSURE else 1
    return together([first, *(scores_of(seen(image, *look)) for look in LOOKS[1:looks])])


def seen(image: NDArray[np.uint8], slant: float, width: float) -> NDArray[np.uint8]:
    """A line (height, width), dark on white, as another look at it shows it; its height stays."""
    if not slant and width == 1:
        return image
    rows, columns = image.shape
    size = max(round(columns * width), 1), rows
    matrix = (columns / size[0], slant, -slant * rows / 2, 0, 1, 0)
    look = Image.fromarray(image).transform(
        size, Image.Transform.AFFINE, matrix, Image.Resampling.BILINEAR, fillcolor=255
    )
    return np.asarray(look)


def together(looks: Sequence[np.ndarray]) -> np.ndarray:
    """The mean of log-probabilities (time, classes), normalised; frames as in the first of them.

    Looks of another width have other frames: theirs are taken, between two frames linear in the probabilities, where
    those of the first are.
    """
    first = looks[0]
    if len(looks) == 1:
        return first
    mean = np.mean([_at_frames(look, len(first)) for look in looks], axis=0)
    return mean - np.logaddexp.reduce(mean, axis=1, keepdims=True)


def _at_frames(scores: np.ndarray, frames: int) -> np.ndarray:
    if len(scores) == frames:
        return scores
    places = np.clip((np.arange(frames) + 0.5) * len(scores) / frames - 0.5, 0, len(scores) - 1)
    before = places.astype(np.int64)
    after = np.minimum(before + 1, len(scores) - 1)
    share = (places - before)[:, None].astype(scores.dtype)
    with np.errstate(divide="ignore"):
        weights = np.log(1 - share), np.log(share)
    return np.logaddexp(scores[before] + weights[0], scores[after] + weights[1])
