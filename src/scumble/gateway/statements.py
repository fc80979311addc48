"""Prepared statements with their parameters, and the shelf that keeps them and finished results for clients.

Both are the owner's data and stay in the gateway. What a shelf keeps belongs to one client, under a random handle. How
many things it keeps, how many bytes and for how long is limited, so a client that goes away leaves nothing for ever.
"""

import secrets
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Generic, TypeVar

import numpy as np
import pyarrow as pa

from scumble.errors import BadQuery, Busy, InvalidParameter, NotFound
from scumble.gateway.changes import CHANGED, changed, described_change
from scumble.gateway.databases import Databases, Described
from scumble.owner.database import Database
from scumble.sql.parse import is_query

__all__ = ["PreparedStatement", "Shelf", "answer", "prepared"]

MOST_SETS = 10_000
OVERHEAD_BYTES = 1024  # of a statement, at least
HANDLE_BYTES = 16

T = TypeVar("T")
Parameters = tuple[Any, ...] | dict[str, Any]


@dataclass(frozen=True)
class PreparedStatement:
    """A statement, the database it is for, and the parameters bound to it."""

    database: str
    sql: str = field(repr=False)
    described: Described
    bound: tuple[Parameters, ...] | None = field(default=None, repr=False)
    bound_bytes: int = 0
    transaction: bytes = field(default=b"", repr=False)
    """The handle of the one that it runs in, if it was prepared in one."""

    @property
    def changes(self) -> bool:
        return not is_query(self.sql)

    @property
    def size_bytes(self) -> int:
        return OVERHEAD_BYTES + len(self.sql) + self.bound_bytes

    def with_parameters(self, rows: pa.Table) -> "PreparedStatement":
        """Return the statement with parameters bound, one set in each row."""
        if len(rows) > MOST_SETS:
            raise InvalidParameter("there are too many sets of parameters", hint=f"bind at most {MOST_SETS:,} at once")
        return replace(self, bound=tuple(self._sets(rows)), bound_bytes=rows.nbytes)

    def _sets(self, rows: pa.Table) -> list[Parameters]:
        sets: list[Parameters] = list(zip(*map(_values, rows.columns), strict=True)) if rows.num_columns else []
        if not self.described.named:
            return sets
        names = self.described.parameters.names
        given = [name.lstrip("$:") for name in rows.column_names]
        if set(given) != set(names):  # not by name, so in the order of the text
            given = names
        if len(given) != rows.num_columns:
            raise BadQuery("the parameters do not fit the query", hint=f"its parameters are {', '.join(names)}")
        return [dict(zip(given, one, strict=True)) for one in sets]


def prepared(databases: Databases, sql: str, named: str | None, transaction: bytes = b"") -> PreparedStatement:
    """Check and describe a statement without running it."""
    name, text = databases.route(sql, named)
    tables, describe = databases[name].tables, databases.describer.describe
    described = describe(text, tables) if is_query(text) else described_change(text)
    return PreparedStatement(name, text, described, transaction=transaction)


def answer(database: Database, statement: PreparedStatement) -> pa.Table:
    """Run a statement with each set of its parameters, and return the answers one after the other."""
    if statement.changes:
        return pa.table([[changed(database, statement.sql, statement.bound)]], schema=CHANGED)
    if statement.bound is None:
        return database.sql(statement.sql).arrow()
    tables = [database.sql(statement.sql, one).arrow() for one in statement.bound]
    if len(tables) == 1:
        return tables[0]
    return _joined(tables, statement.described.schema)


def _joined(tables: Sequence[pa.Table], schema: pa.Schema | None) -> pa.Table:
    if not tables and schema is not None:
        return schema.empty_table()
    if not tables or any(table.schema != tables[0].schema for table in tables):
        raise BadQuery("the sets of parameters give answers with different columns", hint="cast the parameters")
    return pa.concat_tables(tables)


def _values(column: pa.ChunkedArray) -> list[Any]:
    """Return parameters as Python values; timestamps in nanoseconds, which Python lacks, as numpy's."""
    if pa.types.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    if pa.types.is_timestamp(column.type) and column.type.unit == "ns" and column.type.tz is None:
        return [None if not value.is_valid else np.datetime64(value.value, "ns") for value in column]
    values: list[Any] = column.to_pylist()
    return values


@dataclass
class _Place(Generic[T]):
    client: str
    thing: T
    size_bytes: int
    until: float


class Shelf(Generic[T]):
    """Things of one kind that wait for their clients. Threads may share it.

    A wrong handle, one of another client and an expired one are refused in the same words.
    """

    def __init__(
        self, what: str, most: int, most_bytes: int, seconds: float, now: Callable[[], float] = time.monotonic
    ) -> None:
        self._what, self._most, self._most_bytes, self._seconds, self._now = what, most, most_bytes, seconds, now
        self._places: dict[bytes, _Place[T]] = {}
        self._turn = threading.Lock()

    def put(self, client: str, thing: T, size_bytes: int) -> bytes:
        """Keep a thing for a client and return its handle."""
        if size_bytes > self._most_bytes:
            raise InvalidParameter(
                f"this {self._what} is larger than the gateway can keep",
                hint="ask for less at a time, or raise its limit",
            )
        handle = secrets.token_bytes(HANDLE_BYTES)
        with self._turn:
            self._sweep()
            if len(self._places) >= self._most or self.bytes_kept + size_bytes > self._most_bytes:
                raise Busy(
                    f"the gateway cannot keep another {self._what} now: too many wait for their clients",
                    hint="try again later, close what you do not need, or raise the gateway's limits",
                )
            self._places[handle] = _Place(client, thing, size_bytes, self._now() + self._seconds)
        return handle

    def get(self, client: str, handle: bytes) -> T:
        """Return a client's thing and restart its time."""
        with self._turn:
            place = self._find(client, handle)
            place.until = self._now() + self._seconds
            return place.thing

    def take(self, client: str, handle: bytes) -> T:
        """Return a client's thing and remove it."""
        with self._turn:
            thing = self._find(client, handle).thing
            del self._places[handle]
            return thing

    def replace(self, client: str, handle: bytes, thing: T, size_bytes: int) -> None:
        """Put another thing in place of one, under the same handle."""
        with self._turn:
            place = self._find(client, handle)
            if self.bytes_kept - place.size_bytes + size_bytes > self._most_bytes:
                raise Busy(f"the gateway has no room for this {self._what}", hint="send less, or try again later")
            place.thing, place.size_bytes = thing, size_bytes

    def drop(self, client: str, handle: bytes) -> bool:
        """Remove a thing; return whether there was one."""
        try:
            self.take(client, handle)
        except NotFound:
            return False
        return True

    def sweep(self) -> None:
        with self._turn:
            self._sweep()

    def clear(self) -> None:
        with self._turn:
            self._places.clear()

    def __len__(self) -> int:
        return len(self._places)

    @property
    def bytes_kept(self) -> int:
        return sum(place.size_bytes for place in self._places.values())

    def _find(self, client: str, handle: bytes) -> _Place[T]:
        self._sweep()
        place = self._places.get(handle)
        if place is None or place.client != client:
            raise NotFound(
                f"there is no such {self._what}, or it has expired",
                hint="each is kept for a limited time, and a result until it is fetched once: ask again",
            )
        return place

    def _sweep(self) -> None:
        now = self._now()
        for handle in [handle for handle, place in self._places.items() if place.until <= now]:
            del self._places[handle]
