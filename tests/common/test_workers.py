"""Work in processes of their own: they end with the one that asked for it."""

import subprocess
import sys
from pathlib import Path

SCRIPT = """
import os, time
from fada.common.workers import Processes

def work(item):
    if item == 3:
        time.sleep(3600)
    return os.getpid()

if __name__ == "__main__":
    for done in Processes(2).each(work, [1, 2, 3, 4]):
        print(done, flush=True)
"""


def test_processes_end_with_the_one_that_was_killed_whether_they_work_or_wait(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(SCRIPT, encoding="utf-8")
    with subprocess.Popen([sys.executable, script], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        first, second = process.stdout.readline(), process.stdout.readline()
        assert first.strip().isdecimal()
        assert second.strip().isdecimal()
        process.kill()
        assert process.stdout.read() == ""  # which ends when the last of those who could write to it has ended
