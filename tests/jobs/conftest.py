"""The cluster and the model of the tests of jobs."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from fada.models.crnn import CRNNRecognizer
from tests.support.machines import Machines, running_machines


@pytest.fixture(scope="session")
def machines(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Machines]:
    """One cluster for all tests."""
    with running_machines(tmp_path_factory.mktemp("cluster") / "token") as found:
        yield found


@pytest.fixture(scope="session")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An untrained C-RNN."""
    folder = tmp_path_factory.mktemp("model")
    CRNNRecognizer.build(["le roi marc", "la reine dit"], "tiny").save_pretrained(folder)
    return folder
