"""The report: one self-contained HTML file about one or more runs. It loads nothing, sends nothing, opens from disk.

Everything that comes from data (texts, names, settings) enters the page through an escaping template or through text
nodes, and a content security policy allows the page's own script and style by their hashes alone.
"""

import base64
import hashlib
import json
import math
import os
import re
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from datetime import datetime
from importlib import resources
from pathlib import Path
from typing import Any

import jinja2
from markupsafe import Markup

from fada._version import __version__
from fada.common.files import with_floats, write_json, write_text
from fada.data.splits import READING, LineSources
from fada.errors import FadaError
from fada.evaluation.predictions import PREDICTIONS
from fada.evaluation.scores import Scoring
from fada.evaluation.sources import read_systems
from fada.evaluation.table import FORMATS, Table, write_tables
from fada.report import charts, images, sections
from fada.report.comparison import DataSet, data_sets
from fada.report.lines import LineList
from fada.report.paper_tables import paper_tables
from fada.runs.groups import load_runs
from fada.runs.run import Run, flatten
from fada.text.characters import unicode_name

MAX_BYTES = 5_000_000
"""Size of the file, by default."""

_LINE_SHARE = 0.55  # of the size, at most, for the texts of the lines; images take what is left


@dataclass(frozen=True)
class Look:
    """What a report shows.

    Attributes:
        title: the heading; by default made of data set and model.
        baseline, compared: the two systems to put side by side; by default plain and guided decoding.
        with_images: embed line images.
        max_bytes: size of the file: image quality, then the number of images, then of listed lines are fitted to it.
        resamples: for intervals and tests.
        command: what was typed to make it.
    """

    title: str | None = None
    baseline: str | None = None
    compared: str | None = None
    with_images: bool = True
    max_bytes: int = MAX_BYTES
    resamples: int = 2000
    command: str = ""


@dataclass(frozen=True)
class Written:
    """What :func:`write_report` made: the file, its size in bytes, what had to be left out, and what it says."""

    path: Path
    size: int
    lines: int
    images: int
    notes: tuple[str, ...]
    tables: tuple[Path, ...] = ()
    views: tuple[sections.View, ...] = field(default=(), repr=False)

    def to_dict(self) -> dict[str, Any]:
        told = {name: value for name, value in vars(self).items() if name != "views"}
        return {**told, "path": str(self.path), "tables": [str(path) for path in self.tables]}


def write_report(
    runs: Sequence[str | os.PathLike[str]],
    out: str | os.PathLike[str] | None = None,
    *,
    data: str | os.PathLike[str] | None = None,
    tables: str | os.PathLike[str] | None = None,
    **settings: Any,
) -> Written:
    """Write the report of one or several run folders.

    Args:
        runs: run folders; runs that differ in the seed alone are averaged.
        out: the HTML file; by default ``report.html`` in the folder of a single run, or here for several.
        data: where the line images are (see :func:`fada.read_lines`); by default what the configuration names.
        tables: also write the paper's tables into this folder, as HTML, Markdown, LaTeX and CSV.
        settings: fields of :class:`Look`, and how texts are compared: `average`, `units`, `normalization` of
            :func:`fada.evaluate`.
    """
    shown = {one.name for one in fields(Look)}
    look = Look(**{name: value for name, value in settings.items() if name in shown})
    compared = {name: value for name, value in settings.items() if name not in shown}
    scoring = Scoring(**compared, bootstrap=look.resamples, resamples=look.resamples)
    results = load_runs(runs, scoring)
    sets = data_sets(results, look.baseline, look.compared)
    if out is None:
        out = results[0].folder / "report.html" if len(results) == 1 else "report.html"
    path = Path(out)
    listed = LineList(sets, scoring)
    page = _page(results, sets, listed, look)
    shell = len(page.html("").encode("utf-8"))
    exports = {table.name: {ending: table.to_format(ending) for ending in FORMATS} for table in page.tables}
    budget = look.max_bytes - shell - len(script_json(exports).encode("utf-8"))
    listed.fit(int(budget * _LINE_SHARE))
    if look.with_images:
        spare = budget - len(script_json(listed.payload()).encode("utf-8")) - 40 * len(listed.kept) - 2000
        page = _with_images(page, listed, results, data, spare)
    html = page.html(script_json({**listed.payload(), "exports": exports}))
    write_text(path, html)
    written = write_tables(page.tables, tables) if tables else []
    return Written(
        path=path,
        size=len(html.encode("utf-8")),
        lines=len(listed.kept),
        images=len(listed.images),
        notes=tuple(listed.notes),
        tables=tuple(written),
        views=page.sets,
    )


def write_comparison(
    references: str | os.PathLike[str],
    outputs: Sequence[str | os.PathLike[str]],
    out: str | os.PathLike[str] = "report.html",
    *,
    reading: Mapping[str, Any] | None = None,
    **settings: Any,
) -> Written:
    """Write the report of any outputs against their references, without a run folder.

    Args:
        references: as :func:`fada.evaluation.sources.read_systems` takes them, with line images if they have some.
        outputs: of one system each, named after its file.
        out: the HTML file.
        reading: as for :func:`~fada.evaluation.sources.read_systems`; `domain_column`, `split` and `pages` too.
        settings: as for :func:`write_report`.
    """
    given = dict(reading or {})
    named = {name: given.pop(name) for name in ("domain_column", "split", "pages") if name in given}
    systems = read_systems(references, *outputs, reading=given, **named)
    names = list(systems.systems)
    settings.setdefault("title", None)
    settings["title"] = settings["title"] or f"{Path(references).name}: {', '.join(names)}"
    settings["baseline"] = settings.get("baseline") or names[0]
    settings["compared"] = settings.get("compared") or next((n for n in names if n != settings["baseline"]), None)
    with tempfile.TemporaryDirectory() as folder:
        run = Path(folder) / Path(references).stem
        run.mkdir()
        systems.save(run / PREDICTIONS)
        config = {"data": [os.path.abspath(references)], "dataset": Path(references).stem, "model": "outputs", **given}
        told = [note for note in (systems.note, systems.left_out_note(), systems.empty_note()) if note]
        record = {"settings": config, "outputs": [str(output) for output in outputs], "paired": told}
        write_json(run / "config.json", record)
        written = write_report([run], out, **settings)
    return replace(written, notes=(*told, *written.notes))


def script_json(value: Any) -> str:
    """JSON that can stand inside a ``<script>`` element: no markup can begin in it, and no number is NaN."""
    finite = with_floats(value, lambda number: number if math.isfinite(number) else None)
    text = json.dumps(finite, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    for character in "<>&\u2028\u2029":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return text


@dataclass(frozen=True)
class Page:
    """What the template shows: the fields by their names.

    Attributes:
        kicker: the line above the title.
        any_pair: whether any data set has two systems to compare.
        tuning, learning: figures of the runs.
        facts: how the report was made, by name.
        runs: every setting of every run, by the run's name.
        line_notes: what the list of lines leaves out.
        font: a rule of the style sheet, or nothing.
        pages: by name, with their lines drawn.
    """

    title: str
    kicker: str
    sets: tuple[sections.View, ...]
    any_pair: bool
    tuning: Sequence[sections.Drawing]
    learning: Sequence[sections.Drawing]
    tables: Sequence[Table]
    facts: Mapping[str, str]
    citations: Sequence[str]
    runs: Mapping[str, Sequence[tuple[str, str]]]
    line_notes: Sequence[str]
    font: str
    pages: Sequence[tuple[str, images.Thumbnail]] = ()

    def html(self, data: str) -> str:
        """The page, with the lines as JSON."""
        environment = jinja2.Environment(autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True)
        environment.filters |= {
            "minus": lambda value, digits: f"{value:.{digits}f}".replace("-", "−"),
            "pvalue": sections.p_value,
            "visible": charts.drawn,
            "named": lambda character: unicode_name(character).lower(),
        }
        files = resources.files(__package__)
        html, css, js = (files.joinpath(f"page.{name}").read_text(encoding="utf-8") for name in ENDINGS)
        style = self.font + css
        return environment.from_string(html).render(
            **vars(self),
            version=__version__,
            style=Markup(style),
            script=Markup(js),
            style_hash=_hash(style),
            script_hash=_hash(js),
            data=Markup(data),
        )


def _page(runs: Sequence[Run], sets: Sequence[DataSet], listed: LineList, look: Look) -> Page:
    models = list(dict.fromkeys(run.model for run in runs))
    names = dict.fromkeys(data_set.source for data_set in sets)
    licences = dict.fromkeys(str(text) for run in runs if (text := run.setting("licence")))
    kicker = [
        "Text recognition report",
        f"{len(runs)} runs" if len(runs) > 1 else runs[0].name,
        f"{listed.total:,} lines",
        f"{len(listed.domains)} domains" if len(listed.domains) > 1 else "",
    ]
    facts = {
        "fada": __version__,
        **_made_of(runs),
        "Data": ", ".join(dict.fromkeys(", ".join(run.data_source) or run.dataset for run in runs)),
        LICENCE: ", ".join(licences) or UNKNOWN,
        "Intervals and tests": f"{look.resamples:,} resamples of lines, seed 0",
        "Made": f"{datetime.now().astimezone():%Y-%m-%d %H:%M %Z}",
        **({"Command": look.command} if look.command else {}),
    }
    font = _font() if _SIGNS.search(script_json(listed.payload())) else ""
    return Page(
        title=look.title or f"{', '.join(names)}: {', '.join(models)}",
        kicker=" · ".join(filter(None, kicker)),
        sets=tuple(sections.view(i, data_set, listed, runs[0].scoring) for i, data_set in enumerate(sets)),
        any_pair=not all(data_set.single for data_set in sets),
        tuning=sections.tuning_figures(runs),
        learning=sections.learning_figures(runs, sets),
        tables=paper_tables(runs),
        facts=facts,
        citations=list(dict.fromkeys(str(text) for run in runs if (text := run.setting("citation")))),
        runs={
            run.dataset if "outputs" in run.config else str(run.folder): [
                (name, _shown(value)) for name, value in flatten(run.config)
            ]
            for run in runs
        },
        line_notes=listed.notes,
        font=font if len(font) < look.max_bytes / 4 else "",
    )


def _with_images(
    page: Page, listed: LineList, runs: Sequence[Run], data: str | os.PathLike[str] | None, budget: int
) -> Page:
    """Fill `listed` with images, the budget shared by the data sets in proportion to their lines.

    What the lines tell of their licence goes into the page, where the runs told nothing.
    """
    lines = {name: listed.wanted(name) for name in dict.fromkeys(listed.sources)}
    for name, wanted in lines.items():
        run = next((run for run in runs if run.dataset == name and run.data_source), None)
        if (data is None and run is None) or not wanted:
            listed.notes.append("Images are left out: the runs do not record where the lines are. Give it with --data.")
            continue
        try:
            found = images.collect(
                data or (LineSources.of_run({"data": run.data_source}, run.folder).data if run else ""),
                wanted,
                budget * len(wanted) // sum(map(len, lines.values())),
                **{column: run.setting(column) for column in READING if run and run.setting(column)},
            )
        except FadaError as error:
            if data is not None:
                raise
            listed.notes.append(f"Images are left out: {error}")
            continue
        listed.images.update({(name, line_id): image for line_id, image in found.images.items()})
        listed.notes.extend([found.note] if found.note else [])
        page = replace(page, pages=[*page.pages, *found.pages.items()])
        if found.licence and page.facts[LICENCE] == UNKNOWN:
            page = replace(page, facts={**page.facts, LICENCE: found.licence})
        if found.citation and not page.citations:
            page = replace(page, citations=[found.citation])
    return page


ENDINGS = ("html", "css", "js")
LICENCE, UNKNOWN = "Licence of the data", "not recorded"

_SIGNS = re.compile("[\u1dc0-\u1dff\u2e00-\u2e7f\ua720-\ua7ff\uab30-\uab6f\ue000-\uf8ff]")
"""Letters and marks of manuscripts, that the fonts of most machines do not have."""


def _font() -> str:
    """Junicode as a rule of the style sheet, for the signs that no font before it in the list has."""
    font = resources.files("fada").joinpath("serve", "page", "fonts", "junicode.woff2").read_bytes()
    source = f"data:font/woff2;base64,{base64.b64encode(font).decode('ascii')}"
    return f'@font-face {{ font-family: "Report signs"; src: url("{source}") format("woff2"); }}\n'


def _hash(text: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode("utf-8")).digest()).decode("ascii")


def _made_of(runs: Sequence[Run]) -> dict[str, str]:
    """The files that are compared, or what is known of the runs."""
    outputs = [str(output) for run in runs for output in run.config.get("outputs", ())]
    if outputs:
        return {"Compared": ", ".join(outputs)}
    seeds = [str(run.seed) for run in runs if run.seed is not None]
    return {
        "Runs made with": ", ".join(dict.fromkeys(_version(run) for run in runs)),
        "Lines": ", ".join(dict.fromkeys(_lines_of(run) for run in runs)),
        "Model": ", ".join(dict.fromkeys(run.model for run in runs)),
        "Seeds": ", ".join(dict.fromkeys(seeds)) or UNKNOWN,
    }


def _lines_of(run: Run) -> str:
    if run.reported == "validation":
        return "validation lines, on which the best epoch was chosen: there were no test lines"
    return "test lines" if "test" in run.metrics else "of a kind that is not recorded"


def _version(run: Run) -> str:
    version = run.setting("fada_version")
    return f"fada {version}" if isinstance(version, str) else "version not recorded"


def _shown(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)
