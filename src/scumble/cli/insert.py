"""`scumble insert`: add the rows of a file to a table's tail, at no epsilon, and say how much room they take.

The rows are SECRET, and only the owner learns how many there are: the provider sees the room, in units of 256 rows.
"""

from typing import Annotated

import typer

from scumble.cli.database import Json, Key, Target, opened
from scumble.cli.query import Capacity
from scumble.cli.terminal import count, print_result, working

__all__ = ["insert"]


def insert(
    target: Target,
    table: Annotated[
        str, typer.Argument(metavar="TABLE", help="The table, which has to be there.", show_default=False)
    ],
    source: Annotated[
        str,
        typer.Argument(
            metavar="FILE", help="A csv, tsv, parquet, arrow or feather file with the rows.", show_default=False
        ),
    ],
    capacity: Capacity = None,
    key: Key = None,
    print_json: Json = False,
) -> None:
    """Insert the rows of a file into a table. Costs no epsilon.

    They go to the table's tail, which every query reads whole, in units of 256
    rows: the number of units is public. --capacity states it, so that it does not
    follow from the rows.

    \b
    scumble insert clinic visits monday.csv --capacity 512
    """
    with opened(target, key) as database:
        with working("inserting"):
            rows = database.insert(table, source, capacity=capacity)
        there, version = database.table(table), database.version
    tail = sum(run.capacity for run in there.tail)
    lines = [
        f"{there.name}: {count(rows, 'row')} inserted (only you know how many)",
        f"  tail      room for {tail:,} rows, which every query reads: this is public",
        "  charged   nothing",
    ]
    about = {"statement": "INSERT", "table": there.name, "rows": rows, "tail": tail, "version": version}
    print_result(about, lines, as_json=print_json)
