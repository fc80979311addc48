"""Print the answer of a query as a table, JSON or CSV, or write it to an Arrow file.

It is the owner's data. A table shows control characters escaped, so that no row can play tricks on the terminal.
"""

import json
import math
import os
from collections.abc import Iterable, Iterator
from datetime import date, datetime, time
from decimal import Decimal
from pathlib import Path
from typing import Any

from scumble.cli.terminal import count
from scumble.durable import Draft
from scumble.errors import FileError
from scumble.owner.answers import Result

__all__ = ["as_csv", "as_json", "as_table", "write_arrow"]


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
