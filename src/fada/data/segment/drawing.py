"""A look at what was found on a page: numbered outlines and baselines, coloured by zone."""

from typing import TYPE_CHECKING

from fada.data.segment.layout import Zone
from fada.data.segment.page import PageLines

if TYPE_CHECKING:
    from PIL import Image

COLOURS: dict[Zone, tuple[int, int, int]] = {
    "main": (0, 114, 178),
    "margin": (204, 121, 167),
    "numbering": (0, 158, 115),
}
"""Of the zones, so that the colour-blind can tell them apart."""
BASELINE = (213, 94, 0)
LARGEST = 2000
"""The longer side of a drawing, in pixels."""


def draw_lines(page: "Image.Image", found: PageLines) -> "Image.Image":
    """The page, not larger than needed to see, with the number of every line in reading order."""
    from PIL import ImageDraw, ImageFont

    scale = min(1.0, LARGEST / max(page.size))
    picture = page.convert("RGB").resize((round(page.width * scale), round(page.height * scale)), reducing_gap=2.0)
    pen = ImageDraw.Draw(picture)
    font = ImageFont.load_default(size=max(12, picture.width // 70))
    for number, line in enumerate(found.lines, 1):
        outline = [(x * scale, y * scale) for x, y in line.outline]
        pen.polygon(outline, outline=COLOURS[line.zone], width=2)
        pen.line([(x * scale, y * scale) for x, y in line.baseline], fill=BASELINE, width=2)
        pen.text(outline[0], str(number), fill=COLOURS[line.zone], font=font, anchor="rm")
    return picture
