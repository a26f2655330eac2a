"""One table of numbers with their spread, written as HTML, Markdown, LaTeX and CSV."""

import csv
import io
import os
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from markupsafe import Markup

from fada.common.files import write_text
from fada.errors import FadaError
from fada.evaluation.significance import MeanSem

_PIPE = re.compile(r"(?<!\\)\|")
FORMATS = ("html", "md", "tex", "csv")


@dataclass(frozen=True)
class Cell:
    """A number of a table: a rate in percent with its SEM, or a relative change (`signed`); `best` is set in bold."""

    value: MeanSem
    signed: bool = False
    best: bool = False

    @property
    def number(self) -> str:
        """The mean as printed: two digits, or a signed percentage with one."""
        return f"{self.value.mean:+.1f} %".replace("-", "−") if self.signed else f"{self.value.mean:.2f}"

    @property
    def error(self) -> str:
        """The SEM as printed, or nothing for a single run."""
        return "" if self.value.sem is None else f"({self.value.sem:.2f})"


@dataclass(frozen=True)
class Table:
    """A table with label columns, groups of value columns, and a caption that says what the numbers are.

    Args:
        name: file name without ending.
        heads: (text, number of columns) above the columns; empty for a single head row.
        columns: one head per column.
        labels: how many leading columns are labels.
        rows: labels as text, values as :class:`Cell`, None where there is no such run.
    """

    name: str
    title: str
    caption: str
    heads: tuple[tuple[str, int], ...]
    columns: tuple[str, ...]
    labels: int
    rows: tuple[tuple[str | Cell | None, ...], ...]

    def to_markdown(self) -> str:
        """A pipe table; the column groups are part of the column heads."""

        def cell(value: str | Cell | None) -> str:
            if isinstance(value, Cell):
                number = f"**{value.number}**" if value.best else value.number
                return f"{number} {value.error}".strip()
            return _escape_markdown(value or "")

        names = [_escape_markdown(name) for name in self._flat_columns()]
        body = markdown_table(names, ([cell(value) for value in row] for row in self.rows), labels=self.labels)
        return f"**{_escape_markdown(self.title)}.** {_escape_markdown(self.caption)}\n\n{body}"

    def to_latex(self) -> str:
        """A ``table`` for a document that loads ``booktabs`` (and a Unicode engine for labels in other scripts)."""

        def cell(value: str | Cell | None) -> str:
            if isinstance(value, Cell):
                number = escape_latex(value.number).replace("−", "$-$").replace("+", "$+$")
                number = rf"\textbf{{{number}}}" if value.best else number
                return f"{number} {{\\tiny {value.error}}}" if value.error else number
            return escape_latex(value) if value is not None else "--"

        heads = ""
        if self.heads:
            cells, rules, at = [], [], 1
            for text, span in self.heads:
                cells.append(rf"\multicolumn{{{span}}}{{c}}{{{escape_latex(text)}}}" if text else "&" * (span - 1))
                rules.append(rf"\cmidrule(lr){{{at}-{at + span - 1}}}" if text else "")
                at += span
            heads = " & ".join(cells) + " \\\\\n" + " ".join(filter(None, rules)) + "\n"
        previous = None
        body = []
        for row in self.rows:
            if previous is not None and self.labels > 1 and row[0] != previous:
                body.append(r"\midrule")
            body.append(" & ".join(cell(value) for value in row) + r" \\")
            previous = row[0]
        return "\n".join(
            [
                r"\begin{table}[t]",
                r"\centering",
                r"\small",
                rf"\begin{{tabular}}{{{'l' * self.labels}{'c' * (len(self.columns) - self.labels)}}}",
                r"\toprule",
                f"{heads}{' & '.join(map(escape_latex, self.columns))} \\\\",
                r"\midrule",
                *body,
                r"\bottomrule",
                r"\end{tabular}",
                rf"\caption{{\textbf{{{escape_latex(self.title)}.}} {escape_latex(self.caption)}}}",
                rf"\label{{tab:{self.name}}}",
                r"\end{table}",
                "",
            ]
        )

    def to_csv(self) -> str:
        """Full precision; the SEM in a column of its own, empty for a single run."""
        names: list[str] = []
        for i, name in enumerate(self._flat_columns()):
            names += [name] if i < self.labels else [name, f"{name} SEM"]
        buffer = io.StringIO()
        writer = csv.writer(buffer, lineterminator="\n")
        writer.writerow(names)
        for row in self.rows:
            cells: list[Any] = list(row[: self.labels])
            for value in row[self.labels :]:
                cells += [value.value.mean, value.value.sem] if isinstance(value, Cell) else [value, None]
            writer.writerow(cells)
        return buffer.getvalue()

    def to_html(self) -> Markup:
        """A ``<table>`` with caption and scoped heads; all text is escaped."""

        def cell(value: str | Cell | None, label: bool) -> Markup:
            if isinstance(value, Cell):
                sem = Markup(" <small>{}</small>").format(value.error) if value.error else ""
                best = Markup("<b>{}</b>") if value.best else Markup("{}")
                return Markup('<td class="num">{}{}</td>').format(best.format(value.number), sem)
            if label:
                return Markup('<th scope="row"><bdi>{}</bdi></th>').format(value or "")
            return Markup('<td class="num">{}</td>').format("–" if value is None else value)

        heads = Markup()
        if self.heads:
            group = Markup('<th class="group" scope="colgroup" colspan="{}">{}</th>')
            empty = Markup('<td colspan="{}"></td>')
            cells = [group.format(span, text) if text else empty.format(span) for text, span in self.heads]
            heads = Markup("<tr>{}</tr>").format(Markup().join(cells))
        columns = [
            Markup('<th scope="col" class="{}"><bdi>{}</bdi></th>').format("num" if i >= self.labels else "label", name)
            for i, name in enumerate(self.columns)
        ]
        rows = [
            Markup("<tr>{}</tr>").format(Markup().join(cell(value, i < self.labels) for i, value in enumerate(row)))
            for row in self.rows
        ]
        return Markup(
            "<table>\n<caption><b>{}.</b> {}</caption>\n<thead>{}<tr>{}</tr></thead>\n<tbody>\n{}\n</tbody>\n</table>\n"
        ).format(self.title, self.caption, heads, Markup().join(columns), Markup("\n").join(rows))

    def to_format(self, ending: str) -> str:
        """One of :data:`FORMATS`."""
        writers: dict[str, Callable[[], str]] = {
            "html": self.to_html,
            "md": self.to_markdown,
            "tex": self.to_latex,
            "csv": self.to_csv,
        }
        if ending not in writers:
            raise FadaError(f"unknown table format {ending!r}, expected one of {', '.join(FORMATS)}.")
        return str(writers[ending]())

    def _flat_columns(self) -> list[str]:
        groups = [text for text, span in self.heads for _ in range(span)] or [""] * len(self.columns)
        return [f"{group} {name}".strip() for group, name in zip(groups, self.columns, strict=True)]


def markdown_table(columns: Sequence[str], rows: Iterable[Sequence[object]], *, labels: int | None = None) -> str:
    """A pipe table of cells that are Markdown already; the columns after `labels` (all, if None) are set right."""
    labels = len(columns) if labels is None else labels
    body = [columns, *([_PIPE.sub(r"\|", str(cell)) for cell in row] for row in rows)]
    lines = ["| " + " | ".join(line) + " |\n" for line in body]
    lines.insert(1, "|" + "---|" * labels + "---:|" * (len(columns) - labels) + "\n")
    return "".join(lines)


def write_tables(tables: Sequence[Table], folder: str | os.PathLike[str]) -> list[Path]:
    """Write every table in every format into `folder`; the files written."""
    paths = []
    for table in tables:
        for ending in FORMATS:
            path = Path(folder) / f"{table.name}.{ending}"
            write_text(path, table.to_format(ending))
            paths.append(path)
    return paths


def escape_latex(text: str) -> str:
    """Text that LaTeX prints as it is."""
    special = {"\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}"}
    special |= {c: f"\\{c}" for c in "&%$#_{}"}
    special |= {"→": r"$\rightarrow$", "↓": r"$\downarrow$", "λ": r"$\lambda$"}
    return "".join(special.get(c, c) for c in " ".join(text.split()))


def _escape_markdown(text: str) -> str:
    return re.sub(r"([\\|*_`<>\[\]])", r"\\\1", " ".join(text.split()))
