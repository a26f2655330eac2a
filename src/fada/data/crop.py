"""A line that is cut out of its page image when it is asked for."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from PIL import Image

Point: TypeAlias = tuple[float, float]


@dataclass(frozen=True, slots=True)
class PageCrop:
    """A line that is cut out of its page image when it is asked for.

    Attributes:
        page: the page image.
        page_size: its width and height in pixels.
        polygon: the outline in pixels of the page image; empty if the lines of the page were not looked for.
        baseline: the baseline in pixels, if there is one.
        xml: the ALTO or PAGE file, None if it is not a file of its own.
        base: the folder of the source that the file belongs to: a copy keeps its place below it.
        index: the line's place among the text lines of that file, in document order.
        region: id of the block that the line is in.
        zone: what kind of block that is, `main`, `margin` or `numbering`, where a segmenter told.
        line_id: id of the line in that file.
        grow: by how much of its height the outline is widened: so much upwards, 0.4 of it downwards and sideways.
        upright: whether the page is turned as its orientation tag says; if not, it is used as it is stored.
        made: whether the page image was made for reading, of a PDF or by turning: what is written takes it along.
    """

    page: Path
    page_size: tuple[int, int]
    polygon: tuple[Point, ...]
    baseline: tuple[Point, ...] = ()
    xml: Path | None = None
    index: int = 0
    region: str | None = None
    line_id: str = ""
    grow: float = 0.0
    upright: bool = True
    base: Path | None = None
    zone: str | None = None
    made: bool = False

    @property
    def _margins(self) -> tuple[int, int]:
        """Pixels by which the outline is widened upwards, and downwards and sideways."""
        xs = [x for x, _ in self.polygon]
        height = area(self.polygon) / max(max(xs) - min(xs), 1.0)
        return round(self.grow * height), round(0.4 * self.grow * height)

    @property
    def box(self) -> tuple[int, int, int, int]:
        """Left, top, right, bottom of the outline in whole pixels, inside the page."""
        width, height = self.page_size
        xs, ys = zip(*self.polygon, strict=True)
        up, aside = self._margins
        return (
            max(0, math.floor(min(xs)) - aside),
            max(0, math.floor(min(ys)) - up),
            min(width, math.ceil(max(xs)) + 1 + aside),
            min(height, math.ceil(max(ys)) + 1 + aside),
        )

    def on_outline(self, share: float) -> float:
        """What a share of the width of the line's image is as a share of the width of its outline, 0 to 1."""
        left, _, right, _ = self.box
        xs = [x for x, _ in self.polygon]
        across = (left + share * (right - left) - min(xs)) / max(max(xs) - min(xs), 1e-9)
        return min(max(across, 0.0), 1.0)

    def load(self, *, colours: bool = False) -> "Image.Image":
        """The line in grey, or in its colours; what lies outside its outline is filled with the paper's tone inside."""
        changed = self.page.stat().st_mtime_ns if self.page.exists() else 0
        return self.cut(_load_page(self.page, changed, self.upright, colours))

    def cut(self, page: "Image.Image") -> "Image.Image":
        """The line out of its page, as :meth:`load` gives it."""
        import numpy as np
        from PIL import Image, ImageDraw

        from fada.data.images import paper_and_ink

        left, top = self.box[:2]
        crop = page.crop(self.box)
        mask = Image.new("1", crop.size, 0)
        pen = ImageDraw.Draw(mask)
        up, aside = self._margins
        for right, down in {(0, 0), (-aside, 0), (aside, 0), *((0, shift) for shift in range(-up, aside + 1))}:
            pen.polygon([(x - left + right, y - top + down) for x, y in self.polygon], fill=1, outline=1)
        inside = np.asarray(mask)
        pixels = np.array(crop)
        if inside.any():
            within = pixels[inside].reshape(int(inside.sum()), -1)
            tones = [paper_and_ink(within[:, channel])[0] for channel in range(within.shape[1])]
            pixels[~inside] = tones if pixels.ndim == 3 else tones[0]
        return Image.fromarray(pixels)


@lru_cache(maxsize=2)
def _load_page(path: Path, changed: int, upright: bool, colours: bool) -> "Image.Image":
    from fada.data.images import load_line_image, load_upright

    return load_upright(path, upright=upright)[0] if colours else load_line_image(path, upright=upright)


def area(polygon: Sequence[Point]) -> float:
    """The area of a polygon, in the square of its unit."""
    following = (*polygon[1:], polygon[0])
    return abs(sum(a * d - b * c for (a, b), (c, d) in zip(polygon, following, strict=True))) / 2


def part_of(polygon: Sequence[Point], start: float, end: float) -> tuple[Point, ...]:
    """What lies between two shares of a polygon's width, from 0 at its left to 1; of its box if nothing does.

    A polygon with arms may come out with edges that lie on each other.
    """
    xs, ys = zip(*polygon, strict=True)
    left, right = (min(xs) + share * (max(xs) - min(xs)) for share in (start, end))
    cut = half(half(polygon, left, 1), right, -1)
    return cut if len(cut) >= 3 and area(cut) > 0 else corners(left, min(ys), right, max(ys))


def half(points: Sequence[Sequence[float]], edge: float, side: int, *, closed: bool = True) -> tuple[Point, ...]:
    """What of an outline or path lies right (`side` 1) or left (-1) of an upright line, by Sutherland and Hodgman."""
    kept: list[Point] = []
    for (x, y), (next_x, next_y) in zip(points, [*points[1:], *(points[:1] if closed else points[-1:])], strict=True):
        inside, next_inside = side * (x - edge) >= 0, side * (next_x - edge) >= 0
        if inside:
            kept.append((x, y))
        if inside != next_inside:
            kept.append((edge, y + (next_y - y) * (edge - x) / (next_x - x)))
    return tuple(kept)


def corners(left: float, top: float, right: float, bottom: float) -> tuple[Point, ...]:
    """A box as an outline."""
    return (left, top), (right, top), (right, bottom), (left, bottom)
