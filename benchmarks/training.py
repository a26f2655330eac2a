"""What the alignment loss costs: training steps with and without it, paired in one run, and peak memory.

    python -m benchmarks.training

Steps alternate (without, with, without, ...), so that whatever else the machine does falls on both; the ratio is the
median of the ratios of neighbouring steps. Memory is the peak of a fresh process for each case, with a fixed mmap
threshold, so that it is what the step allocates and not what the allocator of the C library keeps (that varies by 5 %
from run to run, in both cases).
"""

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from transformers import TrOCRConfig, VisionEncoderDecoderConfig, VisionEncoderDecoderModel, ViTConfig

import fada
from fada.alignment import AlignmentLoss
from fada.experiments.overhead import paired_ratio
from fada.models.crnn import PRESETS, CRNNConfig, CRNNForCTC
from fada.text.tokens import TokenTable

LETTERS = "abcdefghijklmnopqrstuvwxyz .,;:'-" + "".join(chr(c) for c in range(0x3B1, 0x3CA)) + "ἀἁἐἑἠἡἰἱὀὁὐὑὠὡ"
LIMITS = {"crnn": 1.01, "decoder": 1.02, "memory": 1.05}

Step = Callable[[bool], None]


def crnn(preset: str = "base", batch: int = 4, width: int = 480) -> Step:
    """A step of a C-RNN on lines of 40 characters."""
    torch.manual_seed(0)
    symbols = ["", *LETTERS]
    model = CRNNForCTC(CRNNConfig(vocab_size=len(symbols), **PRESETS[preset])).train()
    loss = AlignmentLoss.for_ctc(_targets(), symbols, lam=0.5)
    pixels = torch.rand(batch, 1, 40, width)
    widths = torch.tensor([width - 8 * i for i in range(batch)])
    labels = torch.randint(1, len(symbols), (batch, 40))
    optimizer = torch.optim.AdamW(model.parameters(), 1e-4)

    def step(aligned: bool) -> None:
        output = model(pixels, widths, labels)
        total = output.loss
        if aligned:
            total = loss(total, output.logits.log_softmax(-1), output.lengths, ["x"] * batch)
        total.backward()
        optimizer.step()
        optimizer.zero_grad()

    return step


def decoder(vocabulary: int = 50_000, batch: int = 4, length: int = 32) -> Step:
    """A step of an encoder-decoder of the shape of TrOCR-small with a large vocabulary."""
    torch.manual_seed(0)
    encoder = ViTConfig(
        hidden_size=384, num_hidden_layers=12, num_attention_heads=6, intermediate_size=1536, image_size=384
    )
    text = TrOCRConfig(
        vocab_size=vocabulary,
        d_model=256,
        decoder_layers=6,
        decoder_attention_heads=8,
        decoder_ffn_dim=1024,
        cross_attention_hidden_size=384,
    )
    model = VisionEncoderDecoderModel(VisionEncoderDecoderConfig.from_encoder_decoder_configs(encoder, text)).train()
    generator = torch.Generator().manual_seed(1)
    size = torch.randint(1, 7, (vocabulary,), generator=generator).tolist()
    picks = torch.randint(0, len(LETTERS), (vocabulary, 6), generator=generator).tolist()
    pieces = ["".join(LETTERS[c] for c in chosen[:n]).encode() for chosen, n in zip(picks, size, strict=True)]
    targets = _targets()
    table = TokenTable(pieces, np.zeros(vocabulary, bool))
    loss = AlignmentLoss(targets, table.counts(targets.symbols, targets.normalizer), "tokens", lam=0.5)
    pixels = torch.rand(batch, 3, 384, 384)
    ids = torch.randint(0, vocabulary, (batch, length), generator=generator)
    optimizer = torch.optim.AdamW(model.parameters(), 1e-5)

    def step(aligned: bool) -> None:
        output = model(pixel_values=pixels, decoder_input_ids=ids, labels=ids)
        total = loss(output.loss, output.logits, ids, ["x"] * batch) if aligned else output.loss
        total.backward()
        optimizer.step()
        optimizer.zero_grad()

    return step


def _targets() -> fada.TargetSet:
    return fada.TargetSet.from_texts({"x": [LETTERS * 3 + "eeeaaa"], "y": [LETTERS]})


CASES: dict[str, Callable[[], Step]] = {"crnn": crnn, "decoder": decoder}


def own_peak() -> int:
    """Peak memory of this process in bytes (Linux): unlike `ru_maxrss`, it does not start at the parent's peak."""
    status = Path("/proc/self/status").read_text(encoding="utf-8")
    return 1024 * next(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmHWM"))


def peak_memory(case: str, aligned: bool) -> int:
    """Peak memory, in bytes, of a process that takes three steps."""
    command = [sys.executable, __file__, "--peak", case, *(["--aligned"] if aligned else [])]
    environment = {**os.environ, "MALLOC_MMAP_THRESHOLD_": "1000000"}
    return int(subprocess.run(command, check=True, capture_output=True, text=True, env=environment).stdout)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--case", choices=CASES, action="append", help="Measure only this; repeatable.")
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--json", type=Path, help="Also write the figures here.")
    parser.add_argument("--peak", choices=CASES, help=argparse.SUPPRESS)
    parser.add_argument("--aligned", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    if options.peak:
        step = CASES[options.peak]()
        for _ in range(3):
            step(options.aligned)
        print(own_peak())
        return
    figures = {}
    for case in options.case or CASES:
        ratio, seconds = paired_ratio(CASES[case](), options.rounds)
        memory = peak_memory(case, True) / peak_memory(case, False)
        figures[case] = {"time_ratio": ratio, "plain_step_seconds": seconds, "memory_ratio": memory}
        print(
            f"{case}: time x{ratio:.4f} (at most {LIMITS[case]}), memory x{memory:.4f} (at most {LIMITS['memory']}), "
            f"a plain step takes {seconds:.2f} s"
        )
    if options.json:
        options.json.write_text(json.dumps(figures, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
