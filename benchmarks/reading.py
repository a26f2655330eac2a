"""Start-up and reading: this program against an earlier commit of it, on the same lines, with one thread.

Both have the bytecode of their modules at hand, as a package has that pip installed.

Rows of :mod:`benchmarks.table`; run with: python -m benchmarks.table reading --lines validation.parquet
"""

import json
import os
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.table import Options, Row, alternating, alternating_commands
from fada.data.formats.parquet import write_parquet
from fada.data.images import png
from fada.data.line import Line
from fada.data.source import read_lines
from fada.data.synthetic.set import make_synthetic
from fada.models.reader import CRNNReader
from fada.models.registry import load_recognizer

REPOSITORY = Path(__file__).parent.parent
COMMAND = [sys.executable, "-c", "from fada.cli import main; main()"]
"""As the program `fada` does; not every earlier commit can be run as a module."""
LINES = 100


def rows(options: Options) -> Iterator[Row]:
    """One line, and `LINES` lines: the network alone, and all of a transcription."""
    with tempfile.TemporaryDirectory() as folder:
        work = Path(folder)
        earlier = checked_out(options.base, work / "earlier")
        source = options.lines
        if source is None:
            make_synthetic(2 * LINES).save(work / "lines")
            source = str(work / "lines" / "train.parquet")
        lines = list(islice(iter(read_lines(source)), LINES))
        write_parquet(lines, work / "lines.parquet")
        (work / "line.png").write_bytes(png(lines[0].load_image()))
        yield straightening(lines, options.rounds)
        variables = {"OMP_NUM_THREADS": "1", "PYTHONDONTWRITEBYTECODE": ""}
        both = tuple({**variables, "PYTHONPATH": str(place)} for place in (REPOSITORY / "src", earlier / "src"))
        against = f"commit {options.base}"
        many = str(work / "lines.parquet"), "--threads", "1", "--out"
        read = ["transcribe", "french"]
        for what, option in ((read, []), (read, ["--looks", "1"]), (["emit", "medieval"], [])):
            ending = ".npz" if what[0] == "emit" else ".tsv"
            ours, theirs = ([*COMMAND, *what, *many, str(work / f"{name}{ending}")] for name in ("ours", "theirs"))
            found = alternating_commands([*ours, *option], theirs, options.rounds, (both[0], both[1]))
            told = " ".join([*what, *option])
            yield Row(f"`fada {told}`, {len(lines)} lines, start-up included", against, *found, goal="2")
        one = [*COMMAND, "transcribe", "french", str(work / "line.png")]
        found = alternating_commands(one, one, options.rounds, (both[0], both[1]))
        yield Row("`fada transcribe french line.png`, compiled before", against, *found, goal="1.5 s")


def straightening(lines: list[Line], rounds: int) -> Row:
    """How much of reading is the straightening of the lines: the ratio is its inverse."""
    reader = load_recognizer("medieval")
    if not isinstance(reader, CRNNReader):
        raise TypeError("the built-in model for medieval hands is read by ONNX Runtime")
    reader.use_threads(1)
    reader.use_looks("auto")
    greys = [np.asarray(line.load_image()) for line in lines]
    found = alternating(
        lambda: [reader.processor.image(grey) for grey in greys],
        lambda: reader.emit(lines),
        rounds,
    )
    return Row(f"straightening, {len(lines)} lines", "all of `fada emit medieval` but its start", *found, goal="20")


def checked_out(commit: str, folder: Path) -> Path:
    """The files of a commit."""
    archive = folder.with_suffix(".tar")
    command = ["git", "-C", str(REPOSITORY), "archive", "-o", str(archive), commit, "src"]
    subprocess.run(command, check=True)
    with tarfile.open(archive) as files:
        files.extractall(folder, filter="data")
    return folder


def told_by(sources: Path, program: str, *arguments: str) -> Any:
    """What a program prints as JSON, on one thread, with the package of a folder."""
    variables = {**os.environ, "PYTHONPATH": str(sources), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-c", program, *arguments]
    return json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE, env=variables).stdout)
