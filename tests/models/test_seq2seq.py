"""TrOCR, Whisper and CTC models of transformers: labels, new characters, tags, windows, saving."""

from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
import torch
import torch.nn.functional as F

import fada
from fada.decoding.knowledge import Knowledge
from fada.decoding.weights import Weights
from fada.models import registry
from fada.models.crnn import CRNNRecognizer
from fada.models.seq2seq import add_characters, missing_characters
from fada.models.trocr import TrOCRRecognizer
from fada.models.wav2vec import TransformersCTCRecognizer
from fada.models.whisper import WhisperRecognizer
from tests.support import tiny_models
from tests.support.model_folders import (
    fresh_byte_level_tokenizer,
    tiny_trocr,
    trocr_folder,
    wav2vec2_folder,
    whisper_folder,
)
from tests.support.training_lines import image_lines, sound_lines


def test_decoder_inputs_are_the_labels_moved_by_one() -> None:
    recognizer = tiny_trocr()
    sequence = recognizer.encode("ab")
    batch = recognizer.decoder_batch([sequence, recognizer.encode("a")])
    start, end = recognizer.tokenizer.bos_token_id, recognizer.tokenizer.eos_token_id
    a, b = recognizer.tokenizer.convert_tokens_to_ids(["a", "b"])
    assert batch["decoder_input_ids"].tolist() == [[start, a, b], [start, a, recognizer.tokenizer.pad_token_id]]
    assert batch["labels"].tolist() == [[a, b, end], [a, end, -100]]


def test_a_given_tag_is_a_prompt_and_a_predicted_one_is_learnt() -> None:
    given = tiny_trocr(domains=["old", "new"], tagging="given")
    tag = given.tokenizer.convert_tokens_to_ids("<domain:new>")
    sequence = given.encode("a", "new")
    assert sequence[1] == tag
    assert given.decoder_batch([sequence])["labels"][0, 0] == -100
    predicted = tiny_trocr(domains=["old", "new"], tagging="predicted")
    assert predicted.decoder_batch([predicted.encode("a", "new")])["labels"][0, 0] == tag
    for recognizer in (given, predicted):
        texts = recognizer.transcribe(image_lines(2), max_new_tokens=6)
        assert not any("domain" in text for text in texts)
    with pytest.raises(fada.FadaError, match="expected one of old, new"):
        given.encode("a", "older")


def test_trocr_is_saved_with_its_tags_and_reads_the_same(tmp_path: Path) -> None:
    recognizer = tiny_trocr(domains=["old", "new"], tagging="given")
    recognizer.save_pretrained(tmp_path)
    loaded = fada.load_recognizer(tmp_path)
    assert isinstance(loaded, TrOCRRecognizer)
    assert (loaded.tagging, loaded.domains) == ("given", ("old", "new"))
    lines = image_lines(3)
    assert loaded.transcribe(lines, max_new_tokens=8) == recognizer.transcribe(lines, max_new_tokens=8)


def test_a_new_trocr_looks_along_the_line_before_it_has_learnt_anything() -> None:
    torch.manual_seed(0)
    recognizer = TrOCRRecognizer.build_tiny(["abcd "])
    model = recognizer.model.eval()
    inputs = recognizer.collate(
        [recognizer.prepare(line) for line in image_lines(2)], [recognizer.encode("abcd" * 8)] * 2
    )
    with torch.no_grad():
        attention = model(**inputs, output_attentions=True).cross_attentions[0].mean((0, 1))  # (text, columns)
    assert attention.shape[1] == 160
    looked_at = [float(attention[t, int(2.5 * t) - 3 : int(2.5 * t) + 7].sum()) for t in range(2, 30)]
    assert np.mean(looked_at) > 0.5  # by chance it would be 0.06


def test_a_new_trocr_over_subwords_is_counted_in_characters_and_learns_by_cross_entropy_alone(tmp_path: Path) -> None:
    torch.manual_seed(0)
    texts = ["abba cab", "cab abba", "abba abba"] * 4
    recognizer = TrOCRRecognizer.build_subword(texts, vocabulary=20, width=160, size=32, layers=(1, 1))
    assert len(recognizer.tokenizer("abba cab")["input_ids"]) < len("abba cab")
    loss = recognizer.alignment_loss(fada.TargetSet.from_texts({"x": ["abba cab"]}), distance="aligned_w2")
    inputs = recognizer.collate([recognizer.prepare(image_lines(1)[0])], [recognizer.encode("abba cab")])
    certain = 100.0 * F.one_hot(inputs["labels"].clamp(min=0), len(recognizer.tokenizer))
    assert loss.alignment(certain, inputs["labels"], ["x"]).item() == pytest.approx(0, abs=1e-6)
    recognizer.model.train()
    task, outputs = recognizer.task_loss(recognizer.model, inputs)
    entropy = F.cross_entropy(outputs.logits.flatten(0, 1), inputs["labels"].flatten())
    assert task.item() == pytest.approx(entropy.item(), rel=1e-5)
    recognizer.save_pretrained(tmp_path)
    line = image_lines(1)
    recognizer.model.eval()
    assert fada.load_recognizer(tmp_path).transcribe(line) == recognizer.transcribe(line)


def test_the_auxiliary_loss_is_ctc_over_the_characters_while_training() -> None:
    torch.manual_seed(1)
    recognizer = tiny_trocr(domains=["old", "new"], tagging="predicted")
    lines = image_lines(2)
    arrays = [recognizer.prepare(line) for line in lines]
    inputs = recognizer.collate(arrays, [recognizer.encode("abca", "new"), recognizer.encode("d", "old")])
    model = recognizer.model.eval()
    plain, outputs = recognizer.task_loss(model, inputs)
    torch.testing.assert_close(plain, outputs.loss)
    letters = model.encoder.letters(outputs.encoder_last_hidden_state).log_softmax(-1)
    tokens = [recognizer.tokenizer.convert_tokens_to_ids(list(text)) for text in ("abca", "d")]
    expected = [
        F.ctc_loss(
            letters[i, :, None],
            torch.tensor([t]),
            torch.tensor([letters.shape[1]]),
            torch.tensor([len(t)]),
            blank=0,
            reduction="sum",
        )
        / len(t)
        for i, t in enumerate(tokens)
    ]
    model.encoder.training = True  # without dropout and batch statistics
    both, _ = recognizer.task_loss(model, inputs)
    torch.testing.assert_close(both, plain + model.encoder.config.letters_weight * sum(expected) / 2)


def test_the_auxiliary_loss_learns_of_new_characters(tmp_path: Path) -> None:
    tiny_trocr().save_pretrained(tmp_path / "model")
    loaded = TrOCRRecognizer.load(tmp_path / "model", ["abcdé"], "add", ["old", "new"], "given")
    encoder = loaded.model.encoder
    assert encoder.letters.out_features == encoder.config.letters == len(loaded.tokenizer)
    loaded.save_pretrained(tmp_path / "grown")
    again = TrOCRRecognizer.load(tmp_path / "grown")
    torch.testing.assert_close(again.model.encoder.letters.weight, encoder.letters.weight)
    arrays = [again.prepare(line) for line in image_lines(2)]
    again.model.train()
    loss, _ = again.task_loss(again.model, again.collate(arrays, [again.encode("é", "old")] * 2))
    assert torch.isfinite(loss)


def test_what_follows_the_ink_does_not_change_what_is_read() -> None:
    recognizer = tiny_trocr()
    encoder = recognizer.model.encoder.eval()
    strip = np.full((16, 30), 255, np.uint8)
    strip[4:12, 3:27:4] = 0
    pixels = recognizer.collate([strip, np.pad(strip, ((0, 0), (0, 30)), constant_values=255)])["pixel_values"]
    states = encoder(pixels).last_hidden_state
    torch.testing.assert_close(states[0], states[1])
    assert states.shape == (2, encoder.config.columns, 16)


def test_strips_keep_their_proportions_are_padded_with_paper_and_squeezed_if_too_long() -> None:
    recognizer = tiny_trocr()
    short, long = (np.zeros((16, width), np.uint8) for width in (20, 200))
    pixels = recognizer.collate([short, long])["pixel_values"]
    assert pixels.shape == (2, 3, 16, 64)
    assert (pixels[0, :, :, :20] == 1).all()  # ink
    assert (pixels[0, :, :, 20:] == 0).all()
    assert (pixels[1] == 1).all()
    widths = [recognizer.prepare(line).shape for line in image_lines(4)]
    assert {height for height, _ in widths} == {16}
    assert len({width for _, width in widths}) > 1


def test_all_beams_of_a_line_share_what_they_attend_to() -> None:
    recognizer = tiny_trocr()
    lines = image_lines(3)
    inputs = recognizer.collate([recognizer.prepare(line) for line in lines])
    found = recognizer.generate_batch(inputs, lines, num_beams=4, max_new_tokens=6)
    prompts = torch.tensor([list(recognizer.prompt)] * 3)
    options = {"num_beams": 4, "length_penalty": 0.0, "max_new_tokens": 6, "max_length": None, "do_sample": False}
    plain = recognizer.model.generate(
        **inputs, decoder_input_ids=prompts, return_dict_in_generate=True, output_scores=True, **options
    )
    torch.testing.assert_close(torch.tensor([reading.score for reading in found]), plain.sequences_scores)
    texts = recognizer.tokenizer.batch_decode(plain.sequences[:, 1:], skip_special_tokens=True)
    assert [reading.text for reading in found] == [text.strip() for text in texts]


def test_guided_beams_score_what_eq_2_says() -> None:
    recognizer = tiny_trocr()
    lines = image_lines(2)
    targets = fada.TargetSet.from_texts({"old": ["aab"], "new": ["bcd"]})
    wanted = [targets[str(line.domain)] for line in lines]
    for beams in (1, 3):
        for reading in recognizer.generate(
            lines, targets=wanted, lam=0.4, scale=3.0, num_beams=beams, max_new_tokens=6
        ):
            assert reading.distance is not None
            expected = 0.4 * reading.log_prob - 0.6 * 3.0 * reading.distance
            assert reading.score == pytest.approx(expected, abs=1e-4)
    for target_alone in recognizer.generate(lines, targets=wanted, lam=0.0, num_beams=3, max_new_tokens=6):
        assert target_alone.distance is not None
        assert target_alone.score == pytest.approx(-target_alone.distance, abs=1e-6)
        assert -1000 < target_alone.log_prob < 0
    plain = recognizer.generate(lines, num_beams=3, max_new_tokens=6)[0]
    tiny_weight = recognizer.generate(lines, targets=wanted, lam=1.0, num_beams=3, max_new_tokens=6)[0]
    assert tiny_weight.log_prob == pytest.approx(plain.log_prob, abs=1e-4)
    assert plain.distance is None
    assert plain.score == pytest.approx(plain.log_prob)


def test_a_search_writes_what_generation_writes_and_runs_the_encoder_once(monkeypatch: pytest.MonkeyPatch) -> None:
    recognizer = tiny_trocr()
    lines = image_lines(5)
    targets = fada.TargetSet.from_texts({"old": ["aab"], "new": ["bcd"]})
    runs = []
    encoder = recognizer.model.get_encoder()
    encoder.register_forward_hook(lambda *_: runs.append(1))
    search = recognizer.search(lines, Knowledge(targets), batch_size=2)
    weights = Weights(beam=3, lam=0.4, scale=3.0, distance="aligned_w2")
    guided, plain = search.choose(weights), search.choose(Weights(beam=2))
    assert len(runs) == 1
    options = {"num_beams": 3, "lam": 0.4, "scale": 3.0, "distance": "aligned_w2"}
    assert guided == recognizer.transcribe(lines, batch_size=5, targets=targets, **options)
    assert plain == recognizer.transcribe(lines, batch_size=5, num_beams=2)
    assert (search.ids, search.domains) == ([line.id for line in lines], [line.domain for line in lines])
    with pytest.raises(fada.FadaError, match="ask for prior_weight, which a model of this kind"):
        search.choose(Weights(prior_weight=1.0))


def test_a_frozen_encoder_keeps_what_it_made_in_a_folder(tmp_path: Path) -> None:
    recognizer = tiny_trocr()
    recognizer.freeze_encoder()
    lines = image_lines(3)
    first = recognizer.search(lines, cache=tmp_path).choose(Weights(beam=2))
    (kept,) = tmp_path.iterdir()
    before = kept.stat().st_mtime_ns
    assert recognizer.search(lines, cache=tmp_path).choose(Weights(beam=2)) == first
    assert kept.stat().st_mtime_ns == before


def test_characters_that_are_spelt_in_bytes_become_whole_tokens(tmp_path: Path) -> None:
    folder = trocr_folder(tmp_path)
    text = "ἀρχῇ abc ꝑ"
    with pytest.raises(fada.FadaError, match=r"missing from the model's tokenizer: .*U\+"):
        TrOCRRecognizer.load(folder, [text], "fail")
    ignoring = TrOCRRecognizer.load(folder, [text], "ignore")
    assert "ἀ" in missing_characters(ignoring.tokenizer, [text])
    adding = TrOCRRecognizer.load(folder, [text], "add")
    assert missing_characters(adding.tokenizer, [text]) == []
    tokens = adding.tokenizer(text, add_special_tokens=False)["input_ids"]
    assert adding.tokenizer.convert_tokens_to_ids("ἀ") in tokens
    assert adding.tokenizer.decode(tokens) == text
    assert adding.model.decoder.get_output_embeddings().weight.shape[0] >= len(adding.tokenizer)


def test_a_new_character_starts_from_its_base_letter() -> None:
    tokenizer = fresh_byte_level_tokenizer()
    model = tiny_models.trocr(len(tokenizer))
    before = cast(Any, model).decoder.get_input_embeddings().weight.detach().clone()
    spelt = tokenizer("ā", add_special_tokens=False)["input_ids"]
    base = tokenizer("a", add_special_tokens=False)["input_ids"]
    assert add_characters(model, tokenizer, ["ā"], "add") == ["ā"]
    row = cast(Any, model).decoder.get_input_embeddings().weight[tokenizer.convert_tokens_to_ids("ā")]
    torch.testing.assert_close(row.detach(), before[[*spelt, *base]].mean(0))


def test_whisper_sees_a_window_as_long_as_asked(tmp_path: Path) -> None:
    folder = whisper_folder(tmp_path / "whisper")
    line = sound_lines(1)[0]
    full = WhisperRecognizer.load(folder)
    short = WhisperRecognizer.load(folder, max_seconds=2)
    assert (full.window, short.window) == (30, 2)
    assert short.prepare(line).shape == (8, 200)
    heard = [r.model.eval().model.encoder.embed_positions.weight for r in (full, short)]
    assert torch.equal(heard[0][:100], heard[1])
    short.save_pretrained(tmp_path / "short")
    again = fada.load_recognizer(tmp_path / "short")
    assert isinstance(again, WhisperRecognizer)
    assert again.window == 2
    assert again.transcribe([line], max_new_tokens=4) == short.transcribe([line], max_new_tokens=4)


def test_a_multilingual_whisper_keeps_the_language_it_is_given(tmp_path: Path) -> None:
    folder = whisper_folder(tmp_path / "whisper", multilingual=True)
    assert WhisperRecognizer.load(folder).tokenizer.language == "english"
    french = registry.build(str(folder), ["abc"], language="french")
    assert isinstance(french, WhisperRecognizer)
    french.save_pretrained(tmp_path / "french")
    again = WhisperRecognizer.load(tmp_path / "french")
    spoken = again.tokenizer.convert_ids_to_tokens(list(again.prompt))
    assert spoken == ["<|startoftranscript|>", "<|fr|>", "<|transcribe|>", "<|notimestamps|>"]
    with pytest.raises(fada.FadaError, match="'klingon'"):
        registry.build(str(folder), ["abc"], language="klingon")
    with pytest.raises(fada.FadaError, match="knows one language only"):
        registry.build(str(whisper_folder(tmp_path / "english")), ["abc"], language="french")


def test_sound_longer_than_the_window_is_refused(tmp_path: Path) -> None:
    import io

    import soundfile

    from fada.data.line import Line

    data = io.BytesIO()
    soundfile.write(data, np.zeros(3 * 16000, np.float32), 16000, format="WAV")
    short = WhisperRecognizer.load(whisper_folder(tmp_path), max_seconds=2)
    with pytest.raises(fada.FadaError, match=r"long: 3\.0 s of sound, more than the window of 2 s.*--max-seconds 3"):
        short.prepare(Line("long", audio=data.getvalue()))


def test_any_ctc_model_of_transformers_emits(tmp_path: Path) -> None:
    folder = wav2vec2_folder(tmp_path)
    recognizer = registry.build(str(folder), ["abcd"])
    assert isinstance(recognizer, TransformersCTCRecognizer)
    assert recognizer.symbols == ("", "a", "b", "c", "d")
    emissions = recognizer.emit(sound_lines(2))
    assert emissions.log_probs[0].shape[1] == 5
    recognizer.save_pretrained(tmp_path / "saved")
    loaded = fada.load_recognizer(tmp_path / "saved")
    assert isinstance(loaded, TransformersCTCRecognizer)
    np.testing.assert_allclose(loaded.emit(sound_lines(2)).log_probs[0], emissions.log_probs[0], atol=1e-5)
    more = TransformersCTCRecognizer.load(tmp_path / "saved", ["abcD"], "add")
    assert more.symbols[-1] == "D"
    torch.testing.assert_close(more.model.lm_head.weight[5], more.model.lm_head.weight[4])


def test_unknown_models_are_named(tmp_path: Path) -> None:
    with pytest.raises(fada.FadaError, match="no model 'nonsense'"):
        registry.build("nonsense", ["a"])
    (tmp_path / "config.json").write_text('{"model_type": "bert"}', encoding="utf-8")
    with pytest.raises(fada.FadaError, match="a model of type 'bert'"):
        fada.load_recognizer(tmp_path)
    with pytest.raises(fada.FadaError, match=r"no config\.json here"):
        fada.load_recognizer(tmp_path / "missing" / "deep" / "folder")


def test_a_name_of_the_hub_is_asked_for_as_it_is_written(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[object] = []

    def configuration(name: object) -> dict[str, str]:
        asked.append(name)
        return {"model_type": "fada-crnn"}

    def load(name: object) -> Any:
        asked.append(name)
        return small

    small = registry.build("crnn:tiny", ["a"])
    monkeypatch.setattr(registry, "configuration", configuration)
    monkeypatch.setattr(CRNNRecognizer, "load", load)
    registry.load_recognizer("owner/name")
    assert asked == ["owner/name", "owner/name"]


@pytest.mark.parametrize("name", ["crnn:tiny", "trocr-tiny"])
def test_models_are_described(name: str) -> None:
    described = registry.describe(name)
    assert described["reads"] == "image"
    assert described["parameters"] > 10_000
