"""How strong soft guidance may be: its effect one token ahead, along stories that were written without it."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from pydantic import BaseModel

from fada.experiments.lipogram.story import Story, forbidden_characters
from fada.text.characters import OTHER
from fada.text.normalizer import TextNormalizer

if TYPE_CHECKING:
    from fada.experiments.lipogram.writer import LipogramWriter

_CANDIDATES = 300
"""The most probable tokens of a step that are looked at; guidance raises none from farther down into the top 50."""


class Effect(BaseModel):
    """What guidance of one scale does.

    Attributes:
        letter: that is avoided.
        tokens: relative change of the share of tokens with a forbidden character, in percent.
        perplexity: ratio to the unguided one.
        perplexity_se: its standard error over stories.
    """

    letter: str
    scale: float
    tokens: float
    perplexity: float
    perplexity_se: float


class Tuning(BaseModel):
    """The scale that was chosen for each letter, and the effects of all that were tried."""

    chosen: dict[str, float] = {}
    rows: list[Effect] = []


@dataclass(frozen=True)
class _Steps:
    """The candidates of each step of a story, (steps, candidates), and the characters before each, (steps, 1)."""

    log_prob: np.ndarray
    forbidden: np.ndarray
    length: np.ndarray


def expected_effects(
    writer: "LipogramWriter", stories: Sequence[Story], letter: str, scales: Sequence[float]
) -> list[Effect]:
    """What soft guidance would do to the next token, averaged over all steps of plain stories.

    Guided stories differ from plain ones in thousands of choices, so that comparing their perplexities takes hundreds
    of stories. Here both are compared at the same places, by expectation instead of by drawing: for each scale the
    share of tokens with a forbidden character, and the log-probability under the unguided model. What guidance does to
    the rest of a story through the tokens it has changed is not seen.
    """
    forbidden = sorted(forbidden_characters(letter))
    counts = writer.table.counts([*forbidden, OTHER], TextNormalizer())[:, : len(forbidden)]
    occurrences = np.asarray(counts.sum(axis=1), np.float32).ravel()
    letters = "".join(forbidden)
    steps = [_steps(writer, story, letters, occurrences) for story in stories if story.text]
    rows = []
    unguided: list[tuple[float, float]] = []
    for scale in (0.0, *scales):
        found = [_expectation(writer, scale, step) for step in steps]
        unguided = unguided or found
        tokens = np.array([len(step.length) for step in steps], float)
        losses = np.array([before[1] - after[1] for after, before in zip(found, unguided, strict=True)])
        loss = losses.sum() / tokens.sum()
        spread = np.sqrt(((losses - loss * tokens) ** 2).sum()) / tokens.sum()
        change = sum(f[0] for f in found) / sum(f[0] for f in unguided) - 1
        perplexity = {"perplexity": float(np.exp(loss)), "perplexity_se": float(spread)}
        rows.append(Effect(letter=letter, scale=scale, tokens=100 * change, **perplexity))
    return rows[1:]


def _steps(writer: "LipogramWriter", story: Story, letters: str, occurrences: np.ndarray) -> _Steps:
    import torch

    prompt = writer.tokenizer(writer.prompt(story.topic, letters), add_special_tokens=False)["input_ids"]
    ids = writer.tokenizer(story.text, add_special_tokens=False)["input_ids"]
    with torch.inference_mode():
        inputs = torch.tensor([prompt + ids[:-1]], device=writer.model.device)
        logits = writer.model(inputs, logits_to_keep=len(ids)).logits[0].float()
    values, tokens = torch.log_softmax(logits, -1).topk(min(_CANDIDATES, logits.shape[1]))
    lengths = np.cumsum([0, *(len(writer.table.pieces[i]) for i in ids[:-1])])
    return _Steps(values.cpu().numpy(), occurrences[tokens.cpu().numpy()], lengths[:, None])


def _expectation(writer: "LipogramWriter", scale: float, step: _Steps) -> tuple[float, float]:
    """The expected number of tokens with a forbidden character, and the log-probability, summed over the steps."""
    manner = writer.manner
    weight = (1 - manner.lam) / manner.lam * scale / (step.length + max(manner.warmup, 1.0))
    score = step.log_prob - weight * step.forbidden
    cut = np.sort(score, axis=1)[:, -min(manner.top_k, score.shape[1])][:, None]
    chosen = np.where(score >= cut, np.exp((score - score.max(1, keepdims=True)) / manner.temperature), 0.0)
    chosen /= chosen.sum(1, keepdims=True)
    return float((chosen * (step.forbidden > 0)).sum()), float((chosen * step.log_prob).sum())
