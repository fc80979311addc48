"""What is refused when a statement is parsed and its names are looked up, and that the error underlines it."""

import pytest
from sql_tables import catalog_of, evaluate, small_table

from scumble.errors import BadQuery, QueryError, UnsupportedQuery
from scumble.sql import prepare

CATALOG = catalog_of(small_table())

REFUSED = [
    ("INSERT INTO t VALUES (1)", UnsupportedQuery, "INSERT"),
    ("UPDATE t SET n = 1", UnsupportedQuery, "UPDATE"),
    ("DELETE FROM t", UnsupportedQuery, "DELETE"),
    ("CREATE TABLE x AS SELECT 1", UnsupportedQuery, "CREATE"),
    ("COPY t TO 'x.csv'", UnsupportedQuery, "COPY"),
    ("ATTACH 'x.db'", UnsupportedQuery, "ATTACH"),
    ("PRAGMA database_list", UnsupportedQuery, "PRAGMA"),
    ("SET threads = 1", UnsupportedQuery, "SET"),
    ("CALL pragma_version()", UnsupportedQuery, "CALL"),
    ("EXPLAIN SELECT 1", UnsupportedQuery, "EXPLAIN"),
    ("SELECT 1; SELECT 2", UnsupportedQuery, "SELECT 2"),
    ("SELECT * FROM read_csv('x')", UnsupportedQuery, "read_csv('x'"),
    ("SELECT * FROM glob('*')", UnsupportedQuery, "glob('*'"),
    ("SELECT * FROM duckdb_tables()", UnsupportedQuery, "duckdb_tables"),
    ("SELECT * FROM information_schema.tables", UnsupportedQuery, "information_schema.tables"),
    ("SELECT random() FROM t", UnsupportedQuery, "random"),
    ("SELECT id FROM t ORDER BY random()", UnsupportedQuery, "random"),
    ("SELECT uuid()", UnsupportedQuery, "uuid"),
    ("SELECT getenv('HOME')", UnsupportedQuery, "getenv('HOME'"),
    ("SELECT nextval('s')", UnsupportedQuery, "nextval('s'"),
    ("SELECT current_setting('threads')", UnsupportedQuery, "current_setting('threads'"),
    ("SELECT * FROM query('SELECT 1')", UnsupportedQuery, "query('SELECT 1'"),
    ("SELECT id FROM t TABLESAMPLE 10%", UnsupportedQuery, "t TABLESAMPLE 10"),
    ("SELECT rowid FROM t", UnsupportedQuery, "rowid"),
    ("SELECT * FROM t a POSITIONAL JOIN t b", UnsupportedQuery, "t b"),
    ("WITH x AS (DELETE FROM t RETURNING *) SELECT * FROM x", UnsupportedQuery, None),
    ("SELECT id FROM t FOR UPDATE", UnsupportedQuery, None),
    ("SELECT id FROM tt", BadQuery, "tt"),
    ("SELECT id\nFROM t,\n  missing", BadQuery, "missing"),
    ("SELECT * FROM 'file.csv'", BadQuery, "'file.csv'"),
    ("SELECT nn FROM t", BadQuery, "nn"),
    ("SELECT a.x FROM t a", BadQuery, "a.x"),
    ("SELECT id FROM t WHERE EXISTS (SELECT 1 FROM t b WHERE b.id = zzz)", BadQuery, "zzz"),
    ("SELECT id FROM t WHERE n = ) 3", BadQuery, ")"),
    ("SELECT 'abc", BadQuery, None),
    ("", BadQuery, None),
    ("SELECT ?, $1", BadQuery, "$1"),
]


@pytest.mark.parametrize(("sql", "error", "part"), REFUSED, ids=[sql[:50] for sql, _, _ in REFUSED])
def test_refused_and_underlined(sql: str, error: type[QueryError], part: str | None) -> None:
    with pytest.raises(error) as caught:
        prepare(sql, CATALOG, evaluate)
    if part is None:
        return
    *_, line, marks = caught.value.message.splitlines()
    start = marks.index("^")
    assert line[start : start + marks.count("^")] == part


@pytest.mark.parametrize(
    ("sql", "hint"),
    [("SELECT nam FROM t", "did you mean 'name'?"), ("SELECT 1 FROM T2", "did you mean 't'?")],
)
def test_a_close_name_is_suggested(sql: str, hint: str) -> None:
    with pytest.raises(BadQuery) as caught:
        prepare(sql, CATALOG, evaluate)
    assert caught.value.hint is not None
    assert hint in caught.value.hint


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT n + 1 AS k FROM t WHERE k > 3",
        "SELECT x.id FROM (SELECT id FROM t) x",
        "SELECT k FROM t, (SELECT 1 AS k)",
        "SELECT unnest([1, 2]) AS v FROM t ORDER BY v",
        "SELECT list_transform([1], e -> e + 1) FROM t",
        "SELECT t.id FROM t WHERE (SELECT max(b.n) FROM t b WHERE b.id = t.id) > 3",
        "SELECT * FROM range(3)",
        "SELECT id FROM t ORDER BY ALL",
        "SELECT extract(year FROM day), date_trunc('month', day) FROM t",
        "WITH RECURSIVE r(k) AS (SELECT 1 UNION ALL SELECT k + 1 FROM r WHERE k < 3) SELECT k FROM r",
        "SELECT MAIN.T.ID FROM MAIN.T",
        'SELECT "id", "T"."N" FROM "T"',
    ],
)
def test_not_refused(sql: str) -> None:
    prepare(sql, CATALOG, evaluate).bind()


def test_a_query_nested_too_deeply() -> None:
    with pytest.raises(UnsupportedQuery, match="too deeply"):
        prepare("SELECT " + "(" * 5000 + "1" + ")" * 5000, CATALOG, evaluate)


def test_an_error_names_no_constant_of_its_own() -> None:
    with pytest.raises(UnsupportedQuery) as caught:
        prepare("SELECT id FROM t\nWHERE n = 12345\nORDER BY random()", CATALOG, evaluate)
    assert "12345" not in str(caught.value)
