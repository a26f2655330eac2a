"""What every CTC recogniser shares: one class per character and a blank, emissions, beam search over them."""

import os
import unicodedata
from abc import abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from itertools import islice
from typing import Any

import numpy as np

from fada.data.line import Line
from fada.decoding.ctc import CTCBeamDecoder
from fada.decoding.emissions import Emissions
from fada.decoding.evidence import LINES, Automatic
from fada.decoding.knowledge import Decoder, Knowledge, knowledge_of_model
from fada.decoding.search import BeamSearch, Search
from fada.errors import FadaError
from fada.models.recognizer import Recognizer
from fada.text.alphabet import Alphabet


class CTCRecognizer(Recognizer):
    """A recogniser with one class per character and a blank.

    Attributes:
        alphabet: text of each class, without the tags of TR-TT, whose classes come last in the network.
        tag_classes: how many classes are tags: one for each domain, or none where the domain is an input.
    """

    kind = "ctc"
    terms = BeamSearch.terms
    emits = True
    _alphabet: Alphabet
    _automatic: Automatic | None = None
    tag_classes: int = 0

    @property
    def alphabet(self) -> Alphabet:
        return self._alphabet

    @property
    def symbols(self) -> tuple[str, ...]:
        return self._alphabet.symbols

    @property
    def blank(self) -> int:
        return self._alphabet.blank

    @property
    def characters(self) -> str:
        return "".join(self._alphabet.texts)

    @property
    def letters(self) -> frozenset[str]:
        """Those of its classes, letters and their marks apart."""
        return frozenset(unicodedata.normalize("NFD", self.characters))

    def can_write(self, text: str) -> bool:
        """Whether it has a class for every character of a text."""
        return set(text) <= set(self.symbols)

    def _check_classes(self, outputs: int, name: str) -> None:
        """Refuse an alphabet that is not that of the network's output."""
        if len(self.symbols) + self.tag_classes != outputs:
            tags = f" and {self.tag_classes} domains" if self.tag_classes else ""
            raise FadaError(
                f"{name or 'the model'}: the network has {outputs} classes, but its processor names "
                f"{len(self.symbols)} symbols{tags}: the files are of two models. Get both from the same one."
            )

    @abstractmethod
    def scores(self, line: Line) -> np.ndarray:
        """Log-probabilities (time, classes) of a line, the classes of tags among them."""

    @abstractmethod
    def side_by_side(self) -> AbstractContextManager[int]:
        """Let every line run on one thread; on how many threads they may run side by side."""

    def without_tags(self, scores: np.ndarray) -> tuple[np.ndarray, str | None]:
        """Log-probabilities (time, symbols) of a line, and the domain that its tag classes tell, if it has them.

        A tag is removed by giving its probability to the blank: the collapsed text without the tag has exactly the
        probability it had with the tag taken out.
        """
        if not self.tag_classes:
            return scores, None
        characters = len(self.symbols)
        tags = scores[:, characters:]
        told = self.domains[int(np.exp(tags).sum(0).argmax())]
        scores = scores[:, :characters].copy()
        scores[:, self.blank] = np.logaddexp(scores[:, self.blank], np.logaddexp.reduce(tags, axis=1))
        return scores, told

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

        def alone(line: Line) -> tuple[Line, np.ndarray, str | None]:
            return line, *self.without_tags(self.scores(line))

        rest = iter(lines)
        with self.side_by_side() as threads, ThreadPoolExecutor(threads) as pool:
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

    def _read(self, lines: Sequence[Line], batch_size: int, decoder: Decoder | None) -> list[str]:
        """By a stored decoder; else the lines, as one document, with what the model knows of languages."""
        if self._automatic is None:
            self._automatic = Automatic({} if self.folder is None else knowledge_of_model(self.folder, centuries=False))
        if decoder is not None or not lines or not self._automatic.candidates:
            return super()._read(lines, batch_size, decoder)
        emissions = self.emit(lines, batch_size=batch_size)
        decision = self._automatic.decide(self.alphabet, emissions.log_probs[:LINES], lines[0].domain)
        return BeamSearch(emissions, decision.knowledge).choose(decision.weights)

    def _transcribe(self, lines: Sequence[Line], batch_size: int, **options: Any) -> list[str]:
        """`options` are those of :class:`fada.CTCBeamDecoder`."""
        decoder = CTCBeamDecoder(self.alphabet, **options)
        return [best[0].text for best in decoder.decode_batch(self.emit(lines, batch_size=batch_size).log_probs)]
