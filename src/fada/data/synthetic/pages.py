"""Whole pages with known lines: line images laid out in columns, with slope, curvature, margins and bleed-through."""

import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from PIL import Image
from scipy import ndimage

from fada.common.files import replacing, write_bytes
from fada.common.say import track
from fada.data.crop import PageCrop, Point
from fada.data.formats import alto
from fada.data.formats.xml import serialize, text_lines
from fada.data.line import Line, Transcription
from fada.errors import FadaError

PAPER = 225.0
"""Grey of the paper."""
_GRAIN = 8.0
"""What is no darker than this much against its surroundings is paper."""
_BEFORE = 0.6
"""How far before a column notes on its left end, in heights of a line image."""
_BASELINE = 0.68
"""Where a line image has its baseline, as a share of its height."""


@dataclass(frozen=True)
class Layout:
    """How pages look.

    Attributes:
        columns: of text.
        rows: lines in a column.
        leading: distance of baselines, in heights of a line image.
        slope: pixels that a line falls on 100 pixels.
        curvature: height of the arc of a line, in heights of a line image.
        notes: lines in the margin.
        note_side: where they stand: right or left of the columns, or between the first and the second.
        note_size: of their letters, as a share of the text's.
        note_ink: how dark they are, as a share of the text's darkness.
        bleed: how strongly the other side of the leaf shines through, 0 to 1.
    """

    columns: int = 1
    rows: int = 12
    leading: float = 0.95
    slope: float = 0.0
    curvature: float = 0.0
    notes: int = 0
    note_side: Literal["right", "left", "gutter"] = "right"
    note_size: float = 1.0
    note_ink: float = 1.0
    bleed: float = 0.0

    @property
    def lines(self) -> int:
        """On a page."""
        return self.columns * self.rows + self.notes


LAYOUTS = (
    Layout(),
    Layout(columns=2, notes=3),
    Layout(slope=2.0, curvature=0.3),
    Layout(columns=2, slope=-1.0, bleed=0.15),
    Layout(curvature=-0.3, notes=2, bleed=0.1),
    Layout(notes=4, note_side="left"),
    Layout(notes=4, note_side="left", note_size=0.5),
    Layout(columns=2, notes=4, note_side="gutter", note_size=0.6),
    Layout(notes=4, note_size=0.5, note_ink=0.35),
    Layout(columns=2, notes=4, note_side="left", note_size=0.5, note_ink=0.35),
)
"""What the pages of :func:`write_pages` look like, in turn."""


@dataclass(frozen=True)
class SyntheticPage:
    """A page image and its lines in reading order, each with its outline and baseline.

    Notes that are too long for the margin are cut, and have no text.
    """

    image: Image.Image
    lines: tuple[Line, ...]

    @property
    def crops(self) -> list[PageCrop]:
        """Where the lines are."""
        return [line.image for line in self.lines if isinstance(line.image, PageCrop)]


def make_page(lines: Sequence[Line], layout: Layout, seed: int = 0, back: Sequence[Line] = ()) -> SyntheticPage:
    """Lay lines with images on a page: column by column, then the notes in the margin.

    Args:
        lines: at most ``layout.lines``, with images.
        layout: of the page.
        seed: of the paper's grain and the raggedness of the lines.
        back: lines on the other side of the leaf, for bleed-through.
    """
    if not lines or len(lines) > layout.lines:
        raise FadaError(f"a page of this layout holds 1 to {layout.lines} lines, not {len(lines)}.")
    rng = np.random.default_rng(seed)
    ink, places, height = _laid_out(lines, layout, rng)
    if layout.bleed and back:
        other, _, _ = _laid_out(back, layout, rng)
        shape = tuple(min(a, b) for a, b in zip(ink.shape, other.shape, strict=True))
        shine = ndimage.gaussian_filter(other[: shape[0], : shape[1]][:, ::-1], 1.5)
        ink[: shape[0], : shape[1]] = np.maximum(ink[: shape[0], : shape[1]], layout.bleed * shine)
    x = np.arange(ink.shape[1])
    shift = layout.slope / 100 * x - layout.curvature * height * np.sin(np.pi * x / ink.shape[1])
    shift -= shift.min()
    bent = _shifted(ink, shift)
    grain = ndimage.gaussian_filter(rng.normal(0, 8, bent.shape), 1.2)
    image = Image.fromarray(np.clip(PAPER - bent + grain, 0, 255).astype(np.uint8))
    placed = []
    for line, (left, top, right, bottom, region, is_whole) in zip(lines, places, strict=True):
        along = np.linspace(left, right - 1, 12)

        def bend(y: float, along: NDArray[np.float64] = along) -> tuple[Point, ...]:
            return tuple((round(float(a), 1), round(float(y + np.interp(a, x, shift)), 1)) for a in along)

        outline = (*bend(top), *reversed(bend(bottom)))
        baseline = bend(top + _BASELINE * (bottom - top))
        zone = "margin" if region == "margin" else "main"
        crop = PageCrop(Path("page.png"), image.size, outline, baseline, region=region, zone=zone)
        placed.append(replace(line, image=crop, text=line.text if is_whole else None))
    return SyntheticPage(image, tuple(placed))


def write_pages(lines: Iterable[Line], folder: str | os.PathLike[str], count: int, seed: int = 0) -> Path:
    """Write pages of :data:`LAYOUTS` in turn, ``page-0001.png`` with ``page-0001.xml`` (ALTO), and so on.

    Args:
        lines: with images; begun again when there are too few.
        folder: made if it is not there.
        count: of pages.
        seed: of the paper; each page has its own.
    """
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    source = _endless(lines)
    for number in track(range(count), "laying out pages"):
        layout = LAYOUTS[number % len(LAYOUTS)]
        front = [*islice(source, layout.lines)]
        back = [*islice(source, layout.lines if layout.bleed else 0)]
        page = make_page(front, layout, seed + number, back)
        name = f"page-{number + 1:04d}"
        with replacing(folder / f"{name}.png") as temporary:
            page.image.save(temporary, format="PNG")
        tree = alto.new_document(f"{name}.png", page.image.size, page.crops)
        for element, line in zip(text_lines(tree.getroot()), page.lines, strict=True):
            if line.text is not None:
                alto.set_text(element, Transcription(line.id, line.text))
        write_bytes(folder / f"{name}.xml", serialize(tree))
    return folder


def _endless(lines: Iterable[Line]) -> Iterator[Line]:
    """The lines again and again."""
    while True:
        empty = True
        for line in lines:
            empty = False
            yield line
        if empty:
            raise FadaError("no lines to lay out on pages.")


def _laid_out(
    lines: Sequence[Line], layout: Layout, rng: np.random.Generator
) -> tuple[NDArray[np.float64], list[tuple[int, int, int, int, str, bool]], int]:
    """Darkness of a page (height, width), where each line is, and their height.

    Of each line: left, top, right, bottom, region, and whether all of it is there.
    """
    images = [np.asarray(line.load_image(), float) for line in lines]
    height = int(np.median([len(image) for image in images]))
    width = max(image.shape[1] for image in images)
    margin, step = 2 * height, round(layout.leading * height)
    note = width // 3 + height if layout.notes else 0
    shape = (2 * margin + step * layout.rows + height, 2 * margin + layout.columns * (width + height) + note)
    notes_before = {"left": 0, "gutter": 1, "right": layout.columns}[layout.note_side]
    ink = np.zeros(shape)
    places = []
    for number, image in enumerate(images):
        column, row = divmod(number, layout.rows)
        begins = margin + column * (width + height) + (note if column >= notes_before else 0)
        left, top = begins + int(rng.integers(0, max(height // 4, 1))), margin + row * step
        region, length = f"column_{column + 1}", image.shape[1]
        if column < layout.columns:
            dark = _ink(image, height)
        else:
            region = "margin"
            dark = _of_note(image[:, : int(width // 3 / layout.note_size)], layout, height)
            length = round(length * layout.note_size)
            top = margin + 3 * (number - layout.columns * layout.rows) * step
            left = shape[1] - margin // 2 - note
            if layout.note_side != "right":  # it ends just before the column
                left = margin + notes_before * (width + height) + note - round(_BEFORE * height) - dark.shape[1]
        dark = dark[:, : shape[1] - left]
        area = ink[top : top + len(dark), left : left + dark.shape[1]]
        np.maximum(area, dark[: area.shape[0]], out=area)
        places.append((left, top, left + dark.shape[1], top + len(dark), region, dark.shape[1] == length))
    return ink, places, height


def _ink(image: NDArray[np.float64], height: int) -> NDArray[np.float64]:
    """How much darker than its own paper a line image is, shadows and stains left out; `height`: of a line."""
    paper = ndimage.grey_closing(image, size=max(3, height // 3))
    return np.clip(paper - image - _GRAIN, 0, None)


def _of_note(image: NDArray[np.float64], layout: Layout, height: int) -> NDArray[np.float64]:
    """The ink of a note, as large and as dark as the layout has it; `height`: of a line of the text."""
    dark = layout.note_ink * _ink(image, height)
    return dark if layout.note_size == 1.0 else ndimage.zoom(dark, layout.note_size, order=1)


def _shifted(ink: NDArray[np.float64], shift: NDArray[np.float64]) -> NDArray[np.float64]:
    """Every column moved down by its shift."""
    tall = ink.shape[0] + int(np.ceil(shift.max())) + 1
    rows = np.arange(tall)[:, None] - shift[None, :]
    columns = np.broadcast_to(np.arange(ink.shape[1]), rows.shape)
    return ndimage.map_coordinates(ink, [rows, columns], order=1, cval=0.0)
