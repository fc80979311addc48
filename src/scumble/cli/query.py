"""`scumble query` and `scumble explain`: run SQL and print its answer, or say what the provider would see of it.

Query, parameters and answer are the owner's alone; `explain` and `scumble transcript` show what the provider sees. A
table shows control characters escaped, so that no row can play tricks on the terminal.
"""

import json
import math
import os
import re
import sys
from collections.abc import Iterable, Iterator, Sequence
from datetime import date, datetime, time
from decimal import Decimal
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Annotated, Any

import typer

from scumble.cli.database import Json, Key, Target, opened
from scumble.cli.terminal import count, working
from scumble.durable import Draft
from scumble.errors import FileError, InvalidParameter
from scumble.owner.answers import Result
from scumble.sql.parse import parse

if TYPE_CHECKING:
    from scumble.sql.explain import Explanation

__all__ = ["as_csv", "as_json", "as_table", "explain", "query", "read_parameters", "stats_line"]

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
        begun = perf_counter()
        with working("running the query"):
            result = database.sql(text, values)
            if arrow is not None:
                write_arrow(result, arrow)
        seconds = perf_counter() - begun
        if print_json:
            typer.echo(as_json(result))
        elif csv:
            typer.echo("\n".join(as_csv(result)))
        elif arrow is None:
            typer.echo("\n".join(as_table(result)))
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


def as_table(result: Result) -> Iterator[str]:
    """Yield the lines of a table: names, a rule, rows with numbers to the right, and the row count unless it is 1."""
    from rich.cells import cell_len

    names = [_printable(name) for name in result.columns]
    rows = result.fetchall()
    right = [_is_number(column) for column in zip(*rows, strict=True)] or [False] * len(names)
    cells = [names, *([_shown(value) for value in row] for row in rows)]
    widths = [max(map(cell_len, column)) for column in zip(*cells, strict=True)]

    def line(row: list[str]) -> str:
        padding = [width - cell_len(cell) for cell, width in zip(row, widths, strict=True)]
        padded = [
            " " * spaces + cell if to_right else cell + " " * spaces
            for cell, spaces, to_right in zip(row, padding, right, strict=True)
        ]
        return "  ".join(padded).rstrip()

    yield line(names)
    yield "  ".join("-" * width for width in widths)
    yield from map(line, cells[1:])
    if len(rows) != 1:
        yield f"({count(len(rows), 'row')})"


def as_json(result: Result) -> str:
    """Return an array of objects. Whole numbers are exact; decimals are strings, to be exact too."""
    names = list(_distinct(result.columns))
    return json.dumps(
        [dict(zip(names, map(_jsonable, row), strict=True)) for row in result.fetchall()], ensure_ascii=False
    )


def as_csv(result: Result) -> Iterator[str]:
    """Yield lines, the names first; a null is an empty cell, an empty text is \"\"."""
    yield ",".join(map(_cell, result.columns))
    for row in result.fetchall():
        yield ",".join("" if value is None else _cell(_text(value)) for value in row)


def write_arrow(result: Result, file: Path) -> None:
    """Write an Arrow IPC file, whole or not at all; replace an existing one."""
    import pyarrow as pa

    table = result.arrow()
    try:
        with Draft(file) as draft:
            with draft.stream() as sink, pa.ipc.new_file(sink, table.schema) as writer:
                writer.write_table(table)
            draft.replace()
    except OSError as error:
        why = os.strerror(error.errno) if error.errno else "the system refuses"
        raise FileError(f"cannot write {file}: {why}", hint="its folder has to exist and to be writable") from error


def _is_number(column: Iterable[Any]) -> bool:
    return all(value is None or (isinstance(value, int | float | Decimal) and value is not True) for value in column)


def _shown(value: object) -> str:
    return "NULL" if value is None else _printable(_text(value))


def _text(value: object) -> str:
    match value:
        case bool():
            return str(value).lower()
        case Decimal():
            return f"{value:f}"
        case bytes():
            return value.hex()
        case list() | dict():
            return json.dumps(_jsonable(value), ensure_ascii=False)
    if type(value).__name__ == "MonthDayNano":  # pyarrow's interval
        interval: Any = value
        return f"P{interval.months}M{interval.days}DT{Decimal(interval.nanoseconds) / 10**9:f}S"
    return str(value)


def _printable(text: str) -> str:
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def _cell(text: str) -> str:
    if text and not any(c in text for c in ',"\r\n') and text == text.strip():
        return text
    return '"' + text.replace('"', '""') + '"'


def _jsonable(value: Any) -> Any:
    match value:
        case float() if not math.isfinite(value):
            return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
        case None | bool() | int() | float() | str():
            return value
        case datetime() | date() | time():
            return value.isoformat()
        case list():
            return list(map(_jsonable, value))
        case dict():
            return {str(name): _jsonable(inner) for name, inner in value.items()}
    return _text(value)


def _distinct(names: Iterable[str]) -> Iterator[str]:
    """Yield the names, with `_1`, `_2`, ... after repeated ones: a JSON object has each name once."""
    taken: set[str] = set()
    for name in names:
        unique = next(n for n in (name, *(f"{name}_{i}" for i in range(1, 1 << 20))) if n not in taken)
        taken.add(unique)
        yield unique
