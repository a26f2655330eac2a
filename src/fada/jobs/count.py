"""The characters of much text counted in parts, by many machines: counts add up, so nothing is lost by dividing."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from fada.common.say import track
from fada.common.workers import Workers
from fada.errors import FadaError
from fada.jobs.shards import PartNote, Shard, digest
from fada.targets.counts import Corpus
from fada.targets.target_set import TargetSet
from fada.text.counting import count_by_domain
from fada.text.normalizer import TextNormalizer


@dataclass(frozen=True)
class Counting:
    """What is counted, and how.

    Attributes:
        sources: see :class:`fada.targets.counts.Corpus`.
        normalizer: what is counted as which character.
        everything: count the texts of validation and test too.
        reading: how the sources are read.
    """

    sources: Sequence[str]
    normalizer: TextNormalizer
    everything: bool = False
    reading: Mapping[str, Any] = field(default_factory=dict)

    def corpus(
        self, on_bytes: Callable[[int], object] = lambda size: None, wanted: Callable[[int], bool] | None = None
    ) -> Corpus:
        return Corpus(self.sources, everything=self.everything, on_bytes=on_bytes, wanted=wanted, **self.reading)

    def job(self) -> dict[str, Any]:
        """What decides the result."""
        return {"normalizer": self.normalizer.to_dict(), **self.reading, "everything": self.everything}


@dataclass(frozen=True)
class Counted:
    """The counts of a part, by domain: of `count` of `total` files or texts; and what was left out, and why."""

    domains: dict[str, dict[str, int]]
    count: int
    total: int
    unit: str
    notes: list[str]

    def save(self, shard: Shard, counting: Counting, out: Path) -> None:
        """Write a part of a target file for `fada merge`; without any text there is only its note."""
        counted = {domain: counts for domain, counts in self.domains.items() if counts}
        out.unlink(missing_ok=True)
        if counted:
            TargetSet.from_counts(counted, counting.normalizer).save(out)
        PartNote(
            shard=shard.number,
            of=shard.of,
            job=digest(counting.job()),
            total=self.total,
            count=self.count if counted else 0,
            positions=None,
            left_out=[],
            unit=self.unit,
            empty=sorted(self.domains.keys() - counted.keys()),
        ).write(out)


def count_part(counting: Counting, shard: Shard, on_bytes: Callable[[int], object] = lambda size: None) -> Counted:
    """Count the characters of one part of the texts.

    With as many files as shards or more, a shard reads and counts every so-many-th file; with fewer it reads all and
    counts every so-many-th text.
    """

    def mine(place: int) -> bool:
        return place % shard.of == shard.number - 1

    files = len(counting.corpus().files()) if "-" not in counting.sources else 0
    by_file = files >= shard.of
    corpus = counting.corpus(on_bytes, mine if by_file else lambda place: True)
    total = 0

    def texts() -> Iterator[tuple[str, str]]:
        nonlocal total
        for place, pair in enumerate(corpus):
            total = place + 1
            if by_file or mine(place):
                yield pair

    domains = count_by_domain(texts(), counting.normalizer)
    unit, whole = ("files", files) if by_file else ("texts", total)
    return Counted(domains, len(range(shard.number - 1, whole, shard.of)), whole, unit, corpus.notes)


def count_on(workers: Workers, pieces: int, counting: Counting) -> tuple[TargetSet, list[str]]:
    """The target set of all texts, counted piece by piece on workers that can read the sources; and what was left out.

    It is what one process counts, exactly.
    """
    if "-" in counting.sources:
        raise FadaError("standard input can only be read here: write it to a file, or leave --ray out.")
    files = len(counting.corpus().files())
    of = pieces if files < pieces else min(files, 4 * pieces)
    shards = [Shard(number, of) for number in range(1, of + 1)]
    counted = list(track(workers.each(partial(count_part, counting), shards), "counting", total=of))
    notes = list(dict.fromkeys(note for part in counted for note in part.notes))
    return added([part.domains for part in counted], counting.normalizer), notes


def added(parts: Iterable[Mapping[str, Mapping[str, float]]], normalizer: TextNormalizer) -> TargetSet:
    """The target set of counts that are added up."""
    domains: dict[str, dict[str, float]] = {}
    for part in parts:
        for domain, counts in part.items():
            total = domains.setdefault(domain, {})
            for character, count in counts.items():
                total[character] = total.get(character, 0) + count
    if not domains:
        raise FadaError("no text found to count: every part is empty.")
    return TargetSet.from_counts(domains, normalizer)
