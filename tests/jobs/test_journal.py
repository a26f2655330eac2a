"""Jobs of transcription that are interrupted, continued and refused, with a recogniser that costs nothing."""

import os
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
from PIL import Image
from typer.testing import CliRunner

from fada.cli import app
from fada.data.line import Line
from fada.data.source import read_lines
from fada.decoding.ctc import Hypothesis
from fada.decoding.knowledge import Knowledge
from fada.decoding.search import Search
from fada.decoding.weights import Weights
from fada.errors import FadaError
from fada.jobs.journal import Journal, Row
from fada.jobs.prepare import Chosen
from fada.models.looks import Looks
from fada.targets.target_set import TargetSet
from tests.support.disks import files_up_to
from tests.support.jobs import transcribe


class Stub:
    """Writes the id and the domain of every line; interrupts itself after a number of batches."""

    kind, rows, at_once, characters, letters, emits, looks = "seq2seq", 1, 1, "", None, False, 1

    def use_looks(self, looks: Looks) -> None:
        assert looks == "auto"

    def __init__(self, batches: Any = None) -> None:
        self.left = batches
        self.calls = 0

    def search(self, lines: Iterable[Line], knowledge: Any = None, **_: Any) -> Any:
        return StubSearch(self, list(lines), knowledge or Knowledge())

    def read(self, batch: Any) -> None:
        if self.left == self.calls:
            raise KeyboardInterrupt
        self.calls += 1
        for line in batch:
            line.load_image()


class StubSearch(Search):
    kind, terms = "seq2seq", frozenset({"lam", "scale", "distance", "beam"})

    def __init__(self, recognizer: Any, lines: list[Line], knowledge: Knowledge) -> None:
        self.recognizer, self.batch, self.knowledge = recognizer, lines, knowledge
        self.ids, self.references, self.domains = [line.id for line in lines], None, [line.domain for line in lines]

    def hypotheses(self, weights: Weights, alignment: bool = False) -> Any:
        self.recognizer.read(self.batch)
        return [Hypothesis(f"{line.id} {line.domain}", -1.0, -1.0, None) for line in self.batch]

    def recognized(self) -> Any:
        return iter(())


@pytest.fixture
def lines(tmp_path: Path) -> Path:
    folder = tmp_path / "lines"
    folder.mkdir()
    for i in range(4):
        Image.new("L", (60, 20), 200).save(folder / f"{i}.png")
    return folder


def interrupt(batches: Any, *arguments: Any, **options: Any) -> None:
    with pytest.raises(KeyboardInterrupt):
        transcribe(Stub(batches), *arguments, batch_size=1, **options)


def test_lines_done_for_another_domain_are_not_mixed_in(lines: Path, tmp_path: Path) -> None:
    out = tmp_path / "out.tsv"
    interrupt(2, read_lines(lines, domain="13"), out)
    with pytest.raises(FadaError, match=r"of the domain '13', not '14'.*--restart"):
        transcribe(Stub(), read_lines(lines, domain="14"), out)
    assert transcribe(Stub(), read_lines(lines, domain="13"), out).resumed == 2
    assert "14" not in out.read_text(encoding="utf-8")


@pytest.mark.parametrize("place", ["", "model"])
def test_targets_or_weights_changed_under_the_same_name_are_another_job(
    lines: Path, tmp_path: Path, place: str
) -> None:
    out, model = tmp_path / "out.tsv", tmp_path / "run"
    (model / place).mkdir(parents=True)
    (model / place / "config.json").write_text("{}")
    (model / place / "model.safetensors").write_text("weights")
    before, after = (Knowledge(TargetSet.from_texts({"13": [text]})) for text in ("le roi", "li rois"))
    named: dict[str, Any] = {"model_name": str(model), "targets_name": "targets.json", "weights": Weights(lam=0.5)}
    interrupt(2, read_lines(lines), out, knowledge=before, **named)
    with pytest.raises(FadaError, match="other settings"):
        transcribe(Stub(), read_lines(lines), out, knowledge=after, **named)
    os.utime(model / place / "model.safetensors", (1, 1))
    with pytest.raises(FadaError, match="other settings"):
        transcribe(Stub(), read_lines(lines), out, knowledge=before, **named)
    assert transcribe(Stub(), read_lines(lines), out, knowledge=before, restart=True, **named).resumed == 0


def test_lines_that_are_read_otherwise_are_another_job(lines: Path, tmp_path: Path) -> None:
    out = tmp_path / "out.tsv"
    interrupt(2, read_lines(lines), out, reading={"grow": 0.1, "split": None})
    with pytest.raises(FadaError, match="other settings"):
        transcribe(Stub(), read_lines(lines), out, reading={"grow": 0.0})
    assert transcribe(Stub(), read_lines(lines), out, reading={"grow": 0.1}).resumed == 2


def test_a_journal_cut_off_in_its_first_line_starts_over_once(lines: Path, tmp_path: Path) -> None:
    (tmp_path / ".out.tsv.journal").write_bytes(b'{"model": "", "tar')
    interrupt(2, read_lines(lines), tmp_path / "out.tsv")
    assert transcribe(Stub(), read_lines(lines), tmp_path / "out.tsv").resumed == 2


@pytest.mark.skipif(sys.platform in ("win32", "darwin"), reason="file names are Unicode there")
@pytest.mark.parametrize(
    "damage", ['{"text": "no id"}', '{"id": 3}', '{"id": "2.png", "characters": "x"}', "[" * 3000, "[]", "\x00"]
)
def test_what_stands_behind_a_damaged_row_is_read_again(lines: Path, tmp_path: Path, damage: str) -> None:
    out = tmp_path / "out.tsv"
    interrupt(2, read_lines(lines), out)
    [journal] = tmp_path.glob("*.journal")
    with journal.open("a", encoding="utf-8") as file:
        file.write(damage + "\n")
    assert transcribe(Stub(), read_lines(lines), out).resumed == 2
    assert len(out.read_text(encoding="utf-8").splitlines()) == 5


def test_a_full_disk_is_told_by_the_journal_which_keeps_what_was_finished(tmp_path: Path) -> None:
    path = tmp_path / "out.tsv.journal"
    rows: list[Row] = [{"id": name, "domain": None, "text": 3000 * name} for name in "ab"]
    full = pytest.raises(OSError, match=r"No space left on device: '.*out\.tsv\.journal'")
    with files_up_to(5000), full, Journal(path, {}) as journal:
        for row in rows:
            journal.append([row])
    assert not (tmp_path / "out.tsv.journal.lock").exists()
    with Journal(path, {}) as journal:
        assert [*journal.rows.values()] == rows[:1]


def test_file_names_that_are_not_utf_8_are_transcribed(lines: Path, tmp_path: Path) -> None:
    (lines / "0.png").rename(os.fsdecode(os.fsencode(lines) + b"/caf\xe9.png"))
    interrupt(3, read_lines(lines), tmp_path / "out.tsv")
    summary = transcribe(Stub(), read_lines(lines), tmp_path / "out.tsv", batch_size=1)
    assert (summary.transcribed, summary.resumed) == (4, 3)


@pytest.mark.parametrize("restart", [False, True])
def test_a_second_process_with_the_same_output_is_refused(lines: Path, tmp_path: Path, restart: bool) -> None:
    pytest.importorskip("fcntl")
    out = tmp_path / "out.tsv"

    class Slow(Stub):
        def read(self, batch: Any) -> None:
            with pytest.raises(FadaError, match="another process"):
                transcribe(Stub(), read_lines(lines), out, restart=restart)
            super().read(batch)

    assert transcribe(Slow(), read_lines(lines), out).transcribed == 4
    assert sorted(path.name for path in tmp_path.iterdir()) == ["lines", "out.tsv", "out.tsv.provenance.json"]


@pytest.mark.parametrize(
    ("out", "format", "says"),
    [
        ("x.docx", None, "'docx' is not known"),
        ("x", "bogus", "'bogus' is not known"),
        ("x", None, r"not come from an ALTO or PAGE file.*out\.tsv"),
        ("lines", "tsv", "a folder, expected a file"),
    ],
)
def test_what_cannot_be_written_is_refused_before_the_first_line(
    lines: Path, tmp_path: Path, out: str, format: str | None, says: str
) -> None:
    recognizer = Stub()
    with pytest.raises(FadaError, match=says):
        transcribe(recognizer, read_lines(lines), tmp_path / out, format=format)
    assert recognizer.calls == 0
    assert [path.name for path in tmp_path.iterdir()] == ["lines"]


def test_the_folder_one_is_in_can_be_the_output(lines: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    transcribe(Stub(), read_lines(lines), ".", format="txt")
    assert len(list((tmp_path / "here").glob("*.txt"))) == 4
    assert sorted(path.name for path in tmp_path.iterdir()) == ["here", "lines"]


def test_the_notes_of_the_source_are_told(lines: Path, tmp_path: Path) -> None:
    summary = transcribe(Stub(), read_lines(lines, domain_from=r"nothing(\d+)"), tmp_path / "out.tsv")
    assert any("domain" in note for note in summary.notes)


def test_paths_out_of_the_folder_and_encodings_can_be_named(
    lines: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fada.models.registry.load_recognizer", lambda name: Stub())
    monkeypatch.setattr("fada.jobs.prepare._chosen", lambda *_: Chosen())
    folder = tmp_path / "table"
    folder.mkdir()
    (folder / "m.csv").write_bytes("image,id\n../lines/0.png,é\n".encode("latin-1"))
    command = ["transcribe", "french", str(folder / "m.csv"), "--out", str(tmp_path / "out.tsv")]
    done = CliRunner().invoke(app, [*command, "--allow-outside", "--encoding", "latin-1"], catch_exceptions=False)
    assert done.exit_code == 0, done.output
    assert (tmp_path / "out.tsv").read_text(encoding="utf-8").splitlines()[1].startswith("é\té")


def test_an_image_that_was_changed_since_is_read_again(lines: Path, tmp_path: Path) -> None:
    out = tmp_path / "out.tsv"
    interrupt(3, read_lines(lines), out)
    Image.new("L", (90, 20), 100).save(lines / "1.png")
    recognizer = Stub()
    summary = transcribe(recognizer, read_lines(lines), out, batch_size=1)
    assert (summary.transcribed, recognizer.calls) == (4, 2)


def test_an_image_that_was_repaired_since_is_read_again(lines: Path, tmp_path: Path) -> None:
    good = (lines / "0.png").read_bytes()
    (lines / "0.png").write_bytes(b"not an image")
    interrupt(2, read_lines(lines), tmp_path / "out.tsv")
    (lines / "0.png").write_bytes(good)
    summary = transcribe(Stub(), read_lines(lines), tmp_path / "out.tsv", batch_size=1)
    assert (summary.transcribed, summary.failed) == (4, [])
