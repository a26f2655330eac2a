import json
import os
import signal
import subprocess
import sys
import time

import numpy as np
import pytest
from PIL import Image
from typer.testing import CliRunner

from fada.cli import app
from fada.data.lines import read_lines
from fada.emissions import Emissions
from fada.errors import FadaError
from fada.guidance import Guidance
from fada.models.crnn import CRNNRecognizer
from fada.targets import TargetSet
from fada.transcription import Journal, emit, transcribe
from fada.tuned import Knowledge, Weights, decode_emissions

TEXTS = {"13": ["le roi marc", "la reine dit"], "14": ["li rois dist", "au roi artus"]}


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    """An untrained C-RNN, large enough to write something."""
    folder = tmp_path_factory.mktemp("model")
    CRNNRecognizer.build([text for lines in TEXTS.values() for text in lines], "tiny").save_pretrained(folder)
    return folder


@pytest.fixture
def lines(tmp_path):
    folder = tmp_path / "lines"
    rng = np.random.default_rng(0)
    for century in TEXTS:
        (folder / century).mkdir(parents=True)
        for i in range(3):
            pixels = rng.integers(0, 255, (40, 120 + 10 * i), dtype=np.uint8)
            Image.fromarray(pixels).save(folder / century / f"{century}_{i}.png")
    return folder


def run(*arguments):
    return CliRunner().invoke(app, [str(a) for a in arguments], catch_exceptions=False)


def rows_of(path):
    header, *rows = path.read_text(encoding="utf-8").splitlines()
    return [dict(zip(header.split("\t"), row.split("\t"), strict=True)) for row in rows]


def test_every_line_is_transcribed_and_the_score_is_eq_2(model, lines, tmp_path):
    targets = TargetSet.from_texts(TEXTS)
    targets.save(tmp_path / "targets.json")
    out = tmp_path / "out.jsonl"
    done = run(
        "transcribe", model, lines, "--domain-from", "folder", "--targets", tmp_path / "targets.json",
        "--lam", 0.4, "--out", out,
    )  # fmt: skip
    assert done.exit_code == 0, done.output
    rows = [json.loads(line) for line in out.read_text(encoding="utf-8").splitlines()]
    assert len(rows) == 6
    for row in rows:
        assert row["score"] == pytest.approx(0.4 * row["log_prob"] - 0.6 * row["distance"])
        assert row["distance"] == pytest.approx(Guidance(targets[row["domain"]]).distance_of(row["text"]))
    assert not list(tmp_path.glob(".*journal"))


def test_transcribing_equals_emitting_then_decoding(model, lines, tmp_path):
    out = tmp_path / "out.tsv"
    assert run("transcribe", model, lines, "--out", out, "--beam", 7).exit_code == 0
    assert run("emit", model, lines, "--out", tmp_path / "e.npz", "--batch-size", 1).exit_code == 0
    emissions = Emissions.load(tmp_path / "e.npz")
    texts = {
        i: h.text for i, h in zip(emissions.ids, decode_emissions(emissions, Weights(beam=7), Knowledge()), strict=True)
    }
    assert {row["id"]: row["text"] for row in rows_of(out)} == texts


def test_a_broken_image_is_reported_and_the_others_are_kept(model, lines, tmp_path):
    (lines / "13" / "13_1.png").write_bytes(b"not an image")
    done = run("transcribe", model, lines, "--out", tmp_path / "out.tsv")
    assert done.exit_code == 0
    assert "5 lines transcribed" in done.output
    assert "1 failed" in done.output
    assert "13_1.png" in done.output
    assert len(rows_of(tmp_path / "out.tsv")) == 5
    _, failed = emit(CRNNRecognizer.load(model), read_lines(lines))
    assert len(failed) == 1


def test_nothing_but_broken_images_is_the_users_mistake(model, tmp_path):
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "x.png").write_bytes(b"")
    assert run("transcribe", model, tmp_path / "in", "--out", tmp_path / "out.tsv").exit_code == 2


def test_a_killed_job_goes_on_where_it_stopped_and_gives_the_same_file(model, lines, tmp_path):
    whole, out = tmp_path / "whole.tsv", tmp_path / "out.tsv"
    assert run("transcribe", model, lines, "--out", whole).exit_code == 0
    journal = tmp_path / ".out.tsv.journal"
    command = [sys.executable, "-c", "from fada.cli import main; main()"]
    process = subprocess.Popen(
        [*command, "transcribe", model, lines, "--out", out, "--batch-size", "1"],
        env={**os.environ, "OMP_NUM_THREADS": "1"}, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline and process.poll() is None:
        if journal.exists() and journal.read_bytes().count(b"\n") > 2:
            process.send_signal(signal.SIGKILL)
        time.sleep(0.001)
    process.wait()
    if process.returncode == -signal.SIGKILL:
        with journal.open("a") as stream:
            stream.write('{"id": "half a li')
        done = run("transcribe", model, lines, "--out", out, "--batch-size", 1)
        assert "already done" in done.output
    assert out.read_text(encoding="utf-8") == whole.read_text(encoding="utf-8")
    assert not journal.exists()


def test_an_unfinished_job_with_other_settings_is_not_mixed_in(model, lines, tmp_path):
    out = tmp_path / "out.tsv"
    with Journal(tmp_path / ".out.tsv.journal", {"model": "another"}):
        pass
    recognizer = CRNNRecognizer.load(model)
    with pytest.raises(FadaError, match="--restart"):
        transcribe(recognizer, read_lines(lines), out)
    assert transcribe(recognizer, read_lines(lines), out, restart=True).transcribed == 6


def test_guidance_without_targets_is_refused(model, lines, tmp_path):
    with pytest.raises(FadaError, match="--targets"):
        run("transcribe", model, lines, "--lam", 0.3, "--out", tmp_path / "out.tsv")
