"""Lines of a job, batch by batch: what is done is left out, and one bad line costs only itself."""

import os
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from itertools import groupby, islice
from pathlib import Path
from typing import Any

from fada.common.say import progress_bar
from fada.data.crop import PageCrop
from fada.data.line import Line, LineSet
from fada.errors import FadaError
from fada.models.recognizer import BrokenModel


def batches(
    lines: LineSet, done: Callable[[Line], bool], size: int, title: str, document: Callable[[Line], str] = lambda _: ""
) -> Iterator[list[Line]]:
    """Batches of the lines that are not done, each of one document, with a progress bar that shows lines per second."""
    with progress_bar() as progress:
        task = progress.add_task(title, total=lines.expected, completed=0)
        started, finished = time.monotonic(), 0
        for _, part in groupby(lines, document):
            while batch := list(islice(part, size)):
                todo = [line for line in batch if not done(line)]
                for line in todo:
                    _note_page(line, lines)
                if todo:
                    yield todo
                    finished += len(todo)
                speed = finished / max(time.monotonic() - started, 1e-9)
                progress.update(task, advance=len(batch), description=f"{title}, {speed:.1f} lines/s")


def document_of(line: Line) -> str:
    """What a line is a part of, as far as can be told: its page; else its manuscript, or the folder it lies in."""
    if isinstance(line.image, PageCrop):
        return line.id.rpartition("#")[0]
    if manuscript := line.extra.get("manuscript"):
        return str(manuscript)
    return str(Path(line.image).parent) if isinstance(line.image, str | os.PathLike) else ""


def _note_page(line: Line, lines: LineSet) -> None:
    """A note about an image file that is as tall as a page, not as a line."""
    from fada.data.segment.detector import is_installed
    from fada.data.segment.page import is_page

    if not isinstance(line.image, str | os.PathLike):
        return
    with suppress(FadaError):  # an image that cannot be opened is told when it is read
        if is_page(Path(line.image)):
            finding = "" if is_installed() else "The extra [pages] finds its lines (pip install 'fada[pages]'). "
            lines.note(
                f"{line.source or line.id}: read as one line of text but shaped like a page. {finding}If it is one, "
                "give the ALTO or PAGE file of a segmenter such as kraken or eScriptorium, with the image beside it."
            )


def in_parts(batch: Sequence[Line], read: Any) -> Iterator[tuple[Any, Sequence[Line], str | None]]:
    """`read` of the whole batch; if that fails, of each line alone, so that one bad line costs only itself."""
    with suppress(FadaError):
        yield read(batch), batch, None
        return
    for line in batch:
        try:
            yield read([line]), [line], None
        except BrokenModel:
            raise
        except FadaError as error:
            yield None, [line], str(error)
