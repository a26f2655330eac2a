"""The lines that `medieval` is trained on, from the three sources of manuscript lines; see `recipes/medieval.yaml`.

    python recipes/medieval.py DATA data/medieval

writes `train.parquet`, `validation.parquet` and `test.parquet`. The manuscripts of `recipes/unseen.yaml` are in none of
them. To keep validation cheap, three fifths of the pages that the sources give to it are trained on (the first two
sittings left 60 % of the validation lines out instead); test is other pages of manuscripts seen.
"""

import hashlib
import sys
from collections import Counter
from dataclasses import replace
from pathlib import Path

import yaml

from fada import read_lines
from fada.data.line import Line, LineSet
from fada.data.write import convert

SIGN_SEMICOLON, SMALL_ET = "\uf1ac", "\ua76b"
"""The sign of -que and -bus: private-use in the sources (MUFI), U+A76B LATIN SMALL LETTER ET in Unicode."""

SPLITS = ("train", "validation", "test")
VALIDATION_SHARE = 0.4


def unseen() -> set[str]:
    """Manuscripts that no model and no text may know."""
    listed = yaml.safe_load((Path(__file__).parent / "unseen.yaml").read_text(encoding="utf-8"))
    return {one["manuscript"] for one in (*listed["arena"], *listed["demo"])}


def split_of(split: str, page: str) -> str:
    """Where the lines of a page go that its source gives to a split."""
    if split != "validation":
        return split
    digest = hashlib.sha256(page.encode()).digest()
    return "validation" if int.from_bytes(digest[:8], "big") / 2**64 < VALIDATION_SHARE else "train"


def main(data: Path, out: Path) -> None:
    """Write the folder and tell the counts."""
    left_out = unseen()
    sources = [
        *(("catmus_fr", split) for split in SPLITS),
        ("catmus_fr_more", "train"),
        *(("latin_script", split) for split in SPLITS),  # not its de_17, which has other rules of transcription
    ]
    lines: list[Line] = []
    for name, split in sources:
        for line in read_lines(data / name / f"{split}.parquet"):
            manuscript = str(line.extra["manuscript"])
            if manuscript in left_out:
                continue
            language = line.extra.get("language") or "fr"
            page = str(line.extra["page"])
            extra = {
                "split": split_of(split, f"{manuscript}/{page}"),
                "manuscript": manuscript,
                "page": page,
                "source": name,
            }
            lines.append(
                replace(
                    line,
                    id=f"{name}/{line.id}",
                    text=str(line.text).replace(SIGN_SEMICOLON, SMALL_ET),
                    domain=f"{language}-{line.extra['century']}",
                    extra=extra,
                )
            )
    pages: dict[tuple[str, str], str] = {}
    for line in lines:
        where = str(line.extra["manuscript"]), str(line.extra["page"])
        if pages.setdefault(where, str(line.split)) != line.split:
            raise SystemExit(f"{where} is in two splits")
    domains = {str(line.domain) for line in lines if line.split == "train"}
    if missing := {str(line.domain) for line in lines} - domains:
        raise SystemExit(f"no training lines of {sorted(missing)}")
    credit = "CC BY 4.0"
    convert(LineSet.of(lines, "medieval", licence=credit), out)
    counts = Counter((str(line.domain), str(line.split)) for line in lines)
    for domain in sorted(domains):
        print(domain, *(f"{split} {counts[domain, split]}" for split in SPLITS))
    print("all", Counter(str(line.split) for line in lines), "distinct manuscripts", len({m for m, _ in pages}))


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
