"""Stored emissions, and `fada decode` on them."""

import csv
import io
import json
import zipfile
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

from fada.common.files import write_json
from fada.decoding.ctc import CTCBeamDecoder
from fada.decoding.emissions import Emissions, domains_of_lines
from fada.decoding.lm import CharNgram
from fada.decoding.weights import Weights
from fada.errors import FadaError
from fada.targets.target_set import TargetSet
from fada.text.alphabet import Alphabet
from fada.tuning.tuned import Tuned
from tests.support.commands import run_fada
from tests.support.emission_sets import make_emissions, training_texts


@pytest.fixture(scope="module")
def stored(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("emissions")
    make_emissions(0, 6).save(folder / "e.npz")
    TargetSet.from_texts(training_texts()).save(folder / "targets.json")
    CharNgram.train([t for lines in training_texts().values() for t in lines], 3).save(folder / "lm.npz")
    return folder


def fada(*arguments: object) -> tuple[int, str]:
    """Run the command line as `fada` does: (exit code, what it said)."""
    from fada.cli import app

    result = CliRunner().invoke(app, ["decode", *map(str, arguments)])
    if isinstance(result.exception, FadaError):
        return 2, str(result.exception)
    return result.exit_code, result.output


def test_what_is_saved_is_read_back(tmp_path: Path) -> None:
    data = make_emissions(1, 3)
    data.save(tmp_path / "some" / "e.npz")
    again = Emissions.load(tmp_path / "some" / "e.npz")
    assert (again.ids, again.symbols, again.blank) == (data.ids, data.symbols, data.blank)
    assert (again.domains, again.references) == (data.domains, data.references)
    assert all(np.array_equal(a, b) for a, b in zip(again.log_probs, data.log_probs, strict=True))


def test_two_models_in_one_folder_keep_their_own_classes(tmp_path: Path) -> None:
    scores = [np.zeros((1, 3), np.float32)]
    for name, symbols, blank in (("a", ("", "a", "b\0"), 0), ("b", ("x", "y", ""), 2)):
        Emissions(["1"], scores, symbols, blank).save(tmp_path / f"{name}.npz")
    first, second = (Emissions.load(tmp_path / f"{name}.npz") for name in "ab")
    assert (first.symbols, first.blank) == (("", "a", "b\0"), 0)
    assert (second.symbols, second.blank) == (("x", "y", ""), 2)
    assert Alphabet.load(tmp_path / "symbols.json").symbols == first.symbols
    assert Alphabet.load(tmp_path / "b.symbols.json").symbols == second.symbols
    with pytest.raises(FadaError, match="Leave --symbols out"):
        Emissions.load(tmp_path / "b.npz", tmp_path / "symbols.json")


def test_a_packed_file_without_classes_takes_those_beside_it(tmp_path: Path) -> None:
    np.savez(tmp_path / "e.npz", ids=np.array(["1"]), lengths=np.array([2]), log_probs=np.zeros((2, 2)))
    (tmp_path / "symbols.json").write_text('["a", ""]', encoding="utf-8")
    assert Emissions.load(tmp_path / "e.npz", blank=1).symbols == ("a", "")


@settings(max_examples=25, deadline=None)
@given(
    st.lists(
        st.tuples(st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"])), st.integers(0, 3)),
        unique_by=lambda x: x[0],
    )
)
def test_any_ids_and_lengths_survive_storage(tmp_path_factory: pytest.TempPathFactory, lines: list) -> None:
    path = tmp_path_factory.mktemp("e") / "e.npz"
    data = Emissions([i for i, _ in lines], [np.zeros((n, 2), np.float32) for _, n in lines], ("", "a"))
    data.save(path)
    again = Emissions.load(path)
    assert again.ids == data.ids
    assert [len(x) for x in again.log_probs] == [n for _, n in lines]
    assert again.domains is None


def test_one_array_per_line_is_read_too(tmp_path: Path) -> None:
    np.savez(tmp_path / "e.npz", **cast(Any, {"page1 line/2": np.zeros((3, 2)), "x": np.zeros((0, 2))}))
    (tmp_path / "classes.json").write_text('["a", ""]', encoding="utf-8")
    data = Emissions.load(tmp_path / "e.npz", tmp_path / "classes.json", blank=1)
    assert data.ids == ["page1 line/2", "x"]
    assert data.blank == 1
    assert data.log_probs[0].dtype == np.float32


def test_pickled_objects_are_never_loaded(tmp_path: Path) -> None:
    np.savez(tmp_path / "e.npz", x=np.array([{"evil": 1}], dtype=object))
    (tmp_path / "symbols.json").write_text('["", "a"]', encoding="utf-8")
    with pytest.raises(FadaError, match="pickled objects"):
        Emissions.load(tmp_path / "e.npz")


@pytest.mark.parametrize(
    ("content", "message"),
    [("[1, 2]", "list of strings"), ("{", "not a JSON file"), ('{"symbols": ["a"], "blank": 4}', "blank is 4")],
)
def test_symbols_that_make_no_sense_are_refused(tmp_path: Path, content: str, message: str) -> None:
    path = tmp_path / "symbols.json"
    path.write_text(content, encoding="utf-8")
    with pytest.raises(FadaError, match=message):
        Alphabet.load(path)


def test_arrays_that_do_not_fit_are_refused(tmp_path: Path) -> None:
    with pytest.raises(FadaError, match="expected \\(frames, 2\\)"):
        Emissions(["a"], [np.zeros((3, 5))], ("", "a"))
    with pytest.raises(FadaError, match="stands twice"):
        Emissions(["a", "a"], [np.zeros((1, 2))] * 2, ("", "a"))
    (tmp_path / "symbols.json").write_text('["", "a"]', encoding="utf-8")
    for content in (b"", b"PK\x03\x04 broken"):
        (tmp_path / "e.npz").write_bytes(content)
        with pytest.raises(FadaError, match=r"e\.npz"):
            Emissions.load(tmp_path / "e.npz")
    np.savez(tmp_path / "e.npz", ids=np.array(["a"]), lengths=np.array([7]), log_probs=np.zeros((3, 2)))
    with pytest.raises(FadaError, match="damaged"):
        Emissions.load(tmp_path / "e.npz")


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 2000), st.integers(1, 255))
def test_a_damaged_byte_is_noticed_or_harmless(tmp_path_factory: pytest.TempPathFactory, at: int, change: int) -> None:
    path = tmp_path_factory.getbasetemp() / "damaged" / "e.npz"
    make_emissions(1, 1).save(path)
    data = bytearray(path.read_bytes())
    data[at % len(data)] ^= change
    path.write_bytes(data)
    with suppress(FadaError):
        Emissions.load(path)


def test_domains_come_from_one_place(tmp_path: Path) -> None:
    data = make_emissions(2, 1)
    assert domains_of_lines(data) == ["12", "13"]
    assert domains_of_lines(data, domain="14") == ["14", "14"]
    table = tmp_path / "domains.tsv"
    table.write_text("id\tdomain\nline-1\t12\nline-0\t13\n", encoding="utf-8")
    assert domains_of_lines(data, table=table) == ["13", "12"]
    table.write_text("line-0\t13\n", encoding="utf-8")
    with pytest.raises(FadaError, match="no domain for the line 'line-1'"):
        domains_of_lines(data, table=table)
    table.write_text("line-0 13\n", encoding="utf-8")
    with pytest.raises(FadaError, match="line 1: 1 cells, expected 2 \\(id, domain\\)"):
        domains_of_lines(data, table=table)
    with pytest.raises(FadaError, match="one of the two"):
        domains_of_lines(data, "12", table)


def test_decode_guides_each_line_to_its_domain(stored: Path) -> None:
    code, said = fada(
        stored / "e.npz", "--symbols", stored / "symbols.json", "--targets", stored / "targets.json", "--lam", 0.2,
        "--scale", 30, "--distance", "aligned_w2", "--beam", 7, "--nbest", 2, "--out", stored / "out.tsv",
    )  # fmt: skip
    assert (code, said.split(":")[0]) == (0, "12 lines decoded")
    with open(stored / "out.tsv", encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file, delimiter="\t"))
    data, targets = Emissions.load(stored / "e.npz"), TargetSet.load(stored / "targets.json")
    decoder = CTCBeamDecoder(data.symbols, beam_size=7, lam=0.2, scale=30, distance="aligned_w2")
    expected = decoder.decode_batch(data.log_probs, [targets[d] for d in data.domains or []], nbest=2)
    assert [row["text"] for row in rows] == [h.text for line in expected for h in line]
    assert [float(row["score"]) for row in rows] == pytest.approx([h.score for x in expected for h in x], abs=1e-6)
    assert [row["rank"] for row in rows] == ["1", "2"] * 12


def test_decode_writes_jsonl_with_alignment_and_plain_text(stored: Path) -> None:
    path = stored / "out.jsonl"
    options = ["--targets", stored / "targets.json", "--domain", "13", "--lm", stored / "lm.npz", "--lm-weight", 0.3]
    code, _ = fada(stored / "e.npz", *options, "--prior-weight", 0.5, "--length-bonus", 0.2, "--alignment", "-o", path)
    assert code == 0
    rows = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    assert len(rows) == 12
    assert {row["domain"] for row in rows} == {"13"}
    assert all(len(row["frames"]) == len(row["confidences"]) == len(row["text"]) for row in rows)
    code, _ = fada(stored / "e.npz", "--forbidden", "ab", "--out", stored / "out.txt")
    lines = (stored / "out.txt").read_text(encoding="utf-8").splitlines()
    assert code == 0
    assert len(lines) == 12
    assert not set("".join(lines)) & set("ab")


def test_decode_prints_to_the_terminal_without_out(stored: Path) -> None:
    code, said = fada(stored / "e.npz")
    assert code == 0
    assert said.splitlines()[0].split("\t")[:4] == ["id", "domain", "rank", "text"]
    assert len(said.splitlines()) == 13


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--targets", "targets.json", "--domain", "99"], "no domain '99'"),
        (["--domain", "12"], "without --targets"),
        (["--out", "out.docx"], "unknown ending"),
        (["--alignment"], "--alignment needs"),
        (["--symbols", "missing.json"], "missing.json"),
        (["--targets", "targets.json", "--distance", "w2"], "cannot guide a decoder"),
        (["--beam", "100000000"], "expected at most 10000"),
    ],
)
def test_decode_says_what_is_wrong(stored: Path, options: list[str], message: str) -> None:
    options = [str(stored / o) if o.endswith((".json", ".docx")) else o for o in options]
    code, said = fada(stored / "e.npz", *options)
    assert code == 2
    assert message in said


def test_a_line_that_cannot_be_decoded_is_named_and_the_others_go_on(
    stored: Path, caplog: pytest.LogCaptureFixture
) -> None:
    data = Emissions.load(stored / "e.npz")
    log_probs = [line.copy() for line in data.log_probs]
    log_probs[1][3, 2] = np.nan
    replace(data, log_probs=log_probs).save(stored / "broken.npz")
    whole, broken = stored / "whole.tsv", stored / "broken.tsv"
    assert fada(stored / "e.npz", "--out", whole)[0] == 0
    code, said = fada(stored / "broken.npz", "--out", broken)
    assert code == 1
    assert f"{len(data) - 1} lines decoded" in said
    assert f"line {data.ids[1]!r}, frame 3, class 2: nan" in caplog.text
    expected = whole.read_text(encoding="utf-8").splitlines()
    found = broken.read_text(encoding="utf-8").splitlines()
    assert found[:2] + found[3:] == expected[:2] + expected[3:]
    assert found[2].split("\t")[0] == data.ids[1]
    assert set(found[2].split("\t")[3:]) == {""}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--lam", 0.3], "--lam without effect: there is no target"),
        (["--scale", 50, "--distance", "js"], "--scale and --distance without effect"),
        (["--lm-weight", 0.5], "--lm-weight without a language model"),
        (["--hot-word", "a", "--lm-weight", 0.5], "--lm-weight without a language model"),
        (["--tuned", "tuned.json"], "tuned.json: weights that guide to targets"),
    ],
)
def test_weights_without_effect_are_refused(
    stored: Path, options: list[object], message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Tuned(weights=Weights(lam=0.5)).save("tuned.json")
    code, said = fada(stored / "e.npz", *options)
    assert (code, message in said) == (2, True)
    assert fada(stored / "e.npz", "--lam", 1)[0] == 0


def test_emissions_that_are_not_there_are_named(tmp_path: Path) -> None:
    with pytest.raises(FadaError, match=r"none\.npz: no such file"):
        run_fada("decode", tmp_path / "none.npz")


def test_lines_can_be_put_into_another_order() -> None:
    scores = [np.zeros((n, 2), np.float32) for n in (1, 2, 3)]
    emissions = Emissions(["a", "b", "c"], scores, ("-", "x"), 0, ["13", "14", "13"], list("xyz"))
    part = emissions.ordered(["c", "a"])
    assert (part.ids, part.domains, part.references) == (["c", "a"], ["13", "13"], ["z", "x"])
    assert [len(found) for found in part.log_probs] == [3, 1]
    with pytest.raises(FadaError, match="'d'"):
        emissions.ordered(["d"])


def test_a_small_file_that_unpacks_to_gigabytes_is_refused_at_once(tmp_path: Path) -> None:
    path = tmp_path / "bomb.npz"
    frames = 4_000_000
    header = io.BytesIO()
    description = {"descr": "<f4", "fortran_order": False, "shape": (frames, 20)}
    np.lib.format.write_array_header_1_0(header, description)
    with (
        zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive,
        archive.open("log_probs.npy", "w", force_zip64=True) as stream,
    ):
        stream.write(header.getvalue())
        for _ in range(frames * 20 * 4 // 2**20):
            stream.write(bytes(2**20))
    write_json(tmp_path / "symbols.json", [""] * 20)
    with pytest.raises(FadaError, match=r"MB that unpack to 0\.3 GB"):
        Emissions.load(path)


def test_an_array_that_says_more_than_it_holds_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "lies.npz"
    header = io.BytesIO()
    description = {"descr": "<f4", "fortran_order": False, "shape": (10**12, 20)}
    np.lib.format.write_array_header_1_0(header, description)
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("a.npy", header.getvalue() + bytes(800))
    write_json(tmp_path / "symbols.json", [""] * 20)
    with pytest.raises(FadaError, match="its header tells of"):
        Emissions.load(path)


def test_lengths_that_overflow_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "e.npz"
    lengths = np.array([2**63 - 1, 2**63 - 1, 5], np.int64)  # their sum is 3 in 64 bits
    np.savez(path, ids=np.array(list("abc")), lengths=lengths, log_probs=np.zeros((3, 2), np.float32))
    write_json(tmp_path / "symbols.json", ["", "a"])
    with pytest.raises(FadaError, match="sum to 18446744073709551619, but there are 3 frames"):
        Emissions.load(path)


def test_a_folder_in_place_of_emissions_is_named_once(tmp_path: Path) -> None:
    with pytest.raises(FadaError) as told:
        Emissions.load(tmp_path)
    assert str(told.value).count(str(tmp_path)) == 1
