"""Describing statements: SQL comes in; the columns that it would return and the parameters that it takes go out.

Nothing is asked of the enclave, so the provider sees nothing of it: DuckDB is asked, over tables without rows.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from sqlglot import exp

from scumble.errors import ScumbleError
from scumble.owner.queries import LocalSQL
from scumble.sql import AggregateQuery, Statement, prepare
from scumble.wire.catalog import Catalog, Table

__all__ = ["Described", "Describer"]

PROBES: tuple[Any, ...] = (None, 1, 1.5, "1")


@dataclass(frozen=True)
class Described:
    """The result's schema, None if it depends on the parameters; and the parameters, in the order of their binding."""

    schema: pa.Schema | None
    parameters: pa.Schema
    named: bool


class Describer:
    """Describes statements over the tables of a database."""

    def __init__(self) -> None:
        self._local = LocalSQL()

    def describe(
        self, sql: str, tables: Sequence[Table], values: Sequence[Any] | Mapping[str, Any] | None = None
    ) -> Described:
        """What a statement would return, with these parameters or with any."""
        statement = prepare(sql, Catalog("", 0, "", tuple(tables)), self._local.evaluate)
        keys = list(dict.fromkeys(statement.parsed.keys.values()))
        names = [str(key + 1) if isinstance(key, int) else key for key in sorted(keys, key=_place(keys))]
        known = _parameter_types(statement)
        return Described(
            schema=self._schema(statement, values),
            parameters=pa.schema([pa.field(name, known.get(name, pa.null())) for name in names]),
            named=any(isinstance(key, str) for key in keys),
        )

    def close(self) -> None:
        """Let go of DuckDB, which complains about a connection that anything still refers to at the end."""
        self._local.close()
        del self._local

    def _schema(self, statement: Statement, values: Sequence[Any] | Mapping[str, Any] | None) -> pa.Schema | None:
        """The schema, if it is the same whatever types the parameters have."""
        names = list(statement.parsed.sql_names.values())
        if values is not None or not names:
            return self._described(statement, statement.parameters(values or ()))
        found: list[pa.Schema] = []
        for probe in PROBES:
            try:
                found.append(self._described(statement, dict.fromkeys(names, probe)))
            except ScumbleError:  # a type that does not fit
                continue
        return found[0] if found and all(schema == found[0] for schema in found) else None

    def _described(self, statement: Statement, parameters: dict[str, Any]) -> pa.Schema:
        described = self._local.describe(statement.sql, _tables(statement), parameters)
        return pa.schema(list(zip(described.names, described.arrow, strict=True)))


def _place(keys: list[int | str]) -> Any:
    return lambda key: key if isinstance(key, int) else keys.index(key)


def _tables(statement: Statement) -> list[Table]:
    query = statement.query
    tables = [query.table] if isinstance(query, AggregateQuery) else [fetch.table for fetch in query.fetches]
    return list({table.id: table for table in tables}.values())


def _parameter_types(statement: Statement) -> dict[str, pa.DataType]:
    """The types of parameters that are compared with a column."""
    found: dict[str, pa.DataType] = {}
    names = statement.parsed.sql_names
    for placeholder in statement.parsed.tree.find_all(exp.Placeholder):
        condition = placeholder.parent
        name = names.get(placeholder.name)
        if name is None or not isinstance(condition, exp.Predicate):
            continue
        columns = [part.name.lower() for part in condition.iter_expressions() if isinstance(part, exp.Column)]
        types = {
            column.type.arrow_type
            for table in _tables(statement)
            for column in table.schema
            if column.name.lower() in columns
        }
        if len(types) == 1:
            found[name] = types.pop()
    return found
