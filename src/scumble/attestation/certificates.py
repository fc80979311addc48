"""What the checks of AMD's and Intel's certificates share: how a key is pinned, and what unreadable ones raise."""

import hashlib
import warnings
from collections.abc import Iterator
from contextlib import contextmanager

from cryptography import x509
from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from scumble.errors import AttestationRefused

__all__ = ["fingerprint", "reading"]

UNREADABLE = (
    InvalidSignature,
    TypeError,
    UnsupportedAlgorithm,
    ValueError,
    x509.DuplicateExtension,
    x509.ExtensionNotFound,
    x509.InvalidVersion,
    x509.UnsupportedGeneralNameType,
)
"""What `cryptography` raises on certificates that are damaged or made up."""
HARMLESS = ("Parsed a serial number which wasn't positive", "Attribute's length must be")


def fingerprint(certificate: x509.Certificate) -> str:
    """SHA-256, in hex, over the SubjectPublicKeyInfo: it stays when a root is issued again for the same key."""
    key = certificate.public_key().public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
    return hashlib.sha256(key).hexdigest()


@contextmanager
def reading(refusal: AttestationRefused) -> Iterator[None]:
    """Raise `refusal` if untrusted certificates, read inside the block, are damaged or made up.

    `cryptography` would warn each time of the serial number 0, which AMD gives to every VCEK and VLEK, and of names
    that only a forger makes.
    """
    for message in HARMLESS:
        warnings.filterwarnings("ignore", message=message)
    try:
        yield
    except UNREADABLE:
        raise refusal from None
