"""`scumble query` and `scumble explain`: SQL goes in, an exact answer comes out, or what the provider would see of it.

Query and answer are the owner's alone; what the provider sees of them is in `explain` and in `scumble transcript`.
"""

import json
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from scumble.cli.answers import as_csv, as_json, as_table, write_arrow
from scumble.cli.database import Json, Key, Params, Sql, Target, opened
from scumble.cli.parameters import read_parameters
from scumble.cli.progress import working
from scumble.errors import InvalidParameter

if TYPE_CHECKING:
    from scumble.sql.explain import Explanation

__all__ = ["explain", "query", "stats_line"]


def query(
    target: Target,
    sql: Sql,
    *,
    param: Params = None,
    print_json: Annotated[bool, typer.Option("--json", help="Print an array of objects.")] = False,
    csv: Annotated[bool, typer.Option("--csv", help="Print CSV.")] = False,
    arrow: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write an Arrow IPC file, and print nothing.")
    ] = None,
    stats: Annotated[
        bool, typer.Option("--stats", help="Say on stderr how many pages were read; always said on a terminal.")
    ] = False,
    key: Key = None,
) -> None:
    """Ask a query and get the exact answer. Costs no epsilon.

    The dialect is DuckDB's. Joins, windows, subqueries: whatever the enclave does
    not do itself runs here, over the rows that it sends back.

    \b
    scumble query clinic "SELECT count(*) FROM visits WHERE day > '2013-05-01'"
    scumble query clinic "SELECT * FROM visits WHERE amount BETWEEN ? AND ?" \\
        --param 10 --param 19.99 --csv
    scumble query clinic - --json < report.sql
    """
    if print_json + csv + (arrow is not None) > 1:
        raise InvalidParameter("an answer has one form", hint="one of --json, --csv and --arrow")
    text = sys.stdin.read() if sql == "-" else sql
    with opened(target, key) as database:
        values = read_parameters(text, param or [])
        begun = time.perf_counter()
        with working("asking"):
            result = database.sql(text, values)
            if arrow is not None:
                write_arrow(result, arrow)
        seconds = time.perf_counter() - begun
        if print_json:
            typer.echo(as_json(result))
        elif csv:
            for line in as_csv(result):
                typer.echo(line)
        elif arrow is None:
            for line in as_table(result):
                typer.echo(line)
        if stats or sys.stderr.isatty():
            typer.echo(stats_line(database.explain(text, values), seconds), err=True)


def explain(target: Target, sql: Sql, param: Params = None, key: Key = None, print_json: Json = False) -> None:
    """Say what a query would read, and what the provider would see of it. Asks nothing.

    \b
    scumble explain clinic "SELECT count(*) FROM visits WHERE amount < 20"
    """
    text = sys.stdin.read() if sql == "-" else sql
    with opened(target, key) as database:
        explained = database.explain(text, read_parameters(text, param or []))
    typer.echo(json.dumps(explained.to_json(), default=str) if print_json else str(explained))


def stats_line(explained: "Explanation", seconds: float) -> str:
    """What the provider has seen of a query, in short, and how long it took."""
    tables = [
        f"{table.pages_read:,} of {table.pages_of_full_scan:,} pages of {table.table}"
        for table in explained.tables
        if table.columns_read  # a bare count(*) reads none
    ]
    return f"read {', '.join(tables) or 'no page'} in {1000 * seconds:,.1f} ms"
