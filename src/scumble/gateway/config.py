"""The gateway's configuration, read from a TOML file and checked, and the tokens of its clients.

The file holds no secret: hashes of tokens, paths of key files, names of environment variables. A token is printed once,
when it is made. It is 256 random bits, so a plain SHA-256 of it reveals nothing and no slow hash is needed.
"""

import base64
import binascii
import hmac
import ipaddress
import os
import re
import secrets
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import Any

from scumble.errors import FileError, InvalidParameter

__all__ = ["Config", "DatabaseConfig", "Limits", "Tls", "client_of", "hash_of", "new_token", "read_config"]

DEFAULT_LISTEN = "127.0.0.1:31337"
NAME = re.compile(r"[A-Za-z][A-Za-z0-9_-]{0,62}")
ADDRESS = re.compile(r"(\[[0-9A-Fa-f:.]+\]|[^\s:\[\]/]+):(\d{1,5})")
MAX_PORT = 65_535
HASH = re.compile(r"sha256:[0-9a-f]{64}")
SERVICE_OPTIONS: dict[str, type] = {"measurement": str, "policy": str, "insecure_simulated_enclave": bool}


@dataclass(frozen=True)
class DatabaseConfig:
    """Where a database is, its key file, the variable with that file's passphrase, and options for a service."""

    target: str
    key: Path | None = None
    passphrase_env: str | None = None
    service_options: Mapping[str, Any] = field(default_factory=dict)

    def passphrase(self) -> str | None:
        """Return the passphrase, or None if no variable is named for it."""
        return None if self.passphrase_env is None else os.environ[self.passphrase_env]


@dataclass(frozen=True)
class Tls:
    """The gateway's certificate chain and its private key, in PEM."""

    certificate: bytes
    key: bytes = field(repr=False)


@dataclass(frozen=True)
class Limits:
    """How much runs and is kept for clients, and how long: results until fetched, statements until closed.

    `running` statements run at a time, and `running_per_client` of one client, each for at most `run_seconds` and in
    at most `statement_bytes` of memory. A transaction that is idle for `transaction_seconds` is rolled back.
    """

    results: int = 64
    result_bytes: int = 2 << 30
    result_seconds: int = 120
    statements: int = 4096
    statement_seconds: int = 3600
    running: int = 8
    running_per_client: int = 4
    waiting_per_client: int = 256
    run_seconds: int = 300
    statement_bytes: int = 1 << 30
    transaction_seconds: int = 60


@dataclass(frozen=True)
class Config:
    """A gateway: where it listens, for which clients, and with which databases."""

    tokens: Mapping[str, str]
    databases: Mapping[str, DatabaseConfig]
    default: str
    host: str = "127.0.0.1"
    port: int = 31337
    tls: Tls | None = None
    limits: Limits = field(default_factory=Limits)
    writers: frozenset[str] = frozenset()
    """The clients that may change something; all others can only read."""


def read_config(path: Path) -> Config:
    """Read and check a configuration file; paths in it are relative to its folder."""
    try:
        fields = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise FileError(f"cannot read {path}: {error.strerror}", hint="name a configuration file") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        where = f": {error}" if isinstance(error, tomllib.TOMLDecodeError) else ""
        raise FileError(f"{path} is not TOML{where}", hint="docs/gateway.md has an example") from None
    known = {"listen", "default", "insecure", "tokens", "writers", "databases", "tls", "limits"}
    _refuse_unknown("", fields, known)
    host, port = _address(_text(fields, "listen", DEFAULT_LISTEN))
    tls = _tls(fields["tls"], path.parent) if "tls" in fields else None
    insecure = fields.get("insecure", False)
    if not isinstance(insecure, bool):
        raise _bad("insecure", "is neither true nor false")
    if tls is None and not insecure and not _is_loopback(host):
        raise _bad(
            "listen",
            "is not on this machine, and without TLS anyone on the network path can read tokens, queries and rows",
            "add [tls] with a certificate and a key, or write insecure = true if something else encrypts the line",
        )
    databases, tokens = _databases(_table(fields, "databases"), path.parent), _tokens(_table(fields, "tokens"))
    return Config(
        tokens=tokens,
        databases=databases,
        default=_default(fields, databases),
        host=host,
        port=port,
        tls=tls,
        limits=_limits(fields.get("limits", {})),
        writers=_writers(fields.get("writers", []), tokens),
    )


# --- the parts -------------------------------------------------------------------------------------


def _address(listen: str) -> tuple[str, int]:
    found = ADDRESS.fullmatch(listen)
    if found is None or int(found[2]) > MAX_PORT:
        raise _bad("listen", "is not a host and port", f'write "{DEFAULT_LISTEN}"; port 0 takes any free one')
    return found[1], int(found[2])


def _is_loopback(host: str) -> bool:
    if host.lower() == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


def _tokens(table: dict[str, Any]) -> dict[str, str]:
    hint = "`scumble gateway --new-token NAME` prints a token and the line for it"
    if not table:
        raise _bad("tokens", "is empty, so no client could connect", hint)
    for name, value in table.items():
        _check_name("tokens", name)
        if not isinstance(value, str) or HASH.fullmatch(value) is None:
            raise _bad(f"tokens.{name}", "is not sha256: and 64 hexadecimal digits", hint)
    if len(set(table.values())) < len(table):
        raise _bad("tokens", "has the same token for two clients", "make one for each")
    return table


def _writers(names: Any, tokens: Mapping[str, str]) -> frozenset[str]:
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise _bad("writers", "is not a list of clients", 'write writers = ["alice"] above [tokens]')
    if not set(names) <= tokens.keys():
        raise _bad("writers", "names a client without a token", f"the clients are {', '.join(tokens)}")
    return frozenset(names)


def _databases(table: dict[str, Any], folder: Path) -> dict[str, DatabaseConfig]:
    if not table:
        raise _bad("databases", "is empty", 'write [databases.clinic] and under it target = "clinic"')
    databases = {}
    for name, fields in table.items():
        _check_name("databases", name)
        where = f"databases.{name}"
        if not isinstance(fields, dict):
            raise _bad(where, "is not a table", f'write [{where}] and under it target = "clinic"')
        _refuse_unknown(f"{where}.", fields, {"target", "key", "passphrase_env", *SERVICE_OPTIONS})
        target, key = _text(fields, "target", None, where), _text(fields, "key", "", where)
        variable = _text(fields, "passphrase_env", "", where) or None
        if variable is not None and not os.environ.get(variable):
            raise _bad(f"{where}.passphrase_env", f"names {variable}, which is not set", "set it and start again")
        place = target if "://" in target else str(folder / target)
        options = _service_options(fields, where)
        if "policy" in options:
            options["policy"] = str(folder / str(options["policy"]))
        databases[name] = DatabaseConfig(place, folder / key if key else None, variable, options)
    return databases


def _service_options(fields: dict[str, Any], where: str) -> dict[str, str | bool]:
    for name, kind in SERVICE_OPTIONS.items():
        if name in fields and not isinstance(fields[name], kind):
            raise _bad(f"{where}.{name}", "is not text" if kind is str else "is neither true nor false")
    return {name: fields[name] for name in SERVICE_OPTIONS if name in fields}


def _default(fields: dict[str, Any], databases: Mapping[str, DatabaseConfig]) -> str:
    if "default" not in fields and len(databases) == 1:
        return next(iter(databases))
    if fields.get("default") not in databases:
        raise _bad("default", "names no database of this file", f"choose one of {', '.join(databases)}")
    return str(fields["default"])


def _tls(fields: Any, folder: Path) -> Tls:
    if not isinstance(fields, dict):
        raise _bad("tls", "is not a table", "write [tls] and under it certificate and key")
    _refuse_unknown("tls.", fields, {"certificate", "key"})
    parts = []
    for name, mark in (("certificate", b"CERTIFICATE-----"), ("key", b"PRIVATE KEY-----")):
        path = folder / _text(fields, name, None, "tls")
        try:
            content = path.read_bytes()
        except OSError as error:
            raise _bad(f"tls.{name}", f"cannot be read: {error.strerror}", "name a PEM file") from error
        if mark not in content:
            raise _bad(f"tls.{name}", "names a file that is not PEM, or holds something else", "name a PEM file")
        parts.append(content)
    return Tls(*parts)


def _limits(fields: Any) -> Limits:
    if not isinstance(fields, dict):
        raise _bad("limits", "is not a table", "write [limits] and under it result_seconds = 120, for example")
    _refuse_unknown("limits.", fields, set(Limits.__dataclass_fields__))
    for name, value in fields.items():
        if not isinstance(value, int) or isinstance(value, bool) or value < 1:
            raise _bad(f"limits.{name}", "is not a whole number of at least 1")
    return Limits(**fields)


# --- checks ----------------------------------------------------------------------------------------


def _table(fields: dict[str, Any], name: str) -> dict[str, Any]:
    table = fields.get(name, {})
    if not isinstance(table, dict):
        raise _bad(name, "is not a table", f"write [{name}]")
    return table


def _text(fields: dict[str, Any], name: str, default: str | None, where: str = "") -> str:
    full = f"{where}.{name}" if where else name
    value = fields.get(name, default)
    if value is None:
        raise _bad(full, "is missing")
    if not isinstance(value, str) or (name in fields and not value):
        raise _bad(full, "is not text", "write it in quotes")
    return value


def _check_name(where: str, name: str) -> None:
    if NAME.fullmatch(name) is None:
        raise _bad(where, "has a name that is not allowed", "write a letter, then letters, digits, _ or -; 63 at most")


def _refuse_unknown(where: str, fields: dict[str, Any], known: set[str]) -> None:
    for name in fields:
        if name not in known:
            raise _bad(f"{where}{name}", "is not a setting", f"there are {', '.join(sorted(known))}")


def _bad(name: str, trouble: str, hint: str | None = None) -> InvalidParameter:
    return InvalidParameter(f"the gateway's {name} {trouble}", hint=hint or "docs/gateway.md has an example")


# --- tokens ----------------------------------------------------------------------------------------


def new_token() -> str:
    """Make a token for a client."""
    return secrets.token_urlsafe(32)


def hash_of(token: str) -> str:
    """Return the form in which the configuration stores a token."""
    return "sha256:" + sha256(token.encode(errors="surrogatepass")).hexdigest()


def client_of(authorization: str, hashes: Mapping[str, str]) -> tuple[str, str] | None:
    """Return a client's name and token from its authorization header: a bearer token, or a name and password."""
    scheme, _, rest = authorization.partition(" ")
    if scheme.lower() == "bearer":
        return _known(rest.strip(), hashes)
    if scheme.lower() != "basic":
        return None
    try:
        padded = rest.strip() + "=" * (-len(rest.strip()) % 4)  # ADBC leaves the padding out
        name, _, password = base64.b64decode(padded, validate=True).decode().partition(":")
    except (binascii.Error, ValueError):
        return None
    found = _known(password, hashes)
    return found if found is not None and found[0] == name else None


def _known(token: str, hashes: Mapping[str, str]) -> tuple[str, str] | None:
    shown = hash_of(token).encode()
    matching = [name for name, known in hashes.items() if hmac.compare_digest(known.encode(), shown)]
    return (matching[0], token) if matching else None
