"""Transcribing many lines: batch by batch into a journal, so that an interruption loses nothing and repeats nothing."""

import os
import time
import unicodedata
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fada.data.crop import PageCrop
from fada.data.formats.registry import formats
from fada.data.line import Line, LineSet, Provenance, Skipped, Transcription
from fada.data.write import chosen_format, refuse_others, write_transcriptions
from fada.decoding.evidence import LINES, Automatic
from fada.decoding.knowledge import Knowledge
from fada.decoding.weights import Weights
from fada.errors import FadaError
from fada.jobs.batches import batches, document_of
from fada.jobs.cluster import Cluster, read_on
from fada.jobs.documents import Documents, other_language
from fada.jobs.journal import Journal, Row, stamp_of
from fada.jobs.reader import Reader
from fada.jobs.shards import Shard, Share, anywhere
from fada.models.folders import is_model_folder, resolve
from fada.models.looks import Looks
from fada.models.recognizer import Recognizer
from fada.text.characters import OTHER, visible

FOREIGN_SHARE = 0.1
"""More of a text than this outside a model's alphabet is told: it is another script, or edited by other rules."""

LOW_CONFIDENCE = 0.75
"""A mean confidence below this is told."""

NAMED = 20
"""So many of the lines in which nothing was read are named, and no more are kept in memory."""


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


@dataclass(frozen=True)
class Job:
    """What decides the result of a transcription: an unfinished one is continued by the same job only.

    Attributes:
        weights: λ, scale, distance, beam and so on; plain beam search by default.
        knowledge: targets and language models that the weights need.
        automatic: gives every document weights and knowledge of its own, instead of these two; for CTC models.
        model_name, targets_name: recorded with the output.
        told: what else was told by name (a language model, words): recorded with the output, too.
        reading: how the lines were read: an unfinished job is not continued with lines that were read otherwise.
    """

    weights: Weights = field(default_factory=Weights)
    knowledge: Knowledge = field(default_factory=Knowledge)
    automatic: Automatic | None = None
    model_name: str = ""
    targets_name: str | None = None
    reading: Mapping[str, Any] = field(default_factory=dict)
    told: Mapping[str, str] = field(default_factory=dict)

    @property
    def known(self) -> Knowledge:
        """The knowledge that is the same for all documents."""
        given = None if self.automatic is None else self.automatic.given
        return self.knowledge if given is None else given

    def record(self, source: str, looks: Looks) -> dict[str, Any]:
        """What the journal is of: lines of a source, looked at so often."""
        return {
            "model": self.model_name,
            "model_files": _weight_files(self.model_name),
            "targets": self.targets_name,
            "knowledge": (self.known if self.automatic is None else self.automatic).fingerprint(),
            "source": source,
            "reading": {name: str(value) for name, value in self.reading.items() if value},
            "weights": self.weights.model_dump(),
            **({"looks": looks} if looks != 1 else {}),
        }


@dataclass(frozen=True)
class Execution:
    """How a job is carried out, which changes nothing in its result.

    Attributes:
        batch_size: lines per call of the network.
        restart: forget an unfinished job.
        shard: only the lines that fall to it, into a part of the output for :func:`fada.jobs.merge.merge`.
        cluster: where to read, if not in this process.
    """

    batch_size: int = 8
    restart: bool = False
    shard: Shard | None = None
    cluster: Cluster | None = None


def transcribe(
    recognizer: Recognizer,
    lines: LineSet,
    out: str | os.PathLike[str],
    job: Job = Job(),
    run: Execution = Execution(),
    *,
    format: str | None = None,
) -> Summary:
    """Transcribe `lines` into `out`; an interrupted job with the same arguments goes on where it stopped.

    Args:
        recognizer: the model.
        lines: their `domain` chooses the target; lines of an unknown domain are guided to the overall distribution.
        out: file or folder, see :func:`fada.data.write.write_transcriptions`.
        format: of the output.
    """
    recognizer.search([], job.known).check(job.weights)
    started = time.monotonic()
    record, every = job.record(lines.name, recognizer.looks), lines
    share = None if run.shard is None else Share(run.shard)
    out = Path(out)
    if share is not None:
        lines, out = share.of(lines), share.shard.part(out)
        record["shard"] = str(run.shard)
    whole = Path(os.path.abspath(out))
    path = whole.with_name(f".{whole.name}.journal")
    format = _check_output(lines, out, format)
    with Journal(path, record, restart=run.restart) as journal:
        resumed = len(journal.rows)
        reader = Reader(recognizer, job.weights, job.known, job.automatic, journal.rows)
        documents = reader.documents
        if documents is not None and share is not None:
            documents.decide_before(every)
        size = max(run.batch_size, recognizer.at_once if documents is None else LINES)
        todo = batches(lines, journal.has, size, "transcribing", document_of if documents else lambda _: "")
        here = ((batch, reader.rows(batch)) for batch in todo)
        for batch, rows in here if run.cluster is None else read_on(run.cluster, whole, job.model_name, reader, todo):
            stamped = zip(batch, rows, strict=True)
            journal.append({**row, "domain": line.domain, "stamp": stamp_of(line)} for line, row in stamped)
        tally = _Tally.of(journal.rows)
        if share is not None:
            share.unreadable = tally.failed
        notes = _notes(lines, job, tally, documents, journal.rows)
        blank = lines.blank
        if share is not None:
            blank = [(file, base) for file, base in blank if share.shard.owns(file.relative_to(base).as_posix())]
        if blank and chosen_format(out, format) == "same":
            notes.append(f"files without text lines, copied as they are: {len(blank)}")
        if resumed:
            notes.append(f"{resumed} lines were already done")
        own = Counter[str]()
        results = _results(lines, journal.rows, own)
        provenance = _provenance(job, recognizer.looks, tally, documents)
        files = write_transcriptions(results, out, format, provenance=provenance, blank=blank)
        notes = [*_doubts(recognizer, own, job.known, tally), *tally.notes(), *notes]
        if share is not None:
            files.append(share.note(whole, {**anywhere(record), "format": chosen_format(out, format)}))
        journal.finish()
    done = len(journal.rows) - len(tally.failed)
    return Summary(files, done, resumed, list(tally.failed.values()), notes, time.monotonic() - started)


@dataclass
class _Tally:
    """What the rows of a journal have in common, found in one pass."""

    domains: set[str] = field(default_factory=set)
    failed: dict[str, str] = field(default_factory=dict)
    empty: int = 0
    first_empty: list[str] = field(default_factory=list)
    confidence: float = 0.0
    lines: int = 0

    @classmethod
    def of(cls, rows: Mapping[str, Row]) -> "_Tally":
        tally = cls()
        for row in rows.values():
            if (domain := row["domain"]) is not None:
                tally.domains.add(domain)
            if "error" in row:
                tally.failed[row["id"]] = str(Skipped(row["source"], row["error"]))
            elif not (row.get("text") or "").strip():
                tally.empty += 1
                if len(tally.first_empty) < NAMED:
                    tally.first_empty.append(row["id"])
            if "confidence" in row:
                tally.confidence += row["confidence"]
                tally.lines += 1
        return tally

    def notes(self) -> list[str]:
        """Of the lines in which nothing was read."""
        named = ", ".join(self.first_empty) + (", ..." if self.empty > NAMED else "")
        return [f"nothing was read in {self.empty} line{'s' * (self.empty > 1)}: {named}"] if self.empty else []


def _notes(lines: LineSet, job: Job, tally: _Tally, documents: Documents | None, rows: Mapping[str, Row]) -> list[str]:
    """What is worth knowing of the lines and of what they were read with."""
    notes = [*map(str, lines.skipped), *lines.notes]
    knowledge = job.known
    if unknown := knowledge.unknown_domains(tally.domains):
        known = ", ".join(knowledge.targets or ())
        notes.append(f"no target for {', '.join(unknown)} (known: {known}): read with that of all domains together")
    if documents is not None:
        return [*documents.notes(rows), *notes]
    if job.weights.lm != "none" and knowledge.global_lm is not None:
        return [*other_language(knowledge.global_lm, rows), *notes]
    return notes


def _provenance(job: Job, looks: Looks, tally: _Tally, documents: Documents | None) -> Provenance:
    each = (documents.weights if documents else None) or {job.weights}
    shown = [one.model_dump(exclude={"lam"}, exclude_defaults=not one.guided) | {"beam": one.beam} for one in each]
    details = {
        "domains": ", ".join(sorted(tally.domains)) or None,
        "knowledge": str(job.known) if documents is None else documents.told(),
        **job.told,
        **{name: value for name, value in shown[0].items() if all(value == one.get(name) for one in shown)},
        "looks": looks if looks != 1 else None,
    }
    lams = {one.lam if one.guided else None for one in each}
    lam = lams.pop() if len(lams) == 1 else None
    return Provenance(model=job.model_name or None, target=job.targets_name, lam=lam, details=details)


def _check_output(lines: LineSet, out: Path, format: str | None) -> str | None:
    """Refuse, before any line is read, what could not be written at the end; lines found on pages become ALTO."""
    chosen = chosen_format(out, format)
    if formats()[chosen].is_folder(out):
        refuse_others(out, chosen)
    elif out.is_dir():
        raise FadaError(f"{out}: a folder, expected a file for the format {chosen}. Name one, such as out.{chosen}.")
    if chosen != "same" and not formats()[chosen].needs_image:
        return format
    line = next((line for line in lines if _may_be_read(line)), None)
    if chosen != "same":
        if line is not None and line.image is None:
            raise FadaError(
                f"{line.id}: no image, so {chosen} cannot be written. Choose txt, tsv, csv, jsonl or parquet."
            )
        return format
    if line is not None and isinstance(line.image, PageCrop) and line.image.xml is None:
        return "alto"
    if line is not None and not (isinstance(line.image, PageCrop) and line.image.xml):
        raise FadaError(
            f"{line.id}: the line does not come from an ALTO or PAGE file, so there is none to put the text back into. "
            "Give --out a file such as out.tsv or out.pdf, or another --format: alto, page, hocr, tei, pairs, txt."
        )
    return format


def _may_be_read(line: Line) -> bool:
    """Whether an image file at least begins like one; what does not is told as a line that cannot be read."""
    if not isinstance(line.image, str | os.PathLike):
        return True
    from fada.data.images import image_size

    try:
        return image_size(line.image).height > 0
    except FadaError:
        return False


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


def _doubts(recognizer: Recognizer, own: Counter[str], knowledge: Knowledge, tally: _Tally) -> list[str]:
    """What speaks against this model for these lines: texts that it cannot write, and that it is not sure of its own.

    Args:
        own: the characters of the texts that the lines came with.
    """
    notes = []
    p = knowledge.targets.overall if knowledge.targets else None
    aims = dict(zip(p.symbols, p.frequencies.tolist(), strict=True)) if p else {}
    for counts, what, remedy in (
        (own, "the text that these files came with", "choose a model of their script, or fine-tune this one on them"),
        (aims, "the targets", "choose targets of the model's script and spelling"),
    ):
        share, examples = _outside(recognizer.letters, counts)
        if share > FOREIGN_SHARE:
            notes.append(
                f"{share:.0%} of the characters of {what} ({examples}) are none that the model can write: {remedy}"
            )
    if tally.lines and (mean := tally.confidence / tally.lines) < LOW_CONFIDENCE:
        notes.append(
            f"mean confidence {mean:.2f}: the model hardly reads these lines; look at some before "
            "using the text, and choose a model of their script and language, or fine-tune this one on some of them"
        )
    return notes


def _outside(letters: frozenset[str] | None, counts: Mapping[str, float]) -> tuple[float, str]:
    """The share of characters, marks and white space aside, that a model cannot write, and the most frequent ones."""
    if letters is None:
        return 0.0, ""
    bases = defaultdict[str, float](float)
    for character, count in counts.items():
        base = unicodedata.normalize("NFD", character)[:1]
        if character != OTHER and unicodedata.category(base)[0] not in "MZC":
            bases[base] += count
    outside = {base: count for base, count in sorted(bases.items(), key=lambda item: -item[1]) if base not in letters}
    return sum(outside.values()) / max(sum(bases.values()), 1e-9), " ".join(map(visible, list(outside)[:5]))


def _results(lines: LineSet, rows: Mapping[str, Row], own: Counter[str]) -> Iterator[Transcription]:
    """The transcriptions in the order of the source; the characters of the texts that lines have are added to `own`."""
    for line in lines:
        own.update(line.text or "")
        row = rows.get(line.id)
        if row is None or "error" in row:
            continue
        scores = {name: row[name] for name in ("log_prob", "distance", "score") if row.get(name) is not None}
        yield Transcription.of(
            line,
            row["text"],
            confidence=row.get("confidence"),
            char_confidences=row.get("characters"),
            edges=_on_outline(line, row.get("edges")),
            extra=scores,
        )


def _on_outline(line: Line, edges: Sequence[float] | None) -> Sequence[float] | None:
    """Edges of characters in the image of a line as those on its outline, which the image may be wider than."""
    if not edges or not isinstance(line.image, PageCrop):
        return edges
    return [line.image.on_outline(edge) for edge in edges]
