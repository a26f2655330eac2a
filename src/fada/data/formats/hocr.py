"""hOCR: the boxes and texts of pages as HTML, as Tesseract and many libraries write and read them."""

import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from lxml import etree
from lxml.builder import ElementMaker

from fada.data.crop import Point
from fada.data.formats.sheets import Sheet, SheetLine, box_of, write_sheets
from fada.data.formats.xml import Element, XmlLine, XmlPage, number, xml_text
from fada.data.line import Provenance, Transcription

NAMESPACE = "http://www.w3.org/1999/xhtml"
_LINES = frozenset({"ocr_line", "ocrx_line", "ocr_header", "ocr_footer", "ocr_caption", "ocr_textfloat"})
_AREAS = frozenset({"ocr_carea", "ocrx_block", "ocr_par"})
_IMAGE = re.compile(r'image\s+"([^"]*)"')
_OWN_ID = "data-id"


# --- reading ---------------------------------------------------------------------------------------------------------


def read_pages(root: Element) -> list[XmlPage]:
    """The pages of an hOCR file, lines in the order of the file."""
    found = []
    index = 0
    for page in _of_class(root, {"ocr_page"}):
        lines = [_line(element, index + place) for place, element in enumerate(_of_class(page, _LINES))]
        index += len(lines)
        image, box = _IMAGE.search(page.get("title") or ""), _values(page, "bbox", 4)
        size = (box[2], box[3]) if box else None
        found.append(XmlPage((image[1],) if image and image[1] else (), size, "pixel", tuple(lines)))
    return found


def _of_class(element: Element, names: Iterable[str]) -> Iterator[Element]:
    wanted = set(names)
    return (one for one in element.iter("{*}*") if wanted & set((one.get("class") or "").split()))


def _line(element: Element, index: int) -> XmlLine:
    words = ["".join(word.itertext()).strip() for word in _of_class(element, {"ocrx_word", "ocr_word"})]
    text = " ".join(filter(None, words)) if words else "".join(element.itertext()).strip("\n")
    box, line = _values(element, "bbox", 4), _values(element, "baseline", 2)
    area = next((one for one in element.iterancestors() if _AREAS & set((one.get("class") or "").split())), None)
    return XmlLine(
        id=element.get("id") or f"line_{index + 1}",
        index=index,
        text=None if element.get("data-text") == "none" else text,
        box=(box[0], box[1], box[2], box[3]) if box else None,
        baseline=_baseline((box[0], box[2]), box[3], line) if box and line else (),
        region=None if area is None else area.get("id"),
        own_id=element.get(_OWN_ID),
    )


def _values(element: Element, name: str, count: int) -> list[float] | None:
    """The numbers after a name in the properties that hOCR keeps in `title`."""
    parts = (part.split() for part in (element.get("title") or "").split(";"))
    found = next((part[1:] for part in parts if part[:1] == [name]), [])
    values = [value for value in map(number, found) if value is not None]
    return values if len(values) == count else None


def _baseline(ends: tuple[float, float], bottom: float, line: Sequence[float]) -> tuple[Point, ...]:
    """A baseline from its slope and its height at the left, seen from the lower left corner of the box."""
    slope, height = line
    return tuple((x, bottom + height + slope * (x - ends[0])) for x in ends)


# --- writing ---------------------------------------------------------------------------------------------------------


def write(results: Iterable[Transcription], destination: Path, *, format: str, provenance: Provenance) -> list[Path]:
    """One file for all pages; in a folder, a file for each."""
    return write_sheets(results, destination, ".hocr", lambda found, _: _document(found, provenance))


def _document(found: Iterable[Sheet], provenance: Provenance) -> bytes:
    make = ElementMaker(namespace=NAMESPACE, nsmap={None: NAMESPACE})
    head = make.head(
        make.title("fada"),
        make.meta({"http-equiv": "Content-Type", "content": "text/html; charset=utf-8"}),
        make.meta(name="ocr-system", content=provenance.tool),
        make.meta(name="ocr-capabilities", content="ocr_page ocr_carea ocr_line ocrx_word"),
        make.meta(name="fada-settings", content=xml_text(provenance.settings_text())),
    )
    pages = [_page(make, sheet, place) for place, sheet in enumerate(found, 1)]
    root = make.html(head, make.body(*pages))
    etree.indent(root, space=" ")
    return etree.tostring(root, encoding="UTF-8", xml_declaration=True, doctype="<!DOCTYPE html>") + b"\n"


def _page(make: ElementMaker, sheet: Sheet, place: int) -> Element:
    image = xml_text(sheet.image).replace('"', "%22")
    page = make.div({"class": "ocr_page", "id": f"page_{place}"})
    page.set("title", f'image "{image}"; bbox 0 0 {sheet.size[0]} {sheet.size[1]}; ppageno {place - 1}')
    for count, places in enumerate(sheet.regions().values(), 1):
        lines = [_written_line(make, sheet.lines[i], f"line_{place}_{i + 1}") for i in places]
        corners = [point for i in places for point in sheet.lines[i].crop.polygon]
        area = make.div({"class": "ocr_carea", "id": f"block_{place}_{count}", "title": _box(corners)}, *lines)
        page.append(area)
    return page


def _written_line(make: ElementMaker, line: SheetLine, name: str) -> Element:
    crop, result = line
    title = _box(crop.polygon)
    if len(crop.baseline) >= 2:
        (x1, y1), (x2, y2) = crop.baseline[0], crop.baseline[-1]
        slope = (y2 - y1) / (x2 - x1) if x2 != x1 else 0.0
        left, _, _, bottom = box_of(crop.polygon)
        title += f"; baseline {slope:.4f} {y1 + slope * (left - x1) - bottom:.1f}"
    element = make.span({"class": "ocr_line", "id": name, "title": title, _OWN_ID: xml_text(result.id)})
    if result.text is None:
        element.set("data-text", "none")
    words = line.words()
    if not words:
        element.text = xml_text(result.text or "")
    for place, word in enumerate(words, 1):
        sure = "" if word.confidence is None else f"; x_wconf {round(100 * float(word.confidence))}"
        element.append(
            make.span(
                {"class": "ocrx_word", "id": f"{name}_word_{place}", "title": _box(word.outline) + sure},
                xml_text(word.text),
            )
        )
    return element


def _box(outline: Sequence[Point]) -> str:
    return "bbox " + " ".join(f"{max(value, 0):.0f}" for value in box_of(outline))
