"""Damaged files never crash a reader, never stall it and never fill the memory: they end in a sentence.

``make fuzz`` goes on with new cases for as long as it is given.
"""

import json
import multiprocessing
import os
from multiprocessing.context import ForkServerContext
from pathlib import Path

import pytest

from tests.fuzz import libraries, worker
from tests.fuzz.readers import READERS

CASES = int(os.environ.get("FADA_FUZZ_CASES", "200"))
FIRST = int(os.environ.get("FADA_FUZZ_FIRST", "0"))


@pytest.fixture(scope="module")
def processes() -> ForkServerContext:
    """Processes that have loaded what readers import before they begin."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([libraries.__name__, worker.__name__])
    return context


@pytest.mark.timeout(0)
@pytest.mark.parametrize("name", READERS)
def test_damaged_files_end_in_a_sentence(name: str, processes: ForkServerContext, tmp_path: Path) -> None:
    pytest.importorskip(READERS[name].needs)
    cases = max(CASES // READERS[name].share, 1)
    process = processes.Process(target=worker.run_apart, args=(name, FIRST, cases, tmp_path))
    process.start()
    process.join(1200 + CASES)
    stalled = process.is_alive()
    process.kill()
    process.join()
    rows = [json.loads(line) for line in (tmp_path / "rows").read_text(encoding="utf-8").splitlines()]
    findings = [row for row in rows if "error" in row]
    again = f"python -m tests.fuzz.worker {name} CASE 1"
    assert not findings, f"{len(findings)} findings, such as {findings[:3]}; again with: {again}"
    said = (tmp_path / "said").read_text(encoding="utf-8", errors="replace")[-800:]
    assert not stalled, f"stalled in case {rows[-1:]}; again with: {again}"
    assert process.exitcode == 0, f"ended in case {rows[-1:]}: {said}; again with: {again}"
    assert rows[-1]["case"] == FIRST + cases - 1
