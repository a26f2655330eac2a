"""Who finds the lines of a page: the detector that comes along, kraken in its own environment, or any other tool."""

import shutil
import subprocess
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import TypeAlias

from PIL import Image
from pydantic import BaseModel, Field, FiniteFloat

from fada.common.settings import read_json, validated
from fada.data.crop import PageCrop
from fada.data.formats.xml import XmlLine, outline
from fada.data.segment.layout import Zone
from fada.data.segment.page import FoundLine, PageLines, find_lines
from fada.data.segment.photographs import Photograph
from fada.data.source import read_lines
from fada.errors import FadaError

BUILT_IN = "detector"
KRAKEN = "kraken"
Segmenter: TypeAlias = Callable[[Photograph, Image.Image], PageLines]
_SECONDS = 1800
"""After which kraken is given up on a page."""


def segmenter(name: str, *, right_to_left: bool = False) -> Segmenter:
    """The segmenter of a name: ``detector``, ``kraken``, or a JSON file with the outlines of another tool."""
    if name == BUILT_IN:
        return lambda photograph, page: find_lines(page, right_to_left=right_to_left)
    if name == KRAKEN:
        return _kraken(right_to_left)
    if name.lower().endswith(".json"):
        return _boxes(Path(name))
    raise FadaError(f"segmenter {name!r} is not known; there are: {BUILT_IN}, {KRAKEN}, or a JSON file of outlines.")


def takes_pages_as_they_are(name: str) -> bool:
    """Whether the lines of a segmenter are known beforehand, for pages as they stand."""
    return name not in (BUILT_IN, KRAKEN)


# --- kraken ----------------------------------------------------------------------------------------------------------


def _kraken(right_to_left: bool) -> Segmenter:
    program = shutil.which(KRAKEN)
    if program is None:
        raise FadaError(
            "kraken is not on the PATH. Install it in an environment of its own (pipx install kraken), or leave "
            f"--segmenter out: the {BUILT_IN} that comes along finds lines too."
        )
    told = _run([program, "--version"], "kraken --version").split()
    settings = ["segment", "-bl", "-d", "horizontal-rl" if right_to_left else "horizontal-lr"]
    name = f"kraken {told[-1] if told else '?'}, {' '.join(settings)}"

    def find(photograph: Photograph, page: Image.Image) -> PageLines:
        with tempfile.TemporaryDirectory(prefix="fada-") as folder:
            image, alto = Path(folder, "page.png"), Path(folder, "page.xml")
            page.save(image, compress_level=1)  # upright and grey, as the outlines are to be
            _run([program, "-a", "-i", str(image), str(alto), *settings], str(photograph.file))
            if not alto.is_file():
                raise FadaError(f"{photograph.file}: kraken wrote no ALTO file.")
            return PageLines(page.size, _of_crops(alto), segmenter=name)

    return find


def _run(command: list[str], where: str) -> str:
    """What a program printed; its last words if it failed."""
    try:
        done = subprocess.run(
            command, stdin=subprocess.DEVNULL, capture_output=True, text=True, errors="replace", timeout=_SECONDS
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise FadaError(f"{where}: {command[0]} did not run ({error}).") from None
    if done.returncode:
        last = (done.stderr.strip() or done.stdout.strip()).splitlines()[-1:] or ["without a word"]
        raise FadaError(f"{where}: {command[0]} ended with {done.returncode}: {last[0]:.300}")
    return done.stdout


def _of_crops(alto: Path) -> tuple[FoundLine, ...]:
    """The lines of an ALTO file whose image lies beside it, all of them text: what their blocks are is not told."""
    crops = [line.image for line in read_lines(alto) if isinstance(line.image, PageCrop)]
    blocks = {region: place for place, region in enumerate(dict.fromkeys(crop.region for crop in crops))}
    return tuple(FoundLine(crop.polygon, crop.baseline, blocks[crop.region], "main", 1.0) for crop in crops)


# --- outlines of other tools -----------------------------------------------------------------------------------------


_Place: TypeAlias = tuple[FiniteFloat, FiniteFloat]


class _Box(BaseModel, extra="forbid", frozen=True):
    """A line in a file of outlines, in pixels of the upright page."""

    outline: tuple[_Place, ...] = Field(min_length=3)
    baseline: tuple[_Place, ...] = ()
    zone: Zone = "main"


class _Boxes(BaseModel):
    """Lines by the name of their page, in reading order."""

    pages: dict[str, tuple[_Box, ...]]


def _boxes(file: Path) -> Segmenter:
    if not file.is_file():
        raise FadaError(f"{file}: no such file.")
    form = 'Expected {"page.jpg": [{"outline": [[x, y], ...], "baseline": [[x, y], ...]}, ...], ...}.'
    pages = validated(_Boxes, {"pages": read_json(file, form, unique=True)}, str(file)).pages

    def find(photograph: Photograph, page: Image.Image) -> PageLines:
        names = (photograph.file.name, photograph.name)
        name = next((name for name in names if name in pages), None)
        if name is None:
            raise FadaError(f"{photograph.file}: neither {' nor '.join(map(repr, names))} is a page of {file}.")
        found: list[FoundLine] = []
        block = 0
        for place, box in enumerate(pages[name], 1):
            block += bool(found) and found[-1].zone != box.zone
            drawn = XmlLine(str(place), place, None, polygon=box.outline, baseline=box.baseline)
            try:
                polygon = outline(drawn, page.size, (1.0, 1.0), 1.0)
            except FadaError as error:
                raise FadaError(f"{file}, {name}, line {place}: {error}") from None
            found.append(FoundLine(polygon, box.baseline, block, box.zone, 1.0))
        return PageLines(page.size, tuple(found), segmenter=f"outlines of {file.name}")

    return find
