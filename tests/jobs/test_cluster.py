"""Work on a Ray cluster: what a single process writes, whatever dies meanwhile."""

import json
import os
import secrets
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from typer.testing import CliRunner

from fada.cli import app
from fada.data.source import read_lines
from fada.decoding.emissions import Emissions
from fada.errors import FadaError
from fada.experiments.arena import Read
from fada.experiments.ladder import RUNGS
from fada.jobs.cluster import Running
from fada.models.registry import load_recognizer
from fada.tuning.tuned import Tuned
from tests.support.arenas import small_arena
from tests.support.cluster_tasks import dying, refusing
from tests.support.commands import FADA, run_fada
from tests.support.jobs import transcribe
from tests.support.machines import FAIR, Machines, below, called, end, started

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(find_spec("ray") is None, reason="the extra [scale] is not installed"),
    pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="processes are found in /proc"),
]

KILLS = int(os.environ.get("FADA_KILLS", "4"))
"""So many actors, and as many workers of tasks, are killed; `make fuzz` kills more often."""
DRIVERS = int(os.environ.get("FADA_KILLS", "1"))
"""Each of them starts a cluster."""

LINES = max(16, 3 * KILLS)
OFFLINE = ["unshare", "--map-root-user", "--net", "sh", "-c", 'ip link set lo up && exec "$@"', "sh"]
"""Before a command: it has no network but its own machine."""


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
    run_fada("transcribe", model, lines, "--out", out)
    return out.read_bytes()


def journal_length(out: Path) -> int:
    journal = out.with_name(f".{out.name}.journal")
    return journal.read_bytes().count(b"\n") if journal.exists() else 0


def _works(command: list[str]) -> bool:
    with suppress(FileNotFoundError):
        return subprocess.run(command, capture_output=True, check=False).returncode == 0
    return False


@contextmanager
def killing(victims: Callable[[], list[int]], out: Path, most: int) -> Iterator[list[int]]:
    """Kills one of the victims, at random, whenever the journal has grown; gives those killed."""
    killed: list[int] = []
    stop = threading.Event()
    rng = np.random.default_rng(0)

    def work() -> None:
        seen = 0
        while not stop.is_set() and len(killed) < most:
            length = journal_length(out)
            running = victims() if length > seen + 1 else []
            if running:
                seen = length
                victim = int(rng.choice(running))
                with suppress(ProcessLookupError):
                    os.kill(victim, signal.SIGKILL)
                killed.append(victim)
            time.sleep(0.01)

    thread = threading.Thread(target=work)
    thread.start()
    try:
        yield killed
    finally:
        stop.set()
        thread.join()


def test_killed_actors_lose_and_double_nothing(
    machines: Machines, model: Path, lines: Path, expected: bytes, tmp_path: Path
) -> None:
    recognizer, killed = load_recognizer(model), 0
    recognizer.use_looks("auto")
    while killed < KILLS:
        out = tmp_path / f"{killed}.tsv"
        with killing(lambda: called(below(machines.head.pid), "ray::ModelActor"), out, KILLS - killed) as victims:
            summary = transcribe(
                recognizer,
                read_lines(lines, untranscribed=True),
                out,
                model_name=str(model),
                batch_size=1,
                cluster=machines.cluster(),
            )
        assert out.read_bytes() == expected
        assert len(summary.failed) == 1
        assert "broken.png" in summary.failed[0]
        killed += len(victims)


def test_a_machine_that_is_lost_loses_nothing(
    machines: Machines, model: Path, lines: Path, expected: bytes, tmp_path: Path
) -> None:
    """Its actor never comes back: there is no room for a third one."""
    out = tmp_path / "out.tsv"
    other = started(machines.token, "--address", machines.address, "--num-cpus", "1")

    def machine() -> list[int]:
        return called(below(other.pid), str(Path(find_spec("ray").origin or "").parent)) and [other.pid]  # type: ignore[union-attr]

    killed = list[int]()
    stop = threading.Event()

    def work() -> None:
        while not stop.is_set() and not killed:
            if journal_length(out) > 3 and called(below(other.pid), "ray::ModelActor"):
                killed.append(other.pid)
                end(other)
            time.sleep(0.01)

    thread = threading.Thread(target=work)
    thread.start()
    try:
        while not machine():
            time.sleep(0.1)
        while not killed:
            out.unlink(missing_ok=True)
            run_fada("transcribe", model, lines, "--out", out, "--batch-size", 1, *machines.options, "--jobs", 3)
            assert out.read_bytes() == expected
    finally:
        stop.set()
        thread.join()
        end(other)


def test_a_killed_driver_goes_on(model: Path, lines: Path, expected: bytes, tmp_path: Path) -> None:
    """On a cluster that it starts itself, at last without a network: that is no reason to complain."""
    out, rng = tmp_path / "out.tsv", np.random.default_rng(0)
    command = [*FADA, "transcribe", str(model), str(lines), "--out", str(out), "--ray", "--jobs", "1"]
    command += ["--batch-size", "2"]
    environment = {**os.environ, **FAIR}
    killed = 0
    while killed < DRIVERS:
        with subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as job:
            wanted = journal_length(out) + int(rng.integers(1, 6))
            while job.poll() is None and journal_length(out) < wanted:
                time.sleep(0.01)
            time.sleep(rng.random() / 5)
            job.kill()
        killed += job.returncode == -signal.SIGKILL  # it may have finished before
    begun = journal_length(out) > 1
    offline = OFFLINE if _works([*OFFLINE, "true"]) else []
    done = subprocess.run([*offline, *command], env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert out.read_bytes() == expected
    assert ("lines were already done" in done.stderr) == begun
    for word in ("metrics", "usage", "telemetry", "dashboard", "warning", "error", "connect", "failed to"):
        assert word not in done.stderr.lower().replace("broken.png: cannot be opened", "")
    assert not list(tmp_path.glob(".*.token"))


def test_guided_by_a_text_a_cluster_writes_what_one_process_does(
    machines: Machines, model: Path, lines: Path, tmp_path: Path
) -> None:
    (tmp_path / "text.txt").write_text("le roi marc\nla reine dit\n", encoding="utf-8")
    guided: list[object] = ["transcribe", model, lines, "--text", tmp_path / "text.txt", "--looks", 2]
    run_fada(*guided, "--out", tmp_path / "one.jsonl")
    for number in (1, 2):
        run_fada(*guided, "--out", tmp_path / "many.jsonl", "--shard", f"{number}/2", *machines.options)
    run_fada("merge", *tmp_path.glob("many.*-of-002.jsonl"), "--out", tmp_path / "many.jsonl")
    assert (tmp_path / "one.jsonl").read_bytes() == (tmp_path / "many.jsonl").read_bytes()
    assert (tmp_path / "one.jsonl").read_text(encoding="utf-8").count("\n") == LINES


def test_emissions_and_counts_of_a_cluster_are_those_of_one_process(
    machines: Machines, model: Path, lines: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_fada("emit", model, lines, "--looks", 2, "--out", tmp_path / "one.npz")
    monkeypatch.chdir(lines.parent)  # the machines of the cluster are told where a relative path begins
    run_fada("emit", model, "lines", "--looks", 2, "--out", tmp_path / "many.npz", *machines.options)
    one, many = Emissions.load(tmp_path / "one.npz"), Emissions.load(tmp_path / "many.npz")
    assert one.ids == many.ids
    assert all(np.array_equal(a, b) for a, b in zip(one.log_probs, many.log_probs, strict=True))
    assert [file.name for file in tmp_path.iterdir() if file.name.startswith(".")] == []

    for number in range(9):
        place = tmp_path / "texts" / f"{number % 2}"
        place.mkdir(parents=True, exist_ok=True)
        (place / f"{number}.txt").write_text(f"li rois {number}\ne\u0301t\n", encoding="utf-8")
    for texts in (tmp_path / "texts", tmp_path / "texts" / "0" / "0.txt"):
        run_fada("targets", "build", texts, "--domain-from", "folder", "--out", tmp_path / "one.json")
        run_fada(
            "targets", "build", texts, "--domain-from", "folder", "--out", tmp_path / "many.json", *machines.options
        )
        assert (tmp_path / "one.json").read_bytes() == (tmp_path / "many.json").read_bytes()


def test_settings_tried_on_a_cluster_are_chosen_as_in_one_process(machines: Machines, tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    texts = ["".join(rng.choice(list("ab "), 9)).strip() or "a" for _ in range(60)]
    scores = [np.log(rng.dirichlet(np.ones(4), 14)).astype(np.float32) for _ in texts]
    names = [f"l{number}" for number in range(len(texts))]
    Emissions(names, scores, ("", "a", "b", " "), 0, ["x"] * len(texts), texts).save(tmp_path / "e.npz")
    (tmp_path / "x.txt").write_text("\n".join(texts), encoding="utf-8")
    run_fada("targets", "build", tmp_path / "x.txt", "--domain", "x", "--out", tmp_path / "targets.json")
    tune: list[object] = ["tune", tmp_path / "e.npz", "--targets", tmp_path / "targets.json"]
    tune += [word for lam in (0.2, 0.5, 0.8) for word in ("--lam", lam)]
    run_fada(*tune, "--out", tmp_path / "one.json")
    run_fada(*tune, "--out", tmp_path / "many.json", "--store", tmp_path / "store", *machines.options)
    one, many = (Tuned.load(tmp_path / name).model_dump() for name in ("one.json", "many.json"))
    for tuned in (one, many):
        tuned["evidence"].pop("seconds")
    assert one == many
    stored = (tmp_path / "store").read_text().count("\n")
    run_fada(*tune, "--out", tmp_path / "again.json", "--store", tmp_path / "store", *machines.options)
    assert (tmp_path / "store").read_text().count("\n") == stored  # nothing was decoded again


def test_tasks_that_die_are_done_again_and_an_error_stops_no_other(machines: Machines, tmp_path: Path) -> None:
    places = [tmp_path / str(number) for number in range(1 + KILLS)]
    for place in places:
        place.mkdir()
    with machines.cluster().running(tmp_path / "out") as running:
        assert isinstance(running, Running)
        assert list(running.each(dying, places)) == ["0 x", *(f"{number} xx" for number in range(1, 1 + KILLS))]
        with pytest.raises(FadaError, match="not this one"):
            list(running.each(refusing, range(3)))


def test_trainings_of_a_study_run_on_a_cluster(machines: Machines, tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    for split, count in (("train", 8), ("validation", 4), ("test", 4)):
        for number in range(count):
            place = tmp_path / "lines" / split
            place.mkdir(parents=True, exist_ok=True)
            Image.fromarray(rng.integers(0, 255, (32, 90), dtype=np.uint8)).save(place / f"{number}.png")
            (place / f"{number}.gt.txt").write_text("ab ba"[number % 3 :], encoding="utf-8")
    command: list[object] = ["study", tmp_path / "lines", "--domain", "x", "--epochs", 1, "--model", "crnn:tiny"]
    run_fada(*command, "--out", tmp_path / "study", *machines.options)
    assert (tmp_path / "study" / "report.html").exists()
    for name in ("standard", "fada-tr"):
        config = json.loads((tmp_path / "study" / name / "config.json").read_text(encoding="utf-8"))
        assert config["settings"]["threads"] == 1


def test_manuscripts_are_climbed_on_a_cluster_as_here(
    machines: Machines, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    arena = replace(small_arena(tmp_path), only=("a",), runs=Path("runs"))
    monkeypatch.chdir(tmp_path)
    with machines.cluster().running(tmp_path / "out") as running:
        many = replace(arena, results=tmp_path / "many", workers=running).run()
    made = {path: path.stat().st_mtime_ns for path in many.glob("a/*.json")}
    assert len(made) == len(RUNGS)
    adapted = {path: path.stat().st_mtime_ns for path in (tmp_path / "runs").rglob("*.safetensors")}
    one = arena.run()  # the adapted models are there: reading is compared, and that nothing is adapted again
    assert adapted == {path: path.stat().st_mtime_ns for path in (tmp_path / "runs").rglob("*.safetensors")}
    for path in made:
        reads = [Read.model_validate_json(file.read_text("utf-8")) for file in (path, one / "a" / path.name)]
        assert reads[0].texts == reads[1].texts
    assert (many / "table.md").read_text("utf-8") == (one / "table.md").read_text("utf-8")


def test_an_address_or_a_token_that_is_none_gets_a_sentence(
    machines: Machines, model: Path, lines: Path, tmp_path: Path
) -> None:
    command = ["transcribe", str(model), str(lines), "--out", str(tmp_path / "out.tsv")]
    done = CliRunner().invoke(app, [*command, "--ray-address", "127.0.0.1:1", "--ray-token", str(tmp_path / "none")])
    assert isinstance(done.exception, FadaError) or done.exit_code == 2
    assert "names the file with the token" in f"{done.output} {done.exception}"
    (tmp_path / "wrong").write_text(secrets.token_hex(32))
    (tmp_path / "text.txt").write_text("le roi", encoding="utf-8")
    # in a process of its own, as Ray reads its environment once
    count = [*FADA, "targets", "build", str(tmp_path / "text.txt"), "--domain", "x", "--out", str(tmp_path / "t.json")]
    count += ["--ray-address", machines.address, "--ray-token", str(tmp_path / "wrong")]
    impatient = {**os.environ, "RAY_NUM_REDIS_GET_RETRIES": "2"}
    refused = subprocess.run(count, env=impatient, capture_output=True, text=True, check=False)
    assert refused.returncode == 2
    assert "it asks for a token, and this is not it" in refused.stderr
    assert "Unauthenticated" not in refused.stderr
