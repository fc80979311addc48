"""`scumble rekey` and `scumble passphrase`: new keys for the data, or a new passphrase for the key file.

Both replace the key file, whole or not at all. They cannot change old copies of it, and say what those still open.
"""

import json
import os
from typing import Annotated

import typer

from scumble.cli.database import (
    Folder,
    Json,
    Key,
    Target,
    asking,
    check_there,
    key_place,
    new_passphrase,
    on_terminal,
    opened,
)
from scumble.cli.terminal import working
from scumble.errors import InvalidParameter, KeyRefused
from scumble.owner import key_file
from scumble.owner.keys import OwnerKey
from scumble.store import open_store

__all__ = ["passphrase", "rekey"]

NEW = "SCUMBLE_NEW_PASSPHRASE"


def rekey(target: Target, key: Key = None, print_json: Json = False) -> None:
    """Seal everything anew under a fresh key, and replace the key file.

    Use it when somebody may have seen the key file. Old copies of the key file
    then no longer open the folder, but they still open old copies of the folder.
    The passphrase stays. It costs no epsilon, and a crash half-way loses nothing.

    Back up the key file again afterwards: backups of the old one are useless.

    \b
    scumble rekey clinic
    """
    path = key_place(target, key)
    asked = asking()
    with opened(target, key, asked=asked) as database:
        with working("sealing anew"):
            database.rekey(asked)
        version = database.version
    if print_json:
        typer.echo(json.dumps({"database": target, "key": str(path), "version": version}))
        return
    typer.echo(f"{target}: sealed anew as version {version}")
    typer.echo(f"{path}: holds the new key. Back it up now: older backups of it no longer open this database.")


def passphrase(
    folder: Folder,
    no_passphrase: Annotated[
        bool,
        typer.Option("--no-passphrase", help="Remove the passphrase: the file mode alone protects the key file."),
    ] = False,
    key: Key = None,
    print_json: Json = False,
) -> None:
    """Change the passphrase of the key file. The data is not touched.

    Old copies of the key file still open with the old passphrase: if somebody may
    have both, use `scumble rekey`. It asks for the new passphrase twice, or takes
    SCUMBLE_NEW_PASSPHRASE.

    \b
    scumble passphrase clinic
    """
    check_there(folder)
    path = key_file.key_path(folder, key)
    store = open_store(folder)
    try:
        with store.writer():  # a rekey must not replace the file meanwhile
            held = OwnerKey.open(path, asking())
            if held.database != store.database:
                raise KeyRefused(f"{path} is the key of another database", hint="name the right one with --key")
            new = None if no_passphrase else _new()
            held.save(path, new)
    finally:
        store.close()
    protection = "file mode" if new is None else "passphrase"
    if print_json:
        typer.echo(json.dumps({"database": str(folder), "key": str(path), "protection": protection}))
        return
    how = "has a new passphrase" if new is not None else "is protected by its file mode alone"
    typer.echo(f"{path}: {how}. Older copies of it have not changed.")


def _new() -> str:
    new = os.environ.get(NEW) or (new_passphrase() if on_terminal() else "")
    if not new:
        raise InvalidParameter(
            "there is no new passphrase", hint=f"set {NEW}, or remove it with --no-passphrase; nothing was changed"
        )
    return new
