"""Figure 1 of the database: COUNT and SUM over some of a million rows, against plaintext PostgreSQL and DuckDB.

All three have the same rows sorted by the key, and a prepared statement that is given other bounds each time, and are
called from Python in this process; PostgreSQL answers over its Unix socket. As it comes, it plans a statement anew
wherever that promises to pay; its time with `force_generic_plan` is shown beside.
"""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from itertools import count
from pathlib import Path
from typing import Any

from benchmarks.database import postgres
from benchmarks.database.clock import shown, side_by_side
from benchmarks.database.tables import COLUMNS, absent_keys, asking, bounds, integers, loaded
from benchmarks.figure import Figure, Line, Size, say

__all__ = ["QUERY", "measure"]

SIZES: dict[Size, dict[str, int]] = {
    "full": {"rows": 10**6, "rounds": 40, "calls": 30},
    "quick": {"rows": 10**6, "rounds": 10, "calls": 20},
    "tiny": {"rows": 5_000, "rounds": 1, "calls": 3},
}
SHARES = (0.0, 0.005, 0.05)
RANGES = 500  # to choose bounds from
QUERY = "SELECT count(*), sum(c1) FROM t WHERE c0 BETWEEN {} AND {}"
MOST_OF_POSTGRES, MOST_OF_DUCKDB = 1 / 3, 1.0
GENERIC = "PostgreSQL, generic plan"

Ask = Callable[[int, int], list[tuple[Any, ...]]]


def measure(size: Size) -> Figure:
    """Three selectivities, three databases."""
    terms = SIZES[size]
    figure = Figure("database.aggregates")
    programs = postgres.find_postgres()
    with ExitStack() as stack:
        say(f"database.aggregates: loading {terms['rows']:,} rows three times")
        ours = asking(loaded(terms["rows"]).database, QUERY)
        prepare: dict[str, Callable[[], Ask]] = {"Scumble": lambda: ours}
        if programs is not None:
            prepare |= stack.enter_context(_postgres(terms["rows"], programs))
        prepare["DuckDB"] = stack.enter_context(_duckdb(terms["rows"]))
        for share in SHARES:
            say(f"database.aggregates: {share:.1%} of the rows")
            _measure_share(figure, {name: made() for name, made in prepare.items()}, share, terms)
    if programs is None:
        figure.add("against PostgreSQL", postgres.HOW_TO_INSTALL)
    return figure


def _measure_share(figure: Figure, contestants: dict[str, Ask], share: float, terms: dict[str, int]) -> None:
    rows = terms["rows"]
    ranges = bounds(rows, int(share * rows), RANGES) if share else absent_keys(rows, RANGES)
    for one in ranges[:10]:  # and warm up: PostgreSQL decides how to plan after five
        first, *others = [ask(*one) for ask in contestants.values()]
        assert all(other == first for other in others), "the databases differ"
    times = side_by_side(contestants, ranges, terms["rounds"], terms["calls"])
    figure.values[f"{share:.1%}"] = {"rows": rows, "seconds": times}
    claim = f"COUNT, SUM over {share:.1%} of {rows:,} rows: Scumble / "
    for name, most in (("PostgreSQL", MOST_OF_POSTGRES), (GENERIC, None), ("DuckDB", MOST_OF_DUCKDB)):
        if name in times:
            figure.lines.append(_line(claim + name, times["Scumble"], times[name], most))


def _line(claim: str, ours: float, theirs: float, most: float | None) -> Line:
    text = f"{shown(ours)} / {shown(theirs)} = {ours / theirs:.2f}"
    return Line(claim, text) if most is None else Line(claim, text, f"≤ {most:.2f}", ours <= most * theirs)


@contextmanager
def _postgres(rows: int, programs: Path) -> Iterator[dict[str, Callable[[], Ask]]]:
    import psycopg

    query = QUERY.format("%s::bigint", "%s::bigint")
    numbers = count()
    columns = ", ".join(f"c{place} bigint NOT NULL" for place in range(COLUMNS))

    def prepared(connection: Any) -> Ask:
        cursor = connection.cursor()
        own = f"{query} /* {next(numbers)} */"  # a statement for each selectivity: planned for what it is asked
        return lambda low, high: list(cursor.execute(own, (low, high), prepare=True).fetchall())

    with (
        postgres.running(programs) as connection,
        psycopg.connect(connection.info.dsn, autocommit=True) as other,
    ):
        postgres.fill(connection, "t", integers(rows), columns, "c0")
        other.execute("SET plan_cache_mode = force_generic_plan")
        yield {"PostgreSQL": lambda: prepared(connection), GENERIC: lambda: prepared(other)}


@contextmanager
def _duckdb(rows: int) -> Iterator[Callable[[], Ask]]:
    import duckdb

    with duckdb.connect(":memory:") as connection:
        connection.execute("SET threads = 1")
        connection.register("source", integers(rows))
        connection.execute("CREATE TABLE t AS SELECT * FROM source ORDER BY c0")
        connection.unregister("source")
        # Parsed once: faster than PREPARE and EXECUTE, whose text is parsed each time.
        (statement,) = connection.extract_statements(QUERY.format("$low", "$high"))
        yield lambda: lambda low, high: connection.execute(statement, {"low": low, "high": high}).fetchall()
