"""`scumble transcript`: what the provider saw, in words. It is the provider's own log, so it needs no key.

Names of tables and columns come from the public part of the manifests, which is not verified here.
"""

import json
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from itertools import groupby
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import typer

from scumble.cli.database import Folder, Json, check_there
from scumble.cli.terminal import print_result
from scumble.errors import ScumbleError
from scumble.store import open_store
from scumble.store.transcript import Event, Exchange, Transcript, exchanges
from scumble.wire.catalog import LIVE, Catalog
from scumble.wire.storage import public_part

__all__ = ["Named", "exchange_lines", "public_names", "transcript"]

EVENTS_TO_AN_EXCHANGE = 16  # to begin with
MOST_LINES = 12  # of one exchange
MOST_SPANS = 4  # in a line
VERBS = {
    "create_run": "makes    ",
    "write": "writes   ",
    "finish_run": "finishes ",
    "tags": "reads     tags of",
    "head": "reads     the manifest,",
    "manifest": "reads     an earlier manifest,",
    "links": "reads     the links of older versions,",
    "commit": "commits   the manifest,",
    "write_scratch": "writes    scratch files,",
    "read_scratch": "reads     scratch files,",
    "drop_scratch": "clears    scratch files,",
}


class Named(NamedTuple):
    """What is public about a run: its table, the column it is sorted by, its columns, and the pages of each."""

    table: str
    attribute: str | None
    columns: tuple[str, ...]
    pages: int


def transcript(
    folder: Folder,
    last: Annotated[int, typer.Option(metavar="N", min=1, help="Only the last N exchanges.")] = 20,
    print_json: Json = False,
) -> None:
    """Show what the provider saw: sizes, page numbers, order and time. Needs no key.

    An exchange is a greeting or a request with its answer, both sealed, and what
    the enclave read or wrote in between. There is nothing else to see. It depends
    only on the public catalog, the queries and the indexes.

    \b
    scumble transcript clinic --last 3
    """
    check_there(folder)
    found = _last_exchanges(folder, last)
    names = public_names(folder, {str(e["run"]) for x in found for e in x.inside if "run" in dict(e.facts)})
    lines = [line for exchange in found for line in exchange_lines(exchange, names)]
    about = {"exchanges": [_as_json(exchange, names) for exchange in found]}
    print_result(about, lines or ["the provider has seen nothing yet"], as_json=print_json)


def exchange_lines(exchange: Exchange, names: dict[str, Named]) -> Iterator[str]:
    """Describe an exchange: the bytes in and out, then what was read and written."""
    opened, closed = exchange.opened, exchange.closed
    when = datetime.fromtimestamp(opened.time_ns / 1e9, UTC).strftime("%Y-%m-%d %H:%M:%S.%f")[:-3]
    if closed is None or closed.kind == "failure":
        out = "no answer yet" if closed is None else "refused"
    else:
        out = f"{closed['bytes']:,} bytes out in {(closed.time_ns - opened.time_ns) / 1e6:,.1f} ms"
    yield f"{when}  {opened.kind:<7}  {opened['bytes']:,} bytes in, {out}"
    lines = [f"    {line}" for line in _inside(exchange.inside, names)]
    yield from lines[:MOST_LINES]
    if len(lines) > MOST_LINES:
        yield f"    and {len(lines) - MOST_LINES:,} lines more; --json has all of them"


def public_names(folder: Path, runs: set[str]) -> dict[str, Named]:
    """Return the runs of the current version, and of earlier ones as far as `runs` needs; skip what cannot be read."""
    names: dict[str, Named] = {}
    try:
        store = open_store(folder)
        manifest = store.head()
        while True:
            catalog = Catalog.from_json(json.loads(public_part(manifest)))
            names = _of(catalog) | names
            if runs <= names.keys() or catalog.version <= 1:
                return names
            manifest = store.manifest(catalog.version - 1)
    except (ScumbleError, ValueError, KeyError, TypeError, AttributeError):
        return names


def _of(catalog: Catalog) -> dict[str, Named]:
    found: dict[str, Named] = {}
    for table in catalog.tables:
        names = [column.name for column in table.schema]
        for run in table.runs:
            found[run.id] = Named(table.name, run.attribute, tuple(names), run.pages)
            for layer in run.layers:
                columns = tuple("live bytes" if place == LIVE else names[place] for place in layer.columns)
                found[layer.id] = Named(f"{table.name}, rewritten", run.attribute, columns, layer.pages)
    return found


def _last_exchanges(folder: Path, last: int) -> list[Exchange]:
    wanted = last * EVENTS_TO_AN_EXCHANGE
    while True:
        events = Transcript.read(open_store(folder).log, wanted)
        found = list(exchanges(events))
        if len(found) >= last or len(events) < wanted:
            return found[-last:]
        wanted *= 8


def _inside(events: Iterable[Event], names: dict[str, Named]) -> Iterator[str]:
    """Describe reads and writes: one line for the same pages of several columns, and for all writes to a run."""
    for kind, same in groupby(events, key=lambda event: event.kind):
        group = list(same)
        size = f"{sum(int(dict(event.facts).get('bytes', 0)) for event in group):,} bytes"
        match kind:
            case "read":
                yield from _reads(group, names)
            case "write" | "create_run" | "finish_run" | "tags":
                for run, of_run in groupby(group, key=lambda event: str(event["run"])):
                    yield f"{VERBS[kind]} {_where(run, names)}, {sum(int(e['bytes']) for e in of_run):,} bytes"
            case _:
                times = f"{len(group):,} times, " if len(group) > 1 else ""
                yield f"{VERBS.get(kind, kind)} {times}{size}"


def _reads(events: list[Event], names: dict[str, Named]) -> Iterator[str]:
    ranges: dict[tuple[str, int], dict[tuple[int, int], int]] = {}
    for event in events:
        of_column = ranges.setdefault((str(event["run"]), int(event["column"])), {})
        of_column[int(event["first_page"]), int(event["pages"])] = int(event["bytes"])
    alike: dict[tuple[str, tuple[tuple[int, int], ...]], list[tuple[int, int]]] = {}
    for (run, column), pages in ranges.items():
        alike.setdefault((run, tuple(pages)), []).append((column, sum(pages.values())))
    for (run, spans), columns in alike.items():
        of = ", ".join(_column(run, column, names) for column, _ in columns)
        whole = f" of {names[run].pages:,}" if run in names else ""
        size_bytes = sum(column_bytes for _, column_bytes in columns)
        yield f"reads     {_where(run, names)}: {of}, {_pages(spans)}{whole}, {size_bytes:,} bytes"


def _pages(spans: tuple[tuple[int, int], ...]) -> str:
    shown = ", ".join(f"{first:,}" if n == 1 else f"{first:,} to {first + n - 1:,}" for first, n in spans[:MOST_SPANS])
    more = f" and {len(spans) - MOST_SPANS:,} ranges more" if len(spans) > MOST_SPANS else ""
    return f"page {shown}" if len(spans) == spans[0][1] == 1 else f"pages {shown}{more}"


def _where(run: str, names: dict[str, Named]) -> str:
    if run not in names:
        return f"run {run[:8]}"
    name = names[run]
    return name.table if name.attribute is None else f"{name.table} by {name.attribute}"


def _column(run: str, column: int, names: dict[str, Named]) -> str:
    known = names[run].columns if run in names else ()
    return known[column] if column < len(known) else f"column {column}"


def _as_json(exchange: Exchange, names: dict[str, Named]) -> dict[str, Any]:
    def event(one: Event) -> dict[str, Any]:
        fields = one.to_json()
        named = names.get(str(fields.get("run")))
        if named is not None:
            fields |= {"table": named.table, "attribute": named.attribute}
            if "column" in fields:
                fields["column_name"] = _column(fields["run"], fields["column"], names)
        return fields

    closed = None if exchange.closed is None else exchange.closed.to_json()
    return {"opened": exchange.opened.to_json(), "inside": list(map(event, exchange.inside)), "closed": closed}
