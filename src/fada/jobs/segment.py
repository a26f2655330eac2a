"""Finding the lines of many pages: one ALTO or PAGE file a page, a bad page reported, the others done."""

import os
import shutil
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

from PIL import Image

from fada.common.files import replacing
from fada.common.say import track
from fada.data.formats.pages import new_document
from fada.data.formats.xml import serialize
from fada.data.line import Provenance
from fada.data.places import DRAWING
from fada.data.segment.drawing import draw_lines
from fada.data.segment.page import PageLines
from fada.data.segment.photographs import Photograph, find_files, photographs, write_image
from fada.data.segment.upright import Look, LookAt, find_upright
from fada.errors import FadaError
from fada.jobs.segmenters import BUILT_IN, Segmenter, takes_pages_as_they_are
from fada.jobs.segmenters import segmenter as segmenter_of
from fada.jobs.shards import Shard, Share
from fada.models.folders import DEFAULT_MODEL
from fada.models.look import look_at

if TYPE_CHECKING:
    from fada.models.recognizer import Recognizer


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
    rotate: int | None = None,
    shard: Shard | None = None,
) -> Segmented:
    """Write into `out`, for each page of `sources`, its image and an ALTO or PAGE file with its lines.

    Args:
        sources: page images, TIFFs of many pages, PDFs, folders of them, IIIF manifests with local images.
        out: folder.
        format: ``alto`` or ``page``.
        draw: also write a picture with numbered lines.
        right_to_left: the text runs from right to left, and so do its columns.
        segmenter: who finds the lines, see :func:`fada.jobs.segmenters.segmenter`.
        rotate: degrees by which the pages are turned clockwise first; by default each is turned upright, if need be.
        shard: only the pages that fall to it, into a part of `out` for :func:`fada.jobs.merge.merge`.
    """
    if rotate not in (None, 0, 90, 180, 270):
        raise FadaError(f"pages can be turned by 0, 90, 180 or 270 degrees, not by {rotate}.")
    out = Path(out) if shard is None else shard.part(Path(out))
    if out.exists() and not out.is_dir():
        raise FadaError(f"{out}: a file, expected a folder.")
    files = [file for source in sources for file in find_files(source)]
    find = segmenter_of(segmenter, right_to_left=right_to_left)
    look = _look_at if rotate is None and not takes_pages_as_they_are(segmenter) else None
    out.mkdir(parents=True, exist_ok=True)
    done = Segmented()
    share, failed = Share(shard or Shard(1, 1)), list[tuple[str, str]]()
    for file in track(files, "finding lines"):
        try:
            for page in photographs(file, out, rotate or 0, share.takes):
                try:
                    _segment(page, out, format, draw, find, look, rotate or 0, done)
                except FadaError as error:
                    failed.append((page.name, str(error)))
        except FadaError as error:
            failed.append((str(file), str(error)))
    done.failed += [reason for _, reason in failed]
    if shard is not None:
        settings = {"segmenter": segmenter, "right_to_left": right_to_left, "rotate": rotate}
        share.unreadable = {name for name, _ in failed}
        share.note_pages(out, {**settings, "format": format, "draw": draw})
    return done


def _look_at(page: Image.Image, found: PageLines) -> Look:
    return look_at(_judge(), page, found)


@lru_cache(maxsize=1)
def _judge() -> "Recognizer":
    """The built-in recogniser: it reads no other script than the Latin one, and cannot tell then."""
    from fada.models.registry import load_recognizer

    return load_recognizer(DEFAULT_MODEL)


def _segment(
    page: Photograph,
    out: Path,
    format: str,
    draw: bool,
    find: Segmenter,
    look: LookAt | None,
    rotate: int,
    done: Segmented,
) -> None:
    written = out / f"{page.name}.xml"
    if written.exists():
        done.notes.append(f"{written}: there already, left as it is")
        return
    upright = find_upright(page.load(), lambda image: find(page, image), look, str(page.file))
    image, found = upright.image, upright.found
    done.notes += [f"{page.file}: {note}" for note in upright.notes]
    if upright.turn:
        page, rotate = replace(page, file=out / f"{page.name}-{upright.turn}.png"), upright.turn
        write_image(image, page.file)
    beside = out / page.file.name
    if not beside.exists():
        try:
            os.link(page.file, beside)
        except OSError:
            with replacing(beside) as temporary:
                shutil.copyfile(page.file, temporary)
    if draw:
        write_image(draw_lines(image, found.crops(beside)), out / f"{page.name}{DRAWING}")
        done.files.append(out / f"{page.name}{DRAWING}")
    for line in found.lines:
        done.zones[line.zone] = done.zones.get(line.zone, 0) + 1
    provenance = Provenance(details={"segmenter": found.segmenter} | ({"rotated": str(rotate)} if rotate else {}))
    tree = new_document(format, beside.name, found.size, found.crops(beside), provenance)
    with replacing(written) as temporary:
        temporary.write_bytes(serialize(tree))
    done.files.append(written)
