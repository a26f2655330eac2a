"""Bodies of text to count: (domain, text) pairs of files, folders, tables, pages and standard input."""

import os
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from fada.data.line import Log
from fada.data.read import TextFile, Texts
from fada.data.source import source_of
from fada.errors import FadaError


class Corpus:
    """A body of text: iterate over it, as often as needed, for its (domain, text) pairs, one per line or table row.

    Args:
        sources: files, folders (searched for text files and tables; those without for ALTO and PAGE files), ZIP files
            of them, glob patterns, or ``-`` for standard input.
        everything: count the texts of validation and test too. Otherwise, where a source has splits and none is asked
            for, they are left out: a target must not know what it is tested on.
        on_bytes: called with the number of bytes read, now and then, for a progress bar.
        wanted: which of its files are read, by their places in :meth:`files`; of a part it is no error to be empty.
        options: how to read them, see :class:`fada.data.reading.Reading`. What has no domain by column or rule has
            that of its folder.

    Attributes:
        notes: what was left out, and why.
    """

    def __init__(
        self,
        sources: Sequence[str | os.PathLike[str]],
        *,
        everything: bool = False,
        on_bytes: Callable[[int], object] = lambda size: None,
        wanted: Callable[[int], bool] | None = None,
        **options: Any,
    ) -> None:
        source = source_of(sources, domain_otherwise="folder", **options)
        self.notes: list[str] = []
        self._texts = Texts(source.paths, source, on_bytes, held_out=everything)
        self._whole = wanted is None
        if wanted is not None:
            self._texts.wanted = wanted

    def files(self) -> list[TextFile]:
        """The files behind the sources, each once, in a fixed order; standard input is not among them."""
        return self._texts.files()

    def __iter__(self) -> Iterator[tuple[str, str]]:
        self._texts.log = log = Log()
        self._texts.left_out = number = 0
        for number, (domain, text) in enumerate(self._texts, 1):
            if domain is None:
                raise FadaError(
                    f"{self._texts.place or 'the sources'}: text {number} has no domain, as its column is empty. Fill "
                    "it in, or name all with --domain."
                )
            yield domain, text
        self.notes = [*map(str, log.skipped), *log.notes]
        if self._texts.left_out:
            self.notes.append("texts of validation and test; --split all counts them, too")
            if not number and self._whole:
                raise FadaError("nothing but texts of validation and test: --split all or --split test counts them.")
