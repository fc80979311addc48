"""Statements that define things: what they make is what DuckDB makes of them, alone, in transactions and afterwards."""

# ruff: noqa: S608  statements are made of parts here

import json
import re
import shutil
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import Any

import clinics
import duckdb
import pyarrow as pa
import pytest
from clinics import Clinic, clinic
from databases import events

import scumble
from scumble.enclave import loads, pages, placing
from scumble.enclave.loads import Load
from scumble.errors import (
    BadQuery,
    BadRows,
    Exists,
    InvalidParameter,
    NotFound,
    Overdraft,
    QueryError,
    Refused,
    ScumbleError,
    Unavailable,
    Unfinished,
    UnsupportedQuery,
)
from scumble.owner.changing import ChangeReport
from scumble.owner.database import Database
from scumble.provider.front import Provider
from scumble.sql.explain_definitions import DefinitionExplanation
from scumble.store.backup import backup_to, restore_from
from scumble.store.files import FileStore
from scumble.store.transcript import comparable
from scumble.types import parse_domain
from scumble.wire.requests import (
    AddColumn,
    CreateTable,
    DropColumn,
    DropIndex,
    DropTable,
    RenameColumn,
    RenameTable,
    Request,
    SetTerms,
    SetView,
    Truncate,
)

__all__ = ["clinic"]

INDEXES = ("k int:0:99 epsilon=1", "amount decimal:0:100:0.25 epsilon=1")
TYPES = {"name": "text(20)", "k": "integer not null"}


def _rows(count: int = 60) -> pa.Table:
    places = [place * 37 % 100 for place in range(count)]
    return pa.table(
        {
            "k": pa.array(places, pa.int32()),
            "amount": pa.array([None if p % 9 == 4 else Decimal(p) / 4 for p in places], pa.decimal128(8, 2)),
            "name": pa.array([None if p % 7 == 3 else f"name {p}" for p in places]),
        }
    )


@pytest.fixture
def db(tmp_path: Path) -> Any:
    with scumble.create(tmp_path / "db", limit=100) as made:
        yield made


def _loaded(db: Database, indexes: Any = INDEXES, **more: Any) -> None:
    db.load("t", _rows(), indexes=indexes, types=TYPES, capacity=64, page_rows=16, **more)


def _all(db: Database, sql: str) -> list[tuple[Any, ...]]:
    return sorted(db.sql(sql).fetchall(), key=repr)


def _reference(*statements: str, load: bool = True) -> duckdb.DuckDBPyConnection:
    known = duckdb.connect(":memory:")
    if load:
        known.register("rows", _rows())
        known.execute("CREATE TABLE t AS SELECT k, amount, CAST(name AS VARCHAR) AS name FROM rows")
    for statement in statements:
        known.execute(statement)
    return known


def _same(db: Database, known: duckdb.DuckDBPyConnection, *queries: str) -> None:
    for query in queries:
        found = _all(db, query) == sorted(known.execute(query).fetchall(), key=repr)
        assert found, query


def _lived_through(db: Database, tmp_path: Path, known: duckdb.DuckDBPyConnection, *queries: str) -> None:
    """The same after all that a database may go through."""
    _same(db, known, *queries)
    db.check()
    db.close()
    with scumble.open(tmp_path / "db") as again:
        _same(again, known, *queries)
        again.rekey()
        _same(again, known, *queries)
        again.check()


# --- tables ------------------------------------------------------------------------------------------

CREATE = """CREATE TABLE IF NOT EXISTS visits (
    id bigint NOT NULL COMMENT 'whose', amount decimal(9,2), note varchar(12), ward enum('a', 'b'),
    colour category(["red","blue"]), day date, moment timestamp with time zone)
    WITH (index = 'id int:0:999 epsilon=0.5', index = 'amount decimal:0:100:0.25 epsilon=1 max_bytes=2048')"""


def test_a_table_is_created_filled_and_lives_on(db: Database, tmp_path: Path) -> None:
    assert db.execute(CREATE) == ChangeReport("CREATE TABLE", "visits", 0)
    assert db.execute(CREATE) == ChangeReport("CREATE TABLE", "visits", 0)  # IF NOT EXISTS
    table = db.table("visits")
    assert [column.declaration for column in table.schema] == [
        "bigint not null", "decimal(9,2)", "text(12)", 'category(["a", "b"])', 'category(["blue", "red"])', "date",
        "timestamp with time zone",
    ]  # fmt: skip
    assert table.terms == ("id int:0:999 epsilon=0.5", "amount decimal:0:100:0.25 epsilon=1 max_bytes=2048")
    assert table.comments == (("id", "whose"),)
    assert db.sql("SELECT count(*), max(note) FROM visits").fetchall() == [(0, None)]
    insert = "INSERT INTO visits VALUES (7, 2.5, 'twelve bytes', 'b', 'red', '2020-01-02', '2020-01-02 03:04:05+00')"
    db.execute(insert)
    with pytest.raises(BadRows, match="outside the domain"):
        db.execute("INSERT INTO visits (id) VALUES (1000)")
    known = _reference(
        "CREATE TABLE visits (id bigint, amount decimal(9,2), note varchar, ward varchar, colour varchar, day date)",
        "INSERT INTO visits VALUES (7, 2.5, 'twelve bytes', 'b', 'red', '2020-01-02')",
        load=False,
    )
    _lived_through(db, tmp_path, known, "SELECT id, amount, note, ward, colour, day FROM visits WHERE id = 7")
    with scumble.open(tmp_path / "db") as again:
        assert again.table("visits").terms == table.terms
        assert again.ledger.spent() == 0


def test_a_load_takes_the_terms_that_were_declared(db: Database) -> None:
    db.execute("CREATE TABLE t (k integer NOT NULL, name text(20)) WITH (index = 'k int:0:99 epsilon=0.5')")
    db.execute("INSERT INTO t VALUES (3, 'tail')")
    with pytest.raises(Exists, match="other indexes"):
        db.load("t", _rows().select(["k", "name"]), indexes=['name string:["m"] epsilon=1'], capacity=64)
    report = db.load("t", _rows().select(["k", "name"]), capacity=64, page_rows=16)
    assert report.indexes == ("k",)
    assert db.ledger.spent() == Fraction(1, 2)
    assert db.sql("SELECT count(*) FROM t WHERE k = 3").fetchall() == [(2,)]
    # In place of all rows, there may be more indexes than were declared, but those have to be among them.
    more = ["k int:0:99 epsilon=1", 'name string:["m"] epsilon=1']
    with pytest.raises(Exists, match="other indexes"):
        db.load("t", _rows(9).select(["k", "name"]), indexes=more[1:], capacity=64, page_rows=16, replace=True)
    report = db.load("t", _rows(9).select(["k", "name"]), indexes=more[::-1], capacity=64, page_rows=16, replace=True)
    assert report.indexes == ("k", "name")
    assert db.ledger.spent() == Fraction(5, 2)


@pytest.mark.parametrize(
    ("statement", "error", "said"),
    [
        ("CREATE TABLE x (a text)", UnsupportedQuery, "needs a length"),
        ("CREATE TABLE x (a text NOT NULL)", UnsupportedQuery, "needs a length"),
        ("CREATE TABLE x (a integer PRIMARY KEY)", UnsupportedQuery, "looking at the rows"),
        ("CREATE TABLE x (a integer UNIQUE)", UnsupportedQuery, "looking at the rows"),
        ("CREATE TABLE x (a integer, UNIQUE (a))", UnsupportedQuery, "looking at the rows"),
        ("CREATE TABLE x (a integer, PRIMARY KEY (a))", UnsupportedQuery, "looking at the rows"),
        ("CREATE TABLE x (a integer REFERENCES t (k))", UnsupportedQuery, "foreign key"),
        ("CREATE TABLE x (a integer, FOREIGN KEY (a) REFERENCES t (k))", UnsupportedQuery, "foreign key"),
        ("CREATE TABLE x (a integer CHECK (a > 1))", UnsupportedQuery, "CHECK"),
        ("CREATE TABLE x (a serial)", UnsupportedQuery, "numbered"),
        ("CREATE TABLE x (a integer GENERATED ALWAYS AS IDENTITY)", UnsupportedQuery, "work out"),
        ("CREATE TABLE x (a integer DEFAULT nextval('s'))", UnsupportedQuery, "DEFAULT"),
        ("CREATE OR REPLACE TABLE x (a integer)", UnsupportedQuery, "not replaced"),
        ("CREATE TEMP TABLE x (a integer)", UnsupportedQuery, "session"),
        ("CREATE TABLE x (a number)", BadQuery, "no such type"),
        ("CREATE TABLE x (a integer, A integer)", InvalidParameter, "the same name"),
        ("CREATE TABLE x ()", BadQuery, "not SQL"),
        ("CREATE TABLE x", BadQuery, "columns, or AS"),
        ("CREATE TABLE x (a integer) WITH (page = 3)", UnsupportedQuery, "no option"),
        ("CREATE TABLE x (a integer) WITH (index = 'b int:0:9 epsilon=1')", NotFound, "no column"),
        ("CREATE TABLE x (a integer) WITH (index = 'a int:0:9')", InvalidParameter, "does not read as an index"),
        ("CREATE TABLE x (a integer) WITH (index='a int:0:9 epsilon=1', index='a int:0:9 epsilon=2')",
         InvalidParameter, "twice"),
        ("CREATE TABLE x (a integer) WITH (index = 'a int:0:9 epsilon=1 hint=somewhere')", ScumbleError, "hint"),
        ("CREATE TABLE t (a integer)", Exists, "already"),
        ("CREATE TABLE x (a integer) AS SELECT 1", BadQuery, "columns, or AS"),
        ("CREATE SEQUENCE s", UnsupportedQuery, "numbered"),
        ("CREATE TRIGGER s", UnsupportedQuery, "comes or goes"),
        ("CREATE UNIQUE INDEX ON t (k) WITH (domain = 'int:0:9', epsilon = 1)", UnsupportedQuery, "unique"),
        ("CREATE INDEX ON t (k) WITH (domain = 'int:0:9', epsilon = 1)", Exists, "REINDEX"),
        ("CREATE INDEX ON t (name)", InvalidParameter, "a domain and an epsilon"),
        ("CREATE INDEX ON t (name, k) WITH (domain = 'int:0:9', epsilon = 1)", UnsupportedQuery, "one column"),
        ("CREATE INDEX ON nothing (k) WITH (domain = 'int:0:9', epsilon = 1)", NotFound, "no table"),
        ("CREATE INDEX ON t (nothing) WITH (domain = 'int:0:9', epsilon = 1)", NotFound, "no column"),
        ("REINDEX t (name) WITH (epsilon = 1)", NotFound, "no such index"),
        ("REINDEX t", InvalidParameter, "not declared"),
        ("REINDEX nothing", NotFound, "no table"),
        ("DROP INDEX nothing", NotFound, "no index"),
        ("DROP TABLE nothing", NotFound, "no table"),
        ("DROP VIEW nothing", NotFound, "no view"),
        ("DROP SCHEMA main", UnsupportedQuery, "cannot be dropped"),
        ("DROP TABLE t CASCADE", UnsupportedQuery, "rights"),
        ("TRUNCATE nothing", NotFound, "no table"),
        ("ALTER TABLE t DROP COLUMN k", Exists, "has an index"),
        ("ALTER TABLE t DROP COLUMN nothing", NotFound, "no column"),
        ("ALTER TABLE t RENAME COLUMN name TO k", Exists, "already"),
        ("ALTER TABLE t RENAME COLUMN k TO \"two words\"", InvalidParameter, "one word"),
        ("ALTER TABLE t RENAME TO \"two words\"", InvalidParameter, "a word"),
        ("ALTER TABLE t ADD COLUMN k integer", Exists, "already"),
        ("ALTER TABLE t ADD COLUMN more integer NOT NULL", UnsupportedQuery, "would be null"),
        ("ALTER TABLE t ADD COLUMN more tinyint DEFAULT 300", QueryError, "DuckDB"),
        ("ALTER TABLE t ADD COLUMN more text(3) DEFAULT 'four'", ScumbleError, "holds exactly"),
        ("ALTER TABLE t ADD COLUMN more integer DEFAULT random()", UnsupportedQuery, "chance"),
        ("ALTER TABLE t ALTER COLUMN k SET DATA TYPE bigint", UnsupportedQuery, "altered by"),
        ("CREATE VIEW v AS SELECT nothing FROM t", BadQuery, "no column"),
        ("CREATE VIEW v AS DELETE FROM t", UnsupportedQuery, "only queries"),
        ("CREATE VIEW v AS SELECT k FROM t WHERE k = ?", UnsupportedQuery, "parameters"),
        ("CREATE VIEW t AS SELECT 1 AS one", Exists, "already"),
        ("CREATE TABLE x AS SELECT upper(name) AS n FROM t LIMIT 5", UnsupportedQuery, "not declared"),
        ("CREATE TABLE x AS SELECT k + 1 AS n FROM t", UnsupportedQuery, "LIMIT"),
    ],
)  # fmt: skip
def test_what_cannot_be_defined_is_refused_and_changes_nothing(
    db: Database, statement: str, error: type[ScumbleError], said: str
) -> None:
    _loaded(db)
    version, spent = db.version, db.ledger.spent()
    with pytest.raises(error) as refused:
        db.execute(statement)
    assert said in str(refused.value)
    assert refused.value.hint or isinstance(refused.value, BadQuery) or "chance" in said
    assert (db.version, db.ledger.spent(), len(db.tables)) == (version, spent, 1)
    assert db.sql("SELECT count(*) FROM t").fetchall() == [(60,)]


def test_a_table_of_a_query_has_its_types_and_rows(db: Database, tmp_path: Path) -> None:
    _loaded(db)
    statements = [
        "CREATE TABLE few AS SELECT name AS who, k, k * 2 AS twice, CAST(k AS varchar(5)) AS text FROM t LIMIT 70",
        "CREATE TABLE whole AS SELECT * FROM t",
        "CREATE TABLE sums AS SELECT count(*) AS n, sum(amount) AS total FROM t",
        "CREATE TABLE made AS SELECT * FROM (VALUES (1, DATE '2020-01-01'), (2, NULL)) v(a, b)",
    ]
    for statement in statements:
        db.execute(statement)
    assert [column.declaration for column in db.table("few").schema][0::3] == ["text(20)", "text(5)"]
    assert db.table("few").capacity == 256
    known = _reference(*statements)
    assert db.ledger.spent() == 2
    _lived_through(db, tmp_path, known, *(f"SELECT * FROM {name}" for name in ("few", "whole", "sums", "made")))


def test_a_table_is_dropped_and_truncated(db: Database, tmp_path: Path) -> None:
    _loaded(db)
    db.execute("INSERT INTO t VALUES (1, 1, 'tail')")
    before = db.table("t").id
    assert db.execute("TRUNCATE TABLE t") == ChangeReport("TRUNCATE", "t", 0)
    assert db.sql("SELECT count(*) FROM t").fetchall() == [(0,)]
    assert db.table("t").id == before
    assert not list((tmp_path / "db").rglob("runs/*"))
    db.execute("INSERT INTO t VALUES (1, 1, 'more')")
    assert db.sql("SELECT name FROM t").fetchall() == [("more",)]
    db.execute("DROP TABLE t")
    db.execute("DROP TABLE IF EXISTS t")
    assert db.tables == ()
    assert db.ledger.spent() == 2


def test_rows_that_are_gone_do_not_make_later_ones_cheaper(db: Database) -> None:
    """Not even if the loader states, as it may, that no row is in the table yet."""
    _loaded(db)
    db.execute("TRUNCATE t")
    other = _rows(50)
    db.load("t", other, indexes=INDEXES, capacity=64, page_rows=16, new_rows=True)
    assert db.ledger.spent() == 4
    db.load("t", _rows(40), indexes=INDEXES, capacity=64, page_rows=16, replace=True)
    assert db.ledger.spent() == 6
    assert db.sql("SELECT count(*) FROM t").fetchall() == [(40,)]
    db.load("t", _rows(30), indexes=INDEXES, capacity=64, page_rows=16, new_rows=True)
    assert db.ledger.spent() == 8


def test_rows_are_replaced_in_one_version(db: Database, tmp_path: Path) -> None:
    _loaded(db)
    db.execute("INSERT INTO t VALUES (1, 1, 'tail')")
    db.execute("DELETE FROM t WHERE k < 50")
    versions = db.version
    db.load("t", _rows(20), indexes=INDEXES[1:], capacity=64, page_rows=16, replace=True)
    assert db.version == versions + 2  # the payment's, and one
    assert db.table("t").attributes == ("amount",)
    assert sorted(db.sql("SELECT k FROM t").fetchall()) == sorted((row["k"],) for row in _rows(20).to_pylist())
    # The same rows on the same terms are the same release, and stand in for whatever was changed since.
    db.execute("DELETE FROM t")
    spent = db.ledger.spent()
    for _ in range(2):
        db.load(
            "t", _rows(20), indexes=["amount decimal:0:100:0.25 epsilon=1"], capacity=64, page_rows=16, replace=True
        )
        assert db.sql("SELECT count(*) FROM t").fetchall() == [(20,)]
    assert db.ledger.spent() == spent
    db.check()
    with pytest.raises(BadRows):
        db.load("t", _rows(20), indexes=["k int:0:3 epsilon=1"], capacity=64, page_rows=16, replace=True)
    assert db.sql("SELECT count(*) FROM t").fetchall() == [(20,)]
    assert db.ledger.spent() == spent


# --- indexes -----------------------------------------------------------------------------------------


def _used(db: Database, sql: str) -> str:
    return str(db.explain(sql))


def test_an_index_is_made_of_the_rows_that_are_there(db: Database, tmp_path: Path) -> None:
    """Deleted rows are not among them, and those of the tail stay in it; what it costs adds to what was paid."""
    _loaded(db, INDEXES[:1])
    statements = [
        "DELETE FROM t WHERE k BETWEEN 10 AND 19",
        "INSERT INTO t VALUES (98, 7.5, 'in the tail')",
        "UPDATE t SET name = 'new' WHERE k < 5",
    ]
    for statement in statements:
        db.execute(statement)
    made = "CREATE INDEX by_amount ON t (amount) WITH (domain = 'decimal:0:100:0.25', epsilon = 0.5)"
    with pytest.raises(InvalidParameter, match="no part of a transaction"), db.transaction():
        db.execute(made)
    assert db.execute(made) == ChangeReport("CREATE INDEX", "t", _count(db) - 1)
    db.execute(made.replace("INDEX by", "INDEX IF NOT EXISTS by"))
    assert db.ledger.spent() == Fraction(3, 2)
    table = db.table("t")
    assert table.attributes == ("k", "amount")
    assert table.terms == ("amount decimal:0:100:0.25 epsilon=0.5",)
    assert "amount" in _used(db, "SELECT name FROM t WHERE amount < 1")
    known = _reference(*statements)
    queries = "SELECT * FROM t", "SELECT * FROM t WHERE amount BETWEEN 3 AND 9", "SELECT name FROM t WHERE k < 40"
    _same(db, known, *queries)
    # A further load has to say what the old index costs, and the new one is as it was declared.
    more = _rows(100).slice(60)
    db.load("t", more, indexes=INDEXES[:1], capacity=64, page_rows=16, new_rows=True)
    assert db.ledger.spent() == Fraction(3, 2)
    known.register("more", more)
    known.execute("INSERT INTO t SELECT * FROM more")
    db.execute("UPDATE t SET amount = amount + 1 WHERE k = 50")
    known.execute("UPDATE t SET amount = amount + 1 WHERE k = 50")
    _lived_through(db, tmp_path, known, *queries)


def _count(db: Database) -> int:
    return int(db.sql("SELECT count(*) FROM t").fetchall()[0][0])


def test_a_table_without_an_index_gets_one_in_place_of_its_only_copy(db: Database) -> None:
    _loaded(db, ())
    db.execute("CREATE INDEX ON t (k) WITH (domain = 'int:0:99', epsilon = 1)")
    table = db.table("t")
    assert table.attributes == ("k",)
    assert len(table.runs) == 1
    db.execute("CREATE INDEX ON t (amount) WITH (domain='decimal:0:100:0.25', epsilon=1, columns='amount,k')")
    assert [run.columns for run in db.table("t").runs] == [None, (0, 1)]
    _same(db, _reference(), "SELECT k FROM t WHERE amount < 3", "SELECT * FROM t WHERE amount < 3")
    db.execute("DROP INDEX t.k")
    assert [(run.attribute, run.columns, run.index is None) for run in db.table("t").runs] == [
        (None, None, True), ("amount", (0, 1), False),
    ]  # fmt: skip
    _same(db, _reference(), "SELECT k FROM t WHERE amount < 3", "SELECT * FROM t WHERE k < 30")
    db.load("t", _rows(100).slice(60), capacity=64, page_rows=16)
    assert _count(db) == 100
    db.execute("DROP INDEX amount")
    assert db.table("t").attributes == (None,)
    assert db.table("t").terms == ()
    db.check()


def test_the_same_index_made_twice_of_the_same_rows_is_the_same_release(db: Database) -> None:
    """What was released once is released again by the same noise, and costs nothing; other rows cost again."""
    _loaded(db, INDEXES[:1])
    made = "CREATE INDEX ON t (amount) WITH (domain = 'decimal:0:100:0.25', epsilon = 0.5)"
    db.execute(made)
    (first,) = (run.index for run in db.table("t").runs if run.attribute == "amount")
    db.execute("DROP INDEX t.amount")
    db.execute(made)
    assert [run.index for run in db.table("t").runs if run.attribute == "amount"] == [first]
    assert db.ledger.spent() == Fraction(3, 2)
    db.execute("DROP INDEX t.amount")
    db.execute("DELETE FROM t WHERE k = 37")
    db.execute(made)
    assert db.ledger.spent() == 2


def test_reindexing_spends_again_and_reclaims_dead_rows(db: Database, tmp_path: Path) -> None:
    _loaded(db)
    db.load("t", _rows(100).slice(60), indexes=INDEXES, capacity=64, page_rows=16, new_rows=True)
    assert db.ledger.spent() == 2
    known = _reference()
    known.register("more", _rows(100).slice(60))
    known.execute("INSERT INTO t SELECT * FROM more")
    for made in (db, known):
        made.execute("DELETE FROM t WHERE k < 90")
    assert db.execute("REINDEX t (k) WITH (epsilon = 0.5)") == ChangeReport("REINDEX", "t", 10)
    assert db.ledger.spent() == Fraction(5, 2)
    assert db.table("t").terms == ("k int:0:99 epsilon=0.5",)
    queries = "SELECT * FROM t", "SELECT * FROM t WHERE k > 95", "SELECT * FROM t WHERE amount > 23"
    _same(db, known, *queries)
    assert len([run for run in db.table("t").runs if run.attribute == "k"]) == 1
    (batches,) = (run.batches for run in db.table("t").runs if run.attribute == "k")
    assert batches[:2] == tuple(run.batch for run in db.table("t").runs if run.attribute == "amount")
    assert len(batches) == 3  # as they were loaded, the last one last
    db.execute("REINDEX t (k)")
    assert db.ledger.spent() == 3  # on the same terms, but of its own accord: another release
    db.execute("REINDEX t WITH (epsilon = 1)")
    assert db.ledger.spent() == 5
    assert [(run.attribute, run.has_dead) for run in db.table("t").runs] == [("amount", False), ("k", False)]
    with pytest.raises(Exists, match="in the table already"):
        db.load("t", _rows(), indexes=INDEXES, capacity=64, page_rows=16)
    _lived_through(db, tmp_path, known, *queries)


def test_reindexing_gives_room_back_if_that_is_paid_for(db: Database) -> None:
    """What was deleted, and a stream's dummies, leave room behind that only a release can tell anything of."""
    db.load("t", _rows(100), indexes=INDEXES, capacity=640, page_rows=16)
    db.execute("DELETE FROM t WHERE k >= 40")
    before, spent = db.table("t").capacity, db.ledger.spent()
    assert db.explain("REINDEX t WITH (epsilon = 1)").epsilon_charged == 2
    db.execute("REINDEX t WITH (epsilon = 1)")
    assert db.table("t").capacity >= before
    assert db.explain("REINDEX t WITH (epsilon = 1, capacity_epsilon = 0.5)").epsilon_charged == Fraction(5, 2)
    db.execute("REINDEX t WITH (epsilon = 1, capacity_epsilon = 0.5)")
    assert db.ledger.spent() == spent + 2 + Fraction(5, 2)
    assert db.table("t").capacity < before / 2
    assert db.sql("SELECT count(*), sum(k) FROM t").fetchall() == [(40, sum(range(40)))]
    assert db.sql("SELECT count(*) FROM t WHERE k > 20").fetchall() == [(19,)]
    with pytest.raises(UnsupportedQuery, match="no option 'capacity_epsilon'"):
        db.execute("CREATE INDEX ON t (name) WITH (domain = 'int:0:9', epsilon = 1, capacity_epsilon = 1)")


def test_another_device_counts_what_was_indexed_again(tmp_path: Path) -> None:
    """Its ledger knows none of the batches, which were stated to be new, and learns of them from the versions."""
    with scumble.create(tmp_path / "db", limit=100) as db:
        shutil.copy(tmp_path / "db.ledger", tmp_path / "elsewhere")
        _loaded(db, INDEXES[:1], new_rows=True)
        db.execute("REINDEX t (k) WITH (epsilon = 0.5)")
        db.execute("TRUNCATE t")
        db.load("t", _rows(50), indexes=INDEXES[:1], capacity=64, page_rows=16, new_rows=True)
        spent = db.ledger.spent()
        assert spent == Fraction(5, 2)
    shutil.copy(tmp_path / "elsewhere", tmp_path / "db.ledger")
    with scumble.open(tmp_path / "db") as db:
        assert db.ledger.spent() >= spent


def test_a_key_that_its_domain_lacks_is_not_told(db: Database) -> None:
    _loaded(db, INDEXES[:1])
    for domain in ("decimal:0:3:0.25", "decimal:0:100:1"):
        with pytest.raises(BadRows) as refused:
            db.execute(f"CREATE INDEX ON t (amount) WITH (domain = '{domain}', epsilon = 0.5)")
        assert not any(character.isdigit() for character in _but(str(refused.value), domain))
    db.execute("INSERT INTO t VALUES (1, 99.99, 'off the grid')")
    with pytest.raises(BadRows, match="amount"):
        db.execute("CREATE INDEX ON t (amount) WITH (domain = 'decimal:0:100:0.25', epsilon = 0.5)")
    assert db.ledger.spent() == 1
    assert db.table("t").attributes == ("k",)


def _but(text: str, domain: str) -> str:
    """A text without the domain and the number of a row."""
    return re.sub(r"row [0-9,]+", "", text.replace(domain, "")).replace(parse_domain(domain).label, "")


def test_an_index_that_the_ledger_cannot_pay_is_not_made(tmp_path: Path) -> None:
    with scumble.create(tmp_path / "db", limit=Fraction(5, 4)) as db:
        _loaded(db, INDEXES[:1])
        with pytest.raises(Overdraft):
            db.execute("CREATE INDEX ON t (amount) WITH (domain = 'decimal:0:100:0.25', epsilon = 0.5)")
        assert db.table("t").attributes == ("k",)
        assert db.ledger.spent() == 1


def test_an_index_is_declared_for_a_table_without_indexed_rows(db: Database) -> None:
    db.execute("CREATE TABLE t (k integer, name text(20))")
    db.execute("INSERT INTO t VALUES (5, 'x'), (12, 'y')")
    with pytest.raises(BadRows, match="outside the domain"):
        db.execute("CREATE INDEX ON t (k) WITH (domain = 'int:0:9', epsilon = 1)")
    with db.transaction():
        db.execute("CREATE INDEX i ON t (k) WITH (epsilon = 1, domain = 'int:0:19')")
    assert db.table("t").terms == ("k int:0:19 epsilon=1",)
    assert db.ledger.spent() == 0
    db.execute("CREATE INDEX IF NOT EXISTS i ON t (k) WITH (epsilon = 1, domain = 'int:0:19')")
    with pytest.raises(Exists):
        db.execute("CREATE INDEX i ON t (k) WITH (epsilon = 1, domain = 'int:0:19')")
    db.execute("DROP INDEX k")
    assert db.table("t").terms == ()


# --- columns -----------------------------------------------------------------------------------------

NARROW = ("k int:0:99 epsilon=1", "amount decimal:0:100:0.25 epsilon=1 columns=amount,k")


@pytest.mark.parametrize("indexes", [(), INDEXES, NARROW], ids=["none", "whole", "narrow"])
def test_columns_are_added_renamed_and_dropped(db: Database, tmp_path: Path, indexes: tuple[str, ...]) -> None:
    _loaded(db, indexes)
    statements = [
        "INSERT INTO t VALUES (1, 1, 'tail')",
        "DELETE FROM t WHERE k = 37",
        "ALTER TABLE t ADD COLUMN note varchar(9)",
        "ALTER TABLE t ADD COLUMN level smallint DEFAULT -3",
        "UPDATE t SET note = 'low' WHERE k < 20",
        "UPDATE t SET level = level + 1, amount = 2.5 WHERE k BETWEEN 5 AND 30",
        "INSERT INTO t (k, note, level) VALUES (2, 'late', 4)",
        "ALTER TABLE t RENAME COLUMN k TO key",
        "ALTER TABLE t RENAME COLUMN note TO remark",
        "ALTER TABLE t DROP COLUMN name",
        "DELETE FROM t WHERE key = 6",
        "UPDATE t SET remark = 'high' WHERE amount > 20",
    ]
    known = _reference()
    for statement in statements:
        db.execute(statement)
        known.execute(statement)
    assert [column.name for column in db.table("t").schema] == ["key", "amount", "remark", "level"]
    queries = (
        "SELECT * FROM t",
        "SELECT key, remark FROM t WHERE key < 9",
        "SELECT sum(level), count(remark) FROM t WHERE amount < 20",
    )
    _lived_through(db, tmp_path, known, *queries)
    assert b"remark" not in (tmp_path / "nothing").parent.name.encode()


def test_a_column_of_each_kind_is_added(db: Database, tmp_path: Path) -> None:
    _loaded(db)
    known = _reference()
    columns = {
        "a": ("bigint NOT NULL DEFAULT 7", "bigint DEFAULT 7"),
        "b": ("text(30) NOT NULL DEFAULT 'thirty'", "varchar DEFAULT 'thirty'"),
        "c": ("enum('x', 'y') DEFAULT 'y'", "varchar DEFAULT 'y'"),
        "d": ("decimal(30,2) DEFAULT 12345678901234567890.25", "decimal(30,2) DEFAULT 12345678901234567890.25"),
        "e": ("date DEFAULT DATE '2020-02-02' COMMENT 'when'", "date DEFAULT DATE '2020-02-02'"),
        "f": ("double", "double"),
        "g": ("boolean DEFAULT (1 < 2)", "boolean DEFAULT (1 < 2)"),
        "h": ("uuid DEFAULT '01234567-89ab-cdef-0123-456789abcdef'",) * 2,
    }
    for name, (ours, theirs) in columns.items():
        db.execute(f"ALTER TABLE t ADD COLUMN {name} {ours}")
        known.execute(f"ALTER TABLE t ADD COLUMN {name} {theirs}")
    db.execute("ALTER TABLE t ADD COLUMN IF NOT EXISTS a integer")
    assert db.table("t").comments == (("e", "when"),)
    _lived_through(db, tmp_path, known, "SELECT * FROM t", "SELECT k FROM t WHERE b = 'thirty' AND a = 7 AND f IS NULL")


def test_a_dropped_column_leaves_its_values_nowhere_in_the_new_version(db: Database, tmp_path: Path) -> None:
    """The runs are others, under other keys, and the old ones are deleted."""
    _loaded(db, NARROW)
    before = {run.id for run in db.table("t").runs}
    db.execute("ALTER TABLE t DROP COLUMN name")
    table = db.table("t")
    assert not before & {run.id for run in table.runs}
    assert {path.stem for path in (tmp_path / "db" / "runs").iterdir()} == {run.id for run in table.runs}
    # The narrow copy holds all columns now, and the one by k does too: no other is needed.
    assert table.copies == (("k", None), ("amount", None))
    db.execute("ALTER TABLE t DROP COLUMN IF EXISTS name")
    db.execute("DROP INDEX t.amount")
    db.execute("ALTER TABLE t DROP COLUMN amount")
    db.execute("DROP INDEX t.k")
    with pytest.raises(InvalidParameter, match="at least one column"):
        db.execute("ALTER TABLE t DROP COLUMN k")
    assert _count(db) == 60


def test_a_renamed_column_takes_its_terms_along(db: Database) -> None:
    db.execute(
        "CREATE TABLE t (k integer COMMENT 'key', a integer) WITH (index = 'k int:0:9 epsilon=1 columns=k', "
        "index = 'a int:0:9 epsilon=2')"
    )
    db.execute("ALTER TABLE t RENAME COLUMN k TO j")
    assert db.table("t").terms == ("j int:0:9 epsilon=1 columns=j", "a int:0:9 epsilon=2")
    assert db.table("t").comments == (("j", "key"),)
    db.execute("ALTER TABLE t RENAME COLUMN j TO J")
    db.execute("ALTER TABLE t RENAME TO T")
    assert db.table("t").name == "T"


def test_a_table_that_a_grant_names_keeps_its_name_and_analysts_define_nothing(clinic: Clinic) -> None:
    owner = clinic.owner
    owner.execute("CREATE VIEW v AS SELECT k FROM visits")
    owner.grant("ada", clinic.identity("ada"), {"visits": ["read", "load"]}, epsilon=5)
    with pytest.raises(Exists, match="a grant names the table"):
        owner.execute("ALTER TABLE visits RENAME TO calls")
    with clinic.analyst("ada") as ada:
        assert ada.views == {}
        for statement in ("DROP TABLE visits", "TRUNCATE visits", "CREATE TABLE u (a integer)", "REINDEX visits"):
            with pytest.raises(ScumbleError):
                ada.execute(statement)
        schema = ada.table("visits").schema
        asked: list[Request[Any]] = [
            Truncate("visits"), SetView("v", ""), RenameTable("visits", "u"), DropIndex("visits", "k"),
            DropTable("visits", within=True), CreateTable("u", "ab" * 16, schema), SetTerms("visits", ()),
            AddColumn("visits", schema, (0, 0)), DropColumn("visits", "v"), RenameColumn("visits", "v", "w"),
        ]  # fmt: skip
        for request in asked:
            with pytest.raises(Refused):
                ada._versions.session.ask(request)
        with pytest.raises(Refused):
            ada.load("visits", clinics.rows(5), indexes=clinics.INDEX, capacity=64, page_rows=16, replace=True)
    owner.execute("TRUNCATE visits")
    assert [grant.name for grant in owner.grants()] == ["ada"]
    owner.revoke("ada")
    owner.execute("ALTER TABLE visits RENAME TO calls")
    assert [table.name for table in owner.tables] == ["calls", "staff"]


def test_what_was_defined_is_kept_up_like_anything_else(db: Database, tmp_path: Path) -> None:
    """Flushed by the declared terms, merged and vacuumed, with columns and indexes that came later."""
    known = duckdb.connect(":memory:")
    both = [
        "CREATE TABLE t (k integer NOT NULL, name varchar(20))",
        "INSERT INTO t VALUES (1, 'a'), (2, 'b'), (50, 'c')",
        "ALTER TABLE t ADD COLUMN more integer DEFAULT 9",
        "DELETE FROM t WHERE k = 2",
    ]
    later = ["INSERT INTO t VALUES (7, 'late', 3)", "UPDATE t SET more = 4 WHERE k = 50", "DELETE FROM t WHERE k = 1"]
    queries = "SELECT * FROM t", "SELECT * FROM t WHERE k < 9", "SELECT k FROM t WHERE more > 3"
    for statement in both:
        known.execute(statement)
        db.execute(statement)
    db.execute("CREATE INDEX ON t (k) WITH (domain = 'int:0:99', epsilon = 1)")
    assert db.flush("t") is not None
    assert db.ledger.spent() == 1
    _same(db, known, *queries)
    db.execute("CREATE INDEX ON t (more) WITH (domain = 'int:0:99', epsilon = 1)")
    assert db.ledger.spent() == 2
    for statement in (*later, "ALTER TABLE t ADD COLUMN last varchar(3)", "UPDATE t SET last = 'x' WHERE k = 7"):
        known.execute(statement)
        db.execute(statement)
    db.flush("t")
    _same(db, known, *queries)
    db.compact("t")
    _same(db, known, *queries)
    db.vacuum("t")
    for statement in ("ALTER TABLE t DROP COLUMN name", "ALTER TABLE t RENAME COLUMN more TO less"):
        known.execute(statement)
        db.execute(statement)
    _lived_through(db, tmp_path, known, "SELECT * FROM t WHERE less < 50", "SELECT less FROM t WHERE k = 7")


# --- transactions ------------------------------------------------------------------------------------


def test_definitions_are_part_of_a_transaction_or_not_at_all(db: Database, tmp_path: Path) -> None:
    _loaded(db)
    version = db.version
    with db.transaction():
        db.execute("CREATE TABLE u (a integer)")
        db.execute("INSERT INTO u VALUES (1), (2)")
        db.execute("ALTER TABLE u ADD COLUMN b integer DEFAULT 5")
        db.execute("CREATE VIEW w AS SELECT a + b AS c FROM u")
        db.execute("ALTER TABLE u RENAME TO v")
        db.execute("DROP VIEW w")
        db.execute("CREATE VIEW w AS SELECT a + b AS c FROM v")
        db.execute("DROP TABLE t")
        assert _all(db, "SELECT c FROM w") == [(6,), (7,)]
        with scumble.open(tmp_path / "db") as other:
            assert [table.name for table in other.tables] == ["t"]
    assert db.version == version + 1
    assert _all(db, "SELECT c FROM w") == [(6,), (7,)]
    db.execute("BEGIN")
    db.execute("TRUNCATE v")
    db.execute("DROP VIEW w")
    db.execute("CREATE TABLE t (a integer)")
    db.execute("ALTER TABLE v DROP COLUMN a")
    assert _all(db, "SELECT * FROM v") == []
    db.execute("ROLLBACK")
    assert [table.name for table in db.tables] == ["v"]
    assert _all(db, "SELECT c FROM w") == [(6,), (7,)]
    with pytest.raises(NotFound):
        _dropped_twice(db)
    db.check()
    assert _all(db, "SELECT * FROM v") == [(1, 5), (2, 5)]


def _dropped_twice(db: Database) -> None:
    with db.transaction():
        db.execute("DROP TABLE v")
        db.execute("DROP TABLE v")


def test_a_statement_that_fails_in_a_transaction_leaves_nothing_of_itself(db: Database) -> None:
    _loaded(db)
    with db.transaction():
        with pytest.raises(BadRows):
            db.execute("CREATE TABLE u AS SELECT CAST(name AS varchar(2)) AS n FROM t LIMIT 70")
        assert [table.name for table in db.tables] == ["t"]
        db.execute("CREATE TABLE u (a integer)")
    assert [table.name for table in db.tables] == ["t", "u"]


def test_what_was_defined_is_in_a_backup_and_what_it_cost_is_not_forgotten(tmp_path: Path) -> None:
    statements = [
        "ALTER TABLE t ADD COLUMN more integer DEFAULT 3",
        "DELETE FROM t WHERE k > 70",
        "CREATE VIEW v AS SELECT k, more FROM t WHERE k < 9",
    ]
    with scumble.create(tmp_path / "db", limit=100) as db:
        _loaded(db, INDEXES[:1])
        for statement in (*statements, "CREATE INDEX ON t (more) WITH (domain = 'int:0:9', epsilon = 0.5)"):
            db.execute(statement)
        assert isinstance(db.service, Provider)
        backup_to(tmp_path / "backup", db.service.store)
        db.execute("DROP INDEX t.more")
        db.execute("ALTER TABLE t DROP COLUMN more")
        db.execute("DROP VIEW v")
        db.execute("REINDEX t WITH (epsilon = 2)")
        spent = db.ledger.spent()
        assert spent == Fraction(7, 2)
    shutil.rmtree(tmp_path / "db")
    restore_from(tmp_path / "backup", FileStore.restoring(tmp_path / "db"))
    with scumble.open(tmp_path / "db", accept_restored=True) as db:
        _same(db, _reference(*statements), "SELECT * FROM t", "SELECT * FROM v", "SELECT k FROM t WHERE more = 3")
        assert db.ledger.spent() == spent
        db.check()


# --- views -------------------------------------------------------------------------------------------


def test_views_stand_for_their_queries(db: Database, tmp_path: Path) -> None:
    _loaded(db)
    statements = [
        "CREATE VIEW low AS SELECT k, amount FROM t WHERE k < 50 -- not high\n",
        "CREATE VIEW named (who, what) AS SELECT name, t.k FROM t JOIN low ON t.k = low.k",
        "CREATE VIEW IF NOT EXISTS low AS SELECT 1",
    ]
    for statement in statements:
        db.execute(statement)
    known = _reference(*statements)
    queries = (
        "SELECT * FROM low WHERE amount > 3",
        "FROM named",
        "SELECT count(*), max(what) FROM named n WHERE n.who IS NOT NULL",
        "WITH t AS (SELECT 1 AS k) SELECT low.k FROM low JOIN t ON low.k > t.k",
        "WITH low AS (SELECT 5 AS k) SELECT k FROM low",
        "SELECT k FROM t WHERE k IN (SELECT what FROM named)",
        "(SELECT k FROM low) UNION (SELECT what FROM named)",
    )
    db.execute("INSERT INTO t SELECT k, amount, 'from a view' FROM low LIMIT 3", capacity=3)
    db.execute("DELETE FROM t WHERE name = 'from a view'")
    _lived_through(db, tmp_path, known, *queries)
    manifests = b"".join(path.read_bytes() for path in (tmp_path / "db" / "manifests").iterdir())
    assert b"named" not in manifests
    assert b"not high" not in manifests
    with scumble.open(tmp_path / "db") as again:
        assert sorted(again.views) == ["low", "named"]
        for refused, error in (
            ("SELECT nothing FROM low", BadQuery),
            ("SELECT * FROM main.low", UnsupportedQuery),
            ("WITH RECURSIVE r AS (SELECT 1 AS k) SELECT * FROM low, r", UnsupportedQuery),
        ):
            with pytest.raises(error):
                again.sql(refused)
        for refused in (
            "DELETE FROM low",
            "DROP TABLE low",
            "CREATE VIEW low AS SELECT 1",
            "CREATE TABLE low (a integer)",
        ):
            with pytest.raises(ScumbleError):
                again.execute(refused)
        again.execute("DROP VIEW low")
        again.execute("DROP VIEW IF EXISTS low")
        with pytest.raises(BadQuery, match="no table 'low'"):
            again.sql("SELECT * FROM named")


# --- what is seen, and what is lost ------------------------------------------------------------------


def test_explaining_a_definition_does_nothing(db: Database) -> None:
    _loaded(db)
    version = db.version
    for statement, said, epsilon in (
        ('CREATE TABLE u (a category(["x"]))', "the table u", 0),
        ("CREATE TABLE u AS SELECT k FROM t WHERE k < 5 LIMIT 3", "room for the rows", 0),
        ("CREATE INDEX ON t (name) WITH (domain = 'string:[\"m\"]', epsilon = 0.5)", "all pages of a copy", 0.5),
        ("REINDEX t WITH (epsilon = 2)", "all pages of a copy", 4),
        ("DROP INDEX t.k", "is gone", 0),
        ("DROP TABLE t", "pages of t are gone", 0),
        ("TRUNCATE t", "bytes\nepsilon charged", 0),
        ("CREATE TABLE u (a integer)", "reads 0 pages, 0 bytes; seals 0 pages, 0 bytes", 0),
        ("REINDEX t (k) WITH (epsilon = 2)", "pages for k, amount, name", 2),
        ("ALTER TABLE t ADD COLUMN a integer", "8 pages of it sealed", 0),
        ("ALTER TABLE t DROP COLUMN name", "sealed anew", 0),
        ("ALTER TABLE t RENAME COLUMN name TO who", "called who", 0),
        ("ALTER TABLE t RENAME TO u", "new name", 0),
        ("CREATE VIEW secret AS SELECT k FROM t", "something changed", 0),
    ):
        found = db.explain(statement)
        assert said in str(found)
        assert found.epsilon_charged == epsilon
        assert f"epsilon charged: {epsilon}" in str(found)
        assert "secret" not in json.dumps(found.to_json(), default=str)
    assert db.version == version
    assert db.ledger.spent() == 2


@pytest.mark.parametrize("statement", ["ALTER TABLE t ADD COLUMN a integer", "ALTER TABLE t DROP COLUMN name"])
def test_a_definition_reads_and_seals_what_was_explained(db: Database, statement: str) -> None:
    _loaded(db)
    db.execute("INSERT INTO t VALUES (98, 7.5, 'in the tail')")
    db.execute("DELETE FROM t WHERE k = 7")
    found = db.explain(statement)
    assert isinstance(found, DefinitionExplanation)
    before = events(db)[-1].number
    db.execute(statement)
    seen = [event for event in events(db) if event.number > before]
    done = [sum(int(event["bytes"]) for event in seen if event.kind == kind) for kind in ("read", "write")]
    assert done == [found.bytes_read, found.bytes_sealed]
    assert found.bytes_sealed > 0


HISTORY = (
    "ALTER TABLE t ADD COLUMN more integer NOT NULL DEFAULT 3",
    "DELETE FROM t WHERE k > 50",
    "CREATE INDEX ON t (more) WITH (domain = 'int:0:9', epsilon = 1)",
    "REINDEX t (more)",
    "ALTER TABLE t DROP COLUMN name",
    "CREATE VIEW v AS SELECT k FROM t",
    "CREATE TABLE u AS SELECT k, more FROM t LIMIT 300",
    "DROP INDEX t.more",
    "TRUNCATE t",
)


def test_what_the_provider_sees_of_definitions_does_not_depend_on_rows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Given the same indexes, whether all rows are alike, match or are there at all."""
    kept: dict[str, list[Any]] = {"placed": [], "keep_tally": []}
    replayed: dict[str, list[Any]] = {"placed": [], "keep_tally": []}

    def given(what: str, released: Any) -> Any:
        """What was released in the same place of the first history."""
        if replayed[what]:
            return replayed[what].pop(0)
        kept[what].append(released)
        return released

    place, keep = placing.placed, pages.keep_tally
    monkeypatch.setattr(loads, "placed", lambda index, *more, **o: place(given("placed", index), *more, **o))
    monkeypatch.setattr(loads, "keep_tally", lambda where, keys, data: keep(where, keys, given("keep_tally", data)))
    found = []
    for number, rows in enumerate([_rows(60), _rows(60).take([7] * 60), _rows(1)]):
        (tmp_path / str(number)).mkdir()
        with scumble.create(tmp_path / str(number) / "db", limit=100) as db:
            db.load("t", rows, indexes=INDEXES[:1], types=TYPES, capacity=64, page_rows=16)
            for statement in HISTORY:
                db.execute(statement)
            found.append(comparable(events(db)))
        replayed = {what: list(each) for what, each in kept.items()}
    same = found[0] == found[1] == found[2]
    assert same
    assert len(found[0]) > 100


@pytest.mark.parametrize("statement", ["CREATE INDEX ON t (amount)", "REINDEX t (k)"])
def test_an_index_that_was_lost_is_made_again_by_the_same_noise_and_paid_once(
    db: Database, monkeypatch: pytest.MonkeyPatch, statement: str
) -> None:
    _loaded(db, INDEXES[:1])
    domain = "int:0:99" if "(k)" in statement else "decimal:0:100:0.25"
    statement += f" WITH (domain = '{domain}', epsilon = 0.01)"
    original, released = Load.build, []

    def killed(load: Load, *more: Any) -> Any:
        runs = original(load, *more)
        released.append(tuple(run.index for run, _ in runs))
        if len(released) < 5:
            raise Unavailable("the enclave was killed", hint="connect again")
        return runs

    monkeypatch.setattr(Load, "build", killed)
    with pytest.raises(Unfinished, match="stays spent"):
        db.execute(statement)  # three tries of its own
    assert db.ledger.spent() == 1 + Fraction(1, 100)
    db.execute(statement)
    assert len(released) == 5
    assert len(set(released)) == 1
    assert db.ledger.spent() == 1 + Fraction(1, 100)
    _same(db, _reference(), "SELECT * FROM t", "SELECT * FROM t WHERE amount < 9 AND k < 40")
    db.check()
