"""The streams of a database: what opens them, what they wait to send, and how queries here include that.

It runs on the machine of the key's holder. Which tables have a stream here is public; what waits in a log is SECRET,
and what is asked of the enclave must not depend on it. `Database` (owner/database.py) is this and the tables.
"""

from abc import abstractmethod
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING

from scumble.errors import Busy, InvalidParameter, Stale
from scumble.owner.custody import Custody
from scumble.owner.key_file import log_files, logged_tables, streams_path
from scumble.wire.catalog import Streamed, Table

if TYPE_CHECKING:
    import pyarrow as pa

    from scumble.owner.ledger import Ledger
    from scumble.owner.log_changes import LogChanges
    from scumble.owner.stream_log import StreamLog
    from scumble.owner.stream_segments import Content
    from scumble.owner.streams import Behind, Stream, StreamStatus
    from scumble.privacy.budget import Exact

__all__ = ["Streaming"]

BUSY_SECONDS = 5.0  # as any writer waits for another


class Streaming(Custody):
    """A database whose tables can have streams."""

    def stream(
        self,
        table: str,
        every: float = 60,
        rows: int = 256,
        policy: str = "heartbeat",
        epsilon: "Exact | None" = None,
        *,
        rows_per_user: int = 1,
        told: "Callable[[Behind], None] | None" = None,
    ) -> "Stream":
        """Open a stream into a table: rows that are written to it are durable at once, and in the table soon.

        `heartbeat` sends a batch of `rows` rows every so many seconds, full or not, and costs nothing. `timer` sends
        all that waits, in a batch of a noisy size; `threshold` does so once about `rows` rows wait. Both cost epsilon
        once, for all batches together, however often the stream is closed and opened again on the same terms.

        While rows wait, queries here include them. If more wait than a batch takes, `told` is called; without it there
        is a warning. One stream at a time can be open for a table. docs/streams.md says more.
        """
        from scumble.owner.stream_log import StreamLog
        from scumble.owner.stream_policies import policy_named
        from scumble.owner.stream_target import StreamTarget, open_stream

        terms = policy_named(policy, rows=rows, epsilon=epsilon, rows_per_user=rows_per_user)
        with self._alone():
            found = self._there(table)
            log = StreamLog(self._log_path(found.id), self._log_keys, found.id)
            changes = self._log_changes
            target = StreamTarget(
                self._versions, found, self._paying, self._held_alone, self._inserted, changes.is_made
            )
            stream = open_stream(target, log, terms, every, told, partial(self._streams.pop, found.id, None))
            self._streams[found.id] = stream
            return stream.start()

    def stream_status(self, table: str) -> "StreamStatus | None":
        """How the stream into a table stands, whoever has it open on this machine; None if there is none."""
        from scumble.owner.streams import StreamStatus

        with self._turn:
            found = self._there(table)
        stream = self._streams.get(found.id)
        if stream is not None:
            return stream.status()
        log = self._log(found.id) if found.id in self._logged else None
        if log is None or log.state is None:
            return None
        return StreamStatus.of_log(found.name, log.state, log.alive)

    def waiting(self, table: str) -> "pa.Table | None":
        """SECRET: the rows that were written to a stream here and are not in the table yet; None if there are none."""
        with self._turn:
            return self._versions.retrying(lambda: self._waiting(self._versions.catalog.table(table)))

    @property
    def _logged(self) -> frozenset[str]:
        """PUBLIC: the ids of the tables that have a stream here."""
        return logged_tables(self._streams_folder)

    def _waiting(self, table: Table) -> "pa.Table | None":
        """The rows of a table's log that its newest version lacks. The catalog was read before the log is.

        If the log knows of a batch that the catalog does not show, the catalog may be out of date: Stale, once. If it
        is still so with the newest, a restore or a TRUNCATE has taken that batch away. Within a transaction nobody else
        can have changed anything.
        """
        names = log_files(self._streams_folder, table.id)
        if names is None:
            return None
        found, catalog = self._log_changes.waiting_in(table, names), self._versions.catalog
        lacks = None if any(found.last in run.batches for run in table.runs) else found.last
        seen = catalog.version
        if not self.in_transaction:
            if lacks is not None and self._lacking.get(table.id) != (lacks, seen):
                self._lacking[table.id] = lacks, seen
                raise Stale("the table has changed", hint="ask again")
            if found.changed is not None and found.changed > (catalog.restores, seen):
                raise Stale("the table has changed", hint="ask again")
        if found.rows is None:
            return None
        from scumble.owner.stream_target import fitted

        return fitted(found.rows, table)

    def close(self) -> None:
        for stream in list(self._streams.values()):
            stream.close()
        super().close()

    def _there(self, table: str) -> Table:
        self._versions.refresh()
        return self._versions.catalog.table(table)

    @contextmanager
    def _alone(self) -> Iterator[None]:
        """Keep other threads from using the database; Busy if a transaction does for long.

        Within a transaction of this thread, refuse: a rollback would undo what a log has for done.
        """
        if not self._turn.acquire(timeout=BUSY_SECONDS):
            raise Busy("a transaction of another thread is under way", hint="COMMIT or ROLLBACK it")
        try:
            if self.in_transaction:
                raise InvalidParameter(
                    "a stream sends nothing within a transaction", hint="COMMIT or ROLLBACK it first"
                )
            yield
        finally:
            self._turn.release()

    @contextmanager
    def _held_alone(self) -> Iterator[None]:
        """A version of a stream's own, once a transaction of another thread has ended."""
        with self._alone(), self.transaction():
            yield

    @contextmanager
    def _logs_held(self) -> "Iterator[list[StreamLog]]":
        with super()._logs_held() as logs:
            for log in logs:
                log.absorb(self._log_changes.is_made)
            yield logs

    @abstractmethod
    def transaction(self) -> AbstractContextManager[None]:
        """Make one version of all changes in a `with` block, or none if it fails."""

    @property
    @abstractmethod
    def in_transaction(self) -> bool:
        """Whether a transaction is under way, by BEGIN or in a `with` block."""

    @abstractmethod
    def _inserted(
        self, table: str, rows: object, capacity: int | None, batch: str | None, streamed: "Streamed | None"
    ) -> int:
        """Insert rows into a table's tail: under the name of a batch, once."""

    def _log(self, table_id: str) -> "Content":
        """What the log of a stream says that is not open in this process."""
        from scumble.owner.stream_log import read_log

        return read_log(self._log_path(table_id), self._log_keys, table_id)

    @cached_property
    def _log_changes(self) -> "LogChanges":
        from scumble.owner.log_changes import LogChanges

        return LogChanges(self._versions, self._streams_folder, lambda: self._log_keys, self._streams)

    def _log_path(self, table_id: str) -> Path:
        return Path(self._streams_folder, table_id)

    @cached_property
    def _streams_folder(self) -> str:
        """As text, since it is looked at for every query."""
        return str(streams_path(self._versions.key_path))

    @property
    def _log_keys(self) -> list[bytes]:
        return [key.stream_key() for key in self._versions.key.candidates()]

    @contextmanager
    def _paying(self) -> "Iterator[Ledger]":
        """The ledger, while the database is held for writing."""
        with self._alone(), self._changing():
            self._reconcile(held=True)
            yield self.ledger

    @cached_property
    def _streams(self) -> "dict[str, Stream]":
        return {}

    @cached_property
    def _lacking(self) -> dict[str, tuple[str, int]]:
        """By a table's id: a batch that was sent and that it lacks, in the version where that was seen."""
        return {}
