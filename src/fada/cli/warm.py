"""`fada warm`: what the first line would wait for."""

from fada.cli.output import echo


def warm() -> None:
    """Compile the searches now, once for this machine, so that the first line need not wait for it."""
    from fada.decoding.warm import warm as compile_all

    echo(f"the searches are compiled and stored ({compile_all():.1f} s)")
