"""The format of a key file: JSON in one fixed form, with the keys in it sealed under a passphrase or in the clear.

Only its holder may see the file. It lies beside the database's folder and never in it, since the folder is what the
provider holds; `owner/keys.py` says what the keys are for.

With a passphrase the keys are sealed by AES-256-GCM under a key that scrypt makes of it, and everything else in the
file is associated data. Without one, the file's mode is their only protection. Text counts as read only if writing it
again gives the same bytes, so that any change to the file is noticed, even one that JSON would forgive. A file is
written whole beside its place, synced, and then linked or renamed: a crash leaves the old one or the new one.
"""

import binascii
import errno
import json
import os
import secrets
import shlex
import stat
import unicodedata
from base64 import b64decode, b64encode
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from hashlib import sha256
from pathlib import Path
from typing import Any, TypeAlias

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.kdf.scrypt import Scrypt

from scumble import durable
from scumble.errors import Exists, FileError, InvalidParameter, KeyRefused, NewerVersion

__all__ = [
    "Passphrase",
    "anchor_path",
    "beside",
    "canonical",
    "check_strength",
    "damaged",
    "default_key_path",
    "fingerprint",
    "given_passphrase",
    "is_protected",
    "key_path",
    "kind_of",
    "ledger_path",
    "log_files",
    "logged_tables",
    "parse_canonical",
    "protect",
    "read_small",
    "replace_file",
    "reveal",
    "streams_path",
    "was_begun",
    "write_new",
]

Passphrase: TypeAlias = str | Callable[[], str] | None
"""A passphrase, a function that asks for it, or None for the environment's SCUMBLE_PASSPHRASE."""

SCRYPT_COST = 2**17  # 128 MiB and a third of a second
_SCRYPT_COSTS = frozenset(2**bits for bits in range(1, 19))  # a file that asks for more memory than 256 MiB is damaged
LEAST_CHARACTERS, LEAST_DIFFERENT = 12, 5  # of a new passphrase: what scrypt's cost cannot make up for
_FORMAT = 1
_KEY_BYTES = 32
_NONCE_BYTES = 12
_MOST_BYTES = 2**20


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


def kind_of(path: Path) -> str:
    """Whose key file it claims to be, `owner` or `analyst`; `reveal` proves it."""
    kind = _load(path)[0].get("kind", "owner")
    if kind not in ("owner", "analyst"):
        raise damaged(path)
    return str(kind)


def reveal(path: Path, passphrase: Passphrase) -> tuple[dict[str, Any], object]:
    """Read a key file: what it says in the open, authenticated, and the keys in it."""
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


def given_passphrase(passphrase: Passphrase) -> str | None:
    """The passphrase given or asked for, else SCUMBLE_PASSPHRASE, else None; an empty one is none."""
    if passphrase is None:
        return os.environ.get("SCUMBLE_PASSPHRASE") or None
    return (passphrase if isinstance(passphrase, str) else passphrase()) or None


def check_strength(passphrase: str | None) -> None:
    """Refuse a passphrase for a new key file that is quickly guessed whatever scrypt costs; those of old files open.

    The rule is blunt on purpose: it counts characters, and whoever picks a famous quotation passes it.
    """
    if passphrase is None:
        return
    letters = unicodedata.normalize("NFC", passphrase)
    if len(letters) < LEAST_CHARACTERS or len(set(letters)) < LEAST_DIFFERENT:
        raise InvalidParameter(
            f"a passphrase needs at least {LEAST_CHARACTERS} characters, {LEAST_DIFFERENT} of them different",
            hint="four or five words picked by chance are good; a key file without one is protected by its mode alone",
        )


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


def streams_path(key_path: Path) -> Path:
    """The folder of the streams' logs: clinic.streams for clinic.key."""
    return beside(key_path, ".streams")


def logged_tables(streams: str | Path) -> frozenset[str]:
    """PUBLIC: the ids of the tables with a log in the streams' folder, whether anything waits in it or not."""
    try:
        return frozenset(os.listdir(streams))  # noqa: PTH208  names are enough, at every query
    except (FileNotFoundError, NotADirectoryError):
        return frozenset()


def log_files(streams: str, table_id: str) -> list[str] | None:
    """The names of the files of a table's log in the streams' folder; None if there is none. Asked at every query."""
    try:
        return os.listdir(f"{streams}/{table_id}")  # noqa: PTH208
    except (FileNotFoundError, NotADirectoryError):
        return None


def beside(key_path: Path, ending: str) -> Path:
    """A file of the same name as the key file, with another ending."""
    return key_path.with_name(key_path.name.removesuffix(".key") + ending)


def canonical(content: dict[str, Any]) -> bytes:
    """The one form in which the files beside a database are written."""
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
    """Whether a key file is there without an anchor: its database was never opened, as its creation was cut short."""
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
        raise damaged(path)
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


def protect(about: dict[str, Any], keys: dict[str, Any], passphrase: str | None) -> bytes:
    """The content of a key file: what it says in the open, and the keys, sealed if there is a passphrase."""
    header: dict[str, Any] = {"format": _FORMAT, **about}
    if passphrase is None:
        header |= {"protection": "file mode", "keys": keys}
        return canonical(header | {"checksum": _checksum(header)})
    if not passphrase:
        raise InvalidParameter("an empty passphrase protects nothing", hint="choose one, or give none at all")
    return _sealed(header, keys, passphrase, secrets.token_bytes(16), secrets.token_bytes(_NONCE_BYTES), SCRYPT_COST)


def _sealed(
    header: dict[str, Any], keys: dict[str, Any], passphrase: str, salt: bytes, nonce: bytes, cost: int
) -> bytes:
    """The same with a passphrase; salt and nonce are parameters so that test vectors can fix them."""
    kdf = {"name": "scrypt", "n": cost, "r": 8, "p": 1, "salt": salt.hex()}
    header = header | {"protection": "passphrase", "kdf": kdf}
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
            raise damaged(path)
    if salt is None or sealed is None or len(sealed) < _NONCE_BYTES:
        raise damaged(path)
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
        raise damaged(path)
    return content.get("keys")


def _stretched(passphrase: str, salt: bytes, cost: int) -> bytes:
    # The same letters typed on another system are the same passphrase; bytes that are no text come as surrogates.
    secret = unicodedata.normalize("NFC", passphrase).encode("utf-8", "surrogatepass")
    return Scrypt(salt=salt, length=_KEY_BYTES, n=cost, r=8, p=1).derive(secret)


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


def damaged(path: Path) -> KeyRefused:
    """The error for a file that does not read as a key file."""
    return KeyRefused(f"{path} is not a Scumble key file, or it is damaged", hint="restore it from a backup")
