# ruff: noqa: S608 - SQL is what is tested here
"""Random SQL for the small table: conditions with their constants apart, so that each can also be a parameter."""

from typing import Any

from hypothesis import strategies as st

NUMBERS = ["0", "3", "50", "-1", "99", "2.5", "0.005", "-4.99", "1e2", "5e-1", "1000000000000", "NULL", "1 + 2", "'7'"]
DAYS = ["date '2020-01-05'", "'2020-02-01'", "date '2020-01-01' + interval '1' month", "date '2019-01-01'", "NULL"]
MOMENTS = ["timestamp '2020-01-02 03:00:00'", "'2020-01-03'", "timestamp '2020-01-01' + interval '7' hour", "NULL"]
WOODS = ["'ash'", "'birch'", "'elm'", "''", "NULL"]
NAMES = ["'a'", "'ab'", "'abcdefgh'", "'abcdefghi'", "''", "'é'", "'zebra crossing beyond'", "'zz'", "NULL"]
PATTERNS = ["'a%'", "'ab%'", "'%'", "'a_%'", "'abc'", "'%c%'", "'A%'", "''", "'c\\%%'", "'_irch'", "NULL"]
OPS = ["=", "<>", "<", "<=", ">", ">="]
COLUMNS = {
    **dict.fromkeys(["id", "n", "m", "price", "f"], NUMBERS),
    "day": DAYS,
    "moment": MOMENTS,
    "wood": WOODS,
    "name": NAMES,
}


@st.composite
def leaves(draw: Any, prefix: str = "") -> str:  # noqa: PLR0911 - one for each form
    column = draw(st.sampled_from(sorted(COLUMNS)))
    constant = st.sampled_from(COLUMNS[column])
    name = prefix + column
    match draw(st.integers(0, 11)):
        case 0 | 1 | 2:
            return f"{name} {draw(st.sampled_from(OPS))} {draw(constant)}"
        case 3:
            return f"{draw(constant)} {draw(st.sampled_from(OPS))} {name}"
        case 4:
            word = draw(st.sampled_from(["", "NOT "]))
            return f"{name} {word}BETWEEN {draw(constant)} AND {draw(constant)}"
        case 5:
            word = draw(st.sampled_from(["", "NOT "]))
            return f"{name} {word}IN ({', '.join(draw(st.lists(constant, min_size=1, max_size=4)))})"
        case 6:
            text = draw(st.sampled_from(["wood", "name"]))
            word = draw(st.sampled_from(["LIKE", "NOT LIKE", "ILIKE", "NOT ILIKE"]))
            return f"{prefix}{text} {word} {draw(st.sampled_from(PATTERNS))}"
        case 7:
            return f"{name} IS {draw(st.sampled_from(['', 'NOT ']))}NULL"
        case 8:
            return prefix + str(
                draw(st.sampled_from(["ok", "ok IS TRUE", "ok IS NOT TRUE", "ok IS FALSE", "ok = false"]))
            )
        case 9:
            word = draw(st.sampled_from(["", "NOT "]))
            return f"{name} IS {word}DISTINCT FROM {draw(constant)}"
        case 10:
            left, right = draw(
                st.sampled_from([("n", "m"), ("id", "n"), ("n", "price"), ("day", "moment"), ("m", "id")])
            )
            return f"{prefix}{left} {draw(st.sampled_from(OPS))} {prefix}{right}"
    others = [
        "TRUE",
        "FALSE",
        "NULL",
        f"length({prefix}name) > 2",
        f"{prefix}n + 1 > 30",
        f"{prefix}n BETWEEN {prefix}m AND {prefix}id",
    ]
    return str(draw(st.sampled_from(others)))


def conditions(prefix: str = "", leaf: st.SearchStrategy[str] | None = None) -> st.SearchStrategy[str]:
    def larger(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
        return st.one_of(
            st.lists(inner, min_size=2, max_size=3).map(lambda parts: "(" + " AND ".join(parts) + ")"),
            st.lists(inner, min_size=2, max_size=3).map(lambda parts: "(" + " OR ".join(parts) + ")"),
            inner.map(lambda part: f"NOT ({part})"),
            inner.map(lambda part: f"(({part}) IS TRUE)"),
            inner.map(lambda part: f"(({part}) IS NOT FALSE)"),
        )

    return st.recursive(leaf if leaf is not None else leaves(prefix), larger, max_leaves=6)


@st.composite
def joins(draw: Any) -> str:
    kinds = ["JOIN", "LEFT JOIN", "RIGHT JOIN", "FULL JOIN", "SEMI JOIN", "ANTI JOIN"]
    first, second = draw(st.sampled_from(kinds)), draw(st.sampled_from([*kinds[:4], None]))
    visible = ["a."] if first in kinds[4:] else ["a.", "b."]
    either = conditions(leaf=st.one_of(leaves("a."), leaves("b.")))
    sql = f"SELECT {', '.join(alias + 'id' for alias in visible)} FROM t a {first} t b ON a.n = b.m AND {draw(either)}"
    if second is not None:
        source = conditions(leaf=st.one_of(*[leaves(alias) for alias in [*visible, "c."]]))
        sql += f" {second} u c ON a.id = c.id AND {draw(source)}"
        visible.append("c.")
    where = conditions(leaf=st.one_of(*[leaves(alias) for alias in visible]))
    return f"{sql} WHERE {draw(where)}" if draw(st.booleans()) else sql


AGGREGATES = [
    "count(*)", "count(n)", "sum(n)", "avg(n)", "min(price)", "max(day)", "min(name)", "max(wood)",
    "sum(price * (1 - price))",
    "sum(n * 2.5 - price)", "min(n * m)", "max(-price)", "var_samp(n)", "stddev(price)", "sum(m) * 2", "avg(price * n)",
    "count(*) + sum(n)", "var_pop(m)", "min(ok)", "sum(n + 0.125)", "round(avg(n), 2)",
]  # fmt: skip


@st.composite
def aggregations(draw: Any) -> str:
    groups = draw(st.lists(st.sampled_from(["wood", "ok"]), unique=True, max_size=2))
    items = draw(st.lists(st.sampled_from(AGGREGATES), min_size=1, max_size=4))
    sql = f"SELECT {', '.join([*groups, *items])} FROM t"
    if draw(st.booleans()):
        sql += f" WHERE {draw(conditions())}"
    if groups:
        sql += " GROUP BY " + draw(st.sampled_from([", ".join(groups), "ALL", ", ".join("12"[: len(groups)])]))
    if draw(st.booleans()):
        sql += f" HAVING {draw(st.sampled_from(['count(*) > 3', 'sum(n) > 100 OR sum(n) IS NULL', 'min(m) < 5']))}"
    return sql
