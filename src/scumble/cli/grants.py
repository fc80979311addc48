"""`scumble grants`: who may do what. Only the owner gets to see it."""

import json

import typer

from scumble.cli.database import Json, Key, Target, opened
from scumble.privacy.amounts import show
from scumble.wire.grants import Grant, public_text

__all__ = ["grants"]


def grants(target: Target, key: Key = None, print_json: Json = False) -> None:
    """Show who was granted what, and how much of an allotment is used.

    \b
    scumble grants clinic
    """
    with opened(target, key) as database:
        given, version, owner = database.grants(), database.version, database.owner
    if print_json:
        about = {"database": target, "version": version, "owner": owner}
        typer.echo(json.dumps({**about, "grants": [_as_json(grant) for grant in given]}))
        return
    typer.echo(f"{target}: owner {owner}")
    for grant in given:
        typer.echo(f"{grant.name}: {public_text(grant.public_key)}")
        for table, rights in sorted(grant.tables.items()):
            typer.echo(f"  {table}: {', '.join(sorted(rights))}")
        if grant.epsilon:
            typer.echo(f"  loads: epsilon {show(grant.used_epsilon)} of {show(grant.epsilon)} used")
    if not given:
        typer.echo("nobody else has a right to anything")


def _as_json(grant: Grant) -> dict[str, object]:
    amounts = {
        "epsilon": grant.epsilon,
        "delta": grant.delta,
        "used_epsilon": grant.used_epsilon,
        "used_delta": grant.used_delta,
    }
    return {
        "name": grant.name,
        "public_key": public_text(grant.public_key),
        "tables": {table: sorted(rights) for table, rights in grant.tables.items()},
        **{name: float(amount) for name, amount in amounts.items()},
    }
