"""What is told while work is done."""

import subprocess
import sys
from pathlib import Path

import pytest

FULL = Path("/dev/full")
TELL = """
import logging
from fada.common.say import show_records
show_records()
logging.getLogger("fada.some").warning("told")
print("went on")
"""


@pytest.mark.skipif(not FULL.exists(), reason="no device that is always full")
def test_work_goes_on_where_its_records_cannot_be_written() -> None:
    with FULL.open("w") as full:
        done = subprocess.run([sys.executable, "-c", TELL], stdout=subprocess.PIPE, stderr=full, text=True, check=False)
    assert done.stdout == "went on\n"
