"""Which lines of a manuscript are corrected, and which are the test."""

import hashlib
from collections.abc import Sequence

import numpy as np

from fada.data.line import Line
from fada.errors import FadaError


def page_of(line: Line) -> str:
    """The page that a line stands on, as its data tell."""
    return str(line.extra.get("page") or line.id)


def divided(lines: Sequence[Line], corrected: int) -> tuple[list[Line], list[Line]]:
    """Lines to correct and lines to test on: no page is in both.

    Pages are taken in the order of the SHA-256 of their names (UTF-8, hexadecimal) until there are at least `corrected`
    lines; the lines of the other pages are the test.
    """
    pages: dict[str, list[Line]] = {}
    for line in lines:
        pages.setdefault(page_of(line), []).append(line)
    pool: list[Line] = []
    order = sorted(pages, key=lambda page: hashlib.sha256(page.encode()).hexdigest())
    for number, page in enumerate(order):
        if len(pool) >= corrected:
            return pool, [line for other in order[number:] for line in pages[other]]
        pool += pages[page]
    raise FadaError(
        f"{len(lines)} lines of {len(pages)} pages: none is left to test on after {corrected} for correcting."
    )


def drawn(pool: Sequence[Line], count: int, seed: int) -> list[Line]:
    """`count` lines of the pool; fewer of the same seed are the first of more."""
    return [pool[i] for i in np.random.default_rng(seed).permutation(len(pool))[:count]]
