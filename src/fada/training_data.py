"""Lines on their way into training: splits, a cache of prepared arrays, batches of similar width."""

import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import Dataset, Sampler

from fada.data.augment import Augment
from fada.data.lines import Line
from fada.errors import FadaError
from fada.models.recognizer import Recognizer
from fada.progress import track

SPLITS = {"train": "train", "training": "train", "validation": "validation", "valid": "validation", "val": "validation"}
SPLITS |= {"dev": "validation", "test": "test", "testing": "test"}


@dataclass(frozen=True)
class Splits:
    """The lines to learn from, to choose the best epoch on, and to report on."""

    train: list[Line]
    validation: list[Line]
    test: list[Line]
    licence: str | None = None
    citation: str | None = None

    def domains(self) -> tuple[str, ...]:
        """Domains of the training lines, sorted."""
        return tuple(sorted({str(line.domain) for line in self.train}))


def split_lines(lines: Iterable[Line], validation_share: float, seed: int) -> dict[str, list[Line]]:
    """Sort lines into train, validation and test by their `split`; hold some out if nothing is there to validate on.

    A line is held out by a hash of its id and the seed, so that adding lines moves no other line.
    """
    parts: dict[str, list[Line]] = {"train": [], "validation": [], "test": []}
    for line in lines:
        name = (line.split or "train").lower()
        if name not in SPLITS:
            raise FadaError(f"{line.source}: split {name!r}, expected one of {', '.join(SPLITS)}.")
        parts[SPLITS[name]].append(line)
    if not parts["validation"]:
        kept: list[Line] = []
        for line in parts["train"]:
            digest = hashlib.sha256(f"{seed}\0{line.id}".encode()).digest()
            held_out = int.from_bytes(digest[:8], "big") / 2**64 < validation_share
            (parts["validation"] if held_out else kept).append(line)
        if not parts["validation"] and len(kept) > 1:
            parts["validation"].append(kept.pop())
        parts["train"] = kept
    return parts


def check_lines(splits: Splits, recognizer: Recognizer | None = None) -> None:
    """Refuse what cannot be trained on, before any time is spent: each case with what to do."""
    if not splits.train:
        raise FadaError("no lines to train on. Check the data source, its text column and its splits.")
    missing = [line for line in splits.train if not line.domain]
    if missing and len(missing) < len(splits.train):
        raise FadaError(
            f"{missing[0].source or missing[0].id}: no domain, while other lines have one "
            f"({len(missing)} of {len(splits.train)} training lines lack it). Fill the column, or drop the lines."
        )
    known = set(splits.domains())
    for name, lines in (("validation", splits.validation), ("test", splits.test)):
        unknown = sorted({str(line.domain) for line in lines} - known)
        if unknown:
            raise FadaError(
                f"the domain {unknown[0]!r} occurs in the {name} lines but has no training lines: "
                f"nothing tells its character frequencies (known: {', '.join(sorted(known))}). "
                "Give a target file that has it (--targets), or leave these lines out."
            )
    if recognizer is not None:
        for line in splits.train:
            recognizer.encode(str(line.text), line.domain)


class LineDataset(Dataset[dict[str, Any]]):
    """Prepared lines with labels; augmentation is a function of seed, epoch and index alone.

    Args:
        recognizer: prepares and encodes.
        lines: with text.
        domains: names, in the order of their indices.
        augment: None for validation and test.
        cache_bytes: prepared arrays kept in memory; the rest is prepared anew each time.
    """

    def __init__(
        self,
        recognizer: Recognizer,
        lines: Sequence[Line],
        domains: Sequence[str],
        augment: Augment | None = None,
        cache_bytes: int = 2 * 2**30,
    ) -> None:
        self.recognizer, self.lines, self.augment = recognizer, lines, augment
        self.epoch = 0
        self._domain_index = {domain: i for i, domain in enumerate(domains)}
        self._cache: dict[int, np.ndarray] = {}
        self._cache_left = cache_bytes
        self.sizes = np.array([self.array(i).shape[-1] for i in track(range(len(lines)), "preparing lines")])

    def __len__(self) -> int:
        return len(self.lines)

    def __getitem__(self, index: int) -> dict[str, Any]:
        array = self.array(index)
        if self.augment is not None:
            array = self.recognizer.augmented(array, self.augment, self.epoch, index)
        line = self.lines[index]
        labels = self.recognizer.encode(str(line.text), line.domain)
        return {"array": array, "labels": labels, "domain": self._domain_index[str(line.domain)]}

    def array(self, index: int) -> np.ndarray:
        """The prepared line, from memory if it is there."""
        if index in self._cache:
            return self._cache[index]
        array = self.recognizer.prepare(self.lines[index])
        if array.nbytes <= self._cache_left:
            self._cache_left -= array.nbytes
            self._cache[index] = array
        return array

    def collate(self, items: Sequence[Mapping[str, Any]]) -> dict[str, Tensor]:
        """Network input plus `domains`, the index of each line's domain."""
        inputs = self.recognizer.collate([item["array"] for item in items], [item["labels"] for item in items])
        return {**inputs, "domains": torch.tensor([item["domain"] for item in items])}

    def batches(self, batch_size: int) -> Iterator[tuple[list[int], dict[str, Tensor]]]:
        """Indices and network input without labels, widest first, so that little is padded."""
        order = np.argsort(-self.sizes, kind="stable")
        for start in range(0, len(order), batch_size):
            chosen = order[start : start + batch_size].tolist()
            inputs = self.recognizer.collate([self.array(i) for i in chosen])
            yield chosen, self.recognizer.to_device(inputs)


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
