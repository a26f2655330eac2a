"""Cost of guidance in `transformers.generate`: per step at 5 beams × 50,000 tokens, and on a decoder like TrOCR-small.

    python -m benchmarks.generate [--rounds 5] [--out FOLDER]

The vocabulary is made up (byte-level: 256 bytes and words with and without a leading space), the decoder has the shape
of TrOCR-small (6 layers of width 256, 64,044 tokens, 578 image patches) and random weights. CPU times, one thread.
"""

import os
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np
import torch
import typer
from transformers import LogitsProcessor, TrOCRConfig, VisionEncoderDecoderConfig, VisionEncoderDecoderModel, ViTConfig
from transformers.modeling_outputs import BaseModelOutput

from fada.common.files import write_json
from fada.decoding.generate import GuidedLogitsProcessor
from fada.targets.distribution import CharDistribution
from fada.text.tokens import TokenTable

LETTERS = "etaoinshrdlucmfwypvbgkjqxz"
PATCHES = 578
LIMITS = {"milliseconds": 1.5, "percent": 5.0}


def made_up_vocabulary(size: int, seed: int = 0) -> TokenTable:
    """Special tokens, all bytes, and different words of 1 to 10 letters, two of three with a leading space."""
    rng = np.random.default_rng(seed)
    weights = 1 / np.arange(2, len(LETTERS) + 2)
    words: dict[bytes, None] = {}
    while len(words) < size - 260:
        letters = rng.choice(list(LETTERS), rng.integers(1, 11), p=weights / weights.sum())
        words[(b" " if rng.random() < 0.66 else b"") + "".join(letters).encode()] = None
    pieces = [b""] * 4 + [bytes([b]) for b in range(256)] + list(words)
    return TokenTable(pieces, np.array([not piece for piece in pieces]))


def english() -> CharDistribution:
    """Frequencies that fall like those of English letters, over 80 characters."""
    others = [c for c in map(chr, range(33, 127)) if c not in LETTERS and not c.isupper()]
    symbols = sorted([" ", *LETTERS, *others])
    rank = {c: i for i, c in enumerate([" ", *LETTERS, *others])}
    return CharDistribution(tuple(symbols), np.array([1e6 / (1 + rank[c]) for c in symbols]))


def cpu_seconds(run: Callable[[], object]) -> float:
    start = time.process_time()
    run()
    return time.process_time() - start


def step_milliseconds(distance: str, scale: float, rounds: int) -> float:
    """Median over the steps of a growing text, best of the rounds."""
    table = made_up_vocabulary(50_000)
    guide = GuidedLogitsProcessor(table, english(), 0.5, distance, scale, prompt_length=1, keep=10)
    generator = torch.Generator().manual_seed(0)
    ids = torch.randint(260, len(table), (5, 60), generator=generator)
    # A few likely tokens and a long tail, as trained models predict.
    scores = torch.log_softmax(4 * torch.randn(5, len(table), generator=generator), -1)
    best = np.inf
    for _ in range(rounds + 1):
        steps = [cpu_seconds(partial(guide, ids[:, :n], scores)) for n in range(20, 60)]
        best = min(best, float(np.median(steps)))
    return 1000 * best


def trocr_small(vocabulary: int) -> VisionEncoderDecoderModel:
    torch.manual_seed(0)
    encoder = ViTConfig(hidden_size=384, num_hidden_layers=1, num_attention_heads=6, intermediate_size=384)
    decoder = TrOCRConfig(
        vocab_size=vocabulary,
        d_model=256,
        decoder_layers=6,
        decoder_attention_heads=8,
        decoder_ffn_dim=1024,
        cross_attention_hidden_size=384,
        max_position_embeddings=128,
        decoder_start_token_id=2,
    )
    config = VisionEncoderDecoderConfig.from_encoder_decoder_configs(encoder, decoder)
    config.decoder_start_token_id, config.pad_token_id, config.eos_token_id = 2, 1, 3
    model = VisionEncoderDecoderModel(config).eval()
    model.decoder.output_projection.weight.data *= (
        12  # logits with a spread of 4, as trained models have, not flat ones
    )
    return model


def decoder_overhead(rounds: int, tokens: int = 24) -> dict[str, float]:
    """Plain and guided generation, turn by turn; the guidance's share of the time and the ratio of the two."""
    table = made_up_vocabulary(64_044)
    model = trocr_small(len(table))
    patches = torch.randn(1, PATCHES, 384, generator=torch.Generator().manual_seed(1))
    guide = GuidedLogitsProcessor(table, english(), 0.5, prompt_length=1, keep=10)

    def generate(processors: list[LogitsProcessor]) -> Any:
        generation: Any = model  # transformers' types know no model of two parts
        return generation.generate(
            encoder_outputs=BaseModelOutput(last_hidden_state=patches),  # generate repeats it in place
            logits_processor=processors,
            num_beams=5,
            length_penalty=0.0,
            min_new_tokens=tokens,
            max_new_tokens=tokens,
            eos_token_id=3,
            pad_token_id=1,
        )

    spent = 0.0

    class Timed(LogitsProcessor):
        def __call__(self, input_ids: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
            nonlocal spent
            start = time.process_time()
            result = guide(input_ids, scores)
            spent += time.process_time() - start
            return result

    generate([guide])
    plain, guided, inside = [], [], []
    for _ in range(rounds):
        plain.append(cpu_seconds(lambda: generate([])))
        spent = 0.0
        guided.append(cpu_seconds(lambda: generate([Timed()])))
        inside.append(spent)
    return {
        "plain_ms_per_step": 1000 * min(plain) / tokens,
        "guided_ms_per_step": 1000 * min(guided) / tokens,
        "guidance_ms_per_step": 1000 * min(inside) / tokens,
        "percent": 100 * min(inside) / min(plain),
    }


def main(rounds: int = 5, out: Path | None = None) -> None:
    torch.set_num_threads(1)
    steps = {
        f"{distance}, scale {scale:g}": step_milliseconds(distance, scale, rounds)
        for distance in ("sorted_w2", "aligned_w2")
        for scale in (1.0, 50.0)
    }
    for name, milliseconds in steps.items():
        print(f"5 beams x 50,000 tokens, {name}: {milliseconds:.2f} ms a step (limit {LIMITS['milliseconds']} ms)")
    decoder = decoder_overhead(rounds)
    print(
        f"decoder like TrOCR-small, 5 beams: {decoder['plain_ms_per_step']:.1f} ms a step plain, guidance "
        f"{decoder['guidance_ms_per_step']:.2f} ms, +{decoder['percent']:.1f} % (limit +{LIMITS['percent']:g} %)"
    )
    if out:
        write_json(out / "generate.json", {"steps": steps, "decoder": decoder, "limits": LIMITS})


if __name__ == "__main__":
    typer.run(main)
