"""The gateway's databases: SQL comes in, and the database that it is for goes out with the SQL that it understands.

To clients each database is a catalog with one schema, `main`. A query goes to the database that it names its tables by,
else to the one in the call's `database` header, else to the default one.
"""

from collections.abc import Mapping
from contextlib import ExitStack, suppress
from typing import NamedTuple

from sqlglot import exp

import scumble
from scumble.errors import BadQuery, InvalidParameter, NotFound, ScumbleError
from scumble.gateway.config import Source
from scumble.gateway.describing import Describer
from scumble.owner.database import Database
from scumble.sql.parse import Span, edited, parse

__all__ = ["SCHEMA", "Databases", "Routed"]

SCHEMA = "main"
MOST_SQL_CHARACTERS = 1 << 20


class Routed(NamedTuple):
    """A query, and the name of the database that it is for."""

    database: str
    sql: str


class Databases:
    """Open databases by name. Threads may share them."""

    def __init__(self, sources: Mapping[str, Source], default: str) -> None:
        self.default = default
        self.describer = Describer()
        self._open: dict[str, Database] = {}
        with ExitStack() as undo:
            undo.callback(self.close)
            for name, source in sorted(sources.items()):
                self._open[name] = _opened(name, source)
            undo.pop_all()

    @property
    def names(self) -> list[str]:
        """Their names, sorted."""
        return list(self._open)

    def __getitem__(self, name: str) -> Database:
        database = self._open.get(name)
        if database is None:
            raise NotFound("the gateway has no such database", hint=f"there are {', '.join(self._open)}")
        return database

    def route(self, sql: str, named: str | None) -> Routed:
        """Find the database of a query, and take its name out of the names of tables."""
        if len(sql) > MOST_SQL_CHARACTERS:
            raise BadQuery("the query is too long", hint="pass long lists as a table: load it first")
        chosen = self.default if named is None else named
        self[chosen]  # refuses a name that is none
        if "." not in sql:
            return Routed(chosen, sql)
        qualified = [(self._catalog_of(table), table) for table in parse(sql).tree.find_all(exp.Table)]
        catalogs = {name for name, _ in qualified if name is not None}
        if len(catalogs) > 1:
            raise BadQuery("the query names two databases", hint="query each, and join the answers")
        edits = [(_before_name(table), f"{SCHEMA}.") for name, table in qualified if name is not None]
        return Routed(catalogs.pop() if catalogs else chosen, edited(sql, edits))

    def close(self) -> None:
        """Close them all."""
        self.describer.close()
        while self._open:
            _, database = self._open.popitem()
            with suppress(ScumbleError, OSError):
                database.close()

    def _catalog_of(self, table: exp.Table) -> str | None:
        """The database that a table's name begins with: `clinic.main.visits`, or `clinic.visits`."""
        first = table.catalog or ("" if table.db.lower() == SCHEMA else table.db)
        return next((name for name in self._open if name.lower() == first.lower()), None) if first else None


def _before_name(table: exp.Table) -> Span:
    parts = table.parts
    return Span(parts[0].meta["start"], parts[-1].meta["start"])


def _opened(name: str, source: Source) -> Database:
    try:
        return scumble.open(source.target, key=source.key, passphrase=source.passphrase(), **source.connecting)
    except ScumbleError as error:
        raise InvalidParameter(f"databases.{name} cannot be opened: {error.message}", hint=error.hint) from error
