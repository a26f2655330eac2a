r"""CTC prefix beam search guided by a target distribution (Eq. 2), with language model, prior and constraints.

Every frame, all hypotheses are ranked by the whole score

.. math::
    S(h) = \lambda \log P(h) - (1-\lambda)\, s\, d(h, p) + w_{lm} \log P_{lm}(h)
           + w_{prior} \sum_c (\log p(c) - \log p_{train}(c)) + b\, |h|

and exactly the best `beam_size` are kept; no class is cut by its probability. With λ = 1 (or without a target) and no
further term this is plain prefix beam search. ``docs/decoding.md`` explains the algorithm.
"""

import os
import sys
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, fields
from functools import cache, cached_property
from threading import Lock
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy.special import log_softmax

from fada.common.say import waiting
from fada.decoding.guidance import Constraint, Guidance, check_weight
from fada.decoding.kernels import ctc as kernel
from fada.decoding.lm import CharNgram, prior_weights
from fada.decoding.steps import StepTable, SymbolSteps
from fada.errors import FadaError
from fada.targets.distribution import CharDistribution
from fada.text.alphabet import Alphabet, alphabet_of
from fada.text.normalizer import TextNormalizer

_LINES_PER_CALL = 256
"""So many lines the main thread decodes before Python may look up: for an interruption, say."""
_FEW_LINES = 16
"""So many it decodes at least."""
_DEPTH, _DEEPEST = 4096, 65_000
"""Room for the highest count of one character at first, and at most (counts are 16 bits wide)."""
_MOST_CHARACTERS = 65_000
_UNKNOWN_AT_ONCE = 4096
_AS_WRITTEN = TextNormalizer(form="NFC", case="keep")
_UTF_32 = "utf-32-le" if sys.byteorder == "little" else "utf-32-be"


@dataclass(frozen=True)
class Hypothesis:
    """One reading of a line.

    Frames and confidences are found on first use, by the most probable alignment of the labels with the emissions.
    Until then a hypothesis keeps a reference to the emissions. What else is costly to make is made on first use too.
    """

    text: str
    """The symbols, joined, as the model writes them (not normalised)."""
    score: float
    """The whole sum the hypotheses were ranked by."""
    log_prob: float
    """log P(labels | emissions), summed over all paths that survived the beam; -inf if the constraints leave none."""
    distance: float | None
    """Distance of the text from the target; None without a target."""
    lm_log_prob: float = 0.0
    """log-probability by the language model, unweighted; 0 without one."""
    labels: tuple[int, ...] = field(default_factory=tuple, repr=False)
    """The classes, without blanks and repetitions."""
    _emissions: tuple[np.ndarray, int, tuple[str, ...]] | None = field(
        default_factory=lambda: None, repr=False, compare=False
    )

    if not TYPE_CHECKING:  # which would take every misspelt name for a field

        def __getattr__(self, name: str) -> Any:
            """What the search left to be made when it is asked for."""
            if name not in _LEFT_FOR_LATER or "_found" not in self.__dict__:
                raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
            value = self.__dict__[name] = _LEFT_FOR_LATER[name](self._found, self._number)
            return value

    @cached_property
    def label_frames(self) -> tuple[tuple[int, int], ...]:
        """For each label, its first frame and the one after its last, on the most probable path."""
        if self._emissions is None:
            return ()
        log_probs, blank, _ = self._emissions
        labels = np.array(self.labels, np.int64)
        spans = kernel.align_labels(np.asarray(log_probs, np.float64), labels, blank)
        return tuple((first, last + 1) for first, last in spans.tolist())

    @cached_property
    def label_confidences(self) -> tuple[float, ...]:
        """For each label, its highest probability within its frames."""
        if self._emissions is None:
            return ()
        log_probs = self._emissions[0]
        return tuple(
            min(1.0, float(np.exp(log_probs[start:end, c].max())))
            for c, (start, end) in zip(self.labels, self.label_frames, strict=True)
        )

    @cached_property
    def char_frames(self) -> tuple[tuple[int, int], ...]:
        """For each code point of `text`, the frames of its label."""
        return self._spread(self.label_frames)

    @cached_property
    def char_confidences(self) -> tuple[float, ...]:
        """For each code point of `text`, the confidence of its label."""
        return self._spread(self.label_confidences)

    def _spread(self, values: tuple[Any, ...]) -> tuple[Any, ...]:
        if self._emissions is None:
            return ()
        symbols = self._emissions[2]
        return tuple(v for c, v in zip(self.labels, values, strict=True) for _ in symbols[c])

    def __getstate__(self) -> dict[str, Any]:
        aligned = ("label_frames", "label_confidences", "char_frames", "char_confidences")
        names = [*(f.name for f in fields(self)), *aligned]
        return {**{name: getattr(self, name) for name in names}, "_emissions": None}


class CTCBeamDecoder:
    """Guided CTC decoding.

    ::

        decoder = CTCBeamDecoder(symbols, beam_size=5, target=targets["14"], lam=0.5)
        best = decoder.decode(log_probs)[0]
        best.text, best.score, best.log_prob, best.distance

    Args:
        symbols: (V,) the text of each class of the model: any strings, also empty, of several code points or combining
            marks. That of the blank is ignored.
        blank: index of the blank class.
        beam_size: hypotheses kept per frame. 1 follows the single best prefix by the whole score: nearly best path
            decoding, and the one setting in which a hypothesis cannot be overtaken later.
        target: the distribution to align to; None for none (λ counts as 1 then).
        lam: λ of Eq. 2, from 0 to 1.
        distance: ``sorted_w2``, ``aligned_w2`` (both O(1) per character), ``js``, ``kl`` or ``w1``.
        scale: factor of the distance; 1 is the paper.
        lm: a character n-gram model (natural logarithms), weighted with `lm_weight`.
        lm_weight: its weight, from 0 up.
        prior: the distribution of the training text. Each character adds
            ``prior_weight * (log p_target - log p_train)``.
        prior_weight: weight of the prior correction.
        length_bonus: added for each code point.
        forbidden: characters that may not be written (see :class:`fada.decoding.guidance.Constraint`).
        allowed: the only characters that may be written, or None.
        threads: for :meth:`decode_batch`; None uses every core this process may run on.

    A line whose rows are not log-probabilities (their exponentials sum to 1 within about 5 %) is taken for logits and
    normalised with a log-softmax. This never changes a text, only `log_prob` and with it `score`.
    """

    def __init__(
        self,
        symbols: Sequence[str] | Alphabet,
        blank: int = 0,
        beam_size: int = 5,
        target: CharDistribution | None = None,
        lam: float = 0.5,
        distance: str = "sorted_w2",
        scale: float = 1.0,
        lm: CharNgram | None = None,
        lm_weight: float = 0.0,
        prior: CharDistribution | None = None,
        prior_weight: float = 0.0,
        length_bonus: float = 0.0,
        forbidden: Iterable[str] = (),
        allowed: Iterable[str] | None = None,
        threads: int | None = None,
    ) -> None:
        self.alphabet = alphabet_of(symbols, blank)
        self.symbols, self.blank = self.alphabet.symbols, self.alphabet.blank
        self.beam_size = _check_count("beam_size", beam_size)
        self.threads = None if threads is None else _check_count("threads", threads)
        check_weight("lam", lam, 0, 1)
        check_weight("scale", scale, 0, np.inf)
        check_weight("lm_weight", lm_weight, 0, np.inf)
        check_weight("prior_weight", prior_weight, -np.inf, np.inf)
        check_weight("length_bonus", length_bonus, -np.inf, np.inf)
        self.target, self.lam, self.distance, self.scale = target, float(lam), distance, float(scale)
        self.lm, self.lm_weight = lm, float(lm_weight)
        self.prior, self.prior_weight = prior, float(prior_weight)
        self.length_bonus = float(length_bonus)
        self.forbidden = frozenset(forbidden)
        self.allowed = None if allowed is None else frozenset(allowed)
        self._steps: dict[TextNormalizer, SymbolSteps] = {}
        self._tables: dict[Any, StepTable] = {}
        self._rows: dict[int, _TargetRow] = {}
        self._automata: dict[int, tuple[CharNgram | None, kernel.Automaton, np.ndarray]] = {}
        self._plans: dict[Any, _Plan] = {}
        if target is not None:
            self._row(target)

    def replace(self, **changes: Any) -> "CTCBeamDecoder":
        """A decoder with other settings; what was prepared for the symbols and language models is shared."""
        names = "symbols blank beam_size target lam distance scale lm lm_weight prior prior_weight length_bonus"
        settings = {name: getattr(self, name) for name in [*names.split(), "forbidden", "allowed", "threads"]}
        unknown = sorted(set(changes) - set(settings))
        if unknown:
            raise FadaError(f"unknown decoder setting {unknown[0]!r}, expected one of {', '.join(settings)}.")
        other = CTCBeamDecoder(**{**settings, **changes})
        if other.alphabet == self.alphabet:
            other._steps, other._tables, other._automata = self._steps, self._tables, self._automata
        return other

    def decode(self, log_probs: Any, nbest: int = 1) -> list[Hypothesis]:
        """The best readings of one line, best first.

        Args:
            log_probs: (T, V) natural log-probabilities per frame and class, float32 or float64, numpy or torch.
            nbest: how many hypotheses to return, at most `beam_size`; fewer if there are not as many.
        """
        return self.decode_batch([log_probs], nbest=nbest)[0]

    def decode_batch(
        self,
        log_probs: Sequence[Any],
        targets: Sequence[CharDistribution | None] | None = None,
        lms: Sequence[CharNgram | None] | None = None,
        nbest: int = 1,
    ) -> list[list[Hypothesis]]:
        """Decode many lines on all threads, in order.

        Args:
            log_probs: one (T, V) array per line.
            targets: one target per line (None: no guidance for it); by default the decoder's for all.
            lms: one language model per line; by default the decoder's for all.
            nbest: hypotheses per line.
        """
        nbest = min(_check_count("nbest", nbest), self.beam_size)
        lines = list(log_probs)
        alike = targets is None and lms is None
        targets = _one_per_line("targets", targets, self.target, len(lines))
        if self.prior_weight and lines and not any(target is not None for target in targets):
            raise FadaError("prior_weight is set, but no line has a target to correct the prior towards. Give one.")
        lms = _one_per_line("lms", lms, self.lm, len(lines))
        if not lines:
            return []
        _compile_once()
        batch = _Batch(lines, self._where(lines), nbest)
        shares = [_Share(plan, batch, members, targets) for plan, members in self._grouped(targets, lms, alike)]
        threads = min(self.threads or _available_cores(), len(lines))
        hypotheses: list[list[Hypothesis]] = [[]] * len(lines)

        def collect(chosen: np.ndarray) -> None:
            found = _Found(self, batch, chosen, targets).hypotheses()
            for i, readings in zip(chosen.tolist(), found, strict=True):
                hypotheses[i] = readings

        while shares:
            _decode_shares(shares, threads, lambda: collect(batch.newly_finished()))
            shares = [share for share in shares if share.prepare_rest()]
        collect(batch.not_collected())
        return hypotheses

    def greedy(self, log_probs: Any) -> Hypothesis:
        """Best path decoding: the best class of every frame, collapsed. No target, language model or constraint.

        `log_prob` and `score` are those of the one path.
        """
        line = _normalized(self._as_array(log_probs, 0), 0)
        best = line.argmax(axis=1)
        starts = np.flatnonzero(np.diff(best, prepend=-1))
        labels = tuple(c for c in best[starts].tolist() if c != self.blank)
        text = "".join([self.symbols[c] for c in labels])
        log_prob = float(line[np.arange(len(line)), best].sum(dtype=np.float64))
        distance = None if self.target is None else self._row(self.target).guidance.distance_of(text)
        return Hypothesis(text, log_prob, log_prob, distance, 0.0, labels, (line, self.blank, self.symbols))

    @cached_property
    def _symbol_codes(self) -> tuple[np.ndarray, np.ndarray]:
        """Where each symbol starts in the code points of all of them, and these."""
        ends = np.cumsum([0, *map(len, self.symbols)], dtype=np.int64)
        return ends, np.array([ord(c) for symbol in self.symbols for c in symbol], np.uint32)

    def _where(self, lines: list[Any]) -> kernel.Lines:
        """Where the lines lie in memory; those that are not arrays the search can read are replaced."""
        if set(map(type, lines)) != {np.ndarray}:
            lines[:] = [self._as_array(line, i) for i, line in enumerate(lines)]
        ids = np.fromiter(map(id, lines), np.int64, len(lines))
        where, known = kernel.inspect(ids, len(self.symbols), id(np.dtype(np.float32)), id(np.dtype(np.float64)))
        for i in np.flatnonzero(~known).tolist():
            line = lines[i] = self._as_array(lines[i], i)
            where.address[i] = line.__array_interface__["data"][0]
            where.frames[i], where.is_float64[i] = len(line), line.itemsize == 8
        return where

    def _as_array(self, log_probs: Any, line: int) -> np.ndarray:
        if not isinstance(log_probs, np.ndarray) and hasattr(log_probs, "detach"):
            log_probs = log_probs.detach().cpu()
            log_probs = (log_probs.float() if log_probs.element_size() < 4 else log_probs).numpy()
        array = np.asarray(log_probs)
        V = len(self.symbols)
        if array.ndim != 2 or array.shape[1] != V:
            hint = " The axes seem to be swapped: pass the transpose." if array.ndim == 2 and len(array) == V else ""
            raise FadaError(
                f"line {line}: log-probabilities of shape {array.shape}, expected (frames, {V}) for {V} symbols.{hint}"
            )
        if array.dtype.char not in "fd":
            if array.dtype.kind not in "fiu":
                raise FadaError(f"line {line}: log-probabilities of type {array.dtype}, expected float32 or float64.")
            array = array.astype(np.float32 if array.dtype == np.float16 else np.float64)
        return np.require(array, array.dtype.type, ["C", "ALIGNED", "WRITEABLE"])

    def _row(self, target: CharDistribution) -> "_TargetRow":
        row = self._rows.get(id(target))
        if row is None:
            row = self._rows[id(target)] = self._prepare_row(target)
        return row

    def _prepare_row(self, target: CharDistribution) -> "_TargetRow":
        steps = self._steps_for(target.normalizer)
        guidance = Guidance(target, self.lam, self.distance, self.scale, self.forbidden, self.allowed)
        guidance = guidance.covering(steps.characters)
        if len(guidance.alphabet) > _MOST_CHARACTERS:
            raise FadaError(f"a target of {len(guidance.alphabet)} characters, expected at most {_MOST_CHARACTERS}.")
        table = self._table(steps, guidance.alphabet, guidance.constraint)
        weights = np.zeros(len(guidance.alphabet))
        if self.prior_weight:
            if self.prior is None:
                raise FadaError("prior_weight needs the distribution of the training text: pass prior=targets.overall.")
            weights = self.prior_weight * prior_weights(guidance.target, self.prior)
        return _TargetRow(target, guidance, table, weights)

    def _steps_for(self, normalizer: TextNormalizer) -> SymbolSteps:
        return self._steps.setdefault(normalizer, SymbolSteps(self.symbols, self.blank, normalizer))

    def _table(self, steps: SymbolSteps, alphabet: tuple[str, ...], constraint: Constraint) -> StepTable:
        key = (steps.normalizer, alphabet, constraint)
        if key not in self._tables:
            self._tables[key] = StepTable(steps, alphabet, constraint)
        return self._tables[key]

    def _automaton(self, lm: CharNgram | None) -> tuple[kernel.Automaton, np.ndarray]:
        if id(lm) not in self._automata:
            if lm is not None and not isinstance(lm, CharNgram):
                raise FadaError(f"lm is a {type(lm).__name__}, expected a CharNgram: the search must see inside it.")
            arrays, ceiling = (lm or CharNgram.uniform("")).automaton(self.symbols, self.blank)
            self._automata[id(lm)] = lm, arrays, ceiling
        return self._automata[id(lm)][1:]

    def _grouped(
        self,
        targets: Sequence[CharDistribution | None],
        lms: Sequence[CharNgram | None],
        alike: bool,
    ) -> "list[tuple[_Plan, np.ndarray]]":
        """Lines that one compiled call can decode: one step table and one language model; all, if they are `alike`."""
        if alike:
            same = [np.arange(len(targets))]
        else:
            pairs: dict[tuple[int, int], list[int]] = {}
            for i, pair in enumerate(zip(map(id, targets), map(id, lms), strict=True)):
                pairs.setdefault(pair, []).append(i)
            same = [np.array(members) for members in pairs.values()]
        groups: dict[Any, list[np.ndarray]] = {}
        for members in same:
            target, lm = targets[members[0]], lms[members[0]]
            table = None if target is None else self._row(target).table
            groups.setdefault((id(table), id(lm) if self.lm_weight else None), []).append(members)
        plans = []
        for parts in groups.values():
            chosen = [targets[members[0]] for members in parts]
            unique = list({id(target): target for target in chosen}.values())
            lm = lms[parts[0][0]] if self.lm_weight else None
            key = (*map(id, unique), "lm", id(lm))
            if key not in self._plans:
                self._plans[key] = _Plan(self, unique, lm)
            plans.append((self._plans[key], np.sort(np.concatenate(parts))))
        return plans


class _TargetRow:
    """What one target contributes to the score arrays."""

    def __init__(self, target: CharDistribution, guidance: Guidance, table: StepTable, weights: np.ndarray) -> None:
        self.target = target
        self.guidance = guidance
        self.table = table
        self.cell_weight = weights


class _Plan:
    """A compiled call for lines that share step table and language model."""

    def __init__(self, decoder: CTCBeamDecoder, targets: list[CharDistribution | None], lm: CharNgram | None) -> None:
        self.decoder = decoder
        self.position = {id(target): i for i, target in enumerate(targets)}
        self.lm = lm
        self.automaton, self.lm_ceiling = decoder._automaton(lm)
        self.rows = [decoder._row(target) for target in targets if target is not None]
        if self.rows:
            self.table = self.rows[0].table
        else:
            constraint = Constraint(_AS_WRITTEN, decoder.forbidden, decoder.allowed)
            steps = decoder._steps_for(_AS_WRITTEN)
            self.table = decoder._table(steps, tuple(sorted(steps.characters)), constraint)
        self.lam = decoder.lam if self.rows else 1.0
        self.prepare()

    def prepare(self) -> None:
        """Collect the arrays of the score; again when the step table has grown."""
        with self.table.lock:
            # One assignment, so that no thread sees steps without the bounds that belong to them.
            self.arrays = self.table.arrays, self._score()

    def _score(self) -> kernel.Score:
        decoder, table = self.decoder, self.table
        n = len(self.rows[0].guidance.alphabet) if self.rows else max(1, table.size)
        cell_weight = np.stack([row.cell_weight for row in self.rows]) if self.rows else np.zeros((1, n))
        own = np.where(table.cell >= 0, cell_weight[:, np.maximum(table.cell, 0)], 0.0)
        bonus = decoder.length_bonus * np.array([len(symbol) for symbol in decoder.symbols])
        masked = np.where(table.blocked, -np.inf, 0.0)
        most = np.maximum(cell_weight.max(axis=1, keepdims=True), 0)
        least = np.minimum(cell_weight.min(axis=1, keepdims=True), 0)
        ceiling = np.where(table.cell == kernel.GENERAL, table.lengths * most, own)
        ceiling = ceiling + table.further_added * most - table.most_removed * least
        constraint_matters = table.follows_tails and not table.constraint.is_void
        lm_weight = decoder.lm_weight if self.lm is not None else 0.0
        return kernel.Score(
            # λ = 0 must not turn an impossible class (0 · -inf) into an unknown one.
            lam=max(self.lam, 1e-300),
            distance_weight=self.rows[0].guidance.weight if self.rows else 0.0,
            lm_weight=lm_weight,
            kind=self.rows[0].guidance.kind if self.rows else 0,
            reference=np.stack([r.guidance.reference for r in self.rows]) if self.rows else np.zeros((1, n)),
            # Another memory order would be another type, and compiled anew.
            class_weight=np.ascontiguousarray(own + bonus + masked),
            class_ceiling=np.ascontiguousarray(ceiling + bonus + masked + lm_weight * self.lm_ceiling),
            cell_weight=cell_weight,
            most_removed=table.most_removed,
            most_added=table.most_added,
            tracks_text=table.has_programs and (decoder.prior_weight != 0 or constraint_matters),
        )


class _Found:
    """The hypotheses of some lines of a batch, numbered through, `nbest` for each line.

    It makes the fields they leave for later.
    """

    def __init__(
        self,
        decoder: CTCBeamDecoder,
        batch: "_Batch",
        chosen: np.ndarray,
        targets: Sequence[CharDistribution | None],
    ) -> None:
        self.decoder, self.batch, self.chosen, self.targets = decoder, batch, chosen, targets
        self.nbest = batch.nbest
        self.spelling = kernel.spell(batch.results, batch.where.frames, chosen, *decoder._symbol_codes)

    def hypotheses(self) -> list[list[Hypothesis]]:
        """The n-best of each line, made without their constructor: it would take longer than the rest."""
        ends = self.spelling.code_ends.ravel().tolist()
        text = self.spelling.codes.tobytes().decode(_UTF_32, "surrogatepass")
        flat: list[Hypothesis] = []
        start = 0
        for number, end in enumerate(ends):
            hypothesis = object.__new__(Hypothesis)
            known = {"text": text[start:end], "_found": self, "_number": number}
            object.__setattr__(hypothesis, "__dict__", known)
            flat.append(hypothesis)
            start = end
        nbest = self.nbest
        nested = [flat[i : i + nbest] for i in range(0, len(flat), nbest)]
        lengths = self.batch.results.lengths[self.chosen]
        for i in np.flatnonzero(lengths[:, -1] < 0).tolist():
            guidance = self._guidance(i)
            impossible = Hypothesis("", -np.inf, -np.inf, None if guidance is None else guidance.distance_of(""))
            nested[i] = nested[i][: np.count_nonzero(lengths[i] >= 0)] or [impossible]
        return nested

    def _guidance(self, i: int) -> Guidance | None:
        target = self.targets[self.chosen[i]]
        return None if target is None else self.decoder._row(target).guidance

    def value(self, number: int, which: int) -> float:
        """One of the numbers the search keeps of a hypothesis: see :class:`fada.decoding.kernels.ctc.Results`."""
        i, k = divmod(number, self.nbest)
        return float(self.batch.results.values[self.chosen[i], k, which])

    def labels(self, number: int) -> tuple[int, ...]:
        """The labels of a hypothesis."""
        ends = self.spelling.label_ends.ravel()
        return tuple(self.spelling.labels[ends[number - 1] if number else 0 : ends[number]].tolist())

    def distance(self, number: int) -> float | None:
        """Its distance from the target; the search knows it if it was guided."""
        guidance = self._guidance(number // self.nbest)
        if guidance is None:
            return None
        if guidance.weight > 0:
            return self.value(number, 2)
        return guidance.distance_of("".join([self.decoder.symbols[c] for c in self.labels(number)]))

    def emissions(self, number: int) -> tuple[np.ndarray, int, tuple[str, ...]]:
        """What it was read from."""
        return self.batch.lines[self.chosen[number // self.nbest]], self.decoder.blank, self.decoder.symbols


_LEFT_FOR_LATER: dict[str, Callable[[_Found, int], Any]] = {
    "score": lambda found, number: found.value(number, 0),
    "log_prob": lambda found, number: found.value(number, 1),
    "distance": _Found.distance,
    "lm_log_prob": lambda found, number: found.value(number, 3),
    "labels": _Found.labels,
    "_emissions": _Found.emissions,
}


class _Batch:
    """Lines to be decoded together, and room for what is found."""

    def __init__(self, lines: list[np.ndarray], where: kernel.Lines, nbest: int) -> None:
        n = len(lines)
        self.lines = lines
        self.nbest = nbest
        self.target_of = np.zeros(n, np.int64)
        self.where = where
        ends = np.cumsum(self.where.frames) * nbest
        self.results = kernel.Results(
            labels=np.empty(ends[-1], np.int32),
            starts=ends - self.where.frames * nbest,
            lengths=np.empty((n, nbest), np.int32),
            values=np.empty((n, nbest, 4)),
            status=np.empty(n, np.int32),
            finished=np.zeros(n, np.int64),
        )
        self._collected = np.zeros(n, np.bool_)

    def newly_finished(self) -> np.ndarray:
        """Lines that were decoded since this was last asked."""
        lines = np.flatnonzero((self.results.finished > 0) & ~self._collected)
        self._collected[lines] = True
        return lines

    def not_collected(self) -> np.ndarray:
        """All other lines."""
        return np.flatnonzero(~self._collected)

    def normalize(self, i: int) -> None:
        """Turn the logits of a line into log-probabilities."""
        self.lines[i] = line = _normalized(self.lines[i], i)
        self.where.address[i] = line.__array_interface__["data"][0]


class _Share:
    """The lines of a batch that one plan decodes; threads take them one by one."""

    def __init__(
        self, plan: _Plan, batch: _Batch, members: np.ndarray, targets: Sequence[CharDistribution | None]
    ) -> None:
        self.plan = plan
        self.batch = batch
        self.checks = True
        self.deepest = _DEPTH
        if len(plan.position) > 1:
            batch.target_of[members] = [plan.position[id(targets[i])] for i in members.tolist()]
        self._enqueue(members)

    def _enqueue(self, members: np.ndarray) -> None:
        frames = self.batch.where.frames[members]
        # The longest first: then the threads finish at nearly the same time.
        self.queue = kernel.Queue(order=members[np.argsort(-frames, kind="stable")], taken=np.zeros(1, np.int64))
        self.most_frames = int(frames.max())
        self.unknown: list[int] = []

    @property
    def left(self) -> int:
        """How many lines no thread has taken yet; may be below 0."""
        return len(self.queue.order) - int(self.queue.taken[0])

    def search(self, most_lines: int) -> None:
        """Decode so many lines, or what is left; any number of threads may do so."""
        decoder, batch = self.plan.decoder, self.batch
        table, score = self.plan.arrays
        depth = min(self.most_frames * score.most_added, self.deepest) + score.most_added + 3
        unknown = np.empty(_UNKNOWN_AT_ONCE if self.plan.table.follows_tails else 1, np.int64)
        kernel.search_lines(
            batch.where,
            self.queue,
            most_lines,
            batch.target_of,
            decoder.blank,
            decoder.beam_size,
            batch.nbest,
            depth,
            self.checks,
            score,
            table,
            self.plan.automaton,
            batch.results,
            unknown,
        )
        self.unknown += unknown[1 : 1 + unknown[0]].tolist()

    def stop(self) -> None:
        """Let no thread take a further line."""
        self.queue.taken[0] = len(self.queue.order)

    def prepare_rest(self) -> bool:
        """Remove what kept lines from being decoded, and say whether there are any."""
        members = np.sort(self.queue.order)
        status = self.batch.results.status[members]
        for i in members[status == kernel.UNNORMALIZED].tolist():
            self.batch.normalize(i)
        if self.unknown:
            self.plan.table.extend(self.unknown)
            self.plan.prepare()
        too_deep = members[status == kernel.TOO_DEEP]
        if len(too_deep):
            if self.deepest == _DEEPEST:
                raise FadaError(
                    f"line {too_deep[0]} writes a character more than {_DEEPEST} times: too long to be decoded at once."
                )
            self.deepest = min(4 * self.deepest, _DEEPEST)
        rest = members[(status != kernel.DONE) & (status != kernel.NO_PATH)]
        if len(rest) == 0:
            return False
        self.checks = False
        self._enqueue(rest)
        return True


def _decode_shares(shares: Sequence[_Share], threads: int, collect: Callable[[], None]) -> None:
    """Decode the lines of all shares on so many threads, this one among them.

    With several, this one also collects what all have found, in ever smaller portions: Python does its work while the
    others search, who have nothing to do with it until the end.
    """

    def help_() -> None:
        for share in shares:
            while share.left > 0:
                share.search(share.left)

    others = [_pool(threads - 1).submit(help_) for _ in range(threads - 1)]
    try:
        for share in shares:
            while (left := share.left) > 0:
                share.search(min(max(3 * left // (4 * threads), _FEW_LINES), _LINES_PER_CALL))
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


def _check_count(name: str, value: Any) -> int:
    if not isinstance(value, int | np.integer) or isinstance(value, bool) or value < 1:
        raise FadaError(f"{name} is {value!r}, expected a whole number from 1 up.")
    return int(value)


def _one_per_line(name: str, given: Sequence[Any] | None, default: Any, n: int) -> Sequence[Any]:
    if given is None:
        return [default] * n
    if len(given) != n:
        raise FadaError(f"{len(given)} {name} for {n} lines, expected one per line.")
    return given


def _available_cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _normalized(line: np.ndarray, number: int) -> np.ndarray:
    """Log-probabilities of a line that may hold logits; refuses what cannot be either."""
    if len(line) == 0:
        return line
    bad = np.isnan(line) | np.isposinf(line)
    if bad.any():
        t, c = (int(i) for i in np.argwhere(bad)[0])
        raise FadaError(f"line {number}, frame {t}, class {c}: {line[t, c]}, expected a log-probability.")
    top = line.max(axis=1)
    if np.isneginf(top).any():
        t = int(np.argmax(np.isneginf(top)))
        raise FadaError(
            f"line {number}, frame {t}: every class has probability zero (-inf), expected at least one above."
        )
    if line.min() >= 0 and line.max() <= 1 and np.allclose(line.sum(axis=1), 1, atol=1e-2):
        raise FadaError(f"line {number}: these are probabilities, expected their logarithms. Pass numpy.log(...).")
    with np.errstate(under="ignore", over="ignore"):
        sums = np.exp(line.astype(np.float64)).sum(axis=1)
    if np.allclose(sums, 1, rtol=0, atol=0.05):
        return line
    return log_softmax(line.astype(np.float64), axis=1).astype(line.dtype)


_compiling = Lock()
_is_compiled = False


def _compile_once() -> None:
    """Compile (or load from numba's cache) the search before threads share it, telling whoever is watching."""
    global _is_compiled
    if _is_compiled:
        return
    with _compiling:
        if _is_compiled:
            return
        _is_compiled = True
        with waiting("preparing the decoder (compiled once, then cached) …"):
            tiny = CTCBeamDecoder(["", "a"], threads=1)
            tiny.decode(np.log(np.full((1, 2), 0.5)))
