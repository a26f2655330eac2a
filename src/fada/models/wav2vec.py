"""Any `*ForCTC` model of transformers over sound: wav2vec 2.0, HuBERT, WavLM and their kin."""

import json
import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from transformers import AutoFeatureExtractor, AutoModelForCTC, AutoTokenizer, PreTrainedModel

from fada.common.files import write_json
from fada.data.line import Line
from fada.errors import FadaError
from fada.models.ctc_network import CTCNetwork, ctc_loss
from fada.models.network import NewCharacters, characters_of, characters_to_add, load_weights, padded_labels
from fada.models.recognizer import Tagging
from fada.text.alphabet import Alphabet

_SYMBOLS = "ctc_symbols.json"


class TransformersCTCRecognizer(CTCNetwork):
    """A CTC model of transformers with its feature extractor and an alphabet."""

    modality = "audio"

    def __init__(
        self,
        model: PreTrainedModel,
        features: Any,
        alphabet: Alphabet,
        tagging: Tagging = "none",
        domains: Sequence[str] = (),
    ) -> None:
        self.model: Any = model
        self.features = features
        self._alphabet = alphabet
        self.tagging, self.domains, self.tag_classes = tagging, tuple(domains), len(domains)
        self._classes = {text: i for i, text in enumerate(alphabet.texts) if text}

    @classmethod
    def load(
        cls,
        name: str | os.PathLike[str],
        texts: Sequence[str] = (),
        new_characters: NewCharacters = "ignore",
        domains: Sequence[str] = (),
        tagging: Tagging | None = None,
    ) -> "TransformersCTCRecognizer":
        """Read a model from a folder or the hub; one without an alphabet gets that of `texts`."""
        model = load_weights(AutoModelForCTC, name, new=("masked_spec_embed", *(["lm_head"] if texts else [])))
        features = AutoFeatureExtractor.from_pretrained(name, trust_remote_code=False)
        saved_path = Path(name) / _SYMBOLS
        saved = json.loads(saved_path.read_text(encoding="utf-8")) if saved_path.is_file() else {}
        alphabet = Alphabet(tuple(saved["symbols"]), saved["blank"]) if saved else _alphabet(name, model, texts)
        recognizer = cls(model, features, alphabet, saved.get("tagging", "none"), saved.get("domains", ()))
        recognizer._check_classes(model.lm_head.out_features, str(name))
        recognizer._add_characters(texts, new_characters)
        if tagging == "given":
            raise FadaError(f"{name}: takes no domain as input. Use --tagging predicted: it learns to tell the domain.")
        if tagging == "predicted":
            recognizer.tagging, recognizer.domains, recognizer.tag_classes = tagging, tuple(domains), len(domains)
            recognizer._resize({len(recognizer.symbols) + i: None for i in range(len(domains))})
        return recognizer

    def prepare(self, line: Line) -> np.ndarray:
        """(samples,) float32, normalised as the model expects."""
        samples, rate = line.load_audio()
        if self.model._get_feat_extract_output_lengths(len(samples)) < 1:
            raise FadaError(f"{line.source or line.id}: {len(samples)} samples of sound, too short for this model.")
        return np.asarray(self.features(samples, sampling_rate=rate, return_tensors="np")["input_values"][0])

    def encode(self, text: str, domain: str | None = None) -> list[int]:
        """Classes of the characters, the domain's tag before them; a character without a class is left out."""
        tag = [len(self.symbols) + self.domains.index(str(domain))] if self.tagging != "none" else []
        return tag + [self._classes[character] for character in text if character in self._classes]

    def collate(self, arrays: Sequence[np.ndarray], labels: Sequence[list[int]] | None = None) -> dict[str, Tensor]:
        """Samples, mask and labels."""
        values = nn.utils.rnn.pad_sequence([torch.from_numpy(array) for array in arrays], batch_first=True)
        lengths = torch.tensor([len(array) for array in arrays])
        mask = (torch.arange(values.shape[1]) < lengths[:, None]).long()
        inputs = {"input_values": values, "attention_mask": mask}
        return inputs if labels is None else {**inputs, "labels": padded_labels(labels)}

    def frames(self, outputs: Any, inputs: dict[str, Tensor]) -> Tensor:
        """Frames that the convolutions leave of each recording."""
        return self.model._get_feat_extract_output_lengths(inputs["attention_mask"].sum(-1))

    def task_loss(self, model: nn.Module, inputs: dict[str, Tensor]) -> tuple[Tensor, Any]:
        """CTC loss per character, as for the C-RNN, whatever the model's own configuration says."""
        labels = inputs["labels"]
        outputs = model(**{name: value for name, value in inputs.items() if name != "labels"})
        return ctc_loss(outputs.logits, self.frames(outputs, inputs), labels, self.blank), outputs

    def write(self, folder: Path) -> None:
        self.model.save_pretrained(folder)
        self.features.save_pretrained(folder)
        saved = {"tagging": self.tagging, "domains": list(self.domains)}
        write_json(folder / _SYMBOLS, {**saved, **self.alphabet.to_dict()})

    def _add_characters(self, texts: Iterable[str], policy: NewCharacters) -> None:
        missing = sorted({c for text in texts for c in text} - set(self._classes))
        new = characters_to_add(missing, policy, "the model's alphabet")
        if not new:
            return
        sources = {
            len(self.symbols) + i: self._classes.get(c.swapcase(), self._classes.get(c.lower()))
            for i, c in enumerate(new)
        }
        self._alphabet = Alphabet((*self.symbols, *new), self.blank)
        self._classes |= {c: self.symbols.index(c) for c in new}
        self._resize(sources)

    def _resize(self, sources: dict[int, int | None]) -> None:
        """Add rows to the output layer, each a copy of another class's or the mean of all."""
        old: nn.Linear = self.model.lm_head
        new = nn.Linear(old.in_features, old.out_features + len(sources))
        with torch.no_grad():
            for table, source in ((new.weight, old.weight), (new.bias, old.bias)):
                table[: old.out_features] = source
                for row, donor in sources.items():
                    table[row] = source.mean(0) if donor is None else source[donor]
        self.model.lm_head = new
        self.model.config.vocab_size = new.out_features


def _alphabet(name: str | os.PathLike[str], model: PreTrainedModel, texts: Sequence[str]) -> Alphabet:
    try:
        tokenizer = AutoTokenizer.from_pretrained(name, trust_remote_code=False)
    except (OSError, ValueError, TypeError, KeyError):
        if not texts:
            raise FadaError(
                f"{name}: no alphabet ({_SYMBOLS}, or a tokenizer): it was never trained to write, or a file is "
                "missing. Train it with fada train --model, or get its files anew."
            ) from None
        symbols = ["", *characters_of(texts)]
        model.lm_head = nn.Linear(model.lm_head.in_features, len(symbols))
        model.config.vocab_size, model.config.pad_token_id = len(symbols), 0
        return Alphabet(tuple(symbols))
    delimiter = getattr(tokenizer, "word_delimiter_token", None)
    special = set(tokenizer.all_special_tokens) - {delimiter}
    tokens = tokenizer.convert_ids_to_tokens(list(range(model.config.vocab_size)))
    symbols = ["" if t is None or t in special else " " if t == delimiter else t for t in tokens]
    return Alphabet(tuple(symbols), int(tokenizer.pad_token_id))
