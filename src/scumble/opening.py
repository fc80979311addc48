"""Create and open databases: a folder's name or a service's address gives an open `Database`.

`scumble.open("clinic")` is the embedded one: owner, provider and enclave are objects in this process, with the same
narrow interfaces as between machines, and nothing but this module knows all three. It needs no set-up, and what the
folder shows is exactly what a provider who keeps it would see; but an enclave in the owner's own process protects
nothing from that process. `scumble.open("scumble://host:7300/clinic")` is at a provider's service, whose enclave has to
prove itself first. Everything after that is the same.
"""

import os
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime
from functools import partial
from os import PathLike
from pathlib import Path
from typing import Any

from scumble.enclave.lines import TrustedEnclave
from scumble.errors import Busy, Exists, FileError, InvalidParameter, Locked, NotFound, Stale
from scumble.owner import key_file
from scumble.owner.database import Database
from scumble.owner.key_file import Passphrase
from scumble.owner.keys import Key, OwnerKey, open_key
from scumble.owner.ledger import Ledger
from scumble.owner.policies import Policies, check_lowered, first_policy, new_terms
from scumble.owner.remote.address import Address, is_address
from scumble.privacy.budget import Exact
from scumble.provider.front import Provider
from scumble.store import create_store, is_store, open_store
from scumble.wire.grants import parse_public_key

__all__ = ["Target", "create", "key_path_of", "open"]

Target = str | PathLike[str]
KEY_TRIES = 3
TOKEN_VARIABLE = "SCUMBLE_TOKEN"  # noqa: S105  its name


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
    """Create an empty database in a new folder or at a service, with its key file and ledger here, and open it.

    Anyone who has the key file, and its passphrase if there is one, can read everything; without it nobody can. `limit`
    and `delta_limit` are the most epsilon and delta that all indexes together may ever cost. At a service, `token` is
    the tenant's (without it SCUMBLE_TOKEN), and `connecting` are fields of `scumble.owner.remote.service.Connecting`;
    a `policy` among them is the database's first. What it leaves open is as the enclave shows it now.
    """
    key_path = key_path_of(target, key)
    make_key = partial(_create_key, key_path, passphrase, limit, delta_limit)
    if is_address(target):
        token = os.environ.get(TOKEN_VARIABLE, "") if token is None else token
        return _create_at_service(Address.parse(str(target)), key_path, make_key, token, connecting)
    _check_folder_options({"token": token} | connecting if token is not None else connecting)
    return _create_in_folder(target, key_path, make_key)


def open(  # noqa: A001  as in scumble.open(target)
    target: Target,
    *,
    key: str | PathLike[str] | None = None,
    passphrase: Passphrase = None,
    accept_restored: bool = False,
    first_opening: bool = False,
    owner: str | None = None,
    **connecting: Any,
) -> Database:
    """Open the database in a folder, or at scumble://HOST:PORT/NAME, with its key file.

    The key file is as given, or SCUMBLE_KEY, or NAME.key beside the folder. At a service `connecting` are fields of
    `Connecting`: `measurement`, `policy`, `insecure_simulated_enclave`, `timeout_seconds`, `connect_seconds`. An
    analyst may name the `owner` it expects, by the public key that `scumble grants` prints; without it the first one is
    remembered.

    After a restore of the folder from a backup, `accept_restored` takes the version that is there for the newest from
    now on, although a later one was seen. A provider who puts back an old version looks just the same: be sure who did.
    An owner whose anchor is missing, as on a new device, has to say that this is the `first_opening` there.
    """
    key_path = key_path_of(target, key)
    for left in range(KEY_TRIES - 1, -1, -1):
        terms: dict[str, Any] = {
            "accept_restored": accept_restored,
            "first_opening": first_opening,
            "owner": owner,
            "key_print": key_file.fingerprint(key_path),
        }
        try:
            return _opened(target, key_path, passphrase, terms, connecting)
        except Stale:  # a rekey elsewhere has changed a key file that needs its passphrase
            if not left:
                raise
    raise AssertionError  # the last try has returned or raised


def _opened(
    target: Target, key_path: Path, passphrase: Passphrase, terms: dict[str, Any], connecting: dict[str, Any]
) -> Database:
    if is_address(target):
        from scumble.owner.remote.service import Connecting, service_at

        how = Connecting(**connecting)
        service, trust = service_at(Address.parse(str(target)), key_path, how)
        policies = Policies(key_path) if how.replaces_policy else Policies(key_path, trust.require)
        try:
            opener = open_key(key_path, service.describe(), passphrase)
            if how.signed is not None:
                policies.learn(opener, how.signed.to_bytes(), _owner_of(opener, key_path, terms["owner"]))
            known = policies.known(opener)
            if how.replaces_policy and known is not None:  # before a key leaves for an enclave under lower terms
                check_lowered(known, how.terms, lower=how.lowers_policy)
            trust.expect(opener.database, None if how.replaces_policy else known)
        except BaseException:
            service.close()
            raise
        database = Database(service, opener, key_path, policies=policies, **terms)
    else:
        _check_folder_options(connecting)
        store = open_store(target)
        try:
            opener = open_key(key_path, store.database, passphrase)
        except BaseException:
            store.close()
            raise
        try:
            database = Database(Provider(store, TrustedEnclave), opener, key_path, **terms)
        except Locked as error:  # no owner shares this process
            error.hint = "an analyst's key opens no folder: give the service's address, scumble://HOST:PORT/NAME"
            raise
    if terms["accept_restored"] and isinstance(opener, OwnerKey):
        database.reinstate_policy()
    if opener.next_root is not None:
        with suppress(Busy, FileError):  # another process may be at it, and one that may not write can still read
            database.finish_rekey(passphrase)
    return database


def key_path_of(target: Target, given: str | PathLike[str] | None = None) -> Path:
    """Where a database's key file is: as given, as SCUMBLE_KEY says, beside its folder, or here if it is remote."""
    folder = Address.parse(str(target)).database if is_address(target) else target
    return key_file.key_path(Path(folder), None if given is None else Path(given))


def _create_in_folder(folder: Target, key_path: Path, make_key: Callable[[], OwnerKey]) -> Database:
    begun = key_file.was_begun(key_path)  # then a creation that was cut short is finished
    there = is_store(folder)
    if there and not begun:
        raise Exists(f"there is a database in {folder} already", hint="open it, or name another folder")
    if Path(folder).resolve() in key_path.resolve().parents:
        raise InvalidParameter("the key file must not lie in the database's folder", hint="the provider keeps that")
    key = make_key()
    store = open_store(folder) if there else create_store(folder, key.database)
    if store.database != key.database:
        raise Exists(f"there is a database in {folder} already", hint="open it, or name another folder")
    if store.is_empty():
        return Database.begin(Provider(store, TrustedEnclave), key, key_path)
    made = Database(Provider(store, TrustedEnclave), key, key_path, first_opening=True)
    if made.version > 1:
        made.close()
        raise Exists(f"there is a database in {folder} already", hint="open it, or name another folder")
    return made


def _create_at_service(
    address: Address, key_path: Path, make_key: Callable[[], OwnerKey], token: str, connecting: dict[str, Any]
) -> Database:
    from scumble.owner.remote.service import Connecting, service_at, verified

    how = Connecting(**connecting)
    if how.signed is not None:
        raise InvalidParameter("a signed policy is of another database", hint="give the terms, as a TOML file")
    verdict = verified(address, how)  # before there is a key file for a database that cannot be made
    terms = new_terms(how.terms, verdict)
    terms.check(verdict, datetime.now(UTC))
    files = [path for path in (key_path, key_file.ledger_path(key_path)) if not path.exists()]
    key = make_key()
    policy = first_policy(terms, key)
    service, trust = service_at(address, key_path, how)
    try:
        trust.expect(key.database, policy)
        try:
            service.create(key.database, token)
        except NotFound:  # not with this token: there is nothing for the key to open, and the next try makes another
            for path in files:
                path.unlink(missing_ok=True)
            raise
        return Database.begin(service, key, key_path, policy.to_bytes(), Policies(key_path, trust.require))
    except BaseException:
        service.close()
        raise


def _owner_of(key: Key, key_path: Path, named: str | None) -> bytes:
    """The public key of the owner whose policy an analyst was given; an owner's own."""
    if isinstance(key, OwnerKey):
        return key.signing_key().public_key().public_bytes_raw()
    known = key.known_owner(key_path)
    if named is None and known is None:
        raise InvalidParameter(
            "whose policy this is cannot be told before the owner is known", hint="name the owner with --owner"
        )
    return parse_public_key(named) if named is not None else bytes.fromhex(known or "")


def _create_key(path: Path, passphrase: Passphrase, limit: Exact, delta_limit: Exact) -> OwnerKey:
    """Create the key and the empty ledger of a new database, or open those that a creation cut short has left."""
    begun = key_file.was_begun(path)
    chosen = None if begun else key_file.given_passphrase(passphrase)
    key_file.check_strength(chosen)  # before there is a ledger for a key that is not made
    with Ledger.open(key_file.ledger_path(path), limit, delta_limit=delta_limit):
        pass
    if begun:
        return OwnerKey.open(path, passphrase)
    return OwnerKey.create(path, chosen)


def _check_folder_options(connecting: dict[str, Any]) -> None:
    if connecting:
        raise InvalidParameter(
            f"{', '.join(connecting)}: only for a database at a service", hint="a folder needs none of it"
        )
