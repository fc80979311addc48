"""Queries: what a statement comes down to. Either aggregates that the enclave computes, or rows that DuckDB works on.

The plans' shapes are public; the SQL and its constants are the asker's.
"""

from dataclasses import dataclass
from typing import Literal

from scumble.sql.constants import Bounds
from scumble.sql.plan import Paths
from scumble.types import ColumnType
from scumble.wire.catalog import Table
from scumble.wire.plan import Aggregates
from scumble.wire.predicate import Predicate

__all__ = ["GROUPS", "AggregateQuery", "Fetch", "Output", "OutputFunction", "RowQuery"]

GROUPS = "__groups"
"""The table that the final SQL of an aggregate query reads."""

OutputFunction = Literal["count", "sum", "avg", "min", "max", "var_samp", "var_pop", "stddev_samp", "stddev_pop"]


@dataclass(frozen=True, eq=False)
class Fetch:
    """Rows of one table to be fetched: `name` is what the final SQL calls them."""

    name: str
    table: Table
    columns: tuple[int, ...]
    predicate: Predicate
    bounds: Bounds
    paths: Paths
    conditions: tuple[str, ...]
    """Conditions that the enclave tests, exactly."""
    residual: tuple[str, ...]
    """Conditions on this table alone that only DuckDB tests."""


@dataclass(frozen=True)
class Output:
    """One aggregate call: which state it comes from, and how.

    `scale` is the power of ten that sums, minima and maxima of decimals are to be divided by. `type` is the column's,
    if the argument is a bare column. The column of GROUPS that takes it is called `name`.
    """

    name: str
    function: OutputFunction
    state: int
    scale: int
    type: ColumnType | None


@dataclass(frozen=True, eq=False)
class AggregateQuery:
    """Aggregates over one table, all in the enclave.

    The states become rows of a table GROUPS: the group columns under their own names (`group_columns`), then the
    `outputs`. A group whose state `rows_state` counts no row is left out, unless there are no group columns at all.
    `final_sql` then reads GROUPS. DESCRIBE of `groups_sql` over empty tables gives the types of GROUPS' columns, and
    DESCRIBE of the statement's own SQL the names and types of the answer. If `direct` is there, the answer is one row
    of these outputs, and DuckDB is not needed.
    """

    table: Table
    aggregates: Aggregates
    group_columns: tuple[str, ...]
    outputs: tuple[Output, ...]
    rows_state: int
    predicate: Predicate
    bounds: Bounds
    paths: Paths
    groups_sql: str
    final_sql: str
    final_parameters: tuple[str, ...]
    direct: tuple[int, ...] | None
    conditions: tuple[str, ...]


@dataclass(frozen=True, eq=False)
class RowQuery:
    """Anything else: fetch rows, then run `final_sql` over them in DuckDB. Without fetches, it is DuckDB's alone.

    If `direct` is there, the answer is these of the one fetch's columns, under the names and types that DESCRIBE of the
    statement gives, and DuckDB is not needed.
    """

    fetches: tuple[Fetch, ...]
    final_sql: str
    final_parameters: tuple[str, ...]
    direct: tuple[int, ...] | None
