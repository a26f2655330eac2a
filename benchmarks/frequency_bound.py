"""How much can knowing the character frequencies of a domain be worth, beside what a language model knows?

A reader that expects the frequencies p_training and is told those of the domain saves at most KL(p_domain ‖ p_training)
bits per character, however it uses them; this is the bound on every method that aligns unigram frequencies. Beside it:
what the domain's frequencies save on held-out text (less, for they are estimated), and what a 6-gram of all training
text and one that is half the domain's own save there, against the frequencies of all training text.

    python -m benchmarks.frequency_bound FOLDER/hpgt:century FOLDER/catmus_fr:century FOLDER/latin_script:language \
        FOLDER/accents:accent [--out results/frequency_bound]

Each source is a folder with train and test lines, and the column that names the domain.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated

import numpy as np
import typer

from fada import read_lines
from fada.common.files import write_json, write_text
from fada.decoding.knowledge import Knowledge
from fada.decoding.lm import CharNgram
from fada.evaluation.table import markdown_table
from fada.text.normalizer import TextNormalizer

ORDER = 6
Texts = Mapping[str, Sequence[str]]


@dataclass(frozen=True)
class Bound:
    """Bits per character, means over domains weighted by their test text; `lowest` and `highest` KL of a domain."""

    name: str
    domains: int
    training_characters: int
    test_characters: int
    pearson: float
    """Lowest correlation between the letter frequencies of two domains."""
    kl: float
    lowest: float
    highest: float
    held_out: float
    unigram: float
    """Bits per character of the test text under the frequencies of all training text."""
    ngram: float
    """What the n-gram of all training text saves of these."""
    domain_ngram: float
    """What the n-gram saves that is half the domain's own."""


def bound(name: str, training: Texts, test: Texts) -> Bound:
    """Compute it for the text of each domain."""
    knowledge = Knowledge.from_texts(training, order=ORDER)
    targets = knowledge.targets
    assert targets is not None
    everything = CharNgram.train([line for lines in training.values() for line in lines], 1)
    own = {domain: CharNgram.train(lines, 1).interpolate(everything, 0.02) for domain, lines in training.items()}
    sizes = {domain: sum(map(len, lines)) for domain, lines in test.items()}
    total = sum(sizes.values())
    pooled = targets.overall
    kl = {}
    for domain in test:
        p = targets[domain]
        pairs = [(p.frequency(c), pooled.frequency(c)) for c in p.symbols if p.frequency(c) > 0]
        kl[domain] = float(sum(a * np.log2(a / b) for a, b in pairs))

    def bits(model: CharNgram | None, domain: str) -> float:
        assert model is not None
        return -sum(model.log_prob(line) for line in test[domain]) / np.log(2)

    def mean(values: Mapping[str, float]) -> float:
        return sum(values.values()) / total

    unigram = mean({domain: bits(everything, domain) for domain in test})
    correlations = targets.pearson()
    return Bound(
        name=name,
        domains=len(test),
        training_characters=sum(len(line) for lines in training.values() for line in lines),
        test_characters=total,
        pearson=float(correlations.min()),
        kl=mean({domain: kl[domain] * sizes[domain] for domain in test}),
        lowest=min(kl.values()),
        highest=max(kl.values()),
        held_out=unigram - mean({domain: bits(own[domain], domain) for domain in test}),
        unigram=unigram,
        ngram=unigram - mean({domain: bits(knowledge.lm_of("global", domain), domain) for domain in test}),
        domain_ngram=unigram - mean({domain: bits(knowledge.lm_of("domain", domain), domain) for domain in test}),
    )


def read_texts(folder: Path, column: str) -> tuple[dict[str, list[str]], dict[str, list[str]]]:
    """Training and test text of each domain that has both, as the targets count it."""
    normalizer = TextNormalizer()
    found: dict[str, dict[str, list[str]]] = {"train": {}, "test": {}}
    for split, texts in found.items():
        for line in read_lines(folder / f"{split}.parquet", domain_column=column).without_media():
            if text := normalizer(line.text or ""):
                texts.setdefault(str(line.domain), []).append(text)
    shared = [domain for domain in found["train"] if domain in found["test"]]
    return found["train"], {domain: found["test"][domain] for domain in shared}


def markdown(bounds: Sequence[Bound]) -> str:
    """The table, and what it says."""
    head = ["data", "domains", "test characters", "lowest correlation", "KL, mean (range)", "frequencies, held out"]
    rows = [
        [
            b.name,
            str(b.domains),
            f"{b.test_characters:,}",
            f"{b.pearson:.2f}",
            f"{b.kl:.3f} ({b.lowest:.3f} to {b.highest:.3f})",
            f"{b.held_out:+.3f}",
            f"{b.ngram:.2f}",
            f"{b.domain_ngram:.2f}",
            f"{b.unigram:.2f}",
        ]
        for b in bounds
    ]
    rest = [f"{ORDER}-gram of all", f"{ORDER}-gram, half the domain's", "bits without"]
    return markdown_table([*head, *rest], rows, labels=1)


def main(sources: Annotated[list[str], typer.Argument(metavar="FOLDER:COLUMN")], out: Path | None = None) -> None:
    """Compute, print, and write if asked to."""
    bounds = []
    for source in sources:
        folder, _, column = source.rpartition(":")
        bounds.append(bound(Path(folder).name, *read_texts(Path(folder), column)))
    text = markdown(bounds)
    print(text)
    if out:
        write_text(out / "table.md", text)
        write_json(out / "bounds.json", json.loads(json.dumps([asdict(b) for b in bounds])))


if __name__ == "__main__":
    typer.run(main)
