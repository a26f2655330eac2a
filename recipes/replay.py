"""Lines that `medieval` keeps to remember by: `fada adapt` shows them again while it learns a manuscript.

    python recipes/replay.py data/medieval/train.parquet src/fada/pretrained/medieval/replay.parquet

From the training lines, in the order of the SHA-256 of their ids: first one for each character that no earlier one
holds, the rarest character first and the shortest line that has it; then one of each domain (language and century) in
turn. Images are grey, at most twice as high as the network's input, WebP.
"""

import hashlib
import io
import sys
from collections import Counter, defaultdict
from dataclasses import replace
from pathlib import Path

from PIL import Image

from fada import read_lines
from fada.data.line import Line, LineSet
from fada.data.write import convert

LINES = 100
HEIGHT, QUALITY = 80, 40


def chosen(lines: list[Line]) -> list[Line]:
    """The lines to keep."""
    order = sorted(lines, key=lambda line: hashlib.sha256(line.id.encode()).hexdigest())
    counts = Counter(character for line in order for character in set(str(line.text)))
    kept: dict[str, Line] = {}
    for character in sorted(counts, key=lambda character: (counts[character], character)):
        if not any(character in str(line.text) for line in kept.values()):
            line = min((line for line in order if character in str(line.text)), key=lambda line: len(str(line.text)))
            kept[line.id] = line
    of_domain: dict[str, list[Line]] = defaultdict(list)
    for line in order:
        if line.id not in kept and 15 <= len(str(line.text)) <= 60:
            of_domain[str(line.domain)].append(line)
    for number in range(LINES):
        for domain in sorted(of_domain):
            if len(kept) < LINES and number < len(of_domain[domain]):
                kept[of_domain[domain][number].id] = of_domain[domain][number]
    return list(kept.values())


def small(line: Line) -> Line:
    """The line with a small image."""
    image = line.load_image().convert("L")
    if image.height > HEIGHT:
        image = image.resize((round(image.width * HEIGHT / image.height), HEIGHT), Image.Resampling.LANCZOS)
    buffer = io.BytesIO()
    image.save(buffer, "WEBP", quality=QUALITY, method=6)
    return replace(line, image=buffer.getvalue(), extra={"manuscript": line.extra["manuscript"]})


def main(source: Path, out: Path) -> None:
    """Write the file and tell its size."""
    found = chosen(list(read_lines(source)))
    licence = "CC BY 4.0; credits in README.md"
    convert(LineSet.of([small(line) for line in found], "replay", licence), out)
    characters = {character for line in found for character in str(line.text)}
    print(f"{out}: {len(found)} lines, {len(characters)} characters, {out.stat().st_size} bytes")


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
