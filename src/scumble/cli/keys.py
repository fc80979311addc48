"""`scumble init`, `rekey`, `upgrade`, `passphrase` and `identity`: make a database, and make or change key files.

A provider may keep the folder of a database; the key file, ledger and anchor beside it are the owner's alone. A key
file is replaced whole or not at all, and the commands say what old copies of it still open.
"""

import os
from pathlib import Path
from typing import Annotated

import typer

from scumble import opening
from scumble.cli.database import (
    Folder,
    Json,
    Key,
    NoPassphrase,
    Target,
    asking,
    check_there,
    new_passphrase,
    on_terminal,
    opened,
    service_options,
)
from scumble.cli.terminal import print_result, working
from scumble.errors import Exists, FileError, InvalidParameter, KeyRefused
from scumble.owner import key_file
from scumble.owner.keys import AnalystKey, OwnerKey
from scumble.owner.remote.address import is_address
from scumble.store import open_store

__all__ = ["identity", "init", "passphrase", "rekey", "upgrade"]

NEW = "SCUMBLE_NEW_PASSPHRASE"


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
    path = opening.key_path_of(target, key)
    remote = {"token": token, **service_options()} if is_address(target) else {}
    if not remote:
        _check_folder(Path(target))
    _check_parent(path)
    if path.exists():
        raise Exists(
            f"there is a key file at {path} already",
            hint="what it opens is lost without it, so don't delete it: name another file with --key",
        )
    new = "" if no_passphrase else _chosen("SCUMBLE_PASSPHRASE")
    opening.create(target, key=key, passphrase=new, limit=limit, delta_limit=delta_limit, **remote).close()
    files = {"key": path, "ledger": key_file.ledger_path(path), "anchor": key_file.anchor_path(path)}
    if remote:
        files["policy"] = key_file.beside(path, ".policy")
    about = {
        "database": target,
        **{name: str(file) for name, file in files.items()},
        "protection": _protection(path),
        "limit": limit,
        "delta_limit": delta_limit,
    }
    how = "passphrase" if key_file.is_protected(path) else "file mode alone: there is no passphrase"
    lines = [
        f"{target}: an empty database; its provider can read nothing in it",
        f"  key     {files['key']}, protected by its {how}",
        f"  ledger  {files['ledger']}: epsilon {limit}, delta {delta_limit}, and never more",
        f"  anchor  {files['anchor']}: the newest version seen, so that a rollback is noticed",
        *([f"  policy  {files['policy']}: what its enclaves must prove"] if remote else []),
        "If you lose the key file, you lose the data. "
        f"Back it up now, apart from the {'database' if remote else 'folder'}.",
    ]
    print_result(about, lines, as_json=print_json)


def _check_folder(folder: Path) -> None:
    """Refuse a folder in advance, before a passphrase is asked for or a key file made."""
    _check_parent(folder)
    if folder.exists() and not folder.is_dir():
        raise FileError(f"{folder} is a file", hint="name a folder that does not exist yet")
    if (folder / "database.json").exists():
        raise Exists(f"there is a database in {folder} already", hint="open it, or name another folder")
    if folder.exists() and any(folder.iterdir()):
        raise Exists(f"{folder} is not empty", hint="name a folder that does not exist yet")


def _check_parent(place: Path) -> None:
    if not place.absolute().parent.is_dir():
        raise FileError(f"{place.parent} is not a folder", hint=f"make it first: mkdir -p {place.parent}")


def _chosen(variable: str) -> str:
    """The new passphrase from the environment or the terminal; empty for none."""
    chosen = os.environ.get(variable) or (new_passphrase() if on_terminal() else "")
    key_file.check_strength(chosen or None)
    return chosen


def _protection(file: Path) -> str:
    return "passphrase" if key_file.is_protected(file) else "file mode"


def rekey(target: Target, key: Key = None, print_json: Json = False) -> None:
    """Seal everything anew under a fresh key, and replace the key file.

    Use it when somebody may have seen the key file. Old copies of the key file
    then no longer open the folder, but they still open old copies of the folder.
    The passphrase stays. It costs no epsilon, and a crash half-way loses nothing.

    Back up the key file again afterwards: backups of the old one are useless.

    \b
    scumble rekey clinic
    """
    path = opening.key_path_of(target, key)
    asked = asking()
    with opened(target, key, asked=asked) as database:
        with working("sealing anew"):
            database.rekey(asked)
        version = database.version
    lines = [
        f"{target}: sealed anew as version {version}",
        f"{path}: holds the new key. Back it up now: older backups of it no longer open this database.",
    ]
    print_result({"database": target, "key": str(path), "version": version}, lines, as_json=print_json)


def upgrade(target: Target, key: Key = None, print_json: Json = False) -> None:
    """Sign a database that release 0.1 has made, so that it can be changed again.

    From release 0.2 on every version is signed, and clients check who made it. A
    database of release 0.1 can be read as it is; to change it, or to share it with
    analysts, its owner signs it once. It costs no epsilon.

    \b
    scumble upgrade clinic
    """
    with opened(target, key) as database:
        signed = database.upgrade()
        version = database.version
    done = f"signed as version {version}" if signed else f"version {version} is signed already: nothing was changed"
    print_result({"database": target, "version": version, "signed": signed}, [f"{target}: {done}"], as_json=print_json)


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
            new = "" if no_passphrase else _chosen(NEW)
            if not (new or no_passphrase):
                hint = f"set {NEW}, or remove it with --no-passphrase; nothing was changed"
                raise InvalidParameter("there is no new passphrase", hint=hint)
            held.save(path, new or None)
    finally:
        store.close()
    how = "has a new passphrase" if new else "is protected by its file mode alone"
    about = {"database": str(folder), "key": str(path), "protection": _protection(path)}
    print_result(about, [f"{path}: {how}. Older copies of it have not changed."], as_json=print_json)


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
        held = AnalystKey.create(file, None if no_passphrase else _chosen("SCUMBLE_PASSPHRASE") or None)
    else:
        held = AnalystKey.open(file, passphrase=asking())
    protection = _protection(file)
    if made and not print_json:
        typer.echo(f"{file}: made, and protected by its {protection}. Anyone who has it has your rights.", err=True)
    about = {"key": str(file), "public_key": held.text, "protection": protection, "made": made}
    print_result(about, [held.text], as_json=print_json)
