"""Opening a database for a command: a folder and a key file as named come in, an open database goes out.

The passphrase is the owner's: it comes from SCUMBLE_PASSPHRASE or, without an echo, from the terminal; never from the
command line, where other processes could read it.
"""

import getpass
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Annotated

import typer

from scumble import opening
from scumble.cli.reaching import connecting
from scumble.errors import InvalidParameter, NotFound
from scumble.owner.database import Database
from scumble.owner.remote.address import is_address

__all__ = [
    "Folder",
    "Json",
    "Key",
    "Params",
    "Sql",
    "Target",
    "asking",
    "check_there",
    "key_place",
    "new_passphrase",
    "on_terminal",
    "opened",
]

Asked = Callable[[], str]
Target = Annotated[
    str,
    typer.Argument(
        metavar="DB", help="The database: its folder, or scumble://HOST:PORT/NAME at a service.", show_default=False
    ),
]
Folder = Annotated[Path, typer.Argument(metavar="DB", help="The database's folder.", show_default=False)]
Key = Annotated[
    Path | None,
    typer.Option(metavar="FILE", help="The key file: by default SCUMBLE_KEY, else the one beside the folder."),
]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON object.")]
Sql = Annotated[str, typer.Argument(metavar="SQL", help="A query, or - to read it from stdin.", show_default=False)]
Params = Annotated[
    list[str] | None,
    typer.Option(
        "--param",
        metavar="VALUE",
        help="The next ? of the query: 17, 1.5, true, null or text; NAME=VALUE for $NAME. Repeat it for more.",
    ),
]


@contextmanager
def opened(
    target: str, key: Path | None, *, asked: Asked | None = None, accept_restored: bool = False
) -> Iterator[Database]:
    """The database, for the time of a command; `asked` is what asks for its passphrase, if that is needed again."""
    if not is_address(target):
        check_there(Path(target))
    database = opening.open(
        target, key=key, passphrase=asked or asking(), accept_restored=accept_restored, **connecting()
    )
    with database:
        yield database


def check_there(folder: Path) -> None:
    """Refuse a folder that holds no database, by its name."""
    if not (folder / "database.json").exists():
        raise NotFound(f"there is no database in {folder}", hint=f"make one with `scumble init {folder}`")


def key_place(target: str, key: Path | None) -> Path:
    """Where the key file of a database is."""
    from scumble.opening import key_path_of

    return key_path_of(target, key)


def asking() -> Asked | None:
    """What asks for the passphrase, once; None where nobody can be asked or SCUMBLE_PASSPHRASE has it."""
    if os.environ.get("SCUMBLE_PASSPHRASE") or not on_terminal():
        return None
    return cache(lambda: getpass.getpass("Passphrase of the key file: "))


def new_passphrase() -> str:
    """A passphrase that was typed twice on the terminal; empty for none."""
    first = getpass.getpass("New passphrase (empty: protected by file mode alone): ")
    if first and getpass.getpass("The same again: ") != first:
        raise InvalidParameter("the two passphrases differ", hint="nothing was changed: try again")
    return first


def on_terminal() -> bool:
    """Whether there is somebody to ask."""
    return sys.stdin.isatty() or sys.stderr.isatty()
