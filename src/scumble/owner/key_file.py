"""The data owner's key file: the root key of one database, from which every other key is derived.

A path and a passphrase come in, an `OwnerKey` goes out, or `KeyRefused`. Only the owner may see either; the file lies
beside the database's folder and never in it, since the folder is what the provider holds.

With a passphrase the root is sealed by AES-256-GCM under a key that scrypt makes of it, and everything else in the
file is associated data. Without one the root lies in the clear, and the file's mode is its only protection. Text
counts as read only if writing it again gives the same bytes, so no change to the file goes unnoticed, not even one
that JSON would forgive. A file is always written whole beside its place, synced, and then linked or renamed into it:
a crash leaves the old one or the new one.
"""

import binascii
import errno
import json
import os
import re
import secrets
import shlex
import stat
import unicodedata
from base64 import b64decode, b64encode
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import Any, TypeAlias

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from cryptography.hazmat.primitives.kdf.scrypt import Scrypt

from scumble import durable
from scumble.errors import Exists, FileError, InvalidParameter, KeyRefused, NewerVersion

__all__ = [
    "OwnerKey",
    "Passphrase",
    "anchor_key",
    "anchor_path",
    "beside",
    "canonical",
    "create",
    "data_key",
    "default_key_path",
    "derived",
    "given_passphrase",
    "is_protected",
    "key_path",
    "kind_of",
    "ledger_path",
    "open_key",
    "parse_canonical",
    "protected",
    "read_small",
    "replace",
    "replace_file",
    "revealed",
    "signing_key",
    "write_new",
]

Passphrase: TypeAlias = str | Callable[[], str] | None
"""A passphrase, what asks for it, or None: then SCUMBLE_PASSPHRASE has it."""

SCRYPT_COST = 2**17  # 128 MiB and a third of a second
_SCRYPT_COSTS = frozenset(2**bits for bits in range(1, 19))  # a file that asks for more memory than 256 MiB is damaged
_FORMAT = 1
_KEY_BYTES = 32
_NONCE_BYTES = 12
_MOST_BYTES = 2**16
_DATABASE_ID = re.compile("[0-9a-f]{16,64}")


@dataclass(frozen=True, slots=True)
class OwnerKey:
    """The root key of a database. While a rekey is under way `next_root` is the key that it changes to."""

    database: str
    root: bytes = field(repr=False)
    next_root: bytes | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        if not _DATABASE_ID.fullmatch(self.database):
            raise InvalidParameter("a database's id is 16 to 64 hexadecimal digits in lower case")
        if any(len(root) != _KEY_BYTES for root in (self.root, self.next_root) if root is not None):
            raise InvalidParameter(f"a root key has {_KEY_BYTES} bytes")


def create(path: Path, database: str, passphrase: str | None) -> OwnerKey:
    """Draw a new key and write its file; Exists if anything is there. None: the file's mode is its protection."""
    key = OwnerKey(database, secrets.token_bytes(_KEY_BYTES))
    write_new(path, _encode(key, passphrase, SCRYPT_COST))
    return key


def write_new(path: Path, content: bytes) -> None:
    """Write a key file where there is none; Exists if anything is there."""
    with _writing(path):
        try:
            durable.create(path, content, 0o600)
        except FileExistsError:
            raise Exists(
                f"there is a key file at {path} already",
                hint="whatever it opens is lost without it: name another file rather than delete it",
            ) from None


def open_key(path: Path, passphrase: Passphrase = None) -> OwnerKey:
    """Read an owner's key file. The passphrase is asked for once, and only if the file has one."""
    if kind_of(path) != "owner":
        raise KeyRefused(
            f"{path} is an analyst's key file, not an owner's", hint="name the owner's with --key or SCUMBLE_KEY"
        )
    header, keys = revealed(path, passphrase)
    return _owner_key(header.get("database"), keys, path)


def kind_of(path: Path) -> str:
    """Whose key file it says it is: `owner` or `analyst`; nobody has vouched for it yet."""
    kind = _load(path)[0].get("kind", "owner")
    if kind not in ("owner", "analyst"):
        raise _damaged(path)
    return str(kind)


def revealed(path: Path, passphrase: Passphrase) -> tuple[dict[str, Any], object]:
    """What a key file says in the open, and the keys in it, once that is proven."""
    content, others_can_read = _load(path)
    if content.get("protection") == "passphrase":
        return content, _unseal(content, _needed(passphrase, path), path)
    if others_can_read:
        raise KeyRefused(
            f"others can read the key file {path}, and no passphrase protects it",
            hint=f"chmod 600 {shlex.quote(str(path))}",
        )
    return content, _uncover(content, path)


def is_protected(path: Path) -> bool:
    """Whether the key file needs a passphrase."""
    return _load(path)[0].get("protection") == "passphrase"


def replace(path: Path, key: OwnerKey, passphrase: str | None) -> None:
    """Put `key` in the place of the file's, under this passphrase, or, with None, under the file's mode alone."""
    replace_file(path, _encode(key, passphrase, SCRYPT_COST))


def given_passphrase(passphrase: Passphrase) -> str | None:
    """The passphrase given or asked for, else SCUMBLE_PASSPHRASE, else None; an empty one is none."""
    if passphrase is None:
        return os.environ.get("SCUMBLE_PASSPHRASE") or None
    return (passphrase if isinstance(passphrase, str) else passphrase()) or None


def data_key(root: bytes, database: str) -> bytes:
    """The key that the enclave gets: all sealed pages and manifests hang on it."""
    return derived(root, database, b"scumble data key v1")


def anchor_key(root: bytes, database: str) -> bytes:
    """The key of the anchor, which never leaves the owner."""
    return derived(root, database, b"scumble anchor v1")


def signing_key(root: bytes, database: str) -> Ed25519PrivateKey:
    """The key that signs the owner's greetings; the enclave knows the owner by its public half."""
    return Ed25519PrivateKey.from_private_bytes(derived(root, database, b"scumble owner signature v1"))


def key_path(folder: Path, given: Path | None = None) -> Path:
    """Where the key of the database in `folder` is: as given, else as SCUMBLE_KEY names it, else beside the folder."""
    if given is not None:
        return given
    named = os.environ.get("SCUMBLE_KEY")
    return Path(named) if named else default_key_path(folder)


def default_key_path(folder: Path) -> Path:
    """Beside the folder, not in it: clinic.key for clinic and for clinic.scumble."""
    if folder.name in ("", ".."):
        folder = Path(os.path.abspath(folder))  # noqa: PTH100 (resolve() would follow links)
    if not folder.name:
        raise InvalidParameter(
            f"{folder} has no place beside it for a key file", hint="keep the database in a folder with a name"
        )
    return folder.with_name((folder.name.removesuffix(".scumble") or folder.name) + ".key")


def ledger_path(key_path: Path) -> Path:
    """The ledger's place: clinic.ledger for clinic.key."""
    return beside(key_path, ".ledger")


def anchor_path(key_path: Path) -> Path:
    """The anchor's place: clinic.anchor for clinic.key."""
    return beside(key_path, ".anchor")


def canonical(content: dict[str, Any]) -> bytes:
    """The one way in which an owner's file is written."""
    return json.dumps(content, indent=1).encode("ascii") + b"\n"


def parse_canonical(data: bytes) -> dict[str, Any] | None:
    """What `canonical` wrote, or None: an exception would carry the text, and with it a key, in its traceback."""
    try:
        content = json.loads(data.decode("ascii"))
        return content if isinstance(content, dict) and canonical(content) == data else None
    except (ValueError, RecursionError):
        return None


def read_small(path: Path) -> tuple[bytes, int]:
    """The bytes of a small regular file, and its mode; OSError for anything else."""
    handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)  # a pipe must not keep us waiting
    try:
        mode = os.fstat(handle).st_mode
        if not stat.S_ISREG(mode):
            raise OSError(errno.EINVAL, "it is not a regular file")
        with os.fdopen(handle, "rb", closefd=False) as file:
            return file.read(_MOST_BYTES), stat.S_IMODE(mode)
    finally:
        os.close(handle)


def replace_file(path: Path, content: bytes) -> None:
    """Write a file that only its owner can read, durably, and whole or not at all."""
    path = Path(os.path.realpath(path))  # what a link points to is replaced, not the link
    with _writing(path):
        durable.replace(path, content, 0o600)


def was_begun(path: Path) -> bool:
    """Whether there is a key file of a database that was never opened: its making was cut short."""
    return path.exists() and not anchor_path(path).exists()


def fingerprint(path: Path) -> bytes:
    """Something that changes whenever the file does; empty if it cannot be read."""
    try:
        return sha256(read_small(path)[0]).digest()
    except OSError:
        return b""


@contextmanager
def _writing(path: Path) -> Iterator[None]:
    """Turn an OSError while `path` is written into FileError."""
    try:
        yield
    except OSError as error:
        raise FileError(
            f"{path} cannot be written: {error.strerror}",
            hint="its folder has to exist and to be writable, and the disk to have room",
        ) from error


def _load(path: Path) -> tuple[dict[str, Any], bool]:
    """The content of a key file of this format, unproven, and whether others can read the file."""
    try:
        data, mode = read_small(path)
    except FileNotFoundError:
        raise KeyRefused(
            f"there is no key file at {path}",
            hint="name it, or set SCUMBLE_KEY, or restore it from a backup: without the key file the data is lost",
        ) from None
    except OSError as error:
        raise KeyRefused(
            f"the key file {path} cannot be read: {error.strerror}", hint="check the path and its permissions"
        ) from error
    content = parse_canonical(data)
    if content is None or type(content.get("format")) is not int or content["format"] < _FORMAT:
        raise _damaged(path)
    if content["format"] > _FORMAT:
        raise NewerVersion(
            f"the key file {path} was written by a later Scumble (this one reads format {_FORMAT})",
            hint="upgrade Scumble",
        )
    return content, mode & 0o077 != 0


def _needed(passphrase: Passphrase, path: Path) -> str:
    found = given_passphrase(passphrase)
    if found is None:
        raise KeyRefused(f"the key file {path} needs its passphrase", hint="give it, or set SCUMBLE_PASSPHRASE")
    return found


def _encode(key: OwnerKey, passphrase: str | None, cost: int) -> bytes:
    roots = {"root": key.root.hex(), "next_root": None if key.next_root is None else key.next_root.hex()}
    return protected({"database": key.database}, roots, passphrase, cost)


def protected(about: dict[str, Any], keys: dict[str, Any], passphrase: str | None, cost: int = SCRYPT_COST) -> bytes:
    """The content of a key file: what it says in the open, and keys, sealed if there is a passphrase."""
    header: dict[str, Any] = {"format": _FORMAT, **about}
    if passphrase is None:
        header |= {"protection": "file mode", "keys": keys}
        return canonical(header | {"checksum": _checksum(header)})
    if not passphrase:
        raise InvalidParameter("an empty passphrase protects nothing", hint="choose one, or give none at all")
    salt, nonce = secrets.token_bytes(16), secrets.token_bytes(_NONCE_BYTES)
    kdf = {"name": "scrypt", "n": cost, "r": 8, "p": 1, "salt": salt.hex()}
    header |= {"protection": "passphrase", "kdf": kdf}
    sealed = AESGCM(_stretched(passphrase, salt, cost)).encrypt(nonce, canonical(keys), canonical(header))
    return canonical(header | {"sealed": b64encode(nonce + sealed).decode("ascii")})


def _unseal(content: dict[str, Any], passphrase: str, path: Path) -> object:
    header = {name: value for name, value in content.items() if name != "sealed"}
    match content:
        case {
            "kdf": {"name": "scrypt", "n": int(cost), "r": 8, "p": 1, "salt": str(salt_text)},
            "sealed": str(sealed_text),
        } if cost in _SCRYPT_COSTS:
            salt, sealed = _from_hex(salt_text), _from_base64(sealed_text)
        case _:
            raise _damaged(path)
    if salt is None or sealed is None or len(sealed) < _NONCE_BYTES:
        raise _damaged(path)
    cipher = AESGCM(_stretched(passphrase, salt, cost))
    try:
        opened = cipher.decrypt(sealed[:_NONCE_BYTES], sealed[_NONCE_BYTES:], canonical(header))
    except InvalidTag:
        raise KeyRefused(
            f"the key file {path} does not open: the passphrase is wrong, or the file is damaged",
            hint="try the passphrase again, or restore the file from a backup",
        ) from None
    return parse_canonical(opened)


def _uncover(content: dict[str, Any], path: Path) -> object:
    header = {name: value for name, value in content.items() if name != "checksum"}
    if content.get("protection") != "file mode" or content.get("checksum") != _checksum(header):
        raise _damaged(path)
    return content.get("keys")


def _owner_key(database: object, roots: object, path: Path) -> OwnerKey:
    match roots:
        case {"root": str(root_text), "next_root": None | str() as next_text} if isinstance(database, str):
            root, next_root = _from_hex(root_text), None if next_text is None else _from_hex(next_text)
        case _:
            raise _damaged(path)
    if root is None or (next_root is None) != (next_text is None):
        raise _damaged(path)
    try:
        return OwnerKey(database, root, next_root)
    except InvalidParameter:
        raise _damaged(path) from None


def _stretched(passphrase: str, salt: bytes, cost: int) -> bytes:
    # The same letters typed on another system are the same passphrase; bytes that are no text come as surrogates.
    secret = unicodedata.normalize("NFC", passphrase).encode("utf-8", "surrogatepass")
    return Scrypt(salt=salt, length=_KEY_BYTES, n=cost, r=8, p=1).derive(secret)


def derived(root: bytes, salt: str, purpose: bytes) -> bytes:
    """A key of 32 bytes for one purpose."""
    return HKDF(SHA256(), _KEY_BYTES, salt=salt.encode("ascii"), info=purpose).derive(root)


def _checksum(header: dict[str, Any]) -> str:
    return sha256(canonical(header)).hexdigest()


def _from_hex(text: str) -> bytes | None:
    try:
        return bytes.fromhex(text)
    except ValueError:
        return None


def _from_base64(text: str) -> bytes | None:
    try:
        data = b64decode(text, validate=True)
    except (ValueError, binascii.Error):
        return None
    return data if b64encode(data) == text.encode("ascii") else None  # its last bits may say the same in two ways


def beside(key_path: Path, ending: str) -> Path:
    """A file of the same name as the key file, with another ending."""
    return key_path.with_name(key_path.name.removesuffix(".key") + ending)


def _damaged(path: Path) -> KeyRefused:
    return KeyRefused(f"{path} is not a Scumble key file, or it is damaged", hint="restore it from a backup")
