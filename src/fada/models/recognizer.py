"""What every recogniser can do, whatever its network: prepare lines, train on them, emit, transcribe."""

import os
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import numpy as np
import torch
from torch import Tensor
from transformers import PreTrainedModel

from fada.alignment import AlignmentLoss
from fada.data.line import Line
from fada.decoding.knowledge import Knowledge
from fada.decoding.search import BeamSearch, Search
from fada.errors import FadaError
from fada.targets.target_set import TargetSet

if TYPE_CHECKING:
    from fada.data.augment import Augment
    from fada.decoding.emissions import Emissions

Tagging = Literal["none", "given", "predicted"]
"""TR-TT: no domain token; the domain is known at inference; the model predicts it."""

NewCharacters = Literal["fail", "add", "ignore"]
"""What to do about characters of the training text that a loaded model lacks."""

IGNORED = -100


def characters_to_add(missing: Sequence[str], policy: NewCharacters, lacking: str) -> Sequence[str]:
    """The missing characters if they are to be added, none if ignored, an error that lists them if refused.

    `lacking` is what lacks them, for the message.
    """
    if missing and policy == "fail":
        names = ", ".join(f"{c!r} (U+{ord(c):04X})" for c in missing[:10])
        raise FadaError(
            f"{len(missing)} characters of the training text are missing from {lacking}: {names}"
            f"{', …' if len(missing) > 10 else ''}. Use --new-characters add (or ignore)."
        )
    return missing if policy == "add" else ()


def domain_tag(domain: str) -> str:
    """The token that stands for a domain in TR-TT training."""
    return f"<domain:{domain}>"


class Recognizer(ABC):
    """A network with its processor.

    Attributes:
        model: the network.
        modality: what is read, `image` or `audio`.
        domains: the domains that have a tag (TR-TT), empty without tagging.
        tagging: how the tag is used at inference.
    """

    kind: ClassVar[Literal["ctc", "seq2seq"]]
    modality: ClassVar[Literal["image", "audio"]] = "image"
    model: PreTrainedModel
    domains: tuple[str, ...] = ()
    tagging: Tagging = "none"

    @abstractmethod
    def prepare(self, line: Line) -> np.ndarray:
        """The line as an array of the network's own size; its last axis is the one that varies."""

    @abstractmethod
    def encode(self, text: str, domain: str | None = None) -> list[int]:
        """Training labels of a text; with tagging, the domain's tag among them."""

    @abstractmethod
    def collate(self, arrays: Sequence[np.ndarray], labels: Sequence[list[int]] | None = None) -> dict[str, Tensor]:
        """Network input of a batch."""

    @abstractmethod
    def alignment_loss(self, targets: TargetSet, **options: Any) -> AlignmentLoss:
        """The alignment loss that fits this network's output."""

    @abstractmethod
    def alignment_inputs(self, outputs: Any, inputs: dict[str, Tensor]) -> tuple[Tensor, Tensor]:
        """What the alignment loss takes of the network's output: scores and lengths, or logits and labels."""

    def task_loss(self, model: torch.nn.Module, inputs: dict[str, Tensor]) -> tuple[Tensor, Any]:
        """The loss of a batch and the network's output. `model` is the network, wrapped or compiled."""
        outputs = model(**inputs)
        return outputs.loss, outputs

    @abstractmethod
    def save_pretrained(self, folder: str | os.PathLike[str]) -> None:
        """Write the network and its processor."""

    @abstractmethod
    def read(self, inputs: dict[str, Tensor], lines: Sequence[Line]) -> list[str]:
        """The texts of a batch by the cheapest search: best path, greedy. `lines` tell the domains, if needed."""

    @abstractmethod
    def transcribe(self, lines: Iterable[Line], *, batch_size: int = 8, **options: Any) -> list[str]:
        """The texts of lines."""

    @abstractmethod
    def search(
        self,
        lines: Iterable[Line],
        knowledge: Knowledge | None = None,
        *,
        batch_size: int = 8,
        threads: int | None = None,
        cache: str | os.PathLike[str] | None = None,
    ) -> Search:
        """Run the network over lines and search for their texts under any weights.

        Args:
            lines: with `domain`, if their target is to be that of the domain.
            knowledge: targets and language models.
            batch_size: lines per call of the network.
            threads: of a CTC beam search.
            cache: folder in which a model with a frozen encoder keeps what that makes of the lines.
        """

    def augmented(self, array: np.ndarray, augment: "Augment", epoch: int, index: int) -> np.ndarray:
        """A random variation of a prepared line, a pure function of seed, epoch and index."""
        return augment(array, epoch=epoch, index=index) if self.modality == "image" else array

    def batches(self, lines: Iterable[Line], batch_size: int) -> Iterator[tuple[list[Line], dict[str, Tensor]]]:
        """Lines and network input, batch by batch, in order, on the model's device."""
        rest = iter(lines)
        while batch := list(islice(rest, batch_size)):
            yield batch, self.to_device(self.collate([self.prepare(line) for line in batch]))

    def to_device(self, inputs: dict[str, Tensor]) -> dict[str, Tensor]:
        """Network input on the device of the network."""
        return {name: value.to(self.model.device) for name, value in inputs.items()}


class CTCRecognizer(Recognizer):
    """A recogniser with one class per character and a blank.

    Attributes:
        symbols: text of each class, without the tags of TR-TT, whose classes come last in the network.
        blank: class of the blank.
    """

    kind = "ctc"
    symbols: tuple[str, ...]
    blank: int

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
        return [best_path(scores, self.symbols, self.blank) for scores in self.log_probs(inputs)[0]]

    def emit(self, lines: Iterable[Line], *, batch_size: int = 8) -> "Emissions":
        """Log-probabilities of lines, with their ids, domains and texts.

        With `tagging="predicted"` the domain of a line is the one that the network tells.
        """
        from fada.decoding.emissions import Emissions

        kept: list[Line] = []
        scores: list[np.ndarray] = []
        told: list[str | None] = []
        for batch, inputs in self.batches(lines, batch_size):
            log_probs, domains = self.log_probs(inputs)
            kept += batch
            scores += log_probs
            told += domains if self.tagging == "predicted" else [line.domain for line in batch]
        return Emissions(
            ids=[line.id for line in kept],
            log_probs=scores,
            symbols=self.symbols,
            blank=self.blank,
            domains=[domain or "" for domain in told] if any(told) else None,
            references=None if any(line.text is None for line in kept) else [str(line.text) for line in kept],
        )

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

    def transcribe(self, lines: Iterable[Line], *, batch_size: int = 8, **options: Any) -> list[str]:
        """The texts of lines; `options` are those of :class:`fada.CTCBeamDecoder` (none: best path)."""
        if not options:
            return [text for batch, inputs in self.batches(lines, batch_size) for text in self.read(inputs, batch)]
        from fada.decoding.ctc import CTCBeamDecoder

        decoder = CTCBeamDecoder(self.symbols, blank=self.blank, **options)
        return [best[0].text for best in decoder.decode_batch(self.emit(lines, batch_size=batch_size).log_probs)]


def best_path(log_probs: np.ndarray, symbols: Sequence[str], blank: int) -> str:
    """The collapsed most probable class of every frame; log_probs: (time, classes)."""
    path = log_probs.argmax(-1)
    kept = path[np.concatenate([[True], path[1:] != path[:-1]])] if len(path) else path
    return "".join(symbols[i] for i in kept if i != blank)


def padded_labels(labels: Sequence[list[int]]) -> Tensor:
    """(batch, longest) classes, padded with -100."""
    return torch.nn.utils.rnn.pad_sequence(
        [torch.tensor(label, dtype=torch.long) for label in labels], batch_first=True, padding_value=IGNORED
    )


def characters_of(texts: Iterable[str]) -> list[str]:
    """The characters of texts, sorted; no text at all is an error."""
    characters = sorted({character for text in texts for character in text})
    if not characters:
        raise FadaError("the training lines have no text: no character to learn. Check the text column.")
    return characters
