"""`scumble backup`, `restore` and `check`: copy a database's folder, put a copy back, and verify that it is whole.

A backup and a restore handle sealed pages only, so the provider can run them without any key. Checking needs the key.
"""

import sys
from pathlib import Path
from typing import Annotated

import typer

from scumble.cli.database import Json, Key, Target, check_there, opened
from scumble.cli.terminal import bar, count, print_result
from scumble.errors import InvalidParameter, Tampered
from scumble.store import open_store, restoring
from scumble.store.backup import Report, backup_to, restore_from
from scumble.store.backup import backup as write
from scumble.store.backup import restore as read

__all__ = ["backup", "check", "restore"]

_ACCEPTED = (
    "accepted as the newest one, for good.\n"
    "What was loaded or dropped after it is forgotten; what that cost stays spent, and revoked grants stay\n"
    "revoked. Be sure that it was you who restored the folder: if a provider puts back an old copy, it looks\n"
    "just the same."
)
_NOTHING_TO_ACCEPT = "no later one was seen, so that there was nothing to accept."


def backup(
    target: Annotated[str, typer.Argument(metavar="DB", help="The database's folder.", show_default=False)],
    file: Annotated[str, typer.Argument(metavar="FILE", help="The backup, or - for stdout.", show_default=False)],
    print_json: Json = False,
) -> None:
    """Write a database to one file, even while it is in use. No key is needed.

    The file is a plain tar archive of the newest version: everything in it is
    sealed, as in the folder. Loads, queries, drops and rekeys can go on meanwhile
    and do not change it. The key file, the ledger and the anchor are not in the
    folder and not in the backup: keep copies of the key file elsewhere, and never
    put back an old ledger.

    At a service the provider backs up the folders that it serves.

    \b
    scumble backup clinic clinic-monday.tar
    scumble backup clinic - | ssh elsewhere "cat > clinic.tar"
    """
    folder = _folder(target)
    check_there(folder)
    if file == "-" and sys.stdout.isatty():
        raise InvalidParameter("a backup cannot be shown on a terminal", hint="name a file, or send it through a pipe")
    store = open_store(folder)
    with bar("bytes") as progress:
        report = write(sys.stdout.buffer, store, progress) if file == "-" else backup_to(Path(file), store, progress)
    lines = [f"{file}: version {report.version} of {target}: {count(report.archive_bytes, 'byte')}"]
    # stdout may be the backup
    print_result(_as_json(target, file, report), lines, as_json=print_json, err=file == "-")


def restore(
    file: Annotated[str, typer.Argument(metavar="FILE", help="The backup, or - for stdin.", show_default=False)],
    target: Annotated[
        str, typer.Argument(metavar="DB", help="The folder to make; it must not exist yet.", show_default=False)
    ],
    print_json: Json = False,
) -> None:
    """Make a database's folder from a backup, whole or not at all. No key is needed.

    Every hash is checked, and nothing in the archive can write outside the
    folder. It never replaces a folder: move the old one away first.

    The owner's anchor remembers the newest version seen. An older backup is
    refused when it is opened, because a provider who puts back an old copy looks
    just the same: `scumble check --accept-restored` accepts it.

    \b
    scumble restore clinic-monday.tar clinic
    scumble check clinic --accept-restored
    """
    made = restoring(_folder(target))
    with bar("bytes") as progress:
        report = read(sys.stdin.buffer, made, progress) if file == "-" else restore_from(Path(file), made, progress)
    lines = [
        f"{target}: version {report.version}, {count(report.runs, 'run')}, as it was in {file}",
        f"If it is older than the version last seen, accept it: scumble check {target} --accept-restored",
    ]
    print_result(_as_json(target, file, report), lines, as_json=print_json)


def _as_json(target: str, file: str, report: Report) -> dict[str, object]:
    about = {"version": report.version, "runs": report.runs, "bytes": report.archive_bytes}
    return {"database": target, "file": file, **about}


def _folder(target: str) -> Path:
    if "://" in target:
        raise InvalidParameter(
            "only a folder can be backed up or restored",
            hint="at a service the provider keeps the folder: run this there",
        )
    return Path(target)


def check(
    target: Target,
    accept_restored: Annotated[
        bool,
        typer.Option("--accept-restored", help="Accept this version as the newest, although a later one was seen."),
    ] = False,
    first_opening: Annotated[
        bool,
        typer.Option("--first-opening", help="Accept this version although there is no anchor: on a new device."),
    ] = False,
    key: Key = None,
    print_json: Json = False,
) -> None:
    """Verify every page, and the chain of versions back to the first.

    A page that was altered, swapped, cut or taken from another version is an
    error, here as in a query. A copy of the folder is a backup; check proves it.

    A folder that you restored from a backup is older than the version that the
    anchor remembers, and is refused: --accept-restored accepts it all the same.
    What its grants had used, and which were revoked, is brought up to what is known.

    On a device without the anchor, an owner is refused: import it from another one
    with `scumble anchor`, or accept what is there with --first-opening.

    \b
    scumble check clinic
    scumble check clinic --accept-restored
    """
    try:
        with opened(target, key, accept_restored=accept_restored, first_opening=first_opening) as database:
            version, accepted = database.version, database.accepted_restored
            if accept_restored and not print_json:
                typer.echo(f"version {version}: {_ACCEPTED if accepted else _NOTHING_TO_ACCEPT}")
            with bar("pages") as progress:
                pages = database.check(progress)
            tables = len(database.tables)
    except Tampered as refusal:
        if not accept_restored and refusal.hint == Tampered().hint:
            refusal.hint = "restore the folder from a backup; if you did, and it is older, add --accept-restored"
        raise
    about = {"database": target, "version": version, "pages": pages, "tables": tables, "accepted": accepted}
    lines = [f"{target}: whole: {count(pages, 'page')} of {count(tables, 'table')}, {count(version, 'version')}"]
    print_result(about, lines, as_json=print_json)
