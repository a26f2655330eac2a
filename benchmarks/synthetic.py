"""Lines per second of the synthetic set, of loading images, of their variation and of batching; one core, CPU time.

Run with: python -m benchmarks.synthetic
"""

import json
import platform
import time
from collections.abc import Callable, Sequence

import numpy as np
import typer

from fada.data.augment import Augment
from fada.data.images import load_line_image, normalize_height, pad_batch
from fada.data.synthetic.set import make_synthetic


def lines_per_second(lines: int, action: Callable[[], object]) -> float:
    """Lines per second of CPU time."""
    start = time.process_time()
    action()
    return round(lines / (time.process_time() - start), 1)


def measure(lines: int, height: int, language: str) -> dict[str, object]:
    """One row: every stage on the same lines, compiled code warmed up first."""
    drawn: list[bytes] = []

    def draw() -> None:
        drawn.extend(line.image for line in made.lines)  # type: ignore[misc]

    def load() -> list[np.ndarray]:
        return [normalize_height(load_line_image(image), height) for image in drawn]

    def vary(images: Sequence[np.ndarray]) -> None:
        augment = Augment(1.0, seed=0)
        for index, image in enumerate(images):
            augment(image, epoch=0, index=index)

    next(iter(make_synthetic(16, seed=1, height=height, language=language).lines))
    start = time.process_time()
    made = make_synthetic(lines, height=height, language=language)
    text_seconds = time.process_time() - start
    drawing = lines_per_second(lines, draw)
    images = load()
    vary(images[:1])
    return {
        "language": language,
        "height": height,
        "lines": lines,
        "characters per line": round(sum(len(line.text or "") for line in made.lines) / lines, 1),
        "text, seconds": round(text_seconds, 2),
        "drawing, lines/s": drawing,
        "loading, lines/s": lines_per_second(lines, load),
        "variation, lines/s": lines_per_second(lines, lambda: vary(images)),
        "batches of 16, lines/s": lines_per_second(
            lines, lambda: [pad_batch(images[at : at + 16]) for at in range(0, lines, 16)]
        ),
    }


def main(lines: int = 400) -> None:
    """Print the measurements as JSON."""
    rows = [measure(lines, height, language) for height, language in ((64, "el"), (40, "el"), (64, "ar"))]
    print(json.dumps({"machine": platform.processor() or platform.machine(), "rows": rows}, indent=2))


if __name__ == "__main__":
    typer.run(main)
