"""`scumble identity`: an analyst's key file is made; its public key, which goes to the owner, comes out."""

import json
import os
from pathlib import Path
from typing import Annotated

import typer

from scumble.cli.database import Json, asking, new_passphrase, on_terminal
from scumble.owner import key_file
from scumble.owner.keys import AnalystKey

__all__ = ["identity"]


def identity(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="The key file to make or to show.", show_default=False)],
    no_passphrase: Annotated[
        bool, typer.Option("--no-passphrase", help="Protect the key file by its mode alone.")
    ] = False,
    print_json: Json = False,
) -> None:
    """Make an analyst's key file, and print the public key for an owner to grant to.

    For whoever is to read a database, or load into it, without its owner's key.
    Send the public key to the owner by a way on which nobody can replace it: the
    right goes to whoever holds the key file behind it. Where the file is there
    already, its public key is printed again.

    \b
    scumble identity ada.key
    scumble query scumble://host:7300/clinic "SELECT count(*) FROM visits" --key ada.key
    """
    made = not file.exists()
    if made:
        held = AnalystKey.create(file, _passphrase(none=no_passphrase))
    else:
        held = AnalystKey.open(file, passphrase=asking())
    protection = "passphrase" if key_file.is_protected(file) else "file mode"
    if print_json:
        typer.echo(json.dumps({"key": str(file), "public_key": held.text, "protection": protection, "made": made}))
        return
    if made:
        typer.echo(f"{file}: made, and protected by its {protection}. Whoever has it can do what you may.", err=True)
    typer.echo(held.text)


def _passphrase(*, none: bool) -> str | None:
    if none:
        return None
    return os.environ.get("SCUMBLE_PASSPHRASE") or (new_passphrase() if on_terminal() else "") or None
