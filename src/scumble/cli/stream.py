"""`scumble stream`: rows from standard input go into a table in batches that hide when they came and how many.

The rows are SECRET, and so is how many wait. A line is acknowledged on standard output once its row is durable in the
log beside the key file; from then on it reaches the table, by this process or by the next.
"""

import codecs
import json
import os
import sys
from collections.abc import Iterator, Sequence
from datetime import timedelta
from decimal import Decimal
from itertools import islice
from typing import TYPE_CHECKING, Annotated, Any

import typer

from scumble.cli.database import Json, Key, Target, opened
from scumble.cli.terminal import count, print_result
from scumble.errors import BadRows, InvalidParameter, NotFound
from scumble.owner.database import Database
from scumble.owner.sources.csv_source import read_csv_text
from scumble.owner.stream_policies import POLICIES

if TYPE_CHECKING:
    from scumble.owner.streams import Behind, StreamStatus

__all__ = ["stream"]

MOST_LINES = 4096  # in one write
READ_BYTES = 1 << 18
FORMATS = ("csv", "jsonl")


def stream(
    target: Target,
    table: Annotated[str, typer.Argument(metavar="TABLE", help="A table that is there.", show_default=False)],
    *,
    every: Annotated[float, typer.Option(metavar="SECONDS", help="How often to send, or to test.")] = 60,
    rows: Annotated[
        int,
        typer.Option(metavar="ROWS", min=1, help="heartbeat: the rows in a batch; threshold: about when to send one."),
    ] = 256,
    send: Annotated[str, typer.Option(metavar="POLICY", help=f"{', '.join(POLICIES)}.")] = "heartbeat",
    epsilon: Annotated[
        str | None, typer.Option(metavar="EPSILON", help="timer and threshold: what all batches together cost.")
    ] = None,
    rows_per_user: Annotated[int, typer.Option(metavar="N", min=1, help="The most rows that one person has.")] = 1,
    input_format: Annotated[
        str, typer.Option("--format", metavar="FORMAT", help="csv, names in line 1; or jsonl: an object a line.")
    ] = "csv",
    drain: Annotated[
        bool, typer.Option("--drain", help="After the last line go on until nothing waits. That tells how much did.")
    ] = False,
    status: Annotated[bool, typer.Option("--status", help="Say how the stream stands, and read nothing.")] = False,
    end: Annotated[bool, typer.Option("--end", help="Delete the stream's log, if nothing waits in it.")] = False,
    key: Key = None,
    print_json: Json = False,
) -> None:
    """Stream rows from standard input into a table; the provider sees a heartbeat.

    Every row is sealed in a log beside the key file before it is acknowledged, and
    sent in batches of one size at fixed times, full or not. So the provider learns
    neither when rows came nor how many. That costs no epsilon, but dummies. For
    less of these, --send timer and threshold have noisy sizes, for an epsilon that
    is paid once.

    \b
    tail -F visits.csv | scumble stream clinic visits --every 60 --rows 256
    scumble stream clinic visits --send timer --epsilon 0.5 --format jsonl < new.jsonl
    scumble stream clinic visits --status

    When it ends, by the end of its input or by Ctrl-C, nothing more is sent: rows
    that wait stay in the log, for the next `scumble stream` into the table.
    """
    if input_format not in FORMATS:
        raise InvalidParameter(f"there is no format {input_format!r}", hint=f"choose one of {', '.join(FORMATS)}")
    with opened(target, key) as database:
        if status:
            _print_status(_standing(database, table), print_json)
            return
        terms: dict[str, Any] = {"every": every, "rows": rows, "policy": send, "epsilon": epsilon}
        with database.stream(table, **terms, rows_per_user=rows_per_user, told=_tell) as sending:
            if not end:
                written = 0
                declared = {column.name: column.declaration for column in database.table(table).schema}
                for text in _texts(sys.stdin, input_format, list(declared)):
                    written += sending.write(read_csv_text(text, declared))
                    said = f"{count(written, 'row')} acknowledged"
                    print_result({"acknowledged": written}, [said], as_json=print_json)
                    sys.stdout.flush()
                if drain:
                    sending.drain()
            found = sending.status()
            if end:
                sending.end()
        _print_status(found, print_json)


def _standing(database: Database, table: str) -> "StreamStatus":
    found = database.stream_status(table)
    if found is None:
        raise NotFound(f"the table {table!r} has no stream on this machine", hint="`scumble stream` opens one")
    return found


def _tell(behind: "Behind") -> None:
    typer.echo(f"warning: {behind}", err=True)


def _print_status(status: "StreamStatus", as_json: bool) -> None:
    settings = ", ".join(f"{name} {value}" for name, value in status.settings.items())
    lines = [f"{status.table}: {settings}", f"  waiting   {count(status.waiting, 'row')} (only you know how many)"]
    if status.behind:
        lines.append("  behind    more rows wait than a batch takes: larger ones, or more, would be seen")
    if status.last_sent is not None:
        lines.append(f"  sent      last at {status.last_sent - timedelta(microseconds=status.last_sent.microsecond)}")
    if status.trouble is not None:
        lines.append(f"  trouble   {status.trouble}")
    print_result(status.to_json(), lines, as_json=as_json)


# --- lines -----------------------------------------------------------------------------------------


def _texts(source: Any, input_format: str, names: list[str]) -> Iterator[str]:
    """Lines as CSV texts with a first line of names: as many as are there, without waiting for more."""
    lines = _available(source)
    if input_format == "jsonl":
        head = _csv_line(names)
        for chunk in lines:
            yield head + "".join(_as_csv(line, names) for line in chunk if line.strip())
        return
    head, kept = "", ""
    for chunk in lines:
        for line in chunk:
            kept += line
            if not head and kept.count('"') % 2 == 0:
                head, kept = (kept if kept.endswith("\n") else kept + "\n"), ""
        if kept.strip() and kept.count('"') % 2 == 0:  # a cell may go on in the next line
            yield head + kept
            kept = ""
    if kept.strip():
        raise BadRows(
            "a quote is never closed; the rows after it were not written", hint='a quote is written twice: ""'
        )


def _available(source: Any) -> Iterator[list[str]]:
    """Lines in groups: all that are there once any is. A line without an end is the last."""
    try:
        handle = source.fileno()
    except (OSError, AttributeError):  # no file: a text in memory
        while chunk := list(islice(source, MOST_LINES)):
            yield chunk
        return
    decoder, rest = codecs.getincrementaldecoder("utf-8-sig")(), ""
    while data := os.read(handle, READ_BYTES):
        *lines, rest = (rest + _decoded(decoder, data)).split("\n")
        if lines:
            yield [f"{line}\n" for line in lines]
    if rest := rest + _decoded(decoder, b"", final=True):
        yield [rest]


def _decoded(decoder: codecs.IncrementalDecoder, data: bytes, *, final: bool = False) -> str:
    try:
        return decoder.decode(data, final)
    except UnicodeDecodeError:  # its text has the bytes
        pass
    raise BadRows("the input is not valid UTF-8; what was not acknowledged was not written", hint="convert it first")


def _csv_line(cells: Sequence[str | None]) -> str:
    """A line of CSV: a null is an empty cell, and an empty text is one in quotes."""
    return ",".join("" if cell is None else '"' + cell.replace('"', '""') + '"' for cell in cells) + "\n"


def _as_csv(line: str, names: list[str]) -> str:
    """One JSON object as a line of CSV."""
    try:
        found = json.loads(line, parse_float=Decimal)
    except ValueError:  # its text has the line
        found = None
    if not isinstance(found, dict) or not found.keys() <= set(names):
        raise BadRows("a line is no JSON object of the table's columns", hint=f"the columns are {', '.join(names)}")
    return _csv_line([_cell(found.get(name)) for name in names])


def _cell(value: Any) -> str | None:
    match value:
        case None | str():
            return value
        case bool():
            return str(value).lower()
        case int() | Decimal():
            return str(value)
    raise BadRows("a value is a list or an object", hint="a column takes texts, numbers, true, false and null")
