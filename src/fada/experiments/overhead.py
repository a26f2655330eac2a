"""What alignment adds to a training step and guidance to decoding, measured side by side on a finished run.

With and without take turns, so that whatever else the machine does falls on both; a figure is the median of the ratios
of neighbours.
"""

import os
import statistics
import time
from collections.abc import Callable, Sequence
from typing import Any

import torch

from fada.data.splits import evenly
from fada.decoding.ctc import CTCBeamDecoder
from fada.distances import LAM
from fada.experiments.record import Overhead, Ratio
from fada.runs.run import Run, load_run
from fada.training.lines import LineDataset, prepared
from fada.training.settings import TrainSettings, settings_of


def paired_ratio(step: Callable[[bool], None], rounds: int) -> tuple[float, float]:
    """Median ratio of the CPU time of `step(True)` to that of `step(False)`, and the median seconds of the latter."""
    for extra in (False, True):
        step(extra)
    ratios, plain = [], []
    for round_ in range(rounds):
        seconds = {}
        for extra in (False, True) if round_ % 2 else (True, False):
            started = time.process_time()
            step(extra)
            seconds[extra] = time.process_time() - started
        ratios.append(seconds[True] / seconds[False])
        plain.append(seconds[False])
    return statistics.median(ratios), statistics.median(plain)


def measure_overhead(
    run_folder: str | os.PathLike[str], *, data: Sequence[str] | None = None, rounds: int = 9
) -> Overhead:
    """Ratios of times with FADA to times without, λ = 0.5.

    Args:
        run_folder: of `fada train`.
        data: where the lines are now, if not where the run found them.
        rounds: pairs of measurements.

    Returns:
        `training`: a step on one batch of validation lines, with optimiser. `decoding`: the beam search, of the stored
        emissions of the test lines (CTC), or on that batch with the decoder network that it runs.
    """
    run = load_run(run_folder)
    settings = settings_of(run, data)
    dataset = _batch(run, settings)
    training = paired_ratio(_training_step(run, dataset, settings), rounds)
    decoding = paired_ratio(_decoding(run, dataset, settings.beam_size), rounds)
    ratios = [Ratio(ratio=ratio, plain_seconds=seconds) for ratio, seconds in (training, decoding)]
    return Overhead(rounds=rounds, training=ratios[0], decoding=ratios[1])


def _batch(run: Run, settings: TrainSettings) -> LineDataset:
    """As many validation lines as a batch has; a frozen encoder has seen them already."""
    splits = settings.read()
    known = {character for line in splits.train for character in str(line.text)}
    lines = [line for line in splits.validation if set(str(line.text)) <= known]
    chosen = evenly(lines, settings.batch_size)
    recognizer = run.network
    if settings.freeze == "encoder":
        recognizer.freeze_encoder()
    return prepared(recognizer, chosen, run.targets.domains)


def _training_step(run: Run, dataset: LineDataset, settings: TrainSettings) -> Callable[[bool], None]:
    recognizer = run.network
    model = recognizer.model
    optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=0.0)
    align = recognizer.alignment_loss(run.targets, lam=LAM, distance=settings.distance).to(model.device)
    inputs = recognizer.to_device(dataset.collate([dataset[i] for i in range(len(dataset))]))
    domains = inputs.pop("domains")

    def step(aligned: bool) -> None:
        model.train()
        loss, outputs = recognizer.task_loss(model, inputs)
        if aligned:
            loss = align(loss, *recognizer.alignment_inputs(outputs, inputs), domains)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()

    return step


def _decoding(run: Run, dataset: LineDataset, beam: int) -> Callable[[bool], None]:
    recognizer: Any = run.network
    targets = run.targets
    if not recognizer.emits:
        ((chosen, inputs),) = dataset.batches(len(dataset))
        lines = [dataset.lines[i] for i in chosen]
        wanted = [targets[str(line.domain)] for line in lines]

        def generate(guided: bool) -> None:
            recognizer.generate_batch(inputs, lines, targets=wanted if guided else None, lam=LAM, num_beams=beam)

        return generate
    emissions = run.emissions("test")
    decoder = CTCBeamDecoder(emissions.symbols, emissions.blank, beam, lam=LAM, threads=1)
    expected = [targets.get(domain, targets.overall) for domain in emissions.domains or ()]

    def search(guided: bool) -> None:
        decoder.decode_batch(emissions.log_probs, expected if guided else None)

    return search
