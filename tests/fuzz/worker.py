"""Reads damaged files in a process of its own: ``python -m tests.fuzz.worker READER FIRST COUNT``.

A case of a reader of several files damages each of them in turn, the others being sound.
A sound reader returns, or raises `FadaError`. Anything else (another exception, more than `MEMORY`, more than `SECONDS`
of processor time, a crash) is a finding, printed as one JSON line. Without COUNT it goes on until it is stopped.
"""

import itertools
import json
import logging
import os
import resource
import signal
import sys
import tempfile
import traceback
import warnings
from pathlib import Path
from typing import Any

from fada.errors import FadaError
from tests.fuzz.mutate import mutated
from tests.fuzz.readers import READERS

MEMORY = 2 << 30
"""Bytes that reading a file of a few kilobytes may take beyond what the libraries take."""
SECONDS = 5


class TooSlow(BaseException):
    """A case took more processor time than it may."""


def _too_slow(*_: Any) -> None:
    raise TooSlow


def run(name: str, first: int, count: int | None) -> int:
    """The number of findings in `count` cases from number `first` on."""
    reader = READERS[name]
    findings = 0
    rows = os.fdopen(os.dup(sys.stdout.fileno()), "w", encoding="utf-8")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())  # where libraries, compiled ones too, print what they like
    warnings.simplefilter("ignore")
    logging.disable()
    with tempfile.TemporaryDirectory() as folder:
        made = reader.make(Path(folder))
        found = sorted(path for path in made.rglob("*") if path.is_file()) if made.is_dir() else [made]
        files = {path: path.read_bytes() for path in found}
        for path in files:
            reader.read(path)
        _limit_memory()
        signal.signal(signal.SIGPROF, _too_slow)
        numbers = itertools.count(first) if count is None else range(first, first + count)
        for number, path in ((number, path) for number in numbers for path in files):
            _write(path, mutated(files[path], f"{name} {number}"))
            told = {"case": number, "file": path.name}
            print(json.dumps(told), file=rows, flush=True)
            signal.setitimer(signal.ITIMER_PROF, SECONDS)
            try:
                reader.read(path)
            except FadaError:
                pass
            except (Exception, TooSlow) as error:
                signal.setitimer(signal.ITIMER_PROF, 0)
                findings += 1
                places = [f"{Path(f.filename).name}:{f.lineno}" for f in traceback.extract_tb(error.__traceback__)]
                told |= {"reader": name, "error": type(error).__name__, "at": places[-4:]}
                print(json.dumps(told | {"message": str(error)[:200]}), file=rows, flush=True)
            finally:
                signal.setitimer(signal.ITIMER_PROF, 0)
            _write(path, files[path])
    return findings


def run_apart(name: str, first: int, count: int, folder: Path) -> None:
    """The whole of a process that a test started: the rows of :func:`run`, and what libraries say, go to files."""
    for descriptor, file in ((1, "rows"), (2, "said")):
        os.dup2(os.open(folder / file, os.O_WRONLY | os.O_CREAT), descriptor)
    sys.exit(min(run(name, first, count), 100))


def _write(path: Path, content: bytes) -> None:
    path.unlink(missing_ok=True)  # a mapped file must not shrink under its reader
    path.write_bytes(content)


def _limit_memory() -> None:
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[0])
    resource.setrlimit(resource.RLIMIT_AS, (pages * resource.getpagesize() + MEMORY,) * 2)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


if __name__ == "__main__":
    given = sys.argv[1:]
    sys.exit(min(run(given[0], int(given[1]), int(given[2]) if len(given) > 2 else None), 100))
