"""Intel TDX and SGX: the verdict on a quote and its collateral. Nothing here is secret.

`dcap-qvl` checks the signatures from the quote up to Intel's root, the revocation lists, every date, and the platform's
level against Intel's signed list of levels (the collateral). What it leaves open is decided here: debugging, which
levels are good enough, the measurement and report data asked for, and the layout: it passes over unsigned bytes, such
as lengths, the spelling of the PEM certificates and what follows the quote. Here every byte must be where it belongs:
only the number of zero bytes after a quote is free, since platforms pad differently, and an ECDSA signature, which has
two forms. So nothing may take the bytes of evidence for its name. docs/attestation.md lists each check.

The measurement of an SGX enclave is its MRENCLAVE. That of a TDX machine is SHA-384 over MRTD and RTMR0 to RTMR3, 48
bytes each, one after the other: firmware, its configuration, kernel, command line and whatever is measured later.
"""

import hashlib
import hmac
import json
import struct
from dataclasses import dataclass
from datetime import datetime
from importlib import import_module
from types import ModuleType
from typing import Any, Self

from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding

from scumble.attestation.certificates import fingerprint, reading
from scumble.attestation.evidence import Evidence
from scumble.attestation.policy import Facts, Policy, Verdict
from scumble.attestation.verification import check_binding
from scumble.errors import AttestationRefused

__all__ = ["INTEL_ROOT", "Quote", "authenticated", "stated_measurement", "verify"]

INTEL_ROOT = "a0af031289f5d5d4132f9186068a7fc13628633ba235777472e29b6b6c67a49e"
"""SHA-256 over the SubjectPublicKeyInfo of the Intel SGX Root CA."""

HEADER = struct.Struct("<HHI")
HEADER_BYTES = 48
SGX, TDX = 0x00, 0x81
ECDSA_P256 = 2
BODY_BYTES = {(3, SGX): 384, (4, SGX): 384, (4, TDX): 584}
"""By version and TEE; from version 5 on, the type of the body and its length are written before it."""
TYPED_BODY_BYTES = {1: (SGX, 384), 2: (TDX, 584), 3: (TDX, 648)}
PEM_CHAIN, QE_REPORT = 5, 6
SIGNATURE_AND_KEY_BYTES = 64 + 64
QE_REPORT_BYTES = 384 + 64

TEES = {"tdx": TDX, "sgx": SGX}

TD_ATTRIBUTES = slice(120, 128)
XFAM = slice(128, 136)
MRTD = slice(136, 184)
MRCONFIGID = slice(184, 232)
RTMRS = slice(328, 520)
TD_REPORT_DATA = slice(520, 584)

SGX_ATTRIBUTES = slice(48, 64)
MRENCLAVE = slice(64, 96)
MRSIGNER = slice(128, 160)
SGX_REPORT_DATA = slice(320, 384)
SGX_DEBUG = 0x02
TDX_DEBUG = 0xFF
"""The attributes that make a machine untrusted: DEBUG is bit 0, and the others of its byte are reserved."""


@dataclass(frozen=True)
class Quote:
    """The parts of a quote that are checked here, not only by `dcap-qvl`."""

    tee: int
    body: bytes

    @classmethod
    def parse(cls, raw: bytes, *, root: str) -> Self:
        """The quote in `raw`; AttestationRefused if a byte of it is not where it should be.

        `root` is the fingerprint of the root that its chain must end in.
        """
        with reading(unreadable()):
            return cls.parse_strictly(Cursor(raw), root)

    @classmethod
    def parse_strictly(cls, cursor: "Cursor", root: str) -> Self:
        version, key_type, tee = HEADER.unpack_from(cursor.take(HEADER_BYTES))
        if key_type != ECDSA_P256:
            raise unreadable()
        if version == 5:
            body_type, length = cursor.number(2), cursor.number(4)
            if TYPED_BODY_BYTES.get(body_type) != (tee, length):
                raise unreadable()
        elif (version, tee) in BODY_BYTES:
            length = BODY_BYTES[version, tee]
        else:
            raise unreadable()
        body = cursor.take(length)
        signature = Cursor(cursor.take(cursor.number(4)))
        if any(cursor.data):
            raise unreadable()
        signature.take(SIGNATURE_AND_KEY_BYTES)
        if version > 3:
            signature = signature.certification(QE_REPORT)
        signature.take(QE_REPORT_BYTES)
        signature.take(signature.number(2))
        check_chain(signature.certification(PEM_CHAIN).data, root)
        return cls(tee, body)


class Cursor:
    """A place in bytes, from which parts are taken one after the other."""

    def __init__(self, data: bytes) -> None:
        self.data = data

    def take(self, length: int) -> bytes:
        if length > len(self.data):
            raise unreadable()
        part, self.data = self.data[:length], self.data[length:]
        return part

    def number(self, size: int) -> int:
        return int.from_bytes(self.take(size), "little")

    def certification(self, expected: int) -> "Cursor":
        """The certification data that fills the rest, if it is of the expected type."""
        if self.number(2) != expected or self.number(4) != len(self.data):
            raise unreadable()
        return self


def check_chain(pem: bytes, root: str) -> None:
    """Refuse a chain of certificates that is spelled otherwise than `cryptography` would, or ends in another root."""
    certificates = x509.load_pem_x509_certificates(pem)
    spelled = b"".join(each.public_bytes(Encoding.PEM) for each in certificates)
    if len(certificates) != 3 or pem.removesuffix(b"\0") != spelled:
        raise unreadable()
    last = certificates[-1]
    if fingerprint(last) != root:
        raise AttestationRefused("the quote's root certificate is not Intel's", hint="the quote was altered or forged")
    last.verify_directly_issued_by(last)


def unreadable() -> AttestationRefused:
    """The refusal of a quote that cannot be read."""
    return AttestationRefused(
        "the quote is not laid out as Intel's specification says",
        hint="versions 3 to 5 with an embedded chain of PCK certificates are read here; the quote may be damaged",
    )


# --- checks ----------------------------------------------------------------------------------------


def authenticated(
    evidence: Evidence, *, report_data: bytes, now: datetime, root: x509.Certificate | None = None
) -> Verdict:
    """What a genuine TDX or SGX quote says; AttestationRefused if a check fails that no policy can waive."""
    library = load_library()
    quote = Quote.parse(evidence.report, root=INTEL_ROOT if root is None else fingerprint(root))
    if quote.tee != TEES[evidence.kind]:
        raise AttestationRefused("the quote is of another kind than it says", hint="the provider mixes TDX and SGX up")
    check_debug(quote)
    claims = claims_of(library, evidence, now, root)
    try:
        stated = stated_data(claims)
        facts = facts_in(claims, issued_at(evidence.extras["collateral"]))
        details = describe(quote, claims)
    except (KeyError, TypeError, AttributeError, StopIteration, ValueError):
        raise AttestationRefused(
            "this version of dcap-qvl says less than is needed", hint="pip install --upgrade 'scumble[attestation]'"
        ) from None
    data = quote.body[TD_REPORT_DATA if quote.tee == TDX else SGX_REPORT_DATA]
    if not hmac.compare_digest(data.hex(), stated):
        raise AttestationRefused("the quote can be read in two ways", hint="it was made to deceive: send it nothing")
    check_binding(data, report_data)
    return Verdict(evidence.kind, measurement_of(quote).hex(), data, details, facts)


def verify(
    evidence: Evidence,
    *,
    report_data: bytes,
    policy: Policy,
    now: datetime,
    root: x509.Certificate | None = None,
) -> Verdict:
    """The verdict on a TDX or SGX quote; AttestationRefused if any check fails."""
    verdict = authenticated(evidence, report_data=report_data, now=now, root=root)
    policy.check(verdict, now)
    return verdict


def stated_measurement(report: bytes) -> bytes:
    """The measurement in a quote, unverified, for the enclave's operator to publish."""
    return measurement_of(Quote.parse(report, root=INTEL_ROOT))


def measurement_of(quote: Quote) -> bytes:
    """MRENCLAVE, or the hash over a TDX machine's five measurement registers."""
    if quote.tee == SGX:
        return quote.body[MRENCLAVE]
    return hashlib.sha384(quote.body[MRTD] + quote.body[RTMRS]).digest()


def load_library() -> ModuleType:
    """The `dcap_qvl` package, which is optional."""
    try:
        return import_module("dcap_qvl")
    except ImportError:
        raise AttestationRefused(
            "TDX and SGX evidence is checked with dcap-qvl, which is not installed",
            hint="pip install 'scumble[attestation]'",
        ) from None


def claims_of(library: ModuleType, evidence: Evidence, now: datetime, root: x509.Certificate | None) -> dict[str, Any]:
    """What `dcap-qvl` found to be proven at `now`."""
    if "collateral" not in evidence.extras:
        raise AttestationRefused(
            "the evidence has no collateral with it",
            hint="the provider has to add collateral.json, fetched from Intel or a caching service",
        )
    try:
        moment = int(now.timestamp())
        collateral = library.QuoteCollateralV3.from_json(evidence.extras["collateral"].decode())
        verified = library.QuoteVerifier(root and root.public_bytes(Encoding.DER)).verify_with_policy(
            evidence.report, collateral, moment, library.QuotePolicy.claims_only(moment)
        )
        claims = json.loads(verified.to_json())
    except (ValueError, OverflowError, RuntimeError):
        raise AttestationRefused(
            "the quote or its collateral does not verify up to Intel's root at this time",
            hint="it was altered, or the collateral is of another platform or expired: the provider has to renew it",
        ) from None
    if not isinstance(claims, dict):
        raise AttestationRefused("the quote does not verify", hint="pip install --upgrade 'scumble[attestation]'")
    return claims


def stated_data(claims: dict[str, Any]) -> str:
    """The report data as `dcap-qvl` read it, in hex; later bodies contain the first one."""
    report = next(iter(claims["report"].values()))
    return str(report.get("base", report)["report_data"])


def facts_in(claims: dict[str, Any], issued: datetime) -> Facts:
    """What a policy is held against: the statuses are those of platform, quoting enclave, and both together."""
    levels = (claims["tcb"]["status"], *(claims[part]["tcb_level"]["tcbStatus"] for part in ("platform", "qe")))
    return Facts(
        chip=bytes(claims["platform"]["pck"]["ppid"]).hex(),
        issued=issued,
        statuses=frozenset(map(str, levels)),
        advisories=frozenset(map(str, claims["tcb"]["advisory_ids"])),
        tcb_evaluation=min(int(claims["tcb"]["eval_data_number"]), int(claims["qe"]["tcb_eval_data_number"])),
    )


def issued_at(collateral: bytes) -> datetime:
    """When the oldest part of collateral was issued that is renewed each month: `dcap-qvl` has checked them all."""
    parts = json.loads(collateral)
    dates = [
        datetime.fromisoformat(json.loads(parts[name])["issueDate"].replace("Z", "+00:00"))
        for name in ("tcb_info", "qe_identity")
    ]
    return min(*dates, x509.load_der_x509_crl(bytes.fromhex(parts["pck_crl"])).last_update_utc)


def check_debug(quote: Quote) -> None:
    """Refuse an enclave or machine that its host can look into."""
    flags = quote.body[TD_ATTRIBUTES if quote.tee == TDX else SGX_ATTRIBUTES][0]
    if flags & (TDX_DEBUG if quote.tee == TDX else SGX_DEBUG):
        raise AttestationRefused(
            "the enclave can be debugged by its host: its memory is not secret",
            hint="the provider has to launch it without the debug attribute",
        )


def describe(quote: Quote, claims: dict[str, Any]) -> dict[str, str]:
    """The facts to show: no secrets, all verified."""
    pck = claims["platform"]["pck"]
    details = {
        "status": claims["tcb"]["status"],
        "advisories": advisories(claims),
        "tcb evaluation": str(claims["tcb"]["eval_data_number"]),
        "chip": bytes(pck["ppid"]).hex(),
        "fmspc": bytes(pck["fmspc"]).hex(),
        "quote version": str(claims["header"]["version"]),
    }
    if quote.tee == TDX:
        rtmrs = quote.body[RTMRS]
        registers = {f"rtmr{index}": rtmrs[48 * index : 48 * index + 48].hex() for index in range(4)}
        return details | {
            "attributes": quote.body[TD_ATTRIBUTES].hex(),
            "xfam": quote.body[XFAM].hex(),
            "mrconfigid": quote.body[MRCONFIGID].hex(),
            "mrtd": quote.body[MRTD].hex(),
            **registers,
        }
    return details | {"attributes": quote.body[SGX_ATTRIBUTES].hex(), "mrsigner": quote.body[MRSIGNER].hex()}


def advisories(claims: dict[str, Any]) -> str:
    """The advisories that apply to the platform, in one line."""
    return " ".join(str(each) for each in claims["tcb"]["advisory_ids"]) or "none"
