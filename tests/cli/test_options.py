"""One word, one meaning: options over all commands, their help, and the pages that tell of them."""

import re
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from fada.cli import _OLD_SPELLINGS, _READ_OUT, app
from fada.cli.examples import EXAMPLES
from fada.cli.options import CLUSTER, KNOWLEDGE, PANEL
from fada.data.formats import registry as formats
from fada.errors import FadaError
from fada.models import registry as models
from tests.support.commands import COMMANDS, options, spellings

ROOT = Path(__file__).parents[2]
TEXTS = [page.read_text(encoding="utf-8") for page in [ROOT / "README.md", *(ROOT / "docs").glob("*.md")]]
PAGES = "\n".join(TEXTS)
GROUPS = (PANEL, KNOWLEDGE, CLUSTER)
KINDS = {"Path": "a file or folder", "str": "a word", "int": "a number", "float": "a number", "bool": "a flag"}
TWO_MEANINGS = {
    "--check": "looks whether what the command is about is sound: line images, committed figures",
    "--data": "a source of lines, by path or by the name of a published set",
    "--domain": "the domain of all lines; for target files the domains to show or change",
    "--format": "of figures or of lines: what is written",
    "--from": "the first of two domains",
    "--lines": "a source of lines, by path or by the name of a published set",
    "--recipe": "a YAML file of settings",
    "--test": "what to report on: lines, or their emissions",
    "-f": "short for --forbid where text is written, for --format where files are",
}
"""Options whose value is of two kinds, or whose short form is used twice; why that is the same word all the same."""


def kind(parameter: Any) -> str:
    annotation = getattr(parameter, "type_descriptor", parameter)
    text = str(getattr(annotation, "annotation", annotation))
    found = re.findall(r"Path|str|int|float|bool", text)
    return KINDS[found[0]] if found else "a word"


def test_an_option_means_the_same_in_every_command() -> None:
    kinds: dict[str, dict[str, list[str]]] = defaultdict(lambda: defaultdict(list))
    for command, parameter in options():
        for spelling in (*parameter.opts, *parameter.secondary_opts):
            kinds[spelling][kind(parameter)].append(command)
    clashes = {name: dict(found) for name, found in kinds.items() if len(found) > 1 and name not in TWO_MEANINGS}
    assert clashes == {}


def test_one_idea_has_one_name() -> None:
    names = {spelling for _, parameter in options() for spelling in parameter.opts}
    for other in ("--output", "--order", "--lambda", "--workers", "--outdir"):
        assert other not in names, f"{other}: the others say --out, --lm-order, --lam, --jobs"
    of_files = [c for c, p in options() if "--to" in p.opts and c != "analyze"]
    assert of_files == [], "what is written goes to --out"


@pytest.mark.parametrize("command", ["transcribe", "decode", "tune", "evaluate", "adapt", "worth"])
def test_what_is_known_is_told_in_the_same_words_everywhere(command: str) -> None:
    found = {name: parameter for c, parameter in options() if c == command for name in parameter.opts}
    usual = {name: parameter for c, parameter in options() if c == "decode" for name in parameter.opts}
    for name in ("--text", "--targets", "--knowledge", "--domain"):
        assert found[name].help == usual[name].help
        assert found[name].multiple == usual[name].multiple


@pytest.mark.parametrize(("command", "old"), [(c, old) for c, names in _OLD_SPELLINGS.items() for old in names])
def test_spellings_of_version_0_1_still_work(command: str, old: str) -> None:
    result = CliRunner().invoke(app, [*command.split(), "--help", old if "images" in old else f"{old}=1"])
    assert result.exit_code == 0, result.output
    new = _OLD_SPELLINGS[command][old]
    assert any(new in (*p.opts, *p.secondary_opts) for c, p in options() if c == command), f"{command} has no {new}"
    assert not any(old in (*p.opts, *p.secondary_opts) for c, p in options() if c == command)


def test_a_format_after_the_old_name_of_out_is_one_and_what_an_option_is_called_now_is_said(tmp_path: Path) -> None:
    (tmp_path / "lines.csv").write_text("id,text\na,le roi\n", encoding="utf-8")
    command = ["data", "convert", str(tmp_path / "lines.csv"), "--to"]
    lost = CliRunner().invoke(app, [*command, "tsv"])
    assert lost.exit_code == 2
    assert "Missing option '--out'" in lost.stderr
    done = CliRunner().invoke(app, [*command, "tsv", "--out", str(tmp_path / "new")])
    assert (done.exit_code, (tmp_path / "new").is_file()) == (0, True), done.output
    assert "note: --to is now called --format" in done.stderr
    done = CliRunner().invoke(app, [*command, str(tmp_path / "x.tsv")])
    assert (done.exit_code, (tmp_path / "x.tsv").is_file()) == (0, True), done.output
    assert "note: --to is now called --out" in done.stderr


@pytest.mark.parametrize("command", COMMANDS)
def test_help_has_an_example_and_types_only_where_a_value_is_given(command: str) -> None:
    result = CliRunner().invoke(app, [*command.split(), "--help"], env={"COLUMNS": "200"})
    assert f"Example: {EXAMPLES[command]}" in " ".join(result.stdout.split())
    assert "bool" not in result.stdout


def test_the_flags_of_fada_itself_have_no_type() -> None:
    assert "bool" not in CliRunner().invoke(app, ["--help"], env={"COLUMNS": "200"}).stdout


def test_every_example_is_of_a_command() -> None:
    assert sorted(EXAMPLES) == sorted(COMMANDS)
    for command, example in EXAMPLES.items():
        assert example.startswith(f"fada {command} ") or example == f"fada {command}"
        assert set(re.findall(r"(?<=\s)--?[a-z][\w-]*", example)) <= spellings(command)


WRITING = [c for c, command in COMMANDS.items() if any(p.name == "out" or "--out" in p.opts for p in command.params)]


@pytest.mark.parametrize("command", sorted({*WRITING} - _READ_OUT))
def test_a_place_that_cannot_be_written_is_told_before_any_work(command: str, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("", encoding="utf-8")
    out = tmp_path / "file" / "out"
    option = ["--out"] if "--out" in spellings(command) else []
    told = CliRunner().invoke(app, [*command.split(), *option, str(out)]).exception
    assert isinstance(told, FadaError)
    assert "file is a file, expected a folder" in str(told)


@pytest.mark.parametrize("command", [name for name, option in options() if "--beam" in option.opts])
def test_a_beam_that_no_memory_is_enough_for_is_refused_before_any_work(command: str) -> None:
    done = CliRunner().invoke(app, [*command.split(), "--beam", "1000000000"])
    assert isinstance(done.exception, FadaError)
    assert "the beam is 1000000000 wide, expected at most 10000" in str(done.exception)


def test_every_command_is_on_a_page() -> None:
    assert [command for command in COMMANDS if f"fada {command}" not in PAGES] == []


def test_every_option_is_on_a_page_that_tells_of_its_command() -> None:
    def is_on(page: str, names: tuple[str, ...]) -> bool:
        return any(re.search(rf"(?<![\w-]){name}(?![\w-])", page) for name in names)

    missing = []
    for command, option in options():
        of_many = option.rich_help_panel in GROUPS or option.opts[0] in ("--json", "--csv")  # told once, for all
        pages = TEXTS if of_many else [text for text in TEXTS if f"fada {command}" in text]
        names = tuple(name for name in (*option.opts, *option.secondary_opts) if name.startswith("--"))
        if not any(is_on(page, names) for page in pages):
            missing.append(f"fada {command} {names[0]}")
    assert missing == []


def test_every_option_says_what_it_does() -> None:
    assert [(command, option.opts[0]) for command, option in options() if not (option.help or "").strip()] == []


def test_every_format_and_entry_point_is_on_a_page() -> None:
    data = (ROOT / "docs" / "data.md").read_text(encoding="utf-8").casefold()
    assert [name for name in formats.formats() if name not in data] == []
    assert [group for group in (formats.GROUP, models.GROUP) if f"`{group}`" not in PAGES] == []
