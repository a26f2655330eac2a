"""Knowledge in one file: as it was when it is read again, and nothing read that is made to do harm."""

import json
import zipfile
from pathlib import Path

import pytest
import yaml

from fada.decoding.knowledge import (
    FOLDER,
    About,
    Knowledge,
    built_in_knowledge,
    knowledge_of_model,
    load_knowledge,
    read_about,
    read_knowledge,
    training_text_of,
    write_knowledge,
)
from fada.decoding.lm import CharNgram
from fada.errors import FadaError
from tests.support.types import some

ROOT = Path(__file__).parents[2]
MEDIEVAL = ROOT / "src" / "fada" / "pretrained" / "medieval"
LINES = ["in principio erat uerbum", "et uerbum erat apud deum", "et deus erat uerbum"] * 8


@pytest.fixture
def stored(tmp_path: Path) -> Path:
    write_knowledge(Knowledge.from_texts(LINES, name="la-4", order=4), tmp_path / "la.fada")
    return tmp_path / "la.fada"


def test_what_is_written_is_read_again(stored: Path) -> None:
    made = Knowledge.from_texts(LINES, name="la-4", order=4)
    read = read_knowledge(stored)
    assert read.fingerprint() == made.fingerprint()
    assert read.about == made.about == read_about(stored)
    assert (read.about.language, read.about.century, read.characters) == ("la", 4, sum(map(len, LINES)))
    assert some(read.global_lm).log_prob("deus erat") == some(made.global_lm).log_prob("deus erat")
    again = stored.with_name("again.fada")
    write_knowledge(read, again)
    assert again.read_bytes() == stored.read_bytes()


def test_a_small_file_says_nearly_the_same(stored: Path) -> None:
    whole = read_knowledge(stored)
    write_knowledge(whole, stored.with_name("small.fada"), small=True)
    small = read_knowledge(stored.with_name("small.fada"))
    assert some(small.global_lm).log_prob("deus erat") == pytest.approx(
        some(whole.global_lm).log_prob("deus erat"), abs=1
    )


def test_bits_are_those_of_lines_that_were_held_out() -> None:
    lines = [f"linea {i % 7} {i % 5} {i % 3}" for i in range(100)]
    held_out = [line for i, line in enumerate(lines) if i // 2 % 10 == 9]
    others = [line for i, line in enumerate(lines) if i // 2 % 10 != 9]
    model = CharNgram.train(others, 6, "kneser-ney")
    total = -sum(model.log_prob(line, end=True) for line in held_out) / 0.6931471805599453
    bits = some(Knowledge.from_texts(lines, name="x").about.bits)
    assert bits == pytest.approx(total / sum(len(line) + 1 for line in held_out), abs=1e-3)


def test_a_mixture_has_the_mean_of_the_probabilities() -> None:
    one, other = Knowledge.from_texts(LINES, name="la"), Knowledge.from_texts(["ab ba"] * 9, name="x")
    mixed = Knowledge.mixture([(one, 0.75), (other, 0.25)], "la and x")
    expected = some(one.global_lm).interpolate(some(other.global_lm), 0.25)
    assert some(mixed.global_lm).distribution("e") == pytest.approx(expected.distribution("e"))
    assert mixed.characters == round(0.75 * one.characters + 0.25 * other.characters)
    assert some(mixed.overall).frequency("a") == pytest.approx(
        0.75 * some(one.overall).frequency("a") + 0.25 * some(other.overall).frequency("a")
    )


def changed(stored: Path, **members: bytes) -> Path:
    """The file with other members."""
    with zipfile.ZipFile(stored) as archive:
        content = {name: archive.read(name) for name in archive.namelist()}
    path = stored.with_name("changed.fada")
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, value in (content | {name.replace("_", "."): value for name, value in members.items()}).items():
            archive.writestr(name, value)
    return path


def test_bombs_and_damaged_files_are_refused(stored: Path, tmp_path: Path) -> None:
    cases: list[tuple[dict[str, bytes], str]] = [
        ({"knowledge_json": bytes(2**21)}, "would unpack to"),
        ({"targets_json": bytes(2**25)}, "would unpack to"),
        ({"lm": b"no model"}, "language model"),
        ({"knowledge_json": b'{"version": 2}'}, "version"),
        ({"knowledge_json": b"[" * 100_000}, "knowledge.json"),
        ({"targets_json": b"\xff"}, "UTF-8"),
    ]
    for members, message in cases:
        with pytest.raises(FadaError, match=message):
            read_knowledge(changed(stored, **members))
    stored.write_bytes(stored.read_bytes()[:200])
    with pytest.raises(FadaError, match="cannot be read"):
        read_knowledge(stored)
    with pytest.raises(FadaError, match="no knowledge that comes with fada"):
        read_knowledge(tmp_path / "none.fada")


def test_what_a_command_was_given_is_one_thing(stored: Path, tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("\n".join(LINES), encoding="utf-8")
    by_text, by_file = load_knowledge(texts=[tmp_path / "a.txt"], order=4), load_knowledge(stored=stored)
    assert some(by_text.global_lm).log_prob("erat") == some(by_file.global_lm).log_prob("erat")
    assert by_text.characters == by_file.characters
    assert by_text.about.sources == (str(tmp_path / "a.txt"),)


def test_nothing_built_in_knows_an_unseen_manuscript() -> None:
    listed = yaml.safe_load((ROOT / "recipes" / "unseen.yaml").read_text(encoding="utf-8"))
    unseen = {one["manuscript"] for one in (*listed["arena"], *listed["demo"])}
    found = {name: read_about(path) for name, path in built_in_knowledge().items()}
    assert {"la", "it", "es", "ca", "oc", "an", "fr"} <= set(found)
    for name, about in found.items():
        assert about.sources, name
        assert not unseen & set(about.sources), name
        assert about.credits, name
        assert about.licence == "CC BY 4.0"
        assert about.name == name


def test_the_built_in_model_stays_small_and_brings_what_it_was_trained_on() -> None:
    assert sum(path.stat().st_size for path in MEDIEVAL.rglob("*") if path.is_file()) < 12e6
    prior = some(training_text_of(MEDIEVAL))
    assert all(known.assumed is not None for known in knowledge_of_model(MEDIEVAL, centuries=False).values())
    assert prior.total > 100_000
    assert knowledge_of_model(MEDIEVAL)["oc"].prior == prior


def test_knowledge_json_is_readable(stored: Path) -> None:
    with zipfile.ZipFile(stored) as archive:
        assert set(archive.namelist()) == {"knowledge.json", "targets.json", "lm"}
        assert About(**json.loads(archive.read("knowledge.json"))).name == "la-4"


def test_a_century_alone_is_looked_for_where_its_whole_language_is_not_known(tmp_path: Path) -> None:
    for names, looked_for in ((["la-9"], ["la-9"]), (["la-9", "la", "fr-14"], ["fr-14", "la"])):
        folder = tmp_path / names[-1]
        (folder / FOLDER).mkdir(parents=True)
        for name in names:
            write_knowledge(
                Knowledge.from_texts(["in principio erat uerbum"], name=name), folder / FOLDER / f"{name}.fada"
            )
        assert sorted(knowledge_of_model(folder, centuries=False)) == looked_for
        assert sorted(knowledge_of_model(folder)) == sorted(names)
