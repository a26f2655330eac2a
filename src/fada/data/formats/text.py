"""Plain text: read as a stream of lines in constant memory, written a line for each transcription."""

import codecs
import io
import re
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import BinaryIO

from fada.common.files import text_file
from fada.common.kinds import refuse_kind
from fada.common.tables import encoding_advice
from fada.data.line import Provenance, Transcription
from fada.data.places import FileNames
from fada.errors import FadaError

SUFFIXES = (".txt", ".text")
BLOCK = 1 << 20
"""Bytes that are read at a time; a line that is longer comes in pieces, cut at spaces."""


def text_lines(file: Path, encoding: str | None, on_bytes: Callable[[int], object]) -> Iterator[str]:
    """The lines of a text file without their ends."""
    try:
        opened = file.open("rb")
    except OSError as error:
        raise FadaError(f"{file}: cannot be read: {error.strerror}.") from None
    with opened:
        refuse_kind(opened.peek(), file)
        yield from stream_lines(opened, str(file), encoding, on_bytes)


def stream_lines(
    stream: BinaryIO, name: str, encoding: str | None = None, on_bytes: Callable[[int], object] = lambda size: None
) -> Iterator[str]:
    """The lines of a stream without their ends; those beyond a block come in pieces."""
    decoder = io.IncrementalNewlineDecoder(None, translate=True)
    rest = ""
    for block in _decoded(stream, name, encoding, on_bytes):
        *lines, rest = (rest + decoder.decode(block)).split("\n")
        yield from lines
        if len(rest) > BLOCK:
            # Without line ends the rest would grow with the file. A space is a place where nothing composes.
            head, space, tail = rest.rpartition(" ")
            if space:
                yield head + space
                rest = tail
    rest += decoder.decode("", final=True)
    if rest:
        yield rest.removesuffix("\n")


def _decoded(stream: BinaryIO, name: str, encoding: str | None, on_bytes: Callable[[int], object]) -> Iterator[str]:
    """The text of a stream in blocks; what is not text in its encoding is named with its offset."""
    try:
        decoder = codecs.getincrementaldecoder(encoding or "utf-8-sig")()
    except LookupError as error:
        raise FadaError(f"{name}: {error}.") from None
    offset = 0
    while block := stream.read(BLOCK):
        on_bytes(len(block))
        if not offset and not encoding and block.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
            decoder = codecs.getincrementaldecoder("utf-16")()
        pending = decoder.getstate()[0]
        text = _decode(decoder, block, name, encoding or "UTF-8", offset - len(pending), final=False)
        offset += len(block)
        yield text
    pending = decoder.getstate()[0]
    yield _decode(decoder, b"", name, encoding or "UTF-8", offset - len(pending), final=True)


def _decode(
    decoder: codecs.IncrementalDecoder, block: bytes, name: str, expected: str, offset: int, final: bool
) -> str:
    try:
        return decoder.decode(block, final)
    except UnicodeDecodeError as error:
        found = error.object[error.start]
        raise FadaError(
            f"{name}, byte {offset + error.start}: invalid {expected} (byte 0x{found:02X}, {error.reason}): "
            f"{encoding_advice(expected)}."
        ) from None


def one_line(text: str | None) -> str:
    """A text without line ends and tabs, which become spaces."""
    return re.sub(r"[\t\r\n\v\f\x1c-\x1e\x85\u2028\u2029]+", " ", text or "")


def write(results: Iterable[Transcription], destination: Path, *, format: str, provenance: Provenance) -> list[Path]:
    """A line for each transcription; in a folder, a file for each page or image."""
    if destination.suffix:
        _write_lines(results, destination)
        return [destination]
    names, written = FileNames(), []
    for name, found in by_page(results):
        written.append(destination / f"{names.take(name)}.txt")
        _write_lines(found, written[-1])
    return written


def _write_lines(results: Iterable[Transcription], file: Path) -> None:
    with text_file(file) as opened:
        opened.writelines(f"{one_line(result.text)}\n" for result in results)


def by_page(results: Iterable[Transcription]) -> list[tuple[str, list[Transcription]]]:
    """The transcriptions by page, each page with its name; a line that is not cut out of a page stands alone."""
    pages: dict[object, tuple[str, list[Transcription]]] = {}
    for place, result in enumerate(results):
        page = None if result.line is None else getattr(result.line.image, "page", None)
        name = "" if page is None else result.id.rpartition("#")[0]
        pages.setdefault(place if page is None else page, (name or result.id, []))[1].append(result)
    return list(pages.values())
