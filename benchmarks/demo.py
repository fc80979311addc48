"""The demo, `make demo`: load a million made-up hospital visits, query them, and show what the provider saw of it.

It takes less than a minute, and every number that it prints is measured in that run. Each answer is compared with
DuckDB's on the same rows in plain text.
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
from benchmarks.demo_service import over_a_network
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
    ("A single value", "SELECT visit, patient, day, ward FROM visits WHERE amount = 1234.56"),
    ("A range", "SELECT count(*), sum(amount) FROM visits WHERE day BETWEEN '2025-03-03' AND '2025-03-07'"),
    (
        "AND: one index narrows the pages down, and the enclave tests every condition",
        "SELECT count(*), max(age) FROM visits WHERE amount BETWEEN 900 AND 910 AND day >= '2025-01-01' AND emergency",
    ),
    (
        "OR: two indexes, and no row is counted twice",
        "SELECT count(*), avg(amount) FROM visits WHERE amount > 15000 OR day = '2024-12-24'",
    ),
    (
        "GROUP BY, in the enclave: every row touches every group, so that none stands out",
        "SELECT ward, count(*), sum(amount) FROM visits WHERE day = '2025-06-02' GROUP BY ward ORDER BY ward",
    ),
    (
        "A join: encrypted rows come back, and the owner joins them",
        "SELECT floor, count(*), max(amount) FROM visits JOIN wards USING (ward) "
        "WHERE day = '2025-06-02' AND diagnosis = 'stroke' GROUP BY floor ORDER BY floor",
    ),
    ("No index helps: a scan of the whole table", "SELECT count(*), avg(age) FROM visits WHERE diagnosis IS NULL"),
)
CHANGES = (
    "UPDATE visits SET diagnosis = 'stroke' WHERE day = '2025-06-02' AND amount BETWEEN 500 AND 905",
    "DELETE FROM visits WHERE patient = 4711",
    "INSERT INTO visits SELECT * FROM visits WHERE day = '2025-06-02' AND amount < 50 LIMIT 100",
)
AFTER_CHANGES = "SELECT diagnosis, count(*), sum(amount) FROM visits WHERE day = '2025-06-02' GROUP BY ALL ORDER BY ALL"
QUESTIONS = len(QUERIES) + len(CHANGES)


def main(arguments: list[str] | None = None) -> int:
    """Run both parts; 0 if every answer was right and every refusal came."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=10**6, help="how many visits to make up (default: 1,000,000)")
    parser.add_argument("--output", type=Path, default=Path("demo-output"), help="folder for everything it makes")
    options = parser.parse_args(arguments)
    begun = perf_counter()
    home = _cleared(options.output)
    plain = visits(options.rows)
    with scumble.create(home, limit=2) as database:
        _load(database, home, plain)
        right = _ask_all(database, plain)
        _look_back(database, home)
        _draw(database, options.output, plain)
        right += _change_all(database, plain)
    expected = over_a_network(options.output, plain, TYPES, _say, _print)
    _say(
        f"\nDone in {perf_counter() - begun:.0f} s: {right} of {QUESTIONS} answers equal DuckDB's. The database is "
        "still there, for scumble query, explain, transcript and check, or:"
    )
    print(f"    scumble shell {home}")
    return 0 if expected and right == QUESTIONS else 1


def _load(database: scumble.Database, home: Path, plain: Any) -> None:
    _say(
        f"Part 1. Loading {len(plain):,} made-up hospital visits with {plain.num_columns} columns into an encrypted "
        f"database, {home}/. A cloud provider could store that folder; the key beside it, {home.name}.key, stays with "
        "the owner. The load builds two private indexes, on amount and on day. Each costs epsilon 0.5 of the privacy "
        "budget, once; queries cost nothing."
    )
    start = perf_counter()
    report = database.load("visits", plain, indexes=INDEXES, types=TYPES)
    spent = perf_counter() - start
    database.load("wards", wards(), types={"ward": TYPES["ward"]}, capacity=16, page_rows=16)
    sealed = sum(path.stat().st_size for path in home.rglob("*") if path.is_file())
    _say(
        f"\nLoaded in {spent:.1f} s, as {sealed / 2**20:,.0f} MiB of encrypted pages. The number of rows is hidden "
        f"too: the provider sees room for {report.capacity:,}, a noisy number that cost another epsilon "
        f"{float(report.epsilon) - 1:g}."
    )


def _ask_all(database: scumble.Database, plain: Any) -> int:
    """Ask every query, and print the answer and what the provider saw; return how many were right."""
    import duckdb

    right = 0
    with duckdb.connect(":memory:") as clear:
        clear.register("visits", plain)
        clear.register("wards", wards())
        for number, (title, query) in enumerate(QUERIES, 1):
            answer, seen = _ask(database, query)
            same = _comparable(answer) == _comparable(clear.sql(query).fetchall())
            right += same
            verdict = ("equals" if same else "DIFFERS FROM") + " DuckDB's answer on the plain rows"
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
    """The transcript in words: for each table, the columns and how many of their pages were read."""
    parts = []
    for table in database.tables:
        runs = {run.id for run in table.runs}
        reads = [e for one in exchanges for e in one.inside if e.kind == "read" and e["run"] in runs]
        if reads:
            columns = list(dict.fromkeys(table.schema.columns[int(event["column"])].name for event in reads))
            pages = sum(int(event["pages"]) for event in reads) // len(columns)
            size = sum(int(event["bytes"]) for event in reads)
            full = max(run.pages for run in table.runs)
            ratio = f" (1/{full / pages:.0f} of a full scan)" if pages < full else ""
            parts.append(
                f"{pages:,} of {full:,} pages of {table.name}{ratio}, columns {', '.join(columns)}, {size:,} bytes"
            )
    back = sum(int(one.closed["bytes"]) for one in exchanges if one.closed is not None)
    return f"{'; '.join(parts)}; and an encrypted answer of {back:,} bytes"


def _milliseconds(database: scumble.Database, query: str) -> float:
    """The fastest of a few more runs, with the statement already planned."""
    times = []
    for _ in range(REPEATS):
        start = perf_counter()
        database.sql(query).fetchall()
        times.append(perf_counter() - start)
    return min(times) * 1e3


def _look_back(database: scumble.Database, home: Path) -> None:
    _, (exchange,) = _ask(database, QUERIES[1][1])
    names = public_names(home, {str(event["run"]) for event in exchange.inside})
    _say("This is all that the provider recorded of query 2 (`scumble transcript` prints it for every query):")
    for line in exchange_lines(exchange, names):
        _print("    ", line)
    ledger = database.ledger
    costs = ", ".join(f"{entry.label} {float(entry.epsilon):g}" for entry in ledger.entries())
    _say(
        f"\nThe privacy budget: {costs}. Of the limit of epsilon 2 that was set for this database, "
        f"{float(ledger.remaining()):g} remains. The queries spent nothing, and any number of further ones would not."
    )
    _say(
        "\nWhat is not hidden: roughly which range a query asks for, which columns it reads, how long it takes, and "
        "the names, types and domains of the columns. An index shows the blurred shape of its column; epsilon bounds "
        "what one visit can change in it, and a patient with k visits can change k times as much. In this part owner, "
        "provider and enclave share one process, which shows what a provider would see but hides nothing from that "
        "process."
    )


def _change_all(database: scumble.Database, plain: Any) -> int:
    """Change rows, and compare what is left with the same changes in DuckDB; return after how many it was right."""
    import duckdb

    _say("\nRows can be changed, too. None of it costs epsilon, and the provider does not learn how many rows it was:")
    right, spent = 0, database.ledger.spent()
    with duckdb.connect(":memory:") as clear:
        clear.execute("CREATE TABLE visits AS SELECT * FROM plain")
        for statement in CHANGES:
            start = perf_counter()
            report = cast(Any, database.execute(statement))
            taken = perf_counter() - start
            changed = clear.execute(statement).fetchall()[0][0]
            answers = [_comparable(each.sql(AFTER_CHANGES).fetchall()) for each in (database, clear)]
            same = report.rows == changed and answers[0] == answers[1]
            right += same
            print()
            _print("    ", statement)
            verdict = "equals" if same else "DIFFERS FROM"
            _print("  owner     ", f"{report.rows:,} rows changed, {taken * 1e3:,.0f} ms; the table {verdict} DuckDB's")
    table = database.table("visits")
    sealed = sum(layer.pages * len(layer.columns) for run in table.runs for layer in run.layers)
    tail = sum(run.capacity for run in table.tail)
    _print("  provider  ", f"saw {sealed:,} pages sealed anew, and room for {tail:,} rows added")
    assert database.ledger.spent() == spent
    print()
    return right


def _draw(database: scumble.Database, output: Path, plain: Any) -> None:
    """Plot the index on amount over the true counts, which only the owner has."""
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
    _say(f"\n{picture} shows the index on amount ({path.stat().st_size:,} bytes) over the true curve that it blurs.")


def _cleared(output: Path) -> Path:
    """The folder for the database, after deleting what an earlier run left."""
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
    """Sorted, and floats rounded to 12 digits: the order of a sum decides the digits after those."""
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
    """Print a paragraph, after an empty line if the text begins with a line break."""
    if text.startswith("\n"):
        print()
    print(textwrap.fill(text.strip(), WIDTH, break_on_hyphens=False, break_long_words=False))


if __name__ == "__main__":
    raise SystemExit(main())
