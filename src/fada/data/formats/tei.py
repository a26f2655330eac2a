"""TEI: a facsimile with a zone for each line, and the text in blocks with a line break before every line."""

from collections.abc import Iterable, Sequence
from pathlib import Path

from lxml import etree
from lxml.builder import ElementMaker

from fada.data.crop import Point
from fada.data.formats.sheets import Sheet, box_of, write_sheets
from fada.data.formats.xml import Element, xml_text
from fada.data.line import Provenance, Transcription

NAMESPACE = "http://www.tei-c.org/ns/1.0"
_ID = "{http://www.w3.org/XML/1998/namespace}id"


def write(results: Iterable[Transcription], destination: Path, *, format: str, provenance: Provenance) -> list[Path]:
    """One file for all pages; in a folder, a file for each."""
    return write_sheets(results, destination, ".tei.xml", lambda found, title: _document(found, title, provenance))


def _document(found: Sequence[Sheet], title: str, provenance: Provenance) -> bytes:
    make = ElementMaker(namespace=NAMESPACE, nsmap={None: NAMESPACE})
    surfaces = [_surface(make, sheet, f"page_{place}") for place, sheet in enumerate(found, 1)]
    division = make.div()
    for place, sheet in enumerate(found, 1):
        _add_text(make, division, sheet, f"page_{place}")
    root = make.TEI(
        _header(make, title, provenance),
        *([make.facsimile(*surfaces)] if surfaces else []),
        make.text(make.body(division if len(division) else make.div(make.p()))),
    )
    return etree.tostring(root, encoding="UTF-8", xml_declaration=True, pretty_print=True)


def _header(make: ElementMaker, title: str, provenance: Provenance) -> Element:
    application = make.application(make.label(provenance.tool), ident="fada", version=provenance.version)
    application.set("when", provenance.created)
    if settings := provenance.settings_text():
        application.append(make.p(xml_text(settings)))
    return make.teiHeader(
        make.fileDesc(
            make.titleStmt(make.title(xml_text(title))),
            make.publicationStmt(make.p("Unpublished: the output of automatic text recognition.")),
            make.sourceDesc(make.p("The images named in the facsimile.")),
        ),
        make.encodingDesc(make.appInfo(application)),
    )


def _surface(make: ElementMaker, sheet: Sheet, name: str) -> Element:
    width, height = map(str, sheet.size)
    graphic = make.graphic(url=xml_text(sheet.image), width=f"{width}px", height=f"{height}px")
    surface = make.surface({_ID: name, "ulx": "0", "uly": "0", "lrx": width, "lry": height}, graphic)
    for count, places in enumerate(sheet.regions().values(), 1):
        corners = [point for i in places for point in sheet.lines[i].crop.polygon]
        kind = sheet.lines[places[0]].crop.zone
        block = make.zone({_ID: f"{name}_block_{count}", **_corners(corners), "type": kind or "block"})
        for i in places:
            crop, result = sheet.lines[i]
            zone = make.zone({_ID: f"{name}_line_{i + 1}", **_corners(crop.polygon), "type": "line"})
            zone.set("n", xml_text(result.id))
            zone.set("points", " ".join(f"{max(x, 0):.0f},{max(y, 0):.0f}" for x, y in crop.polygon))
            block.append(zone)
        surface.append(block)
    return surface


def _add_text(make: ElementMaker, division: Element, sheet: Sheet, name: str) -> None:
    division.append(make.pb(facs=f"#{name}", n=xml_text(sheet.name)))
    for count, places in enumerate(sheet.regions().values(), 1):
        block = make.ab(facs=f"#{name}_block_{count}")
        for i in places:
            break_ = make.lb(facs=f"#{name}_line_{i + 1}", n=str(i + 1))
            break_.tail = xml_text(sheet.lines[i].result.text or "") + "\n"
            block.append(break_)
        division.append(block)


def _corners(outline: Sequence[Point]) -> dict[str, str]:
    names = ("ulx", "uly", "lrx", "lry")
    return {name: f"{max(value, 0):.0f}" for name, value in zip(names, box_of(outline), strict=True)}
