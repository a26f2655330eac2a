"""ALTO 2 to 4: text lines, and the transcriptions put back into them."""

from collections.abc import Iterable, Iterator

from fada.data.xml import Element, XmlLine, XmlPage, in_reading_order, number, points, text_lines

_UNITS = {"pixel": "pixel", "mm10": "mm10", "inch1200": "inch1200"}


def read_pages(root: Element) -> list[XmlPage]:
    """The pages of an ALTO file of any version, lines in reading order."""
    unit = (root.findtext("{*}Description/{*}MeasurementUnit") or "pixel").strip()
    information = "{*}Description/{*}sourceImageInformation/"
    names = [root.findtext(information + tag) for tag in ("{*}fileName", "{*}fileIdentifier")]
    image_names = tuple(name.strip() for name in names if name and name.strip())
    ranks = {reference.get("REF"): rank for rank, reference in enumerate(root.iter("{*}ElementRef"))}
    places = {element: index for index, element in enumerate(text_lines(root))}
    pages = []
    for place, page in enumerate(root.iterfind("{*}Layout/{*}Page")):
        lines = [(element, _line(element, places[element])) for element in page.iter("{*}TextLine")]
        problems = []
        if unit not in _UNITS:
            problems.append(f"the unit {unit!r} is not one of {', '.join(_UNITS)}; taken as pixel")
        if place > 0:
            problems.append(f"page {place + 1} of a file that names one image only: {len(lines)} lines")
            lines = []
        pages.append(
            XmlPage(
                image_names,
                _size(page),
                _UNITS.get(unit, "pixel"),
                in_reading_order(lines, ranks, "ID"),
                tuple(problems),
            )
        )
    return pages


def _size(page: Element) -> tuple[float, float] | None:
    width, height = number(page.get("WIDTH")), number(page.get("HEIGHT"))
    return (width, height) if width and height else None


def _line(element: Element, index: int) -> XmlLine:
    box = _box(element)
    block = next(element.iterancestors("{*}TextBlock"), None)
    return XmlLine(
        id=element.get("ID") or f"line_{index + 1}",
        index=index,
        text=line_text(element),
        polygon=_polygon(element),
        box=box,
        baseline=_baseline(element.get("BASELINE"), box),
        region=None if block is None else block.get("ID"),
    )


def _box(element: Element) -> tuple[float, float, float, float] | None:
    left, top, width, height = (number(element.get(name)) for name in ("HPOS", "VPOS", "WIDTH", "HEIGHT"))
    if left is None or top is None or width is None or height is None:
        return None
    return left, top, left + width, top + height


def _polygon(element: Element) -> tuple[tuple[float, float], ...]:
    polygon = element.find("{*}Shape/{*}Polygon")
    return () if polygon is None else points(polygon.get("POINTS"))


def _baseline(
    text: str | None, box: tuple[float, float, float, float] | None
) -> tuple[tuple[float, float], ...]:
    """A baseline as points, or as the one height that versions before 4.2 have."""
    height = number(text)
    if height is None:
        return points(text)
    return () if box is None else ((box[0], height), (box[2], height))


def line_text(element: Element) -> str | None:
    """The text of a line: its strings joined with spaces, and its hyphen; None if it has no strings."""
    strings = [string.get("CONTENT") or "" for string in element.iterfind("{*}String")]
    hyphen = "".join(one.get("CONTENT") or "" for one in element.iterfind("{*}HYP"))
    if not strings:
        return hyphen or None
    text = " ".join(string for string in strings if string)
    return text if hyphen and text.endswith(hyphen) else text + hyphen


def strings_of(root: Element) -> Iterator[Element]:
    """All strings in document order."""
    return root.iter("{*}String")
