"""Stored log-probabilities of any CTC recogniser: run the model once, then decode, tune and compare at leisure.

The file is an ordinary ``.npz`` without pickled objects. Written here it is packed and names its classes;
``symbols.json`` beside it is a copy for other programs. What is read may leave the classes to ``symbols.json``, and may
also hold one (frames, classes) array per line, named by the line's id, which any program can write with
``numpy.savez(path, **{line_id: log_probs})``.
"""

import json
import math
import os
import zipfile
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from fada.common.files import BROKEN_ARCHIVE, replacing, write_json
from fada.common.kinds import refuse_kind
from fada.common.tables import read_rows, whole
from fada.data.columns import LineColumns
from fada.data.source import read_lines
from fada.errors import FadaError
from fada.text.alphabet import Alphabet

SYMBOLS = "symbols.json"
_PACKED = ("log_probs", "lengths", "ids")
_OPTIONAL = ("domains", "references")
_CLASSES = "classes"
_MUCH, _MOST_PACKED = 2**28, 100
"""Archives that unpack to more bytes than this must not be packed more tightly than this."""


def doubt(scores: np.ndarray) -> np.ndarray:
    """(frames,) the probability of every class but the best, from log-probabilities (frames, classes)."""
    return 1 - np.exp(scores.max(axis=1))


@dataclass(frozen=True)
class Emissions:
    """Log-probabilities of lines, with what is known of them.

    Attributes:
        ids: of the lines, unique.
        log_probs: one (frames, classes) float32 array per line.
        symbols: the text of each class.
        blank: class of the CTC blank.
        domains: of the lines, empty where one has none; or None.
        references: transcriptions of the lines, or None.
    """

    ids: list[str]
    log_probs: list[np.ndarray]
    symbols: tuple[str, ...]
    blank: int = 0
    domains: list[str] | None = None
    references: list[str] | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "symbols", self.alphabet.symbols)
        if len(self.log_probs) != len(self.lines):
            raise FadaError(f"{len(self.ids)} lines but {len(self.log_probs)} log_probs, expected one for each line.")
        for line, scores in zip(self.ids, self.log_probs, strict=True):
            if scores.ndim != 2 or scores.shape[1] != len(self.symbols):
                raise FadaError(
                    f"line {line!r}: emissions of shape {scores.shape}, expected (frames, {len(self.symbols)}) for "
                    f"{len(self.symbols)} symbols. Check symbols.json, and that frames come first."
                )

    def __len__(self) -> int:
        return len(self.ids)

    @property
    def alphabet(self) -> Alphabet:
        """What the classes write."""
        return Alphabet(self.symbols, self.blank)

    @classmethod
    def concatenate(cls, parts: Sequence["Emissions"]) -> "Emissions":
        """Several parts as one; a column that one part lacks is dropped."""
        first = parts[0]
        if any((part.symbols, part.blank) != (first.symbols, first.blank) for part in parts):
            raise FadaError("emissions of different models cannot be joined: their symbols differ.")

        lines = LineColumns.concatenate([part.lines for part in parts])
        return cls._of(lines, [scores for part in parts for scores in part.log_probs], first)

    def ordered(self, ids: Sequence[str]) -> "Emissions":
        """The lines with these ids, in this order."""
        rows = self.lines.rows_of(ids)
        return self._of(self.lines.take(rows), [self.log_probs[row] for row in rows], self)

    @classmethod
    def _of(cls, lines: LineColumns, log_probs: list[np.ndarray], like: "Emissions") -> "Emissions":
        domains = None if lines.domains is None else [domain or "" for domain in lines.domains]
        return cls(lines.ids, log_probs, like.symbols, like.blank, domains, lines.references)

    @property
    def lines(self) -> LineColumns:
        """What is known of the lines; a line without a domain has None."""
        domains = None if self.domains is None else [domain or None for domain in self.domains]
        return LineColumns(self.ids, self.references, domains)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write `path` (.npz), and its classes as ``symbols.json`` beside it.

        Where a ``symbols.json`` with other classes is, it stays, and the file is called ``<name>.symbols.json``.
        """
        path = Path(path)
        classes = self.alphabet.to_dict()
        columns: dict[str, np.ndarray] = {
            "ids": _text_array(self.ids),
            _CLASSES: np.array(json.dumps(classes)),
            "lengths": np.array([len(scores) for scores in self.log_probs], dtype=np.int64),
            "log_probs": np.concatenate(
                [np.zeros((0, len(self.symbols)), np.float32), *self.log_probs], dtype=np.float32, casting="same_kind"
            ),
        }
        for name in _OPTIONAL:
            if getattr(self, name) is not None:
                columns[name] = _text_array(getattr(self, name))
        with replacing(path) as temporary, temporary.open("wb") as stream:
            np.savez_compressed(stream, allow_pickle=False, **columns)
        beside = path.with_name(SYMBOLS)
        if beside.exists() and not self._are_named_in(beside):
            beside = path.with_suffix(f".{SYMBOLS}")
        write_json(beside, classes)

    def _are_named_in(self, path: Path) -> bool:
        """Whether a symbols file holds the classes of these emissions."""
        try:
            return Alphabet.load(path) == self.alphabet
        except FadaError:
            return False

    @classmethod
    def load(
        cls, path: str | os.PathLike[str], symbols: str | os.PathLike[str] | None = None, blank: int | None = None
    ) -> "Emissions":
        """Read emissions.

        Args:
            path: the .npz file.
            symbols: JSON file: a list with the text of each class, or ``{"symbols": [...], "blank": 0}``;
                by default those stored in `path`, else ``symbols.json`` beside it.
            blank: class of the blank, whatever they say; 0 where nothing does.
        """
        path = Path(path)
        columns = _read_npz(path)
        packed = all(name in columns for name in _PACKED) and columns["lengths"].ndim == 1
        stored = Alphabet.parse(str(columns[_CLASSES]), path, blank) if packed and _CLASSES in columns else None
        if stored and symbols and Alphabet.load(symbols, blank).symbols != stored.symbols:
            raise FadaError(f"{symbols}: not the classes that {path} was written with. Leave --symbols out.")
        classes = stored or Alphabet.load(symbols or path.with_name(SYMBOLS), blank)
        if packed:
            ids, scores = _unpack(columns, path)
            optional = {name: columns[name].astype(str).tolist() if name in columns else None for name in _OPTIONAL}
        else:
            ids, scores, optional = list(columns), list(columns.values()), {}
        for line, array in zip(ids, scores, strict=True):
            if array.dtype.kind not in "fiu":
                raise FadaError(f"{path}, line {line!r}: values of type {array.dtype}, expected numbers.")
        try:
            floats = [np.ascontiguousarray(array, dtype=np.float32) for array in scores]
            return cls(ids, floats, classes.symbols, classes.blank, **optional)
        except FadaError as error:
            raise FadaError(f"{path}: {error}") from None


def domains_of_lines(
    emissions: Emissions, domain: str | None = None, table: str | os.PathLike[str] | None = None
) -> list[str]:
    """The domain of each line: the one given for all, or that of a table, or the emissions' own.

    Args:
        table: TSV file of line id and domain, with or without a header ``id<TAB>domain``.
    """
    if domain is not None and table is not None:
        raise FadaError("one domain for all lines and a table of domains: give one of the two.")
    if domain is not None:
        return [domain] * len(emissions)
    if table is None:
        if emissions.domains is None:
            raise FadaError("the emissions do not say which domain a line is of: give a domain for all, or a table.")
        return emissions.domains
    rows = whole(table, read_rows(table, headerless=lambda cells: ("id", "domain", *map(str, range(2, len(cells))))))
    known = {row["id"]: row["domain"].strip() for _, row in rows if "domain" in row}
    missing = [line for line in emissions.ids if line not in known]
    if missing:
        raise FadaError(f"{table}: no domain for the line {missing[0]!r} ({len(missing)} of {len(emissions)} lines).")
    return [known[line] for line in emissions.ids]


def with_references(emissions: Emissions, lines: str | os.PathLike[str]) -> Emissions:
    """The emissions with the transcriptions and domains of the lines (any source) that have the same ids."""
    known = {line.id: line for line in read_lines(lines).texts()}
    missing = [name for name in emissions.ids if name not in known]
    if missing:
        raise FadaError(
            f"{lines}: no transcription for {len(missing)} of {len(emissions.ids)} lines of the emissions, "
            f"the first is {missing[0]!r}. The ids of both must agree."
        )
    references = [known[name].text or "" for name in emissions.ids]
    domains = [known[name].domain or "" for name in emissions.ids]
    return replace(emissions, references=references, domains=domains if any(domains) else emissions.domains)


def _text_array(values: Iterable[str]) -> np.ndarray:
    texts = list(values)
    if any(text.endswith("\0") for text in texts):
        raise FadaError("an id, domain or text that ends in a NUL character cannot be stored.")
    return np.array(texts, dtype=np.str_) if texts else np.zeros(0, dtype="<U1")


_EXPECTED = "emissions as `fada emit` writes them"


def _read_npz(path: Path) -> dict[str, np.ndarray]:
    try:
        _check_sizes(path)
        with np.load(path, allow_pickle=False) as archive:
            if isinstance(archive, np.ndarray):
                raise FadaError(f"{path}: a single array, expected an .npz archive.")
            return {name: archive[name] for name in archive.files}
    except FileNotFoundError:
        raise FadaError(f"{path}: no such file. Make one with: fada emit") from None
    except FadaError:
        raise
    except (ValueError, OSError, KeyError, *BROKEN_ARCHIVE) as error:
        if path.is_file() and not zipfile.is_zipfile(path):
            with path.open("rb") as stream:
                if (head := stream.read(16))[:2] != b"PK":
                    refuse_kind(head, path, _EXPECTED)
                    raise FadaError(f"{path}: not an .npz file, expected {_EXPECTED}.") from None
        if "pickle" in str(error):
            raise FadaError(f"{path}: holds pickled objects, which are never loaded. Save plain arrays.") from None
        raise FadaError(f"{path}: not a readable .npz file ({getattr(error, 'strerror', None) or error}).") from None


def _check_sizes(path: Path) -> None:
    """Refuse, before anything is unpacked, an archive that says more than it holds or unpacks to what no memory has."""
    if not zipfile.is_zipfile(path):
        return
    with zipfile.ZipFile(path) as archive:
        unpacked = sum(item.file_size for item in archive.infolist())
        packed = max(path.stat().st_size, 1)
        if unpacked > _MUCH and unpacked > _MOST_PACKED * packed:
            raise FadaError(
                f"{path}: {packed / 1e6:.1f} MB that unpack to {unpacked / 1e9:.1f} GB: nothing that a recogniser "
                "writes can be packed like that. Emit it again."
            )
        for item in archive.infolist():
            with archive.open(item) as stream:
                version = np.lib.format.read_magic(stream)
                headers = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}
                if version not in headers:
                    raise ValueError(f"{item.filename} is an array of format {version}")
                shape, _, dtype = headers[version](stream)
                told = stream.tell() + math.prod(shape) * dtype.itemsize
            if told != item.file_size and not dtype.hasobject:
                raise ValueError(f"{item.filename} has {item.file_size} bytes, its header tells of {told}")


def _unpack(columns: dict[str, np.ndarray], path: Path) -> tuple[list[str], list[np.ndarray]]:
    lengths, scores = columns["lengths"], columns["log_probs"]
    whole = lengths.dtype.kind in "iu" and bool(np.all(lengths >= 0))
    total = sum(lengths.tolist())  # of Python's numbers, which do not overflow
    if not whole or scores.ndim != 2 or total != len(scores):
        raise FadaError(
            f"{path}: the lengths of the lines sum to {total}, but there are {len(scores)} frames: "
            "the file is damaged. Emit it again."
        )
    ends = np.cumsum(lengths)[:-1]
    return columns["ids"].astype(str).tolist(), np.split(scores, ends) if len(lengths) else []
