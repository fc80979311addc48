"""`scumble flush`, `compact` and `vacuum`: upkeep of tables that change.

What each does, and when, is public: sizes in padded units, never how many rows there are. Only a flush costs epsilon.
"""

from typing import Annotated

import typer

from scumble.cli.database import Json, Key, Target, opened
from scumble.cli.terminal import count, print_result, working
from scumble.privacy.budget import show
from scumble.wire.catalog import Table

__all__ = ["compact", "flush", "vacuum"]

TableName = Annotated[str, typer.Argument(metavar="TABLE", help="The table.", show_default=False)]
Indexes = Annotated[
    list[str] | None,
    typer.Option("--index", help='An index for the batch, "COLUMN DOMAIN epsilon=E", unless the table declares it.'),
]
NewRows = Annotated[
    bool, typer.Option("--new-rows", help="State that no row of the tail was in the table before: costs do not add up.")
]


def flush(
    target: Target,
    table: TableName,
    indexes: Indexes = None,
    new_rows: NewRows = False,
    key: Key = None,
    print_json: Json = False,
) -> None:
    """Give what was inserted into a table the indexes that the table has. Costs epsilon.

    All of the tail becomes a batch, as if it were loaded now: queries read no more
    of it than they need. When that is done is yours to say, and public.

    \b
    scumble flush clinic visits --index "day date:2013-01-01:2013-12-31 epsilon=0.5"
    """
    with opened(target, key) as database:
        with working("flushing"):
            report = database.flush(table, indexes=indexes or (), new_rows=new_rows)
        there, version = database.table(table), database.version
    if report is None:
        print_result({"table": there.name, "flushed": False, "version": version}, [_nothing(there)], as_json=print_json)
        return
    room = sum(run.capacity for run in report.runs[:1])
    lines = [
        f"{there.name}: the tail is a batch with an index on {', '.join(report.indexes)}",
        f"  room      for {room:,} rows: this is public",
        f"  charged   epsilon {show(report.epsilon)}" + (", which was paid before" if report.retried else ""),
    ]
    about = {
        "table": there.name,
        "flushed": True,
        "indexes": list(report.indexes),
        "capacity": room,
        "epsilon": float(report.epsilon),
        "delta": float(report.delta),
        "version": version,
    }
    print_result(about, lines, as_json=print_json)


def compact(target: Target, table: TableName, key: Key = None, print_json: Json = False) -> None:
    """Make one batch of all that a table has, so that lookups read about as much as after one load. Costs nothing.

    Batches are merged by size as they are loaded; this merges all of them. Their
    indexes become one, out of what was released of each.

    \b
    scumble compact clinic visits
    """
    with opened(target, key) as database:
        with working("compacting"):
            gone = database.compact(table)
        there, version = database.table(table), database.version
    lines = [
        f"{there.name}: {count(gone, 'run')} fewer, {len(there.runs):,} left",
        "  charged   nothing",
    ]
    about = {"table": there.name, "gone": gone, "runs": len(there.runs), "version": version}
    print_result(about, lines, as_json=print_json)


def vacuum(
    target: Target,
    table: Annotated[str | None, typer.Argument(metavar="[TABLE]", help="Only this one.", show_default=False)] = None,
    key: Key = None,
    print_json: Json = False,
) -> None:
    """Erase what was deleted: no page of the database has its values afterwards. Costs nothing.

    Runs are sealed anew, and the older pages and versions deleted. Backups keep
    theirs, and so does a provider that does not delete what it is told to: `rekey`
    makes those useless to whoever gets the key later.

    \b
    scumble vacuum clinic visits
    """
    with opened(target, key) as database:
        with working("erasing"):
            database.vacuum(table)
        version = database.version
    what = "every table" if table is None else table
    lines = [f"{what}: no page that is in use has a deleted value", "  charged   nothing"]
    print_result({"table": table, "version": version}, lines, as_json=print_json)


def _nothing(table: Table) -> str:
    return f"{table.name}: nothing was inserted since the last flush"
