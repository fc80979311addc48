"""The provider's front: sealed requests of owners come in, sealed answers go out, and the transcript says what it saw.

UNTRUSTED. It passes bytes between owner and enclave without opening them, and gives the enclave a store whose every
call is recorded.
"""

from collections.abc import Callable, Collection, Sequence
from contextlib import AbstractContextManager

from scumble.store.files import FileStore
from scumble.store.transcript import Transcript
from scumble.wire.storage import Enclave, RunShape, Storage

__all__ = ["Provider", "RecordingStore"]


class RecordingStore:
    """A `Storage` that takes note of every call before it is made, or, where the answer's size is news, after."""

    def __init__(self, store: Storage, transcript: Transcript) -> None:
        self._store = store
        self._record = transcript.record

    def head(self) -> bytes:
        """The current manifest."""
        manifest = self._store.head()
        self._record("head", len(manifest))
        return manifest

    def manifest(self, version: int) -> bytes:
        """An earlier one."""
        manifest = self._store.manifest(version)
        self._record("manifest", version, len(manifest))
        return manifest

    def tags(self, run: str, column: int) -> bytes:
        """The tags of a column's pages."""
        tags = self._store.tags(run, column)
        self._record("tags", run, column, len(tags))
        return tags

    def read(self, run: str, column: int, first_page: int, pages: int, into: memoryview) -> None:
        """Fill `into` with sealed pages."""
        self._record("read", run, column, first_page, pages, into.nbytes)
        self._store.read(run, column, first_page, pages, into)

    def create_run(self, run: str, shape: RunShape) -> None:
        """Make room for a new run."""
        self._record("create_run", run, len(shape), sum(pages * slot_bytes for pages, slot_bytes in shape))
        self._store.create_run(run, shape)

    def write(self, run: str, column: int, first_page: int, pages: bytes | memoryview) -> None:
        """Write sealed pages of a new run."""
        self._record("write", run, column, first_page, _size_bytes(pages))
        self._store.write(run, column, first_page, pages)

    def finish_run(self, run: str, tags: Sequence[bytes]) -> None:
        """Write the tags, and make the run durable."""
        self._record("finish_run", run, sum(map(len, tags)))
        self._store.finish_run(run, tags)

    def commit(self, version: int, manifest: bytes) -> None:
        """Make `manifest` the head."""
        self._record("commit", version, len(manifest))
        self._store.commit(version, manifest)

    def write_scratch(self, name: str, sealed: bytes | memoryview) -> None:
        """Keep something for the time of a load."""
        self._record("write_scratch", name, _size_bytes(sealed))
        self._store.write_scratch(name, sealed)

    def read_scratch(self, name: str) -> bytes:
        """Give it back."""
        sealed = self._store.read_scratch(name)
        self._record("read_scratch", name, len(sealed))
        return sealed

    def drop_scratch(self) -> None:
        """Forget all of it."""
        self._record("drop_scratch")
        self._store.drop_scratch()


class Provider:
    """A store, an enclave that works on it, and the transcript of both. It is an `Enclave` to those who talk to it."""

    def __init__(
        self, store: FileStore, make_enclave: Callable[[Storage], Enclave], transcript: Transcript | None = None
    ) -> None:
        self.store = store
        self.transcript = Transcript(store.folder) if transcript is None else transcript
        self._enclave = make_enclave(RecordingStore(store, self.transcript))

    @property
    def public_key(self) -> bytes:
        """The key that owners seal their greeting to."""
        return self._enclave.public_key

    def greet(self, sealed: bytes) -> tuple[int, bytes]:
        """Open a session: its number, and a sealed answer."""
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
        """Pass on one sealed request, and the sealed answer to it."""
        transcript = self.transcript
        transcript.open_exchange("request", session, _size_bytes(sealed))
        try:
            answer = self._enclave.request(session, sealed)
        except BaseException:
            transcript.close_exchange("failure", session)
            raise
        transcript.close_exchange("answer", session, len(answer))
        return answer

    def leave(self, session: int) -> None:
        """Forget a session."""
        self.transcript.record("leave", session)
        self._enclave.leave(session)

    def writer(self, busy_seconds: float = 5) -> AbstractContextManager[None]:
        """Hold the store for writing: around every request that loads, drops or seals anew."""
        return self.store.writer(busy_seconds)

    @property
    def stamp_lags(self) -> bool:
        """The stamp is that of now."""
        return False

    def stamp(self) -> object:
        """Something that changes with every commit."""
        return self.store.stamp()

    def drop_unreferenced(self, keep: Collection[str] = ()) -> int:
        """Delete the runs that no table has any more."""
        return self.store.drop_unreferenced(keep)

    def close(self) -> None:
        """Write the transcript, and let go of every file."""
        self.transcript.close()
        self.store.close()


def _size_bytes(content: bytes | memoryview) -> int:
    return content.nbytes if isinstance(content, memoryview) else len(content)
