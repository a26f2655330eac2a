"""`fada knowledge`, and what is known told to every command in the same words, with the same meaning."""

import json
from pathlib import Path

import pytest
from rapidfuzz.distance import Levenshtein

from fada.decoding.defaults import certainty_of, weights_for
from fada.decoding.emissions import Emissions
from fada.decoding.knowledge import Knowledge, read_knowledge
from fada.decoding.search import BeamSearch
from fada.errors import FadaError
from fada.targets.target_set import TargetSet
from tests.support.commands import run_fada
from tests.support.drawn import drawn_lines
from tests.support.emission_sets import make_emissions, training_texts


def fada(*arguments: object) -> str:
    return run_fada(*arguments).stdout


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Emissions, a text in their language, and the same text as a .fada file."""
    folder = tmp_path_factory.mktemp("known")
    make_emissions(0, 12).save(folder / "e.npz")
    lines = [line for part in training_texts().values() for line in part]
    (folder / "text.txt").write_text("\n".join(lines), encoding="utf-8")
    fada("knowledge", "build", folder / "text.txt", "--out", folder / "mine.fada", "--licence", "CC0", "--credit", "me")
    return folder


def expected(folder: Path) -> list[str]:
    emissions = Emissions.load(folder / "e.npz")
    lines = (folder / "text.txt").read_text(encoding="utf-8").splitlines()
    known = Knowledge.from_texts(lines, name="mine")
    return BeamSearch(emissions, known).choose(weights_for(known.characters, certainty_of(emissions.log_probs)))


@pytest.mark.parametrize("option", ["--text", "--knowledge", "--lm-text"])
def test_a_text_means_the_same_to_decode_and_evaluate_however_it_is_given(folder: Path, option: str) -> None:
    given = folder / ("mine.fada" if option == "--knowledge" else "text.txt")
    fada("decode", folder / "e.npz", option, given, "--out", folder / "out.txt")
    assert (folder / "out.txt").read_text(encoding="utf-8").splitlines() == expected(folder)
    found = json.loads(fada("evaluate", folder / "e.npz", option, given, "--json", "--bootstrap", 0, "--resamples", 0))
    rates = {name: part["cer"] for name, part in found["evaluations"].items()}
    assert rates["knowledge"] < rates["beam"]


def test_targets_mean_the_same_to_decode_and_evaluate(folder: Path) -> None:
    fada("targets", "build", folder / "text.txt", "--out", folder / "t.json")
    aims = ["--targets", folder / "t.json", "--domain", next(iter(TargetSet.load(folder / "t.json")))]
    fada("decode", folder / "e.npz", *aims, "--out", folder / "guided.txt")
    guided = (folder / "guided.txt").read_text(encoding="utf-8").splitlines()
    emissions = Emissions.load(folder / "e.npz")
    references = emissions.references or []
    by_hand = 100 * sum(map(Levenshtein.distance, references, guided)) / sum(map(len, references))
    found = json.loads(fada("evaluate", folder / "e.npz", *aims, "--json", "--bootstrap", 0, "--resamples", 0))
    assert found["evaluations"]["knowledge"]["cer"] == pytest.approx(by_hand)


def test_a_domain_means_the_knowledge_of_that_name(folder: Path) -> None:
    for name, options in (("domain", ["--domain", "la-8"]), ("knowledge", ["--knowledge", "la"])):
        fada("decode", folder / "e.npz", *options, "--out", folder / f"{name}.txt")
        found = fada("evaluate", folder / "e.npz", *options, "--json", "--bootstrap", 0, "--resamples", 0)
        (folder / f"{name}.json").write_text(found, encoding="utf-8")
    assert (folder / "domain.txt").read_text("utf-8") == (folder / "knowledge.txt").read_text("utf-8")
    rates = [json.loads((folder / f"{name}.json").read_text("utf-8")) for name in ("domain", "knowledge")]
    assert rates[0]["evaluations"]["knowledge"]["cer"] == rates[1]["evaluations"]["knowledge"]["cer"]


def test_the_century_that_a_table_tells_is_read_with(tmp_path: Path) -> None:
    (line, *_) = drawn_lines(1)
    line.load_image().save(tmp_path / "line.png")
    (tmp_path / "lines.csv").write_text("image,century\nline.png,la-13\n", encoding="utf-8")
    fada("transcribe", tmp_path / "lines.csv", "--out", tmp_path / "out.tsv")
    made = json.loads((tmp_path / "out.tsv.provenance.json").read_text(encoding="utf-8"))
    assert made["knowledge"] == "la-13"


def test_tuning_takes_a_file_of_knowledge(folder: Path) -> None:
    options = ["--lam", 0.5, "--scale", 1, "--distance", "sorted_w2", "--folds", 2, "--no-prior"]
    fada("tune", folder / "e.npz", "--knowledge", folder / "mine.fada", *options, "--out", folder / "tuned.json")
    assert json.loads((folder / "tuned.json").read_text(encoding="utf-8"))["lm"] == "global"
    fada("decode", folder / "e.npz", "--tuned", folder / "tuned.json", "--knowledge", folder / "mine.fada")


def test_a_file_tells_what_it_is_made_from(folder: Path) -> None:
    told = fada("knowledge", "show", folder / "mine.fada")
    assert f"sources: {folder / 'text.txt'}" in told
    assert "licence: CC0" in told
    assert "credits: me" in told
    about = json.loads(fada("knowledge", "show", folder / "mine.fada", "--json"))
    assert about["characters"] == read_knowledge(folder / "mine.fada").characters
    listed = json.loads(fada("knowledge", "list", "--json"))
    assert {"la", "fr", "la-13"} <= {one["name"] for one in listed}


def test_what_cannot_be_is_told_in_a_sentence(folder: Path) -> None:
    (folder / "empty.txt").write_text("\n", encoding="utf-8")
    for arguments, message in (
        (["knowledge", "build", folder / "text.txt", "--out", folder / "x.zip"], "ends in .fada"),
        (["knowledge", "build", folder / "empty.txt", "--out", folder / "x.fada"], "no text for the language model"),
        (["knowledge", "show", "xx"], "no knowledge that comes with fada"),
        (["decode", folder / "e.npz", "--knowledge", folder / "none.fada"], "no such file"),
        (["decode", folder / "e.npz", "--knowledge", "auto", "--text", folder / "text.txt"], "leave --text"),
        (["decode", folder / "e.npz", "--domain", "xx"], "a domain that fada brings no knowledge of"),
    ):
        with pytest.raises(FadaError, match=message):
            fada(*arguments)
    assert not (folder / "x.fada").exists()
