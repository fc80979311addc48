"""UPDATE and DELETE as the enclave gets them: predicates, assignments, bounds, and the pages of every copy."""

import json
from dataclasses import replace
from decimal import Decimal
from typing import Any

import numpy as np
import pytest
from sql_tables import catalog_of, evaluate, small_table

from scumble.errors import QueryError, UnsupportedQuery
from scumble.sql.changes import Change, change_of, keyed_change, value_words
from scumble.sql.parse import parse
from scumble.types import Column
from scumble.wire.catalog import LIVE, Catalog, Run, Table
from scumble.wire.plan import Assignment, Constant, In, Or

LOADED = small_table()
TABLE = LOADED.table
PLACE = {column.name: place for place, column in enumerate(TABLE.schema)}
ID, N, PRICE, OK, NAME, M = (PLACE[name] for name in ("id", "n", "price", "ok", "name", "m"))
CATALOG = catalog_of(LOADED)


def type_name(column: Column) -> str:
    return {"id": "BIGINT", "price": "DECIMAL(9,2)", "day": "DATE", "name": "VARCHAR"}.get(column.name, "INTEGER")


def planned(sql: str, params: Any = (), table: Table | None = None) -> Change:
    catalog = CATALOG if table is None else Catalog("db", 1, "", (table,))
    return change_of(parse(sql, change=True), catalog, params, evaluate, type_name)


def pages_of(change: Change, step: int = 0) -> dict[str, int]:
    """For each run, how many pages are read."""
    return {scan.run.id: scan.page_count for scan in change.steps[step].scans}


ALL = {run.id: run.pages for run in TABLE.runs}


# --- what becomes of a statement -------------------------------------------------------------------


def test_an_update_has_its_values_among_the_bounds() -> None:
    change = planned("UPDATE t SET m = 5, price = NULL WHERE n BETWEEN 3 AND 9")
    (step,) = change.steps
    assert step.plan.predicates == (In(N, 0, 1),)
    assert step.output.assignments == ((Assignment(M, 2), Assignment(PRICE, 4)),)
    assert change.bounds.tolist() == [3, 9, 5, 1, 0, 0]
    assert (change.kind, change.table, change.attributes, change.written) == ("UPDATE", TABLE, ("n",), ("price", "m"))
    assert change.condition == "n BETWEEN 3 AND 9"
    assert not step.output.copies
    found = pages_of(change)
    assert found.keys() == ALL.keys()
    assert {run for run, pages in found.items() if pages < ALL[run]} == {"t-n-0"}


def test_a_delete_of_everything_reads_all_pages_of_all_copies() -> None:
    change = planned("DELETE FROM t")
    (step,) = change.steps
    assert step.plan.predicates == (Constant(True),)
    assert (step.output.deletes, step.output.written, change.written) == (True, (LIVE,), ())
    assert pages_of(change) == ALL
    assert (change.kind, change.attributes, change.condition) == ("DELETE", (), None)
    requests = step.requests(TABLE)
    assert [(scan.run, scan.predicate) for scan in requests] == [(place, 0) for place in range(len(TABLE.runs))]
    assert [list(scan.pages) for scan in requests] == [[(0, run.pages)] for run in TABLE.runs]


def test_a_column_with_an_index_moves_its_rows_to_the_tail() -> None:
    """Copied from where this is least, then deleted everywhere."""
    change = planned("UPDATE t SET n = n + 1 WHERE id = 7")
    copied, deleted = change.steps
    assert (copied.output.copies, deleted.output.copies, deleted.output.deletes) == (True, False, True)
    assert copied.output.assignments == ((Assignment(N, 2, ("+", ("column", N), ("constant", 1))),),)
    assert deleted.output.assignments == ((),)
    assert list(pages_of(change)) == ["t-id-0"]
    assert pages_of(change, 1).keys() == ALL.keys()
    assert change.attributes == ("id",)
    assert len(planned("UPDATE t SET m = 1 WHERE id = 7").steps) == 1


def test_params_take_their_places() -> None:
    change = planned("UPDATE t SET m = ?, price = ? WHERE n = ?", (3, Decimal("1.5"), 9))
    assert change.bounds.tolist() == [9, 9, 3, 1, 150, 1]


@pytest.mark.parametrize(
    ("value", "column", "assigned"),
    [
        ("5", "m", (5, 1)),
        ("(((5)))", "m", (5, 1)),
        ("'5'", "m", (5, 1)),
        ("2.0", "m", (2, 1)),
        ("NULL", "m", (0, 0)),
        ("1 + 2", "m", (3, 1)),
        ("1.005", "price", (101, 1)),  # as DuckDB casts it
        ("m", "n", ("column", M)),
        ("(m)", "n", ("column", M)),
        ("t.m", "n", ("column", M)),
        ("id * 2", "m", ("*", ("column", ID), ("constant", 2))),
        ("m", "price", ("*", ("column", M), ("constant", 100))),
        ("m + price", "price", ("+", ("*", ("column", M), ("constant", 100)), ("column", PRICE))),
    ],
)
def test_what_a_column_becomes(value: str, column: str, assigned: tuple[Any, ...]) -> None:
    change = planned(f"UPDATE t SET {column} = {value}")  # noqa: S608
    ((one,),) = change.steps[0].output.assignments
    assert one.column == PLACE[column]
    if isinstance(assigned[0], str):
        assert (one.expression, change.bounds.tolist()) == (assigned, [])
    else:
        assert (one.expression, tuple(change.bounds.tolist())) == (None, assigned)


@pytest.mark.parametrize(
    ("sql", "error"),
    [
        ("SELECT 1", "this statement is not supported"),
        ("UPDATE t SET m = 1 RETURNING m", "UPDATE with RETURNING"),
        ("DELETE FROM t USING t AS u", "DELETE with USING"),
        ("DELETE FROM t RETURNING id", "DELETE with RETURNING"),
        ("DELETE FROM t WHERE length(name) > 3", "tested obliviously"),
        ("DELETE FROM t WHERE nothing = 3", "there is no column"),
        ("DELETE FROM t WHERE length(nothing) > 3", "there is no column"),
        ("DELETE FROM t WHERE id IN (SELECT x FROM u)", "tested obliviously"),
        ("DELETE FROM t WHERE u.n = 3", "there is no column"),
        ("UPDATE t SET nothing = 3", "there is no column"),
        ("UPDATE t SET m = nothing", "there is no column"),
        ("UPDATE t SET m = 1, M = 2", "set twice"),
        ("UPDATE t SET id = NULL", "NOT NULL"),
        ("UPDATE t SET m = 'word'", "cannot hold this"),
        ("UPDATE t SET m = 3000000000", "cannot hold this"),
        ("UPDATE t SET m = name", "cannot work this out"),
        ("UPDATE t SET m = price", "cannot work this out"),
        ("UPDATE t SET f = n * 2", "cannot work this out"),
        ("UPDATE t SET name = n + 1", "cannot work this out"),
        ("UPDATE t SET m = abs(n)", "cannot work this out"),
        ("DELETE FROM nothing", "there is no table"),
    ],
)
def test_what_cannot_be_done_is_refused(sql: str, error: str) -> None:
    with pytest.raises(QueryError, match=error):
        planned(sql)


def test_the_first_word_of_another_statement_is_pointed_at() -> None:
    with pytest.raises(UnsupportedQuery) as caught:
        planned("INSERT INTO t VALUES (1)")
    assert "\n  INSERT INTO t VALUES (1)\n  ^^^^^^\n" in str(caught.value)


def test_names_and_aliases_of_the_table_are_taken() -> None:
    for sql in ("DELETE FROM t WHERE T.n = 3", "DELETE FROM t AS u WHERE u.n = 3", "DELETE FROM T WHERE N = 3"):
        assert planned(sql).bounds.tolist() == [3, 3]


def test_words_are_those_of_a_cast() -> None:
    price = TABLE.schema.columns[PRICE]
    assert value_words(price, None, evaluate, "DECIMAL(9,2)") == (0, 0)
    with pytest.raises(Exception, match="holds exactly"):
        value_words(price, "word", evaluate, "DECIMAL(9,2)")


# --- copies ----------------------------------------------------------------------------------------


def narrow(*columns: int) -> Table:
    """The table whose copy by n holds some columns only."""
    runs = [replace(run, columns=tuple(sorted(columns)) if run.attribute == "n" else None) for run in TABLE.runs]
    return replace(TABLE, runs=tuple(runs))


def test_a_copy_that_lacks_what_is_written_is_left_alone() -> None:
    assert "t-n-0" not in pages_of(planned("UPDATE t SET m = 1 WHERE id = 3", (), narrow(N, NAME)))
    assert "t-n-0" in pages_of(planned("UPDATE t SET m = 1 WHERE n = 3", (), narrow(N, M)))
    assert "t-n-0" in pages_of(planned("DELETE FROM t WHERE n = 3", (), narrow(N, NAME)))


def test_a_copy_that_lacks_what_is_tested_cannot_be_changed() -> None:
    for sql in ("UPDATE t SET m = 1 WHERE id = 3", "DELETE FROM t WHERE id = 3"):
        with pytest.raises(UnsupportedQuery, match="by n does not hold id"):
            planned(sql, (), narrow(N, M))
    with pytest.raises(UnsupportedQuery, match="by n does not hold id, price"):
        planned("UPDATE t SET m = m + id WHERE price = 3", (), narrow(N, M))


def test_rows_are_copied_from_a_copy_that_has_all_columns() -> None:
    change = planned("UPDATE t SET n = 5 WHERE n = 3", (), narrow(N, M))
    assert list(pages_of(change)) != ["t-n-0"]
    assert set(pages_of(change, 1)) == set(ALL)


def test_the_tail_is_changed_once() -> None:
    tail = Run("tail", "b", None, 256, 256, None, (), tail=True)
    change = planned("UPDATE t SET m = 1 WHERE n = 3", (), replace(TABLE, runs=(*TABLE.runs, tail)))
    assert pages_of(change)["tail"] == 1
    assert list(pages_of(change)).count("tail") == 1
    assert len(change.steps[0].requests(change.table)) == len(TABLE.runs) + 1


def test_rows_are_counted_in_one_copy() -> None:
    change = planned("UPDATE t SET m = 1 WHERE m < 50")
    scans = len(change.steps[0].scans)
    assert scans == len(TABLE.runs) > 1
    assert change.rows(memoryview(np.arange(5, 5 + scans).tobytes())) == [5]
    moved = planned("UPDATE t SET n = 1 WHERE m < 50")
    assert moved.rows(memoryview(np.array([7]).tobytes())) == [7]
    by_n = planned("UPDATE t SET id = 1 WHERE n = 3")
    assert list(pages_of(by_n)) == ["t-n-0"]
    assert by_n.rows(memoryview(np.array([7]).tobytes())) == [7]


# --- by keys ---------------------------------------------------------------------------------------


def test_rows_are_changed_by_their_keys() -> None:
    rows = [((3, 1), (10, 1)), ((4, 1), (0, 0)), ((0, 0), (12, 1))]
    change = keyed_change("UPDATE", TABLE, [N], [M], rows)
    (step,) = change.steps
    assert len(step.plan.predicates) == 4  # the next power of two
    assert len(step.output.assignments) == 4
    empty = TABLE.schema.columns[N].type.empty_interval
    low, high = empty[0][0], empty[1][0]
    assert change.bounds.tolist() == [3, 3, 10, 1, 4, 4, 0, 0, low, high, 12, 1, low, high, 10, 1]
    assert low > high
    assert change.attributes == ("n",)
    assert change.condition is None
    assert change.rows(memoryview(np.arange(4 * len(step.scans)).tobytes())) == [0, 1, 2, 3]
    for count, cases in ((1, 1), (2, 2), (4, 4), (5, 8)):
        assert len(keyed_change("UPDATE", TABLE, [N], [M], rows[:1] * count).steps[0].plan.predicates) == cases


@pytest.mark.parametrize("keys", [[N], [N, NAME], [NAME]])
def test_what_is_sent_is_as_long_for_fewer_keys_and_for_nulls(keys: list[int]) -> None:
    """Only the power of two that the number of keys is rounded up to is public."""

    def sent(*given: int | None) -> tuple[int, int]:
        rows = []
        for key in given:
            columns = [TABLE.schema.columns[place] for place in keys]
            words = [(key or 0,) * column.type.words for column in columns]
            rows.append((*((*each, 1) if key is not None else (*(0 for _ in each), 0) for each in words), (7, 1)))
        change = keyed_change("UPDATE", TABLE, keys, [M], rows)
        plan = json.dumps(change.steps[0].plan.to_json())
        return len(change.bounds), len(plan)

    assert sent(1, 2, 3) == sent(1, 2, 3, 4) == sent(None, 2, 3, 8) == sent(None, None, None)
    assert sent(1, 2) != sent(1, 2, 3)


def test_every_key_is_looked_for() -> None:
    change = keyed_change("UPDATE", TABLE, [N], [M], [((3, 1), (10, 1)), ((90, 1), (0, 0))])
    (scan,) = [each for each in change.steps[0].scans if each.run.attribute == "n"]
    assert scan.ranks == ((3, 3), (90, 90))
    zero = keyed_change("UPDATE", TABLE, [N], [M], [((0, 1), (5, 1))])  # a key like any other
    assert zero.bounds.tolist() == [0, 0, 5, 1]


def test_keys_of_several_columns_are_tested_together() -> None:
    change = keyed_change("UPDATE", TABLE, [N, ID], [M, OK], [((3, 1), (9, 1), (5, 1), (1, 1))])
    (predicate,) = change.steps[0].plan.predicates
    assert not isinstance(predicate, Or)
    assert change.bounds.tolist() == [3, 3, 9, 9, 5, 1, 1, 1]
    assert change.attributes == ("id", "n")
