"""The one exception that is the user's to mend."""


class FadaError(Exception):
    """A mistake in input or settings: what was found, what was expected, where, and what to do.

    The command line prints the message without a traceback and exits with code 2.
    """


def missing_extra(package: str, extra: str, purpose: str) -> FadaError:
    """The error for an optional dependency that is not installed."""
    return FadaError(f"{purpose} needs the package {package}, which is not installed. Try: pip install 'fada[{extra}]'")
