"""Lines found on photographed pages, against the lines that people drew: share found by zone, of false ones, time.

python -m benchmarks.pages FOLDER: page images with their ALTO beside them (`validation/` for choosing, `test/` for
reporting). A drawn line is found if one found baseline runs within a third of the line's height from it over 80 % of
its length; a found line is false if over half of its length no drawn line is that near. Zones are those that the
ALTO files name (SegmOnto).
"""

import argparse
import re
import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from fada import read_lines
from fada.data.formats.xml import parse
from fada.data.images import load_line_image
from fada.data.segment.page import find_lines

SAMPLES = 60
UNNAMED = "no zone"

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


def compare(drawn: list[Drawn], found: list[Curve]) -> tuple[list[bool], int]:
    """Which drawn lines were found, and how many found lines are false."""
    hits = [bool(max((near(d.baseline, f, d.height / 3).mean() for f in found), default=0) >= 0.8) for d in drawn]
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


def main() -> None:
    """Print one row a page."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    folder = parser.parse_args().folder
    totals = np.zeros(4, int)
    seconds = []
    zones: Counter[str] = Counter()
    zone_hits: Counter[str] = Counter()
    print("| page | drawn | found | lines | false | CPU s |\n|---|---|---|---|---|---|")
    for file in sorted(folder.glob("*.xml")):
        drawn = drawn_lines(file)
        page = load_line_image(image_of(file))
        started = time.process_time()
        found = [sampled(np.array(line.baseline)) for line in find_lines(page).lines]
        seconds.append(time.process_time() - started)
        hits, false = compare(drawn, found)
        zones.update(line.zone for line in drawn)
        zone_hits.update(line.zone for line, hit in zip(drawn, hits, strict=True) if hit)
        totals += [len(drawn), sum(hits), len(found), false]
        print(f"| {file.stem} | {len(drawn)} | {sum(hits)} | {len(found)} | {false} | {seconds[-1]:.1f} |", flush=True)
    print("\n| zone | drawn | found | share |\n|---|---|---|---|")
    for zone, number in zones.most_common():
        print(f"| {zone} | {number} | {zone_hits[zone]} | {100 * zone_hits[zone] / number:.1f} % |")
    drawn_all, hits_all, found_all, false_all = totals
    print(
        f"\n{hits_all} of {drawn_all} drawn lines found ({100 * hits_all / drawn_all:.1f} %), "
        f"{false_all} of {found_all} false ({100 * false_all / found_all:.1f} %), "
        f"median {np.median(seconds):.1f} CPU seconds a page"
    )


if __name__ == "__main__":
    main()
