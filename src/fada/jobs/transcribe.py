"""Transcribing many lines: batch by batch into a journal, so that an interruption loses nothing and repeats nothing.

The journal is a JSON Lines file beside the output. Its first line says what the job is (model, weights, targets);
every further line is one finished line of text with its domain, or one that could not be read and why. When all lines
are in it, the output is written from it and the journal is removed.
"""

import json
import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, Any, TextIO

from fada.common.say import progress_bar
from fada.data.line import Line, LineSet, Provenance, Transcription
from fada.data.write import chosen_format, is_folder, refuse_others, write_transcriptions
from fada.decoding.knowledge import Knowledge
from fada.decoding.weights import Weights
from fada.errors import FadaError
from fada.models.folders import is_model_folder, resolve

if TYPE_CHECKING:
    from fada.decoding.emissions import Emissions
    from fada.models.ctc import CTCRecognizer
    from fada.models.recognizer import Recognizer

LINE_HEIGHT = 300
"""An image of more rows than this that is not at least twice as wide as high is hardly a line of text."""

Row = dict[str, Any]
"""One finished line in the journal: `id`, `domain`, and either `text` with its score parts, or `error`."""


class Journal:
    """What a job has finished so far, on disk after every batch.

    Args:
        path: the file; continued if it is there.
        job: what decides the result. A journal of another job is refused, never mixed in.
        restart: forget what is there.
    """

    def __init__(self, path: Path, job: Mapping[str, Any], *, restart: bool = False) -> None:
        self.path = path
        self.rows: dict[str, Row] = {}
        self._stream: TextIO | None = None
        self._job = dict(job)
        self._restart = restart

    def _read(self) -> int:
        """Take in what is there; returns the length of its readable part in bytes."""
        good = 0
        with self.path.open("rb") as stream:
            for number, raw in enumerate(stream):
                try:
                    row = json.loads(raw) if raw.endswith(b"\n") else None
                except ValueError:
                    row = None
                if not isinstance(row, dict):
                    break  # the interruption fell into this line: it is transcribed again
                if number == 0 and row != json.loads(json.dumps(self._job)):
                    raise self._other_job("with other settings")
                if number > 0:
                    self.rows[row["id"]] = row
                good += len(raw)
        return good

    def __enter__(self) -> "Journal":
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self._stream = self.path.open("a", encoding="utf-8", errors="surrogatepass", newline="\n")
        try:
            if not _locked(self._stream):
                raise FadaError(
                    f"{self.path}: another process is writing the same output. Wait for it, or choose another output."
                )
            keep = 0 if self._restart else self._read()
            self._stream.truncate(keep)
            if not keep:
                self._write([self._job])
        except BaseException:
            self._stream.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        if self._stream:
            self._stream.close()

    def has(self, line: Line) -> bool:
        """Whether the line is done; one that was done for another domain is refused like any other setting."""
        row = self.rows.get(line.id)
        if row is not None and row["domain"] != line.domain:
            raise self._other_job(f"in which {line.id!r} is of the domain {row['domain']!r}, not {line.domain!r},")
        return row is not None

    def _other_job(self, which: str) -> FadaError:
        return FadaError(
            f"{self.path}: an unfinished job {which} is here. Repeat it with the same settings to finish it, choose "
            "another output, or start over with --restart."
        )

    def append(self, rows: Iterable[Row]) -> None:
        """Record finished lines; they are on disk when this returns."""
        rows = list(rows)
        self._write(rows)
        self.rows.update((row["id"], row) for row in rows)

    def _write(self, rows: Iterable[Row]) -> None:
        if self._stream is None:
            raise RuntimeError("the journal is not open")
        self._stream.writelines(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
        self._stream.flush()
        os.fsync(self._stream.fileno())


def _locked(stream: TextIO) -> bool:
    """Lock an open file until it is closed; False if another process has done so. Nothing is locked on Windows."""
    try:
        import fcntl
    except ImportError:
        return True
    try:
        fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:  # a file system without locks
        pass
    return True


@dataclass(frozen=True)
class Summary:
    """What a job did.

    Attributes:
        files: what was written.
        transcribed: lines with a text, `resumed` of them from an earlier, interrupted run.
        failed: sources of the lines that could not be read, with the reason.
        notes: what is worth knowing.
        seconds: time of this run.
    """

    files: list[Path]
    transcribed: int
    resumed: int
    failed: list[str]
    notes: list[str]
    seconds: float


def transcribe(
    recognizer: "Recognizer",
    lines: LineSet,
    out: str | os.PathLike[str],
    *,
    format: str | None = None,
    weights: Weights | None = None,
    knowledge: Knowledge | None = None,
    model_name: str = "",
    targets_name: str | None = None,
    reading: Mapping[str, Any] | None = None,
    batch_size: int = 8,
    restart: bool = False,
) -> Summary:
    """Transcribe `lines` into `out`; an interrupted job with the same arguments goes on where it stopped.

    Args:
        recognizer: the model.
        lines: their `domain` chooses the target; lines of an unknown domain are guided to the overall distribution.
        out: file or folder, see :func:`fada.data.write.write_transcriptions`.
        format: of the output.
        weights: λ, scale, distance, beam and so on; plain beam search by default.
        knowledge: targets and language models that the weights need.
        model_name, targets_name: recorded with the output.
        reading: how the lines were read: an unfinished job is not continued with lines that were read otherwise.
        batch_size: lines per call of the network.
        restart: forget an unfinished job.
    """
    weights, knowledge = weights or Weights(), knowledge or Knowledge()
    recognizer.search([], knowledge).check(weights)
    out = Path(out)
    started = time.monotonic()
    job = {
        "model": model_name,
        "model_files": _weight_files(model_name),
        "targets": targets_name,
        "knowledge": knowledge.fingerprint(),
        "source": lines.name,
        "reading": {name: str(value) for name, value in (reading or {}).items() if value},
        "weights": weights.model_dump(),
    }
    whole = Path(os.path.abspath(out))
    path = whole.with_name(f".{whole.name}.journal")
    _check_output(lines, out, format)
    with Journal(path, job, restart=restart) as journal:
        resumed = len(journal.rows)
        for rows in _read_batches(recognizer, lines, weights, knowledge, journal.has, batch_size):
            journal.append(rows)
        notes = [*map(str, lines.skipped), *lines.notes]
        named = {row["domain"] for row in journal.rows.values()} - {None}
        if unknown := knowledge.unknown_domains(named):
            known = ", ".join(knowledge.targets or ())
            notes.append(f"no target for {', '.join(unknown)} (known: {known}): read with that of all domains together")
        if lines.blank and chosen_format(out, format) == "same":
            notes.append(f"files without text lines, copied as they are: {len(lines.blank)}")
        if resumed:
            notes.append(f"{resumed} lines were already done")
        files = _write(lines, journal.rows, out, format, weights, model_name, targets_name)
    path.unlink(missing_ok=True)
    failed = [f"{row['source']}: {row['error']}" for row in journal.rows.values() if "error" in row]
    done = len(journal.rows) - len(failed)
    return Summary(files, done, resumed, failed, notes, time.monotonic() - started)


def emit(
    recognizer: "CTCRecognizer", lines: LineSet, *, batch_size: int = 8
) -> tuple["Emissions", list[str], list[str]]:
    """The emissions of every line that can be read, the reasons for those that cannot, and what is worth knowing."""
    from fada.decoding.emissions import Emissions

    if recognizer.kind != "ctc":
        raise FadaError("only CTC models have emissions; use `fada transcribe` for this one.")
    parts: list[Emissions] = []
    failed: list[str] = []
    texts = 0
    for batch in _batches(lines, lambda line: False, batch_size, "emitting"):
        texts += sum(line.text is not None for line in batch)
        for readable, _, error in _in_parts(batch, lambda b: recognizer.emit(b, batch_size=batch_size)):
            if error is None:
                parts.append(readable)
            else:
                failed.append(error)
    failed += [str(skipped) for skipped in lines.skipped]
    if not parts:
        raise FadaError(f"no line could be read ({len(failed)} failed). First: {failed[0] if failed else 'no lines'}")
    emissions = Emissions.concatenate(parts)
    if texts and emissions.references is None:
        lines.note(
            f"{texts} lines have a transcription, but not all: none is stored with the emissions. To tune or evaluate, "
            "emit those lines on their own."
        )
    return emissions, failed, lines.notes


def _check_output(lines: LineSet, out: Path, format: str | None) -> None:
    """Refuse, before any line is read, what could not be written at the end."""
    chosen = chosen_format(out, format)
    if chosen in ("tsv", "csv", "jsonl", "parquet") and out.is_dir():
        raise FadaError(f"{out}: a folder, expected a file for the format {chosen}. Name one, such as out.{chosen}.")
    if is_folder(out, chosen):
        refuse_others(out, chosen)
    if chosen != "same":
        return
    from fada.data.crop import PageCrop

    line = next(iter(lines), None)
    if line is not None and not (isinstance(line.image, PageCrop) and line.image.xml):
        raise FadaError(
            f"{line.id}: the line does not come from an ALTO or PAGE file, so there is none to put the text back into. "
            "Give --out a file such as out.tsv, or choose another --format: alto, page, pairs, txt."
        )


def _weight_files(model: str) -> list[tuple[str, int, int]]:
    """Name, size and time of change of the weights in a model or run folder; none for a name of the hub."""
    folder = Path(resolve(model))
    if not model or not is_model_folder(folder):
        return []
    files = (
        path for place in ("", "model/") for kind in ("safetensors", "bin") for path in folder.glob(f"{place}*.{kind}")
    )
    stats = ((path.relative_to(folder).as_posix(), path.stat()) for path in files)
    return sorted((name, stat.st_size, stat.st_mtime_ns) for name, stat in stats)


def _batches(lines: LineSet, done: Callable[[Line], bool], size: int, title: str) -> Iterator[list[Line]]:
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


def _in_parts(batch: Sequence[Line], read: Any) -> Iterator[tuple[Any, Sequence[Line], str | None]]:
    """`read` of the whole batch; if that fails, of each line alone, so that one bad line costs only itself."""
    with suppress(FadaError):
        yield read(batch), batch, None
        return
    for line in batch:
        try:
            yield read([line]), [line], None
        except FadaError as error:
            yield None, [line], str(error)


def _read_batches(
    recognizer: "Recognizer",
    lines: LineSet,
    weights: Weights,
    knowledge: Knowledge,
    done: Callable[[Line], bool],
    batch_size: int,
) -> Iterator[list[Row]]:
    for batch in _batches(lines, done, max(batch_size, recognizer.rows), "transcribing"):
        rows: list[Row] = []
        for read, part, error in _in_parts(batch, lambda b: _rows(recognizer, b, weights, knowledge)):
            if error is None:
                rows += read
            else:
                rows += [{"id": line.id, "source": line.source or line.id, "error": error} for line in part]
        yield [{**row, "domain": line.domain} for line, row in zip(batch, rows, strict=True)]


def _rows(recognizer: "Recognizer", batch: Sequence[Line], weights: Weights, knowledge: Knowledge) -> list[Row]:
    search = recognizer.search([replace(line, text=None) for line in batch], knowledge, batch_size=len(batch))
    rows = []
    for line, best in zip(batch, search.hypotheses(weights, alignment=True), strict=True):
        row: Row = {"id": line.id, "text": best.text}
        if best.alignment and (confidences := [round(c, 4) for c in best.char_confidences]):
            row |= {"confidence": round(fmean(confidences), 4), "characters": confidences}
        distance = None if best.distance is None else round(best.distance, 6)
        rows.append({**row, "log_prob": round(best.log_prob, 4), "distance": distance, "score": round(best.score, 4)})
    return rows


def _write(
    lines: LineSet,
    rows: Mapping[str, Row],
    out: Path,
    format: str | None,
    weights: Weights,
    model_name: str,
    targets_name: str | None,
) -> list[Path]:
    details = weights.model_dump(exclude={"lam"}, exclude_defaults=not weights.guided) | {"beam": weights.beam}
    provenance = Provenance(
        model=model_name or None, target=targets_name, lam=weights.lam if weights.guided else None, details=details
    )
    return write_transcriptions(_results(lines, rows), out, format, provenance=provenance, blank=lines.blank)


def _results(lines: LineSet, rows: Mapping[str, Row]) -> Iterator[Transcription]:
    """The transcriptions in the order of the source."""
    for line in lines:
        row = rows.get(line.id)
        if row is None or "error" in row:
            continue
        scores = {name: row[name] for name in ("log_prob", "distance", "score") if row.get(name) is not None}
        yield Transcription.of(
            line,
            row["text"],
            confidence=row.get("confidence"),
            char_confidences=row.get("characters"),
            extra=scores,
        )
