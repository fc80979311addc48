"""Enclaves with a weakness planted on purpose. THEY LEAK OR LIE: they show that an attack bites where it can.

Each is a `TrustedEnclave` whose sessions do one thing wrong. Nothing but the attacks, on made-up data, may use them;
`scumble attack` ships them because an attack that is never seen to win proves nothing.
"""

import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher
from cryptography.hazmat.primitives.ciphers.algorithms import AES
from cryptography.hazmat.primitives.ciphers.modes import CTR
from numpy.typing import NDArray

from scumble.enclave.lines import TrustedEnclave
from scumble.enclave.pages import DataKeys, Room, RunReader
from scumble.enclave.queries import CompiledPlan
from scumble.enclave.sessions import EnclaveSession
from scumble.enclave.versions import OpenVersion
from scumble.wire.catalog import TAG_BYTES, Run, Table
from scumble.wire.channel import done
from scumble.wire.plan import RowColumns
from scumble.wire.requests import Opened, unpack_execution
from scumble.wire.storage import Storage

__all__ = ["UnsafeUncheckedEnclave", "UnsafeUnpaddedEnclave"]


class _UnpaddedSession(EnclaveSession):
    def _executed(self, body: memoryview) -> bytes:
        execution = unpack_execution(body)
        answer, prepared = self._execute(execution), self._plans[execution.plan]
        if not isinstance(prepared, CompiledPlan) or not isinstance(prepared.output, RowColumns):
            return done(answer)
        runs = prepared.table.runs
        rows = sum(count * runs[scan.run].page_rows for scan in execution.scans for _, count in scan.pages)
        matching = int(np.frombuffer(answer, np.uint8, rows).sum())
        return done(answer[: len(answer) * matching // max(1, rows)])


class UnsafeUnpaddedEnclave(TrustedEnclave):
    """LEAKS: an answer of rows is only as long as the rows that match. The owner cannot read it; the provider can."""

    session_type = _UnpaddedSession


class _UncheckedReader(RunReader):
    """Deciphers whatever is there, without a look at any tag."""

    def __init__(self, storage: Storage, keys: DataKeys, table: Table, run: Run) -> None:
        super().__init__(storage, keys, table, run)
        self._cipher = AES(keys._derive(b"scumble run v1", bytes.fromhex(run.id)))

    def open_pages(self, column: int, first_page: int, pages: int, room: Room | None = None) -> NDArray[np.uint8]:
        """Pages one after the other, as GCM's counter mode deciphers them."""
        del room
        size = self._sizes[column]
        slot = size + TAG_BYTES
        sealed = bytearray(pages * slot)
        self._storage.read(self.run.id, column, first_page, pages, memoryview(sealed))
        plain = b"".join(
            Cipher(self._cipher, CTR(nonce + b"\0\0\0\2"))
            .decryptor()
            .update(bytes(sealed[place * slot : place * slot + size]))
            for place, (nonce, _) in enumerate(self._sealing.addresses(column, first_page, pages))
        )
        return np.frombuffer(plain, np.uint8).copy()


class _UncheckedSession(EnclaveSession):
    def _take(self, version: OpenVersion) -> Opened:
        for run, place in version.runs.items():
            reader = _UncheckedReader(version.storage, version.keys, *place)
            version.readers[run] = reader, version.manifest.dummies[run]
        return super()._take(version)


class UnsafeUncheckedEnclave(TrustedEnclave):
    """LIES when it is lied to: it checks no page's tag, so altered pages become wrong answers."""

    session_type = _UncheckedSession
