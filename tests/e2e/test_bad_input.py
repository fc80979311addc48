"""Input that cannot be: refused in a sentence with a hint, nothing lost, nothing spent."""

from collections.abc import Iterator
from decimal import Decimal
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from databases import INDEXES, create, expected, files, load, reopen, rows, stored
from unharmed import MARKER, NUMBER, Unharmed, check_nothing_spent_or_left, home, origin, refused, states, unharmed

from scumble.errors import BadRows, Exists, FileError, InvalidKeys, InvalidParameter, NotFound, Overdraft, ScumbleError
from scumble.owner.database import Database

__all__ = ["home", "origin", "unharmed"]

AMOUNT = Decimal("987654321.37")


def _with(name: str, value: object, kind: pa.DataType | None = None) -> pa.Table:
    """Good rows but for the value of one column in row 8."""
    table = rows(12, 2)
    values = table[name].to_pylist()
    values[7] = value
    return table.set_column(
        table.schema.get_field_index(name), name, pa.array(values, kind or table.schema.field(name).type)
    )


BAD_ROWS = {
    "key out of its domain": (_with("k", 128), ("'k'", "row 8")),
    "key below its domain": (_with("k", -1), ("'k'", "row 8")),
    "decimal out of its domain": (_with("amount", Decimal("100.25")), ("'amount'", "row 8")),
    "null where none may be": (_with("k", None), ("'k'", "row 8")),
    "too long a text": (_with("name", MARKER * 3), ("'name'", "row 8")),
    "no such category": (_with("colour", MARKER), ("'colour'", "row 8")),
    "a number that does not fit": (_with("k", NUMBER, pa.int64()), ("'k'", "row 8")),
}


@pytest.mark.parametrize("name", BAD_ROWS)
def test_rows_that_do_not_fit(unharmed: Unharmed, name: str) -> None:
    table, words = BAD_ROWS[name]
    for target in ("t", "new"):
        text = unharmed.refuses(partial(load, table=target, source=table), BadRows, *words)
        assert MARKER not in text
        assert str(NUMBER) not in text
        assert "128" not in text.partition("hint")[0]


def test_a_decimal_between_the_steps_is_found_again(home: Path) -> None:
    """A step is coarser than the column: the key falls into its bin, and the value stays what it is."""
    table = _with("amount", Decimal("1.13"))
    with reopen(home) as db:
        try:
            load(db, "new", source=table)
        except BadRows:
            assert states(db) == ["drawn", "drawn", "cancelled", "cancelled"]
            return
        assert db.sql("SELECT k FROM new WHERE amount = 1.13").fetchall() == [(table["k"][7].as_py(),)]


@pytest.mark.parametrize(("value", "scale"), [(AMOUNT, 2), (Decimal("1.537"), 3)])
def test_decimals_with_too_many_digits(unharmed: Unharmed, value: Decimal, scale: int) -> None:
    table = pa.table({"x": pa.array([Decimal("1.5"), value], pa.decimal128(38, scale))})
    use = partial(Database.load, table="new", source=table, types={"x": "decimal(5,2)"}, capacity=16)
    assert str(value) not in unharmed.refuses(use, BadRows, "row 2")


@pytest.mark.parametrize(
    ("values", "kind"),
    [([1, 2], pa.int64()), (["a", "b"], pa.string()), ([b"a", b"b"], pa.binary()), ([[1], [2]], pa.list_(pa.int64()))],
)
def test_columns_of_the_wrong_type(unharmed: Unharmed, values: list[Any], kind: pa.DataType) -> None:
    table = pa.table({"day": pa.array(values, kind)})
    with refused(ScumbleError) as caught:
        unharmed.db.load("new", table, indexes=["day date:2013-01-01:2013-12-31 epsilon=1"], capacity=16)
    assert type(caught.value) in (BadRows, InvalidParameter, InvalidKeys)
    check_nothing_spent_or_left(*unharmed)


@pytest.mark.parametrize(
    ("lines", "more", "words"),
    [
        (f"2,3.5\n\n3,4.5,{MARKER}\n4,5\n", {}, ("line 5", "3 cells")),
        (f"{MARKER},3.5\n", {"types": {"k": "integer", "amount": "double"}}, ("line 3", "'k'")),
        (f'"{MARKER},3.5\n', {"types": {"k": "integer", "amount": "double"}}, ()),
        (f"{NUMBER},3.5\n", {"indexes": ["k int:0:9 epsilon=1"]}, ("'k'", "row 2")),
    ],
)
def test_a_broken_line_of_a_csv(
    unharmed: Unharmed, tmp_path: Path, lines: str, more: dict[str, Any], words: tuple[str, ...]
) -> None:
    path = tmp_path / "rows.csv"
    path.write_text(f"k,amount\n1,2.5\n{lines}")
    options = {"types": {"k": "bigint", "amount": "double"}} | more
    text = unharmed.refuses(lambda db: db.load("new", path, capacity=16, **options), BadRows, *words)
    assert MARKER not in text
    assert str(NUMBER) not in text


@pytest.mark.parametrize(
    ("source", "error"),
    [("nowhere.csv", FileError), ("nowhere.txt", InvalidParameter), (42, ScumbleError), (None, ScumbleError)],
)
def test_sources_that_are_none(unharmed: Unharmed, source: object, error: type[ScumbleError]) -> None:
    with refused(error):
        unharmed.db.load("new", source)
    check_nothing_spent_or_left(*unharmed)


def test_too_small_a_capacity(unharmed: Unharmed) -> None:
    for target in ("t", "new"):
        text = unharmed.refuses(partial(load, table=target, count=40, seed=2, capacity=39), BadRows)
        assert "capacity" in text
    for capacity in (0, -5, 1 << 40):
        assert "hint" in unharmed.refuses(partial(load, table="new", capacity=capacity), InvalidParameter)


# --- the same table again --------------------------------------------------------------------------


def test_a_batch_that_does_not_fit_its_table(unharmed: Unharmed) -> None:
    others: dict[str, dict[str, Any]] = {
        "other indexes": {"indexes": INDEXES[:1]},
        "no index": {"indexes": ()},
        "other types": {
            "types": {"name": "text(40)", "k": "integer not null", "colour": 'category(["blue","green","red"])'}
        },
    }
    for more in others.values():
        with refused(Exists):
            load(unharmed.db, "t", seed=2, **more)
        check_nothing_spent_or_left(*unharmed)


def test_a_batch_with_other_columns(unharmed: Unharmed) -> None:
    table = rows(10, 2)
    for other in (table.drop_columns(["share"]), table.rename_columns(["k2", *table.column_names[1:]])):
        with refused(ScumbleError):
            load(unharmed.db, "t", source=other)
        check_nothing_spent_or_left(*unharmed)


def test_a_batch_with_another_domain_still_finds_every_row(home: Path) -> None:
    """If a batch with another domain is let in, its rows must not be lost."""
    with reopen(home) as db:
        try:
            load(db, "t", seed=2, indexes=("k int:0:255 epsilon=1", INDEXES[1]))
        except Exists:
            return
        assert stored(db, "t", "k >= 0") == expected(1, 2)


# --- money -----------------------------------------------------------------------------------------


def test_an_overdraft_is_refused_before_any_work(tmp_path: Path) -> None:
    home = tmp_path / "home"
    with create(home, limit=3) as db:
        load(db, "t")
        before = files(home), (home / "db.ledger").read_bytes(), db.service.transcript.flush()  # type: ignore[attr-defined]
        seen = (home / "db/transcript.log").read_bytes()

        def never() -> Iterator[pa.RecordBatch]:
            yield pytest.fail("a row was read")

        reader = pa.RecordBatchReader.from_batches(rows().schema, never())
        with refused(Overdraft) as caught:
            load(db, "new", source=reader)
        assert "limit 3" in str(caught.value)
        assert files(home) == before[0]
        assert [entry.state for entry in db.ledger.entries()][:2] == ["drawn", "drawn"]
        assert set(states(db)[2:]) <= {"cancelled"}
        assert db.ledger.spent() == 2
        db.service.transcript.flush()  # type: ignore[attr-defined]
        added = (home / "db/transcript.log").read_bytes()[len(seen) :]
        assert b'"write' not in added
        assert b"create_run" not in added
        load(db, "new", indexes=INDEXES[:1])
        assert db.ledger.remaining() == 0


def test_the_ledger_is_as_it_was_after_an_overdraft(tmp_path: Path) -> None:
    """One index fits the budget and two do not: neither is charged, not even for a moment that a crash could keep."""
    home = tmp_path / "home"
    with create(home, limit=1) as db:
        before = (home / "db.ledger").read_bytes()
        with pytest.raises(Overdraft):
            load(db, "t")
        assert (home / "db.ledger").read_bytes() == before


def test_an_overdraft_of_delta(tmp_path: Path) -> None:
    home = tmp_path / "home"
    with create(home, limit=100, delta_limit="1e-9") as db:
        with refused(Overdraft, match="delta"):
            load(db, "t", indexes=("k int:0:127 epsilon=1 beta=1e-6 slack=lossless",))
        assert db.ledger.spent_delta() == 0
        assert db.ledger.spent() == 0
        load(db, "t")
        assert stored(db, "t") == expected(1)


@pytest.mark.parametrize(
    ("more", "error"),
    [
        ({"indexes": ["nowhere int:0:9 epsilon=1"]}, NotFound),
        ({"indexes": ["k int:0:127 epsilon=1", "k int:0:255 epsilon=1"]}, InvalidParameter),
        ({"indexes": ["k int:0:127 epsilon=1", "K int:0:127 epsilon=1"]}, InvalidParameter),
        ({"indexes": ["k int:0:127 epsilon=0"]}, InvalidParameter),
        ({"indexes": ["k int:0:127 epsilon=-1"]}, InvalidParameter),
        ({"indexes": ["k int:0:127 epsilon=1024"]}, InvalidParameter),
        ({"indexes": ["k int:0:127 epsilon=1024 rows_per_user=3 slack=paper"]}, InvalidParameter),
        ({"indexes": ["k int:0:127"]}, InvalidParameter),
        ({"indexes": ["k int:9:0 epsilon=1"]}, ScumbleError),
        ({"indexes": ["k int:0:127 epsilon=1 slack=none"]}, InvalidParameter),
        ({"indexes": ["k int:0:127 epsilon=1 beta=2"]}, InvalidParameter),
        ({"indexes": ["k int:0:127 epsilon=1 max_bytes=1"]}, ScumbleError),
        ({"indexes": ["name int:0:127 epsilon=1"]}, ScumbleError),
        ({"types": {"nowhere": "integer"}}, NotFound),
        ({"types": {"k": "integr"}}, InvalidParameter),
        ({"page_rows": 17}, InvalidParameter),
        ({"page_rows": 0}, InvalidParameter),
        ({"memory_bytes": 10}, InvalidParameter),
        ({"query": "SELECT 1"}, InvalidParameter),
        ({"capacity": None, "capacity_epsilon": 0}, InvalidParameter),
        ({"capacity": None, "capacity_epsilon": 1024}, InvalidParameter),
        ({"capacity_epsilon": 1}, InvalidParameter),
    ],
)
def test_parameters_that_cannot_be(unharmed: Unharmed, more: dict[str, Any], error: type[ScumbleError]) -> None:
    with refused(error):
        load(unharmed.db, "new", **more)
    check_nothing_spent_or_left(*unharmed)


@pytest.mark.parametrize("name", ["", " ", "a b", "1a", "a-b", "../x", "x" * 65, "a;drop", 'a"', "ä b", "\0"])
def test_names_that_no_table_has(unharmed: Unharmed, name: str) -> None:
    assert "name" in unharmed.refuses(lambda db: load(db, name), InvalidParameter)


@pytest.mark.parametrize("name", ["select", "Table1", "größe", "order", "_"])
def test_names_that_a_table_can_have(home: Path, name: str) -> None:
    """A name that a load accepts can be queried."""
    with reopen(home) as db:
        try:
            load(db, name)
        except InvalidParameter as error:
            assert error.hint  # noqa: PT017
            return
        assert db.sql(f'SELECT count(*) FROM "{name}"').fetchall() == [(40,)]  # noqa: S608
        db.drop(name.upper() if name.isascii() else name)


def test_a_table_that_is_not_there(unharmed: Unharmed) -> None:
    assert "the tables are t" in unharmed.refuses(lambda db: db.drop("nowhere"), NotFound, "nowhere")
    assert "nowhere" in unharmed.refuses(lambda db: db.table("nowhere"), NotFound)
