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
"""

import logging
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Literal, get_args

import numpy as np
import torch
from torch import Tensor, nn

from fada import distances
from fada.common.processes import summed
from fada.errors import FadaError
from fada.targets.target_set import TargetSet
from fada.text.alphabet import Alphabet, alphabet_of
from fada.text.characters import OTHER

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

log = logging.getLogger(__name__)

Pool = Literal["sample", "domain", "epoch"]
Schedule = Literal["fixed", "warmup", "adaptive"]

NAMES = ("task_loss", "alignment", "task_gradient", "alignment_gradient", "cosine")
"""What is measured: both terms (the alignment without scale), their gradient norms at the output, their cosine."""

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
    probs = _at_least_float32(log_probs).exp()
    inside = torch.arange(probs.shape[1], device=probs.device) < lengths.to(probs.device)[:, None]  # (batch, time)
    probs = probs * inside[..., None]
    return probs.sum(1) - (probs[:, 1:] * probs[:, :-1]).sum(1)


def expected_token_counts(logits: Tensor, labels: Tensor) -> Tensor:
    """Expected number of times each token is written at the positions that have a label.

    Args:
        logits: (batch, time, vocabulary).
        labels: (batch, time), -100 where nothing is to be written.

    Returns:
        (batch, vocabulary), float32 or wider.
    """
    return _SummedProbabilities.apply(logits, labels != -100)


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
    rows: Tensor
    columns: Tensor
    amounts: Tensor
    running: Tensor

    def __init__(
        self,
        targets: TargetSet,
        counts: Any,
        kind: Literal["ctc", "tokens"],
        lam: float = 0.5,
        distance: str = "sorted_w2",
        scale: float = 1.0,
        pool: Pool = "sample",
        momentum: float = 0.9,
    ) -> None:
        """See `for_ctc` and `for_tokens`; `counts` is the sparse (classes, characters) matrix of each class's text."""
        super().__init__()
        if not 0 <= lam <= 1:
            raise FadaError(f"lam is {lam}, expected a number from 0 (alignment only) to 1 (task only).")
        if pool not in get_args(Pool):
            raise FadaError(f"pool is {pool!r}, expected one of {', '.join(get_args(Pool))}.")
        if not scale >= 0:
            raise FadaError(f"scale is {scale}, expected a number from 0 up.")
        self.lam = self.full_lam = lam
        self.scale, self.pool, self.kind, self.momentum = scale, pool, kind, momentum
        self.distance_name, self.distance = distance, distances.get(distance)
        self.domains = targets.domains
        matrix = counts.tocoo()  # (classes, n): the characters of each class
        # (domains + 1, n), without OTHER; the last row, all domains together, is for lines of any other domain
        rows = np.vstack([targets.frequencies, targets.overall.frequencies])
        frequencies = torch.tensor(rows, dtype=torch.float32)
        frequencies = nn.functional.pad(frequencies, (0, matrix.shape[1] - frequencies.shape[1]))
        self.register_buffer("targets_matrix", frequencies, persistent=False)
        self.register_buffer("rows", torch.from_numpy(matrix.row.astype(np.int64)), persistent=False)
        self.register_buffer("columns", torch.from_numpy(matrix.col.astype(np.int64)), persistent=False)
        self.register_buffer("amounts", torch.from_numpy(matrix.data.astype(np.float32)), persistent=False)
        self.register_buffer("running", torch.zeros_like(frequencies))
        self.last_alignment: Tensor | None = None
        self._told: set[str | None] = set()

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
            options: `lam`, `distance`, `scale`, `pool`.
        """
        from scipy.sparse import csr_matrix

        cells = _cells(targets)
        index = {character: i for i, character in enumerate(cells)}
        texts = alphabet_of(symbols, blank).texts
        written = [
            (row, index.get(character, index[OTHER]))
            for row, text in enumerate(texts)
            for character in targets.normalizer.of_part(text)
        ]
        rows, columns = zip(*written, strict=True) if written else ((), ())
        counts = csr_matrix((np.ones(len(written)), (rows, columns)), shape=(len(texts), len(cells)))
        return cls(targets, _without_unused_other(counts, targets), "ctc", **options)

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
            tokenizer: of the model.
            vocabulary_size: columns of the logits, where the output layer is larger than the tokenizer.
            options: `lam`, `distance`, `scale`, `pool`.
        """
        from fada.text.tokens import TokenTable

        table = TokenTable.from_tokenizer(tokenizer)
        counts = table.resized(vocabulary_size or len(table)).counts(_cells(targets), targets.normalizer)
        return cls(targets, _without_unused_other(counts, targets), "tokens", **options)

    def forward(
        self, task_loss: Tensor, scores: Tensor, extent: Tensor, domains: Sequence[str | None] | Tensor
    ) -> Tensor:
        """The total loss.

        Args:
            task_loss: scalar.
            scores: CTC: log-probabilities (batch, time, classes); decoders: logits (batch, time, vocabulary).
            extent: CTC: lengths (batch,); decoders: labels (batch, time), -100 is ignored.
            domains: (batch,) names, or indices into `self.domains`. A line without a domain, or of one that has no
                target, is aligned to all domains together (as an index: the one after the last).
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
        """The alignment term, scale included: a scalar."""
        with torch.autocast(scores.device.type, enabled=False):
            counts = self.character_counts(scores, extent)  # (batch, n)
            where = self._domain_indices(domains).to(counts.device)
            if self.pool == "sample":
                return self.scale * self.distance(frequencies_of(counts), self.targets_matrix[where].to(counts)).mean()
            return self.scale * self._pooled(counts, where)

    def character_counts(self, scores: Tensor, extent: Tensor) -> Tensor:
        """(batch, n) expected number of each character of the alphabet in each line."""
        classes = (expected_ctc_counts if self.kind == "ctc" else expected_token_counts)(scores, extent)
        counts = classes.new_zeros(len(classes), self.targets_matrix.shape[1])
        return counts.index_add(1, self.columns, classes[:, self.rows] * self.amounts.to(classes.dtype))

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
                decay = 1 - present * (1 - self.momentum)
                self.running.copy_(decay * kept + present * pooled)
            pooled = self.momentum * kept + pooled
        per_domain = self.distance(frequencies_of(pooled), self.targets_matrix.to(pooled))
        return (per_domain * lines).sum() / lines.sum()

    def _domain_indices(self, domains: Sequence[str | None] | Tensor) -> Tensor:
        if isinstance(domains, Tensor):
            return domains
        unknown = {domain for domain in domains if domain not in self.domains} - self._told
        if unknown:
            self._told |= unknown
            names = ", ".join(sorted(domain or "none" for domain in unknown))
            log.warning("no target for the domain %s: aligned to that of all domains together", names)
        return torch.tensor([self.domains.index(d) if d in self.domains else len(self.domains) for d in domains])


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


def _cells(targets: TargetSet) -> tuple[str, ...]:
    """The characters that are told apart, with a last cell for all others."""
    return targets.symbols if OTHER in targets.symbols else (*targets.symbols, OTHER)


def _without_unused_other(counts: Any, targets: TargetSet) -> Any:
    """Drop the `OTHER` column where no class can write such a character: n stays the size of the alphabet."""
    if OTHER in targets.symbols or counts[:, -1].nnz:
        return counts
    return counts[:, :-1]
