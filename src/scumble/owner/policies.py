"""The owner's policy as a client keeps it: in a file beside the key, so that nobody can talk the client out of it.

A signed document comes in, from the owner's hand or with a version; it is held against the owner's key and against the
one that was known, and goes back only to the enclave and to analysts. PUBLIC; a MAC under a key that never leaves this
machine keeps others from choosing what is remembered.
"""

import hmac
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

from scumble.attestation.policy import HIDING, Policy, Verdict
from scumble.attestation.policy_document import MAGIC, MOST_POLICY_BYTES, SignedPolicy, read_policy
from scumble.errors import FileError, InvalidParameter, Tampered
from scumble.owner.key_file import beside, canonical, parse_canonical, read_small, replace_file
from scumble.owner.keys import Key, OwnerKey

__all__ = ["NEW", "Policies", "check_lowered", "first_policy", "given_policy", "new_terms", "next_policy"]

NEW = Policy(ciphertext_hiding=HIDING[1])
"""What the owner of a new database asks for, besides the kind and firmware level that the enclave shows."""

_FORMAT = 1


def _nothing(_: SignedPolicy) -> None:
    """Ask nothing of an enclave in this process."""


class Policies:
    """The policy that the holder of a key goes by. `require` holds the enclave of now against a newer one."""

    def __init__(self, key_path: Path, require: Callable[[SignedPolicy], None] = _nothing) -> None:
        self._key_path, self._require = key_path, require

    def path(self, key: Key) -> Path:
        """The policy's place: clinic.policy for clinic.key; an analyst has one for each database."""
        own = isinstance(key, OwnerKey)
        return beside(self._key_path, ".policy" if own else f".{key.database}.policy")

    def known(self, key: Key) -> SignedPolicy | None:
        """The newest policy seen, None if there was none; Tampered if this key's holder did not save it."""
        path = self.path(key)
        try:
            data, _ = read_small(path)
        except FileNotFoundError:
            return None
        except OSError as error:
            raise FileError(f"the policy {path} cannot be read: {error.strerror}", hint="check its mode") from None
        match parse_canonical(data):
            case {"format": 1, "policy": str(policy), "mac": str(mac)} if mac.isascii():
                for each in key.candidates():
                    if hmac.compare_digest(mac, _mac(policy, each)):
                        return SignedPolicy.parse(bytes.fromhex(policy))
        raise Tampered

    def hold(self, signed: SignedPolicy) -> None:
        """Hold the enclave of now against a policy that is about to be put in force; AttestationRefused if it fails."""
        self._require(signed)

    def learn(self, key: Key, data: bytes, owner: bytes) -> None:
        """From now on go by a policy that the owner signed, if it is newer than the known one; never by an older."""
        signed, known = SignedPolicy.read(data, key.database, owner), self.known(key)
        if known is None or signed.serial > known.serial:
            self._require(signed)
            content = {"format": _FORMAT, "policy": data.hex()}
            replace_file(self.path(key), canonical(content | {"mac": _mac(data.hex(), key)}))
        elif signed.serial == known.serial and signed != known:
            raise Tampered


def given_policy(given: object) -> Policy | SignedPolicy:
    """What a caller has given: terms, or the path of a TOML file, or of a document that an owner signed."""
    if isinstance(given, Policy | SignedPolicy):
        return given
    if not isinstance(given, str | Path):
        raise InvalidParameter("a policy is a Policy or the path of a file", hint="docs/attestation.md has an example")
    path = Path(given)
    try:
        with path.open("rb") as file:
            data = file.read(MOST_POLICY_BYTES + 1)
    except OSError as error:
        raise FileError(f"the policy {path} cannot be read: {error.strerror}", hint="check the path") from None
    return SignedPolicy.parse(data) if data.startswith(MAGIC) else read_policy(path)


def first_policy(terms: Policy, key: OwnerKey) -> SignedPolicy:
    """The policy of a new database."""
    return SignedPolicy.sign(terms, key.database, 1, datetime.now(UTC), key.signing_key())


def next_policy(terms: Policy, key: OwnerKey, known: SignedPolicy | None, *, lower: bool = False) -> SignedPolicy:
    """The policy after the known one; InvalidParameter if it lowers anything and that was not said."""
    if known is None:
        return first_policy(terms, key)
    check_lowered(known, terms, lower=lower)
    return SignedPolicy.sign(terms, key.database, known.serial + 1, known.moment(datetime.now(UTC)), key.signing_key())


def check_lowered(known: SignedPolicy, terms: Policy | None, *, lower: bool) -> None:
    """Refuse terms that accept anything more than the known policy, and say what, unless that was said to be meant."""
    lowered = known.terms.lowered_by(Policy() if terms is None else terms)
    if lowered and not lower:
        raise InvalidParameter(
            "the new policy accepts more than the one before; " + "; ".join(lowered),
            hint="if that is meant, say so with --lower",
        )


def new_terms(given: Policy | None, verdict: Verdict) -> Policy:
    """The first terms of a database: what was given, and of what that leaves open, what the enclave shows now."""
    terms = (NEW if given is None else given).filled_from(verdict)
    return replace(terms, allow_simulated=verdict.kind == "simulated")


def _mac(policy: str, key: Key) -> str:
    return hmac.digest(key.anchor_key(), b"policy " + policy.encode(), "sha256").hex()
