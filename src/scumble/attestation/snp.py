"""AMD SEV-SNP: a report and its certificates come in, a verdict goes out. Nothing here is secret.

The report must be signed by a key that AMD's pinned root vouches for, at the firmware level and for the chip that the
report names; the guest must not be open to its host; and it must state the measurement and report data asked for.
docs/attestation.md lists each check.
"""

from collections.abc import Mapping
from datetime import datetime
from enum import IntFlag

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.utils import encode_dss_signature

from scumble.attestation.certificates import reading
from scumble.attestation.evidence import Evidence
from scumble.attestation.policy import Policy, Tcb, Verdict, conclude
from scumble.attestation.snp_certificates import ROOTS, Chain, find_chain, wrong_chain
from scumble.attestation.snp_report import GuestPolicy, Report, SigningKey, tcb_of
from scumble.errors import AttestationRefused

__all__ = ["stated_measurement", "verify"]

OIDS = {
    "product": "1.3.6.1.4.1.3704.1.2",
    "bootloader": "1.3.6.1.4.1.3704.1.3.1",
    "tee": "1.3.6.1.4.1.3704.1.3.2",
    "snp": "1.3.6.1.4.1.3704.1.3.3",
    "microcode": "1.3.6.1.4.1.3704.1.3.8",
    "fmc": "1.3.6.1.4.1.3704.1.3.9",
    "hwid": "1.3.6.1.4.1.3704.1.4",
    "csp": "1.3.6.1.4.1.3704.1.5",
}
INTEGER, OCTET_STRING, UTF8_STRING, IA5_STRING = 0x02, 0x04, 0x0C, 0x16
CHIP_ID_BYTES = 64
TURIN_CHIP_ID_BYTES = 8


def verify(
    evidence: Evidence,
    *,
    report_data: bytes,
    policy: Policy,
    now: datetime,
    roots: Mapping[str, str] = ROOTS,
) -> Verdict:
    """The verdict on an SEV-SNP report; AttestationRefused if any check fails."""
    report = Report.parse(evidence.report)
    with reading(wrong_chain("a certificate or revocation list in the evidence cannot be read")):
        chain = find_chain(evidence.extras, report.signing_key, now=now, roots=roots, require_crl=policy.require_crl)
        check_signature(report, chain.leaf)
        check_leaf(report, chain)
    check_guest(report, policy)
    check_level(report, chain.product, policy.minimum_tcb)
    return conclude(
        evidence.kind,
        report.measurement,
        report.report_data,
        describe(report, chain),
        report_data=report_data,
        policy=policy,
    )


def stated_measurement(report: bytes) -> bytes:
    """The measurement in a report, unverified: for whoever runs the enclave, to publish."""
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


def check_guest(report: Report, policy: Policy) -> None:
    """Refuse a guest that its host can look into or move, or that is not the most privileged part of its machine."""
    if GuestPolicy.DEBUG in report.policy:
        raise AttestationRefused(
            "the enclave can be debugged by its host: its memory is not secret",
            hint="the provider has to launch it with a policy without DEBUG",
        )
    if GuestPolicy.MIGRATE_MA in report.policy and not policy.allow_migration_agent:
        raise AttestationRefused(
            "the enclave may be moved by a migration agent, which sees its memory",
            hint="the provider has to launch it with a policy without MIGRATE_MA, or you allow it",
        )
    if report.vmpl > policy.maximum_vmpl:
        raise AttestationRefused(
            f"the report was asked for at privilege level {report.vmpl}: something more privileged shares the machine",
            hint="allow that level if you trust what runs above it; the measurement covers it",
        )


def check_level(report: Report, product: str, minimum: Tcb) -> None:
    """Refuse firmware, of now or at the guest's launch, below the minimum."""
    for raw in (report.reported_tcb, report.launch_tcb):
        if not tcb_of(raw, product).reaches(minimum):
            raise AttestationRefused(
                "the firmware of the enclave's machine is older than the policy allows",
                hint="the provider has to update it and launch the enclave again",
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
        "revocation list": "checked" if chain.crl_checked else "not given",
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


def extension(leaf: x509.Certificate, name: str) -> bytes:
    """The value of one of AMD's extensions."""
    value = leaf.extensions.get_extension_for_oid(x509.ObjectIdentifier(OIDS[name])).value
    if not isinstance(value, x509.UnrecognizedExtension):
        raise disagreement(name)
    return value.value


def short_form(value: bytes, *tags: int) -> bytes:
    """The contents of a DER value of at most 127 bytes with one of those tags."""
    if len(value) < 2 or value[0] not in tags or value[1] > 0x7F or len(value) != 2 + value[1]:
        raise ValueError("not the DER that was expected")
    return value[2:]


def integer_in(leaf: x509.Certificate, name: str) -> int:
    """A number in an extension."""
    return int.from_bytes(short_form(extension(leaf, name), INTEGER), "big", signed=True)


def text_in(leaf: x509.Certificate, name: str) -> str:
    """A text in an extension."""
    return short_form(extension(leaf, name), IA5_STRING, UTF8_STRING).decode("ascii")


def chip_in(leaf: x509.Certificate, product: str) -> bytes:
    """The chip that a VCEK belongs to, as the report writes it: 64 bytes; AMD once left out the DER around them."""
    value = extension(leaf, "hwid")
    size = TURIN_CHIP_ID_BYTES if product == "Turin" else CHIP_ID_BYTES
    chip = value if len(value) == size else short_form(value, OCTET_STRING)
    if len(chip) != size:
        raise disagreement("chip")
    return chip.ljust(CHIP_ID_BYTES, b"\0")


def disagreement(what: str) -> AttestationRefused:
    """The refusal of a certificate that belongs to another report."""
    return AttestationRefused(
        f"the certificate and the SEV-SNP report name a different {what}",
        hint="the provider sent the certificate of another chip or firmware level",
    )
