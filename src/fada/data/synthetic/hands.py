"""Lines written by a made-up hand: the centre lines of font glyphs, redrawn with a pen that trembles.

A glyph is thinned to its centre line once. Every time it is written, the points of that line are scaled, slanted,
turned and bent a little differently, and a broad nib is pressed on the paper at each of them. Nothing of the font's
outline is left: stroke width, contrast and joins belong to the hand.
"""

import io
import unicodedata
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

import numba
import numpy as np
from PIL import Image, ImageDraw, ImageFilter, ImageFont, features

from fada.errors import FadaError, first_few, needing

_EM = 96  # font size in pixels at which centre lines are taken: a point every third of a pixel in a 64-pixel line
_MARGIN = 24  # around a glyph at that size: marks and swashes leave the advance box
_LETTER_BY_LETTER = {"LATIN", "GREEK", "CYRILLIC", "HEBREW", "ARMENIAN", "GEORGIAN", "CJK", "HIRAGANA", "KATAKANA"}
_DEFAULT_FONTS = ("STIXGeneralItalic", "DejaVuSans-Oblique", "DejaVuSerif-Italic", "DejaVuSans", "STIXGeneral")


# --- fonts -----------------------------------------------------------------------------------------------------------


def find_fonts(folder: str | Path | None, letters: Iterable[str]) -> list[Path]:
    """Fonts that have a glyph for every one of `letters`.

    Args:
        folder: where to look for ``.ttf`` and ``.otf`` files, also in folders below it; None for the fonts that come
            with matplotlib.
        letters: what must be there; spaces need not.

    Raises:
        FadaError: there is no such font; names the characters that are missing.
    """
    wanted = {ord(letter) for letter in letters if not letter.isspace()}
    candidates = _default_fonts() if folder is None else _fonts_in(Path(folder))
    coverage = {path: wanted - _characters(path) for path in candidates}
    complete = [path for path, missing in coverage.items() if not missing]
    if not complete:
        best = min(coverage, key=lambda path: len(coverage[path]))
        missing = first_few((f"{chr(c)} (U+{c:04X})" for c in sorted(coverage[best])), 12, " ")
        raise FadaError(
            f"no font has all the characters; {best.name} comes closest and lacks {missing}. "
            "Give a folder with fonts for this script (--fonts)."
        )
    return complete


def _default_fonts() -> list[Path]:
    with needing("matplotlib", "synth", "Drawing with the fonts that come with matplotlib"):
        import matplotlib
    folder = Path(matplotlib.get_data_path()) / "fonts" / "ttf"
    return [path for name in _DEFAULT_FONTS if (path := folder / f"{name}.ttf").exists()]


def _fonts_in(folder: Path) -> list[Path]:
    if not folder.is_dir():
        raise FadaError(f"{folder}: no such folder; expected one with .ttf or .otf fonts.")
    # "Last resort" fonts claim every character and draw a box for it.
    fonts = sorted(
        path
        for path in folder.rglob("*")
        if path.suffix.lower() in {".ttf", ".otf"} and not path.name.lower().startswith("lastresort")
    )
    if not fonts:
        raise FadaError(f"{folder}: no .ttf or .otf fonts in this folder.")
    return fonts


@lru_cache(maxsize=256)
def _characters(path: Path) -> frozenset[int]:
    with needing("fonttools", "synth", "Looking into fonts"):
        from fontTools.ttLib import TTFont, TTLibError
    try:
        with TTFont(path, lazy=True) as font:
            return frozenset(font.getBestCmap() or ())
    except (TTLibError, OSError) as error:
        raise FadaError(f"{path}: not a readable font ({error}). Remove it from the folder.") from None


@lru_cache(maxsize=64)
def _font(path: Path) -> ImageFont.FreeTypeFont:
    return ImageFont.truetype(str(path), _EM)


@lru_cache(maxsize=64)
def _x_height(path: Path) -> float:
    """Height of a small letter without ascender, in pixels at `_EM`."""
    for letter in "xνоםه":
        if ord(letter) in _characters(path):
            left, top, right, _ = _font(path).getbbox(letter, anchor="ls")
            return float(max(-top, right - left))
    return 0.5 * _EM


# --- text into units -------------------------------------------------------------------------------------------------


def check_shaping(text: str) -> None:
    """Refuse text that needs joined or stacked glyphs when Pillow cannot shape it."""
    complex_text = next((c for c in text if _is_mark(c) or not (c.isspace() or _stands_alone(c))), None)
    if complex_text is not None and not features.check("raqm"):
        raise FadaError(
            f"the character {complex_text!r} (U+{ord(complex_text):04X}) needs text shaping, and this Pillow has been "
            "built without raqm. Install Pillow as a wheel (pip install pillow), or choose another language."
        )


def _is_mark(character: str) -> bool:
    return unicodedata.category(character).startswith("M")


@lru_cache(maxsize=65536)
def _stands_alone(character: str) -> bool:
    return not character.isalpha() or unicodedata.name(character, "?").split()[0] in _LETTER_BY_LETTER


def _is_right_to_left(word: str) -> bool:
    return any(unicodedata.bidirectional(c) in ("R", "AL") for c in word)


@lru_cache(maxsize=65536)
def split_word(word: str) -> tuple[str, ...]:
    """What the pen writes in one go, from left to right: letters with their marks; whole words where letters join."""
    if not all(_is_mark(c) or _stands_alone(c) for c in word):
        return (word,)
    clusters: list[str] = []
    for character in word:
        if clusters and _is_mark(character):
            clusters[-1] += character
        else:
            clusters.append(character)
    if _is_right_to_left(word):
        if any(unicodedata.bidirectional(c) in ("L", "EN", "AN") for c in word):
            return (word,)  # mixed directions: leave the order to the shaping engine
        clusters.reverse()
    return tuple(clusters)


# --- centre lines ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Glyph:
    """The centre line of a unit, in x-heights; the origin is on the base line at the pen position, y points down.

    Args:
        points: (N, 2) float64.
        advance: how far the pen moves on.
    """

    points: np.ndarray
    advance: float


@lru_cache(maxsize=20_000)
def centre_line(font: Path, unit: str) -> Glyph:
    """Draw a unit and thin it to its centre line."""
    face = _font(font)
    left, top, right, bottom = (round(v) for v in face.getbbox(unit, anchor="ls"))
    size = (right - left + 2 * _MARGIN, bottom - top + 2 * _MARGIN)
    image = Image.new("L", size, 0)
    ImageDraw.Draw(image).text((_MARGIN - left, _MARGIN - top), unit, fill=255, font=face, anchor="ls")
    shape = (np.asarray(image) > 127).astype(np.uint8)
    _thin(shape)
    y, x = np.nonzero(shape)
    scale = 1 / _x_height(font)
    points = np.column_stack([x + left - _MARGIN, y + top - _MARGIN]).astype(np.float64) * scale
    return Glyph(points, face.getlength(unit) * scale)


@numba.njit(cache=True, nogil=True)
def _thin(shape: np.ndarray) -> None:  # pragma: no cover - compiled
    """Thin a shape, (h, w) uint8 of 0 and 1 with an empty border, to lines one pixel wide (Zhang and Suen, 1984)."""
    height, width = shape.shape
    marked = np.zeros_like(shape)
    ring = np.zeros(9, dtype=np.uint8)
    changed = True
    while changed:
        changed = False
        for half in range(2):
            for y in range(1, height - 1):
                for x in range(1, width - 1):
                    if shape[y, x] == 0:
                        continue
                    ring[0] = ring[8] = shape[y - 1, x]
                    ring[1] = shape[y - 1, x + 1]
                    ring[2] = shape[y, x + 1]
                    ring[3] = shape[y + 1, x + 1]
                    ring[4] = shape[y + 1, x]
                    ring[5] = shape[y + 1, x - 1]
                    ring[6] = shape[y, x - 1]
                    ring[7] = shape[y - 1, x - 1]
                    neighbours = 0
                    rises = 0
                    for k in range(8):
                        neighbours += ring[k]
                        rises += (1 - ring[k]) * ring[k + 1]
                    if neighbours < 2 or neighbours > 6 or rises != 1:
                        continue
                    if half == 0:
                        keep = ring[0] * ring[2] * ring[4] or ring[2] * ring[4] * ring[6]
                    else:
                        keep = ring[0] * ring[2] * ring[6] or ring[0] * ring[4] * ring[6]
                    if not keep:
                        marked[y, x] = 1
            for y in range(1, height - 1):
                for x in range(1, width - 1):
                    if marked[y, x]:
                        shape[y, x] = 0
                        marked[y, x] = 0
                        changed = True


@numba.njit(cache=True, nogil=True)
def _press_nib(
    ink: np.ndarray, points: np.ndarray, pressure: np.ndarray, broad: float, narrow: float, angle: float
) -> None:  # pragma: no cover - compiled
    """Press an elliptical nib on `ink` (H, W) float32 at every point; the darkest touch counts.

    Args:
        points: (N, 2) float64, x and y in pixels.
        pressure: (N,) float64, scales the nib and the ink it leaves; 1 is normal.
        broad, narrow: half axes of the nib in pixels, the longer one first.
        angle: of the broad axis against the line, radians.
    """
    height, width = ink.shape
    cos, sin = np.cos(angle), np.sin(angle)
    for i in range(len(points)):
        a = 1 / (broad * pressure[i])
        b = 1 / (narrow * pressure[i])
        reach = broad * pressure[i] + 0.5
        outside = (1 + 0.5 * b) ** 2
        px = points[i, 0]
        py = points[i, 1]
        if not (-reach < px < width + reach and -reach < py < height + reach):
            continue
        darkness = min(0.55 + 0.45 * pressure[i], 1.0)
        for y in range(max(int(np.ceil(py - reach)), 0), min(int(py + reach) + 1, height)):
            for x in range(max(int(np.ceil(px - reach)), 0), min(int(px + reach) + 1, width)):
                dx = x - px
                dy = y - py
                u = (dx * cos + dy * sin) * a
                v = (dy * cos - dx * sin) * b
                squared = u * u + v * v
                if squared > outside or ink[y, x] >= darkness:
                    continue
                # First-order distance to the rim of the ellipse, in pixels: one pixel of soft edge.
                slope = np.sqrt((u * a) ** 2 + (v * b) ** 2) + 1e-9
                cover = min(max(0.5 + (1 - squared) / (2 * slope), 0.0), 1.0) * darkness
                if cover > ink[y, x]:
                    ink[y, x] = cover


# --- hands -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Hand:
    """How one writer writes. Lengths are in x-heights, angles in radians."""

    fonts: tuple[Path, ...]
    seed: np.random.SeedSequence
    size: float
    width: float
    slant: float
    letter_gap: float
    word_gap: float
    nib: tuple[float, float, float]
    join: float
    unsteadiness: float
    wander: float
    darkness: float
    _habits: dict[str, Glyph] = field(default_factory=dict, repr=False)

    @classmethod
    def of(cls, seed: np.random.SeedSequence, fonts: Sequence[Path]) -> "Hand":
        """A writer made up from a seed, who has learnt the letters of one font and some of another."""
        rng = np.random.default_rng(seed)
        models = tuple(fonts[i] for i in rng.permutation(len(fonts))[:2])
        broad = rng.uniform(0.055, 0.11)
        return cls(
            fonts=models,
            seed=seed,
            size=rng.uniform(0.24, 0.31),
            width=rng.uniform(0.8, 1.05),
            slant=rng.normal(0.08, 0.16),
            letter_gap=rng.uniform(-0.10, 0.06),
            word_gap=rng.uniform(0.55, 0.95),
            nib=(broad, broad * rng.uniform(0.35, 0.95), rng.uniform(-1.2, -0.3)),
            join=rng.choice([0.0, 0.35, 0.8]),
            unsteadiness=rng.uniform(0.7, 1.3),
            wander=rng.uniform(0.04, 0.14),
            darkness=rng.uniform(0.72, 0.95),
        )

    def glyph(self, unit: str) -> Glyph:
        """The unit as this hand always writes it: a font's centre line, bent by habit."""
        if unit not in self._habits:
            rng = np.random.default_rng([*self.seed.generate_state(4), *map(ord, unit)])
            model = centre_line(self.fonts[-1 if rng.random() < 0.3 else 0], unit)
            points = model.points.copy()
            if len(points):
                centre = points.mean(axis=0)
                x, y = (points - centre).T
                x /= max(1.0, 1.5 * np.abs(x).max())  # whole words bend no more than letters do
                bend = rng.normal(0, 0.10, size=(2, 3))
                points[:, 0] += bend[0] @ [x * y, y * y - 0.3, x]
                points[:, 1] += bend[1] @ [x * y, 0.6 * (x * x - 0.2), 0.5 * y]
            self._habits[unit] = Glyph(points, model.advance * rng.normal(1.0, 0.04))
        return self._habits[unit]


@dataclass(frozen=True)
class Page:
    """The sheet that a line stands on: what the lines of a page share."""

    paper: float
    ink: float
    leading: float
    stain: float
    slope: float

    @classmethod
    def of(cls, seed: np.random.SeedSequence, noise: float) -> "Page":
        """A sheet made up from a seed."""
        rng = np.random.default_rng(seed)
        return cls(
            paper=rng.uniform(0.68, 0.95),
            ink=rng.uniform(0.05, 0.22) + 0.06 * noise * rng.random(),
            leading=rng.uniform(0.72, 0.95) - 0.06 * min(noise, 1.5),
            stain=noise * rng.uniform(0.01, 0.045),
            slope=noise * rng.normal(0, 0.002),
        )


# --- lines -----------------------------------------------------------------------------------------------------------


def write_line(
    text: str,
    hand: Hand,
    page: Page,
    rng: np.random.Generator,
    *,
    height: int = 64,
    noise: float = 1.0,
    above: str = "",
    below: str = "",
) -> np.ndarray:
    """Write a line of text.

    Args:
        text: words separated by spaces.
        above, below: the neighbouring lines on the page; what reaches into this one's strip is drawn.
        noise: how unsteady the hand and how bad the page is; 0 is a copy-book, 1 ordinary, 2 hard to read.

    Returns:
        (height, width) uint8, dark on light.
    """
    x_height = hand.size * height
    base = height * (0.64 + 0.012 * noise * rng.standard_normal())
    points, pressure, end = _written(text, hand, rng, noise, joined=True)
    margin = x_height * rng.uniform(0.3, 0.9, size=2)
    width = max(round(end * x_height + margin.sum()), height // 4)
    offset = np.array([margin[0], base])
    strokes, presses = [points * x_height + offset], [pressure]
    for neighbour, side in ((above, -1), (below, 1)):
        if neighbour:
            points, pressure, _ = _written(neighbour, hand, rng, noise, joined=False)
            shift = [rng.normal(0, x_height), side * page.leading * height]
            points = points * x_height + offset + shift
            near = (points[:, 1] > -4) & (points[:, 1] < height + 4)
            strokes.append(points[near])
            presses.append(pressure[near])
    placed = np.concatenate(strokes)
    _shake(placed, x_height, hand, rng, noise)
    placed[:, 1] += (page.slope + noise * 0.003 * rng.standard_normal()) * (placed[:, 0] - width / 2)
    ink = np.zeros((height, width), dtype=np.float32)
    broad, narrow, angle = hand.nib
    thickness = x_height * np.exp(0.1 * noise * rng.standard_normal())
    least = 0.45  # pixels; a thinner nib would leave gaps between the pixels it touches
    _press_nib(
        ink,
        placed,
        np.concatenate(presses),
        max(broad * thickness, least),
        max(narrow * thickness, least),
        angle + 0.1 * noise * rng.standard_normal(),
    )
    return _on_paper(ink, page, hand, rng, noise)


def _written(
    text: str, hand: Hand, rng: np.random.Generator, noise: float, *, joined: bool
) -> tuple[np.ndarray, np.ndarray, float]:
    """The pen's points, (N, 2) in x-heights with the base line at y = 0, its pressure, (N,), and the line's length."""
    words = [split_word(word) for word in text.split(" ") if word]
    if _is_right_to_left(text):
        words.reverse()
    units = [unit for word in words for unit in word]
    if not units:
        return np.zeros((0, 2)), np.zeros(0), 0.0
    glyphs = [hand.glyph(unit) for unit in units]
    shaky = noise * hand.unsteadiness
    count = len(units)
    draw = np.clip(rng.standard_normal((8, count)), -2.5, 2.5)
    sizes = 1 + 0.07 * shaky * draw[0]
    widths = hand.width * (1 + 0.08 * shaky * draw[1]) * sizes
    slants = hand.slant + 0.07 * shaky * draw[2]
    turns = 0.05 * shaky * draw[3]
    rises = 0.05 * shaky * draw[4]
    first_in_word = np.zeros(count, dtype=bool)
    first_in_word[np.cumsum([0] + [len(word) for word in words[:-1]])] = True
    gaps = hand.letter_gap + 0.05 * shaky * draw[5]
    gaps[first_in_word] += hand.word_gap * np.exp(0.15 * shaky * draw[6][first_in_word])
    gaps[0] = 0.0
    advances = np.array([glyph.advance for glyph in glyphs]) * widths
    starts = np.cumsum(gaps) + np.concatenate([[0.0], np.cumsum(advances)[:-1]])
    # All points of the line at once: the parameters of each unit are repeated for each of its points.
    lengths = [len(glyph.points) for glyph in glyphs]
    x, y = np.concatenate([glyph.points for glyph in glyphs]).T
    scale_x, scale_y, slant, turn, rise, start, force = np.repeat(
        np.array([widths, sizes, slants, turns, rises, starts, 1 + 0.05 * shaky * draw[7]]), lengths, axis=1
    )
    x, y = x * scale_x, y * scale_y
    points = np.column_stack([start + x - slant * y - turn * y, y + turn * x + rise])
    joins = _joins(points, np.cumsum(lengths), first_in_word, hand, rng) if joined else np.zeros((0, 2))
    # The pen runs dry and is dipped again.
    force = force * (1 + 0.10 * shaky * np.sin(points[:, 0] * rng.uniform(0.15, 0.4) + rng.uniform(0, 6.3)))
    force = np.concatenate([force, np.full(len(joins), 0.75)])
    return np.concatenate([points, joins]), np.clip(force, 0.45, 1.6), float(starts[-1] + advances[-1])


def _joins(
    points: np.ndarray, ends: np.ndarray, first_in_word: np.ndarray, hand: Hand, rng: np.random.Generator
) -> np.ndarray:
    """(M, 2) points of the thin strokes from the right end of a letter to the left end of the next one."""
    strokes = [np.zeros((0, 2))]
    wanted = rng.random(len(ends)) < hand.join
    steps = np.linspace(0, 1, 16)[:, None]
    for i in np.flatnonzero(wanted[1:] & ~first_in_word[1:]) + 1:
        before = points[ends[i - 2] if i > 1 else 0 : ends[i - 1]]
        after = points[ends[i - 1] : ends[i]]
        before = before[(before[:, 1] > -0.9) & (before[:, 1] < 0.1)]
        after = after[(after[:, 1] > -1.0) & (after[:, 1] < 0.1)]
        if len(before) == 0 or len(after) == 0:
            continue
        leave, enter = before[np.argmax(before[:, 0] + 0.3 * before[:, 1])], after[np.argmin(after[:, 0])]
        gap = enter[0] - leave[0]
        if not 0.02 < gap < 0.6 or abs(enter[1] - leave[1]) > 0.8:
            continue
        middle = (leave + enter) / 2 + [0.0, 0.25 * gap + 0.05]
        strokes.append((1 - steps) ** 2 * leave + 2 * steps * (1 - steps) * middle + steps**2 * enter)
    return np.concatenate(strokes)


def _shake(points: np.ndarray, x_height: float, hand: Hand, rng: np.random.Generator, noise: float) -> None:
    """Elastic deformation of the line, in place: a wandering base line and waves from letter to stroke length."""
    shaky = noise * hand.unsteadiness * x_height
    x, y = points.T / x_height
    phases = rng.uniform(0, 2 * np.pi, size=12)
    rates = rng.uniform(0.8, 1.25, size=12)
    wander = hand.wander * noise * x_height
    dy = wander * np.sin(0.22 * rates[0] * x + phases[0]) + 0.5 * wander * np.sin(0.61 * rates[1] * x + phases[1])
    dx = np.zeros_like(dy)
    for k, (rate, amount) in enumerate(((1.3, 0.035), (3.1, 0.025), (6.5, 0.012))):
        a, b = 2 + 2 * k, 3 + 2 * k
        dx += shaky * amount * np.sin(rate * rates[a] * (0.6 * x + y) + phases[a])
        dy += shaky * amount * np.sin(rate * rates[b] * (x - 0.5 * y) + phases[b])
    points[:, 0] += dx
    points[:, 1] += dy


def _on_paper(ink: np.ndarray, page: Page, hand: Hand, rng: np.random.Generator, noise: float) -> np.ndarray:
    """Grey values (H, W) uint8 of `ink`, (H, W) float32 in [0, 1], on a sheet with stains and grain."""
    height, width = ink.shape
    bleed = rng.uniform(0.25, 0.5) + 0.35 * noise * rng.random()
    ink_image = Image.fromarray((ink * 255).astype(np.uint8)).filter(ImageFilter.GaussianBlur(bleed * height / 64))
    soaked = np.asarray(ink_image, dtype=np.float32) * np.float32(hand.darkness / 255)
    cells = max(width // height, 3)
    clouds = rng.standard_normal((3, cells), dtype=np.float32)
    fade = rng.standard_normal((2, 2 * cells), dtype=np.float32)
    soaked *= 1 - np.float32(0.12 * noise) * np.abs(_enlarged(fade, height, width))
    paper = np.float32(page.paper) + np.float32(page.stain) * _enlarged(clouds, height, width)
    grain = rng.standard_normal((height, width), dtype=np.float32)
    grain *= np.float32(0.006 + 0.012 * noise)
    grey = paper + grain + soaked * (np.float32(page.ink) - paper)
    grey *= 255
    return np.clip(grey, 0, 255).astype(np.uint8)


def _enlarged(coarse: np.ndarray, height: int, width: int) -> np.ndarray:
    """Smooth interpolation of a coarse float32 grid to (height, width)."""
    return np.asarray(Image.fromarray(coarse).resize((width, height), Image.Resampling.BICUBIC))


def encode(pixels: np.ndarray) -> bytes:
    """The bytes of a grey JPEG."""
    buffer = io.BytesIO()
    Image.fromarray(pixels).save(buffer, "JPEG", quality=90)
    return buffer.getvalue()


# --- many lines ------------------------------------------------------------------------------------------------------


class Stream(IntEnum):
    """What a stream of random numbers is for; with a number and the seed it names one stream."""

    TEXT = 0
    HAND = 1
    PAGE = 2
    LINE = 3


class PlacedLine(NamedTuple):
    """A line before it is drawn: what is written, by whom, and where."""

    number: int
    text: str
    domain: str
    writer: int
    page: int
    row: int
    above: str
    below: str


@dataclass(frozen=True)
class Scriptorium:
    """All hands and pages of a set; draws its lines, each from its own stream of random numbers."""

    fonts: tuple[Path, ...]
    height: int
    noise: float
    seed: int
    _hands: dict[int, Hand] = field(default_factory=dict, repr=False, compare=False)

    def draw(self, line: PlacedLine) -> bytes:
        """The encoded image of a line."""
        if line.writer not in self._hands:
            self._hands[line.writer] = Hand.of(self._stream(Stream.HAND, line.writer), self.fonts)
        pixels = write_line(
            line.text,
            self._hands[line.writer],
            Page.of(self._stream(Stream.PAGE, line.page), self.noise),
            np.random.default_rng(self._stream(Stream.LINE, line.number)),
            height=self.height,
            noise=self.noise,
            above=line.above,
            below=line.below,
        )
        return encode(pixels)

    def _stream(self, purpose: Stream, number: int) -> np.random.SeedSequence:
        return np.random.SeedSequence(self.seed, spawn_key=(purpose, number))


_scriptorium: Scriptorium


def open_scriptorium(scriptorium: Scriptorium) -> None:
    """Make a scriptorium the one of this process; for the start of worker processes."""
    global _scriptorium
    _scriptorium = scriptorium


def draw_chunk(lines: Sequence[PlacedLine]) -> list[bytes]:
    """The encoded images of some lines, drawn by the scriptorium of this process."""
    return [_scriptorium.draw(line) for line in lines]
