"""The keys that open a database: its owner's, and those of the analysts it was granted to.

A path and a passphrase give a `Key`, which derives every other key and knows which files beside it belong to it: the
anchor, the ledger and, for an analyst, whose database it is. All of this stays on the machine of the key's holder;
`owner/key_file.py` has the format of the file.
"""

import hmac
import re
import secrets
from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from scumble.errors import InvalidParameter, KeyRefused, NotFound, Refused, Tampered
from scumble.owner import key_file
from scumble.owner.key_file import Passphrase, beside
from scumble.owner.ledger import Ledger
from scumble.wire.grants import Grant, public_text
from scumble.wire.lineage import ID_DIGITS, Title, database_id, first_title, is_derived

__all__ = ["AnalystKey", "Key", "OwnerKey", "open_key"]

_ROOT_BYTES = 32
_DATABASE_ID = re.compile("[0-9a-f]{16,64}")


@dataclass(frozen=True, slots=True)
class Key(ABC):
    """SECRET: a root key, and the database that it opens. While a rekey is under way there are two roots."""

    database: str
    root: bytes = field(repr=False)
    next_root: bytes | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        if any(len(root) != _ROOT_BYTES for root in (self.root, self.next_root) if root is not None):
            raise InvalidParameter(f"a root key has {_ROOT_BYTES} bytes")

    @abstractmethod
    def signing_key(self) -> Ed25519PrivateKey:
        """The key that signs greetings; the enclave knows its public half."""

    def public_key(self) -> bytes:
        return self.signing_key().public_key().public_bytes_raw()

    @abstractmethod
    def data_key(self) -> bytes | None:
        """The key of all pages and manifests, which a greeting brings to the enclave. An analyst has none."""

    @abstractmethod
    def anchor_key(self) -> bytes:
        """The key of the anchor's MAC, which never leaves this machine."""

    @abstractmethod
    def anchor_path(self, key_path: Path) -> Path:
        """Where the anchor lies beside the key file."""

    def content_key(self) -> bytes:
        """The key of the digests by which loaded rows are known again, which never leaves this machine."""
        return self._derived(self.database, b"scumble content v1")

    def stream_key(self) -> bytes:
        """The key from which those of a stream's log are derived, which never leaves this machine."""
        return self._derived(self.database, b"scumble stream v1")

    @abstractmethod
    def noise_key(self) -> bytes:
        """The secret from which the noise of a drawn capacity is derived. It never leaves this machine."""

    def as_owner(self) -> "OwnerKey":
        """This key, if it is the owner's; else Refused."""
        raise Refused

    def candidates(self) -> tuple[Self, ...]:
        """This key with each of its roots in force, the likelier first."""
        if self.next_root is None:
            return (self,)
        return self, type(self)(self.database, self.next_root, self.root)

    def known_owner(self, key_path: Path) -> str | None:
        """The public key in hexadecimal of the owner that an analyst has met; None before that, and for an owner."""
        return None

    def remember_owner(self, key_path: Path, owner: str) -> None:  # noqa: B027  nothing to do for an owner
        """Have an analyst expect this owner from now on. An owner needs no reminder."""

    def ledger(self, key_path: Path, grant: Grant | None) -> Ledger:
        """Open the ledger that pays for loads: the owner's, or an analyst's limited to the grant's allotment."""
        if grant is None:
            path = key_file.ledger_path(key_path)
            if not path.exists():
                raise NotFound(
                    f"there is no ledger at {path}", hint="it belongs beside the key file; restore it before you load"
                )
            return Ledger.open(path)
        if not grant.epsilon:
            raise NotFound(
                "this grant has no allotment to load for", hint="ask the owner for one with --load --epsilon"
            )
        path = beside(key_path, f".{self.database}.{grant.id}.ledger")
        return Ledger.open(path, grant.epsilon, delta_limit=grant.delta)

    def _derived(self, salt: str, purpose: bytes) -> bytes:
        return HKDF(SHA256(), _ROOT_BYTES, salt=salt.encode("ascii"), info=purpose).derive(self.root)


class OwnerKey(Key):
    """SECRET: the root key of one database. While a rekey is under way, `next_root` is the key it changes to."""

    __slots__ = ()

    def __post_init__(self) -> None:
        if not _DATABASE_ID.fullmatch(self.database):
            raise InvalidParameter("a database's id is 16 to 64 hexadecimal digits in lower case")
        super().__post_init__()

    @classmethod
    def create(cls, path: Path, passphrase: str | None) -> Self:
        """Draw a new key and write its file; Exists if there is one. Without a passphrase its mode protects it."""
        key_file.check_strength(passphrase)
        key = cls.draw()
        key_file.write_new(path, key.to_bytes(passphrase))
        return key

    @classmethod
    def draw(cls) -> Self:
        """A new key for a new database, whose id is a hash of the key's public half."""
        unnamed = cls("0" * ID_DIGITS, secrets.token_bytes(_ROOT_BYTES))
        return cls(database_id(unnamed.public_key(), unnamed.nonce()), unnamed.root)

    @classmethod
    def open(cls, path: Path, passphrase: Passphrase = None) -> Self:
        """Read an owner's key file. The passphrase is asked for once, and only if the file has one."""
        if key_file.kind_of(path) != "owner":
            raise KeyRefused(
                f"{path} is an analyst's key file, not an owner's", hint="name the owner's with --key or SCUMBLE_KEY"
            )
        header, roots = key_file.reveal(path, passphrase)
        try:
            match header, roots:
                case {"database": str(database)}, {"root": str(root), "next_root": None}:
                    return cls(database, bytes.fromhex(root))
                case {"database": str(database)}, {"root": str(root), "next_root": str(other)}:
                    return cls(database, bytes.fromhex(root), bytes.fromhex(other))
        except (ValueError, InvalidParameter):
            pass  # the exception would carry the key in its traceback
        raise key_file.damaged(path)

    def save(self, path: Path, passphrase: str | None) -> None:
        """Replace the key file with this key, under a passphrase, or with None under the file's mode alone."""
        key_file.replace_file(path, self.to_bytes(passphrase))

    def to_bytes(self, passphrase: str | None) -> bytes:
        roots = {"root": self.root.hex(), "next_root": None if self.next_root is None else self.next_root.hex()}
        return key_file.protect({"database": self.database}, roots, passphrase)

    def as_owner(self) -> "OwnerKey":
        return self

    def signing_key(self) -> Ed25519PrivateKey:
        if is_derived(self.database):  # from the public half of this one
            return Ed25519PrivateKey.from_private_bytes(self._derived("", b"scumble owner signature v2"))
        return Ed25519PrivateKey.from_private_bytes(self._derived(self.database, b"scumble owner signature v1"))

    def nonce(self) -> bytes:
        """What the id of a database is made of, besides the public key of its first owner."""
        return self._derived("", b"scumble database nonce v1")

    def title(self, version: int = 1) -> Title:
        """The statement that a new database belongs to this key; from another version on, one of release 0.1."""
        nonce = self.nonce() if is_derived(self.database) else b""
        return first_title(self.database, self.signing_key(), nonce, self.data_key(), version)

    def data_key(self) -> bytes:
        return self._derived(self.database, b"scumble data key v1")

    def anchor_key(self) -> bytes:
        return self._derived(self.database, b"scumble anchor v1")

    def noise_key(self) -> bytes:
        return self._derived(self.database, b"scumble capacity noise v1")

    def anchor_path(self, key_path: Path) -> Path:
        return key_file.anchor_path(key_path)


class AnalystKey(Key):
    """SECRET: an analyst's identity, whose public half owners grant rights to. It serves any number of databases.

    For each database there are files of its own beside the key file. There is never a second root: an analyst who needs
    a new key makes a new identity.
    """

    __slots__ = ()

    @classmethod
    def create(cls, path: Path, passphrase: str | None) -> Self:
        """Draw a new identity and write its file; Exists if there is one. Without a passphrase its mode protects it."""
        key_file.check_strength(passphrase)
        key = cls("", secrets.token_bytes(_ROOT_BYTES))
        key_file.write_new(path, key_file.protect({"kind": "analyst"}, {"root": key.root.hex()}, passphrase))
        return key

    @classmethod
    def open(cls, path: Path, database: str = "", passphrase: Passphrase = None) -> Self:
        if key_file.kind_of(path) != "analyst":
            raise KeyRefused(
                f"{path} is an owner's key file, not an analyst's", hint="make one with `scumble identity`"
            )
        try:
            match key_file.reveal(path, passphrase)[1]:
                case {"root": str(root)}:
                    return cls(database, bytes.fromhex(root))
        except (ValueError, InvalidParameter):
            pass
        raise key_file.damaged(path)

    @property
    def text(self) -> str:
        """The public key as text, to send to an owner."""
        return public_text(self.public_key())

    def signing_key(self) -> Ed25519PrivateKey:
        return Ed25519PrivateKey.from_private_bytes(self._derived("", b"scumble analyst's signature v1"))

    def data_key(self) -> bytes | None:
        return None

    def anchor_key(self) -> bytes:
        return self._derived(self.database, b"scumble analyst's anchor v1")

    def noise_key(self) -> bytes:
        return self._derived(self.database, b"scumble analyst's capacity noise v1")

    def anchor_path(self, key_path: Path) -> Path:
        return beside(key_path, f".{self.database}.anchor")

    def known_owner(self, key_path: Path) -> str | None:
        try:
            content = key_file.parse_canonical(key_file.read_small(self._owner_path(key_path))[0])
        except FileNotFoundError:
            return None
        match content:
            case {"owner": str(owner), "mac": str(mac)} if mac.isascii():
                if hmac.compare_digest(mac, self._owner_mac(owner)):
                    return owner
        raise Tampered

    def remember_owner(self, key_path: Path, owner: str) -> None:
        if self.known_owner(key_path) != owner:
            content = {"owner": owner, "mac": self._owner_mac(owner)}
            key_file.replace_file(self._owner_path(key_path), key_file.canonical(content))

    def _owner_path(self, key_path: Path) -> Path:
        return beside(key_path, f".{self.database}.owner")

    def _owner_mac(self, owner: str) -> str:
        return hmac.digest(self.anchor_key(), b"owner " + owner.encode(), "sha256").hex()


def open_key(path: Path, database: str, passphrase: Passphrase = None) -> Key:
    """Read a key file of either kind to open a database with; an owner's has to be of this database."""
    if key_file.kind_of(path) == "analyst":
        return AnalystKey.open(path, database, passphrase)
    key = OwnerKey.open(path, passphrase)
    if key.database != database:
        raise KeyRefused(f"{path} is the key of another database", hint="name the right one with --key or SCUMBLE_KEY")
    return key
