"""Lines on their way into training: splits, a cache of prepared arrays, batches of similar width."""

import logging
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import Dataset, Sampler

from fada.common.say import track
from fada.data.augment import Augment
from fada.data.line import Line
from fada.data.splits import Splits
from fada.errors import FadaError
from fada.models.network import Network
from fada.models.seq2seq import Seq2SeqRecognizer, UnfitLine
from fada.training.settings import TrainSettings

log = logging.getLogger(__name__)


def check_lines(splits: Splits) -> None:
    """Refuse lines that cannot be trained on, before any time is spent: each case with what to do."""
    if not splits.train:
        raise FadaError("no lines to train on. Check the data source, its text column and its splits.")
    if not splits.validation:
        raise FadaError(
            f"{len(splits.train)} training lines and none to choose the best epoch on. Add lines, or give --validation."
        )
    missing = sum(not line.domain for line in splits.train)
    if missing == len(splits.train):
        log.info("no line has a domain (--domain-column, --domain-from): all of them count as one")


def tell_pooled(splits: Splits, known: Sequence[str], settings: TrainSettings) -> None:
    """Say which lines have no target of their own and are aligned to that of all domains together.

    With domain tokens (TR-TT) every training line needs a known domain; at λ = 1 no target is needed.
    """
    lines = [*splits.train, *splits.validation, *splits.test]
    unknown = Counter(line.domain or "" for line in lines if line.domain not in known)
    if not unknown or (settings.lam == 1 and settings.tagging == "none") or not any(line.domain for line in lines):
        return
    shown = ", ".join(f"{domain or 'no domain'}: {number} lines" for domain, number in sorted(unknown.items())[:5])
    if settings.tagging != "none":
        raise FadaError(
            f"tagging is {settings.tagging!r}, which needs lines of known domains ({', '.join(sorted(known))}), but "
            f"found {shown}. Leave these lines out, or train without tagging."
        )
    log.warning("no target of their own, aligned to that of all domains together: %s", shown)


_CACHE_BYTES = 2 * 2**30
"""Prepared lines that are kept in memory; the rest is prepared anew each time."""


class LineDataset(Dataset[dict[str, Any]]):
    """Prepared lines with labels; augmentation is a function of seed, epoch and index alone.

    A line whose image or sound cannot be read is left out; `left_out` has its id and the reason.

    Args:
        recognizer: prepares and encodes.
        lines: with text.
        domains: names, in the order of their indices; a line of any other domain has the index after the last.
        augment: None for validation and test.
    """

    def __init__(
        self, recognizer: Network, lines: Sequence[Line], domains: Sequence[str], augment: Augment | None = None
    ) -> None:
        self.recognizer, self.augment = recognizer, augment
        self.epoch = 0
        self.lines: list[Line] = []
        self.left_out: dict[str, str] = {}
        self._domain_index = {domain: i for i, domain in enumerate(domains)}
        self._cache: dict[int, np.ndarray] = {}
        self._cache_left = _CACHE_BYTES
        widths = [width for line in track(lines, "preparing lines") if (width := self._add(line)) is not None]
        if len(set(widths)) == 1:  # of one size for the network: what differs is the text
            widths = [len(recognizer.encode(str(line.text), line.domain)) for line in self.lines]
        self.sizes = np.array(widths)

    def _add(self, line: Line) -> int | None:
        """Take a line in and tell its width; None if it cannot be read."""
        self.lines.append(line)
        try:
            return self.array(len(self.lines) - 1).shape[-1]
        except UnfitLine:
            raise
        except FadaError as error:
            self.lines.pop()
            self.left_out[line.id] = str(error)
            return None

    def __len__(self) -> int:
        return len(self.lines)

    def __getitem__(self, index: int) -> dict[str, Any]:
        array = self.array(index)
        if self.augment is not None:
            array = self.recognizer.augmented(array, self.augment, self.epoch, index)
        line = self.lines[index]
        labels = self.recognizer.encode(str(line.text), line.domain)
        domain = self._domain_index.get(line.domain or "", len(self._domain_index))
        return {"array": array, "labels": labels, "domain": domain}

    def array(self, index: int) -> np.ndarray:
        """The prepared line, from memory if it is there."""
        if index in self._cache:
            return self._cache[index]
        array = self.recognizer.prepare(self.lines[index])
        if array.nbytes <= self._cache_left:
            self._cache_left -= array.nbytes
            self._cache[index] = array
        return array

    def inputs(self, arrays: Sequence[np.ndarray], labels: Sequence[list[int]] | None = None) -> dict[str, Tensor]:
        """Network input of a batch."""
        return self.recognizer.collate(arrays, labels)

    def collate(self, items: Sequence[Mapping[str, Any]]) -> dict[str, Tensor]:
        """Network input plus `domains`, the index of each line's domain."""
        inputs = self.inputs([item["array"] for item in items], [item["labels"] for item in items])
        return {**inputs, "domains": torch.tensor([item["domain"] for item in items])}

    def batches(self, batch_size: int) -> Iterator[tuple[list[int], dict[str, Tensor]]]:
        """Indices and network input without labels, widest first, so that little is padded."""
        order = np.argsort(-self.sizes, kind="stable")
        for start in range(0, len(order), batch_size):
            chosen = order[start : start + batch_size].tolist()
            yield chosen, self.recognizer.to_device(self.inputs([self.array(i) for i in chosen]))


class EncodedDataset(LineDataset):
    """Lines as the output of an encoder that does not change: it is run once for each line, not once an epoch.

    Args:
        recognizer: with a frozen encoder.
        lines, domains: as in :class:`LineDataset`.
        folder: keeps the states in a file that runs with the same encoder and the same lines share; None: in memory.
    """

    recognizer: Seq2SeqRecognizer

    def __init__(
        self, recognizer: Seq2SeqRecognizer, lines: Sequence[Line], domains: Sequence[str], folder: Path | None = None
    ) -> None:
        self.states: np.ndarray | None = None
        super().__init__(recognizer, lines, domains)
        self.states = recognizer.encoded(_Prepared(self), folder)
        self._cache.clear()

    def array(self, index: int) -> np.ndarray:
        """(positions, size): what the encoder makes of the line."""
        return super().array(index) if self.states is None else self.states[index]

    def inputs(self, arrays: Sequence[np.ndarray], labels: Sequence[list[int]] | None = None) -> dict[str, Tensor]:
        """Network input of a batch, the encoder's output instead of what it would see."""
        return super().inputs(arrays, labels) if self.states is None else self.recognizer.collate_states(arrays, labels)


def prepared(
    recognizer: Network,
    lines: Sequence[Line],
    domains: Sequence[str],
    augment: Augment | None = None,
    cache: Path | None = None,
) -> LineDataset:
    """Lines for a network; what a frozen encoder makes of lines that do not vary is computed once."""
    if isinstance(recognizer, Seq2SeqRecognizer) and recognizer.encoder_is_frozen and augment is None:
        return EncodedDataset(recognizer, lines, domains, cache)
    return LineDataset(recognizer, lines, domains, augment)


class _Prepared(Sequence[np.ndarray]):
    """The prepared lines of a data set, each when it is asked for."""

    def __init__(self, dataset: LineDataset) -> None:
        self.dataset = dataset

    def __len__(self) -> int:
        return len(self.dataset)

    def __getitem__(self, index: Any) -> Any:
        if not 0 <= index < len(self):
            raise IndexError(index)
        return self.dataset.array(index)


def tell_left_out(dataset: LineDataset, split: str) -> None:
    """Print what could not be read; nothing left to train on is an error."""
    if not dataset.left_out:
        return
    told = "; ".join(list(dataset.left_out.values())[:3])
    if not dataset.lines and split == "train":
        raise FadaError(f"none of the {len(dataset.left_out)} training lines can be read, such as: {told}")
    log.warning("%d %s lines left out, such as: %s", len(dataset.left_out), split, told)


class WidthSampler(Sampler[int]):
    """Random order in which lines of similar width follow each other.

    The order is made in blocks of `block` lines, the global batch: it depends on the seed and the epoch of the data
    set only, so any number of processes that share a batch see the same batches.
    """

    def __init__(self, dataset: LineDataset, block: int, seed: int) -> None:
        self.dataset, self.block, self.seed = dataset, block, seed

    def __len__(self) -> int:
        return len(self.dataset)

    def __iter__(self) -> Iterator[int]:
        rng = np.random.default_rng((self.seed, self.dataset.epoch))
        sizes = self.dataset.sizes * rng.uniform(0.9, 1.1, len(self.dataset))
        order = np.argsort(sizes, kind="stable")
        blocks = [order[start : start + self.block] for start in range(0, len(order), self.block)]
        last = [blocks.pop()] if len(blocks[-1]) < self.block else []  # in the middle it would shift the rest
        rng.shuffle(blocks)
        return iter(np.concatenate([*blocks, *last]).tolist())
