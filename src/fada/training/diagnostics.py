"""How hard the two terms of the loss pull on a network: measured while it trains, or on a finished run.

Both terms reach the weights through the network's output, so their gradients there, (batch, time, classes), can be
compared whatever the network: their norms say how strong each pull is, their cosine whether they pull the same way.
"""

import os
from collections.abc import Sequence
from typing import Any

import numpy as np

from fada.alignment import NAMES, named, pull
from fada.data.splits import evenly
from fada.runs.run import load_run
from fada.training.lines import LineDataset
from fada.training.settings import settings_of

DISTANCES = ("sorted_w2", "aligned_w2")


def alignment_diagnostics(
    run_folder: str | os.PathLike[str], lines: int = 64, *, data: Sequence[str] | None = None
) -> dict[str, Any]:
    """Why alignment moves a finished model, or does not: both terms and their gradients on its validation lines.

    Args:
        run_folder: of `fada train`.
        lines: so many validation lines, evenly spaced among those whose characters the model knows; batches are as
            large as in training.
        data: where the lines are now, if not where the run found them.

    Returns:
        ``settings`` (λ, distance and scale of the training), ``lines``, and under each distance the means of
        :data:`NAMES` with ``pull_at_half``, the ratio of alignment to task gradient: what λ = 0.5 at scale 1 weighs
        against each other. A scale of its inverse makes both pull equally hard.
    """
    run = load_run(run_folder)
    settings = settings_of(run, data)
    recognizer = run.network
    chosen = evenly([line for line in settings.read().validation if recognizer.can_write(str(line.text))], lines)
    recognizer.model.eval()
    dataset = LineDataset(recognizer, chosen, run.targets.domains)
    losses = {
        name: recognizer.alignment_loss(run.targets, distance=name).to(recognizer.model.device) for name in DISTANCES
    }
    sums = {name: np.zeros(len(NAMES)) for name in DISTANCES}
    batches = 0
    for start in range(0, len(dataset), settings.batch_size):
        items = [dataset[i] for i in range(start, min(start + settings.batch_size, len(dataset)))]
        inputs = recognizer.to_device(dataset.collate(items))
        domains = inputs.pop("domains")
        task, outputs = recognizer.task_loss(recognizer.model, inputs)
        scores, extent = recognizer.alignment_inputs(outputs, inputs)
        for name, loss in losses.items():
            sums[name] += pull(task, loss.alignment(scores, extent, domains), outputs.logits).cpu().numpy()
        batches += 1
    measured = {name: named(total.tolist(), batches) for name, total in sums.items()}
    return {
        "settings": {name: getattr(settings, name) for name in ("lam", "distance", "scale", "pool")},
        "lines": len(dataset),
        **{
            name: {**values, "pull_at_half": values["alignment_gradient"] / max(values["task_gradient"], 1e-30)}
            for name, values in measured.items()
        },
    }
