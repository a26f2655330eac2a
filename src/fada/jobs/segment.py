"""Finding the lines of many pages: one ALTO or PAGE file a page, a bad page reported, the others done."""

import os
import shutil
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from fada.common.files import replacing
from fada.common.say import track
from fada.data.formats import alto
from fada.data.formats import page as page_xml
from fada.data.formats.xml import serialize
from fada.data.line import Provenance
from fada.data.segment.drawing import draw_lines
from fada.data.segment.photographs import DRAWING, Photograph, find_files, photographs
from fada.errors import FadaError
from fada.jobs.segmenters import BUILT_IN, Segmenter
from fada.jobs.segmenters import segmenter as segmenter_of


@dataclass
class Segmented:
    """What was found on pages: files written, lines by zone, pages that failed with the reason, and notes."""

    files: list[Path] = field(default_factory=list)
    zones: dict[str, int] = field(default_factory=dict)
    failed: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


def segment_pages(
    sources: Sequence[str | os.PathLike[str]],
    out: str | os.PathLike[str],
    *,
    format: str = "alto",
    draw: bool = False,
    right_to_left: bool = False,
    segmenter: str = BUILT_IN,
    rotate: int = 0,
) -> Segmented:
    """Write into `out`, for each page of `sources`, its image and an ALTO or PAGE file with its lines.

    Args:
        sources: page images, TIFFs of many pages, PDFs, folders of them, IIIF manifests with local images.
        out: folder.
        format: ``alto`` or ``page``.
        draw: also write a picture with numbered lines.
        right_to_left: the text runs from right to left, and so do its columns.
        segmenter: who finds the lines, see :func:`fada.jobs.segmenters.segmenter`.
        rotate: degrees by which the pages are turned clockwise first.
    """
    if rotate not in (0, 90, 180, 270):
        raise FadaError(f"pages can be turned by 0, 90, 180 or 270 degrees, not by {rotate}.")
    out = Path(out)
    if out.exists() and not out.is_dir():
        raise FadaError(f"{out}: a file, expected a folder.")
    files = [file for source in sources for file in find_files(source)]
    find = segmenter_of(segmenter, right_to_left=right_to_left)
    out.mkdir(parents=True, exist_ok=True)
    done = Segmented()
    for file in track(files, "finding lines"):
        try:
            for page in photographs(file, out, rotate):
                try:
                    _segment(page, out, format, draw, find, rotate, done)
                except FadaError as error:
                    done.failed.append(str(error))
        except FadaError as error:
            done.failed.append(str(error))
    return done


def _segment(
    page: Photograph, out: Path, format: str, draw: bool, find: Segmenter, rotate: int, done: Segmented
) -> None:
    written = out / f"{page.name}.xml"
    if written.exists():
        done.notes.append(f"{written}: there already, left as it is")
        return
    image = page.load()
    found = find(page, image)
    if found.sideways:
        raise FadaError(f"{page.file}: lies on its side. Turn it with --rotate 90, or 270 if it is upside down then.")
    if not found.lines:
        raise FadaError(f"{page.file}: no text found on this page. Is it blank, or not turned upright?")
    beside = out / page.file.name
    if not beside.exists():
        try:
            os.link(page.file, beside)
        except OSError:
            shutil.copy2(page.file, beside)
    if draw:
        draw_lines(image, found).save(out / f"{page.name}{DRAWING}")
        done.files.append(out / f"{page.name}{DRAWING}")
    for line in found.lines:
        done.zones[line.zone] = done.zones.get(line.zone, 0) + 1
    if found.cut_off:
        done.notes.append(f"{page.file}: {found.cut_off} lines at the edge belong to the neighbouring page, left out")
    provenance = Provenance(details={"segmenter": found.segmenter} | ({"rotated": str(rotate)} if rotate else {}))
    crops = found.crops(beside)
    if format == "alto":
        tree = alto.new_document(beside.name, found.size, crops)
        alto.record(tree, provenance)
    else:
        tree = page_xml.new_document(beside.name, found.size, crops, provenance.created)
        page_xml.record(tree, provenance)
    with replacing(written) as temporary:
        temporary.write_bytes(serialize(tree))
    done.files.append(written)
