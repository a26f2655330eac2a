"""What every recogniser can do, whatever its network: prepare lines, train on them, emit, transcribe."""

import os
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Union, cast

import numpy as np
import torch
from torch import Tensor
from transformers import PreTrainedModel

from fada.alignment import AlignmentLoss
from fada.data.line import Line
from fada.decoding.knowledge import Decoder, Knowledge
from fada.decoding.search import Search
from fada.decoding.weights import Weights
from fada.errors import FadaError
from fada.targets.target_set import TargetSet

if TYPE_CHECKING:
    from PIL import Image

    from fada.data.augment import Augment

Tagging = Literal["none", "given", "predicted"]
"""TR-TT: no domain token; the domain is known at inference; the model predicts it."""

NewCharacters = Literal["fail", "add", "ignore"]
"""What to do about characters of the training text that a loaded model lacks."""

IGNORED = -100

Readable = Union[Line, str, os.PathLike[str], bytes, np.ndarray, "Image.Image"]
"""What a line may be given as."""


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


@contextmanager
def one_thread_each() -> Iterator[int]:
    """Let every operation run on one thread; yields on how many threads they may run side by side."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield threads
    finally:
        torch.set_num_threads(threads)


class Recognizer(ABC):
    """A network with its processor.

    Attributes:
        model: the network.
        modality: what is read, `image` or `audio`.
        domains: the domains that have a tag (TR-TT), empty without tagging.
        tagging: how the tag is used at inference.
        folder: where it was loaded from, if from a folder; a decoder may be stored there.
        rows: lines that a CPU gives to the network at once, always as many, so that what it finds does not depend on
            the batch.
    """

    kind: ClassVar[Literal["ctc", "seq2seq"]]
    modality: ClassVar[Literal["image", "audio"]] = "image"
    model: PreTrainedModel
    domains: tuple[str, ...] = ()
    tagging: Tagging = "none"
    rows: ClassVar[int] = 1
    folder: Path | None = None

    @abstractmethod
    def prepare(self, line: Line) -> np.ndarray:
        """The line as an array of the network's own size; its last axis is the one that varies."""

    @property
    @abstractmethod
    def characters(self) -> str:
        """What it can write: its characters, or how many subwords."""

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

    def transcribe(self, lines: "Readable | Iterable[Readable]", *, batch_size: int = 8, **options: Any) -> Any:
        """The text of a line, or the texts of several, as ``fada transcribe`` reads them.

        Args:
            lines: a file, its bytes, a Pillow image, a grey array or a :class:`fada.data.line.Line`; or several.
            batch_size: lines per call of the network.
            options: of the search instead of the decoder that is stored with the model; see the kind of recogniser.
        """
        several = not isinstance(lines, str | os.PathLike | bytes | np.ndarray | Line) and isinstance(lines, Iterable)
        given = [self._line(one, number) for number, one in enumerate(cast(Any, lines) if several else [lines])]
        if options:
            texts = self._transcribe(given, batch_size, **options)
        else:
            decoder = (self.folder and Decoder.of_model(self.folder)) or Decoder(Weights(), Knowledge())
            texts = self.search(given, decoder.knowledge, batch_size=batch_size).choose(decoder.weights)
        return texts if several else texts[0]

    @abstractmethod
    def _transcribe(self, lines: Sequence[Line], batch_size: int, **options: Any) -> list[str]:
        """The texts of lines, with options of the search."""

    def _line(self, one: "Readable", number: int) -> Line:
        """A line of whatever holds its image or sound."""
        if isinstance(one, Line):
            return one
        if isinstance(one, np.ndarray):
            from PIL import Image

            one = Image.fromarray(one)
        name = os.fspath(one) if isinstance(one, str | os.PathLike) else f"line {number}"
        media: Any = Path(one) if isinstance(one, str | os.PathLike) else one
        return Line(f"{number} {name}", source=name, **{self.modality: media})

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
