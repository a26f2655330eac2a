"""What ALTO and PAGE share: safe parsing, finding the page image, geometry, cutting a line out of its page."""

import math
import os
import re
import statistics
import warnings
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import accumulate, pairwise
from pathlib import Path, PurePosixPath, PureWindowsPath
from typing import TYPE_CHECKING, Any, TypeAlias
from urllib.parse import unquote, urlsplit

from lxml import etree

from fada.data.line import Line, LineSet, Log
from fada.data.source import IMAGE_SUFFIXES, XML_FOLDERS, Base, Options, split_of
from fada.errors import FadaError

if TYPE_CHECKING:
    from PIL import Image

Point: TypeAlias = tuple[float, float]
Element: TypeAlias = Any  # lxml's element type is private
Tree: TypeAlias = Any

MAX_XML_BYTES = 64 * 2**20
"""Larger XML files are not read: a page has a few hundred kilobytes."""

_FAR = 1e9
"""Coordinates are not taken to lie further out than this, in any unit: larger numbers overflow."""

_NUMBER = re.compile(r"-?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?")
_NOT_XML = re.compile("[^\\t\\n\\r\\u0020-\\ud7ff\\ue000-\\ufffd\\U00010000-\\U0010ffff]")
_DECLARATION = re.compile(rb"(?:\xef\xbb\xbf)?<\?xml[^>]*\?>\s*")
_PER_INCH = {"mm10": 254.0, "inch1200": 1200.0}
_IMAGE_FOLDERS = ("", "..", "images", "img", "../images", "../img")


@dataclass(frozen=True)
class XmlLine:
    """A text line as its file has it; coordinates in the file's unit.

    Attributes:
        index: place among all text lines of the file, in document order: finds it again, whatever its id.
        box: left, top, right, bottom.
    """

    id: str
    index: int
    text: str | None
    polygon: tuple[Point, ...] = ()
    box: tuple[float, float, float, float] | None = None
    baseline: tuple[Point, ...] = ()
    region: str | None = None


@dataclass(frozen=True)
class XmlPage:
    """A page of text lines in reading order.

    Attributes:
        image_names: what the file calls its image, best first.
        size: width and height in the file's unit, None if it does not say.
        unit: `pixel`, `mm10` (tenths of a millimetre) or `inch1200`; another one will do if the size is known.
    """

    image_names: tuple[str, ...]
    size: Point | None
    unit: str
    lines: tuple[XmlLine, ...]
    problems: tuple[str, ...] = field(default=())


@dataclass(frozen=True, slots=True)
class PageCrop:
    """A line that is cut out of its page image when it is asked for.

    Attributes:
        page: the page image.
        page_size: its width and height in pixels.
        polygon: the outline in pixels of the page image.
        baseline: the baseline in pixels, if there is one.
        xml: the ALTO or PAGE file, None if it is not a file of its own.
        base: the folder of the source that the file belongs to: a copy keeps its place below it.
        index: the line's place among the text lines of that file, in document order.
        region: id of the block that the line is in.
        line_id: id of the line in that file.
        grow: by how much of its height the outline is widened: so much upwards, 0.4 of it downwards and sideways.
        upright: whether the page is turned as its orientation tag says; if not, it is used as it is stored.
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

    @property
    def _margins(self) -> tuple[int, int]:
        """Pixels by which the outline is widened upwards, and downwards and sideways."""
        xs = [x for x, _ in self.polygon]
        height = _area(self.polygon) / max(max(xs) - min(xs), 1.0)
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

    def load(self) -> "Image.Image":
        """The line in grey; what lies outside its outline is filled with the grey of the paper inside."""
        import numpy as np
        from PIL import Image, ImageDraw

        from fada.data.images import paper_and_ink

        left, top = self.box[:2]
        changed = self.page.stat().st_mtime_ns if self.page.exists() else 0
        crop = _load_page(self.page, changed, self.upright).crop(self.box)
        mask = Image.new("1", crop.size, 0)
        pen = ImageDraw.Draw(mask)
        up, aside = self._margins
        for right, down in {(0, 0), (-aside, 0), (aside, 0), *((0, shift) for shift in range(-up, aside + 1))}:
            pen.polygon([(x - left + right, y - top + down) for x, y in self.polygon], fill=1, outline=1)
        inside = np.asarray(mask)
        pixels = np.array(crop)
        if inside.any():
            pixels[~inside] = paper_and_ink(pixels[inside])[0]
        return Image.fromarray(pixels)


@lru_cache(maxsize=2)
def _load_page(path: Path, changed: int, upright: bool) -> "Image.Image":
    from fada.data.images import load_line_image

    return load_line_image(path, upright=upright)


# --- parsing ---------------------------------------------------------------------------------------------------------


def parse(data: bytes, name: str) -> Tree:
    """Parse XML that nobody vouches for: no entities, no network, no external DTD, bounded size.

    Comments, processing instructions, the document type and character data sections are kept as they are.
    """
    _check_bytes(len(data), name)
    if not data.strip():
        raise FadaError(f"{name}: the file is empty")
    parser = etree.XMLParser(
        resolve_entities=False,
        no_network=True,
        load_dtd=False,
        dtd_validation=False,
        huge_tree=False,
        remove_comments=False,
        remove_pis=False,
        strip_cdata=False,
    )
    # Refused before parsing where it can be seen, because entities in attribute values are expanded by the parser.
    if b"<!ENTITY" in data[: data.find(b"]>") + 1 or None]:
        raise FadaError(f"{name}: the file declares entities, which are not read (a risk: they can grow or reach out)")
    try:
        root = etree.fromstring(data, parser)
    except (etree.XMLSyntaxError, ValueError, LookupError) as error:
        raise FadaError(f"{name}: not well-formed XML ({error})") from None
    tree = root.getroottree()
    dtd = tree.docinfo.internalDTD
    if dtd is not None and next(iter(dtd.iterentities()), None) is not None:
        raise FadaError(f"{name}: the file declares entities, which are not read (a risk: they can grow or reach out)")
    return tree


def _check_bytes(size: int, name: str) -> None:
    if size > MAX_XML_BYTES:
        raise FadaError(f"{name}: {size:,} bytes, more than the limit of {MAX_XML_BYTES:,} for an XML file")


def local_name(element: Element) -> str:
    """The element's name without its namespace; "" for comments and processing instructions."""
    return etree.QName(element).localname if isinstance(element.tag, str) else ""


def text_lines(root: Element) -> list[Element]:
    """All text lines in document order: the order that :attr:`XmlLine.index` counts in."""
    return list(root.iter("{*}TextLine"))


def read_pages(tree: Tree, name: str) -> list[XmlPage]:
    """The pages of an ALTO or PAGE file, of any version."""
    from fada.data.formats import alto, page

    kind = local_name(tree.getroot())
    if kind.lower() == "alto":
        return alto.read_pages(tree.getroot())
    if kind == "PcGts":
        return page.read_pages(tree.getroot())
    raise FadaError(f"{name}: neither ALTO nor PAGE, the root element is <{kind}>")


def points(text: str | None) -> tuple[Point, ...]:
    """Points in any of the notations in use: `x,y x,y`, `x y x y`, `x,y,x,y`, with or without decimals."""
    values = [float(number) for number in _NUMBER.findall(text or "")]
    return tuple(
        (_between(x, -_FAR, _FAR), _between(y, -_FAR, _FAR))
        for x, y in zip(values[::2], values[1::2], strict=False)
        if math.isfinite(x) and math.isfinite(y)
    )


def _between(value: float, least: float, most: float) -> float:
    return max(least, min(value, most))


def number(text: str | None) -> float | None:
    """A finite number in an attribute, None if there is none."""
    try:
        value = float(text) if text is not None else math.nan
    except ValueError:
        return None
    return value if math.isfinite(value) else None


def in_reading_order(
    lines: Sequence[tuple[Element, XmlLine]], ranks: Mapping[str, int], id_attribute: str
) -> tuple[XmlLine, ...]:
    """Sort lines by their rank or that of the closest block around them; those without follow in document order."""

    def rank(element: Element) -> float:
        while element is not None:
            if (found := ranks.get(element.get(id_attribute))) is not None:
                return found
            element = element.getparent()
        return math.inf

    if not ranks:
        return tuple(line for _, line in lines)
    return tuple(line for _, line in sorted(lines, key=lambda pair: rank(pair[0])))


# --- writing ---------------------------------------------------------------------------------------------------------


def serialize(tree: Tree, original: bytes = b"") -> bytes:
    """The document in its own encoding, with document type and what stands around the root.

    Args:
        original: the file it was parsed from, whose declaration and end are taken over as they are.
    """
    encoding = tree.docinfo.encoding or "UTF-8"
    declaration = _DECLARATION.match(original)
    if declaration is None and (not original or encoding.upper() != "UTF-8"):  # UTF-16 needs its mark before it
        return etree.tostring(tree, encoding=encoding, xml_declaration=True) + b"\n" * (not original)
    start = declaration[0] if declaration else b""
    end = original[len(original.rstrip()) :]
    return start + etree.tostring(tree, encoding=encoding, xml_declaration=False).rstrip() + end


def xml_text(text: str) -> str:
    """Text without the characters that XML cannot hold, which become U+FFFD."""
    return _NOT_XML.sub("\ufffd", text)


def insert_after(sibling: Element, new: Element) -> None:
    """Insert an element as the next sibling, indented like the others."""
    parent = sibling.getparent()
    following = sibling.tail
    if sibling.getnext() is None:
        before = sibling.getprevious()
        sibling.tail = parent.text if before is None else before.tail
    parent.insert(parent.index(sibling) + 1, new)
    if "\n" in (parent.text or ""):
        etree.indent(new, level=sum(1 for _ in new.iterancestors()))
    new.tail = following


def insert_first(parent: Element, new: Element) -> None:
    """Insert an element as the first child, indented like the others."""
    new.tail = parent.text if len(parent) else None
    parent.insert(0, new)


def insert_last_of(parent: Element, names: Sequence[str], new: Element) -> None:
    """Insert an element after the last child that has one of the names; as the first child if none has."""
    found = [child for child in parent if local_name(child) in names]
    if found:
        insert_after(found[-1], new)
    else:
        insert_first(parent, new)


def allot(parts: Sequence[str], slots: Sequence[str], joiner: str) -> list[range]:
    """Share out a new text among the places that held the old one: which parts (words, characters) go into which slot.

    As many parts as slots go one by one. Otherwise both texts are aligned by edit distance and every part goes where
    its middle falls, so that words stay near their old boxes; a slot may get several parts or none.
    """
    if len(parts) == len(slots):
        return [range(place, place + 1) for place in range(len(parts))]
    if not slots:
        return []
    owners = _owners(parts, slots, joiner)
    edges = [bisect_left(owners, slot) for slot in range(len(slots) + 1)]
    return [range(start, end) for start, end in pairwise(edges)]


def _owners(parts: Sequence[str], slots: Sequence[str], joiner: str) -> list[int]:
    """The slot of every part; rising."""
    if not any(slots):
        return [place * len(slots) // len(parts) for place in range(len(parts))]
    from rapidfuzz.distance import Levenshtein

    starts = list(accumulate((len(slot) + len(joiner) for slot in slots), initial=0))[:-1]
    blocks = list(Levenshtein.opcodes(joiner.join(parts), joiner.join(slots)))
    ends = [block.src_end for block in blocks]
    owners = []
    place = 0
    for part in parts:
        middle = place + len(part) // 2
        block = blocks[min(bisect_right(ends, middle), len(blocks) - 1)]
        offset = min(middle - block.src_start, max(block.dest_end - block.dest_start - 1, 0))
        owners.append(max(bisect_right(starts, block.dest_start + offset) - 1, 0))
        place += len(part) + len(joiner)
    return owners


# --- geometry --------------------------------------------------------------------------------------------------------


def outline(line: XmlLine, page_size: Point, scale: Point, line_height: float) -> tuple[Point, ...]:
    """The outline of a line in pixels of the page image: its polygon, else its box, else a band around its baseline.

    Points further out than one page beside the page are moved there.

    Args:
        page_size: of the image in pixels.
        scale: pixels per unit, across and down.
        line_height: in pixels, for a line that has a baseline only.

    Raises:
        FadaError: with the reason why no pixel of the page belongs to the line.
    """
    reason = "no outline: neither polygon nor box nor baseline"
    for shape in _shapes(line, line_height / scale[1]):
        pixels = tuple((x * scale[0], y * scale[1]) for x, y in shape)
        xs, ys = zip(*pixels, strict=True)
        if max(xs) - min(xs) < 1 or max(ys) - min(ys) < 1:
            reason = f"the outline has no area ({max(xs) - min(xs):.0f} x {max(ys) - min(ys):.0f} pixels)"
        elif max(xs) <= 0 or max(ys) <= 0 or min(xs) >= page_size[0] or min(ys) >= page_size[1]:
            reason = (
                f"the outline ({min(xs):.0f},{min(ys):.0f} to {max(xs):.0f},{max(ys):.0f}) lies outside of the page "
                f"({page_size[0]:.0f} x {page_size[1]:.0f} pixels)"
            )
        else:
            return _near(pixels, page_size)
    raise FadaError(reason)


def _near(shape: Iterable[Point], page_size: Point) -> tuple[Point, ...]:
    """Points on the page, or at most one page beside it."""
    width, height = page_size
    return tuple((_between(x, -width, 2 * width), _between(y, -height, 2 * height)) for x, y in shape)


def _shapes(line: XmlLine, height: float) -> Iterator[tuple[Point, ...]]:
    if len(line.polygon) >= 3 and _area(line.polygon) > 0:
        yield line.polygon
    if line.box is not None:
        left, top, right, bottom = line.box
        yield ((left, top), (right, top), (right, bottom), (left, bottom))
    if len(line.baseline) >= 2:
        above = [(x, y - 0.75 * height) for x, y in line.baseline]
        below = [(x, y + 0.25 * height) for x, y in reversed(line.baseline)]
        yield (*above, *below)
    if len(line.polygon) >= 2:  # two corners, or a flat outline: its box may still do
        xs, ys = zip(*line.polygon, strict=True)
        yield ((min(xs), min(ys)), (max(xs), min(ys)), (max(xs), max(ys)), (min(xs), max(ys)))


def _area(polygon: Sequence[Point]) -> float:
    following = (*polygon[1:], polygon[0])
    return abs(sum(a * d - b * c for (a, b), (c, d) in zip(polygon, following, strict=True))) / 2


def _line_height(lines: Iterable[XmlLine], scale: float, page_height: float) -> float:
    """How tall a line with nothing but a baseline is taken to be: the usual distance of baselines, in pixels."""
    heights = sorted(statistics.fmean(y for _, y in line.baseline) * scale for line in lines if line.baseline)
    gaps = [below - above for above, below in pairwise(heights) if below - above > 4]
    return min(statistics.median(gaps), page_height / 5) if gaps else max(page_height / 40, 16.0)


# --- images ----------------------------------------------------------------------------------------------------------


def image_size(path: Path) -> tuple[int, int, float | None, bool]:
    """From an image's header: width and height as stored, dots per inch, and whether its tag lays it on its side."""
    from PIL import Image

    from fada.data.images import FORMATS, MAX_PIXELS

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", Image.DecompressionBombWarning)
            with Image.open(path, formats=FORMATS) as image:
                (width, height), dpi = image.size, image.info.get("dpi")
                sideways = image.getexif().get(0x0112) in (5, 6, 7, 8)
    except Image.DecompressionBombError as error:
        raise FadaError(f"the page image {path.name} is too large to open safely ({error})") from None
    except Exception as error:  # Pillow raises almost anything on broken headers
        raise FadaError(f"the page image {path.name} cannot be read ({error})") from None
    if width * height > MAX_PIXELS:
        raise FadaError(f"the page image {path.name} has {width:,} x {height:,} pixels, more than {MAX_PIXELS:,}")
    resolution = number(str(dpi[0])) if isinstance(dpi, tuple) and dpi else None
    return width, height, resolution if resolution and resolution > 1 else None, sideways


def find_image(names: Sequence[str], xml: Path, base: Base, images: Path | None) -> Path:
    """The page image of an XML file: where it says, beside it, one folder up, in `images`; or of the same stem."""
    places = [(base, Path(xml.parent, folder)) for folder in _IMAGE_FOLDERS]
    if images is not None:
        places.insert(0, (Base(images, base.allow_outside), images))
    refused: FadaError | None = None
    for name in names:
        for one in dict.fromkeys((_plain(name), PurePosixPath(_plain(name)).name)):
            for where, folder in places:
                try:
                    return Path(os.path.normpath(where.find(folder, one)))
                except FadaError as error:
                    if "outside" in str(error) and (folder / one).exists():
                        refused = error
    stems = dict.fromkeys([PurePosixPath(_plain(name)).stem for name in names if name] + [xml.stem])
    for stem in stems:
        for where, folder in places:
            for suffix in sorted(IMAGE_SUFFIXES):
                for ending in (suffix, suffix.upper()):
                    file = folder / f"{stem}{ending}"
                    if file.is_file() and where.holds(file):
                        return Path(os.path.normpath(file))
    raise refused or FadaError(f"the page image {names[0] if names else xml.stem} was not found")


def _plain(name: str) -> str:
    """A file name as it may be written in XML (URL, Windows path) as a relative path."""
    name = name.strip()
    if "://" in name:
        parts = urlsplit(name)
        path = unquote(parts.path)
        return path if parts.scheme == "file" else PurePosixPath(path).name
    return PureWindowsPath(name).name if re.match(r"[A-Za-z]:\\", name) else name


# --- reading ---------------------------------------------------------------------------------------------------------


def open_xml(source: Path, files: list[Path], options: Options) -> LineSet:
    """The lines of ALTO and PAGE files with their page images."""
    base = Base.of(source, options)

    def read(log: Log, media: bool) -> Iterator[Line]:
        seen: dict[Path, tuple[str, str]] = {}
        for file in files:
            name = base.name(file)
            split = split_of(PurePosixPath(name).parent)
            if options.split not in (None, split):
                continue
            try:
                if not base.holds(file):
                    raise FadaError("a link out of the folder; allow it with allow_outside (--allow-outside)")
                _check_bytes(file.stat().st_size, name)
                tree = parse(file.read_bytes(), name)
                pages = read_pages(tree, name)
            except (FadaError, OSError) as error:
                log.skip(name, str(error).removeprefix(f"{name}: "), "XML file not read")
                continue
            kind = local_name(tree.getroot())
            if not text_lines(tree.getroot()):
                log.blank.append((file, base.folder))
            for page in pages:
                yield from page_lines(page, file, base, split, options, log, media, kind, seen)

    return LineSet(read, str(source))


def page_lines(
    page: XmlPage,
    file: Path,
    base: Base,
    split: str | None,
    options: Options,
    log: Log,
    media: bool,
    kind: str = "",
    seen: dict[Path, tuple[str, str]] | None = None,
) -> Iterator[Line]:
    """The lines of a page; what cannot be used is logged.

    Args:
        kind: of the XML file; exports often hold every page as ALTO and as PAGE, and `seen` (image to file and kind)
            keeps its lines from being read twice.
    """
    name = base.name(file)
    for problem in page.problems:
        log.skip(name, problem)
    image: Path | None = None
    missing: FadaError | None = None
    scale, size, upright = (1.0, 1.0), (0, 0), True
    try:
        image = find_image(page.image_names, file, base, options.images)
    except FadaError as error:
        missing = error
    place = image or Path(*(part for part in file.with_suffix("").parts if part.lower() not in XML_FOLDERS))
    first = (seen if seen is not None else {}).setdefault(place, (name, kind))
    if first[1] != kind:
        log.skip(name, f"the same page as {first[0]}", "page that is there twice, as ALTO and as PAGE")
        return
    if media:
        try:
            if image is None:
                raise missing or FadaError("no page image")
            size, scale, upright = _scale(page, image, name, log)
        except FadaError as error:
            for line in page.lines:
                log.skip(f"{name}#{line.id}", str(error), "page image cannot be used")
            return
    height = _line_height(page.lines, scale[1], size[1])
    for line in page.lines:
        source = f"{name}#{line.id}"
        crop: PageCrop | None = None
        if media and image is not None:
            try:
                polygon = outline(line, size, scale, height)
            except FadaError as error:
                log.skip(source, str(error), "outline cannot be used")
                continue
            baseline = _near(((x * scale[0], y * scale[1]) for x, y in line.baseline), size)
            crop = PageCrop(
                image,
                size,
                polygon,
                baseline,
                file,
                line.index,
                line.region,
                line.id,
                options.grow,
                upright,
                base.folder,
            )
        extra: dict[str, Any] = {"page": name.removesuffix(file.suffix), "line_id": line.id}
        if line.region:
            extra["region"] = line.region
        if split:
            extra["split"] = split
        yield Line(
            id=f"{name.removesuffix(file.suffix)}#{line.id}",
            text=line.text,
            domain=options.domain_of(None, name, extra, log),
            image=crop,
            source=source,
            extra=extra,
        )


def _scale(page: XmlPage, image: Path, name: str, log: Log) -> tuple[tuple[int, int], Point, bool]:
    """The image's size, pixels per unit of the file across and down, and whether the image is to be turned upright."""
    width, height, dpi, sideways = image_size(image)
    as_stored = sideways and _same_size(page, (width, height)) and not _same_size(page, (height, width))
    if as_stored:
        log.note(f"{name}: its outlines fit {image.name} as it is stored, not turned as its orientation tag says.")
    elif sideways:
        width, height = height, width
    size, upright = (width, height), not as_stored
    if page.size is not None and page.size[0] > 0 and page.size[1] > 0:
        scale = (width / page.size[0], height / page.size[1])
        differs = not _same_size(page, size)
        if page.unit == "pixel" and differs:
            log.note(
                f"{name}: the page is {page.size[0]:g} x {page.size[1]:g}, its image {width} x {height} pixels; "
                f"outlines are scaled by {scale[0]:.3f} across and {scale[1]:.3f} down."
            )
        return size, scale if differs else (1.0, 1.0), upright
    if page.unit == "pixel":
        return size, (1.0, 1.0), upright
    if dpi is None or page.unit not in _PER_INCH:
        raise FadaError(
            f"coordinates are in {page.unit}, but neither the page's size nor the resolution of {image.name} is known"
        )
    return size, (dpi / _PER_INCH[page.unit],) * 2, upright


def _same_size(page: XmlPage, size: tuple[int, int]) -> bool:
    """Whether the file gives the page this size in pixels, give or take one."""
    if page.size is None or page.unit != "pixel":
        return False
    return max(abs(page.size[0] - size[0]), abs(page.size[1] - size[1])) <= 1
