"""The version, apart from the package's root so that every room can tell it."""

__version__ = "0.1.0"
