"""Processor time of `fada --help`, the best of several starts: `python -m benchmarks.start`. At most 0.3 s are wanted.

What makes it slow is an import; `tests/cli/test_cli.py` says which ones it must not do.
"""

import os
import subprocess
import sys

STARTS = 7
ENVIRONMENT = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
"""As users have it, whose modules are compiled once."""


def seconds() -> float:
    """Processor time of one start, user and system."""
    before = os.times()
    command = [sys.executable, "-m", "fada", "--help"]
    subprocess.run(command, capture_output=True, check=True, env=ENVIRONMENT)
    after = os.times()
    return after.children_user + after.children_system - before.children_user - before.children_system


if __name__ == "__main__":
    print(f"fada --help: {min(seconds() for _ in range(STARTS)):.2f} s of CPU, best of {STARTS}")
