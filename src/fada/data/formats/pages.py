"""Pages of text lines with their images: ALTO, PAGE and hOCR files read; ALTO and PAGE written anew or copied."""

import os
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath, PureWindowsPath
from types import ModuleType
from typing import Any
from urllib.parse import unquote, urlsplit

from fada.common.files import write_bytes
from fada.data.crop import PageCrop, Point
from fada.data.domains import XML_FOLDERS
from fada.data.formats import alto, hocr, page, xml
from fada.data.formats.media import note_frames
from fada.data.formats.sheets import one_file, sheets
from fada.data.images import frames_of, image_size
from fada.data.line import Line, LineSet, Log, Provenance, Transcription, split_of
from fada.data.places import IMAGE_SUFFIXES, LINK_OUTSIDE, Base
from fada.data.reading import Reading
from fada.errors import FadaError, first_few

HTML = "html"
"""The root of hOCR, whose texts are not put back into a copy: it holds no outlines."""

_PER_INCH = {"mm10": 254.0, "inch1200": 1200.0}
_IMAGE_FOLDERS = ("", "..", "images", "img", "../images", "../img")


# --- the page image --------------------------------------------------------------------------------------------------


class ImageMissingError(FadaError):
    """A page image is in none of the places where it may be."""

    def __init__(self, name: str) -> None:
        super().__init__(f"the page image {name} was not found")
        self.name = name


def find_image(names: Sequence[str], file: Path, base: Base, images: Path | None) -> Path:
    """The page image of an XML file: where it says, beside it, one folder up, in `images` (in the subfolder
    that the file is in below its source, or at the top); or of the same stem.
    """
    places = [(base, Path(file.parent, folder)) for folder in _IMAGE_FOLDERS]
    if images is not None:
        folders = dict.fromkeys((images / os.path.dirname(base.name(file)), images))
        places = [*((Base(images, base.allow_outside), folder) for folder in folders), *places]
    refused: FadaError | None = None
    for name in names:
        for one in dict.fromkeys((_plain(name), PurePosixPath(_plain(name)).name)):
            for where, folder in places:
                try:
                    return Path(os.path.normpath(where.find(folder, one)))
                except FadaError as error:
                    if "outside" in str(error) and os.path.exists(folder / one):
                        refused = error
    stems = dict.fromkeys([PurePosixPath(_plain(name)).stem for name in names if name] + [file.stem])
    for stem in stems:
        for where, folder in places:
            for suffix in sorted(IMAGE_SUFFIXES):
                for ending in (suffix, suffix.upper()):
                    found = folder / f"{stem}{ending}"
                    if os.path.isfile(found) and where.holds(found):
                        return Path(os.path.normpath(found))
    raise refused or ImageMissingError(names[0] if names else file.stem)


def _plain(name: str) -> str:
    """A file name as it may be written in XML (URL, Windows path) as a relative path."""
    name = name.strip()
    if "://" in name:
        parts = urlsplit(name)
        path = unquote(parts.path)
        return path if parts.scheme == "file" else PurePosixPath(path).name
    return PureWindowsPath(name).name if re.match(r"[A-Za-z]:\\", name) else name


# --- reading ---------------------------------------------------------------------------------------------------------


def read_pages(tree: xml.Tree, name: str) -> list[xml.XmlPage]:
    """The pages of an ALTO or PAGE file, of any version."""
    kind = xml.local_name(tree.getroot())
    if kind.lower() == "alto":
        return alto.read_pages(tree.getroot())
    if kind == "PcGts":
        return page.read_pages(tree.getroot())
    if kind == HTML:
        return hocr.read_pages(tree.getroot())
    raise FadaError(f"{name}: neither ALTO nor PAGE nor hOCR, the root element is <{kind}>")


def open(source: Path, files: list[Path], reading: Reading) -> LineSet:
    """The lines of ALTO, PAGE and hOCR files with their page images."""
    base = reading.base_of(source)

    def read(log: Log, media: bool) -> Iterator[Line]:
        reader = PageReader(base, reading, log, media)
        for file in files:
            name = base.name(file)
            split = split_of(PurePosixPath(name).parent)
            if reading.split not in (None, split):
                continue
            try:
                if not base.holds(file):
                    raise FadaError(LINK_OUTSIDE)
                xml.check_bytes(file.stat().st_size, name)
                tree = xml.parse(file.read_bytes(), name)
                pages = read_pages(tree, name)
            except (FadaError, OSError) as error:
                log.skip(name, str(error), "XML file not read")
                continue
            kind = xml.local_name(tree.getroot())
            if kind != HTML and not xml.text_lines(tree.getroot()):
                log.blank.append((file, base.folder))
            for one in pages:
                yield from reader.lines(one, file, split, kind)
        reader.tell_missing()

    return LineSet(read, str(source))


@dataclass(frozen=True)
class PageReader:
    """Makes lines of pages; what cannot be used is logged.

    Attributes:
        media: whether the page images are needed.
        seen: page image to file and kind: exports often hold every page as ALTO and as PAGE, which are read once.
        missing: file, name of the image and number of lines of every page whose image was not found.
    """

    base: Base
    reading: Reading
    log: Log
    media: bool
    seen: dict[Path, tuple[str, str]] = field(default_factory=dict)
    missing: list[tuple[str, str, int]] = field(default_factory=list)

    def lines(self, one: xml.XmlPage, file: Path, split: str | None = None, kind: str = "") -> Iterator[Line]:
        """The lines of a page.

        Args:
            kind: of the XML file.
        """
        name, log = self.base.name(file), self.log
        for problem in one.problems:
            log.skip(name, problem)
        image: Path | None = None
        refused: FadaError | None = None
        try:
            image = find_image(one.image_names, file, self.base, self.reading.images)
        except FadaError as error:
            refused = error
        place = image or Path(*(part for part in file.with_suffix("").parts if part.lower() not in XML_FOLDERS))
        first = self.seen.setdefault(place, (name, kind))
        if first[1] != kind:
            log.skip(name, f"the same page as {first[0]}", "page that is there twice, as ALTO and as PAGE")
            return
        if not self.media:
            for line in one.lines:
                yield self._line(line, None, file, name, split)
            return
        if isinstance(refused, ImageMissingError):
            self.missing.append((name, refused.name, len(one.lines)))
            return
        try:
            if image is None:
                raise refused or FadaError("no page image")
            size, scale, upright = _scale(one, image, name, log)
        except FadaError as error:
            log.skip(name, str(error), "page image cannot be used", max(len(one.lines), 1))
            return
        note_frames(image, frames_of(image), self.base, log)
        height = xml.line_height(one.lines, scale[1], size[1])
        for line in one.lines:
            try:
                polygon = xml.outline(line, size, scale, height)
            except FadaError as error:
                log.skip(f"{name}#{line.id}", str(error), "outline cannot be used")
                continue
            baseline = xml.near(((x * scale[0], y * scale[1]) for x, y in line.baseline), size)
            own = {
                "xml": None if kind == HTML else file,
                "index": line.index,
                "region": line.region,
                "line_id": line.id,
            }
            shown = {"grow": self.reading.grow, "upright": upright, "base": self.base.folder}
            crop = PageCrop(image, size, polygon, baseline, **own, **shown)  # type: ignore[arg-type]
            yield self._line(line, crop, file, name, split)

    def _line(self, line: xml.XmlLine, crop: PageCrop | None, file: Path, name: str, split: str | None) -> Line:
        page_name = name.removesuffix(file.suffix)
        extra: dict[str, Any] = {"page": page_name, "line_id": line.id}
        if line.region:
            extra["region"] = line.region
        if split:
            extra["split"] = split
        return Line(
            id=line.own_id or f"{page_name}#{line.id}",
            text=line.text,
            domain=self.reading.domain_of(None, name, extra, self.base, self.log),
            image=crop,
            source=f"{name}#{line.id}",
            extra=extra,
        )

    def tell_missing(self) -> None:
        """One sentence for all pages whose image was not found."""
        if not self.missing:
            return
        pages, lines = len(self.missing), sum(number for *_, number in self.missing)
        _, image, _ = self.missing[0]
        named = f"the page image {image} was" if pages == 1 else f"the images of {pages} pages ({image}, ...) were"
        advice = "" if self.reading.images else "; name their folder with images (--images)"
        self.log.skip(
            first_few((name for name, *_ in self.missing), 1),
            f"{named} not found, so {lines} lines are left out{advice}",
            "page image not found",
            max(lines, 1),
        )


def _scale(page: xml.XmlPage, image: Path, name: str, log: Log) -> tuple[tuple[int, int], Point, bool]:
    """The image's size, pixels per unit of the file across and down, and whether the image is to be turned upright."""
    width, height, dpi, sideways = image_size(image, "the page image ")
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


def _same_size(page: xml.XmlPage, size: tuple[int, int]) -> bool:
    """Whether the file gives the page this size in pixels, give or take one."""
    if page.size is None or page.unit != "pixel":
        return False
    return max(abs(page.size[0] - size[0]), abs(page.size[1] - size[1])) <= 1


# --- writing ---------------------------------------------------------------------------------------------------------


def write(
    results: Iterable[Transcription],
    destination: Path,
    *,
    format: str,
    provenance: Provenance,
    blank: Iterable[tuple[Path, Path]] = (),
) -> list[Path]:
    """New files (`alto`, `page`), or copies of those that the lines come from (`same`).

    Args:
        blank: files without lines (:attr:`LineSet.blank`), which `same` copies as they are.
    """
    if format == "same":
        return _write_same(results, destination, provenance, blank)
    return _write_new(results, destination, provenance, format)


def _module(root: Any) -> ModuleType:
    return alto if xml.local_name(root).lower() == "alto" else page


def _write_same(
    results: Iterable[Transcription], destination: Path, provenance: Provenance, blank: Iterable[tuple[Path, Path]]
) -> list[Path]:
    """Copies of the files that the lines come from, in which text and confidences are new and all else is as it was.

    They keep their place in the source; if there are several sources, in the folder that these share.
    """
    by_file: dict[Path, dict[int, Transcription]] = {}
    bases: dict[Path, Path] = {}
    for result in results:
        crop = None if result.line is None else result.line.image
        if not isinstance(crop, PageCrop) or crop.xml is None:
            raise FadaError(
                f"{result.id}: the line does not come from an ALTO or PAGE file, so there is none to put the text back "
                "into. Write a new one (format alto or page), or txt, tsv, jsonl."
            )
        by_file.setdefault(crop.xml, {})[crop.index] = result
        bases[crop.xml] = crop.base or crop.xml.parent
    bases.update(blank)
    to_file = destination.suffix.lower() == ".xml"
    if to_file and len(bases) > 1:
        raise FadaError(f"{destination}: one file for the lines of {len(bases)} files; give a folder.")
    shared = os.path.commonpath([*map(os.path.abspath, bases.values())]) if bases else ""
    written: list[Path] = []
    for file in bases:
        whole = Path(os.path.abspath(file))
        place = whole.relative_to(shared) if whole.is_relative_to(shared) else whole.name
        copy = destination if to_file else destination / place
        if copy.resolve() == file.resolve():
            raise FadaError(f"{copy}: this is the original, which is never overwritten; choose another destination.")
        if copy in written:
            raise FadaError(f"{copy}: two files of the source would be written here. Transcribe them one by one.")
        written.append(copy)
        original = file.read_bytes()
        texts = by_file.get(file)
        if texts is None:
            write_bytes(copy, original)
            continue
        tree = xml.parse(original, str(file))
        module = _module(tree.getroot())
        lines = xml.text_lines(tree.getroot())
        for index, result in texts.items():
            if index >= len(lines):
                raise FadaError(f"{file}: has {len(lines)} lines now, line {index + 1} is missing; was it changed?")
            if result.text is not None:
                module.set_text(lines[index], result)
        module.finish(tree, [lines[index] for index in texts])
        module.record(tree, provenance)
        write_bytes(copy, xml.serialize(tree, original))
    return written


def new_document(
    format: str, image: str, size: tuple[int, int], crops: Sequence[PageCrop], provenance: Provenance
) -> xml.Tree:
    """An ALTO 4 or PAGE file with an empty line for each crop, and what made it."""
    if format == "alto":
        tree = alto.new_document(image, size, crops)
    else:
        tree = page.new_document(image, size, crops, provenance.created)
    _module(tree.getroot()).record(tree, provenance)
    return tree


def _write_new(results: Iterable[Transcription], destination: Path, provenance: Provenance, format: str) -> list[Path]:
    """New ALTO 4 or PAGE files: one for each page, or one for each line that has an image of its own."""
    written = list[Path]()
    to_file = destination.suffix.lower() == ".xml"
    folder = destination.parent if to_file else destination
    found = sheets(results, folder)
    for sheet in [one_file(found, destination)] if to_file else found:
        file = destination if to_file else folder / f"{sheet.name}.xml"
        if not isinstance(sheet.line.image, PageCrop):
            written.append(folder / sheet.image)
        crops = [line.crop for line in sheet.lines]
        tree = new_document(format, sheet.image, sheet.size, crops, provenance)
        module = _module(tree.getroot())
        # Lines are grouped by region in the file, so its order may differ from the one given.
        elements = {element.get("ID") or element.get("id"): element for element in xml.text_lines(tree.getroot())}
        page_name = file.relative_to(folder).with_suffix("").as_posix()
        for place, (_, result) in enumerate(sheet.lines, 1):
            if result.text is not None:
                module.set_text(elements[f"line_{place}"], result)
            if result.id != f"{page_name}#line_{place}":
                module.set_id(elements[f"line_{place}"], result.id)
        xml.etree.indent(tree)
        write_bytes(file, xml.serialize(tree))
        written.append(file)
    return written
