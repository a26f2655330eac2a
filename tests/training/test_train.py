"""Training through the library and the real command line: run folders, determinism, interruption, processes, errors."""

import inspect
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import typer
from transformers import Trainer

import fada
from fada.cli import _told, app
from fada.data.formats.parquet import write_parquet
from fada.data.line import Line, LineSet
from fada.data.splits import split_lines
from fada.data.write import convert
from fada.models import registry
from fada.models.registry import load_network
from fada.models.seq2seq import Seq2SeqRecognizer
from fada.report.page import write_report
from fada.runs.run import Run
from fada.training.checkpoints import CHECKSUMS, last_checkpoint, write_checksums
from fada.training.history import Patience
from fada.training.lines import EncodedDataset, LineDataset, WidthSampler
from fada.training.reading import read_texts, score_texts
from fada.training.settings import TrainSettings, settings_of
from fada.training.train import train
from fada.training.trainer import OVERRIDDEN, FadaTrainer, _arguments
from tests.support import model_folders
from tests.support.commands import FADA, run_fada
from tests.support.disks import files_up_to
from tests.support.training_lines import ALPHABETS, image_folder, image_lines, sound_folder, sound_lines
from tests.support.types import some

# Some virtual machines advertise matrix units (AMX) that they do not have: bfloat16 must do without them.
ENVIRONMENT = {
    **os.environ,
    "ONEDNN_MAX_CPU_ISA": "AVX512_CORE",
    "OMP_NUM_THREADS": "1",
    "HF_HUB_OFFLINE": "1",
    "TOKENIZERS_PARALLELISM": "false",
}
SMALL = {"model": "crnn:tiny", "batch_size": 4, "epochs": 2, "patience": 0, "threads": 1, "device": "cpu"}


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return image_folder(tmp_path_factory.mktemp("data"))


@pytest.fixture(scope="module")
def reference(data: Path, tmp_path_factory: pytest.TempPathFactory) -> Run:
    """An uninterrupted run."""
    return run(data, tmp_path_factory.mktemp("runs") / "reference")


def run(data: Path, out: Path, **changes: Any) -> Run:
    return train(TrainSettings.of({**SMALL, "data": str(data), "out": out, "domain_column": "domain", **changes}))


def weights(folder: Path) -> dict[str, torch.Tensor]:
    from safetensors.torch import load_file

    return load_file(folder / "model" / "model.safetensors")


def assert_same_weights(a: Path, b: Path) -> None:
    first, second = weights(a), weights(b)
    assert first.keys() == second.keys()
    for name, value in first.items():
        assert torch.equal(value, second[name]), name


def losses(folder: Path) -> list[float]:
    history = json.loads((folder / "metrics.json").read_text(encoding="utf-8"))["history"]
    return [entry["loss"] for entry in history]


def test_the_run_folder_holds_everything_and_loads_in_one_line(reference: Run) -> None:
    opened = fada.load_run(reference.folder)
    assert opened.config["settings"]["lam"] == 0.5
    assert opened.config["lines"] == {"train": 24, "validation": 6, "test": 6}
    assert set(opened.targets) == {"old", "new"}
    history = opened.metrics["history"]
    assert [entry["epoch"] for entry in history] == [1, 2]
    for entry in history:
        assert entry["loss"] == pytest.approx(0.5 * entry["task_loss"] + 0.5 * entry["alignment_loss"], rel=1e-5)
        assert set(entry["validation"]["per_domain"]) == {"old", "new"}
        assert entry["validation"]["distance"] > 0
    systems = opened.predictions
    assert list(systems) == ["greedy", "beam5"]
    assert set(systems.columns) == {"domain"}  # rows of a table have no page unless they say so
    assert systems["beam5"].settings["beam"] == 5
    assert set(systems["beam5"].scores) == {"log_prob", "distance", "score"}
    assert len(systems.ids) == 6
    assert len(opened.emissions("validation").ids) == 6
    assert opened.emissions("test").references is not None
    lines = image_lines(3)
    assert opened.recognizer.transcribe(lines) == fada.load_recognizer(reference.folder).transcribe(lines)
    assert not (reference.folder / "checkpoints").exists()


def test_a_c_rnn_learns_to_read(tmp_path: Path) -> None:
    data = image_folder(tmp_path / "data", train=48, validation=12)
    settings = {"epochs": 16, "learning_rate": 0.01, "augment": 0.3, "lam": 0.9}
    finished = run(data, tmp_path / "run", **settings)
    history = finished.metrics["history"]
    assert min(entry["validation"]["cer"] for entry in history) < 30
    assert finished.metrics["test"]["beam5"]["cer"] < 40


def test_the_same_seed_gives_the_same_weights_and_another_seed_others(
    reference: Run, data: Path, tmp_path: Path
) -> None:
    run(data, tmp_path / "again")
    assert_same_weights(reference.folder, tmp_path / "again")
    run(data, tmp_path / "other", seed=1, epochs=1)
    assert not torch.equal(weights(tmp_path / "other")["output.weight"], weights(reference.folder)["output.weight"])


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("stop", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_resume_after_kill_gives_the_same_weights(
    reference: Run, data: Path, tmp_path: Path, stop: signal.Signals
) -> None:
    out = tmp_path / "run"
    options = [f"--{name.replace('_', '-')}={value}" for name, value in SMALL.items()]
    command = ["train", f"--data={data}", "--domain-column=domain", f"--out={out}", *options, "--set=save_steps=1"]
    for _ in range(5):  # on a busy machine a training may be over before the signal falls
        shutil.rmtree(out, ignore_errors=True)
        process = subprocess.Popen([*FADA, *command], env=ENVIRONMENT, stderr=subprocess.PIPE, text=True)
        while process.poll() is None and not list(out.glob("checkpoints/checkpoint-*/trainer_state.json")):
            time.sleep(0.02)
        process.send_signal(stop)
        _, errors = process.communicate()
        if process.returncode != 0:
            break
    assert process.returncode == (-stop if stop == signal.SIGKILL else 128 + stop), errors
    if stop != signal.SIGKILL:
        told = int(errors.partition("after step ")[2].split()[0])
        assert (out / "checkpoints" / f"checkpoint-{told}").is_dir(), "the newest is kept, not only the best"
    assert not (out / "model").exists()
    assert "CER" in run_fada(*command, "--resume").stdout
    assert_same_weights(reference.folder, out)
    assert losses(out) == losses(reference.folder)


def stopped_after_the_last_epoch(data: Path, out: Path, monkeypatch: pytest.MonkeyPatch, **changes: Any) -> None:
    """A run that is killed before its results are written."""

    def killed(*_: Any, **__: Any) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("fada.training.train._report", killed)
        with pytest.raises(KeyboardInterrupt):
            run(data, out, **changes)


def test_a_kill_after_the_last_epoch_loses_none_of_them(
    reference: Run, data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stopped_after_the_last_epoch(data, tmp_path / "run", monkeypatch)
    steps = {int(path.name.partition("-")[2]) for path in (tmp_path / "run").glob("checkpoints/checkpoint-*")}
    assert max(steps) == 12, "two epochs of six steps: the newest is kept beside the best"
    with monkeypatch.context() as patch:
        patch.setattr(FadaTrainer, "compute_loss", None)  # nothing is trained again
        run(data, tmp_path / "run", resume=True)
    assert_same_weights(reference.folder, tmp_path / "run")
    assert losses(tmp_path / "run") == losses(reference.folder)


@pytest.mark.parametrize(
    ("name", "content"),
    [("fada_state.pt", b""), ("trainer_state.json", b""), ("optimizer.pt", b"PK"), ("model.safetensors", b"{")],
)
def test_a_damaged_newest_checkpoint_is_told_and_the_one_before_it_taken(
    name: str, content: bytes, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    for step in (6, 12):
        write_checkpoint(tmp_path / f"checkpoint-{step}", best=6)
    (tmp_path / "checkpoint-12" / name).write_bytes(content)
    assert last_checkpoint(tmp_path) == tmp_path / "checkpoint-6"
    assert "checkpoint-12 is damaged" in caplog.text
    assert "continuing from" in caplog.text
    assert not (tmp_path / "checkpoint-12").exists()


def test_any_changed_byte_of_a_checkpoint_is_found(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    for step in (6, 12):
        write_checkpoint(tmp_path / f"checkpoint-{step}", best=6)
        write_checksums(tmp_path / f"checkpoint-{step}")
    assert last_checkpoint(tmp_path) == tmp_path / "checkpoint-12"
    weights = tmp_path / "checkpoint-12" / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-1] + b"\x01")
    assert last_checkpoint(tmp_path) == tmp_path / "checkpoint-6"
    assert "model.safetensors is not what was written" in caplog.text


def other_shape(stored: dict[str, Any]) -> None:
    stored["state"][0]["exp_avg"] = torch.zeros(3, 5)


def other_optimizer(stored: dict[str, Any]) -> None:
    stored["state"] = {n: {"step": torch.tensor(6.0), "momentum_buffer": None} for n in stored["state"]}


OTHERS: list[tuple[str, Callable[[dict[str, Any]], Any], str]] = [
    ("optimizer.pt", other_shape, "state of weights of another shape"),
    ("optimizer.pt", other_optimizer, "momentum_buffer"),
    ("optimizer.pt", lambda stored: stored["param_groups"][0].update(betas="x"), "the optimizer has the numbers"),
    ("optimizer.pt", lambda stored: stored.clear(), "checkpoint-6: cannot be continued from"),
    ("scheduler.pt", lambda stored: stored.update(last_epoch=None), "the optimizer has the numbers"),
    ("rng_state.pth", lambda stored: stored.clear(), "checkpoint-6: cannot be continued from"),
]


def test_a_checkpoint_without_checksums_that_holds_other_values_is_a_sentence(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stopped_after_the_last_epoch(data, tmp_path / "run", monkeypatch)
    shutil.rmtree(tmp_path / "run" / "checkpoints" / "checkpoint-12")
    checkpoint = tmp_path / "run" / "checkpoints" / "checkpoint-6"
    (checkpoint / CHECKSUMS).unlink()
    for name, change, says in OTHERS:
        whole = (checkpoint / name).read_bytes()
        stored = torch.load(checkpoint / name, weights_only=False)
        change(stored)
        torch.save(stored, checkpoint / name)
        with pytest.raises(fada.FadaError, match=says) as error:
            run(data, tmp_path / "run", resume=True)
        assert "Delete this folder" in str(error.value)
        (checkpoint / name).write_bytes(whole)
    run(data, tmp_path / "run", resume=True)


def test_a_checkpoint_whose_best_epoch_is_lost_is_not_continued(tmp_path: Path) -> None:
    write_checkpoint(tmp_path / "checkpoint-6", best=6)
    write_checkpoint(tmp_path / "checkpoint-18", best=12)
    assert last_checkpoint(tmp_path) == tmp_path / "checkpoint-6"
    (tmp_path / "checkpoint-6" / "fada_state.pt").unlink()
    assert last_checkpoint(tmp_path) is None


def write_checkpoint(folder: Path, best: int) -> None:
    """The files of a checkpoint, as small as can be."""
    from safetensors.torch import save_file

    folder.mkdir()
    for name in ("fada_state.pt", "optimizer.pt", "scheduler.pt"):
        torch.save({}, folder / name)
    save_file({"w": torch.zeros(1)}, folder / "model.safetensors")
    (folder / "trainer_state.json").write_text(json.dumps({"best_global_step": best}), encoding="utf-8")


def test_resuming_a_finished_run_leaves_it_as_it_is(reference: Run, data: Path, tmp_path: Path) -> None:
    shutil.copytree(reference.folder, tmp_path / "run")
    before = (tmp_path / "run" / "metrics.json").stat().st_mtime_ns
    run(data, tmp_path / "run", resume=True)
    assert (tmp_path / "run" / "metrics.json").stat().st_mtime_ns == before
    with pytest.raises(fada.FadaError, match="holds a run with seed = 0, not 5"):
        run(data, tmp_path / "run", resume=True, seed=5)


@pytest.mark.parametrize("kind", ["trocr", "whisper"])
def test_an_interrupted_decoder_training_ends_with_the_same_weights(
    kind: str, data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if kind == "trocr":
        settings = {"model": "trocr-tiny", "max_lines": 8}
    else:
        data = sound_folder(tmp_path / "data")
        settings = {
            "model": str(model_folders.whisper_folder(tmp_path / "whisper")),
            "max_seconds": 1,
            "freeze": "encoder",
        }
    settings |= {"learning_rate": 0.01, "beam_size": 1}
    run(data, tmp_path / "whole", **settings)

    def interrupted(self: FadaTrainer, *args: Any, **kwargs: Any) -> Any:
        if self.state.global_step == 3:
            raise KeyboardInterrupt
        return compute_loss(self, *args, **kwargs)

    compute_loss = FadaTrainer.compute_loss
    with monkeypatch.context() as patch:
        patch.setattr(FadaTrainer, "compute_loss", interrupted)
        with pytest.raises(KeyboardInterrupt):
            run(data, tmp_path / "parts", **settings)
    run(data, tmp_path / "parts", **settings, resume=True)
    assert_same_weights(tmp_path / "whole", tmp_path / "parts")


def test_the_model_kept_is_that_of_the_best_epoch(tmp_path: Path) -> None:
    data = image_folder(tmp_path / "data", train=8, validation=4, test=2)
    settings = {"model": "trocr-tiny", "epochs": 4, "learning_rate": 0.02, "beam_size": 1, "warmup": 0.0}
    finished = run(data, tmp_path / "run", **settings)
    errors = [entry["validation"]["cer"] for entry in finished.metrics["history"]]
    assert errors[-1] > min(errors)  # or the test would prove nothing
    dataset = LineDataset(finished.network, image_lines(4, 1, "validation"), ["old", "new"])
    texts = read_texts(finished.network, dataset)
    assert score_texts(dataset.lines, texts, finished.targets, "sorted_w2")["cer"] == min(errors)


def test_two_processes_learn_what_one_with_twice_the_batch_learns(data: Path, tmp_path: Path) -> None:
    run(data, tmp_path / "one", batch_size=8, learning_rate=0.003)
    launcher = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]
    script = tmp_path / "script.py"
    script.write_text("from fada.cli import main\nmain()\n", encoding="utf-8")
    options = [f"--{name.replace('_', '-')}={value}" for name, value in SMALL.items()]
    command = [sys.executable, *launcher, str(script), "train", f"--data={data}", "--domain-column=domain"]
    command += [f"--out={tmp_path / 'two'}", *options, "--learning-rate=0.003"]
    finished = subprocess.run(command, env=ENVIRONMENT, capture_output=True, text=True, check=False)
    assert finished.returncode == 0, finished.stderr
    np.testing.assert_allclose(losses(tmp_path / "two"), losses(tmp_path / "one"), rtol=1e-3)


@pytest.mark.parametrize(
    "changes",
    [
        {"lam_schedule": "warmup", "lam_warmup": 1, "pool": "domain"},
        {"lam_schedule": "adaptive", "pool": "epoch", "distance": "aligned_w2", "scale": 20},
        {"tagging": "predicted", "accumulate": 2},
        {"tagging": "given"},
    ],
    ids=str,
)
def test_every_option_trains(data: Path, tmp_path: Path, changes: dict[str, Any]) -> None:
    finished = run(data, tmp_path / "run", epochs=1, batch_size=8, **changes)
    entry = finished.metrics["history"][0]
    assert np.isfinite(entry["loss"])
    assert entry["alignment_loss"] > 0
    assert not any("domain" in text for read in finished.predictions.values() for text in read.hypotheses)


def test_trocr_trains_with_the_alignment_loss(data: Path, tmp_path: Path) -> None:
    finished = run(data, tmp_path / "run", model="trocr-tiny", epochs=1, batch_size=8, tagging="given")
    assert finished.metrics["history"][0]["alignment_loss"] > 0
    assert len(finished.predictions.ids) * len(finished.predictions) == 12
    assert not any("domain" in text for read in finished.predictions.values() for text in read.hypotheses)


def test_a_pretrained_trocr_is_fine_tuned(data: Path, tmp_path: Path) -> None:
    folder = model_folders.trocr_folder(tmp_path / "pretrained")
    finished = run(data, tmp_path / "run", model=str(folder), epochs=1, batch_size=8, beam_size=1)
    assert finished.recognizer.kind == "seq2seq"


def test_whisper_trains_with_the_alignment_loss(tmp_path: Path) -> None:
    folder = model_folders.whisper_folder(tmp_path / "whisper")
    data = sound_folder(tmp_path / "data")
    finished = run(data, tmp_path / "run", model=str(folder), epochs=1, max_seconds=1, beam_size=2)
    assert finished.metrics["history"][0]["alignment_loss"] > 0
    assert set(finished.metrics["validation"]) == {"greedy", "beam2"}  # no test lines: reported on validation


def test_a_ctc_model_of_transformers_trains_with_the_alignment_loss(tmp_path: Path) -> None:
    folder = model_folders.wav2vec2_folder(tmp_path / "wav2vec2")
    data = sound_folder(tmp_path / "data")
    finished = run(data, tmp_path / "run", model=str(folder), epochs=1, beam_size=2)
    assert finished.metrics["history"][0]["alignment_loss"] > 0
    assert finished.emissions("validation").symbols == ("", "a", "b", "c", "d")


def test_a_recipe_is_overridden_by_the_command_line_and_unknown_keys_are_refused(data: Path, tmp_path: Path) -> None:
    recipe = tmp_path / "recipe.yaml"
    recipe.write_text("model: crnn:tiny\nepochs: 9\nbatch_size: 8\nlam: 1.0\n", encoding="utf-8")
    command = ["train", f"--recipe={recipe}", f"--data={data}", "--domain-column=domain", "--epochs=1"]
    command += [f"--out={tmp_path / 'run'}", "--set", "patience=0"]
    finished = run_fada(*command)
    assert "best epoch 1" in finished.output
    settings = fada.load_run(tmp_path / "run").config["settings"]
    assert (settings["epochs"], settings["batch_size"], settings["patience"]) == (1, 8, 0)
    recipe.write_text("lambda: 0.3\n", encoding="utf-8")
    with pytest.raises(fada.FadaError, match=r"lambda.*Known settings"):
        run_fada(*command)


def test_bfloat16_trains(data: Path, tmp_path: Path) -> None:
    command = [*FADA, "train", f"--data={data}", "--domain-column=domain", "--model=crnn:tiny", "--precision=bf16"]
    command += [f"--out={tmp_path / 'run'}", "--epochs=1", "--batch-size=8", "--device=cpu"]
    finished = subprocess.run(command, env=ENVIRONMENT, capture_output=True, text=True, timeout=240)
    assert finished.returncode == 0, finished.stderr
    assert np.isfinite(losses(tmp_path / "run")).all()


def test_bfloat16_needs_no_device_to_be_named_where_there_is_no_accelerator(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.accelerator, "is_available", lambda: False)
    settings = TrainSettings.of({"data": ["x"], "out": tmp_path, "precision": "bf16", "device": "auto"})
    arguments = _arguments(settings, tmp_path, registry.build("crnn:tiny", ["abc"]))
    assert (arguments.bf16, arguments.device.type) == (True, "cpu")


@pytest.mark.parametrize("device", ["auto", "cpu"])
def test_float16_on_a_processor_is_refused_before_anything_is_read(
    device: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.accelerator, "is_available", lambda: False)
    with pytest.raises(fada.FadaError, match="'fp16', which torch trains with on a GPU alone"):
        run(tmp_path / "nothing", tmp_path / "run", precision="fp16", device=device)


def test_an_adaptive_schedule_at_reduced_precision_is_refused(data: Path, tmp_path: Path) -> None:
    with pytest.raises(fada.FadaError, match="Use fp32 without compile"):
        run(data, tmp_path / "run", lam_schedule="adaptive", precision="bf16")


def test_a_loss_that_is_not_a_number_ends_with_advice(data: Path, tmp_path: Path) -> None:
    with pytest.raises(fada.FadaError, match=r"the loss is (nan|inf).*Lower learning_rate"):
        run(data, tmp_path / "run", learning_rate=1e30, warmup=0.0, epochs=5)
    assert fada.load_run(tmp_path / "run").config["settings"]["learning_rate"] == 1e30


def test_a_domain_without_a_target_is_aligned_to_all_of_them_and_said(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    data = image_folder(tmp_path, train=8, validation=2, test=2)
    image = image_lines(1)[0].image
    strangers = [Line("s", "abc", "future", image=image), Line("n", "abc", None, image=image)]
    write_parquet([*image_lines(4), *strangers], data / "validation.parquet")
    write_parquet([*image_lines(8), *strangers], data / "train.parquet")
    found = run(data, tmp_path / "run", epochs=1, beam_size=1, targets=None)
    assert found.targets.domains == ("future", "new", "old")
    assert "no domain: 2 lines" in caplog.text
    assert set(found.metrics["history"][0]["validation"]["per_domain"]) == {"future", "new", "old"}
    with pytest.raises(fada.FadaError, match="tagging is 'predicted', which needs lines of known domains"):
        run(data, tmp_path / "tagged", tagging="predicted")


def test_a_target_file_can_tell_of_a_domain_without_training_lines(tmp_path: Path) -> None:
    data = image_folder(tmp_path)
    stranger = Line("s", "abc", "future", image=image_lines(1)[0].image)
    write_parquet([*image_lines(4), stranger], data / "validation.parquet")
    texts = {domain: ["abc"] for domain in ("old", "new", "future")}
    fada.TargetSet.from_texts(texts).save(tmp_path / "targets.json")
    found = run(data, tmp_path / "run", targets=str(tmp_path / "targets.json"), epochs=1)
    assert "future" in some(found.emissions("validation").domains)


def test_a_character_missing_from_the_model_is_named(reference: Run, tmp_path: Path) -> None:
    data = tmp_path / "data"
    data.mkdir()
    write_parquet([*image_lines(6), Line("s", "abζ", "old", image=image_lines(1)[0].image)], data / "train.parquet")
    with pytest.raises(fada.FadaError, match=r"'ζ' \(U\+03B6\)"):
        run(data, tmp_path / "run", model=str(reference.folder), new_characters="fail")


def broken_png(seed: int = 7) -> bytes:
    image = image_lines(1, seed)[0].image
    assert isinstance(image, bytes)
    return image[: len(image) // 2]


@pytest.mark.parametrize("model", ["crnn:tiny", "trocr-tiny"])
def test_a_truncated_image_is_left_out_counted_and_named(
    model: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    data = image_folder(tmp_path / "data", train=8, validation=2, test=2)
    for split in ("train", "test"):
        broken = Line(f"broken-{split}", "abc", "old", image=broken_png(), source=f"{split} image 3")
        write_parquet([*image_lines(4, prefix=split), broken], data / f"{split}.parquet")
    finished = run(data, tmp_path / "run", model=model, epochs=1, beam_size=1)
    assert finished.config["lines"] == {"train": 4, "validation": 2, "test": 4}
    left_out = finished.config["left_out"]
    assert {split: list(reasons) for split, reasons in left_out.items()} == {
        "train": ["broken-train"],
        "test": ["broken-test"],
    }
    assert "truncated" in left_out["train"]["broken-train"]
    assert "1 train lines left out" in caplog.text
    assert "broken-test" not in finished.predictions.ids


def test_a_broken_sound_is_left_out_and_nothing_but_broken_ones_is_an_error(tmp_path: Path) -> None:
    folder = model_folders.whisper_folder(tmp_path / "whisper")
    data = sound_folder(tmp_path / "data")
    broken = [Line(f"broken{i}", "abc", "old", audio=b"RIFF....WAVE", source="talk.wav") for i in range(2)]
    write_parquet([*sound_lines(4), *broken], data / "train.parquet")
    settings = {"model": str(folder), "epochs": 1, "max_seconds": 1, "beam_size": 1}
    assert list(run(data, tmp_path / "run", **settings).config["left_out"]["train"]) == ["broken0", "broken1"]
    write_parquet(broken, data / "train.parquet")
    write_parquet([line for line in sound_lines(4, 1) if line.domain == "old"], data / "validation.parquet")
    with pytest.raises(fada.FadaError, match="none of the 2 training lines can be read"):
        run(data, tmp_path / "none", **settings)


@pytest.mark.parametrize("kind", ["trocr", "whisper"])
def test_a_frozen_encoder_keeps_its_weights_and_is_run_once_per_line(kind: str, tmp_path: Path) -> None:
    if kind == "trocr":
        folder, data = model_folders.trocr_folder(tmp_path / "model"), image_folder(tmp_path / "data", 8, 2, 2)
    else:
        folder, data = model_folders.whisper_folder(tmp_path / "model"), sound_folder(tmp_path / "data")
    settings = {"model": str(folder), "max_seconds": 1, "freeze": "encoder", "augment": 0, "beam_size": 1}
    settings |= {"epochs": 1, "learning_rate": 0.01, "encoder_cache": tmp_path / "cache"}
    finished = run(data, tmp_path / "run", **settings)
    before = load_network(folder).model
    trained = 0
    for name, weight in finished.network.model.named_parameters():
        original = before.get_parameter(name)
        if "encoder." in name.removeprefix("model.")[: len("encoder.")]:
            assert torch.equal(weight[: len(original)], original[: len(weight)]), name
        else:
            trained += not torch.equal(weight, original[: len(weight)])
    assert trained > 5
    assert finished.config["settings"]["freeze"] == "encoder"
    assert finished.config["model"]["trained"] < finished.config["model"]["parameters"]
    files = {path: path.stat().st_mtime_ns for path in (tmp_path / "cache").iterdir()}
    assert len(files) == len([split for split, lines in finished.config["lines"].items() if lines])
    run(data, tmp_path / "again", **settings, tagging="given")  # another decoder, the same encoder
    assert {path: path.stat().st_mtime_ns for path in (tmp_path / "cache").iterdir()} == files


@pytest.mark.parametrize("kind", ["trocr", "whisper"])
def test_the_loss_of_stored_encoder_outputs_is_that_of_the_lines_themselves(kind: str, tmp_path: Path) -> None:
    folder = model_folders.trocr_folder(tmp_path) if kind == "trocr" else model_folders.whisper_folder(tmp_path)
    lines = image_lines(6) if kind == "trocr" else sound_lines(6)
    recognizer = registry.build(str(folder), ["abcd"], max_seconds=1)
    assert isinstance(recognizer, Seq2SeqRecognizer)
    losses, texts = [], []
    for frozen, kinds in ((False, [LineDataset]), (True, [LineDataset, EncodedDataset])):
        if frozen:
            recognizer.freeze_encoder()
        for dataset in [kind(recognizer, lines, ["old", "new"]) for kind in kinds]:
            inputs = dataset.collate([dataset[i] for i in range(6)])
            del inputs["domains"]
            recognizer.model.eval()
            losses.append(float(recognizer.task_loss(recognizer.model, inputs)[0].detach()))
            texts.append(read_texts(recognizer, dataset, num_beams=2, max_new_tokens=8))
    assert losses[1] == losses[0]
    assert losses[2] == pytest.approx(losses[0], abs=2e-3)  # float16
    assert texts[0] == texts[1] == texts[2]


def test_only_models_with_a_decoder_have_an_encoder_to_freeze(data: Path, tmp_path: Path) -> None:
    with pytest.raises(fada.FadaError, match="freeze is 'encoder', but crnn:tiny has no decoder"):
        run(data, tmp_path / "run", freeze="encoder")


def test_without_alignment_no_target_is_asked_for_and_the_history_tells_how_hard_both_terms_would_pull(
    reference: Run, data: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    fada.TargetSet.from_texts({"elsewhere": ["abc"]}).save(tmp_path / "targets.json")
    standard = run(data, tmp_path / "run", epochs=1, lam=1.0, targets=str(tmp_path / "targets.json"))
    assert "no target" not in caplog.text
    assert standard.metrics["history"][0]["alignment_loss"] == 0
    for history in (reference.metrics["history"], standard.metrics["history"]):
        for entry in history:
            pull = entry["pull"]
            assert pull["batches"] >= 1
            assert pull["alignment"] > 0
            assert pull["task_gradient"] > pull["alignment_gradient"] > 0
            assert -1 <= pull["cosine"] <= 1


def test_a_full_disk_is_told_by_the_checkpoint_and_the_run_goes_on_to_the_same_weights(
    reference: Run, data: Path, tmp_path: Path
) -> None:
    given = {**SMALL, "data": data, "out": tmp_path / "run", "domain_column": "domain"}
    with files_up_to(100_000), pytest.raises(OSError, match="No space left") as full:  # less than the weights take
        run_fada("train", *(f"--set={name}={value}" for name, value in given.items()))
    sentence, code = some(_told(full.value))
    checkpoint = tmp_path / "run" / "checkpoints" / "checkpoint-"
    told = f"{re.escape(str(checkpoint))}\\d+: the disk is full. .* give the command again with --resume."
    assert (code, bool(re.match(told, sentence))) == (1, True), sentence
    with (
        files_up_to(400_000),
        pytest.raises(OSError, match=r"No space left on device: '.*checkpoint-\d+'"),
    ):  # optimizer
        run(data, tmp_path / "run", resume=True)
    run(data, tmp_path / "run", resume=True)
    assert_same_weights(reference.folder, tmp_path / "run")


@pytest.mark.parametrize("place", ["a file", "below a file", "read-only"])
def test_a_place_that_cannot_be_written_is_told_before_the_lines_are_read(place: str, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("", encoding="utf-8")
    out = tmp_path / "file" / ("run" if place == "below a file" else ".")
    if place == "read-only":
        out = Path("/proc/run")
    with pytest.raises(fada.FadaError, match=r"expected a folder to write to|cannot be written"):
        run(tmp_path / "no lines here", out)


def test_the_lines_of_a_run_are_found_from_another_folder(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copytree(data, tmp_path / "there" / "lines")
    monkeypatch.chdir(tmp_path / "there")
    finished = run(Path("lines"), Path("run"), epochs=1, max_lines=4, beam_size=1)
    assert finished.config["lines"] == {"train": 4, "validation": 4, "test": 4}, "of a trial, some lines of each split"
    assert finished.config["settings"]["data"] == [str(tmp_path / "there" / "lines")]
    folder = finished.folder.resolve()
    monkeypatch.chdir(tmp_path)
    assert len(settings_of(Run(folder)).read().test) == 4
    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    config["settings"]["data"] = ["lines"]  # as version 0.1 stored it
    (folder / "config.json").write_text(json.dumps(config), encoding="utf-8")
    assert len(settings_of(Run(folder)).read().test) == 4


def test_every_private_method_of_the_trainer_that_is_overridden_is_named_and_still_there() -> None:
    ours = {name for name in vars(FadaTrainer) if name.startswith("_") and not name.startswith("__")}
    assert {name for name in ours if hasattr(Trainer, name)} == set(OVERRIDDEN)
    for name in OVERRIDDEN:
        theirs = inspect.signature(getattr(Trainer, name)).parameters
        assert list(inspect.signature(getattr(FadaTrainer, name)).parameters) == list(theirs), name


def history(*rates: float) -> list[Any]:
    return [{"epoch": i + 1, "validation": {"cer": rate}} for i, rate in enumerate(rates)]


def test_patience_counts_only_once_the_model_reads() -> None:
    patience = Patience(2)
    assert not patience.is_over([])
    assert not patience.is_over(history(100, 100, 100, 100, 100))
    assert not patience.is_over(history(100, 99, 100, 79, 80))
    assert patience.is_over(history(100, 99, 100, 79, 80, 79))
    assert not patience.is_over(history(50, 60, 49, 60))


def test_patience_is_longer_where_epochs_are_short_and_says_so() -> None:
    assert Patience.over(4, steps_per_epoch=1000) == Patience(4)
    assert Patience.over(4, steps_per_epoch=15) == Patience(14)
    assert Patience.over(0, steps_per_epoch=15) is None
    assert "after 14 epochs" in str(Patience(14))
    assert "below 80 %" in str(Patience(14))


def test_the_help_tells_the_defaults_that_hold() -> None:
    command = typer.main.get_command(app).commands["train"]  # type: ignore[attr-defined]
    shown = {option.name: option.show_default for option in command.params if isinstance(option.show_default, str)}
    for name in ("model", "lam", "distance", "scale", "pool", "epochs", "patience", "batch_size", "precision", "seed"):
        default = TrainSettings.model_fields[name].default
        assert shown[name] == (f"{default:g}" if isinstance(default, float) else str(default)), name


def test_an_existing_run_is_not_overwritten(reference: Run, data: Path) -> None:
    with pytest.raises(fada.FadaError, match="already holds a run"):
        run(data, reference.folder)
    with pytest.raises(fada.FadaError, match=r"no config\.json here"):
        fada.load_run(data)


def test_lines_are_held_out_by_their_id() -> None:
    lines = image_lines(60)
    parts = split_lines(lines, 0.2, seed=0)
    again = split_lines([*lines, *image_lines(9, prefix="more")], 0.2, seed=0)
    held = {line.id for line in parts["validation"]}
    assert 3 <= len(held) <= 25
    assert held <= {line.id for line in again["validation"]}
    assert not held & {line.id for line in parts["train"]}


def test_batches_have_lines_of_similar_width_and_every_line_once(reference: Run) -> None:
    dataset = LineDataset(reference.network, image_lines(40), ["old", "new"])
    sampler = WidthSampler(dataset, block=8, seed=3)
    order = list(sampler)
    assert sorted(order) == list(range(40))
    spread = [np.ptp(dataset.sizes[order[i : i + 8]]) for i in range(0, 40, 8)]
    assert np.mean(spread) < 0.6 * np.ptp(dataset.sizes)
    dataset.epoch = 1
    assert list(sampler) != order


def test_models_are_listed_and_described_on_the_command_line(reference: Run) -> None:
    listed = run_fada("models", "list", "--json")
    assert "crnn:base" in [row["model"] for row in json.loads(listed.stdout)]
    described = run_fada("models", "describe", reference.folder, "--json")
    properties = {row["property"]: row["value"] for row in json.loads(described.stdout)}
    assert properties["kind"] == "ctc"
    assert set(properties["characters"]) == set(" abcd")


def test_a_finished_run_says_what_it_does_not_have(reference: Run, tmp_path: Path) -> None:
    shutil.copytree(reference.folder, tmp_path / "run")
    (tmp_path / "run" / "emissions" / "test.npz").unlink()
    with pytest.raises(fada.FadaError, match="the run has none"):
        fada.load_run(tmp_path / "run").emissions("test")


def test_the_domain_of_pages_comes_from_their_folder_and_not_from_a_column(tmp_path: Path) -> None:
    for domain in ALPHABETS:
        lines = [replace(line, extra={"page": "1"}) for line in image_lines(48) if line.domain == domain]
        convert(LineSet.of(lines), tmp_path / "pages" / domain, "page")
    command = ["train", "--data", str(tmp_path / "pages"), "--model", "crnn:tiny", "--epochs", "1"]
    command += ["--out", str(tmp_path / "run")]
    with pytest.raises(fada.FadaError, match=r"which has no columns.*--domain-from"):
        run_fada(*command, "--domain-column", "century")
    done = run_fada(*command, "--domain-from", "folder")
    assert "validation lines" in done.output
    run = fada.load_run(tmp_path / "run")
    assert set(run.targets.domains) == set(ALPHABETS)
    page = write_report([run.folder]).path.read_text(encoding="utf-8")
    assert "validation lines, on which the best epoch was chosen" in page
