"""Character distributions per domain: estimated from text, compared, mixed, edited, saved."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from fada.common.probability import beta_quantile
from fada.errors import FadaError
from fada.text.characters import OTHER, visible
from fada.text.counting import count_characters
from fada.text.normalizer import TextNormalizer


@dataclass(frozen=True, eq=False)
class CharDistribution:
    """How often each character of an alphabet is used, with the counts it was estimated from.

    Args:
        symbols: the alphabet: single code points as the normaliser leaves them, each once; `OTHER` may be the last.
        counts: (n,) non-negative; whole numbers when counted, fractions after editing or mixing.
        normalizer: how text is brought to these characters.
        counted: of an edited distribution, the one that was counted, over the same alphabet.
        edits: the frequencies that were set by hand, by character; the rest of `counts` follows from `counted`.
    """

    symbols: tuple[str, ...]
    counts: np.ndarray
    normalizer: TextNormalizer = field(default_factory=TextNormalizer)
    counted: "CharDistribution | None" = None
    edits: Mapping[str, float] = field(default_factory=dict)

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
        symbols = in_order(counts)
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
        if not 0 < level < 1:
            raise FadaError(f"confidence level {level}, expected a number between 0 and 1, such as 0.95.")
        a, b = self.counts + 0.5, self.total - self.counts + 0.5
        low, high = beta_quantile(a, b, (1 - level) / 2), beta_quantile(a, b, (1 + level) / 2)
        return np.stack([np.where(self.counts > 0, low, 0.0), np.where(self.counts < self.total, high, 1.0)], axis=-1)

    def smoothed(self, alpha: float) -> "CharDistribution":
        """Add `alpha` to the count of every character of the alphabet."""
        if not (np.isfinite(alpha) and alpha >= 0):
            raise FadaError(f"smoothing by {alpha}, expected a number from 0 up, such as 0.5.")
        counted = self.counted or self
        return counted._with_counts(counted.counts + alpha).edited(self.edits)

    def with_frequency(
        self, character: str | Mapping[str, float], frequency: float | None = None
    ) -> "CharDistribution":
        """A new distribution in which one or several characters have the frequencies given, the rest rescaled.

        ``p.with_frequency("e", 0.0)`` or ``p.with_frequency({"e": 0.0, "a": 0.1})``. A character that is not in the
        alphabet is added to it. The total number of characters stays. What was counted is remembered (`counted`), so
        that a decoder knows which characters are meant to be more or less frequent than they were.
        """
        if isinstance(character, str):
            if frequency is None:
                raise FadaError(f"which frequency should {character!r} have? Give it a number from 0 to 1.")
            wanted = {character: frequency}
        else:
            wanted = dict(character)
        fixed = self._checked(wanted)
        before = {c: self.frequency(c) for c in self.edits if c not in wanted}
        free = 1 - sum(self.frequency(c) for c in wanted)
        kept = {c: min(value * (1 - fixed) / free, 1.0) if free > 0 else 0.0 for c, value in before.items()}
        return (self.counted or self).edited({**kept, **wanted})

    def edited(self, edits: Mapping[str, float]) -> "CharDistribution":
        """This counted distribution with the frequencies of `edits`, and the rest rescaled; itself without any."""
        if not edits:
            return self
        edits = {symbol: float(edits[symbol]) for symbol in in_order(edits)}
        fixed = self._checked(edits)
        added = [symbol for symbol in edits if symbol not in self.index and symbol != OTHER]
        other = (OTHER,) if OTHER in self.index or OTHER in edits else ()
        extended = self.over((*self.plain, *added, *other) if added or OTHER in edits else self.symbols)
        chosen = np.array([symbol in edits for symbol in extended.symbols])
        rest = float(extended.counts[~chosen].sum())
        if rest == 0 and fixed < 1 - 1e-12:
            raise FadaError(f"no other characters are left to hold the remaining {1 - fixed:g} of the frequency.")
        scale = (1 - fixed) * self.total / rest if rest else 0.0
        cells = zip(extended.symbols, extended.counts, strict=True)
        counts = np.array([edits[s] * self.total if s in edits else c * scale for s, c in cells])
        return CharDistribution(extended.symbols, counts, self.normalizer, extended, edits)

    def _checked(self, wanted: Mapping[str, float]) -> float:
        """The sum of frequencies to be set, after a look at each."""
        for symbol, value in wanted.items():
            self._check_symbol(symbol)
            if not 0 <= value <= 1:
                raise FadaError(f"frequency of {symbol!r} is {value}, expected a number from 0 to 1.")
        fixed = sum(wanted.values())
        if fixed > 1 + 1e-12:
            raise FadaError(f"the frequencies asked for sum to {fixed:g}, expected at most 1.")
        return fixed

    @property
    def forbidden(self) -> frozenset[str]:
        """The characters that were given the frequency 0."""
        return frozenset(symbol for symbol, frequency in self.edits.items() if frequency == 0 and symbol != OTHER)

    @property
    def edit_weights(self) -> np.ndarray:
        """(n,) log(edited / counted) of the characters whose frequency was set, 0 for all others.

        Measured against the rest, whose frequencies change only because all of them sum to one. A character that was
        never counted counts as half an occurrence; those set to 0 are `forbidden` instead.
        """
        weights = np.zeros(len(self.symbols))
        if self.counted is not None:
            free, was_free = 1 - sum(self.edits.values()), 1 - sum(map(self.counted.frequency, self.edits))
            rest = free / was_free if free > 0 and was_free > 0 else 1.0
            for symbol, frequency in self.edits.items():
                if frequency > 0:
                    before = self.counted.frequency(symbol) or 0.5 / self.total
                    weights[self.index[symbol]] = np.log(frequency / before / rest)
        return weights

    def describe_edits(self) -> str:
        """The edits in words: ``u forbidden, e 0.5 times as often``; empty if nothing was edited."""
        ratio = dict(zip(self.symbols, np.exp(self.edit_weights), strict=True))
        words = {c: "forbidden" if c in self.forbidden else f"{ratio[c]:.3g} times as often" for c in self.edits}
        return ", ".join(f"{visible(c)} {told}" for c, told in words.items())

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
        counts = np.array([self.counts[self.index[s]] if s in self.index else 0.0 for s in symbols])
        counted = self.counted and self.counted.over(symbols)
        return CharDistribution(tuple(symbols), counts, self.normalizer, counted, self.edits)

    def restricted_to(self, alphabet: Iterable[str]) -> "CharDistribution":
        """The distribution over `alphabet` (in its order) plus a last `OTHER` cell that holds everything else."""
        alphabet = tuple(alphabet)
        symbols = {s: 0.0 for s in alphabet if s != OTHER}
        other = 0.0
        for symbol, count in zip(self.symbols, self.counts.tolist(), strict=True):
            if symbol in symbols:
                symbols[symbol] = count
            else:
                other += count
        counts = np.array([*symbols.values(), other])
        counted = self.counted and self.counted.restricted_to(alphabet)
        edits = {s: frequency for s, frequency in self.edits.items() if s in symbols}
        return CharDistribution((*symbols, OTHER), counts, self.normalizer, counted, edits)

    def covering(self, characters: Iterable[str]) -> "CharDistribution":
        """Self, or with an `OTHER` cell of count 0 appended if one of `characters` is outside the alphabet."""
        if OTHER in self.index or all(c in self.index for c in characters):
            return self
        return self.over((*self.symbols, OTHER))

    def vector_of(self, text: str) -> np.ndarray:
        """(n,) relative character frequencies of `text` over this alphabet; zero for an empty text.

        A character outside the alphabet goes to the `OTHER` cell; without such a cell it is an error.
        """
        return self.vectors_of([self.normalizer(text)])[0]

    def vectors_of(self, normal: Sequence[str]) -> np.ndarray:
        """:meth:`vector_of` each of many texts that are normalised already, (texts, n)."""
        n, other = len(self.symbols), self.index.get(OTHER, -1)
        joined = "".join(normal)
        cell_of = {character: self.index.get(character, other) for character in set(joined)}
        if outside := next((character for character, cell in cell_of.items() if cell < 0), ""):
            raise FadaError(f"the character {outside!r} is outside the alphabet: use covering() first.")
        cells = np.array([cell_of[character] for character in joined], np.int64)
        lengths = np.array([len(text) for text in normal], np.int64)
        rows = np.repeat(np.arange(len(normal)), lengths)
        counts = np.bincount(rows * n + cells, minlength=len(normal) * n).reshape(len(normal), n)
        return counts / np.maximum(lengths, 1)[:, None]

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
        result = first._with_counts(np.asarray(mixed) * effective)
        return result._remembering(
            [part for part, _ in parts], lambda counted: cls.mixture([*zip(counted, weights, strict=True)])
        )

    @classmethod
    def summed(cls, parts: Sequence["CharDistribution"]) -> "CharDistribution":
        """The distribution of several bodies of text together, all over one alphabet."""
        total = parts[0]._with_counts(np.sum([part.counts for part in parts], axis=0))
        return total._remembering(parts, cls.summed)

    def _remembering(
        self, parts: Sequence["CharDistribution"], combine: "Callable[[list[CharDistribution]], CharDistribution]"
    ) -> "CharDistribution":
        """This combination of `parts` with the memory of what was edited in them; `combine` is how it was made."""
        edited = {symbol for part in parts for symbol in part.edits}
        if not edited:
            return self
        return combine([part.counted or part for part in parts]).edited({s: self.frequency(s) for s in edited})

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
            and self.counted == other.counted
            and self.edits == other.edits
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


def in_order(symbols: Iterable[str]) -> tuple[str, ...]:
    """The distinct symbols by code point, the `OTHER` cell last."""
    union = set(symbols)
    return (*sorted(union - {OTHER}), *(union & {OTHER}))
