"""A look at what was found on a page: numbered outlines and baselines, coloured by zone."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from fada.data.crop import PageCrop
from fada.data.segment.layout import Zone

if TYPE_CHECKING:
    from PIL import Image

COLOURS: dict[Zone | str | None, tuple[int, int, int]] = {
    "main": (0, 114, 178),
    "margin": (204, 121, 167),
    "numbering": (0, 158, 115),
}
"""Of the zones, so that the colour-blind can tell them apart."""
BASELINE = (213, 94, 0)
LARGEST = 2000
"""The longer side of a drawing, in pixels."""


def draw_lines(page: "Image.Image", lines: Sequence[PageCrop], largest: int = LARGEST) -> "Image.Image":
    """The page, its longer side not over `largest` pixels, with the number of every line in reading order."""
    from PIL import ImageDraw, ImageFont

    scale = min(1.0, largest / max(page.size))
    picture = page.resize((round(page.width * scale), round(page.height * scale)), reducing_gap=2.0).convert("RGB")
    pen = ImageDraw.Draw(picture)
    font = ImageFont.load_default(size=max(12, picture.width // 70))
    for number, line in enumerate(lines, 1):
        colour = COLOURS.get(line.zone, COLOURS["main"])
        outline = [(x * scale, y * scale) for x, y in line.polygon]
        pen.polygon(outline, outline=colour, width=2)
        if line.baseline:
            pen.line([(x * scale, y * scale) for x, y in line.baseline], fill=BASELINE, width=2)
        pen.text(outline[0], str(number), fill=colour, font=font, anchor="rm")
    return picture
