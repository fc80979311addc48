"""`scumble init`: make an empty database, and with it the owner's key file, ledger and anchor.

A provider may keep the folder; the three files beside it are the owner's alone.
"""

import json
import os
from pathlib import Path
from typing import Annotated

import typer

from scumble import opening
from scumble.cli.database import (
    Json,
    Key,
    NoPassphrase,
    Target,
    key_place,
    new_passphrase,
    on_terminal,
    service_options,
)
from scumble.errors import Exists, FileError
from scumble.owner import key_file
from scumble.owner.remote.address import is_address

__all__ = ["init"]


def init(
    target: Target,
    key: Key = None,
    limit: Annotated[
        str, typer.Option(metavar="EPSILON", help="The most epsilon that all indexes together may ever cost.")
    ] = "4",
    delta_limit: Annotated[
        str, typer.Option(metavar="DELTA", help="The most delta: lossless indexes and drawn capacities cost some.")
    ] = "1e-6",
    no_passphrase: NoPassphrase = False,
    token: Annotated[
        str | None,
        typer.Option(
            metavar="TEXT", envvar="SCUMBLE_TOKEN", help="At a service: the tenant's token.", show_default=False
        ),
    ] = None,
    print_json: Json = False,
) -> None:
    """Create an encrypted database in a folder or at a service, and its key file.

    Nothing in the folder is in the clear, so somebody you don't trust may keep
    it. The key file opens all of it: if you lose it, you lose the data. Back it
    up somewhere else than in the folder. The limits can never be changed.

    On a terminal it asks for a passphrase for the key file. Elsewhere it takes
    SCUMBLE_PASSPHRASE; without one, the file's mode is its only protection.

    \b
    scumble init clinic
    scumble init clinic --key ~/keys/clinic.key --limit 2 --no-passphrase
    SCUMBLE_TOKEN=... scumble init scumble://host:7300/acme/clinic
    """
    path = key_place(target, key)
    remote = {"token": token, **service_options()} if is_address(target) else {}
    if not remote:
        _check_folder(Path(target))
    _check_key(path)
    with opening.create(
        target, key=key, passphrase=_passphrase(none=no_passphrase), limit=limit, delta_limit=delta_limit, **remote
    ):
        pass
    protected = key_file.is_protected(path)
    files = {"key": path, "ledger": key_file.ledger_path(path), "anchor": key_file.anchor_path(path)}
    if print_json:
        protection = "passphrase" if protected else "file mode"
        about = {"database": target, **{name: str(file) for name, file in files.items()}}
        typer.echo(json.dumps({**about, "protection": protection, "limit": limit, "delta_limit": delta_limit}))
        return
    how = "protected by its passphrase" if protected else "protected by its file mode alone: there is no passphrase"
    typer.echo(f"{target}: an empty database; its provider can read nothing in it")
    typer.echo(f"  key     {files['key']}, {how}")
    typer.echo(f"  ledger  {files['ledger']}: epsilon {limit}, delta {delta_limit}, and never more")
    typer.echo(f"  anchor  {files['anchor']}: the newest version seen, so that a rollback is noticed")
    apart = "database" if remote else "folder"
    typer.echo(f"If you lose the key file, you lose the data. Back it up now, apart from the {apart}.")


def _check_folder(folder: Path) -> None:
    """Refuse a folder in advance, before a passphrase is asked for or a key file made."""
    _check_parent(folder)
    if folder.exists() and not folder.is_dir():
        raise FileError(f"{folder} is a file", hint="name a folder that does not exist yet")
    if (folder / "database.json").exists():
        raise Exists(f"there is a database in {folder} already", hint="open it, or name another folder")
    if folder.exists() and any(folder.iterdir()):
        raise Exists(f"{folder} is not empty", hint="name a folder that does not exist yet")


def _check_key(key: Path) -> None:
    _check_parent(key)
    if key.exists():
        raise Exists(
            f"there is a key file at {key} already",
            hint="what it opens is lost without it, so don't delete it: name another file with --key",
        )


def _check_parent(place: Path) -> None:
    if not place.absolute().parent.is_dir():
        raise FileError(f"{place.parent} is not a folder", hint=f"make it first: mkdir -p {place.parent}")


def _passphrase(*, none: bool) -> str | None:
    if none:
        return ""
    if os.environ.get("SCUMBLE_PASSPHRASE") or not on_terminal():
        return None
    return new_passphrase()
