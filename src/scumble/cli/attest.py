"""`scumble attest`: what an enclave at a service proves of itself, without sending it anything. All of it is public."""

import json
from typing import Annotated

import typer

from scumble.cli.database import Json
from scumble.cli.reaching import connecting
from scumble.errors import InvalidParameter

__all__ = ["attest"]

_PINNED = "A client that connects for the first time pins this measurement beside its key file; --measurement sets it."


def attest(
    url: Annotated[
        str,
        typer.Argument(metavar="URL", help="scumble://HOST:PORT/NAME; the name does not matter.", show_default=False),
    ],
    print_json: Json = False,
) -> None:
    """Verify an enclave's evidence, and print the measurement of its code.

    Compare the measurement with the one that you or somebody you trust have
    computed from the published code: only then does it say which code runs.
    Nothing is pinned, and no key is needed.

    \b
    scumble attest scumble://host:7300/clinic
    scumble query scumble://host:7300/clinic "SELECT ..." --measurement 3f0a...
    """
    from scumble.owner.remote.address import Address, is_address
    from scumble.owner.remote.service import Connecting, verified

    if not is_address(url):
        raise InvalidParameter(
            "only an enclave at a service has evidence", hint="scumble attest scumble://host:7300/db"
        )
    verdict = verified(Address.parse(url), Connecting(**connecting(warned=False)))
    if print_json:
        facts = {"kind": verdict.kind, "measurement": verdict.measurement, "details": dict(verdict.details)}
        typer.echo(json.dumps(facts))
        return
    typer.echo(f"kind         {verdict.kind}")
    typer.echo(f"measurement  {verdict.measurement}")
    for name, value in verdict.details.items():
        typer.echo(f"{name:<12} {value}")
    typer.echo(_PINNED)
