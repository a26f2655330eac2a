"""Documents of a job, each read with the knowledge and the weights that fit it."""

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from itertools import groupby, islice
from statistics import fmean
from typing import Any, Final

import numpy as np

from fada.data.crop import PageCrop
from fada.data.line import Line, LineSet
from fada.decoding.evidence import LINES, SLACK, Automatic, Decision
from fada.decoding.knowledge import built_in_knowledge, read_about, read_knowledge
from fada.decoding.lm import CharNgram
from fada.decoding.search import BeamSearch
from fada.decoding.weights import Weights
from fada.errors import FadaError, first_few
from fada.jobs.batches import document_of, in_parts
from fada.jobs.journal import Row, failed_row
from fada.models.recognizer import Recognizer

MUCH = 0.5
"""Bits per character by which another language must tell better to be named."""
READ_WITH: Final = "read_with"
"""In the first row of each document: what it is read with."""


class Documents:
    """Reads documents batch by batch; a decision is made from the first lines of each, and holds for the others.

    Args:
        rows: finished lines of an earlier run, whose decisions hold.
    """

    def __init__(self, recognizer: Recognizer, automatic: Automatic, rows: Mapping[str, Row]) -> None:
        self.recognizer, self.alphabet, self.automatic = recognizer, recognizer.alphabet, automatic
        self.decisions: dict[str, Decision] = {}
        for row in rows.values():
            if READ_WITH in row:
                self.recall(row[READ_WITH])

    def recall(self, record: Mapping[str, Any]) -> None:
        """Take over a decision that was recorded."""
        self.decisions[record["document"]] = self.automatic.restored(record)

    def record(self, document: str) -> dict[str, Any] | None:
        """The decision for a document, to be recorded; None if there is none yet."""
        decision = self.decisions.get(document)
        return None if decision is None else {"document": document, **decision.record()}

    def decide(self, document: str, log_probs: Sequence[np.ndarray], domain: str | None) -> Decision:
        """What the document is read with, from now on."""
        sound = [scores for scores in log_probs[:LINES] if not np.isnan(scores).any()]
        found = self.decisions[document] = self.automatic.decide(self.alphabet, sound, domain)
        return found

    def decide_before(self, lines: LineSet) -> None:
        """Decide for all documents that a job divided into shards may tear apart, as the whole job would."""
        for document, part in groupby(lines, document_of):
            first = list(islice(part, LINES))
            if document in self.decisions or isinstance(first[0].image, PageCrop):
                continue
            log_probs = [scores for _, emitted, _ in self._emitted(first) if emitted for scores in emitted.log_probs]
            self.decide(document, log_probs, first[0].domain)

    def _emitted(self, batch: Sequence[Line]) -> list[tuple[Sequence[Line], Any, str | None]]:
        found = in_parts(batch, lambda part: self.recognizer.emit([replace(one, text=None) for one in part]))
        return [(part, emitted, error) for emitted, part, error in found]

    def rows(self, batch: Sequence[Line], rows_of: Callable[..., list[Row]]) -> list[Row]:
        """The rows of a batch of lines of one document."""
        document, emitted = document_of(batch[0]), self._emitted(batch)
        known = self.decisions.get(document)
        decision = known or self.decide(
            document, [scores for _, found, _ in emitted if found for scores in found.log_probs], batch[0].domain
        )
        rows: list[Row] = []
        for part, found, error in emitted:
            try:
                if error is not None:
                    raise FadaError(error)
                search = BeamSearch(found, decision.knowledge)
                rows += rows_of(part, search.hypotheses(decision.weights, alignment=True))
            except FadaError as reason:
                rows += [failed_row(line, str(reason)) for line in part]
        if known is None:
            rows[0]["read_with"] = {"document": document, **decision.record()}
        return rows

    @property
    def weights(self) -> set[Weights]:
        """Those that documents are read with."""
        return {decision.weights for decision in self.decisions.values()}

    def told(self) -> str:
        """What the documents were read with, in one line; those that are not read as most are by their names."""
        found = list(self.decisions.values())
        if len(found) == 1:
            return str(found[0])
        by_name = defaultdict[str, dict[str, float]](dict)
        for document, decision in self.decisions.items():
            posterior = decision.posterior
            name = decision.knowledge.name or "none fits"
            by_name[name][document] = 1.0 if posterior is None else posterior.certainty
        most, *others = sorted(by_name.items(), key=lambda item: -len(item[1]))
        told = [_counted(*most), *(f"{_counted(*one)}: {first_few(sorted(one[1]), 3)}" for one in others)]
        return "; ".join(told) if others else told[0]

    def notes(self, rows: Mapping[str, Row]) -> list[str]:
        """What a user should know: the knowledge that was found, that none fits, that the given one does not."""
        found = list(self.decisions.values())
        looked_for = {name for decision in found if decision.posterior for name in decision.posterior.names}
        known = ", ".join(name for name in self.automatic.candidates if name in looked_for)
        notes = []
        if any(decision.posterior is not None and decision.knowledge.name for decision in found):
            notes.append(f"read as {self.told()}; --domain tells it, --knowledge none reads without")
        named = sorted({domain for row in rows.values() if (domain := row.get("domain")) is not None})
        if named and any(decision.posterior is not None for decision in found):
            notes.append(
                f"nothing is known of the domain {', '.join(named)} (known: {known}): the language was found out"
            )
        centuries = [name for name, one in self.automatic.candidates.items() if one.about.century is not None]
        alone = [name for name in named if self.automatic.told(name) and name not in self.automatic.candidates]
        if centuries and alone:
            notes.append(
                f"nothing is known of {', '.join(alone)} alone (known: {', '.join(centuries)}): read with what is "
                "known of the language"
            )
        posteriors = [decision.posterior for decision in found if decision.posterior is not None]
        if lost := sum(bool(posterior.names) and not posterior.fits for posterior in posteriors):
            which = "this document" if len(found) == 1 else f"{lost} of {len(found)} documents"
            notes.append(
                f"none of the known languages ({known}) fits {which}: read without a language model. If it is of "
                "another language or script, choose a model of it; a text in the language helps (--text)"
            )
        given, texts = self.automatic.given, _texts(rows)
        model, usual = (None, None) if given is None else (given.global_lm, given.about.bits)
        if usual is not None and model is not None and texts and (bits := _bits_under(model, texts)) > SLACK * usual:
            notes.append(
                f"the lines read unlike the text they were read with: {bits:.1f} bits for a character, {usual:.1f} for "
                "text of its own kind. Is it of their language?"
            )
        return notes


def _counted(name: str, certainties: Mapping[str, float]) -> str:
    several = "s" * (len(certainties) > 1)
    return f"{name}: {len(certainties)} document{several} (certainty {fmean(certainties.values()):.0%})"


def other_language(model: CharNgram, rows: Mapping[str, Row]) -> list[str]:
    """A note if what was read with this language model is better told by that of a language that comes with fada."""
    texts = _texts(rows)
    built_in = {name: path for name, path in built_in_knowledge().items() if read_about(path).century is None}
    if not texts or not built_in:
        return []
    own = _bits_under(model, texts)
    others = {name: read_knowledge(path).global_lm for name, path in built_in.items()}
    bits, name = min((_bits_under(other, texts), name) for name, other in others.items() if other is not None)
    if own - bits < MUCH:
        return []
    return [
        f"the lines read like {name} ({bits:.1f} bits for a character), not like what the decoder was made for "
        f"({own:.1f}): --knowledge {name} reads with that, --knowledge none without"
    ]


def _texts(rows: Mapping[str, Row]) -> list[str]:
    return [text for row in islice(rows.values(), 4 * LINES) if (text := row.get("text"))]


def _bits_under(model: CharNgram, texts: Sequence[str]) -> float:
    return float(-sum(map(model.log_prob, texts)) / np.log(2) / sum(map(len, texts)))
