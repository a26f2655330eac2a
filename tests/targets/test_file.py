"""The target file: bit for bit there and back, and the line at fault when a hand slipped."""

import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fada.errors import FadaError
from fada.targets.distribution import CharDistribution
from fada.targets.file import parse, read, serialize
from fada.targets.target_set import TargetSet
from fada.text.characters import OTHER
from fada.text.normalizer import TextNormalizer
from tests.support.types import some

HEAD = """{
  "format": "fada-targets",
  "version": 1,
  "normalizer": {"form": "NFC", "case": "lower"},
  "domains": {
"""
TAIL = "\n  }\n}\n"
"""The first domain of HEAD + … + TAIL stands on line 6."""


def loads(text: str, name: str = "targets", normalize: bool = False) -> TargetSet:
    """The targets that the text of a file describes."""
    return TargetSet.from_records(parse(text, name, normalize=normalize))


normalizers = st.builds(
    TextNormalizer,
    form=st.sampled_from(["NFC", "NFD", "NFKC", "NFKD", "none"]),
    case=st.sampled_from(["lower", "keep"]),
    marks=st.sampled_from(["keep", "fold"]),
    spaces=st.sampled_from(["keep", "collapse", "drop"]),
    letters_only=st.booleans(),
)
numbers = st.one_of(st.integers(0, 10**6), st.floats(0, 1e300, allow_subnormal=True), st.just(-0.0))


@st.composite
def target_sets(draw: st.DrawFn) -> TargetSet:
    normalizer = draw(normalizers)
    characters = st.characters(exclude_categories=["Cs"]).filter(normalizer.keeps) | st.just(OTHER)
    counts = st.dictionaries(characters, numbers, min_size=1, max_size=8).filter(lambda d: sum(d.values()) > 0)
    domains = draw(st.dictionaries(st.text(max_size=8), counts, min_size=1, max_size=3))
    return TargetSet({name: CharDistribution.from_counts(each, normalizer) for name, each in domains.items()})


@given(target_sets())
@settings(max_examples=70, deadline=None)
def test_save_load_save_gives_the_same_bytes_and_the_same_targets(targets: TargetSet) -> None:
    text = serialize(targets.records)
    again = loads(text)
    assert serialize(again.records) == text
    assert again == targets
    assert again.domains == targets.domains
    assert all(a.counts.tolist() == b.counts.tolist() for a, b in zip(again.values(), targets.values(), strict=True))
    text.encode("utf-8")


def test_the_file_on_disk_round_trips_and_reads_like_a_table(tmp_path: Path) -> None:
    targets = TargetSet.from_texts({"14": ["Abba é\u0323\u200b"], "13": ["b"]})
    path, again = tmp_path / "targets.json", tmp_path / "again.json"
    targets.save(path)
    TargetSet.load(path).save(again)
    assert path.read_bytes() == again.read_bytes()
    lines = path.read_text(encoding="utf-8").splitlines()
    assert '        "a": 2,' in lines
    assert any("\\u200b" in line for line in lines), "what cannot be seen is escaped"
    keys = list(json.loads(path.read_text(encoding="utf-8")))
    assert keys == ["format", "version", "normalizer", "domains", "digest"]


def test_frequencies_are_read_with_the_number_of_characters_they_come_from() -> None:
    text = HEAD + '"13": {"frequencies": {"a": 0.25, "b": 0.75}, "characters": 300},\n"14": {"counts": {"c": 7}}' + TAIL
    targets = loads(text)
    assert targets["13"].counts.tolist() == [75, 225, 0]
    assert targets["14"].total == 7
    assert loads(HEAD + '"13": {"frequencies": {"a": 1}}' + TAIL)["13"].total == 1


def test_frequencies_that_do_not_sum_to_one_are_renormalised_on_request() -> None:
    text = HEAD + '"13": {"frequencies": {"a": 0.5, "b": 0.4}, "characters": 90}' + TAIL
    np.testing.assert_allclose(loads(text, normalize=True)["13"].counts, [50, 40])


@given(st.floats(-1e-3, 1e-3))
@settings(max_examples=60, deadline=None)
def test_a_sum_within_a_millionth_passes_and_no_other(error: float) -> None:
    text = HEAD + f'"13": {{"frequencies": {{"a": {0.5 + error!r}, "b": 0.5}}}}' + TAIL
    if abs(error) < 9.9e-7:
        assert loads(text)["13"].frequencies.sum() == pytest.approx(1, abs=1e-12)
    elif abs(error) > 1.01e-6:
        with pytest.raises(FadaError, match=r"sum to"):
            loads(text)


@pytest.mark.parametrize(
    ("domains", "line", "message"),
    [
        ('"14": {\n"frequencies": {"a": 0.5,\n"b": 0.43}}', 7, 'domain "14": frequencies sum to 0.93, expected 1'),
        ('"14": {"counts": {"a": 1,\n"b": -3}}', 7, '"b" has the count -3'),
        ('"14": {"counts": {\n"a": NaN}}', 7, '"a" has the count NaN'),
        ('"14": {"counts": {\n"a": Infinity}}', 7, '"a" has the count Infinity'),
        ('"14": {"counts": {\n"a": -Infinity}}', 7, '"a" has the count -Infinity'),
        ('"14": {"counts": {\n"a": 1e999}}', 7, '"a" has the count 1e999'),
        ('"14": {"counts": {\n"a": true}}', 7, '"a" has the count true'),
        ('"14": {"counts": {\n"a": null}}', 7, '"a" has the count null'),
        ('"14": {"counts": {\n"a": "3"}}', 7, '"a" has the count "3"'),
        ('"14": {"counts": {\n"a": [3]}}', 7, '"a" has the count a list'),
        ('"14": {"frequencies": {\n"a": -0.5, "b": 1.5}}', 7, '"a" has the frequency -0.5'),
        ('"14": {"counts": {"b": 1,\n\n"A": 3}}', 8, "'A' cannot occur in text that is counted as NFC, lower case"),
        ('"14": {"counts": {\n"e\u0301": 3}}', 7, "Did you mean 'é'"),
        ('"14": {"counts": {\n"ab": 3}}', 7, "single characters"),
        ('"14": {"counts": {\n"": 3}}', 7, "single characters"),
        ('"14": {"counts": {"a": 1}},\n"14": {"counts": {"a": 1}}', 7, 'the domain "14" stands twice, first on line 6'),
        ('"14": {"counts": {"a": 1,\n"b": 1,\n"\\u0061": 2}}', 8, 'the character "a" stands twice, first on line 6'),
        ('"14": {"counts": {"a": 1},\n"counts": {"a": 1}}', 7, 'the key "counts" stands twice'),
        ('"14": {"counts": {"a": 1},\n"colour": 3}', 7, 'unknown key "colour"'),
        ('"14": {"counts": {"a": 1},\n"characters": 3}', 7, '"characters" beside "counts"'),
        ('"14": {"counts": {"a": 1}, "frequencies": {"a": 1}}', 6, 'both "counts" and "frequencies"'),
        ('"14": {}', 6, 'neither "counts" nor "frequencies"'),
        ('"14": {\n"counts": {}}', 7, "no counts"),
        ('"14": {\n"counts": {"a": 0}}', 7, "sum to 0"),
        ('"14": {"frequencies": {"a": 1},\n"characters": 0}', 7, '"characters" is 0'),
        ('"14": {"frequencies": {"a": 1},\n"characters": "many"}', 7, '"characters" is "many"'),
        ('"13": {"counts": {"a": 1}},\n"14": 3', 7, "3 where an object"),
        ('"14": {"counts":\n[1, 2]}', 7, "a list where an object"),
        ('"14": {"counts": {"a": 1,\n}}', 7, "not valid JSON at column 1"),
        ("", 5, "no domains"),
    ],
)
def test_what_is_wrong_is_named_with_its_line(domains: str, line: int, message: str) -> None:
    with pytest.raises(FadaError) as caught:
        loads(HEAD + domains + TAIL, "targets.json")
    assert str(caught.value).startswith(f"targets.json, line {line}")
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "line 1: the file is empty"),
        ("\n[1,\n2", "line 3: not valid JSON"),
        ("[1]", "a list where an object"),
        ('{\n"version": 3,\n"normalizer": {}, "domains": {}}', "line 2: version 3 is unknown"),
        ('{\n"version": "1", "normalizer": {}, "domains": {}}', 'line 2: version "1" is unknown'),
        ('{\n"version": true, "normalizer": {}, "domains": {}}', "line 2: version true is unknown"),
        ('{"version": 1,\n"normalizer": {"form": "NFX"}, "domains": {}}', "line 2: text normaliser: form is 'NFX'"),
        ('{"version": 1,\n"normalizer": {"letters_only": 1}, "domains": {}}', "line 2: text normaliser: letters_only"),
        ('{"version": 1,\n"normalizer": {"frm": "NFC"}, "domains": {}}', "line 2: text normaliser: unknown setting"),
        ('{"version": 1, "domains": {}}', 'the key "normalizer" is missing'),
        ('{"version": 1, "normalizer": {}, "domains": {},\n"note": 1}', 'line 2: unknown key "note"'),
        ('{"format": "other", "version": 1, "normalizer": {}, "domains": {}}', 'format "other"'),
        ("[" * 200_000, "nested too deeply"),
        ('{"a":' * 900 + "1" + "}" * 900, ""),
    ],
)
def test_a_file_that_is_not_a_target_file_is_refused(text: str, message: str) -> None:
    with pytest.raises(FadaError) as caught:
        loads(text, "targets.json")
    assert message in str(caught.value)


def test_a_missing_folder_or_foreign_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(FadaError, match="no such file"):
        read(tmp_path / "nothing.json")
    with pytest.raises(FadaError, match="cannot be read"):
        read(tmp_path)
    (tmp_path / "latin.json").write_bytes(b'{"caf\xe9": 1}')
    with pytest.raises(FadaError, match="byte 5: not UTF-8"):
        read(tmp_path / "latin.json")


def test_targets_that_could_not_be_read_back_are_not_written(tmp_path: Path) -> None:
    with pytest.raises(FadaError, match="cannot be saved"):
        TargetSet({"x": CharDistribution(("A",), np.ones(1))}).save(tmp_path / "targets.json")
    assert not list(tmp_path.iterdir())


@given(st.text(max_size=60) | st.text(st.sampled_from('{}[]",:1.eE-\n versondmaicutfq'), max_size=80))
@settings(max_examples=200, deadline=None)
def test_any_other_text_gives_an_error_with_a_line_never_a_traceback(text: str) -> None:
    with pytest.raises(FadaError, match=r"line \d+"):
        loads(text, "targets.json")


@given(st.floats(0, 0.5), st.floats(0, 0.9))
@settings(max_examples=40, deadline=None)
def test_edits_are_kept_beside_what_was_counted_bit_for_bit(first: float, second: float) -> None:
    targets = TargetSet.from_texts({"13": ["abbacd"], "14": ["ee"]})
    changed = targets.with_domain(
        "13", targets["13"].with_frequency("a", first).with_frequency({"b": second, "x": 0.1})
    )
    text = serialize(changed.records)
    again = loads(text)
    assert again == changed
    assert serialize(again.records) == text
    assert again["13"].edits["b"] == second
    assert some(again["13"].counted).frequencies == pytest.approx(targets["13"].over(changed.symbols).frequencies)


def test_a_file_knows_that_it_was_changed_by_hand(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = tmp_path / "targets.json"
    TargetSet.from_texts({"13": ["abba"]}).save(path)
    assert not read(path).by_hand
    path.write_text(path.read_text(encoding="utf-8").replace('"b": 2', '"b": 0'), encoding="utf-8")
    assert read(path).by_hand
    with caplog.at_level("INFO", logger="fada"):
        assert TargetSet.load(path)["13"].frequency("b") == 0
    assert "changed by hand" in caplog.text
    assert not parse(HEAD + '"13": {"counts": {"a": 1}}' + TAIL).by_hand, "version 1 cannot tell"
