"""Speed of the CTC decoder: against other decoders and the recogniser, guided against plain, two threads against one.

All systems decode the same made-up but realistic emissions (lines of about 53 characters, 128 to 256 frames, 100
classes, best path character error about 15 %) in one run, taking turns; a figure is the best of the rounds. CPU time is
measured except for threads, so that other load on the machine matters less.

    python -m benchmarks.ctc [--lines 200] [--rounds 5] [--out FOLDER]

Peers that are not installed are left out: fast-ctc-decode, flashlight-text, pyctcdecode (with --no-deps, and pygtrie).
"""

import argparse
import json
import logging
import os
import re
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np
from numba import njit

from fada.common.files import write_json, write_text
from fada.decoding.ctc import CTCBeamDecoder
from fada.targets.distribution import CharDistribution
from fada.text.normalizer import TextNormalizer

BEAMS = (5, 7, 25, 100)
ALPHABET = [chr(i) for i in range(32, 127)] + list("éüß€")
SYMBOLS = ["", *ALPHABET]
V = len(SYMBOLS)
LOOKALIKES = (
    "ceo aou nmrhu il1tI|j vuwy bhk6 gqy9 fts dcl OQ0D S5s Z2z B8 PRF UVW .,' -_~ ;:i ([{ )]} xkX CGO EFL MNH 78 34"
)
SECONDS_PER_ROUND = 0.6
LOOP = 20_000_000

Decode = Callable[[Sequence[np.ndarray]], list[str]]


def corpus_lines(n: int, rng: np.random.Generator) -> list[str]:
    """Lines of English prose of 34 to 72 characters, from Python's own help texts."""
    from pydoc_data.topics import topics

    text = re.sub(r"[*`^~=\\\-]{2,}|\s+", " ", " ".join(topics[k] for k in sorted(topics)))
    words = "".join(c for c in text if c in set(ALPHABET)).split(" ")
    lines: list[str] = []
    while len(lines) < n:
        start, length = int(rng.integers(len(words) - 40)), int(rng.integers(34, 72))
        line = " ".join(words[start : start + 40])[:length].strip()
        if sum(c.isalpha() for c in line) > 0.6 * len(line):
            lines.append(line)
    return lines


def emission(text: str, rng: np.random.Generator) -> np.ndarray:
    """(T, V) float32 log-probabilities as a recogniser gives them: mostly blank, one or two frames per character.

    About a quarter of the characters are hard: part of their probability, sometimes most of it, goes to lookalikes.
    """
    identity = {c: i + 1 for i, c in enumerate(ALPHABET)}
    T = int(np.clip(round(len(text) * rng.uniform(2.6, 3.6)), 128, 256))
    p = rng.dirichlet(np.full(V, 0.05), T) * (1 - rng.beta(30, 1, (T, 1)))
    p[:, 0] += 1 - p.sum(axis=1)
    frames = np.linspace(0, T - 2, len(text)) + rng.uniform(-0.4, 0.4, len(text))
    at = -2
    for previous, c, frame in zip(" " + text, text, frames, strict=False):
        at = max(round(float(frame)), at + (2 if c == previous else 1), 0)
        if at >= T:
            break
        certain = rng.uniform(0.08, 0.62) if rng.random() < 0.27 else rng.beta(14, 1)
        alike = [identity[x] for group in LOOKALIKES.split() if c in group for x in group if x != c] or [1]
        chosen = rng.choice(alike, min(len(alike), int(rng.integers(1, 4))), replace=False)
        row = 0.06 * rng.dirichlet(np.full(V, 0.15))
        row[0] += rng.beta(1, 6)
        row[chosen] += rng.dirichlet(np.full(len(chosen), 0.7))
        row *= (1 - certain) / row.sum()
        row[identity[c]] += certain
        for share in (1.0, 0.8)[: 1 + int(rng.random() < 0.3 and at + 2 < T)]:
            noisy = row * np.exp(rng.normal(0, 0.25, V))
            p[at] = share * noisy / noisy.sum()
            p[at, 0] += 1 - share
            at += 1
        at -= 1
    p = np.maximum(p, 1e-7)
    return np.log(p / p.sum(axis=1, keepdims=True)).astype(np.float32)


def emissions(n: int, seed: int = 0) -> tuple[list[str], list[np.ndarray]]:
    """Reference texts and their emissions."""
    rng = np.random.default_rng(seed)
    texts = corpus_lines(n, rng)
    return texts, [emission(text, rng) for text in texts]


def target() -> CharDistribution:
    """Character frequencies of other lines of the same kind."""
    return CharDistribution.from_texts(corpus_lines(2000, np.random.default_rng(99)), TextNormalizer(case="keep"))


def ours(beam: int, threads: int = 1, **settings: Any) -> Decode:
    """This project's decoder."""
    decoder = CTCBeamDecoder(SYMBOLS, beam_size=beam, threads=threads, **settings)
    return lambda lines: [hypotheses[0].text for hypotheses in decoder.decode_batch(lines)]


def fast_ctc_decode(beam: int, cut: float) -> Decode:
    """fast-ctc-decode wants probabilities; their exponentiation is part of its time, as for anyone who uses it."""
    from fast_ctc_decode import beam_search

    alphabet = "\x01" + "".join(ALPHABET)
    return lambda lines: [
        beam_search(np.exp(line), alphabet, beam_size=beam, beam_cut_threshold=cut)[0] for line in lines
    ]


def flashlight(beam: int, tokens: int, threshold: float) -> Decode:
    """flashlight-text without lexicon and language model, merging paths by log-add."""
    from flashlight.lib.text.decoder import CriterionType, LexiconFreeDecoder, LexiconFreeDecoderOptions, ZeroLM

    options = LexiconFreeDecoderOptions(
        beam_size=beam,
        beam_size_token=tokens,
        beam_threshold=threshold,
        lm_weight=0.0,
        sil_score=0.0,
        log_add=True,
        criterion_type=CriterionType.CTC,
    )
    decoder = LexiconFreeDecoder(options, ZeroLM(), 0, 0, [])

    def decode(lines: Sequence[np.ndarray]) -> list[str]:
        texts = []
        for line in lines:
            path = np.array(decoder.decode(line.ctypes.data, *line.shape)[0].tokens)
            kept = path[np.flatnonzero(np.diff(path, prepend=-1))]
            texts.append("".join(SYMBOLS[c] for c in kept if c > 0))
        return texts

    return decode


def pyctcdecode(beam: int) -> Decode:
    """pyctcdecode with its default pruning."""
    logging.disable(logging.WARNING)
    from pyctcdecode import build_ctcdecoder

    decoder = build_ctcdecoder(SYMBOLS)
    return lambda lines: [decoder.decode(line, beam_width=beam) for line in lines]


PEERS: dict[str, Callable[[int], Decode]] = {
    "fast-ctc-decode, cut 1e-3": lambda beam: fast_ctc_decode(beam, 1e-3),
    "fast-ctc-decode, cut 0": lambda beam: fast_ctc_decode(beam, 0.0),
    "flashlight-text, 20 tokens, threshold 25": lambda beam: flashlight(beam, 20, 25.0),
    "flashlight-text, everything": lambda beam: flashlight(beam, V, 1e9),
    "pyctcdecode": pyctcdecode,
}
PLAIN = "fada, plain"
SORTED, ALIGNED, SCALED = (f"fada, guided {x}" for x in ("sorted_w2", "aligned_w2", "aligned_w2, scale 50"))


def systems(beam: int) -> dict[str, Decode]:
    """Everything that is measured at one beam size."""
    p = target()
    chosen = {
        PLAIN: ours(beam),
        SORTED: ours(beam, target=p, lam=0.5),
        ALIGNED: ours(beam, target=p, lam=0.5, distance="aligned_w2"),
        SCALED: ours(beam, target=p, lam=0.5, distance="aligned_w2", scale=50.0),
    }
    for name, make in PEERS.items():
        try:
            chosen[name] = make(beam)
        except ImportError as error:
            print(f"left out: {name} ({error})")
    return chosen


def ratio(times: Sequence[float], others: Sequence[float]) -> float:
    """Median of the ratios round by round: what slows the machine down for a while slows down both."""
    return float(np.median(np.divide(times, others)))


def measure(beam: int, lines: list[np.ndarray], rounds: int) -> list[dict[str, Any]]:
    """Lines per second of every system, and how many lines read as the plain decoder reads them."""
    chosen = systems(beam)
    texts: dict[str, list[str]] = {}
    sizes: dict[str, int] = {}
    for name, decode in chosen.items():
        decode(lines[:2])
        started = time.process_time()
        decode(lines[:2])
        per_line = max((time.process_time() - started) / 2, 1e-6)
        sizes[name] = int(np.clip(SECONDS_PER_ROUND / per_line, 4, len(lines)))
    seconds: dict[str, list[float]] = {name: [] for name in chosen}
    for _ in range(rounds):
        for name, decode in chosen.items():
            few = lines[: sizes[name]]
            started = time.process_time()
            texts[name] = decode(few)
            seconds[name].append((time.process_time() - started) / len(few))
    rows = []
    for name in chosen:
        same = [a == b for a, b in zip(texts[name], texts[PLAIN], strict=False)]
        rows.append(
            {
                "beam": beam,
                "decoder": name,
                "lines_per_second": 1 / min(seconds[name]),
                "same_text_percent": 100 * float(np.mean(same)),
                "plain_over_this": ratio(seconds[name], seconds[PLAIN]),
                "lines": sizes[name],
            }
        )
    return rows


def in_turns(
    chosen: dict[Any, Decode], batch: list[np.ndarray], rounds: int, clock: Callable[[], float]
) -> dict[Any, list[float]]:
    """Seconds of every decoding of a batch, round by round; short and often."""
    seconds: dict[Any, list[float]] = {key: [] for key in chosen}
    for _ in range(6 * rounds):
        for key, decode in chosen.items():
            started = clock()
            decode(batch)
            seconds[key].append(clock() - started)
    return seconds


def measure_guidance(beam: int, lines: list[np.ndarray], rounds: int) -> dict[str, float]:
    """CPU time of guided decoding relative to plain."""
    chosen = {
        PLAIN: ours(beam),
        SORTED: ours(beam, target=target(), lam=0.5),
        ALIGNED: ours(beam, target=target(), lam=0.5, distance="aligned_w2"),
    }
    seconds = in_turns(chosen, lines[: max(50, 1000 // beam)], rounds, time.process_time)
    return {
        "sorted_over_plain_time": ratio(seconds[SORTED], seconds[PLAIN]),
        "aligned_over_plain_time": ratio(seconds[ALIGNED], seconds[PLAIN]),
    }


@njit(nogil=True)
def _multiply(times: int) -> float:
    x = 1.0
    for _ in range(times):
        x = x * 1.0000001 + 1e-9
    return x


def loop_on_threads(threads: int) -> Decode:
    """Nothing but multiplications, divided among threads that share no memory: what this machine gives at best."""
    pool = ThreadPoolExecutor(threads)
    _multiply(1)

    def run(_: Sequence[np.ndarray]) -> list[str]:
        list(pool.map(_multiply, [LOOP // threads] * threads))
        return []

    return run


def measure_threads(beam: int, lines: list[np.ndarray], rounds: int) -> dict[str, Any]:
    """Wall-clock time of a batch on one thread relative to two."""
    batch = (lines * 4)[: max(100, 4000 // beam)]
    settings: dict[str, dict[str, Any]] = {"plain": {}, "guided": {"target": target(), "lam": 0.5}}
    chosen = {(name, n): ours(beam, threads=n, **settings[name]) for name in settings for n in (1, 2)}
    chosen |= {("loop", n): loop_on_threads(n) for n in (1, 2)}
    seconds = in_turns(chosen, batch, rounds, time.perf_counter)
    ratios = {f"two_threads_over_one_{name}": ratio(seconds[name, 1], seconds[name, 2]) for name in (*settings, "loop")}
    return {"lines_for_threads": len(batch), **ratios}


def measure_recognition(frames: int, rounds: int, batch: int = 8) -> float | None:
    """CPU seconds that the C-RNN takes for one line of that many frames, in batches; None without torch."""
    try:
        import torch

        from fada.models.crnn import CRNNConfig, CRNNForCTC
    except ImportError:
        return None
    torch.set_num_threads(1)
    model = CRNNForCTC(CRNNConfig(vocab_size=V)).eval()
    pixels = torch.rand(batch, 1, model.config.height, 4 * frames)
    best = np.inf
    with torch.inference_mode():
        for _ in range(rounds):
            started = time.process_time()
            model(pixels)
            best = min(best, (time.process_time() - started) / batch)
    return float(best)


def summary(rows: list[dict[str, Any]], measured: dict[int, dict[str, Any]]) -> list[dict[str, Any]]:
    """The ratios the project promises, per beam size."""
    result = []
    for beam in dict.fromkeys(row["beam"] for row in rows):
        here = {row["decoder"]: row for row in rows if row["beam"] == beam}
        peers = {n: r for n, r in here.items() if n in PEERS and r["same_text_percent"] >= 99}
        fastest = max(peers, key=lambda n: peers[n]["lines_per_second"], default=None)
        result.append(
            {
                "beam": beam,
                "fastest_peer_with_the_same_text": fastest,
                "plain_over_peer": peers[fastest]["plain_over_this"] if fastest else None,
                **measured[beam],
            }
        )
    return result


def as_markdown(rows: list[dict[str, Any]], ratios: list[dict[str, Any]]) -> str:
    """The tables of docs/decoding.md."""
    beams = [ratio["beam"] for ratio in ratios]
    lines = ["| lines per second, one thread | " + " | ".join(f"beam {b}" for b in beams) + " |"]
    lines.append("|---|" + "---:|" * len(beams))
    for name in dict.fromkeys(row["decoder"] for row in rows):
        here = {row["beam"]: row for row in rows if row["decoder"] == name}
        lines.append(f"| {name} | " + " | ".join(f"{here[b]['lines_per_second']:,.0f}" for b in beams) + " |")
    lines += ["", "| ratio | " + " | ".join(f"beam {b}" for b in beams) + " |", "|---|" + "---:|" * len(beams)]
    for key, label in {
        "plain_over_peer": "plain, times the fastest peer with the same text",
        "sorted_over_plain_time": "time guided by sorted_w2 / plain",
        "aligned_over_plain_time": "time guided by aligned_w2 / plain",
        "two_threads_over_one_plain": "speed of two threads / one, plain",
        "two_threads_over_one_guided": "speed of two threads / one, guided by sorted_w2",
        "two_threads_over_one_loop": "speed of two threads / one, of a loop that shares nothing: the machine's best",
    }.items():
        values = [f"{ratio[key]:.2f}" if ratio[key] else "" for ratio in ratios]
        lines.append(f"| {label} | " + " | ".join(values) + " |")
    return "\n".join(lines) + "\n"


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure, print, and write ``ctc.json`` and ``ctc.md`` if a folder is given."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--lines", type=int, default=200)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--beams", type=int, nargs="+", default=list(BEAMS))
    parser.add_argument("--out", type=Path, help="folder for ctc.json and ctc.md")
    chosen = parser.parse_args(arguments)
    texts, lines = emissions(chosen.lines)
    from rapidfuzz.distance import Levenshtein

    greedy = CTCBeamDecoder(SYMBOLS)
    wrong = sum(Levenshtein.distance(greedy.greedy(x).text, t) for x, t in zip(lines, texts, strict=True))
    cer = 100 * wrong / sum(map(len, texts))
    frames = [len(line) for line in lines]
    about: dict[str, Any] = {
        "lines": len(lines),
        "characters_per_line": float(np.mean([len(t) for t in texts])),
        "frames": [min(frames), max(frames)],
        "classes": V,
        "best_path_cer_percent": cer,
        "rounds": chosen.rounds,
    }
    print(json.dumps(about))
    rows = [row for beam in chosen.beams for row in measure(beam, lines, chosen.rounds)]
    measured = {
        beam: measure_guidance(beam, lines, chosen.rounds) | measure_threads(beam, lines, chosen.rounds)
        for beam in chosen.beams
    }
    ratios = summary(rows, measured)
    table = as_markdown(rows, ratios)
    recognition = measure_recognition(int(np.mean(frames)), chosen.rounds)
    if recognition:
        guided = next(1 / row["lines_per_second"] for row in rows if row["decoder"] == SORTED)
        about["crnn_milliseconds_per_line"] = 1000 * recognition
        about["decoding_percent_of_recognition"] = 100 * guided / recognition
        table += (
            f"\nThe C-RNN takes {1000 * recognition:.1f} ms for a line, guided decoding with beam {rows[0]['beam']} "
            f"{1000 * guided:.3f} ms: {100 * guided / recognition:.2f} % of it.\n"
        )
    print(table)
    if chosen.out:
        write_json(chosen.out / "ctc.json", {"data": about, "rows": rows, "ratios": ratios})
        write_text(chosen.out / "ctc.md", table)


if __name__ == "__main__":
    main()
