"""References and hypotheses from the files that people have.

A run folder; a table (parquet, CSV, TSV, JSONL), either *wide*, one column per system, or *long*, one row per line and
system with a column ``system``; or the references and the hypotheses of one system or several, each a text file, a
table, or ALTO and PAGE files.

Lines of two sources are paired by their ids. Where the ids share nothing they are paired by their order, or, if that
makes no sense, by their text; and where the sources are divided into lines differently, whole pages are compared. What
was done is told in :attr:`Systems.note`.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from rapidfuzz import process
from rapidfuzz.distance import Levenshtein

from fada.common import tables
from fada.common.kinds import refuse_kind
from fada.common.tables import read_columns
from fada.data.columns import LineColumns
from fada.data.domains import domain_name
from fada.data.line import Line
from fada.data.read import refuse_markup
from fada.data.reading import COLUMN_NAMES
from fada.data.source import read_lines
from fada.data.write import RECORD
from fada.errors import FadaError, first_few, needing
from fada.evaluation.predictions import PREDICTIONS, SCORE_COLUMNS, PathLike, Systems, page_of, stored_settings

REFERENCE_COLUMNS = ("reference", "ground_truth", "gt", "ref", "text", "transcription")
HYPOTHESIS_COLUMNS = ("hypothesis", "prediction", "predicted", "recognized", "ocr", "htr", "hyp")
ID_COLUMNS = ("id", "line_id", "utterance_id")
_ALIKE = 0.5
"""Lines that differ in more than this share of their characters are not the same line."""
_LONGEST_PAGE = 50_000  # characters that are compared to find out how a page is divided into lines
_PAIRS = 4_000_000  # distances computed at most to pair lines by their text


def read_systems(
    source: PathLike,
    *hypotheses: PathLike,
    reference_column: str | None = None,
    hypothesis_columns: Sequence[str] = (),
    domain_column: str | None = None,
    systems: Sequence[str] = (),
    split: str | None = None,
    pages: bool = False,
    reading: Mapping[str, Any] | None = None,
) -> Systems:
    """Read references and hypotheses; see the module for what a source can be.

    Args:
        source: everything, or the references alone if `hypotheses` are given.
        hypotheses: of one system each, named after its file.
        reference_column, hypothesis_columns, domain_column: names of columns; the usual ones are recognised. Several
            hypothesis columns are several systems, named after the columns.
        systems: only these systems.
        split: only the rows whose column ``split`` has this value.
        pages: compare whole pages, also where the lines could be paired.
        reading: how references and hypotheses are read that stand apart: `domain`, `domain_from`, `encoding`,
            `id_column`, `format` of :func:`fada.read_lines`.
    """
    columns = _Columns(reference_column, tuple(hypothesis_columns), domain_column, split, dict(reading or {}))
    if reading and not hypotheses:
        raise FadaError(
            f"{', '.join(reading)}: {source} is read as it stands, references and hypotheses together. Leave it out, "
            "or give references and hypotheses apart."
        )
    path = Path(source)
    for each in (path, *map(Path, hypotheses)):
        if not each.exists():
            raise FadaError(f"{each}: no such file or folder.")
    if hypotheses:
        found = _from_several(path, [Path(each) for each in hypotheses], columns, pages)
    else:
        file = path / PREDICTIONS if path.is_dir() else path
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
        found = _from_table(file, columns)
    found = found.only(systems)
    if not found.ids:
        nothing = f"{found.source}: no line with both a reference and a hypothesis, nothing to evaluate."
        raise FadaError(f"{nothing} {found.note}".rstrip())
    return found


@dataclass(frozen=True)
class _Columns:
    """The columns that were named, and the split."""

    reference: str | None
    hypothesis: tuple[str, ...]
    domain: str | None
    split: str | None
    reading: Mapping[str, Any] = field(default_factory=dict)


# ----------------------------------------------------------------------------------------------------------- tables


def _from_table(file: Path, named: _Columns) -> Systems:
    columns = _rows_of_split(read_columns(file), named.split, file)
    reference = _pick(columns, named.reference, REFERENCE_COLUMNS, "reference", file)
    domain = _pick(columns, named.domain, COLUMN_NAMES["domain"], "domain", file, optional=True)
    identity = _pick(columns, None, ID_COLUMNS, "id", file, optional=True)
    chosen = list(named.hypothesis) or [_pick(columns, None, HYPOTHESIS_COLUMNS, "hypothesis", file)]
    for name in chosen:
        _pick(columns, name, (), "hypothesis", file)
    total = len(columns[reference])
    ids = [str(value) for value in columns[identity]] if identity else [str(i + 1) for i in range(total)]
    kept = [name for name in columns if name not in {reference, identity, "system", *chosen, *SCORE_COLUMNS}]
    others = {"domain" if name == domain else name: [*map(domain_name, columns[name])] for name in kept}
    if "system" not in columns:
        texts = {name: columns[name] for name in chosen}
        return _complete(ids, columns[reference], texts, others, str(file))
    if len(chosen) > 1:
        raise FadaError(f"{file}: a column 'system' and {len(chosen)} hypothesis columns, expected one with it.")
    return _from_long(file, ids, reference, chosen[0], columns, others)


def _from_long(
    file: Path,
    ids: Sequence[str],
    reference: str,
    hypothesis: str,
    columns: Mapping[str, list[Any]],
    others: Mapping[str, list[str | None]],
) -> Systems:
    """Turn one row per line and system into one row per line."""
    references, hypotheses = columns[reference], columns[hypothesis]
    lines: dict[str, int] = {}
    rows: dict[str, dict[str, int]] = {}
    for row, (line, name) in enumerate(zip(ids, columns["system"], strict=True)):
        first = lines.setdefault(line, row)
        if references[first] != references[row]:
            raise FadaError(f"{file}: the line {line!r} has two different references, expected one for all systems.")
        system = rows.setdefault(str(name), {})
        if line in system:
            raise FadaError(f"{file}: the line {line!r} stands twice for system {name!r}; ids must be unique.")
        system[line] = row
    found = _complete(
        list(lines),
        [references[row] for row in lines.values()],
        {name: [hypotheses[of[line]] if line in of else None for line in lines] for name, of in rows.items()},
        {name: [values[row] for row in lines.values()] for name, values in others.items()},
        str(file),
    )
    parts = [name for name in SCORE_COLUMNS if name in columns]
    scores = {
        system: {part: [columns[part][of[line]] for line in found.ids] for part in parts} for system, of in rows.items()
    }
    settings = stored_settings(file) if file.suffix.lower() == ".parquet" else {}
    return replace(found, scores=scores, settings=settings)


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
    kept = {name: [values[i] for i in rows] for name, values in columns.items()}
    try:
        lines = LineColumns([ids[i] for i in rows], [str(references[i]) for i in rows], kept.pop("domain", None), kept)
    except FadaError as error:
        raise FadaError(f"{source}: {error}") from None
    texts = {name: [str(texts[i]) for i in rows] for name, texts in systems.items()}
    return Systems(lines, texts, source=source, left_out=len(ids) - len(rows))


def _rows_of_split(columns: dict[str, list[Any]], split: str | None, file: Path) -> dict[str, list[Any]]:
    if split is None:
        return columns
    if "split" not in columns:
        raise FadaError(f"{file}: no column 'split', so the split {split!r} cannot be chosen.")
    rows = [i for i, value in enumerate(columns["split"]) if value == split]
    return {name: [values[i] for i in rows] for name, values in columns.items()}


def _pick(
    columns: Mapping[str, Any], wanted: str | None, usual: Sequence[str], role: str, file: Path, optional: bool = False
) -> str:
    """The name of the column for a role; empty if there is none and none is needed."""
    if wanted is not None:
        if wanted not in columns:
            raise FadaError(f"{file}: no column {wanted!r}, expected one of {', '.join(columns)}.")
        return wanted
    found = next((name for name in usual if name in columns), "")
    if not found and not optional:
        raise FadaError(
            f"{file}: no {role} column among {', '.join(columns) or 'nothing'}; expected one of {', '.join(usual)}. "
            f"Name it with --{role}-column."
        )
    return found


# --------------------------------------------------------------------------------------- references and their rivals


@dataclass(frozen=True)
class _Text:
    """One line of a source, or all lines of a page."""

    id: str
    text: str | None
    domain: str | None
    page: str | None
    extra: Mapping[str, Any]


def _from_several(references: Path, hypotheses: Sequence[Path], named: _Columns, pages: bool) -> Systems:
    source = f"{references} and {', '.join(map(str, hypotheses))}"
    if len(named.hypothesis) > 1:
        raise FadaError(
            f"{source}: {len(named.hypothesis)} hypothesis columns, expected one where the references stand alone. "
            "For several systems give one table with references and hypotheses, or a file for each."
        )
    every = [references, *hypotheses]
    plain = all(_is_plain_text(path) for path in every)
    _refuse_columns([references], {"--reference-column": named.reference})
    _refuse_columns(hypotheses, {"--hypothesis-column": named.hypothesis})
    _refuse_columns(every, {"--domain-column": named.domain, "--split": plain and named.split})
    notes: list[str] = []
    expected = _read(references, named.reference, named, notes)
    read = {
        name: _read(path, next(iter(named.hypothesis), None), named, notes)
        for name, path in zip(_names(hypotheses), hypotheses, strict=True)
    }
    if not (pages or plain) and (
        apart := {name: why for name, found in read.items() if (why := _division(expected, found))}
    ):
        pages = True
        name, why = next(iter(apart.items()))
        notes.append(
            f"{', '.join(apart)}: divided into other lines than the references ({len(read[name])} and "
            f"{len(expected)} of them, {why}), so whole pages are compared."
        )
    unit = "pages" if pages else "lines"
    if pages:
        for path, found in zip(every, (expected, *read.values()), strict=True):
            _refuse_pageless(path, found)
        expected, read = _pages(expected), {name: _pages(found) for name, found in read.items()}
    paired: dict[str, dict[int, _Text]] = {}
    unpaired = 0
    for (name, found), path in zip(read.items(), hypotheses, strict=True):
        paired[name], how = _paired(expected, found, (references, path), pages, plain)
        unpaired += len(found) - len(paired[name])
        notes += [how] if how else []
        notes += _unpaired(name, expected, found, paired[name], unit)
    shared = [i for i in range(len(expected)) if all(i in of for of in paired.values())]
    lines = [expected[i] for i in shared]
    first = next(iter(paired.values()))
    extra = {name for line in lines for name, value in line.extra.items() if isinstance(value, str | int)}
    extra -= {"page", *SCORE_COLUMNS}
    columns = {
        "domain": [line.domain or first[i].domain for i, line in zip(shared, lines, strict=True)],
        **{key: [domain_name(line.extra.get(key)) for line in lines] for key in sorted(extra)},
        "page": [line.page for line in lines],
    }
    complete = _complete(
        [line.id for line in lines],
        [line.text for line in lines],
        {name: [of[i].text for i in shared] for name, of in paired.items()},
        {name: values for name, values in columns.items() if any(value is not None for value in values)},
        source,
    )
    left_out = complete.left_out + len(expected) - len(shared) + unpaired
    return replace(complete, left_out=left_out, unit=unit, note=" ".join(notes))


def _names(paths: Sequence[Path]) -> list[str]:
    """Names of systems: of their files without ending, of their folders where those are the same."""
    for names in ([path.stem for path in paths], [path.parent.name for path in paths], [str(path) for path in paths]):
        if len(set(names)) == len(names) and all(names):
            return names
    raise FadaError(f"{paths[0]}: the same hypotheses are given twice.")


def _read(path: Path, text_column: str | None, named: _Columns, notes: list[str]) -> list[_Text]:
    """The lines of a source; that some of it could not be read is added to the notes."""
    if _is_plain_text(path):
        domain = named.reading.get("domain")
        return [_Text(str(i), text, domain, path.stem, {}) for i, text in enumerate(_text_lines(path, named), 1)]
    if path.is_dir() and (files := _text_pages(path)):
        return [
            _Text(f"{file.name}#{i}", text, named.reading.get("domain"), _stem(file), {})
            for file in files
            for i, text in enumerate(_text_lines(file, named), 1)
        ]
    how = {"text_column": text_column, "domain_column": named.domain, "split": named.split, **named.reading}
    lines = read_lines(path, **how)
    texts = [_Text(line.id, line.text, line.domain, _page(line), line.extra) for line in lines.without_media()]
    if not texts:
        why = f": {str(lines.skipped[0]).rstrip('.')}" if lines.skipped else ""
        raise FadaError(f"{path}: no line could be read from it, expected texts to compare{why}.")
    if lines.skipped:
        notes.append(f"{path}: {lines.skipped_count} not read, the first {str(lines.skipped[0]).rstrip('.')}.")
    return texts


def _page(line: Line) -> str | None:
    """The page a line stands on; of a row of a table, where no column tells it, what its id begins with."""
    page, mark, _ = line.id.rpartition("#")
    return page if mark and "page" not in line.extra else page_of(line)


def _refuse_pageless(path: Path, lines: Sequence[_Text]) -> None:
    """Refuse to compare whole pages where it is not known which lines are of one."""
    if missing := [line.id for line in lines if line.page is None]:
        raise FadaError(
            f"{path}: of {len(missing)} of {len(lines)} lines the page is not known (first: {missing[0]!r}), so whole "
            "pages cannot be compared. Name the page of each row in a column 'page'."
        )


def _pages(lines: Sequence[_Text]) -> list[_Text]:
    """One text for each page: its lines in their order, with a space between; empty ones are none."""
    pages: dict[str, list[_Text]] = {}
    for line in lines:
        pages.setdefault(_stem(Path(line.page or "")), []).append(line)
    return [
        _Text(
            page,
            " ".join(line.text for line in of if line.text),
            next((x.domain for x in of if x.domain), None),
            page,
            {},
        )
        for page, of in pages.items()
    ]


def _division(expected: Sequence[_Text], found: Sequence[_Text]) -> str:
    """Why two sources of pages seem divided into lines differently; empty if they do not."""
    if any(line.page is None for line in (*expected, *found)):
        return ""
    names = [{_stem(Path(line.page or "")) for line in side} for side in (expected, found)]
    if not names[0] & names[1] and not len(names[0]) == len(names[1]) == 1:
        return ""
    by_id = {line.id: line.text or "" for line in found}
    if any(line.id in by_id for line in expected):
        read = [by_id.get(line.id, "") for line in expected]
        return "the same ids are of other lines" if _are_apart(expected, found, read) else ""
    if len(expected) == len(found) and not _are_apart(expected, found, [line.text or "" for line in found]):
        return ""
    return "ids share nothing"


def _are_apart(expected: Sequence[_Text], found: Sequence[_Text], read: Sequence[str]) -> bool:
    """Whether lines differ more than twice as much as the pages that they are of from what was `read` for each."""
    pages = [{page.id: page.text or "" for page in _pages(side)} for side in (expected, found)]
    alone = len(pages[0]) == len(pages[1]) == 1  # the two may be called otherwise
    by_name = [(text, pages[1].get(page, "")) for page, text in pages[0].items()]
    pairs = list(zip(pages[0].values(), pages[1].values(), strict=True)) if alone else by_name
    if max(len(text) for pair in pairs for text in pair) > _LONGEST_PAGE:
        return False
    lines = sum(Levenshtein.distance(line.text or "", text) for line, text in zip(expected, read, strict=True))
    return 2 * sum(Levenshtein.distance(a, b) for a, b in pairs) < lines


def _paired(
    expected: Sequence[_Text], found: Sequence[_Text], what: tuple[Path, Path], pages: bool, plain: bool
) -> tuple[dict[int, _Text], str]:
    """The hypothesis of each reference, by its place, and how they were paired where it was not by id."""
    if plain and not pages:
        if len(expected) != len(found):
            raise FadaError(
                f"{what[0]} has {len(expected)} lines, {what[1]} has {len(found)}: line n of one must be line n of the "
                "other; an empty line stands for nothing recognised. To compare the whole texts add --pages."
            )
        return dict(enumerate(found)), ""
    by_id = {line.id: line for line in found}
    shared = {i: by_id[line.id] for i, line in enumerate(expected) if line.id in by_id}
    if shared:
        return shared, ""
    if pages and len(expected) == len(found) == 1:
        return {0: found[0]}, ""
    both = f"{what[0]} and {what[1]}"
    if len(expected) != len(found):
        first = [side[0].id if side else "none" for side in (expected, found)]
        raise FadaError(
            f"{both} share no {'page' if pages else 'line id'} (first: {first[0]!r} and {first[1]!r}), and their "
            f"numbers differ ({len(expected)} and {len(found)}). The lines of both must carry the same ids, files the "
            "same names."
        )
    by_order = dict(enumerate(found)), f"{both}: the ids share nothing, so lines are paired by their order."
    if _unlike(expected, found) <= _ALIKE or len(expected) ** 2 > _PAIRS:
        return by_order
    moved = [found[place] for place in _by_text(expected, found)]
    if _unlike(expected, moved) > _ALIKE:
        return by_order
    told = f"{both}: the ids share nothing and the order differs, so lines are paired by their text."
    return dict(enumerate(moved)), told


def _unpaired(
    name: str, expected: Sequence[_Text], found: Sequence[_Text], paired: Mapping[int, _Text], unit: str
) -> list[str]:
    """A note on what has no counterpart on the other side, which is often only called otherwise."""
    missing = [line.id for i, line in enumerate(expected) if i not in paired]
    used = {line.id for line in paired.values()}
    more = [line.id for line in found if line.id not in used]
    told = []
    if missing:
        told.append(f"{len(missing)} of {len(expected)} {unit} of the references missing ({first_few(missing, 3)})")
    if more:
        told.append(f"{len(more)} that they lack ({first_few(more, 3)})")
    return [f"{name}: {', '.join(told)}."] if told else []


def _unlike(expected: Sequence[_Text], found: Sequence[_Text]) -> float:
    """The mean share of characters in which lines in the same place differ; 1 if there are none."""
    if not expected:
        return 1.0
    pairs = zip(expected, found, strict=True)
    return float(np.mean([Levenshtein.normalized_distance(a.text or "", b.text or "") for a, b in pairs]))


def _by_text(expected: Sequence[_Text], found: Sequence[_Text]) -> list[int]:
    """For each reference its hypothesis, with the smallest sum of edit distances; every line is used once."""
    with needing("scipy", "analysis", "pairing lines by their text"):
        from scipy.optimize import linear_sum_assignment
    texts = [[line.text or "" for line in side] for side in (expected, found)]
    costs = process.cdist(*texts, scorer=Levenshtein.distance, workers=-1, dtype=np.int32)
    return linear_sum_assignment(costs)[1].tolist()


def _refuse_columns(files: Sequence[Path], options: Mapping[str, Any]) -> None:
    """Refuse options that name columns where none of the files is a table."""
    given = [option for option, value in options.items() if value]
    if given and all(file.is_file() and file.suffix.lower() not in tables.SUFFIXES for file in files):
        raise FadaError(
            f"{', '.join(given)}: {files[0]} is not a table and has no columns. Leave it out, or give a table."
        )


def _is_plain_text(path: Path) -> bool:
    return path.is_file() and path.suffix.lower() not in tables.SUFFIXES | {".xml", ".alto", ".page", ".hocr", ".zip"}


def _text_pages(folder: Path) -> list[Path]:
    """The text files of a folder that holds nothing else one could read lines from; what made them may be beside."""
    files = [path for path in folder.iterdir() if path.is_file() and not path.name.startswith(".")]
    files = [path for path in files if not path.name.endswith(RECORD)]
    return sorted(files) if files and all(path.suffix.lower() == ".txt" for path in files) else []


def _stem(path: Path) -> str:
    """The name of a page without its endings: ``p1.gt.txt``, ``p1.alto.xml`` and ``p1.xml`` are the same page."""
    name = path.name
    for ending in (".txt", ".xml", ".hocr", ".gt", ".alto", ".page"):
        name = name.removesuffix(ending)
    return name


def _text_lines(path: Path, named: _Columns) -> list[str]:
    encoding = named.reading.get("encoding")
    refuse_markup(path)
    try:
        lines = path.read_text(encoding=encoding or "utf-8-sig").split("\n")
    except UnicodeDecodeError as error:
        refuse_kind(error.object, path, "texts, a table, ALTO, PAGE or hOCR")
        advice = tables.encoding_advice(encoding or "UTF-8")
        raise FadaError(f"{path}: {advice} ({error.reason} at byte {error.start}).") from None
    except LookupError as error:
        raise FadaError(f"{path}: {error}.") from None
    return lines[:-1] if lines[-1] == "" else lines
