"""Results: what a query has found, in whatever form the owner wants it: Arrow, pandas, polars, or plain rows."""

import html
from collections.abc import Callable, Iterator
from functools import cached_property
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pandas as pd
    import polars as pl
    import pyarrow as pa

__all__ = ["Result"]

SHOWN_ROWS = 20

Row = tuple[Any, ...]


class Result:
    """The answer to a query. `rows` are known at once for bare aggregates; the table is made when it is asked for."""

    def __init__(self, table: "Callable[[], pa.Table]", rows: list[Row] | None = None) -> None:
        self._make, self._rows = table, rows
        self._next = 0

    @cached_property
    def _table(self) -> "pa.Table":
        return self._make()

    def arrow(self) -> "pa.Table":
        """An Arrow table."""
        return self._table

    def df(self) -> "pd.DataFrame":
        """A pandas data frame."""
        return self._table.to_pandas()

    def pl(self) -> "pl.DataFrame":
        """A polars data frame."""
        import polars

        frame = polars.from_arrow(self._table)
        assert isinstance(frame, polars.DataFrame)  # noqa: S101  a table never makes a series
        return frame

    def fetchall(self) -> list[Row]:
        """All rows that have not been fetched yet, as tuples."""
        rows = self._plain[self._next :]
        self._next = len(self._plain)
        return rows

    def fetchmany(self, size: int) -> list[Row]:
        """The next rows, at most so many."""
        rows = self._plain[self._next : self._next + size]
        self._next += len(rows)
        return rows

    def fetchone(self) -> Row | None:
        """The next row, or None."""
        return next(iter(self.fetchmany(1)), None)

    @cached_property
    def _plain(self) -> list[Row]:
        if self._rows is not None:
            return self._rows
        return list(zip(*(_values(column) for column in self._table.columns), strict=True))

    @property
    def columns(self) -> list[str]:
        """The names of the columns."""
        return list(self._table.column_names)

    def __iter__(self) -> Iterator[Row]:
        return iter(self.fetchall())

    def __len__(self) -> int:
        return len(self._table) if self._rows is None else len(self._rows)

    def __str__(self) -> str:
        cells = [self.columns, *([_shown(value) for value in row] for row in self._plain[:SHOWN_ROWS])]
        widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
        head, *rows = ("  ".join(map(str.ljust, row, widths)).rstrip() for row in cells)
        more = len(self) - SHOWN_ROWS
        tail = [f"... {more} more rows"] if more > 0 else []
        return "\n".join([head, "  ".join("-" * width for width in widths), *rows, *tail])

    def __repr__(self) -> str:
        return f"<Result: {len(self)} rows of {', '.join(self.columns)}>"

    def _repr_html_(self) -> str:
        head = "".join(f"<th>{html.escape(name)}</th>" for name in self.columns)
        rows = [
            "<tr>" + "".join(f"<td>{html.escape(_shown(value))}</td>" for value in row) + "</tr>"
            for row in self._plain[:SHOWN_ROWS]
        ]
        more = len(self) - SHOWN_ROWS
        caption = f"<caption>{more} more rows</caption>" if more > 0 else ""
        return f"<table>{caption}<tr>{head}</tr>{''.join(rows)}</table>"


def _values(column: Any) -> list[Any]:
    """Python values as DuckDB gives them: a HUGEINT, which Arrow has as a decimal without places, is an int."""
    import pyarrow as pa

    values: list[Any] = column.to_pylist()
    if pa.types.is_decimal(column.type) and column.type.scale == 0 and column.type.precision == 38:
        return [None if value is None else int(value) for value in values]
    return values


def _shown(value: object) -> str:
    return "NULL" if value is None else str(value)
