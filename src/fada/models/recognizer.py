"""What every recogniser can do, whatever its network and whatever runs it: prepare lines, search them, transcribe."""

import os
from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Union, cast

import numpy as np

from fada.data.line import Line
from fada.decoding.knowledge import Decoder, Knowledge
from fada.decoding.search import Search
from fada.decoding.weights import Weights

if TYPE_CHECKING:
    from PIL import Image

Tagging = Literal["none", "given", "predicted"]
"""TR-TT: no domain token; the domain is known at inference; the model predicts it."""

Readable = Union[Line, str, os.PathLike[str], bytes, np.ndarray, "Image.Image"]
"""What a line may be given as."""


class Recognizer(ABC):
    """What turns lines into text.

    Attributes:
        modality: what is read, `image` or `audio`.
        domains: the domains that have a tag (TR-TT), empty without tagging.
        tagging: how the tag is used at inference.
        folder: where it was loaded from, if from a folder; a decoder may be stored there.
        rows: lines that a CPU gives to the network at once, always as many, so that what it finds does not depend on
            the batch.
    """

    kind: ClassVar[Literal["ctc", "seq2seq"]]
    modality: ClassVar[Literal["image", "audio"]] = "image"
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

    def can_write(self, text: str) -> bool:
        """Whether it has a class for every character; one that writes subwords can write anything."""
        return True

    @abstractmethod
    def use_threads(self, threads: int) -> None:
        """Work on so many threads; by default as many as there are cores for this process."""

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
            stored = None if self.folder is None else Decoder.of_model(self.folder)
            texts = self._read(given, batch_size, stored)
        return texts if several else texts[0]

    def _read(self, lines: Sequence[Line], batch_size: int, decoder: Decoder | None) -> list[str]:
        """The texts of lines by a stored decoder, else plainly."""
        decoder = decoder or Decoder(Weights(), Knowledge())
        return self.search(lines, decoder.knowledge, batch_size=batch_size).choose(decoder.weights)

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
