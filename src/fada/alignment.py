r"""The alignment loss (FADA-TR): train a recogniser to use characters as often as its domain does.

The loss of a batch is the convex combination of the paper's algorithm,

.. math:: L = \lambda L_{task} + (1 - \lambda) \, \frac{s}{|B|} \sum_{i \in B} W_2(q_i, p_{d_i})

with the predicted distribution :math:`q_i` of line i, the target :math:`p_{d_i}` of its domain, and a scale s (1 in
the paper). :math:`\lambda = 1` is the plain task loss, to the bit.

=========  ============================================================================================
pool       whose frequencies are compared with the target
=========  ============================================================================================
`sample`   each line's own (the paper). A line of 40 characters is far from its domain even when read perfectly
`domain`   those of all lines of a domain in the batch, over all processes
`epoch`    a running average per domain over the batches so far; gradients flow through the batch's part
=========  ============================================================================================

The paper takes :math:`q_i` "from the model's output logits" and does not say how. What is done here for CTC, and two
other readings of that sentence, which exist to be compared with it:

==========  ===========================================================================================
predicted   what the predicted distribution is made of
==========  ===========================================================================================
`expected`  exact expected counts of the collapsed text
`frames`    probabilities summed over frames, the blank being one more character, whose target is zero
`decoded`   the characters of the best path. It has no gradient, so the term only scales the task loss by λ
==========  ===========================================================================================
"""

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Literal, get_args

import numpy as np
import torch
from torch import Tensor, nn

from fada import distances
from fada.common.processes import summed
from fada.distances import DISTANCE, LAM, SCALE
from fada.errors import FadaError
from fada.targets.target_set import TargetSet
from fada.text.alphabet import Alphabet, alphabet_of
from fada.text.characters import OTHER
from fada.text.counting import count_matrix
from fada.text.joins import Join, joins_of
from fada.text.tokens import TokenTable, whole_characters

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

log = logging.getLogger(__name__)

Pool = Literal["sample", "domain", "epoch"]
Schedule = Literal["fixed", "warmup", "adaptive"]
Predicted = Literal["expected", "frames", "decoded"]

NAMES = ("task_loss", "alignment", "task_gradient", "alignment_gradient", "cosine")
"""What is measured: both terms (the alignment without scale), their gradient norms at the output, their cosine."""

_MOMENTUM = 0.9  # of the running average of the pool `epoch`
_MOST_OFF = 0.1  # of the sum of probabilities, which half precision rounds
_LEAST_COUNT = 1e-6  # characters; an emptier prediction keeps the zero vector of an empty text


def expected_ctc_counts(log_probs: Tensor, lengths: Tensor) -> Tensor:
    r"""Expected number of times each class is written in the collapsed output of a CTC model.

    Frames are independent given the input, so a class is written at frame t exactly if it is the label of t and not
    of t - 1:

    .. math:: E[n_c] = \sum_{t < T} p_t(c) \, (1 - p_{t-1}(c)), \quad p_{-1} = 0

    which is exact for every class but the blank, whose column has no meaning. Summing frames would over-count
    characters that last long.

    Args:
        log_probs: (batch, time, classes), natural logarithms.
        lengths: (batch,) valid frames of each line.

    Returns:
        (batch, classes), float32 or wider.
    """
    probs = _written_probs(log_probs, lengths)
    return probs.sum(1) - (probs[:, 1:] * probs[:, :-1]).sum(1)


def expected_ctc_bigrams(log_probs: Tensor, lengths: Tensor, blank: int = 0) -> Tensor:
    r"""Expected number of times each class follows each other one in the collapsed output of a CTC model.

    With the probability :math:`\ell_t(c) = p_t(c) + p_t(blank) \, \ell_{t-1}(c)` that c is the last class written by
    frame t, the pair (c, d) is written at frame t exactly if d is its label, and not a repetition:

    .. math:: E[n_{cd}] = \sum_t \ell_{t-1}(c) \, p_t(d) - [c = d] \, p_{t-1}(c) \, p_t(c)

    Exact, in one pass over time.

    Args:
        log_probs: (batch, time, classes), natural logarithms.
        lengths: (batch,) valid frames of each line.
        blank: its class; its row and column are zero.

    Returns:
        (batch, classes, classes), float32 or wider: first class, second class.
    """
    probs = _written_probs(log_probs, lengths)
    idle = probs[..., blank, None]  # (batch, time, 1)
    written = torch.arange(probs.shape[-1], device=probs.device) != blank
    probs = probs * written
    last, ends = torch.zeros_like(probs[:, 0]), []
    for now, pause in zip(probs[:, :-1].unbind(1), idle[:, :-1].unbind(1), strict=True):
        last = now + pause * last
        ends.append(last)
    if not ends:
        return probs.new_zeros(len(probs), probs.shape[-1], probs.shape[-1])
    pairs = torch.einsum("btc,btd->bcd", torch.stack(ends, 1), probs[:, 1:])
    return pairs - torch.diag_embed((probs[:, 1:] * probs[:, :-1]).sum(1))


class _Joining(nn.Module):
    r"""Expected number of times each join of two classes is written: what single classes cannot tell.

    Where frames (or positions) are independent given the input, the probability :math:`h_t(s)` that the text ends in s
    and its last class is the label of frame t, and :math:`b_t(s)`, that it ends in s and frame t is blank, follow from
    those of frame t - 1; a join of s with the class k is written at t with the probability
    :math:`p_t(k) (b_{t-1}(s) + [k \ne last(s)] \, h_{t-1}(s))`. Exact: one pass over time finds the ends, of which a
    longer one is reached from one that is shorter by a join; all joins are counted together after it.

    Args:
        joins: of the classes.
        columns: of the characters.
        blank: the class of the CTC blank; None for tokens, each of which is written at one position.
    """

    last: Tensor
    shorter: Tensor
    alone: Tensor
    longer: Tensor
    doubled: Tensor
    kinds: Tensor
    before: Tensor
    kind: Tensor
    repeated: Tensor
    single: Tensor
    parted: Tensor
    change: Tensor

    def __init__(self, joins: Sequence[Join], columns: Mapping[str, int], blank: int | None) -> None:
        super().__init__()
        self.blank = blank
        ends = list(dict.fromkeys(join.before for join in joins))
        state = {end: i for i, end in enumerate(ends)}
        kinds = sorted({join.joining for join in joins})
        other = columns.get(OTHER, -1)
        change = torch.zeros(len(joins), len(columns))
        for row, join in enumerate(joins):
            for character, amount in join.change.items():
                change[row, columns.get(character, other)] += amount
        reached = {join.after for join in joins if len(join.after) > 1}
        single = [
            (row, state[join.joining,])
            for row, join in enumerate(joins)
            if len(join.after) > 1 and (join.joining,) in state
        ]
        parts: dict[str, list[int]] = {
            "last": [end[-1] for end in ends],
            "shorter": [state.get(end[:-1], 0) for end in ends],
            "doubled": [i for i, end in enumerate(ends) if blank is not None and end[-2:-1] == end[-1:]],
            "kinds": kinds,
            "before": [state[join.before] for join in joins],
            "kind": [kinds.index(join.joining) for join in joins],
            "repeated": [i for i, join in enumerate(joins) if blank is not None and join.joining == join.before[-1]],
            "single": [row for row, _ in single],
            "parted": [end for _, end in single],
        }
        for name, values in parts.items():
            self.register_buffer(name, torch.tensor(values, dtype=torch.long), persistent=False)
        flags: dict[str, list[bool]] = {
            "alone": [len(end) == 1 for end in ends],
            "longer": [end in reached for end in ends],
        }
        for name, told in flags.items():
            self.register_buffer(name, torch.tensor(told, dtype=torch.float32)[:, None], persistent=False)
        self.register_buffer("change", change, persistent=False)

    def forward(self, probs: Tensor) -> Tensor:
        """By how much the expected counts of characters differ from those of single classes.

        Args:
            probs: (batch, time, classes), zero where nothing is to be written.

        Returns:
            (batch, characters).
        """
        probs = probs.permute(1, 2, 0)  # (time, classes, batch)
        label = probs.index_select(1, self.last)  # (time, ends, batch)
        stays, pause = torch.zeros_like(label), torch.zeros_like(probs[:, :1])
        if self.blank is not None:
            stays, pause = label, probs[:, self.blank, None]
        begun = label * self.alone * (1 - nn.functional.pad(stays[:-1], (0, 0, 0, 0, 1, 0)))
        joined, kinds = label * self.longer, probs.index_select(1, self.kinds)
        held = idle = torch.zeros_like(label[0])
        holds, ends = [], []
        for begins, joins, stay, rest, now in zip(begun, joined, stays, pause, kinds, strict=True):
            end = idle + held
            holds.append(held)
            ends.append(end)
            reach = end.index_select(0, self.shorter)
            if len(self.doubled):
                reach = reach.index_add(0, self.doubled, -held.index_select(0, self.shorter[self.doubled]))
            moved = torch.addcmul(begins, joins, reach)
            if len(self.single):
                flow = self._written(end[None], held[None], now[None])
                moved = moved.index_add(0, self.parted, -flow.index_select(0, self.single))
            idle, held = rest * end, torch.addcmul(moved, stay, held)
        return self._written(torch.stack(ends), torch.stack(holds), kinds).t() @ self.change.to(held)

    def _written(self, ends: Tensor, holds: Tensor, kinds: Tensor) -> Tensor:
        """(joins, batch) how often each join is written in all.

        Args:
            ends: (time, ends, batch) probability of each end before the frame.
            holds: the same, and that its last class is the label of the frame before.
            kinds: (time, kinds, batch) probability of each joining class at the frame.
        """
        pairs = torch.einsum("teb,tkb->ekb", ends, kinds).flatten(0, 1)
        same = kinds.index_select(1, self.kind[self.repeated]) * holds.index_select(1, self.before[self.repeated])
        written = pairs.index_select(0, self.before * kinds.shape[1] + self.kind)
        return written.index_add(0, self.repeated, -same.sum(0))


def expected_token_counts(logits: Tensor, labels: Tensor) -> Tensor:
    """Expected number of times each token is written at the positions that have a label.

    Args:
        logits: (batch, time, vocabulary).
        labels: (batch, time), -100 where nothing is to be written.

    Returns:
        (batch, vocabulary), float32 or wider.
    """
    return _SummedProbabilities.apply(logits, labels != -100)


def _written_probs(log_probs: Tensor, lengths: Tensor) -> Tensor:
    """(batch, time, classes) probabilities, zero beyond the length of each line."""
    probs = _at_least_float32(log_probs).exp()
    inside = torch.arange(probs.shape[1], device=probs.device) < lengths.to(probs.device)[:, None]  # (batch, time)
    return probs * inside[..., None]


def _check_log_probs(scores: Tensor, lengths: Tensor) -> None:
    sums = _written_probs(scores, lengths).sum(-1)  # (batch, time), zero beyond the length
    wrong = sums[(sums > 0) & ((sums - 1).abs() > _MOST_OFF)]
    if len(wrong):
        raise FadaError(
            f"the exponentials of a frame sum to {wrong[0]:.3g}, expected 1: these are no log-probabilities. "
            "Pass scores.log_softmax(-1)."
        )


class _SummedProbabilities(torch.autograd.Function):
    """Sum of softmax(logits) over the chosen positions, line by line.

    The probabilities of 50,000 tokens are computed again in the backward pass instead of being kept: memory is what
    such a decoder has least of.
    """

    @staticmethod
    def forward(ctx: Any, logits: Tensor, chosen: Tensor) -> Tensor:
        ctx.save_for_backward(logits, chosen)
        return torch.stack(
            [where.to(p.dtype) @ p for row, where in zip(logits, chosen, strict=True) for p in [_softmax(row)]]
        )

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        logits, chosen = ctx.saved_tensors
        result = torch.empty_like(logits)
        for out, row, where, gradient in zip(result, logits, chosen, gradients[0], strict=True):
            probs = _softmax(row)
            mean = probs @ gradient
            probs *= where[:, None]
            out.copy_(probs).mul_(gradient).sub_(probs.mul_(mean[:, None]))  # in place, one line at a time
        return result, None


def _softmax(logits: Tensor) -> Tensor:
    return _at_least_float32(logits).softmax(-1)


def _at_least_float32(x: Tensor) -> Tensor:
    return x.float() if x.dtype in (torch.bfloat16, torch.float16) else x


class AlignmentLoss(nn.Module):
    """Task loss and distance to the domain's character distribution, combined. Build it with `for_ctc` or `for_tokens`.

    Called as ``loss(task_loss, log_probs, lengths, domains)`` for CTC models and as
    ``loss(task_loss, logits, labels, domains)`` for decoders. `domains` are names, or indices into `targets.domains`
    as a tensor. After a call, `last_alignment` holds the alignment term (scale included), None at λ = 1.

    Relations: ``lam=1`` is the plain task loss with bit-identical gradients; ``distance="sorted_w2"`` is Eq. 1;
    ``distance="aligned_w2"`` also asks that the right characters have the right frequencies.
    """

    targets_matrix: Tensor
    leading: Tensor
    special: Tensor
    rows: Tensor
    columns: Tensor
    amounts: Tensor
    running: Tensor

    def __init__(
        self,
        targets: TargetSet,
        texts: "_Texts",
        kind: Literal["ctc", "tokens"],
        lam: float = LAM,
        distance: str = DISTANCE,
        scale: float = SCALE,
        pool: Pool = "sample",
        predicted: Predicted = "expected",
    ) -> None:
        """See `for_ctc` and `for_tokens`; `texts` is what the classes write."""
        super().__init__()
        if not 0 <= lam <= 1:
            raise FadaError(f"lam is {lam}, expected a number from 0 (alignment only) to 1 (task only).")
        if pool not in get_args(Pool):
            raise FadaError(f"pool is {pool!r}, expected one of {', '.join(get_args(Pool))}.")
        if predicted not in get_args(Predicted):
            raise FadaError(f"predicted is {predicted!r}, expected one of {', '.join(get_args(Predicted))}.")
        if predicted != "expected" and kind != "ctc":
            raise FadaError(f"predicted is {predicted!r}, which is a reading of CTC outputs; a decoder has 'expected'.")
        if not scale >= 0:
            raise FadaError(f"scale is {scale}, expected a number from 0 up.")
        self.lam = self.full_lam = lam
        self.scale, self.pool, self.kind, self.predicted = scale, pool, kind, predicted
        self.distance = distances.get(distance)
        self.domains = targets.domains
        matrix = texts.counts.tocoo()  # (classes, n): the characters of each class
        # (domains + 1, n), without OTHER; the last row, all domains together, is for lines of any other domain
        rows = np.vstack([targets.frequencies, targets.overall.frequencies])
        frequencies = torch.tensor(rows, dtype=torch.float32)
        frequencies = nn.functional.pad(frequencies, (0, matrix.shape[1] - frequencies.shape[1]))
        self.register_buffer("targets_matrix", frequencies, persistent=False)
        self.register_buffer("rows", torch.from_numpy(matrix.row.astype(np.int64)), persistent=False)
        self.register_buffer("columns", torch.from_numpy(matrix.col.astype(np.int64)), persistent=False)
        self.register_buffer("amounts", torch.from_numpy(matrix.data.astype(np.float32)), persistent=False)
        self.register_buffer("running", torch.zeros_like(frequencies))
        self.joining = texts.joining
        self.register_buffer("leading", torch.from_numpy(texts.leading), persistent=False)
        self.register_buffer("special", torch.from_numpy(texts.special), persistent=False)
        self.space = texts.space
        self.last_alignment: Tensor | None = None
        self._told: set[str | None] = set()
        self._read = False

    @classmethod
    def for_ctc(
        cls, targets: TargetSet, symbols: Sequence[str] | Alphabet, blank: int = 0, **options: Any
    ) -> "AlignmentLoss":
        """For CTC models.

        Args:
            targets: the distribution of each domain.
            symbols: text of each class, of any length; its characters are counted after the targets' normaliser, so
                a class whose lower-case form has two code points counts for two.
            blank: the class that writes nothing.
            options: `lam`, `distance`, `scale`, `pool`, `predicted`.
        """
        alphabet = alphabet_of(symbols, blank)
        texts = _Texts.of_classes(targets, alphabet.texts, alphabet.blank)
        if options.get("predicted") == "frames":
            texts = texts.with_blank(alphabet.blank)
        return cls(targets, texts, "ctc", **options)

    @classmethod
    def for_tokens(
        cls,
        targets: TargetSet,
        tokenizer: "PreTrainedTokenizerBase",
        vocabulary_size: int | None = None,
        **options: Any,
    ) -> "AlignmentLoss":
        """For decoders over subwords.

        A token counts for the characters that lie wholly in it, after the targets' normaliser; special tokens count
        for none. Byte-level tokens that hold a part of a character count for none either (208 of RoBERTa's 50,265),
        so text in scripts that the tokenizer spells in bytes is better trained with those characters added to it.

        Args:
            targets: the distribution of each domain.
            tokenizer: of the model, or its processor.
            vocabulary_size: columns of the logits, where the output layer is larger than the tokenizer.
            options: `lam`, `distance`, `scale`, `pool`.
        """
        table = TokenTable.from_tokenizer(tokenizer)
        texts = _Texts.of_tokens(targets, table.resized(vocabulary_size or len(table)))
        return cls(targets, texts, "tokens", **options)

    def forward(
        self, task_loss: Tensor, scores: Tensor, extent: Tensor, domains: Sequence[str | None] | Tensor
    ) -> Tensor:
        """The total loss.

        Args:
            task_loss: scalar.
            scores: CTC: log-probabilities (batch, time, classes); decoders: logits (batch, time, vocabulary).
            extent: CTC: lengths (batch,); decoders: labels (batch, time), -100 is ignored.
            domains: (batch,) names, or indices into `self.domains` as a tensor. A line without a domain, or of one that
                has no target, is aligned to all domains together (as an index: the one after the last).
        """
        if self.lam == 1:
            self.last_alignment = None
            return task_loss
        self.last_alignment = self.alignment(scores, extent, domains).to(task_loss.device)
        return self.lam * task_loss + (1 - self.lam) * self.last_alignment

    def warm_up(self, progress: float) -> None:
        """Schedule: λ falls from 1 (task alone) to its full strength as `progress` goes from 0 to 1."""
        self.lam = 1 - (1 - self.full_lam) * min(max(progress, 0.0), 1.0)

    def balance(self, task_loss: Tensor, alignment: Tensor, outputs: Tensor, inertia: float = 0.9) -> None:
        """Adaptive λ: at λ = 0.5 both terms pull equally hard on the network's `outputs`, else as λ to 1 - λ.

        With the gradient norms g of the two terms at the outputs, the λ that is used from now on is
        ``lam * g_align / (lam * g_align + (1 - lam) * g_task)``, smoothed over calls.
        """
        norms = pull(task_loss, alignment, outputs)[[NAMES.index("task_gradient"), NAMES.index("alignment_gradient")]]
        task, align = summed(norms).tolist()
        task, align = (1 - self.full_lam) * task, self.full_lam * align
        if task + align > 0:
            self.lam = inertia * self.lam + (1 - inertia) * align / (task + align)

    def alignment(self, scores: Tensor, extent: Tensor, domains: Sequence[str | None] | Tensor) -> Tensor:
        """The alignment term, scale included: a scalar, zero for a batch without lines."""
        self._check(scores, extent, domains)
        if not len(scores) and self.pool == "sample":  # a pool waits for the lines of the other processes
            return _at_least_float32(scores).sum()
        with torch.autocast(scores.device.type, enabled=False):
            counts = self.character_counts(scores, extent)  # (batch, n)
            where = self._domain_indices(domains).to(counts.device)
            if self.pool == "sample":
                return self.scale * self.distance(frequencies_of(counts), self.targets_matrix[where].to(counts)).mean()
            return self.scale * self._pooled(counts, where)

    def _check(self, scores: Tensor, extent: Tensor, domains: Sequence[str | None] | Tensor) -> None:
        """Refuse shapes that would be stretched to fit, and at the first call logits of a CTC model."""
        found, classes = tuple(scores.shape), len(self.special)
        if len(found) != 3 or found[-1] != classes:
            hint = " Where the output layer is larger than the tokenizer, give vocabulary_size."
            raise FadaError(
                f"scores of shape {found}, expected (batch, time, {classes}) for {classes} classes."
                f"{'' if self.kind == 'ctc' else hint}"
            )
        name, wanted = ("lengths", found[:1]) if self.kind == "ctc" else ("labels", found[:2])
        if extent.shape != wanted:
            raise FadaError(
                f"{name} of shape {tuple(extent.shape)}, expected {wanted} for scores of shape {found}, batch first."
            )
        if isinstance(domains, str) or len(domains) != found[0]:
            shown = repr(domains) if isinstance(domains, str) else len(domains)
            raise FadaError(f"domains: found {shown} for {found[0]} lines, expected a list with one for each line.")
        if self.kind == "ctc" and not self._read and len(scores):
            self._read = True
            _check_log_probs(scores.detach(), extent)

    def character_counts(self, scores: Tensor, extent: Tensor) -> Tensor:
        """(batch, n) expected number of each character of the alphabet in each line, or what `predicted` says."""
        if self.predicted == "decoded":
            best = nn.functional.one_hot(scores.detach().argmax(-1), scores.shape[-1])
            scores = best.to(_at_least_float32(scores).dtype).log()  # expected counts of one path are its counts
        if self.predicted == "frames":
            classes = _written_probs(scores, extent).sum(1)
        else:
            classes = (expected_ctc_counts if self.kind == "ctc" else expected_token_counts)(scores, extent)
        counts = classes.new_zeros(len(classes), self.targets_matrix.shape[1])
        counts = counts.index_add(1, self.columns, classes[:, self.rows] * self.amounts.to(classes.dtype))
        if self.kind == "ctc":
            if self.joining is None or self.predicted == "frames":
                return counts
            return counts + self.joining(_written_probs(scores, extent))
        if self.space is not None:
            spaces = nn.functional.pad(
                self._leading_spaces(scores, extent), (self.space, counts.shape[1] - self.space - 1)
            )
            counts = counts - spaces
        if self.joining is not None:
            counts = counts + self.joining(_softmax(scores) * (extent != -100)[..., None])
        return counts

    def _leading_spaces(self, logits: Tensor, labels: Tensor) -> Tensor:
        """(batch, 1) expected spaces that the first token of each text begins with: no text begins with a space."""
        is_text = (labels != -100) & ~self.special[labels.clamp(min=0)]
        first = is_text.to(torch.uint8).argmax(1)
        probs = _softmax(logits[torch.arange(len(logits), device=logits.device), first])  # (batch, vocabulary)
        return (probs @ self.leading.to(probs) * is_text.any(1))[:, None]

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"last_alignment": None}  # torch copies no tensor that has a graph

    def start_epoch(self) -> None:
        """Forget the running average."""
        self.running.zero_()

    def _pooled(self, counts: Tensor, where: Tensor) -> Tensor:
        member = nn.functional.one_hot(where, len(self.targets_matrix)).to(counts.dtype)  # (batch, domains + 1)
        pooled = summed(member.t() @ counts)  # (domains + 1, n)
        lines = summed(member.sum(0))
        if self.pool == "epoch":
            present = (lines > 0).to(counts.dtype)[:, None]
            kept = self.running.to(pooled)
            with torch.no_grad():
                decay = 1 - present * (1 - _MOMENTUM)
                self.running.copy_(decay * kept + present * pooled)
            pooled = _MOMENTUM * kept + pooled
        per_domain = self.distance(frequencies_of(pooled), self.targets_matrix.to(pooled))
        return (per_domain * lines).sum() / lines.sum().clamp(min=1)

    def _domain_indices(self, domains: Sequence[str | None] | Tensor) -> Tensor:
        if isinstance(domains, Tensor):
            return domains
        unknown = {domain for domain in domains if domain not in self.domains} - self._told
        if odd := [domain for domain in unknown if not isinstance(domain, str | None)]:
            raise FadaError(f"the domain {odd[0]!r} is no text: domains are names, or indices in a tensor.")
        if unknown:
            self._told |= unknown
            names = ", ".join(sorted(domain or "none" for domain in unknown))
            log.warning("no target for the domain %s: aligned to that of all domains together", names)
        places = [self.domains.index(d) if d in self.domains else len(self.domains) for d in domains]
        return torch.tensor(places, dtype=torch.long)


class BigramLoss(AlignmentLoss):
    """Alignment of pairs of characters, for CTC models: beyond the paper, which names it as future work.

    All is as in :class:`AlignmentLoss`, with the exact expected counts of pairs in place of those of characters. Of the
    distances, ``sorted_w2`` compares how unevenly pairs are used, ``aligned_w2`` which pairs. Build it with `of_texts`.
    """

    cells: Tensor

    def __init__(self, targets: TargetSet, texts: "_Texts", pairs: np.ndarray, blank: int, **options: Any) -> None:
        """See `of_texts`; `pairs` are the counts (domains + 1, n, n) in the domains' texts, the last row in all."""
        super().__init__(targets, texts, "ctc", **options)
        self.blank = blank
        self.register_buffer("cells", torch.from_numpy(texts.counts.toarray().astype(np.float32)), persistent=False)
        counts = torch.from_numpy(pairs.reshape(len(pairs), -1).astype(np.float32))
        self.targets_matrix = frequencies_of(counts)
        self.running = torch.zeros_like(self.targets_matrix)

    @classmethod
    def of_texts(
        cls, targets: TargetSet, texts: Mapping[str, Sequence[str]], alphabet: Alphabet, **options: Any
    ) -> "BigramLoss":
        """For CTC models whose classes write one character each.

        Args:
            targets: tells domains, characters and normaliser.
            texts: of each domain; their pairs are the target.
            alphabet: what the classes write.
            options: `lam`, `distance`, `scale`, `pool`.
        """
        known = _Texts.of_classes(targets, alphabet.texts, alphabet.blank)
        each = np.asarray(known.counts.sum(1)).ravel()
        odd = [text for i, text in enumerate(alphabet.texts) if i != alphabet.blank and each[i] != 1]
        if odd or known.joining is not None:
            shown = ", ".join(map(repr, odd[:5])) or "combining marks"
            raise FadaError(f"pairs of characters need classes that write one character each, found {shown}.")
        size = known.counts.shape[1]
        pairs = np.zeros((len(targets.domains) + 1, size, size))
        place = {character: i for i, character in enumerate(targets.symbols)}
        other = place.get(OTHER, len(targets.symbols))
        for row, domain in enumerate(targets.domains):
            for text in texts.get(domain, ()):
                found = [place.get(character, other) for character in targets.normalizer(text)]
                known_pairs = [(a, b) for a, b in pairwise(found) if max(a, b) < size]
                np.add.at(pairs[row], tuple(np.array(known_pairs, int).reshape(-1, 2).T), 1)
        pairs[-1] = pairs[:-1].sum(0)
        return cls(targets, known, pairs, alphabet.blank, **options)

    def character_counts(self, scores: Tensor, extent: Tensor) -> Tensor:
        """(batch, n · n) expected number of each pair of characters in each line."""
        pairs, cells = expected_ctc_bigrams(scores, extent, self.blank), self.cells.to(scores)
        return torch.einsum("ci,bcd,dj->bij", cells, pairs, cells).flatten(1)


def pull(task_loss: Tensor, alignment: Tensor, outputs: Tensor, scale: float = 1.0) -> Tensor:
    """(5,) float32, in the order of :data:`NAMES`; the graph of both terms is kept.

    Args:
        task_loss, alignment: scalars, means over the lines of the batch; `alignment` includes `scale`.
        outputs: (batch, time, classes), what both were computed from.
    """
    task, align = (torch.autograd.grad(term, outputs, retain_graph=True)[0].float() for term in (task_loss, alignment))
    norms = task.norm(), align.norm()
    cosine = (task * align).sum() / (norms[0] * norms[1]).clamp_min(torch.finfo(torch.float32).tiny)
    scale = scale or 1.0
    terms = task_loss.detach().float(), alignment.detach().float() / scale, norms[0], norms[1] / scale, cosine
    return torch.stack([term.to(outputs.device) for term in terms])


def named(sums: Sequence[float], batches: float) -> dict[str, float]:
    """Means with their names, from sums over batches."""
    return {**{name: float(total) / batches for name, total in zip(NAMES, sums, strict=True)}, "batches": int(batches)}


def frequencies_of(counts: Tensor) -> Tensor:
    """Counts (..., n) divided by their sum; (almost) nothing written gives the zero vector, with a zero gradient."""
    total = counts.sum(-1, keepdim=True)
    written = total > _LEAST_COUNT
    return torch.where(written, counts / torch.where(written, total, 1.0), 0.0)


@dataclass(frozen=True)
class _Texts:
    """What the classes of a model write, over the characters of the targets.

    Attributes:
        counts: (classes, n) sparse, the characters of each class on its own; `OTHER` only where one can be written.
        joining: for classes that change what stands before them, if there are any.
        leading: (classes,) spaces that a token begins with.
        special: (classes,) bool, tokens that are no text.
        space: the column in which these spaces are counted, None where there are none.
    """

    counts: Any
    joining: _Joining | None
    leading: np.ndarray
    special: np.ndarray
    space: int | None = None

    @classmethod
    def of_classes(cls, targets: TargetSet, texts: Sequence[str], blank: int | None) -> "_Texts":
        """Of the classes of a CTC model; without a blank, of tokens."""
        joins = joins_of(texts, targets.normalizer)
        cells = targets.symbols if OTHER in targets.symbols else (*targets.symbols, OTHER)
        counts = count_matrix(texts, cells, targets.normalizer)
        joined = {c for join in joins for c, amount in join.change.items() if amount > 0}
        if OTHER not in targets.symbols and not counts[:, -1].nnz and joined <= set(cells):
            counts, cells = counts[:, :-1], cells[:-1]  # nothing else can be written: n stays the size of the alphabet
        joining = _Joining(joins, {c: i for i, c in enumerate(cells)}, blank) if joins else None
        return cls(counts, joining, np.zeros(len(texts)), np.zeros(len(texts), bool))

    def with_blank(self, blank: int) -> "_Texts":
        """With one more character, which the blank writes."""
        from scipy import sparse

        last = np.zeros((self.counts.shape[0], 1))
        last[blank] = 1
        return replace(self, counts=sparse.hstack([self.counts, last]).tocsr())

    @classmethod
    def of_tokens(cls, targets: TargetSet, table: TokenTable) -> "_Texts":
        """Of the tokens of a decoder, of which the first may begin with a space that is no part of the text."""
        texts = [whole_characters(piece) for piece in table.pieces]
        parts = map(targets.normalizer.of_part, texts)
        leading = np.array([len(part) - len(part.lstrip(" ")) for part in parts], np.float64)
        space = targets.symbols.index(" ") if " " in targets.symbols else len(targets.symbols)
        known = cls.of_classes(targets, texts, None)
        return replace(known, leading=leading, special=table.special, space=space if leading.any() else None)
