"""Text with a controlled shift: words of one language, drawn so that domains differ in their letters by a known amount.

Each domain draws words from the same vocabulary, with probabilities tilted by the letters of the word,

    p_d(w)  proportional to  p(w) * exp(sum over letters c of theta_d[c] * count of c in w),

and the tilts theta_d are solved for, so that the letter frequencies of the domains correlate as asked.
"""

import unicodedata
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import islice

import numpy as np
from scipy.sparse import csr_array
from scipy.special import softmax

from fada.errors import FadaError, needing
from fada.text.normalizer import TextNormalizer

LETTERS = TextNormalizer(letters_only=True)
"""How letters are counted for the correlations: spaces would raise every one of them."""

TOLERANCE = 0.01
"""How far the lowest and the highest correlation of the lines may be from what was asked."""

_VOCABULARY_SIZE = 10_000
_RAREST_LETTER = 1e-4
_CORRECTIONS = 6
_EXCHANGES = 4000
_NEWTON_STEPS = 40


@dataclass(frozen=True, eq=False)
class Vocabulary:
    """The words of a language with their probabilities and their letters.

    Args:
        words: W words, most frequent first.
        probabilities: (W,) float64, summing to one.
        letters: the C letters of these words, sorted.
        counts: (W, C) sparse float64, how often each letter stands in each word.
    """

    words: tuple[str, ...]
    probabilities: np.ndarray
    letters: tuple[str, ...]
    counts: csr_array

    @property
    def mean_length(self) -> float:
        """Code points per running word."""
        return float(self.probabilities @ np.array([len(word) for word in self.words]))


@lru_cache(maxsize=4)
def load_vocabulary(language: str) -> Vocabulary:
    """The most frequent words of a language according to `wordfreq`: letters only, in the scripts of the language.

    Words with a letter rarer than one in ten thousand are left out, so that no letter is too rare to be learnt.
    """
    with needing("wordfreq", "synth", "Making synthetic text"):
        import wordfreq
    available = wordfreq.available_languages("best")
    if language not in available:
        raise FadaError(f"no word list for the language {language!r}. Available: {', '.join(sorted(available))}.")
    listed: dict[str, float] = {}
    frequencies = islice(wordfreq.get_frequency_dict(language).items(), 4 * _VOCABULARY_SIZE)  # most frequent first
    for word, frequency in frequencies:
        if LETTERS(word) == word and not unicodedata.category(word[0]).startswith("M"):
            # wordfreq folds the final form of sigma away; Greek readers and writers want it back.
            spelt = word[:-1] + "ς" if len(word) > 1 and word.endswith("σ") else word
            listed[spelt] = listed.get(spelt, 0.0) + frequency
    listed = _in_the_main_scripts(listed)
    letters = _letter_masses(listed)
    rare = {letter for letter, mass in letters.items() if mass < _RAREST_LETTER}
    kept = [(word, f) for word, f in listed.items() if rare.isdisjoint(word)]
    kept = sorted(kept, key=lambda item: (-item[1], item[0]))[:_VOCABULARY_SIZE]
    words = tuple(word for word, _ in kept)
    probabilities = np.array([frequency for _, frequency in kept])
    alphabet = tuple(sorted(set().union(*words)))
    return Vocabulary(words, probabilities / probabilities.sum(), alphabet, _letter_counts(words, alphabet))


def _in_the_main_scripts(listed: Mapping[str, float]) -> dict[str, float]:
    """Drop words with letters of a script that makes up less than a tenth of the running text (foreign words)."""
    masses: dict[str, float] = {}
    for letter, mass in _letter_masses(listed).items():
        masses[_script(letter)] = masses.get(_script(letter), 0.0) + mass
    main = {script for script, mass in masses.items() if mass >= 0.1} | {"COMBINING"}
    return {word: f for word, f in listed.items() if all(_script(c) in main for c in word)}


@lru_cache(maxsize=65536)
def _script(character: str) -> str:
    """The first word of the Unicode name, which is the script for letters: GREEK, ARABIC, CJK, ..."""
    return unicodedata.name(character, "UNKNOWN").split()[0]


def _letter_masses(listed: Mapping[str, float]) -> dict[str, float]:
    masses: dict[str, float] = {}
    for word, frequency in listed.items():
        for letter in word:
            masses[letter] = masses.get(letter, 0.0) + frequency
    total = sum(masses.values())
    return {letter: mass / total for letter, mass in masses.items()}


def _letter_counts(words: Sequence[str], alphabet: Sequence[str]) -> csr_array:
    index = {letter: i for i, letter in enumerate(alphabet)}
    rows = [row for row, word in enumerate(words) for _ in word]
    columns = [index[letter] for word in words for letter in word]
    return csr_array((np.ones(len(rows)), (rows, columns)), shape=(len(words), len(alphabet)))


def correlations_between(lowest: float, highest: float, domains: int) -> np.ndarray:
    """(D, D) correlations that drift from neighbour to neighbour, with the lowest and the highest pair as given.

    The domains are points with squared distances a^2 (t_i - t_j)^2 + b^2: a drift along a line and a trait of each
    domain's own. The first and the last domain are the pair furthest apart. When the range is too wide for evenly
    spaced points, the first ones move together.
    """
    gap = 1 / (domains - 1)
    farthest, nearest = 2 * (1 - lowest), 2 * (1 - highest)
    if nearest < farthest * gap**2:
        positions = np.linspace(0, 1, domains) ** (np.log(nearest / farthest) / (2 * np.log(gap)))
        drift, own = farthest, 0.0
    else:
        positions = np.linspace(0, 1, domains)
        drift = (farthest - nearest) / (1 - gap**2) if domains > 2 else farthest
        own = farthest - drift
    squared = drift * (positions[:, None] - positions[None, :]) ** 2 + own * (1 - np.eye(domains))
    return 1 - squared / 2


def letter_correlations(texts_by_domain: Sequence[Sequence[str]]) -> np.ndarray:
    """(D, D) Pearson correlations between the letter frequencies of the domains' texts."""
    counters = [Counter(LETTERS("".join(texts))) for texts in texts_by_domain]
    letters = sorted(set().union(*counters))
    return _correlate(np.array([[counter[letter] for letter in letters] for counter in counters], dtype=np.float64))


def _correlate(counts: np.ndarray) -> np.ndarray:
    """(D, D) correlations of the rows of letter counts, (D, C), over the letters that occur at all."""
    return np.asarray(np.corrcoef(counts[:, counts.any(axis=0)]))


def draw_lines(
    vocabulary: Vocabulary, lines_per_domain: Sequence[int], pearson: tuple[float, float] | None, seed: int
) -> list[list[str]]:
    """Draw the lines of every domain.

    Words are drawn by systematic sampling (evenly spaced quantiles of the tilted distribution), so that their counts
    are those expected, up to rounding; what rounding leaves is corrected by asking for the opposite error.

    Args:
        lines_per_domain: D numbers of lines.
        pearson: the lowest and the highest correlation between two domains; None for one domain.
        seed: all draws follow from it.

    Returns:
        D lists of lines, words separated by single spaces.
    """
    rng = np.random.default_rng(np.random.SeedSequence(seed, spawn_key=(0,)))
    domains = len(lines_per_domain)
    typical = max(40 / (vocabulary.mean_length + 1), 2.0)
    words_per_line = [
        rng.integers(max(round(0.6 * typical), 1), round(1.4 * typical) + 1, size=n) for n in lines_per_domain
    ]
    draws = [_Draw(rng, int(sizes.sum())) for sizes in words_per_line]
    tilts = _Tilts(vocabulary, domains, rng)

    if pearson is None:
        return [
            _as_lines(vocabulary, draw(vocabulary.probabilities), sizes)
            for draw, sizes in zip(draws, words_per_line, strict=True)
        ]
    wanted = correlations_between(*pearson, domains)
    asked, best, best_miss = wanted.copy(), [], np.inf
    for _ in range(_CORRECTIONS):
        probabilities = tilts.solve(asked)
        drawn = [draw(p) for draw, p in zip(draws, probabilities, strict=True)]
        realised = _correlate(np.array([vocabulary.counts[words].sum(axis=0) for words in drawn]))
        miss = _miss(realised, pearson)
        if miss < best_miss:
            best, best_miss = drawn, miss
        if best_miss < TOLERANCE / 3 or np.abs(tilts.misses(tilts.weights, asked)).max() > TOLERANCE:
            break  # met, or out of reach even in expectation
        asked = np.clip(asked + 0.7 * (wanted - realised), -1.0, 1.0)
    if best_miss > TOLERANCE / 2:
        best_miss = _exchange_words(vocabulary, best, pearson, wanted, rng)
    if best_miss > TOLERANCE:
        raise FadaError(
            f"correlations from {pearson[0]:g} to {pearson[1]:g} between {domains} domains were missed by "
            f"{best_miss:.3f} with {sum(lines_per_domain):,} lines (at most {TOLERANCE:g} is allowed). "
            "Ask for more lines, fewer domains or a narrower range."
        )
    return [_as_lines(vocabulary, words, sizes) for words, sizes in zip(best, words_per_line, strict=True)]


def _miss(realised: np.ndarray, pearson: tuple[float, float]) -> float:
    """How far the lowest and the highest pair of a correlation matrix are from those asked for."""
    pairs = realised[np.triu_indices(len(realised), 1)]
    return float(max(abs(pairs.min() - pearson[0]), abs(pairs.max() - pearson[1])))


def _exchange_words(
    vocabulary: Vocabulary,
    drawn: list[np.ndarray],
    pearson: tuple[float, float],
    wanted: np.ndarray,
    rng: np.random.Generator,
) -> float:
    """Replace words of small sets, in place, as long as that brings the correlations closer; returns what is missed.

    In a few dozen lines chance moves the correlations by more than the tolerance; tilting the probabilities cannot mend
    that.
    """
    counts = np.array([vocabulary.counts[words].sum(axis=0) for words in drawn])
    error = np.abs(_correlate(counts) - wanted).sum()
    for candidate in rng.choice(len(vocabulary.words), size=_EXCHANGES, p=vocabulary.probabilities):
        domain = rng.integers(len(drawn))
        at = rng.integers(len(drawn[domain]))
        before = counts[domain].copy()
        counts[domain] += vocabulary.counts[[candidate]].toarray()[0]
        counts[domain] -= vocabulary.counts[[drawn[domain][at]]].toarray()[0]
        realised = _correlate(counts)
        changed = np.abs(realised - wanted).sum()
        if changed < error:
            error, drawn[domain][at] = changed, candidate
            if _miss(realised, pearson) < TOLERANCE / 3:
                break
        else:
            counts[domain] = before
    return _miss(_correlate(counts), pearson)


class _Draw:
    """Systematic sampling with the same random numbers at every call, so that draws move little when tilts do."""

    def __init__(self, rng: np.random.Generator, words: int) -> None:
        self.quantiles = (np.arange(words) + rng.random()) / words
        self.order = rng.permutation(words)

    def __call__(self, probabilities: np.ndarray) -> np.ndarray:
        cumulative = np.cumsum(probabilities)
        drawn = np.searchsorted(cumulative / cumulative[-1], self.quantiles, side="right")
        return np.minimum(drawn, len(probabilities) - 1)[self.order]


class _Tilts:
    """The tilts of D domains as mixtures of D random directions in letter space; the D x D weights are solved for."""

    def __init__(self, vocabulary: Vocabulary, domains: int, rng: np.random.Generator) -> None:
        self.base = np.log(vocabulary.probabilities)
        self.counts = vocabulary.counts
        directions = rng.standard_normal((domains, len(vocabulary.letters)))
        frequencies = vocabulary.probabilities @ vocabulary.counts
        directions -= (directions @ frequencies / frequencies.sum())[:, None]  # favours no word for its length
        self.word_scores = np.asarray(vocabulary.counts @ directions.T).T  # (D directions, W)
        self.weights = 0.1 * np.eye(domains)

    def probabilities(self, weights: np.ndarray) -> np.ndarray:
        """(D, W) word probabilities of the domains."""
        return softmax(self.base + weights @ self.word_scores, axis=1)

    def solve(self, wanted: np.ndarray) -> np.ndarray:
        """(D, W) word probabilities under which the expected letter frequencies correlate as in `wanted`, (D, D).

        Newton's method with the shortest step that mends all pairs (there are more weights than pairs), halved while it
        makes things worse.
        """
        miss = self.misses(self.weights, wanted)
        for _ in range(_NEWTON_STEPS):
            if np.abs(miss).max() < TOLERANCE / 20:
                break
            gradients = self._correlation_gradients(self.weights)
            damped = gradients @ gradients.T + 1e-6 * np.eye(len(miss))
            step = -(gradients.T @ np.linalg.solve(damped, miss)).reshape(wanted.shape)
            step *= min(1.0, 0.3 / np.abs(step).max())
            for _ in range(5):
                moved = self.misses(self.weights + step, wanted)
                if np.linalg.norm(moved) < np.linalg.norm(miss):
                    self.weights, miss = self.weights + step, moved
                    break
                step /= 2
            else:
                break
        return self.probabilities(self.weights)

    def misses(self, weights: np.ndarray, wanted: np.ndarray) -> np.ndarray:
        """(pairs,) correlation of each pair of domains minus what is wanted."""
        frequencies = self.probabilities(weights) @ self.counts
        return (np.corrcoef(frequencies) - wanted)[np.triu_indices(len(wanted), 1)]

    def _correlation_gradients(self, weights: np.ndarray) -> np.ndarray:
        """(pairs, D * D) derivatives of the correlation of each pair of domains by the weights."""
        domains = len(weights)
        probabilities = self.probabilities(weights)
        centred = probabilities @ self.counts
        centred -= centred.mean(axis=1, keepdims=True)
        norms = np.linalg.norm(centred, axis=1)
        unit = centred / norms[:, None]
        # Derivative of the letter frequencies of domain d by its weights: the covariance of word scores and letters.
        by_weight = [
            (p * (self.word_scores - (self.word_scores @ p)[:, None])) @ self.counts for p in probabilities
        ]  # D times (directions, C)
        rows = []
        for i, j in zip(*np.triu_indices(domains, 1), strict=True):
            row = np.zeros((domains, domains))
            for a, b in ((i, j), (j, i)):
                row[a] = by_weight[a] @ (unit[b] - (unit[a] @ unit[b]) * unit[a]) / norms[a]
            rows.append(row.reshape(-1))
        return np.array(rows)


def _as_lines(vocabulary: Vocabulary, words: np.ndarray, sizes: np.ndarray) -> list[str]:
    ends = np.cumsum(sizes)
    return [
        " ".join(vocabulary.words[i] for i in words[end - size : end]) for end, size in zip(ends, sizes, strict=True)
    ]
