"""How much a list of words should count where no language model is used: the table behind `fada.decoding.wordlist`.

    python recipes/words.py TRAIN.parquet EMISSIONS.npz [hot]

For every manuscript of EMISSIONS (what `fada emit` stores of lines called `…/manuscript/page/line`) that is not in
`recipes/unseen.yaml`, the words of other such manuscripts of its language in TRAIN, with how often they are used, are
given to a plain beam search, at several shares and weights. Printed is the change of the CER, mean of manuscripts.
With `hot` the words are few: the five longest of the manuscript's own lines, which a reader may expect, and the five
longest of as many other lines, in vain.
"""

import random
import sys
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence

import numpy as np
import pyarrow.parquet as pq
from knowledge import documents
from medieval import unseen

from fada.decoding import wordlist
from fada.decoding.defaults import BEAM
from fada.decoding.emissions import Emissions
from fada.decoding.knowledge import Decoder, Knowledge
from fada.decoding.search import BeamSearch
from fada.decoding.weights import Weights

SHARES, WEIGHTS = (0.05, 0.1, 0.2, 0.4, 0.6), (0.25, 0.5, 0.75)


def longest(texts: Sequence[str], count: int = 5) -> list[str]:
    """The longest words of some lines."""
    return sorted({word for text in texts for word in text.split()}, key=lambda word: (-len(word), word))[:count]


def main(train: str, stored: str, kind: str = "list") -> None:
    """Print the table."""
    rows = pq.read_table(train, columns=["text", "language", "manuscript"]).to_pylist()
    left_out = unseen()
    rows = [row for row in rows if row["manuscript"] not in left_out]
    emissions = Emissions.load(stored)
    characters = "".join(sorted({c for symbol in emissions.symbols for c in symbol}))
    changes = defaultdict[tuple[float, float], list[float]](list)
    for document in documents(emissions):
        language = document.domain.partition("-")[0]
        others = [row for row in rows if row["language"] == language and row["manuscript"] != document.manuscript]
        if kind == "hot":
            in_vain = random.Random(document.manuscript).sample([row["text"] for row in others], 16) if others else []
            used: Iterable[str] = [*longest(document.references), *longest(in_vain)]
        else:
            used = (word for row in others for word in row["text"].split())
        words, _ = wordlist.as_written(Counter(used), characters)
        if not words or not others:
            continue
        ids = [str(i) for i in range(len(document.log_probs))]
        own = Emissions(ids, document.log_probs, emissions.symbols, emissions.blank)
        before = document.cer(BeamSearch(own).choose(Weights(beam=BEAM)))
        for share in SHARES:
            usual = wordlist.with_words(Decoder(Weights(beam=BEAM), Knowledge()), words, characters, share)
            for weight in WEIGHTS:
                bonus = usual.weights.length_bonus * weight / wordlist.WEIGHT
                known = usual.weights.change(lm_weight=weight, length_bonus=bonus)
                after = document.cer(BeamSearch(own, usual.knowledge).choose(known))
                changes[share, weight].append(100 * (after / max(before, 0.1) - 1))
        print(f"{document.manuscript}: {len(words)} words, CER {before:.2f}", file=sys.stderr, flush=True)
    print("| share | weight | manuscripts | change (mean) | standard error | worse |")
    print("|---|---|---|---|---|---|")
    for (share, weight), values in changes.items():
        error, worse = np.std(values, ddof=1) / np.sqrt(len(values)), sum(value > 0 for value in values)
        print(f"| {share:g} | {weight:g} | {len(values)} | {np.mean(values):+.1f} % | {error:.1f} | {worse} |")


if __name__ == "__main__":
    main(*sys.argv[1:])
