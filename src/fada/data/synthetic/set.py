"""A synthetic set with a controlled shift: the same hands write text whose letter frequencies differ by domain.

The text comes from :mod:`fada.data.synthetic.text`, the images from :mod:`fada.data.synthetic.hands`. Every line has
random numbers of its own, so the same seed gives the same bytes whatever the number of processes.
"""

import os
import string
from collections import Counter
from collections.abc import Iterator, Sequence
from functools import cached_property
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
from pydantic import ConfigDict, with_config
from typing_extensions import TypedDict

from fada._version import __version__
from fada.common.files import write_json
from fada.common.workers import process_pool
from fada.data.formats.parquet import write_parquet
from fada.data.line import Line, LineSet, Log
from fada.data.splits import assign_splits
from fada.data.synthetic import hands as rendering
from fada.data.synthetic import text as synthetic_text
from fada.data.synthetic.hands import PlacedLine, Scriptorium
from fada.errors import FadaError

METADATA = "synthetic.json"
"""File beside the parquet files: settings, realised correlations, fonts, licence."""

LICENCE = "CC BY-SA 4.0 (word frequencies of wordfreq); images drawn with the fonts listed in the metadata"
CITATION = "Robyn Speer. (2022). rspeer/wordfreq: v3.0 (v3.0.2). Zenodo. https://doi.org/10.5281/zenodo.7199437"

DEFAULT_PEARSON = (0.89, 0.97)
"""Lowest and highest correlation of two domains in the paper's synthetic set."""

_KEPT = 50_000  # lines whose images are kept in memory after the first pass; larger sets are drawn again
_CHUNK = 32


@with_config(ConfigDict(extra="forbid"))
class SyntheticSettings(TypedDict, total=False):
    """What decides a set: the arguments of :func:`make_synthetic`, as a recipe and the metadata hold them."""

    lines: int
    domains: int
    language: str
    pearson: float | Sequence[float] | None
    noise: float
    height: int
    seed: int
    writers: int
    fonts: str | None


class SyntheticSet:
    """What :func:`make_synthetic` makes: lines in three splits, and how their domains correlate.

    Attributes:
        lines: all lines as a :class:`~fada.data.line.LineSet`; images are drawn on the first pass.
        domains: names in the order of `pearson`.
    """

    def __init__(
        self,
        placed: Sequence[PlacedLine],
        domains: tuple[str, ...],
        scriptorium: Scriptorium,
        settings: SyntheticSettings,
        processes: int,
    ) -> None:
        self.domains = domains
        self._placed = placed
        self._scriptorium = scriptorium
        self._settings = settings
        self._processes = processes
        self._images: list[bytes] = []
        pages = {_page_name(line): line.domain for line in placed}
        self._splits = assign_splits(pages.items())
        self.lines = LineSet(self._read, "synthetic", length=len(placed), licence=LICENCE, citation=CITATION)

    def split(self, name: str) -> LineSet:
        """The lines of ``train``, ``validation`` or ``test``."""
        return self.lines.only(name)

    @cached_property
    def pearson(self) -> np.ndarray:
        """(D, D) correlations of the letter frequencies of the domains, measured on the lines."""
        texts = [[line.text for line in self._placed if line.domain == domain] for domain in self.domains]
        return synthetic_text.letter_correlations(texts) if len(texts) > 1 else np.ones((1, 1))

    @property
    def metadata(self) -> dict[str, Any]:
        """Settings, correlations, fonts, numbers of lines, licence: what is stored in ``synthetic.json``."""
        pairs = self.pearson[np.triu_indices(len(self.domains), 1)]
        return {
            "made_by": f"fada {__version__}",
            "settings": self._settings,
            "domains": list(self.domains),
            "lines": dict(Counter(self._splits[_page_name(line)] for line in self._placed)),
            "pearson": {
                "counted": synthetic_text.LETTERS.to_dict(),
                "lowest": round(float(pairs.min()), 4) if len(pairs) else None,
                "highest": round(float(pairs.max()), 4) if len(pairs) else None,
                "matrix": self.pearson.round(4).tolist(),
            },
            "fonts": [path.name for path in self._scriptorium.fonts],
            "licence": LICENCE,
            "citation": CITATION,
        }

    def save(self, folder: str | os.PathLike[str]) -> Path:
        """Write ``train.parquet``, ``validation.parquet``, ``test.parquet`` and ``synthetic.json`` into a folder."""
        folder = Path(folder)
        if folder.exists() and not folder.is_dir():
            raise FadaError(f"{folder}: a file, expected a folder to write the set into.")
        write_parquet(self.lines, folder)
        write_json(folder / METADATA, self.metadata)
        return folder

    def _read(self, log: Log, media: bool) -> Iterator[Line]:
        if not media:
            yield from (self._line(line, None) for line in self._placed)
            return
        if self._images:
            yield from map(self._line, self._placed, self._images)
            return
        drawn: list[bytes] = []
        for line, image in zip(self._placed, self._draw(), strict=True):
            if len(self._placed) <= _KEPT:
                drawn.append(image)
            yield self._line(line, image)
        self._images = drawn

    def _draw(self) -> Iterator[bytes]:
        # The first line is drawn here, so that looking at one line does not start the processes.
        yield from (self._scriptorium.draw(line) for line in self._placed[:1])
        rest = self._placed[1:]
        processes = min(self._processes, -(-len(rest) // _CHUNK))
        if processes <= 1:
            yield from map(self._scriptorium.draw, rest)
            return
        with process_pool(processes, rendering.open_scriptorium, (self._scriptorium,)) as pool:
            chunks = [rest[start : start + _CHUNK] for start in range(0, len(rest), _CHUNK)]
            try:
                yield from chain.from_iterable(pool.map(rendering.draw_chunk, chunks))
            finally:
                pool.shutdown(cancel_futures=True)

    def _line(self, line: PlacedLine, image: bytes | None) -> Line:
        page = _page_name(line)
        return Line(
            id=f"{page}-{line.row + 1:02d}",
            text=line.text,
            domain=line.domain,
            image=image,
            source=f"synthetic {page}-{line.row + 1:02d}",
            extra={"writer": f"w{line.writer + 1}", "page": page, "line": line.row + 1, "split": self._splits[page]},
        )


def _page_name(line: PlacedLine) -> str:
    return f"{line.domain}-{line.page:04d}"


def make_synthetic(
    lines: int = 1690,
    domains: int = 4,
    language: str = "el",
    pearson: float | Sequence[float] | None = None,
    noise: float = 1.0,
    height: int = 64,
    seed: int = 0,
    *,
    writers: int = 8,
    fonts: str | os.PathLike[str] | None = None,
    processes: int | None = 1,
) -> SyntheticSet:
    """Make a set of handwritten-looking lines whose domains differ in their letter frequencies, and in nothing else.

    Args:
        lines: in all domains together.
        domains: how many; they are called A, B, C, ...
        language: any language of `wordfreq`, as its two-letter code.
        pearson: lowest and highest correlation between the letter frequencies of two domains (spaces not counted), or
            one value for all pairs; 1 for no shift. The lines meet them to 0.01. By default 0.89 and 0.97, the paper's
            values (0.89 if there are only two domains).
        noise: how hard to read: 0 is a copy-book, 1 ordinary, 2 hard; up to 3.
        height: of the images, in pixels.
        seed: everything follows from it.
        writers: distinct hands, each of which writes in every domain.
        fonts: a folder with fonts; those that come with matplotlib by default.
        processes: that draw; None for one per core. Does not change the result. With more than one, a script must guard
            its entry by ``if __name__ == "__main__"``.

    Raises:
        FadaError: a setting out of range, correlations that cannot be met, or no font with all the letters.
    """
    for name, value, low, high in (
        ("lines", lines, 4 * domains, 10_000_000),
        ("domains", domains, 1, 26),
        ("noise", noise, 0, 3),
        ("height", height, 16, 256),
        ("seed", seed, 0, 2**63),
        ("writers", writers, 1, 1000),
    ):
        if not low <= value <= high:
            raise FadaError(f"synthetic set: {name} is {value}, expected a number from {low:,} to {high:,}.")
    asked = _asked_range(pearson, domains)
    counts = [lines // domains + (d < lines % domains) for d in range(domains)]
    texts = synthetic_text.draw_lines(synthetic_text.load_vocabulary(language), counts, asked, seed)
    alphabet = "".join(sorted(set().union(*chain.from_iterable(texts))))
    rendering.check_shaping(alphabet)
    found = rendering.find_fonts(None if fonts is None else Path(fonts), alphabet)
    names = tuple(string.ascii_uppercase[:domains])
    settings: SyntheticSettings = {
        "lines": lines,
        "domains": domains,
        "language": language,
        "pearson": None if asked is None else list(asked),
        "noise": noise,
        "height": height,
        "seed": seed,
        "writers": writers,
        "fonts": None if fonts is None else str(fonts),
    }
    return SyntheticSet(
        _placed(dict(zip(names, texts, strict=True)), writers, seed),
        names,
        Scriptorium(tuple(found), height, noise, seed),
        settings,
        processes or os.cpu_count() or 1,
    )


def parse_pearson(text: str) -> float | tuple[float, float]:
    """Read ``0.89:0.97`` (lowest and highest) or ``0.9`` (all pairs)."""
    try:
        numbers = [float(part) for part in text.split(":")]
    except ValueError:
        numbers = []
    if len(numbers) not in (1, 2):
        raise FadaError(f"correlations {text!r}, expected lowest:highest such as 0.89:0.97, or one number for all.")
    return numbers[0] if len(numbers) == 1 else (numbers[0], numbers[1])


def _asked_range(pearson: float | Sequence[float] | None, domains: int) -> tuple[float, float] | None:
    if domains == 1:
        if pearson is not None:
            raise FadaError("synthetic set: one domain has nothing to correlate with; leave the correlations out.")
        return None
    if pearson is None:
        pearson = DEFAULT_PEARSON if domains > 2 else DEFAULT_PEARSON[0]
    lowest, highest = pearson if isinstance(pearson, Sequence) else (pearson, pearson)
    if not 0 <= lowest <= highest <= 1:
        raise FadaError(f"correlations from {lowest:g} to {highest:g}, expected 0 <= lowest <= highest <= 1.")
    if domains == 2 and lowest != highest:
        raise FadaError(
            f"correlations from {lowest:g} to {highest:g}, but two domains make one pair: give one number, "
            f"such as {lowest:g}."
        )
    if highest == 1 and lowest < 1:
        raise FadaError("the highest correlation is 1 and the lowest is not: two domains would be the same one.")
    return lowest, highest


def _placed(texts: dict[str, list[str]], writers: int, seed: int) -> list[PlacedLine]:
    """Put the lines on pages of one writer each; every writer gets the same share of the pages of every domain."""
    placed: list[PlacedLine] = []
    page = 0
    for domain, lines in texts.items():
        per_page = min(max(len(lines) // (2 * writers), 1), 12)
        starts = range(0, len(lines), per_page)
        rng = np.random.default_rng(np.random.SeedSequence(seed, spawn_key=(rendering.Stream.HAND, ord(domain), 0)))
        order = rng.permutation(writers)
        for turn, start in enumerate(starts):
            page += 1
            rows = ["", *lines[start : start + per_page], ""]
            for row in range(len(rows) - 2):
                above, text, below = rows[row : row + 3]
                writer = int(order[turn % writers])
                placed.append(PlacedLine(len(placed), text, domain, writer, page, row, above, below))
    return placed
