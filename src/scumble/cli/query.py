"""`scumble query` and `scumble explain`: run SQL with its parameters, or say what the provider would see of it.

Query, parameters and answer are the owner's alone; `explain` and `scumble transcript` show what the provider sees.
"""

import json
import re
import sys
import time
from collections.abc import Sequence
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from scumble.cli.answers import as_csv, as_json, as_table, write_arrow
from scumble.cli.database import Json, Key, Target, opened
from scumble.cli.terminal import count, working
from scumble.errors import InvalidParameter
from scumble.sql.parse import parse

if TYPE_CHECKING:
    from scumble.sql.explain import Explanation

__all__ = ["explain", "query", "read_parameters", "stats_line"]

Sql = Annotated[str, typer.Argument(metavar="SQL", help="A query, or - to read it from stdin.", show_default=False)]
Params = Annotated[
    list[str] | None,
    typer.Option(
        "--param",
        metavar="VALUE",
        help="The next ? of the query: 17, 1.5, true, null or text; NAME=VALUE for $NAME. Repeat it for more.",
    ),
]
_INTEGER = re.compile(r"-?(0|[1-9]\d*)", re.ASCII)
_DECIMAL = re.compile(r"-?(0|[1-9]\d*)\.\d+", re.ASCII)
_FLOAT = re.compile(r"-?(0|[1-9]\d*)(\.\d+)?e[+-]?\d{1,3}", re.ASCII | re.IGNORECASE)
_QUOTED = re.compile(r"'((?:[^']|'')*)'", re.DOTALL)
_WORDS = {"true": True, "false": False, "null": None}


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
        bool, typer.Option("--stats", help="Say on stderr how many pages were read, as it does on a terminal.")
    ] = False,
    key: Key = None,
) -> None:
    """Run a query and get the exact answer. Costs no epsilon.

    The dialect is DuckDB's. What the enclave does not do itself (joins, windows,
    subqueries) runs here, over the rows that it sends back.

    \b
    scumble query clinic "SELECT count(*) FROM visits WHERE day > '2013-05-01'"
    scumble query clinic "SELECT * FROM visits WHERE amount BETWEEN ? AND ?" \\
        --param 10 --param 19.99 --csv
    scumble query clinic - --json < report.sql
    """
    if print_json + csv + (arrow is not None) > 1:
        raise InvalidParameter("an answer has one format", hint="choose one of --json, --csv and --arrow")
    text = sys.stdin.read() if sql == "-" else sql
    with opened(target, key) as database:
        values = read_parameters(text, param or [])
        begun = time.perf_counter()
        with working("running the query"):
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
    """Say what a query would read and what the provider would see. Runs nothing.

    \b
    scumble explain clinic "SELECT count(*) FROM visits WHERE amount < 20"
    """
    text = sys.stdin.read() if sql == "-" else sql
    with opened(target, key) as database:
        explained = database.explain(text, read_parameters(text, param or []))
    typer.echo(json.dumps(explained.to_json(), default=str) if print_json else str(explained))


def stats_line(explained: "Explanation", seconds: float) -> str:
    """Say in short what a query read, and how long it took."""
    tables = [
        f"{table.pages_read:,} of {table.pages_of_full_scan:,} pages of {table.table}"
        for table in explained.tables
        if table.columns_read  # a bare count(*) reads none
    ]
    return f"read {', '.join(tables) or 'no page'} in {1000 * seconds:,.1f} ms"


def read_parameters(sql: str, texts: Sequence[str]) -> list[Any] | dict[str, Any]:
    """Read `--param` texts: a list for a query with `?` or `$1`, a dictionary for one with `$name`."""
    keys = parse(sql).keys.values()
    names = [key for key in keys if isinstance(key, str)]
    if not names:
        needed = max((key for key in keys if isinstance(key, int)), default=-1) + 1
        if len(texts) != needed:
            raise InvalidParameter(
                f"the query has {count(needed, 'parameter')}, but {len(texts)} were given",
                hint="--param VALUE for each",
            )
        return [_value(text) for text in texts]
    values = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals:
            raise InvalidParameter(f"{text!r} does not say which parameter it is for", hint="--param name=value")
        values[name.removeprefix("$")] = _value(value)
    if values.keys() != set(names):
        listed = ", ".join(dict.fromkeys(names))
        raise InvalidParameter(
            "the parameters are not those of the query", hint=f"--param NAME=VALUE for each of {listed}"
        )
    return values


def _value(text: str) -> Any:
    """Read a number, true, false, null or text; single quotes, as in SQL, make any of them text."""
    if _INTEGER.fullmatch(text):
        return int(text) if len(text) <= 40 else Decimal(text)
    if _DECIMAL.fullmatch(text):
        return Decimal(text)
    if _FLOAT.fullmatch(text):
        return float(text)
    if quoted := _QUOTED.fullmatch(text):
        return quoted[1].replace("''", "'")
    return _WORDS.get(text.lower(), text)
