"""Everything that version 0.1 stored is still read, and read as it was then."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

import fada
from fada.decoding.nbest import NBest
from fada.evaluation.sources import read_systems
from fada.jobs.journal import Journal
from fada.tuning.tuned import Tuned
from tests.support.commands import run_fada

FILES = Path(__file__).parent / "files" / "format-0.1"
EXPECTED: dict[str, Any] = json.loads((FILES / "expected.json").read_text(encoding="utf-8"))
TEXTS: dict[str, str] = EXPECTED["texts"]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A copy, so that nothing is written beside the examples."""
    return Path(shutil.copytree(FILES, tmp_path / "old"))


def test_lines() -> None:
    lines = list(fada.read_lines(FILES / "lines.parquet", domain_column="domain"))
    assert {line.id: line.text for line in lines} == EXPECTED["references"]
    assert {line.domain for line in lines} == {"old", "new"}
    assert lines[0].load_image().size == (70, 40)


def test_target_file() -> None:
    targets = fada.TargetSet.load(FILES / "targets.json")
    assert {name: [p.total, p.frequency("b")] for name, p in targets.items()} == EXPECTED["domains"]


def test_emissions_and_run_folder() -> None:
    run = fada.load_run(FILES / "run")
    emissions = run.emissions("test")
    decoder = fada.CTCBeamDecoder(emissions.symbols, blank=emissions.blank, beam_size=5)
    assert (
        dict(zip(emissions.ids, (h[0].text for h in decoder.decode_batch(emissions.log_probs)), strict=True)) == TEXTS
    )
    assert run.finished
    assert run.config["settings"]["lam"] == 0.7
    assert run.recognizer.transcribe(list(fada.read_lines(FILES / "lines.parquet"))[1:2]) == [TEXTS["test1"]]


def test_predictions() -> None:
    systems = read_systems(FILES / "run")
    assert list(systems.systems) == ["greedy", "beam5"]
    assert dict(zip(systems.ids, systems.systems["beam5"], strict=True)) == TEXTS
    assert dict(zip(systems.ids, systems.references, strict=True)) == EXPECTED["references"]


def test_tuned_weights() -> None:
    tuned = Tuned.load(FILES / "run" / "tuned.json")
    assert tuned.evidence is not None
    assert tuned.evidence.lines == 6
    assert tuned.evidence.plain == 10.0
    assert json.loads((FILES / "run" / "tuned.json").read_text(encoding="utf-8"))["lam"] == EXPECTED["tuned"]


def test_nbest_lists() -> None:
    lists = NBest.load(FILES / "nbest.parquet")
    assert {line: texts[0] for line, texts in zip(lists.ids, lists.hypotheses, strict=True)} == TEXTS
    assert [len(texts) for texts in lists.hypotheses] == [3] * 5


def test_journal(folder: Path) -> None:
    path = folder / "out.tsv.journal"
    job, *rows = map(json.loads, path.read_text(encoding="utf-8").splitlines())
    with Journal(path, job) as journal:
        assert {line: row["text"] for line, row in journal.rows.items()} == {r["id"]: TEXTS[r["id"]] for r in rows}


def test_model_folder_reads_lines_with_its_stored_decoder(folder: Path) -> None:
    out = folder / "read.tsv"
    run_fada("transcribe", folder / "model", folder / "lines.parquet", "--out", out, "--domain-column", "domain")
    rows = [line.split("\t") for line in out.read_text(encoding="utf-8").splitlines()]
    texts = [row[rows[0].index("text")] for row in rows[1:]]
    assert texts == list(EXPECTED["decoded"].values())


def test_every_command_takes_the_run(folder: Path) -> None:
    run = folder / "run"
    evaluated = json.loads(run_fada("evaluate", run, "--json").stdout)
    assert json.dumps(evaluated).count("beam5") >= 1
    run_fada("report", run, "--out", folder / "report.html")
    assert "beam5" in (folder / "report.html").read_text(encoding="utf-8")
    run_fada("tune", run, "--paper", "--folds", "2", "--out", folder / "tuned.json")
    assert Tuned.load(folder / "tuned.json").evidence is not None
