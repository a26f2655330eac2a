"""One table, three ways to print it: for a person, for a program (JSON), for a spreadsheet (CSV)."""

import csv
import json
import sys
from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import Any


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
    """Print rows that share their keys; numbers are right-aligned, floats rounded to `digits` in the table only."""
    columns = list(rows[0]) if rows else []
    if output is Format.JSON:
        print_json([dict(row) for row in rows])
        return
    if output is Format.CSV:
        writer = csv.DictWriter(sys.stdout, columns, lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
        return
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    table = Table(title=title and escape(title))
    for column in columns:
        numeric = all(isinstance(row[column], int | float | None) for row in rows)
        table.add_column(escape(column), justify="right" if numeric else "left")
    for row in rows:
        table.add_row(*(_cell(value, digits) for value in row.values()))
    Console().print(table)


def _cell(value: Any, digits: int) -> str:
    from rich.markup import escape

    if value is None:
        return ""
    return f"{value:.{digits}f}" if isinstance(value, float) else escape(str(value))
