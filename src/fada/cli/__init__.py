"""The command line: verbs over the library, no logic of their own. Heavy imports stay inside the command bodies."""

import errno
import importlib
import io
import os
import pkgutil
import sys
from typing import Any, get_args

import typer
import typer.core

from fada._version import __version__
from fada.cli.examples import EXAMPLES
from fada.cli.output import echo
from fada.errors import EXTRAS, FadaError, Interrupted

_OLD_SPELLINGS = {
    "data convert": {"--to": "--out"},
    "data published": {"--to": "--out", "--from": "--source"},
    "decode": {"--lm-text": "--text"},
    "evaluate": {"--output": "--out", "--lm-text": "--text"},
    "export": {"--order": "--lm-order"},
    "report": {"--images": "--line-images", "--no-images": "--no-line-images"},
    "synth": {"--lines": "--count", "--domains": "--domain-count"},
    "targets edit": {"--set": "--frequency", "--scale": "--multiply"},
    "transcribe": {"--lm-text": "--text"},
    "tune": {"--lm-text": "--text"},
}
"""Options of version 0.1 that meant something else in another command; they still work."""


_READ_OUT = {"results"}
"""Commands that may only compare what is at --out."""


def _checked(ctx: Any, parameter: Any, value: Any) -> Any:
    """What --out names, which is refused before any work is done if nothing can be written there."""
    from fada.common.files import check_place

    if value is not None and not ctx.resilient_parsing:
        check_place(value)
    return value


def _respelt(args: list[str], spellings: dict[str, str]) -> list[str]:
    """Arguments with today's names of options, which are told; a format after --to is one, not a place."""
    from fada.cli.data import OutputFormat

    respelt: list[str] = []
    formats: set[str] = set() if {"--format", "-f"} & {*args} else {*get_args(OutputFormat)}
    for number, argument in enumerate(args):
        name, equals, value = argument.partition("=")
        new = spellings.get(name, name)
        if new != name:
            named = value if equals else "".join(args[number + 1 : number + 2])
            new = "--format" if name == "--to" and named in formats else new
            echo(f"note: {name} is now called {new}", err=True)
        respelt.append(new + equals + value)
    return respelt


class _Commands(typer.core.TyperGroup):
    """The commands, with the spellings of version 0.1; their help has an example, and flags have no type in it."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        for command, spellings in _OLD_SPELLINGS.items():
            if args[: len(command.split())] == command.split():
                args = _respelt(args, spellings)
        return super().parse_args(ctx, args)

    def get_params(self, ctx: Any) -> Any:
        own: Any = super().get_params(ctx)
        for parameter in own:
            if getattr(parameter, "is_bool_flag", False):
                parameter.metavar = ""
        return own

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        command: Any = super().get_command(ctx, cmd_name)
        if command is None:
            return None
        parts = {f"{cmd_name} {name}": part for name, part in getattr(command, "commands", {}).items()}
        for name, part in (parts or {cmd_name: command}).items():
            part.epilog = f"Example: `{EXAMPLES[name]}`" if name in EXAMPLES else None
            for parameter in (*part.params, part.get_help_option(ctx)):
                if getattr(parameter, "is_bool_flag", False):
                    parameter.metavar = ""
                elif (parameter.name == "out" or "--out" in parameter.opts) and name not in _READ_OUT:
                    parameter.callback = _checked
        return command

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except EOFError as error:  # click would take it for the end of a dialogue and say "Aborted"
            told = _told(error)
            raise FadaError(told[0] if told else str(error)) from error


app = typer.Typer(
    name="fada",
    cls=_Commands,
    help="Text recognition that respects how often characters are used: targets, training, decoding, evaluation.",
    no_args_is_help=True,
    rich_markup_mode="markdown",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"fada {__version__}")
        raise typer.Exit


@app.callback()
def _root(
    version: bool = typer.Option(False, "--version", help="Show the version.", callback=_print_version, is_eager=True),
) -> None:
    from fada.common.say import show_records

    show_records()


_SHARED = {"examples", "options", "output"}
for _name in sorted({module.name for module in pkgutil.iter_modules(__path__)} - _SHARED):
    _module: Any = importlib.import_module(f"{__name__}.{_name}")
    if hasattr(_module, "group"):
        app.add_typer(_module.group, name=_name)
    else:
        app.command(_name)(getattr(_module, _name))


INTERRUPTED = 130
"""Exit code after Ctrl-C."""


def _told(error: BaseException) -> tuple[str, int] | None:
    """The sentence and the exit code for what the user's files, disk or installation did; None for a fault of ours."""
    from fada.common.files import full_place, is_full

    if isinstance(error, FadaError):
        return str(error), 2
    if isinstance(error, Interrupted):
        return str(error), error.code
    if isinstance(error, KeyboardInterrupt):
        return "interrupted", INTERRUPTED
    if isinstance(error, ModuleNotFoundError):
        package = (error.name or "").partition(".")[0]
        if extra := EXTRAS.get(package):
            return f"this needs the package {package}, which is not installed. Try: pip install 'fada[{extra}]'", 2
    if is_full(error):
        where = f"{place}: " if (place := full_place(error)) else ""
        again = " ".join(("give the command again", *getattr(error, "__notes__", ())))
        return f"{where}the disk is full. What was finished is kept; free some space and {again}.", 1
    if isinstance(error, OSError):
        return _about_files(error)
    if isinstance(error, MemoryError):
        return f"not enough memory ({error}). Read less at once, or use a machine with more.", 1
    for kind, sentence in _DAMAGED.items():
        if any(base.__name__ == kind for base in type(error).__mro__):
            said = str(error).partition("\n")[0][:200]
            return f"{sentence} ({said}). FADA_DEBUG=1 shows which reader met it.", 2
    return None


_DAMAGED = {
    "UnicodeDecodeError": "a file is not UTF-8 text; save it as UTF-8",
    "RecursionError": "a file is nested too deeply to be read",
    "EOFError": "a stored file ends too early: it is empty or was cut short",
    "BadZipFile": "a stored file is damaged or not what its name says",
    "UnpicklingError": "a stored file is damaged or not what its name says",
    "SafetensorError": "the weights of a model are damaged, or only a git-lfs pointer to them",
    "ArrowInvalid": "a parquet or Arrow file is damaged",
}
_PLACES = {
    errno.EACCES: "no permission",
    errno.EPERM: "no permission",
    errno.EROFS: "the disk is read-only",
    errno.ENOENT: "no such file or folder",
    errno.ENOTDIR: "a part of this path is a file, not a folder",
    errno.EISDIR: "this is a folder, a file was expected",
    errno.EEXIST: "exists already",
    errno.ENAMETOOLONG: "the name is too long",
    errno.ELOOP: "a symbolic link that leads to itself",
}


def _about_files(error: OSError) -> tuple[str, int] | None:
    where = f"{error.filename}: " if error.filename is not None else ""
    if error.errno in _PLACES:
        return f"{where}{_PLACES[error.errno]}", 2
    return (f"{where}{error.strerror}", 1) if error.strerror else None


def main() -> None:
    """Entry point: 0 done, 1 our fault or a full disk, 2 the user's to mend, 3 a threshold missed, 128 + signal."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # UTF-8 in files and pipes; a terminal shows ? for what it cannot show
            stream.reconfigure(encoding=None if stream.isatty() else "utf-8", errors="replace")
    if not os.environ.get("COLUMNS", "1").isdecimal() or os.environ.get("COLUMNS") == "0":
        del os.environ["COLUMNS"]  # rich would print nothing
    try:
        app(standalone_mode=True)
    except SystemExit as stop:
        if stop.code == INTERRUPTED:  # typer keeps Ctrl-C to itself
            echo("fada: interrupted", err=True)
        raise
    except (Exception, KeyboardInterrupt) as error:
        if os.environ.get("FADA_DEBUG") and not isinstance(error, FadaError | Interrupted | KeyboardInterrupt):
            raise
        sentence, code = _told(error) or (
            f"internal error, {type(error).__name__}: {error} (FADA_DEBUG=1 shows the traceback)",
            1,
        )
        echo(f"fada: {sentence}", err=True)
        sys.exit(code)
