"""What a set of lines holds: counts, characters, widths, what is wrong with it, and a picture of it."""

import os
import random
from array import array
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fada.common.files import replacing
from fada.common.tables import Cells
from fada.data.crop import PageCrop
from fada.data.line import SPLITS, Line, LineSet, PathLike
from fada.errors import FadaError
from fada.text.characters import natural_key, sign, unicode_name

if TYPE_CHECKING:
    from PIL import Image, ImageFont

HEIGHT = 64
"""Widths are told for lines scaled to this height, in pixels."""

QUANTILES = (0.0, 0.05, 0.5, 0.95, 0.99, 1.0)
UNKNOWN = "(none)"
"""How a missing domain or split is shown."""


@dataclass
class Inspection:
    """What was found in a set of lines.

    Attributes:
        counts: lines by split and domain.
        characters: occurrences by domain and character.
        widths: of the lines at a height of 64 pixels, by domain.
        without_text, empty_texts: lines that have no transcription, or an empty one.
        samples: some lines of every domain, for the contact sheet.
    """

    name: str
    lines: int = 0
    counts: Counter[tuple[str, str]] = field(default_factory=Counter)
    characters: dict[str, Counter[str]] = field(default_factory=dict)
    widths: dict[str, "array[float]"] = field(default_factory=dict)
    without_text: int = 0
    empty_texts: int = 0
    with_image: int = 0
    with_audio: int = 0
    longest_text: int = 0
    skipped: int = 0
    reasons: Counter[str] = field(default_factory=Counter)
    notes: list[str] = field(default_factory=list)
    licence: str | None = None
    citation: str | None = None
    samples: dict[str, list[Line]] = field(default_factory=dict)

    @property
    def domains(self) -> list[str]:
        """The domains, in natural_key order."""
        return sorted({domain for _, domain in self.counts}, key=natural_key)

    def count_rows(self) -> list[Cells]:
        """Lines by split (rows) and domain (columns), with sums."""
        known = [*SPLITS, *sorted({split for split, _ in self.counts} - set(SPLITS))]
        rows: list[Cells] = []
        for split in known:
            numbers = {domain: self.counts[split, domain] for domain in self.domains}
            if any(numbers.values()):
                rows.append({"split": split, **numbers, "all": sum(numbers.values())})
        if len(rows) > 1:
            sums = {domain: sum(self.counts[split, domain] for split in known) for domain in self.domains}
            rows.append({"split": "all", **sums, "all": sum(sums.values())})
        return rows

    def domain_rows(self) -> list[Cells]:
        """Lines, characters and distinct characters of every domain."""
        return [
            {
                "domain": domain,
                "lines": sum(number for (_, own), number in self.counts.items() if own == domain),
                "characters": self.characters.get(domain, Counter()).total(),
                "distinct": len(self.characters.get(domain, ())),
            }
            for domain in self.domains
        ]

    def inventory_rows(self) -> list[Cells]:
        """The characters by falling count, with code point, name, share in percent and the domains that have them."""
        total: Counter[str] = Counter()
        for counts in self.characters.values():
            total.update(counts)
        everything = total.total()
        return [
            {
                "character": sign(character),
                "code": f"U+{ord(character):04X}",
                "name": unicode_name(character),
                "count": count,
                "percent": 100 * count / everything,
                "domains": " ".join(domain for domain in self.domains if self.characters[domain][character]),
            }
            for character, count in sorted(total.items(), key=lambda item: (-item[1], item[0]))
        ]

    def width_rows(self) -> list[Cells]:
        """The distribution of widths at a height of 64 pixels, by domain and overall."""
        rows: list[Cells] = []
        everything = [width for widths in self.widths.values() for width in widths]
        for domain, widths in [*((domain, self.widths.get(domain)) for domain in self.domains), ("all", everything)]:
            if widths:
                rows.append({"domain": domain, **quantiles(widths)})
        return rows

    def to_dict(self) -> dict[str, Any]:
        """Everything but the samples, for JSON."""
        return {
            "name": self.name,
            "lines": self.lines,
            "counts": self.count_rows(),
            "domains": self.domain_rows(),
            "with_image": self.with_image,
            "with_audio": self.with_audio,
            "without_text": self.without_text,
            "empty_texts": self.empty_texts,
            "longest_text": self.longest_text,
            "characters": self.inventory_rows(),
            "widths_at_64_px": self.width_rows(),
            "skipped": self.skipped,
            "reasons": dict(self.reasons),
            "notes": self.notes,
            "licence": self.licence,
            "citation": self.citation,
        }


def inspect(lines: LineSet, *, samples: int = 6, check: bool = False, seed: int = 0) -> Inspection:
    """Go through a set of lines once.

    Args:
        samples: how many lines of every domain to keep for the contact sheet, drawn at random.
        check: decode every image, to find broken ones; otherwise only headers are read.
    """
    found = Inspection(lines.name)
    draw = random.Random(seed)
    seen: Counter[str] = Counter()
    for line in lines:
        domain, split = line.domain or UNKNOWN, line.split or UNKNOWN
        if line.image is not None:
            try:
                if check:
                    width, height = line.load_image().size
                else:
                    width, height = line_size(line)
            except FadaError as error:
                lines.skip(line, error)
                continue
            found.with_image += 1
            found.widths.setdefault(domain, array("f")).append(width * HEIGHT / max(height, 1))
        found.with_audio += line.audio is not None
        found.lines += 1
        found.counts[split, domain] += 1
        found.without_text += line.text is None
        found.empty_texts += line.text == ""
        found.characters.setdefault(domain, Counter()).update(line.text or "")
        found.longest_text = max(found.longest_text, len(line.text or ""))
        seen[domain] += 1
        _keep(found.samples.setdefault(domain, []), line, seen[domain], samples, draw)
    found.skipped, found.reasons, found.notes = lines.skipped_count, lines.reasons, lines.notes
    found.licence, found.citation = lines.licence, lines.citation
    return found


def _keep(kept: list[Line], line: Line, seen: int, most: int, draw: random.Random) -> None:
    """Reservoir sampling: each of the lines seen so far is kept with the same probability."""
    if len(kept) < most:
        kept.append(line)
    elif (place := draw.randrange(seen)) < most:
        kept[place] = line


def line_size(line: Line) -> tuple[int, int]:
    """Width and height of a line's image in pixels, from its header where there is one."""
    from fada.data.images import image_size

    if isinstance(line.image, PageCrop):
        left, top, right, bottom = line.image.box
        return right - left, bottom - top
    if not isinstance(line.image, bytes | str | os.PathLike):
        return line.load_image().size
    return image_size(line.image, f"{line.source}: ")[:2]


def quantiles(values: Sequence[float]) -> dict[str, float]:
    """Smallest, median, largest and some quantiles between, rounded to whole pixels."""
    import numpy as np

    names = ("min", "5 %", "median", "95 %", "99 %", "max")
    return {name: round(float(value)) for name, value in zip(names, np.quantile(values, QUANTILES), strict=True)}


# --- the contact sheet -----------------------------------------------------------------------------------------------

_TILE, _LINE, _LABEL, _GAP = 720, 56, 22, 12
_PAPER, _INK, _FAINT = 255, 0, 120
_COLUMNS = 2


def contact_sheet(samples: Mapping[str, Sequence[Line]], path: PathLike) -> Path:
    """Draw some lines of every domain, each above its transcription, into one PNG."""
    from PIL import Image, ImageDraw

    font, head = _font(14), _font(20)
    tiles: list[tuple[str, list[Image.Image]]] = []
    for domain in sorted(samples, key=natural_key):
        drawn = [_tile(line, font) for line in samples[domain] if line.image is not None]
        if drawn:
            tiles.append((domain, drawn))
    if not tiles:
        raise FadaError("none of the lines has an image, so there is no contact sheet to draw.")
    tall = _LINE + _LABEL + _GAP
    heights = [_GAP + 28 + -(-len(drawn) // _COLUMNS) * tall for _, drawn in tiles]
    sheet = Image.new("L", (_GAP + _COLUMNS * (_TILE + _GAP), sum(heights) + _GAP), _PAPER)
    pen = ImageDraw.Draw(sheet)
    top = 0
    for (domain, drawn), height in zip(tiles, heights, strict=True):
        pen.text((_GAP, top + _GAP), f"domain {domain}", fill=_INK, font=head)
        for place, tile in enumerate(drawn):
            row, column = divmod(place, _COLUMNS)
            sheet.paste(tile, (_GAP + column * (_TILE + _GAP), top + _GAP + 28 + row * tall))
        top += height
    path = Path(path)
    with replacing(path) as temporary:
        sheet.save(temporary, "PNG")
    return path


def _tile(line: Line, font: "ImageFont.FreeTypeFont | ImageFont.ImageFont") -> "Image.Image":
    from PIL import Image, ImageDraw

    tile = Image.new("L", (_TILE, _LINE + _LABEL), _PAPER)
    label = line.text if line.text is not None else "(no transcription)"
    try:
        image = line.load_image()
        scale = min(_LINE / image.height, _TILE / image.width)
        size = max(1, round(image.width * scale)), max(1, round(image.height * scale))
        tile.paste(image.resize(size, Image.Resampling.LANCZOS, reducing_gap=3.0), (0, _LINE - size[1]))
    except FadaError as error:
        label = str(error)
    pen = ImageDraw.Draw(tile)
    pen.text((0, _LINE + 2), label.replace("\n", " ")[:200], fill=_FAINT, font=font)
    return tile


def _font(size: int) -> "ImageFont.FreeTypeFont | ImageFont.ImageFont":
    """DejaVu, which has Greek, Cyrillic, Hebrew and Arabic, where matplotlib is installed; else Pillow's own."""
    from PIL import ImageFont

    try:
        import matplotlib

        return ImageFont.truetype(f"{matplotlib.get_data_path()}/fonts/ttf/DejaVuSans.ttf", size)
    except (ImportError, OSError):
        return ImageFont.load_default(size)
