"""What every recogniser can do, whatever its network and whatever runs it: prepare lines, search them, transcribe."""

import os
import tempfile
from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Union, cast

import numpy as np

from fada.data.line import Line
from fada.decoding.emissions import Emissions
from fada.decoding.knowledge import Decoder, Knowledge
from fada.decoding.search import Search
from fada.decoding.weights import Weights
from fada.errors import FadaError, needing
from fada.models.looks import Looks
from fada.text.alphabet import Alphabet

if TYPE_CHECKING:
    from PIL import Image

Tagging = Literal["none", "given", "predicted"]
"""TR-TT: no domain token; the domain is known at inference; the model predicts it."""

Readable = Union[Line, str, os.PathLike[str], bytes, np.ndarray, "Image.Image"]
"""What a line may be given as."""


class BrokenModel(FadaError):  # noqa: N818 - the model is at fault, not the program
    """A model that can be loaded, but reads nothing: no fault of any line."""


class Recognizer(ABC):
    """What turns lines into text.

    Attributes:
        kind: what its search is of; stored with what it has read.
        terms: the weights that change what it finds.
        emits: whether it has an alphabet and emissions, as CTC models do.
        modality: what is read, `image` or `audio`.
        domains: the domains that have a tag (TR-TT), empty without tagging.
        tagging: how the tag is used at inference.
        encoder_is_frozen: whether training leaves the encoder of a token model as it is.
        looks, most_looks: how often it looks at a line, and how often it can; see :meth:`use_looks`.
        folder: where it was loaded from, if from a folder; a decoder may be stored there.
        rows: lines that a CPU gives to the network at once, always as many, so that what it finds does not depend on
            the batch.
    """

    kind: ClassVar[Literal["ctc", "seq2seq"]]
    terms: ClassVar[frozenset[str]]
    emits: ClassVar[bool] = False
    modality: ClassVar[Literal["image", "audio"]] = "image"
    domains: tuple[str, ...] = ()
    tagging: Tagging = "none"
    rows: ClassVar[int] = 1
    encoder_is_frozen: bool = False
    looks: Looks = 1
    most_looks: ClassVar[int] = 1
    folder: Path | None = None

    @abstractmethod
    def prepare(self, line: Line) -> np.ndarray:
        """The line as an array of the network's own size; its last axis is the one that varies."""

    @property
    @abstractmethod
    def characters(self) -> str:
        """What it can write: its characters, or how many subwords."""

    @property
    def alphabet(self) -> Alphabet:
        """The classes of a CTC model; what it has emissions of, and what a language model can guide.

        Raises:
            FadaError: the model has none, because it writes token by token.
        """
        raise FadaError(
            "this needs a CTC model, and this one writes token by token: it has no emissions and follows no language "
            "model, but targets (fada transcribe --targets)."
        )

    def emit(self, lines: Iterable[Line], *, batch_size: int = 8) -> Emissions:
        """Log-probabilities of lines, with their ids, domains and texts; as `alphabet`, of CTC models."""
        raise NotImplementedError(self.alphabet)

    def can_write(self, text: str) -> bool:
        """Whether it has a class for every character; one that writes subwords can write anything."""
        return True

    @property
    def letters(self) -> frozenset[str] | None:
        """What it can write, letters and their marks apart (NFD); None if it writes subwords, and so anything."""
        return None

    @property
    def at_once(self) -> int:
        """Lines that a search needs at least to keep all threads busy; see `rows`."""
        return self.rows

    @abstractmethod
    def use_threads(self, threads: int) -> None:
        """Work on so many threads; by default as many as there are cores for this process."""

    def use_looks(self, looks: Looks) -> None:
        """Look at every line so often, each time a little differently, and take the mean; auto: again where unsure."""
        if looks == "auto":
            self.looks = 1 if self.most_looks == 1 else looks
            return
        if self.most_looks == 1 < looks:
            raise FadaError("this model looks at a line once: several looks are for C-RNN models. Leave --looks out.")
        if not 1 <= looks <= self.most_looks:
            raise FadaError(f"{looks} looks at a line, expected 1 to {self.most_looks}, or auto.")
        self.looks = looks

    def freeze_encoder(self) -> None:
        """Leave the encoder of a token model as it is while its decoder is trained."""
        raise FadaError("has no decoder. Use it with TrOCR and Whisper models, or leave it out.")

    def transcribe(self, lines: "Readable | Iterable[Readable]", *, batch_size: int = 8, **options: Any) -> Any:
        """The text of a line, or the texts of several, as ``fada transcribe --looks 1`` reads them; see `use_looks`.

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

    def push_to_hub(self, name: str, *, private: bool = False, token: str | None = None) -> str:
        """Put the model, with what is stored beside it (decoder, knowledge, card), on the Hugging Face hub.

        Args:
            name: `owner/name`; it is made if it is not there.
            private: make it a private one.
            token: of an account that may write there; by default the one that is logged in.

        Returns:
            Its address.
        """
        with needing("huggingface_hub", "hub", "sharing a model on the hub"):
            from huggingface_hub import HfApi
            from huggingface_hub.errors import HfHubHTTPError
        with tempfile.TemporaryDirectory(prefix="fada-") as made:
            folder = self.folder or self._saved(Path(made))
            api = HfApi(token=token)
            try:
                address = api.create_repo(name, private=private, exist_ok=True)
                api.upload_folder(repo_id=name, folder_path=folder, ignore_patterns=[".*", "*/.*", "checkpoint*/*"])
            except (HfHubHTTPError, ValueError, OSError) as error:
                raise FadaError(f"{name}: the hub did not take the model ({str(error).splitlines()[0]}).") from None
        return str(address)

    def _saved(self, folder: Path) -> Path:
        """The folder, with the model in it."""
        raise FadaError("this model lies in no folder, so there is nothing to share: save it first.")

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
