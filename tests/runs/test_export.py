import json
from pathlib import Path
from typing import cast

import numpy as np
import pytest
from safetensors.numpy import load_file

from fada.data.source import read_lines
from fada.data.synthetic.set import make_synthetic
from fada.decoding.emissions import Emissions
from fada.decoding.knowledge import Decoder, Knowledge
from fada.decoding.weights import Weights
from fada.errors import FadaError
from fada.evaluation.edits import score_lines
from fada.models.ctc import CTCRecognizer
from fada.models.folders import DEFAULT_MODEL, PRETRAINED, resolve
from fada.models.registry import load_network, load_recognizer
from fada.runs.export import export
from fada.runs.run import load_run
from fada.training.settings import TrainSettings
from fada.training.train import train
from tests.support.commands import run_fada
from tests.support.disks import files_up_to
from tests.support.training_lines import drawn_line, image_folder
from tests.support.types import some


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run and the model folder made from it."""
    folder = tmp_path_factory.mktemp("export")
    data = image_folder(folder / "lines")
    settings = {
        "data": [str(data)],
        "model": "crnn:tiny",
        "lam": 1.0,
        "epochs": 2,
        "batch_size": 8,
        "out": folder / "run",
    }
    train(TrainSettings.of(settings))
    (folder / "credits.md").write_text("Letters by *Pillow*.", encoding="utf-8")
    done = run_fada(
        "export", folder / "run", "--out", folder / "model", "--title", "Letters", "--licence", "CC BY 4.0",
        "--credits", folder / "credits.md", "--order", 3, "--beam", 4,
    )  # fmt: skip
    assert "MiB" in done.output
    return folder


def test_the_weights_are_stored_in_half_precision_and_read_in_full(exported: Path) -> None:
    stored = load_file(exported / "model" / "model.safetensors")
    assert {str(array.dtype) for array in stored.values()} == {"float16"}
    assert str(load_network(exported / "model").model.dtype) == "torch.float32"


def test_half_precision_changes_the_emissions_little(exported: Path) -> None:
    lines = list(read_lines(exported / "lines" / "test.parquet"))
    before = cast(CTCRecognizer, load_run(exported / "run").recognizer).emit(lines)
    after = cast(CTCRecognizer, load_recognizer(exported / "model")).emit(lines)
    for a, b in zip(before.log_probs, after.log_probs, strict=True):
        np.testing.assert_allclose(np.exp(a), np.exp(b), atol=0.05)


def test_the_card_has_error_rates_settings_licence_and_credits(exported: Path) -> None:
    card = (exported / "model" / "README.md").read_text(encoding="utf-8")
    assert card.startswith("---\nlicense: cc-by-4.0")
    for part in ("# Letters", "|  | new | old | all |", "24 training lines", "Letters by *Pillow*."):
        assert part in card


def test_transcribing_takes_the_stored_decoder_unless_told_otherwise(exported: Path, tmp_path: Path) -> None:
    image = tmp_path / "line.png"
    drawn_line("abca").save(image)
    weights = some(Decoder.of_model(exported / "model")).weights
    assert weights.beam == 4
    assert weights.lm == "domain"
    run_fada("transcribe", exported / "model", image, "--out", tmp_path / "out.jsonl")
    run_fada("transcribe", exported / "model", image, "--lam", 1, "--beam", 3, "--out", tmp_path / "plain.jsonl")
    found = [json.loads((tmp_path / name).read_text(encoding="utf-8")) for name in ("out.jsonl", "plain.jsonl")]
    assert found[0]["score"] != found[1]["score"]


def test_without_an_output_the_text_is_printed(exported: Path, tmp_path: Path) -> None:
    image = tmp_path / "line.png"
    drawn_line("abca").save(image)
    done = run_fada("transcribe", exported / "model", image)
    assert "1 line transcribed" in done.stderr
    assert "transcribed" not in done.stdout


def test_the_built_in_model_is_used_when_none_is_given(tmp_path: Path) -> None:
    image = tmp_path / "line.png"
    drawn_line("le roi").save(image)
    done = run_fada("transcribe", image)
    assert f"model: {DEFAULT_MODEL} (built in" in done.stderr
    assert resolve(DEFAULT_MODEL) == PRETRAINED / DEFAULT_MODEL


@pytest.mark.parametrize(("model", "columns"), [("medieval", "| es-13 | es-14 |"), ("french", "| 13 | 14 | 15 | 16 |")])
def test_a_built_in_model_is_small_and_says_what_it_is(model: str, columns: str) -> None:
    files = [path for path in (PRETRAINED / model).rglob("*") if path.is_file()]
    assert sum(path.stat().st_size for path in files) < 12 * 10**6
    card = (PRETRAINED / model / "README.md").read_text(encoding="utf-8")
    for part in ("license: cc-by-4.0", "Pinche", "HTRomance", "Gallic(orpor)a", columns):
        assert part in card


def test_the_small_trocr_reads_synthetic_lines_in_hands_it_has_not_seen(tmp_path: Path) -> None:
    make_synthetic(lines=24, domains=2, height=40, seed=7).save(tmp_path)
    lines = [line for name in ("train", "test") for line in read_lines(tmp_path / f"{name}.parquet")]
    texts = load_recognizer("trocr-greek").transcribe(lines)
    scores = score_lines([str(line.text) for line in lines], texts)
    assert scores.edits.sum() < 0.1 * scores.characters.sum()


def test_a_model_without_inputs_and_missing_inputs_are_named(exported: Path) -> None:
    assert "nothing to transcribe" in run_failing("transcribe", exported / "model")
    assert "missing.png" in run_failing("transcribe", "missing.png")


def run_failing(*arguments: object) -> str:
    with pytest.raises(FadaError) as caught:
        run_fada(*arguments)
    return str(caught.value)


def test_a_folder_that_is_not_empty_is_not_written_over(exported: Path) -> None:
    with pytest.raises(FadaError, match="not empty"):
        export(exported / "run", exported / "model")


def test_a_full_disk_leaves_no_half_of_a_model_folder(exported: Path, tmp_path: Path) -> None:
    with files_up_to(50_000), pytest.raises(OSError, match=r"No space left on device: '.*model'"):
        export(exported / "run", tmp_path / "model", order=3, beam=1)
    assert list(tmp_path.iterdir()) == []


def test_others_may_read_the_weights_of_a_model_as_its_other_files(exported: Path) -> None:
    modes = {path.stat().st_mode for path in (exported / "model").iterdir() if path.is_file()}
    assert len(modes) == 1


def test_knowledge_is_the_same_after_saving_and_loading(tmp_path: Path) -> None:
    texts = {"13": ["le roi marc", "la reine"], "14/a": ["li rois dist", "au roi"]}
    knowledge = Knowledge.from_texts(texts, order=4, share=0.3, smoothing="kneser-ney")
    knowledge.save(tmp_path)
    loaded = Knowledge.load(tmp_path)
    assert loaded.fingerprint() == knowledge.fingerprint()
    assert (loaded.lm_order, loaded.lm_share) == (4, 0.3)
    for domain in (*texts, None):
        model, again = some(knowledge.lm_of("domain", domain)), some(loaded.lm_of("domain", domain))
        assert again.log_prob("li roi dist") == pytest.approx(model.log_prob("li roi dist"))


def test_a_model_that_was_not_exported_has_no_decoder(tmp_path: Path) -> None:
    assert Decoder.of_model(tmp_path) is None
    assert Knowledge.load(tmp_path).targets is None


def test_a_model_with_a_decoder_network_is_exported_without_a_tuned_one(tmp_path: Path) -> None:
    data = image_folder(tmp_path / "lines")
    settings = {"data": [str(data)], "model": "trocr-tiny", "epochs": 1, "max_lines": 4, "beam_size": 1}
    train(TrainSettings.of({**settings, "out": tmp_path / "run"}))
    run_fada("export", tmp_path / "run", "--out", tmp_path / "model", "--title", "Reader")
    assert Decoder.of_model(tmp_path / "model") is None
    card = (tmp_path / "model" / "README.md").read_text(encoding="utf-8")
    assert "# Reader" in card
    assert "| greedy |" in card
    loaded = load_network(tmp_path / "model")
    assert str(loaded.model.dtype) == "torch.float32"
    again = {**settings, "model": str(tmp_path / "model"), "out": tmp_path / "further"}
    assert train(TrainSettings.of(again)).metrics["seconds"] > 0


def test_run_folders_with_broken_files_are_named(tmp_path: Path) -> None:
    (tmp_path / "predictions.parquet").write_bytes(b"")
    (tmp_path / "config.json").write_text("{", encoding="utf-8")
    assert "config.json: not readable as JSON" in run_failing("export", tmp_path, "--out", tmp_path / "model")
    with pytest.raises(FadaError, match="not a readable parquet file"):
        _ = load_run(tmp_path).predictions


def test_runs_that_have_not_finished_are_refused(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{}", encoding="utf-8")
    with pytest.raises(FadaError, match="no predictions"):
        export(tmp_path, tmp_path / "model")


def test_the_stored_weights_decode_as_they_were_tuned(exported: Path) -> None:
    decoder = some(Decoder.of_model(exported / "model"))
    emissions = Emissions.load(exported / "run" / "emissions" / "test.npz")
    from fada.decoding.search import BeamSearch

    texts = BeamSearch(emissions, decoder.knowledge).choose(decoder.weights)
    assert len(texts) == 6
    assert isinstance(decoder.weights, Weights)
