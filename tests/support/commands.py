"""The command line: run in a test, and all its commands with their options."""

import sys
from collections.abc import Iterator
from typing import Any

import typer
from typer.testing import CliRunner, Result

from fada.cli import app

FADA = (sys.executable, "-m", "fada")
"""`fada` in a process of its own, which is seconds slower: where that process is the point."""


def run_fada(*arguments: object, code: int = 0) -> Result:
    """What `fada` does with these arguments, which is to end with this exit code; its errors are raised."""
    done = CliRunner(env={"COLUMNS": "250"}).invoke(app, [*map(str, arguments)], catch_exceptions=False)
    assert done.exit_code == code, done.output
    return done


def commands() -> Iterator[tuple[str, Any]]:
    root: Any = typer.main.get_command(app)
    context = typer.Context(root)
    for name in root.commands:
        command = root.get_command(context, name)
        if hasattr(command, "commands"):
            yield from ((f"{name} {verb}", part) for verb, part in command.commands.items())
        else:
            yield name, command


COMMANDS = dict(commands())


def options() -> Iterator[tuple[str, Any]]:
    for name, command in COMMANDS.items():
        yield from ((name, p) for p in command.params if p.param_type_name == "option" and not p.hidden)


def spellings(command: str) -> set[str]:
    return {s for c, p in options() if c == command for s in (*p.opts, *p.secondary_opts)}
