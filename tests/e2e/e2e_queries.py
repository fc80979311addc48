"""Random queries over given tables: SQL in DuckDB's dialect, with its parameters.

An ORDER BY in these queries names every column of the answer, so that the answer's order is determined.
"""
# ruff: noqa: S608  the SQL is the test's own

import datetime
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from functools import partial
from random import Random
from typing import Any

from e2e_tables import EPOCH, WORDS, Col, RandomTable

OPS = ["=", "<>", "<", "<=", ">", ">=", "!=", "=="]
NUMBERS = ("integer", "decimal", "float")
EXACT = ("count", "sum", "min", "max")  # aggregates whose last digit is not up to anybody
PATTERNS = [
    "a%", "ab%", "%", "abc", "a_%", "_b%", "%b%", "%c", "A%", "", "_", "é%", "日%", "a\\%", "\\_", "%\\",
    "a%b", "__", "b\\%%", "abcdefgh%", "\0%", "a\0%",
]  # fmt: skip


@dataclass(frozen=True)
class Query:
    """SQL, its parameters, and whether the order of the answer is determined."""

    sql: str
    params: Sequence[Any] | Mapping[str, Any] = ()
    ordered: bool = False


@dataclass
class Writer:
    """Writes the parts of one query, and collects its parameters. `style` is ?, $name, or nothing for none."""

    rng: Random
    style: str
    values: list[Any] = field(default_factory=list)

    @property
    def params(self) -> Sequence[Any] | Mapping[str, Any]:
        if self.style == "$":
            return {f"v{place}": value for place, value in enumerate(self.values)}
        return self.values

    # --- constants ---------------------------------------------------------------------------------

    def constant(self, column: Col) -> str:
        """A constant that a column can be compared with."""
        if self.rng.random() < 0.04:
            return "NULL"
        value = self.near(column)
        if self.style and self.rng.random() < 0.5 and not (column.kind == "timestamp" and isinstance(value, int)):
            return self.parameter(value)
        return self.literal(column, value)

    def parameter(self, value: Any) -> str:
        self.values.append(value)
        return "?" if self.style == "?" else f"$v{len(self.values) - 1}"

    def near(self, column: Col) -> Any:  # noqa: PLR0911  one for each kind
        """A value of the column, or one beside its values, or far away."""
        rng, value = self.rng, self.rng.choice(column.pool)
        match column.kind:
            case "integer":
                return rng.choice([value, value, value, value + 1, value - 1, rng.randint(-5, 120), 10**12, -(10**20)])
            case "decimal":
                return rng.choice([value, value, value + 1, value + Decimal("0.005"), -value, Decimal("1e3"), 3])
            case "float":
                return rng.choice([value, value, 0.5, -0.0, 1.3, 3, 100.0, math.inf, math.nan, 0.1])
            case "date":
                return rng.choice(
                    [value, value, value + datetime.timedelta(1), datetime.date(1900, 1, 1), datetime.date(2100, 1, 1)]
                )
            case "timestamp" if not isinstance(value, int):
                return rng.choice(
                    [value, value, value + datetime.timedelta(microseconds=1), value + datetime.timedelta(hours=3)]
                )
            case "text":
                return rng.choice([value, value, rng.choice(WORDS), value + "a", "q"])
            case "category":
                return rng.choice([value, value, value, "b", "", "zzz", "birch"])
        return value

    def literal(self, column: Col, value: Any) -> str:  # noqa: PLR0911  one for each kind
        rng = self.rng
        match value:
            case bool():
                return str(value).lower()
            case int() if column.kind == "timestamp":
                whole, rest = divmod(value, 10**9)
                moment = EPOCH + datetime.timedelta(seconds=whole)
                return f"TIMESTAMP_NS '{moment.isoformat(sep=' ')}.{rest:09d}'"
            case int():
                return rng.choice(
                    [str(value), str(value), f"{value}.0", f"({value} + 0)", f"CAST({value} AS HUGEINT)", f"'{value}'"]
                )
            case Decimal():
                return rng.choice(
                    [f"{value:f}", f"{value:f}", f"CAST('{value:f}' AS DECIMAL(30,7))", f"({value:f} + 1 - 1)"]
                )
            case float():
                text = f"CAST('{value!r}' AS DOUBLE)"
                return (
                    text
                    if not math.isfinite(value) or "e" in repr(value)
                    else rng.choice([repr(value), text, f"{value!r}::FLOAT"])
                )
            case datetime.datetime():
                text, kind = value.isoformat(sep=" "), "TIMESTAMPTZ" if value.tzinfo else "TIMESTAMP"
                return rng.choice(
                    [f"{kind} '{text}'", f"'{text}'", f"{kind} '{text}' + INTERVAL 1 HOUR", f"DATE '{text[:10]}'"]
                )
            case datetime.date():
                return rng.choice(
                    [
                        f"DATE '{value}'",
                        f"'{value}'",
                        f"DATE '{value}' + INTERVAL 3 DAY",
                        f"CAST('{value}' AS DATE)",
                        f"TIMESTAMP '{value} 12:00:00'",
                    ]
                )
            case datetime.time():
                return rng.choice([f"TIME '{value}'", f"'{value}'"])
        text = str(value).replace("'", "''")
        if "\0" in text:
            return "'" + text.replace("\0", "' || chr(0) || '") + "'"
        return f"'{text}'"

    # --- conditions --------------------------------------------------------------------------------

    def condition(self, columns: list[tuple[str, Col]], depth: int = 2) -> str:
        """A condition over columns, each with its alias in front."""
        rng = self.rng
        if depth == 0 or rng.random() < 0.35:
            return self.leaf(columns)
        parts = [self.condition(columns, depth - 1) for _ in range(rng.randint(2, 3))]
        match rng.randint(0, 7):
            case 0 | 1 | 2:
                return "(" + " AND ".join(parts) + ")"
            case 3 | 4 | 5:
                return "(" + " OR ".join(parts) + ")"
            case 6:
                return f"NOT ({parts[0]})" if not self.style else "(" + " AND ".join(parts) + ")"
        return "(" + " OR NOT ".join(parts) + ")"

    def leaf(self, columns: list[tuple[str, Col]]) -> str:  # noqa: PLR0911  one for each form
        rng = self.rng
        prefix, column = rng.choice(columns)
        name, negated = prefix + column.sql, rng.choice(["", "", "NOT "])
        match rng.randint(0, 13):
            case 0 | 1 | 2 | 3:
                return f"{name} {rng.choice(OPS)} {self.constant(column)}"
            case 4:
                return f"{self.constant(column)} {rng.choice(OPS[:6])} {name}"
            case 5 | 6:
                return f"{name} {negated}BETWEEN {self.constant(column)} AND {self.constant(column)}"
            case 7 | 8:
                listed = ", ".join(self.constant(column) for _ in range(rng.randint(1, 5)))
                return f"{name} {negated}IN ({listed})"
            case 9:
                return f"{name} IS {negated}NULL"
            case 10:
                texts = [pair for pair in columns if pair[1].kind in ("text", "category")]
                if not texts:
                    return f"{name} IS {negated}DISTINCT FROM {self.constant(column)}"
                prefix, column = rng.choice(texts)
                operator = rng.choice(["LIKE", "LIKE", "LIKE", "ILIKE"])
                return f"{prefix}{column.sql} {negated}{operator} {self.literal(column, rng.choice(PATTERNS))}"
            case 11:
                alike = [pair for pair in columns if _comparable(pair[1], column)]
                other, second = rng.choice(alike)
                return f"{name} {rng.choice(OPS[:6])} {other}{second.sql}"
            case 12:
                flags = [prefix + c.sql for prefix, c in columns if c.kind == "boolean"]
                if flags:
                    return rng.choice(flags) + rng.choice(["", " IS TRUE", " IS NOT TRUE", " = false", " IS NOT FALSE"])
                return f"{name} IS {negated}DISTINCT FROM {self.constant(column)}"
        whole = [prefix + c.sql for prefix, c in columns if c.kind == "integer" and c.small]
        choices = ["TRUE", "FALSE", "1 = 1", "NULL", "2 > 3"]
        if whole:
            choices += [f"{rng.choice(whole)}::BIGINT + 1 > 3", f"abs({rng.choice(whole)}::BIGINT) % 3 = 1"] * 2
        return rng.choice(choices)

    def where(self, columns: list[tuple[str, Col]], chance: float = 0.85, depth: int = 2) -> str:
        return f" WHERE {self.condition(columns, depth)}" if self.rng.random() < chance else ""

    def order(self, count: int) -> str:
        """ORDER BY of all columns of an answer, in any order of them."""
        places = self.rng.sample(range(1, count + 1), count)
        ways = ["", " DESC", " NULLS FIRST", " DESC NULLS LAST"]
        return " ORDER BY " + ", ".join(f"{place}{self.rng.choice(ways)}" for place in places)

    def tail(self, count: int) -> tuple[str, bool]:
        """Perhaps an ORDER BY, and with it perhaps a LIMIT."""
        if self.rng.random() < 0.5:
            return "", False
        limit = self.rng.choice(["", " LIMIT 5", " LIMIT 3 OFFSET 2", " LIMIT 0", " OFFSET 1"])
        return self.order(count) + limit, True


def _comparable(left: Col, right: Col) -> bool:
    groups = (NUMBERS, ("date", "timestamp"), ("text", "category"), ("time",), ("boolean",))
    return any(left.kind in group and right.kind in group for group in groups)


# --- whole queries -------------------------------------------------------------------------------------


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
    pairs = [(a, b) for a in left.columns for b in right.columns if a.kind == b.kind and _comparable(a, b)]
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
