"""UNTRUSTED: the provider of one database. It carries sealed bytes between owners and an enclave.

It opens none of them. The enclave gets a store whose every call is recorded, so the transcript has all that the
provider can see.
"""

from collections.abc import Callable, Collection
from contextlib import AbstractContextManager

from scumble.store.protocol import Store
from scumble.store.transcript import RecordingStore, Transcript, size_bytes
from scumble.wire.storage import Enclave, Storage

__all__ = ["Provider"]


class Provider:
    """A `Service` for owners: a store, an enclave that works on it, and the transcript of both."""

    def __init__(
        self, store: Store, make_enclave: Callable[[Storage], Enclave], transcript: Transcript | None = None
    ) -> None:
        self.store = store
        self.transcript = Transcript(store.log) if transcript is None else transcript
        self._enclave = make_enclave(RecordingStore(store, self.transcript))

    def fresh_key(self) -> bytes:
        return self._enclave.fresh_key()

    def greet(self, sealed: bytes) -> tuple[int, bytes]:
        transcript = self.transcript
        transcript.open_exchange("greet", len(sealed))
        try:
            session, answer = self._enclave.greet(sealed)
        except BaseException:
            transcript.close_exchange("failure", 0)
            raise
        transcript.close_exchange("session", session, len(answer))
        return session, answer

    def request(self, session: int, sealed: bytes | memoryview) -> bytes:
        transcript = self.transcript
        transcript.open_exchange("request", session, size_bytes(sealed))
        try:
            answer = self._enclave.request(session, sealed)
        except BaseException:
            transcript.close_exchange("failure", session)
            raise
        transcript.close_exchange("answer", session, len(answer))
        return answer

    def leave(self, session: int) -> None:
        self.transcript.record("leave", session)
        self._enclave.leave(session)

    def writer(self, busy_seconds: float = 5) -> AbstractContextManager[None]:
        return self.store.writer(busy_seconds)

    def rights_writer(self) -> AbstractContextManager[None]:
        return self.store.writer()

    @property
    def stamp_lags(self) -> bool:
        return False

    def stamp(self) -> str:
        return self.store.stamp()

    def drop_unreferenced(self, keep: Collection[str] = ()) -> int:
        return self.store.drop_unreferenced(keep)

    def close(self) -> None:
        self.transcript.close()
        self.store.close()
