"""The gateway's configuration: a TOML file comes in, checked settings go out, or an error that names the field.

The file holds no secret: hashes of tokens, paths of key files, names of environment variables.
"""

import ipaddress
import os
import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from scumble.errors import FileError, InvalidParameter
from scumble.gateway.tokens import HASH

__all__ = ["Config", "Limits", "Source", "Tls", "read_config"]

DEFAULT_LISTEN = "127.0.0.1:31337"
NAME = re.compile(r"[A-Za-z][A-Za-z0-9_-]{0,62}")
ADDRESS = re.compile(r"(\[[0-9A-Fa-f:.]+\]|[^\s:\[\]/]+):(\d{1,5})")
MAX_PORT = 65_535
CONNECTING: dict[str, type] = {"measurement": str, "insecure_simulated_enclave": bool}


@dataclass(frozen=True)
class Source:
    """Where a database is, its key file, the variable with that file's passphrase, and the code to trust."""

    target: str
    key: Path | None = None
    passphrase_env: str | None = None
    connecting: Mapping[str, Any] = field(default_factory=dict)

    def passphrase(self) -> str | None:
        """The passphrase, or None if no variable is named for it."""
        return None if self.passphrase_env is None else os.environ[self.passphrase_env]


@dataclass(frozen=True)
class Tls:
    """The gateway's certificate chain and its private key, in PEM."""

    certificate: bytes
    key: bytes = field(repr=False)


@dataclass(frozen=True)
class Limits:
    """How much is kept for clients, and how long: results until they are fetched, statements until they are closed."""

    results: int = 64
    result_bytes: int = 2 << 30
    result_seconds: int = 120
    statements: int = 4096
    statement_seconds: int = 3600


@dataclass(frozen=True)
class Config:
    """A gateway: where it listens, for whom, and in front of which databases."""

    tokens: Mapping[str, str]
    databases: Mapping[str, Source]
    default: str
    host: str = "127.0.0.1"
    port: int = 31337
    tls: Tls | None = None
    limits: Limits = field(default_factory=Limits)


def read_config(path: Path) -> Config:
    """Read and check a configuration file; paths in it count from its own folder."""
    try:
        fields = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise FileError(f"cannot read {path}: {error.strerror}", hint="name a configuration file") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        where = f": {error}" if isinstance(error, tomllib.TOMLDecodeError) else ""
        raise FileError(f"{path} is not TOML{where}", hint="docs/gateway.md has an example") from None
    known = {"listen", "default", "insecure", "tokens", "databases", "tls", "limits"}
    _refuse_unknown("", fields, known)
    host, port = _address(_text(fields, "listen", DEFAULT_LISTEN))
    tls = _tls(fields["tls"], path.parent) if "tls" in fields else None
    insecure = fields.get("insecure", False)
    if not isinstance(insecure, bool):
        raise _bad("insecure", "is neither true nor false")
    if tls is None and not insecure and not _is_loopback(host):
        raise _bad(
            "listen",
            "is beyond this machine, and without TLS anybody on the way reads tokens, queries and rows",
            "add [tls] with a certificate and a key, or write insecure = true if something else protects the line",
        )
    databases = _databases(_table(fields, "databases"), path.parent)
    return Config(
        tokens=_tokens(_table(fields, "tokens")),
        databases=databases,
        default=_default(fields, databases),
        host=host,
        port=port,
        tls=tls,
        limits=_limits(fields.get("limits", {})),
    )


# --- the parts -------------------------------------------------------------------------------------


def _address(listen: str) -> tuple[str, int]:
    found = ADDRESS.fullmatch(listen)
    if found is None or int(found[2]) > MAX_PORT:
        raise _bad("listen", "is no host and port", f'write "{DEFAULT_LISTEN}", or port 0 for any that is free')
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
        raise _bad("tokens", "is empty, so nobody could come in", hint)
    for name, value in table.items():
        _check_name("tokens", name)
        if not isinstance(value, str) or HASH.fullmatch(value) is None:
            raise _bad(f"tokens.{name}", "is not sha256: and 64 hexadecimal digits", hint)
    if len(set(table.values())) < len(table):
        raise _bad("tokens", "has the same token for two clients", "make one for each")
    return table


def _databases(table: dict[str, Any], folder: Path) -> dict[str, Source]:
    if not table:
        raise _bad("databases", "is empty", 'write [databases.clinic] and under it target = "clinic"')
    sources = {}
    for name, fields in table.items():
        _check_name("databases", name)
        where = f"databases.{name}"
        if not isinstance(fields, dict):
            raise _bad(where, "is no table", f'write [{where}] and under it target = "clinic"')
        _refuse_unknown(f"{where}.", fields, {"target", "key", "passphrase_env", *CONNECTING})
        target, key = _text(fields, "target", None, where), _text(fields, "key", "", where)
        variable = _text(fields, "passphrase_env", "", where) or None
        if variable is not None and not os.environ.get(variable):
            raise _bad(f"{where}.passphrase_env", f"names {variable}, which is not set", "set it and start again")
        place = target if "://" in target else str(folder / target)
        sources[name] = Source(place, folder / key if key else None, variable, _connecting(fields, where))
    return sources


def _connecting(fields: dict[str, Any], where: str) -> dict[str, str | bool]:
    """What a database at a service may need: the measurement of the code to trust, or to do without."""
    for name, kind in CONNECTING.items():
        if name in fields and not isinstance(fields[name], kind):
            raise _bad(f"{where}.{name}", "is not text" if kind is str else "is neither true nor false")
    return {name: fields[name] for name in CONNECTING if name in fields}


def _default(fields: dict[str, Any], databases: Mapping[str, Source]) -> str:
    if "default" not in fields and len(databases) == 1:
        return next(iter(databases))
    if fields.get("default") not in databases:
        raise _bad("default", "names no database of this file", f"one of {', '.join(databases)}")
    return str(fields["default"])


def _tls(fields: Any, folder: Path) -> Tls:
    if not isinstance(fields, dict):
        raise _bad("tls", "is no table", "write [tls] and under it certificate and key")
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
        raise _bad("limits", "is no table", "write [limits] and under it result_seconds = 120, for example")
    _refuse_unknown("limits.", fields, set(Limits.__dataclass_fields__))
    for name, value in fields.items():
        if not isinstance(value, int) or isinstance(value, bool) or value < 1:
            raise _bad(f"limits.{name}", "is not a whole number of at least 1")
    return Limits(**fields)


# --- checks ----------------------------------------------------------------------------------------


def _table(fields: dict[str, Any], name: str) -> dict[str, Any]:
    table = fields.get(name, {})
    if not isinstance(table, dict):
        raise _bad(name, "is no table", f"write [{name}]")
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
        raise _bad(where, "has a name that is none", "a letter, then letters, digits, _ or -; 63 at most")


def _refuse_unknown(where: str, fields: dict[str, Any], known: set[str]) -> None:
    for name in fields:
        if name not in known:
            raise _bad(f"{where}{name}", "is no setting", f"there are {', '.join(sorted(known))}")


def _bad(name: str, trouble: str, hint: str | None = None) -> InvalidParameter:
    return InvalidParameter(f"the gateway's {name} {trouble}", hint=hint or "docs/gateway.md has an example")
