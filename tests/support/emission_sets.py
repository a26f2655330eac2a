"""Emissions made for tests: domains that write the same letters with different frequencies, and look-alikes that a
recogniser cannot tell apart, so that targets, priors and language models have something to say."""

from typing import Any

import numpy as np

from fada.decoding.emissions import Emissions

LETTERS = "abcdefgh "
LOOK_ALIKES = {"a": "e", "e": "a", "c": "d", "d": "c", "f": "g", "g": "f"}
SYMBOLS = ("", *LETTERS)
WORDS = {
    "12": ["abba", "baca", "fab", "hab", "cab", "bach", "caba"],
    "13": ["hege", "bede", "edge", "heed", "deg", "edeh", "bege"],
}


def make_texts(rng: np.random.Generator, lines: Any, domain: str, length: int = 5) -> Any:
    return [" ".join(rng.choice(WORDS[domain], size=length)) for _ in range(lines)]


def make_log_probs(rng: np.random.Generator, text: str, confusion: float) -> Any:
    """Two frames and a blank per character; look-alikes take up to `confusion` of the probability."""
    rows: list[Any] = []
    for character in text:
        share = rng.uniform(0, confusion)
        p = np.full(len(SYMBOLS), 1e-3)
        p[SYMBOLS.index(character)] += 1 - share
        p[SYMBOLS.index(LOOK_ALIKES.get(character, character))] += share
        blank = np.full(len(SYMBOLS), 1e-3)
        blank[0] = 1.0
        rows += [p, p, blank]
    probabilities = np.array(rows or [[1.0] + [1e-3] * (len(SYMBOLS) - 1)])
    return np.log(probabilities / probabilities.sum(1, keepdims=True)).astype(np.float32)


def make_emissions(seed: int, lines_per_domain: int, confusion: float = 1.0, prefix: str = "line") -> Any:
    rng = np.random.default_rng(seed)
    ids, domains, references = [], [], []
    for domain in WORDS:
        references += make_texts(rng, lines_per_domain, domain)
        domains += [domain] * lines_per_domain
    ids = [f"{prefix}-{i}" for i in range(len(references))]
    log_probs = [make_log_probs(rng, text, confusion) for text in references]
    return Emissions(ids, log_probs, SYMBOLS, 0, domains, references)


def training_texts(seed: int = 99, lines_per_domain: int = 100) -> Any:
    rng = np.random.default_rng(seed)
    return {domain: make_texts(rng, lines_per_domain, domain) for domain in WORDS}
