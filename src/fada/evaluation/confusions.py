"""Which characters go wrong, by their Unicode names; which of them guidance helps or hurts; the worst lines first."""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Unpack

import numpy as np
from rapidfuzz.distance import Levenshtein

from fada.common.tables import Cells
from fada.evaluation.edits import TextOptions, check_pairs, clusters_of, score_lines, text_preparation
from fada.text.characters import unicode_name


@dataclass(frozen=True)
class Confusion:
    """`predicted` was written for `reference`, `count` times; an empty text stands for nothing (lost or invented)."""

    reference: str
    predicted: str
    count: int

    @property
    def kind(self) -> str:
        """``substitution``, ``deletion`` (lost) or ``insertion`` (invented)."""
        return "insertion" if not self.reference else "deletion" if not self.predicted else "substitution"

    def row(self) -> Cells:
        """The confusion with both Unicode names, ready for a table."""
        return {
            "count": self.count,
            "reference": self.reference,
            "predicted": self.predicted,
            "reference name": unicode_name(self.reference),
            "predicted name": unicode_name(self.predicted),
        }


@dataclass(frozen=True)
class CharacterChange:
    """Errors on one character in two systems: occurrences that were missed plus places where it was written wrongly."""

    character: str
    occurrences: int
    before: int
    after: int

    @property
    def helped(self) -> int:
        """Errors fewer than before; negative where the character was hurt."""
        return self.before - self.after

    def row(self) -> Cells:
        """The change with the Unicode name, ready for a table."""
        return {
            "character": self.character,
            "name": unicode_name(self.character),
            "occurrences": self.occurrences,
            "errors before": self.before,
            "errors after": self.after,
            "helped": self.helped,
        }


@dataclass(frozen=True)
class WorstLine:
    """A line and how badly it was read; `cer` in percent."""

    id: str
    domain: str | None
    edits: int
    cer: float
    reference: str
    hypothesis: str


def edit_pairs(
    references: Sequence[str], hypotheses: Sequence[str], **options: Unpack[TextOptions]
) -> Iterator[tuple[int, str, str]]:
    """Every edit as (line number, reference character, predicted character); "" stands for nothing."""
    check_pairs(references, hypotheses)
    prepare = text_preparation(options.get("normalization"))
    for i, (raw_reference, raw_hypothesis) in enumerate(zip(references, hypotheses, strict=True)):
        if raw_reference == raw_hypothesis:
            continue
        reference: Sequence[str] = prepare(raw_reference)
        hypothesis: Sequence[str] = prepare(raw_hypothesis)
        if options.get("units") == "graphemes":
            reference, hypothesis = clusters_of(str(reference)), clusters_of(str(hypothesis))
        for edit in Levenshtein.editops(reference, hypothesis):
            lost = "" if edit.tag == "insert" else reference[edit.src_pos]
            written = "" if edit.tag == "delete" else hypothesis[edit.dest_pos]
            yield i, lost, written


def confusions(references: Sequence[str], hypotheses: Sequence[str], **options: Unpack[TextOptions]) -> list[Confusion]:
    """All confusions, the most frequent first (ties in code point order)."""
    pairs = edit_pairs(references, hypotheses, **options)
    counts = Counter((reference, predicted) for _, reference, predicted in pairs)
    found = [Confusion(reference, predicted, count) for (reference, predicted), count in counts.items()]
    return sorted(found, key=lambda c: (-c.count, c.reference, c.predicted))


def character_changes(
    references: Sequence[str], before: Sequence[str], after: Sequence[str], **options: Unpack[TextOptions]
) -> list[CharacterChange]:
    """Errors per character in two systems, from the most helped by the second to the most hurt."""
    prepare = text_preparation(options.get("normalization"))
    occurrences: Counter[str] = Counter()
    for text in references:
        prepared = prepare(text)
        occurrences.update(clusters_of(prepared) if options.get("units") == "graphemes" else prepared)
    errors = []
    for hypotheses in (before, after):
        count: Counter[str] = Counter()
        for _, reference, predicted in edit_pairs(references, hypotheses, **options):
            count.update(character for character in (reference, predicted) if character)
        errors.append(count)
    characters = sorted(occurrences.keys() | errors[0].keys() | errors[1].keys())
    changes = [CharacterChange(c, occurrences[c], errors[0][c], errors[1][c]) for c in characters]
    return sorted(changes, key=lambda change: (-change.helped, -change.occurrences, change.character))


def worst_lines(
    references: Sequence[str],
    hypotheses: Sequence[str],
    ids: Sequence[str] | None = None,
    domains: Sequence[str | None] | None = None,
    *,
    limit: int | None = 20,
    **options: Unpack[TextOptions],
) -> list[WorstLine]:
    """Lines by falling CER, then by falling number of edits; without `ids`, lines are numbered from 1."""
    lines = score_lines(references, hypotheses, **options)
    cer = lines.cer
    order = np.lexsort((-lines.edits, -cer))[:limit].tolist()
    return [
        WorstLine(
            id=str(i + 1) if ids is None else ids[i],
            domain=None if domains is None else domains[i],
            edits=int(lines.edits[i]),
            cer=float(cer[i]),
            reference=references[i],
            hypothesis=hypotheses[i],
        )
        for i in order
        if lines.edits[i]
    ]
