"""Decoding many lines at once: the arrays of a compiled call, threads that share lines, hypotheses from arrays."""

import math
import os
import sys
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from itertools import repeat
from threading import Lock
from typing import Any, NamedTuple

import numpy as np
from numba import types

from fada.common.say import waiting
from fada.decoding.guidance import Guidance
from fada.decoding.hypothesis import Alignment, Hypothesis
from fada.decoding.kernels import records
from fada.decoding.kernels.align import align_labels, forward_of
from fada.decoding.kernels.automaton import Automaton
from fada.decoding.kernels.ctc import search_lines
from fada.decoding.kernels.distance import ALIGNED_W2
from fada.decoding.kernels.memory import UNFIT, Sizes, WorkSpace, address_of
from fada.decoding.kernels.parts import for_types_of
from fada.decoding.steps import StepTable
from fada.errors import FadaError
from fada.targets.distribution import CharDistribution
from fada.text.alphabet import Alphabet

_LINES_PER_CALL = 256
"""So many lines the main thread decodes before Python may look up: for an interruption, say."""
_FEW_LINES = 16
"""So many it decodes at least."""
_DEPTH, _DEEPEST = 4096, 65_000
"""Room for the highest count of one character at first, and at most (counts are 16 bits wide)."""
_UNKNOWN_AT_ONCE = 4096
_MOST_BEGINNINGS = 256
_UTF_32 = "utf-32-le" if sys.byteorder == "little" else "utf-32-be"


class Classes:
    """The alphabet of a recogniser as arrays, and what can be said of emissions over it."""

    def __init__(self, alphabet: Alphabet) -> None:
        self.symbols, self.blank = alphabet.symbols, alphabet.blank
        self.widths = np.array([len(symbol) for symbol in self.symbols], np.int64)
        """(V,) code points of each symbol."""
        self.starts = np.cumsum(self.widths) - self.widths
        """(V,) where each starts in `codes`."""
        self.codes = np.array([ord(c) for symbol in self.symbols for c in symbol], np.uint32)
        first: dict[str, int] = {}
        named = [(c, symbol) for c, symbol in enumerate(self.symbols) if symbol and c != self.blank]
        self.twins = {c: first[symbol] for c, symbol in named if first.setdefault(symbol, c) != c}
        """Classes that write the same as an earlier one, and that one."""

    def merged(self, log_probs: np.ndarray) -> np.ndarray:
        """The same with the probability of classes that write the same text given to the first of them.

        They are one class from here on: two frames side by side that are read as one and as the other are one
        character, as two frames of one class are; a character that is written twice has a blank in between.
        """
        if not self.twins:
            return log_probs
        merged = log_probs.copy()
        for other, first in self.twins.items():
            merged[:, first] = np.logaddexp(merged[:, first], merged[:, other])
            merged[:, other] = -np.inf
        return merged

    def read(self, log_probs: Any, name: str = "line 0") -> np.ndarray:
        """(T, V) float32 or float64 as the search can read it; refuses what is not log-probabilities of the classes."""
        if not isinstance(log_probs, np.ndarray) and hasattr(log_probs, "detach"):
            log_probs = log_probs.detach().cpu()
            log_probs = (log_probs.float() if log_probs.element_size() < 4 else log_probs).numpy()
        array = np.asarray(log_probs)
        V = len(self.symbols)
        if array.ndim != 2 or array.shape[1] != V:
            hint = " The axes seem to be swapped: pass the transpose." if array.ndim == 2 and len(array) == V else ""
            raise FadaError(
                f"{name}: log-probabilities of shape {array.shape}, expected (frames, {V}) for {V} symbols.{hint}"
            )
        if array.dtype.char not in "fd":
            if array.dtype.kind not in "fiu":
                raise FadaError(f"{name}: log-probabilities of type {array.dtype}, expected float32 or float64.")
            array = array.astype(np.float32 if array.dtype == np.float16 else np.float64)
        return np.require(array, array.dtype.type, ["C", "ALIGNED", "WRITEABLE"])

    def beginnings(self, prefix: str) -> list[tuple[int, ...]]:
        """The shortest label sequences that write `prefix`, or a text that begins with it, without empty labels."""
        written = [
            (c, symbol) for c, symbol in enumerate(self.symbols) if symbol and c != self.blank and c not in self.twins
        ]
        found: list[tuple[int, ...]] = []
        open_: list[tuple[tuple[int, ...], str]] = [((), prefix)]
        while open_:
            labels, rest = open_.pop()
            for c, symbol in written:
                if symbol.startswith(rest):
                    found.append((*labels, c))
                elif rest.startswith(symbol):
                    open_.append(((*labels, c), rest[len(symbol) :]))
            if len(found) + len(open_) > _MOST_BEGINNINGS:
                raise FadaError(
                    f"the prefix {prefix!r} can be written in more than {_MOST_BEGINNINGS} ways with the symbols of "
                    "this model, too many to try each."
                )
        return found

    def without_empty(self, log_probs: np.ndarray) -> np.ndarray:
        """The same with all classes that write nothing taken for blanks, which they are as far as texts go."""
        empty = [c for c, symbol in enumerate(self.symbols) if not symbol and c != self.blank]
        if not empty:
            return log_probs
        changed = log_probs.copy()
        changed[:, self.blank] = np.logaddexp.reduce(log_probs[:, [self.blank, *empty]], axis=1)
        changed[:, empty] = -np.inf
        return changed

    def align(self, log_probs: np.ndarray, labels: Sequence[int]) -> Alignment:
        """Where `labels` stand in `log_probs`, (T, V), on the most probable path."""
        spans = align_labels(log_probs, labels, self.blank)
        frames = tuple((first, last + 1) for first, last in spans.tolist())
        confidences = tuple(
            min(1.0, float(np.exp(log_probs[start:end, c].max())))
            for c, (start, end) in zip(labels, frames, strict=True)
        )
        return Alignment(frames, confidences, tuple(len(self.symbols[c]) for c in labels), len(log_probs))


class TargetRow(NamedTuple):
    """What one target contributes to the score arrays."""

    target: CharDistribution
    guidance: Guidance
    table: StepTable
    cell_weight: np.ndarray


class LanguageTerm(NamedTuple):
    """A language model over the classes, and its weight."""

    automaton: Automaton
    weight: float


class Plan:
    """The score of lines that share step table and language model, as arrays for the compiled search."""

    def __init__(
        self,
        classes: Classes,
        table: StepTable,
        rows: Sequence[TargetRow],
        language: LanguageTerm,
        length_bonus: float,
        position: dict[int, int],
    ) -> None:
        self.classes, self.table, self.rows, self.language = classes, table, rows, language
        self.length_bonus = length_bonus
        self.position = position
        """By the id of a target, its row."""
        self.prepare()

    def prepare(self) -> None:
        """Collect the arrays of the score; again when the step table has grown."""
        with self.table.lock:
            # One assignment, so that no thread sees steps without the bounds that belong to them.
            score = self._score()
            follows = score.distance_weight > 0 or score.tracks_text
            self.arrays = self.table.arrays if follows else None, score

    @property
    def automaton(self) -> Automaton | None:
        """The language model, if it counts."""
        return self.language.automaton if self.language.weight else None

    def _score(self) -> records.Score:
        table, guidance = self.table, self.rows[0].guidance if self.rows else None
        n = len(guidance.alphabet) if guidance else max(1, table.size)
        cell_weight = np.stack([row.cell_weight for row in self.rows]) if self.rows else np.zeros((1, n))
        own = np.where(table.cell >= 0, cell_weight[:, np.maximum(table.cell, 0)], 0.0)
        bonus = self.length_bonus * self.classes.widths
        masked = np.where(table.blocked, -np.inf, 0.0)
        weighs = bool(cell_weight.any()) and table.has_programs
        constraint_matters = table.follows_tails and not table.constraint.is_void
        return records.Score(
            # λ = 0 must not turn an impossible class (0 · -inf) into an unknown one.
            lam=max(guidance.lam, 1e-300) if guidance else 1.0,
            distance_weight=guidance.weight if guidance else 0.0,
            lm_weight=self.language.weight,
            kind=guidance.kind if guidance else 0,
            targets=records.Targets(
                reference=np.stack([r.guidance.reference for r in self.rows]) if self.rows else np.zeros((1, n)),
                # Another memory order would be another type, and compiled anew.
                class_weight=np.ascontiguousarray(own + bonus + masked),
                tail_gain=table.most_gained(cell_weight) if weighs else np.zeros((len(cell_weight), 1)),
                cell_weight=cell_weight,
            ),
            most_removed=table.most_removed,
            most_added=table.most_added,
            weighs=weighs,
            tracks_text=weighs or (constraint_matters and table.has_programs),
        )


class Batch:
    """Lines to be decoded together, and room for what is found.

    Args:
        lines: one (T, V) array per line; kept alive here, for the search reads them where they lie.
        guidances: what guides each line, or None.
        nbest: hypotheses of each line.
        alignment: whether they tell frames and confidences.
        ids: what errors call the lines, instead of their numbers.
        failed: called with the number of a line that cannot be decoded and the reason; if None, the reason is raised.
    """

    def __init__(
        self,
        classes: Classes,
        lines: Sequence[Any],
        guidances: Sequence[Guidance | None],
        nbest: int = 1,
        alignment: bool = False,
        ids: Sequence[str] | None = None,
        failed: Callable[[int, FadaError], None] | None = None,
    ) -> None:
        compile_once()
        self.classes, self.guidances, self.nbest, self.alignment = classes, guidances, nbest, alignment
        self._ids, self._failed = ids, failed
        self.beginnings: records.Beginnings | None = None
        n, V = len(lines), len(classes.symbols)
        self.lines = list(lines)
        refused: dict[int, FadaError] = {}
        try:
            address = list(map(address_of, self.lines))
            readable = not classes.twins and all(line.shape[1] == V for line in self.lines)
        except UNFIT:
            readable = False
        if not readable:
            for i, line in enumerate(lines):
                try:
                    found = classes.read(line, self.name(i))
                    # Merging would hide from the search that these are no log-probabilities.
                    self.lines[i] = classes.merged(normalized(found, self.name(i))) if classes.twins else found
                except FadaError as error:
                    refused[i] = error
                    self.lines[i] = np.empty((0, V))
        self._kinds = [line.dtype for line in self.lines]
        mixed = any(line.itemsize != self.lines[0].itemsize for line in self.lines)
        if mixed:  # exact, and one search is compiled instead of two
            self.lines = [line.astype(np.float64) for line in self.lines]
        if mixed or not readable:
            address = list(map(address_of, self.lines))
        frames = np.array([len(line) for line in self.lines], np.int64)
        like = np.empty(0, self.lines[0].dtype)
        self.where = records.Lines(np.array(address, np.int64), frames, like, V)
        self.target_of = np.zeros(n, np.int64)
        ends = np.cumsum(frames) * nbest
        self.results = records.Results(
            labels=np.empty(ends[-1], np.int32),
            starts=ends - frames * nbest,
            lengths=np.empty((n, nbest), np.int32),
            values=np.empty((n, nbest, 4)),
            status=np.empty(n, np.int32),
            finished=np.zeros(n, np.int64),
        )
        self._collected = np.zeros(n, np.bool_)
        self.hypotheses: list[list[Hypothesis]] = [[]] * n
        for i, reason in refused.items():
            self.refuse(i, reason)

    def begin_with(self, beginnings: Sequence[Sequence[int]]) -> None:
        """Search only for hypotheses that begin with these labels, for each line at least one."""
        forward = [
            forward_of(np.asarray(line, np.float64), np.array(labels, np.int64), self.classes.blank)
            for line, labels in zip(self.lines, beginnings, strict=True)
        ]
        self.beginnings = records.Beginnings(
            np.array([c for labels in beginnings for c in labels], np.int32),
            np.cumsum([0, *map(len, beginnings)], dtype=np.int64),
            np.concatenate(forward),
            np.cumsum([0, *map(len, forward)], dtype=np.int64),
        )

    def name(self, i: int) -> str:
        """What errors call a line."""
        return f"line {i}" if self._ids is None else f"line {self._ids[i]!r}"

    def refuse(self, i: int, error: FadaError) -> None:
        """Leave a line without hypotheses."""
        if self._failed is None:
            raise error
        self._failed(i, error)
        self.hypotheses[i] = []
        self._collected[i] = True
        self.results.status[i] = records.NO_PATH

    def normalize(self, i: int) -> None:
        """Turn the logits of a line into log-probabilities."""
        try:
            line = normalized(self.lines[i].astype(self._kinds[i], copy=False), self.name(i))
            self.lines[i] = line = line.astype(self.where.like.dtype, copy=False)
            self.where.address[i] = address_of(line)
        except FadaError as error:
            self.refuse(i, error)

    def collect_finished(self) -> None:
        """Make the hypotheses of lines that were decoded since this was last asked."""
        self._collect(np.flatnonzero((self.results.finished > 0) & ~self._collected))

    def collect_rest(self) -> None:
        """Make the hypotheses of all other lines."""
        self._collect(np.flatnonzero(~self._collected))

    def _collect(self, chosen: np.ndarray) -> None:
        self._collected[chosen] = True
        nbest = self.nbest
        classes, lengths = self.classes, np.maximum(self.results.lengths[chosen], 0)
        starts = self.results.starts[chosen, None] + self.where.frames[chosen, None] * np.arange(nbest)
        written = _gathered(self.results.labels, starts.ravel(), lengths.ravel())
        label_ends = np.cumsum(lengths).tolist()
        widths = classes.widths[written]
        code_ends = np.concatenate(([0], np.cumsum(widths)))[label_ends].tolist()
        text = _gathered(classes.codes, classes.starts[written], widths).tobytes().decode(_UTF_32, "surrogatepass")
        labels = written.tolist()
        score, log_prob, distance, lm_log_prob = self.results.values[chosen].reshape(-1, 4).T.tolist()
        if not any(self.guidances):
            distance = repeat(None)
        rows = zip(code_ends, label_ends, score, log_prob, distance, lm_log_prob)  # noqa: B905 (`repeat` has no end)
        flat = []
        start = first = 0
        for end, last, whole, by_model, far, by_lm in rows:
            flat.append(Hypothesis(text[start:end], whole, by_model, far, by_lm, tuple(labels[first:last])))
            start, first = end, last
        numbers = chosen.tolist()
        for j, i in enumerate(numbers):
            self.hypotheses[i] = flat[j * nbest : (j + 1) * nbest]
        for i in chosen[self.results.lengths[chosen, -1] < 0].tolist():
            count = np.count_nonzero(self.results.lengths[i] >= 0)
            self.hypotheses[i] = self.hypotheses[i][:count] or [Hypothesis("", -np.inf, -np.inf, math.nan)]
        if any(self.guidances):
            self._set_distances(numbers)
        if self.alignment:
            for i in numbers:
                found = self.hypotheses[i]
                self.hypotheses[i] = [h._replace(alignment=self.classes.align(self.lines[i], h.labels)) for h in found]

    def _set_distances(self, numbers: Sequence[int]) -> None:
        """Where the search did not follow the distance, it is found by its definition."""
        unknown: dict[int, tuple[Guidance, list[int]]] = {}
        for i in numbers:
            guidance, found = self.guidances[i], self.hypotheses[i]
            if guidance is None:
                self.hypotheses[i] = [h._replace(distance=None) for h in found]
            elif guidance.weight <= 0 or found[0].log_prob == -np.inf:
                unknown.setdefault(id(guidance), (guidance, []))[1].append(i)
        for guidance, lines in unknown.values():
            far = iter(guidance.distances_of([h.text for i in lines for h in self.hypotheses[i]]).tolist())
            for i in lines:
                self.hypotheses[i] = [h._replace(distance=next(far)) for h in self.hypotheses[i]]


def _gathered(values: np.ndarray, starts: np.ndarray, lengths: np.ndarray) -> np.ndarray:
    """Pieces of `values`, one behind the other."""
    shifts = starts - (np.cumsum(lengths) - lengths)
    return values[np.arange(lengths.sum()) + np.repeat(shifts, lengths)]


class Share:
    """The lines of a batch that one plan decodes; threads take them one by one."""

    def __init__(
        self,
        plan: Plan,
        batch: Batch,
        beam_size: int,
        members: np.ndarray,
        targets: Sequence[CharDistribution | None],
    ) -> None:
        self.plan = plan
        self.batch = batch
        self.beam_size = beam_size
        self.checks = True
        self.deepest = _DEPTH
        if len(plan.position) > 1:
            batch.target_of[members] = [plan.position[id(targets[i])] for i in members.tolist()]
        self._enqueue(members)

    def _enqueue(self, members: np.ndarray) -> None:
        frames = self.batch.where.frames[members]
        # The longest first: then the threads finish at nearly the same time.
        self.queue = records.Queue(order=members[np.argsort(-frames, kind="stable")], taken=np.zeros(1, np.int64))
        self.most_frames = int(frames.max())
        self.unknown: list[int] = []

    @property
    def left(self) -> int:
        """How many lines no thread has taken yet; may be below 0."""
        return len(self.queue.order) - int(self.queue.taken[0])

    @property
    def form(self) -> tuple[Any, ...]:
        """Which of the searches is asked for: each is compiled by itself, when it is needed."""
        parts = self.plan.arrays[0], self.plan.automaton, self.batch.beginnings
        return (self.batch.where.like.dtype, *(part is None for part in parts))

    def compile(self) -> None:
        """Compile the search that is asked for, or load it, if this process has not yet."""
        if self.form not in _compiled:
            with _compiling, waiting("preparing the decoder (compiled once, then cached) …"):
                self.call().search(0)
                _compiled.add(self.form)

    def call(self) -> "Call":
        """The search of this share by one thread."""
        return Call(self)

    def stop(self) -> None:
        """Let no thread take a further line."""
        self.queue.taken[0] = len(self.queue.order)

    def prepare_rest(self) -> bool:
        """Remove what kept lines from being decoded, and say whether there are any."""
        if not self.unknown and self.batch.results.status[self.queue.order].max() <= records.NO_PATH:
            return False
        members = np.sort(self.queue.order)
        for i in members[self.batch.results.status[members] == records.UNNORMALIZED].tolist():
            self.batch.normalize(i)
        status = self.batch.results.status[members]
        if self.unknown:
            self.plan.table.extend(self.unknown)
            self.plan.prepare()
        too_deep = members[status == records.TOO_DEEP]
        if len(too_deep) and self.deepest == _DEEPEST:
            for i in too_deep.tolist():
                often = f"writes a character more than {_DEEPEST} times: too long to be decoded at once."
                self.batch.refuse(i, FadaError(f"{self.batch.name(i)} {often}"))
            status = self.batch.results.status[members]
        elif len(too_deep):
            self.deepest = min(4 * self.deepest, _DEEPEST)
        rest = members[(status != records.DONE) & (status != records.NO_PATH)]
        if len(rest) == 0:
            return False
        self.checks = False
        self._enqueue(rest)
        return True


class Call:
    """Searches of one thread for a share, with a work space of their own."""

    def __init__(self, share: Share) -> None:
        self._share = share
        self._arrays = share.plan.arrays
        table, score = self._arrays
        lm, beginnings = share.plan.automaton, share.batch.beginnings
        classes, frames = share.batch.classes, share.most_frames
        V, n = len(classes.symbols), score.targets.reference.shape[1]
        follows = table is not None and share.plan.table.follows_tails
        hypotheses = share.beam_size + (beginnings is not None)  # a beginning has its own place: its time may come late
        depth = min(frames * score.most_added, share.deepest) + score.most_added + 3
        incremental = score.kind <= ALIGNED_W2
        mu = score.distance_weight if table is not None else 0.0
        split = (n + 3) // 4 * 4
        self._terms = records.Terms(
            lam=score.lam,
            mu=mu,
            lm_weight=score.lm_weight,
            kind=score.kind,
            blank=classes.blank,
            K=hypotheses,
            V=V,
            components=0 if lm is None else len(lm.start),
            characters=0 if lm is None else lm.text.shape[1],
            shift=max(1, (V - 1).bit_length()),
            n=n,
            split=split,
            words_each=(split + depth + 63) // 64 * 16 if mu > 0 else 0,
            depth=depth,
            longest=0 if table is None else frames * score.most_added + 3,
            most_removed=score.most_removed,
            most_added=score.most_added,
            nbest=share.batch.nbest,
            guided=mu > 0,
            incremental=incremental,
            has_general=table is not None and len(table.starts) > 1,
            bounds_step=incremental and mu * math.sqrt(2 / n) > 2 * score.lam,
            silent=table is not None and bool((np.delete(table.cell, classes.blank) == records.NO_CHARACTER).any()),
            program_slots=0 if table is None else len(table.keys),
            weighs=score.weighs,
            tails=score.targets.tail_gain.shape[1],
        )
        t = self._terms
        self._space = WorkSpace(Sizes.of(hypotheses, V, frames, t.words_each, t.longest, t.components))
        self._unknown = np.zeros(_UNKNOWN_AT_ONCE if follows else 1, np.int64)
        self._follows = follows
        self._search: Callable[..., Any] = search_lines

    @property
    def is_current(self) -> bool:
        """Whether the plan is as it was when this was made."""
        return self._arrays is self._share.plan.arrays

    def keep_types(self) -> "Call":
        """Take all further searches for such as this one would be now: what a batch is made of is only written into."""
        self.search(0)
        self._search = for_types_of(search_lines, self._arguments(0))
        return self

    def search(self, most_lines: int) -> None:
        """Decode so many lines, or what is left."""
        self._search(*self._arguments(most_lines))
        if self._follows:
            self._share.unknown += self._unknown[1 : 1 + self._unknown[0]].tolist()

    def _arguments(self, most_lines: int) -> tuple[Any, ...]:
        share, batch = self._share, self._share.batch
        table, score = self._arrays
        return (
            batch.where,
            share.queue,
            most_lines,
            batch.target_of,
            share.checks,
            self._terms,
            self._space.sizes,
            self._space.start,
            score.targets,
            table,
            share.plan.automaton,
            batch.beginnings,
            batch.results,
            self._unknown,
        )


class LineByLine:
    """A search of single lines, one after the other, whose arrays are made once: that takes longer than a search.

    Args:
        most_frames: that a line can have.
        kind: of the numbers of all lines.
        guidance: of all lines.
    """

    def __init__(
        self, plan: Plan, beam_size: int, most_frames: int, kind: np.dtype, guidance: Guidance | None, nbest: int
    ) -> None:
        room = np.empty((most_frames, len(plan.classes.symbols)), kind)
        self._batch = Batch(plan.classes, [room], [guidance], nbest)
        self._share = Share(plan, self._batch, beam_size, np.arange(1), [None])
        self._share.compile()
        self._call = self._share.call().keep_types()
        self.most_frames = most_frames

    def decode(self, line: np.ndarray, address: int) -> list[Hypothesis]:
        """The hypotheses of a line, given where it lies; none if one search is not enough."""
        batch, share, T = self._batch, self._share, len(line)
        results = batch.results
        batch.where.address[0] = address
        batch.where.frames[0] = T
        share.queue.taken[0] = 0
        if not self._call.is_current:
            self._call = share.call().keep_types()
        self._call.search(1)
        if results.status[0] != records.DONE:
            share.unknown.clear()
            return []
        symbols, guidance = batch.classes.symbols, batch.guidances[0]
        found = []
        for k, (length, values) in enumerate(zip(results.lengths[0].tolist(), results.values[0].tolist(), strict=True)):
            if length < 0:
                break
            labels = results.labels[k * T : k * T + length].tolist()
            text = "".join([symbols[c] for c in labels])
            score, log_prob, distance, by_lm = values
            if guidance is None:
                distance = None
            elif guidance.weight <= 0:
                distance = guidance.distance_of(text)
            found.append(Hypothesis(text, score, log_prob, distance, by_lm, tuple(labels)))
        return found


def decode_shares(shares: list[Share], threads: int, collect: Callable[[], None]) -> None:
    """Decode the lines of all shares on so many threads, this one among them."""
    for share in shares:
        share.compile()
    while shares:
        _decode_once(shares, threads, collect)
        shares = [share for share in shares if share.prepare_rest()]


def _decode_once(shares: Sequence[Share], threads: int, collect: Callable[[], None]) -> None:
    """With several threads, this one also collects what all have found, in ever smaller portions: Python does its work
    while the others search, who have nothing to do with it until the end.
    """

    def help_() -> None:
        for share in shares:
            if share.left > 0:
                share.call().search(share.left)

    others = [_pool(threads - 1).submit(help_) for _ in range(threads - 1)]
    try:
        for share in shares:
            call = share.call() if share.left > 0 else None
            while call and (left := share.left) > 0:
                call.search(min(max(3 * left // (4 * threads), _FEW_LINES), _LINES_PER_CALL))
                if others:
                    collect()
        for other in others:
            if not other.cancel():
                other.result()
    finally:
        for share in shares:
            share.stop()


@cache
def _pool(helpers: int) -> ThreadPoolExecutor:
    """Threads that wait for work: starting and ending them would take as long as decoding some ten lines."""
    return ThreadPoolExecutor(helpers, thread_name_prefix="fada-decoding")


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_pool.cache_clear)


def available_cores() -> int:
    """How many cores this process may run on."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def normalized(line: np.ndarray, name: str = "line 0") -> np.ndarray:
    """Log-probabilities of a line that may hold logits; refuses what cannot be either."""
    if len(line) == 0:
        return line
    bad = np.isnan(line) | np.isposinf(line)
    if bad.any():
        t, c = (int(i) for i in np.argwhere(bad)[0])
        raise FadaError(f"{name}, frame {t}, class {c}: {line[t, c]}, expected a log-probability.")
    top = line.max(axis=1)
    if np.isneginf(top).any():
        t = int(np.argmax(np.isneginf(top)))
        raise FadaError(f"{name}, frame {t}: every class has probability zero (-inf), expected at least one above.")
    if line.min() >= 0 and line.max() <= 1 and np.allclose(line.sum(axis=1), 1, atol=1e-2):
        raise FadaError(f"{name}: these are probabilities, expected their logarithms. Pass numpy.log(...).")
    with np.errstate(under="ignore", over="ignore"):
        sums = np.exp(line.astype(np.float64)).sum(axis=1)
    if np.allclose(sums, 1, rtol=0, atol=0.05):
        return line
    scores = line.astype(np.float64)
    scores -= scores.max(axis=1, keepdims=True)
    return (scores - np.log(np.exp(scores).sum(axis=1, keepdims=True))).astype(line.dtype)


_compiling = Lock()
_compiled: set[tuple[Any, ...]] = set()
"""Forms of the search that were asked for."""


@cache
def compile_once() -> None:
    """Compile (or load from numba's cache) what finds the lines in memory, for the two types that are read there."""
    with _compiling:
        if address_of.signatures:
            return
        for element in (types.float32, types.float64):
            address_of.compile((types.Array(element, 2, "C"),))
        address_of.disable_compile()  # arrays of other layouts are copied, not compiled for
