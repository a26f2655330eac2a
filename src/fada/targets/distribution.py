"""Character distributions per domain: estimated from text, compared, mixed, edited, saved."""

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

from fada import distances
from fada.errors import FadaError
from fada.text.counting import count_by_domain, count_characters
from fada.text.normalizer import TextNormalizer, natural_key

OTHER = "<other>"
"""The cell that pools every character outside an alphabet. Never a character of its own."""


@dataclass(frozen=True, eq=False)
class CharDistribution:
    """How often each character of an alphabet is used, with the counts it was estimated from.

    Args:
        symbols: the alphabet: single code points as the normaliser leaves them, each once; `OTHER` may be the last.
        counts: (n,) non-negative; whole numbers when counted, fractions after editing or mixing.
        normalizer: how text is brought to these characters.
    """

    symbols: tuple[str, ...]
    counts: np.ndarray
    normalizer: TextNormalizer = field(default_factory=TextNormalizer)

    def __post_init__(self) -> None:
        counts = np.array(self.counts, dtype=np.float64)
        counts.flags.writeable = False
        object.__setattr__(self, "symbols", tuple(self.symbols))
        object.__setattr__(self, "counts", counts)
        if counts.shape != (len(self.symbols),):
            raise FadaError(f"{len(self.symbols)} characters but counts of shape {counts.shape}.")
        if len(self.index) != len(self.symbols):
            twice = next(s for i, s in enumerate(self.symbols) if s in self.symbols[:i])
            raise FadaError(f"the character {twice!r} stands twice in the alphabet.")
        if not np.all(np.isfinite(counts)) or np.any(counts < 0):
            at = int(np.argmax(~np.isfinite(counts) | (counts < 0)))
            raise FadaError(f"the count of {self.symbols[at]!r} is {counts[at]}, expected a number from 0 up.")
        with np.errstate(over="ignore"):
            total = counts.sum()
        if total <= 0:
            raise FadaError("no characters to estimate a distribution from: every count is zero.")
        if not np.isfinite(total):
            raise FadaError("the counts are too large: their sum is infinite.")

    @classmethod
    def from_texts(cls, texts: Iterable[str], normalizer: TextNormalizer | None = None) -> "CharDistribution":
        """Count the characters of `texts`, an iterable of any length that is read once."""
        normalizer = normalizer or TextNormalizer()
        return cls.from_counts(count_characters(texts, normalizer), normalizer)

    @classmethod
    def from_counts(cls, counts: Mapping[str, float], normalizer: TextNormalizer | None = None) -> "CharDistribution":
        """The distribution of counted characters, its alphabet in code point order (the `OTHER` cell last)."""
        symbols = _alphabet(counts)
        return cls(symbols, np.array([counts[s] for s in symbols]), normalizer or TextNormalizer())

    @property
    def total(self) -> float:
        """The number of characters behind the estimate (after mixing, the effective number)."""
        return float(self.counts.sum())

    @cached_property
    def index(self) -> dict[str, int]:
        """The position of each character in `symbols`."""
        return {symbol: i for i, symbol in enumerate(self.symbols)}

    @cached_property
    def frequencies(self) -> np.ndarray:
        """(n,) float64, summing to one."""
        frequencies = self.counts / self.counts.sum()
        frequencies.flags.writeable = False
        return frequencies

    def frequency(self, character: str) -> float:
        """The relative frequency of one character, 0.0 for one outside the alphabet."""
        at = self.index.get(character)
        return 0.0 if at is None else float(self.frequencies[at])

    @property
    def standard_errors(self) -> np.ndarray:
        """(n,) standard error of each frequency: the posterior standard deviation under Jeffreys' prior.

        Unlike sqrt(p(1-p)/N) it is not zero for a character that was never seen. Neighbouring characters of a text
        depend on each other, so the true uncertainty is somewhat larger.
        """
        a, b = self.counts + 0.5, self.total - self.counts + 0.5
        return np.sqrt(a * b / ((a + b) ** 2 * (a + b + 1)))

    def intervals(self, level: float = 0.95) -> np.ndarray:
        """(n, 2) Jeffreys interval of each frequency: from 0 for a character never seen, to 1 for the only one seen."""
        from scipy.special import betaincinv

        if not 0 < level < 1:
            raise FadaError(f"confidence level {level}, expected a number between 0 and 1, such as 0.95.")
        a, b = self.counts + 0.5, self.total - self.counts + 0.5
        low, high = betaincinv(a, b, (1 - level) / 2), betaincinv(a, b, (1 + level) / 2)
        return np.stack([np.where(self.counts > 0, low, 0.0), np.where(self.counts < self.total, high, 1.0)], axis=-1)

    def smoothed(self, alpha: float) -> "CharDistribution":
        """Add `alpha` to the count of every character of the alphabet."""
        if not (np.isfinite(alpha) and alpha >= 0):
            raise FadaError(f"smoothing by {alpha}, expected a number from 0 up, such as 0.5.")
        return self._with_counts(self.counts + alpha)

    def with_frequency(
        self, character: str | Mapping[str, float], frequency: float | None = None
    ) -> "CharDistribution":
        """A new distribution in which one or several characters have the frequencies given, the rest rescaled.

        ``p.with_frequency("e", 0.0)`` or ``p.with_frequency({"e": 0.0, "a": 0.1})``. A character that is not in the
        alphabet is added to it. The total number of characters stays.
        """
        if isinstance(character, str):
            if frequency is None:
                raise FadaError(f"which frequency should {character!r} have? Give it a number from 0 to 1.")
            wanted = {character: frequency}
        else:
            wanted = dict(character)
        for symbol, value in wanted.items():
            self._check_symbol(symbol)
            if not 0 <= value <= 1:
                raise FadaError(f"frequency of {symbol!r} is {value}, expected a number from 0 to 1.")
        fixed = sum(wanted.values())
        if fixed > 1 + 1e-12:
            raise FadaError(f"the frequencies asked for sum to {fixed:g}, expected at most 1.")
        added = sorted(set(wanted) - set(self.symbols) - {OTHER})
        other = (OTHER,) if OTHER in self.index or OTHER in wanted else ()
        extended = self.over((*self.plain, *added, *other) if added or OTHER in wanted else self.symbols)
        chosen = np.array([symbol in wanted for symbol in extended.symbols])
        rest = float(extended.counts[~chosen].sum())
        if rest == 0 and fixed < 1 - 1e-12:
            raise FadaError(f"no other characters are left to hold the remaining {1 - fixed:g} of the frequency.")
        scale = (1 - fixed) * self.total / rest if rest else 0.0
        counts = np.array(
            [
                wanted[s] * self.total if s in wanted else c * scale
                for s, c in zip(extended.symbols, extended.counts, strict=True)
            ]
        )
        return extended._with_counts(counts)

    def scaled(self, factors: Mapping[str, float]) -> "CharDistribution":
        """A new distribution in which the frequency of each character given is multiplied, the rest rescaled."""
        for symbol, factor in factors.items():
            if not (np.isfinite(factor) and factor >= 0):
                raise FadaError(f"{symbol!r} scaled by {factor}, expected a number from 0 up.")
        return self.with_frequency({c: self.frequency(c) * factor for c, factor in factors.items()})

    @property
    def plain(self) -> tuple[str, ...]:
        """The symbols without the `OTHER` cell."""
        return tuple(s for s in self.symbols if s != OTHER)

    def over(self, symbols: Sequence[str]) -> "CharDistribution":
        """The same counts over an alphabet that contains this one; new characters have the count 0."""
        if tuple(symbols) == self.symbols:
            return self
        known = set(symbols)
        missing = [s for s in self.symbols if s not in known]
        if missing:
            raise FadaError(f"the alphabet lacks {missing[0]!r}: use restricted_to() to pool what is left out.")
        return CharDistribution(
            tuple(symbols),
            np.array([self.counts[self.index[s]] if s in self.index else 0.0 for s in symbols]),
            self.normalizer,
        )

    def restricted_to(self, alphabet: Iterable[str]) -> "CharDistribution":
        """The distribution over `alphabet` (in its order) plus a last `OTHER` cell that holds everything else."""
        symbols = {s: 0.0 for s in alphabet if s != OTHER}
        other = 0.0
        for symbol, count in zip(self.symbols, self.counts.tolist(), strict=True):
            if symbol in symbols:
                symbols[symbol] = count
            else:
                other += count
        return CharDistribution((*symbols, OTHER), np.array([*symbols.values(), other]), self.normalizer)

    def covering(self, characters: Iterable[str]) -> "CharDistribution":
        """Self, or with an `OTHER` cell of count 0 appended if one of `characters` is outside the alphabet."""
        if OTHER in self.index or all(c in self.index for c in characters):
            return self
        return self.over((*self.symbols, OTHER))

    def vector_of(self, text: str) -> np.ndarray:
        """(n,) relative character frequencies of `text` over this alphabet; zero for an empty text.

        A character outside the alphabet goes to the `OTHER` cell; without such a cell it is an error.
        """
        counts = np.zeros(len(self.symbols))
        other = self.index.get(OTHER)
        for character in self.normalizer(text):
            at = self.index.get(character, other)
            if at is None:
                raise FadaError(f"the character {character!r} is outside the alphabet: use covering() first.")
            counts[at] += 1
        return counts / max(counts.sum(), 1.0)

    @classmethod
    def mixture(cls, parts: Sequence[tuple["CharDistribution", float]]) -> "CharDistribution":
        """The weighted mean of distributions over one alphabet; weights are rescaled to sum to one.

        The total becomes the effective number of characters: the one that gives the variance of the mean.
        """
        weights = np.array([weight for _, weight in parts], dtype=np.float64)
        if len(parts) == 0 or not np.all(np.isfinite(weights)) or np.any(weights < 0) or weights.sum() <= 0:
            raise FadaError(f"mixing weights {weights.tolist()}, expected numbers from 0 up, not all zero.")
        weights /= weights.sum()
        first = parts[0][0]
        for part, _ in parts:
            if part.symbols != first.symbols or part.normalizer != first.normalizer:
                raise FadaError("only distributions over one alphabet, counted with one normaliser, can be mixed.")
        mixed = sum(weight * part.frequencies for (part, _), weight in zip(parts, weights, strict=True))
        effective = 1 / sum(weight**2 / part.total for (part, _), weight in zip(parts, weights, strict=True))
        return first._with_counts(np.asarray(mixed) * effective)

    def _with_counts(self, counts: np.ndarray) -> "CharDistribution":
        return CharDistribution(self.symbols, counts, self.normalizer)

    def _check_symbol(self, symbol: str) -> None:
        if fault := misfit(symbol, self.normalizer):
            raise FadaError(fault)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, CharDistribution):
            return NotImplemented
        return (
            self.symbols == other.symbols
            and self.normalizer == other.normalizer
            and np.array_equal(self.counts, other.counts)
        )

    def __hash__(self) -> int:
        return hash((self.symbols, self.counts.tobytes(), self.normalizer))

    def __repr__(self) -> str:
        most = sorted(zip(self.frequencies, self.symbols, strict=True), reverse=True)[:5]
        return f"CharDistribution({len(self.symbols)} characters from {self.total:g}: " + (
            ", ".join(f"{symbol!r} {frequency:.3f}" for frequency, symbol in most) + ", …)"
        )


def misfit(symbol: str, normalizer: TextNormalizer) -> str | None:
    """What is wrong with `symbol` as a cell of a distribution counted with `normalizer`, None if nothing."""
    if symbol == OTHER or normalizer.keeps(symbol):
        return None
    found = f"{symbol!r} cannot occur in text that is counted as {normalizer.describe()}"
    if normalizer.keeps(normalizer(symbol)):
        return f"{found}: did you mean {normalizer(symbol)!r}?"
    return f"{found}: give single characters in that form." if len(symbol) != 1 else f"{found}: leave it out."


def _alphabet(symbols: Iterable[str]) -> tuple[str, ...]:
    union = set(symbols)
    return (*sorted(union - {OTHER}), *(union & {OTHER}))


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
        symbols = _alphabet(symbol for distribution in domains.values() for symbol in distribution.symbols)
        self._domains = {str(name): distribution.over(symbols) for name, distribution in domains.items()}
        if len(self._domains) < len(domains):
            raise FadaError(f"two domains have one name, among {', '.join(map(repr, domains))}.")
        self.symbols: tuple[str, ...] = symbols
        self.normalizer: TextNormalizer = first.normalizer

    @classmethod
    def from_texts(cls, texts: Mapping[str, Iterable[str]], normalizer: TextNormalizer | None = None) -> "TargetSet":
        """Count the texts of every domain: ``TargetSet.from_texts({"13": lines13, "14": lines14})``."""
        domains = {}
        for name, lines in texts.items():
            try:
                domains[name] = CharDistribution.from_texts(lines, normalizer)
            except FadaError as error:
                raise FadaError(f"domain {name!r}: {error}") from None
        return cls(domains)

    @classmethod
    def from_pairs(cls, pairs: Iterable[tuple[str, str]], normalizer: TextNormalizer | None = None) -> "TargetSet":
        """Count a stream of (domain, text), read once in constant memory; domains in natural order (9 before 10)."""
        normalizer = normalizer or TextNormalizer()
        domains = {}
        counted = count_by_domain(pairs, normalizer)
        if not counted:
            raise FadaError("no text found to count: every file is empty.")
        for name in sorted(counted, key=natural_key):
            try:
                domains[name] = CharDistribution.from_counts(counted[name], normalizer)
            except FadaError as error:
                raise FadaError(f"domain {name!r}: {error}") from None
        return cls(domains)

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

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, TargetSet):
            return NotImplemented
        return self.normalizer == other.normalizer and self._domains == other._domains

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"TargetSet({', '.join(self)}; {len(self.symbols)} characters, {self.normalizer.describe()})"

    @property
    def domains(self) -> tuple[str, ...]:
        """The names of the domains."""
        return tuple(self._domains)

    @cached_property
    def overall(self) -> CharDistribution:
        """All domains pooled: the distribution of the whole text they were counted on."""
        return CharDistribution(self.symbols, np.sum([p.counts for p in self.values()], axis=0), self.normalizer)

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
            parts = [targets[name].over(symbols).counts for targets in (self, other) if name in targets]
            merged[name] = CharDistribution(symbols, np.sum(parts, axis=0), self.normalizer)
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

    def frequencies(self) -> np.ndarray:
        """(domains, n) relative frequencies."""
        return np.stack([p.frequencies for p in self.values()])

    def rows(self, level: float = 0.95) -> list[dict[str, Any]]:
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
        rows = self.frequencies()
        centred = rows - rows.mean(axis=1, keepdims=True)
        lengths = np.linalg.norm(centred, axis=1, keepdims=True)
        directions = np.divide(centred, lengths, out=np.zeros_like(rows), where=lengths > 1e-15)
        equal = np.array([(rows == row).all(axis=1) for row in rows])
        return np.where(equal, 1.0, np.clip(directions @ directions.T, -1, 1))

    def distances(self, distance: str = "sorted_w2") -> np.ndarray:
        """(domains, domains) distance of the row's domain from the column's."""
        measure = distances.get(distance)
        rows = self.frequencies()
        return np.stack([measure(q, rows) for q in rows])

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the target file: JSON, readable, editable by hand."""
        from fada.targets.file import save

        save(self, path)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> "TargetSet":
        """Read a target file; what is wrong in it is named with its line."""
        from fada.targets.file import load

        return load(path)
