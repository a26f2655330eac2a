"""What a manuscript's lines would be worth: told from emissions alone, and as the formulas say."""

import json
import math
from dataclasses import asdict, replace
from pathlib import Path

import numpy as np
import pytest
import torch

from fada import FadaError, load_recognizer
from fada.data.formats.parquet import write_parquet
from fada.decoding.emissions import Emissions
from fada.decoding.knowledge import Knowledge
from fada.decoding.lm import CharNgram
from fada.experiments.worth import GAINS, INTERCEPT, SLOPE, doubts, predict, rate_of, worth
from fada.models import registry
from fada.targets.distribution import CharDistribution
from fada.targets.target_set import TargetSet
from tests.support.commands import run_fada
from tests.support.training_lines import image_lines
from tests.support.types import some

SYMBOLS = ("", "a", "b", "c", " ")


def emissions(sharpness: float, lines: int = 8, seed: int = 0) -> Emissions:
    rng = np.random.default_rng(seed)
    scores = [sharpness * rng.standard_normal((rng.integers(20, 40), len(SYMBOLS))) for _ in range(lines)]
    log_probs = [(s - np.logaddexp.reduce(s, 1, keepdims=True)).astype(np.float32) for s in scores]
    return Emissions([f"l{i}" for i in range(lines)], log_probs, SYMBOLS, 0)


def test_doubt_is_what_is_left_of_every_frame() -> None:
    found = emissions(2.0)
    doubt, characters, texts = doubts(found)
    for i, scores in enumerate(found.log_probs):
        best = scores.argmax(1)
        kept = [int(c) for t, c in enumerate(best) if c and (t == 0 or best[t - 1] != c)]
        assert texts[i] == "".join(SYMBOLS[c] for c in kept)
        assert characters[i] == max(len(kept), 1)
        assert doubt[i] == pytest.approx(sum(1 - math.exp(max(row)) for row in scores.tolist()), rel=1e-4)


def test_a_certain_recogniser_is_expected_to_err_less() -> None:
    rates = [predict(emissions(sharpness)).cer for sharpness in (8.0, 3.0, 1.0)]
    assert rates == sorted(rates)
    rate = rate_of(0.2)
    assert rate.low < rate.cer < rate.high
    assert math.log(rate.cer) == pytest.approx(INTERCEPT + SLOPE * math.log(0.2), abs=0.05)


def test_everything_is_told_as_the_formulas_say() -> None:
    found = emissions(3.0)
    lines = ["abc ab cab", "cab abc", "ab ab c"] * 5
    known = Knowledge.from_texts(lines, name="xy")
    assumed = CharDistribution.from_counts({"a": 5, "b": 1, "c": 1, " ": 3})
    told = worth(found, known.with_prior(assumed))
    own = TargetSet.from_texts({"xy": lines}).overall
    kl = sum(own.frequency(c) * math.log2(own.frequency(c) / assumed.frequency(c)) for c in "abc ")
    assert told.frequency_bits == pytest.approx(kl, abs=2e-3)
    texts = doubts(found)[2]
    letters = CharNgram.train(texts, 1)
    assert known.global_lm is not None
    saved = sum(known.global_lm.log_prob(t) - letters.log_prob(t) for t in texts) / math.log(2) / sum(map(len, texts))
    assert told.text_bits == pytest.approx(saved, abs=2e-3)
    entropy = sum(-sum(p * math.log2(p) for p in row) for s in found.log_probs for row in np.exp(s).tolist())
    assert told.open_bits == pytest.approx(entropy / told.characters, abs=2e-3)
    order = [found.ids.index(line) for line in told.correct_first]
    assert list(doubts(found)[0][order]) == sorted(doubts(found)[0], reverse=True)


def test_a_text_is_worth_something_only_where_it_is_like_the_lines() -> None:
    found = emissions(3.0)
    told = worth(found, Knowledge.from_texts(doubts(found)[2] * 5, name="alike"))
    assert some(told.text_bits) > 0
    assert {"text", *GAINS} <= set(told.expected)
    assert told.expected["24 corrected lines and text"].cer < told.expected["24 corrected lines"].cer
    unlike = worth(found, Knowledge.from_texts(["qqq zzz"] * 20, name="unlike"))
    assert some(unlike.text_bits) < 0
    assert not any("text" in title for title in unlike.expected)


def test_without_knowledge_only_corrections_are_told_and_few_lines_get_a_sentence() -> None:
    told = worth(emissions(3.0))
    assert told.frequency_bits is None
    assert told.text_bits is None
    assert not any("text" in title for title in told.expected)
    with pytest.raises(FadaError, match="3 lines, expected at least 5"):
        worth(emissions(3.0, lines=3))


def test_the_command_tells_it_of_lines_without_text(tmp_path: Path) -> None:
    lines = image_lines(6)
    torch.manual_seed(0)  # a network that has learnt nothing may also write nothing
    registry.build("crnn:tiny", [str(line.text) for line in lines]).save_pretrained(tmp_path / "model")
    write_parquet([replace(line, text=None) for line in lines], tmp_path / "lines.parquet")
    (tmp_path / "text.txt").write_text("\n".join(str(line.text) for line in lines), encoding="utf-8")
    command = ["worth", tmp_path / "model", tmp_path / "lines.parquet"]
    told = json.loads(run_fada(*command, "--text", tmp_path / "text.txt", "--json").stdout)
    assert told["lines"] == 6
    assert told["text_bits"] is not None
    assert sorted(told["correct_first"]) == sorted(line.id for line in lines)
    TargetSet.from_texts({"mine": [str(line.text) for line in lines]}).save(tmp_path / "targets.json")
    told = json.loads(run_fada(*command, "--targets", tmp_path / "targets.json", "--json").stdout)
    assert told["text_bits"] is None
    assert "text" not in told["expected"]
    recognizer = load_recognizer(tmp_path / "model")
    recognizer.use_looks("auto")  # as `fada transcribe` does
    known = Knowledge.from_texts([str(line.text) for line in lines], name="text")
    assert told["predicted"] == asdict(worth(recognizer.emit(lines), known).predicted)
    shown = run_fada(*command).output
    assert "correct first" in shown
    assert "24 corrected lines" in shown
