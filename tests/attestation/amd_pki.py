"""For tests of attestation: a maker of chips of our own, which signs reports as AMD's chips do."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import cache
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, padding, rsa
from cryptography.hazmat.primitives.asymmetric.types import CertificatePublicKeyTypes
from cryptography.hazmat.primitives.asymmetric.utils import decode_dss_signature
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509.oid import NameOID

from scumble.attestation import Evidence, Tcb
from scumble.attestation.certificates import fingerprint

NOW = datetime(2026, 1, 1, tzinfo=UTC)
DAY = timedelta(days=1)
PSS = padding.PSS(mgf=padding.MGF1(hashes.SHA384()), salt_length=48)
CHIP = bytes(range(1, 65))
TCB = Tcb(bootloader=3, tee=1, snp=8, microcode=0xD9)
CPUS = {"Milan": b"\x19\x01", "Genoa": b"\x19\x11", "Turin": b"\x1a\x02"}
REPORT_DATA = bytes(range(64))
MEASUREMENT = bytes(range(48))


@cache
def rsa_key(name: str) -> rsa.RSAPrivateKey:
    """The key of an authority: the same each time."""
    del name
    return rsa.generate_private_key(65537, 2048)


@cache
def leaf_key(name: str) -> ec.EllipticCurvePrivateKey:
    """The key of a chip: the same each time."""
    del name
    return ec.generate_private_key(ec.SECP384R1())


def named(name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])


def certificate(
    subject: str,
    key: CertificatePublicKeyTypes,
    issuer: str,
    issuer_key: rsa.RSAPrivateKey,
    *,
    serial: int = 7,
    extensions: Mapping[str, bytes] | None = None,
    start: datetime = NOW - DAY,
    end: datetime = NOW + DAY,
    pss: bool = True,
) -> x509.Certificate:
    builder = x509.CertificateBuilder(named(issuer), named(subject), key, serial, start, end)
    for oid, value in (extensions or {}).items():
        builder = builder.add_extension(x509.UnrecognizedExtension(x509.ObjectIdentifier(oid), value), critical=False)
    return builder.sign(issuer_key, hashes.SHA384(), rsa_padding=PSS if pss else padding.PKCS1v15())


def der(tag: int, contents: bytes) -> bytes:
    return bytes([tag, len(contents)]) + contents


def integer(value: int) -> bytes:
    return der(0x02, value.to_bytes(value.bit_length() // 8 + 1, "big"))


def leaf_extensions(product: str, tcb: Tcb, chip: bytes | None = CHIP, csp: bytes | None = None) -> dict[str, bytes]:
    """What AMD writes into a VCEK or VLEK."""
    prefix = "1.3.6.1.4.1.3704.1"
    extensions = {
        f"{prefix}.1": integer(0),
        f"{prefix}.2": der(0x16, product.encode() + b"-B0"),
        f"{prefix}.3.1": integer(tcb.bootloader),
        f"{prefix}.3.2": integer(tcb.tee),
        f"{prefix}.3.3": integer(tcb.snp),
        f"{prefix}.3.8": integer(tcb.microcode),
    }
    if product == "Turin":
        extensions[f"{prefix}.3.9"] = integer(tcb.fmc)
    if chip is not None:
        extensions[f"{prefix}.4"] = der(0x04, chip[:8] if product == "Turin" else chip)
    if csp is not None:
        extensions[f"{prefix}.5"] = der(0x16, csp)
    return extensions


def tcb_bytes(product: str, tcb: Tcb) -> bytes:
    if product == "Turin":
        return bytes([tcb.fmc, tcb.bootloader, tcb.tee, tcb.snp, 0, 0, 0, tcb.microcode])
    return bytes([tcb.bootloader, tcb.tee, 0, 0, 0, 0, tcb.snp, tcb.microcode])


def report(
    product: str = "Milan",
    *,
    version: int = 3,
    key: ec.EllipticCurvePrivateKey | None = None,
    tcb: Tcb = TCB,
    changes: Mapping[int, bytes] | None = None,
) -> bytes:
    """A report, with `changes` made at their offsets before it is signed."""
    chip = CHIP[:8].ljust(64, b"\0") if product == "Turin" else CHIP
    body = bytearray(0x2A0)
    fields = {
        0x00: version.to_bytes(4, "little"),
        0x08: (0x30000).to_bytes(8, "little"),
        0x34: b"\x01",
        0x50: REPORT_DATA,
        0x90: MEASUREMENT,
        0x180: tcb_bytes(product, tcb),
        0x188: CPUS[product] if version > 2 else b"",
        0x1A0: chip,
        0x1F0: tcb_bytes(product, tcb),
        **(changes or {}),
    }
    for offset, value in fields.items():
        body[offset : offset + len(value)] = value
    signature = (key or leaf_key("chip")).sign(bytes(body), ec.ECDSA(hashes.SHA384()))
    r, s = decode_dss_signature(signature)
    return bytes(body) + r.to_bytes(72, "little") + s.to_bytes(72, "little") + bytes(0x4A0 - 0x330)


@dataclass(frozen=True)
class Maker:
    """The authorities of one product."""

    product: str = "Milan"

    @property
    def ark(self) -> x509.Certificate:
        key = rsa_key(f"ark {self.product}")
        return certificate(f"ARK-{self.product}", key.public_key(), f"ARK-{self.product}", key, serial=1)

    @property
    def ask(self) -> x509.Certificate:
        return self.middle("SEV", 2)

    @property
    def asvk(self) -> x509.Certificate:
        return self.middle("SEV-VLEK", 3)

    def middle(self, prefix: str, serial: int) -> x509.Certificate:
        name = f"{prefix}-{self.product}"
        ark_key = rsa_key(f"ark {self.product}")
        return certificate(name, rsa_key(name).public_key(), f"ARK-{self.product}", ark_key, serial=serial)

    @property
    def roots(self) -> dict[str, str]:
        return {self.product: fingerprint(self.ark)}

    def vcek(self, tcb: Tcb = TCB, **options: Any) -> x509.Certificate:
        """A chip's certificate; `extensions`, `start`, `end` and the like replace what it has by default."""
        return self.leaf("SEV-VCEK", f"SEV-{self.product}", leaf_extensions(self.product, tcb), options)

    def vlek(self, tcb: Tcb = TCB, **options: Any) -> x509.Certificate:
        """A cloud's certificate."""
        extensions = leaf_extensions(self.product, tcb, None, b"CN=cloud")
        return self.leaf("SEV-VLEK", f"SEV-VLEK-{self.product}", extensions, options)

    def leaf(
        self, name: str, issuer: str, extensions: dict[str, bytes], options: Mapping[str, Any]
    ) -> x509.Certificate:
        chosen: dict[str, Any] = {"extensions": extensions, **options}
        issuer = str(chosen.pop("issuer", issuer))
        return certificate(name, leaf_key("chip").public_key(), issuer, rsa_key(issuer), **chosen)

    def evidence(self, made: bytes, leaf: x509.Certificate, **extras: bytes) -> Evidence:
        """A report with its chain."""
        chain = b"".join(each.public_bytes(Encoding.PEM) for each in (self.ask, self.ark, self.asvk))
        return Evidence("sev-snp", made, {"vcek": leaf.public_bytes(Encoding.DER), "certificates": chain, **extras})

    def crl(self, *revoked: int, start: datetime = NOW - DAY, end: datetime = NOW + DAY) -> bytes:
        """A revocation list of the root."""
        builder = x509.CertificateRevocationListBuilder(named(f"ARK-{self.product}"), start, end)
        for serial in revoked:
            entry = x509.RevokedCertificateBuilder().serial_number(serial).revocation_date(start).build()
            builder = builder.add_revoked_certificate(entry)
        signed = builder.sign(rsa_key(f"ark {self.product}"), hashes.SHA384(), rsa_padding=PSS)
        return signed.public_bytes(Encoding.DER)
