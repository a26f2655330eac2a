import json
import os
import re
import shutil
import signal
import subprocess
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from lxml import etree
from PIL import Image
from rich.progress import Progress
from typer.testing import CliRunner, Result

import fada
from fada.cli import app
from fada.data.line import Line
from fada.data.source import read_lines
from fada.decoding.emissions import Emissions
from fada.decoding.guidance import Guidance
from fada.decoding.knowledge import Decoder, Knowledge
from fada.decoding.search import BeamSearch
from fada.decoding.weights import Weights
from fada.errors import FadaError
from fada.jobs.emit import emit
from fada.jobs.journal import Journal
from fada.models.crnn import CRNNRecognizer
from fada.models.whisper import WhisperRecognizer
from fada.targets.target_set import TargetSet
from fada.tuning.tuned import Tuned
from tests.support import xml_pages
from tests.support.commands import FADA
from tests.support.jobs import transcribe
from tests.support.model_folders import whisper_folder
from tests.support.types import some

TEXTS = {"13": ["le roi marc", "la reine dit"], "14": ["li rois dist", "au roi artus"]}


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An untrained C-RNN, large enough to write something."""
    folder = tmp_path_factory.mktemp("model")
    CRNNRecognizer.build([text for lines in TEXTS.values() for text in lines], "tiny").save_pretrained(folder)
    return folder


@pytest.fixture
def lines(tmp_path: Path) -> Path:
    folder = tmp_path / "lines"
    rng = np.random.default_rng(0)
    for century in TEXTS:
        (folder / century).mkdir(parents=True)
        for i in range(3):
            pixels = rng.integers(0, 255, (40, 120 + 10 * i), dtype=np.uint8)
            Image.fromarray(pixels).save(folder / century / f"{century}_{i}.png")
    return folder


def run(*arguments: object) -> Result:
    return CliRunner().invoke(app, [str(a) for a in arguments], catch_exceptions=False)


def rows_of(path: Path) -> Any:
    header, *rows = path.read_text(encoding="utf-8").splitlines()
    return [dict(zip(header.split("\t"), row.split("\t"), strict=True)) for row in rows]


def test_every_line_is_transcribed_and_the_score_is_eq_2(model: Path, lines: Path, tmp_path: Path) -> None:
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
        assert row["score"] == pytest.approx(0.4 * row["log_prob"] - 0.6 * row["distance"], abs=2e-4)
        assert row["distance"] == pytest.approx(Guidance(targets[row["domain"]]).distance_of(row["text"]), abs=1e-6)
    assert not list(tmp_path.glob(".*journal"))


@pytest.mark.parametrize("name", ["out.hocr", "out.pdf", "out.tei.xml", "out.alto.xml", "out.page.xml"])
def test_a_page_becomes_what_the_ending_says_with_the_place_of_every_word(
    model: Path, tmp_path: Path, name: str
) -> None:
    page = xml_pages.write_example(tmp_path / "in", "page2019")
    out = tmp_path / name
    done = run("transcribe", model, page, "--out", out, "--beam", 1)
    assert done.exit_code == 0, done.output
    assert run("transcribe", model, page, "--out", tmp_path / "out.jsonl", "--beam", 1).exit_code == 0
    rows = [json.loads(line) for line in (tmp_path / "out.jsonl").read_text(encoding="utf-8").splitlines()]
    assert any(row["text"].strip() for row in rows)
    words = [word for row in rows for word in row["text"].split()]
    assert all(len(row["edges"]) == len(row["text"]) + 1 or not row["text"] for row in rows)
    if name == "out.pdf":
        assert out.read_bytes().startswith(b"%PDF")
    elif name == "out.tei.xml":
        assert [word for one in etree.parse(out).iter("{*}lb") for word in one.tail.split()] == words
    else:
        found = [one for one in etree.parse(out).iter() if etree.QName(one).localname in ("String", "Word")]
        found = found or etree.parse(out).findall(".//{*}span[@class='ocrx_word']")
        assert len(found) == len(words)


@pytest.mark.parametrize("device", ["auto", "cpu"])
def test_a_device_is_chosen_or_refused_before_the_work(model: Path, lines: Path, tmp_path: Path, device: str) -> None:
    assert run("transcribe", model, lines, "--out", tmp_path / "a.tsv", "--device", device).exit_code == 0
    with pytest.raises(FadaError, match="--device cuda:99: torch cannot use it"):
        run("transcribe", model, lines, "--out", tmp_path / "b.tsv", "--device", "cuda:99")
    assert not (tmp_path / "b.tsv").exists()


def test_domains_without_a_target_are_told_before_the_work(model: Path, lines: Path, tmp_path: Path) -> None:
    TargetSet.from_texts({"13": TEXTS["13"]}).save(tmp_path / "targets.json")
    options = ("--targets", tmp_path / "targets.json", "--domain-from", "folder", "--out", tmp_path / "a.tsv")
    done = run("transcribe", model, lines, *options)
    assert done.exit_code == 0
    first = done.output.splitlines()[0]
    assert first.startswith("no target for 14 in ")
    assert "(known: 13)" in done.output.replace("\n", " ")


def test_words_join_what_is_found_out_of_a_document(model: Path, lines: Path, tmp_path: Path) -> None:
    (tmp_path / "text.txt").write_text("le roi marc\nla reine dit\n" * 20, encoding="utf-8")
    own = ("--text", tmp_path / "text.txt", "--hot-word", "artus", "--words-share", 0.6)
    outputs = []
    for name, options in {"a": own, "b": own[:2]}.items():
        done = run("transcribe", model, lines, "--out", tmp_path / f"{name}.jsonl", *options)
        assert done.exit_code == 0, done.output
        outputs.append([json.loads(row)["score"] for row in (tmp_path / f"{name}.jsonl").read_text().splitlines()])
    assert outputs[0] != outputs[1]
    with pytest.raises(FadaError, match="each is a language model"):
        run("transcribe", model, lines, "--out", tmp_path / "c.tsv", *own, "--lm", tmp_path / "lm.npz")


def test_words_and_a_language_model_of_ones_own_take_part(model: Path, lines: Path, tmp_path: Path) -> None:
    fada.CharNgram.train(["le roi", "la reine"], order=3).save(tmp_path / "lm.npz")
    (tmp_path / "names.txt").write_text("roi\n", encoding="utf-8")
    own = ("--lm", tmp_path / "lm.npz", "--lm-weight", 0.7, "--hot-word", "artus", "--words", tmp_path / "names.txt")
    done = run("transcribe", model, lines, "--out", tmp_path / "out.tsv", *own)
    assert done.exit_code == 0, done.output
    record = json.loads((tmp_path / "out.tsv.provenance.json").read_text(encoding="utf-8"))
    assert (record["lm"], record["lm_weight"]) == ("global", "0.7")
    assert record["knowledge"] == "3-gram language model"
    assert record["language_model"] == str(tmp_path / "lm.npz")
    assert (record["words"], record["hot_words"]) == (str(tmp_path / "names.txt"), "artus")
    with pytest.raises(FadaError, match="--lm-weight without a language model"):
        run("transcribe", model, lines, "--out", tmp_path / "b.tsv", "--lm-weight", 1)


@pytest.mark.parametrize("place", [".", "file.txt/e.npz"])
def test_emitting_refuses_its_output_before_the_model_is_opened(lines: Path, tmp_path: Path, place: str) -> None:
    (tmp_path / "file.txt").write_text("a file", encoding="utf-8")
    with pytest.raises(FadaError, match=r"a folder is here|is a file, expected a folder"):
        run("emit", tmp_path / "no model", lines, "--out", tmp_path / place)


def test_transcribing_equals_emitting_then_decoding(model: Path, lines: Path, tmp_path: Path) -> None:
    out = tmp_path / "out.tsv"
    assert run("transcribe", model, lines, "--out", out, "--beam", 7).exit_code == 0
    assert run("emit", model, lines, "--out", tmp_path / "e.npz", "--batch-size", 1).exit_code == 0
    emissions = Emissions.load(tmp_path / "e.npz")
    texts = dict(zip(emissions.ids, BeamSearch(emissions).choose(Weights(beam=7)), strict=True))
    assert {row["id"]: row["text"] for row in rows_of(out)} == texts


def test_a_broken_image_is_reported_and_the_others_are_kept(model: Path, lines: Path, tmp_path: Path) -> None:
    (lines / "13" / "13_1.png").write_bytes(b"not an image")
    done = run("transcribe", model, lines, "--out", tmp_path / "out.tsv")
    assert done.exit_code == 0
    assert re.search(r"5 lines transcribed \(\d+\.\d lines/s\)", done.output)
    assert "1 failed" in done.output
    assert "13_1.png" in done.output
    assert len(rows_of(tmp_path / "out.tsv")) == 5
    assert len(emit(CRNNRecognizer.load(model), read_lines(lines), tmp_path / "e.npz").failed) == 1


def test_images_without_ground_truth_are_read_too(model: Path, lines: Path, tmp_path: Path) -> None:
    (lines / "13" / "13_1.gt.txt").write_text("le roi", encoding="utf-8")
    assert run("transcribe", model, lines, "--out", tmp_path / "out.tsv").exit_code == 0
    assert len(rows_of(tmp_path / "out.tsv")) == 6
    done = run("emit", model, lines, "--out", tmp_path / "e.npz")
    assert "6 lines emitted, 0 failed" in done.output
    assert "1 lines have a transcription, but not all" in done.output
    assert Emissions.load(tmp_path / "e.npz").references is None
    assert run("emit", model, lines / "13" / "13_1.gt.txt", "--out", tmp_path / "one.npz").exit_code == 0
    assert Emissions.load(tmp_path / "one.npz").references == ["le roi"]


def test_a_whole_page_is_told_from_a_line(model: Path, lines: Path, tmp_path: Path) -> None:
    Image.new("L", (800, 1100), 230).save(lines / "page.png")
    Image.new("L", (2000, 400), 230).save(lines / "large_line.png")
    done = run("transcribe", model, lines, "--out", tmp_path / "out.tsv")
    assert done.exit_code == 0
    assert done.output.count("page.png: no text found on this page.") == 1
    assert "large_line.png: no text" not in done.output
    rows = (tmp_path / "out.tsv").read_text("utf-8").splitlines()
    assert any(row.startswith("large_line\t") for row in rows)
    assert not any(row.startswith("page\t") for row in rows)


def test_options_hold_over_stored_and_tuned_weights(model: Path, lines: Path, tmp_path: Path) -> None:
    knowledge = Knowledge.from_texts(TEXTS, order=3)
    plain = Tuned(weights=Weights(beam=4, lm="global", lm_weight=0.3))
    guided = Tuned(weights=Weights(beam=4, lam=0.6, scale=30))
    for name, tuned in (("plain", plain), ("guided", guided)):
        shutil.copytree(model, tmp_path / name)
        Decoder(tuned.weights, knowledge).save(tmp_path / name)
    guided.save(tmp_path / "tuned.json")
    some(knowledge.targets).save(tmp_path / "targets.json")
    recognizer = CRNNRecognizer.load(model)
    recognizer.use_looks("auto")
    emissions = recognizer.emit(list(read_lines(lines, domain_from="folder")), batch_size=1)
    from_file: list[object] = ["--tuned", tmp_path / "tuned.json", "--targets", tmp_path / "targets.json"]
    cases: list[tuple[Path, list[object], Weights]] = [
        (tmp_path / "plain", [], plain.weights),
        (tmp_path / "plain", ["--beam", 1], plain.weights.change(beam=1)),
        (tmp_path / "guided", ["--distance", "aligned_w2"], guided.weights.change(distance="aligned_w2")),
        (tmp_path / "guided", ["--scale", 50], guided.weights.change(scale=50)),
        (model, [*from_file, "--beam", 1, "--lam", 0.2], guided.weights.change(beam=1, lam=0.2)),
    ]
    for number, (folder, options, weights) in enumerate(cases):
        out = tmp_path / f"{number}.jsonl"
        done = run("transcribe", folder, lines, "--domain-from", "folder", *options, "--out", out, "--batch-size", 1)
        assert done.exit_code == 0, done.output
        scores = [json.loads(row)["score"] for row in out.read_text(encoding="utf-8").splitlines()]
        expected = [best.score for best in BeamSearch(emissions, knowledge).hypotheses(weights)]
        assert scores == pytest.approx(expected, abs=1e-4), options
    refused: list[tuple[list[object], str]] = [
        (["--distance", "js"], "--distance without effect"),
        (["--scale", 3, "--distance", "js"], "--scale and --distance without effect"),
        (["--lm-text", tmp_path / "x.txt"], "no such file"),
    ]
    for options, message in refused:
        with pytest.raises(FadaError, match=message):
            run("transcribe", tmp_path / "plain", lines, *options)


def test_targets_are_added_to_the_stored_decoder_and_it_is_said(model: Path, lines: Path, tmp_path: Path) -> None:
    knowledge = Knowledge.from_texts(TEXTS, order=3)
    stored = Weights(beam=4, lm="global", lm_weight=0.4, length_bonus=0.2)
    shutil.copytree(model, tmp_path / "with")
    Decoder(stored, knowledge).save(tmp_path / "with")
    targets = TargetSet.from_texts({"13": ["la la la"], "14": ["mi mi mi"]})
    targets.save(tmp_path / "targets.json")
    out = tmp_path / "out.jsonl"
    options = ["--domain-from", "folder", "--targets", tmp_path / "targets.json", "--out", out]
    done = run("transcribe", tmp_path / "with", lines, *options)
    assert "the decoder stored with the model stays" in done.output
    weights = Weights(beam=4, lm="global", lm_weight=0.2, length_bonus=0.1, lam=0.5)
    recognizer = CRNNRecognizer.load(model)
    recognizer.use_looks("auto")
    emissions = recognizer.emit(list(read_lines(lines, domain_from="folder")))
    expected = BeamSearch(emissions, replace(knowledge, targets=targets)).hypotheses(weights)
    scores = [json.loads(row)["score"] for row in out.read_text(encoding="utf-8").splitlines()]
    assert scores == pytest.approx([best.score for best in expected], abs=1e-4)
    told = json.loads((tmp_path / "out.jsonl.provenance.json").read_text(encoding="utf-8"))
    assert (told["domains"], told["lm"], told["lambda"]) == ("13, 14", "global", "0.5")
    assert "3-gram" in told["knowledge"]
    without = run("transcribe", tmp_path / "with", lines, "--lam", 1, "--out", tmp_path / "plain.tsv")
    assert "--lam replaces the decoder stored with the model" in without.output


def test_one_line_is_read_as_the_command_line_reads_it(model: Path, lines: Path, tmp_path: Path) -> None:
    shutil.copytree(model, tmp_path / "with")
    Decoder(Weights(beam=4, lm="global", lm_weight=0.4), Knowledge.from_texts(TEXTS, order=3)).save(tmp_path / "with")
    image = sorted(lines.rglob("*.png"))[0]
    assert run("transcribe", tmp_path / "with", image, "--out", tmp_path / "out.tsv").exit_code == 0
    expected = rows_of(tmp_path / "out.tsv")[0]["text"]
    recognizer = fada.load_recognizer(tmp_path / "with")
    recognizer.use_looks("auto")
    pixels = Image.open(image)
    for one in (image, str(image), image.read_bytes(), pixels, np.asarray(pixels), Line("x", image=image)):
        assert recognizer.transcribe(one) == expected
    assert recognizer.transcribe([image, pixels]) == [expected, expected]


def test_weights_that_only_ctc_models_have_are_refused_for_others(lines: Path, tmp_path: Path) -> None:
    Tuned(weights=Weights(length_bonus=0.5)).save(tmp_path / "tuned.json")
    with pytest.raises(FadaError, match="length_bonus, which a model of this kind"):
        run("transcribe", "trocr-greek", lines, "--tuned", tmp_path / "tuned.json", "--out", tmp_path / "out.tsv")


def test_a_manifest_column_chooses_the_target(model: Path, lines: Path, tmp_path: Path) -> None:
    TargetSet.from_texts(TEXTS).save(tmp_path / "targets.json")
    images = sorted(lines.rglob("*.png"))
    rows = [f"{path.relative_to(tmp_path).as_posix()},{path.parent.name}" for path in images]
    (tmp_path / "m.csv").write_text("\n".join(["image,period", *rows]) + "\n", encoding="utf-8")
    options = ["--targets", tmp_path / "targets.json", "--lam", 0.1, "--scale", 20]
    outputs = []
    for name, *source in [
        ("column", tmp_path / "m.csv", "--domain-column", "period"),
        ("folder", lines, "--domain-from", "folder"),
    ]:
        out = tmp_path / f"{name}.jsonl"
        assert run("transcribe", model, *source, *options, "--out", out).exit_code == 0
        found = [json.loads(row) for row in out.read_text(encoding="utf-8").splitlines()]
        outputs.append([(row["text"], row["domain"], row["score"]) for row in found])
    assert outputs[0] == outputs[1]
    done = run("transcribe", model, images[0], "--domain", "14th", *options, "--out", tmp_path / "typo.jsonl")
    assert "no target for 14th" in done.output


@pytest.mark.parametrize("name", ["alto4", "page2019"])
def test_the_lines_of_a_page_are_written_into_a_copy_of_it(model: Path, tmp_path: Path, name: str) -> None:
    page = xml_pages.write_example(tmp_path / "in", name)
    before = page.read_bytes()
    assert run("transcribe", model, page, "--out", tmp_path / "rows.jsonl").exit_code == 0
    assert run("transcribe", model, page, "--out", tmp_path / "copy").exit_code == 0
    rows = [json.loads(row) for row in (tmp_path / "rows.jsonl").read_text(encoding="utf-8").splitlines()]
    written = {line.id: line.text or "" for line in read_lines(tmp_path / "copy", images=tmp_path / "in")}
    assert rows
    for row in rows:
        assert written[row["id"]].split() == row["text"].split()
    assert page.read_bytes() == before


def test_sound_is_transcribed_with_guided_whisper(tmp_path: Path) -> None:
    soundfile = pytest.importorskip("soundfile")
    folder = whisper_folder(tmp_path / "whisper")
    WhisperRecognizer.load(folder, max_seconds=2).save_pretrained(folder)
    (tmp_path / "sounds").mkdir()
    for i in range(2):
        soundfile.write(tmp_path / "sounds" / f"{i}.wav", np.sin(np.arange(16000) * (i + 1) / 9), 16000)
    targets = TargetSet.from_texts({"us": ["hello there"]})
    targets.save(tmp_path / "targets.json")
    out = tmp_path / "out.jsonl"
    options = ["--targets", tmp_path / "targets.json", "--domain", "us", "--lam", 0.3, "--scale", 5, "--beam", 2]
    done = run("transcribe", folder, tmp_path / "sounds", *options, "--out", out)
    assert done.exit_code == 0, done.output
    rows = [json.loads(row) for row in out.read_text(encoding="utf-8").splitlines()]
    assert len(rows) == 2
    for row in rows:
        assert row["score"] == pytest.approx(0.3 * row["log_prob"] - 0.7 * 5 * row["distance"], abs=1e-4)


def test_progress_shows_lines_per_second(
    model: Path, lines: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shown = []
    monkeypatch.setattr(Progress, "update", lambda self, task, **values: shown.append(values["description"]))
    transcribe(CRNNRecognizer.load(model), read_lines(lines), tmp_path / "out.tsv", batch_size=4)
    assert len(shown) == 2
    assert all(re.fullmatch(r"transcribing, \d+\.\d lines/s", text) for text in shown)


def test_nothing_but_broken_images_is_the_users_mistake(model: Path, tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "x.png").write_bytes(b"")
    failed = run("transcribe", model, tmp_path / "in", "--out", tmp_path / "out.tsv")
    assert failed.exit_code == 2
    assert failed.stderr.count("x.png") == 1, "names are not doubled"


def test_what_is_wrong_with_many_files_is_told_once(model: Path, tmp_path: Path) -> None:
    (tmp_path / "scans").mkdir()
    for number in range(12):
        (tmp_path / f"scans/{number}.png").touch()
    done = run("transcribe", model, tmp_path / "scans", "--out", tmp_path / "out.tsv")
    assert done.exit_code == 2
    assert "  0.png, 1.png, 2.png, 3.png, " in done.output
    assert ", 9.png and 2 more: the image is empty (0 bytes)" in done.output
    assert done.output.count("0 bytes") == 1


def test_a_model_folder_without_its_configuration_is_not_taken_for_lines(tmp_path: Path) -> None:
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "model.safetensors").write_bytes(b"")
    with pytest.raises(FadaError, match=r"weights of a model without its config\.json"):
        app(["transcribe", str(tmp_path / "model"), str(tmp_path)], standalone_mode=False)


def test_standard_output_gets_the_text_and_nothing_is_beside_it(model: Path, lines: Path, tmp_path: Path) -> None:
    assert run("transcribe", model, lines, "--out", tmp_path / "out.tsv").exit_code == 0
    command = [*FADA, "transcribe", str(model), str(lines), "-o", "/dev/stdout", "--format", "tsv"]
    with (tmp_path / "streamed.tsv").open("wb") as stream:
        subprocess.run(command, stdout=stream, check=True)
    assert (tmp_path / "streamed.tsv").read_bytes() == (tmp_path / "out.tsv").read_bytes()
    assert [name for name in os.listdir("/dev") if "stdout" in name] == ["stdout"]


def test_a_killed_job_goes_on_where_it_stopped_and_gives_the_same_file(
    model: Path, lines: Path, tmp_path: Path
) -> None:
    whole, out = tmp_path / "whole.tsv", tmp_path / "out.tsv"
    assert run("transcribe", model, lines, "--out", whole).exit_code == 0
    journal = tmp_path / ".out.tsv.journal"
    process = subprocess.Popen(
        [*FADA, "transcribe", model, lines, "--out", out, "--batch-size", "1"],
        env={**os.environ, "OMP_NUM_THREADS": "1"}, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    while process.poll() is None:
        if journal.exists() and journal.read_bytes().count(b"\n") > 2:
            process.send_signal(signal.SIGKILL)
        time.sleep(0.001)
    if journal.exists():  # on a busy machine the job may have ended before the kill fell
        with journal.open("a") as stream:
            stream.write('{"id": "half a li')
        done = run("transcribe", model, lines, "--out", out, "--batch-size", 1)
        assert "already done" in done.output
    assert out.read_text(encoding="utf-8") == whole.read_text(encoding="utf-8")
    assert not journal.exists()


def test_an_interrupted_job_redoes_no_line_and_loses_none(
    model: Path, lines: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    recognizer = CRNNRecognizer.load(model)
    emitted: list[str] = []
    emit_all = recognizer.emit

    def emit_three(batch: Any, **options: Any) -> Any:
        if len(emitted) == 3:
            raise KeyboardInterrupt
        return emit_and_note(batch, **options)

    def emit_and_note(batch: Any, **options: Any) -> Any:
        emitted.extend(line.id for line in batch)
        return emit_all(batch, **options)

    out = tmp_path / "out.tsv"
    monkeypatch.setattr(recognizer, "emit", emit_three)
    with pytest.raises(KeyboardInterrupt):
        transcribe(recognizer, read_lines(lines), out, batch_size=1)
    assert not out.exists()
    monkeypatch.setattr(recognizer, "emit", emit_and_note)
    summary = transcribe(recognizer, read_lines(lines), out, batch_size=1)
    assert (summary.transcribed, summary.resumed) == (6, 3)
    assert sorted(emitted) == sorted(line.id for line in read_lines(lines))


def test_an_unfinished_job_with_other_settings_is_not_mixed_in(model: Path, lines: Path, tmp_path: Path) -> None:
    out = tmp_path / "out.tsv"
    with Journal(tmp_path / ".out.tsv.journal", {"model": "another"}):
        pass
    recognizer = CRNNRecognizer.load(model)
    with pytest.raises(FadaError, match="--restart"):
        transcribe(recognizer, read_lines(lines), out)
    assert transcribe(recognizer, read_lines(lines), out, restart=True).transcribed == 6


def test_guidance_without_targets_is_refused(model: Path, lines: Path, tmp_path: Path) -> None:
    with pytest.raises(FadaError, match="--targets"):
        run("transcribe", model, lines, "--lam", 0.3, "--out", tmp_path / "out.tsv")


def test_copies_keep_their_place_in_the_source_and_fit_it(model: Path, tmp_path: Path) -> None:
    export = xml_pages.write_transkribus(tmp_path / "tr")
    before = {file: file.read_bytes() for file in export.rglob("*.*")}
    done = run("transcribe", model, export, "--out", tmp_path / "out")
    assert done.exit_code == 0, done.output
    assert "files without text lines, copied as they are: 1" in done.output
    assert sorted(file.name for file in (tmp_path / "out" / "page").iterdir()) == ["p1.xml", "p2.xml"]
    assert (tmp_path / "out" / "page" / "p2.xml").read_bytes() == before[export / "page" / "p2.xml"]
    evaluated = run("evaluate", export, tmp_path / "out", "--json", "--bootstrap", 0)
    assert evaluated.exit_code == 0, evaluated.output
    assert json.loads(evaluated.stdout)["evaluations"]["out"]["lines"] == 2
    one = export / "page" / "p1.xml"
    assert run("transcribe", model, one, "--out", tmp_path / "one").exit_code == 0
    assert (tmp_path / "one" / "page" / "p1.xml").exists()
    for out, source in ((export, export), (export / "page", export), (export / "copy", export), (export, one.parent)):
        with pytest.raises(FadaError, match=r"source itself|lies in the source|never overwritten"):
            run("transcribe", model, source, "--images", export, "--out", out)
    with pytest.raises(FadaError, match="never overwritten"):
        run("transcribe", model, one, "--out", export, "--format", "pairs")
    assert {file: file.read_bytes() for file in export.rglob("*.*")} == before


def test_an_output_is_replaced_until_it_is_changed_by_hand(model: Path, lines: Path, tmp_path: Path) -> None:
    command = ["transcribe", model, lines, "--out", tmp_path / "out", "--format", "pairs"]
    assert run(*command).exit_code == 0
    assert run(*command).exit_code == 0
    text = next((tmp_path / "out").rglob("*.gt.txt"))
    text.write_text("corrected", encoding="utf-8")
    with pytest.raises(FadaError, match=f"changed since .{text.name}"):
        run(*command)
    assert text.read_text(encoding="utf-8") == "corrected"


def test_a_page_in_another_script_is_told_first(tmp_path: Path) -> None:
    page = xml_pages.write_example(tmp_path / "pages", "page2019")
    greek = (
        page.read_text(encoding="utf-8").replace(">a<", ">μ<").replace(">b<", ">ῆ<").replace(">bëtter<", ">Πηληϊάδεω<")
    )
    page.write_text(greek, encoding="utf-8")
    TargetSet.from_texts({"8": ["μῆνιν ἄειδε θεὰ", "Πηληϊάδεω Ἀχιλῆος"]}).save(tmp_path / "targets.json")
    told = run("transcribe", "french", page.parent, "--targets", tmp_path / "targets.json", "--out", tmp_path / "out")
    assert told.exit_code == 0, told.output
    text, targets, confidence, *_ = [line.strip() for line in told.output.splitlines() if line.startswith("  ")]
    found = r"9\d% of the characters of {} \(\w \w \w \w \w\) are none that the model can write: choose {}"
    assert re.match(found.format("the text that these files came with", "a model of their script"), text)
    assert re.match(found.format("the targets", "targets of the model's script"), targets)
    assert confidence.startswith("mean confidence 0.")


def test_a_page_in_the_script_of_the_model_gets_no_such_word(tmp_path: Path) -> None:
    page = xml_pages.write_example(tmp_path / "pages", "page2019")
    summary = transcribe(fada.load_recognizer("french"), read_lines(page.parent), tmp_path / "out")
    assert not [note for note in summary.notes if "can write" in note]


def test_lines_that_a_model_is_not_sure_of_are_told(model: Path, lines: Path, tmp_path: Path) -> None:
    [note] = transcribe(fada.load_recognizer(model), read_lines(lines), tmp_path / "out.tsv").notes
    assert re.match(r"mean confidence 0\.\d\d: the model hardly reads these lines; look at some", note)
