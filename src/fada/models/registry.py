"""Names of models to recognisers: `crnn:small`, `trocr-tiny`, a folder, a hub name."""

import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from fada.errors import FadaError
from fada.models.crnn import PRESETS, CRNNRecognizer
from fada.models.ctc import CTCRecognizer
from fada.models.folders import resolve
from fada.models.recognizer import NewCharacters, Recognizer, Tagging

BUILT: dict[str, str] = {
    **{f"crnn:{preset}": "line images, CTC, trained from scratch" for preset in PRESETS},
    "trocr-tiny": "line images, encoder-decoder over characters, trained from scratch",
}
"""Models that are built new, with what they are."""

LOADED: dict[str, str] = {
    "french": "line images, CTC: medieval French; comes with the package",
    "trocr-greek": "line images, encoder-decoder over characters: synthetic Greek; comes with the package",
    "microsoft/trocr-base-handwritten": "line images, encoder-decoder over subwords (any VisionEncoderDecoderModel)",
    "openai/whisper-small": "speech, encoder-decoder over subwords (any WhisperForConditionalGeneration)",
    "facebook/wav2vec2-base-960h": "speech, CTC (any *ForCTC of transformers)",
}
"""Models that are loaded to be fine-tuned: those of the package, and examples of others by hub name or folder."""

LEARNING_RATES = {"fada-crnn": 1e-3, "trocr-tiny": 5e-4, "vision-encoder-decoder": 2e-5, "whisper": 1e-5}


def build(
    name: str,
    texts: Sequence[str],
    *,
    domains: Sequence[str] = (),
    tagging: Tagging = "none",
    new_characters: NewCharacters = "add",
    max_seconds: float | None = None,
    language: str | None = None,
    dropout: float | None = None,
) -> Recognizer:
    """A recogniser to train: a new one for the characters of `texts`, or a loaded one made ready for them.

    Args:
        name: one of `BUILT`, a model or run folder, or a hub name.
        texts: training texts.
        domains, tagging: TR-TT.
        new_characters: what to do about characters that a loaded model lacks.
        max_seconds, language: audio window and language of Whisper.
        dropout: of a new C-RNN.
    """
    family, _, preset = name.partition(":")
    if family == "crnn":
        options: dict[str, Any] = {} if dropout is None else {"dropout": dropout}
        return CRNNRecognizer.build(texts, preset or "base", domains, tagging, **options)
    if name == "trocr-tiny":
        from fada.models.trocr import TrOCRRecognizer

        return TrOCRRecognizer.build_tiny(texts, domains, tagging)
    return _load(name, texts, domains, tagging, new_characters, max_seconds, language)


def load_recognizer(name: str | os.PathLike[str]) -> Recognizer:
    """A recogniser from a model folder, a run folder, a hub name, or the name of one that comes with the package."""
    from transformers.utils.logging import disable_progress_bar

    disable_progress_bar()
    return _load(name, (), (), None, "ignore")


def _load(
    name: str | os.PathLike[str],
    texts: Sequence[str],
    domains: Sequence[str],
    tagging: Tagging | None,
    new_characters: NewCharacters,
    max_seconds: float | None = None,
    language: str | None = None,
) -> Recognizer:
    path = resolve(name)  # a name of the hub stays as it is written: it has forward slashes on every system
    if (Path(path) / "model" / "config.json").is_file():
        path = Path(path) / "model"
    config = configuration(path)
    kind = config.get("model_type")
    options: dict[str, Any] = {
        "texts": texts,
        "new_characters": new_characters,
        "domains": domains,
        "tagging": tagging,
    }
    if kind == "fada-crnn":
        return CRNNRecognizer.load(path, **options)
    if kind == "vision-encoder-decoder":
        from fada.models.trocr import TrOCRRecognizer

        return TrOCRRecognizer.load(path, **options)
    if kind == "whisper":
        from fada.models.whisper import WhisperRecognizer

        return WhisperRecognizer.load(path, max_seconds=max_seconds, language=language, **options)
    from transformers.models.auto.modeling_auto import MODEL_FOR_CTC_MAPPING_NAMES

    if kind in MODEL_FOR_CTC_MAPPING_NAMES:
        from fada.models.wav2vec import TransformersCTCRecognizer

        return TransformersCTCRecognizer.load(path, **options)
    raise FadaError(
        f"{name}: a model of type {kind!r}, expected a C-RNN, a VisionEncoderDecoder (TrOCR), Whisper or a CTC model."
    )


def describe(name: str) -> dict[str, Any]:
    """What a model is: kind, input, parameters, alphabet, and the shape in its configuration."""
    built = name in BUILT
    recognizer = build(name, ["abc def"]) if built else load_recognizer(name)
    config = recognizer.model.config
    shape = {key: value for key, value in config.to_diff_dict().items() if isinstance(value, int | float | str | list)}
    characters = "those of the training text" if built else _alphabet_of(recognizer)
    return {
        "type": config.model_type,
        "kind": recognizer.kind,
        "reads": recognizer.modality,
        "parameters": sum(p.numel() for p in recognizer.model.parameters()),
        "characters": characters,
        "tagging": recognizer.tagging,
        "learning rate": learning_rate(recognizer),
        **{key: value for key, value in shape.items() if key not in ("model_type", "_name_or_path", "tagging")},
    }


def _alphabet_of(recognizer: Recognizer) -> str:
    if isinstance(recognizer, CTCRecognizer):
        return "".join(symbol for i, symbol in enumerate(recognizer.symbols) if i != recognizer.blank)
    return f"subwords, {recognizer.model.config.get_text_config(decoder=True).vocab_size}"


def configuration(name: str | os.PathLike[str]) -> dict[str, Any]:
    """The `config.json` of a model folder or hub model."""
    from transformers.utils import cached_file

    path = Path(name)
    if path.is_dir() or len(path.parts) > 2:
        if not (path / "config.json").is_file():
            raise FadaError(f"{name}: no config.json here, expected a model folder, a run folder or a hub name.")
        return json.loads((path / "config.json").read_text(encoding="utf-8"))
    if len(path.parts) < 2:
        raise FadaError(
            f"no model {str(name)!r}: not one of {', '.join(BUILT)}, not a folder, not owner/name of the hub."
        )
    try:
        found = cached_file(str(name), "config.json")
    except OSError as error:
        reason = str(error).splitlines()[0]
        raise FadaError(f"no model {str(name)!r}: not a folder, and not readable from the hub ({reason})") from None
    return json.loads(Path(str(found)).read_text(encoding="utf-8"))


def learning_rate(recognizer: Recognizer) -> float:
    """The usual learning rate of the model's family: high for new models, low for pretrained ones."""
    config = recognizer.model.config
    new = not config.name_or_path and config.model_type != "fada-crnn"
    return LEARNING_RATES.get("trocr-tiny" if new else config.model_type, 3e-5)
