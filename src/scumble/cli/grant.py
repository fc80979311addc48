"""`scumble grant`: an analyst's public key comes in, and may from then on read tables, or load into them."""

import json
from typing import Annotated

import typer

from scumble.cli.database import Json, Key, Target, opened
from scumble.errors import InvalidParameter
from scumble.privacy.amounts import show
from scumble.wire.grants import Right

__all__ = ["grant"]


def grant(
    target: Target,
    name: Annotated[str, typer.Argument(metavar="NAME", help="What you call the analyst.", show_default=False)],
    public_key: Annotated[
        str, typer.Argument(metavar="PUBLICKEY", help="As `scumble identity` prints it.", show_default=False)
    ],
    table: Annotated[
        list[str] | None, typer.Option(metavar="TABLE", help="A table to read. Repeat it for more.")
    ] = None,
    may_load: Annotated[bool, typer.Option("--load", help="Let them load into the tables as well.")] = False,
    no_read: Annotated[bool, typer.Option("--no-read", help="With --load: let them load, and read nothing.")] = False,
    epsilon: Annotated[
        str, typer.Option(metavar="EPSILON", help="With --load: all that their loads may ever cost.")
    ] = "0",
    delta: Annotated[str, typer.Option(metavar="DELTA", help="With --load: the same for delta.")] = "0",
    key: Key = None,
    print_json: Json = False,
) -> None:
    """Let an analyst read tables of a database, or load into them, with a key of their own.

    The enclave holds them to it: of other tables they do not even learn that they
    are there. They never get your key. Take it back with `scumble revoke`.

    Loads cost epsilon. What you allot is spent from your ledger now, all of it,
    used or not.

    \b
    scumble grant clinic ada scumble1... --table visits
    scumble grant clinic lab scumble1... --table tests --load --no-read --epsilon 0.5 --delta 1e-9
    """
    if no_read and not may_load:
        raise InvalidParameter("a grant to do nothing", hint="leave --no-read out, or add --load --epsilon 0.5")
    rights: list[Right] = [*([] if no_read else ["read"]), *(["load"] if may_load else [])]  # type: ignore[list-item]
    with opened(target, key) as database:
        made = database.grant(name, public_key, dict.fromkeys(table or [], rights), epsilon=epsilon, delta=delta)
        version, owner = database.version, database.owner
    if print_json:
        about = {"database": target, "version": version, "owner": owner, "name": made.name}
        typer.echo(json.dumps({**about, "tables": {table: sorted(each) for table, each in made.tables.items()}}))
        return
    typer.echo(f"{made.name}: may {' and '.join(rights)} {', '.join(made.tables)}, as of version {version}")
    if made.epsilon:
        typer.echo(f"  allotted  epsilon {show(made.epsilon)}, delta {show(made.delta)}: spent from your ledger now")
    typer.echo(f"  owner     {owner}: tell them, so that they know whose database it is")
