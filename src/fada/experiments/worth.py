"""What is it worth? Before any work: the error to expect, what frequencies and text can add, which lines to correct.

Nothing here needs ground truth. The constants come from manuscripts that no result is reported on
(`recipes/worth.py`, `recipes/adapt_settings.py`).
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from fada.decoding.ctc import CTCBeamDecoder
from fada.decoding.emissions import Emissions
from fada.decoding.emissions import doubt as doubt_of
from fada.decoding.knowledge import Knowledge
from fada.decoding.lm import CharNgram
from fada.errors import FadaError

INTERCEPT, SLOPE, SPREAD = 4.646, 1.374, 0.217
"""log CER = INTERCEPT + SLOPE · log doubt, with the standard deviation SPREAD of manuscripts about the law of a model
and of manuscripts that are not theirs; of lines that are looked at as :data:`fada.models.looks.USUAL` says."""
NORMAL_80 = 1.2816
"""Half the width of an 80 % interval, in standard deviations."""
GAINS: Mapping[str, tuple[float, float]] = {
    "text": (-0.089, 0.102),
    "8 corrected lines": (-0.28, 0.17),
    "24 corrected lines": (-0.66, 0.17),
}
"""Mean and standard deviation over manuscripts of log(CER with it / CER without); of lines, the spread of the fewer."""
FEWEST = 5
"""Lines below which nothing can be said of a manuscript."""


@dataclass(frozen=True)
class Rate:
    """A character error rate to expect, in percent, with an 80 % interval."""

    cer: float
    low: float
    high: float

    def __str__(self) -> str:
        return f"{self.cer:.1f} % ({self.low:.1f} to {self.high:.1f})"


@dataclass(frozen=True)
class Worth:
    """What can be told of lines before any of them is corrected.

    Attributes:
        lines, characters: how many were read.
        predicted: the error rate of a reading without text.
        open_bits: bits per character that the recogniser leaves open.
        frequency_bits: bits per character that the domain's frequencies carry over those of the text that the
            recogniser was trained on; None if that is not known.
        text_bits: bits per character that the text carries over the domain's frequencies, on what was read.
        expected: what the reader has → the error rate to expect; nothing of a text that carries nothing.
        correct_first: ids of the lines, the most doubtful first.
    """

    lines: int
    characters: int
    predicted: Rate
    open_bits: float
    frequency_bits: float | None
    text_bits: float | None
    expected: dict[str, Rate]
    correct_first: list[str]

    def to_dict(self) -> dict[str, Any]:
        """JSON values."""
        return asdict(self)


def doubts(emissions: Emissions) -> tuple[np.ndarray, np.ndarray, list[str]]:
    """(lines,) doubt of the recogniser, summed over the frames of each line, its characters, and the best-path texts.

    The doubt of a frame is the probability of every class but the best: a frame in which nothing is certain counts one.
    """
    decoder = CTCBeamDecoder(emissions.symbols, emissions.blank)
    texts = [decoder.greedy(scores).text for scores in emissions.log_probs]
    doubt = np.array([float(doubt_of(scores).sum()) for scores in emissions.log_probs])
    return doubt, np.array([max(len(text), 1) for text in texts]), texts


def predict(emissions: Emissions) -> Rate:
    """The error rate of a reading of one manuscript's lines without text."""
    doubt, characters, _ = doubts(emissions)
    return rate_of(float(doubt.sum() / characters.sum()))


def rate_of(doubt: float) -> Rate:
    """The error rate to expect of so much doubt per character."""
    middle = INTERCEPT + SLOPE * math.log(max(doubt, 1e-6))
    return _rate(middle, SPREAD)


def _rate(middle: float, spread: float) -> Rate:
    low, cer, high = (min(100.0, math.exp(middle + side * NORMAL_80 * spread)) for side in (-1, 0, 1))
    return Rate(round(cer, 2), round(low, 2), round(high, 2))


def worth(emissions: Emissions, knowledge: Knowledge | None = None) -> Worth:
    """What can be told of the lines of one manuscript.

    Args:
        emissions: of its lines, by the model that would read them.
        knowledge: of its domain; its prior is what the recogniser assumes.
    """
    if len(emissions) < FEWEST:
        raise FadaError(f"{len(emissions)} lines, expected at least {FEWEST}: too few to say anything of a manuscript.")
    doubt, characters, texts = doubts(emissions)
    mean = float(doubt.sum() / characters.sum())
    middle = INTERCEPT + SLOPE * math.log(max(mean, 1e-6))
    finite = [np.maximum(scores, -60.0) for scores in emissions.log_probs]
    bits = sum(float(-(np.exp(scores) * scores).sum()) for scores in finite) / math.log(2)
    text_bits = None if knowledge is None else _text_bits(knowledge, texts)
    expected = {}
    for title, parts in _rungs(text_bits is not None and text_bits > 0).items():
        gain = sum(GAINS[part][0] for part in parts)
        spread = math.sqrt(SPREAD**2 + sum(GAINS[part][1] ** 2 for part in parts))
        expected[title] = _rate(middle + gain, spread)
    order = np.argsort(-doubt, kind="stable")
    return Worth(
        lines=len(emissions),
        characters=int(characters.sum()),
        predicted=rate_of(mean),
        open_bits=round(bits / float(characters.sum()), 3),
        frequency_bits=None if knowledge is None else _frequency_bits(knowledge),
        text_bits=text_bits,
        expected=expected,
        correct_first=[emissions.ids[i] for i in order],
    )


def _rungs(text: bool) -> dict[str, list[str]]:
    """What a reader may have, and which gains that adds up."""
    lines = [name for name in GAINS if name != "text"]
    alone = {name: [name] for name in lines}
    return {"text": ["text"], **alone, **{f"{name} and text": [name, "text"] for name in lines}} if text else alone


def _frequency_bits(knowledge: Knowledge) -> float | None:
    """KL(domain ‖ what the recogniser assumes), in bits per character: the most that frequencies can be worth."""
    if knowledge.targets is None or knowledge.prior is None:
        return None
    own, assumed = knowledge.targets.overall, knowledge.prior
    if own is assumed:
        return None
    least = 0.5 / max(float(assumed.counts.sum()), 1.0)  # of a character that was never counted: half an occurrence
    pairs = [(own.frequency(c), max(assumed.frequency(c), least)) for c in own.symbols if own.frequency(c) > 0]
    return round(float(sum(p * math.log2(p / q) for p, q in pairs)), 3)


def _text_bits(knowledge: Knowledge, texts: Sequence[str]) -> float | None:
    """How many bits per character the language model saves on what was read, against its own letters' frequencies."""
    if knowledge.global_lm is None or not any(texts):
        return None
    characters = sum(map(len, texts))
    longest = sum(knowledge.global_lm.log_prob(text) for text in texts)
    letters = CharNgram.train(texts, 1)
    single = sum(letters.log_prob(text) for text in texts)
    return round((longest - single) / math.log(2) / characters, 3)
