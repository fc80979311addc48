"""For tests of attestation: a maker of processors of our own, which signs quotes and collateral as Intel does."""

import hashlib
import json
import struct
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from functools import cache
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.utils import decode_dss_signature
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from cryptography.x509.oid import NameOID

from scumble.attestation import Evidence

NOW = datetime(2026, 1, 1, tzinfo=UTC)
DAY = timedelta(days=1)
REPORT_DATA = bytes(range(64))
MRENCLAVE = b"\x0e" * 32
MRTD = b"\x0d" * 48
RTMRS = b"".join(bytes([index]) * 48 for index in range(1, 5))
FMSPC = bytes.fromhex("00a067110000")
MRSIGNER = b"\x51" * 32
ADVISORY = "INTEL-SA-00001"


@cache
def key(name: str) -> ec.EllipticCurvePrivateKey:
    """The key of that name: the same each time."""
    del name
    return ec.generate_private_key(ec.SECP256R1())


def named(name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])


@cache
def certificate(subject: str, issuer: str, *, authority: bool) -> x509.Certificate:
    builder = x509.CertificateBuilder(
        named(issuer), named(subject), key(subject).public_key(), 1 + len(subject), NOW - DAY, NOW + DAY
    ).add_extension(x509.BasicConstraints(ca=authority, path_length=None), critical=True)
    usage = x509.KeyUsage(not authority, False, False, False, False, authority, authority, False, False)
    builder = builder.add_extension(usage, critical=True)
    if subject == "PCK":
        oid = x509.ObjectIdentifier("1.2.840.113741.1.13.1")
        builder = builder.add_extension(x509.UnrecognizedExtension(oid, sgx_extension()), critical=False)
    return builder.sign(key(issuer), hashes.SHA256())


def root() -> x509.Certificate:
    return certificate("Root", "Root", authority=True)


def pem(*certificates: x509.Certificate) -> bytes:
    return b"".join(each.public_bytes(Encoding.PEM) for each in certificates)


def pck_chain() -> bytes:
    return pem(
        certificate("PCK", "Platform CA", authority=False), certificate("Platform CA", "Root", authority=True), root()
    )


def der(tag: int, contents: bytes) -> bytes:
    length = len(contents)
    size = bytes([length]) if length < 0x80 else b"\x82" + length.to_bytes(2, "big")
    return bytes([tag]) + size + contents


def arc(number: int) -> bytes:
    """One number of an object identifier, seven bits a byte."""
    digits = [number & 0x7F]
    while number := number >> 7:
        digits.append(number & 0x7F | 0x80)
    return bytes(reversed(digits))


def entry(path: Sequence[int], value: bytes) -> bytes:
    """A value after its identifier under Intel's 1.2.840.113741.1.13.1."""
    identifier = bytes([42]) + b"".join(map(arc, (840, 113741, 1, 13, 1, *path)))
    return der(0x30, der(0x06, identifier) + value)


def sgx_extension() -> bytes:
    """What a PCK certificate says about its platform."""
    levels = [entry((2, index), der(0x02, b"\x05")) for index in range(1, 18)]
    return der(
        0x30,
        entry((1,), der(0x04, b"\x99" * 16))
        + entry((2,), der(0x30, b"".join(levels) + entry((2, 18), der(0x04, b"\x05" * 16))))
        + entry((3,), der(0x04, bytes(2)))
        + entry((4,), der(0x04, FMSPC))
        + entry((5,), der(0x0A, b"\0")),
    )


def crl(issuer: str) -> str:
    builder = x509.CertificateRevocationListBuilder(named(issuer), NOW - DAY, NOW + DAY)
    builder = builder.add_extension(x509.CRLNumber(1), critical=False)
    return builder.sign(key(issuer), hashes.SHA256()).public_bytes(Encoding.DER).hex()


def signed(name: str, data: bytes) -> bytes:
    """An ECDSA signature as Intel writes it: r and s, 32 bytes each."""
    r, s = decode_dss_signature(key(name).sign(data, ec.ECDSA(hashes.SHA256())))
    return r.to_bytes(32, "big") + s.to_bytes(32, "big")


def collateral(
    kind: str,
    *,
    status: str = "UpToDate",
    enclave_status: str = "UpToDate",
    advisories: Sequence[str] = (),
    number: int = 17,
) -> bytes:
    """Collateral by which our platform and its quoting enclave have those statuses."""
    dates = {"issueDate": f"{NOW - DAY:%Y-%m-%dT%H:%M:%SZ}", "nextUpdate": f"{NOW + DAY:%Y-%m-%dT%H:%M:%SZ}"}
    components = [{"svn": 5}] * 16
    level = {"tcbDate": dates["issueDate"], "tcbStatus": status, "advisoryIDs": list(advisories)}
    tdx = {"tdxtcbcomponents": [{"svn": 0}] * 16} if kind == "tdx" else {}
    tcb: dict[str, Any] = {
        "id": kind.upper(),
        "version": 3,
        **dates,
        "fmspc": FMSPC.hex().upper(),
        "pceId": "0000",
        "tcbType": 0,
        "tcbEvaluationDataNumber": number,
        "tcbLevels": [{"tcb": {"sgxtcbcomponents": components, "pcesvn": 5, **tdx}, **level}],
    }
    if kind == "tdx":
        tcb["tdxModule"] = {"mrsigner": "00" * 48, "attributes": "00" * 8, "attributesMask": "FF" * 8}
    identity = {
        "id": "TD_QE" if kind == "tdx" else "QE",
        "version": 2,
        **dates,
        "tcbEvaluationDataNumber": number,
        "miscselect": "00000000",
        "miscselectMask": "FFFFFFFF",
        "attributes": "11" + "00" * 15,
        "attributesMask": "FB" + "FF" * 7 + "00" * 8,
        "mrsigner": MRSIGNER.hex().upper(),
        "isvprodid": 1,
        "tcbLevels": [{"tcb": {"isvsvn": 1}, "tcbDate": dates["issueDate"], "tcbStatus": enclave_status}],
    }
    issuers = pem(certificate("TCB Signing", "Root", authority=False), root()).decode()
    platform = pem(certificate("Platform CA", "Root", authority=True), root()).decode()
    tcb_info, qe_identity = json.dumps(tcb), json.dumps(identity)
    return json.dumps(
        {
            "pck_crl_issuer_chain": platform,
            "root_ca_crl": crl("Root"),
            "pck_crl": crl("Platform CA"),
            "tcb_info_issuer_chain": issuers,
            "tcb_info": tcb_info,
            "tcb_info_signature": signed("TCB Signing", tcb_info.encode()).hex(),
            "qe_identity_issuer_chain": issuers,
            "qe_identity": qe_identity,
            "qe_identity_signature": signed("TCB Signing", qe_identity.encode()).hex(),
        }
    ).encode()


def sgx_body(attributes: int, measurement: bytes, signer: bytes, data: bytes) -> bytes:
    body = bytearray(384)
    body[0:16] = b"\x05" * 16
    body[48] = attributes
    body[64:96] = measurement
    body[128:160] = signer
    body[256:260] = struct.pack("<HH", 1, 1)
    body[320:384] = data
    return bytes(body)


def tdx_body(attributes: int, data: bytes) -> bytes:
    return bytes(120) + (attributes | 1 << 28).to_bytes(8, "little") + bytes(8) + MRTD + bytes(144) + RTMRS + data


def quote(
    kind: str,
    *,
    attributes: int | None = None,
    version: int | None = None,
    chain: bytes | None = None,
    data: bytes = REPORT_DATA,
) -> bytes:
    """A quote that our platform signed."""
    version = version or (4 if kind == "tdx" else 3)
    if kind == "tdx":
        body = tdx_body(attributes or 0, data)
    else:
        body = sgx_body(5 if attributes is None else attributes, MRENCLAVE, b"\x5e" * 32, data)
    header = struct.pack("<HHIHH16s20s", version, 2, 0x81 if kind == "tdx" else 0, 0, 0, VENDOR, bytes(20))
    if version == 5:
        body += bytes(64)
        header += struct.pack("<HI", 3, len(body))
    attestation = key("Attestation").public_key().public_bytes(Encoding.X962, PublicFormat.UncompressedPoint)[1:]
    extra = bytes(32)
    bound = hashlib.sha256(attestation + extra).digest() + bytes(32)
    enclave = sgx_body(0x15, b"\x0f" * 32, MRSIGNER, bound)
    chain = pck_chain() if chain is None else chain
    certified = enclave + signed("PCK", enclave) + struct.pack("<H", len(extra)) + extra
    certified += struct.pack("<HI", 5, len(chain)) + chain
    if version > 3:
        certified = struct.pack("<HI", 6, len(certified)) + certified
    tail = signed("Attestation", header + body) + attestation + certified
    return header + body + struct.pack("<I", len(tail)) + tail


VENDOR = bytes.fromhex("939a7233f79c4ca9940a0db3957f0607")


def evidence(kind: str, made: bytes | None = None, **options: Any) -> Evidence:
    """A quote with collateral that `options` describe."""
    return Evidence(kind, made or quote(kind), {"collateral": collateral(kind, **options)})
