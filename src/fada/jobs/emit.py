"""The emissions of many lines: batch by batch into a folder beside the output, so that nothing is done twice."""

import os
import shutil
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from fada.data.line import Line, LineSet
from fada.decoding.emissions import Emissions
from fada.errors import FadaError
from fada.jobs.batches import batches, in_parts
from fada.jobs.cluster import DIED, on_actors
from fada.jobs.journal import Journal, Row, stamp_of
from fada.jobs.shards import Share, anywhere
from fada.jobs.transcribe import Execution, Job, Summary
from fada.models.looks import Looks
from fada.models.recognizer import Recognizer
from fada.text.alphabet import Alphabet

STORED = 32
"""Lines to a file of the folder, at least."""

Found = list[tuple[Emissions | None, list[str], str | None]]
"""Emissions of lines, their ids, or the reason why there are none."""


def emit(
    recognizer: Recognizer, lines: LineSet, out: str | os.PathLike[str], job: Job = Job(), run: Execution = Execution()
) -> Summary:
    """Store the emissions of every line that can be read; an interrupted job goes on where it stopped.

    Args:
        out: the .npz file; symbols.json is written beside it.
        job: its `model_name` and `reading` are what an unfinished job is known by.
    """
    started, alphabet = time.monotonic(), recognizer.alphabet
    record = job.record(lines.name, recognizer.looks)
    record = {name: value for name, value in record.items() if name not in ("knowledge", "weights")}
    share = None if run.shard is None else Share(run.shard)
    out = Path(out)
    if share is not None:
        lines, out, record["shard"] = share.of(lines), share.shard.part(out), str(run.shard)
    whole = Path(os.path.abspath(out))
    folder = whole.with_name(f".{whole.name}.parts")
    with Journal(whole.with_name(f".{whole.name}.journal"), record, restart=run.restart) as journal:
        resumed = len(journal.rows)
        if not resumed:
            shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(exist_ok=True)
        todo = batches(lines, journal.has, max(run.batch_size, STORED), "emitting")
        for batch, found in _emitted(recognizer, todo, whole, job.model_name, run):
            journal.append(_stored(folder, batch, found))
        if share is not None:
            share.unreadable = {row["id"] for row in journal.rows.values() if "error" in row}
        emissions, failed = _joined(lines, journal, folder, alphabet)
        notes = [*map(str, lines.skipped), *lines.notes]
        if not emissions.ids and share is None:
            journal.finish()
            shutil.rmtree(folder)
            problems = [*failed.values(), *map(str, lines.skipped)]
            first = problems[0] if problems else "no lines"
            raise FadaError(f"no line could be read ({len(problems)} failed). First: {first}")
        emissions.save(out)
        if share is not None:
            share.note(whole, anywhere(record))
        journal.finish()
        shutil.rmtree(folder)
    if resumed:
        notes.append(f"{resumed} lines were already done")
    return Summary([out], len(emissions.ids), resumed, list(failed.values()), notes, time.monotonic() - started)


def _emitted(
    recognizer: Recognizer, todo: Iterator[list[Line]], out: Path, model: str, run: Execution
) -> Iterator[tuple[list[Line], Found]]:
    """Batches and their emissions, made here or on a cluster."""
    if run.cluster is None:
        emit_batch = _emitting(run.batch_size, recognizer.looks, recognizer)
        for batch in todo:
            yield batch, emit_batch(batch, None)
        return
    make = partial(_emitting, run.batch_size, recognizer.looks)
    for batch, found in on_actors(run.cluster, out, model, make, todo):
        yield batch, found or [(None, [line.id], f"{line.source or line.id}: {DIED}") for line in batch]


def _emitting(batch_size: int, looks: Looks, recognizer: Any) -> Callable[[list[Line], Any], Found]:
    recognizer.use_looks(looks)

    def emit_batch(batch: list[Line], decided: Any) -> Found:
        return [
            (emissions, [line.id for line in part], error)
            for emissions, part, error in in_parts(batch, lambda b: recognizer.emit(b, batch_size=batch_size))
        ]

    return emit_batch


def _stored(folder: Path, batch: Sequence[Line], found: Found) -> Iterator[Row]:
    """Rows for the journal, of emissions that are in a file of the folder."""
    name = f"{uuid.uuid4().hex}.npz"
    good = [emissions for emissions, _, _ in found if emissions is not None]
    if good:
        Emissions.concatenate(good).save(folder / name)
    errors = {line: error for _, ids, error in found for line in ids if error is not None}
    for line in batch:
        row: Row = {"id": line.id, "domain": line.domain, "stamp": stamp_of(line)}
        if line.id in errors:
            yield {**row, "error": errors[line.id]}
        else:
            yield {**row, "file": name}


def _joined(lines: LineSet, journal: Journal, folder: Path, alphabet: Alphabet) -> tuple[Emissions, dict[str, str]]:
    """All emissions, in the order of the source, and the reasons for lines without."""
    ids, texts, files = list[str](), 0, dict[str, None]()
    failed: dict[str, str] = {}
    for line in lines:
        row = journal.rows.get(line.id)
        if row is None:
            continue
        if "error" in row:
            failed[line.id] = row["error"]
            continue
        ids.append(line.id)
        files[row["file"]] = None
        texts += line.text is not None
    if not ids:
        return Emissions([], [], alphabet.symbols, alphabet.blank), failed
    emissions = Emissions.concatenate([Emissions.load(folder / file) for file in files]).ordered(ids)
    if texts and emissions.references is None:
        lines.note(
            f"{texts} lines have a transcription, but not all: none is stored with the emissions. To tune or evaluate, "
            "emit those lines on their own."
        )
    return emissions, failed
