"""Lines of a job, batch by batch: what is done is left out, and one bad line costs only itself."""

import os
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from itertools import islice
from pathlib import Path
from typing import Any

from fada.common.say import progress_bar
from fada.data.line import Line, LineSet
from fada.errors import FadaError

LINE_HEIGHT = 300
"""An image of more rows than this that is not at least twice as wide as high is hardly a line of text."""


def batches(lines: LineSet, done: Callable[[Line], bool], size: int, title: str) -> Iterator[list[Line]]:
    """Batches of the lines that are not done, with a progress bar that shows lines per second."""
    with progress_bar() as progress:
        task = progress.add_task(title, total=lines.expected, completed=0)
        rest = iter(lines)
        started, finished = time.monotonic(), 0
        while batch := list(islice(rest, size)):
            todo = [line for line in batch if not done(line)]
            for line in todo:
                _note_page(line, lines)
            if todo:
                yield todo
                finished += len(todo)
            speed = finished / max(time.monotonic() - started, 1e-9)
            progress.update(task, advance=len(batch), description=f"{title}, {speed:.1f} lines/s")


def _note_page(line: Line, lines: LineSet) -> None:
    """A note about an image file that is as tall as a page, not as a line."""
    from fada.data.images import image_size

    if not isinstance(line.image, str | os.PathLike):
        return
    with suppress(FadaError):  # an image that cannot be opened is told when it is read
        width, height, _, sideways = image_size(Path(line.image))
        width, height = (height, width) if sideways else (width, height)
        if height > LINE_HEIGHT and width < 2 * height:
            lines.note(
                f"{line.source or line.id}: {width} x {height} pixels, read as one line of text but shaped like a "
                "page. Find its lines with a segmenter (kraken, eScriptorium, Transkribus) and give its ALTO or PAGE "
                "file, with the image beside it."
            )


def in_parts(batch: Sequence[Line], read: Any) -> Iterator[tuple[Any, Sequence[Line], str | None]]:
    """`read` of the whole batch; if that fails, of each line alone, so that one bad line costs only itself."""
    with suppress(FadaError):
        yield read(batch), batch, None
        return
    for line in batch:
        try:
            yield read([line]), [line], None
        except FadaError as error:
            yield None, [line], str(error)
