"""CTC recognisers of torch: the loss, and what they find."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor
from transformers.utils import ModelOutput

from fada.alignment import AlignmentLoss, BigramLoss
from fada.data.line import Line
from fada.decoding.ctc import CTCBeamDecoder
from fada.models.ctc import CTCRecognizer
from fada.models.network import Network, one_thread_each
from fada.targets.target_set import TargetSet


@dataclass
class CTCOutput(ModelOutput):
    """What a CTC model gives.

    Attributes:
        loss: CTC loss per character, averaged over the lines (with labels only).
        logits: (batch, time, classes).
        lengths: (batch,) valid frames of each line.
    """

    loss: Tensor | None = None
    logits: Tensor | None = None
    lengths: Tensor | None = None


def ctc_loss(logits: Tensor, lengths: Tensor, labels: Tensor, blank: int) -> Tensor:
    """CTC loss divided by the length of each label, averaged over the lines; labels: (batch, length), -100 ignored.

    A line with more characters than frames counts zero. Where the device lacks the operation (Apple's MPS) it is
    computed on the CPU.
    """
    log_probs = logits.float().log_softmax(-1).transpose(0, 1)  # (time, batch, classes)
    if log_probs.device.type == "mps":
        log_probs, lengths, labels = log_probs.cpu(), lengths.cpu(), labels.cpu()
    counts = (labels >= 0).sum(-1)
    loss = F.ctc_loss(log_probs, labels.clamp(min=0), lengths, counts, blank=blank, zero_infinity=True)
    return loss.to(logits.device)


class CTCNetwork(CTCRecognizer, Network):
    """A CTC recogniser that torch runs."""

    def alignment_loss(self, targets: TargetSet, **options: Any) -> AlignmentLoss:
        """Expected counts of the collapsed output; tags write nothing."""
        return AlignmentLoss.for_ctc(targets, (*self.symbols, *[""] * self.tag_classes), self.blank, **options)

    def bigram_loss(self, targets: TargetSet, texts: Mapping[str, Sequence[str]], **options: Any) -> AlignmentLoss:
        """Expected counts of pairs of classes; the tags of domains would stand between them."""
        if self.tag_classes:
            return super().bigram_loss(targets, texts, **options)
        return BigramLoss.of_texts(targets, texts, self.alphabet, **options)

    def alignment_inputs(self, outputs: Any, inputs: dict[str, Tensor]) -> tuple[Tensor, Tensor]:
        """Log-probabilities and frames."""
        return outputs.logits.float().log_softmax(-1), self.frames(outputs, inputs)

    def frames(self, outputs: Any, inputs: dict[str, Tensor]) -> Tensor:
        """(batch,) valid frames of the output."""
        return outputs.lengths

    def log_probs(self, inputs: dict[str, Tensor]) -> list[np.ndarray]:
        """Log-probabilities (time, classes) of each line of a batch, the classes of tags among them."""
        self.model.eval()
        with self.running(), torch.no_grad():
            outputs = self.model(**inputs)
            scores = outputs.logits.float().log_softmax(-1).cpu()
            lengths = self.frames(outputs, inputs).tolist()
        return [score[:length].numpy().copy() for score, length in zip(scores, lengths, strict=True)]

    def scores(self, line: Line) -> np.ndarray:
        """Log-probabilities (time, classes) of a line, the classes of tags among them."""
        return self.scores_of(self.prepare(line), line)

    def scores_of(self, prepared: np.ndarray, line: Line) -> np.ndarray:
        """Those of a line as :meth:`prepare` made it, or as another look shows it."""
        return self.log_probs(self.told(self.collate([prepared]), [line]))[0]

    def told(self, inputs: dict[str, Tensor], lines: Sequence[Line]) -> dict[str, Tensor]:
        """Network input with what is told of the lines; most networks are told nothing."""
        return inputs

    def side_by_side(self) -> AbstractContextManager[int]:
        return one_thread_each()

    def read(self, inputs: dict[str, Tensor], lines: Sequence[Line]) -> list[str]:
        """Best path."""
        decoder = CTCBeamDecoder(self.alphabet)
        return [
            decoder.greedy(self.without_tags(scores)[0]).text for scores in self.log_probs(self.told(inputs, lines))
        ]

    def _emitted(self, lines: Iterable[Line], batch_size: int) -> Iterator[tuple[Line, np.ndarray, str | None]]:
        """Every line with its log-probabilities and the domain that is told; in batches on a GPU, for one look."""
        if self.model.device.type == "cpu" or self.looks != 1:
            yield from super()._emitted(lines, batch_size)
            return
        for batch, inputs in self.batches(lines, batch_size):
            for line, scores in zip(batch, self.log_probs(self.told(inputs, batch)), strict=True):
                yield line, *self.without_tags(scores)
