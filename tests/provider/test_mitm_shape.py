"""What the wire shows depends on public facts alone: for tables that are publicly equal, every size and status is."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from meddling import Meddling, meddling

import scumble
from scumble.errors import Overflow, ScumbleError
from scumble.owner.keys import AnalystKey
from serving import Serving

CAPACITY = 160
PUBLIC: dict[str, Any] = {"types": {"name": "text(8)"}, "capacity": CAPACITY, "page_rows": 16}
SCHEMA = pa.schema([("k", pa.int32()), ("v", pa.int64()), ("name", pa.string())])
LARGEST = (1 << 63) - 1

TABLES = {
    "one": ([1], [1], ["a"]),
    "full": (list(range(CAPACITY)), list(range(CAPACITY)), [f"name {i}" for i in range(CAPACITY)]),
    "large": ([5] * 150, [LARGEST] * 150, [None] * 150),
    "nulls": ([0] * 40, [None] * 40, [None] * 40),
}
QUERIES = (
    "SELECT count(*), sum(v) FROM t WHERE k < 5",
    "SELECT sum(v * v) FROM t",
    "SELECT sum(v * v) FROM t WHERE k = 5",
    "SELECT min(v), max(name), avg(v) FROM t",
    "SELECT name, count(*), sum(v) FROM t GROUP BY name ORDER BY name",
    "SELECT k, v, name FROM t WHERE k = 5",
    "SELECT * FROM t",
    "SELECT v FROM t ORDER BY v DESC LIMIT 3",
    "SELECT count(DISTINCT name) FROM t WHERE v IS NULL",
    "SELECT k + v FROM t",
)


def rows(name: str) -> pa.Table:
    ks, vs, names = TABLES[name]
    return pa.table({"k": ks, "v": vs, "name": names}, SCHEMA)


Seen = dict[str, tuple[Meddling, scumble.Database, list[tuple[str, int, int, int]]]]


@pytest.fixture(scope="module")
def seen(service: Serving, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Seen]:
    """Each table in a database of its own, and what the wire showed of its making."""
    keys, made = tmp_path_factory.mktemp("shape"), {}
    with meddling(service.port) as proxy:
        for name in TABLES:
            proxy.forget()
            database = proxy.create(f"shape-{name}", keys)
            database.load("t", rows(name), **PUBLIC)
            made[name] = proxy, database, proxy.shape()
        yield made
        for _, database, _ in made.values():
            database.close()


def _outcome(database: scumble.Database, query: str) -> str:
    try:
        return f"{len(database.sql(query).fetchall())} rows"
    except ScumbleError as error:
        return type(error).__name__


def test_loads_of_few_and_many_rows_look_alike(seen: Seen) -> None:
    shapes = [shape for _, _, shape in seen.values()]
    assert all(shape == shapes[0] for shape in shapes)
    assert len(shapes[0]) > 12


@pytest.mark.parametrize("query", QUERIES)
def test_queries_over_few_and_many_rows_look_alike_whether_they_fail_or_not(seen: Seen, query: str) -> None:
    shapes, outcomes = [], set()
    for proxy, database, _ in seen.values():
        _outcome(database, query)  # the first one has its plan prepared
        proxy.forget()
        outcomes.add(_outcome(database, query))
        shapes.append(proxy.shape())
    assert shapes[0]
    assert all(shape == shapes[0] for shape in shapes)
    assert {status for _, _, status, _ in shapes[0]} == {200}


def test_some_of_these_queries_do_fail_and_others_have_many_rows(seen: Seen) -> None:
    _, large, _ = seen["large"]
    with pytest.raises(Overflow):
        large.sql(QUERIES[1]).fetchall()
    assert {_outcome(database, QUERIES[6]) for _, database, _ in seen.values()} == {
        f"{len(ks)} rows" for ks, _, _ in TABLES.values()
    }


def test_a_grant_and_a_revocation_look_alike_whoever_it_is_for(seen: Seen, tmp_path: Path) -> None:
    shapes = []
    for number, (proxy, database, _) in enumerate(seen.values()):
        text = AnalystKey.create(tmp_path / f"{number}.key", None).text
        proxy.forget()
        database.grant("a" * (1 + 3 * number), text, ["t"])
        database.revoke("a" * (1 + 3 * number))
        shapes.append(proxy.shape())
    assert all(shape == shapes[0] for shape in shapes)
