"""The policy document: an owner's terms for one database, numbered, dated and signed. PUBLIC.

An owner writes the terms as a TOML file. What clients and enclaves keep and pass on is a `SignedPolicy`:

    magic "SCUMBLE-POLICY-1\\n"
    signature       64 bytes, Ed25519 by the owner over a label, the database's id and the document, each framed
    document        JSON with sorted keys and no spaces: database, serial, not_before (seconds since 1970), terms

Of two documents of a database the one with the higher serial counts, and nobody goes back. `not_before` is when it was
signed: whoever applies it takes no earlier time for now, whatever the clock of its host says.
"""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, fields
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Self

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from scumble.attestation.evidence import Evidence, framed
from scumble.attestation.policy import Policy, Tcb, Verdict
from scumble.attestation.verification import verify
from scumble.errors import FileError, InvalidParameter, Tampered

__all__ = ["MAGIC", "MOST_POLICY_BYTES", "SignedPolicy", "policy_fields", "policy_from_fields", "read_policy"]

MAGIC = b"SCUMBLE-POLICY-1\n"
MOST_POLICY_BYTES = 24 << 10
SIGNATURE_BYTES = 64
LARGEST = 1 << 37
"""Serials and times are below: of a time, that is the year 6325."""

_LABEL = b"scumble policy v1"
_DATABASE = re.compile("[0-9a-f]{16,64}")


@dataclass(frozen=True)
class SignedPolicy:
    """PUBLIC: a policy, whose it is, and the owner's signature. Made by `sign`, or by `read`, which checks it."""

    database: str
    serial: int
    not_before: int
    terms: Policy
    signature: bytes = b""

    @classmethod
    def sign(cls, terms: Policy, database: str, serial: int, now: datetime, key: Ed25519PrivateKey) -> Self:
        made = cls(database, serial, int(now.timestamp()), terms)
        if len(made.to_bytes()) + SIGNATURE_BYTES > MOST_POLICY_BYTES:
            raise InvalidParameter("the policy is too long", hint="24 KiB are enough for a hundred chips")
        return cls(database, serial, made.not_before, terms, key.sign(made._signed))

    @classmethod
    def read(cls, data: bytes, database: str, owner: bytes) -> Self:
        """The document in `data`, if `owner` has signed it for this database; else Tampered."""
        found = cls.parse(data)
        try:
            Ed25519PublicKey.from_public_bytes(owner).verify(found.signature, found._signed)
        except (InvalidSignature, ValueError):
            raise Tampered from None
        if found.database != database:
            raise Tampered
        return found

    @classmethod
    def parse(cls, data: bytes) -> Self:
        """The document in `data`, signed by whomever; Tampered if it is not written exactly as `to_bytes` does."""
        start = len(MAGIC) + SIGNATURE_BYTES
        if len(data) > MOST_POLICY_BYTES or not data.startswith(MAGIC):
            raise Tampered
        try:
            match json.loads(data[start:]):
                case {
                    "database": str(database),
                    "serial": int(serial),
                    "not_before": int(not_before),
                    "terms": dict(terms),
                } if _DATABASE.fullmatch(database) and _is_number(serial, 1) and _is_number(not_before, 0):
                    signature = data[len(MAGIC) : start]
                    found = cls(database, serial, not_before, policy_from_fields(terms), signature)
                case _:
                    raise Tampered
        except (ValueError, RecursionError, InvalidParameter):
            raise Tampered from None
        if found.to_bytes() != data:
            raise Tampered
        return found

    def to_bytes(self) -> bytes:
        return MAGIC + self.signature + self._document

    def moment(self, now: datetime) -> datetime:
        """The time to judge at: never before the document was signed."""
        return max(now, datetime.fromtimestamp(self.not_before, UTC))

    def verify(self, evidence: Evidence, *, report_data: bytes, now: datetime) -> Verdict:
        """The verdict on evidence under these terms; AttestationRefused if it does not meet them."""
        return verify(evidence, report_data=report_data, policy=self.terms, now=self.moment(now))

    @property
    def _document(self) -> bytes:
        content = {
            "database": self.database,
            "serial": self.serial,
            "not_before": self.not_before,
            "terms": policy_fields(self.terms),
        }
        return json.dumps(content, sort_keys=True, separators=(",", ":")).encode()

    @property
    def _signed(self) -> bytes:
        return b"".join(framed(part) for part in (_LABEL, self.database.encode(), self._document))


def _is_number(value: int, least: int) -> bool:
    return type(value) is int and least <= value < LARGEST


# --- the terms as fields of JSON and TOML ------------------------------------------------------------


def policy_fields(policy: Policy) -> dict[str, Any]:
    """A policy's terms; those at their default are left out."""
    given: dict[str, Any] = {}
    for each in fields(policy):
        value = getattr(policy, each.name)
        if value == getattr(Policy(), each.name):
            continue
        if isinstance(value, frozenset):
            value = sorted(value)
        elif each.name == "floors":
            value = {product: _tcb_fields(tcb) for product, tcb in value}
        elif isinstance(value, Tcb):
            value = _tcb_fields(value)
        given[each.name] = value
    return given


def policy_from_fields(given: Mapping[str, Any]) -> Policy:
    """The inverse; InvalidParameter, with the name of what is wrong, for anything else."""
    for name in given:
        if name not in _READERS:
            raise _bad(name, "is no term of a policy", f"there are {', '.join(sorted(_READERS))}")
    return Policy(**{name: _READERS[name](name, value) for name, value in given.items()})


def read_policy(path: Path) -> Policy:
    """The policy in a TOML file, as an owner writes it."""
    import tomllib  # an enclave has no use for it

    try:
        with path.open("rb") as file:
            data = file.read(MOST_POLICY_BYTES + 1)
        if len(data) > MOST_POLICY_BYTES:
            raise FileError(f"the policy {path} is too long", hint="24 KiB are enough for a hundred chips")
        return policy_from_fields(tomllib.loads(data.decode()))
    except OSError as error:
        raise FileError(f"the policy {path} cannot be read: {error.strerror}", hint="check the path") from None
    except UnicodeDecodeError:
        raise InvalidParameter(f"the policy {path} is not UTF-8 text", hint="give the terms, as a TOML file") from None
    except ValueError as error:  # tomllib's says the line, and names no secret
        raise InvalidParameter(f"the policy {path} is no TOML: {error}", hint="docs/attestation.md has one") from None


def _bad(name: str, trouble: str, hint: str) -> InvalidParameter:
    return InvalidParameter(f"the policy's {name[:64]} {trouble}", hint=hint)


def _texts(name: str, value: Any) -> frozenset[str]:
    if not isinstance(value, list) or not all(isinstance(each, str) for each in value):
        raise _bad(name, "is no list of texts", f'write {name} = ["..."]')
    return frozenset(value)


def _flag(name: str, value: Any) -> bool:
    if not isinstance(value, bool):
        raise _bad(name, "is neither true nor false", "write true or false, without quotes")
    return value


def _number(name: str, value: Any) -> int:
    if type(value) is not int or not 0 <= value < 1 << 31:
        raise _bad(name, "is no whole number from 0 on", "write it without quotes")
    return value


def _text(name: str, value: Any) -> str:
    if not isinstance(value, str):
        raise _bad(name, "is not text", "write it in quotes")
    return value


def _tcb(name: str, value: Any) -> Tcb:
    known = {each.name for each in fields(Tcb)}
    if not isinstance(value, Mapping) or not known.issuperset(value):
        raise _bad(name, "is no table of security versions", f"it may have {', '.join(sorted(known))}")
    return Tcb(**{part: _number(f"{name}.{part}", number) for part, number in value.items()})


def _floors(name: str, value: Any) -> tuple[tuple[str, Tcb], ...]:
    if not isinstance(value, Mapping):
        raise _bad(name, "is no table", "write [floors.Milan], and the security versions under it")
    return tuple((product, _tcb(f"{name}.{product}", tcb)) for product, tcb in value.items())


def _tcb_fields(tcb: Tcb) -> dict[str, int]:
    return {each.name: getattr(tcb, each.name) for each in fields(Tcb)}


_READERS: dict[str, Any] = {
    **dict.fromkeys(("kinds", "measurements", "chips", "allow_statuses", "allow_advisories"), _texts),
    **dict.fromkeys(("allow_simulated", "allow_migration_agent", "require_crl"), _flag),
    **dict.fromkeys(("maximum_age_days", "maximum_vmpl", "minimum_tcb_evaluation"), _number),
    "ciphertext_hiding": _text,
    "minimum_tcb": _tcb,
    "floors": _floors,
}
