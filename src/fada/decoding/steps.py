"""From model symbols to counted characters: what appending a symbol does to the normalised text of a hypothesis.

Most symbols simply append one character. But a symbol may hold several characters or none, and what it adds can depend
on what stands before it: a combining mark joins the previous letter under NFC, a second space vanishes when spaces are
collapsed. The part of a text that can still change is its *tail*: from the last character on that nothing appended can
alter. Tails are the states of a small automaton; its steps (characters removed, characters added) are found by asking
the normaliser itself, in advance for single marks, on demand for piles of them.
"""

import unicodedata
from collections.abc import Sequence
from functools import cached_property, lru_cache
from threading import RLock
from typing import NamedTuple

import numpy as np

from fada.decoding.guidance import Constraint
from fada.decoding.kernels.programs import hash_slot
from fada.decoding.kernels.records import EMPTY, GENERAL, KEEP, NO_CHARACTER, TableArrays
from fada.text.characters import OTHER, joins_previous
from fada.text.normalizer import TextNormalizer

_PREPARED_STEPS = 20_000
_REORDERED = 4
"""The most characters a mark can change before it: a letter with three marks, for Unicode composes no longer ones."""
_JOINING_AT_ONCE = 100
"""Up to so many classes that join what is before them are learnt for a tail together."""
_ROUNDED = 1e-9
"""More than sums of weights are wrong by."""
_JOINED_PAIRS = 1_000_000


@lru_cache(maxsize=65536)
def _starts_with_space(character: str) -> bool:
    return unicodedata.normalize("NFKD", character)[0].isspace()


class Step(NamedTuple):
    """The effect of one symbol on the normalised text."""

    removed: str
    added: str
    tail: str


class SymbolSteps:
    """The automaton of tails for a set of symbols under one normaliser.

    Args:
        symbols: (V,) the text of each class; that of the blank is ignored.
        blank: index of the blank class.
        normalizer: how hypotheses are counted.
    """

    def __init__(self, symbols: Sequence[str], blank: int, normalizer: TextNormalizer) -> None:
        self.symbols = tuple(symbols)
        self.blank = blank
        self.normalizer = normalizer
        self._collapses = normalizer.spaces == "collapse" and not normalizer.letters_only
        self.has_marks = any(map(joins_previous, "".join(self.writable)))
        # A mark may join a letter from which it is parted only by characters that the normaliser drops.
        self._joins_over_gaps = self.has_marks and (normalizer.letters_only or normalizer.spaces == "drop")

    def _is_open(self, character: str) -> bool:
        """Whether a character's effect depends on what stands before it."""
        return joins_previous(character) or (self._collapses and _starts_with_space(character))

    def _is_gap(self, character: str) -> bool:
        return self._joins_over_gaps and not self.normalizer(character)

    def depends_on_context(self, symbol: str) -> bool:
        """Whether the effect of a symbol depends on the text before it, also where no space is pending."""
        return symbol != "" and (self._is_open(symbol[0]) or self._is_gap(symbol[0]))

    def tail(self, text: str) -> str:
        """The shortest text with the same future as `text`."""
        start = self._last_closed(text)
        tail = text[start:]
        if start > 0 and self._is_gap(text[start]):
            before = self.normalizer(text[:start])
            return before[self._last_closed(before) :] + tail
        if self._collapses and tail[-1:].isspace():
            return "x " if self.normalizer(tail) else " "
        return tail

    def _last_closed(self, text: str) -> int:
        """Where the last character stands that does not depend on what is before it."""
        start = len(text) - 1
        while start > 0 and self._is_open(text[start]):
            start -= 1
        return max(start, 0)

    def step(self, tail: str, symbol: str) -> Step:
        """What appending `symbol` to a text with this tail removes and adds, in normalised characters."""
        before, after = self.normalizer(tail), self.normalizer(tail + symbol)
        same = 0
        while same < min(len(before), len(after)) and before[same] == after[same]:
            same += 1
        return Step(before[same:], after[same:], self.tail(tail + symbol))

    def is_irregular(self, tail: str) -> bool:
        """Whether every symbol's effect depends on this tail: a space is pending, and counts only before a letter."""
        return self._collapses and tail == "x "

    @cached_property
    def writable(self) -> tuple[str, ...]:
        """All symbols that can be written, without the blank's."""
        return tuple(s for i, s in enumerate(self.symbols) if i != self.blank)

    @cached_property
    def characters(self) -> set[str]:
        """Every character that the normalised text of a hypothesis can contain; `OTHER` if they are too many."""
        raw = {c for symbol in self.writable for c in unicodedata.normalize("NFC", symbol)}
        joining = {c for symbol in self.writable for c in symbol if joins_previous(c)}
        found, frontier = set(raw), raw
        while frontier and joining:
            if len(frontier) * len(joining) > _JOINED_PAIRS:
                return {OTHER}
            composed = {unicodedata.normalize("NFC", c + mark) for c in frontier for mark in joining}
            frontier = {c for text in composed for c in text} - found
            found |= frontier
        forms = {form for c in found for form in self.normalizer(c)}
        return forms | set(self.normalizer("x x")) - {"x"} if any(map(_starts_with_space, found)) else forms


class StepTable:
    """The steps as arrays for the compiled search, over one alphabet and one constraint; it grows when asked to.

    A symbol whose effect is always one character of the alphabet has its position in `cell`; the others (`GENERAL`)
    are looked up by tail and class in an open-addressing hash and run as a program: `-(1 + cell)` removes, `1 + cell`
    adds a character.
    """

    def __init__(self, steps: SymbolSteps, alphabet: Sequence[str], constraint: Constraint) -> None:
        self.steps = steps
        self.constraint = constraint
        self._cells = {c: i for i, c in enumerate(alphabet)}
        self._other = self._cells.get(OTHER, -1)
        self._states: dict[str, int] = {"": 0}
        self._tails = [""]
        self._known: dict[int, int] = {}
        self._programs: list[tuple[tuple[int, ...], int, bool]] = []
        self.lock = RLock()
        """Held while the table grows; hold it to read several of its attributes as of one moment."""
        self._arrays: TableArrays | None = None
        self._classify()

    @property
    def size(self) -> int:
        """Number of characters in the alphabet."""
        return len(self._cells)

    @property
    def has_programs(self) -> bool:
        """Whether some step is more than the addition of one character."""
        return len(self.arrays.next_state) > 0

    @property
    def arrays(self) -> TableArrays:
        """What the search reads; the first to ask waits until the steps are prepared."""
        with self.lock:
            if self._arrays is None:
                self._arrays = self._prepared()
            return self._arrays

    def _classify(self) -> None:
        steps, symbols = self.steps, self.steps.symbols
        V = len(symbols)
        self.cell = np.full(V, NO_CHARACTER, np.int32)
        self.reset = np.zeros(V, np.int32)
        self.joins = np.array([steps.depends_on_context(s) for s in symbols])
        self.joins[steps.blank] = False
        # A mark is judged together with the letter it joins, when its step is learnt.
        self.blocked = np.array(
            [c == steps.blank or not (self.joins[c] or self.constraint.permits(s)) for c, s in enumerate(symbols)]
        )
        self.follows_tails = bool(self.joins.any()) or any(
            steps.is_irregular(steps.tail(s)) for c, s in enumerate(symbols) if c != steps.blank
        )
        for c, symbol in enumerate(symbols):
            if c == steps.blank or symbol == "":
                self.reset[c] = KEEP
                continue
            if self.follows_tails:
                self.reset[c] = self._state(steps.tail(symbol))
            added = steps.normalizer(symbol)
            if self.joins[c] or len(added) > 1:
                self.cell[c] = GENERAL
            elif added:
                self.cell[c] = self._cell_of(added)
        # Bounds that also hold for steps not learnt yet: a pending space, a letter taken apart and put together again.
        reordered = _REORDERED if steps.has_marks else 0
        self.further_added = max(reordered, int(self.follows_tails))
        self.most_removed = reordered
        self.lengths = np.array([len(steps.normalizer(s)) for s in symbols])
        self.lengths[steps.blank] = 0
        self.most_added = max(1, int(self.lengths.max())) + self.further_added

    def _prepared(self) -> TableArrays:
        steps, V = self.steps, len(self.steps.symbols)
        for general in np.flatnonzero(self.cell == GENERAL).tolist():
            self._learn(general)
        joining = np.flatnonzero(self.joins)
        if len(joining) * len(self._tails) <= _PREPARED_STEPS:
            for key in [s * V + int(c) for s in range(len(self._tails)) for c in joining]:
                self._learn(key)
        for state in [s for s, tail in enumerate(self._tails) if steps.is_irregular(tail)]:
            for c in range(V):
                if c != steps.blank:
                    self._learn(state * V + c)
        return self._packed()

    def _cell_of(self, character: str) -> int:
        cell = self._cells.get(character, self._other)
        if cell < 0:
            raise AssertionError(f"{character!r} is missing from the alphabet")
        return cell

    def _state(self, tail: str) -> int:
        if tail not in self._states:
            self._states[tail] = len(self._tails)
            self._tails.append(tail)
        return self._states[tail]

    def _learn(self, key: int) -> None:
        if key in self._known:
            return
        state, c = divmod(key, len(self.steps.symbols))
        tail, symbol = self._tails[state], self.steps.symbols[c]
        removed, added, after = self.steps.step(tail, symbol)
        operations = [-1 - self._cell_of(x) for x in removed] + [1 + self._cell_of(x) for x in added]
        self._known[key] = len(self._programs)
        next_state = self._state(after) if self.follows_tails else 0
        judged = symbol if self.steps.is_irregular(tail) else tail + symbol
        self._programs.append((tuple(operations), next_state, not self.constraint.permits(judged)))

    def extend(self, keys: Sequence[int]) -> None:
        """Add steps that a search asked for (tail · V + class) and could not find, and the others after the same tails:
        then it is known what can be gained there.
        """
        with self.lock:
            V, joining = len(self.steps.symbols), np.flatnonzero(self.joins).tolist()
            for key in keys:
                self._learn(int(key))
                for c in joining if len(joining) <= _JOINING_AT_ONCE else []:
                    self._learn(int(key) // V * V + c)
            self._arrays = self._packed()

    def most_gained(self, cell_weight: np.ndarray) -> np.ndarray:
        """(targets, tails) the most that a step that must be looked up can add to the score beyond the weight of its
        class, given the weights of characters (targets, n); where some are not learnt yet, the most of any.
        """
        arrays, V, tails = self.arrays, len(self.steps.symbols), len(self._tails)
        most, least = np.maximum(cell_weight.max(1), 0), np.minimum(cell_weight.min(1), 0)
        any_step = most * (self.lengths.max() + self.further_added) - self.most_removed * least
        cells = np.abs(arrays.operations) - 1
        sums = np.cumsum(np.sign(arrays.operations) * cell_weight[:, cells], axis=1)
        sums = np.concatenate([np.zeros((len(sums), 1)), sums], axis=1)[:, arrays.starts]
        known = np.array(list(self._known.items()), np.int64).reshape(-1, 2)
        state, c = np.divmod(known[:, 0], V)
        own = np.where(self.cell >= 0, cell_weight[:, np.maximum(self.cell, 0)], 0.0)
        added = np.diff(sums, axis=1)[:, known[:, 1]] - own[:, c] + _ROUNDED
        found = np.zeros((len(cell_weight), tails))
        for row, gains in zip(found, added, strict=True):
            np.maximum.at(row, state, gains)
        anywhere = ~self.joins[c] & (self.cell[c] == GENERAL)
        found = np.maximum(found, added[:, anywhere].max(axis=1, keepdims=True, initial=0.0))
        wanted = np.where(arrays.irregular, V - 1, np.count_nonzero(self.joins))
        learnt = np.bincount(state[self.joins[c] | arrays.irregular[state]], minlength=tails)
        return np.where(learnt < wanted, any_step[:, None], found)

    def _packed(self) -> TableArrays:
        size = 1 << max(4, (4 * len(self._known)).bit_length())
        keys = np.full(size, EMPTY, np.int64)
        values = np.zeros(size, np.int32)
        for key, program in self._known.items():
            slot = hash_slot.py_func(key, size)
            while keys[slot] != EMPTY:
                slot = (slot + 1) % size
            keys[slot], values[slot] = key, program
        starts = np.zeros(len(self._programs) + 1, np.int32)
        np.cumsum([len(p[0]) for p in self._programs], out=starts[1:])
        return TableArrays(
            cell=self.cell,
            reset=self.reset,
            joins=self.joins,
            irregular=np.array([self.steps.is_irregular(tail) for tail in self._tails]),
            keys=keys,
            programs=values,
            starts=starts,
            operations=np.array([op for p in self._programs for op in p[0]], np.int32),
            next_state=np.array([p[1] for p in self._programs], np.int32),
            refused=np.array([p[2] for p in self._programs], np.bool_),
        )
