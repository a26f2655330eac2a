"""The lines of the demo: one manuscript that no built-in model and no built-in text knows, as `fada demo` reads it.

    python recipes/sample.py DATA src/fada/experiments/sample/lines.parquet

Which manuscript: `demo` in `recipes/unseen.yaml`. Whole pages until there are 24 lines are for correcting (split
`train`), the others are the test (split `test`); see :func:`fada.experiments.division.divided`. Images as they are.
"""

import sys
from dataclasses import replace
from pathlib import Path

import yaml

from fada import read_lines
from fada.data.line import LineSet
from fada.data.write import convert
from fada.experiments.demo import MOST
from fada.experiments.division import divided


def main(data: Path, out: Path) -> None:
    """Write the file and tell its size."""
    listed = yaml.safe_load((Path(__file__).parent / "unseen.yaml").read_text(encoding="utf-8"))
    (demo,) = listed["demo"]
    lines = [
        line
        for split in ("train", "validation", "test")
        for line in read_lines(data / "latin_script" / f"{split}.parquet")
        if line.extra["manuscript"] == demo["manuscript"]
    ]
    parts = dict(zip(("train", "test"), divided(lines, MOST), strict=True))
    kept = [
        replace(line, domain=None, extra={"split": split, "page": line.extra["page"]})
        for split, part in parts.items()
        for line in part
    ]
    convert(LineSet.of(kept, demo["manuscript"], "CC BY 4.0", (out.parent / "CREDITS.md").read_text("utf-8")), out)
    told = ", ".join(f"{split} {len(part)}" for split, part in parts.items())
    print(f"{out}: {told}, {out.stat().st_size} bytes")


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
