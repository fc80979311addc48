"""The beginning of a database, at its owner: where the key file is to be comes in, a key and an empty ledger go out."""

import uuid
from pathlib import Path

from scumble.owner import key_file
from scumble.owner.key_file import OwnerKey, Passphrase
from scumble.owner.ledger import Ledger
from scumble.privacy.amounts import Exact

__all__ = ["begin_key"]


def begin_key(path: Path, passphrase: Passphrase, limit: Exact, delta_limit: Exact) -> OwnerKey:
    """A key for a new database. One without an anchor is there already if the making of a database was cut short."""
    begun = key_file.was_begun(path)
    with Ledger.open(key_file.ledger_path(path), limit, delta_limit=delta_limit):
        pass
    if begun:
        return key_file.open_key(path, passphrase)
    return key_file.create(path, uuid.uuid4().hex, key_file.given_passphrase(passphrase))
