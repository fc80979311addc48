"""Random queries over given tables: SQL in DuckDB's dialect, with its parameters."""
# ruff: noqa: S608  the SQL is the test's own

import math
from collections.abc import Callable, Sequence
from functools import partial
from random import Random

from e2e_tables import Col, RandomTable
from e2e_writer import NUMBERS, Query, Writer, comparable

EXACT = ("count", "sum", "min", "max")  # aggregates whose last digit is not up to anybody


def random_query(rng: Random, tables: Sequence[RandomTable]) -> Query:
    """Any query over one or more of the tables."""
    makers: list[Callable[[Writer, list[RandomTable]], Query]]
    makers = [*[partial(aggregates, bare=True)] * 3, *[aggregates] * 3, *[groups] * 3, *[rows] * 3]
    makers += [selected_expressions, distinct, windows, ctes, subqueries, joins, joins, left_joins, self_joins]
    makers += [unions, whole_table, group_rows]
    return rng.choice(makers)(Writer(rng, rng.choice(["", "", "?", "$"])), list(tables))


def own(table: RandomTable, alias: str = "") -> list[tuple[str, Col]]:
    return [(alias, column) for column in table.columns]


def _call(writer: Writer, table: RandomTable) -> str:
    """An aggregate."""
    rng = writer.rng
    column = rng.choice(table.columns)
    numbers, exact = table.by_kind(*NUMBERS), [c for c in table.by_kind("integer", "decimal") if c.small]
    choices = ["count(*)", f"count({column.sql})", f"min({column.sql})", f"max({column.sql})"]
    if numbers:
        number = rng.choice(numbers)
        if number.kind != "float" or number.small:
            choices += [f"sum({number.sql})", f"avg({number.sql})"]
        if number.small and all(map(math.isfinite, number.pool)):
            spread = rng.choice(["var_samp", "variance", "var_pop", "stddev", "stddev_samp", "stddev_pop"])
            choices.append(f"{spread}({number.sql})")
    if exact:
        one, two = rng.choice(exact).sql, rng.choice(exact).sql
        choices += [f"sum({one}::BIGINT * 2)", f"sum({one} * 1.5)", f"avg({one} + 0.25)", f"min(-({one}::INTEGER))"]
        choices += [f"sum({one} * (1 - {two}))", f"max({one} + {two})", f"sum({one} - {two})", f"count({one} + {two})"]
    if rng.random() < 0.05:
        choices = [f"count(DISTINCT {column.sql})", f"min({column.sql}) FILTER (WHERE {writer.leaf(own(table))})"]
    return rng.choice(choices)


def _around(writer: Writer, table: RandomTable) -> str:
    """An aggregate, or an expression of several."""
    rng, call = writer.rng, _call(writer, table)
    if rng.random() < 0.7:
        return call
    return rng.choice(
        [
            "count(*) + 1",
            "count(*) * 2 - count(*)",
            f"coalesce({call}, {call})",
            f"{call} IS NULL",
            "CASE WHEN count(*) > 3 THEN 'many' ELSE 'few' END",
            "round(count(*) / 3, 2)",
            f"CAST({call} AS VARCHAR)" if call.startswith(EXACT) and "f" not in call else "count(*)",
        ]
    ) + rng.choice(["", "", " AS x"])


def aggregates(writer: Writer, tables: list[RandomTable], *, bare: bool = False) -> Query:
    """Bare ones are calls without anything around them, which the enclave answers alone."""
    rng, table = writer.rng, writer.rng.choice(tables)
    items = [(_call if bare else _around)(writer, table) for _ in range(rng.randint(1, 3))]
    where = writer.where(own(table), depth=0 if bare else rng.randint(0, 2))
    return Query(f"SELECT {', '.join(items)} FROM {table.name}{where}", writer.params)


def groups(writer: Writer, tables: list[RandomTable]) -> Query:
    rng, table = writer.rng, writer.rng.choice(tables)
    keys = table.by_kind("category", "boolean")
    if not keys:
        return aggregates(writer, tables)
    chosen = [column.sql for column in rng.sample(keys, rng.randint(1, min(2, len(keys))))]
    items = [_around(writer, table) for _ in range(rng.randint(1, 3))]
    columns = [*chosen, *items]
    if rng.random() < 0.2:
        rng.shuffle(columns)
    where = writer.where(own(table), depth=rng.randint(0, 2))
    sql = f"SELECT {', '.join(columns)} FROM {table.name}{where} GROUP BY {', '.join(chosen)}"
    if rng.random() < 0.3:
        sql += rng.choice(
            [" HAVING count(*) > 2", f" HAVING {chosen[0]} IS NOT NULL", " HAVING count(*) BETWEEN 1 AND 40"]
        )
    tail, ordered = "", False
    if rng.random() < 0.5:
        tail, ordered = " ORDER BY " + ", ".join(chosen) + rng.choice(["", " LIMIT 2", " LIMIT 3 OFFSET 1"]), True
    return Query(sql + tail, writer.params, ordered)


def group_rows(writer: Writer, tables: list[RandomTable]) -> Query:
    """GROUP BY what the enclave cannot group by."""
    rng, table = writer.rng, writer.rng.choice(tables)
    key = rng.choice(table.columns).sql
    sql = f"SELECT {key}, count(*) AS n FROM {table.name}{writer.where(own(table))} GROUP BY {key}"
    sql += rng.choice(["", " HAVING count(*) > 1", " HAVING n > 1"])
    tail, ordered = writer.tail(2)
    return Query(sql + tail, writer.params, ordered)


def rows(writer: Writer, tables: list[RandomTable]) -> Query:
    rng, table = writer.rng, writer.rng.choice(tables)
    chosen = rng.sample(table.columns, rng.randint(1, len(table.columns)))
    alias = rng.choice(["", " AS x", " y"])
    items = [rng.choice([column.sql, column.sql, f"{column.sql} AS c{place}"]) for place, column in enumerate(chosen)]
    sql = f"SELECT {', '.join(items)} FROM {table.name}{alias}{writer.where(own(table))}"
    tail, ordered = writer.tail(len(items))
    return Query(sql + tail, writer.params, ordered)


def whole_table(writer: Writer, tables: list[RandomTable]) -> Query:
    table = writer.rng.choice(tables)
    start = writer.rng.choice(["SELECT * FROM ", "FROM ", "SELECT x.* FROM "])
    name = f"{table.name} x" if "x.*" in start else table.name
    sql = f"{start}{name}{writer.where(own(table), 0.7)}"
    tail, ordered = writer.tail(len(table.columns))
    return Query(sql + tail, writer.params, ordered)


def selected_expressions(writer: Writer, tables: list[RandomTable]) -> Query:
    table = writer.rng.choice(tables)
    condition = writer.condition(own(table), 1)
    sql = f"SELECT {condition} AS yes, count(*) AS n FROM {table.name}{writer.where(own(table), 0.5)} GROUP BY 1"
    return Query(sql, writer.params)


def distinct(writer: Writer, tables: list[RandomTable]) -> Query:
    rng, table = writer.rng, writer.rng.choice(tables)
    chosen = [column.sql for column in rng.sample(table.columns, min(len(table.columns), rng.randint(1, 3)))]
    sql = f"SELECT DISTINCT {', '.join(chosen)} FROM {table.name}{writer.where(own(table))}"
    tail, ordered = writer.tail(len(chosen))
    return Query(sql + tail, writer.params, ordered)


def windows(writer: Writer, tables: list[RandomTable]) -> Query:
    rng, table = writer.rng, writer.rng.choice(tables)
    everything = ", ".join(column.sql for column in rng.sample(table.columns, len(table.columns)))
    key = rng.choice(table.columns).sql
    window = rng.choice(
        [
            f"row_number() OVER (ORDER BY {everything})",
            f"count(*) OVER (PARTITION BY {key})",
            f"rank() OVER (ORDER BY {key})",
            f"count({key}) OVER ()",
            "count(*) OVER ()",
        ]
    )
    qualify = rng.choice(["", "", f" QUALIFY {window} < 4"])
    sql = f"SELECT {key}, {window} AS w FROM {table.name}{writer.where(own(table))}{qualify}"
    return Query(sql, writer.params)


def ctes(writer: Writer, tables: list[RandomTable]) -> Query:
    rng, table = writer.rng, writer.rng.choice(tables)
    name = rng.choice(["c", table.name, "x"])
    inner = writer.where(own(table))
    outer = writer.where(own(table))
    if rng.random() < 0.5:
        sql = f"WITH {name} AS (SELECT * FROM {table.name}{inner}) SELECT count(*) FROM {name}{outer}"
    else:
        sql = f"SELECT * FROM (SELECT * FROM {table.name}{inner}) AS {name}{outer}"
    return Query(sql, writer.params)


def subqueries(writer: Writer, tables: list[RandomTable]) -> Query:
    rng = writer.rng
    outer, inner = rng.choice(tables), rng.choice(tables)
    pairs = [(a, b) for a in outer.columns for b in inner.columns if a.kind == b.kind and a.name == b.name]
    pairs = pairs or [(a, b) for a in outer.columns for b in inner.columns if a.kind == b.kind]
    a, b = rng.choice(pairs)
    columns = own(inner, "s.")
    inside = f"SELECT s.{b.sql} FROM {inner.name} s{writer.where(columns)}"
    test = rng.choice(
        [
            f"o.{a.sql} IN ({inside})",
            f"o.{a.sql} NOT IN ({inside})",
            f"EXISTS (SELECT 1 FROM {inner.name} s WHERE s.{b.sql} = o.{a.sql} AND {{}})",
            f"NOT EXISTS (SELECT 1 FROM {inner.name} s WHERE s.{b.sql} = o.{a.sql} AND {{}})",
            f"o.{a.sql} >= (SELECT min(s.{b.sql}) FROM {inner.name} s WHERE {{}})",
        ]
    )
    if "{}" in test:
        writer.values.clear()
        test = test.replace("{}", writer.condition(columns, 1))
    sql = f"SELECT o.* FROM {outer.name} o WHERE {test} {rng.choice(['AND', 'OR'])} "
    sql += writer.condition(own(outer, "o."), 1)
    return Query(sql, writer.params)


def _joined(writer: Writer, left: RandomTable, right: RandomTable, kind: str) -> Query:
    rng = writer.rng
    pairs = [(a, b) for a in left.columns for b in right.columns if a.kind == b.kind and comparable(a, b)]
    a, b = rng.choice(pairs)
    on = f"a.{a.sql} = b.{b.sql}"
    if rng.random() < 0.5:
        on += f" AND {writer.condition([*own(left, 'a.'), *own(right, 'b.')], 1)}"
    visible = own(left, "a.") if kind in ("SEMI JOIN", "ANTI JOIN") else [*own(left, "a."), *own(right, "b.")]
    where = writer.where(visible)
    if rng.random() < 0.5:
        return Query(
            f"SELECT count(*), count(a.{a.sql}) FROM {left.name} a {kind} {right.name} b ON {on}{where}", writer.params
        )
    chosen = [prefix + column.sql for prefix, column in rng.sample(visible, min(3, len(visible)))]
    items = ", ".join(f"{item} AS c{place}" for place, item in enumerate(chosen))
    sql = f"SELECT {items}, count(*) AS n FROM {left.name} a {kind} {right.name} b ON {on}{where} GROUP BY ALL"
    return Query(sql, writer.params)


def joins(writer: Writer, tables: list[RandomTable]) -> Query:
    rng = writer.rng
    left, right = rng.sample(tables, 2) if len(tables) > 1 else tables * 2
    if rng.random() < 0.2:
        columns = [*own(left, "a."), *own(right, "b.")]
        sql = f"SELECT count(*) FROM {left.name} a, {right.name} b WHERE {writer.condition(columns)}"
        return Query(sql, writer.params)
    return _joined(writer, left, right, rng.choice(["JOIN", "INNER JOIN", "SEMI JOIN", "ANTI JOIN"]))


def left_joins(writer: Writer, tables: list[RandomTable]) -> Query:
    left, right = writer.rng.sample(tables, 2) if len(tables) > 1 else tables * 2
    return _joined(writer, left, right, writer.rng.choice(["LEFT JOIN", "LEFT JOIN", "RIGHT JOIN", "FULL JOIN"]))


def self_joins(writer: Writer, tables: list[RandomTable]) -> Query:
    table = writer.rng.choice(tables)
    return _joined(writer, table, table, writer.rng.choice(["JOIN", "LEFT JOIN"]))


def unions(writer: Writer, tables: list[RandomTable]) -> Query:
    rng, table = writer.rng, writer.rng.choice(tables)
    chosen = ", ".join(column.sql for column in rng.sample(table.columns, min(2, len(table.columns))))
    word = rng.choice(["UNION", "UNION ALL", "INTERSECT", "EXCEPT"])
    sides = [f"SELECT {chosen} FROM {table.name}{writer.where(own(table))}" for _ in range(2)]
    return Query(f" {word} ".join(sides), writer.params)
