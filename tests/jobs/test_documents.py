"""Documents of a job are read with what fits each of them, and the same after an interruption."""

import json
import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from fada.data.line import Line, LineSet
from fada.decoding.evidence import Automatic
from fada.decoding.knowledge import Knowledge, read_knowledge
from fada.decoding.weights import Weights
from fada.errors import FadaError
from fada.jobs import journal
from fada.jobs.merge import merge
from fada.jobs.shards import Shard
from fada.jobs.transcribe import Summary
from fada.models.recognizer import Recognizer
from tests.support.ink import InkReader
from tests.support.jobs import transcribe
from tests.support.languages import ENGLISH, FRENCH, LATIN, SYMBOLS


def lines_of(text: str, manuscript: str) -> list[Line]:
    words = " ".join(text.split())
    parts = [words[i : i + 40] for i in range(0, len(words), 40)]
    extra = {"manuscript": manuscript}
    return [Line(f"{manuscript}/{i}", extra={**extra, "ink": part}) for i, part in enumerate(parts)]


@pytest.fixture(scope="module")
def automatic() -> Automatic:
    return Automatic({name: read_knowledge(name) for name in ("la", "fr", "it")})


MANUSCRIPTS = [*lines_of(LATIN, "bible"), *lines_of(FRENCH, "graal"), *lines_of(ENGLISH, "tales")]


def read(out: Path, automatic: Automatic | None, lines: Sequence[Line] = MANUSCRIPTS, **options: object) -> Summary:
    reader = InkReader(SYMBOLS, doubt=0.25)
    return transcribe(reader, LineSet.of(lines), out, automatic=automatic, **options)  # type: ignore[arg-type]


def test_each_document_is_read_in_its_language_and_that_is_told(tmp_path: Path, automatic: Automatic) -> None:
    done = read(tmp_path / "out.tsv", automatic)
    assert not done.failed
    told = "\n".join(done.notes)
    assert "la: 1 document (certainty" in told
    assert "fr: 1 document (certainty" in told
    assert "none of the known languages (la, fr, it) fits 1 of 3 documents" in told
    made = json.loads((tmp_path / "out.tsv.provenance.json").read_text(encoding="utf-8"))
    assert "la: 1 document (certainty" in made["knowledge"]
    assert re.search(r"; fr: 1 document \(certainty \d+%\): graal", made["knowledge"])
    assert made["beam"] == "16"
    assert "lm" not in made  # two with a language model, one without
    alone = read(tmp_path / "latin.tsv", automatic, lines_of(LATIN, "bible"))
    assert alone.notes[0].startswith("read as la (certainty")
    made = json.loads((tmp_path / "latin.tsv.provenance.json").read_text(encoding="utf-8"))
    assert made["knowledge"].startswith("la (certainty")
    assert float(made["lm_weight"]) > 0


def test_a_century_of_which_nothing_is_known_is_told(tmp_path: Path) -> None:
    dated = Automatic({name: read_knowledge(name) for name in ("la", "la-13")})
    for domain, told in (("la-9", "nothing is known of la-9 alone (known: la-13)"), ("la-13", ""), ("la", "")):
        lines = [replace(line, domain=domain) for line in lines_of(LATIN, "bible")]
        notes = "\n".join(read(tmp_path / f"{domain}.tsv", dated, lines).notes)
        assert ("alone" in notes) == bool(told)
        assert told in notes
    alone = read(tmp_path / "tales.tsv", Automatic({"fr-15": read_knowledge("fr-15")}), lines_of(ENGLISH, "tales"))
    assert "none of the known languages (fr-15) fits this document" in "\n".join(alone.notes)


def test_neither_an_interruption_nor_the_batch_nor_shards_change_the_result(
    tmp_path: Path, automatic: Automatic, monkeypatch: pytest.MonkeyPatch
) -> None:
    read(tmp_path / "whole.tsv", automatic)
    whole = (tmp_path / "whole.tsv").read_bytes()
    written = 0
    append = journal.Journal.append

    def stops(self: journal.Journal, rows: object) -> None:
        nonlocal written
        append(self, list(rows)[:3])  # type: ignore[call-overload]
        written += 1
        if written == 2:
            raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(journal.Journal, "append", stops)
        with pytest.raises(KeyboardInterrupt):
            read(tmp_path / "again.tsv", automatic)
    assert read(tmp_path / "again.tsv", automatic).resumed == 6
    assert (tmp_path / "again.tsv").read_bytes() == whole
    read(tmp_path / "large.tsv", automatic, batch_size=100)
    assert (tmp_path / "large.tsv").read_bytes() == whole
    for number in (1, 2):
        read(tmp_path / "parts.tsv", automatic, shard=Shard(number, 2))
    merge(sorted(tmp_path.glob("parts.*.tsv")), tmp_path / "merged.tsv")
    assert (tmp_path / "merged.tsv").read_bytes() == whole


def test_a_text_that_does_not_fit_is_used_and_said(tmp_path: Path) -> None:
    given = read_knowledge("la")
    done = read(tmp_path / "out.tsv", Automatic(given=given), lines_of(ENGLISH, "tales"))
    assert any("read unlike the text" in note for note in done.notes)
    done = read(tmp_path / "latin.tsv", Automatic(given=given), lines_of(LATIN, "bible"))
    assert not any("read unlike" in note for note in done.notes)


def test_a_stored_decoder_of_another_language_is_told(tmp_path: Path) -> None:
    french: dict[str, object] = {"weights": Weights(lm="global", lm_weight=0.2), "knowledge": read_knowledge("fr")}
    latin = read(tmp_path / "latin.tsv", None, lines_of(LATIN, "bible"), **french)
    assert any("--knowledge la reads with that" in note for note in latin.notes)
    own = read(tmp_path / "french.tsv", None, lines_of(FRENCH, "graal"), **french)
    assert not any("--knowledge" in note for note in own.notes)


def test_a_domain_of_which_nothing_is_known_is_told(tmp_path: Path, automatic: Automatic) -> None:
    lines = [replace(line, domain="14") for line in lines_of(LATIN, "bible")]
    done = read(tmp_path / "out.tsv", automatic, lines)
    assert any("nothing is known of the domain 14 (known: la, fr, it)" in note for note in done.notes)


def test_a_model_that_writes_word_parts_has_no_language_model(tmp_path: Path) -> None:
    class Parts(InkReader):
        alphabet = Recognizer.alphabet

    with pytest.raises(FadaError, match="needs a CTC model"):
        transcribe(Parts(SYMBOLS), LineSet.of(MANUSCRIPTS), tmp_path / "x.tsv", automatic=Automatic(given=Knowledge()))
