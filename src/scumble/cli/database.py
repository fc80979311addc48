"""Opening a database for a command, and the arguments and options that many commands share.

The passphrase of a key file comes from SCUMBLE_PASSPHRASE or, without an echo, from the terminal; never from the
command line, where other processes could read it.
"""

import getpass
import inspect
import os
import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cache, wraps
from pathlib import Path
from typing import Annotated, Any

import typer

from scumble import opening
from scumble.errors import InvalidParameter, NotFound
from scumble.owner.anchor import NoAnchor
from scumble.owner.database import Database
from scumble.owner.key_file import check_strength
from scumble.owner.remote.address import is_address

__all__ = [
    "Folder",
    "Json",
    "Key",
    "NoPassphrase",
    "Target",
    "asking",
    "at_service",
    "check_there",
    "new_passphrase",
    "on_terminal",
    "opened",
    "service_options",
]

Asked = Callable[[], str]
Command = Callable[..., None]
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
NoPassphrase = Annotated[bool, typer.Option("--no-passphrase", help="Protect the key file by its file mode alone.")]

# --- databases and their key files -----------------------------------------------------------------


@contextmanager
def opened(target: str, key: Path | None, *, asked: Asked | None = None, **terms: Any) -> Iterator[Database]:
    """Open the database while the block runs; `asked` replaces the usual question for the passphrase.

    `terms` are those of `scumble.open`: `accept_restored`, `first_opening`.
    """
    if not is_address(target):
        check_there(Path(target))
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", NoAnchor)
        database = opening.open(target, key=key, passphrase=asked or asking(), **terms, **service_options())
    for each in caught:
        typer.echo(f"warning: {each.message}", err=True)
    with database:
        yield database


def check_there(folder: Path) -> None:
    """Refuse a folder that holds no database."""
    if not (folder / "database.json").exists():
        raise NotFound(f"there is no database in {folder}", hint=f"make one with `scumble init {folder}`")


def asking() -> Asked | None:
    """Return a function that asks for the passphrase, once; None if SCUMBLE_PASSPHRASE has it or nobody can answer."""
    if os.environ.get("SCUMBLE_PASSPHRASE") or not on_terminal():
        return None
    return cache(lambda: getpass.getpass("Passphrase of the key file: "))


def new_passphrase() -> str:
    """Ask for a new passphrase twice; empty for none."""
    first = getpass.getpass("New passphrase (empty: protected by file mode alone): ")
    check_strength(first or None)  # before it is typed again in vain
    if first and getpass.getpass("The same again: ") != first:
        raise InvalidParameter("the two passphrases differ", hint="nothing was changed: try again")
    return first


def on_terminal() -> bool:
    """Return whether somebody can be asked."""
    return sys.stdin.isatty() or sys.stderr.isatty()


# --- options of commands that can reach a service --------------------------------------------------

_WARNING = "warning: the enclave is simulated; its provider can read everything"


def _text(metavar: str, about: str) -> Any:
    return Annotated[str | None, typer.Option(metavar=metavar, help=about, show_default=False)]


_OPTIONS: dict[str, tuple[Any, Any]] = {
    "measurement": (
        _text("HEX", "At a service: the measurement of the code to trust. By default the one seen first."),
        None,
    ),
    "policy": (_text("FILE", "At a service: what the enclave must prove besides, or the owner's signed policy."), None),
    "insecure_simulated_enclave": (
        Annotated[
            bool,
            typer.Option(
                "--insecure-simulated-enclave",
                help="At a service: accept evidence that proves nothing. The provider can then read everything.",
            ),
        ],
        False,
    ),
    "owner": (
        _text("PUBLICKEY", "As an analyst: the public key of the database's owner. By default the one seen first."),
        None,
    ),
}
_given: ContextVar[dict[str, Any]] = ContextVar("given", default={})  # noqa: B039  never changed


def service_options(*, warned: bool = True) -> dict[str, Any]:
    """Return those options that the running command was given, as `scumble.open` takes them."""
    given = _given.get()
    if warned and given.get("insecure_simulated_enclave"):
        typer.echo(_WARNING, err=True)
    return given


def at_service(command: Command, *, analysts: bool = False, policy: bool = True) -> Command:
    """Return the command with these options added to its own; --owner only if `analysts` may use it too."""
    left_out = ({"owner"} if not analysts else set()) | ({"policy"} if not policy else set())
    options = {name: option for name, option in _OPTIONS.items() if name not in left_out}

    @wraps(command)
    def with_options(*arguments: Any, **named: Any) -> None:
        given = {name: named.pop(name) for name in options}
        token = _given.set({name: value for name, value in given.items() if value not in (None, False)})
        try:
            command(*arguments, **named)
        finally:
            _given.reset(token)

    signature = inspect.signature(command, eval_str=True)
    added = [
        inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=kind)
        for name, (kind, default) in options.items()
    ]
    with_options.__signature__ = signature.replace(  # type: ignore[attr-defined]
        parameters=[*signature.parameters.values(), *added]
    )
    with_options.__annotations__ = {
        **command.__annotations__,
        **{name: kind for name, (kind, _) in options.items()},
    }
    return with_options
