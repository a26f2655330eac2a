"""Lines found on photographed pages, against the lines that people drew: share found by zone, of false ones, time, CER.

python -m benchmarks.pages FOLDER: page images with their ALTO beside them (`validation/` for choosing, `test/` for
reporting). A drawn line is found if one found baseline runs within a third of the line's height from it over 80 % of
its length; a found line is false if over half of its length no drawn line is that near. Zones are those that the
ALTO files name (SegmOnto); a line is marked right if those of main zones are found as text, others (margins, numbers,
titles, initials) as something else.

With --read MODEL each page is read twice, by the lines that people drew and by those that were found, as `fada
transcribe` reads them. CER of the page: of all its lines in their order, with spaces between. CER of the bag of lines:
of each drawn line and the found one that it is paired with, so that the sum of edits is smallest; a line without a
partner counts whole. CER of the main text: of the lines of main zones alone, in the order of their zones and in each
zone from top to bottom, against the found lines that are marked as text; so it depends neither on where a file puts its
margins nor on lines that were drawn in another order than they are read in. How many times a file has a line before the
one that stands above it is printed for each page. Texts are compared in NFC.
"""

import argparse
import re
import time
import unicodedata
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from rapidfuzz import process
from rapidfuzz.distance import Levenshtein
from scipy.optimize import linear_sum_assignment

from fada import load_recognizer, read_lines
from fada.data.formats.xml import parse
from fada.data.images import load_upright
from fada.data.line import Line
from fada.data.segment.page import find_lines

SAMPLES = 60
UNNAMED = "no zone"
MAIN = "Main"

Curve = NDArray[np.float64]


@dataclass(frozen=True)
class Drawn:
    """A line as a person drew it."""

    baseline: Curve
    height: float
    zone: str = UNNAMED
    region: str = ""
    id: str = ""
    text: str = ""


def sampled(points: NDArray[np.float64]) -> Curve:
    """(samples, 2): a baseline at even steps from left to right."""
    points = points[np.argsort(points[:, 0], kind="stable")]
    x = np.linspace(points[0, 0], points[-1, 0], SAMPLES)
    return np.stack([x, np.interp(x, points[:, 0], points[:, 1])], 1)


def near(curve: Curve, other: Curve, tolerance: float) -> NDArray[np.bool_]:
    """(samples,) where `curve` runs within `tolerance` of `other`."""
    x, y = curve.T
    inside = (x >= other[0, 0] - tolerance) & (x <= other[-1, 0] + tolerance)
    return inside & (np.abs(np.interp(x, *other.T) - y) < tolerance)


def compare(drawn: list[Drawn], found: list[Curve]) -> tuple[list[int | None], int]:
    """For each drawn line the place of the one that it was found as, and how many found lines are false.

    Where several are near enough, it was found as the one that is itself nearest to it over most of its length: not as
    the long line of the text that a short mark in the margin stands beside.
    """
    hits: list[int | None] = []
    for d in drawn:
        fits = [i for i, f in enumerate(found) if near(d.baseline, f, d.height / 3).mean() >= 0.8]
        hits.append(max(fits, key=lambda i: near(found[i], d.baseline, d.height / 3).mean()) if fits else None)
    false = 0
    for curve in found:
        close = np.zeros(SAMPLES, bool)
        for d in drawn:
            close |= near(curve, d.baseline, d.height / 3)
        false += close.mean() < 0.5
    return hits, false


def drawn_lines(file: Path) -> list[Drawn]:
    """The lines of an ALTO file that have a baseline."""
    lines = []
    zones = zones_of(file)
    for line in read_lines(file):
        crop = line.image
        if not getattr(crop, "baseline", ()):
            continue
        baseline = sampled(np.array(crop.baseline))  # type: ignore[union-attr]
        height = np.ptp([y for _, y in crop.polygon]) - abs(baseline[-1, 1] - baseline[0, 1])  # type: ignore[union-attr]
        region = crop.region or ""  # type: ignore[union-attr]
        zone = zones.get(region, UNNAMED)
        lines.append(Drawn(baseline, max(float(height), 10.0), zone, region, line.id, line.text or ""))
    return lines


def from_the_top(drawn: Sequence[Drawn]) -> tuple[list[Drawn], int]:
    """Lines in the order of reading, and how many pairs had to change places for it.

    The order is that of the file, but in one zone no line comes before the line next to it that stands above it.
    """
    lines, swaps = list(drawn), 0
    while True:
        wrong = [i for i in range(len(lines) - 1) if is_below(lines[i], lines[i + 1])]
        if not wrong:
            return lines, swaps
        lines[wrong[0] : wrong[0] + 2] = lines[wrong[0] + 1], lines[wrong[0]]
        swaps += 1


def is_below(line: Drawn, other: Drawn) -> bool:
    """Whether a line stands below another one of its zone: not beside it, and not in the next column."""
    if line.region != other.region:
        return False
    left, right = max(line.baseline[0, 0], other.baseline[0, 0]), min(line.baseline[-1, 0], other.baseline[-1, 0])
    narrower = min(np.ptp(line.baseline[:, 0]), np.ptp(other.baseline[:, 0]))
    middle = (left + right) / 2
    lower = np.interp(middle, *line.baseline.T) - np.interp(middle, *other.baseline.T)
    return bool(right - left > narrower / 2 and lower > min(line.height, other.height) / 3)


def main_text(drawn: Sequence[Drawn]) -> list[Drawn]:
    """The lines of the main zones in the order of reading; all lines where no zone is named so."""
    return from_the_top([line for line in drawn if line.zone.startswith(MAIN)] or drawn)[0]


def zones_of(file: Path) -> dict[str, str]:
    """What an ALTO file calls the zones of its blocks, by the blocks' ids; `MainZone:column#1` is a `MainZone`."""
    root = parse(file.read_bytes(), file.name).getroot()
    labels = {tag.get("ID"): tag.get("LABEL") or UNNAMED for tag in root.iterfind("{*}Tags/{*}OtherTag")}
    found = {}
    for block in root.iter("{*}TextBlock"):
        named = [labels[tag] for tag in (block.get("TAGREFS") or "").split() if tag in labels]
        found[block.get("ID") or ""] = re.split("[:#]", named[0])[0] if named else UNNAMED
    return found


def image_of(file: Path) -> Path:
    """The image beside an ALTO file."""
    return next(image for ending in (".jpg", ".png") if (image := file.with_suffix(ending)).is_file())


@dataclass(frozen=True)
class Errors:
    """Edits on one page or on several, as told above, for found and drawn lines, and of how many characters."""

    characters: int = 0
    main_characters: int = 0
    found_page: int = 0
    drawn_page: int = 0
    found_bag: int = 0
    drawn_bag: int = 0
    found_main: int = 0
    drawn_main: int = 0

    def __add__(self, other: "Errors") -> "Errors":
        return Errors(*(a + b for a, b in zip(vars(self).values(), vars(other).values(), strict=True)))

    def row(self) -> str:
        """Cells of a table: CER of the page, of its bag of lines and of its main text, found and drawn, and ratios."""
        kinds = (
            (self.characters, self.found_page, self.drawn_page),
            (self.characters, self.found_bag, self.drawn_bag),
            (self.main_characters, self.found_main, self.drawn_main),
        )
        rates = [(100 * found / max(of, 1), 100 * drawn / max(of, 1)) for of, found, drawn in kinds]
        return " | ".join(f"{found:.1f} | {drawn:.1f} | {found / max(drawn, 1e-9):.2f}" for found, drawn in rates)


def bag_edits(references: Sequence[str], texts: Sequence[str]) -> int:
    """The fewest edits from the lines of one bag to those of the other; a line without a partner counts whole."""
    size = max(len(references), len(texts))
    sides = [[*side, *[""] * (size - len(side))] for side in (references, texts)]
    costs = process.cdist(*sides, scorer=Levenshtein.distance, dtype=np.int32)
    return int(costs[linear_sum_assignment(costs)].sum())


def page_edits(references: Sequence[str], texts: Sequence[str]) -> int:
    """Edits of all lines in their order."""
    return Levenshtein.distance(" ".join(references), " ".join(texts))


def errors(
    references: Sequence[str], found: Sequence[str], drawn: Sequence[str], mains: Sequence[Sequence[str]]
) -> Errors:
    """Edits of one page: its lines as transcribed, as read from the found ones, as read from the drawn ones.

    `mains`: the same three of its main text.
    """
    whole, on_found, on_drawn, main, main_found, main_drawn = (
        [unicodedata.normalize("NFC", text) for text in each if text] for each in (references, found, drawn, *mains)
    )
    return Errors(
        len(" ".join(whole)),
        len(" ".join(main)),
        *(page_edits(whole, each) for each in (on_found, on_drawn)),
        *(bag_edits(whole, each) for each in (on_found, on_drawn)),
        *(page_edits(main, each) for each in (main_found, main_drawn)),
    )


def is_single_column(drawn: Sequence[Drawn]) -> bool:
    """Whether hardly any line of the main zones (or of all, where none is named so) has another one beside it."""
    main = [line for line in drawn if line.zone.startswith(MAIN)] or drawn
    width = np.median([np.ptp(line.baseline[:, 0]) for line in main])
    wide = [line for line in main if np.ptp(line.baseline[:, 0]) > width / 2]
    beside = [
        any(
            abs(a.baseline[:, 1].mean() - b.baseline[:, 1].mean()) < a.height / 2
            and (a.baseline[-1, 0] <= b.baseline[0, 0] or b.baseline[-1, 0] <= a.baseline[0, 0])
            for b in wide
        )
        for a in wide
    ]
    return float(np.mean(beside)) < 0.1


def main() -> None:
    """Print one row a page."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--read", metavar="MODEL", help="also read the pages, with this model (medieval)")
    arguments = parser.parse_args()
    folder = arguments.folder
    recognizer = load_recognizer(arguments.read) if arguments.read else None
    if recognizer is not None:
        recognizer.use_looks("auto")
    read: list[tuple[str, bool, int, Errors]] = []
    totals = np.zeros(4, int)
    seconds = []
    zones: Counter[str] = Counter()
    zone_hits: Counter[str] = Counter()
    zone_marked: Counter[str] = Counter()
    print("| page | drawn | found | lines | false | CPU s |\n|---|---|---|---|---|---|")
    for file in sorted(folder.glob("*.xml")):
        drawn = drawn_lines(file)
        page = load_upright(image_of(file))[0]
        started = time.process_time()
        on_page = find_lines(page)
        seconds.append(time.process_time() - started)
        found = [sampled(np.array(line.baseline)) for line in on_page.lines]
        if recognizer is not None:
            known = list(read_lines(file))
            crops = [Line(f"{file.stem}#{i}", image=crop) for i, crop in enumerate(on_page.crops(image_of(file)))]
            on_found = recognizer.transcribe(crops)
            on_drawn = dict(zip((line.id for line in known), recognizer.transcribe(known), strict=True))
            text = main_text(drawn)
            mains = (
                [line.text for line in text],
                [told for told, line in zip(on_found, on_page.lines, strict=True) if line.zone == "main"],
                [on_drawn[line.id] for line in text],
            )
            edits = errors([line.text or "" for line in known], on_found, [*on_drawn.values()], mains)
            read.append((file.stem, is_single_column(drawn), from_the_top(drawn)[1], edits))
        hits, false = compare(drawn, found)
        zones.update(line.zone for line in drawn)
        marked = [
            (line.zone, on_page.lines[hit].zone) for line, hit in zip(drawn, hits, strict=True) if hit is not None
        ]
        zone_hits.update(zone for zone, _ in marked)
        zone_marked.update(zone for zone, told in marked if zone.startswith((MAIN, UNNAMED)) == (told == "main"))
        totals += [len(drawn), len(marked), len(found), false]
        print(
            f"| {file.stem} | {len(drawn)} | {len(marked)} | {len(found)} | {false} | {seconds[-1]:.1f} |", flush=True
        )
    print("\n| zone | drawn | found | share | of these marked right |\n|---|---|---|---|---|")
    for zone, number in zones.most_common():
        hit = zone_hits[zone]
        print(f"| {zone} | {number} | {hit} | {100 * hit / number:.1f} % | {zone_marked[zone]} |")
    if read:
        heads = "from found lines | from drawn ones | ratio"
        print(
            f"\n| page | columns | drawn the wrong way round | CER of the page, {heads} | of the bag of lines, {heads} "
            f"| of the main text, {heads} |\n|---|---|---|{'---|' * 9}"
        )
        for name, single, swaps, edits in read:
            print(f"| {name} | {'one' if single else 'several'} | {swaps} | {edits.row()} |")
        for title, chosen in (("one column", [True]), ("several", [False]), ("all", [True, False])):
            total = sum((edits for _, single, _, edits in read if single in chosen), Errors())
            print(f"| all, {title} | | | {total.row()} |")
    drawn_all, hits_all, found_all, false_all = totals
    print(
        f"\n{hits_all} of {drawn_all} drawn lines found ({100 * hits_all / drawn_all:.1f} %), "
        f"{false_all} of {found_all} false ({100 * false_all / found_all:.1f} %), "
        f"median {np.median(seconds):.1f} CPU seconds a page"
    )


if __name__ == "__main__":
    main()
