"""The synthetic set: its text, its hands, its promises about seeds, correlations and glyphs."""

import io
import json
import shutil
import unicodedata
from collections import Counter
from pathlib import Path
from typing import Any, cast

import numpy as np
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image, features
from scipy.optimize import approx_fprime
from typer.testing import CliRunner

from fada.cli import app
from fada.data.source import read_lines
from fada.data.synthetic import hands as rendering
from fada.data.synthetic import text as synthetic_text
from fada.data.synthetic.set import SyntheticSet, make_synthetic, parse_pearson
from fada.errors import FadaError
from fada.targets.target_set import TargetSet
from tests.support.types import some

pytest.importorskip("wordfreq")
pytest.importorskip("matplotlib")

needs_shaping = pytest.mark.skipif(not features.check("raqm"), reason="Pillow without raqm")


@pytest.fixture(scope="module")
def small() -> SyntheticSet:
    return make_synthetic(lines=80, seed=5)


def extremes(matrix: np.ndarray) -> tuple[float, float]:
    pairs = matrix[np.triu_indices(len(matrix), 1)]
    return float(pairs.min()), float(pairs.max())


def images_of(made: SyntheticSet) -> list[bytes]:
    return [cast(bytes, line.image) for line in made.lines]


# --- the shift -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(4))
def test_the_default_set_has_the_correlations_of_the_paper(seed: int) -> None:
    made = make_synthetic(seed=seed)
    assert len(made.lines) == 1690
    assert made.domains == ("A", "B", "C", "D")
    assert extremes(made.pearson) == pytest.approx((0.89, 0.97), abs=0.01)


@pytest.mark.parametrize(
    ("lines", "domains", "language", "pearson"),
    [
        (1690, 4, "el", (0.5, 0.99)),
        (1690, 4, "el", 0.9),
        (1690, 3, "el", 1.0),
        (800, 2, "el", 0.8),
        (3000, 7, "de", (0.8, 0.98)),
        (1690, 4, "fr", (0.85, 0.95)),
        (1000, 4, "he", (0.89, 0.97)),
        (1000, 3, "ar", (0.7, 0.9)),
        (40, 4, "el", (0.89, 0.97)),
    ],
)
def test_asked_correlations_are_met_to_a_hundredth(
    lines: int, domains: int, language: str, pearson: float | tuple[float, float]
) -> None:
    made = make_synthetic(lines, domains, language, pearson)
    asked = pearson if isinstance(pearson, tuple) else (pearson, pearson)
    assert extremes(made.pearson) == pytest.approx(asked, abs=0.01)


def test_the_stored_matrix_is_that_of_the_targets_of_the_lines(small: SyntheticSet) -> None:
    texts = {d: [some(line.text) for line in small.lines.texts() if line.domain == d] for d in small.domains}
    targets = TargetSet.from_texts(texts, normalizer=synthetic_text.LETTERS)
    frequencies = np.array([targets[domain].frequencies for domain in small.domains])
    assert np.allclose(np.corrcoef(frequencies), small.pearson)
    assert np.allclose(small.metadata["pearson"]["matrix"], small.pearson, atol=1e-4)


def test_the_gradient_of_the_correlations_is_right() -> None:
    vocabulary = synthetic_text.load_vocabulary("el")
    tilts = synthetic_text._Tilts(vocabulary, 3, np.random.default_rng(0))
    weights = np.random.default_rng(1).normal(0, 0.3, (3, 3))
    pairs = np.triu_indices(3, 1)

    def correlations(flat: np.ndarray) -> np.ndarray:
        return np.corrcoef(tilts.probabilities(flat.reshape(3, 3)) @ vocabulary.counts)[pairs]

    numeric = approx_fprime(weights.reshape(-1), correlations)
    assert np.allclose(tilts._correlation_gradients(weights), numeric, atol=1e-5)


@given(st.integers(3, 12), st.floats(0, 0.999), st.floats(0, 0.999))
@settings(max_examples=80, deadline=None)
def test_wanted_matrices_have_the_asked_extremes(domains: int, one: float, other: float) -> None:
    lowest, highest = sorted((one, other))
    wanted = synthetic_text.correlations_between(lowest, highest, domains)
    assert np.allclose(wanted, wanted.T)
    assert np.allclose(np.diag(wanted), 1)
    assert extremes(wanted) == pytest.approx((lowest, highest), abs=1e-9)
    assert wanted[0, -1] == pytest.approx(lowest)


def test_correlations_out_of_reach_are_an_error_that_says_by_how_much() -> None:
    with pytest.raises(FadaError, match=r"missed by .*more lines"):
        make_synthetic(lines=32, domains=8, pearson=(0.0, 0.02))


def test_words_are_letters_of_the_language_with_the_final_sigma() -> None:
    vocabulary = synthetic_text.load_vocabulary("el")
    assert all(unicodedata.name(letter).startswith("GREEK") for letter in vocabulary.letters)
    assert "της" in vocabulary.words
    assert not any(word.endswith("σ") for word in vocabulary.words if len(word) > 1)
    assert vocabulary.probabilities.sum() == pytest.approx(1)
    assert vocabulary.counts.sum() == sum(map(len, vocabulary.words))


@pytest.mark.parametrize(
    ("setting", "says"),
    [
        ({"language": "xx"}, "no word list for the language 'xx'"),
        ({"lines": 3}, "lines is 3"),
        ({"domains": 27, "lines": 2000}, "domains is 27"),
        ({"noise": -1}, "noise is -1"),
        ({"height": 8}, "height is 8"),
        ({"writers": 0}, "writers is 0"),
        ({"pearson": (0.9, 0.8)}, "lowest <= highest"),
        ({"pearson": (0.9, 1.0)}, "the same one"),
        ({"domains": 2, "pearson": (0.8, 0.9)}, "one pair"),
        ({"domains": 1, "pearson": 0.9}, "nothing to correlate"),
    ],
)
def test_a_wrong_setting_is_an_error_that_names_it(setting: dict, says: str) -> None:
    with pytest.raises(FadaError, match=says):
        make_synthetic(**setting)


def test_correlations_are_parsed_from_text() -> None:
    assert parse_pearson("0.89:0.97") == (0.89, 0.97)
    assert parse_pearson("0.9") == 0.9
    for wrong in ("", "a:b", "0.1:0.2:0.3"):
        with pytest.raises(FadaError, match="lowest:highest"):
            parse_pearson(wrong)


# --- the set ---------------------------------------------------------------------------------------------------------


def test_the_same_seed_gives_the_same_bytes_with_any_number_of_processes(small: SyntheticSet) -> None:
    again = make_synthetic(lines=80, seed=5, processes=2)
    assert images_of(again) == images_of(small)
    assert [line.text for line in again.lines] == [line.text for line in small.lines]


def test_another_seed_gives_other_text_and_other_images(small: SyntheticSet) -> None:
    other = make_synthetic(lines=80, seed=6)
    assert not set(images_of(other)) & set(images_of(small))
    assert [line.text for line in other.lines] != [line.text for line in small.lines]


def test_every_writer_writes_in_every_domain_equally() -> None:
    pages = {(line.domain, line.extra["writer"], line.extra["page"]) for line in make_synthetic().lines.without_media()}
    per_writer = Counter((domain, writer) for domain, writer, _ in pages)
    assert len(per_writer) == 4 * 8
    assert max(per_writer.values()) - min(per_writer.values()) <= 1


def test_no_page_is_in_two_splits_and_every_domain_is_in_all() -> None:
    lines = list(make_synthetic().lines.without_media())
    assert len({(line.extra["page"], line.split) for line in lines}) == len({line.extra["page"] for line in lines})
    assert {(line.domain, line.split) for line in lines} == {
        (domain, split) for domain in "ABCD" for split in ("train", "validation", "test")
    }
    assert len({line.id for line in lines}) == len(lines)


def test_lines_have_the_height_asked_for_and_room_for_their_text() -> None:
    for line in make_synthetic(lines=16, height=40, pearson=1.0, domains=1 + 1).lines:
        image = line.load_image()
        assert image.height == 40
        assert image.width > 4 * len(some(line.text))
        assert np.asarray(image).std() > 8


def test_images_are_not_drawn_twice(small: SyntheticSet) -> None:
    first, second = images_of(small), images_of(small)
    assert all(a is b for a, b in zip(first, second, strict=True))


def test_saved_sets_are_read_back_with_everything(small: SyntheticSet, tmp_path: Path) -> None:
    folder = small.save(tmp_path / "set")
    back = {line.id: line for line in read_lines(folder)}
    assert len(back) == 80
    for line in small.lines:
        read = back[line.id]
        assert (read.text, read.domain, read.image, read.split) == (line.text, line.domain, line.image, line.split)
        assert read.extra["writer"] == line.extra["writer"]
        assert read.extra["page"] == line.extra["page"]
    stored = json.loads((folder / "synthetic.json").read_text(encoding="utf-8"))
    assert stored == small.metadata
    assert stored["settings"]["seed"] == 5
    assert "CC BY-SA" in stored["licence"]
    assert sum(stored["lines"].values()) == 80


def test_saved_sets_are_the_same_bytes_and_follow_the_convention(small: SyntheticSet, tmp_path: Path) -> None:
    small.save(tmp_path / "a")
    make_synthetic(lines=80, seed=5).save(tmp_path / "b")
    for name in ("train.parquet", "validation.parquet", "test.parquet", "synthetic.json"):
        assert (tmp_path / "a" / name).read_bytes() == (tmp_path / "b" / name).read_bytes()
    schema = pq.read_schema(tmp_path / "a" / "train.parquet")
    info = json.loads(schema.metadata[b"huggingface"])["info"]
    assert info["features"]["image"] == {"_type": "Image"}
    assert {"image", "text", "domain", "id", "writer", "page", "line"} <= set(schema.names)


def test_a_set_is_not_written_over_a_file(small: SyntheticSet, tmp_path: Path) -> None:
    (tmp_path / "taken").write_text("x", encoding="utf-8")
    with pytest.raises(FadaError, match="a file, expected a folder"):
        small.save(tmp_path / "taken")


# --- drawing ---------------------------------------------------------------------------------------------------------


def drawn(text: str, noise: float = 0.0, writer: int = 0, seed: int = 0, **neighbours: Any) -> np.ndarray:
    fonts = rendering.find_fonts(None, text)
    return rendering.write_line(
        text,
        rendering.Hand.of(np.random.SeedSequence(writer), fonts),
        rendering.Page.of(np.random.SeedSequence(0), noise),
        np.random.default_rng(seed),
        noise=noise,
        **neighbours,
    )


def test_thinning_leaves_lines_one_pixel_wide_in_one_piece() -> None:
    shape = np.zeros((40, 60), dtype=np.uint8)
    shape[5:35, 10:18] = 1
    shape[27:35, 10:50] = 1
    before = shape.sum()
    rendering._thin(shape)
    assert 30 < shape.sum() < before / 4
    blocks = shape[:-1, :-1] + shape[1:, :-1] + shape[:-1, 1:] + shape[1:, 1:]
    assert blocks.max() <= 3
    from scipy.ndimage import label

    assert label(shape, np.ones((3, 3)))[1] == 1


def test_a_nib_leaves_a_spot_of_its_size() -> None:
    ink = np.zeros((41, 41), dtype=np.float32)
    rendering._press_nib(ink, np.array([[20.0, 20.0]]), np.ones(1), 6.0, 3.0, 0.0)
    assert ink.sum() == pytest.approx(np.pi * 6 * 3, rel=0.05)
    assert (ink[20] > 0.4).sum() == 13
    assert (ink[:, 20] > 0.4).sum() == 7


def test_a_hand_is_consistent_and_differs_from_another() -> None:
    assert np.array_equal(drawn("και το φως"), drawn("και το φως"))
    one, other = drawn("και το φως", writer=0), drawn("και το φως", writer=1)
    assert one.shape != other.shape or not np.array_equal(one, other)


def test_noise_makes_two_writings_of_a_word_differ_more() -> None:
    def difference(noise: float) -> float:
        a, b = (drawn("φως", noise, seed=seed).astype(float) for seed in (1, 2))
        width = min(a.shape[1], b.shape[1])
        return float(np.abs(a[:, :width] - b[:, :width]).mean())

    assert difference(0.0) < difference(2.0)


def test_neighbouring_lines_reach_into_the_strip() -> None:
    alone = drawn("ααα ααα ααα", noise=1.0)
    between = drawn("ααα ααα ααα", noise=1.0, above="φρζψ φρζψ φρζψ", below="βδθλ βδθλ βδθλ")
    edges = np.r_[0:6, 58:64]
    assert between[edges].min() < alone[edges].min() - 20


@pytest.mark.parametrize("text", ["a", "mmm", "ἐγώ εἰμι", "žluťoučký kůň", "съешь ещё", "q̃ p̄ē", "x" * 300])
def test_many_scripts_leave_ink_and_no_box(text: str) -> None:
    pixels = drawn(text)
    assert pixels.shape[0] == 64
    assert (pixels < 128).mean() > 0.005


def test_a_mark_is_drawn_with_its_letter() -> None:
    plain = rendering.centre_line(rendering.find_fonts(None, "ñ̄")[0], "n").points
    marked = rendering.centre_line(rendering.find_fonts(None, "ñ̄")[0], "n\u0304").points
    assert marked[:, 1].min() < plain[:, 1].min() - 0.1
    assert rendering.split_word("n\u0304e\u0301a") == ("n\u0304", "e\u0301", "a")


@needs_shaping
def test_right_to_left_words_are_written_from_the_right() -> None:
    assert rendering.split_word("שלום") == ("ם", "ו", "ל", "ש")
    assert rendering.split_word("سلام") == ("سلام",)
    wide_first = drawn("ששששששש ו")
    ink = np.flatnonzero((wide_first < 110).any(axis=0))
    gap = np.diff(ink).argmax()
    assert gap < len(ink) / 3, "the short second word stands at the left"


@needs_shaping
def test_joined_letters_are_shaped() -> None:
    font = rendering.find_fonts(None, "سلام")[0]
    whole = rendering.centre_line(font, "سل").advance
    apart = sum(rendering.centre_line(font, letter).advance for letter in "سل")
    assert whole < apart


def test_without_shaping_joined_letters_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(features, "check", lambda feature: False)
    rendering.check_shaping("και šč שלום")
    for text in ("سلام", "n\u0304"):
        with pytest.raises(FadaError, match="raqm"):
            rendering.check_shaping(text)


def test_missing_glyphs_are_an_error_that_names_them() -> None:
    with pytest.raises(FadaError, match=r"lacks .*क \(U\+0915\).*--fonts"):
        rendering.find_fonts(None, "abcक")
    with pytest.raises(FadaError, match="--fonts"):
        make_synthetic(language="hi", lines=100)


def test_a_font_folder_is_used_and_a_last_resort_font_is_not(tmp_path: Path) -> None:
    default = rendering.find_fonts(None, "α")[0]
    shutil.copy(default, tmp_path / "Mine.ttf")
    last_resort = default.parent / "LastResortHE-Regular.ttf"
    if last_resort.exists():
        shutil.copy(last_resort, tmp_path)
    made = make_synthetic(lines=16, fonts=tmp_path)
    assert made.metadata["fonts"] == ["Mine.ttf"]
    assert len(images_of(made)) == 16
    with pytest.raises(FadaError, match="lacks"):
        rendering.find_fonts(tmp_path, "क")


def test_a_folder_without_usable_fonts_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(FadaError, match="no such folder"):
        rendering.find_fonts(tmp_path / "gone", "a")
    with pytest.raises(FadaError, match=r"no \.ttf or \.otf"):
        rendering.find_fonts(tmp_path, "a")
    (tmp_path / "broken.ttf").write_bytes(b"not a font")
    with pytest.raises(FadaError, match=r"broken\.ttf: not a readable font"):
        rendering.find_fonts(tmp_path, "a")


@given(st.text(st.sampled_from("αβγδ ςάϊ"), max_size=30), st.floats(0, 3), st.integers(16, 128))
@settings(max_examples=40, deadline=None)
def test_any_text_at_any_noise_and_height_is_drawn(text: str, noise: float, height: int) -> None:
    fonts = rendering.find_fonts(None, "αβγδςάϊ")
    pixels = rendering.write_line(
        text,
        rendering.Hand.of(np.random.SeedSequence(0), fonts),
        rendering.Page.of(np.random.SeedSequence(0), noise),
        np.random.default_rng(0),
        height=height,
        noise=noise,
        above=text,
        below=text,
    )
    assert pixels.dtype == np.uint8
    assert pixels.shape[0] == height
    assert pixels.shape[1] >= 1
    assert Image.open(io.BytesIO(rendering.encode(pixels))).size == pixels.shape[::-1]


# --- the command -----------------------------------------------------------------------------------------------------


def test_the_command_writes_the_set_and_prints_the_matrix(tmp_path: Path) -> None:
    arguments = ["synth", str(tmp_path / "set"), "--lines", "60", "--domains", "3", "--processes", "1"]
    result = CliRunner().invoke(app, [*arguments, "--pearson", "0.9:0.96", "--csv"])
    assert result.exit_code == 0, result.output
    rows = [row.split(",") for row in result.stdout.strip().splitlines()]
    assert rows[0] == ["domain", "A", "B", "C"]
    matrix = np.array([[float(value) for value in row[1:]] for row in rows[1:]])
    assert extremes(matrix) == pytest.approx((0.9, 0.96), abs=0.01)
    assert len(list(read_lines(tmp_path / "set"))) == 60


def test_the_command_prints_its_metadata_as_json(tmp_path: Path) -> None:
    arguments = ["synth", str(tmp_path / "set"), "--lines", "16", "--seed", "3", "--processes", "1", "--json"]
    result = CliRunner().invoke(app, arguments)
    assert result.exit_code == 0, result.output
    assert json.loads(result.stdout)["settings"]["seed"] == 3


def test_the_command_names_a_wrong_option() -> None:
    result = CliRunner().invoke(app, ["synth", "nowhere", "--pearson", "high"])
    assert isinstance(result.exception, FadaError)
    assert "lowest:highest" in str(result.exception)
