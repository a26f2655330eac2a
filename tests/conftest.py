"""Settings of all tests: offline, one thread per process, the same examples in every run.

``FADA_EXPLORE=1 make test`` lets hypothesis look for new examples.
"""

import atexit
import os
import shutil
import tempfile
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

os.environ.setdefault("OMP_NUM_THREADS", "1")  # the tests themselves run on all cores
os.environ.setdefault("HF_HUB_OFFLINE", "1")
if "FADA_CACHE" not in os.environ:
    os.environ["FADA_CACHE"] = tempfile.mkdtemp(prefix="fada-cache-")
    atexit.register(shutil.rmtree, os.environ["FADA_CACHE"], ignore_errors=True)

import pytest
from hypothesis import settings

if TYPE_CHECKING:
    from tests.support.run_folders import MakeRun

settings.register_profile("repeatable", derandomize=True, deadline=None)
settings.register_profile("explore", deadline=None)
settings.load_profile("explore" if os.environ.get("FADA_EXPLORE") else "repeatable")


@pytest.fixture(scope="session")
def trained_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The run folder of a tiny training: to be copied, not to be changed."""
    from tests.support.run_folders import train_run

    return train_run(tmp_path_factory.mktemp("trained"))


@pytest.fixture(scope="session")
def make_run(trained_run: Path) -> "MakeRun":
    """Copies of the trained run with other settings, more lines and more systems."""
    from tests.support import run_folders

    return partial(run_folders.make_run, trained_run)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Files with long tests go first, so that no process is left with one of them at the end."""
    long = {item.path for item in items if item.get_closest_marker("slow") or item.get_closest_marker("browser")}
    items.sort(key=lambda item: item.path not in long)


def pytest_terminal_summary(terminalreporter: "pytest.TerminalReporter") -> None:
    """Say how to get a browser where the tests that need one were left out."""
    from tests.support import browsers

    if not browsers.THERE:
        terminalreporter.write_line(f"The tests of pages were left out, {browsers.HOW}.")
