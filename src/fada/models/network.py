"""A recogniser whose network torch runs: it can be trained, looked into and saved."""

import os
from abc import abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import torch
from torch import Tensor
from transformers import PreTrainedModel

from fada.alignment import AlignmentLoss
from fada.common.files import is_full, naming
from fada.data.line import Line
from fada.errors import FadaError
from fada.models.recognizer import BrokenModel, Recognizer
from fada.targets.target_set import TargetSet

if TYPE_CHECKING:
    from fada.data.augment import Augment

NewCharacters = Literal["fail", "add", "ignore"]
"""What to do about characters of the training text that a loaded model lacks."""

IGNORED = -100

ANEW = "Get its files anew."


def load_weights(kind: Any, name: str | os.PathLike[str], new: Sequence[str] = ()) -> Any:
    """A network of transformers, which would give random weights to whatever its files do not hold.

    Args:
        kind: the class that loads it.
        name: of a folder, or of the hub.
        new: parts of the names of weights that may be missing.
    """
    model, found = kind.from_pretrained(name, dtype=torch.float32, output_loading_info=True)
    missing = sorted(key for key in found["missing_keys"] if not any(part in key for part in new))
    if missing:
        raise FadaError(f"{name}: {len(missing)} weights of the network are missing, such as {missing[0]}. {ANEW}")
    broken = [name for name, weight in model.named_parameters() if not torch.isfinite(weight.sum())]
    if broken:
        raise FadaError(f"{name}: {len(broken)} weights of the network are no numbers, such as {broken[0]}. {ANEW}")
    return model


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


class Network(Recognizer):
    """A network of torch with its processor.

    Attributes:
        model: the network.
    """

    model: PreTrainedModel
    _has_run = False

    @contextmanager
    def running(self, *, halfway: bool = False) -> Iterator[None]:
        """Whatever the network raises before it has run once, not only halfway, is the fault of its files."""
        try:
            yield
        except (FadaError, MemoryError, torch.OutOfMemoryError):
            raise
        except Exception as error:
            if self._has_run or self.folder is None or is_full(error):
                raise
            reason = str(error).partition("\n")[0].rstrip(".") or type(error).__name__
            raise BrokenModel(f"{self.folder}: the model cannot be run: {reason}. {ANEW}") from error
        self._has_run |= not halfway

    def use_threads(self, threads: int) -> None:
        """Work on so many threads: all networks of torch do."""
        torch.set_num_threads(threads)

    @abstractmethod
    def encode(self, text: str, domain: str | None = None) -> list[int]:
        """Training labels of a text; with tagging, the domain's tag among them."""

    def place_of(self, domain: str | None) -> int:
        """The place of a domain among those that have a tag."""
        if domain not in self.domains:
            raise FadaError(
                f"the domain is {domain!r}, expected one of {', '.join(self.domains)}: "
                "this model was trained with domain tokens and needs the domain of every line."
            )
        return self.domains.index(domain)

    @abstractmethod
    def collate(self, arrays: Sequence[np.ndarray], labels: Sequence[list[int]] | None = None) -> dict[str, Tensor]:
        """Network input of a batch."""

    @abstractmethod
    def alignment_loss(self, targets: TargetSet, **options: Any) -> AlignmentLoss:
        """The alignment loss that fits this network's output."""

    def bigram_loss(self, targets: TargetSet, texts: Mapping[str, Sequence[str]], **options: Any) -> AlignmentLoss:
        """The alignment loss of pairs of characters, whose frequencies are those of the `texts` of each domain."""
        raise FadaError("ngram is 2, which only CTC models without --tagging predicted can follow.")

    @abstractmethod
    def alignment_inputs(self, outputs: Any, inputs: dict[str, Tensor]) -> tuple[Tensor, Tensor]:
        """What the alignment loss takes of the network's output: scores and lengths, or logits and labels."""

    def task_loss(self, model: torch.nn.Module, inputs: dict[str, Tensor]) -> tuple[Tensor, Any]:
        """The loss of a batch and the network's output. `model` is the network, wrapped or compiled."""
        outputs = model(**inputs)
        return outputs.loss, outputs

    def _saved(self, folder: Path) -> Path:
        self.save_pretrained(folder)
        return folder

    def save_pretrained(self, folder: str | os.PathLike[str]) -> None:
        """Write the network and its processor."""
        with naming(folder):
            self.write(Path(folder))
        for weights in Path(folder).glob("*.safetensors"):  # written for the owner alone
            weights.chmod((weights.with_name("config.json")).stat().st_mode)

    @abstractmethod
    def write(self, folder: Path) -> None:
        """Write the files of the network and its processor."""

    @abstractmethod
    def read(self, inputs: dict[str, Tensor], lines: Sequence[Line]) -> list[str]:
        """The texts of a batch by the cheapest search: best path, greedy. `lines` tell the domains, if needed."""

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
