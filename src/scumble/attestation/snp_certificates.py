"""AMD's certificates: from what an untrusted host handed over to a chain that ends in a pinned root.

    ARK (pinned) -> ASK  -> VCEK, the key of one chip at one firmware level
                 -> ASVK -> VLEK, a key that AMD leases to a cloud

A certificate's names say where in the chain it belongs; the signatures up to the pinned root prove it.
"""

import struct
import uuid
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from functools import lru_cache

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import padding, rsa
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509.oid import NameOID

from scumble.attestation.certificates import fingerprint
from scumble.errors import AttestationRefused

__all__ = ["ROOTS", "Chain", "chip_in", "disagreement", "find_chain", "integer_in", "text_in", "wrong_chain"]

ROOTS = {
    "Milan": "9f056bee44377e29308cb5ffa895bdfb62d18881fa6bed8d6f075b0204089cb9",
    "Genoa": "429a69c9422aa258ee4d8db5fcda9c6470ef15f8cd5a9cebd6cbc7d90b863831",
    "Turin": "4f125410563a2ab9a50356f9243f6fe0b6f73de98603f53f90339c70e9d7ad08",
}
"""By product: SHA-256 over the SubjectPublicKeyInfo of AMD's root key (ARK)."""

CERTIFICATES = ("ark", "ask", "asvk", "vcek", "vlek")
TABLE_ENTRY = struct.Struct("<16sII")
MAXIMUM_TABLE_ENTRIES = 32
MAXIMUM_CERTIFICATES = 32
KEPT_CHAINS = 8
TABLE_CERTIFICATES = {
    uuid.UUID("63da758d-e664-4564-adc5-f4b93be8accd"),  # VCEK
    uuid.UUID("a8074bc2-a25a-483e-aae6-39c045a0b8a1"),  # VLEK
    uuid.UUID("4ab7b379-bbac-4fe4-a02f-05aef327c782"),  # ASK or ASVK
    uuid.UUID("c0b406a4-a803-4952-9743-3fb6014cd0ae"),  # ARK
}
TABLE_CRL = uuid.UUID("92f81bc3-5811-4d3d-97ff-d19f88dc67ea")
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

PSS = padding.PSS(mgf=padding.MGF1(hashes.SHA384()), salt_length=48)


@dataclass(frozen=True)
class Chain:
    """A leaf, its issuer and the root, in which every signature, date and name was checked."""

    product: str
    leaf: x509.Certificate
    crl_issued: datetime | None


def find_chain(
    extras: Mapping[str, bytes],
    key: str,
    *,
    now: datetime,
    roots: Mapping[str, str],
) -> Chain:
    """The chain from the certificate of the key that signed the report, VCEK or VLEK, to a root in `roots`."""
    leaf, middle, root, product, crls = signed_chain(tuple(sorted(extras.items())), key, tuple(sorted(roots.items())))
    for certificate in (root, middle, leaf):
        check_valid(certificate, now)
    for crl in crls:
        check_crl(crl, middle, root, now)
    return Chain(product, leaf, min((crl.last_update_utc for crl in crls), default=None))


Signed = tuple[x509.Certificate, x509.Certificate, x509.Certificate, str, tuple[x509.CertificateRevocationList, ...]]
"""A leaf, its issuer, the root, the product, and the revocation lists; nobody has looked at their dates yet."""


@lru_cache(maxsize=KEPT_CHAINS)
def signed_chain(extras: tuple[tuple[str, bytes], ...], key: str, roots: tuple[tuple[str, str], ...]) -> Signed:
    """The certificates and lists, with every name and signature checked, and no date: the same bytes come each time."""
    known = dict(roots)
    certificates, crls = read_extras(dict(extras))
    leaf = named(certificates, f"SEV-{key}")
    middle = named(certificates, name_of(leaf.issuer))
    root = named(certificates, name_of(middle.issuer))
    product = name_of(root.subject).removeprefix("ARK-")
    if product not in known or name_of(middle.subject) != issuer_name(key, product):
        raise wrong_chain("the certificates are not those of a chip that is known here")
    if fingerprint(root) != known[product]:
        raise wrong_chain(f"the root certificate is not AMD's for {product}")
    for certificate, issuer in ((root, root), (middle, root), (leaf, middle)):
        check_issued(certificate, issuer)
    for crl in crls:
        check_listed(crl, root)
    return leaf, middle, root, product, tuple(crls)


def read_extras(
    extras: Mapping[str, bytes],
) -> tuple[dict[str, x509.Certificate], list[x509.CertificateRevocationList]]:
    """The certificates by common name, and the revocation lists, from all places where a host may put them."""
    found = [read_certificate(extras[name]) for name in CERTIFICATES if name in extras]
    found += x509.load_pem_x509_certificates(extras["certificates"]) if "certificates" in extras else []
    lists = [extras["crl"]] if "crl" in extras else []
    for guid, value in read_table(extras.get("auxblob", b"")):
        if guid in TABLE_CERTIFICATES:
            found.append(read_certificate(value))
        elif guid == TABLE_CRL:
            lists.append(value)
    if len(found) > MAXIMUM_CERTIFICATES:
        raise wrong_chain("there are too many certificates in the evidence")
    certificates: dict[str, x509.Certificate] = {}
    for certificate in found:
        if certificates.setdefault(name_of(certificate.subject), certificate) != certificate:
            raise wrong_chain("the evidence has two certificates of the same name")
    return certificates, [x509.load_der_x509_crl(value) for value in lists]


def read_table(table: bytes) -> Iterator[tuple[uuid.UUID, bytes]]:
    """The entries of a certificate table as the GHCB specification lays it out, up to its zero entry.

    Hosts write the identifiers in either byte order.
    """
    if not table.strip(b"\0"):
        return
    for index in range(MAXIMUM_TABLE_ENTRIES):
        start = index * TABLE_ENTRY.size
        if start + TABLE_ENTRY.size > len(table):
            break
        guid, offset, length = TABLE_ENTRY.unpack_from(table, start)
        if guid == bytes(16):
            return
        if offset + length > len(table):
            break
        straight, swapped = uuid.UUID(bytes=guid), uuid.UUID(bytes_le=guid)
        known = swapped in TABLE_CERTIFICATES or swapped == TABLE_CRL
        yield (swapped if known else straight), table[offset : offset + length]
    else:
        raise wrong_chain("the host's certificate table has too many entries")
    raise wrong_chain("the host's certificate table is damaged")


def read_certificate(data: bytes) -> x509.Certificate:
    """One certificate, in DER or as PEM."""
    if data.startswith(b"-----BEGIN"):
        return x509.load_pem_x509_certificate(data)
    return x509.load_der_x509_certificate(data)


def named(certificates: Mapping[str, x509.Certificate], name: str) -> x509.Certificate:
    """The certificate with that common name."""
    if name not in certificates:
        raise AttestationRefused(
            f"the certificate {name!r} is missing from the evidence"
            if name.isprintable()
            else "a certificate is missing",
            hint="the host hands out an incomplete chain: the provider has to add AMD's to its endorsements",
        )
    return certificates[name]


def name_of(name: x509.Name) -> str:
    """The one common name in a subject or issuer."""
    common = name.get_attributes_for_oid(NameOID.COMMON_NAME)
    if len(common) != 1:
        raise wrong_chain("a certificate in the evidence has no name")
    return str(common[0].value)


def issuer_name(key: str, product: str) -> str:
    """What AMD calls the issuer of chip keys (ASK) or of leased keys (ASVK)."""
    return f"SEV-{product}" if key == "VCEK" else f"SEV-VLEK-{product}"


def check_issued(certificate: x509.Certificate, issuer: x509.Certificate) -> None:
    """Refuse a certificate that `issuer` did not sign with RSA-PSS and SHA-384."""
    key = issuer.public_key()
    if not isinstance(key, rsa.RSAPublicKey) or certificate.issuer != issuer.subject:
        raise wrong_chain("a certificate in the evidence was not issued by the next one")
    if not isinstance(certificate.signature_algorithm_parameters, padding.PSS):
        raise wrong_chain("a certificate in the evidence is not signed with RSA-PSS and SHA-384")
    if not certificate.public_bytes(Encoding.DER).endswith(b"\0" + certificate.signature):
        raise wrong_chain("the signature on a certificate in the evidence is not whole bytes")
    try:
        certificate.verify_directly_issued_by(issuer)
        key.verify(certificate.signature, certificate.tbs_certificate_bytes, PSS, hashes.SHA384())
    except InvalidSignature:
        raise wrong_chain("the signature on a certificate in the evidence is wrong") from None


def check_valid(certificate: x509.Certificate, now: datetime) -> None:
    """Refuse a certificate that is not valid at `now`."""
    if not certificate.not_valid_before_utc <= now <= certificate.not_valid_after_utc:
        raise AttestationRefused(
            f"the certificate {name_of(certificate.subject)!r} is not valid at this time",
            hint="check the clock; an expired one is renewed by the provider, from AMD",
        )


def check_listed(crl: x509.CertificateRevocationList, root: x509.Certificate) -> None:
    """Refuse a revocation list that the root did not sign."""
    key = root.public_key()
    if crl.issuer != root.subject or not isinstance(key, rsa.RSAPublicKey) or not crl.is_signature_valid(key):
        raise wrong_chain("the revocation list is not signed by the root")


def check_crl(
    crl: x509.CertificateRevocationList, middle: x509.Certificate, root: x509.Certificate, now: datetime
) -> None:
    """Refuse a revocation list that is not current, and an issuer that it lists."""
    expires = crl.next_update_utc
    if crl.last_update_utc > now or expires is None or expires < now:
        raise AttestationRefused(
            "the revocation list is not valid at this time", hint="the provider has to fetch a current one from AMD"
        )
    if any(crl.get_revoked_certificate_by_serial_number(each.serial_number) for each in (middle, root)):
        raise AttestationRefused("AMD has revoked the chip's chain of certificates", hint="send this enclave nothing")


def wrong_chain(sentence: str) -> AttestationRefused:
    """The refusal of certificates."""
    return AttestationRefused(
        sentence, hint="the provider hands out wrong certificates: AMD's key distribution service has the right ones"
    )


# --- what AMD states in a leaf -----------------------------------------------------------------------


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
