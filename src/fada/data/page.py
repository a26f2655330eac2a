"""PAGE XML 2013 to 2019: text lines, and the transcriptions put back into them."""

import re
from collections.abc import Iterator

from fada.data.xml import Element, XmlLine, XmlPage, in_reading_order, local_name, number, points, text_lines

_CUSTOM_ORDER = re.compile(r"readingOrder\s*\{[^}]*index\s*:\s*(\d+)")


def read_pages(root: Element) -> list[XmlPage]:
    """The page of a PAGE file of any version, lines in reading order."""
    places = {element: index for index, element in enumerate(text_lines(root))}
    return [_page(page, places) for page in root.iterfind("{*}Page")]


def _page(page: Element, places: dict[Element, int]) -> XmlPage:
    elements = sorted(page.iter("{*}TextLine"), key=lambda element: _order(element, places[element]))
    lines = [(element, _line(element, places[element])) for element in elements]
    size = number(page.get("imageWidth")), number(page.get("imageHeight"))
    name = (page.get("imageFilename") or "").strip()
    return XmlPage(
        image_names=(name,) if name else (),
        size=(size[0], size[1]) if size[0] and size[1] else None,
        unit="pixel",
        lines=in_reading_order(lines, _ranks(page), "id"),
    )


def _order(line: Element, place: int) -> tuple[int, int, int]:
    """Lines of a region by their own index where they have one; regions stay where they are."""
    region = line.getparent()
    first = next(region.iter("{*}TextLine"))
    index = _index(line)
    return _document_place(first), place if index is None else index, place


def _document_place(element: Element) -> int:
    return element.sourceline or 0
