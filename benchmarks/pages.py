"""Lines found on photographed pages, against the lines that people drew: share found, share of false ones, time.

python -m benchmarks.pages FOLDER: page images with their ALTO beside them (`validation/` for choosing, `test/` for
reporting). A drawn line is found if one found baseline runs within a third of the line's height from it over 80 % of
its length; a found line is false if over half of its length no drawn line is that near.
"""

import argparse
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from fada import read_lines
from fada.data.images import load_line_image
from fada.data.segment.page import find_lines

SAMPLES = 60
MAIN = ("MainZone", "Main", "")

Curve = NDArray[np.float64]


@dataclass(frozen=True)
class Drawn:
    """A line as a person drew it."""

    baseline: Curve
    height: float


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


def compare(drawn: list[Drawn], found: list[Curve]) -> tuple[int, int]:
    """How many drawn lines were found, and how many found lines are false."""
    hits = sum(max((near(d.baseline, f, d.height / 3).mean() for f in found), default=0) >= 0.8 for d in drawn)
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
    for line in read_lines(file):
        crop = line.image
        if not getattr(crop, "baseline", ()):
            continue
        baseline = sampled(np.array(crop.baseline))  # type: ignore[union-attr]
        height = np.ptp([y for _, y in crop.polygon]) - abs(baseline[-1, 1] - baseline[0, 1])  # type: ignore[union-attr]
        lines.append(Drawn(baseline, max(float(height), 10.0)))
    return lines


def main() -> None:
    """Print one row a page."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    folder = parser.parse_args().folder
    totals = np.zeros(4, int)
    seconds = []
    print("| page | drawn | found | lines | false | CPU s |\n|---|---|---|---|---|---|")
    for file in sorted(folder.glob("*.xml")):
        drawn = drawn_lines(file)
        page = load_line_image(file.with_suffix(".jpg"))
        started = time.process_time()
        found = [sampled(np.array(line.baseline)) for line in find_lines(page).lines]
        seconds.append(time.process_time() - started)
        hits, false = compare(drawn, found)
        totals += [len(drawn), hits, len(found), false]
        print(f"| {file.stem} | {len(drawn)} | {hits} | {len(found)} | {false} | {seconds[-1]:.1f} |", flush=True)
    drawn_all, hits_all, found_all, false_all = totals
    print(
        f"\n{hits_all} of {drawn_all} drawn lines found ({100 * hits_all / drawn_all:.1f} %), "
        f"{false_all} of {found_all} false ({100 * false_all / found_all:.1f} %), "
        f"median {np.median(seconds):.1f} CPU seconds a page"
    )


if __name__ == "__main__":
    main()
