"""Tokenizers and random models small enough to be built in a test: no file, no network."""

import json
from functools import lru_cache
from typing import Any

import torch
from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers
from transformers import (
    LlamaConfig,
    LlamaForCausalLM,
    PreTrainedTokenizerFast,
    TrOCRConfig,
    VisionEncoderDecoderConfig,
    VisionEncoderDecoderModel,
    ViTConfig,
    WhisperConfig,
    WhisperForConditionalGeneration,
)

ENGLISH = (
    "Once upon a time there was a little dog who lived in a park. The dog liked to run, to jump and to bark at the "
    "birds. One day it rained; the dog sat under an old oak and looked at the river. A café was open: naïve ducks "
    "swam by. It was, all in all, a fine and quiet day!"
)
GREEK = (
    "Μῆνιν ἄειδε θεὰ Πηληϊάδεω Ἀχιλῆος οὐλομένην, ἣ μυρί’ Ἀχαιοῖς ἄλγε’ ἔθηκε, πολλὰς δ’ ἰφθίμους ψυχὰς Ἄϊδι προΐαψεν "
    "ἡρώων. Ἄνδρα μοι ἔννεπε, Μοῦσα, πολύτροπον, ὃς μάλα πολλὰ πλάγχθη."
)
SPECIAL = ["<pad>", "<s>", "</s>"]
SMALL_WHISPER: dict[str, Any] = {
    "num_mel_bins": 8,
    "d_model": 16,
    **dict.fromkeys(("encoder_layers", "decoder_layers"), 1),
    **dict.fromkeys(("encoder_attention_heads", "decoder_attention_heads"), 2),
    **dict.fromkeys(("encoder_ffn_dim", "decoder_ffn_dim"), 16),
    **dict.fromkeys(("suppress_tokens", "begin_suppress_tokens")),
}


def _wrap(tokenizer: Tokenizer) -> PreTrainedTokenizerFast:
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        pad_token="<pad>",
        bos_token="<s>",
        eos_token="</s>",
        clean_up_tokenization_spaces=False,
    )


@lru_cache
def byte_level_tokenizer(text: str = ENGLISH, size: int = 320) -> PreTrainedTokenizerFast:
    """Byte-level BPE, as GPT-2, RoBERTa and Whisper have it."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=size, special_tokens=SPECIAL, initial_alphabet=alphabet, show_progress=False
    )
    tokenizer.train_from_iterator([text], trainer)
    return _wrap(tokenizer)


@lru_cache
def byte_fallback_tokenizer(text: str = ENGLISH, size: int = 360) -> PreTrainedTokenizerFast:
    """SentencePiece-like BPE with a space marker and byte fallback, as Llama 2 has it."""
    learner = Tokenizer(models.BPE())
    trainer = trainers.BpeTrainer(vocab_size=size - 259, max_token_length=4, show_progress=False)
    learner.train_from_iterator([text.replace(" ", "▁")], trainer)
    learned = json.loads(learner.to_str())["model"]
    names = [*SPECIAL, *(f"<0x{b:02X}>" for b in range(256)), *learned["vocab"]]
    vocabulary = {name: i for i, name in enumerate(names)}
    tokenizer = Tokenizer(models.BPE(vocabulary, [tuple(pair) for pair in learned["merges"]], byte_fallback=True))
    tokenizer.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    tokenizer.decoder = decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    )
    return _wrap(tokenizer)


@lru_cache
def character_tokenizer(text: str = ENGLISH) -> PreTrainedTokenizerFast:
    """One token for each character."""
    names = [*SPECIAL, *sorted(set(text))]
    tokenizer = Tokenizer(models.WordLevel({name: i for i, name in enumerate(names)}, unk_token="<pad>"))
    tokenizer.pre_tokenizer = pre_tokenizers.Split("", "isolated")
    tokenizer.decoder = decoders.Fuse()
    return _wrap(tokenizer)


@lru_cache
def wordpiece_tokenizer(text: str = ENGLISH, size: int = 120) -> PreTrainedTokenizerFast:
    """WordPiece, as BERT has it."""
    tokenizer = Tokenizer(models.WordPiece(unk_token="<pad>"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.decoder = decoders.WordPiece(cleanup=False)
    trainer = trainers.WordPieceTrainer(vocab_size=size, special_tokens=SPECIAL, show_progress=False)
    tokenizer.train_from_iterator([text], trainer)
    return _wrap(tokenizer)


def llama(vocabulary: int, seed: int = 0, sharpness: float = 6.0) -> LlamaForCausalLM:
    """A random causal language model; `sharpness` scales the output layer so that predictions are not flat."""
    torch.manual_seed(seed)
    config = LlamaConfig(
        vocab_size=vocabulary,
        hidden_size=32,
        intermediate_size=48,
        num_hidden_layers=2,
        num_attention_heads=2,
        max_position_embeddings=512,
        pad_token_id=0,
        bos_token_id=1,
        eos_token_id=2,
    )
    model = LlamaForCausalLM(config).eval()
    model.lm_head.weight.data *= sharpness
    return model


def trocr(vocabulary: int, seed: int = 0, sharpness: float = 6.0) -> VisionEncoderDecoderModel:
    """A random recogniser of 32 × 32 images with the shape of TrOCR."""
    torch.manual_seed(seed)
    encoder = ViTConfig(
        hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=16, image_size=32, patch_size=16
    )
    decoder = TrOCRConfig(
        vocab_size=vocabulary,
        d_model=16,
        decoder_layers=1,
        decoder_attention_heads=2,
        decoder_ffn_dim=16,
        max_position_embeddings=128,
        cross_attention_hidden_size=16,
        pad_token_id=0,
        bos_token_id=1,
        eos_token_id=2,
        decoder_start_token_id=1,
    )
    config = VisionEncoderDecoderConfig.from_encoder_decoder_configs(encoder, decoder)
    config.decoder_start_token_id, config.pad_token_id, config.eos_token_id = 1, 0, 2
    model = VisionEncoderDecoderModel(config).eval()
    model.generation_config.decoder_start_token_id = 1
    model.generation_config.pad_token_id = 0
    model.generation_config.eos_token_id = 2
    model.decoder.output_projection.weight.data *= sharpness
    return model


def whisper(vocabulary: int, seed: int = 0, sharpness: float = 6.0) -> WhisperForConditionalGeneration:
    """A random speech recogniser with the shape of Whisper: windows of 3,000 frames, `vocabulary` tokens of text.

    The tokens after the text are: start, language, transcribe, no time stamps, then 1,501 time stamps.
    """
    torch.manual_seed(seed)
    start = vocabulary
    config = WhisperConfig(
        **SMALL_WHISPER,
        vocab_size=vocabulary + 5 + 1501,
        max_source_positions=1500,
        max_target_positions=64,
        pad_token_id=0,
        bos_token_id=1,
        eos_token_id=2,
        decoder_start_token_id=start,
        tie_word_embeddings=False,
    )
    model = WhisperForConditionalGeneration(config).eval()
    generation = model.generation_config
    settings = {
        "decoder_start_token_id": start,
        "eos_token_id": 2,
        "pad_token_id": 0,
        "suppress_tokens": None,
        "begin_suppress_tokens": None,
        "is_multilingual": False,
        "no_timestamps_token_id": vocabulary + 4,
        "prev_sot_token_id": vocabulary + 3,
        "forced_decoder_ids": None,
        "max_length": None,
    }
    for name, value in settings.items():
        setattr(generation, name, value)
    model.proj_out.weight.data *= sharpness
    return model
