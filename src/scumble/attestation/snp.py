"""AMD SEV-SNP: the verdict on a report and its certificates. Nothing here is secret.

The report must be signed by a key that AMD's pinned root vouches for, at the firmware level and for the chip that the
report names; the guest must not be open to its host; and it must state the measurement and report data asked for.
docs/attestation.md lists each check.

The layout is that of AMD's SEV-SNP firmware ABI (document 56860, revision 1.55 and later), for report versions 2, 3 and
5. Parsing is strict: a reserved byte or bit that is not zero is refused, since nobody knows what it would mean.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import IntEnum, IntFlag
from typing import Self

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.utils import encode_dss_signature

from scumble.attestation.certificates import reading
from scumble.attestation.evidence import Evidence
from scumble.attestation.policy import Facts, Policy, Tcb, Verdict
from scumble.attestation.snp_certificates import (
    ROOTS,
    Chain,
    chip_in,
    disagreement,
    find_chain,
    integer_in,
    text_in,
    wrong_chain,
)
from scumble.attestation.verification import check_binding
from scumble.errors import AttestationRefused

__all__ = ["authenticated", "stated_measurement", "verify"]

REPORT_BYTES = 0x4A0
SIGNED_BYTES = 0x2A0
COMPONENT_BYTES = 48
ECDSA_P384_SHA384 = 1

RESERVED = {
    2: ((0x4C, 0x50), (0x188, 0x1A0), (0x1EB, 0x1EC), (0x1EF, 0x1F0), (0x1F8, 0x2A0)),
    3: ((0x4C, 0x50), (0x18B, 0x1A0), (0x1EB, 0x1EC), (0x1EF, 0x1F0), (0x1F8, 0x2A0)),
    5: ((0x4C, 0x50), (0x18B, 0x1A0), (0x1EB, 0x1EC), (0x1EF, 0x1F0), (0x208, 0x2A0)),
}
"""By report version: what must be zero in the signed part."""
SIGNATURE_RESERVED = ((0x2D0, 0x2E8), (0x318, 0x330), (0x330, REPORT_BYTES))


class GuestPolicy(IntFlag):
    """The bits of a guest's policy above the two bytes of the ABI version that it asks for."""

    SMT = 1 << 16
    ALWAYS_ONE = 1 << 17
    MIGRATE_MA = 1 << 18
    DEBUG = 1 << 19
    SINGLE_SOCKET = 1 << 20
    CXL_ALLOW = 1 << 21
    MEM_AES_256_XTS = 1 << 22
    RAPL_DIS = 1 << 23
    CIPHERTEXT_HIDING_DRAM = 1 << 24
    PAGE_SWAP_DISABLE = 1 << 25


class Platform(IntFlag):
    """What the host has switched on."""

    SMT_EN = 1 << 0
    TSME_EN = 1 << 1
    ECC_EN = 1 << 2
    RAPL_DIS = 1 << 3
    CIPHERTEXT_HIDING_DRAM_EN = 1 << 4
    ALIAS_CHECK_COMPLETE = 1 << 5
    TIO_EN = 1 << 7


class SigningKey(IntEnum):
    """Which key signed a report: that of the chip, or one that a cloud loaded."""

    VCEK = 0
    VLEK = 1


@dataclass(frozen=True)
class Report:
    """The fields that are checked or shown."""

    version: int
    guest_svn: int
    policy: GuestPolicy
    abi: tuple[int, int]
    vmpl: int
    platform: Platform
    signing_key: SigningKey
    report_data: bytes
    measurement: bytes
    host_data: bytes
    reported_tcb: bytes
    launch_tcb: bytes
    cpu: tuple[int, int] | None
    chip_id: bytes
    signed: bytes
    signature: tuple[int, int]

    @classmethod
    def parse(cls, raw: bytes) -> Self:
        """The report in `raw`; AttestationRefused if it is not one, or sets what is reserved."""
        if len(raw) != REPORT_BYTES:
            raise unreadable(f"an SEV-SNP report has {REPORT_BYTES} bytes")
        version = number(raw, 0x00, 4)
        if version not in RESERVED:
            raise unreadable("the SEV-SNP report is of a version that Scumble does not know")
        if any(any(raw[start:stop]) for start, stop in (*RESERVED[version], *SIGNATURE_RESERVED)):
            raise unreadable("the SEV-SNP report sets what is reserved")
        if number(raw, 0x34, 4) != ECDSA_P384_SHA384:
            raise unreadable("the SEV-SNP report is not signed with ECDSA on P-384")
        return cls(
            version=version,
            guest_svn=number(raw, 0x04, 4),
            policy=policy_of(number(raw, 0x08, 8)),
            abi=(raw[0x09], raw[0x08]),
            vmpl=number(raw, 0x30, 4),
            platform=platform_of(number(raw, 0x40, 8)),
            signing_key=signing_key_of(number(raw, 0x48, 4)),
            report_data=raw[0x50:0x90],
            measurement=raw[0x90:0xC0],
            host_data=raw[0xC0:0xE0],
            reported_tcb=raw[0x180:0x188],
            launch_tcb=raw[0x1F0:0x1F8],
            cpu=(raw[0x188], raw[0x189]) if version > 2 else None,
            chip_id=raw[0x1A0:0x1E0],
            signed=raw[:SIGNED_BYTES],
            signature=(number(raw, 0x2A0, COMPONENT_BYTES), number(raw, 0x2E8, COMPONENT_BYTES)),
        )


def tcb_of(raw: bytes, product: str) -> Tcb:
    """The security versions in eight bytes, which Turin lays out in its own way."""
    if product == "Turin":
        tcb, reserved = Tcb(fmc=raw[0], bootloader=raw[1], tee=raw[2], snp=raw[3], microcode=raw[7]), raw[4:7]
    else:
        tcb, reserved = Tcb(bootloader=raw[0], tee=raw[1], snp=raw[6], microcode=raw[7]), raw[2:6]
    if any(reserved):
        raise unreadable("the SEV-SNP report sets what is reserved in a TCB version")
    return tcb


def policy_of(value: int) -> GuestPolicy:
    """The guest's policy without its ABI version."""
    flags = value & ~0xFFFF
    if flags & ~sum(GuestPolicy) or not flags & GuestPolicy.ALWAYS_ONE:
        raise unreadable("the SEV-SNP report has a guest policy that cannot be")
    return GuestPolicy(flags)


def platform_of(value: int) -> Platform:
    """Read which of its features the host has switched on."""
    if value & ~sum(Platform):
        raise unreadable("the SEV-SNP report sets what is reserved in its platform information")
    return Platform(value)


def signing_key_of(value: int) -> SigningKey:
    """Which key signed, from a word with AUTHOR_KEY_EN in bit 0, MASK_CHIP_KEY in bit 1, SIGNING_KEY in bits 2 to 4."""
    if value >> 5:
        raise unreadable("the SEV-SNP report sets what is reserved in its key information")
    if value >> 1 & 1 or value >> 2 not in tuple(SigningKey):
        raise AttestationRefused(
            "the SEV-SNP report is not signed by any key",
            hint="the host masks its chip's key (MASK_CHIP_KEY): use one that does not",
        )
    return SigningKey(value >> 2)


def number(raw: bytes, offset: int, size: int) -> int:
    """A little-endian number."""
    return int.from_bytes(raw[offset : offset + size], "little")


def unreadable(sentence: str) -> AttestationRefused:
    """The refusal of a report that cannot be read."""
    return AttestationRefused(
        sentence, hint="the report is damaged, or its firmware is newer than this version of Scumble"
    )


# --- checks ----------------------------------------------------------------------------------------


def authenticated(
    evidence: Evidence, *, report_data: bytes, now: datetime, roots: Mapping[str, str] = ROOTS
) -> Verdict:
    """What a genuine SEV-SNP report says; AttestationRefused if a check fails that no policy can waive."""
    report = Report.parse(evidence.report)
    with reading(wrong_chain("a certificate or revocation list in the evidence cannot be read")):
        chain = find_chain(evidence.extras, report.signing_key.name, now=now, roots=roots)
        check_signature(report, chain.leaf)
        check_leaf(report, chain)
        details, facts = describe(report, chain), facts_in(report, chain)
    check_guest(report)
    check_binding(report.report_data, report_data)
    return Verdict(evidence.kind, report.measurement.hex(), report.report_data, details, facts)


def verify(
    evidence: Evidence,
    *,
    report_data: bytes,
    policy: Policy,
    now: datetime,
    roots: Mapping[str, str] = ROOTS,
) -> Verdict:
    """The verdict on an SEV-SNP report; AttestationRefused if any check fails."""
    verdict = authenticated(evidence, report_data=report_data, now=now, roots=roots)
    policy.check(verdict, now)
    return verdict


def stated_measurement(report: bytes) -> bytes:
    """The measurement in a report, unverified, for the enclave's operator to publish."""
    return Report.parse(report).measurement


def check_signature(report: Report, leaf: x509.Certificate) -> None:
    """Refuse a report that the leaf's key did not sign."""
    key = leaf.public_key()
    if not isinstance(key, ec.EllipticCurvePublicKey) or not isinstance(key.curve, ec.SECP384R1):
        raise AttestationRefused("the certificate's key is not on P-384", hint="the provider sent another certificate")
    try:
        key.verify(encode_dss_signature(*report.signature), report.signed, ec.ECDSA(hashes.SHA384()))
    except InvalidSignature:
        raise AttestationRefused(
            "the signature on the SEV-SNP report is wrong",
            hint="the report was altered, or the certificate is that of another chip or firmware level",
        ) from None


def check_leaf(report: Report, chain: Chain) -> None:
    """Refuse a leaf that was issued for another product, firmware level or chip than the report names."""
    leaf, product = chain.leaf, chain.product
    if text_in(leaf, "product").split("-")[0] != product:
        raise disagreement("product")
    if report.cpu is not None and product_of(*report.cpu) != product:
        raise disagreement("processor")
    certified = Tcb(
        bootloader=integer_in(leaf, "bootloader"),
        tee=integer_in(leaf, "tee"),
        snp=integer_in(leaf, "snp"),
        microcode=integer_in(leaf, "microcode"),
        fmc=integer_in(leaf, "fmc") if product == "Turin" else 0,
    )
    if certified != tcb_of(report.reported_tcb, product):
        raise disagreement("firmware level")
    if report.signing_key is SigningKey.VLEK:
        text_in(leaf, "csp")
    elif chip_in(leaf, product) != report.chip_id or not any(report.chip_id):
        raise disagreement("chip")


def check_guest(report: Report) -> None:
    """Refuse a guest that its host can look into: no policy may allow that."""
    if GuestPolicy.DEBUG in report.policy:
        raise AttestationRefused(
            "the enclave can be debugged by its host: its memory is not secret",
            hint="the provider has to launch it with a policy without DEBUG",
        )


def facts_in(report: Report, chain: Chain) -> Facts:
    """What a policy is held against: the firmware is that of now, and that at the guest's launch."""
    return Facts(
        product=chain.product,
        tcbs=(tcb_of(report.reported_tcb, chain.product), tcb_of(report.launch_tcb, chain.product)),
        vmpl=report.vmpl,
        may_migrate=GuestPolicy.MIGRATE_MA in report.policy,
        hides_ciphertext=Platform.CIPHERTEXT_HIDING_DRAM_EN in report.platform,
        chip=report.chip_id.hex() if any(report.chip_id) else "",
        issued=chain.crl_issued,
    )


def describe(report: Report, chain: Chain) -> dict[str, str]:
    """The facts to show: no secrets, all signed."""
    leased = report.signing_key is SigningKey.VLEK
    return {
        "product": chain.product,
        "signing key": report.signing_key.name,
        "chip": report.chip_id.hex() if any(report.chip_id) else "not stated",
        "cloud": text_in(chain.leaf, "csp") if leased else "not stated",
        "tcb": str(tcb_of(report.reported_tcb, chain.product)),
        "launch tcb": str(tcb_of(report.launch_tcb, chain.product)),
        "policy": names(report.policy) + f" ABI {report.abi[0]}.{report.abi[1]}",
        "platform": names(report.platform),
        "vmpl": str(report.vmpl),
        "guest svn": str(report.guest_svn),
        "host data": report.host_data.hex(),
        "report version": str(report.version),
        "revocation list": "not given" if chain.crl_issued is None else "checked",
    }


def names(flags: IntFlag) -> str:
    """The bits that are set, by name."""
    return " ".join(str(flag.name) for flag in flags if flag != GuestPolicy.ALWAYS_ONE)


def product_of(family: int, model: int) -> str:
    """The product that a processor's family and model belong to; Siena and Bergamo count as Genoa, as AMD does."""
    if family == 0x19 and model < 0x10:
        return "Milan"
    if family == 0x19 and (0x10 <= model < 0x20 or 0xA0 <= model < 0xB0):
        return "Genoa"
    if family == 0x1A and model < 0x20:
        return "Turin"
    return ""
