"""The C-RNN: padding, lengths, saving, tagging, preprocessing."""

import json
from dataclasses import replace
from pathlib import Path
from typing import cast

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import fada
from fada.data.images import pad_batch
from fada.data.line import Line
from fada.decoding.search import BeamSearch
from fada.decoding.weights import Weights
from fada.models.crnn import PRESETS, CRNNConfig, CRNNForCTC, CRNNRecognizer
from fada.models.ctc_network import ctc_loss
from fada.models.layers import MaskedBatchNorm
from fada.models.line_image import MAX_WIDTH, straighten
from fada.models.processor import CRNNProcessor
from fada.models.reader import CRNNReader, write_onnx
from tests.support.training_lines import drawn_line, image_lines
from tests.support.types import some


@pytest.fixture(scope="module")
def recognizer() -> CRNNRecognizer:
    torch.manual_seed(0)
    built = CRNNRecognizer.build(["abcd "], "tiny")
    for module in built.model.modules():  # as after training: statistics that are not the identity
        if isinstance(module, MaskedBatchNorm):
            module.running_mean.normal_(0, 0.1)
            module.running_var.uniform_(0.5, 2)
    return built


@settings(max_examples=12, deadline=None)
@given(st.integers(16, 90), st.integers(0, 70))
def test_padding_does_not_change_the_output(recognizer: CRNNRecognizer, width: int, padding: int) -> None:
    model = recognizer.model.eval()
    rng = np.random.default_rng(width)
    line = torch.from_numpy(rng.random((1, 1, 40, width), dtype=np.float32))
    # What lies beyond the width is ignored, whatever it is.
    padded = torch.cat([line, torch.from_numpy(rng.random((1, 1, 40, padding), dtype=np.float32))], -1)
    with torch.no_grad():
        alone = model(line, torch.tensor([width]))
        inside = model(padded, torch.tensor([width]))
    frames = int(alone.lengths)
    assert frames == int(inside.lengths) == alone.logits.shape[1]
    torch.testing.assert_close(inside.logits[:, :frames], alone.logits, rtol=1e-4, atol=1e-5)


def test_padding_does_not_change_what_is_learnt(recognizer: CRNNRecognizer) -> None:
    model = CRNNForCTC(cast(CRNNConfig, recognizer.model.config))
    model.load_state_dict(recognizer.model.state_dict())
    line = torch.rand(2, 1, 40, 60, generator=torch.Generator().manual_seed(0))
    labels, widths = torch.tensor([[1, 2], [3, -100]]), torch.tensor([60, 48])

    def gradient(pixels: torch.Tensor) -> torch.Tensor:
        model.train().zero_grad()
        model(pixels, widths, labels).loss.backward()
        return torch.cat([p.grad.flatten() for p in model.parameters() if p.grad is not None])

    wider = torch.nn.functional.pad(line, (0, 36))
    torch.testing.assert_close(gradient(wider), gradient(line), rtol=1e-3, atol=1e-5)


def test_masked_batch_norm_without_padding_is_batch_norm() -> None:
    x = torch.randn(3, 5, 4, 7, generator=torch.Generator().manual_seed(0))
    ours, theirs = MaskedBatchNorm(5), torch.nn.BatchNorm2d(5)
    mask = torch.ones(3, 1, 1, 7)
    torch.testing.assert_close(ours(x, mask), theirs(x), rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(ours.running_var, theirs.running_var)
    torch.testing.assert_close(ours.eval()(x, mask), theirs.eval()(x), rtol=1e-4, atol=1e-5)


def test_a_saved_recogniser_reads_the_same(recognizer: CRNNRecognizer, tmp_path: Path) -> None:
    lines = image_lines(4)
    before = recognizer.emit(lines)
    recognizer.save_pretrained(tmp_path)
    loaded = fada.load_recognizer(tmp_path)
    assert isinstance(loaded, CRNNReader)
    after = loaded.emit(lines)
    assert after.symbols == before.symbols == ("<blank>", " ", "a", "b", "c", "d")
    assert after.domains == ["old", "new", "old", "new"]
    for a, b in zip(after.log_probs, before.log_probs, strict=True):
        np.testing.assert_allclose(a, b, atol=1e-5)
    assert loaded.transcribe(lines) == BeamSearch(before).choose(Weights())


def test_batches_of_any_size_emit_the_same(recognizer: CRNNRecognizer) -> None:
    lines = image_lines(5)
    for one, all_ in zip(
        recognizer.emit(lines, batch_size=1).log_probs, recognizer.emit(lines, batch_size=5).log_probs, strict=True
    ):
        np.testing.assert_allclose(one, all_, atol=1e-4)


def test_a_domain_tag_is_the_first_label_and_never_written() -> None:
    torch.manual_seed(1)
    tagged = CRNNRecognizer.build(["abcd "], "tiny", domains=["old", "new"], tagging="predicted")
    plain = tagged.processor.encode("ab")
    assert tagged.encode("ab", "new") == [len(tagged.symbols) + 1, *plain]
    emissions = tagged.emit(image_lines(3))
    assert emissions.domains is not None
    assert set(emissions.domains) <= {"old", "new"}
    for scores in emissions.log_probs:
        assert scores.shape[1] == len(tagged.symbols)
        np.testing.assert_allclose(np.exp(scores).sum(1), 1, rtol=1e-4)


def test_a_given_domain_is_an_input_of_the_network(tmp_path: Path) -> None:
    torch.manual_seed(1)
    told = CRNNRecognizer.build(["abcd "], "tiny", domains=["old", "new"], tagging="given")
    [line] = image_lines(1)
    as_old, as_new = (replace(line, domain=domain) for domain in ("old", "new"))

    def scores(one: Line) -> np.ndarray:
        return told.emit([one]).log_probs[0]

    assert scores(as_old).shape[1] == len(told.symbols)  # no class for a tag
    np.testing.assert_array_equal(scores(as_old), scores(as_new))  # before training
    batch = told.collate([told.prepare(line)] * 2, [told.encode("ab", "old"), told.encode("ab", "new")])
    assert batch["tags"].tolist() == [0, 1]
    assert batch["labels"].tolist() == [told.processor.encode("ab")] * 2
    vectors = cast(torch.nn.Embedding, told.model.domain).weight
    told.model(**batch).loss.backward()
    assert (some(vectors.grad).abs().sum(1) > 0).all()
    with torch.no_grad():
        vectors.normal_()
    assert np.abs(scores(as_old) - scores(as_new)).max() > 0.01
    inputs = told.collate([told.prepare(line)] * 2)
    together = told.log_probs(told.told(inputs, [as_old, as_new]))
    for found, one in zip(together, (as_old, as_new), strict=True):
        np.testing.assert_allclose(found, scores(one), atol=1e-5)
    with pytest.raises(fada.FadaError, match="needs the domain of every line"):
        scores(replace(line, domain="newest"))
    told.save_pretrained(tmp_path)
    again = fada.load_recognizer(tmp_path)
    assert isinstance(again, CRNNRecognizer)
    assert again.domains == ("old", "new")
    np.testing.assert_allclose(again.emit([as_new]).log_probs[0], scores(as_new), atol=1e-6)
    with pytest.raises(fada.FadaError, match="told the domain of every line"):
        write_onnx(tmp_path, tmp_path / "model.onnx")


def test_a_given_domain_was_a_class_in_the_first_version(tmp_path: Path) -> None:
    """Networks of version 0.1 with `given` have a class for each domain, and go on as they were."""
    shape = {**PRESETS["tiny"], "vocab_size": 4, "domains": ["old", "new"], "tagging": "given"}
    CRNNRecognizer(CRNNForCTC(CRNNConfig(**shape)), CRNNProcessor(["<blank>", "a"]), "given").save_pretrained(tmp_path)
    config = json.loads((tmp_path / "config.json").read_text(encoding="utf-8"))
    del config["domain_input"]
    (tmp_path / "config.json").write_text(json.dumps(config), encoding="utf-8")
    loaded = CRNNRecognizer.load(tmp_path)
    assert loaded.encode("a", "new") == [3, 1]
    assert loaded.emit(image_lines(1)).log_probs[0].shape[1] == 2


def test_new_characters_can_be_added_to_a_trained_network(recognizer: CRNNRecognizer, tmp_path: Path) -> None:
    recognizer.save_pretrained(tmp_path)
    extended = CRNNRecognizer.load(tmp_path, ["abz"], new_characters="add")
    assert extended.symbols[-1] == "z"
    assert extended.emit(image_lines(1)).log_probs[0].shape[1] == len(recognizer.symbols) + 1
    ignoring = CRNNRecognizer.load(tmp_path, ["abz"], new_characters="ignore")
    assert ignoring.encode("azb") == ignoring.encode("ab")
    with pytest.raises(fada.FadaError, match=r"missing from the model's alphabet: 'z' \(U\+007A\).*add"):
        CRNNRecognizer.load(tmp_path, ["abz"], new_characters="fail")


def test_a_tagged_network_refuses_new_characters(tmp_path: Path) -> None:
    CRNNRecognizer.build(["ab"], "tiny", ["old", "new"], "predicted").save_pretrained(tmp_path)
    with pytest.raises(fada.FadaError, match="cannot learn new ones \\('z'\\)"):
        CRNNRecognizer.load(tmp_path, ["abz"], new_characters="add")


def test_a_line_with_more_characters_than_frames_counts_zero() -> None:
    logits = torch.zeros(1, 2, 4, requires_grad=True)
    loss = ctc_loss(logits, torch.tensor([2]), torch.tensor([[1, 1, 2, 3]]), blank=0)
    loss.backward()
    assert float(loss.detach()) == 0
    assert torch.isfinite(some(logits.grad)).all()


def test_a_line_of_two_rows_is_not_stretched_without_limit() -> None:
    assert straighten(np.full((2, 30_000), 200, np.uint8), 40).shape == (40, MAX_WIDTH)


def test_straightening_levels_a_sloping_line() -> None:
    grey = np.asarray(drawn_line("abc" * 10, 80))
    slope = np.stack([np.roll(grey[:, x], round(x * 0.06)) for x in range(grey.shape[1])], 1)

    def rise(ink: np.ndarray) -> float:
        """How far the right half stands below the left, in heights of the line."""
        rows = np.arange(len(ink))[:, None] / len(ink)
        halves = [(half * rows).sum() / half.sum() for half in np.array_split(ink, 2, axis=1)]
        return float(halves[1] - halves[0])

    assert rise(230.0 - slope) > 0.15
    assert abs(rise(255.0 - straighten(slope, 40))) < 0.05


@settings(max_examples=20, deadline=None)
@given(st.integers(1, 90), st.integers(1, 200), st.integers(0, 255))
def test_any_image_becomes_a_line_of_the_right_height(rows: int, columns: int, grey: int) -> None:
    flat = np.full((rows, columns), grey, np.uint8)
    line = straighten(flat, 40)
    assert line.shape[0] == 40
    assert line.shape[1] >= 16
    assert line.dtype == np.uint8


def test_the_processor_reads_images_and_arrays_alike() -> None:
    processor = CRNNProcessor(["", "a"])
    image = drawn_line("aaa")
    np.testing.assert_array_equal(processor.image(image), processor.image(np.asarray(image)))
    pixels, _ = pad_batch([processor.image(image)])
    assert pixels.shape[2] == CRNNConfig().height


def test_an_unknown_preset_is_named() -> None:
    with pytest.raises(fada.FadaError, match="no C-RNN preset 'huge'"):
        CRNNRecognizer.build(["a"], "huge")


def test_a_large_image_is_scaled_before_it_is_straightened() -> None:
    rows, columns = 6000, 9000
    page = np.full((rows, columns), 230, np.uint8)
    page[2800:3200, 500:8500:40] = 20
    small = page[::12, ::12]
    large, reference = straighten(page, 40), straighten(small, 40)
    assert large.shape == reference.shape
    assert abs(float(large.mean()) - float(reference.mean())) < 25
