"""Definitions inside the enclave: what tables, columns, indexes and views become of them, and what is refused."""

from dataclasses import replace
from fractions import Fraction
from typing import Any

import pytest
from changed_tables import opened, stored, with_run
from enclave_tables import MemoryStorage, table_of

from scumble.enclave import definitions
from scumble.enclave.definitions import define
from scumble.enclave.dummies import Dummies
from scumble.enclave.pages import keep_tally
from scumble.enclave.versions import OpenVersion
from scumble.errors import Exists, InvalidParameter, NotFound
from scumble.types import Column, Schema, parse_type
from scumble.wire.catalog import Run, Table
from scumble.wire.grants import Grant
from scumble.wire.requests import (
    AddColumn,
    CreateTable,
    DropColumn,
    DropIndex,
    RenameColumn,
    RenameTable,
    SetTerms,
    SetView,
    Truncate,
)

ROWS, PAGE_ROWS = 48, 16
WHOLE = Run("01" * 16, "ba" * 16, "c0", ROWS, PAGE_ROWS, b"an index", ())
NARROW = Run("02" * 16, "ba" * 16, "c1", ROWS, PAGE_ROWS, b"another", (), (0, 1))
TAIL = Run("03" * 16, "bb" * 16, None, 16, PAGE_ROWS, None, (), tail=True)
LOADED = Run("04" * 16, "ba" * 16, None, ROWS, PAGE_ROWS, None, ())


def rows(count: int, *places: int) -> list[tuple[Any, ...]]:
    return [tuple((100 * key + place,) if (key + place) % 5 else None for place in places) for key in range(count)]


def table_with(storage: MemoryStorage, *runs: Run) -> Table:
    table = table_of("integer", "integer", "integer")
    for run in runs:
        table = with_run(storage, table, run, rows(run.capacity, *(table.held(run))))
    return replace(table, terms=("c0 int:0:9", "c1 int:0:9"), comments=(("c0", "first"), ("c2", "last")))


def version_with(*runs: Run) -> OpenVersion:
    storage = MemoryStorage()
    made = opened(storage, table_with(storage, *runs), replace(table_of("integer"), id="cd" * 16, name="Other"))
    for run in runs:
        made.manifest.dummies[run.id] = Dummies.after(run.capacity - 3)
    return made


def has(version: OpenVersion) -> list[list[tuple[Any, ...]]]:
    """The rows of each run."""
    table = version.catalog.table("t")
    return [[row for _, row in stored(version.storage, table, run)] for run in table.runs]  # type: ignore[arg-type]


def refused(version: OpenVersion, request: Any, error: type[Exception], match: str | None = None) -> None:
    with pytest.raises(error, match=match):
        define(version, request)


@pytest.fixture
def version() -> OpenVersion:
    return version_with(WHOLE, NARROW, TAIL)


# --- tables ----------------------------------------------------------------------------------------

NEW = CreateTable("fresh", "ef" * 16, table_of("integer").schema, ("c0 int:0:9",), (("c0", "said"),))


def test_a_table_is_made_without_rows(version: OpenVersion) -> None:
    table = define(version, NEW).catalog.table("FRESH")
    assert (table.id, table.name, table.runs, table.terms, table.comments) == (
        NEW.table_id,
        "fresh",
        (),
        NEW.terms,
        NEW.comments,
    )
    assert len(define(version, NEW).catalog.tables) == 3


@pytest.mark.parametrize(
    ("changes", "error"),
    [
        ({"table": "a b"}, InvalidParameter),
        ({"table": ""}, InvalidParameter),
        ({"table": "a" * 65}, InvalidParameter),
        ({"table": "T"}, Exists),
        ({"table": "other"}, Exists),
        ({"table": "SEEN"}, Exists),
        ({"table_id": "ef" * 15}, InvalidParameter),
        ({"table_id": "EF" * 16}, InvalidParameter),
        ({"table_id": "ef" * 16 + "0"}, InvalidParameter),
        ({"table_id": "ab" * 16}, InvalidParameter),
        ({"terms": ("c7 int:0:9",)}, InvalidParameter),
        ({"terms": ("c0 int:0:9", "c0 int:0:8")}, InvalidParameter),
        ({"comments": (("c7", "nothing"),)}, InvalidParameter),
    ],
)
def test_a_table_that_cannot_be_is_not_made(
    version: OpenVersion, changes: dict[str, Any], error: type[Exception]
) -> None:
    refused(version.viewing("Seen", '"Seen" AS (SELECT 1)'), replace(NEW, **changes), error)


def test_names_of_64_letters_are_taken(version: OpenVersion) -> None:
    assert "a" * 64 in define(version, replace(NEW, table="a" * 64)).catalog


def test_a_database_that_nobody_has_signed_is_not_defined_further() -> None:
    refused(opened(MemoryStorage(), table_of("integer"), signed=False), NEW, InvalidParameter, "not signed")


def test_a_table_is_truncated_and_keeps_its_columns(version: OpenVersion) -> None:
    before, table = version.catalog.table("t"), define(version, Truncate("T")).catalog.table("t")
    assert (table.runs, table.schema, table.terms, table.comments) == ((), before.schema, before.terms, before.comments)


def test_a_table_is_renamed_where_no_grant_names_it(version: OpenVersion) -> None:
    made = define(version, RenameTable("t", "u")).catalog
    assert [table.name for table in made.tables] == ["Other", "u"]
    assert define(version, RenameTable("t", "T")).catalog.table("t").name == "T"
    refused(version, RenameTable("t", "other"), Exists)
    refused(version, RenameTable("t", "a b"), InvalidParameter)
    for named in ("t", "u"):
        grant = Grant("a" * 16, "ada", b"a" * 32, {named: frozenset(["read"])}, Fraction(0))
        shared = opened(MemoryStorage(), version.catalog.table("t"), grant=grant)
        refused(replace(shared, grant=None), RenameTable("t", "u"), Exists, "grant")


# --- columns ---------------------------------------------------------------------------------------


def test_a_column_is_renamed_with_its_index_and_its_comment(version: OpenVersion) -> None:
    table = define(version, RenameColumn("t", "C0", "key", ("key int:0:9",))).catalog.table("t")
    assert [column.name for column in table.schema] == ["key", "c1", "c2"]
    assert [run.attribute for run in table.runs] == ["key", "c1", None]
    assert table.terms == ("key int:0:9",)
    assert table.comments == (("key", "first"), ("c2", "last"))
    assert define(version, RenameColumn("t", "c1", "C1")).catalog.table("t").schema.columns[1].name == "C1"
    refused(version, RenameColumn("t", "c0", "C1"), Exists)
    refused(version, RenameColumn("t", "c0", ""), Exists)
    refused(version, RenameColumn("t", "c0", "key", ("c0 int:0:9",)), InvalidParameter)


def _column(kind: str, *, nullable: bool = True) -> Schema:
    return Schema((Column("more", parse_type(kind), nullable),))


@pytest.mark.parametrize(
    ("column", "words"),
    [
        (_column("integer"), (7, 1)),
        (_column("integer"), (0, 0)),
        (_column("integer", nullable=False), (-1, 1)),
        (_column("text(12)"), (*parse_type("text(12)").words_of("some"), 1)),
        (_column("decimal(38,2)"), (*parse_type("decimal(38,2)").words_of(7), 1)),
        (_column("bigint"), (-(1 << 63), 1)),
        (_column("bigint"), ((1 << 63) - 1, 1)),
    ],
)
def test_a_column_is_added_with_the_same_value_in_every_row(
    version: OpenVersion, monkeypatch: pytest.MonkeyPatch, column: Schema, words: tuple[int, ...]
) -> None:
    monkeypatch.setattr(definitions, "ADDED_ROWS", 2 * PAGE_ROWS + 7)
    before = has(version)
    made = define(version, AddColumn("t", column, words, (("more", "said"),)))
    table, value = made.catalog.table("t"), words[:-1] if words[-1] else None
    assert table.comments[-1] == ("more", "said")
    assert [run.based for run in table.runs] == [3, 3, 3]
    assert [len(run.layers) for run in table.runs] == [1, 0, 1]
    whole, narrow, tail = has(made)
    assert narrow == before[1]
    assert whole == [(*row, value) for row in before[0]]
    assert tail == [(*row, value) for row in before[2]]
    again = define(made, AddColumn("t", Schema((replace(column.columns[0], name="last"),)), words))
    assert [run.based for run in again.catalog.table("t").runs] == [3, 3, 3]
    assert has(again)[0] == [(*row, value, value) for row in before[0]]


@pytest.mark.parametrize(
    ("column", "words"),
    [
        (_column("integer"), (7,)),
        (_column("integer"), (7, 1, 1)),
        (_column("integer"), (7, 2)),
        (_column("integer"), (7, -1)),
        (_column("integer"), (7, 0)),  # a null has no value
        (_column("integer", nullable=False), (0, 0)),
        (_column("integer"), (1 << 31, 1)),
        (_column("bigint"), (1 << 63, 1)),
        (_column("bigint"), (-(1 << 63) - 1, 1)),
    ],
)
def test_a_value_that_no_row_could_have_is_refused(
    version: OpenVersion, column: Schema, words: tuple[int, ...]
) -> None:
    refused(version, AddColumn("t", column, words), InvalidParameter, "needs a value")


def test_columns_are_added_one_by_one_under_new_names(version: OpenVersion) -> None:
    integer = _column("integer").columns[0]
    two = Schema((integer, replace(integer, name="most")))
    refused(version, AddColumn("t", two, (0, 0)), InvalidParameter, "one by one")
    refused(version, AddColumn("t", Schema((integer,)), (0, 0), (("c0", "said"),)), InvalidParameter, "one by one")
    refused(version, AddColumn("t", Schema((replace(integer, name="C1"),)), (0, 0)), Exists)


def test_a_dropped_column_is_in_no_run_and_the_others_move_up() -> None:
    storage = MemoryStorage()
    table = replace(table_with(storage, replace(WHOLE, attribute="c2"), TAIL), terms=("c2 int:0:9",))
    made = opened(storage, table)
    made.manifest.dummies[WHOLE.id] = Dummies.after(40)
    after = define(made, DropColumn("t", "C0", ("c2 int:0:8",)))
    narrower = after.catalog.table("t")
    assert [column.name for column in narrower.schema] == ["c1", "c2"]
    assert (narrower.terms, narrower.comments) == (("c2 int:0:8",), (("c2", "last"),))
    assert has(after) == [rows(ROWS, 1, 2), rows(16, 1, 2)]
    assert not {run.id for run in narrower.runs} & {run.id for run in table.runs}
    kept = [after.manifest.dummies[run.id].to_bytes() for run in narrower.runs]
    assert kept == [Dummies.after(40).to_bytes(), Dummies.after(16).to_bytes()]


def test_a_column_with_an_index_or_alone_is_not_dropped(version: OpenVersion) -> None:
    refused(version, DropColumn("t", "c0"), Exists)
    declared = version_with(LOADED)
    refused(declared, DropColumn("t", "c1"), Exists)
    define(declared, DropColumn("t", "c2", ("c0 int:0:9",)))
    refused(version, DropColumn("Other", "c0"), InvalidParameter, "at least one")
    two = opened(MemoryStorage(), table_of("integer", "integer"))
    assert len(define(two, DropColumn("t", "c0")).catalog.table("t").schema) == 1


def test_a_copy_in_the_order_of_loading_goes_when_another_has_all_columns() -> None:
    """The narrow copy holds c0 and c1: without c2, it is whole."""
    storage = MemoryStorage()
    table = replace(table_with(storage, NARROW, LOADED, TAIL), terms=())
    made = define(opened(storage, table), DropColumn("t", "c2"))
    assert [(run.attribute, run.columns, run.tail) for run in made.catalog.table("t").runs] == [
        ("c1", None, False),
        (None, None, True),
    ]
    storage = MemoryStorage()
    table = replace(table_with(storage, NARROW, LOADED, TAIL), terms=())
    made = define(opened(storage, table), DropColumn("t", "c0"))
    assert [(run.attribute, run.columns, run.tail) for run in made.catalog.table("t").runs] == [
        ("c1", (0,), False),
        (None, None, False),
        (None, None, True),
    ]


# --- indexes ---------------------------------------------------------------------------------------


def test_an_index_is_dropped_with_its_copy_unless_that_is_the_only_whole_one() -> None:
    def after(name: str, *runs: Run) -> list[tuple[str, str | None, bool]]:
        table = define(version_with(*runs), DropIndex("t", name)).catalog.table("t")
        assert [term.partition(" ")[0] for term in table.terms] == [each for each in ("c0", "c1") if each != name]
        assert all(run.tally is None for run in table.runs if run.index is None)
        return [(run.id[:2], run.attribute, run.index is not None) for run in table.runs]

    storage = MemoryStorage()
    tallied = replace(WHOLE, tally=keep_tally(storage, opened(storage).keys, b"counts"))
    assert after("c1", WHOLE, NARROW, TAIL) == [("01", "c0", True), ("03", None, False)]
    assert after("c0", tallied, TAIL) == [("01", None, False), ("03", None, False)]
    assert after("c0", WHOLE, replace(WHOLE, id="05" * 16, attribute="c2"), TAIL) == [
        ("05", "c2", True),
        ("03", None, False),
    ]
    assert after("c0", WHOLE, NARROW) == [("01", None, False), ("02", "c1", True)]
    assert after("c1", LOADED, NARROW) == [("04", None, False)]
    assert after("c1", LOADED) == [("04", None, False)]
    refused(version_with(WHOLE), DropIndex("t", "c2"), NotFound)


def test_other_indexes_are_declared_for_columns_that_there_are(version: OpenVersion) -> None:
    assert define(version, SetTerms("t", ("c2 int:0:9",))).catalog.table("t").terms == ("c2 int:0:9",)
    refused(version, SetTerms("t", ("c9 int:0:9",)), InvalidParameter)


# --- views -----------------------------------------------------------------------------------------


def test_views_are_kept_and_forgotten(version: OpenVersion, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(definitions, "MOST_VIEWS", 2)
    made = define(version, SetView("One", "the text"))
    assert dict(made.manifest.access.views) == {"One": "the text"}
    refused(made, SetView("ONE", "other"), Exists)
    refused(made, SetView("T", "other"), Exists)
    refused(made, SetView("two", ""), NotFound)
    full = define(made, SetView("two", "other"))
    refused(full, SetView("three", "more"), InvalidParameter, "there are 2 views")
    assert dict(define(full, SetView("one", "")).manifest.access.views) == {"two": "other"}
