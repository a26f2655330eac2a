"""The cluster of the tests of jobs."""

from collections.abc import Iterator

import pytest

from tests.support.machines import Machines, running_machines


@pytest.fixture(scope="session")
def machines(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Machines]:
    """One cluster for all tests."""
    with running_machines(tmp_path_factory.mktemp("cluster") / "token") as found:
        yield found
