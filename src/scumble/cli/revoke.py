"""`scumble revoke`: an analyst's grant is taken back."""

import json
from typing import Annotated

import typer

from scumble.cli.database import Json, Key, Target, opened

__all__ = ["revoke"]


def revoke(
    target: Target,
    name: Annotated[str, typer.Argument(metavar="NAME", help="Whose grant it is.", show_default=False)],
    key: Key = None,
    print_json: Json = False,
) -> None:
    """Take an analyst's grant back. It holds at once, for running sessions too.

    What they have read they know. An allotment stays spent, used or not.

    \b
    scumble revoke clinic ada
    """
    with opened(target, key) as database:
        database.revoke(name)
        version = database.version
    if print_json:
        typer.echo(json.dumps({"database": target, "version": version, "name": name}))
        return
    typer.echo(f"{name}: revoked, as of version {version}. What was read or spent stays so.")
