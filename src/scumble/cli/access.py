"""`scumble identity`, `grant`, `revoke` and `grants`: let others read a database or load into it, with their own keys.

An analyst makes an identity and sends its public key to the owner; the owner grants it rights and takes them back. Only
the owner sees who has which.
"""

import json
import os
from pathlib import Path
from typing import Annotated

import typer

from scumble.cli.database import Json, Key, NoPassphrase, Target, asking, new_passphrase, on_terminal, opened
from scumble.errors import InvalidParameter
from scumble.owner import key_file
from scumble.owner.keys import AnalystKey
from scumble.privacy.budget import show
from scumble.wire.grants import Grant, Right, public_text

__all__ = ["grant", "grants", "identity", "revoke"]


def identity(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="The key file to make or to show.", show_default=False)],
    no_passphrase: NoPassphrase = False,
    print_json: Json = False,
) -> None:
    """Make an analyst's key file, and print its public key for an owner to grant rights to.

    It lets you read a database, or load into it, without its owner's key. Send
    the public key to the owner over a channel where nobody can replace it: the
    rights go to the holder of the key file behind it. If the file exists already,
    its public key is printed again.

    \b
    scumble identity ada.key
    scumble query scumble://host:7300/clinic "SELECT count(*) FROM visits" --key ada.key
    """
    made = not file.exists()
    if made:
        held = AnalystKey.create(file, _passphrase(none=no_passphrase))
    else:
        held = AnalystKey.open(file, passphrase=asking())
    protection = "passphrase" if key_file.is_protected(file) else "file mode"
    if print_json:
        typer.echo(json.dumps({"key": str(file), "public_key": held.text, "protection": protection, "made": made}))
        return
    if made:
        typer.echo(f"{file}: made, and protected by its {protection}. Anyone who has it has your rights.", err=True)
    typer.echo(held.text)


def _passphrase(*, none: bool) -> str | None:
    if none:
        return None
    return os.environ.get("SCUMBLE_PASSPHRASE") or (new_passphrase() if on_terminal() else "") or None


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
        str, typer.Option(metavar="EPSILON", help="With --load: the most that all their loads may ever cost.")
    ] = "0",
    delta: Annotated[str, typer.Option(metavar="DELTA", help="With --load: the same for delta.")] = "0",
    key: Key = None,
    print_json: Json = False,
) -> None:
    """Let an analyst read tables of a database, or load into them, with a key of their own.

    The enclave enforces it: they cannot even learn which other tables exist. They
    never get your key. `scumble revoke` takes the rights back.

    Loads cost epsilon. What you allot is spent from your ledger now, all of it,
    used or not.

    \b
    scumble grant clinic ada scumble1... --table visits
    scumble grant clinic lab scumble1... --table tests --load --no-read \\
        --epsilon 0.5 --delta 1e-9
    """
    if no_read and not may_load:
        raise InvalidParameter("this grant allows nothing", hint="leave --no-read out, or add --load --epsilon 0.5")
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
    typer.echo(f"  owner     {owner}: send them this, so that they can check whose database it is")


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
    if print_json:
        typer.echo(json.dumps({"database": target, "version": version, "name": name}))
        return
    typer.echo(f"{name}: revoked, as of version {version}. What was read or spent stays so.")


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
        typer.echo("nobody but you has any rights")


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
