"""Parts of a job that was run in shards, joined to what one machine would have written."""

import glob
import heapq
import json
import os
import pickle
import re
import shutil
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, nullcontext
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from fada.common.files import check_file, replacing, write_json
from fada.common.parquet import stored_metadata
from fada.common.say import progress_bar
from fada.common.scratch import scratch_database
from fada.common.tables import open_table, whole
from fada.data.write import RECORD, own_folder, refuse_source
from fada.errors import FadaError, first_few
from fada.jobs.shards import PartNote

PIECE, AT_A_TIME = 1 << 15, 1 << 25
"""Bytes of each part, and at most of all parts, that are in memory while they are joined."""

HEADED = (".tsv", ".csv")
ROWS = (*HEADED, ".jsonl", ".txt")


@dataclass(frozen=True)
class Merged:
    """What was joined: the number of parts, of lines (or pages, texts) in them, and of those that could not be read."""

    parts: int
    lines: int
    left_out: int
    unit: str = "lines"


@dataclass(frozen=True)
class _Places:
    """Places of lines in the source, in a file with those of all parts."""

    file: BinaryIO
    start: int
    count: int

    @classmethod
    def stored(cls, file: BinaryIO, places: Sequence[int]) -> "_Places":
        """Places that are put at the end of the file."""
        start = file.seek(0, os.SEEK_END)
        file.write(np.array(places, dtype=np.int64).tobytes())
        file.flush()
        return cls(file, start, len(places))

    def __len__(self) -> int:
        return self.count

    def array(self, first: int = 0, count: int | None = None) -> np.ndarray:
        size = self.count - first if count is None else min(count, self.count - first)
        self.file.seek(self.start + 8 * first)
        return np.frombuffer(self.file.read(8 * size), dtype=np.int64)

    def each(self, at_a_time: int) -> Iterator[int]:
        for first in range(0, self.count, at_a_time):
            yield from self.array(first, at_a_time).tolist()


@dataclass(frozen=True)
class _Part:
    """A part with its note.

    Attributes:
        note: without what it tells of lines, which are many.
        places: of its lines in the source; None where their order does not matter.
        left_out: places of its lines that could not be read.
    """

    path: Path
    note: PartNote
    places: _Places | None
    left_out: _Places

    @classmethod
    def read(cls, path: Path, file: BinaryIO) -> "_Part":
        note = PartNote.read(path)
        try:
            places = None if note.positions is None else _Places.stored(file, note.positions)
            left_out = _Places.stored(file, note.left_out)
        except OverflowError:
            raise cls._damaged(path) from None
        return cls(path, note.model_copy(update={"positions": None, "left_out": []}), places, left_out)

    @property
    def positions(self) -> _Places:
        """Where its lines stand in the source."""
        if self.places is None or len(self.places) != self.note.count:
            raise self._damaged(self.path)
        return self.places

    @staticmethod
    def _damaged(path: Path) -> FadaError:
        return FadaError(f"{PartNote.path(path)}: damaged (no positions). Run the shard of this part again.")

    @property
    def record(self) -> Path:
        return self.path / RECORD if self.path.is_dir() else self.path.with_name(f"{self.path.name}.{RECORD}")


def merge(parts: Sequence[Path], out: Path) -> Merged:
    """Join parts, in the order of the source, into `out`.

    Args:
        parts: `out.001-of-064.tsv` …, in any order: tables, texts, parquet, emissions (.npz), target files (.json), or
            folders of ALTO, PAGE, texts or pairs.
        out: file or folder of the same kind.

    Raises:
        FadaError: if a part is missing, doubled, unfinished, damaged or of another job.
    """
    refuse_source(parts, out)
    every = [*parts, *_without_text(parts)]
    with tempfile.TemporaryFile() as file:
        return _joined(sorted((_Part.read(part, file) for part in every), key=lambda part: part.note.shard), out)


def _without_text(parts: Sequence[Path]) -> set[Path]:
    """Parts of a target file that are not among those given: with no text to count a shard leaves its note alone."""
    found = set[Path]()
    for part in parts:
        if name := re.fullmatch(r"(.+)\.\d+-of-(\d+)\.json", part.name):
            pattern = f"{glob.escape(name[1])}.*-of-{name[2]}.json"
            notes = part.parent.glob(PartNote.path(Path(pattern)).name)
            found |= {note.with_name(note.name.removesuffix(PartNote.ENDING)) for note in notes}
    return {part for part in found.difference(parts) if not part.exists()}


def _joined(found: Sequence[_Part], out: Path) -> Merged:
    _check(found)
    for part in found:
        if part.path.suffix.lower() != out.suffix.lower() or (part.path.is_dir() and out.suffix):
            raise FadaError(f"{out}: not of the kind of its parts ({part.path.name}). Name it with the same ending.")
    if out.suffix:
        check_file(out)
    kind = out.suffix.lower()
    ways = {".npz": _merge_emissions, ".json": _merge_targets, ".parquet": _merge_parquet, "": _merge_folders}
    ways |= dict.fromkeys(ROWS, _merge_rows)
    if kind not in ways:
        raise FadaError(f"{out}: parts of the kind {kind} cannot be joined; tsv, csv, jsonl, txt, parquet, npz can.")
    ways[kind](found, out)
    count, left_out = (sum(part.note.count for part in found), sum(len(part.left_out) for part in found))
    return Merged(len(found), count, left_out, found[0].note.unit)


def _check(parts: Sequence[_Part]) -> None:
    """Refuse parts that are not all of one job, each once."""
    if not parts:
        raise FadaError("no parts to join: name them, such as out.*-of-064.tsv.")
    first = parts[0]
    for part in parts:
        if (part.note.job, part.note.of, part.note.total) != (first.note.job, first.note.of, first.note.total):
            raise FadaError(
                f"{part.path} and {first.path} are parts of different jobs (model, settings, source or number of "
                "shards differ). Run the shards of one job with the same command."
            )
    numbers = [part.note.shard for part in parts]
    for before, after in pairwise(parts):
        if before.note.shard == after.note.shard:
            raise FadaError(f"{before.path} and {after.path} are both shard {after.note.shard}: give each once.")
    if missing := sorted({*range(1, first.note.of + 1)} - {*numbers}):
        listed = first_few(missing, 10)
        raise FadaError(f"{len(missing)} of {first.note.of} parts are missing: {listed}. Run these shards, then merge.")
    if first.places is None:
        return
    if not _hold_all(parts, first.note.total):
        raise FadaError(
            f"the parts do not hold each of the source's {first.note.total} lines or pages once: the source was "
            "changed while the shards ran. Run all shards again."
        )


def _hold_all(parts: Sequence[_Part], total: int) -> bool:
    """Whether the parts hold all places of the source, each in one of them; lines of a photograph share a place."""
    if sum(len(part.positions) + len(part.left_out) for part in parts) < total:
        return False
    with tempfile.TemporaryFile() as file:
        seen = np.memmap(file, dtype=bool, mode="w+", shape=max(total, 1))
        for part in parts:
            places = np.unique(np.concatenate([part.positions.array(), part.left_out.array()]))
            if len(places) and (places[0] < 0 or places[-1] >= total or seen[places].any()):
                return False
            seen[places] = True
        return bool(seen[: max(total, 0)].all())


def _merge_rows(parts: Sequence[_Part], out: Path) -> None:
    """Tables and texts of one line a record, in constant memory."""
    headed = out.suffix.lower() in HEADED
    heads = {_first_row(part.path) for part in parts if part.note.count} if headed else set()
    if len(heads) > 1:
        raise FadaError(f"{parts[0].path}: the parts have different columns. Run the shards by the same version.")
    size = min(PIECE, AT_A_TIME // len(parts))
    streams = [zip(part.positions.each(1 + size // 64), _rows(part, headed, size), strict=True) for part in parts]
    with progress_bar() as progress, replacing(out) as temporary, temporary.open("wb") as written:
        task = progress.add_task("joining", total=sum(part.note.count for part in parts))
        if headed:
            written.write(next(iter(heads), _first_row(parts[0].path)))
        for _, row in heapq.merge(*streams, key=lambda placed: placed[0]):
            written.write(row)
            progress.advance(task)
    if record := _joined_record([_read_record(part) for part in parts]):
        write_json(out.with_name(f"{out.name}.{RECORD}"), record)


def _first_row(path: Path) -> bytes:
    with path.open("rb") as stream:
        return stream.readline()


def _rows(part: _Part, headed: bool, size: int) -> Iterator[bytes]:
    """The rows of a part, about `size` bytes at a time: its file is not kept open, as there may be thousands."""
    place, left = len(_first_row(part.path)) if headed else 0, part.note.count
    while True:
        with part.path.open("rb") as stream:
            stream.seek(place)
            rows = stream.readlines(max(1, size))
            place = stream.tell()
        if len(rows) > left or (rows and not rows[-1].endswith(b"\n")):
            raise _changed(part)
        if not rows:
            break
        yield from rows
        left -= len(rows)
    if left:
        raise _changed(part)


def _changed(part: _Part) -> FadaError:
    return FadaError(
        f"{part.path}: not as its shard wrote it (expected {part.note.count} lines). Run this shard again."
    )


def _merge_parquet(parts: Sequence[_Part], out: Path) -> None:
    from fada.data.formats.parquet import write_rows

    records: list[dict[str, Any]] = []
    with closing(scratch_database("CREATE TABLE placed (place INTEGER, row BLOB)")) as database:
        for part in parts:
            records.append(_parsed(stored_metadata(part.path).get(b"fada", b"")))
            with open_table(part.path) as table:
                rows = (pickle.dumps(row) for _, row in whole(part.path, table.rows(None)))
                try:
                    placed = zip(part.positions.each(PIECE // 8), rows, strict=True)
                    database.executemany("INSERT INTO placed VALUES (?, ?)", placed)
                except ValueError:
                    raise _changed(part) from None
        ordered = database.execute("SELECT row FROM placed ORDER BY place, rowid")
        write_rows((pickle.loads(row) for (row,) in ordered), out, _joined_record(records))


def _merge_emissions(parts: Sequence[_Part], out: Path) -> None:
    from fada.decoding.emissions import Emissions

    read = [Emissions.load(part.path) for part in parts]
    placed = [
        (place, line)
        for part, one in zip(parts, read, strict=True)
        for place, line in zip(part.positions.array().tolist(), one.ids, strict=True)
    ]
    joined = Emissions.concatenate([one for one in read if len(one)] or read[:1])
    placed.sort(key=lambda one: one[0])
    joined.ordered([line for _, line in placed]).save(out)


def _merge_targets(parts: Sequence[_Part], out: Path) -> None:
    from fada.jobs.count import added
    from fada.targets.target_set import TargetSet
    from fada.text.normalizer import TextNormalizer

    filled = [TargetSet.load(part.path) for part in parts if part.note.count]
    normalizer = filled[0].normalizer if filled else TextNormalizer()
    counted: list[Mapping[str, Mapping[str, float]]] = [targets.records.domains for targets in filled]
    counted += [{domain: {} for domain in part.note.empty} for part in parts]
    added(counted, normalizer).save(out)


def _merge_folders(parts: Sequence[_Part], out: Path) -> None:
    records = [_read_record(part) for part in parts]
    owner: dict[Path, Path] = {}
    for part in parts:
        for file in sorted(part.path.rglob("*")):
            name = file.relative_to(part.path)
            if file.is_file() and name.name != RECORD:
                if name in owner:
                    raise FadaError(f"{file}: also in {owner[name]}. Give the parts of one job, as they were written.")
                owner[name] = part.path
    record = _joined_record(records)
    if not record and out.is_dir() and any(out.iterdir()):
        raise FadaError(f"{out}: not empty, and what is there is never overwritten. Choose a new or an empty folder.")
    with own_folder(out, "pairs", record) if record else nullcontext(), progress_bar() as progress:
        task = progress.add_task("joining", total=len(owner))
        for name, folder in owner.items():
            with replacing(out / name) as temporary:
                shutil.copyfile(folder / name, temporary)
            progress.advance(task)


# --- what made the parts ----------------------------------------------------------------------------------------------


def _read_record(part: _Part) -> dict[str, Any]:
    try:
        return _parsed(part.record.read_bytes())
    except OSError:
        return {}


def _parsed(record: bytes) -> dict[str, Any]:
    try:
        found = json.loads(record)
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def _joined_record(records: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """The record of the first part, with the domains of all and the time of the last."""
    known = [record for record in records if record]
    if not known:
        return {}
    domains = sorted({name for record in known for name in str(record.get("domains") or "").split(", ") if name})
    joined = {**known[0], **({"domains": ", ".join(domains)} if domains else {})}
    if "created" in joined:
        joined["created"] = max(str(record.get("created", "")) for record in known)
    return joined
