"""`scumble query` and `scumble explain`: run a statement and print its answer, or say what the provider would see.

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
from sqlglot import exp

from scumble.cli.database import Json, Key, Target, opened
from scumble.cli.statements import statements
from scumble.cli.terminal import count, working
from scumble.durable import Draft
from scumble.errors import FileError, InvalidParameter
from scumble.owner.answers import Result
from scumble.sql.definitions import definition_of
from scumble.sql.parse import is_control, is_query, parse

if TYPE_CHECKING:
    from scumble.owner.changing import ChangeReport
    from scumble.owner.database import Database
    from scumble.sql.explain import Explanation

__all__ = [
    "as_csv",
    "as_json",
    "as_table",
    "change_json",
    "change_line",
    "explain",
    "explained_for",
    "query",
    "read_parameters",
    "result_lines",
    "stats_line",
]

Sql = Annotated[str, typer.Argument(metavar="SQL", help="A statement, or - to read it from stdin.", show_default=False)]
Capacity = Annotated[
    int | None,
    typer.Option(
        metavar="ROWS", min=1, help="The room for inserted rows, which is public; by default as many as there are."
    ),
]
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
    capacity: Capacity = None,
    transaction: Annotated[
        bool, typer.Option("--transaction", help="Run several statements, with ; after each: all of them, or none.")
    ] = False,
    key: Key = None,
) -> None:
    """Run a query and get the exact answer, or change rows. Costs no epsilon.

    The dialect is DuckDB's. What the enclave does not do itself (joins, windows,
    subqueries) runs here, over the rows that it sends back.

    INSERT, UPDATE and DELETE say how many rows they changed: the provider cannot
    tell. `scumble explain` says what it sees.

    \b
    scumble query clinic "SELECT count(*) FROM visits WHERE day > '2013-05-01'"
    scumble query clinic "SELECT * FROM visits WHERE amount BETWEEN ? AND ?" \\
        --param 10 --param 19.99 --csv
    scumble query clinic - --json < report.sql
    scumble query clinic "UPDATE visits SET amount = 12 WHERE name = 'Bob'"
    scumble query clinic - --transaction < corrections.sql
    """
    if print_json + csv + (arrow is not None) > 1:
        raise InvalidParameter("an answer has one format", hint="choose one of --json, --csv and --arrow")
    text = sys.stdin.read() if sql == "-" else sql
    whole = csv or arrow is not None
    if transaction and (param or whole):
        raise InvalidParameter("a transaction has no parameters, and prints text or JSON", hint="leave the others out")
    if is_control(text) and not transaction:
        raise InvalidParameter("a transaction would end with the command", hint="--transaction, or `scumble shell`")
    if whole and not transaction and not is_query(text):
        raise InvalidParameter("a change has no rows to write", hint="leave --csv and --arrow out")
    with opened(target, key) as database:
        if transaction:
            _all_or_nothing(database, text, print_json=print_json)
            return
        values = read_parameters(text, param or [])
        shows = stats or sys.stderr.isatty()
        explained = explained_for(database, text, values, capacity) if shows else None
        begun = perf_counter()
        with working("running the statement"):
            result = database.execute(text, values, capacity=capacity)
            if arrow is not None and isinstance(result, Result):
                write_arrow(result, arrow)
        seconds = perf_counter() - begun
        if csv and isinstance(result, Result):
            typer.echo("\n".join(as_csv(result)))
        elif arrow is None:
            typer.echo("\n".join(result_lines(result, database, as_json_line=print_json)))
        if explained is not None:
            typer.echo(stats_line(explained, seconds), err=True)


def _all_or_nothing(database: "Database", text: str, *, print_json: bool) -> None:
    """Run several statements as one change; print what each of them gives once all are done."""
    lines: list[str] = []
    with working("running the statements"), database.transaction():
        for statement in statements([text]):
            if is_control(statement):
                raise InvalidParameter("the statements are one transaction already", hint="leave BEGIN and COMMIT out")
            lines += result_lines(database.execute(statement), database, as_json_line=print_json, settled=False)
    typer.echo("\n".join([*lines, *([] if print_json else [f"committed, as of version {database.version}"])]))


def explained_for(
    database: "Database", text: str, values: Sequence[Any] | dict[str, Any] = (), capacity: int | None = None
) -> "Explanation | None":
    """What there is to say of a statement, before it is run; None for BEGIN, CREATE and the like."""
    if not is_query(text) and not isinstance(parse(text, change=True).tree, exp.Insert | exp.Update | exp.Delete):
        return None
    return database.explain(text, values, capacity=capacity)


def result_lines(
    result: "Result | ChangeReport", database: "Database", *, as_json_line: bool, settled: bool = True
) -> Iterator[str]:
    """Yield what a statement has given, as lines or as one line of JSON."""
    if isinstance(result, Result):
        yield from [as_json(result)] if as_json_line else as_table(result)
    elif as_json_line:
        yield json.dumps(change_json(result, database.version if settled and not database.in_transaction else None))
    else:
        yield change_line(result)


def change_line(report: "ChangeReport") -> str:
    """Say what a statement has changed: how many rows is for the owner's eyes."""
    if report.statement in ("INSERT", "UPDATE", "DELETE"):
        return f"{count(report.rows, 'row')} changed"
    return f"{report.table}: {report.statement.lower()}: done" if report.table else report.statement.lower()


def change_json(report: "ChangeReport", version: int | None) -> dict[str, Any]:
    """The same as fields; the version is null in a transaction, which has none yet."""
    return {"statement": report.statement, "table": report.table, "rows": report.rows, "version": version}


def explain(
    target: Target,
    sql: Sql,
    param: Params = None,
    capacity: Capacity = None,
    key: Key = None,
    print_json: Json = False,
) -> None:
    """Say what a statement would do and what the provider would see. Runs nothing.

    \b
    scumble explain clinic "SELECT count(*) FROM visits WHERE amount < 20"
    scumble explain clinic "DELETE FROM visits WHERE name = 'Bob'"
    """
    text = sys.stdin.read() if sql == "-" else sql
    with opened(target, key) as database:
        explained = database.explain(text, read_parameters(text, param or []), capacity=capacity)
    typer.echo(json.dumps(explained.to_json(), default=str) if print_json else str(explained))


def stats_line(explained: "Explanation", seconds: float) -> str:
    """Say in short what a statement read, or changed, and how long it took."""
    from scumble.sql.explain_changes import ChangeExplanation

    if isinstance(explained, ChangeExplanation):
        read, sealed = explained.bytes_read, explained.bytes_sealed
        return f"read {read:,} bytes of {explained.table} and sealed {sealed:,} in {1000 * seconds:,.1f} ms"
    tables = [
        f"{table.pages_read:,} of {table.pages_of_full_scan:,} pages of {table.table}"
        for table in explained.tables
        if table.columns_read  # a bare count(*) reads none
    ]
    return f"read {', '.join(tables) or 'no page'} in {1000 * seconds:,.1f} ms"


def read_parameters(sql: str, texts: Sequence[str]) -> list[Any] | dict[str, Any]:
    """Read `--param` texts: a list for a query with `?` or `$1`, a dictionary for one with `$name`."""
    if not texts and not is_query(sql) and definition_of(sql) is not None:
        return []  # its types may be none that the parser knows
    keys = parse(sql, change=not is_query(sql)).keys.values()
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
