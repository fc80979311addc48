"""A gateway over made-up databases, and clients of it: for the tests in this folder."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any
from uuid import UUID

import pyarrow as pa
from adbc_driver_flightsql import DatabaseOptions, dbapi
from pyarrow import flight

import scumble
from scumble.gateway.config import Config, DatabaseConfig, Limits, Tls, hash_of
from scumble.gateway.messages import packed
from scumble.gateway.server import Gateway
from scumble.gateway.serving import opened

ROWS = 400
ALICE, BOB = "alice-token-for-tests", "bob-token-for-tests"
WOODS = ["ash", "birch", "elm"]
TABLE = pa.table(
    {
        "id": pa.array(range(ROWS), pa.int32()),
        "small": pa.array([None if n % 13 == 0 else n % 100 - 50 for n in range(ROWS)], pa.int8()),
        "large": pa.array([(n * 7_919 - 10**6) * 10**9 for n in range(ROWS)], pa.int64()),
        "price": pa.array([None if n % 7 == 0 else Decimal(n - 200) / 100 for n in range(ROWS)], pa.decimal128(12, 2)),
        "x": pa.array([None if n % 11 == 0 else n / 8 - 20 for n in range(ROWS)], pa.float64()),
        "day": pa.array([date(2024, 1, 1) + timedelta(n % 90) for n in range(ROWS)]),
        "seen": pa.array([datetime(2024, 1, 1) + timedelta(seconds=977 * n, microseconds=n) for n in range(ROWS)]),
        "clock": pa.array([time(n % 24, n % 60, n % 59, n) for n in range(ROWS)], pa.time64("us")),
        "name": pa.array([None if n % 5 == 0 else f"näme {n % 37}" for n in range(ROWS)]),
        "wood": pa.array([None if n % 9 == 0 else WOODS[n % 3] for n in range(ROWS)]),
        "flag": pa.array([None if n % 4 == 0 else n % 3 == 0 for n in range(ROWS)]),
        "token": pa.array([None if n % 17 == 0 else UUID(int=n << 100 | n).bytes for n in range(ROWS)], pa.uuid()),
        "photo": pa.array([None if n % 6 == 0 else bytes([n % 256]) * (n % 4) for n in range(ROWS)], pa.binary()),
        "wait": pa.array([pa.MonthDayNano([n % 3, n % 40 - 20, n * 10**6]) for n in range(ROWS)]),
        "wide": pa.array([Decimal((n - 200) * 10**30 + n).scaleb(-4) for n in range(ROWS)], pa.decimal128(38, 4)),
        "ratio": pa.array([None if n % 8 == 0 else n / 16 for n in range(ROWS)], pa.float32()),
        "port": pa.array([65_535 - n for n in range(ROWS)], pa.uint16()),
    }
)
OTHER = pa.table({"id": pa.array([1, 2, 3], pa.int32()), "word": ["one", "two", "three"]})


def make_databases(folder: Path) -> dict[str, DatabaseConfig]:
    """Two databases: `clinic` with the table `visits`, `shop` with the tables `words` and `wordy`."""
    with scumble.create(folder / "clinic", limit=10) as database:
        database.load(
            "visits",
            TABLE,
            indexes=["id int:0:511 epsilon=1 beta=1e-9"],
            capacity=512,
            types={"name": "text(20)", "photo": "blob(3)", "wood": f"category({WOODS})".replace("'", '"')},
        )
    with scumble.create(folder / "shop", limit=10) as database:
        for name in ("words", "wordy"):
            database.load(name, OTHER, capacity=16, types={"word": "text(8)"})
    return {name: DatabaseConfig(str(folder / name), folder / f"{name}.key") for name in ("clinic", "shop")}


@contextmanager
def running(
    sources: Mapping[str, DatabaseConfig],
    *,
    limits: Limits | None = None,
    tls: Tls | None = None,
    writers: frozenset[str] = frozenset(),
) -> Iterator[tuple[Gateway, list[dict[str, object]]]]:
    """A gateway on a free port, for two clients, of whom `writers` may change something; and its log."""
    lines: list[dict[str, object]] = []
    config = Config(
        tokens={"alice": hash_of(ALICE), "bob": hash_of(BOB)},
        databases=sources,
        default="clinic",
        port=0,
        limits=limits or Limits(),
        tls=tls,
        writers=writers,
    )
    with opened(config, lines.append) as gateway:
        yield gateway, lines


def connect(gateway: Gateway, token: str = ALICE, **options: str) -> Any:
    """ADBC's connection."""
    header = {DatabaseOptions.AUTHORIZATION_HEADER.value: f"Bearer {token}"}
    return dbapi.connect(gateway.location, db_kwargs=header | options, autocommit=True)


@contextmanager
def cursor(gateway: Gateway, token: str = ALICE, **options: str) -> Iterator[Any]:
    """A cursor of a connection of its own."""
    with connect(gateway, token, **options) as connection, connection.cursor() as opened_cursor:
        yield opened_cursor


class Bare:
    """A Flight client without a driver: it may send anything."""

    def __init__(self, gateway: Gateway, token: str | None = ALICE) -> None:
        self.client = flight.connect(gateway.location)
        self.headers = [] if token is None else [(b"authorization", f"Bearer {token}".encode())]
        self.options = flight.FlightCallOptions(headers=self.headers, timeout=30)

    def __enter__(self) -> "Bare":
        return self

    def __exit__(self, *_: object) -> None:
        self.client.close()

    def info(self, command: Any) -> Any:
        return self.client.get_flight_info(_described(command), self.options)

    def schema(self, command: Any) -> Any:
        return self.client.get_schema(_described(command), self.options).schema

    def get(self, ticket: bytes) -> pa.Table:
        return self.client.do_get(flight.Ticket(ticket), self.options).read_all()

    def ask(self, command: Any) -> pa.Table:
        """A command, from GetFlightInfo to the last row."""
        info = self.info(command)
        table = self.get(info.endpoints[0].ticket.ticket)
        assert table.schema == info.schema
        return table

    def act(self, name: str, body: bytes) -> list[bytes]:
        results = self.client.do_action(flight.Action(name, body), self.options)
        return [result.body.to_pybytes() for result in results]

    def put(self, command: Any, rows: pa.Table) -> bytes | None:
        writer, reader = self.client.do_put(_described(command), rows.schema, self.options)
        with writer:
            writer.write_table(rows)
            writer.done_writing()
            answer = reader.read()
        return None if answer is None else bytes(answer.to_pybytes())


def _described(command: Any) -> Any:
    return flight.FlightDescriptor.for_command(command if isinstance(command, bytes) else packed(command))
