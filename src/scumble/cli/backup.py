"""`scumble backup`: a database's folder comes in, one archive of its newest version goes out. No key is needed."""

import json
import sys
from pathlib import Path
from typing import Annotated

import typer

from scumble.cli.database import Json, check_there
from scumble.cli.describe import count
from scumble.cli.progress import bar
from scumble.errors import InvalidParameter
from scumble.store import open_store
from scumble.store.backup import backup as write
from scumble.store.backup import backup_to

__all__ = ["backup", "folder_of"]

Kept = Annotated[str, typer.Argument(metavar="DB", help="The database's folder.", show_default=False)]
Archive = Annotated[str, typer.Argument(metavar="FILE", help="The backup, or - for stdout.", show_default=False)]


def backup(target: Kept, file: Archive, print_json: Json = False) -> None:
    """Write a database to one file, while it is in use. No key is needed.

    The file is a plain tar archive of the newest version: everything in it is
    sealed, as in the folder. Loads, queries, drops and rekeys go on meanwhile, and
    change nothing in it. The key file, the ledger and the anchor are not in the
    folder and not in the backup: keep copies of the key file elsewhere, and never
    put back an old ledger.

    At a service the provider makes backups of the folders that it serves.

    \b
    scumble backup clinic clinic-monday.tar
    scumble backup clinic - | ssh elsewhere "cat > clinic.tar"
    """
    folder = folder_of(target)
    check_there(folder)
    if file == "-" and sys.stdout.isatty():
        raise InvalidParameter("a backup is nothing for a terminal", hint="name a file, or send it through a pipe")
    store = open_store(folder)
    with bar("bytes") as progress:
        report = write(sys.stdout.buffer, store, progress) if file == "-" else backup_to(Path(file), store, progress)
    about = {"database": target, "file": file, "version": report.version, "runs": report.runs}
    if print_json:
        text = json.dumps({**about, "bytes": report.archive_bytes})
    else:
        text = f"{file}: version {report.version} of {target}: {count(report.archive_bytes, 'byte')}"
    typer.echo(text, err=file == "-")  # where stdout is the backup


def folder_of(target: str) -> Path:
    """The folder that was named; an address is refused, since folders are the provider's there."""
    if "://" in target:
        raise InvalidParameter(
            "a backup is made of a folder, and restored to one",
            hint="at a service it is the provider who keeps the folder: run this there",
        )
    return Path(target)
