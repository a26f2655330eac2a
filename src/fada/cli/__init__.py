"""The command line: verbs over the library, no logic of their own. Heavy imports stay inside the command bodies."""

import importlib
import io
import os
import pkgutil
import sys

import typer

from fada._version import __version__
from fada.errors import FadaError, Interrupted

app = typer.Typer(
    name="fada",
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
    pass


_SHARED = {"options", "output"}
for _module in sorted({module.name for module in pkgutil.iter_modules(__path__)} - _SHARED):
    importlib.import_module(f"{__name__}.{_module}").register(app)


def _write_any_character() -> None:
    """Output is UTF-8 in files and pipes; a terminal shows a question mark for what it cannot show."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(encoding=None if stream.isatty() else "utf-8", errors="replace")


def main() -> None:
    """Entry point: 0 done, 1 a failure of ours, 2 the user's mistake, 3 a threshold missed, 130 interrupted."""
    _write_any_character()
    try:
        app(standalone_mode=True)
    except FadaError as error:
        typer.echo(f"fada: {error}", err=True)
        sys.exit(2)
    except Interrupted as stop:
        typer.echo(f"fada: {stop}", err=True)
        sys.exit(stop.code)
    except KeyboardInterrupt:
        typer.echo("fada: interrupted", err=True)
        sys.exit(130)
    except Exception as error:
        if os.environ.get("FADA_DEBUG"):
            raise
        typer.echo(
            f"fada: internal error, {type(error).__name__}: {error} (FADA_DEBUG=1 shows the traceback)", err=True
        )
        sys.exit(1)
