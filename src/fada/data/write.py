"""Transcriptions written down in any format: what was there before is never overwritten, what made them is recorded."""

import json
import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from itertools import chain
from pathlib import Path
from typing import Any

from fada.common.files import is_stream, write_json
from fada.data.formats.registry import format_by_ending, formats, written_format
from fada.data.line import LineSet, PathLike, Provenance, Transcription, nothing_to_write
from fada.data.places import IDS, IMAGE_SUFFIXES, is_inside, walk
from fada.errors import FadaError, first_few


def chosen_format(destination: Path, format: str | None) -> str:
    """The format that is asked for, else that of the ending of `destination`; `same` for a folder."""
    return written_format(format or format_by_ending(destination) or "same", destination).name


def write_transcriptions(
    results: Iterable[Transcription],
    destination: PathLike,
    format: str | None = None,
    *,
    provenance: Provenance | None = None,
    blank: Iterable[tuple[Path, Path]] = (),
) -> list[Path]:
    """Write transcriptions.

    Args:
        results: in the order they are to be written.
        destination: a file for `tsv`, `csv`, `jsonl`, `parquet`, `pdf`; a folder for `pairs`; for `same`, `alto`,
            `page`, `hocr`, `tei` and `txt` either (a folder gets one file per page or image).
        format: see :func:`fada.data.formats.registry.writable`; by default the ending of `destination`, and `same`
            for a folder.
        provenance: recorded in the file where its format has a place, and in `<destination>.provenance.json`, or
            in `provenance.json` in the folder.
        blank: ALTO and PAGE files without lines (:attr:`LineSet.blank`), which `same` copies as they are.

    Returns:
        The files written.

    Raises:
        FadaError: if the folder holds files that could be overwritten and are not as fada wrote them.
    """
    destination = Path(destination)
    chosen = formats()[chosen_format(destination, format)]
    provenance = provenance or Provenance()
    options: dict[str, Any] = {"blank": blank} if chosen.name == "same" else {}
    if not chosen.is_folder(destination):
        written = chosen.write(results, destination, format=chosen.name, provenance=provenance, **options)
        if chosen.name in _RECORD_INSIDE or is_stream(destination):
            return written
        beside = destination.with_name(f"{destination.name}.{RECORD}")
        write_json(beside, provenance.to_dict())
        return [*written, beside]
    with own_folder(destination, chosen.name, provenance.to_dict()) as record:
        written = chosen.write(results, destination, format=chosen.name, provenance=provenance, **options)
    return [*written, record]


# --- folders ---------------------------------------------------------------------------------------------------------


RECORD = "provenance.json"
_ENDINGS = {"same": (".xml",), "txt": (".txt",)}
"""The endings of what a format writes into a folder; all of them if it is not here."""

_RECORD_INSIDE = ("parquet", "same", "alto", "page", "hocr", "tei")
"""Formats of one file that has a place for what made it."""


def refuse_others(folder: Path, chosen: str) -> None:
    """Refuse a folder with files that could be overwritten and that are not as an earlier run left them.

    A run ends with writing its record; what was put there or changed since is newer.
    """
    try:
        record = json.loads((folder / RECORD).read_text(encoding="utf-8"))
        ours = record["tool"] == "fada"
    except (OSError, ValueError, LookupError, TypeError):
        record, ours = {}, False
    if ours and record.get("unfinished"):
        return
    finished = _changed(folder / RECORD) if ours else 0
    endings = (*_ENDINGS.get(chosen, (".xml", ".txt", ".hocr", *IMAGE_SUFFIXES)), RECORD, IDS)
    others = [file for file in walk(folder) if file.name.lower().endswith(endings) and _changed(file) > finished]
    if others:
        found = first_few((file.name for file in others), 1)
        raise FadaError(
            f"{folder}: holds files that fada did not write, or that were changed since ({found}). "
            "Originals are never overwritten: choose a new or an empty folder."
        )


def _changed(file: Path) -> int:
    """When a file was last changed or put in its place."""
    found = file.stat()
    return max(found.st_mtime_ns, found.st_ctime_ns)


@contextmanager
def own_folder(folder: Path, chosen: str, made: Mapping[str, Any]) -> Iterator[Path]:
    """A folder to write into, with a record of what made it, which says so until all is written."""
    refuse_others(folder, chosen)
    record = folder / RECORD
    write_json(record, {**made, "unfinished": True})
    yield record
    write_json(record, made)


# --- conversion -------------------------------------------------------------------------------------------------------


def refuse_source(sources: Iterable[PathLike], destination: PathLike) -> None:
    """Refuse to write onto what is read, or into it: an output would be read as a part of the source the next time."""
    for source in sources:
        if not os.path.exists(source) or not is_inside(os.fspath(destination), os.fspath(source)):
            continue
        if os.path.realpath(source) == os.path.realpath(destination):
            raise FadaError(f"{destination}: this is the source itself, which is never overwritten. Choose another.")
        if Path(destination).suffix.lower() != ".txt":  # which no source consists of
            raise FadaError(
                f"{destination}: lies in the source {source} and would be read as a part of it the next time. "
                "Choose a place outside of it."
            )


def convert(lines: LineSet, destination: PathLike, format: str | None = None) -> list[Path]:
    """Write lines with the text they have in another format; parquet keeps images, columns, licence and citation.

    Text formats need no image; for the others, lines whose image cannot be read are recorded in the set's `skipped`.
    If no line is left, nothing is written.
    """
    destination = Path(destination)
    chosen = format or format_by_ending(destination) or "parquet"
    if chosen == "parquet":
        from fada.data.formats.parquet import write_parquet

        write_parquet(lines, destination)
        return sorted(destination.glob("*.parquet")) if destination.is_dir() else [destination]
    needs_image = written_format(chosen, destination).needs_image

    def results() -> Iterator[Transcription]:
        for line in lines if needs_image else lines.without_media():
            if needs_image:
                try:
                    line.load_image()
                except FadaError as error:
                    lines.skip(line, error)
                    continue
            kept = {key: value for key, value in line.extra.items() if not _holds_bytes(value)}
            left.update(line.extra.keys() - kept.keys())
            yield Transcription.of(line, extra=kept)

    left: set[str] = set()
    found = results()
    first = next(found, None)
    if first is None:
        raise nothing_to_write(lines, destination)
    written = write_transcriptions(chain([first], found), destination, chosen)
    for name in sorted(left):
        lines.note(f"the column {name} holds images or other bytes and is not written; parquet would keep it.")
    return written


def _holds_bytes(value: Any) -> bool:
    if isinstance(value, dict | list):
        return any(map(_holds_bytes, value.values() if isinstance(value, dict) else value))
    return isinstance(value, bytes)
