"""The demo: a million made-up hospital visits go into an encrypted database; SQL is asked, and the provider watched.

`make demo` runs it, in less than a minute. Every number that it prints is measured in that run. Each answer is compared
with DuckDB's over the same rows in clear, which are there only because they are made up.
"""

import argparse
import json
import shutil
import textwrap
from decimal import Decimal
from pathlib import Path
from time import perf_counter
from typing import Any, cast

import scumble
from benchmarks.demo_service import second_act
from benchmarks.hospital import DIAGNOSES, FIRST_DAY, LAST_DAY, MOST_AMOUNT, WARDS, visits, wards
from scumble.cli.transcript import exchange_lines, public_names
from scumble.index.file import decoded
from scumble.provider.front import Provider
from scumble.store.transcript import Exchange

__all__ = ["main"]

WIDTH = 110
SHOWN_ROWS = 3
REPEATS = 5
INDEXES = (f"amount decimal:0:{MOST_AMOUNT}:0.01 epsilon=0.5", f"day date:{FIRST_DAY}:{LAST_DAY} epsilon=0.5")
TYPES = {
    "ward": f"category({json.dumps(WARDS)}) not null",
    "diagnosis": f"category({json.dumps(DIAGNOSES)})",
}
QUERIES = (
    ("A point", "SELECT visit, patient, day, ward FROM visits WHERE amount = 1234.56"),
    ("A range", "SELECT count(*), sum(amount) FROM visits WHERE day BETWEEN '2025-03-03' AND '2025-03-07'"),
    (
        "AND: one index leads, all conditions are tested in the enclave",
        "SELECT count(*), max(age) FROM visits WHERE amount BETWEEN 900 AND 910 AND day >= '2025-01-01' AND emergency",
    ),
    (
        "OR: two indexes, and no row twice",
        "SELECT count(*), avg(amount) FROM visits WHERE amount > 15000 OR day = '2024-12-24'",
    ),
    (
        "GROUP BY, in the enclave: every group is touched for every row",
        "SELECT ward, count(*), sum(amount) FROM visits WHERE day = '2025-06-02' GROUP BY ward ORDER BY ward",
    ),
    (
        "A join: the rows come back sealed, and are joined at the owner",
        "SELECT floor, count(*), max(amount) FROM visits JOIN wards USING (ward) "
        "WHERE day = '2025-06-02' AND diagnosis = 'stroke' GROUP BY floor ORDER BY floor",
    ),
    ("No index helps: the full oblivious scan", "SELECT count(*), avg(age) FROM visits WHERE diagnosis IS NULL"),
)


def main(arguments: list[str] | None = None) -> int:
    """Tell the story, step by step."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=10**6, help="made-up visits (1,000,000)")
    parser.add_argument("--output", type=Path, default=Path("demo-output"), help="folder for database and picture")
    options = parser.parse_args(arguments)
    begun = perf_counter()
    home = _cleared(options.output)
    plain = visits(options.rows)
    with scumble.create(home, limit=2) as database:
        _load(database, home, plain)
        right = _ask_all(database, plain)
        _look_back(database, home)
        _draw(database, options.output, plain)
    well = second_act(options.output, plain, TYPES, _say, _print)
    _say(
        f"\nDone in {perf_counter() - begun:.0f} s: {right} of {len(QUERIES)} answers equal DuckDB's. The database is "
        f"still there, for scumble query, explain, transcript or check: scumble shell {home}"
    )
    return 0 if well and right == len(QUERIES) else 1


def _load(database: scumble.Database, home: Path, plain: Any) -> None:
    _say(
        f"{len(plain):,} hospital visits, made up, with {plain.num_columns} columns go into an encrypted database in "
        f"{home}/, which a provider may keep. The key file beside it, {home.name}.key, stays with the owner. Two "
        "private indexes, on amount and day, cost epsilon 0.5 each, once; the queries after that cost nothing."
    )
    start = perf_counter()
    report = database.load("visits", plain, indexes=INDEXES, types=TYPES)
    spent = perf_counter() - start
    database.load("wards", wards(), types={"ward": TYPES["ward"]}, capacity=16, page_rows=16)
    sealed = sum(path.stat().st_size for path in home.rglob("*") if path.is_file())
    _say(
        f"Loaded in {spent:.1f} s: sorted obliviously once for each index, {sealed / 2**20:,.0f} MiB sealed. The "
        f"number of rows is hidden behind a noisy capacity of {report.capacity:,}, for epsilon "
        f"{float(report.epsilon) - 1:g} more."
    )


def _ask_all(database: scumble.Database, plain: Any) -> int:
    """Each query: what was asked, what came back, what the provider saw of it; how many were right."""
    import duckdb

    right = 0
    with duckdb.connect(":memory:") as clear:
        clear.register("visits", plain)
        clear.register("wards", wards())
        for number, (title, query) in enumerate(QUERIES, 1):
            answer, seen = _ask(database, query)
            same = _comparable(answer) == _comparable(clear.sql(query).fetchall())
            right += same
            verdict = ("equals" if same else "DIFFERS FROM") + " DuckDB's over the rows in clear"
            print(f"\n{number}. {title}")
            _print("    ", query)
            _print("  answer    ", f"{_short(answer)}")
            _print("  check     ", f"{verdict}; {_milliseconds(database, query):,.2f} ms")
            _print("  provider  ", f"saw {_saw(database, seen)}")
    print()
    return right


def _ask(database: scumble.Database, query: str) -> tuple[list[tuple[Any, ...]], list[Exchange]]:
    """The answer, and the executions that the provider saw for it."""
    transcript = _transcript(database)
    before = max((event.number for event in transcript.events()), default=0)
    answer = database.sql(query).fetchall()
    exchanges = (one for one in transcript.exchanges() if one.opened.number > before)
    return answer, [one for one in exchanges if any(event.kind == "read" for event in one.inside)]


def _saw(database: scumble.Database, exchanges: list[Exchange]) -> str:
    """The transcript in words: for each table its columns and how many pages of each, against all that there are."""
    parts = []
    for table in database.tables:
        runs = {run.id for run in table.runs}
        reads = [e for one in exchanges for e in one.inside if e.kind == "read" and e["run"] in runs]
        if reads:
            columns = list(dict.fromkeys(table.schema.columns[int(event["column"])].name for event in reads))
            pages = sum(int(event["pages"]) for event in reads) // len(columns)
            size = sum(int(event["bytes"]) for event in reads)
            full = max(run.pages for run in table.runs)
            ratio = f", 1/{full / pages:.0f} of a full scan" if pages < full else ""
            parts.append(
                f"{pages:,} of {full:,} pages of {table.name}{ratio}, for {', '.join(columns)}: {size:,} bytes"
            )
    back = sum(int(one.closed["bytes"]) for one in exchanges if one.closed is not None)
    return f"{'; '.join(parts)}; sealed answer: {back:,} bytes"


def _milliseconds(database: scumble.Database, query: str) -> float:
    """The shortest of some more runs: the statement is known by now."""
    times = []
    for _ in range(REPEATS):
        start = perf_counter()
        database.sql(query).fetchall()
        times.append(perf_counter() - start)
    return min(times) * 1e3


def _look_back(database: scumble.Database, home: Path) -> None:
    _, (exchange,) = _ask(database, QUERIES[1][1])
    names = public_names(home, {str(event["run"]) for event in exchange.inside})
    _say("This is all that the provider has of query 2 (`scumble transcript` shows it for every one):")
    for line in exchange_lines(exchange, names):
        _print("    ", line)
    ledger = database.ledger
    costs = ", ".join(f"{entry.label} {float(entry.epsilon):g}" for entry in ledger.entries())
    _say(
        f"\nThe owner's ledger: {costs}. Of the limit of epsilon 2 that was set for this database, "
        f"{float(ledger.remaining()):g} remains; the queries cost nothing, and any number more would not."
    )
    _say(
        "\nWhat is not hidden: the provider learns roughly which range a query asks for, which columns it touches, how "
        "long it takes, and the catalog with its names, types and domains. An index shows the blurred shape of a "
        "column: epsilon bounds what one visit can change in it, and a patient with k visits counts k times. In this "
        "demo owner, provider and enclave are one process, which shows what a provider would see, and protects nothing "
        "from that process itself."
    )


def _draw(database: scumble.Database, output: Path, plain: Any) -> None:
    """The index on amount, with the truth that it blurs."""
    import numpy as np

    (run,) = database.table("visits").runs_by("amount")
    assert run.index is not None
    path = output / "amount.index"
    path.write_bytes(run.index)
    amounts = plain.column("amount").drop_null().combine_chunks()
    domain = decoded(run.index).domain
    counts = np.bincount(domain.ranks(amounts), minlength=domain.size)
    picture = output / "amount.png"
    scumble.DPPLRIndex.load(path).plot(picture, key_label="amount", unsafe_true_counts=counts)
    _say(f"\n{picture} shows the index on amount, {path.stat().st_size:,} bytes, and the true curve that it blurs.")


def _cleared(output: Path) -> Path:
    """Where the database goes; what an earlier demo left there is deleted."""
    home = output / "clinic"
    if home.exists():
        shutil.rmtree(home)
    output.mkdir(parents=True, exist_ok=True)
    for path in output.glob("clinic.*"):
        path.unlink()
    for name in ("owner", "provider"):
        shutil.rmtree(output / name, ignore_errors=True)
    return home


def _transcript(database: scumble.Database) -> Any:
    return cast(Provider, database.service).transcript


def _comparable(rows: list[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    """In any order, and with floats to the digits on which two ways of adding up agree."""
    rounded = [tuple(float(f"{value:.12g}") if isinstance(value, float) else value for value in row) for row in rows]
    return sorted(rounded, key=repr)


def _short(rows: list[tuple[Any, ...]]) -> str:
    shown = "; ".join(", ".join(map(_cell, row)) for row in rows[:SHOWN_ROWS])
    return f"{len(rows)} rows: {shown}; ..." if len(rows) > SHOWN_ROWS else shown or "no row"


def _cell(value: object) -> str:
    if isinstance(value, Decimal):
        return f"{value:,}"
    return f"{value:,.4f}" if isinstance(value, float) else str(value)


def _print(indent: str, text: str) -> None:
    print(
        textwrap.fill(text, WIDTH, initial_indent=indent, subsequent_indent=" " * len(indent), break_on_hyphens=False)
    )


def _say(text: str) -> None:
    """A paragraph; a line break before it makes an empty line."""
    if text.startswith("\n"):
        print()
    print(textwrap.fill(text.strip(), WIDTH, break_on_hyphens=False, break_long_words=False))


if __name__ == "__main__":
    raise SystemExit(main())
