"""An analyst's identity: a key file of its own, whose public half an owner grants rights to.

A path and a passphrase come in, an `AnalystKey` goes out. One identity serves any number of databases; for each there
are files beside it: the newest version seen, whose database it is, and what the analyst's own loads have cost. They are
the analyst's alone. Of the database's keys the analyst has none.
"""

import hmac
import secrets
from dataclasses import dataclass, field
from pathlib import Path

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from scumble.errors import InvalidParameter, KeyRefused, NotFound, Tampered
from scumble.owner import key_file
from scumble.owner.key_file import OwnerKey, Passphrase
from scumble.owner.ledger import Ledger
from scumble.wire.grants import Grant, public_text

__all__ = [
    "AnalystKey",
    "Key",
    "anchor_key",
    "anchor_path",
    "create_identity",
    "data_key",
    "known_owner",
    "ledger_of",
    "open_any",
    "open_identity",
    "remember_owner",
    "signing_key",
]

_KEY_BYTES = 32


@dataclass(frozen=True, slots=True)
class AnalystKey:
    """The root of an analyst's keys, and the database that is to be opened with it."""

    database: str
    root: bytes = field(repr=False)

    def __post_init__(self) -> None:
        if len(self.root) != _KEY_BYTES:
            raise InvalidParameter(f"a root key has {_KEY_BYTES} bytes")

    @property
    def next_root(self) -> None:
        """There is never another one: an analyst who needs new keys makes a new identity."""
        return

    @property
    def text(self) -> str:
        """The public key, as an owner takes it."""
        return public_text(_signing_key(self.root).public_key().public_bytes_raw())


Key = OwnerKey | AnalystKey


def create_identity(path: Path, passphrase: str | None) -> AnalystKey:
    """Draw a new identity and write its file; Exists if anything is there. None: the file's mode is its protection."""
    root = secrets.token_bytes(_KEY_BYTES)
    key_file.write_new(path, key_file.protected({"kind": "analyst"}, {"root": root.hex()}, passphrase))
    return AnalystKey("", root)


def open_identity(path: Path, database: str = "", passphrase: Passphrase = None) -> AnalystKey:
    """Read an analyst's key file, to open a database with."""
    if key_file.kind_of(path) != "analyst":
        raise KeyRefused(f"{path} is an owner's key file, not an analyst's", hint="make one with `scumble identity`")
    _, keys = key_file.revealed(path, passphrase)
    try:
        match keys:
            case {"root": str(root)}:
                return AnalystKey(database, bytes.fromhex(root))
    except (ValueError, InvalidParameter):
        pass
    raise KeyRefused(f"{path} is not a Scumble key file, or it is damaged", hint="restore it from a backup")


def open_any(path: Path, database: str, passphrase: Passphrase = None) -> Key:
    """Read a key file of either kind; an owner's has to be of this database."""
    if key_file.kind_of(path) == "analyst":
        return open_identity(path, database, passphrase)
    key = key_file.open_key(path, passphrase)
    if key.database != database:
        raise KeyRefused(f"{path} is the key of another database", hint="name the right one with --key or SCUMBLE_KEY")
    return key


def signing_key(key: Key, root: bytes) -> Ed25519PrivateKey:
    """What signs a greeting."""
    return _signing_key(root) if isinstance(key, AnalystKey) else key_file.signing_key(root, key.database)


def data_key(key: Key, root: bytes) -> bytes | None:
    """What a greeting brings to the enclave: nothing, if an analyst sends it."""
    return None if isinstance(key, AnalystKey) else key_file.data_key(root, key.database)


def anchor_key(key: Key, root: bytes) -> bytes:
    """The key of the anchor."""
    if isinstance(key, AnalystKey):
        return key_file.derived(root, key.database, b"scumble analyst's anchor v1")
    return key_file.anchor_key(root, key.database)


def anchor_path(key: Key, path: Path) -> Path:
    """The anchor's place: an analyst has one for each database."""
    return key_file.beside(path, f".{key.database}.anchor" if isinstance(key, AnalystKey) else ".anchor")


def known_owner(key: AnalystKey, path: Path) -> str | None:
    """The public key of the owner that this analyst knows the database by, in hexadecimal digits; None at first."""
    try:
        content = key_file.parse_canonical(key_file.read_small(_owner_path(key, path))[0])
    except FileNotFoundError:
        return None
    match content:
        case {"owner": str(owner), "mac": str(mac)} if hmac.compare_digest(mac, _owner_mac(key, owner)):
            return owner
    raise Tampered


def remember_owner(key: AnalystKey, path: Path, owner: str) -> None:
    """Know the database by this owner's key from now on."""
    content = {"owner": owner, "mac": _owner_mac(key, owner)}
    key_file.replace_file(_owner_path(key, path), key_file.canonical(content))


def ledger_of(key: Key, path: Path, grant: Grant | None) -> Ledger:
    """The ledger that pays for loads: the database's, or an analyst's with the grant's allotment as its limit."""
    if grant is not None:
        if not grant.epsilon:
            raise NotFound(
                "this grant has no allotment to load for", hint="ask the owner for one with --load --epsilon"
            )
        place = key_file.beside(path, f".{key.database}.{grant.id}.ledger")
        return Ledger.open(place, grant.epsilon, delta_limit=grant.delta)
    place = key_file.ledger_path(path)
    if not place.exists():
        raise NotFound(
            f"there is no ledger at {place}", hint="it belongs beside the key file; restore it before you load"
        )
    return Ledger.open(place)


def _owner_path(key: AnalystKey, path: Path) -> Path:
    return key_file.beside(path, f".{key.database}.owner")


def _owner_mac(key: AnalystKey, owner: str) -> str:
    return hmac.digest(anchor_key(key, key.root), b"owner " + owner.encode(), "sha256").hex()


def _signing_key(root: bytes) -> Ed25519PrivateKey:
    return Ed25519PrivateKey.from_private_bytes(key_file.derived(root, "", b"scumble analyst's signature v1"))
