"""The gateway's open databases: which one a query is for, and which columns and parameters it has.

To clients each database is a catalog with one schema, `main`. A query goes to the database that its table names begin
with, else to the one in the call's `database` header, else to the default. Describing a query asks DuckDB over tables
without rows, and nothing of the enclave, so the provider sees nothing.
"""

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, suppress
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import pyarrow as pa
from sqlglot import exp

import scumble
from scumble.errors import BadQuery, InvalidParameter, NotFound, ScumbleError
from scumble.gateway.config import DatabaseConfig, Limits
from scumble.gateway.turns import Connections
from scumble.owner.database import Database
from scumble.owner.queries import LocalSQL
from scumble.sql import Statement, prepare
from scumble.sql.parse import is_query, parse
from scumble.sql.spans import Span, edited
from scumble.wire.catalog import Catalog, Table

__all__ = ["SCHEMA", "Databases", "Described", "Describer", "Routed"]

SCHEMA = "main"
MOST_SQL_CHARACTERS = 1 << 20
PROBES: tuple[Any, ...] = (None, 1, 1.5, "1")


class Routed(NamedTuple):
    """A query, and the name of the database that it is for."""

    database: str
    sql: str


class Databases:
    """Open databases by name. Threads may share them."""

    def __init__(self, configs: Mapping[str, DatabaseConfig], default: str, limits: Limits | None = None) -> None:
        limits = limits or Limits()
        self.default = default
        self.describer = Describer(limits.statement_bytes)
        self._open: dict[str, Database] = {}
        """These answer what is asked about tables, and run no statements: those have connections of their own."""
        self._connections = {
            name: Connections(partial(_opened, name, config), limits) for name, config in configs.items()
        }
        with ExitStack() as undo:
            undo.callback(self.close)
            for name, config in sorted(configs.items()):
                self._open[name] = _opened(name, config)
            undo.pop_all()

    @property
    def names(self) -> list[str]:
        return list(self._open)

    def __getitem__(self, name: str) -> Database:
        database = self._open.get(name)
        if database is None:
            raise NotFound("the gateway has no such database", hint=f"it serves {', '.join(self._open)}")
        return database

    def connection(self, name: str) -> AbstractContextManager[Database]:
        """A connection to a database for one statement."""
        self[name]  # raises if there is none of that name
        return self._connections[name].one()

    def route(self, sql: str, named: str | None) -> Routed:
        """Find the database of a query, and remove its name from the names of tables."""
        if len(sql) > MOST_SQL_CHARACTERS:
            raise BadQuery("the query is too long", hint="load a long list as a table first")
        chosen = self.default if named is None else named
        self[chosen]  # raises if there is none of that name
        if "." not in sql:
            return Routed(chosen, sql)
        qualified = [
            (self._catalog_of(table), table) for table in parse(sql, change=not is_query(sql)).tree.find_all(exp.Table)
        ]
        catalogs = {name for name, _ in qualified if name is not None}
        if len(catalogs) > 1:
            raise BadQuery("the query names two databases", hint="query each, and join the answers")
        edits = [(_before_name(table), f"{SCHEMA}.") for name, table in qualified if name is not None]
        return Routed(catalogs.pop() if catalogs else chosen, edited(sql, edits))

    def close(self) -> None:
        self.describer.close()
        for connections in self._connections.values():
            connections.close()
        while self._open:
            _, database = self._open.popitem()
            with suppress(ScumbleError, OSError):
                database.close()

    def _catalog_of(self, table: exp.Table) -> str | None:
        """Return the database that a table's name begins with: `clinic.main.visits` or `clinic.visits`."""
        first = table.catalog or ("" if table.db.lower() == SCHEMA else table.db)
        return next((name for name in self._open if name.lower() == first.lower()), None) if first else None


def _before_name(table: exp.Table) -> Span:
    parts = table.parts
    return Span(parts[0].meta["start"], parts[-1].meta["start"])


def _opened(name: str, config: DatabaseConfig) -> Database:
    try:
        return scumble.open(config.target, key=config.key, passphrase=config.passphrase(), **config.service_options)
    except ScumbleError as error:
        raise InvalidParameter(f"databases.{name} cannot be opened: {error.message}", hint=error.hint) from error


@dataclass(frozen=True)
class Described:
    """A query's result schema, None if it depends on the parameters, and its parameters in the order of binding."""

    schema: pa.Schema | None
    parameters: pa.Schema
    named: bool


class Describer:
    """Describes statements over the tables of a database."""

    def __init__(self, memory_bytes: int | None = None) -> None:
        self._local = LocalSQL(memory_bytes)

    def describe(
        self, sql: str, tables: Sequence[Table], values: Sequence[Any] | Mapping[str, Any] | None = None
    ) -> Described:
        """Say what a statement would return, with these parameters or with any."""
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
        """Close DuckDB and drop it: at exit it complains about a connection that is still referred to."""
        self._local.close()
        del self._local

    def _schema(self, statement: Statement, values: Sequence[Any] | Mapping[str, Any] | None) -> pa.Schema | None:
        """Return the schema if it is the same for parameters of every type."""
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
    return list({paths.table.id: paths.table for paths in statement.query.paths}.values())


def _parameter_types(statement: Statement) -> dict[str, pa.DataType]:
    """Return the types of parameters that are compared with a column."""
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
