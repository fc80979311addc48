"""Queries of every sort that DuckDB finishes: over the fetched rows and columns it answers as over the whole tables."""

import duckdb
import pytest
from sql_tables import catalog_of, duck, evaluate, finished, renamed, small_table

from scumble.sql import RowQuery, prepare
from scumble.wire.plan import columns_of

T = small_table()
U = renamed(T, "u")
CATALOG = catalog_of(T, U)

QUERIES = [
    "SELECT 'é😀', id, '$1', $$a;b$$ FROM t -- a comment about t\nWHERE n < 5 /* and t */ ORDER BY ALL",
    "SELECT * FROM t WHERE id < 5",
    "SELECT t.* FROM t JOIN u ON t.id = u.m WHERE u.id < 5 ORDER BY ALL",
    "SELECT * EXCLUDE (n) REPLACE (m + 1 AS m) FROM t WHERE id < 5 ORDER BY id",
    "SELECT COLUMNS('n|m') FROM t WHERE id < 5 ORDER BY id",
    "SELECT t FROM t WHERE id = 3",
    "SELECT a.id, b.id FROM t a, u b WHERE a.n = b.m AND a.id < 20 ORDER BY ALL",
    "SELECT count(*) FROM t NATURAL JOIN u",
    "SELECT id, u.n FROM t JOIN u USING (id) WHERE id < 7 ORDER BY ALL",
    "SELECT id FROM t FULL JOIN u USING (id) WHERE id < 7 AND u.n > 50 ORDER BY ALL",
    "SELECT a.id FROM t a ASOF JOIN u b ON a.id = b.m AND a.day >= b.day WHERE a.n < 50 ORDER BY ALL",
    "SELECT x.k FROM (SELECT id AS k, n FROM t WHERE n < 5) x WHERE x.n > 2 ORDER BY 1",
    "WITH a AS (SELECT id FROM t WHERE n > 90) SELECT 3",
    "WITH a AS (SELECT id, n FROM t WHERE n > 90), b AS (SELECT * FROM a WHERE id > 20) SELECT * FROM b ORDER BY ALL",
    "WITH t AS (SELECT id + 1000 AS id FROM t WHERE id < 3) SELECT id FROM t ORDER BY id",
    "WITH RECURSIVE r(k) AS (SELECT min(id) FROM t UNION ALL SELECT k + 1 FROM r WHERE k < 4) SELECT * FROM r, u "
    "WHERE u.id = r.k ORDER BY ALL",
    "SELECT id FROM t WHERE n = (SELECT max(n) FROM u WHERE u.wood = t.wood) ORDER BY id",
    "SELECT id, (SELECT count(*) FROM u WHERE u.n = t.n AND u.id < 50) AS c FROM t WHERE id < 9 ORDER BY id",
    "SELECT id FROM t WHERE n IN (SELECT m FROM u WHERE ok) AND NOT EXISTS (FROM u WHERE u.id = t.m) ORDER BY id",
    "SELECT id FROM t WHERE n > ALL (SELECT m FROM u WHERE id < 3 AND m IS NOT NULL) ORDER BY id",
    "SELECT id FROM t WHERE n = 1 UNION ALL SELECT m FROM u WHERE n = 2 ORDER BY 1",
    "(SELECT id FROM t WHERE n < 9 EXCEPT SELECT id FROM u WHERE m < 50) INTERSECT SELECT id FROM t ORDER BY 1",
    "SELECT wood, n, rank() OVER (PARTITION BY wood ORDER BY n, id) AS r FROM t QUALIFY r <= 2 ORDER BY ALL",
    "SELECT sum(n) OVER w FROM t WHERE id < 9 WINDOW w AS (ORDER BY id) ORDER BY ALL",
    "SELECT wood, count(*) FILTER (WHERE n > 50), median(n) FROM t GROUP BY wood ORDER BY ALL",
    "SELECT wood, ok, count(*) FROM t GROUP BY CUBE (wood, ok) ORDER BY ALL",
    "SELECT DISTINCT ON (wood) wood, id FROM t ORDER BY wood, id",
    "SELECT n + 1 AS k, k * 2 FROM t WHERE k < 5 ORDER BY ALL",
    "SELECT CASE WHEN n > 50 THEN 'hi' ELSE wood END AS c, count(*) FROM t GROUP BY c ORDER BY ALL",
    "FROM t SELECT id WHERE n < 5 ORDER BY id",
    "FROM t WHERE n < 5 ORDER BY id",
    "SELECT id, v FROM t, unnest([1, 2]) AS x(v) WHERE id < 3 ORDER BY ALL",
    "SELECT id, i FROM t, range(3) AS r(i) WHERE id < 2 ORDER BY ALL",
    "SELECT a.id, l.n FROM t a, LATERAL (SELECT max(n) AS n FROM u WHERE u.wood = a.wood) l WHERE a.id < 5 ORDER BY 1",
    "SELECT a.id FROM (t a JOIN u b ON a.id = b.m) LEFT JOIN t c ON c.id = b.n WHERE a.n < 30 ORDER BY ALL",
    "SELECT MAIN.T.ID, main.t.n FROM MAIN.T WHERE main.t.id < 4 ORDER BY 1",
    'SELECT "T"."id" FROM "T" WHERE "N" < 5 ORDER BY 1',
    "SELECT x.a FROM t AS x(a, b) WHERE b < 5 ORDER BY 1",
    "SELECT id FROM t WHERE (n, m) IN ((1, 2), (3, 4)) OR id = 5 ORDER BY 1",
    "SELECT list_transform([n], lambda e: e + id) FROM t WHERE id < 4 ORDER BY id",
    "SELECT [x FOR x IN [1, 2, 3] IF x > 1], id FROM t WHERE id = 1",
    "SELECT {'a': id, 'b': n}.a FROM t WHERE id < 3 ORDER BY 1",
    "SELECT strftime(day, '%Y'), date_trunc('month', moment), extract(dow FROM day) FROM t WHERE id < 20 ORDER BY ALL",
    "SELECT id FROM t WHERE name SIMILAR TO 'a.*' AND name ~ 'b' AND name GLOB 'a*' ORDER BY id",
    "SELECT id FROM t WHERE name = 'A' COLLATE NOCASE ORDER BY id",
    "SELECT id FROM t WHERE n = ANY ([1, 2, 3]) ORDER BY id",
    "SELECT id FROM t WHERE n IS NULL = ok ORDER BY id",
    "SELECT id FROM t WHERE NOT n = 3 IS NULL ORDER BY id",
    "SELECT n + 100 AS n FROM t WHERE n < 5 ORDER BY 1",
    "SELECT * FROM (PIVOT (SELECT wood, ok, n FROM t) ON ok USING sum(n)) ORDER BY ALL",
    "SELECT * FROM t PIVOT (sum(n) FOR ok IN (true, false) GROUP BY wood) ORDER BY ALL",
    "SELECT * FROM (SELECT id, n, m FROM t WHERE id < 3) UNPIVOT (v FOR k IN (n, m)) ORDER BY ALL",
    "SELECT id FROM t ORDER BY n NULLS LAST, id LIMIT 5 OFFSET 2",
    "SELECT id FROM t ORDER BY id LIMIT 10%",
    "SELECT count(*) FROM t, u WHERE t.ok",
    "SELECT min(x.n) FROM t x WHERE x.wood = 'oak' HAVING count(*) > 0",
    "SELECT wood w, sum(n) FROM t GROUP BY w HAVING w > 'b' ORDER BY sum(n) DESC",
    "SELECT a.id FROM t a LEFT JOIN u b ON a.id = b.m AND b.n > 20 WHERE coalesce(b.n, 0) < 30 ORDER BY ALL",
    "SELECT a.id FROM t a RIGHT JOIN u b ON a.id = b.m RIGHT JOIN t c ON c.id = b.id WHERE a.n > 3 ORDER BY ALL",
    "SELECT list_filter([1, 2, 3], lambda n: n > 1), id FROM t WHERE id < 3 ORDER BY id",
    "SELECT list_reduce([1, 2], lambda a, b: a + b), id FROM t WHERE n < 3 ORDER BY id",
    "SELECT id FROM t WHERE (SELECT true) AND id < 3 ORDER BY id",
    "SELECT id FROM t AS u WHERE u.n < 5 AND EXISTS (SELECT 1 FROM u AS t WHERE t.id = u.m) ORDER BY id",
    "SELECT t.id FROM t LEFT JOIN (SELECT m, n FROM u WHERE n > 50) s ON t.id = s.m WHERE s.n IS NULL ORDER BY ALL",
    "SELECT id FROM t WHERE CASE WHEN ok THEN n > 5 ELSE m > 5 END AND id < 30 ORDER BY id",
    "SELECT id FROM t WHERE coalesce(ok, true) AND n IN (1, 2, NULL, 3) ORDER BY id",
    "SELECT id FROM t WHERE id < 5 LIMIT (SELECT count(*) FROM u WHERE u.n < 3)",
    "SELECT DISTINCT wood FROM t WHERE n < 30 ORDER BY wood",
    "SELECT max(n), arg_max(id, n) IS NOT NULL FROM t WHERE wood LIKE '%a%'",
    "SELECT string_agg(wood, ',' ORDER BY id) FROM t WHERE n < 5",
    "SELECT count(*), count(DISTINCT wood) FROM t",
    "SELECT approx_count_distinct(wood) > 0, bool_and(ok), bit_xor(n) FROM t",
    "SELECT wood, grouping(wood) FROM t GROUP BY GROUPING SETS ((wood), ()) ORDER BY ALL",
    "SELECT any_value(wood) IS NULL, count(*) FROM t WHERE false",
    "SELECT wood, sum(n) FROM t GROUP BY wood ORDER BY sum(n) / count(*) DESC NULLS LAST LIMIT 2 OFFSET 1",
    "SELECT ok, count(*) c FROM t GROUP BY ok HAVING c > 3 AND ok IS NOT NULL ORDER BY c",
    "SELECT sum(n) s, s + 1 FROM t",
    "SELECT count(*) = 0 FROM t WHERE n > 1000",
    "SELECT sum(n), min(wood), 'x' || count(*) FROM t HAVING count(*) > 1000000",
    "SELECT id FROM t a SEMI JOIN u b ON a.id = b.m WHERE n < 50 ORDER BY id",
    "SELECT id FROM t a ANTI JOIN u b ON a.id = b.m AND b.n < 60 WHERE n < 50 ORDER BY id",
    # What is asked of a column is asked of those equal to it: of every pair, and never of one of another type.
    "SELECT a.id FROM t a JOIN u b ON a.id = b.id AND a.n = b.n AND a.n < 50 ORDER BY ALL",
    "SELECT a.id FROM t a, u b WHERE a.id = b.id AND a.n = b.n AND b.n < 50 AND a.id > 7 ORDER BY ALL",
    "SELECT a.id, b.id FROM t a JOIN u b ON a.moment = b.day AND b.day < '2020-01-04' ORDER BY ALL",
    "SELECT a.id, b.id FROM t a JOIN u b ON a.moment = b.day AND a.moment >= '2020-01-02' ORDER BY ALL",
    "SELECT a.id, c.id FROM t a, u b, t c WHERE a.n = b.m AND b.m = c.n AND a.n < 9 ORDER BY ALL",
    "SELECT a.id, c.id FROM t a, u b, t c WHERE a.n = b.n AND c.m = b.m AND b.m < 9 AND a.n < 9 ORDER BY ALL",
    "SELECT a.id, b.id FROM t a, u b WHERE a.n < b.n AND a.n < 10 AND b.id < 30 ORDER BY ALL",
    "SELECT a.id, b.id FROM t a JOIN u b ON a.n <> b.n AND a.n < 10 WHERE a.id = b.id + 1 ORDER BY ALL",
    "SELECT a.id FROM t a, u b WHERE a.n = a.m AND a.id = b.id AND a.n < 50 ORDER BY ALL",
    "SELECT id FROM t WHERE n BETWEEN m AND 50 ORDER BY id",
    "SELECT id FROM t WHERE n BETWEEN 10 AND m ORDER BY id",
    "SELECT id FROM t WHERE n NOT BETWEEN m AND id ORDER BY id",
    "SELECT id FROM t WHERE 30 BETWEEN n AND m ORDER BY id",
    "VALUES (1, 2), (3, 4)",
]


@pytest.fixture(scope="module")
def connection() -> duckdb.DuckDBPyConnection:
    return duck(T, U)


@pytest.mark.parametrize("sql", QUERIES, ids=[sql[:70].replace("\n", " ") for sql in QUERIES])
def test_the_same_answer(connection: duckdb.DuckDBPyConnection, sql: str) -> None:
    expected = connection.execute(sql)
    names, rows = [field[0] for field in expected.description or []], expected.fetchall()
    bound = prepare(sql, CATALOG, evaluate).bind()
    result = finished(connection, bound, {"t": T, "u": U})
    if isinstance(bound.query, RowQuery):  # the names of others are given back by the owner
        assert [field[0] for field in result.description or []] == names
    assert result.fetchall() == rows


def test_what_is_asked_of_one_table_is_asked_of_those_joined_to_it() -> None:
    """Over every equality, so that no table is read whole for want of a condition of its own."""
    sql = "SELECT a.id FROM t a, u b WHERE a.id = b.id AND a.n = b.m AND a.n < 50 AND b.id < 20"
    one, other = prepare(sql, CATALOG, evaluate).bind().accesses
    names = [column.name for column in T.table.schema]
    for access, columns in ((one, {"id", "n"}), (other, {"id", "m"})):
        assert {names[place] for place in columns_of(access.paths.predicate)} == columns
        assert access.attributes == ("id",)


def test_a_condition_that_nulls_pass_is_asked_of_a_table_that_no_join_fills_with_them() -> None:
    """And of the others not: a row that would be joined must not be held back."""
    alone, joined = (
        "SELECT id, name FROM t WHERE m IS NULL",
        "SELECT t.id FROM t LEFT JOIN u ON t.id = u.m WHERE u.m IS NULL",
    )
    (access,) = prepare(alone, CATALOG, evaluate).bind().accesses
    assert {T.table.schema.columns[place].name for place in columns_of(access.paths.predicate)} == {"m"}
    accesses = prepare(joined, CATALOG, evaluate).bind().accesses
    assert [columns_of(each.paths.predicate) for each in accesses] == [[], []]


@pytest.mark.parametrize(
    ("sql", "direct"),
    [
        ("SELECT * FROM t", True),
        ("SELECT * FROM t WHERE id < 5", True),
        ("SELECT id, n AS x FROM t WHERE n < 5", True),
        ("SELECT * EXCLUDE (n) FROM t", False),
        ("SELECT * REPLACE (m + 1 AS m) FROM t", False),
        ("SELECT id FROM t WHERE length(name) > 3", False),
        ("SELECT id + 1 FROM t WHERE n < 5", False),
        ("SELECT id FROM t WHERE n < 5 ORDER BY id", False),
    ],
)
def test_only_columns_by_exact_conditions_need_no_duckdb(sql: str, direct: bool) -> None:
    query = prepare(sql, CATALOG, evaluate).query
    assert isinstance(query, RowQuery)
    assert (query.direct is not None) is direct
