"""The parts of random queries: constants near what a column holds, conditions, orders, in DuckDB's dialect.

An ORDER BY names every column of the answer, so that the answer's order is determined.
"""

import datetime
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from random import Random
from typing import Any

from e2e_tables import EPOCH, WORDS, Col

OPS = ["=", "<>", "<", "<=", ">", ">=", "!=", "=="]
NUMBERS = ("integer", "decimal", "float")
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
                alike = [pair for pair in columns if comparable(pair[1], column)]
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


def comparable(left: Col, right: Col) -> bool:
    """Whether DuckDB compares values of the one with those of the other."""
    groups = (NUMBERS, ("date", "timestamp"), ("text", "category"), ("time",), ("boolean",))
    return any(left.kind in group and right.kind in group for group in groups)
