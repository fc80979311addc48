"""Rows of PostgreSQL from a stand-in for its driver: what no server shows, or not at once."""

from types import SimpleNamespace
from typing import Any
from uuid import UUID

import pyarrow as pa
import pytest

from scumble.errors import BadQuery, BadRows, FileError, InvalidParameter, ScumbleError
from scumble.owner.sources import Source, open_source
from scumble.owner.sources import postgres as postgres_source

MARKER = "MARKER_7319"


class DriverError(Exception):
    def __init__(self, sqlstate: str | None) -> None:
        super().__init__(MARKER)
        self.sqlstate = sqlstate


class Driver:
    """Connects, and answers a query with these rows, or fails with that state when it is executed or read."""

    Error = DriverError

    def __init__(self, columns: dict[str, Any], rows: list[tuple[Any, ...]], **failing: str | None) -> None:
        self.description = [SimpleNamespace(name=name, precision=None, scale=2) for name in columns]
        for column, code in zip(self.description, columns.values(), strict=True):
            column.type_code, column.precision = code if isinstance(code, tuple) else (code, None)
        self.rows, self.failing, self.closed, self.read_only = rows, failing, list[str](), False

    def connect(self, address: str, **options: object) -> Any:
        assert options == {"options": "-c timezone=UTC", "connect_timeout": 10}
        if address.endswith("nowhere"):
            raise ValueError(MARKER)
        return self

    def cursor(self, name: str, *, binary: bool) -> Any:
        assert name
        assert binary
        return SimpleNamespace(
            execute=self._execute, fetchmany=self._fetch, close=lambda: self.closed.append("cursor"),
            description=self.description,
        )  # fmt: skip

    def _execute(self, query: str) -> None:
        assert self.read_only
        self._fail("execute")

    def _fetch(self, count: int) -> list[tuple[Any, ...]]:
        given, self.rows = self.rows[:count], self.rows[count:]
        if not given:
            self._fail("read")
        return given

    def _fail(self, when: str) -> None:
        if when in self.failing:
            raise DriverError(self.failing[when])

    def close(self) -> None:
        self.closed.append("connection")


@pytest.fixture
def driven(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Rows of a stand-in, as a source."""

    def opened(driver: Driver, **more: Any) -> Source:
        monkeypatch.setattr(postgres_source, "needs", lambda *given: driver)
        return open_source("postgresql://somewhere", query="SELECT", **more)

    return opened


def test_a_database_is_read_in_a_read_only_transaction_and_then_closed(driven: Any) -> None:
    driver = Driver({"k": 20, "name": 25, "id": 2950}, [(n, f"n{n}", UUID(int=n)) for n in range(5)])
    source = driven(driver, batch_rows=2)
    assert [batch.to_pydict()["k"] for batch in source.batches] == [[0, 1], [2, 3], [4]]
    assert not driver.closed
    source.close()
    assert driver.closed == ["cursor", "connection"]
    (batch,) = driven(Driver({"id": 2950}, [(UUID(int=7),), (None,), ("x",)])).batches
    assert batch.to_pydict() == {"id": [str(UUID(int=7)), None, "x"]}


@pytest.mark.parametrize(
    ("code", "declared", "arrow"),
    [
        (1083, None, pa.time64("us")),
        (1114, None, pa.timestamp("us")),
        (1184, None, pa.timestamp("us", "UTC")),
        ((1700, 38), None, pa.decimal128(38, 2)),
        ((1700, 39), None, pa.decimal256(39, 2)),
        ((1700, 76), None, pa.decimal256(76, 2)),
        ((1700, 77), None, None),
        ((1700, None), None, None),
        ((1700, None), "not null", None),
        ((1700, None), "text(9)", None),
        ((1700, None), "decimal(9,3)", pa.decimal128(9, 3)),
        ((1700, 12), "decimal(9,3) not null", pa.decimal128(9, 3)),
        ((1700, 12), "text(9)", pa.decimal128(12, 2)),
        (3802, None, None),
        (1082, "decimal(9,3)", pa.date32()),
    ],
)
def test_types_of_a_database(driven: Any, code: Any, declared: str | None, arrow: Any) -> None:
    driver = Driver({"K": code}, [])
    types = {} if declared is None else {"k": declared}
    if arrow is not None:
        assert driven(driver, types=types).schema == pa.schema([("K", arrow)])
        return
    with pytest.raises(InvalidParameter, match="column 'K'"):
        driven(driver, types=types)
    assert driver.closed == ["cursor", "connection"]


@pytest.mark.parametrize(
    ("state", "error", "shown"),
    [("42601", BadQuery, MARKER), ("22012", BadRows, "(SQLSTATE 22012)"), (None, BadRows, "half-way")],
)
def test_only_errors_about_the_query_itself_are_passed_on(
    driven: Any, state: str | None, error: type[ScumbleError], shown: str
) -> None:
    driver = Driver({"k": 20}, [(1,)], execute=state)
    with pytest.raises(error) as refusal:
        driven(driver)
    assert f"{shown}\n" in str(refusal.value)
    assert (MARKER in str(refusal.value)) == (error is BadQuery)
    assert driver.closed == ["cursor", "connection"]
    with pytest.raises(error):
        list(driven(Driver({"k": 20}, [(1,)], read=state)).batches)


def test_a_value_that_does_not_fit_is_told_by_its_row(driven: Any) -> None:
    for row in range(5):
        values = [(MARKER if n == row else None if n == 1 else n,) for n in range(5)]
        with pytest.raises(BadRows) as refusal:
            list(driven(Driver({"k": 20}, values), batch_rows=2).batches)
        assert (refusal.value.row, refusal.value.column) == (row + 1, "k")
        assert f"row {row + 1}: the value is no int64" in str(refusal.value)
        assert MARKER not in str(refusal.value)


def test_a_database_that_cannot_be_reached(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(postgres_source, "needs", lambda *given: Driver({}, []))
    with pytest.raises(FileError, match="cannot connect") as refusal:
        open_source("postgresql://nowhere", query="SELECT")
    assert MARKER not in str(refusal.value)
    assert refusal.value.__context__ is None
