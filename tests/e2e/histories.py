"""Histories of statements by chance: a table, and statements that change it, as both Scumble and DuckDB take them."""

# ruff: noqa: S608  statements are made of parts here

from dataclasses import dataclass
from random import Random
from typing import Any

import duckdb
import pyarrow as pa

INDEXES = ["id int:0:9999 epsilon=1 beta=1e-9", "day date:2020-01-01:2020-12-31 epsilon=1 beta=1e-9"]
TYPES = {
    "id": "bigint not null",
    "day": "date",
    "amount": "decimal(9,2)",
    "kind": 'category(["a","b","c"])',
    "note": "text(12)",
    "flag": "boolean",
}


@dataclass(frozen=True)
class Statement:
    """SQL with parameters, or the end of a transaction."""

    sql: str
    params: tuple[Any, ...] = ()


def rows(rng: Random, count: int) -> list[tuple[Any, ...]]:
    """Rows by chance, with few different values, so that conditions match."""
    return [
        (
            rng.randrange(400),
            rng.choice([None, f"2020-{rng.randrange(1, 13):02}-{rng.randrange(1, 28):02}"]),
            rng.choice([None, f"{rng.randrange(-9999, 99999) / 100:.2f}"]),
            rng.choice([None, "a", "b", "c"]),
            rng.choice([None, "", "x", "twelve chars"]),
            rng.choice([None, True, False]),
        )
        for _ in range(count)
    ]


def table(found: list[tuple[Any, ...]]) -> pa.Table:
    """The same as DuckDB types them."""
    with duckdb.connect() as connection:
        connection.execute(f"CREATE TABLE t ({columns()})")
        if found:
            connection.executemany("INSERT INTO t VALUES (?, ?, ?, ?, ?, ?)", found)
        return connection.sql("SELECT * FROM t").to_arrow_table()


def columns() -> str:
    """The columns for DuckDB."""
    return "id BIGINT NOT NULL, day DATE, amount DECIMAL(9,2), kind VARCHAR, note VARCHAR, flag BOOLEAN"


def condition(rng: Random) -> str:
    """A WHERE, which matches some rows, all or none."""
    first, length = rng.randrange(420), rng.choice([0, 3, 50, 1000])
    simple = [
        f"id BETWEEN {first} AND {first + length}",
        f"id = {first}",
        f"day >= '2020-{rng.randrange(1, 13):02}-10'",
        f"amount < {rng.randrange(0, 900)}.5",
        f"kind = '{rng.choice('abc')}'",
        "note IS NULL",
        "note = 'x'",
        "flag",
        f"id IN ({first}, {first + 1}, {first + 7})",
        "day IS NULL",
        "FALSE",
        "TRUE",
    ]
    return rng.choice(["{} AND {}", "{} OR {}", "{}", "NOT ({})"]).format(*rng.sample(simple, 2))


def statement(rng: Random) -> Statement:
    """One that changes rows."""
    kind = rng.choice(["insert", "update", "update", "delete", "move", "keyed", "upsert"])
    match kind:
        case "insert":
            new = rows(rng, rng.choice([1, 2, 5]))
            marks = ", ".join("(?, ?, ?, ?, ?, ?)" for _ in new)
            return Statement(f"INSERT INTO t VALUES {marks}", tuple(value for row in new for value in row))
        case "update":
            sets = rng.sample(
                ["amount = amount + 0.25", "note = 'new'", "flag = NULL", "kind = 'b'", "amount = id", "note = NULL"],
                rng.choice([1, 2]),
            )
            columns = {each.split(" ")[0] for each in sets}
            if len(columns) < len(sets):
                sets = sets[:1]
            return Statement(f"UPDATE t SET {', '.join(sets)} WHERE {condition(rng)}")
        case "delete":
            return Statement(f"DELETE FROM t WHERE ({condition(rng)}) AND id < {rng.randrange(400)}")
        case "move":
            change = rng.choice(["id = id + 1", "day = '2020-06-01'", "id = 77, note = 'moved'", "day = NULL"])
            return Statement(f"UPDATE t SET {change} WHERE {condition(rng)}")
    keys = rng.sample(range(420), rng.choice([1, 2, 5]))
    if kind == "keyed":
        values = ", ".join(f"({key}, 'k{key}')" for key in keys)
        return Statement(f"UPDATE t SET note = v.b FROM (VALUES {values}) v(a, b) WHERE t.id = v.a")
    values = ", ".join(f"({key}, 'u{key}')" for key in keys)
    return Statement(f"INSERT INTO t (id, note) VALUES {values} ON CONFLICT (id) DO UPDATE SET note = excluded.note")


class Reference:
    """DuckDB with the same rows."""

    def __init__(self, found: pa.Table) -> None:
        self.connection = duckdb.connect()
        self.connection.execute(f"CREATE TABLE t ({columns()})")
        self.connection.execute("INSERT INTO t SELECT * FROM found")

    def execute(self, statement: Statement) -> int:
        """Carry it out; how many rows were changed."""
        sql, params = statement.sql, list(statement.params)
        if "ON CONFLICT" not in sql:
            return int(self.connection.execute(sql, params).fetchall()[0][0])
        values = sql[sql.index("VALUES") : sql.index("ON CONFLICT")]  # DuckDB would need a unique index
        self.connection.execute(f"CREATE TEMP TABLE v AS SELECT * FROM ({values}) v(a, b)")
        changed = self.connection.execute("UPDATE t SET note = v.b FROM v WHERE t.id = v.a").fetchall()[0][0]
        new = "INSERT INTO t (id, note) SELECT a, b FROM v WHERE a NOT IN (SELECT id FROM before)"
        self.connection.execute("CREATE TEMP TABLE before AS SELECT id FROM t")
        added = self.connection.execute(new).fetchall()[0][0]
        self.connection.execute("DROP TABLE v; DROP TABLE before")
        return int(changed + added)

    def rows(self, where: str = "TRUE") -> list[tuple[Any, ...]]:
        return sorted(self.connection.execute(f"SELECT * FROM t WHERE {where}").fetchall(), key=repr)
