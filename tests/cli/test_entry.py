"""The door of the command line: what goes wrong outside becomes a sentence with the right exit code."""

import errno
import importlib.util
import json
import logging
import os
import pty
import re
import signal
import subprocess
import sys
import time
import tomllib
import zipfile
from functools import partial
from pathlib import Path

import pytest
from PIL import Image

from fada import __version__, cli
from fada.common.say import printable
from fada.errors import EXTRAS
from tests.support.commands import FADA

ROOT = Path(__file__).parents[2]


def fada(*arguments: object, **environment: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [*FADA, *map(str, arguments)],
        capture_output=True,
        encoding="utf-8",
        env=os.environ | {"COLUMNS": "120"} | environment,
    )


@pytest.mark.parametrize(
    ("error", "sentence", "code"),
    [
        (OSError(errno.ENOSPC, "No space left on device", "out/a.npz"), "out/a.npz: the disk is full. What was", 1),
        (PermissionError(errno.EACCES, "Permission denied", "a.json"), "a.json: no permission", 2),
        (OSError(errno.EROFS, "Read-only file system", "/cdrom/a"), "/cdrom/a: the disk is read-only", 2),
        (NotADirectoryError(errno.ENOTDIR, "x", "a.txt/b"), "a.txt/b: a part of this path is a file", 2),
        (IsADirectoryError(errno.EISDIR, "x", "runs"), "runs: this is a folder, a file was expected", 2),
        (OSError(errno.EIO, "Input/output error", "tape"), "tape: Input/output error", 1),
        (UnicodeDecodeError("utf-8", b"\xff", 0, 1, "invalid start byte"), "not UTF-8 text", 2),
        (RecursionError("maximum recursion depth exceeded"), "nested too deeply", 2),
        (zipfile.BadZipFile("File is not a zip file"), "damaged or not what its name says", 2),
        (EOFError("Ran out of input"), "ends too early", 2),
        (MemoryError("Unable to allocate 3 TiB"), "not enough memory (Unable to allocate 3 TiB)", 1),
        (ModuleNotFoundError("No module named 'torch'", name="torch"), "pip install 'fada[train]'", 2),
        (ModuleNotFoundError("x", name="transformers.models"), "pip install 'fada[train]'", 2),
    ],
)
def test_errors_of_files_disk_and_installation_are_sentences(error: Exception, sentence: str, code: int) -> None:
    told = cli._told(error)
    assert told is not None
    assert sentence in told[0]
    assert told[1] == code


@pytest.mark.parametrize("error", [ValueError("x"), KeyError("x"), ModuleNotFoundError("x", name="fada.gone")])
def test_a_fault_of_ours_is_not_blamed_on_the_user(error: Exception) -> None:
    assert cli._told(error) is None


def test_every_optional_package_is_in_the_extra_that_is_named() -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["optional-dependencies"]
    names = {"ot": "pot", "fontTools": "fonttools", "pillow_heif": "pillow-heif", "tokenizers": "transformers"}
    for module, extra in EXTRAS.items():
        assert any(r.lower().startswith(names.get(module, module)) for r in extras[extra]), (module, extra)
        built_from_source = module == "kenlm"  # and so not in the environment of the tests
        assert built_from_source or importlib.util.find_spec(module), (
            f"{module} cannot be imported: a slip in the table?"
        )


def test_an_output_inside_a_file_is_told_in_a_sentence(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("ab\n", encoding="utf-8")
    done = fada("targets", "build", tmp_path / "a.txt", "-o", tmp_path / "a.txt" / "targets.json")
    assert done.returncode == 2, done.stderr
    assert "internal error" not in done.stderr
    assert "a.txt" in done.stderr


@pytest.mark.parametrize("columns", ["0", "-3", "wide", ""])
def test_a_useless_width_of_the_terminal_is_ignored(columns: str) -> None:
    done = fada("--help", COLUMNS=columns)
    assert done.returncode == 0
    assert "transcribe" in done.stdout


def test_escape_sequences_of_the_data_do_not_reach_a_terminal(tmp_path: Path) -> None:
    nasty = "a\x1b]0;owned\x07b\x9b31m"
    counts = {"version": 1, "normalizer": {}, "domains": {nasty: {"counts": {"a": 3, "b": 1}}}}
    path = tmp_path / "targets.json"
    path.write_text(json.dumps(counts), encoding="utf-8")
    outside, inside = pty.openpty()
    done = subprocess.Popen([*FADA, "targets", "show", str(path)], stdout=inside, stderr=inside, close_fds=True)
    os.close(inside)
    output = b""
    try:
        while part := os.read(outside, 65536):
            output += part
    except OSError:  # the other end is closed
        pass
    os.close(outside)
    assert done.wait() in (0, 2), output
    text = output.decode("utf-8")
    assert "owned" in text
    assert "\x1b]0;owned" not in text
    assert "\x07" not in text
    assert "\x9b" not in text


def test_an_interruption_is_told_and_what_goes_on(tmp_path: Path) -> None:
    Image.new("L", (900, 60), 200).save(tmp_path / "0.png")
    for number in range(1, 1000):
        os.link(tmp_path / "0.png", tmp_path / f"{number}.png")
    arguments = [*FADA, "transcribe", str(tmp_path), "--out", str(tmp_path.with_suffix(".tsv"))]
    job = subprocess.Popen(
        arguments, stderr=subprocess.PIPE, encoding="utf-8", env=os.environ | {"COLUMNS": "120"},
        preexec_fn=partial(signal.signal, signal.SIGINT, signal.SIG_DFL),  # ignored where tests run in the background
    )  # fmt: skip
    while not list(tmp_path.parent.glob(".*.journal")):
        assert job.poll() is None
        time.sleep(0.05)
    for each in (signal.SIGSTOP, signal.SIGINT, signal.SIGCONT):  # it cannot finish before it hears of it
        job.send_signal(each)
    told = job.communicate()[1]
    assert job.returncode == cli.INTERRUPTED
    assert "the same command goes on where this one stopped" in told
    assert told.endswith("fada: interrupted\n")


def test_the_package_is_the_program_where_that_is_not_on_the_path() -> None:
    done = fada("--version")
    assert done.stdout == f"fada {__version__}\n", done.stderr


def test_printable_keeps_all_that_is_text() -> None:
    assert printable("ἀ\tq̃\n\u200d\x1b[2J") == "ἀ\tq̃\n\u200d\\x1b[2J"


def test_records_of_the_library_are_shown_and_warnings_marked() -> None:
    code = (
        "import logging; from fada.common.say import show_records; show_records(); show_records()\n"
        "log = logging.getLogger('fada.data'); log.debug('hidden'); log.info('[b]read[/b] %d', 3); log.warning('odd')"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.stderr == "[b]read[/b] 3\nwarning: odd\n"
    assert done.stdout == ""


def test_only_the_command_line_and_say_know_the_terminal() -> None:
    for path in sorted((ROOT / "src" / "fada").rglob("*.py")):
        text, room = path.read_text(encoding="utf-8"), path.relative_to(ROOT / "src" / "fada").as_posix()
        if not room.startswith("cli/") and room != "common/say.py":
            assert not re.search(r"\bprint\(|sys\.std(out|err)|rich\.console|typer", text), f"{room}: use logging"
        elif room not in ("cli/output.py", "common/say.py"):
            assert "typer.echo(f" not in text.replace('typer.echo(f"fada {__version__}")', ""), f"{room}: use echo"


def test_importing_the_library_adds_no_handler() -> None:
    names = "logging.getLogger('fada').handlers, logging.root.handlers"
    code = f"import logging, fada.data.line, fada.decoding.ctc; print({names})"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.stdout == "[] []\n", done.stderr
    assert logging.getLogger("fada").level in (logging.NOTSET, logging.INFO)
