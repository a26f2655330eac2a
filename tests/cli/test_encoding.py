"""Files that are not UTF-8: what is advised is an option of fada itself, so that it works on every system."""

import re
import shlex
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from typer.testing import CliRunner

import fada
from fada.cli import app

TEXT = "le roy étoit bon\n"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    Image.new("L", (200, 40), 230).save(tmp_path / "line.png")
    for name, text in {
        "letters/1650/a.txt": TEXT * 20,
        "words.txt": "étoit\n",
        "lines.csv": f"image,text\nline.png,{TEXT}",
        "pairs/line.gt.txt": TEXT,
        "read.tsv": f"id\ttext\na\t{TEXT}",
    }.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(text.encode("latin-1"))
    Image.new("L", (200, 40), 230).save(tmp_path / "pairs/line.png")
    symbols = ["", *"abdeilnortuyé "]
    log_probs = [np.log(np.full((12, len(symbols)), 1 / len(symbols), np.float32))]
    fada.Emissions(["a"], log_probs, tuple(symbols)).save(tmp_path / "emissions.npz")
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize(
    "command",
    [
        "targets build letters -o targets.json",
        "knowledge build letters --out letters.fada",
        "transcribe line.png --text letters",
        "transcribe line.png --words words.txt",
        "data inspect lines.csv",
        "data convert pairs --to out.jsonl",
        "evaluate read.tsv read.tsv",
        "report --reference read.tsv read.tsv --out report.html",
        "decode emissions.npz --text letters --words words.txt --out decoded.tsv",
    ],
)
def test_what_is_advised_about_a_file_that_is_not_utf8_works_as_printed(folder: Path, command: str) -> None:
    first = CliRunner().invoke(app, shlex.split(command))
    assert first.exit_code, first.output
    advice = re.search(r"--encoding\s+latin-1", f"{first.output} {first.exception}")
    assert advice, first.output
    then = CliRunner().invoke(app, shlex.split(f"{command} {advice[0]}"))
    assert then.exit_code == 0, then.output
    assert "not UTF-8" not in then.output
