"""What is refused when a statement is parsed and its names are looked up, and that the error underlines it."""

from typing import Any

import pytest
from sql_tables import catalog_of, evaluate, small_table
from sqlglot import exp

from scumble.errors import BadQuery, QueryError, UnsupportedQuery
from scumble.sql import RowQuery, prepare
from scumble.sql.forbidden import reads_clock
from scumble.sql.parse import _error_span, _reason, is_control, is_query, parse
from scumble.sql.spans import Span, _underlined, bad, edited

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
    assert isinstance(prepare(sql, CATALOG, evaluate).bind().query, RowQuery)


def test_a_query_nested_too_deeply() -> None:
    with pytest.raises(UnsupportedQuery, match="too deeply"):
        prepare("SELECT " + "(" * 5000 + "1" + ")" * 5000, CATALOG, evaluate)


def test_an_error_names_no_constant_of_its_own() -> None:
    with pytest.raises(UnsupportedQuery) as caught:
        prepare("SELECT id FROM t\nWHERE n = 12345\nORDER BY random()", CATALOG, evaluate)
    assert "12345" not in str(caught.value)


# --- spans -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "start", "stop", "line", "marks"),
    [
        ("abc", 0, 1, "abc", "^"),
        ("abc", 1, 3, "abc", " ^^"),
        ("abc", 1, 1, "abc", " ^"),
        ("abc", 2, 99, "abc", "  ^"),
        ("ab\ncd\nef", 3, 4, "cd", "^"),
        ("ab\ncd\nef", 4, 8, "cd", " ^"),
        ("ab\ncd\nef", 6, 8, "ef", "^^"),
        ("ab\ncd\nef", 0, 2, "ab", "^^"),
        ("\nab", 1, 2, "ab", "^"),
        ("\tb c", 1, 2, "\tb c", "\t^"),
        ("a\tb", 2, 3, "a\tb", " \t^"),
    ],
)
def test_the_line_that_a_span_begins_in_is_underlined(text: str, start: int, stop: int, line: str, marks: str) -> None:
    assert _underlined(text, Span(start, stop)) == f"\n  {line}\n  {marks}"
    assert _underlined(text, None) == ""
    assert bad(text, "wrong", Span(start, stop)).message == f"wrong\n  {line}\n  {marks}"


def test_edits_are_made_in_order_and_one_inside_of_another_is_dropped() -> None:
    text = "0123456789"
    edits = [(Span(8, 10), "y"), (Span(0, 2), "a"), (Span(2, 3), "b"), (Span(4, 7), "x"), (Span(4, 5), "z")]
    assert edited(text, edits) == "ab3x7y"
    assert edited(text, [(Span(5, 6), "lost"), (Span(3, 8), "kept")]) == "012kept89"
    assert edited(text, []) == text


@pytest.mark.parametrize(
    ("details", "span"),
    [
        ([], None),
        ([{"start_context": "SELECT ", "highlight": "FROM"}], Span(7, 11)),
        ([{"start_context": "", "highlight": "SELECT"}], Span(0, 6)),
        ([{"highlight": "SELECT"}, {"start_context": "SELECT ", "highlight": "FROM"}], Span(0, 6)),
        ([{"start_context": "x", "highlight": "SELECT"}], Span(10, 11)),
        ([{"start_context": "SELECT ", "highlight": ""}], Span(10, 11)),
        ([{}], Span(10, 11)),
    ],
)
def test_where_a_parser_s_error_is(details: list[dict[str, Any]], span: Span | None) -> None:
    """Where it cannot be found, at the last character."""
    assert _error_span("SELECT FROM  \n", details) == span
    if details:
        assert _error_span("", details) == Span(0, 0)


def test_a_parser_s_reason_is_told_without_its_place() -> None:
    told: list[dict[str, object]] = [{"description": "Required argument missing. <class x>"}, {"description": "More"}]
    assert _reason(told) == "required argument missing"
    nothing: list[list[dict[str, object]]] = [[], [{}], [{"description": None}], [{"description": " . "}]]
    for details in nothing:
        assert _reason(details) == "it cannot be parsed"


@pytest.mark.parametrize(
    ("sql", "calls"),
    [
        ("SELECT sum(n)", ["sum(n)"]),
        ("SELECT 1 + count(*), max(abs(n)) FROM t", ["max(abs(n))", "abs(n)", "count(*)"]),
        ("SELECT coalesce(min(n), 3)", ["coalesce(min(n), 3)", "min(n)"]),
    ],
)
def test_a_call_stands_from_its_name_to_its_parenthesis(sql: str, calls: list[str]) -> None:
    parsed = parse(sql)
    spans = [parsed.call_span(node) for node in parsed.tree.find_all(exp.Func)]
    assert sorted(sql[span.start : span.stop] for span in spans if span is not None) == sorted(calls)


@pytest.mark.parametrize(
    ("sql", "clauses"),
    [
        ("SELECT a, (b) FROM t", ["SELECT a, (b) ", "FROM t"]),
        ("FROM t SELECT a WHERE b;", ["FROM t ", "SELECT a ", "WHERE b"]),
        ("((SELECT a FROM t WHERE b = (c)))", ["SELECT a ", "FROM t ", "WHERE b = (c)"]),
        ("SELECT a IS DISTINCT FROM b FROM t", ["SELECT a IS DISTINCT FROM b ", "FROM t"]),
        (
            "SELECT x[1], {'a': 1} FROM t WHERE a GROUP BY b HAVING c ORDER BY d LIMIT 1 OFFSET 2 ;",
            [
                *("SELECT x[1], {'a': 1} ", "FROM t ", "WHERE a ", "GROUP BY b ", "HAVING c ", "ORDER BY d "),
                *("LIMIT 1 ", "OFFSET 2"),
            ],
        ),
        ("SELECT extract(year FROM d) FROM t QUALIFY a", ["SELECT extract(year FROM d) ", "FROM t ", "QUALIFY a"]),
    ],
)
def test_the_clauses_of_a_select_follow_each_other(sql: str, clauses: list[str]) -> None:
    spans = parse(sql).clause_spans()
    assert [sql[span.start : span.stop] for span in spans.values()] == clauses
    assert list(spans) == [clause.split(" ")[0] for clause in clauses]


# --- parameters and functions ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("sql", "keys", "named"),
    [
        ("SELECT ?, a + ?", [0, 1], "SELECT $1, a + $2"),
        ("SELECT $2, $1, $2", [1, 0, 1], "SELECT $2, $1, $2"),
        ("SELECT :low, $high WHERE a > :low", ["low", "high", "low"], "SELECT $low, $high WHERE a > $low"),
        ("SELECT a[1:2], x", [], "SELECT a[1:2], x"),
        ("SELECT '?', \"$1\", '$x' -- ?", [], "SELECT '?', \"$1\", '$x' -- ?"),
        ("SELECT $99999", [99998], "SELECT $99999"),
    ],
)
def test_parameters_are_told_from_what_looks_like_them(sql: str, keys: list[Any], named: str) -> None:
    parsed = parse(sql)
    assert [parameter.key for parameter in parsed.parameters] == keys
    assert parsed.sql == named


@pytest.mark.parametrize(
    "sql", ["SELECT $0", "SELECT $100000", "SELECT $٣", "SELECT ?, :a", "SELECT ?, $1", "SELECT :1, $b"]
)
def test_parameters_begin_at_one_and_are_of_one_kind(sql: str) -> None:
    with pytest.raises(BadQuery, match="parameter"):
        parse(sql)


def test_statements_end_with_any_number_of_semicolons() -> None:
    assert parse("SELECT 1 ;;").tree.sql() == "SELECT 1"
    for empty in ("", ";", " ;; ", "-- nothing"):
        with pytest.raises(BadQuery, match="there is no query"):
            parse(empty)


@pytest.mark.parametrize(
    ("expression", "does"), [("now()", True), ("n + 1", False), ("abs(n)", False), ("today()", True)]
)
def test_what_reads_the_clock_is_known(expression: str, does: bool) -> None:
    assert reads_clock(parse(f"SELECT {expression}").tree) is does


@pytest.mark.parametrize(
    ("rows", "after"),
    [
        ("SELECT a FROM u", ""),
        ("SELECT a FROM u JOIN v ON u.x = v.x", ""),
        ("VALUES (1), (2)", " ON CONFLICT (k) DO NOTHING"),
        ("SELECT a FROM u JOIN v ON u.x = v.x", " on conflict (k) DO NOTHING"),
    ],
)
def test_the_rows_of_an_insert_are_what_was_written(rows: str, after: str) -> None:
    parsed = parse(f"INSERT INTO t {rows}{after}", change=True)
    assert parsed.text_of(parsed.tree.expression) == rows


def test_a_query_in_parentheses_is_the_query() -> None:
    assert parse("((SELECT 1))").tree.key == "select"


def test_the_first_word_tells_queries_and_controls_apart() -> None:
    assert [is_query(text) for text in ("SELECT a", "DELETE FROM t", "", "'")] == [True, False, True, True]
    assert [is_control(text) for text in ("BEGIN TRANSACTION", "SELECT commit", "", "'")] == [True, False, False, False]


@pytest.mark.parametrize("name", ["read_anything", "pg_anything", "duckdb_anything"])
def test_functions_that_begin_like_those_of_the_system_are_refused(name: str) -> None:
    with pytest.raises(UnsupportedQuery, match="outside of the tables"):
        parse(f"SELECT {name}(1)")
