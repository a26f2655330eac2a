"""ALTO 2 to 4: text lines in reading order, and transcriptions put back into the same file or into a new one."""

import re
from collections.abc import Sequence
from itertools import pairwise
from statistics import fmean

from lxml import etree
from lxml.builder import ElementMaker

from fada.data.crop import PageCrop, Point, corners
from fada.data.formats.sheets import box_of, words_of
from fada.data.formats.xml import (
    Element,
    Tree,
    XmlLine,
    XmlPage,
    allot,
    in_reading_order,
    insert_after,
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

NAMESPACE = "http://www.loc.gov/standards/alto/ns-v4#"
_SCHEMA = f"{NAMESPACE} http://www.loc.gov/standards/alto/v4/alto-4-4.xsd"
_XSI = "http://www.w3.org/2001/XMLSchema-instance"
_HYPHENS = "-\u00ad\u2010\u2011\u00ac\u2e17="


# --- reading ---------------------------------------------------------------------------------------------------------


def read_pages(root: Element) -> list[XmlPage]:
    """The pages of an ALTO file of any version, lines in reading order."""
    unit = (root.findtext("{*}Description/{*}MeasurementUnit") or "pixel").strip()
    information = "{*}Description/{*}sourceImageInformation/"
    names = [root.findtext(information + tag) for tag in ("{*}fileName", "{*}fileIdentifier")]
    ranks = {reference.get("REF"): rank for rank, reference in enumerate(root.iter("{*}ElementRef"))}
    places = {element: index for index, element in enumerate(text_lines(root))}
    pages = []
    for place, page in enumerate(root.iter("{*}Page")):
        lines = [(element, _line(element, places[element])) for element in page.iter("{*}TextLine")]
        width, height = number(page.get("WIDTH")), number(page.get("HEIGHT"))
        problems: tuple[str, ...] = ()
        if place > 0:
            problems = (f"page {place + 1} of a file that names the image of one page only: {len(lines)} lines",)
            lines = []
        pages.append(
            XmlPage(
                image_names=tuple(name.strip() for name in names if name and name.strip()),
                size=(width, height) if width and height else None,
                unit=unit,
                lines=in_reading_order(lines, ranks, "ID"),
                problems=problems,
            )
        )
    return pages


def _line(element: Element, index: int) -> XmlLine:
    box = _box(element)
    block = next(element.iterancestors("{*}TextBlock"), None)
    polygon = element.find("{*}Shape/{*}Polygon")
    return XmlLine(
        id=element.get("ID") or f"line_{index + 1}",
        index=index,
        text=line_text(element),
        polygon=() if polygon is None else points(polygon.get("POINTS")),
        box=box,
        baseline=_baseline(element.get("BASELINE"), box),
        region=None if block is None else block.get("ID"),
        own_id=_own_id(element),
    )


_ID_TAG = "fada line id"


def _own_id(element: Element) -> str | None:
    names = (element.get("TAGREFS") or "").split()
    if not names:
        return None
    tags = element.getroottree().getroot().iterfind("{*}Tags/{*}OtherTag")
    return next((tag.get("LABEL") for tag in tags if tag.get("TYPE") == _ID_TAG and tag.get("ID") in names), None)


def set_id(element: Element, name: str) -> None:
    """Keep the id that a line had elsewhere, as a tag of the line."""
    root = element.getroottree().getroot()
    tags = root.find("{*}Tags")
    if tags is None:
        tags = etree.Element(name_beside(root, "Tags"))
        insert_last_of(root, ("Description", "Styles"), tags)
    tag = etree.SubElement(tags, name_beside(root, "OtherTag"), ID=f"id_{element.get('ID')}", TYPE=_ID_TAG)
    tag.set("LABEL", xml_text(name))
    element.set("TAGREFS", tag.get("ID"))


def _box(element: Element) -> tuple[float, float, float, float] | None:
    left, top, width, height = (number(element.get(name)) for name in ("HPOS", "VPOS", "WIDTH", "HEIGHT"))
    if left is None or top is None or width is None or height is None:
        return None
    return left, top, left + width, top + height


def _baseline(text: str | None, box: tuple[float, float, float, float] | None) -> tuple[Point, ...]:
    """A baseline as points, or as the one height that versions before 4.2 have."""
    height = number(text)
    if height is None:
        return points(text)
    return () if box is None else ((box[0], height), (box[2], height))


def line_text(element: Element) -> str | None:
    """The text of a line: its strings with spaces where it has them, and its hyphen; None if it has no strings."""
    text, spans = _text_of_strings(element)
    hyphen = "".join(one.get("CONTENT") or "" for one in element.iterfind("{*}HYP"))
    if not spans:
        return hyphen or None
    return text if hyphen and text.endswith(hyphen) else text + hyphen


def _text_of_strings(line: Element) -> tuple[str, list[tuple[int, int]]]:
    """What the strings of a line say together, and from where to where each of them goes.

    A space (`SP`) is one, several in a row are several; those at the ends of a line are not a part of its text, and
    neither is that of a string that is empty.
    """
    text, spans, spaces = "", list[tuple[int, int]](), 0
    for strings in _words(line):
        if not strings:
            spaces += 1
        elif _content(strings):
            text += " " * (1 + spaces) if text else ""
            spaces = 0
            for string in strings:
                spans.append((len(text), len(text) + len(_content([string]))))
                text += _content([string])
        else:
            spans += [(len(text), len(text))] * len(strings)
    return text, spans


def _words(line: Element) -> list[list[Element]]:
    """The strings of a line by word: those between two spaces (`SP`) are one, which may be none; without any space,
    each is one.
    """
    spaced = line.find("{*}SP") is not None
    words: list[list[Element]] = [[]]
    for child in line.iterchildren("{*}String", "{*}SP"):
        if local_name(child) == "SP":
            words.append([])
        elif spaced:
            words[-1].append(child)
        else:
            words.append([child])
    return words


def _content(strings: Sequence[Element]) -> str:
    return "".join(string.get("CONTENT") or "" for string in strings)


# --- writing into a file ---------------------------------------------------------------------------------------------


def set_text(line: Element, result: Transcription) -> None:
    """Put a transcription into a text line: contents and confidences change, no element is added but missing strings.

    A line without strings gets one for each word, with its place, where it is known where the characters stand.
    Several strings share the words out among them (:func:`~fada.data.formats.xml.allot`), strings of one word and
    glyphs the characters. Of several spaces in a row, all but one become a part of the string before them. If the
    text is what it was, the strings are too.
    """
    text = xml_text(result.text or "")
    unchanged = text == line_text(line)
    spans = None if line.find("{*}String") is not None else _add_strings(line, text, result)
    strings = line.findall("{*}String")
    if spans is not None:
        pass
    elif unchanged:
        spans = _text_of_strings(line)[1]
    else:
        end = _set_hyphen(line, text)
        _remove_repeated_spaces(line)
        spans = _new_spans(text[:end], [word for word in _words(line) if word])
    for string, span in zip(strings, spans, strict=True):
        string.set("CONTENT", text[slice(*span)])
        _set(string, "WC", result.confidence_of(span))
        characters = result.characters_in(span)
        levels = None if characters is None else " ".join(str(round(9 * (1 - value))) for value in characters)
        _set(string, "CC", levels)
        _set_glyphs(string, text[slice(*span)], characters)


def _add_strings(line: Element, text: str, result: Transcription) -> list[tuple[int, int]] | None:
    """Add strings to a line that has none: one for each word if their places are known, else one.

    Returns:
        From where to where the strings go in the text; None for a single one, which shares it with a hyphen.
    """
    words = [] if line.find("{*}HYP") is not None else words_of(result, _outline(line))
    places = [word.span for word in words]
    if not words:
        string = etree.Element(name_beside(line, "String"))
        for name in ("HPOS", "VPOS", "WIDTH", "HEIGHT"):
            if line.get(name) is not None:
                string.set(name, line.get(name))
        insert_last_of(line, ("Shape",), string)
        return None
    new: list[Element] = []
    for place, word in enumerate(words):
        left = box_of(words[place - 1].outline)[2]
        for _ in range(places[place][0] - places[place - 1][1] if place else 0):
            right = max(box_of(word.outline)[0], left)
            space = etree.Element(name_beside(line, "SP"))
            space.attrib.update({"WIDTH": f"{right - left:.0f}", "HPOS": f"{left:.0f}"})
            new.append(space)
        new.append(etree.Element(name_beside(line, "String"), _position(box_of(word.outline))))
    insert_last_of(line, ("Shape",), new[0])
    for before, after in pairwise(new):
        insert_after(before, after)
    # Spaces at the ends have no element of their own.
    places[0], places[-1] = (0, places[0][1]), (places[-1][0] if len(places) > 1 else 0, len(text))
    return places


def _outline(line: Element) -> tuple[Point, ...]:
    """The outline of a line in the file's unit: its polygon, else its box; none if it has neither."""
    polygon = line.find("{*}Shape/{*}Polygon")
    found = () if polygon is None else points(polygon.get("POINTS"))
    box = _box(line)
    if len(found) >= 3 or box is None:
        return found if len(found) >= 3 else ()
    return corners(*box)


def _remove_repeated_spaces(line: Element) -> None:
    """Leave one space element where there are several in a row."""
    for before, after in pairwise(list(line.iterchildren("{*}String", "{*}SP"))):
        if local_name(before) == local_name(after) == "SP":
            line.remove(after)


def _new_spans(text: str, words: Sequence[Sequence[Element]]) -> list[tuple[int, int]]:
    """Which part of a new text each string gets: all of it but one space between two of `words`."""
    found = word_spans(text)
    spans: list[tuple[int, int]] = []
    shares = allot([text[slice(*word)] for word in found], [_content(strings) for strings in words], " ")
    start = 0
    for share, strings in zip(shares, words, strict=True):
        last = share.stop == len(found)
        end = start if not share and found else len(text) if last else found[share.stop][0] - 1
        parts = allot(text[start:end], [_content([string]) for string in strings], "")
        spans += [(start + part.start, start + part.stop) for part in parts]
        start = min(end + 1, len(text)) if end > start else start
    return spans


def _set_hyphen(line: Element, text: str) -> int:
    """Leave a hyphen at the end to the element that stands for it; the length of what the strings get."""
    element = line.find("{*}HYP")
    if element is None:
        return len(text)
    hyphen = element.get("CONTENT") or ""
    if not (hyphen and text.endswith(hyphen)):
        hyphen = text[-1:] if text[-1:] and text[-1] in _HYPHENS else ""
        element.set("CONTENT", hyphen)
    rest = text.removesuffix(hyphen)
    return len(text if hyphen and rest.endswith(hyphen) else rest)  # of two hyphens, the element repeats the second


def _set_glyphs(string: Element, text: str, characters: Sequence[float] | None) -> None:
    glyphs = string.findall("{*}Glyph")
    shares = allot(text, [glyph.get("CONTENT") or "" for glyph in glyphs], "")
    for glyph, share in zip(glyphs, shares, strict=True):
        glyph.set("CONTENT", text[share.start : share.stop])
        values = None if characters is None else characters[share.start : share.stop]
        _set(glyph, "GC", f"{fmean(values):.4f}" if values else None)


def _set(element: Element, name: str, value: str | None) -> None:
    if value is not None:
        element.set(name, value)
    else:
        element.attrib.pop(name, None)  # a confidence that belonged to the text before


def finish(tree: Tree, changed: Sequence[Element]) -> None:
    """Renew what the file derives from the text: the whole word of two parts around a line's end."""
    touched = set(changed)
    for first, second in pairwise(tree.getroot().iter("{*}String")):
        parts = first.get("SUBS_TYPE"), second.get("SUBS_TYPE")
        if parts == ("HypPart1", "HypPart2") and touched & {first.getparent(), second.getparent()}:
            parts_of_word = ((string.get("CONTENT") or "").strip(" ") for string in (first, second))
            whole = next(parts_of_word).rstrip(_HYPHENS) + next(parts_of_word)
            for string in (first, second):
                if string.get("SUBS_CONTENT") is not None:
                    string.set("SUBS_CONTENT", whole)


def record(tree: Tree, provenance: Provenance) -> None:
    """Say in the description what recognised the text: `Processing` in ALTO 4, `OCRProcessing` before."""
    root = tree.getroot()
    namespace = etree.QName(root).namespace
    make = ElementMaker(namespace=namespace, nsmap={None: namespace} if namespace else None)
    description = root.find("{*}Description")
    if description is None:
        description = make.Description(make.MeasurementUnit("pixel"))
        insert_first(root, description)
    taken = {element.get("ID") for element in description.iter() if isinstance(element.tag, str)}
    place = next(place for place in range(1, len(taken) + 2) if f"fada_{place}" not in taken)
    software = make.processingSoftware(
        make.softwareCreator("The fada developers"), make.softwareName("fada"), make.softwareVersion(provenance.version)
    )
    step = [
        make.processingDateTime(provenance.created),
        make.processingStepDescription("text recognition"),
        make.processingStepSettings(xml_text(provenance.settings_text())),
        software,
    ]
    if _is_version_4(root):
        new = make.Processing(make.processingCategory("contentGeneration"), *step, ID=f"fada_{place}")
    else:
        new = make.OCRProcessing(make.ocrProcessingStep(*step), ID=f"fada_{place}")
    before = ("MeasurementUnit", "sourceImageInformation", "OCRProcessing", "Processing")
    insert_last_of(description, before, new)


def _is_version_4(root: Element) -> bool:
    declared = " ".join([etree.QName(root).namespace or "", root.get("SCHEMAVERSION") or "", *root.attrib.values()])
    found = re.search(r"(?:ns-v|alto[-_/]v?|/v)(\d)", declared)
    return found is not None and int(found[1]) >= 4


# --- new files -------------------------------------------------------------------------------------------------------


_ZONES = {"main": "MainZone", "margin": "MarginTextZone", "numbering": "NumberingZone"}
"""What SegmOnto, and with it eScriptorium, calls the zones of a page."""


def new_document(image_name: str, size: tuple[int, int], crops: Sequence[PageCrop]) -> Tree:
    """An ALTO 4 file with empty lines, one for each crop, in blocks by region; to be filled by :func:`set_text`."""
    make = ElementMaker(namespace=NAMESPACE, nsmap={None: NAMESPACE, "xsi": _XSI})
    width, height = map(str, size)
    space = make.PrintSpace(HPOS="0", VPOS="0", WIDTH=width, HEIGHT=height)
    blocks: dict[str | None, Element] = {}
    for place, crop in enumerate(crops, 1):
        if crop.region not in blocks:
            tag = {} if crop.zone is None else {"TAGREFS": f"zone_{crop.zone}"}
            blocks[crop.region] = make.TextBlock(ID=f"block_{len(blocks) + 1}", **tag)
            space.append(blocks[crop.region])
        outline = make.Shape(make.Polygon(POINTS=" ".join(f"{x:.0f},{y:.0f}" for x, y in crop.polygon)))
        line = make.TextLine(outline, ID=f"line_{place}", **_position(crop.box))
        if crop.baseline:
            line.set("BASELINE", " ".join(f"{x:.0f},{y:.0f}" for x, y in crop.baseline))
        blocks[crop.region].append(line)
    for block in blocks.values():
        boxes = [_box(line) for line in block]
        lefts, tops, rights, bottoms = zip(*(box for box in boxes if box), strict=True)
        block.attrib.update(_position((min(lefts), min(tops), max(rights), max(bottoms))))
    description = make.Description(
        make.MeasurementUnit("pixel"), make.sourceImageInformation(make.fileName(xml_text(image_name)))
    )
    page = make.Page(space, ID="page_1", PHYSICAL_IMG_NR="1", WIDTH=width, HEIGHT=height)
    zones = [zone for zone in _ZONES if any(crop.zone == zone for crop in crops)]
    tags = [make.OtherTag(ID=f"zone_{zone}", LABEL=_ZONES[zone], DESCRIPTION="block type") for zone in zones]
    root = make.alto(description, *([make.Tags(*tags)] if tags else []), make.Layout(page))
    root.set(f"{{{_XSI}}}schemaLocation", _SCHEMA)
    etree.indent(root)
    return root.getroottree()


def _position(box: Sequence[float]) -> dict[str, str]:
    left, top, right, bottom = box
    values = {"HPOS": left, "VPOS": top, "WIDTH": right - left, "HEIGHT": bottom - top}
    return {name: f"{value:.0f}" for name, value in values.items()}
