"""The plain install reads, decodes, tunes, evaluates and reports; what needs more says what to install."""

import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from PIL import Image

from tests.support.training_lines import image_folder, image_lines

OPTIONAL = [
    *(
        "accelerate",
        "datasets",
        "fastapi",
        "fontTools",
        "gguf",
        "huggingface_hub",
        "matplotlib",
        "onnx",
        "optuna",
        "ot",
    ),
    *(
        "onnx",
        "pillow_heif",
        "pypdfium2",
        "pyphen",
        "rapidocr",
        "scipy",
        "sentencepiece",
        "soundfile",
        "soxr",
        "statsmodels",
    ),
    *("tokenizers", "torch", "transformers", "uvicorn", "wordfreq"),
]

PROGRAM = """
import sys
from importlib.machinery import PathFinder

class Installed(PathFinder):
    @classmethod
    def find_spec(cls, name, path=None, target=None):
        return None if name.partition(".")[0] in OPTIONAL else super().find_spec(name, path, target)

sys.meta_path[:] = [Installed if finder is PathFinder else finder for finder in sys.meta_path]
from fada.cli import main

for command in COMMANDS:
    sys.argv = ["fada", *command]
    try:
        main()
    except SystemExit as end:
        if end.code:
            sys.exit(f"{' '.join(command)}: exit code {end.code}")
"""


def run(folder: Path, *commands: str) -> "subprocess.CompletedProcess[str]":
    program = f"OPTIONAL, COMMANDS = {OPTIONAL!r}, {[command.split() for command in commands]!r}\n{PROGRAM}"
    return subprocess.run([sys.executable, "-c", program], cwd=folder, capture_output=True, text=True, check=False)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    image_folder(tmp_path / "lines", 8, 4, 4)
    image_lines(1)[0].load_image().save(tmp_path / "line.png")
    (tmp_path / "line.heic").write_bytes(b"\0\0\0\x18ftypheic\0\0\0\0mif1heic")
    return tmp_path


def test_the_packages_of_the_plain_install_are_none_of_those() -> None:
    project = tomllib.loads((Path(__file__).parents[1] / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    plain = {re.split(r"[><=]", one)[0].lower() for one in project["dependencies"]}
    assert not plain & {name.lower().replace("_", "-") for name in OPTIONAL}


def test_every_command_for_reading_works_without_torch(folder: Path) -> None:
    done = run(
        folder,
        "transcribe line.png",
        "transcribe french lines --split test --out texts.tsv",
        "emit medieval lines --split validation --out validation.npz",
        "emit medieval lines --split test --out test.npz",
        "targets build lines --split train --domain-column domain -o targets.json",
        "targets show targets.json --top 3",
        "targets compare targets.json",
        "decode test.npz --targets targets.json --lam 0.5 --out decoded.tsv",
        "tune validation.npz --targets targets.json --paper --test test.npz --out tuned.json",
        "evaluate lines/test.parquet texts.tsv",
        "report --reference lines/test.parquet texts.tsv --out report.html",
        "export french --onnx --out french.onnx",
        "knowledge build lines --out letters.fada",
        "models list",
        "warm",
    )
    assert done.returncode == 0, done.stderr
    assert (folder / "report.html").stat().st_size > 1000
    assert len((folder / "texts.tsv").read_text(encoding="utf-8").splitlines()) == 5


@pytest.mark.parametrize(
    ("command", "extra"),
    [
        ("train --data lines --model crnn:tiny --out run", "train"),
        ("transcribe trocr-greek line.png", "train"),
        ("transcribe line.heic", "heic"),
    ],
)
def test_what_needs_more_says_what_to_install(folder: Path, command: str, extra: str) -> None:
    done = run(folder, command)
    assert f"pip install 'fada[{extra}]'" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_page_is_told_from_a_line_where_nothing_finds_its_lines(folder: Path) -> None:
    Image.new("L", (800, 1100), 230).save(folder / "page.png")
    done = run(folder, "transcribe page.png --out page.tsv")
    assert "page.png: read as one line of text but shaped like a page." in done.stderr
    assert "pip install 'fada[pages]'" in done.stderr
    assert "ALTO or PAGE" in done.stderr
