"""Pages to be written anew, whatever the format: the lines of a page, or a line that has an image of its own."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from fada.common.files import write_bytes
from fada.data.crop import PageCrop, Point, corners, part_of
from fada.data.formats.pairs import write_image
from fada.data.formats.text import by_page
from fada.data.line import Line, Transcription, line_of, word_spans
from fada.data.places import IMAGE_SUFFIXES, FileNames
from fada.errors import FadaError


class Word(NamedTuple):
    """A word of a line: its text, where it stands in the line's text, its outline, its confidence as it is written."""

    text: str
    span: tuple[int, int]
    outline: tuple[Point, ...]
    confidence: str | None


class SheetLine(NamedTuple):
    """A line of a page, with what was read there."""

    crop: PageCrop
    result: Transcription

    def words(self) -> list[Word]:
        """The words with their outlines; none where it is not known where the characters stand."""
        return words_of(self.result, self.crop.polygon)


@dataclass(frozen=True)
class Sheet:
    """A page with its lines in reading order.

    Attributes:
        name: for files, without ending.
        image: what the image is called.
        size: of the image, in pixels.
    """

    name: str
    image: str
    size: tuple[int, int]
    lines: Sequence[SheetLine]

    @property
    def line(self) -> Line:
        """The first line: if it has an image of its own, that is the page."""
        return line_of(self.lines[0].result)

    def regions(self) -> dict[str | None, list[int]]:
        """The places of the lines by region, in the order in which the regions begin."""
        found: dict[str | None, list[int]] = {}
        for place, line in enumerate(self.lines):
            found.setdefault(line.crop.region, []).append(place)
        return found


def sheets(results: Iterable[Transcription], folder: Path | None = None) -> Iterator[Sheet]:
    """The pages of transcriptions.

    Args:
        folder: for the images of lines that are not cut out of a page, each named like its sheet; they are not written
            without one.
    """
    names = FileNames()
    for name, found in by_page(results):
        line, name = line_of(found[0]), names.take(name)
        if isinstance(line.image, PageCrop):
            crops = [one.line.image for one in found if one.line and isinstance(one.line.image, PageCrop)]
            pairs = [SheetLine(crop, result) for crop, result in zip(crops, found, strict=True)]
            image = line.image.page.name
            if folder is not None and line.image.made:  # of a PDF, or turned: there is no such file elsewhere
                image = f"{Path(name).name}{line.image.page.suffix}"
                write_bytes(folder / f"{name}{line.image.page.suffix}", line.image.page.read_bytes())
            yield Sheet(name, image, line.image.page_size, pairs)
            continue
        if folder is not None:
            image = write_image(line, str(folder / name)).name
        else:
            given = Path(line.image) if isinstance(line.image, str | Path) else Path("")
            image = given.name if given.suffix.lower() in IMAGE_SUFFIXES else f"{name}.png"
        width, height = line.load_image().size
        whole = corners(0.0, 0.0, width, height)
        yield Sheet(name, image, (width, height), [SheetLine(PageCrop(Path(image), (width, height), whole), found[0])])


def write_sheets(
    results: Iterable[Transcription], destination: Path, ending: str, document: Callable[[list[Sheet], str], bytes]
) -> list[Path]:
    """One file for all pages; in a folder, a file for each, with the images of lines that have one of their own.

    Args:
        ending: of the files in a folder.
        document: the bytes of a file with these pages and this title.
    """
    if destination.suffix:
        write_bytes(destination, document(list(sheets(results)), destination.name.partition(".")[0]))
        return [destination]
    written = list[Path]()
    for sheet in sheets(results, destination):
        if not isinstance(sheet.line.image, PageCrop):
            written.append(destination / sheet.image)
        written.append(destination / f"{sheet.name}{ending}")
        write_bytes(written[-1], document([sheet], sheet.name))
    return written


def one_file(found: Iterable[Sheet], destination: Path) -> Sheet:
    """The only page, for a file that holds one."""
    first, *more = found
    if more:
        raise FadaError(
            f"{destination}: one file for {1 + len(more)} pages; give a folder, or the format hocr, tei, pdf."
        )
    return first


def words_of(result: Transcription, outline: Sequence[Point]) -> list[Word]:
    """The words of a transcription on the outline of its line; none where the places of its characters are unknown."""
    text, found = result.text or "", list[Word]()
    for span in word_spans(text) if len(outline) >= 3 else ():
        across = result.across(span)
        if across is None:
            return []
        found.append(Word(text[slice(*span)], span, part_of(outline, *across), result.confidence_of(span)))
    return found


def box_of(outline: Sequence[Point]) -> tuple[float, float, float, float]:
    """Left, top, right, bottom of an outline."""
    xs, ys = zip(*outline, strict=True)
    return min(xs), min(ys), max(xs), max(ys)
