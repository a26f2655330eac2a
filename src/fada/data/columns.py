"""What is known of a set of lines, column by column: ids, references, domains and more."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any, TypeVar

from fada.errors import FadaError

T = TypeVar("T")


@dataclass(frozen=True)
class LineColumns:
    """The columns that everything stored per line shares: one entry per line, in one order.

    Attributes:
        ids: of the lines, unique.
        references: their transcriptions, or None if they are not known.
        domains: their domains, None for a line without one, or None if no domain is known.
        extra: further columns by name.
    """

    ids: list[str]
    references: list[str] | None = None
    domains: list[str | None] | None = None
    extra: Mapping[str, list[Any]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for name, values in self._columns().items():
            if len(values) != len(self.ids):
                raise FadaError(f"{len(self.ids)} lines but {len(values)} {name}, expected one for each line.")
        if len(set(self.ids)) < len(self.ids):
            seen: set[str] = set()
            twice = next(one for one in self.ids if one in seen or seen.add(one))  # type: ignore[func-returns-value]
            raise FadaError(f"the line id {twice!r} stands twice; ids must be unique.")

    def __len__(self) -> int:
        return len(self.ids)

    def _columns(self) -> dict[str, list[Any]]:
        own = {one.name: getattr(self, one.name) for one in fields(self)[:-1]}
        return {**{name: values for name, values in own.items() if values is not None}, **self.extra}

    def take(self, rows: Iterable[int]) -> "LineColumns":
        """The lines at these places, in this order."""
        places = list(rows)

        def taken(values: list[T] | None) -> list[T] | None:
            return None if values is None else [values[place] for place in places]

        extra = {name: taken(values) or [] for name, values in self.extra.items()}
        return LineColumns(taken(self.ids) or [], taken(self.references), taken(self.domains), extra)

    def rows_of(self, ids: Sequence[str]) -> list[int]:
        """The places of the lines with these ids."""
        where = {line: place for place, line in enumerate(self.ids)}
        missing = [line for line in ids if line not in where]
        if missing:
            raise FadaError(f"{len(missing)} of {len(ids)} lines are not here, such as {missing[0]!r}.")
        return [where[line] for line in ids]

    def ordered(self, ids: Sequence[str]) -> "LineColumns":
        """The lines with these ids, in this order."""
        return self.take(self.rows_of(ids))

    @classmethod
    def concatenate(cls, parts: Sequence["LineColumns"]) -> "LineColumns":
        """Several parts as one, in this order; a column that one part lacks is dropped."""

        def joined(columns: Iterable[list[T] | None]) -> list[T] | None:
            found = [column for column in columns if column is not None]
            return [value for column in found for value in column] if len(found) == len(parts) else None

        extra = {name: joined(part.extra.get(name) for part in parts) for part in parts[:1] for name in part.extra}
        return cls(
            joined(part.ids for part in parts) or [],
            joined(part.references for part in parts) if parts else None,
            joined(part.domains for part in parts) if parts else None,
            {name: values for name, values in extra.items() if values is not None},
        )
