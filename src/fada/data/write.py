"""Transcriptions written down: back into their ALTO or PAGE files, into new ones, or as text and tables."""

import csv
import hashlib
import json
import os
import re
import unicodedata
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import chain
from pathlib import Path
from statistics import fmean
from types import ModuleType
from typing import Any, TextIO

from fada._version import __version__
from fada.common.files import replacing, write_json
from fada.data.formats.pairs import GT_SUFFIX
from fada.data.line import Line, LineSet, PathLike, column_names, nothing_to_write
from fada.data.source import IMAGE_SUFFIXES, is_inside, walk
from fada.errors import FadaError

FORMATS = ("same", "alto", "page", "txt", "tsv", "csv", "jsonl", "parquet", "pairs")
"""`same`: a copy of the ALTO or PAGE files that the lines come from, with the new text."""


@dataclass(frozen=True)
class Transcription:
    """What was recognised in a line.

    Attributes:
        id: of the line.
        text: what was recognised; None if it is not known, as for lines that are only converted.
        confidence: of the whole line, 0 to 1.
        word_confidences: one for each word of `text` (separated by spaces).
        char_confidences: one for each character of `text`.
        line: the line itself; needed to write ALTO, PAGE, parquet and pairs.
        extra: further columns for tables, such as scores.
    """

    id: str
    text: str | None
    confidence: float | None = None
    word_confidences: Sequence[float] | None = None
    char_confidences: Sequence[float] | None = None
    line: Line | None = None
    extra: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def of(cls, line: Line, text: str | None = None, **details: Any) -> "Transcription":
        """The transcription of a line; its own text if no other is given."""
        return cls(line.id, line.text if text is None else text, line=line, **details)

    def characters_in(self, span: tuple[int, int]) -> list[float] | None:
        """The confidences of the characters from `span[0]` up to `span[1]`; None if they are not known."""
        known = self.char_confidences is not None and len(self.char_confidences) == len(self.text or "")
        if self.char_confidences is None or not known or span[0] == span[1]:
            return None
        return [min(max(float(value), 0.0), 1.0) for value in self.char_confidences[slice(*span)]]

    def confidence_of(self, span: tuple[int, int] | None) -> str | None:
        """The confidence of a part of the text, as best known: of its words, its characters, else the whole line.

        Args:
            span: from where to where the part goes; None for the whole line.
        """
        value = self.confidence
        if span is not None or value is None:
            start, end = span or (0, len(self.text or ""))
            words = word_spans(self.text or "")
            by_word = self.word_confidences if len(self.word_confidences or ()) == len(words) else None
            of_words = [
                one for one, word in zip(by_word or (), words, strict=False) if word[0] < end and start < word[1]
            ]
            if known := of_words or self.characters_in((start, end)):
                value = fmean(known)
        return None if value is None else f"{min(max(float(value), 0.0), 1.0):.4f}"


def word_spans(text: str) -> list[tuple[int, int]]:
    """From where to where the words of a text go, which are separated by spaces (U+0020)."""
    return [found.span() for found in re.finditer("[^ ]+", text)]


def part_spans(text: str, parts: Sequence[str]) -> list[tuple[int, int]] | None:
    """From where to where the parts go that a text consists of, with or without spaces between them; None if not."""
    found = re.fullmatch(" *+".join(f"({re.escape(part)})" for part in parts), text)
    return None if found is None else [found.span(place) for place in range(1, len(parts) + 1)]


@dataclass(frozen=True)
class Provenance:
    """What made the transcriptions: kept with them wherever the format has a place for it."""

    model: str | None = None
    target: str | None = None
    lam: float | None = None
    details: Mapping[str, Any] = field(default_factory=dict)
    version: str = __version__
    created: str = field(default_factory=lambda: datetime.now(UTC).isoformat(timespec="seconds"))

    @property
    def tool(self) -> str:
        """Name and version."""
        return f"fada {self.version}"

    def settings(self) -> dict[str, str]:
        """Model, target, λ and further settings, those that are known."""
        known = {"model": self.model, "target": self.target, "lambda": self.lam, **self.details}
        return {key: str(value) for key, value in known.items() if value is not None}

    def settings_text(self) -> str:
        """The settings in one line: `model=...; target=...; lambda=0.5`."""
        return "; ".join(f"{key}={value}" for key, value in self.settings().items())

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {"tool": "fada", "version": self.version, "created": self.created, **self.settings()}


def chosen_format(destination: Path, format: str | None) -> str:
    """The format that is asked for, else that of the ending of `destination`; `same` for a folder."""
    ending = destination.suffix.lower().removeprefix(".")
    chosen = format or ("same" if ending in ("", "xml") else ending)
    if chosen not in FORMATS:
        raise FadaError(f"{destination}: format {chosen!r} is not known; there are: {', '.join(FORMATS)}.")
    return chosen


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
        destination: a file for `txt`, `tsv`, `csv`, `jsonl`, `parquet`; a folder for `same`, `alto`, `page`, `pairs`
            (a folder for `txt` gets one file per page or image).
        format: one of :data:`FORMATS`; by default the ending of `destination`, and `same` for a folder.
        provenance: recorded in the file where its format has a place, and in `<destination>.provenance.json`, or
            in `provenance.json` in the folder.
        blank: ALTO and PAGE files without lines (:attr:`LineSet.blank`), which `same` copies as they are.

    Returns:
        The files written.

    Raises:
        FadaError: if the folder holds files that could be overwritten and are not as fada wrote them.
    """
    destination = Path(destination)
    chosen = chosen_format(destination, format)
    provenance = provenance or Provenance()
    if chosen == "parquet":
        return _write_parquet(results, destination, provenance)
    if chosen == "same" and not is_folder(destination, chosen):
        return _write_same(results, destination, provenance, blank)
    if is_folder(destination, chosen):
        with _own_folder(destination, chosen, provenance) as record:
            if chosen == "same":
                written = _write_same(results, destination, provenance, blank)
            elif chosen in ("alto", "page"):
                written = _write_new(results, destination, provenance, chosen)
            else:
                written = (_write_pairs if chosen == "pairs" else _write_text_files)(results, destination)
        return [*written, record]
    with _text_file(destination) as opened:
        _TABLES[chosen](results, opened)
    note = destination.with_name(f"{destination.name}.provenance.json")
    write_json(note, provenance.to_dict())
    return [destination, note]


# --- folders ---------------------------------------------------------------------------------------------------------


_RECORD = "provenance.json"
_ENDINGS = {"same": (".xml",), "txt": (".txt",)}
"""The endings of what a format writes into a folder; all of them if it is not here."""


def is_folder(destination: Path, chosen: str) -> bool:
    """Whether a format is written as a folder of files rather than as one file."""
    return {"same": destination.suffix.lower() != ".xml", "txt": not destination.suffix}.get(
        chosen, chosen in ("alto", "page", "pairs")
    )


def refuse_others(folder: Path, chosen: str) -> None:
    """Refuse a folder with files that could be overwritten and that are not as an earlier run left them.

    A run ends with writing its record; what was put there or changed since is newer.
    """
    try:
        record = json.loads((folder / _RECORD).read_text(encoding="utf-8"))
        ours = record["tool"] == "fada"
    except (OSError, ValueError, LookupError, TypeError):
        record, ours = {}, False
    if ours and record.get("unfinished"):
        return
    finished = _changed(folder / _RECORD) if ours else 0
    endings = (*_ENDINGS.get(chosen, (".xml", ".txt", *IMAGE_SUFFIXES)), _RECORD)
    others = [file for file in walk(folder) if file.name.lower().endswith(endings) and _changed(file) > finished]
    if others:
        more = f" and {len(others) - 1} more" if len(others) > 1 else ""
        raise FadaError(
            f"{folder}: holds files that fada did not write, or that were changed since ({others[0].name}{more}). "
            "Originals are never overwritten: choose a new or an empty folder."
        )


def _changed(file: Path) -> int:
    """When a file was last changed or put in its place."""
    found = file.stat()
    return max(found.st_mtime_ns, found.st_ctime_ns)


@contextmanager
def _own_folder(folder: Path, chosen: str, provenance: Provenance) -> Iterator[Path]:
    """A folder to write into, with a record of what made it, which says so until all is written."""
    refuse_others(folder, chosen)
    record = folder / _RECORD
    write_json(record, {**provenance.to_dict(), "unfinished": True})
    yield record
    write_json(record, provenance.to_dict())


# --- text and tables -------------------------------------------------------------------------------------------------


@contextmanager
def _text_file(path: Path) -> Iterator[TextIO]:
    with (
        replacing(path) as temporary,
        temporary.open("w", encoding="utf-8", errors="backslashreplace", newline="") as opened,
    ):
        yield opened


def _one_line(text: str | None) -> str:
    return re.sub(r"[\t\r\n\v\f\x1c-\x1e\x85\u2028\u2029]+", " ", text or "")


def _write_txt(results: Iterable[Transcription], opened: TextIO) -> None:
    opened.writelines(f"{_one_line(result.text)}\n" for result in results)


def _write_jsonl(results: Iterable[Transcription], opened: TextIO) -> None:
    for result in results:
        row = _columns(result)
        for name in ("word_confidences", "char_confidences"):
            if (values := getattr(result, name)) is not None:
                row[name] = [float(value) for value in values]
        opened.write(json.dumps(row, ensure_ascii=False, default=str) + "\n")


def _write_table(results: Iterable[Transcription], opened: TextIO, dialect: str) -> None:
    rows = [_columns(result) for result in results]
    names = dict.fromkeys(name for row in rows or [_columns(Transcription("", ""))] for name in row)
    writer = csv.DictWriter(opened, list(names), dialect=dialect, lineterminator="\n")
    writer.writeheader()
    writer.writerows({key: _table_cell(value) for key, value in row.items()} for row in rows)


def _table_cell(value: Any) -> Any:
    if isinstance(value, list | dict):
        return json.dumps(value, ensure_ascii=False, default=str)
    return _one_line(value) if isinstance(value, str) else value


def _columns(result: Transcription) -> dict[str, Any]:
    line, extra = result.line, dict(result.extra)
    own = {
        "id": result.id,
        "text": result.text,
        "confidence": extra.pop("confidence", None) if result.confidence is None else result.confidence,
        "domain": None if line is None else line.domain,
        "source": None if line is None else line.source,
    }
    return own | {new: extra[name] for name, new in column_names(own, extra).items()}


_TABLES: Mapping[str, Callable[[Iterable[Transcription], TextIO], None]] = {
    "txt": _write_txt,
    "tsv": lambda results, opened: _write_table(results, opened, "excel-tab"),
    "csv": lambda results, opened: _write_table(results, opened, "excel"),
    "jsonl": _write_jsonl,
}


def _write_text_files(results: Iterable[Transcription], folder: Path) -> list[Path]:
    names, written = FileNames(), []
    for name, found in _by_page(results):
        file = folder / f"{names.take(name)}.txt"
        with _text_file(file) as opened:
            _write_txt(found, opened)
        written.append(file)
    return written


def _write_parquet(results: Iterable[Transcription], file: Path, provenance: Provenance) -> list[Path]:
    import pyarrow.parquet as pq

    from fada.data.formats.parquet import table_of

    rows = [_columns(result) for result in results]
    table = table_of(rows or [_columns(Transcription("", ""))]).slice(0, len(rows))
    said = json.dumps(provenance.to_dict(), ensure_ascii=False)
    with replacing(file) as temporary:
        pq.write_table(table.replace_schema_metadata({"fada": said}), temporary)
    return [file]


# --- ALTO and PAGE ---------------------------------------------------------------------------------------------------


def _module(root: Any) -> ModuleType:
    from fada.data.formats import alto, page, xml

    return alto if xml.local_name(root).lower() == "alto" else page


def _write_same(
    results: Iterable[Transcription], destination: Path, provenance: Provenance, blank: Iterable[tuple[Path, Path]]
) -> list[Path]:
    """Copies of the files that the lines come from, in which text and confidences are new and all else is as it was.

    They keep their place in the source; if there are several sources, in the folder that these share.
    """
    from fada.data.formats import xml

    by_file: dict[Path, dict[int, Transcription]] = {}
    bases: dict[Path, Path] = {}
    for result in results:
        crop = None if result.line is None else result.line.image
        if not isinstance(crop, xml.PageCrop) or crop.xml is None:
            raise FadaError(
                f"{result.id}: the line does not come from an ALTO or PAGE file, so there is none to put the text back "
                "into. Write a new one (format alto or page), or txt, tsv, jsonl."
            )
        by_file.setdefault(crop.xml, {})[crop.index] = result
        bases[crop.xml] = crop.base or crop.xml.parent
    bases.update(blank)
    to_file = not is_folder(destination, "same")
    if to_file and len(bases) > 1:
        raise FadaError(f"{destination}: one file for the lines of {len(bases)} files; give a folder.")
    shared = os.path.commonpath([*map(os.path.abspath, bases.values())]) if bases else ""
    written: list[Path] = []
    for file in bases:
        whole = Path(os.path.abspath(file))
        place = whole.relative_to(shared) if whole.is_relative_to(shared) else whole.name
        copy = destination if to_file else destination / place
        if copy.resolve() == file.resolve():
            raise FadaError(f"{copy}: this is the original, which is never overwritten; choose another destination.")
        if copy in written:
            raise FadaError(f"{copy}: two files of the source would be written here. Transcribe them one by one.")
        written.append(copy)
        original = file.read_bytes()
        texts = by_file.get(file)
        if texts is None:
            _write_bytes(copy, original)
            continue
        tree = xml.parse(original, str(file))
        module = _module(tree.getroot())
        lines = xml.text_lines(tree.getroot())
        for index, result in texts.items():
            if index >= len(lines):
                raise FadaError(f"{file}: has {len(lines)} lines now, line {index + 1} is missing; was it changed?")
            if result.text is not None:
                module.set_text(lines[index], result)
        module.finish(tree, [lines[index] for index in texts])
        module.record(tree, provenance)
        _write_bytes(copy, xml.serialize(tree, original))
    return written


def _write_new(results: Iterable[Transcription], folder: Path, provenance: Provenance, format: str) -> list[Path]:
    """New ALTO 4 or PAGE files: one for each page, or one for each line that has an image of its own."""
    from fada.data.formats import alto, page, xml

    names, written = FileNames(), list[Path]()
    for name, found in _by_page(results):
        line = _line_of(found[0])
        file = folder / f"{names.take(name)}.xml"
        if isinstance(line.image, xml.PageCrop):
            crops = [one.line.image for one in found if one.line and isinstance(one.line.image, xml.PageCrop)]
            size, image_name = line.image.page_size, line.image.page.name
        else:
            image = _write_image(line, str(file.with_suffix("")))
            written.append(image)
            size, image_name = line.load_image().size, image.name
            whole = ((0.0, 0.0), (size[0], 0.0), (size[0], size[1]), (0.0, size[1]))
            crops = [xml.PageCrop(image, size, whole)]
        if format == "alto":
            tree = alto.new_document(image_name, size, crops)
        else:
            tree = page.new_document(image_name, size, crops, provenance.created)
        module = _module(tree.getroot())
        # Lines are grouped by region in the file, so its order may differ from the one given.
        elements = {element.get("ID") or element.get("id"): element for element in xml.text_lines(tree.getroot())}
        for place, result in enumerate(found, 1):
            if result.text is not None:
                module.set_text(elements[f"line_{place}"], result)
        module.record(tree, provenance)
        xml.etree.indent(tree)
        _write_bytes(file, xml.serialize(tree))
        written.append(file)
    return written


def _by_page(results: Iterable[Transcription]) -> list[tuple[str, list[Transcription]]]:
    """The transcriptions by page, each page with its name; a line that is not cut out of a page stands alone."""
    from fada.data.formats.xml import PageCrop

    pages: dict[Any, tuple[str, list[Transcription]]] = {}
    for place, result in enumerate(results):
        crop = None if result.line is None else result.line.image
        page, name = (crop.page, result.id.rpartition("#")[0]) if isinstance(crop, PageCrop) else (place, "")
        pages.setdefault(page, (name or result.id, []))[1].append(result)
    return list(pages.values())


def _line_of(result: Transcription) -> Line:
    if result.line is None:
        raise FadaError(f"{result.id}: the line itself is needed to write this format, not only its id.")
    return result.line


def _write_bytes(path: Path, data: bytes) -> None:
    with replacing(path) as temporary:
        temporary.write_bytes(data)


# --- images and pairs ------------------------------------------------------------------------------------------------


NAME_BYTES = 200
"""A part of a file name is cut to so many bytes; file systems take 255, endings included."""


def safe_name(name: str) -> str:
    """An id as a relative path that cannot leave its folder and that every file system takes."""
    parts = [re.sub(r'[<>:"\\|?*\x00-\x1f\ud800-\udfff]', "_", part).strip(" .") for part in name.split("/")]
    return "/".join(_cut(part) for part in parts if part) or "line"


def _cut(part: str) -> str:
    data = part.encode()
    if len(data) <= NAME_BYTES:
        return part
    return f"{data[: NAME_BYTES - 9].decode(errors='ignore')}~{hashlib.sha1(data).hexdigest()[:8]}"


class FileNames:
    """The file names of one output: none is given twice, whichever characters and cases the file system tells apart."""

    def __init__(self) -> None:
        self._taken: set[str] = set()

    def take(self, name: str) -> str:
        """A safe name (:func:`safe_name`) that no other line has; `~2` is appended where it is taken."""
        safe = new = safe_name(name)
        number = 1
        while (key := unicodedata.normalize("NFC", new.casefold())) in self._taken:
            number += 1
            new = f"{safe}~{number}"
        self._taken.add(key)
        return new


def _write_image(line: Line, stem: str) -> Path:
    """The line's image beside its text, with its own bytes where it is a file."""
    from fada.data.formats.parquet import png

    source = line.image
    if isinstance(source, str | os.PathLike) and Path(source).suffix.lower() in IMAGE_SUFFIXES:
        path, data = Path(f"{stem}{Path(source).suffix.lower()}"), Path(source).read_bytes()
    else:
        path, data = Path(f"{stem}.png"), png(line)
    _write_bytes(path, data)
    return path


def _write_pairs(results: Iterable[Transcription], folder: Path) -> list[Path]:
    names, written = FileNames(), []
    for result in results:
        stem = f"{folder / names.take(result.id)}"
        written.append(_write_image(_line_of(result), stem))
        text = Path(stem + GT_SUFFIX)
        if result.text is None:
            text.unlink(missing_ok=True)
        else:
            with _text_file(text) as opened:
                _write_txt([result], opened)
            written.append(text)
    return written


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
    chosen = format or destination.suffix.lower().removeprefix(".") or "parquet"
    if chosen == "parquet":
        from fada.data.formats.parquet import write_parquet

        write_parquet(lines, destination)
        return sorted(destination.glob("*.parquet")) if destination.is_dir() else [destination]
    needs_image = chosen in ("pairs", "alto", "page")

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
