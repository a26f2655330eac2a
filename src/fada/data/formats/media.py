"""Images or sounds without transcription, to be transcribed."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from fada.data.images import Frame, frames_of
from fada.data.line import Line, LineSet, Log, split_of
from fada.data.places import AUDIO_SUFFIXES, LINK_OUTSIDE, Base
from fada.data.reading import Reading
from fada.errors import FadaError


def open(source: Path, files: list[Path], reading: Reading) -> LineSet:
    """A line for each file; of a TIFF file with several images, a line for each; of a page to be read, its lines."""
    base = reading.base_of(source)

    def read(log: Log, media: bool) -> Iterator[Line]:
        for file in files:
            if line := media_line(file, base, reading, log, None):
                if reading.untranscribed and line.image is not None and media:
                    on_page = lines_of_page(line, file)
                    yield from on_page
                    if on_page:
                        continue
                number = frames_of(file)
                if number == 1 or file.suffix.lower() not in (".tif", ".tiff"):
                    note_frames(file, number, base, log)
                    yield line
                    continue
                for place in range(number):
                    name = f"#{place + 1}"
                    yield replace(line, id=line.id + name, source=line.source + name, image=Frame(file, place))

    return LineSet(read, str(source), expected=len(files))


def lines_of_page(line: Line, file: Path) -> list[Line]:
    """The lines of a photographed page; none if the image is a line, or cannot be read."""
    from fada.data.segment.page import lines_on

    try:
        crops = lines_on(file)
    except FadaError:
        return []  # told when it is read
    return [
        replace(line, id=f"{line.id}#line_{place}", source=f"{line.source}#line_{place}", image=crop)
        for place, crop in enumerate(crops or (), 1)
    ]


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
