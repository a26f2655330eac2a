"""A source of lines: what is read and how, in one object."""

import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from pydantic import Field, field_validator

from fada.common.settings import validated
from fada.data.domains import Rule
from fada.data.line import LineSet, Log, PathLike
from fada.data.read import Texts, open_lines
from fada.data.reading import Reading
from fada.errors import FadaError


class Source(Reading, frozen=True):
    """Sources of lines and how they are read: everything that :func:`fada.read_lines` takes.

    Attributes:
        paths: a parquet file, a folder of them (`train.parquet`, `validation.parquet`, `test.parquet`), a folder
            written by `datasets.save_to_disk`, a CSV, TSV or JSONL manifest, ALTO or PAGE files or a folder of them, a
            folder of `line.png` + `line.gt.txt`, images or sounds, a ZIP file of any of these; `hub:owner/name` for a
            data set on the Hugging Face hub; `hpgt:folder`, `catmus`, `edacc` for the published sets.
    """

    paths: tuple[str, ...] = Field(min_length=1)

    @field_validator("paths", mode="before")
    @classmethod
    def _as_strings(cls, value: Any) -> Any:
        if isinstance(value, str | os.PathLike):
            return (os.fspath(value),)
        return tuple(os.fspath(one) for one in value)

    def read(self) -> LineSet:
        """The lines, read when iterated over. Nothing is left out in silence: see :attr:`LineSet.skipped`."""
        return open_lines(self.paths, self)

    def texts(
        self, on_bytes: Callable[[int], object] = lambda size: None, log: Log | None = None
    ) -> Iterator[tuple[str | None, str]]:
        """Domain and text of every line, without ids, images and sound; text files and `-` (standard input) are read
        as well. See :class:`fada.data.read.Texts`.
        """
        return iter(Texts(self.paths, self, on_bytes, log or Log()))


def read_lines(
    source: PathLike | Iterable[PathLike],
    *,
    domain_from: "str | Mapping[str, str] | Rule | None" = None,
    images: PathLike | None = None,
    base: PathLike | None = None,
    **options: Any,
) -> LineSet:
    """Read lines of text from anything that holds them.

    Args:
        source: one source or several; see :class:`Source`.
        domain_from, images, base, options: how to read it; see :class:`~fada.data.reading.Reading`.

    Returns:
        The lines, read when iterated over. Nothing is left out in silence: see :attr:`LineSet.skipped`.
    """
    return source_of(source, domain_from=domain_from, images=images, base=base, **options).read()


def source_of(source: PathLike | Iterable[PathLike], **options: Any) -> Source:
    """A source, its options checked."""
    paths = [source] if isinstance(source, str | os.PathLike) else [*source]
    if not paths:
        raise FadaError("no source of lines was given.")
    return validated(Source, {"paths": paths, **options}, "how to read " + ", ".join(map(str, paths)))
