"""`scumble init`: an empty database is made, and with it the owner's key file, ledger and anchor.

The folder is what a provider may keep; the three files beside it are the owner's alone.
"""

import json
import os
from pathlib import Path
from typing import Annotated

import typer

from scumble import opening
from scumble.cli.database import Json, Key, Target, key_place, new_passphrase, on_terminal
from scumble.cli.reaching import connecting
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
        str, typer.Option(metavar="DELTA", help="The most delta: lossless indexes and drawn capacities take some.")
    ] = "1e-6",
    no_passphrase: Annotated[
        bool, typer.Option("--no-passphrase", help="Protect the key file by its mode alone.")
    ] = False,
    token: Annotated[
        str | None,
        typer.Option(
            metavar="TEXT", envvar="SCUMBLE_TOKEN", help="At a service: the tenant's token.", show_default=False
        ),
    ] = None,
    print_json: Json = False,
) -> None:
    """Create an encrypted database in a folder or at a service, and its key file.

    The folder holds nothing in the clear, and may be kept by somebody you don't
    trust. The key file opens all of it: losing it loses the data. Back it up, and
    not in the folder. The limits can never be changed.

    On a terminal a passphrase for the key file is asked for. Elsewhere it comes
    from SCUMBLE_PASSPHRASE; without one, the file's mode is its only protection.

    \b
    scumble init clinic
    scumble init clinic --key ~/keys/clinic.key --limit 2 --no-passphrase
    SCUMBLE_TOKEN=... scumble init scumble://host:7300/acme/clinic
    """
    path = key_place(target, key)
    remote = {"token": token, **connecting()} if is_address(target) else {}
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
    typer.echo(f"{target}: an empty database; whoever keeps it can read nothing in it")
    typer.echo(f"  key     {files['key']}, {how}")
    typer.echo(f"  ledger  {files['ledger']}: epsilon {limit}, delta {delta_limit}, and never more")
    typer.echo(f"  anchor  {files['anchor']}: the newest version seen, so that a rollback is noticed")
    apart = "database" if remote else "folder"
    typer.echo(f"Losing the key file loses the data. Back it up now, apart from the {apart}.")


def _check_folder(folder: Path) -> None:
    """Refuse what would leave a key file without a database, or ask for a passphrase in vain."""
    _check_parent(folder)
    if folder.exists() and not folder.is_dir():
        raise FileError(f"{folder} is a file", hint="name a folder that is not there yet")
    if (folder / "database.json").exists():
        raise Exists(f"there is a database in {folder} already", hint="open it, or name another folder")
    if folder.exists() and any(folder.iterdir()):
        raise Exists(f"{folder} is not empty", hint="name a folder that is not there yet")


def _check_key(key: Path) -> None:
    _check_parent(key)
    if key.exists():
        raise Exists(
            f"there is a key file at {key} already",
            hint="whatever it opens is lost without it: name another file with --key rather than delete it",
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
