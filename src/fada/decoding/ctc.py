r"""CTC prefix beam search guided by a target distribution (Eq. 2), with language model, prior and constraints.

Every frame, all hypotheses are ranked by the whole score

.. math::
    S(h) = \lambda \log P(h) - (1-\lambda)\, s\, d(h, p) + w_{lm} \log P_{lm}(h)
           + w_{prior} \sum_c (\log p(c) - \log p_{train}(c)) + b\, |h|

and exactly the best `beam_size` are kept; no class is cut by its probability. With λ = 1 (or without a target) and no
further term this is plain prefix beam search. ``docs/decoding.md`` explains the algorithm.
"""

import logging
from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache
from typing import Any

import numpy as np

from fada.decoding.batch import (
    Batch,
    Classes,
    LanguageTerm,
    LineByLine,
    Plan,
    Share,
    TargetRow,
    available_cores,
    compile_once,
    decode_shares,
    normalized,
)
from fada.decoding.guidance import Constraint, Guidance, check_target, check_weight
from fada.decoding.hypothesis import Hypothesis
from fada.decoding.kernels.automaton import Automaton
from fada.decoding.kernels.memory import UNFIT, address_of
from fada.decoding.lm import CharNgram, prior_weights
from fada.decoding.steps import StepTable, SymbolSteps
from fada.decoding.weights import BEAM, check_beam
from fada.decoding.words import Word, checked, forced
from fada.distances import DISTANCE, LAM, SCALE
from fada.errors import FadaError
from fada.targets.distribution import CharDistribution
from fada.text.alphabet import Alphabet, alphabet_of
from fada.text.normalizer import TextNormalizer

log = logging.getLogger(__name__)

_MOST_CHARACTERS = 65_000
_USUAL_FRAMES = 256
_AS_WRITTEN = TextNormalizer(form="NFC", case="keep")


class CTCBeamDecoder:
    """Guided CTC decoding.

    ::

        decoder = CTCBeamDecoder(symbols, beam_size=5, target=targets["14"], lam=0.5)
        best = decoder.decode(log_probs)[0]
        best.text, best.score, best.log_prob, best.distance

    Args:
        symbols: (V,) the text of each class of the model: any strings, also empty, of several code points or combining
            marks. That of the blank is ignored. Classes with the same text are one class: their probabilities are
            added in every frame, and one beside the other is one character.
        blank: index of the blank class.
        beam_size: hypotheses kept per frame. 1 follows the single best prefix by the whole score: nearly best path
            decoding, and the one setting in which a hypothesis cannot be overtaken later.
        target: the distribution to align to; None for none (λ counts as 1 then). An edited one also acts on single
            characters: each that was made more or less frequent adds log(edited / counted) whenever it is written
            (unless there is a `prior_weight`, which does that already), and one with the frequency 0 is forbidden.
        lam: λ of Eq. 2, from 0 to 1.
        distance: ``sorted_w2``, ``aligned_w2`` (both O(1) per character), ``js``, ``kl`` or ``w1``.
        scale: factor of the distance; 1 is the paper.
        lm: a character n-gram model (natural logarithms), weighted with `lm_weight`.
        lm_weight: its weight, from 0 (the default: it does not count) up.
        lm_end: whether it also scores that the line ends where a hypothesis does. The beam is ranked anew by that after
            the last frame, as other decoders do.
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
        beam_size: int = BEAM,
        target: CharDistribution | None = None,
        lam: float = LAM,
        distance: str = DISTANCE,
        scale: float = SCALE,
        lm: CharNgram | None = None,
        lm_weight: float = 0.0,
        prior: CharDistribution | None = None,
        prior_weight: float = 0.0,
        length_bonus: float = 0.0,
        forbidden: Iterable[str] = (),
        allowed: Iterable[str] | None = None,
        threads: int | None = None,
        lm_end: bool = False,
    ) -> None:
        self.alphabet = alphabet_of(symbols, blank)
        self.symbols, self.blank = self.alphabet.symbols, self.alphabet.blank
        self.beam_size = check_beam(_check_count("beam_size", beam_size))
        self.threads = None if threads is None else _check_count("threads", threads)
        check_weight("lam", lam, 0, 1)
        check_weight("scale", scale, 0, np.inf)
        check_weight("lm_weight", lm_weight, 0, np.inf)
        check_weight("prior_weight", prior_weight, -np.inf, np.inf)
        check_weight("length_bonus", length_bonus, -np.inf, np.inf)
        self.target, self.lam, self.distance, self.scale = target, float(lam), distance, float(scale)
        self.lm, self.lm_weight, self.lm_end = lm, float(lm_weight), bool(lm_end)
        self.prior, self.prior_weight = prior, float(prior_weight)
        self.length_bonus = float(length_bonus)
        self.forbidden = frozenset(forbidden)
        self.allowed = None if allowed is None else frozenset(allowed)
        self._classes = Classes(self.alphabet)
        self._steps: dict[TextNormalizer, SymbolSteps] = {}
        self._tables: dict[Any, StepTable] = {}
        self._rows: dict[int, TargetRow] = {}
        self._automata: dict[int, tuple[CharNgram | None, Automaton]] = {}
        self._plans: dict[Any, Plan] = {}
        self._idle: dict[Any, list[LineByLine]] = {}
        if target is not None:
            self._row(target)

    def replace(self, **changes: Any) -> "CTCBeamDecoder":
        """A decoder with other settings; what was prepared for the symbols and language models is shared."""
        names = "symbols blank beam_size target lam distance scale lm lm_weight lm_end prior prior_weight length_bonus"
        settings = {name: getattr(self, name) for name in [*names.split(), "forbidden", "allowed", "threads"]}
        unknown = sorted(set(changes) - set(settings))
        if unknown:
            raise FadaError(f"unknown decoder setting {unknown[0]!r}, expected one of {', '.join(settings)}.")
        other = CTCBeamDecoder(**{**settings, **changes})
        if other.alphabet == self.alphabet:
            other._classes, other._steps = self._classes, self._steps
            other._tables, other._automata = self._tables, self._automata
        return other

    def decode(
        self,
        log_probs: Any,
        nbest: int = 1,
        alignment: bool = False,
        prefix: str = "",
        words: Sequence[Word] = (),
    ) -> list[Hypothesis]:
        """The best readings of one line, best first.

        Args:
            log_probs: (T, V) natural log-probabilities per frame and class, float32 or float64, numpy or torch.
            nbest: how many hypotheses to return, at most `beam_size`; fewer if there are not as many.
            alignment: whether the hypotheses tell the frames and the confidence of each character.
            prefix: what the text must begin with, as it is written. Its probability is summed over all paths; the
                beam is for what follows. If it cannot be, the one hypothesis is empty and impossible.
            words: texts that stand in the line, each with its first frame and the one after its last: of the paths only
                those count that write exactly this text there. What stands before, in and after a word is collapsed
                for itself, see :mod:`fada.decoding.words`.
        """
        if words:
            return self._with_words(log_probs, nbest, alignment, prefix, words)
        if prefix:
            return self._continue(log_probs, nbest, alignment, prefix)
        return (
            self._at_once(log_probs, nbest, alignment)
            or self.decode_batch([log_probs], None, None, nbest, alignment)[0]
        )

    def _at_once(self, log_probs: Any, nbest: int, alignment: bool) -> list[Hypothesis]:
        """What :meth:`decode_batch` finds for one line, without its preparations; nothing if they are needed."""
        if self._classes.twins or (self.prior_weight and self.target is None):
            return []
        compile_once()
        try:
            address, (frames, V) = address_of(log_probs), log_probs.shape
        except UNFIT:
            return []
        if len(self.symbols) != V or frames == 0:
            return []
        nbest = min(_check_count("nbest", nbest), self.beam_size)
        idle = self._idle.setdefault((id(self.target), id(self.lm), self.beam_size, nbest, log_probs.itemsize), [])
        try:
            search = idle.pop()  # no other thread gets it before it is put back
        except IndexError:
            search = None
        if search is None or search.most_frames < frames:
            ((plan, _),) = self._grouped([self.target], [self.lm], alike=True)
            guidance = None if self.target is None else self._row(self.target).guidance
            most_frames = max(_USUAL_FRAMES, 2 * frames)
            search = LineByLine(plan, self.beam_size, most_frames, log_probs.dtype, guidance, self._kept(nbest))
        found = search.decode(log_probs, address)
        idle.append(search)
        if self.lm_end:
            found = self._ended(found, self.lm)[:nbest]
        if alignment:
            found = [h._replace(alignment=self._classes.align(log_probs, h.labels)) for h in found]
        return found

    def _with_words(
        self, log_probs: Any, nbest: int, alignment: bool, prefix: str, words: Sequence[Word]
    ) -> list[Hypothesis]:
        """The best readings that have `words` in their frames: each way to write them has a beam of its own."""
        nbest = min(_check_count("nbest", nbest), self.beam_size)
        line = self._classes.without_empty(normalized(self._classes.read(log_probs)))
        lam = 1.0 if self.target is None else self.lam
        found = [
            way.restored(hypothesis, lam)
            for way in forced(line, checked(words, len(line)), self.alphabet)
            if way.log_prob > -np.inf
            for hypothesis in self.decode(way.log_probs, nbest, alignment, prefix)
            if hypothesis.log_prob > -np.inf
        ]
        found.sort(key=lambda h: -h.score)
        distance = None if self.target is None else self._row(self.target).guidance.distance_of("")
        return found[:nbest] or [Hypothesis("", -np.inf, -np.inf, distance)]

    def _continue(self, log_probs: Any, nbest: int, alignment: bool, prefix: str) -> list[Hypothesis]:
        """The best readings that begin with `prefix`: each way to write it has a beam of its own."""
        nbest = min(_check_count("nbest", nbest), self.beam_size)
        line = self._classes.without_empty(normalized(self._classes.read(log_probs)))
        beginnings = self._classes.beginnings(prefix)
        guidance = None if self.target is None else self._row(self.target).guidance
        found: list[Hypothesis] = []
        if beginnings:
            many = len(beginnings)
            batch = Batch(self._classes, [line] * many, [guidance] * many, self._kept(nbest), alignment)
            batch.begin_with(beginnings)
            targets, lms = [self.target] * many, [self.lm] * many
            ((plan, members),) = self._grouped(targets, lms, alike=True)
            decode_shares([Share(plan, batch, self.beam_size, members, targets)], 1, batch.collect_finished)
            batch.collect_rest()
            found = [h for hypotheses in batch.hypotheses for h in hypotheses if h.log_prob > -np.inf]
            found = self._ended(found, self.lm)
        distance = None if guidance is None else guidance.distance_of("")
        found.sort(key=lambda h: -h.score)
        return found[:nbest] or [Hypothesis("", -np.inf, -np.inf, distance)]

    def decode_batch(
        self,
        log_probs: Sequence[Any],
        targets: Sequence[CharDistribution | None] | None = None,
        lms: Sequence[CharNgram | None] | None = None,
        nbest: int = 1,
        alignment: bool = False,
        ids: Sequence[str] | None = None,
        failed: Callable[[int, FadaError], None] | None = None,
    ) -> list[list[Hypothesis]]:
        """Decode many lines on all threads, in order.

        Args:
            log_probs: one (T, V) array per line.
            targets: one target per line (None: no guidance for it); by default the decoder's for all.
            lms: one language model per line; by default the decoder's for all.
            nbest: hypotheses per line.
            alignment: whether the hypotheses tell the frames and the confidence of each character.
            ids: what errors call the lines, instead of their numbers.
            failed: called with the number of a line that cannot be decoded (NaN, another number of classes) and the
                reason, and the others go on; such a line has no hypotheses. By default the reason is raised.
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
        guidances = [None if t is None else self._row(t).guidance for t in targets]
        batch = Batch(self._classes, lines, guidances, self._kept(nbest), alignment, ids, failed)
        shares = [
            Share(plan, batch, self.beam_size, members, targets) for plan, members in self._grouped(targets, lms, alike)
        ]
        decode_shares(shares, min(self.threads or available_cores(), len(lines)), batch.collect_finished)
        batch.collect_rest()
        if self.lm_end:
            return [self._ended(found, lm)[:nbest] for found, lm in zip(batch.hypotheses, lms, strict=True)]
        return batch.hypotheses

    def _kept(self, nbest: int) -> int:
        """How many hypotheses the search must give for so many: all, if the end of the line ranks them anew."""
        return self.beam_size if self.lm_end and self.lm_weight > 0 else nbest

    def _ended(self, found: list[Hypothesis], lm: CharNgram | None) -> list[Hypothesis]:
        """Hypotheses ranked with the probability that a line ends where they do, if that counts."""
        if lm is None or not self.lm_end or not self.lm_weight:
            return found
        ends = [float(lm.character_log_probs(h.text, end=True)[-1]) for h in found]
        scored = [
            h._replace(score=h.score + self.lm_weight * end, lm_log_prob=h.lm_log_prob + end)
            for h, end in zip(found, ends, strict=True)
        ]
        return sorted(scored, key=lambda h: -h.score)

    def greedy(self, log_probs: Any, alignment: bool = False) -> Hypothesis:
        """Best path decoding: the best class of every frame, collapsed. No target, language model or constraint.

        `log_prob` and `score` are those of the one path.
        """
        line = self._classes.merged(normalized(self._classes.read(log_probs)))
        best = line.argmax(axis=1)
        starts = np.flatnonzero(np.diff(best, prepend=-1))
        labels = tuple(c for c in best[starts].tolist() if c != self.blank)
        text = "".join([self.symbols[c] for c in labels])
        log_prob = float(line[np.arange(len(line)), best].sum(dtype=np.float64))
        distance = None if self.target is None else self._row(self.target).guidance.distance_of(text)
        alignment_ = self._classes.align(line, labels) if alignment else None
        return Hypothesis(text, log_prob, log_prob, distance, 0.0, labels, alignment_)

    def _row(self, target: CharDistribution) -> TargetRow:
        row = self._rows.get(id(target))
        if row is None:
            row = self._rows[id(target)] = self._prepare_row(target)
        return row

    def _prepare_row(self, target: CharDistribution) -> TargetRow:
        check_target(target)
        steps = self._steps_for(target.normalizer)
        # An edited target says of single characters what Eq. 2 cannot see; λ = 1 asks for no target at all.
        acts = bool(target.edits) and self.lam < 1
        forbidden = self.forbidden | target.forbidden if acts else self.forbidden
        guidance = Guidance(target, self.lam, self.distance, self.scale, forbidden, self.allowed)
        guidance = guidance.covering(steps.characters)
        if len(guidance.alphabet) > _MOST_CHARACTERS:
            raise FadaError(f"a target of {len(guidance.alphabet)} characters, expected at most {_MOST_CHARACTERS}.")
        table = self._table(steps, guidance.alphabet, guidance.constraint)
        weights = np.zeros(len(guidance.alphabet))
        if self.prior_weight:
            if self.prior is None:
                raise FadaError("prior_weight needs the distribution of the training text: pass prior=targets.overall.")
            weights = self.prior_weight * prior_weights(guidance.target, self.prior)
        elif acts:
            weights = guidance.target.edit_weights
        if acts:
            _tell_edits(target.describe_edits(), self.distance)
        return TargetRow(target, guidance, table, weights)

    def _steps_for(self, normalizer: TextNormalizer) -> SymbolSteps:
        return self._steps.setdefault(normalizer, SymbolSteps(self.symbols, self.blank, normalizer))

    def _table(self, steps: SymbolSteps, alphabet: tuple[str, ...], constraint: Constraint) -> StepTable:
        key = (steps.normalizer, alphabet, constraint)
        if key not in self._tables:
            self._tables[key] = StepTable(steps, alphabet, constraint)
        return self._tables[key]

    def _language(self, lm: CharNgram | None) -> LanguageTerm:
        if id(lm) not in self._automata:
            if lm is not None and not isinstance(lm, CharNgram):
                raise FadaError(f"lm is a {type(lm).__name__}, expected a CharNgram: the search must see inside it.")
            self._automata[id(lm)] = lm, (lm or CharNgram.uniform("")).automaton(self.alphabet.texts)
        return LanguageTerm(self._automata[id(lm)][1], self.lm_weight if lm is not None else 0.0)

    def _grouped(
        self,
        targets: Sequence[CharDistribution | None],
        lms: Sequence[CharNgram | None],
        alike: bool,
    ) -> list[tuple[Plan, np.ndarray]]:
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
                self._plans[key] = self._plan(unique, lm)
            plans.append((self._plans[key], np.sort(np.concatenate(parts))))
        return plans

    def _plan(self, targets: Sequence[CharDistribution | None], lm: CharNgram | None) -> Plan:
        rows = [self._row(target) for target in targets if target is not None]
        if rows:
            table = rows[0].table
        else:
            steps = self._steps_for(_AS_WRITTEN)
            constraint = Constraint(_AS_WRITTEN, self.forbidden, self.allowed)
            table = self._table(steps, tuple(sorted(steps.characters)), constraint)
        position = {id(target): i for i, target in enumerate(targets)}
        return Plan(self._classes, table, rows, self._language(lm), self.length_bonus, position)


@lru_cache(maxsize=256)
def _tell_edits(edits: str, distance: str) -> None:
    """Say once what an edited target does."""
    log.info("edited target: %s", edits)
    if distance == "sorted_w2":
        log.warning("sorted_w2 cannot see which character an edited target means; aligned_w2 can (--distance)")


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
