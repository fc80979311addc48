"""Statements: SQL text, prepared once for one version of the catalog, and bound to parameters many times.

`prepare` parses and plans; `Statement.bind` works out the pages to read of each table, which takes microseconds. Both
run at the owner's side, which alone sees text, constants and parameters.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

from scumble.errors import BadQuery, UnsupportedQuery
from scumble.sql.aggregate import AggregateQuery, aggregate_query
from scumble.sql.constants import Constants, Evaluate, ParamValues, Replan
from scumble.sql.names import refuse_unknown_columns, scopes_of
from scumble.sql.parse import Parsed, parse
from scumble.sql.plan import TableAccess
from scumble.sql.rows import RowQuery, row_query
from scumble.wire.catalog import Catalog

__all__ = ["Bound", "Statement", "prepare"]


def prepare(sql: str, catalog: Catalog, evaluate: Evaluate | None = None) -> "Statement":
    """Parse and plan a statement; `evaluate` runs a constant expression in DuckDB."""
    try:
        return Statement(parse(sql), catalog, evaluate)
    except RecursionError as error:
        raise UnsupportedQuery("the query is nested too deeply", hint="split it up with WITH") from error


def _planned(parsed: Parsed, catalog: Catalog, constants: Constants) -> AggregateQuery | RowQuery:
    """Aggregates in the enclave if they can be, rows for DuckDB if not."""
    scopes = scopes_of(parsed, catalog)
    refuse_unknown_columns(parsed, scopes)
    return aggregate_query(parsed, scopes, constants) or row_query(parsed, scopes, constants)


class Bound(NamedTuple):
    """A statement with its parameters: one access for each fetch of a row query, or one for an aggregate query."""

    query: AggregateQuery | RowQuery
    accesses: tuple[TableAccess, ...]
    final_parameters: dict[str, Any]


class Statement:
    """A prepared statement, for one version of the catalog. `sql` is its text with named parameters, for DESCRIBE."""

    __slots__ = (
        "_evaluate",
        "_keys",
        "_needed",
        "_positional",
        "_replans",
        "catalog",
        "parsed",
        "query",
        "sql",
    )  # fmt: skip

    def __init__(self, parsed: Parsed, catalog: Catalog, evaluate: Evaluate | None) -> None:
        self.parsed, self.catalog, self._evaluate = parsed, catalog, evaluate
        self.sql = parsed.sql
        self._keys = parsed.keys
        numbers = [key for key in self._keys.values() if isinstance(key, int)]
        self._needed = max(numbers) + 1 if numbers else 0
        self._positional = self._needed if len(numbers) == len(self._keys) else -1
        constants = Constants(parsed.keys, evaluate)
        self.query = _planned(parsed, catalog, constants)
        # Where a parameter is part of a constant expression or a pattern, the plan's shape depends on its value.
        self._replans = constants.open_expressions

    def bind(self, params: ParamValues = ()) -> Bound:
        """The accesses for some parameters; planned anew where these need a plan of another shape."""
        if type(params) not in (tuple, list) or len(params) != self._positional:
            self._check(params)
        if self._replans:
            return self._replanned(params)
        try:
            return self._bound(self.query, params)
        except Replan:
            return self._replanned(params)

    def parameters(self, params: ParamValues = ()) -> dict[str, Any]:
        """All parameters by the names that they have in `sql`."""
        self._check(params)
        names = self.parsed.sql_names
        return {names[name]: params[key] for name, key in self._keys.items()}  # type: ignore[index]

    def _replanned(self, params: ParamValues) -> Bound:
        constants = Constants(self._keys, self._evaluate, params)
        return self._bound(_planned(self.parsed, self.catalog, constants), params)

    def _bound(self, query: AggregateQuery | RowQuery, params: ParamValues) -> Bound:
        accesses = tuple([paths.access(params) for paths in query.paths])
        keys, names = self._keys, self.parsed.sql_names
        values = {names[name]: params[keys[name]] for name in query.final_parameters}  # type: ignore[index]
        return Bound(query, accesses, values)

    def _check(self, params: ParamValues) -> None:
        if isinstance(params, Mapping):
            missing = [str(key) for key in self._keys.values() if key not in params]
            if missing or self._needed or len(params) != len(self._keys):
                names = ", ".join(map(str, self._keys)) or "none"
                raise BadQuery("the parameters do not fit the query", hint=f"it names these: {names}")
        elif isinstance(params, str | bytes) or len(params) != self._needed or len(self._keys) > self._needed:
            raise BadQuery(
                "the parameters do not fit the query",
                hint=f"it takes {self._needed} in a list" if self._needed or not self._keys else "pass them by name",
            )
