"""`scumble restore`: an archive comes in, a new folder with the database goes out, whole. No key is needed."""

import json
import sys
from pathlib import Path
from typing import Annotated

import typer

from scumble.cli.backup import folder_of
from scumble.cli.database import Json
from scumble.cli.describe import count
from scumble.cli.progress import bar
from scumble.store import restoring
from scumble.store.backup import restore as read
from scumble.store.backup import restore_from

__all__ = ["restore"]

Archive = Annotated[str, typer.Argument(metavar="FILE", help="The backup, or - for stdin.", show_default=False)]
Made = Annotated[str, typer.Argument(metavar="DB", help="The folder to make; none may be there.", show_default=False)]


def restore(file: Archive, target: Made, print_json: Json = False) -> None:
    """Make a database's folder of a backup, whole or not at all. No key is needed.

    Every hash is checked, and nothing in the archive can write outside the folder. It
    never replaces a folder: move the old one away first.

    The owner's anchor remembers the newest version seen. A backup that is older is
    refused when it is opened, since a provider who puts back an old copy looks just
    the same: `scumble check --accept-restored` takes it.

    \b
    scumble restore clinic-monday.tar clinic
    scumble check clinic --accept-restored
    """
    made = restoring(folder_of(target))
    with bar("bytes") as progress:
        report = read(sys.stdin.buffer, made, progress) if file == "-" else restore_from(Path(file), made, progress)
    if print_json:
        about = {"database": target, "file": file, "version": report.version, "runs": report.runs}
        typer.echo(json.dumps({**about, "bytes": report.archive_bytes}))
        return
    typer.echo(f"{target}: version {report.version}, {count(report.runs, 'run')}, as it was in {file}")
    typer.echo(f"If it is older than the version last seen, `scumble check {target} --accept-restored` takes it.")
