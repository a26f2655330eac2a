"""Weights for those who have no validation lines: by the amount of text, and by how certain the recogniser is.

Both laws were fitted by `recipes/knowledge.py` on manuscripts that no result is reported on.
"""

import math
from collections.abc import Iterable

import numpy as np

from fada.decoding.weights import Weights

BEAM = 16
"""Hypotheses kept where a language model has a say."""
_AT_1000, _PER_TENFOLD, _MOST = 0.25, 0.17, 0.6
"""Weight of a language model made from 1,000 characters, what ten times as many add to it, and the highest."""
_UNCERTAIN, _PER_CERTAINTY, _LEAST = 0.85, 6.0, 0.25
"""Up to this certainty of the recogniser the weight is whole; above, it falls by this share of it, to the least."""
_BONUS = 1.8
"""Length bonus per weight of the language model: about what a character costs under it, so that texts do not shrink."""
_OVER, _BONUS_OVER = 1.45, 1.2
"""How many times the weight where what the recogniser has learnt is divided out, and the length bonus there."""


def weights_for(text_characters: int, certainty: float, *, beam: int = BEAM, over: bool = False) -> Weights:
    """Weights of a language model from so much text, for emissions of this certainty.

    Args:
        text_characters: of the text that the language model was made from; 0 gives plain beam search.
        certainty: see :func:`certainty_of`.
        beam: hypotheses kept in the search.
        over: whether what the recogniser has learnt of its training text is known, and divided out of the language
            model (:meth:`fada.decoding.lm.CharNgram.over`).
    """
    if text_characters <= 0:
        return Weights(beam=beam)
    by_text = min(max(_AT_1000 + _PER_TENFOLD * math.log10(text_characters / 1000), 0.05), _MOST)
    share = min(max(1 - _PER_CERTAINTY * (certainty - _UNCERTAIN), _LEAST), 1.0)
    weight = round(by_text * share * (_OVER if over else 1.0), 3)
    bonus = round((_BONUS_OVER if over else _BONUS) * weight, 3)
    return Weights(beam=beam, lm="over" if over else "global", lm_weight=weight, length_bonus=bonus)


def certainty_of(log_probs: Iterable[np.ndarray]) -> float:
    """How certain a CTC recogniser is of lines: mean probability of the best class over frames that are no blank's.

    Args:
        log_probs: (frames, classes) of each line; the class of most frames is taken for the blank.
    """
    best, classes = [], []
    for line in log_probs:
        best.append(line.max(axis=1))
        classes.append(line.argmax(axis=1))
    if not best:
        return 1.0
    highest, chosen = np.exp(np.concatenate(best)), np.concatenate(classes)
    written = chosen != np.bincount(chosen).argmax()
    return float(highest[written].mean()) if written.any() else 1.0
