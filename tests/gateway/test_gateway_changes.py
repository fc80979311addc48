"""Changes through the gateway, with ADBC and pandas: statements, rows in bulk, transactions, and who may make them."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pytest
from adbc_driver_flightsql import DatabaseOptions, dbapi
from gateway_setup import ALICE, BOB, OTHER, ROWS, TABLE, Bare, connect, cursor, make_databases, running
from pyarrow import flight

import scumble
from scumble.gateway.config import DatabaseConfig, Limits
from scumble.gateway.messages import new, packed, parsed, unpacked
from scumble.gateway.server import Gateway

WRITERS = frozenset(["alice"])


@pytest.fixture
def places(tmp_path: Path) -> dict[str, DatabaseConfig]:
    return make_databases(tmp_path)


@pytest.fixture
def writing(places: dict[str, DatabaseConfig]) -> Iterator[Gateway]:
    with running(places, writers=WRITERS) as (gateway, _):
        yield gateway


def transacting(gateway: Gateway, token: str = ALICE) -> Any:
    """A connection without autocommit, as ADBC has it by default."""
    return dbapi.connect(
        gateway.location, db_kwargs={DatabaseOptions.AUTHORIZATION_HEADER.value: f"Bearer {token}"}, autocommit=False
    )


def counted(gateway: Gateway, sql: str = "SELECT count(*) FROM visits") -> int:
    with cursor(gateway) as asked:
        return int(asked.execute(sql).fetchone()[0])


def test_statements_change_rows_and_say_how_many(writing: Gateway) -> None:
    with cursor(writing) as asked:
        assert asked.execute("UPDATE visits SET x = 1 WHERE id < 5").fetchall() == [(5,)]
        assert asked.execute("UPDATE visits SET x = ? WHERE id = ?", (2.5, 3)).fetchall() == [(1,)]
        assert asked.execute("DELETE FROM clinic.main.visits WHERE id >= 390").fetchall() == [(10,)]
        asked.executescript("DELETE FROM visits WHERE id = 0")
        asked.executemany("UPDATE visits SET name = ? WHERE id = ?", [("a", 1), ("b", 2), ("c", 9999)])
        assert asked.rowcount == 2
        asked.executemany("INSERT INTO visits (id, name) VALUES (?, ?)", [(401, "new"), (402, "new"), (403, None)])
        assert asked.rowcount == 3
    assert counted(writing) == ROWS - 11 + 3
    assert counted(writing, "SELECT count(*) FROM visits WHERE x = 2.5 AND id = 3") == 1
    assert counted(writing, "SELECT count(*) FROM visits WHERE name = 'new'") == 2


def test_many_rows_are_one_batch(writing: Gateway, places: dict[str, DatabaseConfig]) -> None:
    with cursor(writing) as asked:
        asked.executemany("INSERT INTO visits (id) VALUES (?)", [(n,) for n in range(300)])
    with scumble.open(places["clinic"].target) as db:
        assert sum(run.capacity for run in db.table("visits").tail) == 512


def test_rows_in_bulk_are_appended(writing: Gateway, places: dict[str, DatabaseConfig]) -> None:
    with cursor(writing) as asked:
        assert asked.adbc_ingest("visits", TABLE, mode="append") == ROWS
        assert asked.adbc_ingest("VISITS", TABLE.slice(0, 5).to_reader(), mode="create_append") == 5
    with cursor(writing) as asked:
        assert asked.adbc_ingest("words", OTHER, mode="append", catalog_name="shop", db_schema_name="main") == 3
    assert counted(writing) == 2 * ROWS + 5
    assert counted(writing, "SELECT count(*) FROM shop.words") == 6
    with cursor(writing) as asked:
        found = asked.execute("SELECT * FROM visits WHERE id = 7").fetch_arrow_table()
    assert found.num_rows == 2
    assert len({tuple(map(str, row.values())) for row in found.to_pylist()}) == 1  # every type came and went
    with scumble.open(places["clinic"].target) as db:
        assert sum(run.capacity for run in db.table("visits").tail) == 512 + 256  # padded


def test_a_new_table_needs_types_that_say_all(writing: Gateway) -> None:
    numbers = pa.table({"a": pa.array([1, 2, 3], pa.int64()), "d": pa.array([1.5, None, 2.5], pa.float64())})
    with cursor(writing) as asked:
        assert asked.adbc_ingest("numbers", numbers, mode="create") == 3
        for table, rows, mode, why in (
            ("numbers", numbers, "create", "is there already"),
            ("numbers", numbers, "replace", "is not replaced"),
            ("texts", pa.table({"t": ["x"]}), "create", "no declared length"),
            ("blobs", pa.table({"t": [b"x"]}), "create_append", "no declared length"),
            ("absent", numbers, "append", "there is no such table"),
        ):
            with pytest.raises(Exception, match=why):
                asked.adbc_ingest(table, rows, mode=mode)
    assert counted(writing, "SELECT count(*) FROM numbers") == 3
    assert counted(writing, "SELECT count(*) FROM visits") == ROWS


def test_rows_that_do_not_fit_are_refused_without_their_values(writing: Gateway) -> None:
    with cursor(writing) as asked, pytest.raises(Exception, match="hint") as refused:
        asked.adbc_ingest("words", pa.table({"id": [987_654_321_987], "word": ["a secret"]}), mode="append")
    assert "987654321987" not in str(refused.value)
    with cursor(writing) as asked, pytest.raises(Exception, match="hint") as refused:
        asked.adbc_ingest("words", pa.table({"id": [1], "word": ["much too long"]}), mode="append", catalog_name="shop")
    assert "much too long" not in str(refused.value)
    assert counted(writing, "SELECT count(*) FROM shop.words") == 3


def test_pandas_writes(writing: Gateway) -> None:
    frame = pd.DataFrame({"id": [10, 11], "word": ["ten", None]})
    options = {
        DatabaseOptions.AUTHORIZATION_HEADER.value: f"Bearer {ALICE}",
        DatabaseOptions.RPC_CALL_HEADER_PREFIX.value + "database": "shop",
    }
    for autocommit in (True, False):
        with dbapi.connect(writing.location, db_kwargs=options, autocommit=autocommit) as connection:
            assert frame.to_sql("words", connection, if_exists="append", index=False) == 2
    assert counted(writing, "SELECT count(*) FROM shop.words WHERE id >= 10") == 4
    with connect(writing) as connection, pytest.raises(Exception, match="insert records"):
        pd.DataFrame({"n": [1, 2]}).to_sql("guessed", connection, index=False)  # its types are guesses from rows


# --- transactions ----------------------------------------------------------------------------------


def test_a_transaction_is_seen_by_others_at_its_end(writing: Gateway) -> None:
    with transacting(writing) as connection, connection.cursor() as asked:
        assert asked.execute("DELETE FROM visits WHERE id < 100").fetchall() == [(100,)]
        assert asked.execute("SELECT count(*) FROM visits").fetchone() == (ROWS - 100,)
        assert counted(writing) == ROWS
        connection.commit()
        assert counted(writing) == ROWS - 100
        asked.execute("DELETE FROM visits WHERE id >= 0")
        connection.rollback()
    assert counted(writing) == ROWS - 100
    # The driver begins the next one at once, and leaves it open: it holds nothing.
    assert not [each for each in writing.transactions._open.values() if each.has_begun]


def test_rows_in_bulk_can_be_part_of_a_transaction(writing: Gateway) -> None:
    """ADBC's driver leaves the transaction out, so that an ingest is a change of its own; others need not."""
    with Bare(writing) as bare:
        for action, more in ((2, 0), (1, 3)):
            handle = _begun(bare)
            options = {"if_not_exist": 2, "if_exists": 2}
            ingest = new(
                "CommandStatementIngest", table="visits", table_definition_options=options, transaction_id=handle
            )
            assert parsed("DoPutUpdateResult", bare.put(ingest, TABLE.slice(0, 3)) or b"").record_count == 3
            assert counted(writing) == ROWS
            bare.act("EndTransaction", packed(new("ActionEndTransactionRequest", transaction_id=handle, action=action)))
            assert counted(writing) == ROWS + more
    with transacting(writing) as connection, connection.cursor() as asked:
        asked.adbc_ingest("visits", TABLE.slice(0, 3), mode="append")
        connection.rollback()
    assert counted(writing) == ROWS + 6


def test_a_transaction_that_only_reads_keeps_nobody_from_writing(writing: Gateway) -> None:
    with transacting(writing) as connection, connection.cursor() as asked:
        assert asked.execute("SELECT count(*) AS n FROM visits").fetchone() == (ROWS,)
        with cursor(writing) as other:
            assert other.execute("DELETE FROM visits WHERE id = 1").fetchall() == [(1,)]
        assert asked.execute("SELECT count(*) AS m FROM visits").fetchone() == (ROWS - 1,)


def test_one_that_is_idle_is_rolled_back(places: dict[str, DatabaseConfig]) -> None:
    with running(places, writers=WRITERS, limits=Limits(transaction_seconds=1)) as (gateway, _):
        with transacting(gateway) as connection, connection.cursor() as asked:
            asked.execute("DELETE FROM visits")
            gateway.transactions._idle_seconds = 0
            next(iter(gateway.transactions._open.values())).until = 0
            with cursor(gateway) as other:  # who does not wait for it any more
                assert other.execute("DELETE FROM visits WHERE id = 1").fetchall() == [(1,)]
            with pytest.raises(Exception, match="no such transaction"):
                connection.commit()
        assert counted(gateway) == ROWS - 1


def test_closing_the_gateway_rolls_back(places: dict[str, DatabaseConfig]) -> None:
    with running(places, writers=WRITERS) as (gateway, _), Bare(gateway) as bare:
        handle = _begun(bare)
        bare.put(new("CommandStatementUpdate", query="DELETE FROM visits", transaction_id=handle), pa.table({"a": [1]}))
    with scumble.open(places["clinic"].target) as db:
        assert db.sql("SELECT count(*) FROM visits").fetchall() == [(ROWS,)]


def _begun(bare: Bare) -> bytes:
    (answer,) = bare.act("BeginTransaction", packed(new("ActionBeginTransactionRequest")))
    return bytes(unpacked(answer)[1].transaction_id)


def test_a_transaction_is_the_clients_own_and_for_one_database(places: dict[str, DatabaseConfig]) -> None:
    nothing = pa.table({"a": [1]})
    with (
        running(places, writers=frozenset(["alice", "bob"])) as (gateway, _),
        Bare(gateway) as alice,
        Bare(gateway, BOB) as bob,
    ):
        handle = _begun(alice)
        change = new("CommandStatementUpdate", query="DELETE FROM visits WHERE id < 2", transaction_id=handle)
        with pytest.raises(flight.FlightServerError, match="no such transaction"):
            bob.put(change, nothing)
        answer = alice.put(change, nothing)
        assert parsed("DoPutUpdateResult", answer or b"").record_count == 2
        other = new("CommandStatementUpdate", query="DELETE FROM shop.words", transaction_id=handle)
        with pytest.raises(flight.FlightServerError, match="for one database"):
            alice.put(other, nothing)
        for who, action, why in ((bob, 1, "no such transaction"), (alice, 7, "ends by commit or rollback")):
            ending = packed(new("ActionEndTransactionRequest", transaction_id=handle, action=action))
            with pytest.raises(flight.FlightServerError, match=why):
                who.act("EndTransaction", ending)
        with pytest.raises(flight.FlightServerError, match="the driver's"):
            alice.put(new("CommandStatementUpdate", query="COMMIT"), nothing)
        alice.act("EndTransaction", packed(new("ActionEndTransactionRequest", transaction_id=handle, action=1)))
        with pytest.raises(flight.FlightServerError, match="no such transaction"):
            alice.put(change, nothing)
        assert counted(gateway) == ROWS - 2


def test_a_refused_statement_leaves_the_transaction_as_it_was(writing: Gateway) -> None:
    with transacting(writing) as connection, connection.cursor() as asked:
        asked.execute("DELETE FROM visits WHERE id = 1")
        with pytest.raises(Exception, match="no column"):
            asked.execute("DELETE FROM visits WHERE nothing = 1")
        connection.commit()
    assert counted(writing) == ROWS - 1
