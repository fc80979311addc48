"""`scumble tables` and `scumble drop`: show what is public about the tables, and delete one.

What `tables` prints is all that the provider knows about them too. The number of rows is not part of it.
"""

import sys
import time
from collections.abc import Iterator
from typing import Annotated, Any

import typer

from scumble.cli.database import Json, Key, Target, opened
from scumble.cli.terminal import count, print_result
from scumble.errors import InvalidParameter
from scumble.index.kinds import decoded, is_known
from scumble.index.summary import summarize
from scumble.privacy.budget import show
from scumble.wire.catalog import LIVE, TAG_BYTES, Layer, Run, Table

__all__ = ["drop", "table_lines", "tables"]


def tables(
    target: Target,
    table: Annotated[str | None, typer.Argument(metavar="[TABLE]", help="Only this one.", show_default=False)] = None,
    key: Key = None,
    print_json: Json = False,
) -> None:
    """Show the tables: columns, types, indexes, capacity, pages, bytes and blow-up.

    All of this is public. The number of rows is not, so it is not shown: ask
    `SELECT count(*)`.

    \b
    scumble tables clinic
    scumble tables clinic visits --json
    """
    with opened(target, key) as database:
        chosen = database.tables if table is None else (database.table(table),)
        version = database.version
    lines = [line for each in chosen for line in ("", *table_lines(each))][1:]
    none = [f'no tables yet: scumble load {target} TABLE FILE --index "COLUMN DOMAIN epsilon=0.5"']
    print_result({"version": version, "tables": list(map(_as_json, chosen))}, lines or none, as_json=print_json)


def table_lines(table: Table) -> Iterator[str]:
    """Describe a table in words, line by line."""
    pages = sum(run.pages * len(table.held(run)) for run in table.runs)
    yield (
        f"{table.name}: capacity {table.capacity:,} rows, {pages:,} sealed pages in {count(len(table.runs), 'run')}, "
        f"{_table_bytes(table):,} bytes"
    )
    if table.capacity:
        yield (
            f"  {_table_bytes(table) / table.capacity:,.1f} bytes a row: {_blow_up(table):.2f} times "
            f"the {_plain_bytes(table):,} bytes of one plain copy of the declared columns"
        )
    if table.streamed is not None:
        yield f"  {table.streamed.about(time.time())}"
    rows = [(c.name, c.type.label + ("" if c.nullable else " not null")) for c in table.schema]
    width = max(len(name) for name, _ in rows)
    for name, type_ in rows:
        yield f"  {name:<{width}}  {type_}"
    for run in table.settled:
        yield f"  {_run_line(table, run)}"
    if table.tail:
        pages = sum(run.pages for run in table.tail)
        yield f"  tail: room for {_tail_rows(table):,} rows in {count(pages, 'page')}, which every query reads"
    layers = [(run, layer) for run in table.runs for layer in run.layers]
    if layers:
        pages = sum(layer.pages * len(layer.columns) for _, layer in layers)
        yield f"  rewritten: {count(pages, 'page')} in {count(len(layers), 'layer')}, {_layer_bytes(table):,} bytes"


def _run_line(table: Table, run: Run) -> str:
    held = "each column" if run.columns is None else ", ".join(_names(table, run))
    size = f"{run.pages:,} pages of {run.page_rows:,} rows for {held}"
    if run.index is None:
        return f"no index: {size}, in no order"
    if not is_known(run.index):
        return f"index on {run.attribute}, a comparator: `scumble --research` reads it, {size}"
    index = decoded(run.index)
    about = summarize(index)
    delta = f", delta {show(index.delta)}" if index.delta else ""
    return (
        f"index on {run.attribute}, {about.domain}: epsilon {show(index.epsilon)}{delta}, "
        f"slack {about.slack_rows:,} rows, {about.shape}, {size}"
    )


def _tail_rows(table: Table) -> int:
    return sum(run.capacity for run in table.tail)


def _layer_bytes(table: Table) -> int:
    """What the layers over a table's runs take, all of which a change has written."""
    return sum(
        layer.pages * table.slot_bytes(place, run.page_rows)
        for run in table.runs
        for layer in run.layers
        for place in layer.columns
    )


def _as_json(table: Table) -> dict[str, Any]:
    return {
        "name": table.name,
        "columns": [{"name": c.name, "type": c.type.label, "nullable": c.nullable} for c in table.schema],
        "capacity": table.capacity,
        "bytes": _table_bytes(table),
        "bytes_per_row": _table_bytes(table) / table.capacity if table.capacity else None,
        "plain_bytes": _plain_bytes(table),
        "blow_up": _blow_up(table) if table.capacity else None,
        "runs": [
            {
                "id": run.id,
                "attribute": run.attribute,
                "capacity": run.capacity,
                "page_rows": run.page_rows,
                "pages": run.pages,
                "tail": run.tail,
                "layers": [
                    {"first_page": layer.first_page, "pages": layer.pages, "columns": _layer_names(table, layer)}
                    for layer in run.layers
                ],
                "bytes": _run_bytes(table, run),
                "columns": _names(table, run),
                "index": None if run.index is None else _summary(run.index),
            }
            for run in table.runs
        ],
        "tail": _tail_rows(table),
        "rewritten_bytes": _layer_bytes(table),
        **({} if table.streamed is None else {"streamed": table.streamed.to_json()}),
    }


def _summary(data: bytes) -> dict[str, str | int | float] | None:
    """What there is to say of an index; None if it is a comparator, and this program knows none."""
    return summarize(decoded(data)).as_dict() if is_known(data) else None


def _table_bytes(table: Table) -> int:
    return sum(_run_bytes(table, run) for run in table.runs)


def _names(table: Table, run: Run) -> list[str]:
    """The columns that a run holds."""
    return [table.schema.columns[place].name for place in table.held(run)]


def _layer_names(table: Table, layer: Layer) -> list[str]:
    """The columns that a layer has; "" for the hidden live bytes."""
    return ["" if place == LIVE else table.schema.columns[place].name for place in layer.columns]


def _run_bytes(table: Table, run: Run) -> int:
    """What the provider keeps of a run: its sealed pages, and the tags once more beside them."""
    tags = run.pages * len(table.held(run)) + sum(layer.pages * len(layer.columns) for layer in run.layers)
    return table.run_bytes(run) + tags * TAG_BYTES


def _plain_bytes(table: Table) -> int:
    """What the capacity would take in clear, in one copy: as wide as the types say, since rows must not have a say."""
    return -(-table.capacity * sum(column.page_row_bits for column in table.schema) // 8)


def _blow_up(table: Table) -> float:
    return _table_bytes(table) / _plain_bytes(table)


def drop(
    target: Target,
    table: Annotated[str, typer.Argument(metavar="TABLE", help="The table to drop.", show_default=False)],
    yes: Annotated[bool, typer.Option("--yes", help="Don't ask.")] = False,
    key: Key = None,
    print_json: Json = False,
) -> None:
    """Drop a table and delete its pages. What its indexes cost stays spent.

    \b
    scumble drop clinic visits
    """
    with opened(target, key) as database:
        name = database.table(table).name
        if not yes:
            if not sys.stdin.isatty():
                raise InvalidParameter("a drop has to be confirmed on a terminal", hint="--yes drops without asking")
            typer.confirm(f"Drop {name}, all of it?", abort=True, err=True)
        database.drop(name)
        version = database.version
    lines = [f"{name}: dropped. What its indexes cost stays spent."]
    print_result({"database": target, "table": name, "version": version}, lines, as_json=print_json)
