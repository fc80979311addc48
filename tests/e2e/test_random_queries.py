"""Random queries over random tables: the answer is DuckDB's on the plaintext, always.

A lookup loses a row with a probability of 1e-9 for each index built; with at most 8 indexes to a database, a false
alarm in 10,000 databases has a probability of less than 1e-4, and in one run of `make test` of less than 1e-6.
"""

import itertools
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from random import Random
from typing import Any

import pytest
from e2e_answers import Plain, difference
from e2e_queries import random_query
from e2e_tables import RandomTable, random_table
from e2e_writer import Query
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

import scumble
from scumble.owner.database import Database
from scumble.sql import AggregateQuery, RowQuery

QUERIES = 50
SHARED = settings(suppress_health_check=list(HealthCheck), phases=[Phase.explicit, Phase.generate], database=None)
SEEDS = st.integers(1, 1 << 32)


def two_tables(rng: Random) -> list[RandomTable]:
    """A table of any size, and one that can be joined with it in a bearable time."""
    return [random_table(rng, "t"), random_table(rng, "u", rng.choice([0, 1, 30, 200]))]


def plain(tables: Sequence[RandomTable]) -> Plain:
    return Plain({table.name: table.whole for table in tables})


@contextmanager
def database(folder: Path, tables: Sequence[RandomTable]) -> Iterator[Database]:
    """A new database with these tables, each batch loaded with its own capacity."""
    with scumble.create(folder / "db", limit=100_000, delta_limit="0.01") as db:
        for table in tables:
            options: dict[str, Any] = {"indexes": table.indexes, "types": table.types, "page_rows": table.page_rows}
            for batch, capacity in zip(table.batches, table.capacity, strict=True):
                db.load(table.name, batch, capacity=capacity, again=True, **options)
        yield db


def wrong_answers(folder: Path, seed: int, queries: int, then: Callable[[], object] = lambda: None) -> Iterator[str]:
    """Build a database by chance, do something, ask it so many queries, and say what is wrong with the answers."""
    rng = Random(seed)  # noqa: S311
    tables = two_tables(rng)
    reference = plain(tables)
    with database(folder, tables) as db:
        then()
        for number in range(queries):
            query = random_query(rng, tables)
            found = difference(db, reference, query.sql, query.params, ordered=query.ordered)
            if found is not None:
                yield f"seed {seed}, query {number}: {found}\n    {query.sql}\n    {query.params}"


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> "itertools.chain[Path]":
    return itertools.chain.from_iterable([tmp_path_factory.mktemp("random")] for _ in itertools.count())


@pytest.mark.parametrize("sign", [1, -1])  # two tests, so that two processes can share the work
@settings(SHARED, max_examples=5)
@given(seed=SEEDS)
def test_few_databases(folders: "itertools.chain[Path]", seed: int, sign: int) -> None:
    assert "\n".join(wrong_answers(next(folders), sign * seed, QUERIES)) == ""


@pytest.mark.slow
@settings(SHARED, max_examples=45)
@given(seed=SEEDS)
def test_many_databases(folders: "itertools.chain[Path]", seed: int) -> None:
    assert "\n".join(wrong_answers(next(folders), seed, 4 * QUERIES)) == ""


# --- that these tests can fail -------------------------------------------------------------------------


def kinds(db: Database, tables: list[RandomTable], queries: list[Query]) -> Counter[str]:
    """What the queries come down to, and what is in their answers."""
    found: Counter[str] = Counter()
    for query in queries:
        try:
            statement = db._statement(query.sql)
            rows = len(db.sql(query.sql, query.params).arrow())
        except Exception:
            found["refused"] += 1
            continue
        found["rows" if isinstance(statement.query, RowQuery) else "aggregates"] += 1
        if isinstance(statement.query, AggregateQuery):
            found["direct"] += statement.query.direct is not None
            found["grouped"] += bool(statement.query.aggregates.group_by)
        else:
            found["joined"] += len(statement.query.fetches) > 1
        found["with rows"] += rows > 0
        explained = db.explain(query.sql, query.params).tables
        found["indexed"] += any(table.indexes for table in explained)
        copies = [(table, scan.copy_columns) for table in explained for scan in table.scans]
        found["narrow"] += any(table.indexes and held is not None for table, held in copies)
        found["passed over"] += any(table.passed_over for table in explained)
    return found


def test_the_generator_reaches_every_part(tmp_path: Path) -> None:
    total: Counter[str] = Counter()
    for seed in range(6):
        rng = Random(seed)  # noqa: S311
        tables = two_tables(rng)
        folder = tmp_path / str(seed)
        folder.mkdir()
        with database(folder, tables) as db:
            total += kinds(db, tables, [random_query(rng, tables) for _ in range(30)])
    assert total["refused"] < 180 * 0.1
    assert total["aggregates"] > 180 * 0.1
    assert total["rows"] > 180 * 0.4
    for kind in ("direct", "grouped", "joined", "indexed", "passed over"):
        assert total[kind] > 4, (kind, total)
    assert total["narrow"]  # tests/e2e/test_narrow_copies.py asks for them
    assert total["with rows"] > 180 * 0.4


@pytest.mark.parametrize("defect", ["a row too few", "an end too many", "nulls that match", "a wrong sum"])
def test_planted_defects_are_noticed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, defect: str) -> None:
    from scumble.enclave import kernels
    from scumble.enclave.queries import Batch

    asking = [False]  # and not loading, which would notice some of them
    if defect == "a row too few":
        mask_rows = kernels.mask_rows
        monkeypatch.setattr(kernels, "mask_rows", lambda first, n, dummies: mask_rows(first, n, dummies - [1, 0]))
    elif defect == "an end too many":
        mask_intervals = kernels.mask_intervals

        def wider(values, bounds, *args, **named):  # type: ignore[no-untyped-def]
            wide = bounds.copy()
            wide[:, 1] += asking[0]
            return mask_intervals(values, wide, *args, **named)

        monkeypatch.setattr(kernels, "mask_intervals", wider)
    elif defect == "nulls that match":
        mask_compare = kernels.mask_compare

        def careless(left, right, op, valid, other, *, negated):  # type: ignore[no-untyped-def]
            return mask_compare(left, right, op, None, None, negated=negated)

        monkeypatch.setattr(kernels, "mask_compare", careless)
    else:
        batch = Batch.valid
        monkeypatch.setattr(Batch, "valid", lambda self, columns: None if len(columns) > 0 else batch(self, columns))

    def all_wrong() -> Iterator[str]:
        for seed in range(4, 12):  # the rarest defect shows with the first of them
            folder = tmp_path / str(seed)
            folder.mkdir()
            asking[0] = False
            yield from wrong_answers(folder, seed, QUERIES, lambda: asking.__setitem__(0, True))

    assert any(": row" in each and " instead of " in each for each in all_wrong())
