"""A document written down: what every other tool of the field reads."""

import io
import shutil
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Literal
from urllib.parse import quote

from fada._version import __version__
from fada.data.line import Line, LineSet, Provenance, Transcription, line_of
from fada.data.write import write_transcriptions
from fada.errors import FadaError
from fada.serve.desk import Desk
from fada.serve.project import safe_name

Format = Literal["alto", "page", "text", "tsv", "pairs", "parquet"]
Only = Literal["confirmed", "all"]
_FILES = {
    "text": ("txt", "text/plain; charset=utf-8"),
    "tsv": ("tsv", "text/tab-separated-values; charset=utf-8"),
    "parquet": ("parquet", "application/vnd.apache.parquet"),
}


def transcriptions(desk: Desk, document: int, only: Only) -> Iterator[Transcription]:
    """The lines of a document with their texts; bad ones and what is no text are left out."""
    domain = desk.known(document).domain
    for page, lines in desk.all_lines(document, confirmed=only == "confirmed"):
        for line in lines:
            audio = desk.sound(page)
            made = Line(
                id=f"{page['name']}#{line['id']}",
                text=line["text"],
                domain=domain,
                image=None if audio else desk.crop(line, page),
                audio=audio,
                source=f"{page['name']}#{line['id']}",
                extra={"page": page["name"], "state": line["state"]},
            )
            yield Transcription.of(made, line["text"], extra={"page": page["name"], "state": line["state"]})


def exported(desk: Desk, document: int, format: Format, only: Only) -> tuple[str, str, bytes]:
    """The name (quoted for a header), type and bytes of a document in a format."""
    row = desk.document(document)
    folder = desk.project.new_temporary()
    try:
        results = list(transcriptions(desk, document, only))
        if not results:
            what = "confirmed yet: confirm some, or export all" if only == "confirmed" else "there to write"
            raise FadaError(f"no line of this document is {what}.")
        if format == "text":
            lines = "\n".join(result.text or "" for result in results) + "\n"
            return _named(row["name"], "txt"), _FILES["text"][1], lines.encode("utf-8", "backslashreplace")
        ending, kind = _FILES.get(format, ("", ""))
        target = folder / (f"lines.{ending}" if ending else "pages")
        if format == "parquet":  # to learn from, so with pictures or sound
            from fada.data.formats.parquet import write_parquet

            found = LineSet.of(list(map(line_of, results)))
            write_parquet(found, target)
            if found.skipped:
                raise FadaError(str(found.skipped[0]))
            return _named(row["name"], ending), kind, target.read_bytes()
        provenance = Provenance(model=row["model"], details={"desk": __version__, "lines": only})
        written = write_transcriptions(results, target, format, provenance=provenance)
        if ending:
            return _named(row["name"], ending), kind, target.read_bytes()
        if format in ("alto", "page"):
            for image in {result.line.image.page for result in results if hasattr(result.line.image, "page")}:  # type: ignore[union-attr]
                shutil.copy2(image, target / Path(image).name)
                written.append(target / Path(image).name)
        return _named(row["name"], "zip"), "application/zip", _zipped(target, written)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _zipped(folder: Path, files: list[Path]) -> bytes:
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive:
        for file in sorted(set(files)):
            archive.write(file, file.relative_to(folder))
    return stream.getvalue()


def _named(name: str, ending: str) -> str:
    return quote(safe_name(name, f".{ending}"), safe="")
