"""Back-off models as arrays: what they are, estimated from text, read from ARPA files."""

import gzip
import math
from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from fada.common.files import BROKEN_ARCHIVE
from fada.errors import FadaError

_LOWEST = -1e4
"""Bounds of log-probabilities need not be lower."""
UNKNOWN, END = 0, 1
"""Numbers of the unknown character and of the end of a line in every component; the vocabulary follows."""

_ARPA_SPACES = ("<space>", "▁", "<sp>", "|")
_LONGEST_GRAM, _LONGEST_LINE = 100, 2**16
"""Words of an n-gram in an ARPA file, and characters of its line, at most."""


@dataclass(frozen=True, eq=False)
class Component:
    """One back-off model: its vocabulary and its automaton.

    Args:
        vocabulary: characters; number `i` has the identity `i + 2`.
        first: (states + 1,) int64 where the arcs of each state start. State 0 is the empty context (the root) and has
            one arc for every identity.
        character, log_prob, target: (arcs,) int32, float64, int32; arcs of a state are in ascending order of character.
        backoff: (states,) float64 log weight of going on in the shorter context.
        suffix: (states,) int32 the shorter context, -1 for the root.
        start: state at the beginning of a line.
        unknown_types: how many different characters share the probability of the unknown one.
    """

    vocabulary: tuple[str, ...]
    first: np.ndarray
    character: np.ndarray
    log_prob: np.ndarray
    target: np.ndarray
    backoff: np.ndarray
    suffix: np.ndarray
    start: int
    unknown_types: int = 1

    @cached_property
    def identities(self) -> dict[str, int]:
        """The number of each character."""
        return {c: i + 2 for i, c in enumerate(self.vocabulary)}

    def encode(self, text: str) -> np.ndarray:
        """(len(text),) int32 identities."""
        points = np.frombuffer(text.encode("utf-32-le", "surrogatepass"), np.uint32)
        return self._by_point[np.minimum(points, len(self._by_point) - 1)]

    @cached_property
    def _by_point(self) -> np.ndarray:
        """int32 identity of every code point, up to the first beyond the vocabulary."""
        known = {ord(c): identity for c, identity in self.identities.items() if len(c) == 1}
        found = np.full(max(known, default=0) + 2, UNKNOWN, np.int32)
        found[list(known)] = list(known.values())
        return found

    def shares(self, identities: np.ndarray) -> np.ndarray:
        """Log of the share of the arc's probability that belongs to each character: less than 0 for unknown ones."""
        return np.where(identities == UNKNOWN, -math.log(self.unknown_types), 0.0)

    @cached_property
    def highest(self) -> np.ndarray:
        """(states,) no character has a higher log-probability after a context."""
        highest = np.full(len(self.suffix), _LOWEST)
        with_arcs = np.flatnonzero(np.diff(self.first))
        highest[with_arcs] = np.maximum(_LOWEST, np.maximum.reduceat(self.log_prob, self.first[with_arcs]))
        for depth in range(1, int(self.depths.max()) + 1):
            states = np.flatnonzero(self.depths == depth)
            highest[states] = np.maximum(highest[states], self.backoff[states] + highest[self.suffix[states]])
        return highest

    @cached_property
    def ceilings(self) -> np.ndarray:
        """(identities,) how much higher than `highest` the log-probability of a character is in any context.

        For one without an arc this is at most what it is in the shorter context, for `highest` falls by the weight of
        going there or less.
        """
        ceilings = np.full(len(self.vocabulary) + 2, _LOWEST)
        np.maximum.at(ceilings, self.character, self.log_prob - np.repeat(self.highest, np.diff(self.first)))
        return ceilings

    @cached_property
    def depths(self) -> np.ndarray:
        """(states,) how many shorter contexts each has."""
        depths = np.zeros(len(self.suffix), np.int64)
        state = np.arange(len(self.suffix))
        while (state > 0).any():
            depths += state > 0
            state = np.where(state > 0, self.suffix[state], 0)
        return depths


COMPONENT_ARRAYS = ("first", "character", "log_prob", "target", "backoff", "suffix")


def check_component(component: Component, path: Any) -> None:
    """Refuse arrays that would send the compiled code out of bounds."""
    states, arcs, identities = len(component.suffix), len(component.character), len(component.vocabulary) + 2
    first = component.first
    sound = (
        len(first) == states + 1
        and len(component.backoff) == states
        and len(component.log_prob) == len(component.target) == arcs
        and first[0] == 0
        and first[-1] == arcs
        and bool((np.diff(first) >= 0).all())
        and np.array_equal(component.character[: first[1]], np.arange(identities))
        and bool(((component.target >= 0) & (component.target < states)).all())
        and component.suffix[0] == -1
        and bool((component.suffix[1:] >= 0).all() and (component.suffix[1:] < np.arange(1, states)).all())
        and 0 <= component.start < states
        and component.unknown_types >= 1
        and bool(((component.character >= 0) & (component.character < identities)).all())
    )
    if not sound:
        raise FadaError(f"{path}: the arrays of the language model do not fit together; write it again.")


def uniform(vocabulary: tuple[str, ...]) -> Component:
    n = len(vocabulary) + 2
    return Component(
        vocabulary,
        first=np.array([0, n]),
        character=np.arange(n, dtype=np.int32),
        log_prob=np.full(n, -math.log(n)),
        target=np.zeros(n, np.int32),
        backoff=np.zeros(1),
        suffix=np.array([-1], np.int32),
        start=0,
    )


def divided(component: Component, assumed: Component, share: float) -> Component:
    """The probability of every character divided by what `assumed` gives it after the character before, to a power.

    Args:
        assumed: with contexts of one character at least; longer ones are not looked at.
        share: the power, from 0 (nothing is divided) to 1.

    Returns:
        The same automaton with other log-probabilities, which are no longer of probabilities that sum to one.
    """
    contexts, arcs = len(component.suffix), np.diff(component.first)
    last = np.full(contexts, UNKNOWN)
    last[component.target] = component.character
    as_assumed = np.array([UNKNOWN, END, *(assumed.identities.get(c, UNKNOWN) for c in component.vocabulary)])
    state = assumed.target[as_assumed[last]]
    state[0], state[component.start] = 0, assumed.start
    met = np.bincount(state) > 0
    rows = np.stack([_row(assumed, one) for one in np.flatnonzero(met).tolist()])
    row_of = np.cumsum(met) - 1
    learnt = rows[np.repeat(row_of[state], arcs), as_assumed[component.character]]
    learnt[component.character == END] = 0.0
    return replace(component, log_prob=component.log_prob - share * learnt)


def _row(component: Component, state: int) -> np.ndarray:
    """(identities,) log-probability of every character in a context of one character, or of none."""
    row = component.log_prob[: component.first[1]].copy()
    if state > 0:
        row += component.backoff[state]
        arcs = slice(component.first[state], component.first[state + 1])
        row[component.character[arcs]] = component.log_prob[arcs]
    return row


class _Grams(NamedTuple):
    """The distinct n-grams of one length that end in a predicted character."""

    of_position: np.ndarray
    """(positions,) the n-gram that ends at each position, -1 if the line is too short before it."""
    context: np.ndarray
    """(grams,) the (n-1)-gram before the last character."""
    character: np.ndarray
    """(grams,) the last character."""
    suffix: np.ndarray
    """(grams,) the (n-1)-gram without the first character."""
    occurrences: np.ndarray
    """(grams,) how often."""
    at_start: np.ndarray
    """(grams,) bool whether it begins with the start of a line."""


def train(lines: list[str], order: int, smoothing: str, further: Iterable[str]) -> Component:
    joined = "".join(lines)
    vocabulary = tuple(sorted({*joined, *"".join(further)}))
    identities = len(vocabulary) + 2
    start_mark = identities
    lookup = np.array([ord(c) for c in vocabulary])
    points = np.frombuffer(joined.encode("utf-32-le", "surrogatepass"), np.uint32)
    ends = np.cumsum([len(line) for line in lines])
    # Every line becomes: start mark, its characters, end.
    between = [END, start_mark]
    stream = np.insert(np.searchsorted(lookup, points) + 2, np.repeat(ends, 2), between * len(lines))
    stream = np.concatenate([[start_mark], stream[:-1]])
    starts = np.flatnonzero(stream == start_mark)
    position = np.arange(len(stream)) - np.repeat(starts, np.diff(starts, append=len(stream)))
    levels = _count_grams(stream, position, order, identities)
    root = np.bincount(stream[position > 0], minlength=identities).astype(np.float64)

    # Probabilities, shortest context first; every longer n-gram's suffix is among the shorter ones.
    estimate = _witten_bell if smoothing == "witten-bell" else _kneser_ney
    counts = [root, *(level.occurrences.astype(np.float64) for level in levels)]
    if smoothing == "kneser-ney":
        for i in range(len(levels)):
            distinct = np.bincount(levels[i].suffix, minlength=len(counts[i])).astype(np.float64)
            kept = levels[i - 1].at_start if i > 0 else np.zeros(len(root), bool)
            counts[i] = np.where(kept, counts[i], distinct)
        counts[0][UNKNOWN] = 0
    log_probs, backoffs = [], []
    probability = np.full(identities, 1 / identities)
    for i, count in enumerate(counts):
        context = levels[i - 1].context if i else np.zeros(identities, np.int64)
        contexts = 1 if i == 0 else identities + 1 if i == 1 else len(levels[i - 2].occurrences)
        lower = probability[levels[i - 1].suffix] if i else probability
        probability, weight = estimate(count, context, contexts, lower)
        log_probs.append(np.log(probability))
        backoffs.append(np.log(weight))

    # States: the root, then single characters (the start mark among them), then longer contexts.
    state_sizes = [1, identities + 1, *(len(level.occurrences) for level in levels)][:order]
    offsets = np.cumsum([0, *state_sizes])
    first, suffix, target = [np.bincount(np.zeros(identities, np.int64), minlength=1)], [np.array([-1])], []
    target.append(offsets[1] + np.arange(identities) if order > 1 else np.zeros(identities, np.int64))
    for i, level in enumerate(levels):
        first.append(np.bincount(level.context, minlength=state_sizes[i + 1]))
        suffix.append(np.zeros(identities + 1, np.int64) if i == 0 else offsets[i] + levels[i - 1].suffix)
        longest = i + 2 == order
        target.append(offsets[i + 1] + level.suffix if longest else offsets[i + 2] + np.arange(len(level.occurrences)))
    return Component(
        vocabulary,
        first=np.concatenate([[0], np.cumsum(np.concatenate(first))]).astype(np.int64),
        character=np.concatenate([np.arange(identities), *(level.character for level in levels)]).astype(np.int32),
        log_prob=np.concatenate(log_probs),
        target=np.concatenate(target).astype(np.int32),
        backoff=np.concatenate(backoffs),
        suffix=np.concatenate(suffix).astype(np.int32),
        start=int(offsets[1] + start_mark) if order > 1 else 0,
    )


def _count_grams(stream: np.ndarray, position: np.ndarray, order: int, identities: int) -> list[_Grams]:
    """Distinct n-grams of length 2 to `order`."""
    levels: list[_Grams] = []
    shorter = stream
    for n in range(2, order + 1):
        at = np.flatnonzero(position >= n - 1)
        keys = shorter[at - 1].astype(np.int64) * (identities + 1) + stream[at]
        distinct, inverse, count = np.unique(keys, return_inverse=True, return_counts=True)
        of_position = np.full(len(stream), -1, np.int64)
        of_position[at] = inverse
        suffix = np.empty(len(distinct), np.int64)
        suffix[inverse] = shorter[at]
        at_start = np.zeros(len(distinct), bool)
        at_start[inverse[position[at] == n - 1]] = True
        levels.append(
            _Grams(of_position, distinct // (identities + 1), distinct % (identities + 1), suffix, count, at_start)
        )
        shorter = of_position
    return levels


def _witten_bell(
    count: np.ndarray, context: np.ndarray, contexts: int, lower: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Interpolated Witten-Bell: P = (c + t · P_lower) / (c_total + t), with t distinct characters seen in context."""
    total = np.bincount(context, count, contexts)
    distinct = np.bincount(context, count > 0, contexts)
    norm = np.maximum(total + distinct, 1)
    weight = np.where(total > 0, distinct / norm, 1.0)
    return (count + distinct[context] * lower) / norm[context], weight


def _kneser_ney(
    count: np.ndarray, context: np.ndarray, contexts: int, lower: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Interpolated modified Kneser-Ney: three discounts, for counts of one, two, and more."""
    n1, n2, n3, n4 = (float((count == k).sum()) for k in (1, 2, 3, 4))
    y = n1 / (n1 + 2 * n2) if n1 else 0.5
    raw = [k - (k + 1) * y * more / some if some else 0.5 for k, some, more in ((1, n1, n2), (2, n2, n3), (3, n3, n4))]
    discounts = np.clip([0.0, *raw], [0, 0.1, 0.1, 0.1], [0, 0.9, 1.9, 2.9])
    discount = np.minimum(discounts[np.minimum(count, 3).astype(np.int64)], count)
    total = np.bincount(context, count, contexts)
    norm = np.where(total > 0, total, 1.0)
    weight = np.where(total > 0, np.bincount(context, discount, contexts) / norm, 1.0)
    return (count - discount) / norm[context] + weight[context] * lower, weight


def read_arpa(path: Path, space: str | None) -> Component:
    grams: list[dict[tuple[str, ...], tuple[float, float]]] = []
    section = 0
    try:
        opener = gzip.open if path.suffix == ".gz" else open
        with opener(path, "rt", encoding="utf-8") as file:
            for number, raw in enumerate(iter(lambda: file.readline(_LONGEST_LINE), ""), 1):
                line = raw.strip("\n\r\t ")
                if line.startswith("\\"):
                    head = line[1:].partition("-")[0]
                    section = int(head) if head.isdecimal() else 0
                    if section > _LONGEST_GRAM:
                        raise FadaError(f"{path}, line {number}: n-grams of {section} words, which no model needs.")
                    if section:
                        grams += [{} for _ in range(section - len(grams))]
                elif section and line:
                    fields = line.split()
                    try:
                        value = float(fields[0])
                        weight = float(fields[section + 1]) if len(fields) > section + 1 else 0.0
                        gram = tuple(fields[1 : section + 1])
                        if len(gram) != section or not (value < math.inf and weight < math.inf):
                            raise IndexError
                    except (ValueError, IndexError):
                        raise FadaError(
                            f"{path}, line {number}: {line!r}, expected a log-probability, {section} words and "
                            "optionally a back-off weight."
                        ) from None
                    grams[section - 1][gram] = value * math.log(10), weight * math.log(10)
    except (OSError, UnicodeDecodeError, *BROKEN_ARCHIVE) as error:
        raise FadaError(f"{path}: cannot be read as an ARPA file ({error}).") from None
    if not grams or not grams[0]:
        raise FadaError(f"{path}: no n-grams found, expected an ARPA file.")
    words = {w for (w,) in grams[0]}
    if space is None:
        space = next((s for s in _ARPA_SPACES if s in words), None)
    spelling = {"<unk>": UNKNOWN, "<UNK>": UNKNOWN, "</s>": END}
    characters = {w: " " if w == space else w for w in words if w != "<s>" and w not in spelling}
    wrong = sorted(w for w, c in characters.items() if len(c) != 1)
    if wrong:
        raise FadaError(
            f"{path}: the word {wrong[0]!r} is not a single character; expected a character model, with spaces written "
            f"as {_ARPA_SPACES[0]} (or pass space=...)."
        )
    vocabulary = tuple(sorted(characters.values()))
    number_of = {c: i + 2 for i, c in enumerate(vocabulary)}
    spelling.update({w: number_of[c] for w, c in characters.items()})
    spelling["<s>"] = len(vocabulary) + 2
    if unlisted := {w for level in grams for words in level for w in words} - {*spelling}:
        raise FadaError(f"{path}: {min(unlisted)!r} is in a longer n-gram, but not among those of one word.")
    coded = [{tuple(spelling[w] for w in words): v for words, v in level.items()} for level in grams]
    return from_grams(vocabulary, coded)


def _backed_off(
    arcs: dict[tuple[int, ...], dict[int, float]],
    backoff: dict[tuple[int, ...], float],
    context: tuple[int, ...],
    c: int,
) -> float:
    """Log-probability of a character that has no n-gram after a context."""
    value = 0.0
    while c not in arcs.get(context, {}):
        value += backoff.get(context, 0.0)
        context = context[1:]
    return value + arcs[context][c]


def from_grams(vocabulary: tuple[str, ...], grams: list[dict[tuple[int, ...], tuple[float, float]]]) -> Component:
    """The automaton of back-off n-grams given as (log-probability, log back-off weight)."""
    identities = len(vocabulary) + 2
    floor = -100 * math.log(10)
    arcs: dict[tuple[int, ...], dict[int, float]] = {(): {}}
    backoff: dict[tuple[int, ...], float] = {(): 0.0}
    for level in grams:
        for words, (value, weight) in level.items():
            if words[-1] != identities:
                arcs.setdefault(words[:-1], {})[words[-1]] = value
            if len(words) < len(grams):
                backoff[words] = weight
    arcs[()] = {c: arcs[()].get(c, floor) for c in range(identities)}
    for words in sorted({*arcs, *backoff}, key=len):  # every context is an n-gram too
        for end in range(1, len(words) + 1):
            context, last = words[: end - 1], words[end - 1]
            if last != identities and last not in arcs.setdefault(context, {}):
                arcs[context][last] = _backed_off(arcs, backoff, context, last)
    contexts = sorted({*arcs, *backoff}, key=lambda words: (len(words), words))
    state = {words: i for i, words in enumerate(contexts)}

    def longest(words: tuple[int, ...]) -> int:
        while words not in state:
            words = words[1:]
        return state[words]

    rows = [sorted(arcs.get(words, {}).items()) for words in contexts]
    return Component(
        vocabulary,
        first=np.cumsum([0] + [len(row) for row in rows]),
        character=np.array([c for row in rows for c, _ in row], np.int32),
        log_prob=np.array([value for row in rows for _, value in row]),
        target=np.array(
            [longest((*words, c)) for words, row in zip(contexts, rows, strict=True) for c, _ in row], np.int32
        ),
        backoff=np.array([backoff.get(words, 0.0) for words in contexts]),
        suffix=np.array([longest(words[1:]) if words else -1 for words in contexts], np.int32),
        start=longest((identities,)),
    )
