"""Which manuscripts stay unseen: prints `recipes/unseen.yaml` from the line data. Run once; the result is for good.

    python recipes/unseen.py DATA > recipes/unseen.yaml

The rule is the comment at the head of that file; :func:`choose` is the rule as code, for the test that checks the file.
"""

import hashlib
import re
import sys
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import pyarrow.parquet as pq

QUOTA = {"la": 3, "it": 3, "es": 3, "ca": 2, "oc": 1}
LEAST, MOST = 60, 150
LEAST_OF_DEMO, DEMO_LANGUAGE = 90, "la"

RULE = """\
# Manuscripts kept out of training and validation of `medieval`, of every built-in text and of every weight, for good.
# `arena` is what `fada reproduce unseen` reports on; `demo` is the sample inside the package.
#
# The rule (recipes/unseen.py, which printed this file):
# 1. Lines of a manuscript = those of the splits train, validation and test of latin_script together. de_17 is no part.
# 2. Eligible: 60 to 150 lines (longer ones are worth too much to training).
# 3. Order within a domain (language-century): first those that no file of texts/ names as a source, then the others;
#    among these by the SHA-256 of the manuscript's name (UTF-8, hexadecimal), ascending.
# 4. For each language, go round its centuries, earliest first, and take the next one of the order in each, again and
#    again, until there are 3 Latin, 3 Italian, 3 Castilian, 2 Catalan and 1 Occitan ones. One that would leave its
#    domain without any other manuscript in training is passed over.
# 5. The demo: go on in the same way in Latin, and take the first with at least 90 lines.
# A file of texts/ that names one of these as a source may not be used for anything built-in (`texts` below: the files).
"""


@dataclass(frozen=True)
class Manuscript:
    """A manuscript of the line data."""

    name: str
    language: str
    century: int
    lines: int
    pages: int
    texts: tuple[str, ...]
    page_files: tuple[str, ...] = ()

    @property
    def domain(self) -> str:
        """Language and century."""
        return f"{self.language}-{self.century}"


def manuscripts(data: Path) -> list[Manuscript]:
    """All manuscripts of `latin_script`, without `de_17`."""
    lines: dict[tuple[str, str, int], list[str]] = defaultdict(list)
    for split in ("train", "validation", "test"):
        table = pq.read_table(
            data / "latin_script" / f"{split}.parquet", columns=["manuscript", "language", "century", "page"]
        )
        for row in table.to_pylist():
            lines[row["manuscript"], row["language"], int(row["century"])].append(row["page"])
    named = text_sources(data / "texts" / "README.md")
    photographed = photographed_pages(data / "pages" / "README.md")
    return [
        Manuscript(
            name,
            language,
            century,
            len(pages),
            len(set(pages)),
            tuple(file for file, sources in named.items() if name in sources),
            tuple(photographed.get(name, ())),
        )
        for (name, language, century), pages in sorted(lines.items())
    ]


def text_sources(readme: Path) -> dict[str, set[str]]:
    """The manuscripts that each text file names, from the table in the README of `texts`."""
    rows = re.findall(r"^\| `([\w-]+\.txt)` \|.*\| ([^|]+) \|$", readme.read_text(encoding="utf-8"), re.MULTILINE)
    return {file: set(re.findall("`([^`]+)`", sources)) for file, sources in rows if ":" in sources}


def photographed_pages(readme: Path) -> dict[str, list[str]]:
    """`split/page` of each manuscript that has whole pages in `pages`."""
    found: dict[str, list[str]] = defaultdict(list)
    for line in readme.read_text(encoding="utf-8").splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if cells[0] in ("validation", "test"):
            found[cells[2]].append(f"{cells[0]}/{cells[3]}")
    return found


def choose(known: Iterable[Manuscript]) -> tuple[list[Manuscript], Manuscript]:
    """The arena and the manuscript of the demo."""
    known = list(known)
    arena: list[Manuscript] = []
    for language, count in QUOTA.items():
        arena += _round_robin(known, language, arena)[:count]
    demo = next(one for one in _round_robin(known, DEMO_LANGUAGE, arena) if one.lines >= LEAST_OF_DEMO)
    return arena, demo


def _round_robin(known: Sequence[Manuscript], language: str, taken: Sequence[Manuscript]) -> list[Manuscript]:
    """The eligible manuscripts of a language in the order in which they are taken, after those taken already."""
    of_domain: Mapping[int, list[Manuscript]] = defaultdict(list)
    for one in known:
        if one.language == language and one not in taken:
            of_domain[one.century].append(one)
    queues = {
        century: sorted((one for one in members if LEAST <= one.lines <= MOST), key=_order)[: len(members) - 1]
        for century, members in sorted(of_domain.items())
    }
    return [queue[i] for i in range(len(known)) for queue in queues.values() if i < len(queue)]


def _order(one: Manuscript) -> tuple[bool, str]:
    return bool(one.texts), hashlib.sha256(one.name.encode()).hexdigest()


def main(data: Path) -> None:
    """Print the file."""
    known = manuscripts(data)
    arena, demo = choose(known)
    print(RULE, end="")
    total = sum(one.lines for one in known)
    kept = sum(one.lines for one in arena)
    print(f"# {len(arena)} manuscripts with {kept} of {total} lines, and the demo with {demo.lines}.")
    print("arena:")
    for one in arena:
        _print(one)
    print("demo:")
    _print(demo)


def _print(one: Manuscript) -> None:
    print(f"  - manuscript: {one.name}")
    print(f"    domain: {one.domain}")
    print(f"    language: {one.language}\n    century: {one.century}\n    lines: {one.lines}\n    pages: {one.pages}")
    print(f"    texts: [{', '.join(one.texts)}]")
    print(f"    photographed: [{', '.join(one.page_files)}]")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
