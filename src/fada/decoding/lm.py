r"""Character n-gram language models and prior correction: what a target distribution competes, and combines, with.

A :class:`CharNgram` is a back-off automaton in arrays. Each state is a context; an arc gives the log-probability of the
next character and the state it leads to; a character without an arc is looked for in the shorter context, at the price
of the state's back-off weight. The same arrays serve :meth:`CharNgram.log_prob` and the compiled CTC search.
"""

import json
import math
import os
import zipfile
from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import cached_property
from itertools import accumulate, pairwise
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from fada.common.files import BROKEN_ARCHIVE, replacing
from fada.decoding import lm_store
from fada.decoding.kernels.automaton import Arcs, Automaton, packed, walk
from fada.decoding.lm_train import COMPONENT_ARRAYS, END, Component, check_component, divided, read_arpa, train, uniform
from fada.errors import FadaError
from fada.targets.distribution import CharDistribution
from fada.text.normalizer import TextNormalizer

_FORMAT = "fada character n-gram 2"
_FORMAT_1 = "fada character n-gram 1"
_MOST_BYTES = 2**30
"""No stored model is larger when it is unpacked."""
_ROUNDING = 1e-9
"""What a sum of logarithms can be wrong by."""


class CharNgram:
    """A character n-gram model with back-off, or a linear mixture of several.

    Probabilities are those of the next character given the line so far (from its beginning), and sum to one over
    vocabulary, end of line and one unknown character.
    """

    def __init__(self, components: Sequence[Component], weights: Sequence[float] | None = None) -> None:
        self.components = tuple(components)
        given = np.ones(len(self.components)) if weights is None else np.asarray(weights, np.float64)
        if len(given) != len(self.components) or not len(given) or np.any(given < 0) or not given.sum() > 0:
            raise FadaError(f"mixture weights {given.tolist()}, expected one from 0 up per model, not all zero.")
        self.weights = tuple((given / given.sum()).tolist())

    @classmethod
    def train(
        cls,
        texts: Iterable[str],
        order: int = 6,
        smoothing: str = "witten-bell",
        normalizer: TextNormalizer | None = None,
        vocabulary: Iterable[str] = (),
    ) -> "CharNgram":
        """Estimate a model from lines of text.

        Args:
            texts: lines; the model knows where a line begins and ends.
            order: longest n-gram.
            smoothing: ``witten-bell`` or ``kneser-ney`` (modified, interpolated).
            normalizer: applied to every line; by default lines are taken as they are. The model should see text as the
                recogniser writes it: case kept, and decomposed if its symbols are.
            vocabulary: further characters to give a probability of their own.
        """
        if not isinstance(order, int) or order < 1:
            raise FadaError(f"order is {order!r}, expected a whole number from 1 up.")
        if smoothing not in ("witten-bell", "kneser-ney"):
            raise FadaError(f"smoothing is {smoothing!r}, expected witten-bell or kneser-ney.")
        if isinstance(texts, str):
            raise FadaError("texts is one string, expected lines of text.")
        lines = [normalizer(text) if normalizer else text for text in texts]
        if not any(lines):
            raise FadaError("no text to estimate a language model from.")
        return cls([train(lines, order, smoothing, vocabulary)])

    @classmethod
    def uniform(cls, vocabulary: Iterable[str]) -> "CharNgram":
        """Every character of the vocabulary, the end and the unknown one equally probable."""
        return cls([uniform(tuple(dict.fromkeys("".join(vocabulary))))])

    @classmethod
    def from_arpa(cls, path: str | os.PathLike[str], space: str | None = None) -> "CharNgram":
        """Read an ARPA file (also gzipped) whose words are single characters.

        Args:
            space: the word that stands for a space; by default one of ``<space> ▁ <sp> |``, if the file has no other
                space.
        """
        return cls([read_arpa(Path(path), space)])

    @property
    def vocabulary(self) -> tuple[str, ...]:
        """The characters with a probability of their own in at least one component."""
        return tuple(sorted({c for component in self.components for c in component.vocabulary}))

    @property
    def order(self) -> int:
        """The length of the longest n-gram."""
        return 1 + max(int(component.depths.max()) for component in self.components)

    def interpolate(self, other: "CharNgram", weight: float = 0.5) -> "CharNgram":
        """The linear mixture ``(1 - weight) * self + weight * other`` of the two models' probabilities."""
        if not 0 <= weight <= 1:
            raise FadaError(f"weight is {weight!r}, expected a number between 0 and 1.")
        union = {*self.vocabulary, *other.vocabulary}
        components = [
            replace(c, unknown_types=max(c.unknown_types, 1 + len(union - set(c.vocabulary))))
            for c in (*self.components, *other.components)
        ]
        weights = [(1 - weight) * w for w in self.weights] + [weight * w for w in other.weights]
        kept = [i for i, w in enumerate(weights) if w > 0]
        return CharNgram([components[i] for i in kept], [weights[i] for i in kept])

    def over(self, assumed: "CharNgram", share: float) -> "CharNgram":
        r"""What this model tells beyond another: :math:`P(c \mid h) / P_{assumed}(c \mid h)^{share}`.

        A recogniser has learnt, beside the letters, which of them follow which in the text it was trained on. A
        language model on top would tell it that twice. With `assumed` trained on that text, a character is as probable
        here as it is more so in this text than there; what is rare in both (a mark, a capital) costs little.

        Args:
            assumed: one model, of which contexts of one character are looked at.
            share: how much of it is divided out, from 0 to 1.

        Returns:
            A model for decoding: its "probabilities" do not sum to one.
        """
        if len(assumed.components) != 1 or not 0 <= share <= 1:
            raise FadaError("expected one model to divide by, not a mixture, and a share between 0 and 1.")
        return CharNgram([divided(c, assumed.components[0], share) for c in self.components], self.weights)

    def automaton(self, texts: Sequence[str]) -> Automaton:
        """The model over the classes of a recogniser, whose alphabet tells the text of each."""
        joined = "".join(texts)
        text = np.stack([c.encode(joined) for c in self.components])
        share = np.stack([c.shares(row) for c, row in zip(self.components, text, strict=True)])
        text_first = np.zeros(len(texts) + 1, np.int32)
        np.cumsum([len(t) for t in texts], out=text_first[1:])
        # A class can gain what its first character can after its context, and all others after any.
        relative = (np.stack([c.ceilings[row] for c, row in zip(self.components, text, strict=True)]) + share).max(
            axis=0
        )
        summed = np.concatenate([[0.0], np.cumsum(relative)])[text_first]
        further = np.maximum(np.diff(text_first) - 1, 0) * max(float(c.highest.max()) for c in self.components)
        nothing = -min(float(c.highest.min()) for c in self.components)
        ceiling = np.where(np.diff(text_first) > 0, np.diff(summed) + further, nothing) + _ROUNDING
        parts: list[np.ndarray] = []
        start = []
        for c in self.components:
            before = sum(map(len, parts)) // 8
            part, line = packed(
                c.first, c.suffix, c.highest, c.backoff, Arcs(c.character, c.target, c.log_prob), before
            )
            parts.append(part)
            start.append(line[c.start])
        size = sum(map(len, parts))
        memory = np.empty(size + 8)
        memory = memory[-memory.ctypes.data % 64 // 8 :][:size]  # from where a line of the processor's memory begins
        np.concatenate(parts, out=memory)
        return Automaton(
            numbers=memory.view(np.int32),
            singles=memory.view(np.float32),
            weights=memory,
            bits=memory.view(np.int64),
            start=np.array(start, np.int32),
            mixture=np.array(self.weights),
            text_first=text_first,
            text=np.ascontiguousarray(text),
            text_share=np.ascontiguousarray(share),
            ceiling=ceiling,
        )

    def character_log_probs(self, text: str, end: bool = False) -> np.ndarray:
        """(len(text) [+ 1],) natural log-probability of each character given the line before it (then of its end)."""
        encoded, share = self._spelt(text)
        if end:
            encoded = np.pad(encoded, ((0, 0), (0, 1)), constant_values=END)
            share = np.pad(share, ((0, 0), (0, 1)))
        return self._walked(encoded, share)

    def _spelt(self, text: str) -> tuple[np.ndarray, np.ndarray]:
        """What each component calls the characters, and their shares, both (components, len(text))."""
        encoded = np.stack([c.encode(text) for c in self.components])
        return encoded, np.stack([c.shares(row) for c, row in zip(self.components, encoded, strict=True)])

    def _walked(self, encoded: np.ndarray, share: np.ndarray) -> np.ndarray:
        n = encoded.shape[1]
        each = np.zeros(n)
        walk(self._arrays._replace(text=encoded, text_share=share, text_first=np.arange(n + 1, dtype=np.int32)), each)
        return each

    @cached_property
    def _arrays(self) -> Automaton:
        return self.automaton(())

    def log_prob(self, text: str, end: bool = False) -> float:
        """Natural log-probability of a line (with `end`, also of its ending there).

        Without `end` it is the probability that a line *begins* with `text`: the quantity that grows with a hypothesis.
        """
        return float(self.character_log_probs(text, end).sum())

    def log_probs(self, texts: Sequence[str]) -> list[float]:
        """:meth:`log_prob` of each of many texts, quicker."""
        encoded, share = self._spelt("".join(texts))
        ends = [0, *accumulate(map(len, texts))]
        pieces = [tuple(np.ascontiguousarray(part[:, a:b]) for part in (encoded, share)) for a, b in pairwise(ends)]
        return [float(self._walked(*piece).sum()) for piece in pieces]

    def perplexity(self, texts: Iterable[str]) -> float:
        """exp of the mean negative log-probability per character, ends of lines included."""
        total, count = 0.0, 0
        for text in texts:
            total += self.log_prob(text, end=True)
            count += len(text) + 1
        if count == 0:
            raise FadaError("no text to measure the perplexity on.")
        return math.exp(-total / count)

    def distribution(self, context: str) -> dict[str | None, float]:
        """Probability of every next character after `context`; ``""`` is the end of the line, None any unknown one."""
        unknown = next(chr(c) for c in range(0xE000, 0xF8FF) if chr(c) not in self.vocabulary)
        start = self.log_prob(context)
        after: dict[str | None, float] = {c: math.exp(self.log_prob(context + c) - start) for c in self.vocabulary}
        after[""] = math.exp(self.log_prob(context, end=True) - start)
        after[None] = math.exp(self.log_prob(context + unknown) - start)
        return after

    def pruned(self, most: int) -> "CharNgram":
        """The model with at most `most` n-grams in each component: those without which it would change most."""
        if not isinstance(most, int) or most < 1:
            raise FadaError(f"most is {most!r}, expected a whole number of n-grams from 1 up.")
        return CharNgram([lm_store.pruned(component, most) for component in self.components], self.weights)

    def save(self, file: str | os.PathLike[str] | BinaryIO, bits: int | None = None) -> None:
        """Write an ``.npz`` file (no pickle), or into a file that is open for writing.

        Args:
            bits: 8 to round every log-probability to one of 256 values, for a file of about two bytes per n-gram (the
                probabilities then sum to one within some percent); by default they are kept to the last digit.
        """
        if bits not in (None, 8):
            raise FadaError(f"bits is {bits!r}, expected 8 or None.")
        parts = [lm_store.packed(component, bits) for component in self.components]
        header = {
            "format": _FORMAT,
            "weights": self.weights,
            "components": [
                {"vocabulary": "".join(c.vocabulary), "unknown_types": c.unknown_types, "arrays": list(part)}
                for c, part in zip(self.components, parts, strict=True)
            ],
        }
        arrays: dict[str, Any] = {
            f"{name}_{i}": values for i, part in enumerate(parts) for name, values in part.items()
        }
        arrays["header"] = np.frombuffer(json.dumps(header).encode(), np.uint8)
        if isinstance(file, str | os.PathLike):
            with replacing(file) as temporary, open(temporary, "wb") as stream:
                np.savez_compressed(stream, **arrays)
        else:
            np.savez_compressed(file, **arrays)

    @classmethod
    def load(cls, file: str | os.PathLike[str] | BinaryIO) -> "CharNgram":
        """Read what :meth:`save` wrote, from a path or a file that is open for reading and can be searched."""
        name = file if isinstance(file, str | os.PathLike) else getattr(file, "name", "language model")
        try:
            with zipfile.ZipFile(file) as archive:
                unpacked = sum(item.file_size for item in archive.infolist())
                if unpacked > _MOST_BYTES:
                    raise FadaError(f"{name}: unpacks to {unpacked / 1e9:.1f} GB, which no language model needs.")
            if not isinstance(file, str | os.PathLike):
                file.seek(0)
            with np.load(file, allow_pickle=False) as arrays:
                header = _header(arrays, name)
                model = cls([_component(arrays, i, x) for i, x in enumerate(header["components"])], header["weights"])
        except FileNotFoundError:
            raise FadaError(f"{name}: no such file, expected a language model written by CharNgram.save().") from None
        except (OSError, ValueError, KeyError, TypeError, AttributeError, MemoryError, *BROKEN_ARCHIVE) as error:
            raise FadaError(f"{name}: not a language model written by CharNgram.save() ({error}).") from None
        for component in model.components:
            check_component(component, name)
        return model


def _header(arrays: Any, name: Any) -> dict[str, Any]:
    stored = arrays["header"]
    header = json.loads(stored.tobytes() if stored.dtype == np.uint8 else str(stored))
    if not isinstance(header, dict) or header.get("format") not in (_FORMAT, _FORMAT_1):
        found = header.get("format") if isinstance(header, dict) else header
        raise FadaError(f"{name}: format {found!r}, expected {_FORMAT!r}.")
    return header


def _component(arrays: Any, i: int, settings: dict[str, Any]) -> Component:
    vocabulary = tuple(settings["vocabulary"])
    unknown_types = int(settings["unknown_types"])
    if "arrays" not in settings:  # as version 0.1 wrote them
        stored = {name: arrays[f"{name}_{i}"] for name in COMPONENT_ARRAYS}
        return Component(vocabulary, **stored, start=int(settings["start"]), unknown_types=unknown_types)
    stored = {name: arrays[f"{name}_{i}"] for name in settings["arrays"]}
    return lm_store.unpacked(stored, vocabulary, unknown_types)


def prior_weights(target: CharDistribution, train: CharDistribution) -> np.ndarray:
    r"""Prior correction: log p_target(c) - log p_train(c) for each character of the target's alphabet, (n,).

    A recogniser has learnt the character frequencies of its training text; the correction divides them out and puts the
    target's in. A character that one of the two has never seen counts there as half an occurrence, or as it does in the
    other if that is less, so that what is rare in both is not corrected at all.
    """
    if target.normalizer != train.normalizer:
        raise FadaError(
            f"the prior was counted with another normaliser ({train.normalizer.describe()}) than the target "
            f"({target.normalizer.describe()}): count both with the same one."
        )
    train = train.counted or train  # what a model has learnt does not change by editing
    pooled = train.restricted_to(target.plain)
    p = target.frequencies
    q = np.array([pooled.frequency(symbol) for symbol in target.symbols])
    p_seen = np.where(p > 0, p, np.minimum(0.5 / target.total, q))
    q_seen = np.where(q > 0, q, np.minimum(0.5 / train.total, p))
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where((p_seen > 0) & (q_seen > 0), np.log(p_seen) - np.log(q_seen), 0.0)
