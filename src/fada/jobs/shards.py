"""A job divided into shards, one for each machine of an array, and what each of them leaves for `fada merge`."""

import hashlib
import json
import re
from array import array
from collections.abc import Container, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

from pydantic import BaseModel, ValidationError

from fada.common.files import write_text
from fada.data.crop import PageCrop
from fada.data.line import Line, LineSet
from fada.errors import FadaError

MOST_SHARDS = 100_000


@dataclass(frozen=True)
class Shard:
    """One part of a job: the lines whose id falls to it, the same ones on every machine.

    Attributes:
        number: from 1 to `of`.
        of: the number of shards.
    """

    number: int
    of: int

    @classmethod
    def parse(cls, text: str) -> "Shard":
        """`3/64`: the third of 64 shards."""
        found = re.fullmatch(r"(\d{1,9})/(\d{1,9})", text.strip())
        shard = cls(int(found[1]), int(found[2])) if found else cls(0, 0)
        if not 1 <= shard.number <= shard.of <= MOST_SHARDS:
            raise FadaError(
                f"--shard {text}: expected NUMBER/SHARDS such as 3/64, from 1/64 to 64/64 "
                f"(at most {MOST_SHARDS} shards)."
            )
        return shard

    def __str__(self) -> str:
        return f"{self.number}/{self.of}"

    def owns(self, key: str) -> bool:
        """Whether what is called so falls to this shard."""
        digest = hashlib.blake2b(key.encode("utf-8", "surrogatepass"), digest_size=8).digest()
        return int.from_bytes(digest, "big") % self.of == self.number - 1

    def part(self, out: Path) -> Path:
        """`out.003-of-064.tsv` for `out.tsv`, `out-003-of-064` for a folder `out`."""
        width = max(3, len(str(self.of)))
        return out.with_name(
            f"{out.stem}{'.' if out.suffix else '-'}{self.number:0{width}}-of-{self.of:0{width}}{out.suffix}"
        )


@dataclass
class Share:
    """The lines of a shard, and where they stand in the source.

    A photographed page has one place, which all its lines share: nobody but its own shard knows how many they are.

    Attributes:
        unreadable: ids of the lines that could not be read, before the last pass over the lines.
        places: in the source, of the lines of the shard, as far as it has been read.
        left_out: places of those that could not be read, or hold no text.
        total: places in the source, as far as it has been read.
    """

    shard: Shard
    unreadable: Container[str] = ()
    places: "array[int]" = field(default_factory=lambda: array("q"))
    left_out: "array[int]" = field(default_factory=lambda: array("q"))
    total: int = 0
    _photograph: Path | None = None
    _pages: dict[str, int] = field(default_factory=dict)

    def of(self, lines: LineSet) -> LineSet:
        """The lines that fall to the shard; lines of one page stay together, so that a page is written whole."""

        def keep(position: int, line: Line) -> bool:
            crop = line.image if isinstance(line.image, PageCrop) else None
            photograph = crop.page if crop is not None and crop.xml is None else None
            if position == 0:
                self.total, self._photograph = 0, None
                del self.places[:], self.left_out[:]
            self.total += photograph is None or photograph != self._photograph
            self._photograph = photograph
            page = line.id.rpartition("#")[0] if crop is not None else ""
            if not self.shard.owns(page or line.id):
                return False
            empty = crop is not None and not crop.polygon  # a page of its own on which there is no text
            (self.left_out if empty or line.id in self.unreadable else self.places).append(self.total - 1)
            return not empty

        return lines.select(keep)

    def takes(self, page: str) -> bool:
        """Whether a page falls to the shard; pages of one name are one."""
        self._pages.setdefault(page, len(self._pages))
        self.total = len(self._pages)
        return self.shard.owns(page)

    def note_pages(self, out: Path, job: Mapping[str, Any]) -> Path:
        """:meth:`note` of pages that were taken."""
        for page, place in self._pages.items():
            if self.shard.owns(page):
                (self.left_out if page in self.unreadable else self.places).append(place)
        return self.note(out, job, "pages")

    def note(self, out: Path, job: Mapping[str, Any], unit: str = "lines") -> Path:
        """Write down, beside the finished part `out`, what it holds.

        Args:
            job: what decides the result: parts of different jobs are not joined.
            unit: what there is one place for, if not for a line.
        """
        note = PartNote(
            shard=self.shard.number,
            of=self.shard.of,
            job=digest(job),
            total=self.total,
            positions=self.places.tolist(),
            count=len(self.places),
            left_out=self.left_out.tolist(),
            unit=unit,
        )
        return note.write(out)


def anywhere(record: Mapping[str, Any]) -> dict[str, Any]:
    """What decides the result on any machine: not which shard it is, where the source lies, when files were changed."""
    return {**record, "model_files": [file[:2] for file in record["model_files"]], "source": None, "shard": None}


def digest(job: Mapping[str, Any]) -> str:
    """The same for the same job, on every machine."""
    return hashlib.blake2b(json.dumps(job, sort_keys=True, default=str).encode(), digest_size=16).hexdigest()


class PartNote(BaseModel, extra="forbid", frozen=True):
    """What a finished part holds.

    Attributes:
        shard, of: which part it is.
        job: digest of what decided the result.
        total: places in the whole source: lines, and photographed pages.
        count: lines in the part.
        positions: of these lines in the source, one for all lines of a photographed page; None where their order does
            not matter.
        left_out: positions of the lines of the part that could not be read.
        unit: what is counted.
        empty: of a target file: domains with texts in the part, but without a character that is counted.
    """

    shard: int
    of: int
    job: str
    total: int
    count: int
    positions: list[int] | None
    left_out: list[int]
    unit: str = "lines"
    empty: list[str] = []

    ENDING: ClassVar[str] = ".shard.json"

    @staticmethod
    def path(part: Path) -> Path:
        return part.with_name(f"{part.name}{PartNote.ENDING}")

    def write(self, part: Path) -> Path:
        """Write it beside the part."""
        write_text(self.path(part), self.model_dump_json() + "\n")
        return self.path(part)

    @classmethod
    def read(cls, part: Path) -> "PartNote":
        path = cls.path(part)
        try:
            return cls.model_validate_json(path.read_text(encoding="utf-8"))
        except FileNotFoundError:
            raise FadaError(
                f"{part}: no {path.name} beside it, so it is no finished part of a job with --shard. Run its shard "
                "(again, if it was interrupted), and keep the two files together."
            ) from None
        except (OSError, ValidationError, UnicodeDecodeError) as error:
            first = str(error).splitlines()[0]
            raise FadaError(f"{path}: damaged ({first}). Run the shard of this part again.") from None
