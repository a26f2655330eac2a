"""Lines found on photographed pages, against the lines that people drew: share found by zone, of false ones, time, CER.

python -m benchmarks.pages FOLDER: page images with their ALTO beside them (`validation/` for choosing, `test/` for
reporting). A drawn line is found if one found baseline runs within a third of the line's height from it over 80 % of
its length; a found line is false if over half of its length no drawn line is that near. Zones are those that the
ALTO files name (SegmOnto); a line is marked right if those of main zones are found as text, others (margins, numbers,
titles, initials) as something else.

With --read MODEL each page is read twice, by the lines that people drew and by those that were found, as `fada
transcribe` reads them. CER of the page: of all its lines in their order, with spaces between. CER of the bag of lines:
of each drawn line and the found one that it is paired with, so that the sum of edits is smallest; a line without a
partner counts whole. Texts are compared in NFC.
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
    """For each drawn line the place of the one that it was found as, and how many found lines are false."""
    hits: list[int | None] = []
    for d in drawn:
        shares = [near(d.baseline, f, d.height / 3).mean() for f in found]
        hits.append(int(np.argmax(shares)) if max(shares, default=0) >= 0.8 else None)
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
        zone = zones.get(crop.region or "", UNNAMED)  # type: ignore[union-attr]
        lines.append(Drawn(baseline, max(float(height), 10.0), zone))
    return lines


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
    """Edits on one page or on several: `page` and `bag` as told above, of `characters`, for found and drawn lines."""

    characters: int = 0
    found_page: int = 0
    drawn_page: int = 0
    found_bag: int = 0
    drawn_bag: int = 0

    def __add__(self, other: "Errors") -> "Errors":
        return Errors(*(a + b for a, b in zip(vars(self).values(), vars(other).values(), strict=True)))

    def row(self) -> str:
        """Cells of a table: CER of the page and of its bag of lines, each from found and drawn lines, and ratios."""
        rates = [100 * edits / max(self.characters, 1) for edits in list(vars(self).values())[1:]]
        pairs = zip(rates[::2], rates[1::2], strict=True)
        return " | ".join(f"{found:.1f} | {drawn:.1f} | {found / max(drawn, 1e-9):.2f}" for found, drawn in pairs)


def bag_edits(references: Sequence[str], texts: Sequence[str]) -> int:
    """The fewest edits from the lines of one bag to those of the other; a line without a partner counts whole."""
    size = max(len(references), len(texts))
    sides = [[*side, *[""] * (size - len(side))] for side in (references, texts)]
    costs = process.cdist(*sides, scorer=Levenshtein.distance, dtype=np.int32)
    return int(costs[linear_sum_assignment(costs)].sum())


def errors(references: Sequence[str], found: Sequence[str], drawn: Sequence[str]) -> Errors:
    """Edits of one page: its lines as transcribed, as read from the found ones, as read from the drawn ones."""
    references, found, drawn = (
        [unicodedata.normalize("NFC", text) for text in each if text] for each in (references, found, drawn)
    )
    whole = " ".join(references)
    pages = [Levenshtein.distance(whole, " ".join(each)) for each in (found, drawn)]
    return Errors(len(whole), *pages, *(bag_edits(references, each) for each in (found, drawn)))


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
    read: list[tuple[str, bool, Errors]] = []
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
            texts = [line.text or "" for line in known]
            edits = errors(texts, recognizer.transcribe(crops), recognizer.transcribe(known))
            read.append((file.stem, is_single_column(drawn), edits))
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
        print(f"\n| page | columns | CER of the page, {heads} | of the bag of lines, {heads} |\n|---|---|{'---|' * 6}")
        for name, single, edits in read:
            print(f"| {name} | {'one' if single else 'several'} | {edits.row()} |")
        for title, chosen in (("one column", [True]), ("several", [False]), ("all", [True, False])):
            total = sum((edits for _, single, edits in read if single in chosen), Errors())
            print(f"| all, {title} | | {total.row()} |")
    drawn_all, hits_all, found_all, false_all = totals
    print(
        f"\n{hits_all} of {drawn_all} drawn lines found ({100 * hits_all / drawn_all:.1f} %), "
        f"{false_all} of {found_all} false ({100 * false_all / found_all:.1f} %), "
        f"median {np.median(seconds):.1f} CPU seconds a page"
    )


if __name__ == "__main__":
    main()
