"""What several systems read on the same lines: loaded from files, evaluated side by side, tested against one of them.

Accepted sources: a run folder; a table (parquet, CSV, TSV, JSONL), either *wide*, one column per system, or *long*, one
row per line and system with a column ``system``; or two sources, references and hypotheses, each a text file (one line
each), a table, or ALTO and PAGE files.
"""

import os
import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from fada.common import tables
from fada.common.files import replacing
from fada.common.tables import read_columns
from fada.data.reading import COLUMN_NAMES
from fada.errors import FadaError
from fada.evaluation.scores import length_buckets

PathLike = str | os.PathLike[str]

REFERENCE_COLUMNS = ("reference", "ground_truth", "gt", "ref", "text", "transcription")
HYPOTHESIS_COLUMNS = ("hypothesis", "prediction", "predicted", "recognized", "ocr", "htr", "hyp")
ID_COLUMNS = ("id", "line_id", "utterance_id")
LENGTH = "length"
"""A group column that every source has: buckets of the reference's length."""

SCORE_COLUMNS = ("log_prob", "distance", "score")
"""What a run folder's predictions tell of a hypothesis beside its text."""


@dataclass(frozen=True)
class Systems:
    """The hypotheses of one or more systems beside the references; `columns` keeps everything else known of a line.

    `ids`, `references`, every list in `systems` and every list in `columns` have one entry per line.
    """

    ids: list[str]
    references: list[str]
    systems: dict[str, list[str]]
    columns: dict[str, list[str | None]] = field(default_factory=dict)
    source: str = ""
    left_out: int = 0
    """Lines of the source that had no reference or were not read by every system."""

    def __len__(self) -> int:
        return len(self.ids)

    @property
    def domains(self) -> list[str | None] | None:
        """The domain of each line, if there is one."""
        return self.columns.get("domain")

    def column(self, name: str) -> Sequence[str | None]:
        """A column to group by; ``length`` is made from the references."""
        if name == LENGTH and LENGTH not in self.columns:
            return length_buckets(self.references)
        if name not in self.columns:
            raise FadaError(f"{self.source}: no column {name!r}, expected one of {', '.join([*self.columns, LENGTH])}.")
        return self.columns[name]

    def only(self, names: Sequence[str]) -> "Systems":
        """Only these systems; all if none is named."""
        unknown = [name for name in names if name not in self.systems]
        if unknown:
            raise FadaError(f"{self.source}: no system {unknown[0]!r}, expected some of {', '.join(self.systems)}.")
        return replace(self, systems={name: self.systems[name] for name in names}) if names else self

    def unicode_note(self) -> str | None:
        """A note if one side is composed (NFC) and the other is not: equal letters then count as errors."""
        composed = {"references": _is_composed(self.references)}
        composed |= {name: _is_composed(texts) for name, texts in self.systems.items()}
        apart = [name for name, value in composed.items() if not value]
        if not apart or len(apart) == len(composed):
            return None
        return (
            f"not composed (NFC), unlike the rest: {', '.join(apart)}. Letters with marks may count as wrong: try nfc."
        )

    def save(self, path: PathLike, scores: Mapping[str, Mapping[str, Sequence[float | None]]] | None = None) -> None:
        """Write the long format of a run folder's ``predictions.parquet``.

        Args:
            scores: ``log_prob``, ``distance`` and ``score`` of each system's lines, for those that have them.
        """
        import pyarrow as pa
        import pyarrow.parquet as pq

        count = len(self.systems)
        table: dict[str, Any] = {
            "id": self.ids * count,
            **{name: values * count for name, values in self.columns.items()},
            "reference": self.references * count,
            "system": [name for name in self.systems for _ in self.ids],
            "hypothesis": [text for texts in self.systems.values() for text in texts],
        }
        for name, known in (scores or {}).items():
            values = [value for system in self.systems for value in known.get(system, [None] * len(self))]
            table[name] = pa.array(values, pa.float64())
        with replacing(path) as temporary:
            pq.write_table(pa.table(table), temporary)


def read_systems(
    source: PathLike,
    hypotheses: PathLike | None = None,
    *,
    reference_column: str | None = None,
    hypothesis_columns: Sequence[str] = (),
    domain_column: str | None = None,
    systems: Sequence[str] = (),
    split: str | None = None,
) -> Systems:
    """Read references and hypotheses; see the module for what a source can be.

    Args:
        source: everything, or the references alone if `hypotheses` is given.
        hypotheses: text file (paired by line number), or a table, ALTO or PAGE (paired by line id).
        reference_column, hypothesis_columns, domain_column: names of columns; the usual ones are recognised. Several
            hypothesis columns are several systems, named after the columns.
        systems: only these systems.
        split: only the rows whose column ``split`` has this value.
    """
    path = Path(source)
    if not path.exists():
        raise FadaError(f"{path}: no such file or folder.")
    if hypotheses is not None:
        found = _read_pair(path, Path(hypotheses), reference_column, hypothesis_columns, domain_column, split)
    else:
        file = path / "predictions.parquet" if path.is_dir() else path
        if not file.is_file():
            raise FadaError(
                f"{path}: no predictions.parquet in this folder, so it is not a run folder. "
                "To compare two folders of ALTO or PAGE files give both: references first, hypotheses second."
            )
        if file.suffix.lower() not in tables.SUFFIXES:
            raise FadaError(
                f"{file}: not a table ({', '.join(sorted(tables.SUFFIXES))}). "
                "For text files and XML give two: references first, hypotheses second."
            )
        found = _from_table(file, reference_column, hypothesis_columns, domain_column, split)
    found = found.only(systems)
    if not found.ids:
        raise FadaError(f"{found.source}: no line with both a reference and a hypothesis, nothing to evaluate.")
    return found


# ----------------------------------------------------------------------------------------------------------- tables


def _from_table(
    file: Path,
    reference_column: str | None,
    hypothesis_columns: Sequence[str],
    domain_column: str | None,
    split: str | None,
) -> Systems:
    columns = _rows_of_split(read_columns(file), split, file)
    reference = _pick(columns, reference_column, REFERENCE_COLUMNS, "reference", file)
    domain = _pick(columns, domain_column, COLUMN_NAMES["domain"], "domain", file, optional=True)
    identity = _pick(columns, None, ID_COLUMNS, "id", file, optional=True)
    chosen = list(hypothesis_columns) or [_pick(columns, None, HYPOTHESIS_COLUMNS, "hypothesis", file) or ""]
    for name in chosen:
        _pick(columns, name, (), "hypothesis", file)
    total = len(columns[reference or ""])
    ids = _texts(columns[identity]) if identity else [str(i + 1) for i in range(total)]
    kept = [name for name in columns if name not in {reference, identity, "system", *chosen, *SCORE_COLUMNS}]
    others = {"domain" if name == domain else name: _labels(columns[name]) for name in kept}
    texts = {name: columns[name] for name in chosen}
    if "system" in columns and len(chosen) > 1:
        raise FadaError(f"{file}: a column 'system' and {len(chosen)} hypothesis columns, expected one with it.")
    if "system" in columns:
        return _from_long(file, ids, columns[reference or ""], columns["system"], texts[chosen[0]], others)
    return _complete(ids, columns[reference or ""], texts, others, str(file))


def _from_long(
    file: Path,
    ids: Sequence[Any],
    references: Sequence[Any],
    names: Sequence[Any],
    hypotheses: Sequence[Any],
    others: Mapping[str, list[str | None]],
) -> Systems:
    """Turn one row per line and system into one row per line."""
    lines: dict[Any, int] = {}
    read: dict[str, dict[Any, Any]] = {}
    for row, (line, name) in enumerate(zip(ids, names, strict=True)):
        first = lines.setdefault(line, row)
        if references[first] != references[row]:
            raise FadaError(f"{file}: the line {line!r} has two different references, expected one for all systems.")
        system = read.setdefault(str(name), {})
        if line in system:
            raise FadaError(f"{file}: the line {line!r} stands twice for system {name!r}; ids must be unique.")
        system[line] = hypotheses[row]
    return _complete(
        [str(line) for line in lines],
        [references[row] for row in lines.values()],
        {name: [system.get(line) for line in lines] for name, system in read.items()},
        {name: [values[row] for row in lines.values()] for name, values in others.items()},
        str(file),
    )


def _complete(
    ids: Sequence[str],
    references: Sequence[Any],
    systems: Mapping[str, Sequence[Any]],
    columns: Mapping[str, Sequence[str | None]],
    source: str,
) -> Systems:
    """Keep the lines that have a reference and a hypothesis of every system."""
    rows = [
        i
        for i in range(len(ids))
        if references[i] is not None and all(texts[i] is not None for texts in systems.values())
    ]
    return Systems(
        [ids[i] for i in rows],
        [str(references[i]) for i in rows],
        {name: [str(texts[i]) for i in rows] for name, texts in systems.items()},
        {name: [values[i] for i in rows] for name, values in columns.items()},
        source,
        len(ids) - len(rows),
    )


def _rows_of_split(columns: dict[str, list[Any]], split: str | None, file: Path) -> dict[str, list[Any]]:
    if split is None:
        return columns
    if "split" not in columns:
        raise FadaError(f"{file}: no column 'split', so the split {split!r} cannot be chosen.")
    rows = [i for i, value in enumerate(columns["split"]) if value == split]
    return {name: [values[i] for i in rows] for name, values in columns.items()}


def _pick(
    columns: Mapping[str, Any],
    wanted: str | None,
    usual: Sequence[str],
    role: str,
    file: Path,
    optional: bool = False,
) -> str | None:
    if wanted is not None:
        if wanted not in columns:
            raise FadaError(f"{file}: no column {wanted!r}, expected one of {', '.join(columns)}.")
        return wanted
    found = next((name for name in usual if name in columns), None)
    if found is None and not optional:
        raise FadaError(
            f"{file}: no {role} column among {', '.join(columns) or 'nothing'}; expected one of {', '.join(usual)}. "
            f"Name it with --{role}-column."
        )
    return found


def _is_composed(texts: Iterable[str]) -> bool:
    return all(unicodedata.is_normalized("NFC", text) for text in texts)


def _labels(values: Iterable[Any]) -> list[str | None]:
    from fada.data.domains import domain_name

    return [domain_name(value) for value in values]


def _texts(values: Iterable[Any]) -> list[str]:
    return [str(value) for value in values]


# ------------------------------------------------------------------------------------------------------- two sources


def _read_pair(
    references: Path,
    hypotheses: Path,
    reference_column: str | None,
    hypothesis_columns: Sequence[str],
    domain_column: str | None,
    split: str | None,
) -> Systems:
    if not hypotheses.exists():
        raise FadaError(f"{hypotheses}: no such file or folder.")
    source = f"{references} and {hypotheses}"
    if len(hypothesis_columns) > 1:
        raise FadaError(
            f"{source}: {len(hypothesis_columns)} hypothesis columns, expected one where the references stand alone. "
            "For several systems give one table with references and hypotheses."
        )
    plain = _is_plain_text(references) and _is_plain_text(hypotheses)
    _refuse_columns([references], {"--reference-column": reference_column})
    _refuse_columns([hypotheses], {"--hypothesis-column": hypothesis_columns})
    _refuse_columns([references, hypotheses], {"--domain-column": domain_column, "--split": plain and split})
    if plain:
        left, right = (_text_lines(path) for path in (references, hypotheses))
        if len(left) != len(right):
            raise FadaError(
                f"{references} has {len(left)} lines, {hypotheses} has {len(right)}: "
                "line n of one must be line n of the other; an empty line stands for nothing recognised."
            )
        return Systems([str(i + 1) for i in range(len(left))], left, {hypotheses.stem: right}, {}, source)
    from fada.data.source import read_lines

    def by_id(path: Path, text_column: str | None) -> dict[str, Any]:
        lines = read_lines(path, text_column=text_column, domain_column=domain_column, split=split)
        return {line.id: line for line in lines.without_media()}

    expected = by_id(references, reference_column)
    found = by_id(hypotheses, hypothesis_columns[0] if hypothesis_columns else None)
    shared = [name for name in expected if name in found]
    if not shared:
        raise FadaError(
            f"{references} and {hypotheses} share no line id (first ids: {next(iter(expected), 'none')!r} and "
            f"{next(iter(found), 'none')!r}). The lines of both must carry the same ids, files the same names."
        )
    extra = {name for line in expected.values() for name, value in line.extra.items() if isinstance(value, str | int)}
    columns: dict[str, list[str | None]] = {
        "domain": [expected[name].domain or found[name].domain for name in shared],
        **{key: _labels(expected[name].extra.get(key) for name in shared) for key in sorted(extra)},
    }
    columns.setdefault("page", [expected[name].source.partition("#")[0] or None for name in shared])
    columns = {name: values for name, values in columns.items() if any(value is not None for value in values)}
    complete = _complete(
        shared,
        [expected[name].text for name in shared],
        {hypotheses.stem or "hypothesis": [found[name].text for name in shared]},
        columns,
        source,
    )
    unpaired = len(expected.keys() ^ found.keys())
    return replace(complete, left_out=complete.left_out + unpaired)


def _refuse_columns(files: Sequence[Path], options: Mapping[str, Any]) -> None:
    """Refuse options that name columns where none of the files is a table."""
    given = [option for option, value in options.items() if value]
    if given and all(file.is_file() and file.suffix.lower() not in tables.SUFFIXES for file in files):
        raise FadaError(
            f"{', '.join(given)}: {files[0]} is not a table and has no columns. Leave it out, or give a table."
        )


def _is_plain_text(path: Path) -> bool:
    return path.is_file() and path.suffix.lower() not in tables.SUFFIXES | {".xml", ".alto", ".page"}


def _text_lines(path: Path) -> list[str]:
    try:
        lines = path.read_text(encoding="utf-8-sig").split("\n")
    except UnicodeDecodeError as error:
        raise FadaError(f"{path}: not UTF-8 text ({error.reason} at byte {error.start}).") from None
    return lines[:-1] if lines[-1] == "" else lines
