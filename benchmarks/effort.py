"""What interactive reading saves, by simulation on lines whose text is known.

Three users read the same lines: one types everything; one corrects the finished reading with as few edits as there can
be (its edit distance, so this is a bound that no hand reaches); one reads on until the first wrong character, types the
right one, and lets the rest of the line be read again with all that is confirmed. Counted are keystrokes: an edit or a
typed character each, and one to cut a tail off. Moving the cursor counts for nobody.

    python -m benchmarks.effort LINES.parquet --model medieval --count 100
"""

import argparse
import time
from collections.abc import Sequence
from itertools import islice

import numpy as np
from rapidfuzz.distance import Levenshtein

from fada import load_recognizer, read_lines
from fada.decoding.ctc import CTCBeamDecoder
from fada.decoding.defaults import certainty_of, weights_for
from fada.decoding.knowledge import read_knowledge
from fada.serve.reading import Reader

BEAM = 30
DOUBTFUL = 0.3
"""Expected word error from which the desk shows no draft."""


def interactive(reader: Reader, log_probs: np.ndarray, text: str) -> tuple[int, list[float]]:
    """Keystrokes until the proposal is `text`, and the milliseconds of each proposal."""
    strokes, times = 0, list[float]()
    prefix = ""
    while True:
        started = time.perf_counter()
        proposal = reader.complete(log_probs, prefix).text
        times.append((time.perf_counter() - started) * 1000)
        if proposal == text:
            return strokes, times
        same = next((i for i, (a, b) in enumerate(zip(proposal, text, strict=False)) if a != b), None)
        if same is None and len(proposal) > len(text):
            return strokes + 1, times  # the rest is cut off
        at = len(proposal) if same is None else same
        strokes += 1
        prefix = text[: at + 1]


def main(arguments: Sequence[str] | None = None) -> None:
    """Simulate."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("lines", help="any source of lines with their text")
    parser.add_argument("--model", default="medieval")
    parser.add_argument("--knowledge", default=None, help="a .fada file, or a domain that comes with fada, such as la")
    parser.add_argument("--domain", default=None, help="only lines of this domain")
    parser.add_argument("--split", default=None)
    parser.add_argument("--count", type=int, default=100)
    parser.add_argument("--step", type=int, default=1, help="every so many lines")
    given = parser.parse_args(arguments)
    recognizer = load_recognizer(given.model)
    of_domain = (
        line for line in read_lines(given.lines, split=given.split) if line.text and given.domain in (None, line.domain)
    )
    lines = [*islice(of_domain, 0, given.count * given.step, given.step)]
    emissions = recognizer.emit(lines)
    decoder = CTCBeamDecoder(emissions.symbols, emissions.blank, beam_size=BEAM)
    guided = decoder
    if given.knowledge:
        known = read_knowledge(given.knowledge)
        weights = weights_for(known.characters, certainty_of(emissions.log_probs))
        guided = decoder.replace(lm=known.global_lm, lm_weight=weights.lm_weight, length_bonus=weights.length_bonus)
    reader = Reader(guided, decoder)
    if not lines:
        raise SystemExit("no lines with a text.")
    rows, times = [], list[float]()
    for line, log_probs, reading in zip(lines, emissions.log_probs, reader.read(emissions.log_probs), strict=True):
        text = " ".join((line.text or "").split())
        strokes, took = interactive(reader, log_probs, text)
        times += took
        rows.append((len(text), Levenshtein.distance(reading.text, text), strokes, reading.expected_word_error or 0.0))
    table = np.array(rows)
    print(f"{len(rows)} lines, {int(table[:, 0].sum())} characters; keystrokes for 100 characters")
    for name, chosen in (
        ("all lines", np.ones(len(table), bool)),
        (f"expected word error up to {DOUBTFUL:.0%}", table[:, 3] <= DOUBTFUL),
        (f"expected word error above {DOUBTFUL:.0%}", table[:, 3] > DOUBTFUL),
    ):
        if chosen.any():
            characters, edits, strokes = table[chosen, :3].sum(0)
            per = 100 / characters
            print(f"  {name:<32} {chosen.sum():>4} lines   everything 100.0   best edits {edits * per:5.1f}   ", end="")
            print(f"interactive {strokes * per:5.1f}")
    half, most, worst = np.percentile(times, [50, 95, 100])
    print(
        f"  a proposal at beam {BEAM}: median {half:.1f} ms, 95 % {most:.1f} ms, longest {worst:.1f} ms ({len(times)})"
    )


if __name__ == "__main__":
    main()
