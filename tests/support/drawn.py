"""Printed lines, and images of nothing, drawn on the spot."""

import numpy as np
from PIL import Image, ImageDraw, ImageFont

from fada.data import images
from fada.data.line import Line

WORDS = ["in", "principio", "creauit", "deus", "celum", "et", "terram", "autem", "erat", "inanis", "uacua"]


def png(width: int = 60, height: int = 20, grey: int = 200) -> bytes:
    """A grey image."""
    return images.png(Image.new("L", (width, height), grey))


def drawn_lines(count: int) -> list[Line]:
    """Printed lines of different lengths; enough for a detector of text."""
    font = ImageFont.load_default(size=34)
    rng = np.random.default_rng(1)
    lines = []
    for number in range(count):
        text = " ".join(rng.choice(WORDS, 5 + number % 3))
        image = Image.new("L", (int(font.getlength(text)) + 20, 60), 230)
        ImageDraw.Draw(image).text((10, 8), text, fill=40, font=font)
        lines.append(Line(id=f"l{number}", text=text, image=image))
    return lines
