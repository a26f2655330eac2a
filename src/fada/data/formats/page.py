"""PAGE XML 2013 to 2019: text lines in reading order, and transcriptions put back into the same file or a new one."""

import re
from collections.abc import Iterator, Sequence
from statistics import fmean
from urllib.parse import quote, unquote

from lxml import etree
from lxml.builder import ElementMaker

from fada.data.crop import PageCrop, Point, corners
from fada.data.formats.sheets import words_of
from fada.data.formats.xml import (
    Element,
    Tree,
    XmlLine,
    XmlPage,
    allot,
    in_reading_order,
    insert_first,
    insert_last_of,
    local_name,
    name_beside,
    number,
    points,
    text_lines,
    xml_text,
)
from fada.data.line import Provenance, Transcription, word_spans

NAMESPACE = "http://schema.primaresearch.org/PAGE/gts/pagecontent/2019-07-15"
_XSI = "http://www.w3.org/2001/XMLSchema-instance"
_CUSTOM_ORDER = re.compile(r"readingOrder\s*\{[^}]*index\s*:\s*(\d+)")
_BEFORE_TEXT = ("AlternativeImage", "Coords", "Baseline", "Word", "Glyph", "Grapheme", "TextEquiv")


# --- reading ---------------------------------------------------------------------------------------------------------


def read_pages(root: Element) -> list[XmlPage]:
    """The page of a PAGE file of any version, lines in reading order."""
    places = {element: index for index, element in enumerate(text_lines(root))}
    return [_page(page, places) for page in root.iter("{*}Page")]


def _page(page: Element, places: dict[Element, int]) -> XmlPage:
    regions: dict[Element, list[Element]] = {}
    for line in page.iter("{*}TextLine"):
        regions.setdefault(line.getparent(), []).append(line)
    in_order = (element for found in regions.values() for element in _in_own_order(found))
    lines = [(element, _line(element, places[element])) for element in in_order]
    width, height = number(page.get("imageWidth")), number(page.get("imageHeight"))
    name = (page.get("imageFilename") or "").strip()
    return XmlPage(
        image_names=(name,) if name else (),
        size=(width, height) if width and height else None,
        unit="pixel",
        lines=in_reading_order(lines, _ranks(page), "id"),
    )


def _in_own_order(lines: list[Element]) -> list[Element]:
    """The lines of a region by their own index, if all of them have one."""
    order = {line: _index(line) for line in lines}
    return lines if None in order.values() else sorted(lines, key=lambda line: order[line] or 0)


def _index(element: Element) -> int | None:
    """The place that an element gives itself: the attribute `index`, or Transkribus' `custom`."""
    value = element.get("index") or ""
    if value.isdecimal():
        return int(value)
    found = _CUSTOM_ORDER.search(element.get("custom") or "")
    return int(found[1]) if found else None


def _ranks(page: Element) -> dict[str, int]:
    """Region id to rank, from the reading order or, without one, from the regions' own indices."""
    order = page.find("{*}ReadingOrder")
    if order is not None:
        return {reference: rank for rank, reference in reversed(list(enumerate(_references(order))))}
    regions = [element for element in page if local_name(element).endswith("Region")]
    indices = {element.get("id"): _index(element) for element in regions}
    return {name: index for name, index in indices.items() if name and index is not None}


def _references(group: Element) -> Iterator[str]:
    children = [child for child in group if isinstance(child.tag, str)]
    for child in sorted(children, key=lambda child: _index(child) or 0):
        if child.get("regionRef"):
            yield child.get("regionRef")
        yield from _references(child)


def _line(element: Element, index: int) -> XmlLine:
    parent = element.getparent()
    baseline = element.find("{*}Baseline")
    return XmlLine(
        id=element.get("id") or f"line_{index + 1}",
        index=index,
        text=line_text(element),
        polygon=_points(element.find("{*}Coords")),
        baseline=() if baseline is None else _points(baseline),
        region=None if parent is None else parent.get("id"),
        own_id=_own_id(element),
    )


_OWN_ID = re.compile(r"fadaId\s*\{id:([^;}]*);?\}")


def _own_id(element: Element) -> str | None:
    found = _OWN_ID.search(element.get("custom") or "")
    return unquote(found[1]) if found else None


def set_id(element: Element, name: str) -> None:
    """Keep the id that a line had elsewhere."""
    element.set("custom", f"fadaId {{id:{quote(name, safe='/#')};}}")


def _points(element: Element | None) -> tuple[Point, ...]:
    """The points of an outline: an attribute, or elements of their own in files from before 2013."""
    if element is None:
        return ()
    if element.get("points") is not None:
        return points(element.get("points"))
    found = ((number(point.get("x")), number(point.get("y"))) for point in element.iterfind("{*}Point"))
    return tuple((x, y) for x, y in found if x is not None and y is not None)


def line_text(element: Element) -> str | None:
    """The text of a line: its own, else its words joined with spaces, else their glyphs; None if there is none."""
    equivalent = _equivalent(element)
    text = None if equivalent is None else _unicode(equivalent)
    for name, joiner in (("Word", " "), ("Glyph", "")):
        parts = [] if text else [line_text(part) for part in element.iterfind(f"{{*}}{name}")]
        if any(part is not None for part in parts):
            text = joiner.join(part for part in parts if part)
    return text


def _equivalent(element: Element) -> Element | None:
    """The first of the alternative texts by index; one without an index comes first."""
    equivalents = element.findall("{*}TextEquiv")
    return min(equivalents, key=lambda one: number(one.get("index")) or 0.0, default=None)


def _unicode(equivalent: Element) -> str:
    for name in ("Unicode", "PlainText"):
        element = equivalent.find(f"{{*}}{name}")
        if element is not None:
            return str(element.xpath("string()"))
    return ""


# --- writing into a file ---------------------------------------------------------------------------------------------


def set_text(line: Element, result: Transcription) -> None:
    """Put a transcription into a text line and its words and glyphs: texts and confidences change, nothing else.

    The words are shared out among the `Word` elements that are there (:func:`fada.data.formats.xml.allot`). A line that
    held no text gets one for each word, where it is known where the characters stand.
    """
    text = xml_text(result.text or "")
    if not line_text(line) and line.find("{*}Word") is None:
        _add_words(line, result)
    _set_equivalent(line, text, result.confidence_of(None))
    elements = line.findall("{*}Word")
    old = [line_text(element) or "" for element in elements]
    kept = _part_spans(text, old) if " ".join(filter(None, old)) == text else None
    for element, span in zip(elements, kept or _new_spans(text, old), strict=True):
        _set_equivalent(element, text[slice(*span)], result.confidence_of(span))
        _set_glyphs(element, text[slice(*span)], result.characters_in(span))


def _add_words(line: Element, result: Transcription) -> None:
    outline = _points(line.find("{*}Coords"))
    for place, word in enumerate(words_of(result, outline), 1):
        element = etree.Element(name_beside(line, "Word"), id=f"{line.get('id') or 'line'}_word_{place}")
        coordinates = etree.SubElement(element, name_beside(line, "Coords"))
        coordinates.set("points", _written(word.outline))
        _set_equivalent(element, xml_text(word.text), word.confidence)
        insert_last_of(line, _BEFORE_TEXT[:4], element)


def _part_spans(text: str, parts: Sequence[str]) -> list[tuple[int, int]] | None:
    """From where to where the parts go that a text consists of, with or without spaces between them; None if not."""
    found = re.fullmatch(" *+".join(f"({re.escape(part)})" for part in parts), text)
    return None if found is None else [found.span(place) for place in range(1, len(parts) + 1)]


def _new_spans(text: str, old: Sequence[str]) -> list[tuple[int, int]]:
    """Which part of a new text each word element gets that had an old one."""
    words = word_spans(text)
    shares = allot([text[slice(*word)] for word in words], old, " ")
    return [(words[share[0]][0], words[share[-1]][1]) if share else (0, 0) for share in shares]


def _set_glyphs(word: Element, text: str, characters: Sequence[float] | None) -> None:
    glyphs = word.findall("{*}Glyph")
    for glyph, share in zip(glyphs, allot(text, [line_text(glyph) or "" for glyph in glyphs], ""), strict=True):
        values = None if characters is None else characters[share.start : share.stop]
        _set_equivalent(glyph, text[share.start : share.stop], f"{fmean(values):.4f}" if values else None)


def _set_equivalent(element: Element, text: str, confidence: str | None) -> None:
    equivalent = _equivalent(element)
    if equivalent is None:
        equivalent = etree.Element(name_beside(element, "TextEquiv"))
        insert_last_of(element, _BEFORE_TEXT, equivalent)
    if confidence is not None:
        equivalent.set("conf", confidence)
    else:
        equivalent.attrib.pop("conf", None)  # it belonged to the text before
    target = equivalent.find("{*}Unicode")
    if target is None:
        target = etree.SubElement(equivalent, name_beside(element, "Unicode"))
    plain = equivalent.find("{*}PlainText")
    for one in (target, plain):
        if one is not None:
            one.text = text
            for child in one:
                child.tail = None
                if isinstance(child.tag, str):  # nothing that the schema knows; it would be read as text
                    one.remove(child)


def finish(tree: Tree, changed: Sequence[Element]) -> None:
    """Renew what the file derives from its lines: the text of their regions, where it is given."""
    for region in dict.fromkeys(line.getparent() for line in changed):
        equivalent = None if region is None else _equivalent(region)
        if equivalent is not None:
            lines = _in_own_order(region.findall("{*}TextLine"))
            _set_equivalent(region, "\n".join(line_text(line) or "" for line in lines), None)


def record(tree: Tree, provenance: Provenance) -> None:
    """Say in the metadata what recognised the text: a `MetadataItem` from 2018 on, a line in `Comments` before."""
    root = tree.getroot()
    namespace = etree.QName(root).namespace
    make = ElementMaker(namespace=namespace, nsmap={None: namespace} if namespace else None)
    metadata = root.find("{*}Metadata")
    if metadata is None:
        created = make.Created(provenance.created)
        metadata = make.Metadata(make.Creator(provenance.tool), created, make.LastChange(provenance.created))
        insert_first(root, metadata)
    found = re.search(r"/(\d{4})-\d\d-\d\d", namespace or "")
    if found and int(found[1]) >= 2018:
        labels = [make.Label(value=xml_text(value), type=key) for key, value in provenance.settings().items()]
        item = make.MetadataItem(make.Labels(*labels), type="processingStep", name="text recognition")
        item.set("value", provenance.tool)
        item.set("date", provenance.created)
        before = ("Creator", "Created", "LastChange", "Comments", "UserDefined", "MetadataItem")
        insert_last_of(metadata, before, item)
        return
    said = f"{provenance.tool}, {provenance.created}: {provenance.settings_text()}"
    comments = metadata.find("{*}Comments")
    if comments is None:
        comments = make.Comments()
        insert_last_of(metadata, ("Creator", "Created", "LastChange"), comments)
    comments.text = xml_text(f"{comments.text}\n{said}" if comments.text else said)


# --- new files -------------------------------------------------------------------------------------------------------


_ZONES = {"main": "paragraph", "margin": "marginalia", "numbering": "page-number"}
"""The types of text regions that PAGE has for the zones of a page."""


def new_document(image_name: str, size: tuple[int, int], crops: Sequence[PageCrop], created: str) -> Tree:
    """A PAGE file with empty lines, one for each crop, in their regions; to be filled by :func:`set_text`."""
    make = ElementMaker(namespace=NAMESPACE, nsmap={None: NAMESPACE, "xsi": _XSI})
    page = make.Page(imageFilename=xml_text(image_name), imageWidth=str(size[0]), imageHeight=str(size[1]))
    boxes: dict[str | None, list[tuple[int, int, int, int]]] = {}
    kinds: dict[str | None, dict[str, str]] = {}
    for crop in crops:
        boxes.setdefault(crop.region, []).append(crop.box)
        kinds[crop.region] = {} if crop.zone is None else {"type": _ZONES[crop.zone]}
    group = make.OrderedGroup(id="reading_order")
    page.append(make.ReadingOrder(group))
    regions: dict[str | None, Element] = {}
    for place, (region, found) in enumerate(boxes.items()):
        lefts, tops, rights, bottoms = zip(*found, strict=True)
        outline = make.Coords(points=_written(corners(min(lefts), min(tops), max(rights), max(bottoms))))
        regions[region] = make.TextRegion(outline, id=f"region_{place + 1}", **kinds[region])
        page.append(regions[region])
        group.append(make.RegionRefIndexed(index=str(place), regionRef=f"region_{place + 1}"))
    for place, crop in enumerate(crops, 1):
        line = make.TextLine(make.Coords(points=_written(crop.polygon)), id=f"line_{place}")
        if crop.baseline:
            line.append(make.Baseline(points=_written(crop.baseline)))
        regions[crop.region].append(line)
    metadata = make.Metadata(make.Creator("fada"), make.Created(created), make.LastChange(created))
    root = make.PcGts(metadata, page)
    root.set(f"{{{_XSI}}}schemaLocation", f"{NAMESPACE} {NAMESPACE}/pagecontent.xsd")
    etree.indent(root)
    return root.getroottree()


def _written(outline: Sequence[Point]) -> str:
    return " ".join(f"{max(x, 0):.0f},{max(y, 0):.0f}" for x, y in outline)
