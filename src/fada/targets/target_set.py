"""The character distributions of several domains over one alphabet."""

import logging
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cached_property
from typing import Any

import numpy as np

from fada import distances
from fada.common.tables import Cells
from fada.distances import DISTANCE
from fada.errors import FadaError
from fada.targets import file
from fada.targets.distribution import CharDistribution, in_order
from fada.text.characters import natural_key
from fada.text.counting import count_by_domain
from fada.text.normalizer import TextNormalizer

log = logging.getLogger(__name__)


class TargetSet(Mapping[str, CharDistribution]):
    """The character distribution of every domain (century, region, author), over one alphabet and one normaliser.

    The alphabet is the union over the domains, in code point order. Iteration is in the order the domains were given.
    """

    def __init__(self, domains: Mapping[str, CharDistribution]) -> None:
        if not domains:
            raise FadaError("a target set needs at least one domain.")
        first = next(iter(domains.values()))
        for name, distribution in domains.items():
            if distribution.normalizer != first.normalizer:
                raise FadaError(
                    f"domain {name!r} was counted with another normaliser ({distribution.normalizer.describe()}) than "
                    f"the rest ({first.normalizer.describe()}): count it again with the same one."
                )
        symbols = in_order(symbol for distribution in domains.values() for symbol in distribution.symbols)
        self._domains = {str(name): distribution.over(symbols) for name, distribution in domains.items()}
        if len(self._domains) < len(domains):
            raise FadaError(f"two domains have one name, among {', '.join(map(repr, domains))}.")
        self.symbols: tuple[str, ...] = symbols
        self.normalizer: TextNormalizer = first.normalizer

    @classmethod
    def from_texts(cls, texts: Mapping[str, Iterable[str]], normalizer: TextNormalizer | None = None) -> "TargetSet":
        """Count the texts of every domain: ``TargetSet.from_texts({"13": lines13, "14": lines14})``."""
        return cls({name: _named(name, CharDistribution.from_texts, texts[name], normalizer) for name in texts})

    @classmethod
    def from_pairs(cls, pairs: Iterable[tuple[str, str]], normalizer: TextNormalizer | None = None) -> "TargetSet":
        """Count a stream of (domain, text), read once in constant memory; domains in natural order (9 before 10)."""
        normalizer = normalizer or TextNormalizer()
        return cls.from_counts(count_by_domain(pairs, normalizer), normalizer)

    @classmethod
    def from_counts(cls, counted: Mapping[str, Mapping[str, float]], normalizer: TextNormalizer) -> "TargetSet":
        """Counted characters by domain; domains in natural order."""
        if not counted:
            raise FadaError("no text found to count: every file is empty.")
        names = sorted(counted, key=lambda name: (natural_key(name), name))
        return cls({name: _named(name, CharDistribution.from_counts, counted[name], normalizer) for name in names})

    def __getitem__(self, domain: str) -> CharDistribution:
        try:
            return self._domains[domain]
        except KeyError:
            known = ", ".join(self._domains)
            raise FadaError(f"no domain {domain!r} in these targets, expected one of: {known}.") from None

    def __iter__(self) -> Iterator[str]:
        return iter(self._domains)

    def __len__(self) -> int:
        return len(self._domains)

    def __contains__(self, domain: object) -> bool:
        return domain in self._domains

    def get(self, domain: str, default: CharDistribution | None = None) -> CharDistribution | None:  # type: ignore[override]
        """The distribution of `domain`, or `default`."""
        return self._domains.get(domain, default)

    def of(self, domain: str | None) -> CharDistribution:
        """The distribution of `domain`; for none or an unknown one, that of all domains together."""
        return self.get(domain or "") or self.overall

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, TargetSet):
            return NotImplemented
        return self.normalizer == other.normalizer and self._domains == other._domains

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"TargetSet({', '.join(self)}; {len(self.symbols)} characters, {self.normalizer.describe()})"

    @property
    def domains(self) -> tuple[str, ...]:
        return tuple(self._domains)

    @cached_property
    def overall(self) -> CharDistribution:
        """All domains pooled: the distribution of the whole text they were counted on."""
        return CharDistribution.summed([*self.values()])

    def merge(self, other: "TargetSet") -> "TargetSet":
        """The union of two sets; the counts of a domain in both are added, so merging is exact and associative."""
        if other.normalizer != self.normalizer:
            raise FadaError(
                f"sets counted with different normalisers cannot be merged: {self.normalizer.describe()} and "
                f"{other.normalizer.describe()}."
            )
        symbols = tuple(dict.fromkeys((*self.symbols, *other.symbols)))
        merged = {}
        for name in dict.fromkeys((*self, *other)):
            merged[name] = CharDistribution.summed(
                [targets[name].over(symbols) for targets in (self, other) if name in targets]
            )
        return TargetSet(merged)

    @classmethod
    def side_by_side(cls, sets: Mapping[str, "TargetSet"]) -> "TargetSet":
        """All domains of several named sets in one, called ``set: domain`` if there are several sets."""
        if len(sets) == 1:
            return next(iter(sets.values()))
        return cls({f"{label}: {name}": p for label, targets in sets.items() for name, p in targets.items()})

    def with_domain(self, name: str, distribution: CharDistribution) -> "TargetSet":
        """The set with one domain added or replaced."""
        return TargetSet({**self._domains, name: distribution})

    def mix(self, weights: Mapping[str, float]) -> CharDistribution:
        """A mixture of domains, for a text between them: ``targets.mix({"13": 0.7, "14": 0.3})``."""
        return CharDistribution.mixture([(self[name], weight) for name, weight in weights.items()])

    @cached_property
    def frequencies(self) -> np.ndarray:
        """(domains, n) relative frequencies."""
        return np.stack([p.frequencies for p in self.values()])

    def rows(self, level: float = 0.95) -> list[Cells]:
        """One row per domain and character, for tables: count, frequency, its standard error and interval."""
        return [
            {
                "domain": name,
                "character": symbol,
                "count": count,
                "frequency": frequency,
                "standard_error": error,
                "low": low,
                "high": high,
            }
            for name, p in self.items()
            for symbol, count, frequency, error, (low, high) in zip(
                p.symbols,
                p.counts.tolist(),
                p.frequencies.tolist(),
                p.standard_errors.tolist(),
                p.intervals(level).tolist(),
                strict=True,
            )
        ]

    def pearson(self) -> np.ndarray:
        """(domains, domains) Pearson correlation of the frequencies over the shared alphabet.

        Where it is not defined (all characters equally frequent) it is 1 between equal rows and 0 otherwise.
        """
        rows = self.frequencies
        centred = rows - rows.mean(axis=1, keepdims=True)
        lengths = np.linalg.norm(centred, axis=1, keepdims=True)
        directions = np.divide(centred, lengths, out=np.zeros_like(rows), where=lengths > 1e-15)
        equal = np.array([(rows == row).all(axis=1) for row in rows])
        return np.where(equal, 1.0, np.clip(directions @ directions.T, -1, 1))

    def distances(self, distance: str = DISTANCE) -> np.ndarray:
        """(domains, domains) distance of the row's domain from the column's."""
        measure = distances.get(distance)
        rows = self.frequencies
        return np.stack([measure(q, rows) for q in rows])

    @property
    def records(self) -> file.TargetRecords:
        """What a target file holds of these targets."""
        counts = {name: dict(zip(p.symbols, (p.counted or p).counts.tolist(), strict=True)) for name, p in self.items()}
        return file.TargetRecords(self.normalizer, counts, {name: dict(p.edits) for name, p in self.items() if p.edits})

    @classmethod
    def from_records(cls, records: file.TargetRecords) -> "TargetSet":
        domains = {}
        for name, counts in records.domains.items():
            counted = CharDistribution(tuple(counts), np.array([*counts.values()]), records.normalizer)
            domains[name] = counted.edited(records.edits.get(name, {}))
        return cls(domains)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the target file: JSON, readable, editable by hand."""
        file.write(path, self.records)

    @classmethod
    def load(cls, path: str | os.PathLike[str], *, normalize: bool = False) -> "TargetSet":
        """Read a target file; what is wrong in it is named with its line.

        Args:
            path: the file.
            normalize: rescale frequencies that do not sum to one instead of refusing them.
        """
        records = file.read(path, normalize=normalize)
        if records.by_hand:
            log.info(
                "%s was changed by hand: what was counted is not known, so only the distance follows the change. "
                "`fada targets edit` makes it act on each character.",
                path,
            )
        return cls.from_records(records)


def _named(domain: str, count: Callable[..., CharDistribution], *given: Any) -> CharDistribution:
    """A distribution that is counted, its domain named in what is wrong with it."""
    try:
        return count(*given)
    except FadaError as error:
        raise FadaError(f"domain {domain!r}: {error}") from None
