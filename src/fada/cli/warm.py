"""`fada warm`: what the first line would wait for."""

import typer

from fada.cli.output import echo


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("warm")(warm)


def warm() -> None:
    """Compile the searches now, once for this machine, so that the first line need not wait for it."""
    from fada.decoding.warm import warm as compile_all

    echo(f"the searches are compiled and stored ({compile_all():.1f} s)")
