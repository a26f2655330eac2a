"""Narrowing what may be absent or of several kinds: a test that finds something else fails here, with what it found."""

from typing import TypeVar

from fada.data.crop import PageCrop
from fada.data.line import Line

T = TypeVar("T")


def some(value: T | None) -> T:
    """A value that is there."""
    assert value is not None
    return value


def crop_of(line: Line) -> PageCrop:
    """Where a line of an ALTO or PAGE file is on its page."""
    assert isinstance(line.image, PageCrop), line.image
    return line.image
