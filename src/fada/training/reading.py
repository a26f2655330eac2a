"""What a model in training reads, and how good it is."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fada import distances
from fada.data.line import Line
from fada.evaluation.edits import score_lines
from fada.models.network import Network
from fada.targets.target_set import TargetSet
from fada.training.history import Rates, Scores
from fada.training.lines import LineDataset


def read_texts(recognizer: Network, dataset: LineDataset, batch_size: int = 8, **options: Any) -> list[str]:
    """Best-path (CTC) or greedy (decoders, unless `options` of theirs say otherwise) texts, in the lines' order."""
    texts = [""] * len(dataset)
    for chosen, inputs in dataset.batches(batch_size):
        lines = [dataset.lines[i] for i in chosen]
        for i, text in zip(chosen, recognizer.read(inputs, lines, **options), strict=True):
            texts[i] = text
    return texts


def score_texts(lines: Sequence[Line], texts: Sequence[str], targets: TargetSet, distance: str) -> Scores:
    """CER and WER in percent (micro), overall and per domain, and the mean distance of a line from its target."""
    far = np.array(distances_from_targets(lines, texts, targets, distance))
    domains = np.array([line.domain or "" for line in lines])
    scores = score_lines([str(line.text) for line in lines], texts)

    def rates(chosen: NDArray[np.bool_]) -> Rates:
        found = scores.rates(chosen)
        mean = float(far[chosen].mean()) if chosen.any() else 0.0
        return {"cer": found["cer"], "wer": found["wer"], "distance": mean}

    per_domain = {domain: rates(domains == domain) for domain in sorted(set(domains.tolist()) - {""})}
    return {**rates(np.ones(len(domains), bool)), "per_domain": per_domain}


def distances_from_targets(
    lines: Sequence[Line], texts: Sequence[str], targets: TargetSet, distance: str
) -> list[float]:
    """How far each text is from the target of its line's domain."""
    measure = distances.get(distance)
    return [
        float(measure(target.vector_of(text), target.frequencies))
        for line, text in zip(lines, texts, strict=True)
        for target in [targets.of(line.domain).covering(targets.normalizer(text))]
    ]
