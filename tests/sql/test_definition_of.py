"""Statements that define things, as they are read: by their tokens, since their types and options are Scumble's own."""

import pytest

from scumble.errors import BadQuery, QueryError, UnsupportedQuery
from scumble.sql.definitions import (
    AddedColumn,
    Definition,
    DroppedColumn,
    DroppedIndex,
    DroppedTable,
    DroppedView,
    NewColumn,
    NewIndex,
    NewTable,
    NewView,
    Reindexing,
    RenamedColumn,
    RenamedTable,
    TruncatedTable,
    definition_of,
)

DOMAIN = (("domain", "int:0:9"), ("epsilon", "1e-3"))


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("SELECT 1", None),
        ("INSERT INTO t VALUES (1)", None),
        ("create table T (a INT);", NewTable("T", (NewColumn("a", "INT"),))),
        (
            "CREATE TABLE IF NOT EXISTS main.t (\"a b\" text ( 20 ) NOT NULL, NULL_ decimal(9,2) NULL COMMENT 'it''s')",
            NewTable(
                "t",
                (NewColumn("a b", "text ( 20 )", nullable=False), NewColumn("NULL_", "decimal(9,2)", comment="it's")),
                if_not_exists=True,
            ),
        ),
        (
            "CREATE TABLE t (c category([\"NOT\",\"x,)\"]), e ENUM('a', 'b,c') NOT NULL, z timestamp with time zone)",
            NewTable(
                "t",
                (
                    NewColumn("c", 'category(["NOT","x,)"])'),
                    NewColumn("e", 'category(["a", "b,c"])', nullable=False),
                    NewColumn("z", "timestamp with time zone"),
                ),
            ),
        ),
        (
            "CREATE TABLE t (a integer) WITH (index = 'a int:0:9 epsilon=1', INDEX = 'b int:0:9 epsilon=1')",
            NewTable("t", (NewColumn("a", "integer"),), ("a int:0:9 epsilon=1", "b int:0:9 epsilon=1")),
        ),
        ("CREATE TABLE t AS SELECT 1 AS a -- so", NewTable("t", query="SELECT 1 AS a")),
        (
            "CREATE TABLE t WITH (index = 'a int:0:9 epsilon=1') AS FROM u",
            NewTable("t", (), ("a int:0:9 epsilon=1",), "FROM u"),
        ),
        ("DROP TABLE IF EXISTS t", DroppedTable("t", if_exists=True)),
        ("DROP TABLE main.t RESTRICT", DroppedTable("t")),
        ("TRUNCATE t", TruncatedTable("t")),
        ("TRUNCATE TABLE t", TruncatedTable("t")),
        ("ALTER TABLE t RENAME TO u", RenamedTable("t", "u")),
        ("ALTER TABLE t RENAME a TO b", RenamedColumn("t", "a", "b")),
        ('ALTER TABLE t RENAME COLUMN "A" TO "b c"', RenamedColumn("t", "A", "b c")),
        (
            "ALTER TABLE t ADD COLUMN a integer NOT NULL DEFAULT (1, 2)[1] + 3 COMMENT 'x'",
            AddedColumn("t", NewColumn("a", "integer", nullable=False, comment="x", default="(1, 2)[1] + 3")),
        ),
        (
            "ALTER TABLE t ADD IF NOT EXISTS a integer DEFAULT -5",
            AddedColumn("t", NewColumn("a", "integer", default="-5"), if_not_exists=True),
        ),
        ("ALTER TABLE t DROP COLUMN IF EXISTS a", DroppedColumn("t", "a", if_exists=True)),
        (
            "CREATE INDEX ON t (a) WITH (domain = 'int:0:9', epsilon = 1e-3)",
            NewIndex("t", "a", DOMAIN),
        ),
        (
            "CREATE INDEX IF NOT EXISTS i ON t (a) WITH (domain = 'int:0:9', epsilon = 1e-3)",
            NewIndex("t", "a", DOMAIN, if_not_exists=True),
        ),
        ("CREATE INDEX i ON t (a)", NewIndex("t", "a", ())),
        ("DROP INDEX a", DroppedIndex("a")),
        ("DROP INDEX IF EXISTS t.a", DroppedIndex("a", "t", if_exists=True)),
        ("REINDEX t", Reindexing("t")),
        ("REINDEX TABLE t (a) WITH (domain = 'int:0:9', epsilon = 1e-3)", Reindexing("t", "a", DOMAIN)),
        ("CREATE VIEW v AS SELECT ';' AS a", NewView("v", "SELECT ';' AS a")),
        ('CREATE VIEW IF NOT EXISTS v (a, "b c") AS SELECT 1, 2', NewView("v", "SELECT 1, 2", ("a", "b c"), True)),
        ("DROP VIEW v", DroppedView("v")),
    ],
)
def test_a_statement_is_read(text: str, found: Definition | None) -> None:
    assert definition_of(text) == found


@pytest.mark.parametrize(
    ("text", "error", "underlined"),
    [
        ("CREATE TABLE t (a integer", BadQuery, "integer"),
        ("CREATE TABLE t (a integer,)", BadQuery, ")"),
        ("CREATE TABLE t (a)", BadQuery, ")"),
        ("CREATE TABLE 'a.csv' (a integer)", BadQuery, "'a.csv'"),
        ("CREATE TABLE other.t (a integer)", UnsupportedQuery, "t"),
        ("CREATE TABLE t (a integer) more", BadQuery, "more"),
        ("CREATE TABLE t (a integer NOT)", BadQuery, "NOT"),
        ("CREATE TABLE t (b integer, a varchar NOT NULL)", UnsupportedQuery, "varchar"),
        ("CREATE TABLE t (a decimal(99,2), b integer)", BadQuery, "decimal(99,2)"),
        ("CREATE TABLE t (a bigserial)", UnsupportedQuery, "bigserial"),
        ("CREATE TABLE t (a integer COMMENT x)", BadQuery, "x"),
        ("CREATE TABLE t (a ENUM(b))", BadQuery, ")"),
        ("CREATE TABLE t (a integer) WITH (index)", BadQuery, ")"),
        ("CREATE TABLE t (a integer) WITH (index = )", BadQuery, ")"),
        ("CREATE TABLE t AS", BadQuery, "AS"),
        ("CREATE INDEX i t (a)", BadQuery, "t"),
        ("CREATE INDEX ON t", BadQuery, "t"),
        ("CREATE INDEX ON t (a) WITH (size = 3)", UnsupportedQuery, ")"),
        ("CREATE INDEX ON t (a) WITH (epsilon = 3, epsilon = 4)", BadQuery, ")"),
        ("CREATE INDEX ON t USING btree (a)", UnsupportedQuery, "btree"),
        ("CREATE VIEW v SELECT 1", BadQuery, "SELECT"),
        ("DROP", UnsupportedQuery, "DROP"),
        ("DROP TABLE a, b", BadQuery, ","),
        ("ALTER TABLE t", UnsupportedQuery, "t"),
        ("ALTER VIEW v RENAME TO w", BadQuery, "VIEW"),
        ("REINDEX t (a, b)", UnsupportedQuery, ")"),
        ("DROP TABLE t; DROP TABLE u", UnsupportedQuery, "DROP TABLE u"),
        ("DROP TABLE 't", BadQuery, ""),
        ("", BadQuery, ""),
    ],
)
def test_what_cannot_be_read_is_underlined(text: str, error: type[QueryError], underlined: str) -> None:
    with pytest.raises(error) as refused:
        definition_of(text)
    lines = refused.value.message.split("\n")
    if underlined:
        start, end = lines[2].index("^"), lines[2].rindex("^") + 1
        assert lines[1][start:end] == underlined
