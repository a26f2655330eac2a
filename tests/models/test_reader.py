"""The C-RNN without torch reads what it reads with it."""

import json
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from fada.data.images import pad_batch
from fada.data.line import Line
from fada.errors import FadaError
from fada.models.crnn import CRNNRecognizer
from fada.models.folders import PRETRAINED
from fada.models.layers import MaskedBatchNorm
from fada.models.processor import CRNNProcessor
from fada.models.reader import CRNNReader, write_onnx
from fada.models.registry import load_network, load_recognizer
from fada.training.settings import TrainSettings
from fada.training.train import train
from tests.support.training_lines import image_folder, image_lines

BUILT_IN = sorted(folder.name for folder in PRETRAINED.iterdir() if (folder / CRNNProcessor.FILE).is_file())


def random_network(folder: Path, **options: object) -> Path:
    torch.manual_seed(0)
    built = CRNNRecognizer.build(["abcd "], "tiny", **options)  # type: ignore[arg-type]
    for module in built.model.modules():  # as after training: statistics that are not the identity
        if isinstance(module, MaskedBatchNorm):
            module.running_mean.normal_(0, 0.1)
            module.running_var.uniform_(0.5, 2)
            module.weight.data.normal_(0, 1)
    built.save_pretrained(folder)
    return folder


@pytest.fixture(scope="module")
def stored(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return random_network(tmp_path_factory.mktemp("crnn"), lstm_layers=2)


def assert_same(folder: Path | str, lines: list[Line]) -> None:
    reader, network = load_recognizer(folder), load_network(folder)
    assert isinstance(reader, CRNNReader)
    assert isinstance(network, CRNNRecognizer)
    found, expected = reader.emit(lines), network.emit(lines)
    assert (found.ids, found.symbols, found.blank) == (expected.ids, expected.symbols, expected.blank)
    assert (found.domains, found.references) == (expected.domains, expected.references)
    for ours, theirs in zip(found.log_probs, expected.log_probs, strict=True):
        np.testing.assert_allclose(ours, theirs, atol=1e-4)
    assert reader.transcribe(lines) == network.transcribe(lines)


@pytest.mark.parametrize("name", BUILT_IN)
def test_every_built_in_network_reads_the_same_without_torch(name: str) -> None:
    assert_same(name, image_lines(6))


@settings(max_examples=12, deadline=None)
@given(st.integers(16, 300))
def test_lines_of_any_width_are_the_same(stored: Path, width: int) -> None:
    pixels = np.random.default_rng(width).integers(0, 255, (40, width), dtype=np.uint8)
    assert_same(stored, [Line("a", image=Image.fromarray(pixels))])


def test_a_freshly_trained_network_reads_the_same_without_torch(tmp_path: Path) -> None:
    settings = {"data": [str(image_folder(tmp_path / "lines"))], "model": "crnn:tiny", "epochs": 1, "beam_size": 1}
    run = train(TrainSettings.of({**settings, "out": tmp_path / "run"}))
    assert_same(run.folder, image_lines(6))


def test_tags_are_told_and_removed_as_torch_does(tmp_path: Path) -> None:
    assert_same(random_network(tmp_path, domains=["old", "new"], tagging="predicted"), image_lines(4))


def test_lines_read_side_by_side_or_alone_are_the_same_to_the_last_digit(stored: Path) -> None:
    reader, lines = load_recognizer(stored), image_lines(7)
    assert isinstance(reader, CRNNReader)
    alone = [reader.emit([line]).log_probs[0] for line in lines]
    for threads, batch_size in ((1, 1), (2, 8), (3, 2)):
        reader.use_threads(threads)
        for ours, theirs in zip(reader.emit(lines, batch_size=batch_size).log_probs, alone, strict=True):
            np.testing.assert_array_equal(ours, theirs)


def test_the_onnx_file_is_sound_and_reads_the_same(stored: Path, tmp_path: Path) -> None:
    write_onnx(stored, tmp_path / "line.onnx")
    model = onnx.load(str(tmp_path / "line.onnx"))
    onnx.checker.check_model(model, full_check=True)
    about = {entry.key: entry.value for entry in model.metadata_props}
    reader = load_recognizer(stored)
    assert isinstance(reader, CRNNReader)
    assert tuple(json.loads(about["symbols"])) == reader.symbols
    session = onnxruntime.InferenceSession(tmp_path / "line.onnx")
    [line] = image_lines(1)
    pixels, _ = pad_batch([reader.prepare(line)])
    width = reader.prepare(line).shape[1]
    np.testing.assert_array_equal(session.run(None, {"pixels": pixels[..., :width]})[0], reader.scores(line))


@pytest.mark.parametrize(
    "change", [{"lstm_layers": 10**9}, {"channels": [1, 2]}, {"channels": "many"}, {"height": -8}, {"lstm_size": 3}]
)
def test_a_configuration_of_other_weights_is_a_sentence(tmp_path: Path, change: dict[str, object]) -> None:
    folder = random_network(tmp_path)
    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    (folder / "config.json").write_text(json.dumps({**config, **change}), encoding="utf-8")
    with pytest.raises(FadaError, match=r"cannot be loaded as a model|weights of the network are missing"):
        load_recognizer(folder)
