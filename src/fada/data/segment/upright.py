"""A page turned upright before its lines are taken: text that runs up or down, or stands on its head."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

from fada.data.segment.page import PageLines
from fada.data.segment.photographs import turned
from fada.errors import FadaError

if TYPE_CHECKING:
    from PIL import Image


@dataclass(frozen=True)
class Look:
    """What a recogniser makes of the lines of a page.

    Attributes:
        upside_down: whether they stand on their heads; None where it cannot tell.
        is_text: whether it reads anything in them.
    """

    upside_down: bool | None
    is_text: bool = True


class SidewaysError(FadaError):
    """A page lies on its side, and it cannot be told which."""


LookAt: TypeAlias = Callable[["Image.Image", PageLines], Look]


@dataclass(frozen=True)
class UprightPage:
    """A page that stands upright.

    Attributes:
        image: of the page, turned clockwise by `turn` degrees.
        found: its lines.
        notes: what is worth knowing.
    """

    image: "Image.Image"
    turn: int
    found: PageLines
    notes: tuple[str, ...]


def find_upright(
    page: "Image.Image", find: "Callable[[Image.Image], PageLines]", look_at: LookAt | None, name: str
) -> UprightPage:
    """The lines of a page, turned upright first if need be.

    Args:
        page: in grey or in its colours.
        find: gives the lines of a page.
        look_at: None where pages are to be taken as they stand, if their lines run across.
        name: of the page, for messages.

    Raises:
        FadaError: there is no text, or it cannot be told which way up it is.
    """
    turn, found = 0, find(page)
    if found.sideways:
        turn, page = 90, turned(page, 90)
        found = find(page)
    look = look_at(page, found) if look_at is not None and found.lines else Look(None)
    if look.upside_down:
        turn, page = turn + 180, turned(page, 180)
        found = find(page)
    elif turn and look.upside_down is None and found.lines:
        raise SidewaysError(f"{name}: lies on its side. Turn it with --rotate 90, or 270 if it is upside down then.")
    if found.crowded:
        raise FadaError(
            f"{name}: too many pieces of text to make lines of. Is it a pattern, or the grain of the paper?"
        )
    if not found.lines:
        raise FadaError(f"{name}: no text found on this page. Is it blank, or a photograph of something else?")
    notes = (
        [f"{_LAY[turn]}, turned by {turn} degrees (fada segment --rotate 0 takes pages as they are)"] if turn else []
    )
    if not look.is_text:
        notes.append("hardly any letters can be read in what was found. Is it music, a picture, or another script?")
    if found.cut_off:
        notes.append(f"{found.cut_off} lines at the edge belong to the neighbouring page, left out")
    return UprightPage(page, turn, found, tuple(notes))


_LAY = {90: "lay on its side", 180: "stood on its head", 270: "lay on its side"}
