"""Adapting a model to a handful of lines: what it brings is measured on unseen lines, and nothing is lost."""

import json
import shutil
import signal
import subprocess
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from typer.testing import CliRunner

from fada import FadaError, load_recognizer
from fada.cli import app
from fada.data.formats.parquet import write_parquet
from fada.data.images import png
from fada.data.line import Line
from fada.decoding.knowledge import Decoder, Knowledge, knowledge_of_model
from fada.models import registry
from fada.targets.target_set import TargetSet
from fada.training.adapt import CHANCE, RECORD, REPLAY, Adaptation, Adapting, _judged, adapt
from fada.training.folds import AdaptSettings, fine_tune
from tests.support import model_folders
from tests.support.commands import FADA, run_fada
from tests.support.disks import files_up_to
from tests.support.training_lines import drawn_line, image_lines, sound_folder, sound_lines

QUICK = AdaptSettings(folds=2, epochs=1, fewest_steps=60, learning_rate=2e-3, augment=0.3)
pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model that has only begun to read."""
    folder = tmp_path_factory.mktemp("base")
    lines = image_lines(40)
    torch.manual_seed(0)
    recognizer = registry.build("crnn:tiny", [str(line.text) for line in lines])
    fine_tune(recognizer, lines, (), QUICK.model_copy(update={"fewest_steps": 150, "learning_rate": 5e-3}), 0)
    recognizer.save_pretrained(folder)
    return folder


@pytest.fixture(scope="module")
def corrected() -> list[Line]:
    """Lines in another hand: the letters that the model knows, drawn as capitals."""
    return [in_capitals(line) for line in image_lines(16, seed=7, prefix="mine")]


def in_capitals(line: Line) -> Line:
    """The same text, drawn otherwise."""
    return replace(line, image=png(drawn_line(str(line.text).upper())))


def test_the_adapted_model_reads_unseen_lines_better_and_says_so(
    base: Path, corrected: list[Line], tmp_path: Path
) -> None:
    more = [replace(in_capitals(line), text=None) for line in image_lines(4, seed=9, prefix="more")]
    broken = replace(more[0], id="broken", image=b"no image")
    done = adapt(str(base), corrected, tmp_path / "mine", QUICK, replay=image_lines(6), unlabelled=[broken, *more])
    assert done.kept
    assert done.after < done.before
    assert list(done.expected) == [16, 32, 64]
    assert sorted(done.expected.values(), reverse=True) == list(done.expected.values())
    assert sorted(done.next_lines) == [line.id for line in more]
    record = json.loads((tmp_path / "mine" / RECORD).read_text("utf-8"))
    assert record["after"] == done.after
    assert not (tmp_path / "mine" / "folds").exists()
    assert load_recognizer(tmp_path / "mine").symbols == load_recognizer(base).symbols  # type: ignore[attr-defined]


def test_a_new_character_is_learnt(base: Path, corrected: list[Line], tmp_path: Path) -> None:
    with_sign = [*corrected, *(replace(line, id=f"x{line.id}", text=f"{line.text}ꝑ") for line in corrected[:2])]
    done = adapt(str(base), with_sign, tmp_path / "mine", QUICK)
    assert done.new_characters == "ꝑ"
    if done.kept:
        assert "ꝑ" in load_recognizer(tmp_path / "mine").symbols  # type: ignore[attr-defined]


def test_what_harms_is_not_kept(base: Path, corrected: list[Line], tmp_path: Path) -> None:
    texts = load_recognizer(base).transcribe(corrected)
    known = [replace(line, text=text) for line, text in zip(corrected, texts, strict=True)]  # little is left to learn
    done = adapt(str(base), known, tmp_path / "mine", QUICK.model_copy(update={"learning_rate": 0.05}))
    assert not done.kept
    assert done.p_value < CHANCE
    old, new = load_recognizer(base), load_recognizer(tmp_path / "mine")
    assert new.transcribe(corrected) == old.transcribe(corrected)


def test_the_old_model_is_given_back_only_for_harm_beyond_chance_and_the_rest_is_told() -> None:
    texts, wrong = ["abcdefgh"] * 8, ["abcdefgx"] * 8

    def judged(before: list[str], after: list[str]) -> Adaptation:
        return Adaptation(**_judged(texts, before, after, 3))

    gain = judged(wrong, texts)
    assert (gain.kept, gain.verdict) == (True, "")
    same = judged(wrong, wrong)
    one_more = judged(wrong[:1] + texts[1:], wrong[:2] + texts[2:])
    for undecided in (same, one_more):
        assert undecided.kept
        assert "8 lines cannot tell whether that is a gain. The adapted model is kept" in undecided.verdict
    harm = judged(texts, wrong)
    assert not harm.kept
    assert harm.verdict.startswith("More errors, beyond chance: the model stays as it was.")
    strange = judged(["xxxxxxxx"] * 8, ["xxxxxxxh"] * 8)
    assert strange.kept
    assert strange.verdict == "The model reads these lines quite otherwise: check that each text is that of its image."


def test_lines_to_remember_by_come_with_the_model(base: Path, corrected: list[Line], tmp_path: Path) -> None:
    shutil.copytree(base, tmp_path / "base")
    write_parquet(image_lines(6), tmp_path / "base" / REPLAY)
    settings = QUICK.model_copy(update={"fewest_steps": 2})
    done = adapt(str(tmp_path / "base"), corrected, tmp_path / "mine", settings)
    assert done.replayed == 6
    assert (tmp_path / "mine" / REPLAY).read_bytes() == (tmp_path / "base" / REPLAY).read_bytes()


def test_the_adapted_model_carries_what_is_known(base: Path, corrected: list[Line], tmp_path: Path) -> None:
    settings = QUICK.model_copy(update={"fewest_steps": 2})
    known = Knowledge.from_texts([str(line.text) for line in corrected], name="letters, 2nd part")
    done = adapt(str(base), corrected, tmp_path / "mine", settings, knowledge=known)
    assert done.with_text is not None
    ((name, carried),) = knowledge_of_model(tmp_path / "mine").items()
    assert name == "letters-2nd-part"
    assert carried.characters == known.characters
    record = json.loads((tmp_path / "mine" / RECORD).read_text("utf-8"))
    assert record["knowledge"]["name"] == "letters, 2nd part"
    again = adapt(str(tmp_path / "mine"), corrected, tmp_path / "again", settings)
    assert again.with_text is None
    assert list(knowledge_of_model(tmp_path / "again")) == [name]


def test_the_adapted_model_carries_targets(base: Path, corrected: list[Line], tmp_path: Path) -> None:
    targets = TargetSet.from_texts({"mine": [str(line.text) for line in corrected]})
    settings = QUICK.model_copy(update={"fewest_steps": 2})
    done = adapt(str(base), corrected, tmp_path / "mine", settings, targets=targets)
    assert done.with_text is not None
    carried = Decoder.of_model(tmp_path / "mine")
    assert carried is not None
    assert carried.weights.guided
    assert carried.knowledge.targets is not None
    assert list(carried.knowledge.targets) == ["mine"]


@pytest.mark.parametrize("kind", ["trocr", "whisper"])
def test_other_kinds_of_models_adapt_by_the_same_command(kind: str, tmp_path: Path) -> None:
    folder = getattr(model_folders, f"{kind}_folder")(tmp_path / kind)
    lines = image_lines(6) if kind == "trocr" else sound_lines(6)
    write_parquet(lines, tmp_path / "lines.parquet")
    TargetSet.from_texts({"mine": [str(line.text) for line in lines]}).save(tmp_path / "targets.json")
    options = ("--folds", 2, "--epochs", 1, "--fewest-steps", 2, "--targets", tmp_path / "targets.json", "--threads", 1)
    run_fada("adapt", folder, "--lines", tmp_path / "lines.parquet", "--out", tmp_path / "mine", *options)
    assert json.loads((tmp_path / "mine" / RECORD).read_text("utf-8"))["lines"] == 6
    assert len(load_recognizer(tmp_path / "mine").transcribe(lines)) == 6


@pytest.mark.timeout(900)
def test_a_killed_adaptation_goes_on_and_ends_the_same(base: Path, corrected: list[Line], tmp_path: Path) -> None:
    write_parquet(corrected, tmp_path / "lines.parquet")
    command = ["adapt", str(base), "--folds", "2", "--lines", str(tmp_path / "lines.parquet"), "--epochs", "8"]
    command += ["--fewest-steps", "40", "--out"]
    run_fada(*command, tmp_path / "whole", "--threads", 1)
    killed = [*command, str(tmp_path / "killed"), "--threads", "2"]  # side by side: the same result
    job = subprocess.Popen([*FADA, *killed], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    first = tmp_path / "killed" / "folds" / "fold-0.pt"
    while job.poll() is None and not first.exists():
        time.sleep(0.05)
    job.send_signal(signal.SIGKILL)
    job.wait()
    if not (tmp_path / "killed" / RECORD).exists():  # it may have come to its end before the signal
        run_fada(*killed)
    records = [json.loads((tmp_path / name / RECORD).read_text("utf-8")) for name in ("whole", "killed")]
    assert {k: v for k, v in records[0].items() if k != "seconds"} == {
        k: v for k, v in records[1].items() if k != "seconds"
    }
    assert load_recognizer(tmp_path / "whole").transcribe(corrected) == load_recognizer(tmp_path / "killed").transcribe(
        corrected
    )


def test_an_adaptation_goes_on_when_the_full_disk_has_room_again(
    base: Path, corrected: list[Line], tmp_path: Path
) -> None:
    few = QUICK.model_copy(update={"fewest_steps": 2})
    with files_up_to(100_000), pytest.raises(OSError, match=r"No space left on device: '.*fold-0.pt'"):
        adapt(str(base), corrected, tmp_path / "adapted", few)
    found = adapt(str(base), corrected, tmp_path / "adapted", few)
    assert found.lines == len(corrected)
    assert not (tmp_path / "adapted" / "folds").exists()


def test_too_few_lines_and_a_folder_in_use_get_a_sentence(base: Path, corrected: list[Line], tmp_path: Path) -> None:
    with pytest.raises(FadaError, match="3 corrected lines, expected at least 5"):
        adapt(str(base), corrected[:3], tmp_path / "few")
    with pytest.raises(FadaError, match="already holds a model"):
        adapt(str(base), corrected, base)
    write_parquet(corrected[:3], tmp_path / "few.parquet")
    result = CliRunner().invoke(
        app, ["adapt", str(base), "--lines", str(tmp_path / "few.parquet"), "--out", str(tmp_path / "out")]
    )
    assert isinstance(result.exception, FadaError)


def test_what_cannot_be_learnt_from_is_told(base: Path, corrected: list[Line], tmp_path: Path) -> None:
    (tmp_path / "damaged.parquet").write_bytes(b"")
    write_parquet([replace(line, text=None) for line in corrected[:2]], tmp_path / "untold.parquet")
    told = {}
    for name in ("damaged", "untold"):
        command = ["adapt", str(base), "--lines", str(tmp_path / f"{name}.parquet"), "--out", str(tmp_path / "out")]
        told[name] = CliRunner().invoke(app, command).output
    assert "damaged.parquet" in told["damaged"]
    assert "2 lines without a text are left out" in told["untold"]


WRONG: dict[str, list[dict[str, Any]]] = {
    "whisper": [{"decoder_attention_heads": -1}, {"decoder_layers": 0}],
    "wav2vec2_with_alphabet": [{"num_attention_heads": 0}, {"num_hidden_layers": 0}],
}


@pytest.mark.parametrize("kind", WRONG)
def test_a_damaged_model_to_begin_with_is_a_sentence_and_nothing_is_lost(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sound = getattr(model_folders, f"{kind}_folder")(tmp_path / "sound")
    data, model, begun = sound_folder(tmp_path / "lines"), tmp_path / "model", tmp_path / "begun"
    adapting = ["adapt", "--lines", str(data / "train.parquet"), "--threads", "1", str(model)]
    adapting += ["--fewest-steps", "2", "--epochs", "1"]
    training = ["train", "--data", str(data), "--domain-column", "domain", "--epochs", "1", "--model", str(model)]
    shutil.copytree(sound, model)
    with monkeypatch.context() as patch:
        patch.setattr("fada.training.train._report", None)  # ends after the last epoch
        CliRunner().invoke(app, [*training, "--out", str(begun)])
    (checkpoint,) = (begun / "checkpoints").iterdir()
    whole = {file.name: file.read_bytes() for file in checkpoint.iterdir()}
    damages: list[tuple[str, Callable[[bytes], bytes]]] = [
        ("model.safetensors", lambda content: content[: len(content) // 2]),
        ("preprocessor_config.json", lambda content: content[: len(content) // 2]),
        *(("config.json", lambda c, wrong=wrong: json.dumps(json.loads(c) | wrong).encode()) for wrong in WRONG[kind]),
    ]
    for number, (name, damage) in enumerate(damages):
        (model / name).write_bytes(damage((sound / name).read_bytes()))
        commands = [(training, begun), (training, tmp_path / f"new{number}"), (adapting, tmp_path / f"adapted{number}")]
        for command, out in commands[: 1 if number == 3 else None]:  # a network without layers can be run
            resuming = ["--resume"] if command is training else []
            done = CliRunner().invoke(app, [*command, *resuming, "--out", str(out)])
            assert isinstance(done.exception, FadaError), (name, command, done.exception, done.output)
            assert str(model) in str(done.exception), (name, command)
            assert command is training or not out.exists()
        assert {file.name: file.read_bytes() for file in checkpoint.iterdir()} == whole
        shutil.copy(sound / name, model / name)
    done = CliRunner().invoke(app, [*training, "--resume", "--out", str(begun)])
    assert done.exit_code == 0, done.exception


def test_damaged_parts_of_an_adaptation_are_named(base: Path, corrected: list[Line], tmp_path: Path) -> None:
    begun = Adapting(str(base), corrected, tmp_path / "out", QUICK)
    begun.folds[0].stored.write_bytes(b"PK")
    with pytest.raises(FadaError, match=r"fold-0.pt: cannot be read .* Delete it"):
        begun.finish()
    (tmp_path / "out" / "folds" / "job.json").write_bytes(b"")
    with pytest.raises(FadaError, match=r"job\.json: not readable"):
        Adapting(str(base), corrected, tmp_path / "out", QUICK)
