"""Keys inside the enclave: the data key comes in, ciphers for each run, the manifests and the scratch go out.

SECRET, all of it. A run's key is derived from the data key and the run's random name, so that page numbers can serve as
nonces: a run is written once. Everything is AES-256-GCM and HKDF-SHA256 of `cryptography`.
"""

import os

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from scumble.boundary.catalog import TAG_BYTES
from scumble.errors import Tampered

__all__ = ["KEY_BYTES", "NONCE_BYTES", "DataKeys", "Scratch"]

KEY_BYTES = 32
NONCE_BYTES = 12


class DataKeys:
    """SECRET: what one database's data key derives."""

    def __init__(self, data_key: bytes, database: str) -> None:
        self._data_key = data_key
        self._database = database.encode()
        self.manifest = AESGCM(self._derive(b"scumble manifest v1", b""))

    def run(self, run: str) -> AESGCM:
        """The cipher of a run's pages."""
        return AESGCM(self._derive(b"scumble run v1", bytes.fromhex(run)))

    def _derive(self, purpose: bytes, salt: bytes) -> bytes:
        return HKDF(SHA256(), KEY_BYTES, salt or None, purpose + b"|" + self._database).derive(self._data_key)

    def __repr__(self) -> str:
        return "DataKeys(<secret>)"


class Scratch:
    """SECRET: a cipher for what a load keeps at the provider for its own time, under a key that dies with it."""

    def __init__(self) -> None:
        self._cipher = AESGCM(AESGCM.generate_key(256))

    def seal(self, name: str, data: memoryview) -> memoryview:
        """Seal under a random nonce, bound to the name."""
        nonce = os.urandom(NONCE_BYTES)
        sealed = memoryview(bytearray(NONCE_BYTES + len(data) + TAG_BYTES))
        sealed[:NONCE_BYTES] = nonce
        self._cipher.encrypt_into(nonce, data, name.encode(), sealed[NONCE_BYTES:])
        return sealed

    def open_into(self, name: str, sealed: bytes, into: memoryview) -> None:
        """The inverse, or Tampered."""
        if len(sealed) != NONCE_BYTES + len(into) + TAG_BYTES:
            raise Tampered
        source = memoryview(sealed)
        try:
            self._cipher.decrypt_into(source[:NONCE_BYTES], source[NONCE_BYTES:], name.encode(), into)
        except InvalidTag:
            raise Tampered from None
