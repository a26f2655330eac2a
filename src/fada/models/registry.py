"""Names of models to recognisers: `crnn:small`, `trocr-tiny`, a folder, a hub name.

Which class loads a model is decided by the `model_type` of its `config.json`, in one table. A package adds a family by
an entry point of the group ``fada.models``, named as the model type, that leads to a class with the `load` of ours.
"""

import inspect
import io
import json
import os
import wave
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib import import_module
from importlib.metadata import entry_points
from pathlib import Path
from typing import TYPE_CHECKING, Any

from PIL import Image

from fada.common.files import refuse_pointer
from fada.common.settings import read_json
from fada.data.audio import SAMPLE_RATE
from fada.data.line import Line
from fada.errors import EXTRAS, FadaError, missing_extra
from fada.models.folders import resolve

if TYPE_CHECKING:
    from fada.models.network import Network, NewCharacters
    from fada.models.recognizer import Recognizer, Tagging

GROUP = "fada.models"
"""Entry points of other packages: model type to recogniser."""

LOADERS = {
    "fada-crnn": "fada.models.crnn:CRNNRecognizer",
    "vision-encoder-decoder": "fada.models.trocr:TrOCRRecognizer",
    "whisper": "fada.models.whisper:WhisperRecognizer",
}
"""Model type to recogniser; whatever else transformers knows as a CTC model is loaded by `ANY_CTC`."""
ANY_CTC = "fada.models.wav2vec:TransformersCTCRecognizer"

BUILT: dict[str, str] = {
    **{f"crnn:{preset}": "line images, CTC, trained from scratch" for preset in ("tiny", "plain", "small", "base")},
    "trocr-tiny": "line images, encoder-decoder over characters, trained from scratch",
    "trocr-subword": "line images, encoder-decoder over subwords, trained from scratch",
}
"""Models that are built new, with what they are."""

LOADED: dict[str, str] = {
    "medieval": "line images, CTC: Latin script of the Middle Ages, seven languages; comes with the package",
    "french": "line images, CTC: medieval French, with language models of its centuries; comes with the package",
    "trocr-greek": "line images, encoder-decoder over characters: synthetic Greek; comes with the package",
    "microsoft/trocr-base-handwritten": "line images, encoder-decoder over subwords (any VisionEncoderDecoderModel)",
    "openai/whisper-small": "speech, encoder-decoder over subwords (any WhisperForConditionalGeneration)",
    "facebook/wav2vec2-base-960h": "speech, CTC (any *ForCTC of transformers)",
}
"""Models that are loaded to be fine-tuned: those of the package, and examples of others by hub name or folder."""

JSON_FILES = frozenset(
    f"{name}.json"
    for name in (
        *("config", "generation_config", "preprocessor_config", "processor_config", "crnn_processor", "ctc_symbols"),
        *("tokenizer", "tokenizer_config", "special_tokens_map", "vocab"),
    )
)
"""Files of a model folder that hold an object; transformers takes some that are damaged for missing ones."""
_ANEW = "Get its files anew."

LEARNING_RATES = {"fada-crnn": 1e-3, "trocr-tiny": 5e-4, "vision-encoder-decoder": 2e-5, "whisper": 1e-5}


def build(
    name: str,
    texts: Sequence[str],
    *,
    domains: Sequence[str] = (),
    tagging: "Tagging" = "none",
    new_characters: "NewCharacters" = "add",
    dropout: float | None = None,
    **spoken: float | str | None,
) -> "Network":
    """A recogniser to train: a new one for the characters of `texts`, or a loaded one made ready for them.

    Args:
        name: one of `BUILT`, a model or run folder, or a hub name.
        texts: training texts.
        domains, tagging: TR-TT.
        new_characters: what to do about characters that a loaded model lacks.
        dropout: of a new C-RNN.
        spoken: `max_seconds`, `language`: audio window and language of Whisper.
    """
    family, _, preset = name.partition(":")
    if family == "crnn":
        from fada.models.crnn import CRNNRecognizer

        options: dict[str, Any] = {} if dropout is None else {"dropout": dropout}
        return CRNNRecognizer.build(texts, preset or "base", domains, tagging, **options)
    if name in ("trocr-tiny", "trocr-subword"):
        from fada.models.trocr import TrOCRRecognizer

        make = TrOCRRecognizer.build_tiny if name == "trocr-tiny" else TrOCRRecognizer.build_subword
        return make(texts, domains, tagging)
    return _load(name, texts=texts, new_characters=new_characters, domains=domains, tagging=tagging, **spoken)


def load_recognizer(name: str | os.PathLike[str]) -> "Recognizer":
    """A recogniser from a model folder, a run folder, a hub name, or the name of one that comes with the package.

    It reads. A C-RNN is run by ONNX Runtime, without torch; :func:`load_network` loads one to train or to look into.
    """
    from fada.models.reader import CRNNReader, can_read

    path = _place(name)
    if can_read(path):
        with _sound_files(path):
            about = configuration(path)
            if about.get("model_type") == "fada-crnn" and not about.get("domain_input"):
                recognizer = CRNNReader.load(path)
                recognizer.folder = Path(path)
                return recognizer
    return load_network(name)


def load_on_device(name: str | os.PathLike[str], device: str) -> "Recognizer":
    """A recogniser that reads on a device of torch: ``cuda``, ``mps``, ``cuda:1``; ``auto`` for a GPU if there is one.

    Without one, and on the ``cpu``, it is what :func:`load_recognizer` gives.
    """
    if device == "cpu":
        return load_recognizer(name)
    try:
        import torch
    except ModuleNotFoundError:
        if device == "auto":
            return load_recognizer(name)
        raise missing_extra("torch", EXTRAS["torch"], f"--device {device}") from None
    there = [kind for kind in ("cuda", "mps") if getattr(torch, kind).is_available()]
    if device == "auto":
        return load_on_device(name, there[0] if there else "cpu")
    try:
        network = load_network(name)
        network.model.to(torch.device(device))  # type: ignore[arg-type]
    except (RuntimeError, AssertionError) as error:
        found = ", ".join(["cpu", *there])
        raise FadaError(
            f"--device {device}: torch cannot use it ({str(error).splitlines()[0]}); found {found}."
        ) from None
    return network


def load_network(name: str | os.PathLike[str]) -> "Network":
    """A recogniser as :func:`load_recognizer` finds it, whose network torch runs."""
    from transformers.utils.logging import disable_progress_bar

    disable_progress_bar()
    return _load(name)


def export_onnx(name: str | os.PathLike[str], out: str | os.PathLike[str]) -> None:
    """Write the network of a C-RNN, named as in :func:`load_recognizer`, as one ONNX file."""
    from fada.models.reader import can_read, write_onnx

    path = _place(name)
    with _sound_files(path):
        found = configuration(path).get("model_type")
        if found != "fada-crnn" or not can_read(path):
            raise FadaError(
                f"{name}: a model of type {found!r}, expected the folder of a C-RNN, which alone is written."
            )
        write_onnx(path, out)


def _place(name: str | os.PathLike[str]) -> str | os.PathLike[str]:
    """The model folder; a name of the hub stays as it is written: it has forward slashes on every system."""
    path = resolve(name)
    return Path(path) / "model" if (Path(path) / "model" / "config.json").is_file() else path


def _load(name: str | os.PathLike[str], **options: Any) -> "Network":
    """By the class for its type, with those of the options that this takes."""
    path = _place(name)
    with _sound_files(path):
        loader = _loader(name, configuration(path).get("model_type"))
        taken = inspect.signature(loader.load).parameters
        recognizer = loader.load(path, **{option: value for option, value in options.items() if option in taken})
        if loader.__module__.startswith("fada.models."):
            recognizer.prepare(_blank(recognizer.modality))
    if Path(path).is_dir():
        recognizer.folder = Path(path)
    return recognizer


def _loader(name: str | os.PathLike[str], model_type: str | None) -> Any:
    """The recogniser for a type of model: ours, that of another package, or any CTC model of transformers."""
    place = LOADERS.get(str(model_type))
    if place is None and (found := entry_points(group=GROUP, name=str(model_type))):
        return next(iter(found)).load()
    if place is None:
        from transformers.models.auto.modeling_auto import MODEL_FOR_CTC_MAPPING_NAMES

        if model_type not in MODEL_FOR_CTC_MAPPING_NAMES:
            others = sorted({found.name for found in entry_points(group=GROUP)})
            raise FadaError(
                f"{name}: a model of type {model_type!r}, expected a C-RNN, a VisionEncoderDecoder (TrOCR), Whisper or "
                f"a CTC model{', or of another package: ' + ', '.join(others) if others else ''}."
            )
        place = ANY_CTC
    module, _, attribute = place.partition(":")
    return getattr(import_module(module), attribute)


def _blank(modality: str) -> Line:
    """Half a second of silence, or an empty strip: every model can read it that is whole."""
    if modality == "audio":
        stream = io.BytesIO()
        with wave.open(stream, "wb") as sound:
            sound.setparams((1, 2, SAMPLE_RATE, 0, "NONE", ""))
            sound.writeframes(bytes(SAMPLE_RATE))
        return Line("silence", audio=stream.getvalue())
    return Line("blank", image=Image.new("L", (128, 64), 255))


@contextmanager
def _sound_files(path: str | os.PathLike[str]) -> Iterator[None]:
    """What damaged, missing and foreign files of a model raise, as a sentence."""
    for file in sorted(Path(path).glob("*")) if Path(path).is_dir() else ():
        if file.is_file() and file.stat().st_size < 1024:
            refuse_pointer(file.read_bytes(), file)
        if file.name in JSON_FILES and not isinstance(read_json(file, _ANEW), dict):
            raise FadaError(f"{file}: expected a JSON object. {_ANEW}")
    try:
        yield
    except (FadaError, ImportError, NameError):
        raise
    except Exception as error:  # transformers, tokenizers and torch raise almost anything
        reason = (str(error).strip() or type(error).__name__).splitlines()[0]
        if "trust_remote_code" in str(error) or "custom code" in str(error):
            reason = "it asks to run Python code of its own (auto_map), which is never done"
        raise FadaError(f"{path}: cannot be loaded as a model: {reason.rstrip('.')}. {_ANEW}") from None


def describe(name: str) -> dict[str, Any]:
    """What a model is: kind, input, parameters, alphabet, and the shape in its configuration."""
    built = name in BUILT
    recognizer = build(name, ["abc def"]) if built else load_network(name)
    config = recognizer.model.config
    shape = {key: value for key, value in config.to_diff_dict().items() if isinstance(value, int | float | str | list)}
    characters = "those of the training text" if built else recognizer.characters
    return {
        "type": config.model_type,
        "kind": recognizer.kind,
        "reads": recognizer.modality,
        "parameters": recognizer.model.num_parameters(),
        "characters": characters,
        "tagging": recognizer.tagging,
        "learning rate": learning_rate(recognizer),
        **{key: value for key, value in shape.items() if key not in ("model_type", "_name_or_path", "tagging")},
    }


def configuration(name: str | os.PathLike[str]) -> dict[str, Any]:
    """The `config.json` of a model folder or hub model."""
    path = Path(name)
    if path.is_dir() or len(path.parts) > 2:
        if not (path / "config.json").is_file():
            raise FadaError(f"{name}: no config.json here, expected a model folder, a run folder or a hub name.")
        return json.loads((path / "config.json").read_text(encoding="utf-8"))
    if len(path.parts) < 2:
        raise FadaError(
            f"no model {str(name)!r}: not one of {', '.join(BUILT)}, not a folder, not owner/name of the hub."
        )
    from transformers.utils import cached_file

    try:
        found = cached_file(str(name), "config.json")
    except OSError as error:
        reason = str(error).splitlines()[0]
        raise FadaError(f"no model {str(name)!r}: not a folder, and not readable from the hub ({reason})") from None
    return json.loads(Path(str(found)).read_text(encoding="utf-8"))


def learning_rate(recognizer: "Network") -> float:
    """The usual learning rate of the model's family: high for new models, low for pretrained ones."""
    config = recognizer.model.config
    new = not config.name_or_path and config.model_type != "fada-crnn"
    return LEARNING_RATES.get("trocr-tiny" if new else config.model_type, 3e-5)
