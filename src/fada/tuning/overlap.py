"""Validation and test lines are kept apart: weights tuned on test lines make the test worthless."""

import hashlib
import itertools
from collections.abc import Iterable, Sequence
from typing import Protocol

from fada.errors import FadaError
from fada.tuning.tuned import Tuned


class KnownLines(Protocol):
    """Lines with ids and, where they are known, their texts."""

    @property
    def ids(self) -> Sequence[str]:
        """One for each line."""
        ...

    @property
    def references(self) -> Sequence[str] | None:
        """The texts, if they are known."""
        ...


def line_digests(ids: Iterable[str], references: Iterable[str] | None) -> list[str]:
    """A short digest of every line's id and reference."""
    texts = itertools.repeat("") if references is None else references
    pairs = zip(ids, texts, strict=False)
    return [hashlib.sha256(f"{i}\0{t}".encode("utf-8", "surrogatepass")).hexdigest()[:12] for i, t in pairs]


def refuse_overlap(validation: KnownLines, test: KnownLines) -> None:
    """Refuse to tune on lines that will be reported on: the same id, and the same reference where both are known."""
    shared = sorted(set(validation.ids) & set(test.ids))
    if shared and validation.references and test.references:
        first, second = (dict(zip(part.ids, part.references or [], strict=True)) for part in (validation, test))
        shared = [line for line in shared if first[line] == second[line]]
    if shared:
        raise FadaError(
            f"{len(shared)} of {len(test.ids)} test lines are also validation lines, the first is {shared[0]!r}: "
            "weights tuned on test lines make the test worthless. Keep the two apart."
        )


def refuse_seen(tuned: Tuned, lines: KnownLines, source: object) -> None:
    """Refuse to judge weights on lines that they were tuned on."""
    known = set(tuned.evidence.line_digests) if tuned.evidence else set()
    seen = sum(digest in known for digest in line_digests(lines.ids, lines.references))
    if seen:
        raise FadaError(
            f"{source}: the weights were tuned on {seen} of these {len(lines.ids)} lines, so their error rates would "
            "be too good. Evaluate on lines that tuning has not seen."
        )
