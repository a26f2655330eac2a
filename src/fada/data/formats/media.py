"""Images or sounds without transcription, to be transcribed."""

from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

from fada.data.crop import PageCrop
from fada.data.images import Frame, TooLargeError, frames_of, image_size
from fada.data.line import Line, LineSet, Log, split_of
from fada.data.places import AUDIO_SUFFIXES, IMAGE_SUFFIXES, LINK_OUTSIDE, PDF, Base
from fada.data.reading import Reading
from fada.errors import FadaError

if TYPE_CHECKING:
    from fada.data.segment.store import PageStore


def open(source: Path, files: list[Path], reading: Reading) -> LineSet:
    """A line for each file; of a TIFF file with several images, a line for each; of a page to be read, its lines."""
    base = reading.base_of(source)

    def read(log: Log, media: bool) -> Iterator[Line]:
        for file in files:
            line = media_line(file, base, reading, log, None)
            if line is None:
                continue
            if file.suffix.lower() == PDF and not reading.untranscribed:
                log.skip(line.source, "a PDF: `fada transcribe` reads its pages, `fada segment` finds their lines")
            elif reading.untranscribed and media and (found := pages_of(line, file, reading, log)) is not None:
                yield from found
            else:
                yield from _lines_of_file(line, file, base, log)

    return LineSet(read, str(source), expected=None if _are_pages(files, reading) else len(files))


def _are_pages(files: Sequence[Path], reading: Reading) -> bool:
    """Whether there may be other numbers of lines than files: a PDF among them, or the first is shaped like a page."""
    from fada.data.segment.page import is_page

    if any(file.suffix.lower() == PDF for file in files):
        return True
    first = next((file for file in files if file.suffix.lower() in IMAGE_SUFFIXES), None)
    with suppress(FadaError):
        return reading.untranscribed and first is not None and is_page(first)
    return False


def _lines_of_file(line: Line, file: Path, base: Base, log: Log) -> Iterator[Line]:
    """A line; of a TIFF file with several images, a line for each."""
    number = frames_of(file)
    if number == 1 or file.suffix.lower() not in (".tif", ".tiff"):
        note_frames(file, number, base, log)
        yield line
        return
    for place in range(number):
        name = f"#{place + 1}"
        yield replace(line, id=line.id + name, source=line.source + name, image=Frame(file, place))


def pages_of(line: Line, file: Path, reading: Reading, log: Log) -> Iterator[Line] | None:
    """The lines of the photographed pages of a file; None if it is no page but a line, or no image that can be read.

    Args:
        line: what the file is as a whole: its lines have its domain, and names that begin with its own.
    """
    if line.image is None:
        return None
    from fada.data.segment.page import LINE_HEIGHT

    wanted = reading.pages or (lambda name: True)
    try:
        pages = (reading.store or _default_store()).pages(file, lambda suffix: wanted(line.id + suffix))
    except TooLargeError as error:
        log.skip(line.source, str(error).removeprefix(f"{file.name}: "), "image too large")
        return iter(())
    except FadaError:
        return None  # told when it is read
    if pages is None:
        return None

    def lines() -> Iterator[Line]:
        try:
            for page in pages:
                name, source = f"{line.id}{page.suffix}", line.source
                if page.suffix:
                    source += f", page {page.suffix.removeprefix('-').lstrip('0')}"
                for note in page.notes:
                    log.note(f"{source}: {note}")
                crops = page.crops()
                if not crops and not page.made and image_size(file).height < 2 * LINE_HEIGHT:
                    yield line  # a word, cut out of its page large
                elif not crops:
                    if page.problem:
                        log.skip(source, page.problem.removeprefix(f"{page.image}: "), "page without lines")
                    if reading.pages is not None:  # it keeps its place among the others
                        yield replace(line, id=name, source=source, image=PageCrop(page.image, (0, 0), ()))
                for place, crop in enumerate(crops, 1):
                    number = f"#line_{place}"
                    yield replace(line, id=name + number, source=source + number, image=crop)
        except FadaError as error:
            log.skip(line.source, str(error).removeprefix(f"{file}: "), "file of pages not read")

    return lines()


@lru_cache(maxsize=1)
def _default_store() -> "PageStore":
    from fada.data.segment.store import PageStore

    return PageStore()


def note_frames(file: Path, number: int, base: Base, log: Log) -> None:
    """Tell that of several images in one file the first is read."""
    if number > 1:
        log.note(f"{base.name(file)}: holds {number} images, of which the first is read.")


def media_line(file: Path, base: Base, reading: Reading, log: Log, text: str | None) -> Line | None:
    """The line of an image or a sound; None if it is not of the split asked for, or not in the folder."""
    name = base.name(file)
    split = split_of(Path(name).parent)
    if reading.split not in (None, split):
        return None
    if not base.holds(file):
        log.skip(name, LINK_OUTSIDE)
        return None
    extra = {"split": split} if split else {}
    sound = file.suffix.lower() in AUDIO_SUFFIXES
    return Line(
        id=name[: -len(file.suffix)],
        text=text,
        domain=reading.domain_of(None, name, extra, base, log),
        image=None if sound else file,
        audio=file if sound else None,
        source=name,
        extra=extra,
    )
