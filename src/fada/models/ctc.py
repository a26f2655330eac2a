"""What every CTC recogniser shares: one class per character and a blank, emissions, the loss."""

import os
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import islice
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor
from transformers.utils import ModelOutput

from fada.alignment import AlignmentLoss
from fada.data.line import Line
from fada.decoding.ctc import CTCBeamDecoder
from fada.decoding.emissions import Emissions
from fada.decoding.knowledge import Knowledge
from fada.decoding.search import BeamSearch, Search
from fada.errors import FadaError
from fada.models.recognizer import Recognizer, one_thread_each
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


class CTCRecognizer(Recognizer):
    """A recogniser with one class per character and a blank.

    Attributes:
        symbols: text of each class, without the tags of TR-TT, whose classes come last in the network.
        blank: class of the blank.
    """

    kind = "ctc"
    symbols: tuple[str, ...]
    blank: int

    @property
    def characters(self) -> str:
        """Those of its classes."""
        return "".join(symbol for i, symbol in enumerate(self.symbols) if i != self.blank)

    def _check_classes(self, outputs: int) -> None:
        """Refuse an alphabet that is not that of the network's output."""
        if len(self.symbols) + len(self.domains) != outputs:
            tags = f" and {len(self.domains)} domains" if self.domains else ""
            raise FadaError(
                f"{self.model.name_or_path or 'the model'}: the network has {outputs} classes, but its processor names "
                f"{len(self.symbols)} symbols{tags}: the files are of two models. Get both from the same one."
            )

    def alignment_loss(self, targets: TargetSet, **options: Any) -> AlignmentLoss:
        """Expected counts of the collapsed output; tags write nothing."""
        return AlignmentLoss.for_ctc(targets, (*self.symbols, *[""] * len(self.domains)), self.blank, **options)

    def alignment_inputs(self, outputs: Any, inputs: dict[str, Tensor]) -> tuple[Tensor, Tensor]:
        """Log-probabilities and frames."""
        return outputs.logits.float().log_softmax(-1), self.frames(outputs, inputs)

    def frames(self, outputs: Any, inputs: dict[str, Tensor]) -> Tensor:
        """(batch,) valid frames of the output."""
        return outputs.lengths

    def log_probs(self, inputs: dict[str, Tensor]) -> tuple[list[np.ndarray], list[str | None]]:
        """Log-probabilities (time, symbols) of each line, and the domain that its tag classes tell, if it has them.

        A tag is removed by giving its probability to the blank: the collapsed text without the tag has exactly the
        probability it had with the tag taken out.
        """
        self.model.eval()
        with torch.no_grad():
            outputs = self.model(**inputs)
            scores = outputs.logits.float().log_softmax(-1).cpu()
            lengths = self.frames(outputs, inputs).tolist()
        characters = len(self.symbols)
        lines = [score[:length] for score, length in zip(scores, lengths, strict=True)]
        domains: list[str | None] = [None] * len(lines)
        if self.domains:
            domains = [self.domains[int(line[:, characters:].exp().sum(0).argmax())] for line in lines]
            for line in lines:
                line[:, self.blank] = torch.cat([line[:, self.blank, None], line[:, characters:]], 1).logsumexp(1)
        return [line[:, :characters].numpy().copy() for line in lines], domains

    def read(self, inputs: dict[str, Tensor], lines: Sequence[Line]) -> list[str]:
        """Best path."""
        decoder = CTCBeamDecoder(self.symbols, self.blank)
        return [decoder.greedy(scores).text for scores in self.log_probs(inputs)[0]]

    def emit(self, lines: Iterable[Line], *, batch_size: int = 8) -> Emissions:
        """Log-probabilities of lines, with their ids, domains and texts.

        With `tagging="predicted"` the domain of a line is the one that the network tells.
        """
        found = list(self._emitted(lines, batch_size))
        told = [domain if self.tagging == "predicted" else line.domain for line, _, domain in found]
        texts = [line.text for line, _, _ in found if line.text is not None]
        return Emissions(
            ids=[line.id for line, _, _ in found],
            log_probs=[scores for _, scores, _ in found],
            symbols=self.symbols,
            blank=self.blank,
            domains=[domain or "" for domain in told] if any(told) else None,
            references=texts if len(texts) == len(found) else None,
        )

    def _emitted(self, lines: Iterable[Line], batch_size: int) -> Iterator[tuple[Line, np.ndarray, str | None]]:
        """Every line with its log-probabilities and the domain that the network tells.

        A CPU gives each line to the network alone, and works at several lines side by side: what it finds is the same
        to the last digit whatever the batch, the neighbours and the number of threads, and takes no longer.
        """
        if self.model.device.type != "cpu":
            for batch, inputs in self.batches(lines, batch_size):
                yield from zip(batch, *self.log_probs(inputs), strict=True)
            return

        def alone(line: Line) -> tuple[Line, np.ndarray, str | None]:
            (scores,), (domain,) = self.log_probs(self.collate([self.prepare(line)]))
            return line, scores, domain

        rest = iter(lines)
        with one_thread_each() as threads, ThreadPoolExecutor(threads) as pool:
            while batch := list(islice(rest, batch_size)):
                yield from pool.map(alone, batch)

    def search(
        self,
        lines: Iterable[Line],
        knowledge: Knowledge | None = None,
        *,
        batch_size: int = 8,
        threads: int | None = None,
        cache: str | os.PathLike[str] | None = None,
    ) -> Search:
        """Beam search over the emissions of lines."""
        return BeamSearch(self.emit(lines, batch_size=batch_size), knowledge, threads)

    def _transcribe(self, lines: Sequence[Line], batch_size: int, **options: Any) -> list[str]:
        """`options` are those of :class:`fada.CTCBeamDecoder`."""
        decoder = CTCBeamDecoder(self.symbols, blank=self.blank, **options)
        return [best[0].text for best in decoder.decode_batch(self.emit(lines, batch_size=batch_size).log_probs)]
