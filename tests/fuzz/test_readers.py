"""Damaged files never crash a reader, never stall it and never fill the memory: they end in a sentence.

``make fuzz`` goes on with new cases for as long as it is given.
"""

import json
import os
import subprocess
import sys

import pytest

from tests.fuzz.readers import READERS

CASES = int(os.environ.get("FADA_FUZZ_CASES", "200"))
FIRST = int(os.environ.get("FADA_FUZZ_FIRST", "0"))


@pytest.mark.timeout(0)
@pytest.mark.parametrize("name", READERS)
def test_damaged_files_end_in_a_sentence(name: str) -> None:
    pytest.importorskip(READERS[name].needs)
    cases = max(CASES // READERS[name].share, 1)
    command = [sys.executable, "-m", "tests.fuzz.worker", name, str(FIRST), str(cases)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=1200 + CASES)
    rows = [json.loads(line) for line in done.stdout.splitlines()]
    findings = [row for row in rows if "error" in row]
    again = f"python -m tests.fuzz.worker {name} CASE 1"
    assert not findings, f"{len(findings)} findings, such as {findings[:3]}; again with: {again}"
    assert done.returncode == 0, f"ended in case {rows[-1:]}: {done.stderr[-800:]}; again with: {again}"
    assert rows[-1]["case"] == FIRST + cases - 1
