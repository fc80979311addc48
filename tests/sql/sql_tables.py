"""Tables to plan against: a catalog with indexes over known rows, the rows in the order of each run, and a reference.

The indexes are exact within their slack: what is tested here is the planner, not the noise.
"""

import datetime
import json
from dataclasses import dataclass, replace
from decimal import Decimal
from fractions import Fraction
from typing import Any

import duckdb
import numpy as np

from scumble.index.curve import MonotoneCurve
from scumble.index.file import IndexModel, encode
from scumble.index.segments import fit_segments
from scumble.sql import AggregateQuery, Bound, TableAccess
from scumble.types import Column, ColumnType, Domain, Schema, parse_domain, parse_type
from scumble.wire.catalog import Catalog, Run, Table
from scumble.wire.plan import And, Compare, Constant, In, Or, Predicate

Rows = list[tuple[Any, ...]]
_CONNECTION = duckdb.connect()

BIGINT = parse_type("bigint")
DOUBLE = parse_type("double")
BOOLEAN = parse_type("boolean")


def decimal(digits: int, scale: int) -> ColumnType:
    return parse_type(f"decimal({digits},{scale})")


def text(max_bytes: int) -> ColumnType:
    return parse_type(f"text({max_bytes})")


@dataclass(eq=False)
class Loaded:
    """A table of the catalog, and what its runs hold: rows in sorted order, then dummies (None)."""

    table: Table
    rows: Rows
    runs: dict[str, list[int | None]]


def index_over(domain: Domain, ranks: list[int], capacity: int, slack_rows: int) -> IndexModel:
    counts = np.bincount(np.array(ranks, dtype=np.int64), minlength=domain.size)
    segments = fit_segments(MonotoneCurve(np.cumsum(counts)), 4)
    assert segments is not None
    beta = Fraction(1, 10**6)
    return IndexModel(domain, segments, slack_rows, capacity, Fraction(1), Fraction(0), beta, 1, "scumble", "measured")


def load(
    name: str, schema: Schema, rows: Rows, indexes: dict[str, str], *, page_rows: int = 8, batches: int = 1
) -> Loaded:
    """Sort the rows by each indexed attribute, batch by batch."""
    runs, orders = [], {}
    for batch in range(batches):
        own = list(range(batch, len(rows), batches))
        capacity = len(own) + 11
        attributes: list[str | None] = [*indexes] or [None]
        for attribute in attributes:
            run_id = f"{name}-{attribute}-{batch}"
            index, order = None, own
            if attribute is not None:
                domain, place = parse_domain(indexes[attribute]), schema.place(attribute)
                ranks = {n: domain.size if rows[n][place] is None else domain.rank(rows[n][place]) for n in own}
                order = sorted(own, key=lambda n: ranks[n])
                model = index_over(domain, [r for r in ranks.values() if r < domain.size], capacity, 6)
                index = encode(model)
            runs.append(Run(run_id, str(batch), attribute, capacity, page_rows, index, ()))
            orders[run_id] = [*order, *[None] * (capacity - len(own))]
    return Loaded(Table(f"id-{name}", name, schema, tuple(runs)), rows, orders)


def renamed(loaded: Loaded, name: str) -> Loaded:
    return replace(loaded, table=replace(loaded.table, id=f"id-{name}", name=name))


def catalog_of(*loaded: Loaded) -> Catalog:
    return Catalog("db", 1, "", tuple(each.table for each in loaded))


def matches(  # noqa: PLR0911 - one for each node
    predicate: Predicate, schema: Schema, row: tuple[Any, ...], bounds: list[int]
) -> bool:
    """The reference: what a predicate says of one row."""
    match predicate:
        case Constant(value):
            return value
        case And(parts):
            return all(matches(part, schema, row, bounds) for part in parts)
        case Or(parts):
            return any(matches(part, schema, row, bounds) for part in parts)
        case Compare(left, right, op, negated):
            a, b = (None if row[p] is None else schema.columns[p].type.words_of(row[p]) for p in (left, right))
            if a is None or b is None:
                return False
            return {"=": a == b, "<": a < b, "<=": a <= b}[op] is not negated
        case In(place, offset, intervals, negated, null_matches):
            if row[place] is None:
                return null_matches
            type_ = schema.columns[place].type
            words, size = type_.words_of(row[place]), type_.words
            ends = [tuple(bounds[offset + n * size : offset + (n + 1) * size]) for n in range(2 * intervals)]
            inside = any(low <= words <= high for low, high in zip(ends[::2], ends[1::2], strict=True))
            return inside is not negated
    raise AssertionError


def fetched(access: TableAccess, loaded: Loaded) -> list[int]:
    """The numbers of the rows that the enclave would find matching, one for each time."""
    bounds = access.bounds.tolist()
    found = []
    for scan in access.scans:
        predicate = access.plan.predicates[scan.predicate]
        order, size = loaded.runs[scan.run.id], scan.run.page_rows
        for first, count in scan.pages:
            assert first + count <= scan.run.pages
            for number in order[first * size : (first + count) * size]:
                if number is not None and matches(predicate, loaded.table.schema, loaded.rows[number], bounds):
                    found.append(number)
    return found


def keep(
    connection: duckdb.DuckDBPyConnection, loaded: Loaded, name: str, numbers: list[int], columns: tuple[int, ...]
) -> None:
    """Make a table of these rows and columns of another one, and nothing else."""
    schema = loaded.table.schema
    names = ", ".join(f'"{schema.columns[place].name}"' for place in columns)
    wanted = ", ".join(map(str, numbers)) or "-1"
    source = f"SELECT {names} FROM main.{loaded.table.name} WHERE rowid IN ({wanted})"  # noqa: S608
    connection.execute(f"CREATE OR REPLACE TEMP TABLE {name} AS {source}")


def finished(
    connection: duckdb.DuckDBPyConnection, bound: Bound, tables: dict[str, Loaded]
) -> duckdb.DuckDBPyConnection:
    """Run the final SQL over what the enclave would find, and over nothing else; DuckDB aggregates in its place."""
    query = bound.query
    found = [fetched(access, tables[access.paths.table.name]) for access in bound.accesses]
    assert all(len(set(numbers)) == len(numbers) for numbers in found)
    if isinstance(query, AggregateQuery):
        loaded = tables[query.table.name]
        keep(connection, loaded, query.table.name, found[0], tuple(range(len(query.table.schema))))
        connection.execute(f"CREATE OR REPLACE TABLE __groups AS {query.groups_sql}")
        connection.execute(f"DROP TABLE temp.{query.table.name}")
    else:
        for fetch, numbers in zip(query.fetches, found, strict=True):
            keep(connection, tables[fetch.table.name], fetch.name, numbers, fetch.columns)
    return connection.execute(query.final_sql)


def duck(*loaded: Loaded) -> duckdb.DuckDBPyConnection:
    """The same tables in DuckDB."""
    connection = duckdb.connect()
    for each in loaded:
        fill(connection, each.table.name, each.table.schema, each.rows)
    return connection


def fill(connection: duckdb.DuckDBPyConnection, name: str, schema: Schema, rows: Rows) -> None:
    columns = ", ".join(f'"{c.name}" {c.type.sql}' for c in schema)
    connection.execute(f'CREATE OR REPLACE TABLE "{name}" ({columns})')
    if rows:
        marks = ", ".join("?" for _ in schema)
        connection.executemany(f'INSERT INTO "{name}" VALUES ({marks})', rows)  # noqa: S608


def evaluate(sql: str) -> Any:
    """What the owner passes to `prepare`: a constant expression, worked out by DuckDB."""
    row = _CONNECTION.execute(f"SELECT {sql}").fetchone()
    assert row is not None
    return row[0]


def small_table(rows: int = 200, *, batches: int = 1, indexes: dict[str, str] | None = None) -> Loaded:
    """One column of each kind, nulls included, with three indexes."""
    rng = np.random.default_rng(7)
    kinds = ["ash", "birch", "cedar", "oak"]
    names = ["", "a", "ab", "abc", "abcdefgh", "abcdefghi", "b", "é", "zebra crossing"]

    def some(value: Any, rate: float = 0.15) -> Any:
        return None if rng.random() < rate else value

    made = [
        (
            n,
            some(int(rng.integers(0, 100))),
            some(Decimal(int(rng.integers(-500, 500))).scaleb(-2)),
            some(float(rng.choice([0.0, 0.5, -1.25, 1e300, float("inf")]))),
            some(bool(rng.integers(0, 2))),
            some(datetime.date(2020, 1, 1) + datetime.timedelta(int(rng.integers(0, 60)))),
            some(datetime.datetime(2020, 1, 1) + datetime.timedelta(hours=int(rng.integers(0, 100)))),
            some(kinds[int(rng.integers(0, 4))]),
            some(names[int(rng.integers(0, len(names)))]),
            some(int(rng.integers(0, 100))),
        )
        for n in range(rows)
    ]
    types = {
        "id": "bigint",
        "n": "integer",
        "price": "decimal(9,2)",
        "f": "double",
        "ok": "boolean",
        "day": "date",
        "moment": "timestamp",
        "wood": f"category({json.dumps(kinds)})",
        "name": "text(16)",
        "m": "integer",
    }
    schema = Schema(tuple(Column(name, parse_type(type_), name != "id") for name, type_ in types.items()))
    if indexes is None:
        indexes = {
            "id": "int:0:1023",
            "n": "int:0:127",
            "day": "date:2020-01-01:2020-12-31",
            "name": 'string:["a","abc","b","c"]',
        }
    return load("t", schema, made, indexes, batches=batches)
