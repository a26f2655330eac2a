"""A folder of line images with their transcriptions beside them: `line.png` + `line.gt.txt`.

Ids that file names cannot hold stand in a table of the folder, `ids.json`: file name without ending, id.
"""

import json
import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path

from fada.common.files import refuse_pointer, text_file, write_bytes, write_json
from fada.common.tables import encoding_advice
from fada.data.formats.media import media_line, note_frames
from fada.data.formats.text import one_line
from fada.data.images import frames_of, png
from fada.data.line import Line, LineSet, Log, Provenance, Transcription, line_of, printable
from fada.data.places import AUDIO_SUFFIXES, GT_SUFFIX, IDS, IMAGE_SUFFIXES, LINK_OUTSIDE, Base, FileNames, walk
from fada.data.reading import Reading
from fada.errors import FadaError
from fada.text.characters import natural_key

_VARIANTS = (".bin", ".nrm", ".raw", ".dew")  # `line.bin.png`, `line.nrm.png` share `line.gt.txt`
_MAX_IDS_BYTES = 256 * 2**20


def _read_text(path: Path, base: Base, reading: Reading, log: Log) -> str:
    """The transcription in a file, one line; FadaError with the reason if it cannot be read."""
    if not base.holds(path):
        raise FadaError(LINK_OUTSIDE)
    try:
        stored = path.read_bytes()
        refuse_pointer(stored, path.name)
        text = stored.decode(reading.encoding or "utf-8-sig")
    except (UnicodeDecodeError, LookupError) as error:
        raise FadaError(f"the text is {encoding_advice(reading.encoding or 'UTF-8')} ({error})") from None
    except OSError as error:
        raise FadaError(f"the text cannot be read ({error})") from None
    lines = [line for line in text.splitlines() if line.strip()]
    if len(lines) > 1:
        log.note(f"{path.name}: {len(lines)} lines of text for one image, joined with spaces.")
    return " ".join(lines)


def _stem(image: Path) -> str:
    stem = image.name[: -len(image.suffix)]
    return next((stem.removesuffix(variant) for variant in _VARIANTS if stem.lower().endswith(variant)), stem)


def _read_ids(folder: Path, log: Log) -> Mapping[str, str]:
    """The ids of lines that could not be file names, by file name without ending."""
    path = folder / IDS
    if not path.is_file() or path.is_symlink():
        return {}
    try:
        if path.stat().st_size > _MAX_IDS_BYTES:
            raise ValueError(f"more than {_MAX_IDS_BYTES:,} bytes")
        found = json.loads(path.read_bytes())
        if not isinstance(found, dict) or not all(isinstance(one, str) for one in found.values()):
            raise ValueError("expected an object of names and ids")
    except (OSError, ValueError, RecursionError) as error:
        log.note(f"{IDS}: not read ({error}), so lines are called like their files.")
        return {}
    return found


def open(source: Path, files: list[Path], reading: Reading) -> LineSet:
    """Images and sounds with a `.gt.txt` beside them; one without the other is left out with a reason.

    With `reading.untranscribed` every image and sound of the folder is read, with its text where there is one.
    """
    base = reading.base_of(source)
    folder = source if source.is_dir() else source.parent
    media = [file for file in walk(folder) if file.suffix.lower() in IMAGE_SUFFIXES | AUDIO_SUFFIXES]

    def read(log: Log, with_media: bool) -> Iterator[Line]:
        texts = {file.parent / file.name[: -len(GT_SUFFIX)]: file for file in files}
        used: set[Path] = set()
        ids = _read_ids(base.folder, log)
        for image in media:
            names = image.name.removesuffix(image.suffix), _stem(image), image.name
            text_path = next((texts[image.parent / name] for name in names if image.parent / name in texts), None)
            text: str | None = None
            if text_path is None:
                if not source.is_dir():
                    continue
                if not reading.untranscribed:
                    reason = f"no transcription {_stem(image)}{GT_SUFFIX}"
                    log.skip(base.name(image), reason, "image without transcription")
                    continue
            elif text_path in used and not reading.untranscribed:
                log.skip(base.name(image), "another form of an image that was read", "another form of an image")
                continue
            else:
                used.add(text_path)
                try:
                    text = _read_text(text_path, base, reading, log)
                except FadaError as error:
                    if not reading.untranscribed:
                        log.skip(base.name(text_path), str(error), "text cannot be read")
                        continue
                    log.note(f"{base.name(text_path)}: {error}; its image is read without it.")
            if line := media_line(image, base, reading, log, text):
                note_frames(image, frames_of(image), base, log)
                yield replace(line, id=ids.get(line.id, line.id))
        for text_path in sorted(set(files) - used, key=natural_key):
            log.skip(base.name(text_path), "no image of that name", "transcription without image")

    return LineSet(read, str(source), expected=len(media if reading.untranscribed and source.is_dir() else files))


def write(results: Iterable[Transcription], destination: Path, *, format: str, provenance: Provenance) -> list[Path]:
    """An image for each line and, where there is a text, its `.gt.txt`."""
    names, written, ids = FileNames(), list[Path](), dict[str, str]()
    for result in results:
        name = names.take(result.id)
        if name != result.id:
            ids[name] = printable(result.id)
        stem = f"{destination / name}"
        written.append(write_image(line_of(result), stem))
        text = Path(stem + GT_SUFFIX)
        if result.text is None:
            text.unlink(missing_ok=True)
        else:
            with text_file(text) as opened:
                opened.write(f"{one_line(result.text)}\n")
            written.append(text)
    if ids:
        write_json(destination / IDS, ids)
        written.append(destination / IDS)
    else:
        (destination / IDS).unlink(missing_ok=True)
    return written


def write_image(line: Line, stem: str) -> Path:
    """The line's image as a file, with its own bytes where it is one."""
    source = line.image
    if isinstance(source, str | os.PathLike) and Path(source).suffix.lower() in IMAGE_SUFFIXES:
        path, data = Path(f"{stem}{Path(source).suffix.lower()}"), Path(source).read_bytes()
    else:
        path, data = Path(f"{stem}.png"), png(line.load_image())
    write_bytes(path, data)
    return path
