"""A database wherever it is: a folder's name or an address comes in, an open `Database` goes out.

`scumble.open("clinic")` is the embedded one, in this process; `scumble.open("scumble://host:7300/clinic")` is at a
provider's service, whose enclave has to prove itself first. Everything after that is the same.
"""

from os import PathLike
from typing import Any

from scumble import embedded
from scumble.errors import InvalidParameter
from scumble.owner.database import Database
from scumble.owner.dbapi import Connection
from scumble.owner.key_file import Passphrase
from scumble.owner.remote.address import is_address
from scumble.privacy.amounts import Exact

__all__ = ["connect", "create", "open"]

Target = str | PathLike[str]


def create(
    target: Target,
    *,
    key: str | PathLike[str] | None = None,
    passphrase: Passphrase = None,
    limit: Exact = 4,
    delta_limit: Exact = "1e-6",
    token: str | None = None,
    **connecting: Any,
) -> Database:
    """Create an empty database in a new folder or at a service, its key file and its ledger here, and open it.

    Whoever has the key file, and its passphrase if there is one, can read everything; without it nobody can. `limit`
    and `delta_limit` are the most epsilon and delta that all indexes together may ever cost. At a service, `token` is
    the tenant's, and `connecting` are fields of `Connecting`.
    """
    if is_address(target):
        from scumble.owner.remote import opening

        return opening.create(
            str(target),
            key=key,
            passphrase=passphrase,
            limit=limit,
            delta_limit=delta_limit,
            token=token,
            connecting=opening.Connecting(**connecting),
        )
    _refuse({"token": token} | connecting if token is not None else connecting)
    return embedded.create(target, key=key, passphrase=passphrase, limit=limit, delta_limit=delta_limit)


def open(  # noqa: A001  as in scumble.open(target)
    target: Target,
    *,
    key: str | PathLike[str] | None = None,
    passphrase: Passphrase = None,
    accept_restored: bool = False,
    owner: str | None = None,
    **connecting: Any,
) -> Database:
    """Open the database in a folder, or at scumble://HOST:PORT/NAME, with its key file.

    The key file is as given, or SCUMBLE_KEY, or NAME.key beside the folder. At a service `connecting` are fields of
    `Connecting`: `measurement`, `insecure_simulated_enclave`, `timeout_seconds`, `connect_seconds`. An analyst may name
    the `owner` that it expects, by the public key that `scumble grants` prints; else the first one is remembered.

    After a restore of the folder from a backup, `accept_restored` takes the version that is there for the newest from
    now on, although a later one was seen. A provider who puts back an old version looks just the same: be sure who did.
    """
    if is_address(target):
        from scumble.owner.remote import opening

        return opening.open_at(
            str(target),
            key=key,
            passphrase=passphrase,
            accept_restored=accept_restored,
            owner=owner,
            connecting=opening.Connecting(**connecting),
        )
    _refuse(connecting)
    return embedded.open(target, key=key, passphrase=passphrase, accept_restored=accept_restored, owner=owner)


def connect(
    target: Target, *, key: str | PathLike[str] | None = None, passphrase: Passphrase = None, **connecting: Any
) -> Connection:
    """Open a database as a PEP 249 connection, for pandas.read_sql and the like."""
    return Connection(open(target, key=key, passphrase=passphrase, **connecting))


def _refuse(connecting: dict[str, Any]) -> None:
    if connecting:
        raise InvalidParameter(
            f"{', '.join(connecting)}: only for a database at a service", hint="a folder needs none of it"
        )
