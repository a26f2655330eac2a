"""A look at a page with a recogniser: which way up it stands, and whether it is text at all."""

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from PIL import Image

from fada.data.line import Line
from fada.data.segment.page import PageLines
from fada.data.segment.upright import Look
from fada.decoding.defaults import certainty_of

if TYPE_CHECKING:
    from fada.models.recognizer import Recognizer

LINES = 8
"""The longest lines of a page, which are looked at."""
MARGIN = 0.05
"""A smaller difference of certainty does not tell. On 12 photographed pages it was 0.10 to 0.26, whichever way up."""
CERTAIN = 0.75
"""A recogniser that is less certain, either way up, cannot tell."""
HARDLY = 0.6
"""Text is read with more certainty than this, and with more than one character a line; else it is hardly text."""


def look_at(recognizer: "Recognizer", page: Image.Image, found: PageLines) -> Look:
    """Read the longest lines of a page as they are and turned: a recogniser is more certain the right way up.

    Args:
        recognizer: of the script of the page, or of one like it.
        page: in grey or in its colours.
        found: its lines, which run across.
    """
    crops = sorted(found.crops(Path("page")), key=lambda crop: crop.box[0] - crop.box[2])[:LINES]
    images = [crop.cut(page) for crop in crops]
    read = []
    for turn in (0, 180):
        lines = [Line(str(place), image=image.rotate(turn)) for place, image in enumerate(images)]
        read.append(recognizer.emit(lines).log_probs)
    upright, turned = map(certainty_of, read)
    written = max(sum(_written(line, recognizer.alphabet.blank) for line in lines) for lines in read)
    certain = max(upright, turned)
    is_text = written > len(images) and certain > HARDLY
    tells = is_text and certain > CERTAIN and abs(turned - upright) >= MARGIN
    return Look(turned > upright if tells else None, is_text)


def _written(log_probs: np.ndarray, blank: int) -> int:
    """How many characters the best path writes."""
    best = log_probs.argmax(axis=1)
    return int(((best != blank) & (np.diff(best, prepend=blank) != 0)).sum())
