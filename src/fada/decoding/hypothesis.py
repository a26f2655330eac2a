"""One reading of a line, whatever found it: a CTC search, a model that writes token by token, or an n-best list."""

from collections.abc import Sequence
from itertools import pairwise
from statistics import median
from typing import NamedTuple, TypeVar

from fada.errors import FadaError

T = TypeVar("T")


class Alignment(NamedTuple):
    """Where the labels of a reading stand in the emissions, on the most probable path."""

    frames: tuple[tuple[int, int], ...]
    """For each label, its first frame and the one after its last."""
    confidences: tuple[float, ...]
    """For each label, its highest probability within its frames."""
    widths: tuple[int, ...]
    """For each label, the code points of its text."""
    length: int = 0
    """Frames of the whole line."""

    @property
    def edges(self) -> tuple[float, ...]:
        """Where the code points stand: the left edge of each, then the right edge of the last, as shares of the line.

        Labels of CTC are peaks with blanks between them: half of what lies between two belongs to each, and as much
        as is usual of what lies before the first and after the last.
        """
        if not self.frames or self.length < 1:
            return ()
        gaps = [after[0] - before[1] for before, after in pairwise(self.frames)]
        usual = median(gaps) / 2 if gaps else 1.0
        between = [(before[1] + after[0]) / 2 for before, after in pairwise(self.frames)]
        first, last = max(0.0, self.frames[0][0] - usual), min(float(self.length), self.frames[-1][1] + usual)
        found = [first]
        for (left, right), width in zip(pairwise([first, *between, last]), self.widths, strict=True):
            found += [left + (right - left) * (place + 1) / width for place in range(width)]
        return tuple(edge / self.length for edge in found)

    def spread(self, values: Sequence[T]) -> tuple[T, ...]:
        """The values of labels as values of code points."""
        return tuple(value for value, width in zip(values, self.widths, strict=True) for _ in range(width))


class Hypothesis(NamedTuple):
    """One reading of a line and the parts of its score.

    With Eq. 2 alone ``score == lam * log_prob - (1 - lam) * scale * distance``.
    """

    text: str
    """As the model writes it (not normalised)."""
    score: float
    """The whole sum the hypotheses were ranked by."""
    log_prob: float
    """log P(text) by the recogniser: of the labels, summed over all paths that survived a CTC beam (-inf if the
    constraints leave none), or of the generated tokens, the end token included."""
    distance: float | None = None
    """Distance of the text from the target; None without a target."""
    lm_log_prob: float = 0.0
    """log-probability by the language model, unweighted; 0 without one."""
    labels: tuple[int, ...] = ()
    """The classes, without blanks and repetitions; or the ids of the generated tokens, padding removed."""
    alignment: Alignment | None = None
    """Where the labels stand in the emissions; only if it was asked for."""

    @property
    def label_frames(self) -> tuple[tuple[int, int], ...]:
        """For each label, its first frame and the one after its last."""
        return self._aligned.frames

    @property
    def label_confidences(self) -> tuple[float, ...]:
        """For each label, its highest probability within its frames."""
        return self._aligned.confidences

    @property
    def char_frames(self) -> tuple[tuple[int, int], ...]:
        """For each code point of `text`, the frames of its label."""
        return self._aligned.spread(self._aligned.frames)

    @property
    def char_confidences(self) -> tuple[float, ...]:
        """For each code point of `text`, the confidence of its label."""
        return self._aligned.spread(self._aligned.confidences)

    @property
    def _aligned(self) -> Alignment:
        if self.alignment is None:
            raise FadaError("this reading has no frames and confidences: decode with alignment=True to get them.")
        return self.alignment
