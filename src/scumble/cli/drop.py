"""`scumble drop`: a table goes, and its pages are deleted."""

import json
import sys
from typing import Annotated

import typer

from scumble.cli.database import Json, Key, Target, opened
from scumble.errors import InvalidParameter

__all__ = ["drop"]


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
                raise InvalidParameter("nobody can be asked whether to drop it", hint="--yes drops it without asking")
            typer.confirm(f"Drop {name}, all of it?", abort=True, err=True)
        database.drop(name)
        version = database.version
    if print_json:
        typer.echo(json.dumps({"database": target, "table": name, "version": version}))
        return
    typer.echo(f"{name}: dropped. What its indexes cost stays spent.")
