"""Word lists and hot words as a language model."""

import math
import os
import sys
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from fada.cli import app
from fada.decoding.ctc import CTCBeamDecoder
from fada.decoding.emissions import Emissions
from fada.decoding.knowledge import Decoder, Knowledge
from fada.decoding.lm import CharNgram
from fada.decoding.lm_files import is_kenlm, read_kenlm, read_lm
from fada.decoding.lm_train import check_component
from fada.decoding.search import BeamSearch
from fada.decoding.weights import Weights
from fada.decoding.wordlist import as_written, read_words, with_words, word_model
from fada.errors import FadaError

ARPA = """
\\data\\
ngram 1=6
ngram 2=5
ngram 3=3

\\1-grams:
-1.0\t<unk>
-99\t<s>\t-0.5
-0.9\t</s>
-0.7\ta\t-0.3
-0.8\tb\t-0.2
-0.6\t<space>\t-0.1

\\2-grams:
-0.2\t<s> a\t-0.15
-0.4\ta b\t-0.25
-0.5\tb <space>\t-0.05
-0.55\tb b\t-0.45
-0.3\tb </s>

\\3-grams:
-0.1\t<s> a b
-0.12\ta b <space>
-0.14\tb b </s>

\\end\\
"""
WORDS = {"marc": 3.0, "marie": 1.0, "de la": 2.0, "la": 1.0}


def test_every_state_is_a_distribution() -> None:
    model = word_model(WORDS)
    (component,) = model.components
    check_component(component, "words")
    for context in (
        "",
        "m",
        "mar",
        "marc",
        "marc ",
        "de",
        "de ",
        "de l",
        "de la",
        "de la m",
        "xx",
        "xx ",
        "la",
        "la la",
    ):
        assert sum(model.distribution(context).values()) == pytest.approx(1)


def test_words_are_spelt_by_their_weights() -> None:
    model = word_model(WORDS)
    total = sum(WORDS.values())
    after_start = model.distribution("")
    assert after_start["m"] == pytest.approx(0.9 * 4 / total)
    assert model.distribution("xx ")["m"] == pytest.approx(after_start["m"])
    assert model.distribution("mar")["c"] == pytest.approx(0.9 * 3 / 4)
    assert model.distribution("marc")[" "] == pytest.approx(0.9 * 0.9)
    assert model.distribution("marc")[""] == pytest.approx(0.9 * 0.1)
    # Within a phrase its end is meant, and any other word may begin there too.
    assert model.distribution("de ")["l"] == pytest.approx(0.9)
    assert model.distribution("de ")["m"] > model.distribution("de")["m"]
    even = 1 / (len(model.vocabulary) + 2)
    assert model.distribution("xx")["m"] == pytest.approx(even)


def emissions_of(text: str, rival: str, symbols: list[str], doubt: float) -> np.ndarray:
    """Frames that prefer `rival` to `text` by a little wherever the two differ."""
    frames = []
    for wanted, other in zip(text, rival, strict=True):
        p = np.full(len(symbols), 1e-4)
        p[symbols.index(other)] = 0.5 + doubt if wanted != other else 1.0
        p[symbols.index(wanted)] = 0.5 - doubt if wanted != other else 1.0
        blank = np.full(len(symbols), 1e-4)
        blank[0] = 1.0
        frames += [p / p.sum(), blank / blank.sum()]
    return np.log(np.array(frames)).astype(np.float32)


@pytest.mark.parametrize("language", [False, True])
def test_a_hot_word_is_read_where_the_recogniser_hesitates_and_other_words_stay(language: bool) -> None:
    symbols = ["", *sorted(set("le roi mar c iexot"))]
    emissions = Emissions(
        ids=["a", "b"],
        log_probs=[
            emissions_of("le roi marc", "le roi maxc", symbols, 0.1),
            emissions_of("le roi mort", "le roi mort", symbols, 0.1),
        ],
        symbols=tuple(symbols),
        blank=0,
    )
    model = CharNgram.train(["le roi", "le roi mort", "li rois"], order=3)
    plain = Decoder(Weights(), Knowledge())
    if language:
        plain = Decoder(Weights(lm="global", lm_weight=0.3), Knowledge(global_lm=model))
    assert BeamSearch(emissions, plain.knowledge).choose(Weights()) == ["le roi maxc", "le roi mort"]
    found = with_words(plain, {"marc": 1.0}, "".join(symbols))
    assert BeamSearch(emissions, found.knowledge).choose(found.weights) == ["le roi marc", "le roi mort"]
    assert found.knowledge.fingerprint() != plain.knowledge.fingerprint()


def test_without_a_language_model_texts_of_other_words_keep_their_score() -> None:
    symbols = ["", *"abc xyz"]
    found = with_words(Decoder(Weights(), Knowledge()), {"abc": 1.0}, "".join(symbols))
    log_probs = emissions_of("xyz zyx", "xyz zyx", symbols, 0.0)
    before = CTCBeamDecoder(symbols, beam_size=1).decode(log_probs)[0]
    assert found.knowledge.global_lm is not None
    after = found.weights.lm_weight * found.knowledge.global_lm.log_prob(before.text)
    gained = after + found.weights.length_bonus * len(before.text)
    assert -0.6 < gained <= 0  # a word that begins otherwise costs its first letter a little
    listed = found.weights.lm_weight * found.knowledge.global_lm.log_prob("abc abc")
    assert listed + found.weights.length_bonus * 7 > 1


def test_words_come_from_a_file_with_their_counts(tmp_path: Path) -> None:
    path = tmp_path / "words.txt"
    path.write_text("Guillelmus\t10\n\n  de   la \nrex\nrex\t2\n", encoding="utf-8")
    assert read_words(path) == {"Guillelmus": 10, "de la": 1, "rex": 3}
    path.write_text("rex\toften\n", encoding="utf-8")
    with pytest.raises(FadaError, match="line 1: 'often', expected how often 'rex' is used"):
        read_words(path)
    path.write_text("\n", encoding="utf-8")
    with pytest.raises(FadaError, match="no words"):
        read_words(path)
    with pytest.raises(FadaError, match="above 0 and below 1"):
        with_words(Decoder(Weights(), Knowledge()), {"a": 1.0}, "a", share=1.0)


def test_words_take_the_form_of_the_recogniser_or_are_named() -> None:
    found, impossible = as_written({"ñe": 1.0, "n\u0303e": 2.0, "ωe": 1.0}, "n\u0303e")
    assert found == {"n\u0303e": 3.0}
    assert impossible == ["ωe"]


BINARIES = [Path(__file__).parents[1] / "files" / f"kenlm-{kind}.bin" for kind in ("trie", "probing")]
"""What `build_binary` of KenLM 0.3.0 made of `ARPA`."""


@pytest.mark.parametrize(("at", "byte"), [(3, 0), (64, 1), (88, 0), (88, 200), (96, 9), (111, 255)], ids=str)
def test_the_header_of_a_kenlm_binary_is_checked_before_kenlm_sees_it(tmp_path: Path, at: int, byte: int) -> None:
    data = bytearray(BINARIES[0].read_bytes())
    data[at] = byte
    (tmp_path / "lm.bin").write_bytes(data)
    with pytest.raises(FadaError, match=r"lm\.bin: "):
        read_lm(tmp_path / "lm.bin", "ab ")
    if at > 3:
        with pytest.raises(FadaError, match=r"not a (sound|whole) KenLM binary"):
            read_kenlm(tmp_path / "lm.bin", "ab ")


def test_a_kenlm_binary_over_which_kenlm_breaks_down_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "kenlm.py").write_text("import os\nos.abort()\n", encoding="utf-8")  # as the library does then
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(tmp_path), *sys.path]))
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(FadaError, match=r"KenLM broke down over it.*Give the ARPA file"):
        read_kenlm(BINARIES[0], "ab ")


@pytest.mark.skipif(find_spec("kenlm") is not None, reason="kenlm is installed")
@pytest.mark.parametrize("path", BINARIES, ids=lambda path: path.stem)
def test_a_kenlm_binary_is_known_as_one_and_says_what_reads_it(path: Path) -> None:
    assert is_kenlm(path)
    with pytest.raises(FadaError, match=r"a KenLM binary needs the package kenlm.*fada\[kenlm\]"):
        read_lm(path, "ab ")


@pytest.mark.parametrize("binary", [None, *BINARIES], ids=["arpa", "trie", "probing"])
def test_a_kenlm_binary_or_its_arpa_scores_as_kenlm_does(tmp_path: Path, binary: Path | None) -> None:
    kenlm = pytest.importorskip("kenlm")
    arpa = tmp_path / "lm.arpa"
    arpa.write_text(ARPA, encoding="utf-8")
    path = binary or arpa
    assert is_kenlm(path) == (binary is not None)
    theirs = kenlm.Model(str(path))
    ours = read_kenlm(path, "ab ☃")
    assert ours.order == CharNgram.from_arpa(arpa).order == 3
    assert ours.vocabulary == (" ", "a", "b")
    for text in ("ab a", "b", "aab ba", "a☃b", "bb b", " ", ""):
        spelt = " ".join("<space>" if c == " " else c for c in text)
        for end in (False, True):
            assert CharNgram.from_arpa(arpa).log_prob(text, end=end) == pytest.approx(
                ours.log_prob(text, end=end), abs=1e-4
            )
            assert ours.log_prob(text, end=end) == pytest.approx(
                math.log(10) * theirs.score(spelt, bos=True, eos=end), abs=1e-4
            )
    with pytest.raises(FadaError, match="none of the recogniser's characters is a word"):
        read_kenlm(path, "ωψ")


def test_the_command_line_takes_words_and_language_models(tmp_path: Path) -> None:
    symbols = ("", *sorted(set("le roi marcx")))
    log_probs = emissions_of("le roi marc", "le roi maxc", list(symbols), 0.1)
    Emissions(ids=["a"], log_probs=[log_probs], symbols=symbols, blank=0).save(tmp_path / "e.npz")
    (tmp_path / "words.txt").write_text("marc\t2\nωμέγα\n", encoding="utf-8")
    (tmp_path / "lm.arpa").write_text(ARPA.replace("\tb", "\tr").replace(" b", " r"), encoding="utf-8")

    def texts(*options: object) -> str:
        out = tmp_path / "out.txt"
        done = CliRunner().invoke(app, ["decode", str(tmp_path / "e.npz"), "-o", str(out), *map(str, options)])
        assert done.exit_code == 0, done.output
        return out.read_text(encoding="utf-8").strip() + done.stderr

    assert texts() == "le roi maxc"
    assert texts("--hot-word", "marc") == "le roi marc"
    told = texts("--words", tmp_path / "words.txt")
    assert told.startswith("le roi marc")
    assert "cannot write, left out: ωμέγα" in told
    assert texts("--lm", tmp_path / "lm.arpa", "--lm-weight", 1, "--hot-word", "marc") == "le roi marc"
    with pytest.raises(FadaError, match="none of the 1 words"):
        CliRunner().invoke(app, ["decode", str(tmp_path / "e.npz"), "--hot-word", "ω"], catch_exceptions=False)
