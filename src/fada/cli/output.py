"""What a command prints: sentences, and tables for a person, for a program (JSON) and for a spreadsheet (CSV)."""

import csv
import json
import sys
from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import TYPE_CHECKING, Any

import typer

if TYPE_CHECKING:
    from fada.common.tables import Cells

_ANY_WIDTH = 10_000

AS_JSON = typer.Option(False, "--json", help="Print as JSON.")
AS_CSV = typer.Option(False, "--csv", help="Print as CSV.")


def echo(text: object, err: bool = False, nl: bool = True) -> None:
    """Print a sentence or a text; what the data brings cannot steer a terminal."""
    told = str(text)
    if (sys.stderr if err else sys.stdout).isatty():
        from fada.common.say import printable

        told = printable(told)
    typer.echo(told, err=err, nl=nl)


def echo_first(told: Sequence[object], before: str, most: int = 10, count: int = 0) -> None:
    """Print the first sentences on standard error, and how many more there are; `count` is of all, if not `told` is."""
    for one in told[:most]:
        echo(f"{before}{one}", err=True)
    if len(told) > most:
        echo(f"{before}… and {(count or len(told)) - most} more", err=True)


class Format(StrEnum):
    """How a command prints its result."""

    TABLE = "table"
    JSON = "json"
    CSV = "csv"


def chosen_format(as_json: bool, as_csv: bool) -> Format:
    """The format asked for with ``--json`` and ``--csv``."""
    return Format.JSON if as_json else Format.CSV if as_csv else Format.TABLE


def print_json(value: Any) -> None:
    """Print a value as readable JSON on standard output."""
    json.dump(value, sys.stdout, ensure_ascii=False, indent=2)
    sys.stdout.write("\n")


def print_rows(
    rows: Sequence[Mapping[str, Any]], title: str | None = None, output: Format = Format.TABLE, digits: int = 2
) -> None:
    """Print rows that share their keys; numbers are right-aligned, floats rounded to `digits` in the table only.

    A table too wide for the terminal is set without spaces between its columns, and nothing in it is cut off.
    """
    columns = list(rows[0]) if rows else []
    if output is Format.JSON:
        print_json([dict(row) for row in rows])
        return
    if output is Format.CSV:
        writer = csv.DictWriter(sys.stdout, columns, lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
        return
    if not columns:
        return
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    from fada.common.say import printable

    table = Table(title=title and escape(printable(title)))
    for column in columns:
        numeric = all(isinstance(row[column], int | float | None) for row in rows)
        name = escape(printable(column.replace("_", " ")))
        table.add_column(name, justify="right" if numeric else "left", overflow="fold")
    for row in rows:
        table.add_row(*(_cell(value, digits) for value in row.values()))
    console = Console()
    if console.measure(table, options=console.options.update(max_width=_ANY_WIDTH)).minimum > console.width:
        table.padding = (0, 0)
    console.print(table)


def _cell(value: Any, digits: int) -> str:
    from rich.markup import escape

    from fada.common.say import printable

    if value is None:
        return ""
    return f"{value:.{digits}f}" if isinstance(value, float) else escape(printable(str(value)))


def readable(
    rows: "Sequence[Cells]", hidden: tuple[str, ...] = ("characters", "p (bootstrap)")
) -> list[dict[str, str]]:
    """Rows for the terminal: a value and its interval in one cell, p-values to three digits, empty columns left out."""
    table = []
    for row in rows:
        cells: dict[str, str] = {}
        for name, value in row.items():
            if name in hidden or name.endswith("high"):
                continue
            if name.endswith("low"):
                if value is not None:
                    high = row[name.removesuffix("low") + "high"]
                    cells[list(cells)[-1]] += f" [{value:.2f}, {high:.2f}]"
            else:
                cells[name] = _readable_cell(name, value)
        table.append(cells)
    return [{name: cell for name, cell in cells.items() if any(other[name] for other in table)} for cells in table]


def _readable_cell(name: str, value: Any) -> str:
    if not isinstance(value, float):
        return "" if value is None else str(value)
    if name.startswith("p"):
        return f"{value:.3f}" if value >= 0.001 else f"{value:.1g}"
    return f"{value:.5f}" if "W2" in name else f"{value:.2f}"
