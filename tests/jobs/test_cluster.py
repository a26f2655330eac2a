"""Reading on a Ray cluster: the file of one process, whatever dies meanwhile."""

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from typer.testing import CliRunner

from fada.cli import app
from fada.data.source import read_lines
from fada.jobs.cluster import Cluster
from fada.jobs.transcribe import transcribe
from fada.models.crnn import CRNNRecognizer
from fada.models.registry import load_recognizer

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(900),
    pytest.mark.skipif(find_spec("ray") is None, reason="the extra [scale] is not installed"),
]

KILLS = int(os.environ.get("FADA_KILLS", "4"))
"""`make fuzz` kills more often."""

LINES = max(16, 3 * KILLS)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("model")
    CRNNRecognizer.build(["le roi marc", "la reine dit"], "tiny").save_pretrained(folder)
    return folder


@pytest.fixture(scope="module")
def lines(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("source") / "lines"
    folder.mkdir()
    rng = np.random.default_rng(0)
    for i in range(LINES):
        pixels = rng.integers(0, 255, (40, 120 + 3 * i), dtype=np.uint8)
        Image.fromarray(pixels).save(folder / f"{i:03}.png")
    (folder / "broken.png").write_bytes(b"no image")
    return folder


@pytest.fixture(scope="module")
def expected(model: Path, lines: Path, tmp_path_factory: pytest.TempPathFactory) -> bytes:
    out = tmp_path_factory.mktemp("one") / "out.tsv"
    done = CliRunner().invoke(app, ["transcribe", str(model), str(lines), "--out", str(out)])
    assert done.exit_code == 0, done.output
    return out.read_bytes()


def actors() -> list[int]:
    """The processes of actors that were started from here."""
    found = subprocess.run(["pgrep", "-f", "ray::Reading"], capture_output=True, text=True, check=False).stdout
    return [int(pid) for pid in found.split()]


def journal_length(out: Path) -> int:
    journal = out.with_name(f".{out.name}.journal")
    return journal.read_bytes().count(b"\n") if journal.exists() else 0


@pytest.fixture
def killer(tmp_path: Path) -> Iterator[list[int]]:
    """Kills an actor whenever the journal has grown; gives the processes killed."""
    killed: list[int] = []
    stop = threading.Event()
    rng = np.random.default_rng(0)

    def work() -> None:
        seen = 0
        while not stop.is_set() and len(killed) < KILLS:
            length = journal_length(tmp_path / "out.tsv")
            running = actors()
            if length > seen + 1 and running:
                seen = length
                victim = int(rng.choice(running))
                with suppress(ProcessLookupError):
                    os.kill(victim, signal.SIGKILL)
                killed.append(victim)
            time.sleep(0.01)

    thread = threading.Thread(target=work)
    thread.start()
    yield killed
    stop.set()
    thread.join()


def test_killed_actors_lose_and_double_nothing(
    model: Path, lines: Path, expected: bytes, tmp_path: Path, killer: list[int]
) -> None:
    summary = transcribe(
        load_recognizer(model),
        read_lines(lines, untranscribed=True),
        tmp_path / "out.tsv",
        model_name=str(model),
        batch_size=1,
        cluster=Cluster(workers=2),
    )
    assert (tmp_path / "out.tsv").read_bytes() == expected
    assert len(summary.failed) == 1
    assert "broken.png" in summary.failed[0]
    assert killer
    assert not (tmp_path / ".ray.token").exists()


def test_a_killed_driver_goes_on(model: Path, lines: Path, expected: bytes, tmp_path: Path) -> None:
    out = tmp_path / "out.tsv"
    command = [sys.executable, "-c", "from fada.cli import main; main()"]
    command += ["transcribe", str(model), str(lines), "--out", str(out), "--ray", "--jobs", "1", "--batch-size", "2"]
    for more in (4, 8):
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as job:
            before = journal_length(out)
            while job.poll() is None and journal_length(out) < before + more:
                time.sleep(0.01)
            job.kill()
            job.communicate()
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert out.read_bytes() == expected
    assert "metrics" not in done.stderr.lower()
    assert "usage" not in done.stderr.lower()
