"""Views: a statement that reads one gets its text in front, and those that it reads before it."""

# ruff: noqa: S608  statements are made of parts here

import pytest

from scumble.errors import UnsupportedQuery
from scumble.sql.views import expanded, view_text

A = view_text("a", (), "SELECT x FROM t")
B = view_text("B", ("one", 'a "name"'), "SELECT x, x FROM a")
C = view_text("c", (), "WITH a AS (SELECT 1 AS x) SELECT x FROM a")
VIEWS = {"a": A, "b": B, "c": C}


def test_a_view_is_kept_as_it_stands_in_a_with() -> None:
    assert A == '"a" AS (\nSELECT x FROM t\n)'
    assert B == '"B" ("one", "a ""name""") AS (\nSELECT x, x FROM a\n)'
    assert view_text('q"', (), "SELECT 1") == '"q""" AS (\nSELECT 1\n)'


@pytest.mark.parametrize(
    ("text", "made"),
    [
        ("SELECT * FROM t", "SELECT * FROM t"),
        ("SELECT * FROM a", f"WITH {A}\nSELECT * FROM a"),
        ("SELECT * FROM A, a AS z", f"WITH {A}\nSELECT * FROM A, a AS z"),
        ("SELECT * FROM b", f"WITH {A}, {B}\nSELECT * FROM b"),
        ("SELECT * FROM c", f"WITH {C}\nSELECT * FROM c"),
        ("SELECT * FROM (SELECT x FROM a)", f"WITH {A}\nSELECT * FROM (SELECT x FROM a)"),
        ("WITH q AS (SELECT 1) SELECT * FROM a, q", f"WITH {A},\n q AS (SELECT 1) SELECT * FROM a, q"),
        ("with q AS (SELECT * FROM a) SELECT 1 FROM q", f"with {A},\n q AS (SELECT * FROM a) SELECT 1 FROM q"),
        ("WITH a AS (SELECT 1) SELECT * FROM a", "WITH a AS (SELECT 1) SELECT * FROM a"),
        ("SELECT * FROM other.a", "SELECT * FROM other.a"),
        ("SELECT * FROM x.main.a", "SELECT * FROM x.main.a"),
        ("SELECT * FROM range(3)", "SELECT * FROM range(3)"),
        ("SELECT a FROM t", "SELECT a FROM t"),
    ],
)
def test_views_that_are_read_stand_in_front(text: str, made: str) -> None:
    assert expanded(text, VIEWS) == made


def test_a_function_is_no_view_of_its_name() -> None:
    text = "SELECT * FROM range(3)"
    assert expanded(text, {"range": A, "": A}) == text


def test_without_views_nothing_is_read() -> None:
    assert expanded("SELECT FROM nothing that is SQL", {}) == "SELECT FROM nothing that is SQL"


def test_a_view_has_no_schema_and_no_recursive_reader() -> None:
    with pytest.raises(UnsupportedQuery, match="no schema"):
        expanded("SELECT * FROM main.a", VIEWS)
    recursive = "WITH RECURSIVE r AS (SELECT 1 AS n UNION ALL SELECT n + 1 FROM r) SELECT * FROM r"
    with pytest.raises(UnsupportedQuery, match="recursive"):
        expanded(f"{recursive}, a", VIEWS)
    assert expanded(recursive, VIEWS) == recursive
