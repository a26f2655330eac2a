"""`fada decode`: guided decoding of stored emissions, of any CTC recogniser."""

import csv
import json
import logging
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

import typer

from fada.cli.options import DecodingOptions, KnowledgeOptions, with_decoding, with_knowledge
from fada.cli.output import echo
from fada.errors import FadaError

if TYPE_CHECKING:
    from fada.decoding.hypothesis import Hypothesis

log = logging.getLogger(__name__)

_COLUMNS = ("id", "domain", "rank", "text", "score", "log_prob", "distance")


@with_knowledge()
@with_decoding()
def decode(
    known: KnowledgeOptions,
    decoding: DecodingOptions,
    emissions: Path = typer.Argument(..., help="The .npz file of log-probabilities."),
    symbols: Path | None = typer.Option(
        None, "--symbols", help="Text of each class; by default those in the file, else symbols.json beside it."
    ),
    blank: int | None = typer.Option(None, "--blank", min=0, help="Class of the blank, if the symbols do not say. [0]"),
    domains: Path | None = typer.Option(None, "--domains", help="TSV of id and domain; those of the .npz by default."),
    lines: Path | None = typer.Option(
        None, "--lines", help="Source of lines that tells the domains by line id, if the .npz does not."
    ),
    nbest: int = typer.Option(1, "--nbest", min=1, help="Hypotheses written for each line, at most --beam."),
    prior_weight: float | None = typer.Option(
        None, "--prior-weight", help="Weight of log p_domain - log p_all per character. [0]"
    ),
    length_bonus: float | None = typer.Option(
        None, "--length-bonus", help="Added to the score for each character. [0]"
    ),
    forbidden: str = typer.Option("", "--forbid", "--forbidden", help="Characters that may not be written."),
    allowed: str | None = typer.Option(None, "--allowed", help="The only characters that may be written."),
    alignment: bool = typer.Option(False, "--alignment", help="Frames and confidence of each character (JSONL only)."),
    threads: int | None = typer.Option(None, "--threads", min=1, help="Threads. [all]"),
    out: Path | None = typer.Option(
        None, "--out", "-o", help="A .tsv, .jsonl or .txt file; TSV to the terminal without."
    ),
) -> None:
    """Decode stored emissions with what is known of their language or domain.

    Without any knowledge this is plain beam search; with --text or --knowledge, and without --tuned, the weights follow
    the amount of text and the certainty of the recogniser. A .txt file holds the texts only, one line each. A line that
    cannot be decoded (NaN, say) is named and gets an empty text without score; the others go on; the exit code is 1.
    """
    from fada.common.files import text_file
    from fada.decoding.ctc import CTCBeamDecoder
    from fada.decoding.emissions import Emissions, domains_of_lines, with_references
    from fada.jobs.prepare import decoder_for
    from fada.targets.target_set import TargetSet

    if out is not None and out.suffix not in _WRITERS:
        raise FadaError(f"{out}: unknown ending {out.suffix!r}, expected one of {', '.join(_WRITERS)}.")
    if alignment and (out is None or out.suffix != ".jsonl"):
        raise FadaError("--alignment needs --out with the ending .jsonl.")
    told = known.told().of_domain(known.domain)
    if told.targets is None and not told.finds and ((known.domain and not told.says_text) or domains or prior_weight):
        raise FadaError(
            "a domain that fada brings no knowledge of, or prior correction, has no effect without --targets: name the "
            "target file."
        )
    aimed = [f"--{name}" for name in ("lam", "scale", "distance") if getattr(decoding, name) is not None]
    if told.targets is None and aimed and decoding.lam != 1:
        raise FadaError(f"{' and '.join(aimed)} without effect: there is no target. Name the target file (--targets).")
    if told.finds and (told.text or decoding.tuned):
        raise FadaError("--knowledge auto finds out which knowledge fits: leave --text and --tuned out, or auto.")
    data = Emissions.load(emissions, symbols, blank)
    chosen = decoder_for(data, decoding.wanted(told, prior_weight=prior_weight, length_bonus=length_bonus))
    weights, knowledge = chosen.weights, chosen.knowledge
    if told.targets is None and decoding.tuned is not None and weights.guided:
        raise FadaError(f"{decoding.tuned}: weights that guide to targets. Name the target file (--targets).")
    if lines is not None:
        data = with_references(data, lines)
    target_set = None if told.targets is None else TargetSet.load(told.targets)
    names: Sequence[str | None] = data.domains or [None] * len(data)
    if target_set is not None:
        names = domains_of_lines(data, known.domain, domains)
    language = None if weights.lm == "none" else [knowledge.lm_of(weights.lm, name) for name in names]
    decoder = CTCBeamDecoder(
        data.symbols,
        blank=data.blank,
        beam_size=weights.beam,
        lam=weights.lam,
        distance=weights.distance,
        scale=weights.scale,
        lm_weight=weights.lm_weight if language else 0.0,
        prior=None if target_set is None else target_set.overall,
        prior_weight=weights.prior_weight,
        length_bonus=weights.length_bonus,
        forbidden=forbidden,
        allowed=allowed,
        threads=threads,
    )
    lost: list[FadaError] = []
    found = decoder.decode_batch(
        data.log_probs,
        targets=None if target_set is None else [target_set[str(name)] for name in names],
        lms=language,
        nbest=nbest,
        alignment=alignment,
        ids=data.ids,
        failed=lambda _, reason: lost.append(reason),
    )
    rows = _rows(data.ids, names, found, alignment)
    if out is None:
        _tsv(sys.stdout, rows)
    else:
        with text_file(out) as stream:
            _WRITERS[out.suffix](stream, rows)
        echo(f"{len(data) - len(lost)} lines decoded: {out}")
    for reason in lost:
        log.warning("not decoded: %s", reason)
    if lost:
        log.warning("%d of %d lines could not be decoded; their text is empty.", len(lost), len(data))
        raise typer.Exit(1)


def _rows(
    ids: Sequence[str], domains: Sequence[str | None], found: "Sequence[Sequence[Hypothesis]]", alignment: bool
) -> Iterable[dict[str, Any]]:
    for line, domain, hypotheses in zip(ids, domains, found, strict=True):
        if not hypotheses:
            yield {**dict.fromkeys(_COLUMNS), "id": line, "domain": domain, "rank": 1, "text": ""}
        for rank, h in enumerate(hypotheses, 1):
            values = (line, domain, rank, h.text, h.score, h.log_prob, h.distance)
            row: dict[str, Any] = dict(zip(_COLUMNS, values, strict=True))
            if alignment:
                row |= {"frames": h.char_frames, "confidences": [round(c, 6) for c in h.char_confidences]}
            yield row


def _tsv(stream: TextIO, rows: Iterable[dict[str, Any]]) -> None:
    writer = csv.DictWriter(stream, _COLUMNS, delimiter="\t", lineterminator="\n", extrasaction="ignore")
    writer.writeheader()
    for row in rows:
        writer.writerow({**row, **{k: f"{v:.6f}" for k, v in row.items() if isinstance(v, float)}})


def _jsonl(stream: TextIO, rows: Iterable[dict[str, Any]]) -> None:
    stream.writelines(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)


def _txt(stream: TextIO, rows: Iterable[dict[str, Any]]) -> None:
    stream.writelines(row["text"].replace("\n", " ") + "\n" for row in rows)


_WRITERS = {".tsv": _tsv, ".jsonl": _jsonl, ".txt": _txt}
