"""The process that holds the network: finds lines, runs a recogniser over them, and tells what it found.

Tasks come as lines of JSON on standard input, answers leave on standard output, each with the number of its task.
Emissions are written as files. Whoever started the process may kill it at any time; when its input ends, it ends.
"""

import json
import os
import sys
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import lru_cache, partial
from pathlib import Path
from typing import Any
from zlib import crc32

from fada.errors import FadaError

MOST_UNPACKED = 4 * 2**30
"""Bytes that a ZIP file may unpack to."""
Answer = dict[str, Any]
Task = Callable[..., Iterator[Answer]]


def pages(folder: str, most: int, pixels: int) -> Iterator[Answer]:
    """The pages of what was uploaded into a folder: archives unpacked, PDFs drawn, ALTO and PAGE files read."""
    from fada.text.characters import natural_key

    source = Path(folder)
    for archive in sorted(source.glob("*.zip")):
        try:
            _unpack(archive, source)
        except FadaError as error:
            yield {"problem": _without(folder, str(error))}
    made = source / "pages"
    made.mkdir(exist_ok=True)
    found = sorted(_files(source), key=lambda file: natural_key(file.name))
    told = 0
    covered: set[Path] = set()
    for answer in _pages_of_xml([file for file in found if file.suffix.lower() == ".xml"], source):
        if "page" in answer:
            covered.add(Path(answer["page"]["file"]).resolve())
            told += 1
        yield answer
    for file in found:
        if file.suffix.lower() == ".xml" or file.resolve() in covered:
            continue
        try:
            for answer in _pages_of_file(file, made, pixels):
                if told >= most:
                    raise FadaError(f"more than {most} pages. Divide the document.")
                told += 1
                yield answer
        except FadaError as error:
            yield {"problem": _without(folder, str(error))}


def _files(source: Path) -> Iterator[Path]:
    from fada.serve.project import IMAGES, SOUNDS

    for file in sorted(source.rglob("*")):
        if file.is_symlink() or not file.is_file() or "pages" in file.relative_to(source).parts[:1]:
            continue
        if _kind(file) in IMAGES | SOUNDS | {".pdf", ".xml"}:
            yield file


def _kind(file: Path) -> str | None:
    """The ending that fits what is in a file."""
    from fada.serve.project import sniffed

    with file.open("rb") as stream:
        return sniffed(stream.read(4096))


def _unpack(archive: Path, folder: Path) -> None:
    """Unpack what can be read of a ZIP file, beside it; names cannot leave the folder."""
    from fada.data.read import unpacked
    from fada.serve.project import safe_name

    try:
        with zipfile.ZipFile(archive) as opened:
            total = sum(one.file_size for one in opened.infolist())
    except (OSError, ValueError, zipfile.BadZipFile):
        raise FadaError(f"{archive.name}: not a ZIP file that can be unpacked. Pack it again.") from None
    if total > MOST_UNPACKED:
        raise FadaError(f"{archive.name}: unpacks to {total:,} bytes, more than {MOST_UNPACKED:,}. Upload it in parts.")
    for file in sorted(unpacked(archive).rglob("*")):
        if not file.is_file() or file.is_symlink():
            continue
        if (kind := _kind(file)) in (None, ".zip"):
            continue
        place = folder / safe_name(file.name, str(kind))
        if not place.exists():
            os.link(file, place) if file.stat().st_dev == folder.stat().st_dev else place.write_bytes(file.read_bytes())
    archive.rename(archive.with_suffix(".unpacked"))


def _pages_of_xml(files: list[Path], source: Path) -> Iterator[Answer]:
    """Pages with the lines and texts that ALTO and PAGE files give them."""
    if not files:
        return
    from fada.data.crop import PageCrop
    from fada.data.source import read_lines

    lines = read_lines([str(file) for file in files], untranscribed=True, images=source)
    by_page: dict[Path, list[tuple[PageCrop, str | None]]] = {}
    for line in lines:
        if isinstance(line.image, PageCrop):
            by_page.setdefault(line.image.page, []).append((line.image, line.text))
    for file, found in by_page.items():
        crop = found[0][0]
        if not Path(file).resolve().is_relative_to(source.resolve()):
            yield {"problem": f"{Path(file).name}: outside of what was uploaded"}
            continue
        yield {
            "page": {
                "file": str(file),
                "name": Path(file).stem,
                "media": "image",
                "width": crop.page_size[0],
                "height": crop.page_size[1],
                "upright": crop.upright,
            },
            "lines": [
                {"outline": [*one.polygon], "baseline": [*one.baseline], "text": text or None} for one, text in found
            ],
        }
    for skipped in lines.skipped:
        yield {"problem": _without(str(source), str(skipped))}


def _pages_of_file(file: Path, made: Path, pixels: int) -> Iterator[Answer]:
    from fada.data.images import image_size
    from fada.data.segment.photographs import photographs
    from fada.serve.project import SOUNDS

    if _kind(file) in SOUNDS:
        yield {"page": _sound(file, made)}
        return
    for photograph in photographs(file, made, colours=True):
        width, height, _, sideways = image_size(photograph.file)
        width, height = (height, width) if sideways else (width, height)
        if width * height > pixels:
            raise FadaError(f"{file.name}: {width:,} x {height:,} pixels, too many. Scale it down.")
        size = {"width": width, "height": height, "upright": True}
        yield {"page": {"file": str(photograph.file), "name": photograph.name, "media": "image", **size}}


def _sound(file: Path, made: Path) -> Answer:
    """A recording as a page: its picture is its spectrogram, 50 columns a second."""
    import numpy as np
    from PIL import Image

    from fada.common.files import replacing
    from fada.data.audio import SAMPLE_RATE, load_audio

    samples = load_audio(file)
    step, window = SAMPLE_RATE // 50, 512
    columns = max(1, len(samples) // step)
    windows = np.lib.stride_tricks.sliding_window_view(np.pad(samples, (0, window + step)), window)[::step][:columns]
    spectra = np.abs(np.fft.rfft(windows * np.hanning(window).astype(np.float32)))[:, :256]
    power = np.log10(spectra.reshape(columns, 128, 2).mean(2) + 1e-4).T[::-1]
    grey = 255 - (np.clip((power + 4) / 6, 0, 1) * 255).astype(np.uint8)
    picture = made / f"{file.name}.png"
    with replacing(picture) as temporary:
        Image.fromarray(grey).save(temporary, format="PNG")
    return {
        "file": str(picture),
        "name": file.stem,
        "media": f"audio:{file.name}",
        "width": columns,
        "height": 128,
        "upright": True,
    }


def segment(file: str, upright: bool, right_to_left: bool, model: str, made: str) -> Iterator[Answer]:
    """The lines of a page image, which is turned upright first if need be; an image that is shaped like a line is one.

    Args:
        model: that can tell which way up a page stands, if it reads images step by step; else the built-in one does.
        made: folder for the picture of a page that was turned.
    """
    from fada.data.images import load_upright
    from fada.data.segment.detector import is_installed
    from fada.data.segment.page import LINE_HEIGHT, find_lines
    from fada.data.segment.upright import SidewaysError, find_upright
    from fada.models.folders import DEFAULT_MODEL
    from fada.models.look import look_at
    from fada.serve.shapes import box

    image = load_upright(file, where=Path(file).name, upright=upright)[0]
    width, height = image.size
    if not (height > LINE_HEIGHT and width < 2 * height):
        baseline = [(0.0, 0.75 * height), (float(width), 0.75 * height)]
        yield {"lines": [{"outline": box(width, height), "baseline": baseline}]}
        return
    if not is_installed():
        raise FadaError("finding lines on a page needs the extra [pages]: pip install 'fada[pages]', or draw them.")
    judge = _recognizer(model)
    if (judge.kind, judge.modality) != ("ctc", "image"):
        judge = _recognizer(DEFAULT_MODEL)
    try:
        find = partial(find_lines, right_to_left=right_to_left)
        page = find_upright(image, find, partial(look_at, judge), "")
    except SidewaysError:
        raise FadaError("it lies on its side; which way up cannot be told. Turn the picture, drop it again.") from None
    except FadaError as error:
        raise FadaError(f"{str(error).removeprefix(': ')} Lines can be drawn.") from None
    if page.turn:
        yield {"turned": _turned(Path(file), upright, page.turn, Path(made))}
    yield {"notes": [f"It {_LAY[page.turn]}, and was turned.", *page.notes[1:]] if page.turn else page.notes}
    yield {"lines": [{"outline": [*line.outline], "baseline": [*line.baseline]} for line in page.found.lines]}


_LAY = {90: "lay on its side", 180: "stood on its head", 270: "lay on its side"}


def _turned(file: Path, upright: bool, turn: int, made: Path) -> Answer:
    """The picture of a page, turned clockwise by so many degrees, in its colours."""
    from fada.data.images import load_upright
    from fada.data.segment.photographs import turned, write_image

    picture = turned(load_upright(file, upright=upright)[0], turn)
    made.mkdir(exist_ok=True)
    place = made / f"{file.stem[:100]}-{crc32(bytes(file)):08x}-{turn}.png"
    write_image(picture, place)
    return {"file": str(place), "width": picture.width, "height": picture.height, "upright": False}


@lru_cache(maxsize=2)
def _recognizer(model: str) -> Any:
    from fada.models.looks import USUAL
    from fada.models.registry import load_recognizer

    recognizer = load_recognizer(model)
    recognizer.use_looks(USUAL)
    return recognizer


def _alphabet(recognizer: Any) -> Answer:
    if recognizer.emits:
        return {"kind": "ctc", "symbols": list(recognizer.symbols), "blank": recognizer.blank}
    return {"kind": "tokens", "symbols": [], "blank": 0}


def read(model: str, lines: list[dict[str, Any]], out: str, beam: int) -> Iterator[Answer]:
    """Run the network over lines: the emissions of each go to a file, a token model tells its text.

    Args:
        lines: `id`, `page` (file), `size`, `upright`, `outline`, `baseline`, `emission` (name of the file to write), or
            `audio` (file).
        out: folder for emissions.
    """
    from fada.data.crop import PageCrop
    from fada.data.line import Line
    from fada.decoding.knowledge import Decoder, Knowledge
    from fada.decoding.weights import Weights

    recognizer = _recognizer(model)
    yield {"alphabet": _alphabet(recognizer)}
    stored = Decoder.of_model(recognizer.folder) if recognizer.folder else None
    stored = stored or Decoder(Weights(), Knowledge())
    for one in lines:
        try:
            if one.get("audio"):
                line = Line(str(one["id"]), audio=Path(one["audio"]))
            else:
                outline, baseline = (tuple(map(tuple, one[name])) for name in ("outline", "baseline"))
                crop = PageCrop(Path(one["page"]), tuple(one["size"]), outline, baseline, upright=one["upright"])
                line = Line(str(one["id"]), image=crop)
            if recognizer.modality != ("audio" if line.audio is not None else "image"):
                raise FadaError(f"this model reads {recognizer.modality}. Choose another one for these files.")
            if recognizer.emits:
                (scores,) = recognizer.emit([line], batch_size=1).log_probs
                _save(Path(out) / f"{one['emission']}.npz", scores)
                yield {"line": one["id"], "emission": one["emission"]}
            else:
                best = recognizer.search([replace(line, text=None)], stored.knowledge).hypotheses(stored.weights)[0]
                yield {"line": one["id"], "text": best.text, "score": best.score}
        except FadaError as error:
            yield {"line": one["id"], "problem": _without(out, str(error))}


def _save(file: Path, log_probs: Any) -> None:
    import numpy as np

    from fada.common.files import replacing

    file.parent.mkdir(parents=True, exist_ok=True)
    with replacing(file) as temporary, temporary.open("wb") as stream:
        np.savez_compressed(stream, allow_pickle=False, log_probs=np.asarray(log_probs, np.float32))


def _without(folder: str, text: str) -> str:
    """A message without the places of the server's disk."""
    for place in (folder, str(Path(folder).resolve()), str(Path(folder).parent)):
        text = text.replace(place + os.sep, "").replace(place, "")
    return text


TASKS: dict[str, Task] = {"pages": pages, "segment": segment, "read": read}


def main() -> None:
    """Work until the input ends."""
    out = os.fdopen(os.dup(1), "w", encoding="utf-8", buffering=1)
    os.dup2(2, 1)  # what a library prints is no answer
    if threads := os.environ.get("FADA_WORKER_THREADS"):
        import torch

        torch.set_num_threads(int(threads))

    def answer(number: int, kind: str, value: Any) -> None:
        out.write(json.dumps([number, kind, value], ensure_ascii=True) + "\n")
        out.flush()

    for text in sys.stdin:
        number, task, asked = json.loads(text)
        try:
            for found in TASKS[task](**asked):
                answer(number, "part", found)
            answer(number, "end", None)
        except FadaError as error:
            answer(number, "problem", str(error))
        except BrokenPipeError:
            return
        except (OSError, ValueError, MemoryError, RuntimeError, LookupError, TypeError, zipfile.BadZipFile) as error:
            answer(number, "failure", f"{type(error).__name__}: {error}")


if __name__ == "__main__":
    main()
