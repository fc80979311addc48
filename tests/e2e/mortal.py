"""Enclaves that are killed at a chosen step of their work on a store, and replaced by ones that know nothing."""

from collections.abc import Callable

from scumble.enclave.lines import TrustedEnclave
from scumble.enclave.vault import Vault
from scumble.errors import Unavailable
from scumble.provider.front import Provider
from scumble.store.files import FileStore
from scumble.store.transcript import RecordingStore


class Killed(BaseException):
    """The enclave is killed: no handler in it runs."""


class Host(Provider):
    """A provider of one enclave. What was killed is there again at once, and remembers nothing."""

    def __init__(self, store: FileStore, vault: Vault, killed: Callable[[], Vault]) -> None:
        super().__init__(store, lambda storage: TrustedEnclave(storage, vault=vault))
        self._killed = killed

    def request(self, session: int, sealed: bytes | memoryview) -> bytes:
        try:
            return super().request(session, sealed)
        except Killed:
            self._enclave = TrustedEnclave(RecordingStore(self.store, self.transcript), vault=self._killed())
            raise Unavailable("the enclave is gone", hint="connect again") from None
