"""`scumble grant`, `revoke` and `grants`: let others read a database or add to it, with their own keys.

An analyst makes an identity and sends its public key to the owner; the owner grants it rights and takes them back. Only
the owner sees who has which.
"""

from collections.abc import Iterator, Sequence
from typing import Annotated

import typer

from scumble.cli.database import Json, Key, Target, opened
from scumble.cli.terminal import print_result
from scumble.errors import InvalidParameter
from scumble.privacy.budget import show
from scumble.wire.grants import Grant, Right, public_text

__all__ = ["grant", "grants", "revoke"]


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
    may_insert: Annotated[
        bool, typer.Option("--insert", help="Let them insert rows: into the tail, at no epsilon.")
    ] = False,
    may_change: Annotated[
        bool, typer.Option("--change", help="Let them update and delete rows, which tells them how many match.")
    ] = False,
    no_read: Annotated[
        bool, typer.Option("--no-read", help="With --load or --insert: let them do that, and read nothing.")
    ] = False,
    epsilon: Annotated[
        str, typer.Option(metavar="EPSILON", help="With --load: the most that all their loads may ever cost.")
    ] = "0",
    delta: Annotated[str, typer.Option(metavar="DELTA", help="With --load: the same for delta.")] = "0",
    key: Key = None,
    print_json: Json = False,
) -> None:
    """Let an analyst read tables of a database, load into them or change them, with a key of their own.

    The enclave enforces it: they cannot even learn which other tables exist. They
    never get your key. `scumble revoke` takes the rights back.

    Loads cost epsilon. What you allot is spent from your ledger now, all of it,
    used or not.

    \b
    scumble grant clinic ada scumble1... --table visits
    scumble grant clinic lab scumble1... --table tests --load --no-read \\
        --epsilon 0.5 --delta 1e-9
    scumble grant clinic desk scumble1... --table visits --insert --change
    """
    wanted: dict[Right, bool] = {"read": not no_read, "load": may_load, "insert": may_insert, "change": may_change}
    rights = [right for right, given in wanted.items() if given]
    if not rights:
        raise InvalidParameter("this grant allows nothing", hint="leave --no-read out, or add --load --epsilon 0.5")
    with opened(target, key) as database:
        made = database.grant(name, public_key, dict.fromkeys(table or [], rights), epsilon=epsilon, delta=delta)
        version, owner = database.version, database.owner
    allotted = f"  allotted  epsilon {show(made.epsilon)}, delta {show(made.delta)}: spent from your ledger now"
    lines = [
        f"{made.name}: may {' and '.join(rights)} {', '.join(made.tables)}, as of version {version}",
        *([allotted] if made.epsilon else []),
        f"  owner     {owner}: send them this, so that they can check whose database it is",
    ]
    about = {"database": target, "version": version, "owner": owner, "name": made.name}
    print_result({**about, "tables": _rights(made)}, lines, as_json=print_json)


def revoke(
    target: Target,
    name: Annotated[str, typer.Argument(metavar="NAME", help="The analyst's name.", show_default=False)],
    key: Key = None,
    print_json: Json = False,
) -> None:
    """Take an analyst's rights back, at once, even from sessions that are running.

    What they have read they know. An allotment stays spent, used or not.

    \b
    scumble revoke clinic ada
    """
    with opened(target, key) as database:
        database.revoke(name)
        version = database.version
    lines = [f"{name}: revoked, as of version {version}. What was read or spent stays so."]
    print_result({"database": target, "version": version, "name": name}, lines, as_json=print_json)


def grants(target: Target, key: Key = None, print_json: Json = False) -> None:
    """Show who was granted what, and how much of an allotment is used.

    \b
    scumble grants clinic
    """
    with opened(target, key) as database:
        given, version, owner = database.grants(), database.version, database.owner
    about = {"database": target, "version": version, "owner": owner, "grants": list(map(_as_json, given))}
    print_result(about, [f"{target}: owner {owner}", *_as_lines(given)], as_json=print_json)


def _as_lines(given: Sequence[Grant]) -> Iterator[str]:
    for grant in given:
        yield f"{grant.name}: {public_text(grant.public_key)}"
        for table, rights in sorted(grant.tables.items()):
            yield f"  {table}: {', '.join(sorted(rights))}"
        if grant.epsilon:
            yield f"  loads: epsilon {show(grant.used_epsilon)} of {show(grant.epsilon)} used"
    if not given:
        yield "nobody but you has any rights"


def _as_json(grant: Grant) -> dict[str, object]:
    amounts = ("epsilon", "delta", "used_epsilon", "used_delta")
    return {
        "name": grant.name,
        "public_key": public_text(grant.public_key),
        "tables": _rights(grant),
        **{name: float(getattr(grant, name)) for name in amounts},
    }


def _rights(grant: Grant) -> dict[str, list[Right]]:
    return {table: sorted(rights) for table, rights in grant.tables.items()}
