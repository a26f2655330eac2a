"""What is told while work is done: log records and progress bars on standard error. Nothing in the library prints.

Modules write to ``logging.getLogger(__name__)``. The command line shows the records (`show_records`); a program that
uses the library decides for itself.
"""

import logging
import unicodedata
from collections.abc import Iterable, Iterator, Sized
from contextlib import contextmanager, nullcontext, suppress
from typing import TypeVar

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    SpinnerColumn,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)

T = TypeVar("T")

_console = Console(stderr=True)
BOLD = {"style": "bold"}
"""The `extra` of a record that is a heading."""


def printable(text: str) -> str:
    """`text` for a terminal: control characters, which begin escape sequences, spelt ``\\x1b``; lines and tabs stay."""
    return "".join(c if c in "\n\t" or unicodedata.category(c) != "Cc" else f"\\x{ord(c):02x}" for c in text)


class _Shown(logging.Handler):
    """Records as plain lines above the progress bar, warnings marked; ``extra=BOLD`` for a heading.

    Where standard error cannot be written (a file on a full disk), the record is lost and the work goes on.
    """

    def emit(self, record: logging.LogRecord) -> None:
        mark = "" if record.levelno < logging.WARNING else f"{record.levelname.lower()}: "
        text = mark + printable(self.format(record))
        style = getattr(record, "style", None)
        with suppress(OSError):
            _console.print(text, style=style, highlight=False, markup=False, soft_wrap=True, emoji=False)


def show_records() -> None:
    """Show the library's records on standard error, once however often it is called."""
    if not is_shown():
        logger = logging.getLogger("fada")
        logger.addHandler(_Shown())
        logger.setLevel(logging.INFO)


def is_shown() -> bool:
    """Whether this process shows its records, as its children then should."""
    return any(isinstance(handler, _Shown) for handler in logging.getLogger("fada").handlers)


@contextmanager
def progress_bar() -> Iterator[Progress]:
    """A rich progress display on standard error; it draws only on a terminal."""
    progress = Progress(
        SpinnerColumn(),
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TextColumn("left"),
        TimeRemainingColumn(),
        console=_console,
        disable=not _console.is_terminal,
    )
    with nullcontext() if progress.disable else progress:  # rich 13 ends one that is not drawn with an empty line
        yield progress


@contextmanager
def waiting(message: str) -> Iterator[None]:
    """A spinner with `message` while something without steps is done; only on a terminal."""
    if not _console.is_terminal:
        yield
        return
    with _console.status(message):
        yield


def track(items: Iterable[T], description: str, total: int | None = None) -> Iterator[T]:
    """Iterate over `items` with a progress bar."""
    if total is None and isinstance(items, Sized):
        total = len(items)
    with progress_bar() as progress:
        task = progress.add_task(description, total=total)
        for item in items:
            yield item
            progress.advance(task)
