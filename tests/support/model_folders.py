"""Model folders as their makers publish them, with random weights: built in a test, no file, no network."""

from pathlib import Path
from typing import Any, cast

import torch
from tokenizers import Tokenizer
from transformers import (
    PreTrainedTokenizerFast,
    ViTImageProcessor,
    Wav2Vec2Config,
    Wav2Vec2FeatureExtractor,
    Wav2Vec2ForCTC,
    WhisperConfig,
    WhisperFeatureExtractor,
    WhisperForConditionalGeneration,
    WhisperTokenizer,
)
from transformers.models.whisper.tokenization_whisper import LANGUAGES

from fada.models.trocr import TrOCRRecognizer
from fada.models.wav2vec import TransformersCTCRecognizer
from tests.support import tiny_models

TINY: dict[str, Any] = {"size": 16, "layers": (1, 1), "heads": 2, "height": 16, "width": 64, "channels": (4, 4, 8, 8)}


def tiny_trocr(**options: Any) -> TrOCRRecognizer:
    torch.manual_seed(0)
    return TrOCRRecognizer.build_tiny(["abcd "], **TINY, **options)


def trocr_folder(folder: Path) -> Path:
    """A pretrained TrOCR with a byte-level tokenizer, as the real ones have."""
    tokenizer = fresh_byte_level_tokenizer()
    model = tiny_models.trocr(len(tokenizer))
    TrOCRRecognizer(model, ViTImageProcessor(size={"height": 32, "width": 32}), tokenizer).save_pretrained(folder)
    return folder


def fresh_byte_level_tokenizer() -> PreTrainedTokenizerFast:
    shared = tiny_models.byte_level_tokenizer()
    return PreTrainedTokenizerFast(
        tokenizer_object=Tokenizer.from_str(shared.backend_tokenizer.to_str()),
        pad_token="<pad>",
        bos_token="<s>",
        eos_token="</s>",
    )


def whisper_folder(folder: Path, multilingual: bool = False) -> Path:
    """A random Whisper with a tokenizer of its own kind."""
    vocabulary = {chr(c): i for i, c in enumerate(range(33, 127))} | {"Ġ": 94}
    names = [*LANGUAGES, "translate", "transcribe"] if multilingual else []
    special = [f"<|{name}|>" for name in ("endoftext", "startoftranscript", *names, "notimestamps")]
    tokenizer = WhisperTokenizer(vocab=vocabulary, merges=[], unk_token=special[0])
    tokenizer.add_tokens(special, special_tokens=True)
    end, start = cast(list[int], tokenizer.convert_tokens_to_ids(special[:2]))
    config = WhisperConfig(
        **tiny_models.SMALL_WHISPER,
        vocab_size=len(tokenizer),
        max_target_positions=32,
        pad_token_id=end,
        bos_token_id=end,
        eos_token_id=end,
        decoder_start_token_id=start,
    )
    torch.manual_seed(0)
    model = WhisperForConditionalGeneration(config)
    cast(Any, model.generation_config).is_multilingual = multilingual
    model.generation_config._from_model_config = False
    model.save_pretrained(folder)
    WhisperFeatureExtractor(feature_size=8).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def wav2vec2_folder(folder: Path) -> Path:
    """A random wav2vec 2.0 without an alphabet."""
    torch.manual_seed(0)
    config = cast(Any, Wav2Vec2Config)(
        vocab_size=4,
        hidden_size=16,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=16,
        conv_dim=(8, 8),
        conv_stride=(5, 16),
        conv_kernel=(10, 16),
        num_conv_pos_embeddings=8,
        num_conv_pos_embedding_groups=2,
        mask_time_prob=0.0,
        num_feat_extract_layers=2,
    )
    Wav2Vec2ForCTC(config).save_pretrained(folder)
    Wav2Vec2FeatureExtractor().save_pretrained(folder)
    return folder


def wav2vec2_with_alphabet_folder(folder: Path) -> Path:
    """One that has learnt to write a, b, c, d and the space."""
    TransformersCTCRecognizer.load(wav2vec2_folder(folder / "without"), ["abcd "]).save_pretrained(folder / "model")
    return folder / "model"
