"""Which columns of a table a query can read: names in subqueries mean the nearest table that has them."""

import pytest
from sql_tables import Loaded, catalog_of, evaluate, load

from scumble.sql import RowQuery, prepare
from scumble.types import Column, Schema, parse_type


def table(name: str, *columns: str) -> Loaded:
    return load(name, Schema(tuple(Column(column, parse_type("integer"), True) for column in columns)), [], {})


CATALOG = catalog_of(table("t", "id", "n", "m", "k"), table("v", "id", "extra", "n"), table("w", "id", "other"))


def read(sql: str) -> dict[str, list[str]]:
    query = prepare(sql, CATALOG, evaluate).query
    assert isinstance(query, RowQuery)
    return {
        fetch.table.name: [fetch.table.schema.columns[place].name for place in fetch.columns] for fetch in query.fetches
    }


@pytest.mark.parametrize(
    ("sql", "expected"),
    [
        # a name that the subquery's table has is that table's, any other one the outer table's
        ("SELECT k FROM t WHERE EXISTS (SELECT 1 FROM v WHERE extra = n)", {"t": ["k"], "v": ["extra", "n"]}),
        ("SELECT k FROM t WHERE EXISTS (SELECT 1 FROM v WHERE extra = m)", {"t": ["m", "k"], "v": ["extra"]}),
        ("SELECT k FROM t WHERE EXISTS (SELECT 1 FROM v WHERE EXTRA = M)", {"t": ["m", "k"], "v": ["extra"]}),
        # a qualified one is what it says
        ("SELECT k FROM t WHERE EXISTS (SELECT 1 FROM v WHERE extra = t.n)", {"t": ["n", "k"], "v": ["extra"]}),
        ("SELECT k FROM t WHERE EXISTS (SELECT 1 FROM v WHERE v.n = T.m)", {"t": ["m", "k"], "v": ["n"]}),
        ("SELECT t.k FROM t JOIN v ON t.id = v.id WHERE v.n > t.m", {"t": ["id", "m", "k"], "v": ["id", "n"]}),
        # of two tables in the subquery it is enough that one has it
        (
            "SELECT k FROM t WHERE EXISTS (SELECT 1 FROM v, w WHERE extra = other AND n = 3)",
            {"t": ["k"], "v": ["extra", "n"], "w": ["other"]},
        ),
        # and of two subqueries inside of each other, that one of them has
        (
            "SELECT k FROM t WHERE EXISTS (SELECT 1 FROM v WHERE EXISTS (SELECT 1 FROM w WHERE other = n))",
            {"t": ["k"], "v": ["n"], "w": ["other"]},
        ),
        (
            "SELECT k FROM t WHERE EXISTS (SELECT 1 FROM w WHERE EXISTS (SELECT 1 FROM v WHERE extra = other + m))",
            {"t": ["m", "k"], "w": ["other"], "v": ["extra"]},
        ),
        # names of a table that are given anew hide nothing for sure
        (
            "SELECT k FROM t WHERE EXISTS (SELECT 1 FROM v AS x(a, b, c) WHERE a = n)",
            {"t": ["n", "k"], "v": ["id", "extra", "n"]},
        ),
        # what is no table of the database hides nothing either
        ("SELECT k FROM t WHERE (SELECT max(x) FROM (VALUES (1)) AS q(x) WHERE x > m) > 0", {"t": ["m", "k"]}),
    ],
)
def test_columns_that_a_query_may_read(sql: str, expected: dict[str, list[str]]) -> None:
    assert read(sql) == expected
