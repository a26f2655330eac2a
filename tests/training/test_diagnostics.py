"""The pull of the two terms: against gradients taken by hand, and on finished runs."""

from pathlib import Path

import pytest
import torch

from fada.alignment import NAMES, named, pull
from fada.training.diagnostics import alignment_diagnostics
from fada.training.settings import TrainSettings
from fada.training.train import train
from tests.support.training_lines import image_folder


def test_the_pull_is_the_gradient_of_each_term_at_the_outputs() -> None:
    logits = torch.randn(2, 3, 4, dtype=torch.float64, requires_grad=True)
    weights = torch.randn_like(logits)
    outputs = logits * 1.0
    task, alignment = (outputs**2).sum(), 5.0 * (outputs * weights).sum()
    found = dict(zip(NAMES, pull(task, alignment, outputs, scale=5.0).tolist(), strict=True))
    expected = {
        "task_loss": float((logits.detach() ** 2).sum()),
        "alignment": float((logits.detach() * weights).sum()),
        "task_gradient": float(2 * logits.detach().norm()),
        "alignment_gradient": float(weights.norm()),
        "cosine": float(torch.nn.functional.cosine_similarity(logits.detach().flatten(), weights.flatten(), dim=0)),
    }
    assert found == pytest.approx(expected, rel=1e-5)
    (task + alignment).backward()  # the graph is still there
    assert logits.grad is not None


def test_terms_without_a_gradient_have_no_direction() -> None:
    outputs = torch.zeros(1, 2, 3, requires_grad=True) * 1.0
    assert pull((outputs**2).sum(), outputs.sum() * 0, outputs).isfinite().all()


def test_sums_become_named_means() -> None:
    assert named([2.0, 4.0, 6.0, 8.0, 1.0], 2)["task_gradient"] == 3.0


@pytest.mark.parametrize("model", ["crnn:tiny", "trocr-tiny"])
def test_a_finished_run_is_measured_on_its_validation_lines(model: str, tmp_path: Path) -> None:
    data = image_folder(tmp_path / "data", train=8, validation=6, test=1)
    settings = {"data": str(data), "domain_column": "domain", "model": model, "epochs": 1, "lam": 1.0}
    train(TrainSettings.of({**settings, "out": tmp_path / "run", "beam_size": 1, "batch_size": 2, "threads": 1}))
    found = alignment_diagnostics(tmp_path / "run", lines=4)
    assert found["lines"] == 4
    assert found["settings"]["lam"] == 1.0
    for name in ("sorted_w2", "aligned_w2"):
        values = found[name]
        assert values["batches"] == 2
        assert values["pull_at_half"] == pytest.approx(values["alignment_gradient"] / values["task_gradient"])
    assert found["aligned_w2"]["alignment"] >= found["sorted_w2"]["alignment"]  # sorting is the best permutation
    assert found["aligned_w2"]["task_loss"] == found["sorted_w2"]["task_loss"]
