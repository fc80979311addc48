"""The layout of an Intel quote: bytes come in, their parts go out, and not one byte is left unaccounted for.

`dcap-qvl` checks what is signed. It passes over some of what is not: lengths, the spelling of the PEM certificates, the
copy of the root among them, and what follows the quote. This module does not, so that nobody can vary a quote that was
accepted; the one exception is how many zero bytes follow it, since platforms pad quotes differently.
"""

import struct
from dataclasses import dataclass
from typing import Self

from cryptography import x509
from cryptography.hazmat.primitives import serialization

from scumble.attestation.certificates import fingerprint, reading
from scumble.errors import AttestationRefused

__all__ = ["INTEL_ROOT", "Quote"]

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


@dataclass(frozen=True)
class Quote:
    """The parts of a quote that are looked at besides by `dcap-qvl`."""

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
        """The quote at `cursor`."""
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
        if any(cursor.rest()):
            raise unreadable()
        signature.take(SIGNATURE_AND_KEY_BYTES)
        if version > 3:
            signature = signature.certification(QE_REPORT)
        signature.take(QE_REPORT_BYTES)
        signature.take(signature.number(2))
        check_chain(signature.certification(PEM_CHAIN).rest(), root)
        return cls(tee, body)


class Cursor:
    """A place in bytes, from which parts are taken one after the other."""

    def __init__(self, data: bytes) -> None:
        self.data = data

    def take(self, length: int) -> bytes:
        """The next `length` bytes."""
        if length > len(self.data):
            raise unreadable()
        part, self.data = self.data[:length], self.data[length:]
        return part

    def number(self, size: int) -> int:
        """The next `size` bytes as a little-endian number."""
        return int.from_bytes(self.take(size), "little")

    def rest(self) -> bytes:
        """What is left."""
        return self.data

    def certification(self, expected: int) -> "Cursor":
        """The certification data that fills the rest, if it is of the expected type."""
        if self.number(2) != expected or self.number(4) != len(self.data):
            raise unreadable()
        return self


def check_chain(pem: bytes, root: str) -> None:
    """Refuse a chain of certificates that is spelled otherwise than `cryptography` would, or ends in another root."""
    certificates = x509.load_pem_x509_certificates(pem)
    spelled = b"".join(each.public_bytes(serialization.Encoding.PEM) for each in certificates)
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
