"""`scumble check`: every sealed page and the chain of versions are verified; what comes out is how many there are."""

import json
from typing import Annotated

import typer

from scumble.cli.database import Json, Key, Target, opened
from scumble.cli.describe import count
from scumble.cli.progress import bar
from scumble.errors import Tampered

__all__ = ["check"]

_ACCEPTED = (
    "accepted as the newest one, for good.\n"
    "What was loaded or dropped after it is forgotten; what that cost stays spent. Be sure that it was you\n"
    "who restored the folder: a provider who puts back an old copy looks just the same."
)


def check(
    target: Target,
    accept_restored: Annotated[
        bool,
        typer.Option(
            "--accept-restored", help="Take the version that is there for the newest, although a later one was seen."
        ),
    ] = False,
    key: Key = None,
    print_json: Json = False,
) -> None:
    """Verify every page, and the chain of versions back to the first.

    A page that was altered, swapped, cut or taken from another version ends in an
    error, here as in a query. A copy of the folder is a backup; check proves it.

    After you have restored a folder from a backup it is older than the version
    that the anchor remembers, and refused: --accept-restored takes it all the same.

    \b
    scumble check clinic
    scumble check clinic --accept-restored
    """
    try:
        with opened(target, key, accept_restored=accept_restored) as database:
            version = database.version
            if accept_restored and not print_json:
                typer.echo(f"version {version}: {_ACCEPTED}")
            with bar("pages") as progress:
                pages = database.check(progress)
            tables = len(database.tables)
    except Tampered as refusal:
        if not accept_restored:
            refusal.hint = "restore the folder from a backup; if you did, and it is older, --accept-restored takes it"
        raise
    if print_json:
        about = {"database": target, "version": version, "pages": pages, "tables": tables}
        typer.echo(json.dumps({**about, "accepted": accept_restored}))
        return
    typer.echo(f"{target}: whole: {count(pages, 'page')} of {count(tables, 'table')}, {count(version, 'version')}")
