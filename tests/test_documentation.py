"""The examples of README and docs are run as they are printed, page by page, in a folder with the files they name.

A block that cannot run here has ``<!-- not run: the reason -->`` on the line before it.
"""

import re
import shlex
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner

from fada.cli import app
from fada.cli.examples import EXAMPLES
from tests.support.commands import COMMANDS, spellings
from tests.support.workshop import given, make_workshop

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
BLOCK = re.compile(
    r"(?:<!-- not run: (?P<reason>.+?) -->\n)?```(?P<kind>python|bash|console)\n(?P<code>.*?)```", re.DOTALL
)
NOT_RUN = {
    "adapt": "trains",
    "data build": "needs a clone of the authors' repository",
    "data published": "loads a published set",
    "demo": "trains for minutes",
    "generate": "needs a language model",
    "lipogram": "needs a language model",
    "merge": "needs the parts of a job; docs/scale.md has them",
    "reproduce": "trains for hours",
    "results": "writes the committed document",
    "serve": "runs until it is stopped",
    "study": "trains two models",
    "synth": "draws for a minute",
    "train": "trains",
}


def blocks(page: Path) -> Iterator[tuple[str, str, str | None]]:
    for match in BLOCK.finditer(page.read_text(encoding="utf-8")):
        yield match["kind"], match["code"], match["reason"]


def commands(kind: str, code: str) -> list[str]:
    lines = code.replace("\\\n", " ").splitlines()
    if kind == "console":
        return [line[2:] for line in lines if line.startswith("$ ")]
    return [line for line in lines if line.strip()]


def run_command(line: str) -> None:
    words = shlex.split(line, comments=True)
    assert words[0] == "fada", f"{line}: not a command of fada; mark the block"
    result = CliRunner().invoke(app, words[1:])
    if result.exception and not isinstance(result.exception, SystemExit):
        raise AssertionError(f"{line}: {result.exception!r}") from result.exception
    assert result.exit_code == 0, f"{line}:\n{result.output}"


@pytest.fixture(scope="module")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_workshop(tmp_path_factory.mktemp("workshop") / "w")


@pytest.fixture
def workshop(prepared: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = Path(shutil.copytree(prepared, tmp_path / "w"))
    for config in folder.glob("runs/*/config.json"):
        config.write_text(config.read_text(encoding="utf-8").replace(str(prepared), str(folder)), encoding="utf-8")
    monkeypatch.chdir(folder)
    return folder


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_the_examples_of_a_page_run_as_printed(page: Path, prepared: Path, workshop: Path) -> None:
    names: dict[str, object] | None = None
    for kind, code, reason in blocks(page):
        if reason:
            continue
        if kind != "python":
            for line in commands(kind, code):
                run_command(line)
            continue
        names = given(prepared) if names is None else names
        if page.name == "training.md":
            names["log_probs"] = names["log_prob_batch"]
        exec(compile(code, f"{page.name}: {code.strip().splitlines()[0]}", "exec"), names)


@pytest.mark.parametrize("command", [name for name in EXAMPLES if name not in NOT_RUN])
def test_the_example_in_the_help_runs(command: str, workshop: Path) -> None:
    Path("runs/x").rename("runs/a")
    run_command(EXAMPLES[command])


def test_what_is_not_run_says_why_and_is_the_exception() -> None:
    found = [(page.name, reason) for page in PAGES for _, _, reason in blocks(page)]
    skipped = [(page, reason) for page, reason in found if reason]
    assert all(len(reason or "") >= 6 for _, reason in skipped)
    assert len(skipped) <= len(found) * 0.4, skipped


def test_commands_outside_of_blocks_know_their_options() -> None:
    for page in PAGES:
        for line in re.findall(r"(?:^    |`)(fada [a-z][^`\n]*)", page.read_text(encoding="utf-8"), re.MULTILINE):
            words = line.split()
            command = next((" ".join(words[1 : 1 + n]) for n in (2, 1) if " ".join(words[1 : 1 + n]) in COMMANDS), None)
            if command is not None:
                unknown = set(re.findall(r"(?<=\s)--[a-z][\w-]*", line)) - spellings(command)
                assert not unknown, f"{page.name}: {line}"
