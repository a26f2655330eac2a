"""What ALTO and PAGE share: safe parsing, writing, sharing out a text among its old places, outlines."""

import math
import re
import statistics
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate, pairwise
from typing import Any, TypeAlias

from lxml import etree

from fada.data.crop import Point, area, corners
from fada.errors import FadaError

Element: TypeAlias = Any  # lxml's element type is private
Tree: TypeAlias = Any

MAX_XML_BYTES = 64 * 2**20
"""Larger XML files are not read: a page has a few hundred kilobytes."""

_FAR = 1e9
"""Coordinates are not taken to lie further out than this, in any unit: larger numbers overflow."""

_NUMBER = re.compile(r"-?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?")
_NOT_XML = re.compile("[^\\t\\n\\r\\u0020-\\ud7ff\\ue000-\\ufffd\\U00010000-\\U0010ffff]")
_DECLARATION = re.compile(rb"(?:\xef\xbb\xbf)?<\?xml[^>]*\?>\s*")


@dataclass(frozen=True)
class XmlLine:
    """A text line as its file has it; coordinates in the file's unit.

    Attributes:
        index: place among all text lines of the file, in document order: finds it again, whatever its id.
        box: left, top, right, bottom.
        own_id: of a line that was written by us and had an id from elsewhere.
    """

    id: str
    index: int
    text: str | None
    polygon: tuple[Point, ...] = ()
    box: tuple[float, float, float, float] | None = None
    baseline: tuple[Point, ...] = ()
    region: str | None = None
    own_id: str | None = None


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


# --- parsing ---------------------------------------------------------------------------------------------------------


def parse(data: bytes, name: str) -> Tree:
    """Parse XML that nobody vouches for: no entities, no network, no external DTD, bounded size.

    Comments, processing instructions, the document type and character data sections are kept as they are.
    """
    check_bytes(len(data), name)
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
    entities = f"{name}: the file declares entities, which are not read (a risk: they can grow or reach out)"
    if b"<!ENTITY" in data[: data.find(b"]>") + 1 or None]:
        raise FadaError(entities)
    try:
        root = etree.fromstring(data, parser)
    except (etree.XMLSyntaxError, ValueError, LookupError) as error:
        raise FadaError(f"{name}: not well-formed XML ({error})") from None
    tree = root.getroottree()
    dtd = tree.docinfo.internalDTD
    if dtd is not None and next(iter(dtd.iterentities()), None) is not None:
        raise FadaError(entities)
    return tree


def check_bytes(size: int, name: str) -> None:
    """Refuse a file that is too large for XML of a page."""
    if size > MAX_XML_BYTES:
        raise FadaError(f"{name}: {size:,} bytes, more than the limit of {MAX_XML_BYTES:,} for an XML file")


def local_name(element: Element) -> str:
    """The element's name without its namespace; "" for comments and processing instructions."""
    return etree.QName(element).localname if isinstance(element.tag, str) else ""


def name_beside(element: Element, name: str) -> str:
    """`name` in the namespace of `element`."""
    namespace = etree.QName(element).namespace
    return f"{{{namespace}}}{name}" if namespace else name


def text_lines(root: Element) -> list[Element]:
    """All text lines in document order: the order that :attr:`XmlLine.index` counts in."""
    return list(root.iter("{*}TextLine"))


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


def outline(line: XmlLine, page_size: Point, scale: Point, height: float) -> tuple[Point, ...]:
    """The outline of a line in pixels of the page image: its polygon, else its box, else a band around its baseline.

    Points further out than one page beside the page are moved there.

    Args:
        page_size: of the image in pixels.
        scale: pixels per unit, across and down.
        height: in pixels, for a line that has a baseline only.

    Raises:
        FadaError: with the reason why no pixel of the page belongs to the line.
    """
    reason = "no outline: neither polygon nor box nor baseline"
    for shape in _shapes(line, height / scale[1]):
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
            return near(pixels, page_size)
    raise FadaError(reason)


def near(shape: Iterable[Point], page_size: Point) -> tuple[Point, ...]:
    """Points on the page, or at most one page beside it."""
    width, height = page_size
    return tuple((_between(x, -width, 2 * width), _between(y, -height, 2 * height)) for x, y in shape)


def _shapes(line: XmlLine, height: float) -> Iterator[tuple[Point, ...]]:
    if len(line.polygon) >= 3 and area(line.polygon) > 0:
        yield line.polygon
    if line.box is not None:
        yield corners(*line.box)
    if len(line.baseline) >= 2:
        above = [(x, y - 0.75 * height) for x, y in line.baseline]
        below = [(x, y + 0.25 * height) for x, y in reversed(line.baseline)]
        yield (*above, *below)
    if len(line.polygon) >= 2:  # two corners, or a flat outline: its box may still do
        xs, ys = zip(*line.polygon, strict=True)
        yield corners(min(xs), min(ys), max(xs), max(ys))


def line_height(lines: Iterable[XmlLine], scale: float, page_height: float) -> float:
    """How tall a line with nothing but a baseline is taken to be: the usual distance of baselines, in pixels."""
    heights = sorted(statistics.fmean(y for _, y in line.baseline) * scale for line in lines if line.baseline)
    gaps = [below - above for above, below in pairwise(heights) if below - above > 4]
    return min(statistics.median(gaps), page_height / 5) if gaps else max(page_height / 40, 16.0)
